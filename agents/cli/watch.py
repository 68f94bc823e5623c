"""Watch runs and sweeps, going on or finished, in a browser or in this terminal. Nothing is written."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.flags import Parser, UsageError, usage_errors
from async_wrappers.extras import extra

_NICE = 15  # as little of a busy machine as can be


def add_flags(parser: Parser) -> None:
    """Add the flags of ``watch``."""
    what = "directory of a run or a sweep, or one that holds some; several (results)"
    parser.add_argument("dir", metavar="DIR", nargs="*", help=what)
    parser.add_switch("text", "show it in this terminal")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1, this machine alone)")
    parser.add_argument("--port", type=_port, default=8600, help="port to listen on (8600; 0 takes a free one)")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 65535, got {text!r}")
    return int(text)


def _give_way() -> None:
    """Let everything else go first, the run that is watched above all."""
    if hasattr(os, "nice"):
        os.nice(_NICE)


def run(options: Namespace) -> None:
    """Show what is read until Ctrl+C; in a terminal's stead, such as a file, once."""
    places = [Path(each) for each in options.dir or ["results"]]
    with extra("watch", "watch"):
        from async_wrappers.agents.watch.browser import LOOPBACK, Server
        from async_wrappers.agents.watch.text import show
        from async_wrappers.agents.watch.watcher import Watcher
    with usage_errors():
        watcher = Watcher(places)
    try:
        if options.text:
            if sys.stdout.isatty():
                _give_way()
            show(watcher)
            return
        try:
            server = Server(watcher, options.host, options.port)
        except OSError as error:
            raise UsageError(
                f"--host {options.host} --port {options.port} cannot be listened on ({error.strerror}): give another "
                "--port, or 0 for a free one"
            ) from None
        seen = "" if options.host in LOOPBACK else "; everybody who reaches this machine can read it"
        print(f"watching {', '.join(map(str, places))} at {server.address} (Ctrl+C ends it){seen}", flush=True)
        _give_way()
        server.serve()
    except KeyboardInterrupt:
        print()
