"""The training loop on hosts, block by block: in rounds, or free running.

In *rounds* host h plays block b on the weights after its block b - 1, and blocks are learnt in the order of the hosts,
as here with two of them::

    host 0    [block 0]          [block 1]          [block 2]
    host 1    [block 0]                   [block 1]          [block 2]
    learner            [0, 0][0, 1]        [1, 0][1, 1]       [2, 0][2, 1]

So each host plays on weights that lack the newest blocks of the hosts after it, a lag of less than a round (that of
Cleanba: Huang et al. 2023), and a run follows from its seed and its number of hosts, whatever the engine and however
long anything takes. With one host and blocks of one decision it is the run of `rounds.Share`, bit for bit.

*Free running* each host always has two orders, and blocks are learnt as they come.

The learner takes in a block step by step, as if it played: the transitions that became known, then the updates that are
due before the rows' next decisions. Those before the first decisions of a block are made when it is ordered.

Of several learners each has hosts of its own. They meet at updates and at the end of a phase, as in `rounds.Share`: a
learner whose update is due waits, also amid a block, until all have one. If the phase is over then, the rest of the
block is taken in without updates, and those that are due by then are made for all at the end.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from absl import logging

from async_wrappers.agents.play.actor import Ended
from async_wrappers.agents.play.hosts.engine import HostEngine, HostsFailed, Lost
from async_wrappers.agents.play.hosts.played_block import BlockOrder, PlayedBlock
from async_wrappers.agents.play.many.learners import Group
from async_wrappers.agents.play.many.rounds import LearnerShare, Show, Trained, counted
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import Interruption, Length
from async_wrappers.agents.timing import Meters
from async_wrappers.files import naming
from async_wrappers.fleet.engine_fleet import EngineFleet

JOURNAL = "blocks.jsonl"
_SHOW_EVERY = 0.2  # seconds between two looks at the progress
_LOOK = 1.0  # seconds between two looks at whether the run is asked to end
_IN_FLIGHT = 2  # orders of a host that runs freely
_DEATHS = 3  # of a host, one after another without a block between them, that end a run
_DROPPED = 20  # blocks of a host, one after another, that end a run


class BlockLog:
    """A line for each block that a learner took in or dropped, in ``metrics/blocks.jsonl`` of a run.

    Args:
        base_dir: The run's.
        learner: Whose blocks they are; those of learner 1 are in ``metrics/blocks_1.jsonl``, and so on.

    Attributes:
        incarnations: By host, one more than the largest one in all learners' files.
    """

    def __init__(self, base_dir: Path, learner: int = 0) -> None:
        path = base_dir / "metrics" / (f"blocks_{learner}.jsonl" if learner else JOURNAL)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.incarnations: Counter[int] = Counter()
        # With another number of hosts, one that belonged to another learner may be this one's.
        for each in sorted({path, *path.parent.glob("blocks*.jsonl")}):
            text = each.read_bytes() if each.is_file() else b""
            whole = text[: text.rfind(b"\n") + 1]
            if each == path and whole != text:  # the last line was being written when the run was ended
                os.truncate(path, len(whole))
            damaged = 0
            for line in whole.splitlines():
                try:
                    facts = json.loads(line)
                    self.incarnations[facts["host"]] = max(self.incarnations[facts["host"]], facts["incarnation"] + 1)
                except (KeyError, TypeError, ValueError):
                    damaged += 1
            if damaged:
                warnings.warn(
                    f"{damaged} lines of {each} are damaged and left out: a host whose lines they are may number its "
                    "blocks as an earlier incarnation did",
                    RuntimeWarning,
                    stacklevel=2,
                )
        self._path, self._file = path, open(path, "a")  # noqa: SIM115  # closed by `close`

    def note(self, block: PlayedBlock, updates: int, learnt: bool) -> None:
        """Write a block's line."""
        names = ("host", "incarnation", "number", "version", "decisions")
        facts = {name: getattr(block, name) for name in names}
        with naming(self._path):
            self._file.write(json.dumps({**facts, "updates": updates, "learnt": learnt}) + "\n")

    def close(self) -> None:
        """Close the file."""
        with naming(self._path):
            self._file.close()

    def flush(self) -> None:
        """Write out what was noted."""
        with naming(self._path):
            self._file.flush()


class HostRounds(LearnerShare):
    """Learns from what hosts play; in the place of `rounds.Share`.

    Args:
        agent: Learns.
        engine: Runs the hosts.
        hosts: Their numbers among the hosts of all learners.
        journal: Where blocks are noted.
        free: Whether hosts run freely.
        max_version_lag: Updates by which the weights of a block may be behind when it comes; None for no limit.
        timeout: Seconds that a block is waited for; None for no limit.
        group: The learners together; None for one.

    Attributes:
        dropped: Blocks that were dropped.
        timings: Seconds that hosts took, by part.
    """

    def __init__(
        self,
        agent: VectorAgent,
        engine: HostEngine,
        hosts: range,
        journal: BlockLog,
        free: bool = False,
        max_version_lag: int | None = None,
        timeout: float | None = None,
        group: Group | None = None,
    ) -> None:
        super().__init__(agent, group)
        self._engine, self._hosts, self._journal = engine, hosts, journal
        self._free, self._most_behind = free, max_version_lag
        self._share = agent.num_envs // len(hosts)
        incarnations = {host: journal.incarnations[host] for host in hosts}
        self._fleet = EngineFleet(engine, incarnations, _DEATHS, timeout, _given_up)
        self._begun = False
        self._version: int | None = None  # of the weights that were published last
        self._waiting = dict.fromkeys(hosts, 0)  # rows of each host that wait for a decision of its next order
        self._came: dict[int, deque[PlayedBlock]] = {host: deque() for host in hosts}
        self._next_number = dict.fromkeys(hosts, 0)
        self._stale = dict.fromkeys(hosts, 0)  # blocks dropped since the last one with decisions
        self._dropping = dict.fromkeys(hosts, False)  # whether blocks are dropped until new episodes begin
        self._replaced = dict.fromkeys(hosts, False)  # whether an incarnation has not begun its episodes yet
        self._postponed = 0  # decisions that were learnt after the phase was over, whose updates are still to be made
        self._lost_frames = 0  # of episodes that were cut because they were lost, not yet reported
        self.dropped = 0
        self.timings: defaultdict[str, float] = defaultdict(float)

    @property
    def restarts(self) -> int:
        """Hosts that were lost and replaced."""
        return self._fleet.restarts

    def close(self) -> None:
        """End the hosts, and close the journal."""
        self._engine.close()
        self._journal.close()

    def begin(self) -> None:
        """Start the hosts; the episodes of earlier ones, which are gone, are cut."""
        if not self._begun:
            self._begun = True
            self._lost_frames += self.agent.cut_running()
            for host in self._hosts:
                self._start(host)

    def _start(self, host: int) -> None:
        state, first = self.agent.rows.state_dict(), self._first_env(host)
        rows = {name: values[first : first + self._share] for name, values in state.items()}
        self._fleet.start(host, rows)
        self._waiting[host] = self._next_number[host] = 0

    def train(
        self,
        length: Length,
        cuts: bool,
        show: Show | None = None,
        due: Callable[[], Interruption] = lambda: Interruption.NOTHING,
    ) -> Trained:
        """Learn until the hosts have played a length; see `LearnerShare`."""
        self.begin()
        phase = _Phase(self.agent, length, 1 if self._group is None else self._group.learners, show, due)
        self.agent.meters = phase.meters
        if self._free:
            self._run_freely(phase)
        else:
            self._run_in_rounds(phase)
        if phase.end is Interruption.END or (cuts and phase.end is not Interruption.CHECKPOINT):
            self._cut(phase)
        if self._group is not None:
            self._catch_up(self._group)
        self._journal.flush()
        return self._trained(phase)

    def _trained(self, phase: _Phase) -> Trained:
        cut, frames, self._lost_frames = phase.cut_frames + self._lost_frames, self.agent.rows.frames_of_all, 0
        counts = cut, frames, phase.meters, self.restarts, self.dropped, self.agent.rows.statistics
        return Trained(phase.over, phase.actions, *counts)

    def _is_over(self, phase: _Phase) -> bool:
        """Return whether the phase is over; several learners know it only where they meet."""
        if self._group is None and phase.end is None:
            asked = phase.due() is Interruption.END
            if asked or phase.length.is_reached(*phase.played):
                phase.end = Interruption.END if asked else Interruption.NOTHING
        return phase.end is not None

    def _is_late(self, phase: _Phase) -> bool:
        """Return whether the phase ends here for a checkpoint by the clock."""
        if self._group is None and phase.end is None and phase.due() is Interruption.CHECKPOINT:
            phase.end = Interruption.CHECKPOINT
        return phase.end is Interruption.CHECKPOINT

    # In rounds.

    def _run_in_rounds(self, phase: _Phase) -> None:
        alone, first = self._group is None, self._hosts[0]
        over = alone and self._is_over(phase)
        for host in self._hosts:
            if not (over or self._fleet.owed[host] or self._came[host]):
                over = not self._submit(host, phase)
        while not over:
            for host in self._hosts:
                self._take_next(host, phase)
                # Where host 0 is to be ordered again it is known whether there is another round, and not sooner: an
                # order follows each block at once. Several learners stop where they are: if phases ended after whole
                # rounds, two learners with two updates in a round could wait for one another for ever.
                over = self._is_over(phase) if host == first or not alone else over
                if not over:
                    over = not self._submit(host, phase)
                phase.tell()
                if over and not alone:
                    break
            over = over or self._is_late(phase)

    def _take_next(self, host: int, phase: _Phase) -> None:
        """Wait for a host's block of the round, and learn from it."""
        while not self._came[host]:
            for replaced in self._collect():
                self._submit(replaced, phase)  # to begin its episodes
        block = self._came[host].popleft()
        self._learn(block, phase)
        if block.begins and self._replaced[host]:  # the block of the round is still to come
            self._replaced[host] = False
            if self._submit(host, phase):
                self._take_next(host, phase)

    def _cut(self, phase: _Phase) -> None:
        """Cut all episodes; the next orders begin new ones."""
        for host in self._hosts:
            self._order(host, cut=True)
        for host in self._hosts:
            while self._fleet.owed[host] or self._came[host]:
                if self._came[host]:
                    (self._take if self._free else self._learn)(self._came[host].popleft(), phase)
                else:
                    self._collect()
            self._replaced[host] = False

    # Free running.

    def _run_freely(self, phase: _Phase) -> None:
        while not (self._is_over(phase) or self._is_late(phase)):
            for host in self._hosts:
                while self._fleet.owed[host] + len(self._came[host]) < _IN_FLIGHT and self._submit(host, phase):
                    pass
            if not any(self._came.values()):
                self._collect()
            for host in self._hosts:
                if self._came[host] and not self._is_over(phase):
                    self._take(self._came[host].popleft(), phase)
                    phase.tell()

    def _take(self, block: PlayedBlock, phase: _Phase) -> None:
        """Learn from a block, or drop it where its weights are too old, with all that follows in its episodes."""
        host, behind = block.host, self.agent.updates - block.version
        too_old = self._most_behind is not None and behind > self._most_behind and block.decisions > 0
        if block.begins:
            self._dropping[host] = False
        if not (too_old or self._dropping[host]):
            self._learn(block, phase)
            return
        if not self._dropping[host]:
            self._dropping[host] = True
            self.agent.end_running(self._envs_of(host))  # their frames are counted where they end, or are cut
            self._order(host, cut=True)
        self._waiting[host] = 0
        self._note(block, learnt=False)
        ended = self.agent.stamped(block.ended, self.agent.rows.frames_of_all * phase.learners)
        phase.take(ended, int(block.steps[:, 3].sum()), block.cut)
        if block.decisions:
            self.dropped += 1
            self._stale[host] += 1
        if self._stale[host] >= _DROPPED:
            raise HostsFailed(
                f"Hosts.max_version_lag must be larger than {self._most_behind} updates: {_DROPPED} blocks of host "
                f"{host} one after another were dropped, the last one {behind} updates old"
            )

    # Both.

    def _first_env(self, host: int) -> int:
        """Return the number of a host's first environment among this learner's."""
        return (host - self._hosts[0]) * self._share

    def _envs_of(self, host: int) -> npt.NDArray[np.int64]:
        return np.arange(self._first_env(host), self._first_env(host) + self._share)

    def _submit(self, host: int, phase: _Phase) -> bool:
        """Make the updates that are due before a host's next decisions, publish the weights, and order a block.

        Returns:
            Whether it was ordered: where several learners find that the phase is over, it is not.
        """
        if not self._settle(self._waiting[host], phase):
            return False
        self._waiting[host] = 0
        if self._version != self.agent.updates:
            self._version = self.agent.updates
            self._engine.publish(self.agent.learner.weights(), self._version)
        self._order(host)
        return True

    def _order(self, host: int, cut: bool = False) -> None:
        lessons = self.agent.lessons
        self._fleet.submit(host, cut if lessons is None else BlockOrder(cut, lessons.guide.progress()))

    def _settle(self, decisions: int, phase: _Phase) -> bool:
        """Make the updates that are due before a number of decisions, and count these.

        Returns:
            Whether that was done: where several learners find that the phase is over, it is not.
        """
        if not decisions:
            return True
        if self._group is None:
            while self.agent.owes_update(decisions):
                self.agent.update()
        elif phase.end is not None or not self._meet_others(decisions, phase):
            return False
        self.agent.count(decisions, 0)
        return True

    def _meet_others(self, decisions: int, phase: _Phase) -> bool:
        """Make the updates that are due for all learners; return whether the phase goes on."""
        agent, learners = self.agent, phase.learners
        while True:
            wants = agent.owes_update(decisions)
            played, ended = phase.played
            if not (wants or phase.length.is_reached(played * learners, ended * learners)):
                return True
            begin = time.monotonic()
            phase.end, wants = self._meet(decisions, phase.length, (played, ended, wants, phase.due()))
            if phase.end is not None:
                return False
            self._fleet.postpone(time.monotonic() - begin)  # meanwhile nobody has listened to the hosts
            if not wants:
                return True

    def _catch_up(self, group: Group) -> None:
        """Make the updates that are due for all since the phase was over; drop the others."""
        while True:
            (wanting,) = group.sum(self.agent.owes_update(self._postponed))
            if wanting < group.learners:
                break
            self.agent.update()
        self.agent.count(self._postponed, 0)
        self._postponed = 0

    def _learn(self, block: PlayedBlock, phase: _Phase) -> None:
        """Take in a block's steps, with the updates between them."""
        agent, host = self.agent, block.host
        played = agent.rows.frames + agent.rows.frame
        elsewhere = agent.rows.frames_of_all - int(played[self._envs_of(host)].sum())
        phase.meters.lag += (agent.updates - block.version) * block.decisions
        steps, waiting = block.pass_to(agent), 0
        for _ in range(len(block.steps)):
            if not self._settle(waiting, phase):
                self._postponed += waiting
            begin = time.perf_counter()
            step, ended = next(steps)
            agent.times.add("Store", begin)
            frames = (elsewhere + step.frames) * phase.learners
            phase.take(agent.stamped(ended, frames), step.applied, block.cut)
            waiting = step.waiting
        self._waiting[host] = waiting  # the updates before these decisions are made when they are ordered
        self._note(block, learnt=True)
        if block.decisions:
            self._stale[host] = 0
            self._fleet.works(host)

    def _note(self, block: PlayedBlock, learnt: bool) -> None:
        """Count a block, and take over the counts of its rows."""
        host = block.host
        expected = host, self._fleet.incarnation[host], self._next_number[host]
        if block.key != expected:
            raise HostsFailed(f"block {block.key} of (host, incarnation, number) came in the place of {expected}")
        self._next_number[host] += 1
        self._journal.note(block, self.agent.updates, learnt)
        self.agent.rows.take_counts(block.rows, self._first_env(host))
        for name, seconds in block.timings.items():
            self.timings[name] += seconds

    def _collect(self) -> list[int]:
        """Wait a while for blocks, and replace the hosts that are lost; return these."""
        begin, replaced = time.perf_counter(), []
        for each in self._fleet.collect(_LOOK):
            if isinstance(each, Lost):
                self._replace(each)
                replaced.append(each.host)
            else:
                self._came[each.host].append(each)
        self.agent.times.add("Step", begin)
        return replaced

    def _replace(self, lost: Lost) -> None:
        """Start another incarnation of a host that has died; its open episodes are cut."""
        host = lost.host
        logging.warning("host %d %s: another one takes its place, and its running episodes are cut", host, lost.why)
        self._came[host].clear()
        self._dropping[host], self._replaced[host] = False, True
        self._lost_frames += self.agent.end_running(self._envs_of(host))
        self._start(host)


def _given_up(lost: Lost) -> HostsFailed:
    return HostsFailed(
        f"host {lost.host} {lost.why}, {_DEATHS} times without a block between: look for the reason there (memory, "
        "most often), and continue with the same --base_dir"
    )


class _Phase:
    """A training phase's results so far, and where it ends.

    Args:
        agent: Learns.
        length: As in `LearnerShare.train`.
        learners: How many play it together.
        show: As in `LearnerShare.train`.
        due: As in `LearnerShare.train`.

    Attributes:
        end: As `LearnerShare._meet` returns it.
    """

    def __init__(
        self, agent: VectorAgent, length: Length, learners: int, show: Show | None, due: Callable[[], Interruption]
    ) -> None:
        self._agent, self.length, self.learners, self.show, self._due = agent, length, learners, show, due
        self._before, self._shown_at = agent.rows.frames_of_all, 0.0
        self.end: Interruption | None = None
        self.over: list[Ended] = []
        self.actions = self.cut_frames = 0
        self.meters = Meters()

    @property
    def played(self) -> tuple[int, int]:
        """The frames that this learner's hosts have played, and the episodes."""
        return self._agent.rows.frames_of_all - self._before, len(self.over)

    def due(self) -> Interruption:
        """Return why the phase ends now; by the clock only once something was played."""
        why = self._due()
        return Interruption.NOTHING if why is Interruption.CHECKPOINT and not self.played[0] else why

    def take(self, ended: Sequence[Ended], applied: int, cut: bool) -> None:
        """Count episodes that are over; of those that are cut, the ones alone that had ended by themselves."""
        self.actions += applied
        over, cut_frames = counted(ended, cut)
        self.over += over
        self.cut_frames += cut_frames

    def tell(self) -> None:
        """Show the progress from time to time."""
        if self.show is not None and time.perf_counter() - self._shown_at > _SHOW_EVERY:
            self._shown_at = time.perf_counter()
            self.show(self.over, self.played[0] * self.learners, self.meters)
