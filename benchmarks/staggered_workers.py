"""Real workers on a real clock: how evenly they start and arrive, and what share of the frames they keep fresh.

Inference is simulated: a sleep to an absolute end, so that any number of workers fits on two cores.

* ``grid``: 100 ms of inference, N = 1 to 32, fps = 10 N, N + 1 workers: one start on every frame. The peer, run beside
  it, is N processes that each sleep to deadlines of their own. Hold: p99 deviation of the start intervals at most
  0.5 ms or three times the peer's; at least 99.9 % of the slots taken; nothing lost.
* ``spike``: the same with one inference of 300 ms: how long until starts are even again (hold: one cycle).
* ``live``: 60 frames a second, a constant latency of 100 ms with 8 workers (hold: every frame fresh once the first
  action has landed) and a log-normal one of 120 ms, cv 0.2, with 10 (hold: 99 %, within 2 points of the virtual clock);
  three times as long.
* ``table``: N workers at 59.7275 frames a second, as the published runner was measured.
* ``slots``: even slots of fewer workers than an inference has frames, as in `benchmarks.schedules`; twice as long. If
  latencies are constant, slot and playout follow from 50 inferences before the run (a model of whole frames would leave
  no time for the exchange), else from the model (50 draws know its mean to 3 %). `took` is how long an inference took
  on average, exchange included: on a busy machine sleepers wake late, and workers that never rest then make fewer
  actions. `of took` is the virtual clock with the times that were measured. Hold: within 2 percentage points of the
  virtual clock, first with the model's times, then with those.

    python -m benchmarks.staggered_workers [grid] [spike] [live] [table] [slots] [--seconds 10] [--picture PNG]
"""

from __future__ import annotations

import multiprocessing
import os
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import AsyncRunner
from async_wrappers.latency import LogNormal, Trace
from async_wrappers.live.report.report import TimingReport
from benchmarks.measuring import head, held, quietly, row, run_parts
from benchmarks.schedules import FPS, LEAST, TEAMS, decisions_of, gaps, in_time, model

SIZES = (1, 2, 4, 8, 16, 32)


class Screens(gym.Env[Any, Any]):
    """Shows an 84 x 84 image that tells its frame, for ever; a step takes `cost` seconds."""

    observation_space = gym.spaces.Box(0, 255, (84, 84, 1), np.uint8)
    action_space = gym.spaces.Discrete(6)

    def __init__(self, cost: float = 0.0) -> None:
        self._cost = cost

    def get_action_meanings(self) -> list[str]:
        """Return the actions' names."""
        return ["NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show frame 0."""
        self._frame = 0
        return np.zeros((84, 84, 1), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show the next frame."""
        self._frame += 1
        if self._cost:
            time.sleep(self._cost)
        return np.full((84, 84, 1), self._frame % 256, np.uint8), 1.0, False, False, {}


class Sleeper:
    """A policy whose inference takes what `takes` says for the number of its frame, to the absolute end.

    Warm-up inferences are all of frame 0: they are told numbers of their own, other ones in each worker.
    """

    def __init__(self, takes: Callable[[int], float]) -> None:
        self._takes = takes
        self._warm_ups = 0

    def act(self, observation: Any, decision: Any) -> int:
        """Sleep, and return an action."""
        self._warm_ups += decision.frame == 0
        end = time.monotonic() + self._takes(decision.frame or -(os.getpid() + self._warm_ups * 2**20))
        while (rest := end - time.monotonic()) > 0:
            time.sleep(rest)
        return 1 + decision.start % 5


def sleeping(mean: float, cv: float = 0.0) -> Callable[[int], float]:
    """Return the seconds that an inference sleeps, which depend on the number of its frame alone."""
    sigma = float(np.sqrt(np.log(1 + cv**2)))

    def takes(frame: int) -> float:
        drawn = np.random.default_rng(frame % 2**32).normal(-(sigma**2) / 2, sigma) if cv else 0.0
        return mean * float(np.exp(drawn))

    return takes


CONSTANT, LOG_NORMAL = sleeping(0.1), sleeping(0.120, 0.2)


def run(
    takes: Callable[[int], float], workers: int, fps: Any, seconds: float, cost: float = 0.0, **arguments: Any
) -> TimingReport:
    """Play for a while, with environment steps of `cost` seconds."""
    with quietly():
        runner = AsyncRunner(lambda: Screens(cost), lambda: Sleeper(takes), workers, fps, **arguments)
    return runner.run(seconds=seconds)


def deviations(times: list[int], interval: float) -> tuple[float, float]:
    """Return p50 and p99 of how much the intervals between times differ from what they should be, in milliseconds."""
    off = np.abs(np.diff(np.sort(np.asarray(times, np.float64))) - interval) / 1e6
    return float(np.percentile(off, 50)), float(np.percentile(off, 99))


def _grid_sleeper(number: int, of: int, begin: float, interval: float, count: int, times: Any) -> None:
    for k in range(number, count, of):
        while (rest := begin + k * interval - time.monotonic()) > 0:
            time.sleep(rest)
        times[k] = time.monotonic_ns()


def sleep_grid(processes: int, interval: float, seconds: float) -> tuple[float, float]:
    """Return the deviations of processes that sleep to deadlines of their own."""
    count = int(seconds / interval)
    context = multiprocessing.get_context("fork")
    times = context.RawArray("q", count)
    begin = time.monotonic() + 0.5
    sleepers = [
        context.Process(target=_grid_sleeper, args=(number, processes, begin, interval, count, times))
        for number in range(processes)
    ]
    for sleeper in sleepers:
        sleeper.start()
    for sleeper in sleepers:
        sleeper.join()
    return deviations(list(times), interval * 1e9)


def grid(args: Namespace) -> None:
    print("\n100 ms of inference, fps = 10 N, N + 1 workers; deviation of intervals in ms: p50 / p99")
    print(f"{'N':>3} {'sleep grid':>16} {'starts':>16} {'p99 ratio':>10} {'arrivals':>16} {'taken':>8} {'lost':>5}")
    for size in SIZES:
        peer = sleep_grid(size, 0.1 / size, args.seconds)
        report = run(CONSTANT, size + 1, 10 * size, args.seconds)
        frame = 1e9 / (10 * size)
        starts = deviations([span.began for span in report.spans], frame)
        arrivals = deviations([span.ended for span in report.spans], frame)
        possible = report.frames["total"] - report.playout_frames
        taken = sum(span.start < possible for span in report.spans) / possible
        lost = report.frames["dropped_actions"] + report.frames["late_actions"] + sum(report.lost.values())
        print(
            f"{size:>3} {peer[0]:>7.3f} /{peer[1]:>7.3f} {starts[0]:>7.3f} /{starts[1]:>7.3f} "
            f"{starts[1] / peer[1]:>10.2f} {arrivals[0]:>7.3f} /{arrivals[1]:>7.3f} {taken:>8.2%} {lost:>5}"
        )


def spike(args: Namespace) -> None:
    """Print how starts go on after one slow inference."""
    print("\n8 workers, 60 fps, 100 ms of inference, one of 300 ms")
    at, frame = 120, 1e9 / FPS
    report = run(lambda frame: 0.3 if frame == at else 0.1, 8, FPS, 6)
    spans = sorted(report.spans, key=lambda span: span.start)
    cycle = report.playout_frames
    for name, first, last in (
        ("before", 0, at),
        ("in the cycle of the spike", at, at + cycle),
        ("after that cycle", at + cycle, report.frames["total"] - cycle),
    ):
        times = [span.began for span in spans if first <= span.start < last]
        p50, p99 = deviations(times, frame)
        print(
            f"{name:<28}{len(times):>4} starts on {last - first:>4} frames, deviation p50 {p50:.3f}, p99 {p99:.3f} ms"
        )
    print(
        f"late / dropped actions: {report.frames['late_actions']} / {report.frames['dropped_actions']}; frames without "
        f"a fresh action after the first one: {report.frames['default'] - cycle}"
    )


def live(args: Namespace) -> None:
    print("\n60 fps: share of frames with a fresh action, from the first action on")
    for name, latency, workers, of_virtual in (
        ("constant 100 ms, 8 workers", CONSTANT, 8, 0.1),
        ("log-normal 120 ms, cv 0.2, 10 workers", LOG_NORMAL, 10, LogNormal(0.120, 0.2)),
    ):
        real = run(latency, workers, FPS, 3 * args.seconds)
        virtual = run(lambda _: 0.0, workers, FPS, 3 * args.seconds, backend="virtual", latency=of_virtual)
        shares = [each.frames["fresh"] / (each.frames["total"] - each.playout_frames) for each in (real, virtual)]
        if args.picture is not None:
            real.to_png(args.picture)  # the last one stays
        print(
            f"{name:<40} real {shares[0]:.2%}, virtual {shares[1]:.2%}; mean delay {real.delay_frames['mean']:.2f} "
            f"against {virtual.delay_frames['mean']:.2f} frames; lateness p99 {real.lateness_ms['p99']:.3f} ms"
        )


def table(args: Namespace) -> None:
    fps = 59.7275
    print(f"\nworkers at {fps} fps, an environment step of 1 ms, {args.seconds:g} s each")
    print(
        f"{'latency':>10} {'N':>3} {'made/s':>7} {'applied/s':>10} {'ideal':>6} {'interval ms':>15} {'fresh':>7} "
        f"{'lost':>6} {'delay':>6} {'tick ms':>14} {'drift ms':>9} {'cores':>6}"
    )
    for name, latency, mean in (("constant", CONSTANT, 0.1), ("log-normal", LOG_NORMAL, 0.12)):
        for workers in (1, 4, 8, 16):
            begin = os.times()
            report = run(latency, workers, fps, args.seconds, cost=0.001)
            end = os.times()
            fresh, total = report.frames["fresh"], report.frames["total"] / fps
            cpu = (end.children_user + end.children_system) - (begin.children_user + begin.children_system)
            print(
                f"{name:>10} {workers:>3} {len(report.spans) / total:>7.2f} {fresh / total:>10.2f} "
                f"{min(workers / mean, 59.7):>6.1f} "
                f"{report.interval_ms['mean']:>7.1f} +-{report.interval_ms['std']:>5.1f} "
                f"{fresh / report.frames['total']:>7.1%} {1 - fresh / max(len(report.spans), 1):>6.1%} "
                f"{report.delay_frames['mean']:>6.2f} {1000 / report.fps:>6.2f} +-{report.lateness_ms['std']:>5.2f} "
                f"{report.drift_ms:>9.2f} {cpu / total:>6.2f}"
            )


def times_of(report: TimingReport) -> list[float]:
    """Return how long each inference took in seconds, with the mean time of the exchange."""
    assert report.exchange_us is not None
    spans = sorted(report.spans, key=lambda span: span.began)
    return [(span.ended - span.began) / 1e9 + report.exchange_us["mean"] / 1e6 for span in spans]


def slots(args: Namespace) -> None:
    names = ("workers", "latency, frames", "cv", "virtual", "live", "took, frames", "of took", "gaps", "hold")
    print(f"\n{head(*names)}")
    for cv in LEAST:
        for workers, length in TEAMS:
            latency, frames = model(length, cv), round(2 * args.seconds * FPS)
            told = latency if cv else None
            report = run(sleeping(length / FPS, cv), workers, FPS, 2 * args.seconds, slot="even", latency=told)
            took, playout = times_of(report), report.playout_frames
            decisions = sorted((span.start, span.effect) for span in report.spans if span.effect is not None)
            share = in_time(decisions, playout, report.frames["total"])
            expected = in_time(*decisions_of(latency, workers, "even", frames), frames)
            of_took = in_time(*decisions_of(Trace(took), workers, "even", frames, playout), frames)
            fewest, longest = gaps(decisions)
            cells = workers, length, cv, f"{expected:.3f}", f"{share:.3f} (delay {playout})"
            verdict = ", ".join(held(abs(share - each) <= 0.02) for each in (expected, of_took))
            mean = f"{float(np.mean(took)) * FPS:.2f}"
            print(row(*cells, mean, f"{of_took:.3f}", f"{fewest} to {longest}", verdict), flush=True)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"grid": grid, "spike": spike, "live": live, "table": table, "slots": slots},
        seconds=(10.0, "of each run"),
        picture=(str, "where `live` draws the second run's report"),
    )
