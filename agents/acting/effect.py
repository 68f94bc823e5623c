"""The frame on which an action lands, for a critic that reads what the environment showed then.

Under delay a decision starts on frame s and its action lands on frame e >= s. An agent whose `Spec.needs_effect` is
True learns from transitions whose observation is a dict of two:

========== ===========================================================================================================
"start"    o_s, which the decision started from: the policy reads it, and nothing else
"effect"   o_e, of the frame on which its action landed: for the critic, in learning
========== ===========================================================================================================

The next observation holds o_s' and o_e' of the decision that is applied next. A transition is complete when that one
lands, on frame e': so o_e' is the newest observation there is when the transition is complete, and a learner that
waits until then never reads the future. At the end of an episode "start" is the final observation as without the
effect, and "effect" is the last one that the environment showed.

A policy with a *fast path* reads a second observation too, when its action is due: o_{e - age}, which is o_e where the
fast path fits into a frame (`Spec.fast_age`). It stands in the place of ``"effect"``, and is known when the decision is
made, since the environment has then played up to the frame on which it lands.

(o_e, a, R, o_e') is a transition of the environment without delay, which is what the critics of Kim et al., "Belief
projection-based reinforcement learning for environments with delayed feedback", NeurIPS 2023, learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Dict
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import DelayObservation, NormalizeObservation

from async_wrappers.agents.needs_and_offers import FAST, refuse
from async_wrappers.agents.spaces.schema import EFFECT, START, effect_space
from async_wrappers.agents.spec import Spec

LANDED = "landed"  # of a shown one
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


class Effects:
    """Makes the stored observations of one environment's decisions, in turn.

    The next observation of a transition and the observation of the one that follows are one object, so that a learner
    sees without a comparison that the second continues the first.

    Args:
        read: Applied to each observation that the environment reports.
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read
        self._next: dict[str, Any] | None = None

    def begin_episode(self) -> None:
        """Forget the episode before."""
        self._next = None

    def pair(self, realtime: Mapping[str, Any] | None, start: Any, following: Any) -> tuple[Any, Any]:
        """Return observation and next observation of a decision that was applied; see `reported_effects`."""
        effect, next_effect = reported_effects(realtime, start, following)
        observation = self._next or {START: start, EFFECT: self._read(effect)}
        self._next = {START: following, EFFECT: self._read(next_effect)}
        return observation, self._next


class ShowFresh(gym.Wrapper[Any, Any, Any, Any]):
    """Shows what a fast path reads among many environments: a dict of ``"start"`` and ``"effect"``, see `ShowEffect`.

    Args:
        env: The environment.
        age: Frames; see `Spec.fast_age`.

    Raises:
        ValueError: See `show_effects`.
    """

    def __init__(self, env: gym.Env[Any, Any], age: int) -> None:
        super().__init__(env)
        _report_fresh(env, age)
        self.observation_space = effect_space(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        return self._shown(*self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        shown, info = self._shown(observation, info)
        return shown, reward, terminated, truncated, info

    @staticmethod
    def _shown(observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return {START: observation, EFFECT: fresh_observation(info.get("realtime"), observation)}, _without_shown(info)


class ShowFreshRows(gym.vector.VectorWrapper):
    """As `ShowFresh`, of a vector that `VectorRealtimeDelay` delays, or nothing.

    Args:
        env: The vector.
        age: Frames; see `Spec.fast_age`.

    Raises:
        ValueError: Its sub-environments are delayed one by one; or see `show_effects`.
    """

    def __init__(self, env: Any, age: int) -> None:
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
            layer.report_fresh("fast_age", age)
        else:
            of_each = any(each.has_wrapper_attr("decision_interval") for each in getattr(layer, "envs", ()))
            apart = of_each or isinstance(layer, gym.vector.AsyncVectorEnv)
            there = {"a delay of each environment": apart, "no delay": True}
            refuse(there, {"fast": FAST, "fast_age": age}, delay="VectorRealtimeDelay")
        self.single_observation_space = effect_space(env.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the vector."""
        return self._shown(*self.env.reset(seed=seed, options=options))

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the vector."""
        observation, reward, terminated, truncated, info = self.env.step(actions)
        shown, info = self._shown(observation, info)
        return shown, reward, terminated, truncated, info

    @staticmethod
    def _shown(observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        shown = {START: observation, EFFECT: fresh_observation(info.get("realtime"), observation)}
        if "final_obs" in info:
            last, ended = info["final_obs"], info.get("final_info", {})
            final = {START: last, EFFECT: fresh_observation(ended.get("realtime"), last)}
            info = {**info, "final_obs": final, "final_info": _without_shown(ended)}
        return shown, _without_shown(info)


def _vector_delays(layer: Any) -> bool:
    """Return whether a delay that reports fresh observations is inside a wrapper of a vector."""
    while isinstance(layer, gym.vector.VectorWrapper):
        if hasattr(type(layer), "report_fresh"):
            return True
        layer = layer.env
    return False


def _without_shown(info: dict[str, Any]) -> dict[str, Any]:
    """Return an info without the observations that are shown, for which a vector of infos has no room."""
    if "realtime" not in info:
        return info
    left = {name: value for name, value in info["realtime"].items() if name.removeprefix("_") not in _REPORTED}
    return {**info, "realtime": left}


class ShowEffect(gym.Wrapper[Any, Any, Any, Any]):
    """Shows the observations of effects among many environments, as parts of the observation.

    Batched environments (`async_wrappers.batched`) then carry them like any Dict, over processes too. The observation
    after a step is a dict of

    ========== =======================================================================================================
    "start"    what the next decision reads, or the final observation
    "landed"   that of the frame on which this step's action landed; without a meaning where it was not applied
    "effect"   that of the frame on which the next action will land; at the end of an episode the last one
    ========== =======================================================================================================

    After ``reset`` all three are the first observation, as no action has landed.

    Args:
        env: The environment.
        agent: The agent's name, for a message.

    Raises:
        ValueError: See `report_effect`.
    """

    def __init__(self, env: gym.Env[Any, Any], agent: str) -> None:
        super().__init__(env)
        report_effect(env, agent)
        self.observation_space = self.space(env.observation_space)
        self._start: Any = None

    @staticmethod
    def space(space: gym.Space[Any]) -> Dict:
        """Return the space of what is shown, whose parts are of `space`."""
        return Dict(dict.fromkeys((START, LANDED, EFFECT), space))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._start = deepcopy(observation)  # an environment may reuse its array
        return {START: observation, LANDED: observation, EFFECT: observation}, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        following, reward, terminated, truncated, info = self.env.step(action)
        realtime = info.get("realtime")
        landed, effect = reported_effects(realtime, self._start, following)
        if realtime is None:
            self._start = deepcopy(following)
        else:
            landed = following if landed is None else landed
        shown = {START: following, LANDED: landed, EFFECT: effect}
        return shown, reward, terminated, truncated, _without_shown(info)
