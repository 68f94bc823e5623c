r"""Stable-Baselines3 under delays, asynchronous and sequential, over seeds: curves and scores with intervals.

python docs/examples/sb3_sweep.py results/sb3 --env CartPole-v1 --delays 1 4 --seeds 2

`--env my_environments:MyEnvironment-v0` trains on an environment that the module my_environments registers. Interrupted
or failed, the same command goes on; finished trials are kept. Then: python train.py plot results/sb3

Discrete actions are learnt by DQN, a Box of them by SAC. `--ways late told` compares a policy that is told nothing with
one that is told its last actions, both with an action on every frame. Beside our own SAC, in one figure:

    python docs/examples/sb3_sweep.py results/sb3 --env Pendulum-v1 --delays 5 --ways late told
    python train.py sweep --gin_files configs/sac/pendulum_delay.gin --grid 'RealtimeDelay.delay = 5' \
        --base_dir results/ours
    python train.py plot results/sb3 results/ours
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FlattenObservation
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from async_wrappers import AppliedActions, CommittedActions, RealtimeDelay
from async_wrappers.agents.sweep.sweeping import sweep
from async_wrappers.posix import cores

EVALUATIONS = 5  # points of a learning curve
WAYS = {  # how many delays there are between two actions, and whether the policy is told its last actions
    "asynchronous": (0, True),
    "sequential": (1, True),
    "late": (0, False),
    "told": (0, True),
}


def make_env(env_id: str, delay: int, noops: int, default_action: str, told: bool) -> gym.Env:
    """Return the environment under a delay; if `told`, it shows the policy the last actions, and those on their way.

    Under delay the observation alone does not say what happens next: actions on their way still change it. With
    ``known=False`` all of them are shown, which a real policy knows if its actions take their time to arrive.
    `FlattenObservation` makes one vector of a Dict, which Stable-Baselines3 would not take inside another Dict.
    """
    env, shown = FlattenObservation(gym.make(env_id)), max(delay, 1)
    if told:
        env = AppliedActions(env, length=shown, flat=True)
    env = RealtimeDelay(env, delay=delay, noops=noops, default_action=default_action)
    return Monitor(CommittedActions(env, length=shown, flat=True, known=False) if told else env)


def trial(point: dict[str, Any], seed: int, directory: Path, env_id: str) -> dict[str, Any]:
    """Train one policy; return its returns and the frames it had played, after each part of the training."""
    steps, how = point["steps"], (env_id, *(point[name] for name in ("delay", "noops", "default_action", "told")))
    env, played, frames, returns = make_env(*how), make_env(*how), [], []
    learner = DQN if isinstance(played.action_space, gym.spaces.Discrete) else SAC
    model = learner("MlpPolicy", played, learning_starts=min(1_000, steps // 4), seed=seed, device="cpu")
    for _ in range(EVALUATIONS):
        model.learn(steps // EVALUATIONS, reset_num_timesteps=False)
        env.reset(seed=seed)  # the same episodes each time
        scores, _ = evaluate_policy(model, env, n_eval_episodes=point["episodes"], return_episode_rewards=True)
        frames.append(model.num_timesteps * (point["noops"] + 1))
        returns.append(float(np.mean(scores)))
    model.save(directory / "model")
    return {"score": returns[-1], "frames": frames, "return": returns}


def main(words: Sequence[str] | None = None) -> Path:
    """Sweep as the words of a command line say, and return the path of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base_dir", help="directory of the sweep")
    parser.add_argument("--env", default="CartPole-v1", help="such as my_environments:MyEnvironment-v0 (CartPole-v1)")
    parser.add_argument("--delays", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="in frames (1 2 4)")
    parser.add_argument(
        "--ways",
        nargs="+",
        default=["asynchronous", "sequential"],
        choices=WAYS,
        help="an action on every frame (also named told), one at a time, or on every frame and told nothing (late)",
    )
    parser.add_argument("--default-action", default="repeat", help="where none of the policy's lands, or noop (repeat)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of each delay and noops (3)")
    parser.add_argument("--steps", type=int, default=30_000, metavar="N", help="decisions of each training (30,000)")
    parser.add_argument("--jobs", type=int, default=cores(), metavar="N", help="trainings at a time (the cores)")
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="of each evaluation (20)")
    options = parser.parse_args(words)
    for name, least in (("seeds", 1), ("steps", EVALUATIONS), ("jobs", 1), ("episodes", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} must be >= {least}, got {getattr(options, name)}")
    # What is in the points is in the table: other settings are another sweep, and `plot` reads the environment.
    terms = {"environment": options.env.rpartition(":")[2], "steps": options.steps, "episodes": options.episodes}
    terms["default_action"] = options.default_action
    ways = sorted({WAYS[way] for way in options.ways})
    points = dict.fromkeys((delay, delay * waits, told) for delay in options.delays for waits, told in ways)
    grid = [{"delay": delay, "noops": noops, "told": told, **terms} for delay, noops, told in points]
    sys.path.append(os.getcwd())  # where your module is, as a rule
    try:  # an environment that cannot be made is refused here, not in each trial
        env = make_env(options.env, grid[0]["delay"], grid[0]["noops"], options.default_action, grid[0]["told"])
    except (gym.error.Error, ImportError, ValueError) as error:
        parser.error(f"--env {options.env}, --delays {options.delays[0]}: {error}")
    if not isinstance(env.action_space, gym.spaces.Discrete | gym.spaces.Box):
        parser.error(f"--env {options.env} has actions of {env.action_space}, and DQN and SAC take Discrete or Box")
    run = partial(trial, env_id=options.env)
    return sweep(run, grid, options.seeds, options.base_dir, jobs=options.jobs, retry_failed=True)


if __name__ == "__main__":
    main()
