"""A Ray of one process: actors answer at once, in the caller's thread, and die when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["FakeRay", "RayActorError", "RayTaskError"]


class RayTaskError(Exception):
    """What an actor's method has raised."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"Traceback of {cause}")
        self.cause = cause


class RayActorError(Exception):
    """An actor that has died."""


class RuntimeEnvSetupError(Exception):
    """A runtime environment that cannot be made."""


class _Reference:
    """A result of a call."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._future: Future[Any] = Future()
        try:
            self._future.set_result(run())
        except RayActorError as error:
            self._future.set_exception(error)
        except Exception as error:
            self._future.set_exception(RayTaskError(error))

    def future(self) -> Future[Any]:
        return self._future


class _Stored:
    """A value in the object store."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Actor:
    """One actor.

    Attributes:
        silent: Whether its answers never come.
        died: Why its calls fail; None while it lives.
    """

    def __init__(self, made: Any, gate: threading.Event) -> None:
        self._made, self._gate = made, gate
        self.silent, self.died = False, ""

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Any:
            self._gate.wait(60)
            if self.silent:
                return SimpleNamespace(future=Future)

            def run() -> Any:
                if self.died:
                    raise RayActorError(self.died)
                return getattr(self._made, name)(*(getattr(each, "value", each) for each in arguments))

            return _Reference(run)

        return SimpleNamespace(remote=remote)


class FakeRay(ModuleType):
    """What a `RayTransport` needs of Ray.

    Attributes:
        actors: All that were ever made.
        killed: Those that were ended.
        puts: Values in the object store.
        options: What an actor takes.
        born_dead: The reason for which actors die before they have begun; "" for none.
        gate: While it is closed, calls of actors do not return, as where the object store is full.
    """

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(
            RayTaskError=RayTaskError, RayActorError=RayActorError, RuntimeEnvSetupError=RuntimeEnvSetupError
        )
        self.actors: list[Actor] = []
        self.killed: list[Actor] = []
        self.puts: list[Any] = []
        self.options: dict[str, Any] = {}
        self.born_dead = ""
        self.gate = threading.Event()
        self.gate.set()

    def remote(self, kind: Any) -> Any:
        def make() -> Actor:
            actor = Actor(kind(), self.gate)
            actor.died = self.born_dead
            self.actors.append(actor)
            return actor

        def options(**given: Any) -> Any:
            self.options = given
            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    def put(self, value: Any) -> _Stored:
        self.puts.append(value)
        return _Stored(value)

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 4.0}
