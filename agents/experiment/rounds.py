"""The training loop on many environments, round by round (`Share.train`): of one learner, or of several of a machine.

Several learners are a process each (`VectorRunner.learners`). Each has the weights, a share of the environments and
their transitions. An update is made when one is due for every learner: each computes the gradient of its own batch, the
gradients are averaged by `torch.distributed` (gloo), and each steps its own copy of the weights with the same average,
so that the copies stay the same bit for bit. Learners wait for one another at updates alone. A learner whose update is
due does not play until it is made.

So a run follows from its seed and the number of learners. The first learner is the process of the run, which evaluates
and writes checkpoints; the others run its commands::

    first       train            evaluate      train            save
    others      train            (wait)        train            save
                |update|update|                |update|update|
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import torch
import torch.distributed as dist
from torch import Tensor

from async_wrappers.agents.actor import Ended, ShownRows
from async_wrappers.agents.children import become_child, signals_blocked
from async_wrappers.agents.diverged import DivergedError
from async_wrappers.agents.timing import Meters
from async_wrappers.agents.vector_agent import VectorAgent

__all__ = ["COUNTED", "Group", "LearnerFailed", "OtherLearners", "Share", "SoFar", "Trained"]

_PATIENCE = 600.0  # seconds that a learner waits for the others in an update, at most
_SHOW_EVERY = 0.2  # seconds between two looks at the progress
_GRACE = 5.0  # seconds that processes have to end once they are asked to
_REPORT = 30.0  # seconds until the death of a process is reported, which takes a while on a busy machine


class LearnerFailed(RuntimeError):
    """A learner's process has died, or raised an exception; the message is one sentence."""


# Communication of learners.


class Group:
    """One of L learners, as it computes with the others.

    Args:
        number: Which it is; 0 is the first.
        learners: L.
        meeting_place: A file that does not exist yet, through which the processes find one another.
    """

    def __init__(self, number: int, learners: int, meeting_place: str) -> None:
        """Wait until all are there."""
        self.number, self.learners = number, learners
        with _on_loopback():
            dist.init_process_group(
                "gloo",
                init_method=f"file://{meeting_place}",
                rank=number,
                world_size=learners,
                timeout=timedelta(seconds=_PATIENCE),
            )

    def sum(self, *numbers: float) -> list[float]:
        """Return the sums over all learners of the arguments."""
        sums = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(sums)
        return sums.tolist()

    def average(self, gradients: Mapping[str, Tensor], count: Tensor | int) -> Mapping[str, Tensor]:
        """Average the gradients of all learners in place, each weighted by the number of items that its loss averages.

        The result is the gradient of the mean over all items. Every learner gets the same numbers, bit for bit.
        """
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients.values()]) * count
        on_host = torch.cat([flat.cpu(), torch.as_tensor(count, dtype=flat.dtype).cpu().view(1)])
        dist.all_reduce(on_host)
        mean, start = (on_host[:-1] / on_host[-1].clamp(min=1.0)).to(flat.device), 0
        for gradient in gradients.values():
            gradient.copy_(mean[start : start + gradient.numel()].view(gradient.shape))
            start += gradient.numel()
        return gradients

    def close(self) -> None:
        """Leave; the others notice if they wait for this one."""
        with suppress(RuntimeError):
            dist.destroy_process_group()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let gloo, which looks for the machine's name otherwise, talk within the machine alone."""
    name, interface = "GLOO_SOCKET_IFNAME", "lo" if sys.platform.startswith("linux") else "lo0"
    given = os.environ.get(name)
    os.environ.setdefault(name, interface)
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]


# A learner's share of a run.


class Trained(NamedTuple):
    """The result of a learner's share of a training phase, at its end or at a checkpoint during it.

    Attributes:
        over: The episodes that ended, those that were cut left out.
        actions: Actions that took effect.
        cut_frames: Frames of episodes that were cut.
        frames: Of training so far, in all of this learner's environments.
        meters: Counts of the phase.
    """

    over: list[Ended]
    actions: int
    cut_frames: int
    frames: int
    meters: Meters


class Share:
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
        """See the class."""
        self.agent, self._envs, self._seeds, self._group = agent, envs, seeds, group
        self._shown: ShownRows | None = None  # rows that were observed and wait for their actions
        self._running = False
        self._lost = 0  # frames of episodes that ran in environments which are gone, not yet reported
        if group is not None:
            agent.learner.average = group.average

    def begin(self) -> None:
        """Begin an episode in each environment; episodes of earlier environments, which are gone, are cut."""
        if not self._running:
            self._lost += self.agent.cut_running()
            self._envs.begin(self._seeds((self.agent.rows.episode + 1).tolist()))
            self._running = True

    def train(
        self,
        frames: int,
        episodes: int | None,
        cuts: bool,
        show: Callable[[Sequence[Ended], int, Meters], None] | None = None,
        due: Callable[[bool], int] | None = None,
        save: Callable[[int, Trained], None] | None = None,
    ) -> Trained:
        """Play until all learners together have played `frames`, or `episodes` if they are given.

        A checkpoint during the phase is written before an update, where all learners meet and the update before is
        finished anyway. So it does not change the run's results.

        Args:
            frames: As said.
            episodes: As said.
            cuts: Whether all environments are cut at the end.
            show: Called from time to time with the phase's progress.
            due: For the first learner: returns the number of the replay of a checkpoint that is due now, or 0 for none.
                Its argument is whether a checkpoint leaves the run's results unchanged.
            save: Called with that number and this share's results; it may end the phase with an exception.
        """
        agent, envs = self.agent, self._envs
        agent.meters = meters = Meters()
        before, learners = agent.rows.frames_of_all, self._group.learners if self._group else 1
        over: list[Ended] = []
        actions, cut_frames, shown_at = 0, 0, 0.0

        def reached(played: float, ended: float) -> bool:
            return ended >= episodes if episodes else played >= frames

        self.begin()
        while True:
            shown = self._shown
            if shown is None:
                begin = time.perf_counter()
                shown = self._shown = envs.recv()
                agent.times.add("Step", begin)
                over += agent.observe(shown)
                actions += int(shown.realtime["applied"].sum())
            played = agent.rows.frames_of_all - before
            wants = agent.owes_update(len(shown.env_ids))
            number = due(wants or not agent.has_updated) if due is not None else 0
            if wants or (number and self._group is None) or reached(played * learners, len(over) * learners):
                played_by_all, ended_by_all, wanting, number_of_all = self._sum(played, len(over), wants, number)
                if reached(played_by_all, ended_by_all):
                    break
                if number_of_all and save is not None:
                    agent.finish_update()  # the next update would begin with the same call
                    save(int(number_of_all), Trained(over, actions, 0, agent.rows.frames_of_all, meters))
                while wanting == learners:
                    agent.update()
                    wants = agent.owes_update(len(shown.env_ids))
                    (wanting,) = self._sum(wants)
            if show is not None and time.perf_counter() - shown_at > _SHOW_EVERY:
                shown_at = time.perf_counter()
                show(over, played * learners, meters)
            if not wants:
                self._shown = None
                action = agent.decide(shown)
                begin = time.perf_counter()
                envs.send(shown.env_ids, action)
                agent.times.add("Step", begin)
        if cuts:
            ended, applied = self._cut()
            actions += applied
            over += [episode for episode in ended if episode.terminal]
            cut_frames = sum(episode.frames for episode in ended if not episode.terminal)
        agent.finish_update()
        agent.copy_weights()  # evaluation plays the newest
        cut_frames, self._lost = cut_frames + self._lost, 0
        return Trained(over, actions, cut_frames, agent.rows.frames_of_all, meters)

    def _cut(self) -> tuple[list[Ended], int]:
        """Cut all episodes; return those that end, and how many actions took effect in them since the last call."""
        cut = self._envs.cut()
        ended = self.agent.observe(cut)
        self._running, self._shown = False, None
        return ended, int(cut.realtime["applied"].sum())

    def _sum(self, *numbers: float) -> Sequence[float]:
        return self._group.sum(*numbers) if self._group else numbers

    # Commands of the first learner to the others.

    def train_along(
        self,
        frames: int,
        episodes: int | None,
        cuts: bool,
        directory: Path,
        answer: Callable[[Any], None],
    ) -> Trained:
        """Train as a learner other than the first; send this one's result at each checkpoint during the phase."""

        def save(number: int, trained: Trained) -> None:
            answer((self.save(directory, number), trained))

        return self.train(frames, episodes, cuts, save=save)

    def save(self, directory: Path, number: int) -> dict[str, Any]:
        """Write this learner's replay, and return the part of its state that the first learner's lacks."""
        state = self.agent.bundle_and_checkpoint(directory, number)
        del state["learner"]  # the same in all
        return state

    def restore(self, learner: bytes, state: Mapping[str, Any] | None, directory: Path, number: int) -> int:
        """Load the first learner's state, and what `save` returned and wrote if there is a checkpoint.

        Returns:
            How many transitions are lost with damaged files.
        """
        of_learner = cloudpickle.loads(learner)
        if state is None:
            self.agent.learner.load_state_dict(of_learner)
            return 0
        return self.agent.unbundle(directory, number, {**state, "learner": of_learner}, partial=True)


COUNTED = ("acted", "added", "updates", "sampled", "lag")  # in a phase, as `Meters` have them


@dataclass(frozen=True)
class SoFar:
    """A training phase's results so far: plain data for a checkpoint during it.

    Attributes:
        updates_before: Updates before the phase.
        frames_before: Frames of training before it.
        over: The episodes that ended, those that were cut left out.
        actions: That took effect.
        acted: As in `Meters`, like the others.
    """

    updates_before: int
    frames_before: int
    over: Sequence[Ended] = ()
    actions: int = 0
    acted: int = 0
    added: int = 0
    updates: int = 0
    sampled: int = 0
    lag: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "over", [Ended(*each) for each in self.over])

    def plain(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {**vars(self), "over": [[*episode] for episode in self.over]}

    def and_then(self, trained: Sequence[Trained]) -> SoFar:
        """Return these results with those of the learners' shares since."""
        counts = {name: getattr(self, name) for name in COUNTED}
        for learner, each in enumerate(trained):
            for name in COUNTED:
                if name != "updates" or learner == 0:  # all make the same updates
                    counts[name] += getattr(each.meters, name)
        over = [*self.over, *(episode for each in trained for episode in each.over)]
        actions = self.actions + sum(each.actions for each in trained)
        return replace(self, over=over, actions=actions, **counts)


# Processes.


class OtherLearners:
    """The learners but the first, each in a process.

    Args:
        make_share: From a `Group` to a `Share`; it travels by cloudpickle.
        learners: L.
        modules: What is imported first in each process.
        threads: Intra-op threads of PyTorch in each process.

    Attributes:
        group: The first learner's.

    Raises:
        LearnerFailed: One could not be made.
    """

    def __init__(
        self, make_share: Callable[[Group], Any], learners: int, modules: Sequence[str] = (), threads: int = 1
    ) -> None:
        """Start them."""
        self._learners = learners
        self._place = tempfile.mkdtemp(prefix="learners_")
        self._children: list[tuple[Any, connection.Connection]] = []
        payload = cloudpickle.dumps(make_share)
        meeting_place = os.path.join(self._place, "store")
        context = multiprocessing.get_context("spawn")
        try:
            for number in range(1, learners):
                ours, theirs = context.Pipe()
                takes = (payload, number, learners, meeting_place, tuple(modules), threads, theirs)
                process = context.Process(target=_learn, args=takes, name=f"learner {number}", daemon=True)
                with signals_blocked():
                    process.start()
                theirs.close()
                self._children.append((process, ours))
            self.answers()  # each has come as far as the meeting place, or has failed
            self.group = Group(0, learners, meeting_place)
        except BaseException:
            self.close()
            raise

    def tell(self, what: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> None:
        """Let all call a method of their share; `answers` returns the results.

        Args:
            what: The method's name.
            arguments: What it is given.
            each: Further arguments, by learner.
        """
        own = each if each is not None else [()] * len(self._children)
        for (_, pipe), more in zip(self._children, own, strict=True):
            with suppress(OSError):  # it has died, as `answers` will find
                pipe.send((what, *arguments, *more))

    def answers(self) -> list[Any]:
        """Return the results of all, in the order of the learners.

        Raises:
            LearnerFailed: One has died, or raised an exception.
        """
        found = []
        for number, (process, pipe) in enumerate(self._children, 1):
            connection.wait([pipe, process.sentinel])
            answer = _received(pipe)
            if answer is None or answer[0] == "failed":
                raise self._failure(number, answer)
            found.append(answer[1])
        return found

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise another learner's error, where waiting for it fails.

        Raises:
            LearnerFailed: One has died, or raised an exception.
        """
        try:
            yield
        except RuntimeError as error:
            if "gloo" not in str(error):
                raise
            raise (self._blamed() or _silent()) from None

    def _blamed(self) -> Exception | None:
        """Return the error of the learner that failed first; the others fail because they wait for it."""
        failures: dict[int, Any] = {}
        deadline = time.monotonic() + _REPORT  # a process that ends takes a moment to be reported
        while (left := deadline - time.monotonic()) > 0 and all(map(_by_another, failures.values())):
            waiting = [n for n in range(1, self._learners) if n not in failures]
            ends = {end: n for n in waiting for end in (self._children[n - 1][0].sentinel, self._children[n - 1][1])}
            for end in connection.wait(list(ends), left):
                number = ends[end]
                failures.setdefault(number, _received(self._children[number - 1][1]))
        if not failures:
            return None
        number = min(failures, key=lambda number: (_by_another(failures[number]), number))
        return self._failure(number, failures[number])

    def _failure(self, number: int, answer: Any) -> Exception:
        process, _ = self._children[number - 1]
        if answer is not None:
            _, name, sentence, trace = answer
            if name == "DivergedError":
                return DivergedError(f"learner {number} of {self._learners}: {sentence}")
            return LearnerFailed(f"learner {number} of {self._learners} raised {name}: {sentence}\n\n{trace}")
        process.join(_REPORT)
        code = process.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else "has ended"
        return LearnerFailed(
            f"learner {number} of {self._learners} (process {process.pid}) {how}, and the others cannot go on without "
            "it: the same command goes on from the newest checkpoint"
        )

    def close(self) -> None:
        """End the processes."""
        group = getattr(self, "group", None)
        if group is not None:
            group.close()
        for _, pipe in self._children:
            pipe.close()
        for process, _ in self._children:
            process.join(_GRACE)
            if process.is_alive():
                process.kill()
                process.join(_GRACE)
        self._children.clear()
        shutil.rmtree(self._place, ignore_errors=True)


def _silent() -> LearnerFailed:
    return LearnerFailed(
        f"a learner has not come to an update for {_PATIENCE:g} s: the same command goes on from the newest checkpoint"
    )


def _received(pipe: connection.Connection) -> Any:
    """Return a learner's message, or None if it died without one."""
    try:
        return pipe.recv() if pipe.poll(0) else None
    except (EOFError, OSError):
        return None


def _by_another(answer: Any) -> bool:
    """Return whether a learner has failed because another one, which it waited for, is gone."""
    return answer is not None and answer[1] == "RuntimeError" and "gloo" in answer[2]


def _learn(
    payload: bytes,
    number: int,
    learners: int,
    meeting_place: str,
    modules: Sequence[str],
    threads: int,
    first: connection.Connection,
) -> None:
    """Run the commands of the first learner until its pipe closes."""
    become_child()
    try:
        torch.set_num_threads(threads)
        for module in modules:
            import_module(module)
        make_share = cloudpickle.loads(payload)
        first.send(("answer", None))
        with suppress(EOFError):
            share = make_share(Group(number, learners, meeting_place))
            while True:
                what, *arguments = first.recv()
                if what == "train_along":
                    arguments.append(lambda answer: first.send(("answer", answer)))
                first.send(("answer", getattr(share, what)(*arguments)))
    except BaseException as error:
        with suppress(OSError):
            sentence = (str(error).strip() or "no message").splitlines()[0]
            first.send(("failed", type(error).__name__, sentence, traceback.format_exc()))
        os._exit(1)
    os._exit(0)
