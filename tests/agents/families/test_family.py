"""What every agent of the Rainbow family keeps, turn-based, under delay, and as policy and learner apart."""

from __future__ import annotations

import multiprocessing
from copy import deepcopy
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle
import gin
import numpy as np
import pytest
import torch

import async_wrappers.agents.configurables  # noqa: F401 - the gin names
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.families.value_based.c51 import SupportWarning
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import AGENTS, create_spec
from async_wrappers.agents.replay.selectors import SELECTORS
from async_wrappers.policy import Decision
from tests.contracts.agent_contract import WORLDS, assert_apart_as_in_turn, assert_virtual_as_simulated
from tests.contracts.family_contract import FamilyContract
from tests.worlds.agents import (
    FAMILY,
    filled_learner,
    hyperparameters,
    make_agent,
    make_spec,
    observations,
    transitions,
)
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.plain_data import assert_identical, differs

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")


class TestC51(FamilyContract):
    member = "c51"


class TestSeveralUpdatesAtAFallingRate(FamilyContract):
    member = "dqn, double, dueling, prioritized"

    def make_agent(self, environment: Any, seed: int) -> Any:
        falling = {"learning_rate_decay": 9, "learning_rate_power": 2.0, "learning_rate_end": 0.1}
        return make_agent(self.member, environment, stack_size=2, seed=seed, num_updates_per_train_step=3, **falling)


class TestRainbow(FamilyContract):
    member = "rainbow"


class TestFullRainbow(FamilyContract):
    member = "full_rainbow"


class TestFullRainbowOfThePaper(FamilyContract):
    member = "full_rainbow, as in the paper on staggering"


class TestQuantile(FamilyContract):
    member = "quantile"


class TestImplicitQuantile(FamilyContract):
    member = "implicit_quantile"


# Policy and learner apart.


@pytest.mark.parametrize(
    ("member", "world"), [*((member, "delay 2, noops 3") for member in FAMILY), ("rainbow", "turn-based")]
)
def test_policy_and_learner_apart_do_the_same_as_in_turn(member: str, world: str, tmp_path: Path) -> None:
    assert_apart_as_in_turn(
        lambda env: make_agent(member, env, seed=4),
        lambda: WORLDS[world](DriftingEnv(noop=True, first_action=2)),
        tmp_path,
    )


@pytest.mark.parametrize("member", FAMILY)
def test_the_runner_on_the_virtual_clock_gives_the_frames_of_the_simulated_delay(member: str) -> None:
    frozen = {"min_replay_history": 10**6, "epsilon_warmup": 10**6, "epsilon_train": 0.3, "seed": 2}
    assert_virtual_as_simulated(
        lambda env: make_agent(member, env, **frozen), lambda: DriftingEnv(noop=True, first_action=1)
    )


def look(made: DQN) -> dict[str, Any]:
    """What a policy answers and a learner does."""
    policy, learner = made.make_policy(), filled_learner(made)
    asked = [policy.act(o, Decision(i % 3, i, i, bool(i % 2))) for i, o in enumerate(observations(30))]
    losses = [float(learner.update()["Loss"]) for _ in range(3)]
    return {"actions": asked, "losses": losses, "weights": {n: w.tolist() for n, w in learner.weights().items()}}


def look_and_tell(pickled: bytes, pipe: Connection) -> None:
    """Runs in a process that has never seen a gin file."""
    torch.set_num_threads(1)
    for made in cloudpickle.loads(pickled):
        pipe.send(look(made))


CONFIG = """
DQNAgent.stack_size = 1
DQNAgent.device = "cpu"
DQNAgent.replay_capacity = 200
DQNAgent.batch_size = 4
DQNAgent.epsilon_warmup = 20_000
DQNAgent.double_dqn = True
create_network.torso = @MLPTorso
create_network.head = @DuelingHead
MLPTorso.hidden = (7,)
DQNAgent.optimizer = @slow/create_optimizer
slow/create_optimizer.learning_rate = 0.125
C51Agent.num_atoms = 5
C51Agent.vmax = 4.0
RainbowAgent.priority_exponent = 0.25
FullRainbowAgent.noisy_sigma = 2.0
QuantileAgent.num_atoms = 6
ImplicitQuantileAgent.quantile_embedding_dim = 3
"""


@pytest.mark.usefixtures("fork_server")
def test_a_process_of_its_own_makes_the_parts_of_every_agent_without_gin() -> None:
    env, made = DriftingEnv(), []
    for name in ("dqn", "c51", "rainbow", "full_rainbow", "quantile", "implicit_quantile"):
        gin.parse_config(f"{CONFIG}create_agent.agent_name = {name!r}")
        made.append(create_spec(env.observation_space, env.action_space, seed=1))
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    child = context.Process(target=look_and_tell, args=(cloudpickle.dumps(made), there))
    child.start()
    there.close()
    seen = [here.recv() for _ in made]
    child.join()
    assert seen == [look(parts) for parts in made]
    assert all(differs(one, other) for i, one in enumerate(seen) for other in seen[:i])
    # A width of 7, and 3 actions with their values: what gin was told, and not the defaults.
    heads = [{name: np.shape(w) for name, w in told["weights"].items() if name.startswith("head.adv")} for told in seen]
    assert [shapes["head.advantage.weight"] for shapes in heads] == [(3, 7), (15, 7), (15, 7), (15, 7), (18, 7), (3, 7)]


@pytest.mark.parametrize("member", FAMILY)
def test_a_policy_is_a_pure_function_of_observation_weights_and_decision(member: str) -> None:
    policy = make_spec(member, DriftingEnv(), epsilon_train=0.1).make_policy()
    asked = [(o, Decision(i % 5, i, i, bool(i % 3 == 0))) for i, o in enumerate(observations(60))]
    answers = [policy.act(*question) for question in asked]
    order = np.random.default_rng(1).permutation(60)
    before = torch.random.get_rng_state()
    assert {int(i): policy.act(*asked[i]) for i in order} == dict(enumerate(answers))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(set(answers)) > 1


@pytest.mark.parametrize("member", FAMILY)
def test_an_update_is_the_application_of_gradients(member: str) -> None:
    made = make_spec(member, DriftingEnv())
    one, other = filled_learner(made), filled_learner(made)
    for _ in range(4):
        one.update()
        other.apply(deepcopy(dict(other.gradients())))
    assert_identical(one.state_dict(), other.state_dict())


@pytest.mark.parametrize("member", FAMILY)
def test_what_is_learnt_fits_the_rewards(member: str) -> None:
    # Each step pays 0.5 and gamma is 0, so every taken action's value is 0.5, or the sum of two losses' targets.
    made = (
        make_spec(member, DriftingEnv(), gamma=0.0, epsilon_eval=0.0, noisy_sigma=0.1)
        if "full" in member
        else (make_spec(member, DriftingEnv(), gamma=0.0, epsilon_eval=0.0))
    )
    learner = filled_learner(made)
    for _ in range(100):
        learner.update()
    policy = made.make_policy_of(learner)
    values = policy.q_values(np.stack(observations(40))[:, None])
    taken = torch.tensor([transition["action"] for transition in transitions(40)])
    learnt = values.gather(1, taken.unsqueeze(1))
    torch.testing.assert_close(learnt, torch.full_like(learnt, 0.5), rtol=0, atol=0.15)


@pytest.mark.parametrize("member", ["rainbow", "quantile", "dqn, double, dueling, prioritized"])
def test_priorities_become_the_losses_raised_to_the_exponent(member: str) -> None:
    made = make_spec(member, DriftingEnv(), priority_exponent=0.5, priority_epsilon=0.25)
    each, loss = [], made.loss
    made.loss = lambda *arguments: each.append(loss(*arguments)) or each[-1]  # type: ignore[method-assign]
    learner = filled_learner(made)
    told: list[tuple[np.ndarray, np.ndarray]] = []
    set_priorities = learner.replay.set_priorities
    learner.replay.set_priorities = lambda index, priority: [
        told.append((index, priority)),
        set_priorities(index, priority),
    ]
    learner.update()
    np.testing.assert_allclose(told[0][1], each[0].loss.detach().double().numpy() + 0.25)


def test_a_one_step_loss_is_added_to_that_of_the_n_step_return() -> None:
    arguments: dict[str, Any] = {"gamma": 0.5, "noisy": False, "num_atoms": 7, "vmax": 3.0}
    made = make_spec("full_rainbow", DriftingEnv(), one_step_loss=True, update_horizon=3, **arguments)
    seen: list[Any] = []
    of = made.loss

    def spy(networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        output = of(networks, batch, rng)
        seen.append((batch, output.loss))
        return output

    made.loss = spy  # type: ignore[method-assign]
    loss = filled_learner(made).update()["Loss"]
    (three, of_three), (one, of_one) = seen
    assert torch.equal(three["observation"], one["observation"]) and torch.equal(three["action"], one["action"])
    assert set(one["reward"].tolist()) == {0.5} and set(three["reward"].tolist()) <= {0.5, 0.75, 0.875}
    assert set(one["discount"].tolist()) <= {0.0, 0.5} and set(three["discount"].tolist()) <= {0.0, 0.125}
    torch.testing.assert_close(loss, ((of_three + of_one) * three["weight"]).mean())


# Bad input.


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("member", ["c51", "quantile", "implicit_quantile", "full_rainbow, not distributional"])
def test_a_reward_that_is_not_finite_stops_with_the_batch_in_a_file(member: str, reward: str, tmp_path: Path) -> None:
    made = make_spec(member, DriftingEnv(), diverged_dir=str(tmp_path / "new"))
    learner = filled_learner(made, reward=float(reward))
    before = deepcopy(learner.state_dict())
    says = rf"^the environment returned {reward} as its reward \(transition \d+ of the replay\), .* update 0 (nan|inf),"
    with pytest.raises(DivergedError, match=says) as caught:
        learner.update()
    path = tmp_path / "new" / "diverged_batch_0.pt"
    assert str(path) in str(caught.value)
    saved = torch.load(path, weights_only=True)
    assert not saved["batch"]["reward"].isfinite().any() and saved["batch"]["observation"].shape == (8, 1, 3)
    assert_identical({**learner.state_dict(), "batches": 0}, before)


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [("reward", (), "inf"), ("observation", (2,), "nan"), ("next observation", (1,), "-inf")],
)
def test_what_the_environment_returned_is_told_of_by_name_and_place(
    kind: str, place: tuple[int, ...], value: str, tmp_path: Path
) -> None:
    """Transition 12 of 40, in a replay that is drawn from until it comes up."""
    learner = make_learner(make_spec("quantile", DriftingEnv(), diverged_dir=str(tmp_path), replay_capacity=100))
    for number, transition in enumerate(transitions(40)):
        spoilt = {name: np.copy(part) if name == "observation" else part for name, part in transition.items()}
        if number == 12 and kind == "reward":
            spoilt["reward"] = float(value)
        elif number == 12 + (kind == "next observation"):
            spoilt["observation"][place] = float(value)
        learner.observe(spoilt)
    if kind == "next observation":  # slot 13 holds the end of the first episode: 12 led to what 13, in slot 14, saw
        learner.replay.sample = lambda: learner.replay.transitions(np.array([13] * 8))
    where = f"\\[{place[0]}\\]" if place else ""
    says = f"^the environment returned {value} as its {kind}{where} \\(transition \\d+ of the replay\\), which makes"
    with pytest.raises(DivergedError, match=says) as caught:
        for _ in range(200):
            learner.update()
    (path,) = tmp_path.iterdir()
    assert str(path) in str(caught.value)


def test_weights_that_are_not_finite_are_not_the_environments_fault(tmp_path: Path) -> None:
    learner = filled_learner(make_spec("quantile", DriftingEnv(), diverged_dir=str(tmp_path)))
    next(iter(learner.network.parameters())).data.fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"^the loss of update 0 is nan, .* a smaller learning rate"):
        learner.update()


def test_returns_that_leave_the_support_are_told_once_with_numbers() -> None:
    made = make_spec("c51", DriftingEnv(), gamma=0.5)
    learner = make_learner(made)
    # An episode of ten steps pays 2 * 1.998 r in all.
    with pytest.warns(SupportWarning) as warned:
        for transition in transitions(30, reward=4.0):
            learner.observe(transition)
    assert len(warned) == 1
    message = str(warned[0].message)
    assert message.startswith("the discounted return of an episode is 7.992, outside the support [-3, 3], whose end")


def test_returns_within_the_support_are_not_told(recwarn: pytest.WarningsRecorder) -> None:
    learner = make_learner(make_spec("c51", DriftingEnv(), gamma=0.5))
    for transition in transitions(30, reward=1.5):
        learner.observe(transition)
    assert not recwarn.list


def test_the_return_of_an_episode_that_is_not_seen_in_full_is_not_told(recwarn: pytest.WarningsRecorder) -> None:
    learner = make_learner(make_spec("c51", DriftingEnv(), gamma=0.5), 1, 2)
    told = transitions(30, reward=4.0)
    for transition, then in list(pairwise(told))[1::2]:
        learner.observe({**transition, "next_observation": then["observation"]})
    assert not recwarn.list


class Reshaping(torch.nn.Module):
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation.view(-1, 5)


@pytest.mark.parametrize(
    ("member", "network", "message"),
    [
        (
            "c51",
            lambda shape, actions, atoms: Reshaping(),
            r"^network must take observations \[B, 1, 3\] of torch.float32 \(stack_size first\), and Reshaping does",
        ),
        (
            "c51",
            lambda shape, actions, atoms: create_network(shape, actions),
            r"^network must give \[B, 3, 7\] to agent 'c51', got \(1, 3\) from QNetwork",
        ),
        (
            "dqn, double, dueling, prioritized",
            lambda shape, actions: create_network(shape, actions, 4),
            r"^network must give \[B, 3\] to agent 'dqn', got \(1, 3, 4\) from QNetwork",
        ),
        (
            "implicit_quantile",
            lambda shape, actions: torch.nn.Flatten(),
            r"^network must have a torso and a head to read quantiles from, got Flatten",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_refused(member: str, network: Any, message: str) -> None:
    own = {**hyperparameters(member), "network": network}
    kind: Any = AGENTS[member.split(",")[0]]
    with pytest.raises(ValueError, match=message):
        TurnBasedAgent.playing(kind, DriftingEnv(), **own)


def test_the_state_of_another_agent_or_network_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    env = DriftingEnv()
    agent = make_agent("c51", env)
    before = deepcopy(agent.learner.state_dict())
    others = {
        "the state is that of a QuantileLearner, and this is a C51Learner": make_agent("quantile", env),
        "the state is that of another network (head.values.weight": make_agent("c51", env, num_atoms=9),
    }
    for number, (message, other) in enumerate(others.items()):
        bundle = other.bundle_and_checkpoint(tmp_path, number)
        with pytest.raises(ValueError) as caught:
            agent.unbundle(tmp_path, number, bundle)
        assert str(caught.value).startswith(message)
    assert_identical(agent.learner.state_dict(), before)


@pytest.mark.parametrize(
    ("member", "arguments", "message"),
    [
        (
            "c51",
            {"one_step_loss": True, "replay_eviction": "reservoir"},
            "replay_eviction must be 'oldest' where one_step_loss=True, got 'reservoir'",
        ),
        ("c51", {"replay_compression": "zip"}, "replay_compression must be 'lz4' or None, got 'zip'"),
        (
            "c51",
            {"replay_compression": "lz4", "replay_eviction": "reservoir"},
            "replay_compression must be None where replay_eviction='reservoir', got 'lz4'",
        ),
        ("c51", {"num_atoms": 1}, "num_atoms must be >= 2 atoms, got 1"),
        ("c51", {"vmin": 3.0}, "vmin must be < vmax, got vmin=3.0 and vmax=3.0"),
        (
            "c51",
            {"replay_scheme": "priority"},
            f"replay_scheme must be {' or '.join(map(repr, SELECTORS))}, or the class of a selector such as "
            "@MySelector, got 'priority'",
        ),
        (
            "rainbow",
            {"replay_eviction": "reservoir"},
            "replay_eviction must be 'oldest' where replay_scheme='prioritized', got 'reservoir'",
        ),
        ("rainbow", {"priority_exponent": 2.0}, r"priority_exponent must "),
        ("rainbow", {"priority_epsilon": -1.0}, "priority_epsilon must be >= 0 and finite, got -1.0"),
        ("full_rainbow", {"noisy_sigma": -1.0}, "noisy_sigma must be >= 0 and finite, got -1.0"),
        ("quantile", {"num_atoms": 0}, "num_atoms must be >= 1 quantile, got 0"),
        ("quantile", {"kappa": -1.0}, "kappa must be >= 0 and finite, got -1.0"),
        (
            "implicit_quantile",
            {"num_tau_samples": 0},
            "num_tau_samples must be >= 1 quantile, got 0",
        ),
        ("implicit_quantile", {"kappa": float("nan")}, "kappa must be >= 0 and finite, got nan"),
        *(
            (
                member,
                {"loss_type": "mse"},
                f"loss_type must not be bound with agent {member!r}, whose loss is of distributions and not of one "
                "error, got 'mse'",
            )
            for member in ("c51", "rainbow", "full_rainbow", "quantile", "implicit_quantile")
        ),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(
    member: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        make_agent(member, DriftingEnv(), **arguments)
    assert str(caught.value).splitlines()[0].startswith(message)


def test_full_rainbow_without_distributions_has_a_loss_type() -> None:
    agent = make_agent("full_rainbow", DriftingEnv(), distributional=False, loss_type="mse")
    assert agent.spec.loss_type == "mse"


def test_a_noisy_agent_explores_by_noise_alone_unless_it_is_told_otherwise() -> None:
    env, decisions = DriftingEnv(), [Decision(0, start, start, False) for start in range(200)]
    observation = observations(1)[0]

    def chosen(**arguments: Any) -> set[int]:
        policy = make_spec("full_rainbow", env, **arguments).make_policy()
        return {policy.act(observation, decision) for decision in decisions}

    assert len(chosen(noisy_sigma=3.0)) > 1
    assert len(chosen(noisy_sigma=0.0)) == 1
    assert len(chosen(noisy_sigma=0.0, epsilon_fn=identity_epsilon)) == 3
    assert len(chosen(noisy=False)) == 3


def test_evaluation_is_without_noise() -> None:
    made = make_spec("full_rainbow", DriftingEnv(), noisy_sigma=3.0, epsilon_eval=0.0)
    policy = made.make_policy()
    observation = observations(1)[0]
    assert len({policy.act(observation, Decision(0, start, start, True)) for start in range(50)}) == 1
