"""The command line: ``python -m async_wrappers plan --latency-ms 120 --fps 60``, ``... probe CartPole-v1``."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
from gymnasium.error import DependencyNotInstalled

from async_wrappers.analysis import scaling
from async_wrappers.analysis.capacity import Capacity, capacity, capacity_picture
from async_wrappers.analysis.doctor import examine
from async_wrappers.analysis.planning import Plan, plan, workers_against_latency
from async_wrappers.analysis.probing import probe_delay
from async_wrappers.analysis.scoring import DELAYS, PLAYED, GameScore, score_policy
from async_wrappers.analysis.timeline import timeline
from async_wrappers.envs.factories import create_gym_environment
from async_wrappers.envs.minatar import MINATAR_GAMES
from async_wrappers.extras import extra
from async_wrappers.files import write_text_atomically
from async_wrappers.latency import Constant, Latency, LogNormal, Spikes, Trace
from async_wrappers.latency.batches import LinearBatches, MeasuredBatches
from async_wrappers.live.recording.convert import from_lerobot, to_lerobot, to_minari
from async_wrappers.printing import OwnCodeFailed, in_one_line, in_pipeline, let_all_be_printed, own_traceback
from async_wrappers.schedule.simulated import SimulatedSchedule

SERVED_AT = "tcp://127.0.0.1:5555"
TABLE_MS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
MOST_DRAWN = 20_000  # frames in a picture


class _Parser(argparse.ArgumentParser):
    """Prints a usage error in one line, and takes flags in full: an abbreviation can get a second meaning."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after ``python -m async_wrappers``; None means those of this process.

    Returns:
        The exit code: 0, 1 where `probe` cannot tell the delay, or 130 where Ctrl-C has ended `score`.

    Raises:
        SystemExit: A usage error, with code 2 and one line on standard error, below the traceback of an error that
            the user's own code has raised.
    """
    parser = _make_parser()
    options = parser.parse_args(arguments)
    try:
        for flag in ("json", "csv", "picture"):
            _refuse_unwritable(f"--{flag}", getattr(options, flag, None))
        return COMMANDS[options.command](options) or 0
    except BrokenPipeError:  # the reader of the output has ended, which is no usage error
        raise
    except (ValueError, OSError, DependencyNotInstalled) as error:
        if isinstance(error, OwnCodeFailed) and error.__cause__ is not None:
            print(own_traceback(error.__cause__), end="", file=sys.stderr)
        parser.exit(2, f"{parser.prog} {options.command}: {error}\n")


def _make_parser() -> _Parser:
    parser = _Parser(prog="python -m async_wrappers", description="Make any Gymnasium environment realtime.")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="{plan,workers,networks,probe,score,convert,doctor,serve}"
    )
    one = commands.add_parser("plan", help="how many workers a latency needs, and whether this machine can")
    _add_plan_flags(one)
    many = commands.add_parser("workers", help="a table of workers against latency, log-normal")
    many.add_argument("--latencies-ms", type=float, nargs="+", default=TABLE_MS, metavar="MS", help="mean latencies")
    many.add_argument("--cv", type=float, default=0.2, help="coefficient of variation (0.2)")
    sizes = commands.add_parser("networks", help="a table of workers and learners against parameters")
    sizes.add_argument("--times", metavar="FILE", help="JSON of networks with their times (the published ones)")
    sizes.add_argument("--cv", type=float, default=0.2, help="coefficient of variation of inferences (0.2)")
    sizes.add_argument("--picture", metavar="FILE", help="draw it, such as networks.png (needs matplotlib)")
    _add_flags_of_machines(commands)
    for command, seconds, what, fps in (
        (one, 60, "how long an episode lasts", 60),
        (many, 600, "how long to simulate each", 60),
        (sizes, 600, "how long to simulate each", scaling.GAME_BOY_FPS),
    ):
        command.add_argument("--fps", type=float, default=fps, help=f"frames per second ({fps})")
        command.add_argument("--seconds", type=float, default=seconds, help=f"{what} ({seconds})")
        command.add_argument("--seed", type=int, default=0, help="of the simulated latencies (0)")
    return parser


def _add_plan_flags(one: argparse.ArgumentParser) -> None:
    """Add the flags of `plan`: those of one environment, and those of many on an accelerator."""
    of = one.add_mutually_exclusive_group(required=True)
    of.add_argument("--latency-ms", type=float, help="mean latency of one inference, in milliseconds")
    of.add_argument("--trace", metavar="FILE", help="measured latencies: a JSON list of seconds, or latency_ms")
    of.add_argument(
        "--batch-ms",
        type=float,
        nargs=2,
        metavar=("FIXED", "EACH"),
        help="many environments on an accelerator: milliseconds of a batch, and of each of its observations",
    )
    of.add_argument("--batch-trace", metavar="FILE", help="measured batches, as MeasuredBatches.to_json writes them")
    one.add_argument("--cv", type=float, help="coefficient of variation of a log-normal latency (constant without)")
    one.add_argument("--spike-probability", type=float, help="share of inferences that are slower")
    one.add_argument("--spike-factor", type=float, help="how many times slower they are")
    one.add_argument("--learn-ms", type=float, help="one update of the weights, in milliseconds")
    one.add_argument("--cores", type=int, help="cores of the machine (those of this one)")
    one.add_argument("--remote", action="store_true", help="workers are on another machine: no cores here for them")
    one.add_argument("--model-mb", type=float, help="size of the weights, in megabytes")
    one.add_argument("--memory-gbs", type=float, default=20.0, help="memory bandwidth in gigabytes per second (20)")
    one.add_argument("--workers", type=int, help="a number of workers to forecast beside the rules'")
    one.add_argument("--release-ms", type=float, help="core and head of a policy with memory, in milliseconds")
    one.add_argument("--step-ms", type=float, help="the environment's step, in milliseconds")
    one.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or print it")
    one.add_argument("--picture", metavar="FILE", help="draw the time line, such as plan.png (needs matplotlib)")
    served = one.add_argument_group("many environments, with --batch-ms or --batch-trace")
    served.add_argument("--envs", type=int, help="a number of environments to forecast beside the most")
    served.add_argument("--playouts", type=int, nargs="+", metavar="FRAMES", help="delays to try (1 2 3 4 6 8)")
    served.add_argument("--accelerators", type=int, help="how many compute, a batch at a time each (1)")
    served.add_argument("--every", type=int, help="frames from one decision of an environment to its next (1)")
    served.add_argument("--phases", help="spread, or together: all frames begin at once (spread)")
    served.add_argument("--most", type=int, help="observations in a batch at most")
    served.add_argument("--price", type=float, help="of an accelerator's hour, for the cost of an environment")
    served.add_argument("--share", type=float, help="share of actions in time that is enough (0.995)")


def _add_flags_of_machines(commands: Any) -> None:
    """Add the commands that look at an environment, a recording, this machine, or a policy for others."""
    probe = commands.add_parser("probe", help="the delay that an environment hides already, found by comparing runs")
    probe.add_argument("env", metavar="ENV", help="a Gymnasium id: CartPole-v1, ALE/Pong-v5 or my_module:MyEnv-v0")
    probe.add_argument(
        "--kwargs", default="{}", metavar="JSON", help="""arguments of gymnasium.make: '{"frameskip": 1}'"""
    )
    probe.add_argument("--episodes", type=int, default=8, help="episodes, each with a seed of its own (8)")
    probe.add_argument("--max-frames", type=int, default=60, help="frames of an episode that are looked at (60)")
    probe.add_argument("--seed", type=int, default=0, help="of the first episode and of the actions (0)")
    probe.add_argument("--alternatives", type=int, default=2, help="other actions that are tried on a frame (2)")
    probe.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or print it")
    _add_score_flags(commands)
    convert = commands.add_parser("convert", help="a recording of a live run as a dataset of Minari's or LeRobot's")
    convert.add_argument("directory", metavar="DIR", help="the recording; with --to recording a LeRobot dataset")
    convert.add_argument("--to", required=True, choices=("minari", "lerobot", "recording"), help="what it becomes")
    convert.add_argument("--output", required=True, metavar="NAME_OR_DIR", help="a new directory, or a Minari id")
    convert.add_argument("--task", help="for LeRobot: what the robot was to do, in words (recorded)")
    convert.add_argument("--images", action="store_true", help="for LeRobot: keep each picture as it is, no videos")
    doctor = commands.add_parser("doctor", help="how punctual a loop is on this machine, and which setting is missing")
    doctor.add_argument("--hz", type=float, default=1000.0, help="frames per second (1000)")
    doctor.add_argument("--seconds", type=float, default=10.0, help="of each of four measurements (10)")
    doctor.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or print it")
    serve = commands.add_parser("serve", help="a policy for AsyncRunners on other machines, until Ctrl-C or SIGTERM")
    serve.add_argument("factory", metavar="MODULE:FACTORY", help="a function without arguments that makes the policy")
    serve.add_argument(
        "--bind", default=SERVED_AT, metavar="ADDRESS", help=f"tcp://host:port or unix://path ({SERVED_AT})"
    )
    serve.add_argument("--workers", type=int, default=1, help="inferences at a time, of all runs together (1)")
    serve.add_argument("--threads", action="store_true", help="workers are threads of one process (processes)")
    serve.add_argument("--token-file", metavar="FILE", help="its first line is a secret that runners must have too")


def _add_score_flags(commands: Any) -> None:
    score = commands.add_parser("score", help="a policy of yours on realtime MinAtar, beside our scores")
    score.add_argument(
        "--policy",
        required=True,
        metavar="MODULE:FACTORY",
        help="a function of some or none of game, delay and env (for its spaces) that returns the policy: a function "
        "of the observation, or an object with Stable-Baselines3's predict",
    )
    score.add_argument(
        "--wrapper",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="wraps the delayed environment, such as gymnasium.wrappers:FlattenObservation; may be given again",
    )
    games = ", ".join(MINATAR_GAMES)
    score.add_argument("--games", nargs="+", default=MINATAR_GAMES, metavar="GAME", help=f"some of {games} (all)")
    frames = " ".join(map(str, DELAYS))
    score.add_argument("--delays", type=int, nargs="+", default=DELAYS, metavar="FRAMES", help=f"delays ({frames})")
    score.add_argument("--episodes", type=int, default=30, help="of each game at each delay (30)")
    score.add_argument("--seed", type=int, default=0, help="of the episodes, the same for each game and delay (0)")
    score.add_argument(
        "--way",
        choices=PLAYED,
        default=PLAYED[0],
        help=f"an action on every frame, or one every delay + 1 frames ({PLAYED[0]})",
    )
    score.add_argument(
        "--default-action", default="noop", metavar="ACTION", help="on the other frames: noop, repeat, random, 2 (noop)"
    )
    score.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or print it")
    score.add_argument("--csv", metavar="FILE", help="write a row per episode")


# Flags of `plan` about many environments, and those about one.
_SERVED = ("envs", "playouts", "accelerators", "every", "phases", "most", "price", "share")
_ONE = ("workers", "learn_ms", "cores", "model_mb", "release_ms", "step_ms", "spike_probability", "spike_factor")


def _plan(options: argparse.Namespace) -> None:
    if options.batch_ms is not None or options.batch_trace is not None:
        _capacity(options)
        return
    for flag in _SERVED:
        if getattr(options, flag) is not None:
            raise ValueError(
                f"--{flag} is about many environments on an accelerator, got {getattr(options, flag)}: give --batch-ms "
                "or --batch-trace in the place of --latency-ms or --trace"
            )
    latency = _latency(options)
    if options.latency_ms is not None:
        _remark_on_seconds("--latency-ms", options.latency_ms)
    found = plan(
        latency,
        fps=options.fps,
        learn_ms=options.learn_ms,
        cores=options.cores,
        model_mb=options.model_mb,
        memory_gbs=options.memory_gbs,
        workers=options.workers,
        release=None if options.release_ms is None else options.release_ms / 1000,
        step=None if options.step_ms is None else options.step_ms / 1000,
        seconds=options.seconds,
        seed=options.seed,
        remote=options.remote,
    )
    if options.picture is not None:
        _draw(latency, found, options)
    _tell(found, options.json)


def _tell(found: Plan | Capacity, file: str | None) -> None:
    """Print a result for a person, and write it to a file; for "-" print it as JSON."""
    if file == "-":
        print(json.dumps(found.to_dict(), indent=1, allow_nan=False))
        return
    if file is not None:
        found.to_json(file)
    print(found)


def _capacity(options: argparse.Namespace) -> None:
    """Plan for many environments, which accelerators serve."""
    if options.remote:
        raise ValueError(
            "--remote is about one environment: leave it out, or give --latency-ms or --trace in the place of the "
            "batches"
        )
    for flag in _ONE:
        if getattr(options, flag) is not None:
            name = flag.replace("_", "-")
            raise ValueError(
                f"--{name} is about one environment, got {getattr(options, flag)}: leave it out, or give --latency-ms "
                "or --trace in the place of the batches"
            )
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
    _tell(found, options.json)


def _latency(options: argparse.Namespace) -> Latency:
    if (options.spike_probability is None) != (options.spike_factor is None):
        raise ValueError("--spike-probability and --spike-factor must be given together, got only one of them")
    if options.latency_ms is not None and not 0 <= options.latency_ms < math.inf:
        raise ValueError(f"--latency-ms must be >= 0 milliseconds and finite, got {options.latency_ms:g}")
    if options.trace is not None and options.cv is not None:
        raise ValueError(f"--cv must go with --latency-ms, got --cv {options.cv:g} with --trace, which has a spread")
    latency: Latency
    if options.trace is not None:
        latency = Trace(Path(options.trace))
    elif options.cv is None:
        latency = Constant(options.latency_ms / 1000)
    else:
        latency = LogNormal(options.latency_ms / 1000, options.cv)
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
    for latency in options.latencies_ms:
        _remark_on_seconds("--latencies-ms", latency)
    seconds = [latency / 1000 for latency in options.latencies_ms]
    needs = workers_against_latency(seconds, options.fps, cv=options.cv, seconds=options.seconds, seed=options.seed)
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
    networks = scaling.PUBLISHED if options.times is None else scaling.read_networks(options.times)
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
        of = scaling.PUBLISHED_TIMES if options.times is None else f"times of {Path(options.times).name}"
        title = f"{of}, cv {options.cv:g}, {options.fps:g} frames a second"
        scaling.scaling_picture(found, title).savefig(options.picture, dpi=130)


def _probe(options: argparse.Namespace) -> int:
    found = probe_delay(
        _maker(options.env, options.kwargs),
        episodes=options.episodes,
        max_frames=options.max_frames,
        seed=options.seed,
        alternatives=options.alternatives,
    )
    facts = json.dumps({"env": options.env, **asdict(found)}, indent=1, allow_nan=False)
    if options.json not in (None, "-"):
        write_text_atomically(Path(options.json), facts + "\n")
    print(facts if options.json == "-" else found)
    return 1 if found.lag is None else 0


def _maker(env: str, kwargs: str) -> Callable[[], gym.Env[Any, Any]]:
    """Return a function that makes the environment; every mistake in its name or arguments is a ValueError.

    An Atari game's id needs no import of ale_py, nor a module of the working directory anything but its name.
    """
    try:
        given = json.loads(kwargs)
    except json.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise ValueError(f"""--kwargs must be a JSON object, such as '{{"frameskip": 1}}', got {kwargs!r}""")
    if env.startswith("ALE/"):
        with suppress(ImportError):
            gym.register_envs(import_module("ale_py"))
    sys.path.append(os.getcwd())
    make = partial(create_gym_environment, env, given)
    try:
        make().close()
    except TypeError as error:
        raise ValueError(f"--kwargs {kwargs} does not fit {env!r} ({error})") from None
    return make


def _score(options: argparse.Namespace) -> int:
    """Print a policy's scores, and a line for each game and delay as they are played."""
    played: list[GameScore] = []

    def show(score: GameScore) -> None:
        played.append(score)
        print(score, file=sys.stderr, flush=True)

    action = options.default_action
    try:
        found = score_policy(
            _function("--policy", options.policy, "my_policy:make_policy"),
            options.games,
            options.delays,
            options.way,
            options.episodes,
            seed=options.seed,
            default_action=int(action) if action.isdecimal() else action,
            wrappers=[
                _function("--wrapper", name, "gymnasium.wrappers:FlattenObservation") for name in options.wrapper
            ],
            progress=show,
        )
    except KeyboardInterrupt:
        words = f"after {played[-1].game} at delay {played[-1].delay}" if played else "no game was played to its end"
        print(f"\ninterrupted: {words}", file=sys.stderr)
        return 130
    facts = json.dumps({"policy": options.policy, **found.to_dict()}, indent=1, allow_nan=False)
    try:
        if options.csv is not None:
            found.to_csv(options.csv)
        if options.json not in (None, "-"):
            write_text_atomically(Path(options.json), facts + "\n")
    finally:  # a full disk does not take the table too
        print(facts if options.json == "-" else found)
    return 0


def _convert(options: argparse.Namespace) -> None:
    for flag in ("task", "images"):
        if options.to != "lerobot" and getattr(options, flag):
            raise ValueError(f"--{flag} is of --to lerobot, got it with --to {options.to}: leave it out")
    if options.to == "minari":
        done = to_minari(options.directory, options.output)
    elif options.to == "lerobot":
        done = to_lerobot(options.directory, options.output, options.task or "recorded", videos=not options.images)
    else:
        done = from_lerobot(options.directory, options.output)
    print(f"{done.episodes} episodes, {done.frames} frames: {done.path}")


def _refuse_unwritable(flag: str, file: str | None) -> None:
    """Refuse a file that cannot be written, before what it is to hold takes its time."""
    if file in (None, "-"):
        return
    path = Path(str(file)).absolute()
    if not path.parent.is_dir():
        raise ValueError(f"{flag} must be a file in a directory that exists, got {file!r}")
    if path.is_dir():
        raise ValueError(f"{flag} must be a file, got the directory {file!r}")
    # A file is written beside its place and renamed, a device as it is.
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise ValueError(f"{flag} must be a file that can be written, got {file!r}")


def _doctor(options: argparse.Namespace) -> None:
    found = examine(options.hz, options.seconds)
    facts = json.dumps(found.to_dict(), indent=1, allow_nan=False)
    if options.json not in (None, "-"):
        write_text_atomically(Path(options.json), facts + "\n")
    print(facts if options.json == "-" else found)


def _serve(options: argparse.Namespace) -> None:
    """Serve until a signal; what another package's modules need is imported here, as no other command needs it."""
    from async_wrappers.live.remote.address import Address, as_token
    from async_wrappers.live.remote.server import PolicyServer

    bind = Address.of("--bind", options.bind)
    token = None if options.token_file is None else as_token("--token-file", _first_line(options.token_file))
    backend = "thread" if options.threads else "process"
    factory = _function("MODULE:FACTORY", options.factory, "my_policy:make_policy")
    server = PolicyServer(factory, options.bind, options.workers, token=token, backend=backend)
    if token is None and not bind.is_local:
        print(
            f"warning: anybody who reaches {options.bind} can use the policy: give --token-file, or bind the loopback "
            "address and reach it through a tunnel",
            file=sys.stderr,
        )
    inferences = "1 worker" if options.workers == 1 else f"{options.workers} workers"
    server.serve(lambda address: print(f"{options.factory} is served at {address} by {inferences}", flush=True))


def _first_line(file: str) -> str:
    """Return the token that a file holds."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(
            f"--token-file must be a file that can be read, got {file!r}: {why}; "
            "`openssl rand -hex 32 > token` makes one, named token"
        ) from None
    if not lines:
        raise ValueError(f"--token-file must have the token in its first line, and {file} is empty")
    return lines[0].strip()


def _function(flag: str, name: str, example: str) -> Callable[..., Any]:
    """Return the function that MODULE:FUNCTION names; modules of the working directory count."""
    module, _, attribute = name.partition(":")
    wanted = f"{flag} must name a function, such as {example}, got {name!r}"
    if not module or module.startswith(".") or not attribute:
        raise ValueError(wanted)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{wanted}: {error}") from None
        raise OwnCodeFailed(f"{wanted}, and importing {module} raised {in_one_line(error)}") from error
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ValueError(f"{wanted}: {error}") from None
    if not callable(found):
        raise ValueError(f"{wanted}: {found!r:.100}")
    function: Callable[..., Any] = found
    return function


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int | None]] = {
    "plan": _plan,
    "workers": _workers,
    "networks": _networks,
    "probe": _probe,
    "score": _score,
    "convert": _convert,
    "doctor": _doctor,
    "serve": _serve,
}


if __name__ == "__main__":
    let_all_be_printed()
    sys.exit(in_pipeline(main))
