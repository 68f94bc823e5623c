"""``serve``: a policy for runs on other machines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from async_wrappers.cli.flags import function_named

SERVED_AT = "tcp://127.0.0.1:5555"


def add(commands: Any) -> None:
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
