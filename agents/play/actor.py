"""Acting on one environment or many: their running episodes, and the transitions that become known.

An `Actor` is the half of `vector_agent.VectorAgent` that plays. It passes transitions on in the order in which an agent
may learn from them. They go to a learner on the spot, or on a host into a block for a learner elsewhere
(`agents.play.hosts`).

Which episode a decision belongs to, its frame and its random numbers are functions of its own environment's history:
``Decision.frame`` is N times the frames that this environment has played, which is the sum over all environments where
they run in step. So a row's result is independent of the other rows. The price: a slower environment is also later in
its epsilon schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.acting.decisions import Decisions, Memories, PolicyOutput, RowsPolicy
from async_wrappers.agents.acting.frames_read import LABELLED, LANDED, TEACHER
from async_wrappers.agents.learning.making import make_actor_priorities
from async_wrappers.agents.play.lessons import Advice
from async_wrappers.agents.replay.n_step import ActorPriorities
from async_wrappers.agents.spaces.schema import EFFECT, START, blank_actions, each_array, rows_of
from async_wrappers.agents.spec import Spec
from async_wrappers.array_libraries import alike, own_array
from async_wrappers.wrapper_statistics import Statistics

_EVER, _NEVER = 2**62, 2**63 - 1  # frames
_ALL = slice(None)


def _as_it_is(observation: Any) -> Any:
    return observation


class ShownRows(NamedTuple):
    """The rows of R of N environments, each of which needs a decision; many give `async_wrappers.batched.Shown`.

    Attributes:
        env_ids: Each environment's number, ascending, [R].
        observation: What the next decision reads, [R, *shape], or a dict or tuple of such arrays, which may be tensors
            on a device. Of an agent that reads other frames too, a dict of parts (`agents.acting.frames_read`), and so
            in `final`.
        reward: Of the last decision, [R].
        first: Whether the observation begins an episode, [R].
        terminal: Whether the last decision's episode has terminated, [R].
        truncated: Whether it was truncated, or cut, [R].
        final: The last observation of each episode that has ended, by environment.
        info: The last info of each of these episodes, by environment.
        realtime: Arrays [R]: start, frame, interval, applied, unreported_episodes; executed [R, H] where chunks are
            played. Where other actions than the agent's were sent: sent [R, ...], and _sent, whose.
    """

    env_ids: npt.NDArray[np.int64]
    observation: Any
    reward: npt.NDArray[Any]
    first: npt.NDArray[np.bool_]
    terminal: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    final: Mapping[int, Any]
    info: Mapping[int, Mapping[str, Any]]
    realtime: Mapping[str, npt.NDArray[Any]]


class Ended(NamedTuple):
    """An episode that is over; where the learner's episodes are lives of a game, the whole game.

    Attributes:
        env_id: The environment's number.
        score: Unclipped return, where the environment reports it in ``info["episode_return"]``; else the sum of
            rewards.
        frames: Frames stepped.
        actions: The agent's actions that took effect.
        won: Whether it was won, where the environment's last ``info`` reports it (``"won"``), else None.
        terminal: Whether it terminated; otherwise it was truncated, or cut.
        training_frames: Frames of training when it was over; with several learners, this one's times their number.
        updates: Updates when it was over.
        when: When that was, in seconds of the run.
        lost: Whether it was cut because its environment was lost with a process or a host.
    """

    env_id: int
    score: float
    frames: int
    actions: int
    won: bool | None
    terminal: bool
    training_frames: int = 0
    updates: int = 0
    when: float = 0.0
    lost: bool = False


class _Closed:
    """Transitions that became complete together, some of which wait until a decision could know them.

    Args:
        columns: As `Replay.extend` takes them, [R].
        closed: The frame of its episode on which each was complete, [R].

    Attributes:
        env_ids: Of each, [R].
        first: The least frame on which one was complete.
        left: How many wait.
    """

    def __init__(self, columns: dict[str, Any], closed: npt.NDArray[np.int64]) -> None:
        self.columns, self.closed, self.left = columns, closed, len(closed)
        self.env_ids, self.first = columns["env_ids"], closed.item(0) if len(closed) == 1 else int(closed.min())

    def take(self, now: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """Return the columns of some that wait no longer, [R]."""
        self.closed = np.where(now, _NEVER, self.closed)
        self.left -= int(np.count_nonzero(now))
        columns: dict[str, Any] = {}
        for name, column in self.columns.items():
            if name in _BY_ENVIRONMENT:
                columns[name] = {i: column[i] for i in self.env_ids[now].tolist() if i in column} if column else column
            else:
                columns[name] = column[now] if type(column) is np.ndarray else rows_of(column, now)
        return columns


_BY_ENVIRONMENT = ("final", "final_priority")  # of the rows whose episode ended


class RunningEpisodes:
    """The running episodes of N environments in arrays, and the last decision of each.

    Args:
        spec: The agent's.
        num_envs: N.
        eval_mode: Whether the episodes are those of an evaluation.
        first_env: Number of the first of these environments among those that all learners of a run play.
        learners: How many learners play as many environments as this one.
        guide: The teacher's part in the training of a student.
        in_turn: Whether this is one environment that is played in turn: observations are then shown as the policy
            takes them, and transitions have their next observation too.

    Attributes:
        episode: Number of each environment's running episode, -1 before the first, `[N]`.
        frames: Frames of each environment's finished episodes, `[N]`.
        frame: Frames of each running episode, `[N]`.
        training_frames: Frames of training so far, which an evaluation's decisions have as ``Decision.frame``.
        statistics: Those of each environment's wrappers, when they were last asked for, `[N]`.
    """

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        eval_mode: bool,
        first_env: int = 0,
        learners: int = 1,
        guide: Any = None,
        in_turn: bool = False,
    ) -> None:
        self._spec, self.num_envs, self._eval_mode, self._guide = spec, num_envs, eval_mode, guide
        self._in_turn, self._read = in_turn, _as_it_is if in_turn else spec.without_tuples
        self._first_env, self._num_envs_of_all = first_env, num_envs * learners
        self.episode = np.full(num_envs, -1)
        self.training_frames = 0
        self.statistics: list[Statistics] = [{}] * num_envs
        self.frames, self.frame = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        # Of the running episode, or where that is a life, of its game.
        self._score, self._actions = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._game_frames = np.zeros(num_envs, np.int64)  # without those of the running episode
        self._running = np.zeros(num_envs, bool)  # whether an episode has begun, and is neither over nor cut
        self._acted = np.zeros(num_envs, bool)  # whether the running episode has had a decision
        self._modes = np.full(num_envs, eval_mode)
        self._number = np.zeros(num_envs, np.int64)  # of the last decision in its episode, where there is a teacher
        # Arrays of what was shown and decided last. They are replaced and never overwritten, so that transitions which
        # wait are views of the old ones.
        self._stacks = each_array(
            lambda zeros: np.zeros((num_envs, spec.stack_size, *zeros.shape), zeros.dtype), spec.blank()
        )
        self._action: npt.NDArray[Any] | None = None
        self._core: Any = None  # state of a policy with memory for each environment, [N, S]
        self._extras: dict[str, npt.NDArray[Any]] = {}  # of the last decisions
        # Of an agent that needs effects: where the next action of each environment lands, [N, *shape].
        self._effects: Any = None
        self._reads_effects = spec.fast_age is not None
        if self._reads_effects or (spec.needs_effect and not eval_mode):
            self._effects = each_array(lambda stacks: stacks[:, -1].copy(), self._stacks)

    @property
    def frames_of_all(self) -> int:
        """Frames that all environments have played together."""
        return int(self.frames.sum() + self.frame.sum())

    def place(self, env_ids: npt.NDArray[np.int64]) -> Any:
        """Return an index for some of the environments, in ascending order: a slice where they are neighbours."""
        first, last = env_ids.item(0), env_ids.item(-1)
        return slice(first, last + 1) if last - first == len(env_ids) - 1 else env_ids

    def close(self, shown: ShownRows) -> dict[str, Any] | None:
        """Return the transitions that the rows complete, as `Replay.extend` takes them; None where they complete none.

        A column "frame" tells on which frame of its episode each was complete.
        """
        rows: Any = _ALL
        realtime, env_ids = shown.realtime, shown.env_ids
        at = _ALL if len(env_ids) == self.num_envs else self.place(env_ids)
        applied = realtime["applied"].astype(bool) & self._acted[at]
        number = np.count_nonzero(applied)
        if not number:
            return None
        if "sent" in realtime:
            self._note_sent(shown)
        if number < len(applied):
            rows = applied.nonzero()[0]
            env_ids = env_ids[rows]
            at = self.place(env_ids)
        ended = shown.terminal[rows] | shown.truncated[rows]
        over = env_ids[ended].tolist() if np.count_nonzero(ended) else ()
        stacks = self._stacks
        observation = stacks[at, -1] if type(stacks) is np.ndarray else rows_of(stacks, (at, -1))
        if self._effects is not None:
            if self._reads_effects:
                effect = rows_of(self._effects, at)
            else:
                effect = self._of_landing(shown, rows, ended, lambda parts: self._read(parts[LANDED]))
            observation = {START: observation, EFFECT: effect}
        assert self._action is not None
        columns: dict[str, Any] = {
            "env_ids": env_ids,
            "observation": observation,
            "action": self._action[at],
            "reward": shown.reward[rows],
            "interval": realtime["interval"][rows],
            "terminal": shown.terminal[rows],
            "truncated": shown.truncated[rows],
            "final": {env_id: self.final(shown, env_id) for env_id in over} if over else {},
            "frame": realtime["frame"][rows],
        }
        extras = {name: values[at] for name, values in self._extras.items()} if self._extras else {}
        if self._guide is not None:
            part = partial(self._guide.part, name=LABELLED)
            extras |= self._guide.on_landing(lambda: self._of_landing(shown, rows, ended, part))
        if extras:
            columns["extras"] = extras
        if "executed" in realtime:  # of chunks
            columns["executed"] = realtime["executed"][rows]
        if self._in_turn:
            now = shown.observation
            following = now[0] if type(now) is np.ndarray else rows_of(self._stored(now), 0)
            columns["next_observation"] = columns["final"][0] if over else following
        return columns

    def _of_landing(self, shown: ShownRows, rows: Any, ended: npt.NDArray[np.bool_], part: Callable[[Any], Any]) -> Any:
        """Return a part of what is shown, of the frames on which the actions of some rows landed."""
        landed = each_array(lambda array: array[rows].copy(), part(shown.observation))
        for place in np.flatnonzero(ended).tolist():  # whose row shows the next episode
            last = part(shown.final[int(shown.env_ids[rows][place])])
            each_array(lambda array, one, place=place: array.__setitem__(place, one), landed, last)
        return landed

    @property
    def _shows_teacher(self) -> bool:
        """Whether a part is what the teacher reads; else it reads what the student reads."""
        return self._guide is not None and (self._in_turn or self._guide.shown)

    def final(self, shown: ShownRows, env_id: int) -> Any:
        """Return the stored observation that an episode ends with, to bootstrap on."""
        return self._stored(shown.final[env_id])

    def _stored(self, shown: Any) -> Any:
        """Return what is stored of a shown observation."""
        if self._effects is not None:
            return {name: self._read(shown[name]) for name in (START, EFFECT)}
        return self._read(shown[START] if self._shows_teacher else shown)

    def note(self, shown: ShownRows) -> list[Ended]:
        """Count what the rows show; return the episodes that are over."""
        env_ids, realtime = shown.env_ids, shown.realtime
        at = _ALL if len(env_ids) == self.num_envs else self.place(env_ids)
        over = shown.terminal | shown.truncated
        self._score[at] += shown.reward
        self._actions[at] += realtime["applied"]
        if not np.count_nonzero(over) and not np.count_nonzero(shown.first):
            self.frame[at] = realtime["frame"]
            self.episode[at] += realtime["unreported_episodes"]
            return []
        ended = []
        for row in np.flatnonzero(over):
            i = int(env_ids[row])
            info, frames = shown.info[i], int(shown.info[i]["realtime"]["frame"])
            self.frames[i] += frames
            self._game_frames[i] += frames
            game_over = bool(info.get("game_over", True))
            if not game_over and shown.first[row]:
                continue  # a life is lost; where no other one begins, the game is cut
            score = float(info.get("episode_return", self._score[i]))
            won, terminal = info.get("won"), bool(shown.terminal[row]) and game_over
            actions, lost = int(self._actions[i]), bool(info.get("lost"))
            won = None if won is None else bool(won)
            ended.append(Ended(i, score, int(self._game_frames[i]), actions, won, terminal, lost=lost))
            self._score[i], self._actions[i], self._game_frames[i] = 0.0, 0, 0
        # An episode that was cut before it had a decision is begun anew.
        self.episode[env_ids[over & ~shown.first & ~self._acted[env_ids]]] -= 1
        self._acted[env_ids[over]] = False
        self._running[env_ids] = shown.first | (self._running[env_ids] & ~over)
        self.frame[env_ids] = np.where(over & ~shown.first, 0, realtime["frame"])  # 0: it was cut, and none begins
        self.episode[env_ids] += shown.first + realtime["unreported_episodes"]
        return ended

    def decide(self, shown: ShownRows, policy: RowsPolicy) -> npt.NDArray[Any]:
        """Return an action for each row."""
        if "sent" in shown.realtime:
            self._note_sent(shown)
        env_ids, start, observation = shown.env_ids, shown.realtime["start"], shown.observation
        whole = len(env_ids) == self.num_envs
        at = _ALL if whole else self.place(env_ids)
        if self._effects is not None:
            write = partial(_with_rows, at)
            self._effects = each_array(write, self._effects, self._read(observation[EFFECT]))
        if type(observation) is not np.ndarray:  # several arrays, or several frames
            shows_frames = self._effects is not None or self._shows_teacher
            observation = self._read(observation[START] if shows_frames else observation)
        if whole and self._spec.stack_size == 1 and type(observation) is np.ndarray:
            self._stacks = np.ascontiguousarray(observation, self._stacks.dtype)[:, None]
        else:
            self._stacks = each_array(partial(_pushed, at, env_ids[shown.first]), self._stacks, observation)
        inputs = self._stacks if whole else rows_of(self._stacks, at)
        if self._reads_effects:
            inputs = {START: inputs, EFFECT: rows_of(self._effects, (at, None))}
        if self._in_turn:  # whose policy may be anybody's
            inputs = inputs.copy() if type(inputs) is np.ndarray else each_array(np.copy, inputs)
        if self._eval_mode:
            frame = np.full(len(start), self.training_frames)
        else:
            frame = self._num_envs_of_all * (self.frames[at] + start)
        modes = self._modes[: len(env_ids)]
        numbers = env_ids + self._first_env if self._first_env else env_ids
        decisions = Decisions(self.episode[at], start, frame, modes, numbers)
        remembered = self._memory(shown, at, policy) if getattr(policy, "remembers", False) else ()
        output = policy.act(inputs, remembered, decisions)
        if self._guide is not None:
            self._number[at] = np.where(shown.first, 0, self._number[at] + 1)
            seen = partial(self._guide.part, shown.observation, TEACHER) if self._shows_teacher else lambda: inputs
            output = _advised(output, self._guide.advise(decisions, self._number[at].tolist(), seen))
        action: npt.NDArray[Any] = output.action
        self._action = np.array(action) if whole else self._written(at, self._action, action)
        for name, values in output.extras.items() if output.extras else ():
            self._extras[name] = np.array(values) if whole else self._written(at, self._extras.get(name), values)
        if self._core is not None:
            self._core[at] = output.state
        self._acted[at] = True
        return action

    def _written(self, at: Any, last: npt.NDArray[Any] | None, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the last values of all environments with those of some of them in their place."""
        last = np.zeros((self.num_envs, *values.shape[1:]), values.dtype) if last is None else last
        written: npt.NDArray[Any] = _with_rows(at, last, values)
        return written

    def _note_sent(self, shown: ShownRows) -> None:
        """Put what was really sent in the place of the last actions of rows, for an agent that learns from that."""
        if self._spec.learns_from == "sent" and self._action is not None:
            differs = shown.realtime["_sent"]
            self._action[shown.env_ids[differs]] = shown.realtime["sent"][differs]

    def _memory(self, shown: ShownRows, at: Any, policy: Any) -> Memories:
        """Return the state argument of a policy with memory."""
        if self._core is None:
            self._core = policy.initial_state(self.num_envs)
        none = blank_actions(self._spec.action_space, len(shown.env_ids))
        action = none if self._action is None else self._action[at]
        return Memories(self._core[at], action, shown.reward.astype(np.float32), shown.first)

    def running(self) -> dict[int, Any]:
        """Return the environments whose episode is under way, with the last observation that was decided on."""
        last = each_array(lambda stacks: stacks[:, -1], self._stacks)
        if self._effects is not None:
            last = {START: last, EFFECT: self._effects}
        return {int(i): each_array(lambda array, i=i: array[i], last) for i in np.flatnonzero(self._running)}

    def counts(self) -> dict[str, Any]:
        """Return copies of the counts of all environments, and their statistics, for `take_counts`."""
        return {name: getattr(self, name).copy() for name in _COUNTS}

    def take_counts(self, counts: Mapping[str, Any], first: int) -> None:
        """Take over the counts of other rows, those of the environments from number `first` on."""
        for name in _COUNTS:
            getattr(self, name)[first : first + len(counts[name])] = counts[name]

    def end(self, env_ids: npt.NDArray[np.int64]) -> int:
        """Count the running episodes of some environments as cut; return their frames, of lives those of the game."""
        cut = int((self.frame + self._game_frames)[env_ids[self._running[env_ids]]].sum())
        self.episode[env_ids[self._running[env_ids] & ~self._acted[env_ids]]] -= 1  # begun anew
        self.frames[env_ids] += np.where(self._running[env_ids], self.frame[env_ids], 0)
        self.frame[env_ids] = self._game_frames[env_ids] = 0
        self._running[env_ids] = self._acted[env_ids] = False
        return cut

    def state_dict(self) -> dict[str, list[Any]]:
        """Return the counts and statistics for a resumed run, in which the running episodes are cut.

        Returns:
            "episodes": the number of the next one of each environment, `[N]`, which is that of the running one where it
            has had no decision; "frames": of all, the running ones included; "cut": frames of these alone, or of their
            games; "statistics", where wrappers have any.
        """
        frame = np.where(self._running, self.frame, 0)
        return {
            "episodes": (self.episode + 1 - (self._running & ~self._acted)).tolist(),
            "frames": (self.frames + frame).tolist(),
            "cut": np.where(self._running, self.frame + self._game_frames, 0).tolist(),
            **({"statistics": [*self.statistics]} if any(self.statistics) else {}),
        }

    def load_state_dict(self, state: Mapping[str, Sequence[Any]]) -> None:
        """Restore the counts and statistics; no episode runs."""
        self.statistics = [*state.get("statistics", [{}] * self.num_envs)]
        self.episode, self.frames = np.array(state["episodes"], np.int64) - 1, np.array(state["frames"], np.int64)
        for counts in (self.frame, self._score, self._actions, self._game_frames):
            counts.fill(0)
        self._running.fill(False)
        self._acted.fill(False)


def _with_rows(at: Any, array: Any, values: Any) -> Any:
    """Return a copy of an array with other rows at some places, as a tensor where the rows are one."""
    new = own_array(alike(array, values))
    new[at] = alike(values, new)
    return new


def _pushed(at: Any, first: Any, stacks: Any, observation: Any) -> Any:
    """Return stacks [N, k, *shape] with new observations at some places, where `first` begin anew."""
    old = alike(stacks, observation)
    new = own_array(old)
    new[at, :-1] = old[at, 1:]
    new[first, :-1] = 0
    new[at, -1] = alike(observation, new)
    return new


def _advised(output: PolicyOutput, advice: Advice) -> PolicyOutput:
    """Return a policy's output with what a teacher adds: labels, and the actions that it chooses."""
    action = output.action
    if advice.guided is not None and advice.action is not None:
        action = np.where(advice.guided, advice.action, action).astype(action.dtype)
    extras = {**(output.extras or {}), **advice.extras}
    return output._replace(action=action, extras=extras or None)


_COUNTS = ("episode", "frames", "frame", "_game_frames", "_running", "_acted", "statistics")


class Receiver(Protocol):
    """What takes an actor's transitions, in the order in which an agent may learn from them."""

    def extend(self, block: Mapping[str, Any]) -> None:
        """Take transitions of R environments, columns [R] by name as `Replay.extend` takes them, which are views."""

    def cut(self, observation: Any, env_id: int) -> None:
        """Take the last observation of an episode that ended without a further transition."""


class Actor:
    """The half of an agent of many environments that plays.

    Args:
        spec: The agent's.
        num_envs: N.
        receiver: Takes transitions as soon as a decision of their environment could know them.
        first_env: As in `RunningEpisodes`.
        learners: As in `RunningEpisodes`.
        guide: As in `RunningEpisodes`.
        in_turn: As in `RunningEpisodes`.

    Attributes:
        rows: The running episodes.
    """

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        receiver: Receiver,
        first_env: int = 0,
        learners: int = 1,
        guide: Any = None,
        in_turn: bool = False,
    ) -> None:
        self.rows = RunningEpisodes(spec, num_envs, False, first_env, learners, guide, in_turn)
        self._receiver = receiver
        # An agent in turn gives its transitions one by one to a learner, which makes their priorities.
        self._priorities: ActorPriorities | None = None if in_turn else make_actor_priorities(spec, num_envs)
        self._closed: list[_Closed] = []  # transitions that no decision could know yet
        self._known = np.zeros(num_envs, np.int64)  # frame of each episode up to which transitions are known

    def observe(self, shown: ShownRows) -> list[Ended]:
        """Close the last decisions, and pass on what became known; return the episodes that are over."""
        known, env_ids, start = self._known, shown.env_ids, shown.realtime["start"]
        if (columns := self.rows.close(shown)) is not None:
            closed = columns.pop("frame")
            if self._priorities is not None:
                self._enter(self._priorities, columns)
            self._closed.append(_Closed(columns, closed))
        ended = self.rows.note(shown)
        known[env_ids] = start
        over = shown.terminal | shown.truncated
        any_over = np.count_nonzero(over)
        if any_over:  # an episode's end is a barrier: nothing of it is in flight any more
            known[env_ids[over]] = _EVER
        if self._closed:
            self._pass_on(known)
        if any_over:
            for i in env_ids[over & (shown.realtime["applied"] == 0)].tolist():
                self._receiver.cut(self.rows.final(shown, i), i)
                self.forget(i)
            known[env_ids[over]] = start[over]
        return ended

    def _pass_on(self, known: npt.NDArray[np.int64]) -> None:
        """Pass on the transitions that wait no longer, in the order in which they became complete."""
        waiting, newest = [], known.item(0) if len(known) == 1 else int(known.max())
        for block in self._closed:
            if block.first > newest:
                waiting.append(block)
                continue
            now = block.closed <= known[block.env_ids]
            number = np.count_nonzero(now)
            if number == len(now):
                self._receiver.extend(block.columns)
                continue
            if number:
                self._receiver.extend(block.take(now))
            if block.left:
                waiting.append(block)
        self._closed = waiting

    @staticmethod
    def _enter(priorities: ActorPriorities, columns: dict[str, Any]) -> None:
        """Put transitions' first priorities in the place of the values that they are computed from."""
        extras = dict(columns.pop("extras"))
        columns["priority"], columns["final_priority"] = priorities.enter(
            columns["env_ids"],
            extras.pop("value"),
            extras.pop("max_value"),
            *(columns[name] for name in ("reward", "interval", "terminal", "truncated")),
        )
        if extras:
            columns["extras"] = extras

    def forget(self, env_id: int) -> None:
        """Give no priorities to transitions of an episode that was cut."""
        if self._priorities is not None:
            self._priorities.forget(env_id)

    def forget_closed(self) -> None:
        """Drop the transitions that no decision will know any more."""
        self._closed = []
