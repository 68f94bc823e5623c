"""The training loop on many environments, round by round (`Share.train`): of one learner, or of several.

Several learners are a process each (`VectorRunner.learners`). Each has the weights, a share of the environments and
their transitions. An update is made when one is due for every learner: each computes the gradient of its own batch, the
gradients are averaged by `torch.distributed` (gloo), and each steps its own copy of the weights with the same average,
so that the copies stay the same bit for bit. Learners wait for one another at updates alone. A learner whose update is
due does not play until it is made.

So a run follows from its seed and the number of learners. The first learner is the process of the run, which evaluates
and writes checkpoints; the others run its commands (`learners`)::

    first       train            evaluate      train            save
    others      train            (wait)        train            save
                |update|update|                |update|update|
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from async_wrappers.agents.play.actor import Ended, ShownRows
from async_wrappers.agents.play.many.learners import Group
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import Interruption, Length
from async_wrappers.agents.timing import Meters
from async_wrappers.wrapper_statistics import Statistics, give_statistics, statistics_of_envs

Show = Callable[[Sequence[Ended], int, Meters], None]

_SHOW_EVERY = 0.2  # seconds between two looks at the progress


class Trained(NamedTuple):
    """The result of a learner's share of a training phase, or of a part of one.

    Attributes:
        over: The episodes that ended, those that were cut left out.
        actions: Actions that took effect.
        cut_frames: Frames of episodes that were cut.
        frames: Of training so far, in all of this learner's environments.
        meters: Counts of the phase.
        replaced: Hosts that were lost and replaced, since the process began.
        dropped: Blocks of hosts that were dropped, since then.
        statistics: Those of the wrappers of each environment.
    """

    over: list[Ended]
    actions: int
    cut_frames: int
    frames: int
    meters: Meters
    replaced: int = 0
    dropped: int = 0
    statistics: Sequence[Statistics] = ()


def counted(ended: Sequence[Ended], all_cut: bool = False) -> tuple[list[Ended], int]:
    """Return the episodes that ended by themselves, whose returns count, and the frames of those that were cut.

    Args:
        ended: Episodes that are over.
        all_cut: Whether those that have not terminated were cut; otherwise only those that were lost.
    """
    if not ended:
        return [], 0
    over = [episode for episode in ended if episode.terminal or not (all_cut or episode.lost)]
    return over, sum(episode.frames for episode in ended) - sum(episode.frames for episode in over)


class LearnerShare(ABC):
    """A learner's share of a run, and the commands of the first learner to the others.

    Args:
        agent: Learns.
        group: The learners together; None for one.
    """

    def __init__(self, agent: VectorAgent, group: Group | None = None) -> None:
        self.agent, self._group = agent, group
        if group is not None:
            agent.learner.average, agent.learner.learners = group.average, group.learners

    @abstractmethod
    def begin(self) -> None:
        """Begin an episode in each environment; episodes of earlier environments, which are gone, are cut."""

    @abstractmethod
    def train(
        self,
        length: Length,
        cuts: bool,
        show: Show | None = None,
        due: Callable[[], Interruption] = lambda: Interruption.NOTHING,
    ) -> Trained:
        """Play until all learners together have reached a length, or until the first one says that the phase ends.

        It ends so before an update, where all learners meet and the update before is finished anyway. So a checkpoint
        by the clock does not change the run's results.

        Args:
            length: Of the phase, or what is left of it.
            cuts: Whether all environments are cut at the end; where the run was asked to end they are.
            show: Called from time to time with the phase's progress.
            due: For the first learner: returns why the phase ends now.
        """

    def train_along(self, length: Length, cuts: bool, seconds: float) -> Trained:
        """Train as a learner other than the first, `seconds` after the run's begin."""
        self.agent.set_time(seconds)
        return self.train(length, cuts)

    def tell_lessons(self, what: str, *arguments: Any) -> None:
        getattr(self.agent.lessons, what)(*arguments)

    def save(self, directory: Path, number: int) -> dict[str, Any]:
        """Write this learner's replay, and return the part of its state that the first learner's lacks."""
        state = self.agent.bundle_and_checkpoint(directory, number)
        del state["learner"]  # the same in all
        return state

    def _meet(
        self, decisions: int, length: Length, here: tuple[int, int, bool, Interruption]
    ) -> tuple[Interruption | None, bool]:
        """Meet the other learners, and make the updates that are due for all.

        Args:
            decisions: Those that come next.
            length: Of the phase.
            here: Of this learner: frames and episodes of the phase, whether an update is due, why the phase ends.

        Returns:
            Why the phase ends, which is nothing where its length is reached, and None where it goes on; and whether an
            update is due still.
        """
        played, ended, wanting, due = self._sum(*here)
        wants = here[2]
        if due or length.is_reached(played, ended):
            return Interruption(int(due)), wants
        while wanting == (self._group.learners if self._group else 1):
            self.agent.update()
            wants = self.agent.owes_update(decisions)
            (wanting,) = self._sum(wants)
        return None, wants

    def _sum(self, *numbers: float) -> Sequence[float]:
        return self._group.sum(*numbers) if self._group else numbers

    def restore(self, learner: bytes, state: Mapping[str, Any] | None, directory: Path, number: int) -> str:
        """Load the first learner's state, and what `save` returned and wrote if there is a checkpoint.

        Returns:
            Why the checkpoint cannot be loaded; empty where it was.
        """
        of_learner, begins_with = cloudpickle.loads(learner)
        if state is None:
            self.agent.learner.load_state_dict(of_learner)
            self.agent.rows.statistics = [begins_with] * self.agent.num_envs
            return ""
        try:
            self.agent.unbundle(directory, number, {**state, "learner": of_learner})
        except (OSError, ValueError) as error:
            return str(error)
        return ""


class Share(LearnerShare):
    """Plays a learner's environments in training, round by round.

    Args:
        agent: Acts and learns.
        envs: Its environments (`BatchedEnvs`).
        seeds: From the numbers of the episodes that begin to the seeds with which `envs` begins them.
        group: The learners together; None for one.
    """

    def __init__(
        self, agent: VectorAgent, envs: Any, seeds: Callable[[Sequence[int]], list[int]], group: Group | None = None
    ) -> None:
        super().__init__(agent, group)
        self._envs, self._seeds = envs, seeds
        self._shown: ShownRows | None = None  # rows that were observed and wait for their actions
        self._running = False
        self._lost = 0  # frames of episodes that ran in environments which are gone, not yet reported

    def begin(self) -> None:
        if not self._running:
            self._lost += self.agent.cut_running()
            if any(self.agent.rows.statistics):
                give_statistics(self._envs, self.agent.rows.statistics)
            self._envs.begin(self._seeds((self.agent.rows.episode + 1).tolist()))
            self._running = True

    def train(
        self,
        length: Length,
        cuts: bool,
        show: Show | None = None,
        due: Callable[[], Interruption] = lambda: Interruption.NOTHING,
    ) -> Trained:
        agent, envs = self.agent, self._envs
        agent.meters = meters = Meters()
        before, learners = agent.rows.frames_of_all, self._group.learners if self._group else 1
        over: list[Ended] = []
        actions, cut_frames, shown_at = 0, 0, 0.0
        self.begin()
        while True:
            shown = self._shown
            if shown is None:
                begin = time.perf_counter()
                shown = self._shown = envs.recv()
                agent.times.seconds["Step"] += time.perf_counter() - begin
                ended, cut = counted(agent.observe(shown))
                over += ended
                cut_frames += cut
                actions += int(shown.realtime["applied"].sum())
            played = agent.rows.frames_of_all - before
            waiting = len(shown.env_ids)
            wants = agent.owes_update(waiting)
            why = due()
            if why is Interruption.CHECKPOINT and not (played and (wants or not agent.updates)):
                why = Interruption.NOTHING
            alone = self._group is None
            if wants or (why and alone) or length.is_reached(played * learners, len(over) * learners):
                end, wants = self._meet(waiting, length, (played, len(over), wants, why))
                if end is not None:
                    break
            if show is not None and time.perf_counter() - shown_at > _SHOW_EVERY:
                shown_at = time.perf_counter()
                show(over, played * learners, meters)
            if not wants:
                self._shown = None
                action = agent.decide(shown)
                begin = time.perf_counter()
                envs.send(shown.env_ids, action)
                agent.times.seconds["Step"] += time.perf_counter() - begin
        if end is Interruption.END or (cuts and end is not Interruption.CHECKPOINT):
            last, applied = self._cut()
            actions += applied
            ended, cut = counted(last, all_cut=True)
            over += ended
            cut_frames += cut
        agent.finish_update()
        if end is not Interruption.CHECKPOINT:
            agent.copy_weights()  # evaluation plays the newest
        cut_frames, self._lost = cut_frames + self._lost, 0
        known = agent.rows.statistics = statistics_of_envs(envs)
        return Trained(over, actions, cut_frames, agent.rows.frames_of_all, meters, statistics=known)

    def _cut(self) -> tuple[list[Ended], int]:
        """Cut all episodes; return those that end, and how many actions took effect in them since the last call."""
        cut = self._envs.cut()
        ended = self.agent.observe(cut)
        self._running, self._shown = False, None
        return ended, int(cut.realtime["applied"].sum())


COUNTED = ("acted", "added", "updates", "sampled", "lag")  # in a phase, as `Meters` have them
