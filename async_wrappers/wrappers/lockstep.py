"""The sub-environments of a vector in lockstep: one frame of any autoreset mode, their seeds and default actions."""

# One frame of a vector of any autoreset mode
# ===========================================
#
# Gymnasium's three modes differ in what `step` returns when an episode ends: its last observation (NEXT_STEP, whose
# next step resets; DISABLED, where the caller resets), or the next episode's first one (SAME_STEP, the last one then
# being in info["final_obs"]). `Lockstep` reports ends in one form.

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from async_wrappers.wrappers.copies import Info, VectorEnv, VectorWrapper, own_copy, own_info, put, row
from async_wrappers.wrappers.default_action import DefaultAction, RampDown, holding_machine, make_default_action
from async_wrappers.wrappers.past_frames import elements_of


class Finals(NamedTuple):
    """The ends of episodes on one frame, as the step in which they ended reports them."""

    which: NDArray[np.int64]  # sub-environments
    observations: Any  # of each, o_min(s_{j+1}, T): a batch of arrays, or a list
    frames: NDArray[np.int64]  # T
    starts: NDArray[np.int64]  # min(s_{j+1}, T)
    infos: list[tuple[Info, Info]] | None  # with the observation, and the episode's last; None where all are empty
    fresh: Any = None  # what a fast path is shown of each, where it is reported


class Report:
    """The values that a step returns, for each sub-environment."""

    __slots__ = (
        "applied",
        "default_frames",
        "executed",
        "finals",
        "interval",
        "rewards",
        "sent",
        "sent_mask",
        "terminated",
        "truncated",
        "unreported_episodes",
        "unreported_reward",
    )

    def __init__(self, num_envs: int) -> None:
        self.applied = np.zeros(num_envs, bool)
        self.rewards = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)
        self.interval = np.zeros(num_envs, np.int64)
        self.default_frames = np.zeros(num_envs, np.int64)
        self.unreported_episodes = np.zeros(num_envs, np.int64)
        self.unreported_reward = np.zeros(num_envs)
        self.finals: list[Finals] = []
        self.executed: NDArray[np.bool_] | None = None  # of chunks
        self.sent: NDArray[Any] | None = None  # the actions, where others were sent for the rows of the mask
        self.sent_mask: NDArray[np.bool_] | None = None

    def of_sent(self) -> Info:
        """Return ``sent`` and its mask for ``info["realtime"]``, where other actions than the agent's were sent."""
        return {} if self.sent is None else {"sent": self.sent, "_sent": self.sent_mask}

    def put_finals(self, env: VectorWrapper, info: Info, realtime: Info, batches: bool) -> None:
        """Put the ends of episodes where Gymnasium puts them in SAME_STEP mode.

        Args:
            env: The delay.
            info: Of the step.
            realtime: What belongs into it.
            batches: Whether final observations are one array.
        """
        keys = ("delay", "applied", "interval", "default_frames")
        for finals in self.finals:
            for place, i in enumerate(finals.which.tolist()):
                of_the_observation, last = finals.infos[place] if finals.infos else ({}, {})
                ended: Info = {key: realtime[key][i].item() for key in keys}
                if self.executed is not None:
                    ended["executed"] = self.executed[i].copy()
                    ended["chunk_frames"] = realtime["chunk_frames"][i].item()
                if self.sent is not None and self.sent_mask is not None and self.sent_mask[i]:
                    ended["sent"] = self.sent[i].copy()
                ended |= {"frame": int(finals.frames[place]), "start": int(finals.starts[place])}
                if finals.fresh is not None:
                    ended["fresh_observation"] = finals.fresh[place]
                final_info = {**last, "realtime": {**ended, "observation_info": of_the_observation}}
                env._add_info(info, {"final_obs": finals.observations[place], "final_info": final_info}, i)
        if self.finals and batches:
            given = info["final_obs"]
            some = given[self.finals[0].which[0]]
            info["final_obs"] = np.stack([np.zeros_like(some) if final is None else final for final in given])


def seeds_of(seed: Any, chosen: NDArray[np.bool_]) -> list[int | None]:
    """Return the seed of each sub-environment; an array may hold those of the chosen ones alone."""
    if seed is None or isinstance(seed, (int, np.integer)):
        return [None if seed is None or not its else int(seed) + i for i, its in enumerate(chosen)]
    given = iter(seed if len(seed) != len(chosen) else [one for one, its in zip(seed, chosen, strict=True) if its])
    seeds = [next(given) if its else None for its in chosen]
    return [None if one is None else int(one) for one in seeds]


class _SubEnvironment(gym.Env[Any, Any]):
    """The attributes of a sub-environment that a default action reads, if it exists only within its vector.

    Args:
        env: The vector.
        meanings: Of the actions; None where a wrapper has changed their meanings.
    """

    def __init__(self, env: VectorEnv, meanings: list[str] | None) -> None:
        self.action_space = env.single_action_space
        self.spec = env.spec
        self._vector = env
        self._meanings = meanings or []
        self.noop_action = getattr(env.unwrapped, "noop_action", None) if meanings is not None else None

    def get_action_meanings(self) -> list[str]:
        return self._meanings

    @property
    def unwrapped(self) -> Any:
        return self._vector.unwrapped


_NEED_NOOP = ("noop", "repeat")


def default_actions_of(default_action: Any, env: VectorEnv, line: str, name: str) -> list[DefaultAction]:
    """Return the default action of each sub-environment; `line` and `name` are the caller's, for a message."""
    base: Any = env.unwrapped
    n = env.num_envs

    def made(sub_environments: Iterable[Any]) -> list[DefaultAction]:
        return [make_default_action(default_action, each, line, name) for each in sub_environments]

    # A wrapper with another action space gives the actions another meaning: the base's no-op may be none of them.
    layer: Any = env
    while isinstance(layer, gym.vector.VectorWrapper) and not _has_own_actions(layer):
        layer = layer.env
    if layer is not base or env.single_action_space != base.single_action_space:
        return made([_SubEnvironment(env, None)] * n)
    if isinstance(base, SyncVectorEnv):
        return made(base.envs)
    needs_noop = default_action in _NEED_NOOP if isinstance(default_action, str) else type(default_action) is RampDown
    if isinstance(base, AsyncVectorEnv) and needs_noop:
        # The sub-environments are in other processes. AsyncVectorEnv makes one here too, to learn its spaces.
        single = base.env_fns[0]()
        try:
            if holding_machine(single) is not None:
                raise ValueError(
                    f"{name}={default_action!r} needs machines in this process, to ask them what holds them still: put "
                    "them into a SyncVectorEnv"
                )
            return made([single] * n)
        finally:
            single.close()
    meanings = [action.name for action in base.ale.get_action_set()] if hasattr(base, "ale") else []
    return made([_SubEnvironment(env, meanings)] * n)


def _has_own_actions(layer: Any) -> bool:
    """Return whether a layer is an action wrapper with a space of its own, even an equal one."""
    is_of_actions = isinstance(layer, gym.vector.VectorActionWrapper)
    return is_of_actions and getattr(layer, "_single_action_space", None) is not None


class Frame(NamedTuple):
    """The result of a frame. Rows of sub-environments that begin a new episode hold its first observation."""

    observations: Any
    rewards: Any
    info: Info
    over: NDArray[np.int64] | None = None  # whose episode has ended
    terminated: Any = None
    truncated: Any = None
    at_the_end: Any = None  # the last observations, as the environment gave them
    of_the_end: Info = {}  # the last infos

    def sent(self, num_envs: int) -> tuple[NDArray[np.bool_], Any]:
        """Return who was sent another action than was asked for (``info["sent"]``), and these actions."""
        differs, actions = np.zeros(num_envs, bool), None
        ended = differs.copy()
        if self.over is not None:
            ended[self.over] = True
        for info, its in ((self.info, ~ended), (self.of_the_end, ended)):
            if "sent" in info:
                mask = np.logical_and(info.get("_sent", True), its)
                actions = np.array(info["sent"]) if actions is None else actions
                actions[mask] = info["sent"][mask]
                differs |= mask
        return differs, actions


class Lockstep:
    """Steps all sub-environments by one frame.

    Args:
        env: The vector environment.
        mode: Its autoreset mode.
        resets: In ``DISABLED`` mode, reset ended sub-environments at once.
    """

    def __init__(self, env: VectorEnv, mode: AutoresetMode, resets: bool) -> None:
        self._env = env
        self._mode = mode
        self._resets = resets and mode is AutoresetMode.DISABLED
        self.autoreset_frames = int(mode is AutoresetMode.NEXT_STEP)  # between an end and the next episode
        self.batches_finals = False  # final observations came as one array, as AtariVectorEnv's do

    def step(self, actions: Any) -> Frame:
        """Run one frame."""
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        over = np.logical_or(terminated, truncated)
        if not np.count_nonzero(over):
            return Frame(observations, rewards, info)
        of_the_end, at_the_end = info, observations
        if self._mode is AutoresetMode.SAME_STEP:
            if "final_obs" not in info:
                raise ValueError(
                    f"env must give info['final_obs'] at an end, as it resets in the same step: {self._env}"
                )
            at_the_end, of_the_end = info["final_obs"], info.get("final_info", {})
            self.batches_finals = isinstance(at_the_end, np.ndarray) and not at_the_end.dtype.hasobject
        if info:
            info = {key: value for key, value in info.items() if key not in _FINALS}
        (which,) = over.nonzero()
        if self._resets:
            # Its last observation may be gone once it is reset.
            at_the_end, of_the_end = own_copy(at_the_end), own_info(of_the_end)
            observations, reset_info = self._env.reset(options={"reset_mask": over})
            info = own_info(info)
            for i in which.tolist():
                put(self._env, info, i, row(reset_info, i, self._env.num_envs))

        return Frame(observations, rewards, info, which, terminated, truncated, at_the_end, of_the_end)

    def last_observations(self, frame: Frame, which: NDArray[np.int64]) -> Any:
        """Return copies of last observations, see `elements_of`."""
        given = frame.at_the_end
        if self._mode is AutoresetMode.SAME_STEP and not self.batches_finals:
            # Those of a Dict space are a dictionary of arrays there, like an info.
            return [own_copy(row({"last": given}, i, self._env.num_envs)["last"]) for i in which.tolist()]
        return elements_of(self._env.observation_space, given, which)


_FINALS = frozenset({"final_obs", "_final_obs", "final_info", "_final_info"})


def autoreset_mode(env: VectorEnv) -> AutoresetMode:
    """Return the autoreset mode of `env`.

    Raises:
        ValueError: Its metadata has no autoreset mode.
    """
    mode = env.metadata.get("autoreset_mode")
    # AtariVectorEnv writes its mode into a dictionary that all AtariVectorEnvs share: the last one made wins. Its
    # attribute is its own.
    if env.metadata is env.unwrapped.metadata:
        mode = getattr(env.unwrapped, "autoreset_mode", mode)
    if not isinstance(mode, AutoresetMode):
        raise ValueError(f"env must have its AutoresetMode in metadata['autoreset_mode'], got {mode!r} from {env}")
    return mode
