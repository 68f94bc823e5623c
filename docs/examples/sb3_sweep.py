"""A sweep whose trials are another library's: Stable-Baselines3's DQN on CartPole, asynchronous and sequential.

PYTHONPATH=. python docs/examples/sb3_sweep.py results/sb3

Interrupted, the same command goes on: finished trials are kept. Then: python train.py plot results/sb3
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from async_wrappers import AppliedActions, RealtimeDelay
from async_wrappers.agents.sweep.run import sweep

GRID = [{"delay": delay, "noops": noops} for delay in (1, 2, 4) for noops in (0, delay)]


def make_env(delay: int, noops: int) -> gym.Env:
    """Return CartPole with the last actions shown to the policy, inside the delay."""
    env = AppliedActions(gym.make("CartPole-v1"), length=delay, flat=True)
    return Monitor(RealtimeDelay(env, delay=delay, noops=noops, default_action="repeat"))


def trial(point: dict[str, Any], seed: int, directory: Path, total_timesteps: int, episodes: int) -> dict[str, float]:
    """Train and evaluate one policy."""
    model = DQN(
        "MlpPolicy", make_env(**point), learning_starts=min(1_000, total_timesteps // 4), seed=seed, device="cpu"
    )
    model.learn(total_timesteps)
    model.save(directory / "model")
    env = make_env(**point)
    env.reset(seed=seed)
    score, _ = evaluate_policy(model, env, n_eval_episodes=episodes)
    return {"score": float(score)}


def main(
    base_dir: str, total_timesteps: int = 30_000, episodes: int = 20, grid: list[dict[str, int]] = GRID, seeds: int = 3
) -> Path:
    """Sweep, and return the path of the table."""
    return sweep(partial(trial, total_timesteps=total_timesteps, episodes=episodes), grid, seeds, base_dir, jobs=2)


if __name__ == "__main__":
    main(sys.argv[1])
