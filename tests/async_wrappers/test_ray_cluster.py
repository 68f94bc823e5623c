"""A connection to Ray, without Ray."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType

import pytest

from async_wrappers import ray_cluster
from async_wrappers.ray_cluster import Exits, NoCluster, connect_to_ray, exits_told, in_short


@pytest.mark.parametrize("ends", [SystemExit(0), SystemExit("no licence"), KeyboardInterrupt(), GeneratorExit()])
def test_what_ends_a_program_travels_in_its_words(ends: BaseException) -> None:
    with pytest.raises(Exits) as told, exits_told():
        raise ends
    assert str(told.value) == f"raised {ends!r}"


def test_other_exceptions_travel_as_they_are() -> None:
    with pytest.raises(LookupError, match="mine"), exits_told():
        raise LookupError("mine")


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("The actor died unexpectedly.\n\tpid: 3", "The actor died unexpectedly"),
        (
            "The actor died because of an error raised in its creation task, Host()\n  File x\nImportError: no x",
            "ImportError: no x",
        ),
        ("", "RuntimeError"),
    ],
)
def test_an_error_in_short_is_the_line_that_says_most(said: str, short: str) -> None:
    assert in_short(RuntimeError(said)) == short


def test_a_ray_that_does_not_start_here_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**given: object) -> None:
        raise Exception("The current node timed out\nduring startup.")

    fake = ModuleType("ray")
    fake.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(ray_cluster, "_on_the_loopback", nullcontext)
    with pytest.raises(NoCluster, match=r"^Ray does not start on this machine \(The current node timed out during st"):
        connect_to_ray(None)
