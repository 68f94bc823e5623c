"""Losses that are looked at one update late, as on a device that nobody waits for; here on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.losses.loss import OPTIMIZERS, create_optimizer
from async_wrappers.agents.spaces.compute import Compute
from tests.worlds.agents import FAMILY, make_spec, transitions
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.plain_data import assert_identical

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")
PRIORITIZED = "dqn, double, dueling, prioritized"


def filled(member: str, wait: bool | None, **arguments: Any) -> Learner:
    made = make_spec(member, DriftingEnv(), **arguments)
    made.compute = Compute("cpu", wait=wait)
    learner = make_learner(made)
    for transition in transitions(40):
        learner.observe(transition)
    return learner


def spoil(learner: Learner) -> None:
    """Let all batches that are drawn from now on have rewards of NaN."""
    sample = learner.replay.sample

    def spoilt() -> dict[str, Any]:
        batch = dict(sample())
        batch["reward"] = batch["reward"] * float("nan")
        return batch

    learner.replay.sample = spoilt  # type: ignore[method-assign]


@pytest.mark.parametrize(("device", "late"), [("cpu", False), ("cuda", True)])
def test_only_where_a_device_would_be_waited_for_the_loss_is_looked_at_late(
    device: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Compute(device).deferred == late
    assert Compute(device, wait=True).deferred is False
    assert Compute(device, wait=False).deferred is True


@pytest.mark.parametrize("member", FAMILY)
def test_finite_losses_give_the_same_weights_and_priorities(member: str) -> None:
    learners = [filled(member, wait) for wait in (True, False)]
    for learner in learners:
        for _ in range(4):
            learner.update()
        learner.apply(deepcopy(dict(learner.gradients())))
    assert_identical(*(learner.state_dict() for learner in learners))
    assert_identical(*(learner.replay.state_dict() for learner in learners))  # type: ignore[attr-defined]


ASKED: dict[str, Callable[[Learner, Path], Any]] = {
    "the next update": lambda learner, path: learner.update(),
    "the next gradients": lambda learner, path: learner.gradients(),
    "the weights": lambda learner, path: learner.weights(),
    "the state": lambda learner, path: learner.state_dict(),
    "the replay's file": lambda learner, path: learner.save_replay(path, 0),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_loss_that_is_not_finite_raises_before_anything_is_given_away(asked: str, tmp_path: Path) -> None:
    learner = filled(PRIORITIZED, False, diverged_dir=str(tmp_path))
    for _ in range(3):
        learner.update()
    learner.finish_update()
    priorities = learner.replay.state_dict()["snapshot"]  # type: ignore[attr-defined]
    spoil(learner)
    learner.update()  # nobody has looked
    with pytest.raises(
        DivergedError, match=r"^the environment returned nan as its reward .* update 3 nan, and"
    ) as caught:
        ASKED[asked](learner, tmp_path / "replay")
    path = tmp_path / "diverged_batch_3.pt"
    assert str(path) in str(caught.value)
    saved = torch.load(path, weights_only=True)
    assert saved["batch"]["reward"].isnan().all()
    assert all(weight.isfinite().all() for weight in saved["learner"]["network"].values())
    assert not (tmp_path / "replay").exists()
    assert_identical(learner.replay.state_dict()["snapshot"], priorities)  # type: ignore[attr-defined]


@pytest.mark.parametrize("clip", [None, 10.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_spoils_neither_the_weights_nor_the_optimisers_state(name: str, clip: float | None) -> None:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return create_optimizer(parameters, name, momentum=0.5)

    learner = filled("full_rainbow", False, optimizer=optimizer, max_gradient_norm=clip, target_update_period=10)
    learner.update()
    spoil(learner)
    learner.update()
    state = learner._state()
    tensors = [*state["network"].values(), *state["target"].values()]
    tensors += [value for moments in state["optimizer"]["state"].values() for value in moments.values()]
    assert all(torch.as_tensor(tensor).isfinite().all() for tensor in tensors)


def test_without_momentum_it_moves_nothing() -> None:
    learner = filled(
        "c51", False, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0), target_update_period=1000
    )
    learner.update()
    before = deepcopy(learner.state_dict())
    spoil(learner)
    learner.update()
    assert_identical(learner.network.state_dict(), before["network"])


def test_weights_that_are_not_finite_are_not_saved() -> None:
    learner = filled("c51", None)
    gradients = dict(learner.gradients())
    name = next(iter(gradients))
    learner.apply({**gradients, name: torch.full_like(gradients[name], float("inf"))})
    with pytest.raises(DivergedError, match=rf"^{name} is not finite after update 1, though the loss was: a smaller"):
        learner.state_dict()


def test_the_state_of_another_moment_forgets_the_loss(tmp_path: Path) -> None:
    learner = filled("c51", False, diverged_dir=str(tmp_path))
    state = deepcopy(learner.state_dict())
    spoil(learner)
    learner.update()
    learner.load_state_dict(state)
    assert_identical(learner.state_dict(), state)
    assert not list(tmp_path.iterdir())
