"""`capacity`: how many realtime environments an accelerator can serve, with every action in time.

An accelerator infers batches: one of b observations takes ``L(b) = a + c b`` seconds. It starts at once on all that
wait (`async_wrappers.schedule.batching`), and an action is due a fixed number of frames, the playout, after its
observation.

Closed form, of one accelerator and latencies without a spread. An environment has f frames a second, every k-th of
which is inferred, so it asks r = f / k times a second; the playout is T seconds, and a share s of actions in time is
enough. It is found from the longest batch L that does:

* An observation must be read before the next one of its environment comes. Where a batch holds all environments, a
  share 1 / (r L) of them is, so ``L <= 1 / (s r)``.
* Its wait and its inference must fit into the playout. Where all environments begin their frames together nobody waits:
  ``L <= T``. Of spread ones the wait is evenly distributed up to L, a share (T - L) / L waits no longer than T - L, so
  ``L <= T / (1 + s)``.

A batch holds all environments if they begin together, or if L is not below 1 / r: ``L = a + c N`` gives
``N = (L - a) / c``. Otherwise it holds those that came during the batch before it: ``L = a + c N r L`` gives
``N = (1 - a / L) / (r c)``.

With a spread of latencies, or with several accelerators, there is no closed form here, and the simulation alone counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from async_wrappers.checks import number, whole
from async_wrappers.extras import extra
from async_wrappers.files import path_of, write_figure, write_text_atomically
from async_wrappers.latency.batches import BatchLatency, LinearBatches, MeasuredBatches
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.served import ServedDecisions, ServedSchedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAYOUTS = (1, 2, 3, 4, 6, 8)  # frames, that are tried unless others are asked for
IN_TIME = 0.995  # the share of actions in time that is enough
_OBSERVATIONS = 1000  # of each environment that a forecast counts, unless that makes more decisions than the next
_DECISIONS = 400_000
_LEAST = 200  # observations of each environment, however many environments there are
_MOST = 200_000  # environments, beyond which no search goes


@dataclass(frozen=True)
class Service:
    """The simulation of a number of environments on the accelerators.

    Attributes:
        environments: How many.
        playout: Frames from an observation to its action.
        delay_ms: The same in milliseconds.
        in_time: Share of the observations to be inferred whose action was ready when it was due.
        fresh: Share of all frames with an action of the policy's; at most 1 / every.
        p99_delay: The delay that 99 % of the actions which landed do not exceed, in frames; None if none landed.
        batch: Observations of a batch, on average.
        busy: Share of the accelerators' time in which they computed.
        cost: Of one environment in an hour, in the unit of the accelerator's price; None if that is not known.
    """

    environments: int
    playout: int
    delay_ms: float
    in_time: float
    fresh: float
    p99_delay: int | None
    batch: float
    busy: float
    cost: float | None


@dataclass(frozen=True)
class Capacity:
    """The result of `capacity`.

    Attributes:
        latency: The model, as text.
        fixed_ms: The latency of a batch, however small, in milliseconds.
        each_ms: Milliseconds that each of its observations adds.
        fps: Frames per second of an environment.
        accelerators: How many compute.
        every: Frames between two observations of an environment that are inferred; with 1 each one is.
        phases: "spread" or "together".
        share: The share of actions in time that was asked for.
        most: By playout: the greatest number of environments that have that share in time in the simulation; a playout
            is missing where not even one has it.
        closed_form: The same by the closed form, in the order of `playouts`; None where there is no closed form.
        playouts: The playouts that were tried, in frames.
        asked: For each playout the service of the number of environments that was asked for; empty without one.
        advice: Sentences.
    """

    latency: str
    fixed_ms: float
    each_ms: float
    fps: float
    accelerators: int
    every: int
    phases: str
    share: float
    playouts: tuple[int, ...]
    most: tuple[Service | None, ...]
    closed_form: tuple[int | None, ...]
    asked: tuple[Service, ...]
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        plain = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}

    def to_json(self, path: str | Path) -> None:
        """Write the result as JSON."""
        write_text_atomically(path_of(path), json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def __str__(self) -> str:
        """Summarize for a person."""
        many = "1 accelerator" if self.accelerators == 1 else f"{self.accelerators} accelerators"
        acting = "every frame" if self.every == 1 else f"every {self.every}th frame"
        lines = [
            f"A batch of b observations takes {self.fixed_ms:.4g} + {self.each_ms:.4g} b ms ({many}).",
            f"Environments of {self.fps:g} frames a second, {acting} inferred, phases {self.phases}.",
            "",
            f"The most environments with {self.share:.1%} of the actions in time:",
            _HEADER,
        ]
        for playout, found, closed in zip(self.playouts, self.most, self.closed_form, strict=True):
            form = "" if closed is None else f"{closed}"
            delay = f"{playout} ({1000 * playout / self.fps:.0f} ms)"
            lines.append(f"{delay:>14}{form:>13}{'none':>13}" if found is None else _line(found, delay, form))
        if self.asked:
            lines += ["", f"{self.asked[0].environments} environments:", _HEADER]
            lines += [_line(found, f"{found.playout} ({found.delay_ms:.0f} ms)", "") for found in self.asked]
        return "\n".join([*lines, "", *self.advice])


_HEADER = "delay, frames  closed form    simulated   in time    fresh   batch    busy   cost an hour"


def _line(found: Service, delay: str, form: str) -> str:
    cost = "" if found.cost is None else f"{found.cost:.4g}"
    return (
        f"{delay:>14}{form:>13}{found.environments:>13}{found.in_time:>10.2%}{found.fresh:>9.3f}{found.batch:>8.1f}"
        f"{found.busy:>8.1%}{cost:>15}"
    )


def capacity(
    latency: BatchLatency,
    fps: Any = 60,
    *,
    environments: int | None = None,
    playouts: int | Iterable[int] = PLAYOUTS,
    accelerators: int = 1,
    every: int = 1,
    phases: str = "spread",
    most: int | None = None,
    price: float | None = None,
    share: float = IN_TIME,
    seed: int = 0,
) -> Capacity:
    """Return how many environments can be served with how long a delay.

    Args:
        latency: How long a batch of b observations takes: a `LinearBatches`, a `MeasuredBatches` or another
            `BatchLatency`; `measure_batches` measures one.
        fps: Frames per second of an environment.
        environments: A number of environments to forecast beside the most that are possible.
        playouts: Frames from an observation to its action: one number, or several to compare.
        accelerators: How many compute, one batch at a time each.
        every: Frames between two observations of an environment that are inferred; with 1 each one is.
        phases: "spread" where the environments' frames begin at different times, "together" where all begin at once.
        most: Greatest number of observations in a batch; None for no limit.
        price: Price of an hour of an accelerator, in any currency; the advice gives the cost of an environment in it.
        share: The share of actions in time that is enough.
        seed: Of the simulated latencies.

    Raises:
        ValueError: An argument out of range.
    """
    if phases not in ("spread", "together"):
        raise ValueError(f'phases must be "spread" or "together", got {phases!r}')
    if price is not None:
        wanted = "a number > 0, the price of an accelerator's hour, or None"
        price = number("price", price, wanted, lambda given: 0 < given < math.inf)
    share = number("share", share, "a share from 0 to 1, such as 0.995", lambda given: 0 < given <= 1)
    given = playouts if isinstance(playouts, Iterable) else (playouts,)
    tried = tuple(whole("playouts", playout, 1, unit="frames") for playout in given)
    if not tried:
        raise ValueError("playouts must be one number of frames or several, got none: leave it out for 1 to 8")
    every = whole("every", every, 1, unit="frames")
    accelerators = whole("accelerators", accelerators, 1)
    most = None if most is None else whole("most", most, 1, or_none=True)
    line = line_of(latency)
    settings: dict[str, Any] = {"accelerators": accelerators, "every": every, "phases": phases, "most": most}
    rate = float(FrameClock(fps).fps)
    found, forms, asked = [], [], []
    for playout in tried:
        forms.append(most_by_closed_form(latency, fps, playout, **settings, share=share))
        best = most_by_simulation(latency, fps, playout, **settings, share=share, seed=seed)
        found.append(None if best is None else _service(best, rate, accelerators, price))
        if environments is not None:
            served = _played(latency, environments, fps, playout, seed=seed, **settings)
            asked.append(_service(served, rate, accelerators, price))
    return Capacity(
        latency=repr(latency),
        fixed_ms=1000 * line.fixed,
        each_ms=1000 * line.each,
        fps=rate,
        accelerators=accelerators,
        every=every,
        phases=phases,
        share=share,
        playouts=tried,
        most=tuple(found),
        closed_form=tuple(forms),
        asked=tuple(asked),
        advice=tuple(_advice(line, rate, found, asked, share, accelerators, every)),
    )


def line_of(latency: BatchLatency) -> LinearBatches:
    """Return the straight line of a model: its own, that fitted to it, or that through its means of 1 and 64."""
    if isinstance(latency, LinearBatches):
        return latency
    if isinstance(latency, MeasuredBatches):
        return latency.fit
    each = max((latency.mean(64) - latency.mean(1)) / 63, 0.0)
    return LinearBatches(max(latency.mean(1) - each, 0.0), each)


def most_by_closed_form(
    latency: BatchLatency,
    fps: Any,
    playout: int,
    *,
    accelerators: int = 1,
    every: int = 1,
    phases: str = "spread",
    most: int | None = None,
    share: float = IN_TIME,
) -> int | None:
    """Return the most environments by the formula at the top of this file.

    None where they do not hold: for several accelerators, a batch that is capped, latencies with a spread, and
    batches whose observations cost nothing.
    """
    line = line_of(latency)
    if accelerators > 1 or most is not None or line.cv or not line.each:
        return None
    frames = float(FrameClock(fps).fps)
    rate, time = frames / every, playout / frames
    longest = min(1 / (share * rate), time if phases == "together" else time / (1 + share))
    if phases == "together" or longest * rate >= 1:
        environments = (longest - line.fixed) / line.each
    else:
        environments = (1 - line.fixed / longest) / (rate * line.each)
    return max(math.floor(environments + 1e-9), 0)


def most_by_simulation(
    latency: BatchLatency,
    fps: Any,
    playout: int,
    *,
    share: float = IN_TIME,
    seed: int = 0,
    **settings: Any,
) -> ServedDecisions | None:
    """Return the simulation of the most environments with that share of actions in time; None if one has less.

    The search goes out from the line's closed form, in steps that double, and then halves what is left: it takes the
    share to fall as environments are added.

    Args:
        latency: How long a batch of b observations takes.
        fps: Frames per second of an environment.
        playout: Frames from an observation to its action.
        share: The share of actions in time that is enough.
        seed: Of the simulated latencies.
        **settings: Others of `ServedSchedule`.
    """

    def served(environments: int) -> ServedDecisions | None:
        found = _played(latency, environments, fps, playout, seed=seed, **settings)
        return found if found.in_time >= share else None

    line = line_of(latency)
    exact = LinearBatches(line.fixed, line.each)
    every, phases = settings.get("every", 1), settings.get("phases", "spread")
    guess = most_by_closed_form(exact, fps, playout, every=every, phases=phases, share=share) or 1
    low, best, high = 0, None, _MOST + 1
    step, at = max(guess // 50, 1), min(max(guess, 1), _MOST)
    while high - low > 1:
        found = served(at)
        low, best, high = (at, found, high) if found is not None else (low, best, at)
        if low and high <= _MOST:
            at = (low + high) // 2
        else:
            at = min(low + step, _MOST) if low else max(high - step, 1)
            step *= 2
        if at in (low, high):
            at = (low + high) // 2
    return best


def _played(
    latency: BatchLatency, environments: int, fps: Any, playout: int, *, every: int = 1, **settings: Any
) -> ServedDecisions:
    """Return the simulation of so many environments, without its first frames."""
    environments = whole("environments", environments, 1, _MOST)
    counted = min(_OBSERVATIONS, max(_LEAST, _DECISIONS // environments)) * every
    schedule = ServedSchedule(latency, environments, fps, playout, every=every, **settings)
    first = 20 * every + playout
    return schedule.play(first + counted + playout, first)


def _service(played: ServedDecisions, fps: float, accelerators: int, price: float | None) -> Service:
    """Return the figures of a simulation."""
    delays = played.delays
    return Service(
        environments=played.environments,
        playout=played.playout,
        delay_ms=1000 * played.playout / fps,
        in_time=played.in_time,
        fresh=played.fresh,
        p99_delay=int(np.quantile(delays, 0.99, method="inverted_cdf")) if len(delays) else None,
        batch=played.mean_batch,
        busy=played.busy,
        cost=None if price is None else price * accelerators / played.environments,
    )


def _advice(
    line: LinearBatches,
    fps: float,
    most: list[Service | None],
    asked: list[Service],
    share: float,
    accelerators: int,
    every: int,
) -> Iterable[str]:
    """Yield sentences on what limits the number of environments."""
    if not any(most):
        yield (
            f"Not one environment has {share:.1%} of its actions in time: a batch of one takes "
            f"{1000 * line.mean(1):.3g} ms, a frame {1000 / fps:.3g} ms. Take a faster policy, a longer playout, or "
            "more frames for each decision."
        )
    if accelerators > 1 or line.cv:
        yield "The closed form is for one accelerator and latencies without a spread: here the simulation alone counts."
    if asked and (enough := next((each for each in asked if each.in_time >= share), None)) is not None:
        yield f"{enough.environments} environments are served with a delay of {enough.playout} frames and no less."
    elif asked:
        need = fps / every * (line.fixed + line.each * asked[0].environments)
        yield (
            f"{asked[0].environments} environments have {share:.1%} of their actions in time with no delay that was "
            f"tried. One batch of all of them takes {need:.2f} of the time between two observations."
        )


def capacity_picture(found: Iterable[Capacity], labels: Iterable[str], path: str | Path | None = None) -> Figure:
    """Draw environments against delay: the simulation as markers, the closed form as a line. Needs matplotlib.

    Args:
        found: Results, one curve each.
        labels: Their names.
        path: Where to save the picture too; the ending names the format.

    Returns:
        The matplotlib figure.
    """
    with extra("a picture", "plot"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for number_, (each, label) in enumerate(zip(found, labels, strict=True)):
        look: dict[str, Any] = {"color": _COLOURS[number_ % len(_COLOURS)]}
        delays = [1000 * playout / each.fps for playout in each.playouts]
        markers = [None if service is None else service.environments for service in each.most]
        points = [(x, y) for x, y in zip(delays, markers, strict=True) if y is not None]
        axes.plot(*zip(*points, strict=True), "o" if number_ % 2 == 0 else "s", label=f"{label}, simulated", **look)
        line = [(x, y) for x, y in zip(delays, each.closed_form, strict=True) if y is not None]
        if line:
            axes.plot(*zip(*line, strict=True), "-", linewidth=1, label=f"{label}, closed form", **look)
    axes.set(xlabel="delay, milliseconds", ylabel="environments", ylim=(0, None), xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize="small")
    if path is not None:
        write_figure(path_of(path), figure)
    return figure


_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # of Okabe and Ito
