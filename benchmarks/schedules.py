"""What the simulated schedules give and cost: staggering, even slots, environments that one accelerator serves.

All of it is simulated, and deterministic but for the speed.

* ``staggering``: 60 fps, an action on each frame wanted. For every strategy, three latency models and six numbers of
  workers: the share of frames with a fresh action, the mean and 99th percentile of its delay in frames, actions dropped
  per second. Hold: tickets with ceil(mean latency * fps) + 2 workers at playout p99 reach a share of 0.99.
* ``slots``: even slots beside whole ones, where there are fewer workers than an inference has frames. N workers whose
  inferences last L frames on average can make min(1, N / L) actions per frame; that is `most`. An action is in time if
  it is applied on the frame on which its playout (p99) ends. `gaps` are the least and the most frames between two
  effects. Hold: with ``slot="even"``, actions in time on >= 0.99 of `most` for constant latencies, with all gaps within
  a frame of even, and on >= 0.93 for log-normal ones (cv 0.2). ``--picture`` draws two workers of 2.3 frames with whole
  slots above even ones. `benchmarks.staggered_workers` has the same live.
* ``capacity``: the closed form of the environments that one accelerator serves beside the simulation, which is searched
  for the most environments with 99.5 % of their actions in time. Random settings: 15 to 120 frames a second, every
  frame or every fourth one inferred, a playout of 1 to 6 frames, phases spread or together, a fixed cost of .04 to 3.1
  frames, 50 to 800 environments by the closed form. Hold: within 3 % on 30 of them.
* ``speed``: decisions (inferences) per second of processor time that the schedules make, with few workers, with 10,000,
  and with 1,000 environments that are served; and how many times faster than real time. Hold: >= 50,000.

    python -m benchmarks.schedules [staggering] [slots] [capacity] [speed] [--seconds 350] [--settings 30]
"""

from __future__ import annotations

import math
import random
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from itertools import islice, pairwise

from async_wrappers.analysis.capacity import most_by_closed_form, most_by_simulation
from async_wrappers.analysis.timeline import timeline
from async_wrappers.latency import Constant, Latency, LogNormal, Spikes
from async_wrappers.latency.batches import LinearBatches
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.schedule.simulated import Counts, SimulatedSchedule
from benchmarks.measuring import head, held, print_hold, row, run_parts

FPS = 60
MODELS: dict[str, Latency] = {
    "constant 120 ms": Constant(0.120),
    "log-normal, mean 120 ms, cv 0.2": LogNormal(mean=0.120, cv=0.2),
    "120 ms, 2 % of inferences 3x": Spikes(0.120, probability=0.02, factor=3),
}
STRATEGIES = {
    "sequential": ("sequential", "p99"),
    "none": ("none", "p99"),
    "max_time": ("max_time", "p99"),
    "expected_time": ("expected_time", "p99"),
    "tickets, p95": ("tickets", "p95"),
    "tickets, p99": ("tickets", "p99"),
}
WORKERS = (1, 4, 8, 10, 16, 25)

TEAMS = ((1, 2.3), (2, 2.3), (3, 2.3), (4, 6.0), (7, 7.2))  # workers, frames of a mean inference
CV = 0.2
LEAST = {0.0: 0.99, CV: 0.93}  # of what the workers can make, in time, by the latency's coefficient of variation
Decisions = list[tuple[int, int]]  # (start, effect) of each action applied


def simulate(latency: Latency, stagger: str, playout: str, workers: int, seconds: int) -> Counts:
    """Run one episode of so many seconds."""
    schedule = SimulatedSchedule(latency, workers, FPS, stagger, playout, seed=0)
    for _ in islice(schedule.frames(seed=1), seconds * FPS):
        pass
    return schedule.counts


def staggering(args: Namespace) -> None:
    for name, latency in MODELS.items():
        print(f"\n### {name}\n\nfresh share, mean delay, p99 delay (frames), dropped per second\n")
        print(head("strategy", *(f"{workers} workers" for workers in WORKERS)))
        for label, (stagger, playout) in STRATEGIES.items():
            cells = []
            for workers in WORKERS:
                counts = simulate(latency, stagger, playout, workers, args.seconds)
                delay = f"{counts.mean_delay:.1f}, {counts.delay_quantile(0.99):.0f}"
                cells.append(f"{counts.fresh_share:.3f}, {delay}, {counts.dropped / args.seconds:.1f}")
            print(row(label, *cells))
        enough = math.ceil(latency.mean * FPS) + 2
        share = simulate(latency, "tickets", "p99", enough, args.seconds).fresh_share
        print_hold(f"tickets with {enough} workers at p99, share of fresh frames", share, least=0.99)


# Slots.


def model(frames: float, cv: float) -> Latency:
    return LogNormal(frames / FPS, cv) if cv else Constant(frames / FPS)


def in_time(decisions: Decisions, playout: int, frames: int) -> float:
    """Return the share of frames, from the first on that can have one, whose action is as old as the playout."""
    return sum(effect - start == playout for start, effect in decisions) / (frames - playout)


def gaps(decisions: Decisions) -> tuple[int, int]:
    """Return the least and the most frames between two effects."""
    between = [after - before for (_, before), (_, after) in pairwise(decisions)]
    return min(between), max(between)


def decisions_of(
    latency: Latency, workers: int, slot: int | str | None, frames: int, playout: int | str = "p99"
) -> tuple[Decisions, int]:
    """Return the decisions of an episode of so many frames, and the playout in frames."""
    schedule = SimulatedSchedule(latency, workers, FPS, playout=playout, slot=slot, seed=0)
    steps = enumerate(islice(schedule.frames(seed=1), frames))
    assert schedule.playout is not None
    return [(start, frame) for frame, (start, _) in steps if start is not None], schedule.playout


def slots(args: Namespace) -> None:
    names = ("workers", "latency, frames", "cv", "most", "whole slots", "`slot=1`", "gaps", '`slot="even"`', "gaps")
    print(f"\n{head(*names, 'of most', 'hold')}")
    frames = args.seconds * FPS
    for cv, least in LEAST.items():
        for workers, length in TEAMS:
            latency, most = model(length, cv), min(1.0, workers / length)
            shares, cells = [], []
            for slot in (None, 1, "even"):
                decisions, playout = decisions_of(latency, workers, slot, frames)
                shares.append(in_time(decisions, playout, frames))
                fewest, longest = gaps(decisions)
                cells += [f"{shares[-1]:.3f} (delay {playout})", f"{fewest} to {longest}"]
            even = max(1 / most - fewest, longest - 1 / most) < 1
            holds = shares[-1] >= least * most and (even or cv > 0)
            known = workers, length, cv, f"{most:.3f}", cells[0], *cells[2:]
            print(row(*known, f"{shares[-1] / most:.3f}", held(holds)))
    if args.picture is not None:
        titles = {"slot=None: whole slots of 2 frames": None, "slot='even': slots of 1.15 frames": "even"}
        drawn = {title: SimulatedSchedule(2.3 / FPS, 2, FPS, slot=slot) for title, slot in titles.items()}
        timeline(drawn, 24, args.picture)


# Capacity.


def capacity(args: Namespace) -> None:
    """Print closed form and simulation of random settings."""
    rng = random.Random(args.seed)
    errors: list[float] = []
    print(f"\n{'phases':<10}{'fps':>6}{'playout':>9}{'every':>7}{'f a':>7}", end="")
    print(f"{'closed form':>13}{'simulated':>11}{'error':>8}")
    while len(errors) < args.settings:
        fps, playout, every = rng.uniform(15, 120), rng.randint(1, 6), rng.choice([1, 1, 1, 4])
        phases, frames, wanted = rng.choice(["spread", "together"]), rng.uniform(0.04, 3.1), rng.randint(50, 800)
        fixed, least = frames / fps, 1e-9
        most = most_by_closed_form(LinearBatches(fixed, least), fps, playout, every=every, phases=phases)
        if not most:
            continue  # a batch of one is too slow
        latency = LinearBatches(fixed, least * most / wanted)
        closed = most_by_closed_form(latency, fps, playout, every=every, phases=phases)
        found = most_by_simulation(latency, fps, playout, every=every, phases=phases)
        assert closed is not None
        assert found is not None
        errors.append(closed / found.environments - 1)
        print(
            f"{phases:<10}{fps:>6.0f}{playout:>9}{every:>7}{frames:>7.2f}{closed:>13}{found.environments:>11}"
            f"{errors[-1]:>8.2%}",
            flush=True,
        )
    print_hold("closed form: off by at most", max(map(abs, errors)), most=0.03)


# Speed.


def simulated_decisions(latency: Latency, workers: int, seconds: int) -> int:
    schedule = SimulatedSchedule(latency, workers, FPS, seed=0)
    for _ in islice(schedule.frames(seed=1), seconds * FPS):
        pass
    return sum(schedule.counts.inferences.values())


def served_decisions(frames: int) -> int:
    schedule = ServedSchedule(LinearBatches(0.002, 1.3e-5, cv=0.1), 1000, FPS, 2, seed=0)
    return len(schedule.play(frames).start)


CASES: dict[str, tuple[Callable[[], int], float]] = {  # what returns how many decisions it made, simulated seconds
    "120 ms, 10 workers": (partial(simulated_decisions, MODELS["log-normal, mean 120 ms, cv 0.2"], 10, 200), 200),
    "1 s, 62 workers": (partial(simulated_decisions, LogNormal(mean=1.0, cv=0.2), 62, 200), 200),
    "100 s, 10,000 workers": (partial(simulated_decisions, Constant(100.0), 10_000, 400), 400),
    "1,000 environments, served": (partial(served_decisions, 120), 2),
}


def speed(args: Namespace) -> None:
    """Print decisions per second of processor time."""
    for name, (simulate_case, simulated_seconds) in CASES.items():
        rates, times = [], []
        for _ in range(args.rounds):
            begin = time.process_time()
            decisions = simulate_case()
            took = time.process_time() - begin
            rates.append(decisions / took)
            times.append(simulated_seconds / took)
        print_hold(f"{name}, decisions/s", statistics.median(rates), least=50_000)
        print(f"       {statistics.median(times):,.0f} times faster than real time")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"staggering": staggering, "slots": slots, "capacity": capacity, "speed": speed},
        seconds=(350, "simulated time of each cell"),
        settings=(30, "random ones"),
        seed=(0, "of these"),
        rounds=(5, "of the speed"),
        picture=(str, "where to draw whole and even slots"),
    )
