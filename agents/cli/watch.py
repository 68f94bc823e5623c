"""Watch runs and sweeps, going on or finished, in a browser or in this terminal. Nothing is written."""

from __future__ import annotations

import argparse
import errno
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
    parser.add_argument("dir", type=os.path.expanduser, metavar="DIR", nargs="*", help=what)
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
        from async_wrappers.agents.watch.values import clean
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
            of_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
            remedy = "give another --port, or 0 for a free one" if of_port else "give --host an address of this machine"
            raise UsageError(
                f"--host {options.host} --port {options.port} cannot be listened on ({error.strerror}): {remedy}"
            ) from None
        print(f"watching {', '.join(map(clean, places))} at {server.address} (Ctrl+C ends it)", flush=True)
        if options.host not in LOOPBACK:
            port = server.address.rpartition(":")[2].rstrip("/")
            print(
                f"--host {options.host} lets everybody who reaches this machine read it: for yourself alone leave it "
                f"out, and open the page through `ssh -L {port}:127.0.0.1:{port} SERVER`",
                flush=True,
            )
        _give_way()
        server.serve()
    except KeyboardInterrupt:
        print()
