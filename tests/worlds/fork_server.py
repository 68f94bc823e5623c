"""Fixtures with which children are forked from a server that has imported PyTorch: a new interpreter takes seconds."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver

import pytest

from async_wrappers.fleet.child import signals_blocked

__all__ = ["children_of_a_server", "fork_server"]

# What each learner and host imports in order to make what it is given: nine tenths of a short life.
_LIBRARIES = (
    "gymnasium.envs.classic_control",
    "hypothesis",
    "psutil",
    "pytest",
    "async_wrappers.agents.play.hosts.host",
    "async_wrappers.agents.registry",
    "async_wrappers.live.runner",
)
# The last of them ignores signals: see there.
_CHILDREN = ("async_wrappers.live.backends.mains", "async_wrappers.fleet.fork_server")


@pytest.fixture(scope="module")
def fork_server() -> None:
    """Let the fork server, if it is not there yet, import once what its children import."""
    forkserver.set_forkserver_preload([*_LIBRARIES, *_CHILDREN])
    with signals_blocked():
        forkserver.ensure_running()


@pytest.fixture
def children_of_a_server(fork_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that would be new interpreters are forked from the server."""
    get_context, server = multiprocessing.get_context, multiprocessing.get_context("forkserver")
    monkeypatch.setattr(
        multiprocessing, "get_context", lambda method=None: server if method == "spawn" else get_context(method)
    )
