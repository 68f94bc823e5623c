"""``plan``: how many workers a latency, several latencies or networks need, and how many environments fit."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from async_wrappers.analysis import scaling
from async_wrappers.analysis.capacity import capacity, capacity_picture
from async_wrappers.analysis.planning import Plan, plan
from async_wrappers.analysis.timeline import timeline
from async_wrappers.cli.command_arguments import add_json, tell
from async_wrappers.extras import extra
from async_wrappers.files import path_of, write_figure
from async_wrappers.latency import Constant, Latency, LogNormal, Spikes, Uniform
from async_wrappers.latency.batches import LinearBatches, MeasuredBatches
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.wrappers.measured_latencies import Latencies

TABLE_MS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
MOST_DRAWN = 20_000  # frames in a picture
MOST_CV = 3.0  # of a log-normal latency

# Flags about many environments, and those about one.
_SERVED = ("envs", "playouts", "accelerators", "every", "phases", "most", "price", "share")
_ONE = (
    "workers",
    "learn_ms",
    "cores",
    "model_mb",
    "release_ms",
    "fast_age",
    "step_ms",
    "spike_probability",
    "spike_factor",
    "remote",
    "positions",
)


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("plan", help="how many workers a latency needs, and whether this machine can")
    _add_flags(parser)
    parser.set_defaults(run=_run)


def _add_flags(one: argparse.ArgumentParser) -> None:
    """Add the flags: those of one environment, of many on an accelerator, and of two tables."""
    of = one.add_mutually_exclusive_group(required=True)
    latency = "mean latency of one inference, in milliseconds, or its range, such as 80-160"
    of.add_argument("--latency-ms", type=_milliseconds, help=latency)
    trace = "measured latencies: a JSON list of seconds, latency_ms, or a file of Latencies"
    of.add_argument("--trace", metavar="FILE", help=trace)
    of.add_argument(
        "--batch-ms",
        type=float,
        nargs=2,
        metavar=("FIXED", "EACH"),
        help="many environments on an accelerator: milliseconds of a batch, and of each of its observations",
    )
    of.add_argument("--batch-trace", metavar="FILE", help="measured batches, as MeasuredBatches.to_json writes them")
    of.add_argument(
        "--latencies-ms", type=float, nargs="*", metavar="MS", help="mean latencies, for a table of workers (10 to 1e5)"
    )
    of.add_argument(
        "--networks",
        nargs="?",
        const="",
        metavar="FILE",
        help="JSON of networks with their times, for a table of workers and learners (the published ones)",
    )
    one.add_argument("--cv", type=float, help="coefficient of variation, log-normal (in tables 0.2, else constant)")
    one.add_argument("--fps", type=float, help=f"frames per second (60; of networks {scaling.GAME_BOY_FPS})")
    one.add_argument("--seconds", type=float, help="how long an episode lasts (60; in tables 600)")
    one.add_argument("--seed", type=int, default=0, help="of the simulated latencies (0)")
    one.add_argument("--spike-probability", type=float, help="share of inferences that are slower")
    one.add_argument("--spike-factor", type=float, help="how many times slower they are")
    one.add_argument("--learn-ms", type=float, help="one update of the weights, in milliseconds")
    one.add_argument("--cores", type=int, help="cores of the machine (those of this one)")
    one.add_argument("--remote", action="store_true", help="workers are on another machine: no cores here for them")
    positions = "the machine takes positions: the last one is held where no action arrives"
    one.add_argument("--positions", action="store_true", help=positions)
    one.add_argument("--model-mb", type=float, help="size of the weights, in megabytes")
    one.add_argument("--memory-gbs", type=float, default=20.0, help="memory bandwidth in gigabytes per second (20)")
    one.add_argument("--workers", type=int, help="a number of workers to forecast beside the rules'")
    one.add_argument("--release-ms", type=float, help="core and head of a policy with memory, in milliseconds")
    one.add_argument("--fast-age", type=int, help="how old a fast path's observation is at release, in frames")
    one.add_argument("--step-ms", type=float, help="the environment's step, in milliseconds")
    add_json(one)
    one.add_argument(
        "--picture", metavar="FILE", help="draw the time line or the networks, such as plan.png (needs matplotlib)"
    )
    served = one.add_argument_group("many environments, with --batch-ms or --batch-trace")
    served.add_argument("--envs", type=int, help="a number of environments to forecast beside the most")
    served.add_argument("--playouts", type=int, nargs="+", metavar="FRAMES", help="delays to try (1 2 3 4 6 8)")
    served.add_argument("--accelerators", type=int, help="how many compute, a batch at a time each (1)")
    served.add_argument("--every", type=int, help="frames from one decision of an environment to its next (1)")
    served.add_argument("--phases", help="spread, or together: all frames begin at once (spread)")
    served.add_argument("--most", type=int, help="observations in a batch at most")
    served.add_argument("--price", type=float, help="of an accelerator's hour, for the cost of an environment")
    served.add_argument("--share", type=float, help="share of actions in time that is enough (0.995)")


def _run(options: argparse.Namespace) -> None:
    networks, latencies = options.networks is not None, options.latencies_ms is not None
    if options.cv is not None and not 0 <= options.cv <= MOST_CV:
        raise ValueError(
            f"--cv must be from 0 to {MOST_CV:g}, got {options.cv:g}, whose log-normal is almost always near 0: give "
            "the measured standard deviation over the mean, or the measured times with --trace"
        )
    if options.fps is None:
        options.fps = scaling.GAME_BOY_FPS if networks else 60.0
    if options.seconds is None:
        options.seconds = 600.0 if networks or latencies else 60.0
    if networks or latencies:
        _refuse(options, (*_SERVED, *_ONE, "json"), "not for a table", "leave it out")
        if latencies:
            _refuse(options, ["picture"], "not for a table of latencies", "leave it out")
        options.cv = 0.2 if options.cv is None else options.cv
        _networks(options) if networks else _workers(options)
    elif options.batch_ms is not None or options.batch_trace is not None:
        remedy = "leave it out, or give --latency-ms or --trace in the place of the batches"
        _refuse(options, _ONE, "about one environment", remedy)
        _capacity(options)
    else:
        remedy = "give --batch-ms or --batch-trace in the place of --latency-ms or --trace"
        _refuse(options, _SERVED, "about many environments on an accelerator", remedy)
        _plan(options)


def _refuse(options: argparse.Namespace, flags: Iterable[str], about: str, remedy: str) -> None:
    """Refuse flags that are about something else than what is planned."""
    for flag in flags:
        if (given := getattr(options, flag)) not in (None, False):
            got = "" if given is True else f", got {given}"
            raise ValueError(f"--{flag.replace('_', '-')} is {about}{got}: {remedy}")


def _plan(options: argparse.Namespace) -> None:
    latency = _latency(options)
    if options.latency_ms is not None:
        _remark_on_seconds("--latency-ms", options.latency_ms[-1])
    found = plan(
        latency,
        fps=options.fps,
        learn_ms=options.learn_ms,
        cores=options.cores,
        model_mb=options.model_mb,
        memory_gbs=options.memory_gbs,
        workers=options.workers,
        release=None if options.release_ms is None else options.release_ms / 1000,
        fast_age=options.fast_age,
        step=None if options.step_ms is None else options.step_ms / 1000,
        seconds=options.seconds,
        seed=options.seed,
        remote=options.remote,
        positions=options.positions,
    )
    if options.picture is not None:
        _draw(latency, found, options)
    tell(found, found.to_dict(), options.json)


def _capacity(options: argparse.Namespace) -> None:
    """Plan for many environments, which accelerators serve."""
    latency: LinearBatches | MeasuredBatches
    if options.batch_trace is not None:
        if options.cv is not None:
            raise ValueError(
                f"--cv must go with --batch-ms, got --cv {options.cv:g} with --batch-trace, which has a spread"
            )
        latency = MeasuredBatches(options.batch_trace)
    else:
        if not all(0 <= milliseconds < math.inf for milliseconds in options.batch_ms):
            shown = " ".join(f"{milliseconds:g}" for milliseconds in options.batch_ms)
            raise ValueError(f"--batch-ms must be two numbers of milliseconds >= 0 and finite, got {shown}")
        fixed, each = (milliseconds / 1000 for milliseconds in options.batch_ms)
        latency = LinearBatches(fixed, each, options.cv or 0.0)
    given = {flag: getattr(options, flag) for flag in _SERVED if getattr(options, flag) is not None}
    if "envs" in given:
        given["environments"] = given.pop("envs")
    if options.picture is not None:
        _need_matplotlib()
    found = capacity(latency, options.fps, seed=options.seed, **given)
    if options.picture is not None:
        both = [
            found
            if phases == found.phases
            else capacity(latency, options.fps, seed=options.seed, **given | {"phases": phases})
            for phases in ("spread", "together")
        ]
        capacity_picture(both, ["frames that begin at different times", "frames that begin together"], options.picture)
    tell(found, found.to_dict(), options.json)


def _milliseconds(text: str) -> list[float]:
    """Return a mean latency, or the ends of a range."""
    ends = re.fullmatch(r"([\d.]+)-([\d.]+)", text)
    try:
        found = [float(end) for end in (ends.groups() if ends else [text])]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be milliseconds, or a range such as 80-160, got {text!r}") from None
    if not all(0 <= end < math.inf for end in found):
        raise argparse.ArgumentTypeError(f"must be >= 0 milliseconds and finite, got {text}")
    if found != sorted(found):
        raise argparse.ArgumentTypeError(f"must be a range from the shortest to the longest, got {text}")
    return found


def _latency(options: argparse.Namespace) -> Latency:
    if (options.spike_probability is None) != (options.spike_factor is None):
        raise ValueError("--spike-probability and --spike-factor must be given together, got only one of them")
    if options.cv is not None and (options.trace is not None or len(options.latency_ms) == 2):
        spread = "--trace" if options.trace is not None else "a range"
        raise ValueError(
            f"--cv must go with one --latency-ms, got --cv {options.cv:g} with {spread}, which has a spread"
        )
    latency: Latency
    if options.trace is not None:
        measured = Latencies(Path(options.trace))
        latency = measured if measured.sensors or measured.transport is not None else measured.latency
    elif len(options.latency_ms) == 2:
        latency = Uniform(*(milliseconds / 1000 for milliseconds in options.latency_ms))
    elif options.cv is None:
        latency = Constant(options.latency_ms[0] / 1000)
    else:
        latency = LogNormal(options.latency_ms[0] / 1000, options.cv)
    if options.spike_probability is None:
        return latency
    return Spikes(latency, options.spike_probability, options.spike_factor)


def _draw(latency: Latency, found: Plan, options: argparse.Namespace) -> None:
    """Draw one worker above as many as are enough, for a few delays."""
    _need_matplotlib()
    tickets = next(rule for rule in found.rules if rule.rule == "tickets")
    workers = (found.enough or tickets).workers
    one = SimulatedSchedule(latency, 1, options.fps, "sequential", seed=options.seed)
    many = SimulatedSchedule(latency, workers, options.fps, "tickets", found.playout, seed=options.seed)
    titles = {"sequential, 1 worker": one, f"tickets, {workers} {'worker' if workers == 1 else 'workers'}": many}
    timeline(titles, frames=min(max(24, 4 * (many.stagger.playout or 0)), MOST_DRAWN), path=options.picture)


def _need_matplotlib() -> None:
    with extra("--picture", "plot"):
        import matplotlib  # noqa: F401


def _remark_on_seconds(name: str, milliseconds: float) -> None:
    """Remark on a latency in milliseconds that looks like one in seconds."""
    if 0 < milliseconds < 1:
        whole = f"{1000 * milliseconds:g}"
        print(f"{name} {milliseconds:g} is {milliseconds:g} ms; {milliseconds:g} s are {name} {whole}", file=sys.stderr)


def _workers(options: argparse.Namespace) -> None:
    latencies = options.latencies_ms or TABLE_MS
    for latency in latencies:
        _remark_on_seconds("--latencies-ms", latency)
    seconds = [latency / 1000 for latency in latencies]
    needs = scaling.workers_against_latency(
        seconds, options.fps, cv=options.cv, seconds=options.seconds, seed=options.seed
    )
    print("| latency | mean rule | workers | playout | fresh | delay, frames | delay | busy |")
    print("|---|---|---|---|---|---|---|---|")
    for need in needs:
        row = f"| {need.latency_s:g} s | {need.mean_rule} |"
        if (found := need.enough) is None:
            print(f"{row} none is enough | | | | | |")
            continue
        print(
            f"{row} {found.workers} | {need.playout} | {found.fresh_share:.3f} | {found.mean_delay_frames:.1f} | "
            f"{(found.mean_delay_ms or 0) / 1000:.3g} s | {found.busy_workers:.1f} |"
        )


def _networks(options: argparse.Namespace) -> None:
    if options.picture is not None:
        _need_matplotlib()
    networks = scaling.read_networks(options.networks) if options.networks else scaling.PUBLISHED
    found = scaling.processes_needed(networks, options.fps, cv=options.cv, seconds=options.seconds, seed=options.seed)
    print("| network | parameters | inference | mean rule | workers | published | update | learners | published |")
    print("|---|---|---|---|---|---|---|---|---|")
    for each in found:
        network, enough = each.network, each.need.enough
        workers, learners = scaling.PUBLISHED_LIVE.get(network.name, ("", ""))
        print(
            f"| {network.name} | {network.parameters:,} | {network.latency_s:.3g} s | {each.need.mean_rule} | "
            f"{'none is enough' if enough is None else enough.workers} | {workers} | "
            f"{'' if network.update_s is None else f'{network.update_s:.3g} s'} | "
            f"{'' if each.learners is None else each.learners} | {learners} |"
        )
    if options.picture is not None:
        of = f"times of {Path(options.networks).name}" if options.networks else scaling.PUBLISHED_TIMES
        title = f"{of}, cv {options.cv:g}, {options.fps:g} frames a second"
        write_figure(path_of(options.picture), scaling.scaling_picture(found, title))
