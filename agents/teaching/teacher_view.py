"""A teacher's own view of an environment that shows its student another one.

The two may read the same game in different ways: a teacher without delay reads frames, and its student under delay may
read the actions in flight too. Their environments, as chains of wrappers, have their innermost part in common::

    student   CartPole  TimeLimit | AppliedActions  RealtimeDelay  CommittedActions
    teacher   CartPole  TimeLimit | FlattenObservation
                     common part  | own wrappers

`TeacherView` stands around the common part in the student's chain. It shows each frame to the teacher's own wrappers
too, and puts the stack of observations that the teacher would read into ``info["teacher_observation"]``. So a delay
passes it on with the observation of the same frame (`agents.acting.frames_read`).

Requiring equal observations would exclude the main case: a teacher without delay, and a student that observes its
actions in flight.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import NormalizeReward

from async_wrappers.agents.acting.frames_read import VIEW
from async_wrappers.agents.play.play import delay_layer
from async_wrappers.agents.play.turns.turn_based import frames_per_decision
from async_wrappers.agents.spaces.actions import discrete_actions
from async_wrappers.agents.spaces.schema import batch_of_one, each_array, stacked
from async_wrappers.agents.spec import Spec
from async_wrappers.wrapper_statistics import has_statistics

Environment = gym.Env[Any, Any]


class Viewpoint:
    """How a teacher's view is put into environments such as its student's; it travels to other processes.

    Args:
        teacher: The spec of the teacher's agent.
        common: How many layers of both environments are alike, from the innermost on.
        own: The teacher's own wrappers, innermost first, without what they are around.
        label_at: As in `Lesson`.

    Attributes:
        label_at: As given.
    """

    def __init__(self, teacher: Spec, common: int, own: Sequence[Any], label_at: str = "start") -> None:
        self._teacher, self._common, self._own, self.label_at = teacher, common, own, label_at

    @classmethod
    def of(cls, environment: Environment, teacher: Any, label_at: str = "start") -> Viewpoint:
        """Return the view of a teacher in its student's environment.

        Raises:
            ValueError: The teacher's observations or actions are of another game.
        """
        students, teachers = layers_of(environment), layers_of(teacher.environment)
        common = 0
        for one, other in zip(students, teachers, strict=False):
            if is_delay(one) or is_delay(other) or not _alike(one, other):
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
        delays = [place for place, layer in enumerate(own) if is_delay(layer)]
        if delays and (outside := own[delays[-1] + 1 :]):
            names = ", ".join(type(layer).__name__ for layer in outside)
            raise ValueError(
                f"{teacher.source} has wrappers around its RealtimeDelay ({names}), which read a delay that its "
                "student does not have: train a teacher without them"
            )
        return cls(teacher.spec, common, [_bare(layer) for layer in own if not is_delay(layer)], label_at)

    @property
    def space(self) -> gym.Space[Any]:
        """The space of what the teacher reads, [k, *shape]."""
        return batch_space(self._teacher.observation_space, self._teacher.stack_size)

    def within(self, environment: Environment) -> Environment:
        """Return a student's environment with the view inside, and a report of effects if they are labelled."""
        layers = layers_of(environment)
        view = TeacherView(layers[self._common - 1], self._teacher, [partial(_around, layer) for layer in self._own])
        if self._common < len(layers):
            layers[self._common].env = view
        else:
            environment = view
        delay = delay_layer(environment)
        if delay is None:
            return WithoutDelay(environment)
        if self.label_at == "effect":
            delay.report_effect = True
        return environment


def reads_alike(environment: Environment, student: Spec, teacher: Any, label_at: str) -> bool:
    """Return whether the stacks that a student reads are those whose labels it learns from.

    They are where the environments differ in a delay alone, labels are of the start, and stacks of decisions are stacks
    of frames.
    """
    delay = delay_layer(environment)
    both = environment, teacher.environment
    ours, theirs = ([layer for layer in layers_of(each) if not is_delay(layer)] for each in both)
    alike = len(ours) == len(theirs) and all(map(_alike, ours, theirs))
    k = student.stack_size
    frames = k == 1 or frames_per_decision(environment) == 1
    return alike and frames and k == teacher.spec.stack_size and (label_at == "start" or delay is None)


class TeacherView(gym.Wrapper[Any, Any, Any, Any]):
    """Puts the stack that a teacher reads of each frame into ``info["teacher_observation"]``.

    A stack holds the observations of consecutive frames, as those of a teacher without delay do.

    Args:
        env: The part that the environments of student and teacher have in common.
        teacher: The spec of the agent whose view it is.
        own: The teacher's own wrappers, innermost first, each a function from an environment to an environment; they
            are driven with the frames that the student's environment shows.
    """

    def __init__(
        self, env: Environment, teacher: Spec, own: Sequence[Callable[[Environment], Environment]] = ()
    ) -> None:
        super().__init__(env)
        self._shown = shown = _RepeatedResult(env)
        self._frames: Environment = shown
        for wrap in own:
            self._frames = wrap(self._frames)
        self._teacher = teacher
        self._stack: deque[Any] = deque(maxlen=teacher.stack_size)

    @classmethod
    def within(cls, environment: Environment, teacher: Any) -> Environment:
        """Return a student's environment with a teacher's view inside; see `Viewpoint`."""
        return Viewpoint.of(environment, teacher).within(environment)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset both."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._shown.last = observation, 0.0, False, False, info
        self._stack.extend([self._teacher.blank()] * self._teacher.stack_size)
        seen, _ = self._frames.reset()
        return observation, self._with_view(seen, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame, and show it to the teacher's wrappers."""
        observation, reward, terminated, truncated, info = self._shown.last = self.env.step(action)
        seen, *_ = self._frames.step(action)
        return observation, reward, terminated, truncated, self._with_view(seen, info)

    def _with_view(self, seen: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        # Copied: the environment may reuse its arrays, and a stack holds several frames.
        self._stack.append(each_array(np.array, self._teacher.without_tuples(seen)))
        return {**info, VIEW: batch_of_one(stacked(self._stack))}


class _RepeatedResult(gym.Wrapper[Any, Any, Any, Any]):
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


def is_delay(layer: Any) -> bool:
    """Return whether a layer of an environment is a `RealtimeDelay`."""
    return type(layer).__name__ == "RealtimeDelay"  # by name, since agents do not import the wrappers


def _alike(one: Any, other: Any) -> bool:
    """Return whether two layers are of one kind, made with the same arguments."""
    if type(one) is not type(other):
        return False
    # Each has statistics of its own, by which the teacher's observations are not its student's.
    if has_statistics(one) and not isinstance(one, NormalizeReward):
        return False
    if isinstance(one, gym.Wrapper):
        return _arguments(one) == _arguments(other) and str(one.observation_space) == str(other.observation_space)
    return _name(one) == _name(other) and str(one.observation_space) == str(other.observation_space)


def _arguments(layer: Any) -> str:
    return repr(getattr(layer, "_saved_kwargs", {}))


def _name(environment: Any) -> str:
    spec = environment.unwrapped.spec
    return type(environment).__name__ if spec is None else str(spec.id)


def _bare(layer: Any) -> Any:
    """Return a copy of a wrapper without what it is around."""
    bare = copy.copy(layer)
    bare.env = None
    return bare


def _around(layer: Any, environment: Environment) -> Environment:
    """Return a copy of a wrapper around another environment; shared parts begin anew at each reset."""
    moved = copy.copy(layer)
    moved.env = environment
    return moved  # type: ignore[no-any-return]
