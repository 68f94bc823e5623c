"""The progress of a run and its remaining time (a bar on a terminal, lines in a log), and a run in words."""

from __future__ import annotations

import math
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import gymnasium as gym
import torch
from tqdm import tqdm

from async_wrappers.agents.experiment.metrics import FRAME_RATE, ProgressFile
from async_wrappers.agents.play.play import (
    EpisodeResult,
    Length,
    Phase,
    PlayedPhase,
    delay_in_words,
    delay_layer,
    environment_in_words,
    frames_of,
)
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.agents.timing import PARTS, SUMMED_UP, duration
from async_wrappers.frame_rate import frame_rate
from async_wrappers.posix import signals_blocked

# Seconds between two lines of a log.
EVERY = 30.0
# Seconds of play after which a run says what it expects.
AFTER = 3.0


class Expectation:
    """Says once how fast a run plays and how long it will take, and once more when it learns, which takes longer.

    Where the length is counted in episodes it first says the rate alone: how long the run takes is not known before
    an episode ends.

    Args:
        iterations: Of the run, in all.
        learnt: Returns whether an update was made.
        closing: Returns the seconds that the closing table will take; NaN where that is not known yet.
    """

    def __init__(self, iterations: int, learnt: Callable[[], bool], closing: Callable[[], float]) -> None:
        self._iterations, self._learnt, self._closing = iterations, learnt, closing
        self._learns: bool | None = None  # in what is measured now
        self._said, self._since = False, (0.0, 0.0, 0)
        self._said_rate = False  # before any episode ended

    def sentence(self, now: float, work: float, frames: int, by_the_clock: bool) -> str:
        """Return the sentence if it is due; otherwise it is empty.

        Args:
            now: The time in seconds.
            work: Iterations that are done, with the share of the running one.
            frames: Played in this process.
            by_the_clock: Whether the environment waits for nothing, so that learning takes no time from it.
        """
        learns = self._learns or by_the_clock or self._learnt()  # who has learnt needs not be asked again
        if learns != self._learns:
            self._learns, self._said, self._since = learns, False, (now, work, frames)
        began, done, played = self._since
        if self._said or now - began < AFTER or work >= self._iterations:
            return ""
        rate = f", at {rate_in_words((frames - played) / (now - began))} so far" if frames > played else ""
        if work <= done:  # the length is counted in episodes, and none has ended
            if self._said_rate or not rate:
                return ""
            self._said_rate = True
            return f"expected: not known before an episode ends{rate}"
        self._said = True
        left = _left_in_words((now - began) / (work - done) * (self._iterations - work), self._closing())
        slower = "" if learns else ", before the first update; updates take longer"
        return f"expected: {left}{rate}{slower}"


class Progress:
    """Shows a run's progress: a bar where standard error is a terminal, otherwise a line there about every 30 s.

    The work of an iteration is 1. The remaining time is estimated from the time per work so far.

    Args:
        first: Number of the first iteration that is still to do.
        iterations: Iterations in all.
        learnt: Returns whether an update was made.
        closing: Returns the seconds that the closing table after the iterations will take; NaN where that is not known
            yet.
        file: Gets the progress too; None for no file.
        clock: Gives the time in seconds.
        every: Seconds between two lines.
    """

    def __init__(
        self,
        first: int,
        iterations: int,
        *,
        learnt: Callable[[], bool] = lambda: True,
        closing: Callable[[], float] = lambda: 0.0,
        file: ProgressFile | None = None,
        clock: Callable[[], float] = time.monotonic,
        every: float = EVERY,
    ) -> None:
        self._first, self._number, self._iterations = first, first, iterations
        self._clock, self._every = clock, every
        self._began = self._line_at = self._iteration_began = clock()
        self._share, self._frames, self._total = 0.0, 0, 0
        self._before = 0  # frames of earlier iterations
        # What an earlier process has played: work in all, frames of the running iteration. It took no time of this one.
        self._carried, self._carried_frames = 0.0, 0
        self._seconds: float | None = None
        self._iteration_before = (0, 0.0)  # frames and seconds
        self._last = ""
        self._closing, self._file = closing, file
        self._expectation = Expectation(iterations, learnt, closing)
        self._bar: tqdm[None] | None = None
        self._lock = threading.Lock()  # `while_waiting` reports from another thread

    @contextmanager
    def iteration(self, number: int, frames: int) -> Iterator[None]:
        """Show one iteration, which is over at the end of the block.

        Args:
            number: Of the iteration.
            frames: At least so many are played; 0 if its length is counted in episodes.
        """
        self._before += self._frames
        self._iteration_before = self._measured() if self._frames else (0, 0.0)
        self._carried_frames = 0
        self._number, self._total, self._share, self._frames, self._last = number, frames, 0.0, 0, ""
        self._seconds = None
        self._iteration_began = self._line_at = self._clock()
        with tqdm(
            total=frames or None, desc=self._title(), unit="frame", unit_scale=True, dynamic_ncols=True, disable=None
        ) as self._bar:
            yield
        self._bar, self._share = None, 1.0

    def carry(self, share: float, frames: int) -> None:
        """Take in what an earlier process has played of the iteration: it is done, and is no part of this one's rate.

        Args:
            share: Of the iteration's work, in all.
            frames: Of the iteration, in all.
        """
        with self._lock:
            played = frames - self._frames
            self._carried, self._carried_frames = self._carried + share - self._share, self._carried_frames + played
            self._share, self._frames = share, frames
            if self._bar is not None and not self._bar.disable:
                self._bar.initial += played
                self._bar.n += played

    def update(self, share: float, frames: int, last: str = "", seconds: float | None = None) -> None:
        """Show the iteration's progress.

        Args:
            share: Of the iteration's work that is done.
            frames: Of the iteration that are played.
            last: The newest result in words, such as ``"last return 12"``; empty keeps the previous one.
            seconds: How long those frames took; None for as long as the iteration has taken.
        """
        with self._lock:
            self._seconds = seconds
            played, self._share, self._frames, self._last = frames - self._frames, share, frames, last or self._last
            work, of_all = self._number + share, self._before + frames
            if said := self._expectation.sentence(self._clock(), work, of_all, seconds is not None):
                with tqdm.external_write_mode():  # a bar stands below it
                    print(said, flush=True)
            if self._bar is not None and not self._bar.disable:
                self._bar.set_postfix_str(self._joined(self._last, self.left()), refresh=False)
                self._bar.update(played)
            elif self._clock() - self._line_at >= self._every:
                self._line_at = self._clock()
                print(self._line(), file=sys.stderr, flush=True)
            if self._file is not None:
                # An iteration that has just begun has no rate of its own yet.
                (played, seconds_now), (earlier, seconds_then) = self._measured(), self._iteration_before
                rate = (played + earlier) / max(seconds_now + seconds_then, 1e-9)
                self._file.write(self._title(), of_all, rate, self._seconds_left())

    @contextmanager
    def while_waiting(self, progress_after: Callable[[float], tuple[float, int, float | None]]) -> Iterator[None]:
        """Keep showing the iteration's progress during a block that reports nothing for long.

        Args:
            progress_after: Returns the share and the frames of the iteration after so many seconds of the block, and
                how long these frames took; None for as long as the iteration has taken.
        """
        over, began = threading.Event(), self._clock()

        def report() -> None:
            # Another thread may be starting processes with these blocked, and Python would handle them at once.
            with signals_blocked((signal.SIGINT, signal.SIGTERM)):
                while not over.wait(min(1.0, self._every)):
                    share, frames, seconds = progress_after(self._clock() - began)
                    self.update(share, frames, seconds=seconds)

        reporter = threading.Thread(target=report, name="progress", daemon=True)
        reporter.start()
        try:
            yield
        finally:
            over.set()
            reporter.join()

    def done(self) -> str:
        """Return how many iterations are done and how long the others will take, such as ``3 of 10 done``."""
        return self._joined(f"{self._number + 1} of {self._iterations} done", self.left())

    def left(self) -> str:
        """Return how long the run still takes, such as ``about 2 min left``; empty if nothing is known of it."""
        seconds, closing = self._seconds_left(), self._closing()
        if seconds is None or not (seconds or closing > 0):
            return ""
        about, _, but = _left_in_words(seconds, closing).partition(",")
        return f"{about} left" + (f",{but}" if but else "")

    def _seconds_left(self) -> float | None:
        """Return the seconds that the iterations still take; None where nothing is known of them."""
        work = self._number - self._first + self._share - self._carried
        left = max(self._iterations - self._number - self._share, 0.0)
        return (self._clock() - self._began) / work * left if work > 0 else None

    def _rate(self) -> float:
        """Return the frames per second of the running iteration."""
        frames, seconds = self._measured()
        return frames / max(seconds, 1e-9)

    def _measured(self) -> tuple[int, float]:
        """Return the frames that this process has played of the running iteration, and how long they took."""
        seconds = self._clock() - self._iteration_began if self._seconds is None else self._seconds
        return self._frames - self._carried_frames, seconds

    def _title(self) -> str:
        return f"iteration {self._number} ({self._number + 1} of {self._iterations})"

    def _line(self) -> str:
        of = f" of {self._total:,}" if self._total else ""
        rate = rate_in_words(self._rate()) if self._frames > self._carried_frames else ""
        return f"{self._title()}: " + self._joined(f"{self._frames:,}{of} frames", self._last, rate, self.left())

    def _joined(self, *parts: str) -> str:
        return ", ".join(filter(None, parts))


def rate_in_words(rate: float) -> str:
    """Return frames per second in words; a large network plays less than one."""
    return f"{rate:,.0f} frames/s" if rate >= 10 else f"{rate:.2g} frames/s"


def _left_in_words(seconds: float, closing: float) -> str:
    """Return how long a run still takes, the closing table included as far as that is known."""
    if math.isnan(closing):
        return f"about {duration(seconds)}, without the closing table"
    return f"about {duration(seconds + closing)}"


@contextmanager
def closing_table(
    total: int, file: ProgressFile, clock: Callable[[], float] = time.monotonic, every: float = EVERY
) -> Iterator[Callable[[str, int], None]]:
    """Show how far the episodes of a closing table are: a bar on a terminal, else a line about every 30 s.

    Args:
        total: Episodes of all agents.
        file: Gets the progress too.
        clock: Gives the time in seconds.
        every: Seconds between two lines.

    Yields:
        A function that is called with an agent's name after each episode, and how many episodes are done. What was done
        at the first call took no time here.
    """
    began = line_at = clock()
    before = 0
    with tqdm(total=total, desc="closing table", unit="episode", leave=False, disable=None) as bar:

        def show(name: str, done: int) -> None:
            nonlocal line_at, before
            now, before = clock(), before or done
            left = (now - began) / (done - before) * (total - done) if done > before else None
            words = "" if left is None else f"about {duration(left)} left"
            if not bar.disable:
                bar.set_postfix_str(", ".join(filter(None, [name, words])), refresh=False)
                bar.update(done - bar.n)
            elif now - line_at >= every:
                line_at = now
                parts = [f"closing table: {name}", f"{done} of {total} episodes", words]
                print(", ".join(filter(None, parts)), file=sys.stderr, flush=True)
            file.write(f"closing table, {done} of {total} episodes", 0, 0.0, left)

        yield show


class PhasesShown:
    """Shows how far the phases of the running iteration are.

    Args:
        progress: Shows it.

    Attributes:
        progress: As given.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._lengths: Mapping[Phase, Length] = {}
        self._played: dict[Phase, tuple[int, int]] = {}  # episodes and frames of each phase
        self._before: dict[Phase, tuple[int, int]] = {}  # those before the part that is played

    def iteration(self, number: int, lengths: Mapping[Phase, Length]) -> AbstractContextManager[None]:
        """Show one iteration, whose phases have these lengths, in the block."""
        self._lengths, self._played = lengths, dict.fromkeys(lengths, (0, 0))
        self._before = dict(self._played)
        by_frames = all(length.episodes is None for length in lengths.values())
        frames = sum(length.frames for length in lengths.values()) if by_frames else 0
        return self.progress.iteration(number, frames)

    def done(self) -> str:
        """Return how many iterations are done and how long the others will take."""
        return self.progress.done()

    def note(self, phase: Phase, episodes: int, frames: int) -> None:
        """Take in what an earlier process has played of a phase that goes on."""
        self._played[phase] = self._before[phase] = episodes, frames
        self.progress.carry(*share_done(self._lengths, self._played))

    def go_on(self, phase: Phase) -> None:
        """Begin the next part of a phase."""
        self._before[phase] = self._played[phase]

    def tell(self, phase: Phase, episodes: int, frames: int, last: str = "", seconds: float | None = None) -> None:
        """Show that the running part of a phase has had so many episodes and frames."""
        before = self._before[phase]
        self._played[phase] = before[0] + episodes, before[1] + frames
        self.progress.update(*share_done(self._lengths, self._played), last, seconds)

    def share(self, share: float, words: str) -> None:
        """Show that a share of an iteration without frames is done."""
        self.progress.update(share, 0, words)

    def waiting(self, phase: Phase, more: Callable[[float], tuple[int, float | None]]) -> AbstractContextManager[None]:
        """Keep showing the progress of a phase during a block that tells nothing for long."""

        def progress_after(seconds: float) -> tuple[float, int, float | None]:
            frames, took = more(seconds)
            episodes, before = self._played[phase]
            return *share_done(self._lengths, {**self._played, phase: (episodes, before + frames)}), took

        return self.progress.while_waiting(progress_after)


class WallClock:
    """Time that a run has taken, pauses between two sessions left out; a clock that is set changes nothing.

    Attributes:
        before: Seconds of earlier sessions.
    """

    def __init__(self) -> None:
        self.before, self._began = 0.0, time.monotonic()

    def begin(self) -> None:
        """Begin this session."""
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds until now."""
        return self.before + time.monotonic() - self._began


def share_done(lengths: Mapping[Any, Any], played: Mapping[Any, tuple[int, int]]) -> tuple[float, int]:
    """Return the share of an iteration that is done, and its frames.

    Args:
        lengths: How long each phase is (`Length`).
        played: Episodes and frames of each.
    """
    by_frames = all(length.episodes is None for length in lengths.values())
    work = done = 0.0
    for each, length in lengths.items():
        episodes, frames = played[each]
        # Frames and episodes cannot be added: if both occur, each phase is as much work as the other.
        whole = length.frames if by_frames else float(bool(length.frames or length.episodes))
        share = episodes / length.episodes if length.episodes else frames / max(length.frames, 1)
        work, done = work + whole, done + whole * min(share, 1.0)
    return done / max(work, 1), sum(frames for _, frames in played.values())


# A phase's statistics, and a run's, in words.


def run_in_words(settings: Runner, environment: gym.Env[Any, Any], agent: Any) -> dict[str, str]:
    """Return facts of a run: environment, agent, delay, device, what was chosen for it, seed."""
    identity = agent.identity()
    weights = sum(math.prod(shape) for shape in (identity.get("network") or {}).values())
    return {
        "environment": environment_in_words(environment),
        "agent": str(identity["agent"]) + (f", {weights:,} weights" if weights else ""),
        "delay": delay_in_words(environment),
        "device": _device_in_words(agent, settings.threads),
        **_chosen_in_words(agent),
        **_frame_rate_in_words(environment),
        "seed": str(settings.seed),
    }


def _frame_rate_in_words(environment: gym.Env[Any, Any]) -> dict[str, str]:
    """Return the rate of a delay's frames in the environment's own time; empty where that is not known."""
    layer = delay_layer(environment)
    if layer is None:
        return {}
    with suppress(ValueError):
        return {FRAME_RATE: f"{frame_rate(layer.env):g} frames/s"}
    return {}


def _device_in_words(agent: Any, threads: int) -> str:
    """Return what networks compute on, and the threads of this process."""
    compute = compute_of(agent)
    device = torch.device("cpu") if compute is None else compute.torch_device
    card = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return f"{device}{card}, {threads} thread{'s' if threads > 1 else ''}"


def _chosen_in_words(agent: Any) -> dict[str, str]:
    """Return the capacity of a queue, where there is one, and the precision, in words."""
    compute, words = compute_of(agent), dict[str, str]()
    queue = getattr(getattr(getattr(agent, "learner", None), "replay", None), "queue_in_words", None)
    if queue is not None and (room := queue()) is not None:
        words["queue"] = room
    if compute is not None:
        words["precision"] = compute.precision_in_words()
    return words


def lengths_in_words(lengths: Mapping[Phase, Length]) -> str:
    """Return how long phases are, but for those that are left out."""
    kinds = {Phase.TRAIN: "training", Phase.EVAL: "evaluation"}
    return " and ".join(
        f"{length.episodes or length.frames:,} {kinds[phase]} {'episodes' if length.episodes else 'frames'}"
        for phase, length in lengths.items()
        if length.frames or length.episodes
    )


def different_episodes(episodes: Sequence[EpisodeResult]) -> int | None:
    """Return the number of different episodes; None where it is not known, as for live ones."""
    digests = {episode.digest for episode in episodes}
    return None if None in digests else len(digests)


def facts(played: PlayedPhase) -> dict[str, Any]:
    """Return a phase's statistics by name; wins and losses if there were any, the encounter where there is one.

    A ratio is left out where there is nothing to divide by: offline updates are made without frames and actions.
    """
    frames = frames_of(played)
    found: dict[str, Any] = {"actions": played.actions, "updates": played.updates}
    if frames:
        found["actions_per_frame"] = played.actions / frames
    if played.actions:
        found["updates_per_action"] = played.updates / played.actions
    if played.encounter is not None or any(episode.won is not None for episode in played.episodes):
        found["wins"] = sum(episode.won is True for episode in played.episodes)
        found["losses"] = sum(episode.won is False for episode in played.episodes)
    if played.encounter is not None:
        found["encounter"] = played.encounter
    different = different_episodes(played.episodes)
    if different is not None and different < len(played.episodes):
        found["different_episodes"] = different
    return found | dict(played.timing or {})


def statistics_of(phase: Phase, played: PlayedPhase, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a phase's statistics for an iteration's line, and its scalars, under Dopamine's names."""
    name, tag, episodes = phase.name.lower(), phase.name.capitalize(), played.episodes
    scores, rate = [episode.score for episode in episodes], frames_of(played) / seconds
    line: dict[str, Any] = {f"{name}_episode_lengths": [episode.frames for episode in episodes]}
    line[f"{name}_episode_returns"] = scores
    scalars: dict[str, float] = {f"{tag}/NumEpisodes": len(episodes)}
    if scores:  # of many environments none need have ended an episode
        line[f"{name}_average_return"] = scalars[f"{tag}/AverageReturns"] = statistics.fmean(scores)
    line[f"{name}_average_steps_per_second"] = scalars[f"{tag}/AverageStepsPerSecond"] = rate
    return line | {f"{name}_{fact}": value for fact, value in facts(played).items()}, scalars


class TimesOfTraining:
    """The time of each part of training in this process.

    Attributes:
        seconds: Of all training phases.
        frames: Likewise.
        parts: Of each part, by its name.
    """

    def __init__(self) -> None:
        self.seconds, self.frames = 0.0, 0
        self.parts: dict[str, float] = {}

    def of_closing(self, frames: float) -> float:
        """Return the seconds that three agents take for so many frames each, of which one computes its actions.

        It is NaN before the first training phase is over.
        """
        if not self.frames:
            return math.nan
        act, step = (self.parts.get(name, 0.0) / self.frames for name in ("Act", "Step"))
        return frames * (act + 3 * step)

    def add(self, seconds: float, parts: Mapping[str, float], frames: int) -> None:
        """Add a training phase."""
        self.seconds += seconds
        self.frames += frames
        for name, each in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + each

    def table(self, newest: Mapping[str, float]) -> str:
        """Return the parts with their shares, and the values that were reported after the last update."""
        whole = max(self.seconds, 1e-9)
        lines = [
            f"{f'time of {PARTS[name]}':<38}{self.parts[name]:>12,.1f} s{self.parts[name] / whole:>9.1%}"
            for name in PARTS
            if name in self.parts
        ]
        return "\n".join(lines + [f"{SUMMED_UP.get(name, name):<38}{value:>12,.6g}" for name, value in newest.items()])


def closing_line(history: Sequence[Mapping[str, Any]]) -> str:
    """Return a line on the training phases of a run, from the statistics of its iterations."""
    frames = max(_each(history, "frames"), default=sum(map(sum, _each(history, "train_episode_lengths"))))
    played = [line for line in history if line.get("phase") != "offline"]
    actions, updates = sum(_each(played, "train_actions")), sum(_each(played, "train_updates"))
    offline = sum(_each(history, "train_updates")) - updates
    episodes = sum(map(len, _each(history, "train_episode_lengths")))
    parts = [f"training: {episodes} episodes, {frames} frames"]
    if any("train_wins" in line for line in history):
        wins, losses = sum(_each(history, "train_wins")), sum(_each(history, "train_losses"))
        parts.append(f"{wins} wins, {losses} losses")
    if history and "train_encounter" in history[-1]:
        parts.append(f"at encounter {history[-1]['train_encounter']}")
    ratios = []
    if frames:
        ratios.append(f"{actions / frames:.3f} actions per frame")
    if actions:
        ratios.append(_updates_in_words(updates, actions))
    if offline:
        ratios.append(f"{offline:,} offline updates")
    return "; ".join([*parts, *([", ".join(ratios)] if ratios else [])])


def _updates_in_words(updates: int, actions: int) -> str:
    """Return updates per action, or the inverse where one update, as PPO's of a round, follows many actions."""
    if 0 < updates < 0.01 * actions:
        return f"{actions / updates:,.0f} actions per update"
    return f"{updates / actions:.3f} updates per action"


def _each(history: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return a number of each iteration that has it: older ones do not count all that newer ones do."""
    return [line[name] for line in history if name in line]


def iteration_line(line: Mapping[str, Any]) -> str:
    """Summarize an iteration for a person."""
    came_to = f"{line['frames']} training frames"
    if line.get("phase") == "offline":
        came_to = f"{line['train_updates']} offline updates"
    parts = [f"iteration {line['iteration']}: {came_to}"]
    for phase in ("train", "eval"):
        if f"{phase}_average_return" in line:
            number, different = len(line[f"{phase}_episode_returns"]), line.get(f"{phase}_different_episodes")
            of_them = "" if different is None else f" ({different} different)"
            parts.append(
                f"{phase} return {line[f'{phase}_average_return']:.1f} over {number} episodes{of_them}, "
                f"{line[f'{phase}_average_steps_per_second']:.0f} frames/s"
            )
        if f"{phase}_wins" in line:
            parts.append(f"{line[f'{phase}_wins']} wins, {line[f'{phase}_losses']} losses")
    return "; ".join(parts)


def nothing_landed(history: Sequence[Mapping[str, Any]], delay: str) -> str:
    """Return a warning if every episode of a run's first iteration ended before an action landed; else nothing.

    Args:
        history: The statistics of its iterations so far.
        delay: In words.
    """
    lengths, *before = [
        [frames for phase in ("train", "eval") for frames in line.get(f"{phase}_episode_lengths", ())]
        for line in reversed(history)
    ]
    landed = sum(history[-1].get(f"{phase}_actions", 0) for phase in ("train", "eval"))
    if not lengths or landed or any(before):
        return ""
    return (
        f"WARNING: no action of the agent's has landed in {sum(lengths):,} frames: each of {len(lengths):,} episodes "
        f"ended before its first one, the longest after {max(lengths):,} frames (delay: {delay}). Such a run learns "
        "nothing: take a shorter delay, or longer episodes"
    )


def compute_of(agent: Any) -> Any:
    """Return an agent's `Compute`; None where it has none."""
    compute = getattr(getattr(agent, "spec", None), "compute", None)
    return compute if hasattr(compute, "precision_in_words") else None
