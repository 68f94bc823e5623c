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

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from async_wrappers.tensors.arrays import Array, Library, Tree, each
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
        start: Of the decision that landed last; -1 before the first.
        effect: The frame on which it landed.
        action: That decision's action, [N, ...], or its chunk.
        last: The last action that was sent of a decision's; before the first the default action, [N, ...].
        missed: Frames in a row on which no decision acted.
        reward: Since the last decision was complete.
        since: The frame of the episode from which on that is.
        seen: A ring [H, N, ...] of the newest frames.
    """

    clock: Any
    frame: Array
    episode: Array
    plan: Any
    start: Array
    effect: Array
    action: Array
    last: Array
    missed: Array
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
        return Rows(
            clock=self._xp.asarray(0) if self._library.is_functional else 0,
            frame=zeros,
            episode=zeros,
            plan=self._schedule.begin(self._numbers, zeros, zeros),
            start=zeros + NONE,
            effect=zeros,
            action=action,
            last=self._default,
            missed=zeros,
            reward=self._xp.zeros_like(reward),
            since=zeros,
            seen=seen,
        )

    def restart(self, rows: Rows, which: Array, observation: Tree) -> Rows:
        """Return the rows as the episodes of some of them, bool [N], are cut and begin anew with an observation."""
        where, library = self._xp.where, self._library
        place = rows.clock % self._length
        frame, episode = where(which, rows.frame * 0, rows.frame), where(which, rows.episode + 1, rows.episode)
        return rows._replace(
            frame=frame,
            episode=episode,
            plan=self._schedule.next(rows.plan, self._numbers, frame, episode, which, rows.clock),
            start=where(which, rows.start * 0 + NONE, rows.start),
            last=library.where(which, self._default, rows.last),
            missed=where(which, rows.missed * 0, rows.missed),
            reward=where(which, self._xp.zeros_like(rows.reward), rows.reward),
            since=where(which, rows.since * 0, rows.since),
            seen=each(lambda ring, array: library.put(ring, place, array), rows.seen, observation),
        )

    def due(self, rows: Rows) -> Array:
        """Return the start of the decision that lands on each row's next frame; -1 where none does."""
        return self._schedule.due(rows.plan, rows.frame, rows.start, rows.clock)

    def shown(self, rows: Rows, due: Array) -> Tree:
        """Return the observation that each row's next decision has read, or would have; `due` as `due` returns it."""
        return self._ago(rows, rows.frame - self._schedule.read(rows.plan, rows.frame, due, rows.clock))

    def _ago(self, rows: Rows, frames: Array) -> Tree:
        """Return the observation of each row so many frames ago, at most the longest delay."""
        n = self._numbers.shape[0]
        places = (rows.clock - self._xp.where(frames < 0, frames * 0, frames)) % self._length * n + self._numbers

        def of(ring: Array) -> Array:
            return self._xp.take(self._xp.reshape(ring, (self._length * n, *ring.shape[2:])), places, axis=0)

        return each(of, rows.seen)

    def step(self, rows: Rows, given: Array, advance: Callable[[Array], Outcome]) -> tuple[Rows, Step]:
        """Play a frame.

        Args:
            rows: Before it.
            given: An action, or a chunk, for each row, [N, ...]; ignored where no decision lands.
            advance: Steps the environments with the actions [N, ...] that they receive.

        Returns:
            The rows after it, and what the step returns.
        """
        where, library = self._xp.where, self._library
        due = self.due(rows)
        lands = due >= 0
        start, effect = where(lands, due, rows.start), where(lands, rows.frame, rows.effect)
        action, acts = library.where(lands, given, rows.action), lands
        if self._chunk is not None:
            entry = rows.frame - start
            acts = (start >= 0) & (entry < self._chunk)
            own = self._entries(action, where(acts, entry, entry * 0))
        else:
            own = action
        last = library.where(acts, own, rows.last)
        sent = last if self._repeats else library.where(acts, own, self._default)
        outcome = advance(sent)

        running = rows.frame >= 0
        frame = rows.frame + 1
        over = (outcome.terminated | outcome.truncated) & running
        reward = rows.reward + where(running, outcome.reward, self._xp.zeros_like(outcome.reward))
        clock = rows.clock + 1
        now = rows._replace(clock=clock)
        seen = each(lambda ring, array: library.put(ring, clock % self._length, array), rows.seen, outcome.observation)
        now = now._replace(seen=seen)
        at_the_end = outcome.observation if outcome.last is None else outcome.last
        final, final_start = at_the_end, frame
        if not library.looks or bool(self._xp.any(over)):
            final_start = self._schedule.following(rows.plan, self._numbers, rows.episode, start, frame, clock)
            is_old, old = final_start < frame, self._ago(now, frame - final_start)
            final = each(lambda one, other: library.where(is_old, one, other), old, at_the_end)

        episode = where(over, rows.episode + 1, rows.episode)
        new_frame = where(over, frame * 0 + self._begins, frame)
        started = (start >= 0) & ~over
        following_rows = now._replace(
            frame=new_frame,
            episode=episode,
            plan=self._schedule.next(rows.plan, self._numbers, new_frame, episode, over, clock),
            start=where(over, start * 0 + NONE, start),
            effect=effect,
            action=action,
            last=library.where(over, self._default, last),
            missed=where(acts | over, rows.missed * 0, rows.missed + 1),
            reward=reward,
        )
        next_due = self.due(following_rows)
        closed = over | (started & (next_due >= 0))
        none, nothing = self._xp.zeros_like(reward), self._numbers * 0
        has_acted = closed & (start >= 0)
        interval, executed = where(has_acted, frame - effect, nothing), None
        acted = where(has_acted, nothing + 1, nothing)
        if self._chunk is not None:
            entries = self._xp.expand_dims(self._xp.arange(self._chunk, device=library.device), axis=0)
            begin, end = (self._xp.expand_dims(each_frame - start, axis=1) for each_frame in (effect, frame))
            executed = (entries >= begin) & (entries < end) & self._xp.expand_dims(has_acted, axis=1)
            acted = self._xp.sum(self._xp.where(executed, entries * 0 + 1, entries * 0), axis=1)
        step = Step(
            observation=self.shown(following_rows, next_due),
            reward=where(closed, reward, none),
            terminated=outcome.terminated & running,
            truncated=outcome.truncated & running,
            final=final,
            applied=lands,
            closed=closed,
            deciding=next_due >= 0,
            start=next_due,
            frame=new_frame,
            delay=where(lands, rows.frame - start, nothing),
            interval=interval,
            default_frames=where(closed, frame - rows.since - acted, nothing),
            final_start=final_start,
            final_frame=frame,
            executed=executed,
        )
        since = where(over, nothing, where(closed, frame, rows.since))
        return following_rows._replace(reward=where(closed, none, reward), since=since), step

    def _entries(self, chunks: Array, entry: Array) -> Array:
        """Return one entry of each row's chunk [N, L, ...]."""
        assert self._chunk is not None
        n, places = self._numbers.shape[0], self._numbers * self._chunk + entry
        return self._xp.take(self._xp.reshape(chunks, (n * self._chunk, *chunks.shape[2:])), places, axis=0)
