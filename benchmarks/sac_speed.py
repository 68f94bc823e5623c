"""SAC's updates and its training per second of processor time, against Stable-Baselines3's and CleanRL's.

*Update alone*: the batch is given, so nobody samples. Sizes are HalfCheetah's (17 numbers observed, 6 of an action),
batch 256, 2 x 256 units, two critics, one thread. "ours" is `Learner.learn` of agent ``sac``; "critics first" has
Stable-Baselines3's order. Stable-Baselines3 is its `SAC.train`. CleanRL's script cannot be called for an update alone,
so `CleanRL` here does the same operations in the same order as its published `sac_continuous_action.py`: two critics
one after the other, and every second step two updates of the actor, each with one of the temperature.

*Training*: steps of HalfCheetah-v5, an update after each, all included: the environment, acting, the replay. Ours is
the turn-based agent, Stable-Baselines3 its `learn`.

All contestants are in one process and take turns, so that a busy machine slows them alike.

    OMP_NUM_THREADS=1 python -m benchmarks.sac_speed

Holds: an update >= 1.4 times both; training >= 1.25 times Stable-Baselines3's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn import functional

from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.learning.learner import SampledBatch
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table

BATCH, UNITS, OBSERVED, ACTED = 256, 256, 17, 6
OBSERVATIONS = Box(-np.inf, np.inf, (OBSERVED,), np.float32)
ACTIONS = Box(-1, 1, (ACTED,), np.float32)
OURS, FIRST, SB3, CLEANRL = "ours", "ours, critics first", "Stable-Baselines3", "CleanRL"
LEARNING_STARTS = 300  # steps


class Spaces(gym.Env[Any, Any]):
    """An environment of HalfCheetah's sizes that is never played."""

    observation_space, action_space = OBSERVATIONS, ACTIONS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return zeros."""
        super().reset(seed=seed)
        return np.zeros(OBSERVED, np.float32), {}


def per_second(update: Callable[[], Any], updates: int) -> Callable[[], float]:
    """Return a contestant that makes some updates, and returns how many a second of processor time has."""

    def window() -> float:
        began = time.process_time()
        for _ in range(updates):
            update()
        return updates / (time.process_time() - began)

    return window


# The update alone.


def our_update(critics_first: bool) -> Callable[[], Any]:
    """Return `Learner.learn` on a batch that is given."""
    spec = SAC(OBSERVATIONS, ACTIONS, replay_capacity=1_000, device="cpu", critics_first=critics_first)
    learner, rng = make_learner(spec), np.random.default_rng(0)
    arrays = {
        "observation": rng.standard_normal((BATCH, 1, OBSERVED), np.float32),
        "next_observation": rng.standard_normal((BATCH, 1, OBSERVED), np.float32),
        "action": rng.uniform(-1, 1, (BATCH, ACTED)).astype(np.float32),
        "reward": rng.standard_normal(BATCH, np.float32),
        "discount": np.full(BATCH, 0.99, np.float32),
    }
    numbers = count()

    def update() -> None:
        learner.learn(SampledBatch(next(numbers), arrays, None))
        learner.finish_update()

    return update


def tensors() -> list[Tensor]:
    """Return a batch: observations, actions, next observations, ends and rewards."""
    rng = np.random.default_rng(0)
    shapes = (BATCH, OBSERVED), (BATCH, ACTED), (BATCH, OBSERVED), (BATCH, 1), (BATCH, 1)
    made = [torch.from_numpy(rng.standard_normal(shape, np.float32)) for shape in shapes]
    return [made[0], made[1].tanh(), made[2], torch.zeros(BATCH, 1), made[4]]


def sb3_update() -> Callable[[], Any]:
    """Return Stable-Baselines3's `SAC.train` on a batch that is given."""
    import stable_baselines3
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    model = stable_baselines3.SAC("MlpPolicy", Spaces(), device="cpu", buffer_size=1_000)
    model._setup_learn(1)
    samples = ReplayBufferSamples(*tensors())
    model.replay_buffer.sample = lambda *_, **__: samples  # type: ignore[union-attr, method-assign, assignment]
    return lambda: model.train(1, BATCH)


class Critic(nn.Module):
    """One critic, as CleanRL's script has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(OBSERVED + ACTED, UNITS), nn.Linear(UNITS, UNITS)
        self.last = nn.Linear(UNITS, 1)

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return values `[B, 1]`."""
        hidden = functional.relu(self.first(torch.cat([observation, action], 1)))
        value: Tensor = self.last(functional.relu(self.second(hidden)))
        return value


class Actor(nn.Module):
    """The actor, as CleanRL's script has it: the logarithm of a deviation is a tangent between -5 and 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(OBSERVED, UNITS), nn.Linear(UNITS, UNITS)
        self.mean, self.log_std = nn.Linear(UNITS, ACTED), nn.Linear(UNITS, ACTED)
        self.register_buffer("scale", torch.ones(ACTED))
        self.register_buffer("bias", torch.zeros(ACTED))

    def draw(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions and their log-densities `[B, 1]`."""
        hidden = functional.relu(self.second(functional.relu(self.first(observation))))
        log_std = -5 + 3.5 * (self.log_std(hidden).tanh() + 1)
        normal = torch.distributions.Normal(self.mean(hidden), log_std.exp())
        before = normal.rsample()
        squashed = before.tanh()
        log_prob = normal.log_prob(before) - (self.scale * (1 - squashed.pow(2)) + 1e-6).log()
        self.mean(hidden).tanh()  # the script computes the mean action here too
        return squashed * self.scale + self.bias, log_prob.sum(1, keepdim=True)


def cleanrl_update() -> Callable[[], Any]:
    """Return what CleanRL's script does for a step of its environment, on a batch that is given."""
    actor, critics, targets = Actor(), [Critic(), Critic()], [Critic(), Critic()]
    of_critics = torch.optim.Adam([each for critic in critics for each in critic.parameters()], lr=1e-3)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    log_alpha = torch.zeros(1, requires_grad=True)
    of_alpha = torch.optim.Adam([log_alpha], lr=1e-3)
    observation, action, following, done, reward = tensors()
    alpha, steps = 1.0, count()

    def update() -> None:
        nonlocal alpha
        with torch.no_grad():
            next_action, next_log_prob = actor.draw(following)
            least = torch.min(*(target(following, next_action) for target in targets)) - alpha * next_log_prob
            wanted = reward.flatten() + (1 - done.flatten()) * 0.99 * least.view(-1)
        loss = sum(functional.mse_loss(critic(observation, action).view(-1), wanted) for critic in critics)
        of_critics.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        of_critics.step()
        if next(steps) % 2 == 0:
            for _ in range(2):
                drawn, log_prob = actor.draw(observation)
                values = torch.min(*(critic(observation, drawn) for critic in critics))
                of_actor.zero_grad()
                (alpha * log_prob - values).mean().backward()
                of_actor.step()
                with torch.no_grad():
                    _, log_prob = actor.draw(observation)
                of_alpha.zero_grad()
                (-log_alpha.exp() * (log_prob - ACTED)).mean().backward()
                of_alpha.step()
                alpha = log_alpha.exp().item()
        for critic, target in zip(critics, targets, strict=True):
            for own, old in zip(critic.parameters(), target.parameters(), strict=True):
                old.data.copy_(0.005 * own.data + 0.995 * old.data)

    return update


# Training.


def our_training(steps: int) -> Callable[[], float]:
    """Return a window of steps of the turn-based agent on HalfCheetah-v5."""
    environment = gym.make("HalfCheetah-v5")
    arguments: dict[str, Any] = {"min_replay_history": LEARNING_STARTS, "replay_capacity": 100_000, "device": "cpu"}
    agent = TurnBasedAgent.playing(SAC, environment, **arguments)

    def played() -> Iterator[None]:
        for episode in count():
            observation, _ = environment.reset(seed=episode)
            action = agent.begin_episode(observation)
            while True:
                observation, reward, terminated, truncated, _ = environment.step(action)
                yield
                if terminated or truncated:
                    break
                action = agent.step(float(reward), observation)
            agent.end_episode(float(reward), terminated, observation)

    playing = played()
    for _ in range(LEARNING_STARTS + 10):
        next(playing)
    return per_second(lambda: next(playing), steps)


def sb3_training(steps: int) -> Callable[[], float]:
    """Return a window of steps of Stable-Baselines3's `learn` on HalfCheetah-v5."""
    import stable_baselines3

    arguments: dict[str, Any] = {"learning_starts": LEARNING_STARTS, "buffer_size": 100_000, "device": "cpu"}
    model = stable_baselines3.SAC("MlpPolicy", gym.make("HalfCheetah-v5"), **arguments)
    model.learn(LEARNING_STARTS + 10)

    def window() -> float:
        began = time.process_time()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (time.process_time() - began)

    return window


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved windows")
    parser.add_argument("--updates", type=int, default=60, help="updates per window, an even number")
    parser.add_argument("--steps", type=int, default=150, help="steps of training per window")
    args = parser.parse_args()
    torch.set_num_threads(1)
    updates = {
        OURS: our_update(False),
        FIRST: our_update(True),
        SB3: sb3_update(),
        CLEANRL: cleanrl_update(),
    }
    samples = interleave({name: per_second(each, args.updates) for name, each in updates.items()}, args.rounds)
    print_table("updates per second of processor time, the batch given", samples, SB3, digits=1)
    for peer in (SB3, CLEANRL):
        print_hold(f"an update: {OURS} / {peer}", median_ratio(samples, OURS, peer), least=1.4)
    training = {OURS: our_training(args.steps), SB3: sb3_training(args.steps)}
    samples = interleave(training, args.rounds)
    print_table("training on HalfCheetah-v5, steps per second of processor time", samples, SB3, digits=1)
    print_hold(f"training: {OURS} / {SB3}", median_ratio(samples, OURS, SB3), least=1.25)
    print_load()


if __name__ == "__main__":
    main()
