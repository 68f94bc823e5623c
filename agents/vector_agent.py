"""Agents of many environments: one forward pass for all rows that wait, one replay with a lane for each environment.

The order of a round on the rows of R <= N environments::

    observe      close the last decision of each row, and store what is known by now
    update       as many times as R decisions require
    act          on all rows, on the weights that the updates left

which for N = 1 is the order of `turn_based.TurnBasedAgent`. Espeholt et al., "SEED RL: scalable and efficient deep-RL
with accelerated central inference", 2020, act in this way; Horgan et al., "Distributed prioritized experience replay"
(Ape-X), 2018, learn in it, with an epsilon of its own for each environment (`per_actor_epsilon`).

Which episode a decision belongs to, its frame and its random numbers are functions of its own environment's history:
``Decision.frame`` is N times the frames that this environment has played, which is the sum over all environments where
they run in step. So a row's result is independent of the other rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers import checks
from async_wrappers.agents.acting.copies import PolicyCopies
from async_wrappers.agents.acting.decisions import Decisions, Memories, RowsPolicy
from async_wrappers.agents.acting.effect import LANDED
from async_wrappers.agents.learner import Learner
from async_wrappers.agents.making import make_actor_priorities, make_vector_learner
from async_wrappers.agents.replay.n_step import ActorPriorities
from async_wrappers.agents.schema import EFFECT, START, blank_actions, each_array
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import Meters
from async_wrappers.agents.turn_based import LearningAgent

__all__ = ["Ended", "Rows", "ShownRows", "VectorAgent"]

_EVER = 2**62  # a frame


class ShownRows(Protocol):
    """The rows of R of N environments, each of which needs a decision; see `async_wrappers.batched.Shown`."""

    @property
    def env_ids(self) -> npt.NDArray[np.int64]:
        """Each environment's number, ascending, [R]."""

    @property
    def observation(self) -> Any:
        """What the next decision reads, [R, *shape], or a dict or tuple of such arrays.

        In training an agent that needs effects, what `agents.acting.effect.ShowEffect` shows, and so in `final`.
        """

    @property
    def reward(self) -> npt.NDArray[np.float32]:
        """Of the last decision, [R]."""

    @property
    def first(self) -> npt.NDArray[np.bool_]:
        """Whether the observation begins an episode, [R]."""

    @property
    def terminal(self) -> npt.NDArray[np.bool_]:
        """Whether the last decision's episode has terminated, [R]."""

    @property
    def truncated(self) -> npt.NDArray[np.bool_]:
        """Whether it was truncated, or cut, [R]."""

    @property
    def final(self) -> Mapping[int, Any]:
        """The last observation of each episode that has ended, by environment."""

    @property
    def info(self) -> Mapping[int, Mapping[str, Any]]:
        """The last info of each of these episodes, by environment."""

    @property
    def realtime(self) -> Mapping[str, npt.NDArray[Any]]:
        """Arrays [R]: start, frame, interval, applied, unreported_episodes; executed [R, H] where chunks are played.

        Where other actions than the agent's were sent: sent [R, ...], and _sent, whose.
        """


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
        when: When that was, in seconds since 1970.
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


# A block is a mapping of columns [R] as `Replay.extend` takes them, and the frame of its episode on which each
# transition was complete.


@dataclass(frozen=True, eq=False)
class _Block:
    columns: Mapping[str, Any]
    closed: npt.NDArray[np.int64]

    def rows(self, chosen: npt.NDArray[np.bool_]) -> _Block:
        """Return a copy of some rows."""
        kept = set(self.columns["env_ids"][chosen].tolist())
        columns: dict[str, Any] = {}
        for name, column in self.columns.items():
            if name in _BY_ENVIRONMENT:
                columns[name] = {env_id: each for env_id, each in column.items() if env_id in kept}
            else:
                columns[name] = each_array(lambda array: array[chosen], column)
        return _Block(columns, self.closed[chosen])


_BY_ENVIRONMENT = ("final", "final_priority")  # of the rows whose episode ended


def _with_priorities(block: _Block, priorities: ActorPriorities) -> _Block:
    """Return a block with its transitions' first priorities, in place of the values that they are computed from."""
    columns = dict(block.columns)
    extras = dict(columns.pop("extras"))
    columns["priority"], columns["final_priority"] = priorities.enter(
        columns["env_ids"],
        extras.pop("value"),
        extras.pop("max_value"),
        *(columns[name] for name in ("reward", "interval", "terminal", "truncated")),
    )
    return _Block({**columns, "extras": extras} if extras else columns, block.closed)


class Rows:
    """The running episodes of N environments in arrays, and the last decision of each.

    Args:
        spec: The agent's.
        num_envs: N.
        eval_mode: Whether the episodes are those of an evaluation.
        first_env: Number of the first of these environments among those that all learners of a run play.
        learners: How many learners play as many environments as this one.

    Attributes:
        episode: Number of each environment's running episode, -1 before the first, `[N]`.
        frames: Frames of each environment's finished episodes, `[N]`.
        frame: Frames of each running episode, `[N]`.
        training_frames: Frames of training so far, which an evaluation's decisions have as ``Decision.frame``.
    """

    def __init__(self, spec: Spec, num_envs: int, eval_mode: bool, first_env: int = 0, learners: int = 1) -> None:
        """See the class."""
        self._spec, self.num_envs, self._eval_mode = spec, num_envs, eval_mode
        self._first_env, self._num_envs_of_all = first_env, num_envs * learners
        self.episode = np.full(num_envs, -1)
        self.training_frames = 0
        self.frames, self.frame = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        # Of the running episode, or where that is a life, of its game.
        self._score, self._actions = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._game_frames = np.zeros(num_envs, np.int64)  # without those of the running episode
        self._running = np.zeros(num_envs, bool)  # whether an episode has begun, and is neither over nor cut
        self._acted = np.zeros(num_envs, bool)  # whether the running episode has had a decision
        self._stacks = each_array(
            lambda zeros: np.zeros((num_envs, spec.stack_size, *zeros.shape), zeros.dtype), spec.blank()
        )
        self._action: npt.NDArray[Any] | None = None
        self._core: Any = None  # state of a policy with memory for each environment, [N, S]
        self._extras: dict[str, npt.NDArray[Any]] = {}  # of the last decisions
        # Of an agent that needs effects: where the next action of each environment lands, [N, *shape].
        self._effects: Any = None
        if spec.needs_effect and not eval_mode:
            self._effects = each_array(lambda stacks: stacks[:, -1].copy(), self._stacks)

    @property
    def frames_of_all(self) -> int:
        """Frames that all environments have played together."""
        return int(self.frames.sum() + self.frame.sum())

    def close(self, shown: ShownRows) -> _Block | None:
        """Return the transitions that the rows complete; None where they complete none.

        Where the environments are neighbours the arrays are views, valid until `decide`.
        """
        applied = shown.realtime["applied"].astype(bool) & self._acted[shown.env_ids]
        if not applied.any():
            return None
        self._note_sent(shown)
        rows = slice(None) if applied.all() else np.flatnonzero(applied)
        env_ids = shown.env_ids[rows]
        at = _place(env_ids)
        ended = shown.terminal[rows] | shown.truncated[rows]
        assert self._action is not None
        columns: dict[str, Any] = {
            "env_ids": env_ids,
            "observation": self._observation(shown, rows, at, ended),
            "action": self._action[at],
            "reward": shown.reward[rows],
            "interval": shown.realtime["interval"][rows],
            "terminal": shown.terminal[rows],
            "truncated": shown.truncated[rows],
            "final": {env_id: self.final(shown, env_id) for env_id in env_ids[ended].tolist()},
        }
        if self._extras:
            columns["extras"] = {name: values[at] for name, values in self._extras.items()}
        if "executed" in shown.realtime:  # of chunks
            columns["executed"] = shown.realtime["executed"][rows]
        return _Block(columns, shown.realtime["frame"][rows])

    def _observation(self, shown: ShownRows, rows: Any, at: Any, ended: npt.NDArray[np.bool_]) -> Any:
        """Return the stored observations of the decisions that some rows complete."""
        start = each_array(lambda stacks: stacks[at, -1], self._stacks)
        if self._effects is None:
            return start
        landed = each_array(lambda array: array[rows].copy(), self._spec.without_tuples(shown.observation[LANDED]))
        for place in np.flatnonzero(ended).tolist():  # whose row shows the next episode
            last = self._spec.without_tuples(shown.final[int(shown.env_ids[rows][place])][LANDED])
            each_array(lambda array, one, place=place: array.__setitem__(place, one), landed, last)
        return {START: start, EFFECT: landed}

    def final(self, shown: ShownRows, env_id: int) -> Any:
        """Return the stored observation that an episode ends with, to bootstrap on."""
        last = shown.final[env_id]
        if self._effects is None:
            return self._spec.without_tuples(last)
        return {name: self._spec.without_tuples(last[name]) for name in (START, EFFECT)}

    def note(self, shown: ShownRows) -> list[Ended]:
        """Count what the rows show; return the episodes that are over."""
        env_ids, realtime = shown.env_ids, shown.realtime
        self._score[env_ids] += shown.reward
        self._actions[env_ids] += realtime["applied"]
        over = shown.terminal | shown.truncated
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
            actions = int(self._actions[i])
            ended.append(
                Ended(i, score, int(self._game_frames[i]), actions, None if won is None else bool(won), terminal)
            )
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
        self._note_sent(shown)
        env_ids, start = shown.env_ids, shown.realtime["start"]
        at, first = _place(env_ids), env_ids[shown.first]

        def push(stacks: npt.NDArray[Any], observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if stacks.shape[1] > 1:
                stacks[first] = 0
                stacks[at, :-1] = stacks[at, 1:]
            stacks[at, -1] = observation
            now: npt.NDArray[Any] = stacks[at]
            return now

        observation = shown.observation
        if self._effects is not None:
            effects = self._spec.without_tuples(observation[EFFECT])
            each_array(lambda array, some: array.__setitem__(at, some), self._effects, effects)
            observation = observation[START]
        inputs = each_array(push, self._stacks, self._spec.without_tuples(observation))
        frame = np.full(len(start), self.training_frames)
        if not self._eval_mode:
            frame = self._num_envs_of_all * (self.frames[at] + start)
        eval_mode = np.full(len(env_ids), self._eval_mode)
        decisions = Decisions(self.episode[at], start, frame, eval_mode, env_ids + self._first_env)
        output = policy.act(inputs, self._memory(shown, at, policy), decisions)
        if self._action is None:
            self._action = np.zeros((self.num_envs, *output.action.shape[1:]), output.action.dtype)
        self._action[at] = output.action
        for name, values in (output.extras or {}).items():
            if name not in self._extras:
                self._extras[name] = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
            self._extras[name][at] = values
        if self._core is not None:
            self._core[at] = output.state
        self._acted[at] = True
        action: npt.NDArray[Any] = output.action
        return action

    def _note_sent(self, shown: ShownRows) -> None:
        """Put what was really sent in the place of the last actions of rows, for an agent that learns from that."""
        if self._spec.learns_from == "sent" and "sent" in shown.realtime and self._action is not None:
            differs = shown.realtime["_sent"]
            self._action[shown.env_ids[differs]] = shown.realtime["sent"][differs]

    def _memory(self, shown: ShownRows, at: Any, policy: RowsPolicy) -> Any:
        """Return the state argument of a policy with memory; () for one without."""
        if not getattr(policy, "remembers", False):
            return ()
        if self._core is None:
            self._core = policy.initial_state(self.num_envs)  # type: ignore[attr-defined]
        none = blank_actions(self._spec.action_space, len(shown.env_ids))
        action = none if self._action is None else self._action[at]
        return Memories(self._core[at], action, shown.reward.astype(np.float32), shown.first)

    def running(self) -> dict[int, Any]:
        """Return the environments whose episode is under way, with the last observation that was decided on."""
        last = each_array(lambda stacks: stacks[:, -1], self._stacks)
        if self._effects is not None:
            last = {START: last, EFFECT: self._effects}
        return {int(i): each_array(lambda array, i=i: array[i], last) for i in np.flatnonzero(self._running)}

    def state_dict(self) -> dict[str, list[int]]:
        """Return the counts for a resumed run, in which the running episodes are cut.

        Returns:
            "episodes": the number of the next one of each environment, `[N]`, which is that of the running one where it
            has had no decision; "frames": of all, the running ones included; "cut": frames of these alone.
        """
        frame = np.where(self._running, self.frame, 0)
        return {
            "episodes": (self.episode + 1 - (self._running & ~self._acted)).tolist(),
            "frames": (self.frames + frame).tolist(),
            "cut": frame.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Sequence[int]]) -> None:
        """Restore the counts; no episode runs."""
        self.episode, self.frames = np.array(state["episodes"], np.int64) - 1, np.array(state["frames"], np.int64)
        for counts in (self.frame, self._score, self._actions, self._game_frames):
            counts.fill(0)
        self._running.fill(False)
        self._acted.fill(False)


def _place(env_ids: npt.NDArray[np.int64]) -> Any:
    """Return an index for these environments, in ascending order: a slice where they are neighbours, for views."""
    first, last = int(env_ids[0]), int(env_ids[-1])
    return slice(first, last + 1) if last - first == len(env_ids) - 1 else env_ids


class VectorAgent(LearningAgent):
    """Acts on many environments at once, and learns.

    As `TurnBasedAgent` it learns from a transition only when a decision of the same environment starts at or after the
    frame on which the transition was complete.

    Args:
        spec: Makes the policy and the learner; see `Spec.make_vector_learner`.
        num_envs: N.
        replay_ratio: Transitions learnt from per decision made; None for `Spec.num_updates_per_train_step` updates
            every `Spec.update_every` decisions of all environments together.
        act_devices: Devices with a copy of the policy each, among which the rows of a call are shared; None acts on the
            learner's network. rela, Facebook's Ape-X, has them as ``act_device``.
        act_sync_period: Updates after which the copies take over the learner's weights.
        number: Which of the learners of a run this one is; each plays `num_envs` environments.
        learners: How many there are.

    Attributes:
        spec: As given.
        num_envs: As given.
        learner: Whose weights the policy reads.
        policy: What acts.
        rows: The running episodes of training.
        meters: Counts since the last report; its reader replaces it by a new one.
        times: How long the parts of training take.

    Raises:
        ValueError: The agent plays one environment at a time, an argument is out of range, a device is not there,
            `replay_ratio` is given to an agent that learns from each step once, or the agent's learner cannot be one of
            several.
    """

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        replay_ratio: float | None = None,
        act_devices: Sequence[str] | None = None,
        act_sync_period: int = 1,
        number: int = 0,
        learners: int = 1,
    ) -> None:
        """See the class."""
        if replay_ratio is not None and not 0 < replay_ratio < math.inf:
            raise ValueError(f"replay_ratio must be > 0 transitions learnt per transition played, got {replay_ratio}")
        if replay_ratio is not None and spec.learns_once:
            raise ValueError(
                f"VectorRunner.replay_ratio must be None with agent {spec.name!r}, which learns from each step once, "
                f"got {replay_ratio}"
            )
        if replay_ratio is not None and spec.num_updates_per_train_step != 1:
            raise ValueError(
                f"VectorRunner.replay_ratio must be None where num_updates_per_train_step is bound to "
                f"{spec.num_updates_per_train_step}, since either says how many updates are made, got {replay_ratio}"
            )
        super().__init__(spec, make_vector_learner(spec, num_envs, number, learners))
        self.num_envs, self._ratio = num_envs, replay_ratio
        self._number, self._learners = number, learners
        self._copies = _copies(spec, self.learner, num_envs * learners, act_devices, act_sync_period)
        self._sync_period = act_sync_period
        self._begun = self._copied = 0  # updates in this process, and those whose weights the copies have
        if self._copies is not None:
            self.policy = self._copies
        self._act_on(self.learner)
        self._priorities: ActorPriorities | None = make_actor_priorities(spec, num_envs)
        self.rows = Rows(spec, num_envs, False, number * num_envs, learners)
        self.meters = Meters()
        self._closed: list[_Block] = []  # transitions that no decision could know yet
        self._known = np.zeros(num_envs, np.int64)  # frame of each episode up to which transitions are known
        self._decisions = self._settled = 0  # updates due so far that were made or dropped
        self._begun_at = 0  # decisions before the last update

    # A round.

    def observe(self, shown: ShownRows) -> list[Ended]:
        """Learn what became of the last decision of each row; return the episodes that are over."""
        begin = time.perf_counter()
        block, env_ids = self.rows.close(shown), shown.env_ids
        if block is not None and self._priorities is not None:
            block = _with_priorities(block, self._priorities)
        ended = self.rows.note(shown)
        over = shown.terminal | shown.truncated
        # An episode's end is a barrier: nothing of it is in flight any more.
        self._known[env_ids] = np.where(over, _EVER, shown.realtime["start"])
        self._store(block)
        if over.any():
            for i in env_ids[over & (shown.realtime["applied"] == 0)].tolist():
                self.learner.cut(self.rows.final(shown, i), i)
                if self._priorities is not None:
                    self._priorities.forget(i)
            self._known[env_ids[over]] = shown.realtime["start"][over]
        self.times.add("Store", begin)
        frames, updates = self._frames(), self.updates
        return [each._replace(training_frames=frames, updates=updates, when=time.time()) for each in ended]

    def act(self, shown: ShownRows) -> npt.NDArray[Any]:
        """Make the updates that are due, and return an action for each row."""
        while self.owes_update(len(shown.env_ids)):
            self.update()
        return self.decide(shown)

    def owes_update(self, decisions: int) -> bool:
        """Return whether an update is due before this number of further decisions."""
        # The learner of a queue is ready only while a batch waits there.
        owed = self._owed(self._decisions + decisions) > self._settled
        return owed and self.learner.ready and not self._too_early()

    def update(self) -> None:
        """Make an update, or begin one in parallel with the environments."""
        if self._overlap is None:
            self._write_scalars(self.learner.update())
        else:
            self.finish_update()
            self._overlap.start()
        self._settled += 1
        self._begun += 1
        self._begun_at = self._decisions
        self.meters.updates += 1
        self.meters.sampled += self.spec.transitions_per_update // self._learners

    def decide(self, shown: ShownRows) -> npt.NDArray[Any]:
        """Return an action for each row; updates that are due and could not be made are dropped."""
        self._decisions += len(shown.env_ids)
        self._settled = self._owed(self._decisions)
        behind = under_way = int(self._overlap is not None and self._overlap.under_way)
        if self._copies is not None:
            if self._begun - under_way - self._copied >= self._sync_period:
                self.copy_weights()
            behind = self._begun - self._copied
        self.meters.lag += behind * len(shown.env_ids)
        self.meters.acted += len(shown.env_ids)
        begin = time.perf_counter()
        action = self.rows.decide(shown, self.policy)
        self.times.add("Act", begin)
        return action

    @property
    def has_updated(self) -> bool:
        """Whether an update was begun in this process."""
        return self._begun > 0

    def cut_running(self) -> int:
        """Cut the running episodes, whose environments are gone, as a resumed run does; return their frames."""
        running, state = self.rows.running(), self.rows.state_dict()
        if not running:
            return 0
        self.finish_update()
        self._closed = []  # no later decision observes them
        if isinstance(self.learner, Learner):
            self.learner.end_running()
        for env_id, last in running.items():
            if self._priorities is not None:
                self._priorities.forget(env_id)
            if not isinstance(self.learner, Learner):
                self.learner.cut(last, env_id)
        self.rows.load_state_dict(state)
        return sum(state["cut"])

    def copy_weights(self) -> None:
        """Copy the weights of the last complete update to the copies of the policy, if there are any."""
        if self._copies is None:
            return
        under_way = self._overlap is not None and self._overlap.under_way
        self._copied = self._begun - under_way
        self._copies.load_weights((self._overlap or self.learner).weights(), self._copied)

    def _store(self, block: _Block | None) -> None:
        """Let the learner observe the transitions that are known by now, each environment's in their order."""
        if block is not None:
            self._closed.append(block)
        waiting = []
        for each in self._closed:
            known = each.closed <= self._known[each.columns["env_ids"]]
            if known.all():
                self._extend(each)
                continue
            waiting.append(each.rows(~known))
            if known.any():
                self._extend(each.rows(known))
        self._closed = waiting

    def _extend(self, block: _Block) -> None:
        self.learner.extend(block.columns)
        self.meters.added += len(block.closed)

    def _too_early(self) -> bool:
        """Whether to hold back the next batch of a queue, so that parallel updates are spread over time.

        Environments that run in step complete the sequences of several batches in one round. Begun there, each update
        would have to wait for the one before; so the next one begins three quarters of a batch's decisions later, or as
        soon as the queue fills up.
        """
        if self._overlap is None or not self.spec.learns_once:
            return False
        spread = self._decisions - self._begun_at < 0.75 * self.spec.transitions_per_update
        return spread and not getattr(self.learner.replay, "crowded", True)

    def _owed(self, decisions: int) -> int:
        """Return the number of updates due up to a decision: the first on decision 0, as in turn-based play."""
        decisions *= self._learners
        if self._ratio is None:
            return -(-decisions // self.spec.update_every) * self.spec.num_updates_per_train_step
        return math.ceil(decisions * self._ratio / self.spec.transitions_per_update)

    # For the runner and checkpoints.

    def identity(self) -> dict[str, Any]:
        """Return what two runs must share to continue one another; see `Spec.identity`."""
        several = {"learners": self._learners} if self._learners > 1 else {}
        return {**self.spec.identity(self.learner), "environments": self.num_envs * self._learners, **several}

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state; the replay goes into files of its own in `checkpoint_dir`.

        The running episodes continue here. A run that resumes from the files begins new ones, without the last decision
        of each and the transitions that were not yet stored.
        """
        self.finish_update()
        self.learner.save_replay(_of_replay(checkpoint_dir, self._number), iteration)
        return {
            "learner": self.learner.state_dict(),
            "rows": self.rows.state_dict(),
            "decisions": self._decisions,
            "begun_at": self._begun_at,
            "settled": self._settled,
        }

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any], partial: bool = False) -> int:
        """Restore what `bundle_and_checkpoint` returned and wrote; see `TurnBasedAgent.unbundle`."""
        self.finish_update()
        self.learner.check_state(bundle["learner"])
        for number in range(1, self._learners) if self._number == 0 else ():  # the first looks for those of the others
            self.learner.check_replay(_of_replay(checkpoint_dir, number), iteration)
        lost: int = self.learner.load_replay(_of_replay(checkpoint_dir, self._number), iteration, partial)
        self.learner.load_state_dict(bundle["learner"])
        self.rows.load_state_dict(bundle["rows"])
        self._decisions = bundle["decisions"]
        self._begun_at = bundle.get("begun_at", 0)  # bundles of older versions lack it
        self._settled = bundle.get("settled", self._owed(self._decisions))  # checkpoints of older versions lack it
        self._publish()
        return lost

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        for number in range(self._learners):
            self.learner.forget_replays(_of_replay(checkpoint_dir, number), keep)

    def _publish(self) -> None:
        super()._publish()
        self.copy_weights()

    def _act_on(self, learner: Any) -> None:
        if self._copies is None:
            self.policy = self.spec.make_vector_policy(learner, self.num_envs * self._learners)

    def _frames(self) -> int:
        return self.rows.frames_of_all * self._learners


def _of_replay(checkpoint_dir: Path, number: int) -> Path:
    """Return where learner `number` keeps its replay."""
    return checkpoint_dir / (f"replay_{number}" if number else "replay")


def _copies(
    spec: Spec, learner: Any, num_envs: int, devices: Sequence[str] | None, sync_period: int
) -> PolicyCopies | None:
    """Make the copies of the policy that act on devices; None where none are wanted."""
    checks.whole("act_sync_period", sync_period, 1, unit="updates")
    if devices is None:
        if sync_period != 1:
            raise ValueError(f"act_sync_period must be 1 where act_devices=None, got {sync_period}")
        return None
    if isinstance(devices, str) or not devices or not all(isinstance(device, str) for device in devices):
        raise ValueError(f"act_devices must be devices such as ('cuda:1', 'cuda:2'), or None, got {devices!r}")
    try:
        copies = [spec.make_device_policy(learner, num_envs, device) for device in devices]
    except ValueError as error:
        raise ValueError(f"act_devices={tuple(devices)!r}: {error}") from None
    if any(getattr(policy, "remembers", False) for policy in copies):
        raise ValueError(f"act_devices must be None with agent {spec.name!r}, which acts with memory, got {devices!r}")
    return PolicyCopies(copies)
