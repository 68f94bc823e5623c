"""PPO against Stable-Baselines3's, per second of processor time, on one thread.

``steps``: an update on a round that is given, of the sizes of HalfCheetah-v5: 2,048 decisions of 8 environments, 10
passes in minibatches of 64. Ours is `Learner.update`, from the arrays of the queue to the weights, advantages included;
Stable-Baselines3's is `PPO.train`, to which they are given.

``training``: rounds of 2,048 decisions with 8 HalfCheetah-v5, all included: environments, acting, normalisation,
storing, updates. Networks and settings are alike: two hidden layers of 64 for policy and value each, normalised
observations and rewards. Needs the extra mujoco.

    python -m benchmarks.ppo_speed [steps] [training]

Hold: >= 2 times the gradient steps, >= 1.6 times the environment steps of Stable-Baselines3.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box

from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table

OURS, PEER = "ours", "SB3"
ENVS, ROWS, STEPS = 8, 256, 320  # environments, decisions of each in a round, gradient steps of an update
OBSERVATION, ACTION = 17, 6


class Still(gym.Env[Any, Any]):
    """The spaces of HalfCheetah-v5, and random numbers."""

    observation_space = Box(-np.inf, np.inf, (OBSERVATION,), np.float64)
    action_space = Box(-1, 1, (ACTION,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        return self.np_random.normal(size=OBSERVATION), {}

    def step(self, action: Any) -> Any:
        """Return random numbers."""
        return self.np_random.normal(size=OBSERVATION), float(self.np_random.normal()), False, False, {}


def _spec(observation_space: Any, action_space: Any) -> Any:
    import async_wrappers.agents.configurables  # noqa: F401 - in an order without circles
    from async_wrappers.agents.families.actor_critic.ppo import PPO
    from async_wrappers.agents.losses.optimizers import create_adam

    return PPO(observation_space, action_space, device="cpu", optimizer=partial(create_adam, eps=1e-5))


def our_steps() -> Callable[[], float]:
    """Return what makes one update, and returns its gradient steps per second."""
    from async_wrappers.agents.learning.making import make_vector_learner

    learner = make_vector_learner(_spec(Still.observation_space, Still.action_space), ENVS)
    rng = np.random.default_rng(0)

    def observe() -> None:
        noise = rng.normal(size=(ENVS, ACTION)).astype(np.float32)
        log_prob = -0.5 * (noise**2 + np.log(2 * np.pi)).sum(axis=1)
        block = {
            "env_ids": np.arange(ENVS),
            "observation": rng.normal(size=(ENVS, OBSERVATION)),
            "action": noise.clip(-1, 1),
            "reward": rng.normal(size=ENVS).astype(np.float32),
            "interval": np.ones(ENVS, np.int64),
            **dict.fromkeys(("terminal", "truncated"), np.zeros(ENVS, bool)),
            "final": {},
            "extras": {"log_prob": log_prob.astype(np.float32), "drawn": noise},
        }
        learner.extend(block)

    def measure() -> float:
        while not learner.ready:
            observe()
        begin = time.process_time()
        learner.update()
        return STEPS / (time.process_time() - begin)

    return measure


def their_steps() -> Callable[[], float]:
    """Return the same of Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO("MlpPolicy", make_vec_env(Still, ENVS), n_steps=ROWS, device="cpu")
    model.learn(ENVS * ROWS)

    def measure() -> float:
        begin = time.process_time()
        model.train()
        return STEPS / (time.process_time() - begin)

    return measure


def our_training() -> Callable[[], float]:
    """Return what plays and learns from one round, and returns its environment steps per second."""
    from async_wrappers.agents.play.many.vector_agent import VectorAgent
    from async_wrappers.batched.factory import create_batched_envs

    envs = create_batched_envs(partial(gym.make, "HalfCheetah-v5"), ENVS)
    agent = VectorAgent(_spec(envs.observation_space, envs.action_space), ENVS)
    envs.begin(list(range(ENVS)))

    def measure() -> float:
        begin, updates = time.process_time(), agent.learner.updates
        before = agent.rows.frames_of_all
        while agent.learner.updates == updates:
            shown = envs.recv()
            agent.observe(shown)
            envs.send(shown.env_ids, agent.act(shown))
        return (agent.rows.frames_of_all - before) / (time.process_time() - begin)

    return measure


def their_training() -> Callable[[], float]:
    """Return the same of Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    environment = VecNormalize(make_vec_env("HalfCheetah-v5", ENVS))
    model = PPO("MlpPolicy", environment, n_steps=ROWS, device="cpu")

    def measure() -> float:
        begin = time.process_time()
        model.learn(ENVS * ROWS, reset_num_timesteps=False)
        return ENVS * ROWS / (time.process_time() - begin)

    return measure


PARTS: dict[str, tuple[str, Callable[[], Any], Callable[[], Any], float]] = {
    "steps": ("gradient steps per processor second", our_steps, their_steps, 2.0),
    "training": ("environment steps per processor second, learning included", our_training, their_training, 1.6),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=" or ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=15, help="interleaved samples of each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if unknown := set(args.parts) - PARTS.keys():
        parser.error(f"parts must be of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    for part in args.parts or PARTS:
        title, ours, theirs, least = PARTS[part]
        samples = interleave({OURS: ours(), PEER: theirs()}, args.rounds)
        print_table(title, samples, PEER)
        print_hold(f"{part}: {OURS} / {PEER}", median_ratio(samples, OURS, PEER), least=least)
    print_load()


if __name__ == "__main__":
    main()
