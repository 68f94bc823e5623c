"""A vector environment whose rows have delays of their own, or whose arrays are not NumPy's: what its delay plays.

`VectorRealtimeDelay` uses this where `asks_for_rows` says so, or where the vector returns arrays of another library. A
step is one frame then, but for the first one: it also runs the frames before anybody's first action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from async_wrappers.tensors.arrays import Array, Library, Tree, each, first_array
from async_wrappers.tensors.row_delay import Outcome, RowDelay, Rows, Step
from async_wrappers.tensors.row_schedule import DRAWS, EachEpisode, EachFrame, Pool, draws_of
from async_wrappers.wrappers.copies import Info, VectorEnv, own_copy
from async_wrappers.wrappers.row_terms import LONGEST, RowTerms, frames_of, is_of_numpy


def draws_of_terms(terms: RowTerms, seed: int | None) -> NDArray[np.int64]:
    """Return the delays in frames that episodes or frames draw from, where they do.

    Raises:
        ValueError: A latency of too many frames.
    """
    if terms.latency is not None:
        draws = draws_of(terms.latency, terms.fps, seed)
        if (longest := draws.max()) > LONGEST:
            raise ValueError(f"latency must be <= {LONGEST:,} frames, got {longest}: each of them is kept")
        return draws
    return np.random.default_rng(np.random.SeedSequence(seed)).choice(np.array(terms.delay), DRAWS)


def schedule_of(terms: RowTerms, library: Library, num_envs: int, seed: int | None) -> EachEpisode | EachFrame:
    """Return the schedule of the rows; `seed` is that of drawn delays."""
    intervals: Any = frames_of("noops", terms.noops, num_envs) + 1
    intervals = int(intervals[0]) if (intervals == intervals[0]).all() else library.whole(intervals)
    if terms.latency is None and not isinstance(terms.delay, range):
        delays = frames_of("delay", terms.delay, num_envs)
        return EachEpisode(library, library.whole(delays), intervals, int(delays.max()))
    pool = Pool(library, draws_of_terms(terms, seed))
    if terms.per == "frame":
        return EachFrame(library, pool, terms.playout)
    return EachEpisode(library, pool, intervals, pool.longest)


class VectorRows:
    """Plays the frames of a vector under a `RowDelay`.

    Args:
        env: The vector.
        mode: Its autoreset mode.
        terms: Of the delay.
        default: What rows receive on frames without a decision: numbers [N, ...], and whether the last decision's
            action takes their place.
        chunk: Entries of a chunk; None where actions are single.
    """

    def __init__(
        self, env: VectorEnv, mode: AutoresetMode, terms: RowTerms, default: tuple[Any, bool], chunk: int | None
    ) -> None:
        self._env, self._mode, self._terms, self._default, self._chunk = env, mode, terms, default, chunk
        self._library: Library | None = None
        self._leads = False

    def begin(self, observations: Tree, info: Info, seed: Any) -> tuple[Tree, Info]:
        """Begin all episodes with the vector's first observations."""
        library = self._library = Library(first_array(observations))
        first_seed = seed if seed is None or isinstance(seed, int) else next(iter(seed))
        first_seed = None if first_seed is None else int(first_seed)
        schedule = schedule_of(self._terms, library, self._env.num_envs, first_seed)
        values, repeats = self._default
        default = library.array(values)
        later = self._mode is AutoresetMode.NEXT_STEP
        self._delay = RowDelay(library, schedule, default, repeats, later, self._chunk)
        rewards = library.xp.zeros((self._env.num_envs,), dtype=library.xp.float64, device=library.device)
        if library.is_functional or not library.is_on_host:
            rewards = library.xp.astype(rewards, library.xp.float32)
        self._rows: Rows = self._delay.begin(observations, rewards)
        self._leads = self._terms.lead_in > 0
        return own_copy_of(library, observations), {**info, "realtime": self._begun()}

    def _begun(self) -> Info:
        """Return ``info["realtime"]`` as episodes begin."""
        assert self._library is not None
        due = self._rows.due
        if self._leads:  # the first step runs the frames before
            lands = due * 0 == self._lands_first(due)
            due = self._library.xp.where(lands, due * 0, due * 0 - 1)
        return {"deciding": due >= 0, "frame": self._own(self._rows.frame), "start": self._own(due)}

    def _own(self, array: Array) -> Array:
        """Return a copy of an array of the state, for a caller who may change it; on a device itself."""
        assert self._library is not None
        return self._library.own(array) if self._library.looks else array

    def restart(self, which: Any, observations: Tree, info: Info) -> tuple[Tree, Info]:
        """Cut the episodes of some rows, bool [N], which begin anew with these observations."""
        assert self._library is not None
        self._rows = self._delay.restart(self._rows, self._library.array(which), observations)
        shown = self._delay.shown(self._rows)
        return shown, {**info, "realtime": self._begun()}

    def _lands_first(self, like: Array) -> Array:
        """Return 0 for the rows whose first action lands after the lead-in, else 1."""
        assert self._library is not None
        delays = self._library.whole(frames_of("delay", self._terms.delay, self._env.num_envs))
        return self._library.xp.where(delays == self._terms.lead_in, like * 0, like * 0 + 1)

    def step(self, actions: Any) -> tuple[Tree, Array, Array, Array, Info]:
        """Play a frame, the first time those before anybody's action lands too."""
        assert self._library is not None
        library = self._library
        given = library_array(library, actions)
        library.refuse_others(given, "actions")
        n, length = self._env.num_envs, self._chunk
        if tuple(given.shape[:1]) != (n,):
            got = len(given) if given.shape else "none"
            raise ValueError(f"actions must be one for each of {n} sub-environments, got {got}")
        wanted = (n, *(() if length is None else (length,)), *(self._env.single_action_space.shape or ()))
        if tuple(given.shape) != wanted:
            raise ValueError(f"actions must have the shape {list(wanted)}, got {list(given.shape)}")
        step = self._frame(given)
        episodes, unreported = step.frame * 0, step.reward * 0
        if self._leads:
            self._leads = False
            for _ in range(self._terms.lead_in):
                before, step = step, self._frame(given)
                again = (before.terminated | before.truncated) & (step.terminated | step.truncated)
                episodes = episodes + library.xp.where(again, episodes * 0 + 1, episodes * 0)
                step, lost = self._joined(before, step)
                unreported = unreported + lost
        over = step.terminated | step.truncated
        realtime = {
            "delay": step.delay,
            "applied": step.applied,
            "deciding": self._own(step.deciding),
            "closed": self._own(step.closed),
            "interval": step.interval,
            "default_frames": step.default_frames,
            "frame": self._own(step.frame),
            "start": self._own(step.start),
            "carried_reward": self._own(self._rows.reward),
            "unreported_episodes": episodes,
            "unreported_reward": unreported,
        }
        if step.executed is not None:
            realtime["executed"] = step.executed
        info = {name: value for name, value in self._info.items() if name.removeprefix("_") not in _FINAL}
        info["realtime"] = realtime
        if self._may_be_any(over):
            ended = {"realtime": {**realtime, "frame": step.final_frame, "start": step.final_start}}
            ended = {**self._of_the_end, **ended}
            info |= {"final_obs": step.final, "_final_obs": over, "final_info": ended, "_final_info": over}
        return step.observation, step.reward, step.terminated, step.truncated, info

    def _frame(self, given: Any) -> Step:
        self._rows, step = self._delay.step(self._rows, given, self._advance)
        return step

    def _joined(self, before: Step, now: Step) -> tuple[Step, Array]:
        """Return what two frames of one step return, of which an end on the first is reported, and lost rewards [N]."""
        assert self._library is not None
        library = self._library
        ended = before.terminated | before.truncated
        kept = ["reward", "terminated", "truncated", "final", "closed", "interval", "default_frames", *_OF_THE_END]
        if now.executed is not None:
            kept.append("executed")

        def of(name: str) -> Any:
            return each(lambda one, other: library.where(ended, one, other), getattr(before, name), getattr(now, name))

        lost = library.where(ended, now.reward, now.reward * 0)
        return now._replace(**{name: of(name) for name in kept}), lost

    def _advance(self, sent: Any) -> Outcome:
        """Step the vector, and reset the rows that it leaves to its caller."""
        assert self._library is not None
        observations, rewards, terminated, truncated, self._info = self._env.step(sent)
        last, self._of_the_end = None, dict(self._info.get("final_info", {}))
        over = terminated | truncated
        if self._mode is AutoresetMode.SAME_STEP:
            last = self._last_of(self._info, observations, over)
        elif self._mode is AutoresetMode.DISABLED and self._may_be_any(over):
            last = own_copy_of(self._library, observations)
            self._of_the_end = self._info
            # A reset may write into the arrays of the step.
            rewards, terminated, truncated = map(self._library.own, (rewards, terminated, truncated))
            observations, self._info = self._env.reset(options={"reset_mask": over})
        return Outcome(observations, rewards, terminated, truncated, last)

    def _may_be_any(self, rows: Array) -> bool:
        """Return whether some of the rows, bool [N], are set, or nobody may look."""
        assert self._library is not None
        return not self._library.is_on_host or bool(self._library.xp.any(rows))

    def _last_of(self, info: Mapping[str, Any], observations: Tree, over: Array) -> Tree:
        """Return the last observations of the rows that are over; of a vector that shows none, the frame before."""
        given = next((info[name] for name in _LAST if name in info), None)
        if given is None:  # a vector may write again into what it has returned
            return self._delay.newest(self._rows) if self._may_be_any(over) else observations
        if not (isinstance(given, np.ndarray) and given.dtype.hasobject):
            return given
        last = own_copy(observations)
        for row, one in enumerate(given):
            if one is not None:
                each(lambda array, value, row=row: array.__setitem__(row, value), last, one)
        return last


_OF_THE_END = "final_start", "final_frame"
_LAST = ("final_obs", "final_observation")  # Gymnasium's name, and ManiSkill's
_FINAL = frozenset({*_LAST, "final_info"})


def own_copy_of(library: Library, tree: Tree) -> Tree:
    """Return a copy of a tree's arrays."""
    return each(lambda array: library.xp.asarray(array, copy=True), tree)


def library_array(library: Library, actions: Any) -> Array:
    """Return actions as an array; numbers of Python's and NumPy's are taken where the library is NumPy."""
    is_numpys = library.xp.__name__.endswith("numpy") and not library.is_functional
    return np.asarray(actions) if is_numpys and is_of_numpy(actions) else actions
