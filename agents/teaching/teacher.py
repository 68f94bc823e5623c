"""A teacher: the agent of a run, frozen; and its own view of an environment that shows its student another one.

The two may read the same game in different ways: a teacher without delay reads frames, and its student under delay may
read the actions in flight too. Their environments, as chains of wrappers, have their innermost part in common::

    student   CartPole  TimeLimit | AppliedActions  RealtimeDelay  CommittedActions
    teacher   CartPole  TimeLimit | FlattenObservation
                     common part  | own wrappers

`TeacherView` stands around the common part in the student's chain. It shows each frame to the teacher's own wrappers
too, and puts the stack of observations that the teacher would read into ``info["teacher_observation"]``. So a delay
passes it on with the observation of the same frame.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.agents.acting.epsilon_greedy import EpsilonGreedyPolicy
from async_wrappers.agents.config.config import empty_gin
from async_wrappers.agents.demonstrations.demonstration import delay_in_words, delay_layer
from async_wrappers.agents.experiment.checkpoint import CHECKPOINTS, checked_replay, newest_bundle
from async_wrappers.agents.experiment.other_run import trained_agent
from async_wrappers.agents.families.actor_critic.actor_critic import ActorCritic
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.play.play import environment_seed
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.episode import play_episode
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.ring import TERMINAL
from async_wrappers.agents.spaces.actions import DiscreteActions, discrete_actions
from async_wrappers.agents.spaces.schema import Arrays, batch_of_one, each_array, stacked
from async_wrappers.agents.teaching.student import VIEW
from async_wrappers.agents.trained.agent_file import agent_path, is_agent_file, no_such_agent

__all__ = [
    "COLLECT",
    "RANDOM_SCORES",
    "Teacher",
    "TeacherView",
    "TeachersDemonstration",
    "WithoutDelay",
    "check_own_replay",
    "layers_of",
]

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
        """See the class."""
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
        self._labels = policy.q_values if of_values else lambda stacks: policy.first_outputs(stacks)[0]

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
        inside = next((layer.env for layer in layers_of(environment) if _is_delay(layer)), environment)
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
        values: npt.NDArray[np.float32] = self._labels(stacks).float().cpu().numpy()
        return values

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
        """See the class."""
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


# A teacher's view of its student's environment.


class TeacherView(gym.Wrapper[Any, Any, Any, Any]):
    """Puts the stack that a teacher reads of each frame into ``info["teacher_observation"]``.

    A stack holds the observations of consecutive frames, as those of a teacher without delay do.

    Args:
        env: The part that the environments of student and teacher have in common.
        teacher: Whose view it is.
        own: The teacher's own wrappers, innermost first, each a function from an environment to an environment; they
            are driven with the frames that the student's environment shows.
    """

    def __init__(
        self, env: Environment, teacher: Teacher, own: Sequence[Callable[[Environment], Environment]] = ()
    ) -> None:
        """See the class."""
        super().__init__(env)
        self._shown = shown = _Shown(env)
        self._frames: Environment = shown
        for wrap in own:
            self._frames = wrap(self._frames)
        self._teacher = teacher
        self._stack: deque[Any] = deque(maxlen=teacher.spec.stack_size)

    @classmethod
    def within(cls, environment: Environment, teacher: Teacher) -> Environment:
        """Return a student's environment with a teacher's view inside.

        Raises:
            ValueError: The teacher's observations or actions are of another game.
        """
        students, teachers = layers_of(environment), layers_of(teacher.environment)
        common = 0
        for one, other in zip(students, teachers, strict=False):
            if _is_delay(one) or _is_delay(other) or not _alike(one, other):
                break
            common += 1
        if not common:
            raise ValueError(
                f"{teacher.source} must play the environment of its student, {_name(students[0])} with the "
                f"observations {environment.observation_space}, got {_name(teachers[0])} with "
                f"{teacher.environment.observation_space}"
            )
        actions = discrete_actions(environment.action_space, "a student")
        if (actions.first, actions.number) != (teacher.first_action, teacher.num_actions):
            raise ValueError(
                f"{teacher.source} must have the actions of its student, {environment.action_space}, got "
                f"{teacher.environment.action_space}"
            )
        own = teachers[common:]
        delays = [place for place, layer in enumerate(own) if _is_delay(layer)]
        if delays and (outside := own[delays[-1] + 1 :]):
            names = ", ".join(type(layer).__name__ for layer in outside)
            raise ValueError(
                f"{teacher.source} has wrappers around its RealtimeDelay ({names}), which read a delay that its "
                "student does not have: train a teacher without them"
            )
        wraps = [_moved(layer) for layer in own if not _is_delay(layer)]
        view = cls(students[common - 1], teacher, wraps)
        if common < len(students):
            students[common].env = view
        else:
            environment = view
        return environment if delay_layer(environment) is not None else WithoutDelay(environment)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset both."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._shown.last = observation, 0.0, False, False, info
        self._stack.extend([self._teacher.spec.blank()] * self._teacher.spec.stack_size)
        seen, _ = self._frames.reset()
        return observation, self._with_view(seen, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame, and show it to the teacher's wrappers."""
        observation, reward, terminated, truncated, info = self._shown.last = self.env.step(action)
        seen, *_ = self._frames.step(action)
        return observation, reward, terminated, truncated, self._with_view(seen, info)

    def _with_view(self, seen: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        # Copied: the environment may reuse its arrays, and a stack holds several frames.
        self._stack.append(each_array(np.array, self._teacher.spec.without_tuples(seen)))
        return {**info, VIEW: batch_of_one(stacked(self._stack))}


class _Shown(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats the last result of another environment, and has its attributes."""

    last: tuple[Any, Any, bool, bool, dict[str, Any]]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the observation and the info of the reset."""
        return self.last[0], self.last[4]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the step."""
        return self.last


class WithoutDelay(gym.Wrapper[Any, Any, Any, Any]):
    """Reports in ``info["realtime"]`` what a delay of 0 frames does, where nothing delays the environment."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._frame, self._info = 0, info
        return observation, {**info, "realtime": {"frame": 0, "start": 0, "observation_info": info}}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame, which is a decision."""
        (effect, self._frame), before = (self._frame, self._frame + 1), self._info
        observation, reward, terminated, truncated, info = self.env.step(action)
        realtime = {
            "delay": 0,
            "interval": 1,
            "default_frames": 0,
            "frame": self._frame,
            "start": self._frame,
            "applied": True,
            "finished": effect,
            "observation_info": info,
            "effect_info": before,
        }
        self._info = info
        return observation, reward, terminated, truncated, {**info, "realtime": realtime}


def layers_of(environment: Environment) -> list[Any]:
    """Return an environment and its wrappers, innermost first."""
    layers = [environment]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers[::-1]


def _is_delay(layer: Any) -> bool:
    return type(layer).__name__ == "RealtimeDelay"  # by name, since agents do not import the wrappers


def _alike(one: Any, other: Any) -> bool:
    """Return whether two layers are of one kind, made with the same arguments."""
    if type(one) is not type(other):
        return False
    if isinstance(one, gym.Wrapper):
        return _arguments(one) == _arguments(other) and str(one.observation_space) == str(other.observation_space)
    return _name(one) == _name(other) and str(one.observation_space) == str(other.observation_space)


def _arguments(layer: Any) -> str:
    return repr(getattr(layer, "_saved_kwargs", {}))


def _name(environment: Any) -> str:
    spec = environment.unwrapped.spec
    return type(environment).__name__ if spec is None else str(spec.id)


def _moved(layer: Any) -> Callable[[Environment], Environment]:
    """Return a function that puts a copy of a wrapper around another environment."""

    def around(environment: Environment) -> Environment:
        # A copy, since the teacher still plays in its own environment; shared parts begin anew at each reset.
        moved: Any = copy.copy(layer)
        moved.env = environment
        return moved  # type: ignore[no-any-return]

    return around
