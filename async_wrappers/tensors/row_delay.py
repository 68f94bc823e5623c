"""A delay for each row of an array: which action a row receives on a frame, and which past frame its policy reads.

All rows are on the same frame of the vector, each on its own frame of its episode. A step of an environment is a
function of arrays [N, ...] without a branch on their values, so that nothing waits for the device.
"""

# One frame of N rows
# ===================
#
# Schedules say which decision lands on a row's frame (`row_schedule.py`). What follows are the rules of
# `async_wrappers.wrappers.ledger`, in arrays [N]:
#
#   frame   0     1     2     3     4         a delay of 2 frames, a decision on each
#   seen   o_0   o_1   o_2   o_3   o_4        the ring keeps one frame more than the longest delay
#   start   -     -     0     1     2         of the decision that lands on the frame
#   sent   def.  def.  a_0   a_1   a_2        where(lands, given, default)
#   shown        o_0   o_1   o_2              the ring some frames ago: what the decision has read that lands next
#
# 1. A row whose episode has just begun receives default actions until its first decision lands. The caller's action
#    for it is ignored: `deciding` tells whose next action counts.
# 2. A decision gets the rewards of the frames from its effect to the next one's; those from before e_0 are carried to
#    decision 0. They are returned when they are complete: on the frame before the next landing, or at the end.
# 3. At the end of an episode of T frames the last observation is o_min(s', T) with the start s' of the next decision,
#    as `RealtimeDelay` has it.
# 4. The row's next episode begins on the next frame, or one later where the environment resets on a frame of its own;
#    it has a new delay, if delays are drawn.
#
# On the host a step looks whether all rows land, whether none is over, and so on (`Library.which`), and leaves out what
# changes nothing then. An array that a step has returned is never written again; it may be an array of the state too,
# so a caller copies it to change it.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from async_wrappers.tensors.arrays import Array, Library, Tree, Which, each
from async_wrappers.tensors.row_schedule import NONE, EachEpisode, EachFrame


class Outcome(NamedTuple):
    """What a vector environment returns of a frame.

    Attributes:
        observation: [N, ...]; where an episode has ended and the next one has begun, its first.
        reward: [N].
        terminated: bool [N].
        truncated: bool [N].
        last: The last observation of each episode that has ended, [N, ...] with anything in other rows; None where
            `observation` has it.
    """

    observation: Tree
    reward: Array
    terminated: Array
    truncated: Array
    last: Tree | None = None


class Rows(NamedTuple):
    """What is known of N running episodes; arrays [N] but where it is said.

    Attributes:
        clock: Frames of the vector so far.
        frame: Frames of each episode so far; negative while it has not begun.
        episode: Its number in its row.
        plan: What the schedule knows.
        due: Start of the decision that lands on the next frame; -1 where none does.
        lands: Whether one does.
        start: Of the decision that landed last; -1 before the first.
        effect: The frame on which it landed.
        action: That decision's action, [N, ...], or its chunk.
        last: The last action that was sent of a decision's; before the first the default action, [N, ...].
        reward: Since the last decision was complete.
        since: The frame of the episode from which on that is.
        seen: A ring [H, N, ...] of the newest frames.
    """

    clock: Any
    frame: Array
    episode: Array
    plan: Any
    due: Array
    lands: Array
    start: Array
    effect: Array
    action: Array
    last: Array
    reward: Array
    since: Array
    seen: Tree


class Step(NamedTuple):
    """What a step returns of each row; arrays [N] but where it is said.

    Attributes:
        observation: What the next decision has read, [N, ...].
        reward: Of the decision that is complete, else 0.
        terminated: Whether the episode has ended so.
        truncated: Whether it has ended otherwise.
        final: What ended episodes bootstrap on, [N, ...], with anything in other rows.
        applied: Whether this step's action landed.
        closed: Whether a decision is complete, or an episode has ended.
        deciding: Whether the next step's action counts.
        start: Frame of the returned observation where it does, else -1.
        frame: Frames of the episode so far.
        delay: Age of the observation behind this step's action, in frames; 0 where it did not land.
        interval: Frames from the effect of the decision that is complete to the next one's, or to the end; else 0.
        default_frames: Of the frames since the one before was complete, those on which no decision acted; else 0.
        final_start: Frame of `final` in its episode.
        final_frame: Frames of the ended episode.
        executed: Of chunks, bool [N, L]: which entries were applied of a decision that is complete; else None.
    """

    observation: Tree
    reward: Array
    terminated: Array
    truncated: Array
    final: Tree
    applied: Array
    closed: Array
    deciding: Array
    start: Array
    frame: Array
    delay: Array
    interval: Array
    default_frames: Array
    final_start: Array
    final_frame: Array
    executed: Array | None


class RowDelay:
    """Delays the actions of N environments that step together, each row by a schedule of its own.

    Args:
        library: Of the arrays.
        schedule: Of the rows.
        default: [N, ...] what each row receives before its first decision, and else on frames without one.
        repeats: Whether the last decision's action takes its place.
        resets_later: Whether an episode begins one frame after the frame on which the one before has ended.
        chunk: Entries of a chunk; None where actions are single.
    """

    def __init__(
        self,
        library: Library,
        schedule: EachEpisode | EachFrame,
        default: Array,
        repeats: bool,
        resets_later: bool = False,
        chunk: int | None = None,
    ) -> None:
        self._library, self._schedule = library, schedule
        self._default, self._repeats, self._chunk = default, repeats, chunk
        self._begins = -1 if resets_later else 0
        self._length = schedule.longest + 1
        self._numbers = library.xp.arange(default.shape[0], device=library.device)
        # Nobody changes these, and nobody but this class has them.
        self._nothing, self._ones = self._numbers * 0, self._numbers * 0 + 1
        self._none, self._at_begin = self._nothing + NONE, self._nothing + self._begins
        self._all = Which(self._numbers >= 0, some=True, every=True)

    @property
    def _xp(self) -> Any:
        return self._library.xp

    def begin(self, observation: Tree, reward: Array) -> Rows:
        """Return the rows as all episodes begin with an observation; `reward` is an example [N]."""
        zeros = self._xp.zeros_like(self._numbers)
        seen = each(lambda array: self._library.ring(self._length, array), observation)
        seen = each(lambda ring, array: self._library.put(ring, 0, array), seen, observation)
        action = self._default
        if self._chunk is not None:
            shape = (action.shape[0], self._chunk, *action.shape[1:])
            action = self._xp.broadcast_to(self._xp.expand_dims(action, axis=1), shape)
        plan: Any = self._schedule.begin(self._numbers, zeros, zeros)
        start = zeros + NONE
        due, lands = self._schedule.due(plan, zeros, start, 0)
        return Rows(
            clock=self._xp.asarray(0) if self._library.is_functional else 0,
            frame=zeros,
            episode=zeros,
            plan=plan,
            due=due,
            lands=lands.mask,
            start=start,
            effect=zeros,
            action=action,
            last=self._default,
            reward=self._xp.zeros_like(reward),
            since=zeros,
            seen=seen,
        )

    def restart(self, rows: Rows, which: Array, observation: Tree) -> Rows:
        """Return the rows as the episodes of some of them, bool [N], are cut and begin anew with an observation."""
        where, library, nothing = self._xp.where, self._library, self._nothing
        place = rows.clock % self._length
        frame, episode = where(which, nothing, rows.frame), where(which, rows.episode + 1, rows.episode)
        plan: Any = self._schedule.next(rows.plan, self._numbers, frame, episode, library.which(which), rows.clock)
        start = where(which, self._none, rows.start)
        due, lands = self._schedule.due(plan, frame, start, rows.clock)
        return rows._replace(
            frame=frame,
            episode=episode,
            plan=plan,
            due=due,
            lands=lands.mask,
            start=start,
            last=library.where(which, self._default, rows.last),
            reward=where(which, self._xp.zeros_like(rows.reward), rows.reward),
            since=where(which, nothing, rows.since),
            seen=each(lambda ring, array: library.put(ring, place, array), rows.seen, observation),
        )

    def shown(self, rows: Rows) -> Tree:
        """Return the observation that each row's next decision has read, or would have."""
        return self._shown(rows.plan, rows.frame, rows.due, self._library.which(rows.lands), rows.seen, rows.clock)

    def newest(self, rows: Rows) -> Tree:
        """Return a copy of each row's newest frame, [N, ...]."""
        place = rows.clock % self._length
        return each(lambda ring: self._library.own(ring[place]), rows.seen)

    def _shown(self, plan: Any, frame: Array, due: Array, lands: Which, seen: Tree, clock: Any) -> Tree:
        if lands.every:
            return self._ago(seen, clock, frame - due)
        ages = frame - self._schedule.read(plan, frame, due, clock)
        return self._ago(seen, clock, self._xp.maximum(ages, self._nothing))

    def _ago(self, seen: Tree, clock: Any, frames: Array) -> Tree:
        """Return the observation of each row so many frames ago, at most the longest delay."""
        place, rows = clock % self._length, self._numbers
        return each(lambda ring: self._library.ago(ring, place, frames, rows), seen)

    def step(self, rows: Rows, given: Array, advance: Callable[[Array], Outcome]) -> tuple[Rows, Step]:
        """Play a frame.

        Args:
            rows: Before it.
            given: An action, or a chunk, for each row, [N, ...]; ignored where no decision lands.
            advance: Steps the environments with the actions [N, ...] that they receive.

        Returns:
            The rows after it, and what the step returns.
        """
        xp, library = self._xp, self._library
        choose, where, nothing = library.choose, xp.where, self._nothing
        lands = library.which(rows.lands)
        start, effect = choose(lands, rows.due, rows.start), choose(lands, rows.frame, rows.effect)
        given = library.beside(given, rows.action) if lands.every else given
        acts, own, action = lands, given, rows.action
        if self._chunk is not None:
            action = choose(lands, given, rows.action)
            entry = rows.frame - start
            acts = library.which((start >= 0) & (entry < self._chunk))
            own = self._entries(action, where(acts.mask, entry, nothing))
        last = choose(acts, own, rows.last)
        sent = last if self._repeats else library.where(acts.mask, own, self._default)
        outcome = advance(sent)

        running = library.which(rows.frame >= 0) if self._begins < 0 else self._all
        terminated, truncated = outcome.terminated & running.mask, outcome.truncated & running.mask
        over = library.which(terminated | truncated)
        frame, clock = rows.frame + 1, rows.clock + 1
        no_reward = xp.zeros_like(rows.reward)
        reward = rows.reward + choose(running, outcome.reward, no_reward)
        seen = each(lambda ring, array: library.put(ring, clock % self._length, array), rows.seen, outcome.observation)
        final, final_start = outcome.observation if outcome.last is None else outcome.last, frame
        new_frame, episode, new_start, new_last = frame, rows.episode, start, last
        if over.some:
            final_start = self._schedule.following(rows.plan, self._numbers, rows.episode, start, frame, clock)
            is_old, old = final_start < frame, self._ago(seen, clock, frame - final_start)
            final = each(lambda one, other: library.where(is_old, one, other), old, final)
            new_frame = where(over.mask, self._at_begin, frame)
            episode = where(over.mask, rows.episode + 1, rows.episode)
            new_start, new_last = where(over.mask, self._none, start), library.where(over.mask, self._default, last)
        plan: Any = self._schedule.next(rows.plan, self._numbers, new_frame, episode, over, clock)
        due, lands_next = self._schedule.due(plan, new_frame, new_start, clock)
        if lands_next.every:  # nothing of the last actions is read again
            action, new_last = rows.action, rows.last
        elif lands.every:  # they may be the caller's array
            action, new_last = library.own(action), library.own(new_last)

        closed = has_acted = lands_next
        if over.some or not lands.every:
            has_landed = start >= 0
            closed = library.which(over.mask | (has_landed & lands_next.mask))
            has_acted = library.which(closed.mask & has_landed)
        acted, executed = choose(has_acted, self._ones, nothing), None
        if self._chunk is not None:
            entries = xp.expand_dims(xp.arange(self._chunk, device=library.device), axis=0)
            begin, end = (xp.expand_dims(each_frame - start, axis=1) for each_frame in (effect, frame))
            executed = (entries >= begin) & (entries < end) & xp.expand_dims(has_acted.mask, axis=1)
            acted = xp.sum(where(executed, entries * 0 + 1, entries * 0), axis=1)
        step = Step(
            observation=self._shown(plan, new_frame, due, lands_next, seen, clock),
            reward=reward if closed.every else where(closed.mask, reward, no_reward),
            terminated=terminated,
            truncated=truncated,
            final=final,
            applied=lands.mask,
            closed=closed.mask,
            deciding=lands_next.mask,
            start=due,
            frame=new_frame,
            delay=self._where(lands, rows.frame - start),
            interval=self._where(has_acted, frame - effect),
            default_frames=self._where(closed, frame - rows.since - acted),
            final_start=final_start,
            final_frame=frame,
            executed=executed,
        )
        now = Rows(
            clock=clock,
            frame=new_frame,
            episode=episode,
            plan=plan,
            due=due,
            lands=lands_next.mask,
            start=new_start,
            effect=effect,
            action=action,
            last=new_last,
            reward=choose(closed, no_reward, reward),
            since=choose(over, nothing, choose(closed, frame, rows.since)),
            seen=seen,
        )
        return now, step

    def _where(self, which: Which, values: Array) -> Array:
        """Return the whole numbers of some rows, [N], and 0 of the others."""
        return values if which.every else self._xp.where(which.mask, values, self._nothing)

    def _entries(self, chunks: Array, entry: Array) -> Array:
        """Return one entry of each row's chunk [N, L, ...]."""
        assert self._chunk is not None
        n, places = self._numbers.shape[0], self._numbers * self._chunk + entry
        return self._xp.take(self._xp.reshape(chunks, (n * self._chunk, *chunks.shape[2:])), places, axis=0)
