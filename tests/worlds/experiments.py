"""Small experiments: a turn-based one on `DriftingEnv` under delay, and a live one on CartPole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers import RealtimeDelay
from async_wrappers.agents.config.config import load_config
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import create_runner
from tests.worlds.agents import tiny_network
from tests.worlds.drifting_env import Life

__all__ = [
    "ITERATIONS",
    "QUICK_LIVE",
    "ROOT",
    "Environment",
    "build_live",
    "drifting",
    "experiment",
    "lives",
    "load_gin",
    "make_dqn",
    "make_runner",
    "run",
    "state",
    "timeless",
]

ROOT = Path(__file__).parents[2]
Environment = gym.Env[Any, Any]
ITERATIONS = 3
QUICK_LIVE = (
    "AsyncRunner.fps = 500",  # ten times faster than the game is meant
    "AsyncRunner.calibration_time = 0.2",
    "Runner.training_steps = 300",
    "Runner.evaluation_steps = 60",
    "DQNAgent.min_replay_history = 20",
    "DQNAgent.batch_size = 8",
    "MLPTorso.hidden = (8,)",
)


def load_gin(*files: str, bindings: Sequence[str] = ()) -> None:
    """Replace gin's configuration by that of files of this project and bindings."""
    load_config(files, bindings, search_paths=[ROOT])


def drifting(delay: int = 2, noops: int = 1, name: str = "Drifting-v0", **arguments: Any) -> Environment:
    return RealtimeDelay(gym.make(name, **arguments), delay, noops, "random")


def lives(runner: Experiment) -> list[Life]:
    """What happened in the runner's environment."""
    return runner.environment.unwrapped.lives  # type: ignore[no-any-return, attr-defined]


make_dqn = partial(
    TurnBasedAgent.playing,
    DQN,
    stack_size=2,
    network=tiny_network,
    min_replay_history=10,
    update_period=2,
    target_update_period=14,
    epsilon_decay_period=100,
    replay_capacity=60,  # the ring is full before the end
    batch_size=4,
    optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    epsilon_eval=0.1,
    device="cpu",
    summary_writing_frequency=5,
)


def experiment(base_dir: Path, create_environment_fn: Any, create_agent_fn: Any, **settings: Any) -> Experiment:
    """An experiment in turn."""
    given = {"create_environment_fn": create_environment_fn, "create_agent_fn": create_agent_fn, **settings}
    return Experiment(base_dir, Runner(**given))


def make_runner(base_dir: Path, **arguments: Any) -> Experiment:
    small: dict[str, Any] = {
        "create_environment_fn": drifting,
        "create_agent_fn": make_dqn,
        "num_iterations": ITERATIONS,
        "training_steps": 40,
        "evaluation_steps": 20,
        "max_steps_per_episode": 15,
    }
    return experiment(base_dir, **{**small, **arguments})


def run(base_dir: Path, **arguments: Any) -> Experiment:
    runner = make_runner(base_dir, **arguments)
    runner.run_experiment()
    return runner


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.endswith("_per_second")}


def state(runner: Experiment) -> dict[str, Any]:
    """All that a run is, between two iterations."""
    agent = runner.agent
    assert isinstance(agent, TurnBasedAgent)
    return {
        "learner": agent.learner.state_dict(),
        "replay": agent.learner.replay.state_dict(),
        "turns": agent._turns(),
        "training_steps": agent.training_steps,
        "waiting": [block.left for block in agent._actor._closed],
        "episodes": runner.counts.episodes,
        "frames": runner.counts.frames,
        "statistics": [timeless(line) for line in runner.history],
        "lines": [timeless(line) for line in read_iterations(runner.base_dir)],
    }


def build_live(base_dir: Path, *bindings: str) -> Experiment:
    load_gin("configs/live/cartpole.gin", bindings=[*QUICK_LIVE, *bindings])
    runner: Experiment = create_runner(base_dir)
    return runner
