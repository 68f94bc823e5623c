"""A teacher: the agent of a run, frozen, with its own environment."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.agents.acting.exploration import EpsilonGreedyPolicy
from async_wrappers.agents.config.config import empty_gin
from async_wrappers.agents.experiment.checkpoint import CHECKPOINTS, checked_replay, newest_bundle
from async_wrappers.agents.experiment.other_run import trained_agent
from async_wrappers.agents.families.actor_critic.unroll_agent import ActorCritic
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.play.play import delay_in_words, environment_seed
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.ring import TERMINAL
from async_wrappers.agents.spaces.actions import DiscreteActions, discrete_actions
from async_wrappers.agents.spaces.schema import Arrays, each_array
from async_wrappers.agents.teaching.teacher_view import is_delay, layers_of
from async_wrappers.agents.trained.agent_file import agent_path, is_agent_file, no_such_agent

Environment = gym.Env[Any, Any]

_MEASURED = 5  # after the phases: episodes have seeds of their own
_ROWS = 256  # stacks of a forward pass

# Scores of random play (Agarwal et al. 2022, atari_scores.py; of Wang et al. 2016 and Badia et al. 2020).
RANDOM_SCORES: Mapping[str, float] = {
    "Alien": 227.8, "Amidar": 5.8, "Assault": 222.4, "Asterix": 210.0, "Asteroids": 719.1, "Atlantis": 12850.0,
    "BankHeist": 14.2, "BattleZone": 2360.0, "BeamRider": 363.9, "Berzerk": 123.7, "Bowling": 23.1, "Boxing": 0.1,
    "Breakout": 1.7, "Centipede": 2090.9, "ChopperCommand": 811.0, "CrazyClimber": 10780.5, "Defender": 2874.5,
    "DemonAttack": 152.1, "DoubleDunk": -18.6, "Enduro": 0.0, "FishingDerby": -91.7, "Freeway": 0.0, "Frostbite": 65.2,
    "Gopher": 257.6, "Gravitar": 173.0, "Hero": 1027.0, "IceHockey": -11.2, "Jamesbond": 29.0, "Kangaroo": 52.0,
    "Krull": 1598.0, "KungFuMaster": 258.5, "MontezumaRevenge": 0.0, "MsPacman": 307.3, "NameThisGame": 2292.3,
    "Phoenix": 761.4, "Pitfall": -229.4, "Pong": -20.7, "PrivateEye": 24.9, "Qbert": 163.9, "Riverraid": 1338.5,
    "RoadRunner": 11.5, "Robotank": 2.2, "Seaquest": 68.4, "Skiing": -17098.1, "Solaris": 1236.3,
    "SpaceInvaders": 148.0, "StarGunner": 664.0, "Surround": -10.0, "Tennis": -23.8, "TimePilot": 3568.0,
    "Tutankham": 11.4, "UpNDown": 533.4, "Venture": 0.0, "VideoPinball": 0.0, "WizardOfWor": 563.5,
    "YarsRevenge": 3092.9, "Zaxxon": 32.5,
}  # fmt: skip


class Teacher:
    """A frozen agent, greedy, and the environment that it was trained in.

    An agent of a policy without memory, V-trace or PPO, teaches by its logits, in the place of Q-values: they order the
    actions, and their softmax with a temperature of 1 is the policy.

    Args:
        agent: A turn-based agent of values or of such a policy, which learns no more.
        environment: Its own.
        source: In messages, where it comes from.
        replay: Where its replay lies, and the iteration that wrote it; None for nowhere.
        checkpoint: The file of its weights, or its run's directory; None where it comes from no file.

    Attributes:
        spec: The agent's.
        environment: As given.
        num_actions: A.
        frozen: What labels need of it, which travels to other processes.

    Raises:
        ValueError: The agent has neither values nor the logits of single actions, or remembers.
    """

    def __init__(
        self,
        agent: Any,
        environment: Environment,
        source: str = "teacher",
        replay: Path | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        policy: Any = getattr(agent, "policy", None)
        of_values = isinstance(policy, EpsilonGreedyPolicy)
        if not isinstance(agent, TurnBasedAgent) or not (of_values or _has_logits(agent.spec, policy)):
            name = agent.identity()["agent"]
            raise ValueError(
                f"{source} must be of an agent of values, whose Q-values teach, or of V-trace or PPO without memory "
                f"and chunks, whose logits do, got {name}"
            )
        agent.eval_mode = True
        policy.network.requires_grad_(False)
        if of_values:
            policy.epsilon = _never
        self.spec: Any = agent.spec
        self.environment, self.source = environment, source
        actions = discrete_actions(environment.action_space, "teacher")
        self.first_action, self.num_actions = actions.first, actions.number
        self._agent, self._policy, self._replay, self._checkpoint = agent, policy, replay, checkpoint
        self.frozen = FrozenTeacher(policy, of_values, source)

    @classmethod
    def of_run(cls, path: str | Path, number: int | None = None) -> Teacher:
        """Load the teacher of a run of ours, or one that ships.

        Args:
            path: The run's directory, one of its checkpoints, an agent's file, or the name of one that ships.
            number: The checkpoint's number; None for the newest good one.

        Raises:
            ValueError: There is no run or no such checkpoint, or its agent cannot teach.
        """
        path = agent_path(path)
        if number is not None and path.is_dir():
            path = path / CHECKPOINTS / f"ckpt.{number}"
        if not os.path.exists(path):
            places = "a run's directory or one of its checkpoints, "
            raise ValueError(no_such_agent("teacher_checkpoint_dir", path, places))
        if is_agent_file(path) and path.is_file():
            return cls(*trained_agent(path), f"teacher {path}", None, path)
        base_dir = path if path.is_dir() else path.parent.parent
        agent, environment = trained_agent(path)
        checkpoint = newest_bundle(path)[0]
        replay = checkpoint if (base_dir / CHECKPOINTS / "replay").is_dir() else None
        return cls(agent, environment, f"teacher {path}", replay, path)

    @classmethod
    def of_first_weights(cls, environment: Environment, stack_size: int, seed: int) -> Teacher:
        """Make a teacher that has learnt nothing, for tests: a DQN with the weights that it begins with.

        Args:
            environment: One such as its student's, its own; the part inside the delay is played.
            stack_size: Observations that it reads.
            seed: Of the weights.
        """
        inside = next((layer.env for layer in layers_of(environment) if is_delay(layer)), environment)
        with empty_gin():  # the student's bindings are not the teacher's
            small: dict[str, Any] = {"stack_size": stack_size, "replay_capacity": stack_size + 8}
            agent = TurnBasedAgent.playing(DQN, inside, seed=seed, **small)
        return cls(agent, inside, f"the random teacher of seed {seed}")

    def identity(self) -> dict[str, Any]:
        """Return its agent's name and the SHA-256 of its weights, which are equal for the same teacher."""
        digest = hashlib.sha256()
        for name, weight in sorted(self._policy.weights().items()):
            digest.update(name.encode() + weight.detach().cpu().contiguous().numpy().tobytes())
        return {"agent": self._agent.identity()["agent"], "weights": digest.hexdigest()}

    @property
    def optimizer_name(self) -> str:
        """Name of its optimiser's class."""
        name: str = self._agent.learner.optimizer_name
        return name

    def state(self) -> dict[str, Any]:
        """Return the agent's checkpoint: weights, target, optimiser and counts.

        Raises:
            ValueError: The teacher comes from no checkpoint.
        """
        if self._checkpoint is None:
            raise ValueError(f"{self.source} must come from a checkpoint, got an agent")
        if is_agent_file(self._checkpoint):
            raise ValueError(
                f"{self.source} must be of a run's directory for its student to begin as it, target and all: the file "
                "holds weights alone, with which Runner.initial_checkpoint begins a run"
            )
        state: dict[str, Any] = newest_bundle(self._checkpoint)[1]["agent"]
        return state

    def values(self, stacks: Any) -> npt.NDArray[np.float32]:
        """Return the Q-values, or the logits, [R, A] of stacks of its observations [R, k, *shape]: a pure function.

        They are without noise.
        """
        return self.frozen.values(stacks)

    def score(self, seed: int, length: Any, max_frames: int | None) -> list[float]:
        """Play greedily in its own environment, and return the return of each episode.

        Args:
            seed: Of the student's run.
            length: The phase's length, a `Length`.
            max_frames: Frames after which an episode is cut.
        """
        return self._play(self._agent, seed, length, max_frames)

    def random_score(self, seed: int, length: Any, max_frames: int | None) -> float:
        """Return the score of random play: the table's for a game of Atari, measured for any other environment."""
        spec = self.environment.unwrapped.spec
        game = re.fullmatch(r"(?:ALE/)?(\w+?)(?:NoFrameskip|Deterministic)?-v\d+", "" if spec is None else spec.id)
        if game and game[1] in RANDOM_SCORES and self.environment.unwrapped.has_wrapper_attr("ale"):
            return RANDOM_SCORES[game[1]]
        return float(np.mean(self._play(RandomAgent(self.environment, seed), seed, length, max_frames)))

    def _play(self, agent: Any, seed: int, length: Any, max_frames: int | None) -> list[float]:
        agent.eval_mode = True
        scores, frames = list[float](), 0
        while (len(scores) < length.episodes) if length.episodes is not None else frames < length.frames:
            seeded = environment_seed(seed, _MEASURED, len(scores))
            episode = play_episode(agent, self.environment, seeded, max_frames)
            frames += episode.frames
            scores.append(episode.score)
        return scores

    # The teacher's own replay.

    def demonstrations(self) -> Iterator[TeachersDemonstration]:
        """Yield the episodes of the teacher's replay, oldest first.

        Raises:
            ValueError: There is none, or it keeps no episodes.
        """
        learner = self._agent.learner
        if self._replay is None or not isinstance(learner, Learner) or not isinstance(learner.replay, Replay):
            raise ValueError(f"{self.source} has no replay, which offline phases learn from: {COLLECT}")
        try:
            learner.load_replay(self._replay.parent / "replay", checked_replay(self._replay))
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.source} has no replay that can be read ({error}): {COLLECT}") from None
        tree = learner.replay.schema.observation
        try:
            for columns in learner.replay.episodes():
                yield TeachersDemonstration(self, tree.nest([columns[name] for name in tree.columns]), columns)
        except ValueError as error:
            raise ValueError(f"{self.source}: {error}: {COLLECT}") from None
        finally:
            learner.replay.clear()


class FrozenTeacher:
    """What labels need of a teacher: a policy's Q-values, or its logits.

    Args:
        policy: Of an agent of values, or without memory.
        of_values: Which of the two.
        source: In messages, where it comes from.
    """

    def __init__(self, policy: Any, of_values: bool, source: str) -> None:
        self._policy, self._of_values, self.source = policy, of_values, source

    def values(self, stacks: Any) -> npt.NDArray[np.float32]:
        """Return the values, or the logits, [R, A] of stacks of the teacher's observations [R, k, *shape]."""
        found = self._policy.q_values(stacks) if self._of_values else self._policy.first_outputs(stacks)[0]
        values: npt.NDArray[np.float32] = found.float().cpu().numpy()
        return values


def check_own_replay(environment: Environment, teacher: Teacher) -> None:
    """Refuse a teacher's replay whose decisions differ from those of its student in `environment`.

    Raises:
        ValueError: The decisions differ; the message names the remedy, to let the teacher collect.
    """
    here, there = delay_in_words(environment), delay_in_words(teacher.environment)
    if here != "none" or there != "none":
        raise ValueError(f"{teacher.source} has a replay of the delay {there}, and its student's is {here}: {COLLECT}")
    reads, holds = environment.observation_space, teacher.environment.observation_space
    if reads != holds:
        raise ValueError(
            f"{teacher.source} has a replay of the observations {holds}, and its student reads {reads}: {COLLECT}"
        )


COLLECT = "collect transitions with the teacher, with RunnerWithTeacher.teacher_steps = 100_000 (frames)"


class TeachersDemonstration:
    """An episode of a teacher's replay: T decisions and T + 1 observations.

    Args:
        teacher: Whose replay it is.
        observations: Arrays [T + 1, *shape], nested as observations are.
        columns: Of consecutive slots, as `Replay.episodes` yields them.
    """

    def __init__(self, teacher: Teacher, observations: Any, columns: Arrays) -> None:
        self._teacher, self._observations, self._columns = teacher, observations, columns

    def transitions(self) -> Iterator[tuple[dict[str, Any], npt.NDArray[np.float32]]]:
        """Yield its transitions, with actions counted from 0, each with the teacher's values [A]."""
        columns, last = self._columns, len(self._columns["kind"]) - 2
        for step, label in enumerate(self._labels(last + 1)):
            terminal = bool(columns["kind"][step] == TERMINAL)
            transition = {
                "observation": self._at(step),
                "action": int(columns["action"][step]),
                "reward": float(columns["reward"][step]),
                "interval": int(columns["interval"][step]),
                "terminal": terminal,
                "truncated": step == last and not terminal,
                "next_observation": self._at(step + 1),
            }
            yield transition, label

    def _at(self, step: int) -> Any:
        return each_array(lambda array: array[step], self._observations)

    def _labels(self, steps: int) -> Iterator[npt.NDArray[np.float32]]:
        k = self._teacher.spec.stack_size
        for first in range(0, steps, _ROWS):
            rows = np.arange(first, min(first + _ROWS, steps))
            around = rows[:, None] + np.arange(1 - k, 1)
            yield from self._teacher.values(each_array(lambda array, at=around: _stacks(array, at), self._observations))


def _stacks(array: npt.NDArray[Any], around: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the rows at `around` [R, k], with zeros before the first one."""
    stacks = array[np.maximum(around, 0)]
    stacks[around < 0] = 0
    return stacks


def _has_logits(spec: Any, policy: Any) -> bool:
    """Return whether a policy gives logits of single Discrete actions for an observation alone."""
    actions = getattr(spec, "actions", None)
    single = isinstance(actions, DiscreteActions) and actions.chunk is None
    return isinstance(spec, ActorCritic) and single and not policy.remembers


def _never(decision: Any) -> float:
    return 0.0
