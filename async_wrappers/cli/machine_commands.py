"""``probe``, ``convert``, ``doctor`` and ``serve``: commands about an environment, a recording, or this machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym

from async_wrappers.analysis.doctor import examine
from async_wrappers.analysis.probing import probe_delay
from async_wrappers.cli.command_arguments import add_json, function_named, tell
from async_wrappers.envs.factories import create_gym_environment
from async_wrappers.files import path_of
from async_wrappers.live.recording.convert import from_lerobot, to_lerobot, to_minari
from async_wrappers.live.report.report import as_json


def add_probe(commands: Any) -> None:
    """Add `probe`."""
    probe = commands.add_parser("probe", help="the delay that an environment hides already, found by comparing runs")
    probe.add_argument("env", metavar="ENV", help="a Gymnasium id: CartPole-v1, ALE/Pong-v5 or my_module:MyEnv-v0")
    probe.add_argument(
        "--kwargs", default="{}", metavar="JSON", help="""arguments of gymnasium.make: '{"frameskip": 1}'"""
    )
    probe.add_argument("--episodes", type=int, default=8, help="episodes, each with a seed of its own (8)")
    probe.add_argument("--max-frames", type=int, default=60, help="frames of an episode that are looked at (60)")
    probe.add_argument("--seed", type=int, default=0, help="of the first episode and of the actions (0)")
    probe.add_argument("--alternatives", type=int, default=2, help="other actions that are tried on a frame (2)")
    add_json(probe)
    probe.set_defaults(run=_probe)


def add_convert(commands: Any) -> None:
    """Add `convert`."""
    convert = commands.add_parser("convert", help="a recording of a live run as a dataset of Minari's or LeRobot's")
    convert.add_argument("directory", metavar="DIR", help="the recording; with --to recording a LeRobot dataset")
    convert.add_argument("--to", required=True, choices=("minari", "lerobot", "recording"), help="what it becomes")
    convert.add_argument("--output", required=True, metavar="NAME_OR_DIR", help="a new directory, or a Minari id")
    convert.add_argument("--task", help="for LeRobot: what the robot was to do, in words (recorded)")
    convert.add_argument("--images", action="store_true", help="for LeRobot: keep each picture as it is, no videos")
    convert.set_defaults(run=_convert)


def add_doctor(commands: Any) -> None:
    """Add `doctor`."""
    doctor = commands.add_parser("doctor", help="how punctual a loop is on this machine, and which setting is missing")
    doctor.add_argument("--hz", type=float, default=1000.0, help="frames per second (1000)")
    doctor.add_argument("--seconds", type=float, default=10.0, help="of each of four measurements (10)")
    doctor.add_argument(
        "--machine", metavar="MODULE:FACTORY", help="a function that makes a Machine; the ages of its sensors, at rest"
    )
    add_json(doctor)
    doctor.set_defaults(run=_doctor)


def _probe(options: argparse.Namespace) -> int:
    found = probe_delay(
        _maker(options.env, options.kwargs),
        episodes=options.episodes,
        max_frames=options.max_frames,
        seed=options.seed,
        alternatives=options.alternatives,
    )
    tell(found, as_json({"env": options.env, **asdict(found)}), options.json)
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


def _doctor(options: argparse.Namespace) -> None:
    machine = None if options.machine is None else function_named("--machine", options.machine, "my_robot:make_robot")
    found = examine(options.hz, options.seconds, make_machine=machine)
    tell(found, found.to_dict(), options.json)


# ``serve``: a policy for runs on other machines.


SERVED_AT = "tcp://127.0.0.1:5555"


def add_serve(commands: Any) -> None:
    """Add the command."""
    serve = commands.add_parser("serve", help="a policy for AsyncRunners on other machines, until Ctrl-C or SIGTERM")
    serve.add_argument("factory", metavar="MODULE:FACTORY", help="a function without arguments that makes the policy")
    serve.add_argument(
        "--bind", default=SERVED_AT, metavar="ADDRESS", help=f"tcp://host:port or unix://path ({SERVED_AT})"
    )
    serve.add_argument("--workers", type=int, default=1, help="inferences at a time, of all runs together (1)")
    serve.add_argument("--threads", action="store_true", help="workers are threads of one process (processes)")
    serve.add_argument("--token-file", metavar="FILE", help="its first line is a secret that runners must have too")
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> None:
    """Serve until a signal; what another package's modules need is imported here, as no other command needs it."""
    from async_wrappers.live.remote.address import Address, as_token
    from async_wrappers.live.remote.server import PolicyServer

    bind = Address.of("--bind", options.bind)
    token = None if options.token_file is None else as_token("--token-file", _first_line(options.token_file))
    backend = "thread" if options.threads else "process"
    factory = function_named("MODULE:FACTORY", options.factory, "my_policy:make_policy")
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
        lines = path_of(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(
            f"--token-file must be a file that can be read, got {file!r}: {why}; "
            "`openssl rand -hex 32 > token` makes one, named token"
        ) from None
    if not lines:
        raise ValueError(f"--token-file must have the token in its first line, and {file} is empty")
    return lines[0].strip()
