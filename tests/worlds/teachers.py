"""Teachers that need no training, an environment that shows them its observations, and the run of a small teacher."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Discrete

import async_wrappers.agents.configurables
import async_wrappers.configurables
from async_wrappers.agents.acting.frames_read import VIEW
from async_wrappers.agents.config.config import save_config
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.teaching.methods.qdagger import QDaggerDQN
from async_wrappers.agents.teaching.student_lessons import StudentsLessons
from async_wrappers.agents.teaching.student_progress import LABEL, TeachingPhase
from tests.worlds.agents import hyperparameters
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import load_gin

SPACES = Box(-np.inf, np.inf, (3,), np.float32), Discrete(3)
RNG = np.random.default_rng(0)
MODULES = (async_wrappers.agents.configurables, async_wrappers.configurables)
QUICK = (
    *(f"import {module.__name__}" for module in MODULES),
    "import tests.worlds.drifting_env",
    "create_gym_environment.environment_id = 'Drifting-v0'",
    "RealtimeDelay.default_action = 'random'",
    "Runner.num_iterations = 2",
    "Runner.training_steps = 60",
    "Runner.evaluation_steps = 40",
    "Runner.report_episodes = 0",
    "DQNAgent.min_replay_history = 10",
    "DQNAgent.batch_size = 8",
    "DQNAgent.epsilon_eval = 0.3",
    "MLPTorso.hidden = (8,)",
)


class ScriptedTeacher:
    """Values that are a fixed function of the newest observation; it has the replay of nobody."""

    def __init__(self, actions: int = 3, first_action: int = 0) -> None:
        self.first_action, self.num_actions = first_action, actions
        self.spec = SimpleNamespace(stack_size=1)
        self.asked: list[npt.NDArray[np.float32]] = []

    def values(self, stacks: Any) -> npt.NDArray[np.float32]:
        newest = np.asarray(stacks)[:, -1]
        self.asked.append(newest)
        wanted = np.floor(np.abs(newest[:, 0]) * 10) % self.num_actions
        return -((np.arange(self.num_actions) - wanted[:, None]) ** 2).astype(np.float32)


class TaughtEnv(DriftingEnv):
    """`DriftingEnv`, whose infos show a teacher the observation, with or without a delay around it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, self._info(observation)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *step, _ = super().step(action)
        return (*step, self._info(step[0]))  # type: ignore[return-value]

    def _info(self, observation: Any) -> dict[str, Any]:
        view = {VIEW: observation[None, None].copy()}
        frame = len(self.lives[-1].actions)
        realtime = {"frame": frame, "start": frame, "interval": 1, "applied": True, "observation_info": view}
        realtime["effect_info"], self._before = getattr(self, "_before", None) if frame else None, view
        return {**view, "realtime": realtime}


def make_student(kind: Any, environment: gym.Env[Any, Any], **arguments: Any) -> TurnBasedAgent:
    """A small student of `ScriptedTeacher`, in its online phase."""
    return taught(kind, environment, **hyperparameters(kind, **arguments))


def taught(kind: Any, environment: gym.Env[Any, Any], keeps_replay: bool = True, **arguments: Any) -> TurnBasedAgent:
    """A student of `ScriptedTeacher`, in its online phase."""
    agent = TurnBasedAgent.playing(kind, environment, **arguments)
    space: Any = environment.action_space
    teacher: Any = ScriptedTeacher(int(space.n), int(space.start))
    lessons_of(agent).set_teacher(Lesson(teacher, keeps_replay=keeps_replay))
    lessons_of(agent).begin_phase(TeachingPhase.ONLINE)
    return agent


def lessons_of(agent: Any) -> StudentsLessons:
    """The lessons of a student's agent."""
    assert isinstance(agent.lessons, StudentsLessons)
    return agent.lessons


def teachers_run(base_dir: Path, *bindings: str) -> Path:
    """Train a small DQN on `DriftingEnv`; return its directory."""
    load_gin("configs/dqn/cartpole.gin", bindings=[*QUICK, *bindings])
    runner: Experiment = create_runner(base_dir)
    save_config(base_dir)
    runner.run_experiment()
    gin.clear_config()
    return base_dir


def students_runner(base_dir: Path, teacher: Path, *bindings: str, gin_file: str = "qdagger_dqn_cartpole") -> Any:
    """Make a small runner of a QDagger student: an iteration of collecting, two offline and two online."""
    bound = (
        f"RunnerWithTeacher.teacher_checkpoint_dir = '{teacher}'",
        "RunnerWithTeacher.teacher_steps = 50",
        "RunnerWithTeacher.num_pretraining_steps = 6",
        "DQNAgent.summary_writing_frequency = 2",
    )
    load_gin(f"configs/reincarnation/{gin_file}.gin", bindings=[*QUICK, *bound, *bindings])
    return create_runner(base_dir)


def make_spec(kind: type[DQN] = QDaggerDQN, **arguments: Any) -> Any:
    return kind(*SPACES, **hyperparameters(kind, **arguments))


def batch_of(rows: int = 4) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "observation": torch.randn(rows, 1, 3, generator=generator),
        "next_observation": torch.randn(rows, 1, 3, generator=generator),
        "action": torch.tensor([0, 1, 2, 0][:rows]),
        "reward": torch.tensor([1.0, 0.0, -1.0, 2.0][:rows]),
        "discount": torch.tensor([0.9, 0.9, 0.0, 0.9][:rows]),
        "extras": {LABEL: torch.randn(rows, 3, generator=generator)},
    }
