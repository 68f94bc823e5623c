"""`VectorRealtimeDelay`: inference latency on a vector environment whose sub-environments go in lockstep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from async_wrappers.checks import whole, whole_frames
from async_wrappers.observations import observation_check
from async_wrappers.wrappers.action_conversion import at_bounds, floats_of
from async_wrappers.wrappers.chunk import ChunkBatch, as_chunk
from async_wrappers.wrappers.copies import (
    Info,
    VectorEnv,
    VectorWrapper,
    batch,
    own_copy,
    own_info,
    pictures_of,
    put,
    with_rows,
)
from async_wrappers.wrappers.default_action import written_call
from async_wrappers.wrappers.ledger import LedgerRows, standing_actions
from async_wrappers.wrappers.limits import reports_sent
from async_wrappers.wrappers.lockstep import (
    Finals,
    Frame,
    Lockstep,
    Report,
    autoreset_mode,
    default_actions_of,
    seeds_of,
)
from async_wrappers.wrappers.past_frames import FreshRows, PastRows, checked_age
from async_wrappers.wrappers.row_terms import RowTerms, batch_default, is_of_numpy

if TYPE_CHECKING:
    from async_wrappers.tensors.vector_rows import VectorRows

NEVER = 2**62  # a frame
NO_STEP = -9

# The small numbers of this file are arrays without dimensions: NumPy adds one to eight rows in half the time that it
# needs for an int, and the rows of a fast environment are stepped in the time of some sixty such operations.
_DEFAULTS = {"latency": None, "fps": None, "per": "episode", "playout": 0}

_NONE, _ONE, _TWO = np.array(0), np.array(1), np.array(2)


class VectorRealtimeDelay(VectorWrapper, gym.utils.RecordConstructorArgs):
    """Delays the actions of a vector environment, whose sub-environments step in lockstep and do not wait.

    It suits environments that exist only as a vector (``ale_py.AtariVectorEnv``), or that are batched already. Where
    there are functions that make single environments, wrap each in `RealtimeDelay` instead: ``SyncVectorEnv([lambda:
    RealtimeDelay(make(), delay=8)] * 4)``; then each has a schedule of its own, and no decision is ever left out.

    A *frame* is one ``step`` of the wrapped vector environment, of all sub-environments at once. Frames are counted
    from the reset, and every ``m = noops + 1`` of them is a *boundary*, common to all: frames 0, m, 2m, ... One
    ``step`` of this wrapper, number k, applies the batch of actions computed from the observations of boundary
    ``k m``, on frame ``k m + delay``, and runs the frames up to the next batch's effect; the first one also runs the
    frames before. Every other frame receives the default action. Within a sub-environment's episode that begins on
    frame G this is the plain schedule (`async_wrappers.schedule.plain`), begun at the first boundary B at or after G:
    ``s_j = B - G + j m``, ``e_j = s_j + delay``.

    * Frames before ``e_0`` are default frames, credited to the episode's decision 0. As the other sub-environments
      need actions meanwhile, there are steps in which this one has none to receive: its row of actions is ignored,
      its reward is 0 (carried until decision 0 is applied, or the episode ends), and its observation is that of the
      common boundary, which may still belong to the last episode. ``info["realtime"]["deciding"]`` names the rows whose
      next action counts, ``["applied"]`` those whose action did: a learner takes the rows with ``applied``.
    * An action based on an episode that is over when it would land is never applied.
    * At the end of an episode of T frames the final observation is the one that the next decision would have read,
      ``o_min(s_{j+1}, T)``, as in `RealtimeDelay`. An episode that ends before ``e_0`` is reported by the step in which
      it ends, with its rewards, ``o_min(s_1, T)`` and ``applied`` False.
    * A step can report one end per sub-environment. If a second episode begins and ends in the same step (with
      ``NEXT_STEP``, also in the step after it), it is counted in ``unreported_episodes``, and its reward in
      ``unreported_reward``. Returned, unreported and carried rewards sum up to those of the environment.
    * The frame on which a ``NEXT_STEP`` environment resets belongs to no episode.

    ``metadata["autoreset_mode"]`` of this wrapper, by that of the wrapped environment. ``NEXT_STEP`` is kept where an
    episode's end and the next one's first observation cannot fall into the same step.

    ================= ======================= ========================= ================
    wrapped           no delay, no noops      noops <= delay            noops > delay
    ================= ======================= ========================= ================
    ``NEXT_STEP``     ``NEXT_STEP``           ``NEXT_STEP``             ``SAME_STEP``
    ``SAME_STEP``     ``SAME_STEP``           ``SAME_STEP``             ``SAME_STEP``
    ``DISABLED``      ``DISABLED``            ``SAME_STEP``             ``SAME_STEP``
    ================= ======================= ========================= ================

    In ``NEXT_STEP`` the final observation is the returned one. In ``SAME_STEP`` it is in ``info["final_obs"]``, and
    ``info["final_info"]`` holds the episode's last info with a ``"realtime"`` of its own. Ended sub-environments
    of a ``DISABLED`` vector are reset at once. Without delay and noops only ``info`` changes: it has ``"realtime"``.

    One exception to "the first boundary": where the wrapper is ``NEXT_STEP``, the next decision is at least two
    steps after the one that reports an end, as the one in between is the reset's. This is later than the
    first boundary only if a first episode is over within its first ``noops`` frames.

    ``info`` and ``render()`` are of the newest frame (in ``NEXT_STEP``, where an episode ended, of its last): a
    policy that takes time cannot know them yet. Observations are copied.

    ``info["realtime"]`` after a step holds arrays over the sub-environments:

    ======================= ===========================================================================================
    ``delay``               age of the observation behind an action, in frames
    ``applied``             this step's action was applied
    ``deciding``            the next step's action will be used (but for an end before frame `delay` after a reset)
    ``interval``            frames from this action's effect to the next one's, or to the end of the episode; else 0
    ``default_frames``      frames credited to this step on which the sub-environment received the default action
    ``frame``               frames stepped so far in the episode
    ``start``               frame of the returned observation in its episode, -1 if no decision reads it
    ``observation_info``    the environment's info at the frame of the returned observation, a dictionary like `info`
    ``carried_reward``      reward of the running episode that no step has returned yet
    ``unreported_episodes`` episodes that ended in this step without being reported
    ``unreported_reward``   their reward
    ``sent``                the actions, with those that were really sent, where the sub-environments report others
                            (``info["sent"]``, as in `RealtimeDelay`) and bool ``_sent`` tells whose; else no such entry
    ======================= ===========================================================================================

    In ``SAME_STEP``, where an episode ended, ``frame``, ``start`` and ``observation_info`` are of the next episode, as
    the returned observation; those of the ended one are in ``info["final_info"]["realtime"]``. After ``reset`` there
    are ``deciding``, ``frame``, ``start`` and ``observation_info``.

    With ``default_action=Chunk(length)`` the action of each sub-environment is a chunk of `length` actions, as in
    `RealtimeDelay`; then there also are ``executed``, bool [num_envs, length], which entries of this step's chunk the
    sub-environment received, and ``chunk_frames``.

    With `fresh_age` there also is ``fresh_observation``, as in `RealtimeDelay`, after ``reset`` too, which then runs
    the frames up to the first action that lands. Where a row shows an episode's end it is of that end; in
    ``SAME_STEP`` the end's is in ``info["final_info"]["realtime"]``.

    **Rows of their own, and arrays of other libraries.** `delay`, `noops` and `default_action` may be given for each
    environment, and delays may be drawn, by each episode or by each frame. Then, and where the vector's arrays are not
    NumPy's but PyTorch's, JAX's or CuPy's, every row has the schedule of a `RealtimeDelay` of its own, which begins
    with its episode, and a step is one frame (the first one also runs those before anybody's first action). Arrays stay
    in their library and on their device, and nothing waits for it. ``metadata["autoreset_mode"]`` is ``SAME_STEP``;
    `info` has no ``observation_info``, and ``info["realtime"]`` has ``closed`` too: whose decision, or episode, is
    complete with this step, which is where its reward is returned. ``info["final_info"]["realtime"]`` holds arrays. An
    environment that resets without a last observation is taken to end with the one of the frame before. On a GPU copy
    what you change of ``info["realtime"]``: it may be of the wrapper's own state.

    ``reset(options={"reset_mask": ...})`` cuts the chosen episodes short where the wrapped environment can do that;
    rewards that they carried are dropped.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from async_wrappers import VectorRealtimeDelay
        >>> env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
        >>> env = VectorRealtimeDelay(env, delay=2, noops=1, default_action="repeat")
        >>> observations, info = env.reset(seed=0)
        >>> observations, rewards, terminated, truncated, info = env.step(np.array([1, 0]))
        >>> rewards, info["realtime"]["start"], info["realtime"]["deciding"]
        (array([4., 4.]), array([2, 2]), array([ True,  True]))

    Args:
        env: The vector environment; it is stepped once per frame.
        delay: Age of the observation behind an action, in frames; one for each environment, or a ``range`` from which
            each episode of each environment draws one.
        noops: Frames between two actions, filled by the default action; or one number for each environment.
        latency: In the place of `delay`: a model, or seconds, from which episodes or frames draw.
        fps: With a latency: frames per second.
        per: With a latency: ``"episode"``, whose frames all have one delay; or ``"frame"``: a decision starts on each,
            as with tickets and as many workers as it takes, and no observation is followed by an older one.
        playout: With a latency of each frame: frames from a start to the frame on which its action is due.
        default_action: As in `RealtimeDelay`, of a single sub-environment, or an array with one for each: ``"noop"``,
            ``"repeat"``, ``"random"`` (each has a generator, seeded by ``reset(seed=)`` like it), an action of
            ``single_action_space``, or a function of (newest observation, last agent action or None), called for
            each sub-environment by itself. Or a `Chunk`, whose `after` acts until an episode's first chunk lands.

    Attributes:
        chunk: As in `RealtimeDelay`.
        fresh_age: As in `RealtimeDelay`; it may be changed before a reset of all sub-environments.

    Raises:
        ValueError: `env` is not a vector environment in lockstep with an autoreset mode in its metadata, negative or
            fractional frames, an unknown default action, ``"noop"`` where the environment has none, a chunk that is
            shorter than delay + interval, or an action space that has no chunks.
    """

    def __init__(
        self,
        env: VectorEnv,
        delay: Any = 0,
        noops: Any = 0,
        default_action: Any = "noop",
        *,
        latency: Any = None,
        fps: Any = None,
        per: str = "episode",
        playout: int = 0,
    ) -> None:
        if not isinstance(env, gym.vector.VectorEnv):
            raise ValueError(f"env must be a gymnasium.vector.VectorEnv, got {env}: use RealtimeDelay")
        drawn = {"latency": latency, "fps": fps, "per": per, "playout": playout}
        if (batch_size := getattr(env.unwrapped, "batch_size", env.num_envs)) != env.num_envs:
            raise ValueError(f"env must step all {env.num_envs} sub-environments at once, got batch_size={batch_size}")
        told = {name: value for name, value in drawn.items() if np.ndim(value) or value != _DEFAULTS[name]}
        gym.utils.RecordConstructorArgs.__init__(
            self, _disable_deepcopy=True, delay=delay, noops=noops, default_action=default_action, **told
        )
        gym.vector.VectorWrapper.__init__(self, env)
        self.terms, self._standing = RowTerms(delay, noops, **drawn), batch_default(default_action, env)
        self.terms.check(env.num_envs)
        # Rows are played one by one where they differ, or where arrays are not NumPy's, which the first reset shows.
        self._rows: VectorRows | None = None
        by_rows = self._by_rows = self.terms.asks_for_rows or self._standing is not None
        self._check = observation_check(env.observation_space, "the environments' observations")
        delay, noops = (0, 0) if by_rows else (delay, noops)
        self._delay, self._interval = whole_frames("delay", delay), whole_frames("noops", noops) + 1
        self._delayed = by_rows or delay > 0 or noops > 0
        inner = self._mode = autoreset_mode(env)
        # NEXT_STEP has room for one observation in a step: the last of an episode or the first of the next. Step k
        # begins with frame k m + delay and returns the observation of boundary (k + 1) m, where m = noops + 1. After an
        # end on its first frame and the frame of the reset, the next episode begins on frame k m + delay + 2. That is
        # after the boundary if noops <= delay; otherwise both may fall into the step.
        if by_rows or (self._delayed and not (inner is AutoresetMode.NEXT_STEP and noops <= delay)):
            self._mode = AutoresetMode.SAME_STEP
        self.metadata = {**pictures_of(env.metadata, self._interval), "autoreset_mode": self._mode}
        self._steps_without_report = int(self._mode is AutoresetMode.NEXT_STEP)  # after one that reports an end
        self._lockstep = Lockstep(env, inner, resets=self._delayed)
        given: Info = {name: frames for name, frames in (("delay", delay), ("noops", noops)) if frames}
        needed = self.terms.longest(env.num_envs) if by_rows else (self._delay, self._interval)
        self.chunk = chunk = None if self._standing is not None else as_chunk(default_action, needed)
        self._chunks = None if chunk is None else ChunkBatch(chunk, env.single_action_space, env.num_envs)
        line, name = written_call("VectorRealtimeDelay", "env", **given), "default_action"
        if chunk is not None:
            self.single_action_space = chunk.policy_space(env.single_action_space)
            self.action_space = batch_space(self.single_action_space, env.num_envs)
            self._entries = np.arange(chunk.length)
            line, name, default_action = chunk.call(line), "after", chunk.after
        asks = self._delayed and self._standing is None
        self._default_actions = default_actions_of(default_action, env, line, name) if asks else []
        self._ledger = LedgerRows(env, self._default_actions, callable(default_action), self._chunks)
        self._past = PastRows(env)
        self._floats = floats_of(self.action_space)
        self._delays = np.full(env.num_envs, self._delay)
        self._goes_at_once = self._delayed and self._interval == 1 and self._ledger.in_arrays and self._chunks is None
        n = env.num_envs
        # Report of a step in which all actions are applied and no episode ends; a copy of each table is two operations
        # in the place of ten: delay, interval, default_frames, unreported_episodes; carried_reward, unreported_reward;
        # applied, deciding, terminated, truncated.
        shown = min(self._delay, np.iinfo(np.int64).max)  # a longer delay applies and reports nothing
        self._usual_frames = np.array([[shown] * n, [1] * n, [0] * n, [0] * n], np.int64)
        self._usual_rewards = np.zeros((2, n))
        self._usual_flags = np.array([[True] * n, [True] * n, [False] * n, [False] * n])
        self._begun: Report | None = None  # of the first step, where the reset has run frames of it
        self._hears_sent: bool | None = None  # whether info["sent"] is of our actions; None: none was reported yet
        self._running = False

    def reset(
        self, *, seed: int | Sequence[int | None] | NDArray[Any] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Reset the environment; decisions in flight are discarded and all buffers are empty.

        A seed also restarts the generators of ``default_action="random"``; without one they go on.

        Args:
            seed: The wrapped environment's: a number, or one for each sub-environment.
            options: Passed on; ``"reset_mask"`` chooses sub-environments to reset, the others go on.

        Raises:
            ResetNeeded: A mask, where no episodes are running.
        """
        chosen = None if options is None else options.get("reset_mask")
        if chosen is not None and not self._running:
            raise ResetNeeded("VectorRealtimeDelay: call reset() without a reset_mask first: no episodes are running")
        if self._rows is not None and chosen is not None:
            self._running = False
            cut: Any = {"seed": seed, "options": {**(options or {})}}
            begun = self._rows.restart(chosen, *self.env.reset(**cut))
            self._running = True
            return begun
        self._running = False
        # A copy of the options, because Gymnasium's vectors take the mask out of the dictionary that they receive.
        passed_on: Any = {"seed": seed, "options": None if options is None else {**options}}
        observations, info = self.env.reset(**passed_on)
        if self._by_rows or not is_of_numpy(observations):
            self._rows, self._running = self._played_by_rows(), True
            return self._rows.begin(observations, info, seed)
        self._check(observations)
        if begins := chosen is None:
            chosen = np.ones(self.num_envs, bool)
            self._forget()
        for default_action, its_seed in zip(self._default_actions, seeds_of(seed, chosen), strict=False):
            default_action.reset(its_seed)
        which = np.flatnonzero(chosen)
        self._reported_in[which] = NO_STEP
        self._begin_episodes(which, self._frame)
        self._newest = Frame(observations, np.zeros(self.num_envs), info)
        reads = self._frame % self._interval == 0
        self._past.take_again(self._frame // self._interval if reads else None, observations, info, chosen, begins)
        if begins and self._past.fresh is not None:
            self._lead_in()
        self._running = True
        _, observations, observation_info = self._past.read[0]
        realtime = self._timing(own_info(observation_info))
        ended = [] if self._begun is None else self._begun.finals
        for finals in ended:  # as without fresh observations, the first step reports them
            realtime["deciding"][finals.which], realtime["start"][finals.which] = True, 0
            realtime["frame"][finals.which] = finals.frames
        self._show_fresh(realtime, ended)
        return own_copy(observations), {**self._newest.info, "realtime": realtime}

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Run one decision of each sub-environment that has one to make, and as many frames of the others.

        Args:
            actions: The batch of actions computed from the observations that the last ``reset`` or ``step`` returned.

        Returns:
            The observations that the next decisions read, the rewards, terminated, truncated and info.

        Raises:
            ResetNeeded: No episodes are running: ``reset`` was not called, or the environment has failed.
        """
        if not self._running:
            raise ResetNeeded("VectorRealtimeDelay: call reset() before step(): no episodes are running")
        if self._floats is not None:
            actions = at_bounds(self._floats, actions)
        self._running = False  # an exception in the environment ends all episodes
        if self._rows is not None:
            returned = self._rows.step(actions)
            self._running = True
            return returned
        if self._goes_at_once and self._all_applied_from <= self._step and self._all_running_from <= self._frame:
            return self._step_at_once(actions)
        report = self._report = self._begun or Report(self.num_envs)
        self._begun = None
        self._effect = self._step * self._interval + self._delay
        # Only the first step has frames before its effect: every later one begins where the step before ended.
        while self._frame < self._effect:
            self._step_frame(None)
        report.applied = self._first <= np.array(self._step)
        if self._chunks is None:
            self._step_frame(actions)
            self._note_sent(report, actions, report.applied)
            while self._frame < self._effect + self._interval:
                self._step_frame(None)
        else:
            start = self._step * self._interval
            self._chunks.add(self._step, start, actions)
            while self._frame < self._effect + self._interval:
                entry, receiving = self._frame - start, self._receiving()
                self._step_frame(self._chunks.at(self._frame, self._first))
                self._note_sent(report, actions, receiving, entry)
        self._close()
        if self._chunks is not None:
            report.executed = self._execute()
        self._step += 1
        self._past.forget(self._step)
        self._running = True
        return self._returned()

    def _step_at_once(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Run the one frame of a step in which all actions are applied, as in the step before."""
        self._ledger.land_all(actions)
        newest = self._lockstep.step(actions)
        if newest.over is not None:
            self._report, self._effect = Report(self.num_envs), self._frame
            self._report.applied[:] = True
            self._take(newest, None)
            self._note_sent(self._report, actions, self._report.applied)
            self._close()
            self._step += 1
            self._past.forget(self._step)
            self._running = True
            return self._returned()
        self._newest = newest
        rewards = self._carried + newest.rewards  # which are zeros, and stay so
        self._frame += 1
        self._now = np.array(self._frame)
        self._since.fill(self._frame)
        self._step += 1
        self._past.take(self._frame, newest.observations, newest.info)
        self._past.forget(self._step)
        _, observations, observation_info = self._past.read[0]
        delay, interval, default_frames, unreported_episodes = self._usual_frames.copy()
        carried_reward, unreported_reward = self._usual_rewards.copy()
        applied, deciding, terminated, truncated = self._usual_flags.copy()
        realtime = {
            "delay": delay,
            "applied": applied,
            "interval": interval,
            "default_frames": default_frames,
            "deciding": deciding,
            "frame": self._now - self._begin,
            "start": np.array(self._step) - self._begin,
            "observation_info": observation_info,
            "carried_reward": carried_reward,
            "unreported_episodes": unreported_episodes,
            "unreported_reward": unreported_reward,
        }
        if "sent" in newest.info:
            report = Report(self.num_envs)
            self._note_sent(report, actions, applied)
            realtime |= report.of_sent()
        self._show_fresh(realtime)
        self._running = True
        return observations, rewards, terminated, truncated, {**newest.info, "realtime": realtime}

    def _played_by_rows(self) -> VectorRows:
        """Return what plays the rows one by one.

        Raises:
            ValueError: The default action must be asked on each frame, or fresh observations are to be reported.
        """
        from async_wrappers.tensors.vector_rows import VectorRows  # with what needs it alone

        if self._past.fresh is not None:
            raise ValueError(
                f"fresh_age={self._past.fresh.age} needs one delay for all environments, and NumPy's arrays: leave it "
                "None"
            )
        standing, repeats = self._standing, False
        if standing is None and self._default_actions:
            standing, repeats = standing_actions(self._default_actions, self.env)
            if standing is None:
                raise ValueError(
                    "default_action must be 'noop', 'repeat', an action or one for each environment where rows have "
                    "delays of their own or arrays are not NumPy's: others are asked for each environment"
                )
        if standing is None:  # each frame receives an action
            standing = batch(self.env.single_action_space, [self._ledger.none] * self.num_envs)
        if self.chunk is not None and self.chunk.mean is not None:
            raise ValueError(f"{self.chunk} needs one delay for all environments, and NumPy's arrays: leave mean None")
        if reports_sent(self.env):
            raise ValueError(
                "rows with delays of their own, or of other libraries, do not hear which action a limit has sent: put "
                "LimitAction outside of the delay"
            )
        if self.single_action_space.shape is None:
            raise ValueError(
                f"rows with delays of their own, or of other libraries, need actions that are arrays, got "
                f"{self.env.single_action_space}"
            )
        length = None if self.chunk is None else self.chunk.length
        return VectorRows(self.env, autoreset_mode(self.env), self.terms, (standing, repeats), length)

    @property
    def playout(self) -> int | None:
        """Frames from a decision's start to the frame on which its action lands; None where rows differ."""
        return None if self._by_rows else self._delay

    @property
    def fresh_age(self) -> int | None:
        return None if self._past.fresh is None else self._past.fresh.age

    @fresh_age.setter
    def fresh_age(self, value: int | None) -> None:
        age = None if value is None else whole("fresh_age", value, 0, unit="frames")
        self._past.fresh = None if age is None else FreshRows(self.env, age)

    def report_fresh(self, name: str, age: int) -> None:
        """Report fresh observations from the next reset on; see `RealtimeDelay.report_fresh`."""
        self.fresh_age = checked_age(self, name, age)

    def _lead_in(self) -> None:
        """Run the frames up to the first action that lands; the first step reports what ends on them."""
        self._report = self._begun = Report(self.num_envs)
        self._effect = self._delay
        while self._frame < self._delay:
            self._step_frame(None)

    def _show_fresh(self, realtime: Info, ended: Sequence[Finals] = ()) -> None:
        """Add the fresh observations, where they are reported; those of episodes whose end is shown are of that."""
        if self._past.fresh is None:
            return
        shown = self._past.fresh.batch(self._now - self._begin)
        for finals in ended:
            shown = with_rows(self.env, shown, finals.which, finals.fresh)
        realtime["fresh_observation"] = shown

    def _forget(self) -> None:
        """Begin to count frames."""
        n = self.num_envs
        self._ledger.begin()
        self._past.begin()
        self._frame: int = 0
        self._now = np.array(0)  # NumPy is twice as fast with an array as with an int
        self._step: int = 0  # the boundary whose observations the agent has
        self._begun = None
        self._begin: NDArray[np.int64] = np.zeros(n, np.int64)  # first frame of the running episode
        self._first: NDArray[np.int64] = np.zeros(n, np.int64)  # its first boundary
        self._since: NDArray[np.int64] = np.zeros(n, np.int64)  # first frame of it whose reward no step has returned
        self._carried: NDArray[np.float64] = np.zeros(n)  # reward since then
        self._reported_in: NDArray[np.int64] = np.full(n, NO_STEP)  # last step that reported an end
        self._all_applied_from: int = (
            0  # the step after the first in which the actions of all running episodes are applied
        )
        self._all_running_from: int = 0  # the frame on which the last one of the running episodes begins

    def _begin_episodes(self, which: NDArray[np.int64], frame: int) -> None:
        self._begin[which] = self._since[which] = frame
        self._all_running_from = max(self._all_running_from, frame)
        first: Any = -(-frame // self._interval)
        # The step after a reported end is the reset's in this mode: its action does not count.
        if self._mode is AutoresetMode.NEXT_STEP:
            first = np.maximum(np.array(first), self._reported_in[which] + _TWO)
        self._first[which] = first
        if self._goes_at_once and len(which):
            self._all_applied_from = max(self._all_applied_from, int(np.max(first)) + 1)
        self._carried[which] = 0.0
        self._ledger.begin_episodes(which)

    def _step_frame(self, actions: Any) -> None:
        """Run one frame, on which the agent's `actions` are applied unless they are None."""
        # On the frame on which a NEXT_STEP environment resets, its next episode has not begun: the reward is no
        # episode's.
        waiting = None if self._all_running_from <= self._frame else self._begin > self._now
        if self._delayed:
            receiving = None if actions is None else self._receiving()
            actions = self._ledger.actions(actions, receiving, waiting, self._newest.observations)
        self._take(self._lockstep.step(actions), waiting)

    def _take(self, newest: Frame, waiting: NDArray[np.bool_] | None) -> None:
        """Take a frame's results; `waiting` are the sub-environments whose next episode has not begun."""
        self._check(newest.observations)
        self._newest = newest
        self._carried += newest.rewards
        if waiting is not None:
            np.copyto(self._carried, 0.0, where=waiting)
        self._frame += 1
        self._now = np.array(self._frame)
        if newest.over is not None:
            self._end(newest)
        reads = self._frame % self._interval == 0  # decisions start on it
        self._past.take(self._frame // self._interval if reads else None, newest.observations, newest.info)

    def _receiving(self) -> NDArray[np.bool_]:
        """Return whose action, or entry of a chunk, lands on this frame."""
        # A chunk goes on after its effect, but not into the next episode.
        return self._report.applied if self._chunks is None else self._first <= np.array(self._step)

    def _note_sent(self, report: Report, given: Any, receiving: NDArray[np.bool_], entry: int | None = None) -> None:
        """Note which other actions than the agent's were sent on the newest frame.

        Args:
            report: Of the step.
            given: The agent's actions or chunks.
            receiving: Whose action, or entry of a chunk, landed on it.
            entry: Of a chunk.
        """
        newest = self._newest
        if "sent" not in newest.info and "sent" not in newest.of_the_end:
            return
        if self._hears_sent is None:
            self._hears_sent = reports_sent(self.env)
        mask, actions = newest.sent(self.num_envs)
        mask &= receiving
        if not self._hears_sent or not mask.any():
            return
        if report.sent is None or report.sent_mask is None:
            report.sent, report.sent_mask = np.array(given), np.zeros(self.num_envs, bool)
        into = report.sent if entry is None else report.sent[:, entry]
        into[mask] = actions[mask]
        report.sent_mask |= mask
        going_on = mask.copy()
        if newest.over is not None:
            going_on[newest.over] = False
        self._ledger.note_sent(going_on, actions)

    def _end(self, frame: Frame) -> None:
        """Report the ends of a frame where the step has not reported one yet, and wait for the next episodes."""
        over, report = frame.over, self._report
        assert over is not None
        may = self._reported_in[over] < np.array(self._step - self._steps_without_report)
        reported, others = (over, over[:0]) if np.count_nonzero(may) == len(over) else (over[may], over[~may])
        if len(reported):
            self._reported_in[reported] = self._step
            applied = report.applied[reported]
            report.rewards[reported] = self._carried[reported]
            report.terminated[reported] = frame.terminated[reported]
            report.truncated[reported] = frame.truncated[reported]
            report.interval[reported] = applied * np.array(self._frame - self._effect)
            report.default_frames[reported] = self._now - self._since[reported] - applied
            report.finals.append(self._finals(frame, reported))
        if len(others):
            report.unreported_episodes[others] += 1
            report.unreported_reward[others] += self._carried[others]
        resets = self._mode is not AutoresetMode.DISABLED
        self._begin_episodes(over, self._frame + self._lockstep.autoreset_frames if resets else NEVER)

    def _finals(self, frame: Frame, which: NDArray[np.int64]) -> Finals:
        """Return the sights of the next decisions: at their boundary, or at the end if the episode ended before it."""
        begin = self._begin[which]
        step = np.array(self._step)
        boundary = np.maximum(self._first[which], step) + _ONE
        starts, frames = boundary * np.array(self._interval) - begin, self._now - begin
        # Of what was read, in boundaries from this step's on; 0: at the end.
        ages = ((boundary - step) * (starts < frames)).tolist()

        def newest() -> Any:
            return self._lockstep.last_observations(frame, which)

        observations, infos = self._past.finals(newest, frame.of_the_end, which, ages)
        fresh = None if self._past.fresh is None else self._past.fresh.finals(newest, which, frames)
        return Finals(which, observations, frames, np.minimum(starts, frames), infos, fresh)

    def _execute(self) -> NDArray[np.bool_]:
        """Return which entries of each chunk were received, bool [num_envs, length], and count them out."""
        report, entries = self._report, self._entries
        ends = np.array(self._delay) + report.interval
        report.default_frames = report.default_frames + report.applied - report.interval
        executed: NDArray[np.bool_] = (entries >= self._delay) & (entries < ends[:, None])
        return executed

    def _close(self) -> None:
        """Credit the rewards of the frames since the last report to decisions of episodes that go on."""
        report = self._report
        going_on, interval = report.applied, np.array(self._interval)
        if not report.finals and np.count_nonzero(going_on) == self.num_envs:
            report.rewards, self._carried = self._carried, np.zeros(self.num_envs)
            report.interval += interval
            report.default_frames = self._now - self._since - _ONE
            self._since[:] = self._now
            return
        # Rows whose episode ended in this step have been credited by `_end`.
        if report.finals:
            going_on = going_on & (self._reported_in < np.array(self._step))
        np.copyto(report.rewards, self._carried, where=going_on)
        np.copyto(report.interval, interval, where=going_on)
        np.copyto(report.default_frames, self._now - self._since - _ONE, where=going_on)
        self._carried[going_on] = 0.0
        np.copyto(self._since, self._now, where=going_on)

    def _timing(self, observation_info: Info) -> Info:
        """Return the entries of ``info["realtime"]`` for the returned observations."""
        deciding = self._first <= np.array(self._step)
        frame, start = self._now - self._begin, np.array(self._step * self._interval) - self._begin
        if self._all_running_from > self._frame:
            np.maximum(frame, _NONE, out=frame)
        if np.count_nonzero(deciding) < self.num_envs:
            np.copyto(start, -1, where=~deciding)
        return {
            "deciding": deciding,
            "frame": frame,
            "start": start,
            "observation_info": observation_info,
        }

    def _returned(self) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        report, rewards = self._report, self._report.rewards
        if not self._delayed:
            rewards = rewards.astype(np.asarray(self._newest.rewards).dtype)
        _, observations, observation_info = self._past.read[0]
        realtime = {
            "delay": self._delays.copy(),
            "applied": report.applied,
            "interval": report.interval,
            "default_frames": report.default_frames,
            **self._timing(observation_info),
            "carried_reward": self._carried.copy(),
            "unreported_episodes": report.unreported_episodes,
            "unreported_reward": report.unreported_reward,
        }
        if report.executed is not None:
            realtime["executed"] = report.executed
            realtime["chunk_frames"] = report.interval - report.applied
        realtime |= report.of_sent()
        self._show_fresh(realtime, [] if self._mode is AutoresetMode.SAME_STEP else report.finals)
        info = {**self._newest.info}
        if self._mode is AutoresetMode.SAME_STEP:
            self._report.put_finals(self, info, realtime, self._lockstep.batches_finals)
        elif report.finals:
            info = own_info(info)
            for finals in report.finals:
                realtime["frame"][finals.which], realtime["start"][finals.which] = finals.frames, finals.starts
                observations = with_rows(self.env, observations, finals.which, finals.observations)
                if finals.infos or observation_info or info:
                    for place, i in enumerate(finals.which.tolist()):
                        of_the_observation, last = finals.infos[place] if finals.infos else ({}, {})
                        put(self.env, observation_info, i, of_the_observation)
                        put(self.env, info, i, last)
        return observations, rewards, report.terminated, report.truncated, {**info, "realtime": realtime}
