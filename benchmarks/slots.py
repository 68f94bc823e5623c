"""What even slots give beside whole ones, where there are fewer workers than an inference has frames; 60 fps.

N workers whose inferences last L frames on average can make min(1, N / L) actions per frame; that is `most`. An action
is in time if it is applied on the frame on which its playout (p99) ends. `gaps` are the least and the most frames
between two effects.

* ``virtual``: the simulated schedule. Hold: with ``slot="even"``, actions in time on >= 0.99 of `most` for constant
  latencies, with all gaps within a frame of even, and on >= 0.93 for log-normal ones (cv 0.2).
* ``live``: real processes on a real clock whose policy sleeps. If latencies are constant, slot and playout follow from
  50 inferences before the run (a model of whole frames would leave no time for the exchange), else from the model (50
  draws know its mean to 3 %). `took` is how long an inference took on average, exchange included: on a busy machine
  sleepers wake late, and workers that never rest then make fewer actions. `of took` is the virtual clock with the times
  that were measured. Hold: within 2 percentage points of the virtual clock, first with the model's times, then with
  those.

``--picture`` draws two workers of 2.3 frames with whole slots above even ones.

    python -m benchmarks.slots [virtual] [live] [--seconds 350] [--live-seconds 20] [--picture PNG]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from itertools import islice, pairwise

import numpy as np

from async_wrappers.analysis.timeline import timeline
from async_wrappers.latency import Constant, Latency, LogNormal, Trace
from async_wrappers.live.report.report import TimingReport
from async_wrappers.schedule.simulated import SimulatedSchedule
from benchmarks.staggered_workers import run

FPS = 60
TEAMS = ((1, 2.3), (2, 2.3), (3, 2.3), (4, 6.0), (7, 7.2))  # workers, frames of a mean inference
CV = 0.2
LEAST = {0.0: 0.99, CV: 0.93}  # of what the workers can make, in time, by the latency's coefficient of variation
Decisions = list[tuple[int, int]]  # (start, effect) of each action applied


def model(frames: float, cv: float) -> Latency:
    return LogNormal(frames / FPS, cv) if cv else Constant(frames / FPS)


def in_time(decisions: Decisions, playout: int, frames: int) -> float:
    """Return the share of frames, from the first on that can have one, whose action is as old as the playout."""
    return sum(effect - start == playout for start, effect in decisions) / (frames - playout)


def gaps(decisions: Decisions) -> tuple[int, int]:
    """Return the least and the most frames between two effects."""
    between = [after - before for (_, before), (_, after) in pairwise(decisions)]
    return min(between), max(between)


def simulate(
    latency: Latency, workers: int, slot: int | str | None, frames: int, playout: int | str = "p99"
) -> tuple[Decisions, int]:
    """Return the decisions of an episode of so many frames, and the playout in frames."""
    schedule = SimulatedSchedule(latency, workers, FPS, playout=playout, slot=slot, seed=0)
    steps = enumerate(islice(schedule.frames(seed=1), frames))
    assert schedule.playout is not None
    return [(start, frame) for frame, (start, _) in steps if start is not None], schedule.playout


def virtual(frames: int) -> None:
    heads = ("workers", "latency, frames", "cv", "most", "whole slots", "`slot=1`", "gaps", '`slot="even"`', "gaps")
    print(f"\n| {' | '.join(heads)} | of most | hold |")
    print("|---" * 11 + "|")
    for cv, least in LEAST.items():
        for workers, length in TEAMS:
            latency, most = model(length, cv), min(1.0, workers / length)
            shares, cells = [], []
            for slot in (None, 1, "even"):
                decisions, playout = simulate(latency, workers, slot, frames)
                shares.append(in_time(decisions, playout, frames))
                fewest, longest = gaps(decisions)
                cells += [f"{shares[-1]:.3f} (delay {playout})", f"{fewest} to {longest}"]
            even = max(1 / most - fewest, longest - 1 / most) < 1
            held = shares[-1] >= least * most and (even or cv > 0)
            cells = [f"{workers}", f"{length}", f"{cv}", f"{most:.3f}", cells[0], *cells[2:]]
            print(f"| {' | '.join(cells)} | {shares[-1] / most:.3f} | {'held' if held else 'MISSED'} |")


def sleeping(frames: float, cv: float) -> Callable[[int], float]:
    """Return the seconds that an inference sleeps, by the number of its frame."""
    sigma = float(np.sqrt(np.log(1 + cv**2)))

    def takes(frame: int) -> float:
        drawn = np.random.default_rng(frame % 2**32).normal(-(sigma**2) / 2, sigma) if cv else 0.0
        return frames / FPS * float(np.exp(drawn))

    return takes


def decisions_of(report: TimingReport) -> Decisions:
    return sorted((span.start, span.effect) for span in report.spans if span.effect is not None)


def times_of(report: TimingReport) -> list[float]:
    """Return how long each inference took in seconds, with the mean time of the exchange."""
    assert report.exchange_us is not None
    spans = sorted(report.spans, key=lambda span: span.began)
    return [(span.ended - span.began) / 1e9 + report.exchange_us["mean"] / 1e6 for span in spans]


def live(seconds: float) -> None:
    heads = ("workers", "latency, frames", "cv", "virtual", "live", "took, frames", "of took", "gaps", "hold")
    print(f"\n| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for cv in LEAST:
        for workers, length in TEAMS:
            latency, frames = model(length, cv), round(seconds * FPS)
            told = latency if cv else None
            report = run(sleeping(length, cv), workers, FPS, seconds, slot="even", latency=told)
            took = times_of(report)
            share = in_time(decisions_of(report), report.playout_frames, report.frames["total"])
            expected = in_time(*simulate(latency, workers, "even", frames), frames)
            of_took = in_time(*simulate(Trace(took), workers, "even", frames, report.playout_frames), frames)
            fewest, longest = gaps(decisions_of(report))
            cells = [
                f"{workers}",
                f"{length}",
                f"{cv}",
                f"{expected:.3f}",
                f"{share:.3f} (delay {report.playout_frames})",
            ]
            cells += [f"{float(np.mean(took)) * FPS:.2f}", f"{of_took:.3f}", f"{fewest} to {longest}"]
            cells += [", ".join("held" if abs(share - each) <= 0.02 else "MISSED" for each in (expected, of_took))]
            print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], choices=[[], "virtual", "live"])
    parser.add_argument("--seconds", type=int, default=350, help="simulated time of each cell")
    parser.add_argument("--live-seconds", type=float, default=20, help="of each live run")
    parser.add_argument("--picture", metavar="PNG", help="where to draw whole and even slots")
    arguments = parser.parse_args()
    parts: Iterable[str] = arguments.parts or ["virtual", "live"]
    if "virtual" in parts:
        virtual(arguments.seconds * FPS)
    if "live" in parts:
        live(arguments.live_seconds)
    if arguments.picture is not None:
        slots = {"slot=None: whole slots of 2 frames": None, "slot='even': slots of 1.15 frames": "even"}
        timeline(
            {title: SimulatedSchedule(2.3 / FPS, 2, FPS, slot=slot) for title, slot in slots.items()},
            24,
            arguments.picture,
        )
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
