"""The command ``watch``: runs, sweeps and recordings in a browser or a terminal. Nothing is written."""

from __future__ import annotations

import errno
import os
import sys
from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.flags import UsageError, usage_errors
from async_wrappers.extras import extra

_NICE = 15  # as little of a busy machine as can be


def _give_way() -> None:
    """Let everything else go first, the run that is watched above all."""
    if hasattr(os, "nice"):
        os.nice(_NICE)


def run(options: Namespace) -> None:
    """Show what is read until Ctrl+C; in a terminal's stead, such as a file, once."""
    places = [Path(each) for each in options.dir or ["results"]]
    with extra("watch", "watch"):
        from async_wrappers.agents.watch.browser import LOOPBACK, PageServer
        from async_wrappers.agents.watch.checked_values import clean
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
            server = PageServer(watcher, options.host, options.port)
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
