"""SAC's gradients and updates on one batch are those of Stable-Baselines3's SAC with the same weights.

Departures, by name: Stable-Baselines3 adds 1e-6 inside the logarithm of the squashed density, which is smaller than the
tolerance for actions that are not near the bounds; it steps the critics before the policy's loss, as ours does with
`critics_first` alone; and it leaves the gradients of the policy's loss in the critics, which its next update clears.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.learning.making import make_learner

sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
BATCH, UNITS, TAU = 16, 12, 0.05


@pytest.fixture
def environment() -> Iterator[Any]:
    with gym.make("Pendulum-v1") as env:
        yield env


def sgd(parameters: Any, lr: float = 0.1, **_: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


def ours(environment: Any, **arguments: Any) -> Any:
    sizes: dict[str, Any] = {"hidden_units": UNITS, "batch_size": BATCH, "replay_capacity": 200, "device": "cpu"}
    spaces = environment.observation_space, environment.action_space
    spec = SAC(*spaces, optimizer=sgd, target_smoothing_coefficient=TAU, min_replay_history=0, **sizes, **arguments)
    learner, rng = make_learner(spec), np.random.default_rng(3)
    for step in range(40):
        learner.observe(
            {
                "observation": rng.normal(size=3).astype(np.float32),
                "action": rng.uniform(-2, 2, 1).astype(np.float32),
                "reward": float(rng.normal()),
                "interval": 1,
                "terminal": step % 10 == 9,
                "truncated": False,
                "next_observation": rng.normal(size=3).astype(np.float32) if step % 10 == 9 else None,
            }
        )
    with torch.no_grad():  # the target is not the critics, nor the temperature 1
        for parameter in learner.target.parameters():
            parameter.mul_(1.1)
        learner.network.log_temperature.fill_(-0.5)
        learner.network.actor.head.layers[-1].bias[1] = -1.0  # of a deviation that keeps actions from the bounds
    return spec, learner


def theirs(environment: Any, learner: Any) -> Any:
    """Stable-Baselines3's agent with our weights."""
    policy = {"net_arch": [UNITS, UNITS], "optimizer_class": sgd}
    model = sb3.SAC(
        "MlpPolicy",
        environment,
        policy_kwargs=policy,
        learning_rate=0.1,
        tau=TAU,
        device="cpu",
        buffer_size=200,
        learning_starts=0,
    )
    model._setup_learn(1)
    network = learner.network
    with torch.no_grad():
        pairs = [(model.actor, actors(network.actor, dict(network.actor.named_parameters())))]
        pairs += [(model.critic, list(network.critics.parameters()))]
        pairs += [(model.critic_target, list(learner.target.parameters()))]
        for module, values in pairs:
            for own, value in zip(module.parameters(), values, strict=True):
                own.copy_(value)
        model.log_ent_coef.copy_(network.log_temperature)
    model.ent_coef_optimizer = sgd([model.log_ent_coef])
    return model


def actors(actor: nn.Module, numbers: dict[str, Tensor]) -> list[Tensor]:
    """Numbers of our actor in the order of Stable-Baselines3's: hidden layers, mean, logarithm of the deviation."""
    *hidden, weight, bias = (numbers[name] for name, _ in actor.named_parameters())
    return [*hidden, weight[:1], bias[:1], weight[1:], bias[1:]]


def update(model: Any, batch: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Stable-Baselines3 learn from our batch, with the noise of our draws."""
    target, policy = (torch.from_numpy(rng.standard_normal((BATCH, 1), dtype=np.float32)) for _ in range(2))
    drawn = iter((policy, target))  # it draws the policy's first
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *_, **__: next(drawn))
    done, reward, discount = (
        each.float().unsqueeze(1) for each in (batch["discount"] == 0, batch["reward"], batch["discount"])
    )
    samples = sb3.common.type_aliases.ReplayBufferSamples(
        batch["observation"][:, 0], batch["action"], batch["next_observation"][:, 0], done, reward, discount
    )
    model.replay_buffer.sample = lambda *_, **__: samples
    model.train(1, BATCH)


def test_gradients_are_equal(environment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, learner = ours(environment)
    model = theirs(environment, learner)
    found: dict[str, list[Tensor]] = {}

    def keep(name: str, optimizer: torch.optim.Optimizer) -> None:
        """Keep the gradients, in the place of a step."""
        found[name] = [each.grad.clone() for group in optimizer.param_groups for each in group["params"]]

    optimizers = {"actor": model.actor.optimizer, "critics": model.critic.optimizer}
    optimizers |= {"temperature": model.ent_coef_optimizer}
    for name, optimizer in optimizers.items():
        monkeypatch.setattr(optimizer, "step", lambda name=name, optimizer=optimizer: keep(name, optimizer))
    batch = learner.tensors(learner.draw().arrays)
    update(model, batch, np.random.default_rng(7), monkeypatch)

    network: Any = learner.network
    spec.loss(learner.networks, batch, np.random.default_rng(7)).loss.mean().backward()
    mine = {
        "actor": actors(network.actor, {name: each.grad for name, each in network.actor.named_parameters()}),
        "critics": [each.grad for each in network.critics.parameters()],
        "temperature": [network.log_temperature.grad.view(1)],
    }
    for name, gradients in mine.items():
        assert max(float(each.abs().max()) for each in gradients) > 1e-3
        torch.testing.assert_close(gradients, found[name], rtol=1e-5, atol=1e-5)


def test_updates_with_critics_first_are_equal(environment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, learner = ours(environment, critics_first=True)
    model = theirs(environment, learner)
    for number in range(3):
        sampled = learner.draw()
        batch = learner.tensors(sampled.arrays)
        update(model, batch, DecisionRandom(spec.learning_seed).draw(0, number, False), monkeypatch)
        learner.learn(sampled)
    network: Any = learner.network
    mine = [
        *actors(network.actor, dict(network.actor.named_parameters())),
        *network.critics.parameters(),
        *learner.target.parameters(),
        network.log_temperature.view(1),
    ]
    other = [*model.actor.parameters(), *model.critic.parameters(), *model.critic_target.parameters()]
    torch.testing.assert_close(mine, [*other, model.log_ent_coef], rtol=1e-5, atol=1e-5)
