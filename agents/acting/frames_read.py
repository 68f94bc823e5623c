"""The frames that an agent reads beside the one from which its decision starts: its critic, fast path or teacher.

Under delay a decision starts on frame s and its action lands on frame e >= s. What is shown is then a dict of parts:

========== ===========================================================================================================
"start"    o_s, which the decision starts from: the policy reads it, and nothing else; or the final observation
"effect"   of an agent with `Spec.needs_effect`: o_e, of the frame on which its action will land, for the critic in
           learning; at the end of an episode the last one that the environment showed
"landed"   the same of the decision before, known when its action has landed; the first observation after a reset
"effect"   of a policy with a *fast path* (`Spec.fast_age`), in the place of both: o_{e - age}, which it reads when its
           action is due, and which is o_e where the fast path fits into a frame
"teacher"  of a student: what its teacher would read of frame s, [k, *shape]
"labelled" the same of the frame on which the decision before has landed, where labels are made there
========== ===========================================================================================================

`FramesRead` says which of them an agent reads, and makes them of what a delay reports. An agent in turn asks it itself;
among many environments `ShowPast` makes the parts an observation, which batched environments (`async_wrappers.batched`)
carry like any Dict, over processes too; `ShowPastRows` does so for a whole vector.

A stored observation has the parts "start" and "effect", those of one decision; the next observation holds o_s' and o_e'
of the decision that is applied next. A transition is complete when that one lands, on frame e': so o_e' is the newest
observation there is when the transition is complete, and a learner that waits until then never reads the future.

(o_e, a, R, o_e') is a transition of the environment without delay, which is what the critics of Kim et al., "Belief
projection-based reinforcement learning for environments with delayed feedback", NeurIPS 2023, learn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Dict
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import DelayObservation, NormalizeObservation

from async_wrappers.agents.needs_and_offers import FAST, refuse
from async_wrappers.agents.spaces.schema import EFFECT, START, each_array
from async_wrappers.agents.spec import Spec

LANDED, TEACHER, LABELLED = "landed", "teacher", "labelled"  # beside `START` and `EFFECT`
VIEW = "teacher_observation"  # where an info holds the stack that a teacher reads, [1, k, *shape]
_REPORTED = ("effect_observation", "effect_info", "next_effect_observation", "fresh_observation")  # of info["realtime"]


def report_effect(environment: gym.Env[Any, Any], agent: str) -> None:
    """Let an environment's delay report the observations on which actions land; without a delay there is nothing to do.

    Args:
        environment: Between two episodes.
        agent: Its name, for the message.

    Raises:
        ValueError: Actions are chunks, a wrapper delays that does not report, or one outside the delay changes
            observations.
    """
    needs: Mapping[str, Any] = {"critic_at": "effect"}
    whose = f"with agent {agent!r} "
    layer: Any = environment
    while isinstance(layer, gym.Wrapper):
        _refuse_beside(layer, needs, whose)
        layer = layer.env
    if environment.has_wrapper_attr("report_effect"):
        chunked = environment.has_wrapper_attr("chunk") and environment.get_wrapper_attr("chunk") is not None
        refuse({"chunks, effects": chunked}, needs, whose=whose)
        environment.set_wrapper_attr("report_effect", True, force=False)
        return
    delays = environment.has_wrapper_attr("decision_interval")
    refuse({"a delay without effects": delays}, needs, whose=whose, layer=type(environment).__name__)


def _refuse_beside(layer: gym.Wrapper[Any, Any, Any, Any], needs: Mapping[str, Any], whose: str = "") -> None:
    """Refuse to read other observations than a decision's beside a wrapper that hides them."""
    there = {
        "another delay": isinstance(layer, DelayObservation),
        "a change outside the delay": _changes_observations(layer) and _delays_inside(layer),
    }
    refuse(there, needs, whose=whose, layer=type(layer).__name__, delay="RealtimeDelay")


def _changes_observations(layer: gym.Wrapper[Any, Any, Any, Any]) -> bool:
    """Return whether a wrapper changes observations, as far as its class and its space tell."""
    kinds = (gym.ObservationWrapper, NormalizeObservation)
    return isinstance(layer, kinds) or layer.observation_space != layer.env.observation_space


def _delays_inside(layer: gym.Wrapper[Any, Any, Any, Any]) -> bool:
    """Return whether a delay that reports effects is inside a wrapper."""
    return not hasattr(layer, "report_effect") and layer.has_wrapper_attr("report_effect")


def reported_effects(realtime: Mapping[str, Any] | None, start: Any, following: Any) -> tuple[Any, Any]:
    """Return o_e and o_e' of a decision that was applied.

    Args:
        realtime: The environment's report after the decision's step; None without delay, where an action lands on the
            frame on which it starts.
        start: The observation from which it started.
        following: That of the next decision.

    Raises:
        ValueError: There is a delay, and it does not report them; or actions are chunks.
    """
    if realtime is None:
        return start, following
    if "executed" in realtime:
        refuse("chunks, effects", {"critic_at": "effect"}, whose="")
    if "next_effect_observation" not in realtime:
        refuse("no report of effects", {"critic_at": "effect"}, whose="")
    return realtime.get("effect_observation"), realtime["next_effect_observation"]


def show_effects(environment: gym.Env[Any, Any], spec: Spec, live: bool = False) -> None:
    """Let an environment's delay report what an agent reads beside the observation of a decision's start, if anything.

    Args:
        environment: Between two episodes.
        spec: The agent's.
        live: Whether the environment may be one of a live run, which has no simulated delay.

    Raises:
        ValueError: See `report_effect` and `async_wrappers.RealtimeDelay.report_fresh`.
    """
    if spec.fast_age is not None:
        _report_fresh(environment, spec.fast_age, live)
        return
    slow = _attribute(environment, "fresh_age") is None
    refuse({"no fast path": slow}, {"max_features_age": _attribute(environment, "max_features_age")}, agent=spec.name)
    if spec.needs_effect:
        report_effect(environment, spec.name)


def _attribute(environment: gym.Env[Any, Any], name: str) -> Any:
    return environment.get_wrapper_attr(name) if environment.has_wrapper_attr(name) else None


def _report_fresh(environment: gym.Env[Any, Any], age: int, live: bool = False) -> None:
    layer: Any = environment
    while isinstance(layer, gym.Wrapper) and not hasattr(layer, "decision_interval"):
        _refuse_beside(layer, {"fast": FAST})
        layer = layer.env
    if hasattr(layer, "report_fresh"):
        layer.report_fresh("fast_age", age)
        return
    there = {"another delay": hasattr(layer, "decision_interval"), "no delay": not live}
    refuse(there, {"fast": FAST, "fast_age": age}, layer=type(layer).__name__, delay="RealtimeDelay")


def fresh_observation(realtime: Mapping[str, Any] | None, observation: Any) -> Any:
    """Return what a fast path reads beside a decision's observation.

    Args:
        realtime: What came with the observation; None without delay, where both are one.
        observation: That of the decision's start.

    Raises:
        ValueError: There is a delay, and it does not report it.
    """
    if realtime is None:
        return observation
    if "fresh_observation" not in realtime:
        refuse("no fresh observation", {"fast": FAST})
    return realtime["fresh_observation"]


@dataclass(frozen=True)
class FramesRead:
    """Which frames an agent reads beside the one from which a decision starts; it travels to other processes.

    Attributes:
        agent: The agent's name, for messages.
        effect: Whether its critic reads those on which actions land.
        age: Of the one that its fast path reads when an action is due, in frames; None without a fast path.
        label_at: Of a student, the frame whose observation its teacher labels (`Lesson`); None where a teacher is shown
            nothing.
        view: Of the teacher (`agents.teaching.teacher_view.Viewpoint`); None where the environment has it inside.
    """

    agent: str = ""
    effect: bool = False
    age: int | None = None
    label_at: str | None = None
    view: Any = None

    @classmethod
    def of(cls, spec: Spec, trains: bool, view: Any = None) -> FramesRead:
        """Return what an agent reads in training, or in evaluation, with the view of its teacher."""
        effect = trains and spec.needs_effect and spec.fast_age is None
        label_at = None if view is None or not trains else view.label_at
        return cls(spec.name, effect, spec.fast_age, label_at, view if trains else None)

    @property
    def parts(self) -> tuple[str, ...]:
        """What is shown beside the start, by name."""
        of_critic = (LANDED, EFFECT) if self.effect else () if self.age is None else (EFFECT,)
        of_teacher = {None: (), "start": (TEACHER,), "effect": (TEACHER, LABELLED)}
        return *of_critic, *of_teacher[self.label_at]

    def space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        """Return the space of what is shown of observations of a space."""
        spaces = {name: self.view.space if name in (TEACHER, LABELLED) else space for name in self.parts}
        return Dict({START: space, **spaces})

    def show(self, observation: Any, realtime: Mapping[str, Any] | None, before: Any) -> dict[str, Any]:
        """Return the parts, of those of a teacher the ones that the environment reports.

        Args:
            observation: That of the start of the next decision.
            realtime: What the environment reported with it; None without delay.
            before: That of the last decision's start; None after a reset.

        Raises:
            ValueError: The delay does not report what a critic or a fast path reads; or actions are chunks.
        """
        shown = {START: observation}
        if self.age is not None:
            shown[EFFECT] = fresh_observation(realtime, observation)
        elif self.effect and before is None:
            shown[LANDED] = shown[EFFECT] = observation
        elif self.effect:
            landed, shown[EFFECT] = reported_effects(realtime, before, observation)
            shown[LANDED] = observation if landed is None else landed
        if self.label_at is not None and realtime is not None:
            seen = {TEACHER: realtime.get("observation_info") or {}}
            if self.label_at == "effect":
                landed = before is not None and realtime["applied"]
                seen[LABELLED] = (realtime.get("effect_info") or {}) if landed else seen[TEACHER]
            # Without the axis of rows, which other environments' are beside.
            shown |= {
                name: each_array(lambda stacks: stacks[0], info[VIEW]) for name, info in seen.items() if VIEW in info
            }
        return shown

    def without_shown(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return an info without what is shown, for which a vector of infos has no room."""
        if "realtime" not in info:
            return info
        left = (*_REPORTED, "observation_info") if self.label_at is not None else _REPORTED
        realtime = {name: value for name, value in info["realtime"].items() if name.removeprefix("_") not in left}
        return {name: value for name, value in info.items() if name != VIEW} | {"realtime": realtime}


class ShowPast(gym.Wrapper[Any, Any, Any, Any]):
    """Shows past frames as parts of the observation, which is a dict of "start" and those that `past` names.

    Args:
        env: The environment.
        past: What is read.

    Raises:
        ValueError: See `report_effect` and `async_wrappers.RealtimeDelay.report_fresh`.
    """

    def __init__(self, env: gym.Env[Any, Any], past: FramesRead) -> None:
        super().__init__(env if past.view is None else past.view.within(env))
        if past.age is not None:
            _report_fresh(self.env, past.age)
        if past.effect:
            report_effect(self.env, past.agent)
        self._past = past
        self.observation_space = past.space(self.env.observation_space)
        self._before: Any = None  # the observation of the last decision's start

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        self._before = None
        return self._shown(*self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        shown, info = self._shown(observation, info)
        return shown, reward, terminated, truncated, info

    def _shown(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        shown = self._past.show(observation, realtime := info.get("realtime"), self._before)
        # Without delay it is shown once more, and an environment may reuse its array.
        self._before = deepcopy(observation) if realtime is None else observation
        return shown, self._past.without_shown(info)


class ShowPastRows(gym.vector.VectorWrapper):
    """As `ShowPast`, of a vector that `VectorRealtimeDelay` delays, or nothing; for fast paths alone.

    Args:
        env: The vector.
        past: What is read.

    Raises:
        ValueError: Its sub-environments are delayed one by one; or see `show_effects`.
    """

    def __init__(self, env: Any, past: FramesRead) -> None:
        super().__init__(env)
        layer = env
        while isinstance(layer, gym.vector.VectorWrapper) and not hasattr(type(layer), "report_fresh"):
            changes = (
                isinstance(layer, gym.vector.VectorObservationWrapper)
                or layer.observation_space != layer.env.observation_space
            )
            there = {"a change outside the delay": changes and _vector_delays(layer)}
            refuse(there, {"fast": FAST}, layer=type(layer).__name__, delay="VectorRealtimeDelay")
            layer = layer.env
        if hasattr(type(layer), "report_fresh"):
            layer.report_fresh("fast_age", past.age)
        else:
            of_each = any(each.has_wrapper_attr("decision_interval") for each in getattr(layer, "envs", ()))
            apart = of_each or isinstance(layer, gym.vector.AsyncVectorEnv)
            there = {"a delay of each environment": apart, "no delay": True}
            refuse(there, {"fast": FAST, "fast_age": past.age}, delay="VectorRealtimeDelay")
        self._past = past
        self.single_observation_space = past.space(env.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the vector."""
        return self._shown(*self.env.reset(seed=seed, options=options))

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the vector."""
        observation, reward, terminated, truncated, info = self.env.step(actions)
        shown, info = self._shown(observation, info)
        return shown, reward, terminated, truncated, info

    def _shown(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        past = self._past
        if "final_obs" in info:
            last, ended = info["final_obs"], info.get("final_info", {})
            final = past.show(last, ended.get("realtime"), None)
            info = {**info, "final_obs": final, "final_info": past.without_shown(ended)}
        return past.show(observation, info.get("realtime"), None), past.without_shown(info)


def _vector_delays(layer: Any) -> bool:
    """Return whether a delay that reports fresh observations is inside a wrapper of a vector."""
    while isinstance(layer, gym.vector.VectorWrapper):
        if hasattr(type(layer), "report_fresh"):
            return True
        layer = layer.env
    return False
