"""What stands between the loop's choice and a machine: limits, a dry run, and a deadman's switch."""

# A frame passes these in this order:
#
#   deadman let go -> the run is paused, and the frame's action is the safe action (`EnvironmentLoop._watch`)
#   choice         -> a decision's action, the default action, or the safe action
#   wait           -> nearly a frame since the last send (`schedule/frames.py`)
#   a last look    -> a deadman let go by now, if half a frame has passed: the safe action takes the place of the choice
#   limits         -> the action that may be sent (`wrappers/limits.py`): default and safe actions are limited too. The
#                     last that they ask is the time, as whatever has come before may have taken long
#   dry run        -> it is written down and not sent
#   send           -> what was really sent, as the machine says
#
# All of this runs in the loop's process. If that is stopped by the kernel or killed, nothing is sent at all: only the
# drive's own watchdog can bring a machine to rest then.

from __future__ import annotations

import inspect
import os
import reprlib
import stat
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.files import path_of
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.live.world.machine import Halves, MachineEnv, Outcome
from async_wrappers.schedule.frames import fastest
from async_wrappers.wrappers.copies import own_copy
from async_wrappers.wrappers.limits import Limiter

_KEPT = 100_000  # newest actions of a dry run
_MOMENT = 1_000_000_000  # nanoseconds that a run waits for a deadman before it says so
_SHORT = reprlib.Repr()
_SHORT.maxother = 100  # characters
_LATER = inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction


class Guard:
    """The halves of a world, with limits before the first one; a dry run leaves the first one out.

    Args:
        halves: Of the environment or machine.
        limiter: Limits what is sent; None for no limits.
        dry_run: Whether nothing is sent.
        is_at_rest: Asked just before something is sent whether nothing was for so long that what moved has stopped.

    Attributes:
        changed: Whether a limit has changed the newest action.
        limited: Frames since `begin_run` on which another action was sent than was chosen.
        unsent: The newest actions of a dry run.
    """

    def __init__(self, halves: Halves, limiter: Limiter | None, dry_run: bool, is_at_rest: Callable[[], bool]) -> None:
        self._halves, self._limiter, self._dry_run, self._is_at_rest = halves, limiter, dry_run, is_at_rest
        self.reads_late = halves.reads_late
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a run, with a soft start if there is one."""
        self.limited, self.changed = 0, False
        self.unsent: deque[Any] = deque(maxlen=_KEPT)
        if self._limiter is not None:
            self._limiter.begin_run()

    def begin_episode(self) -> None:
        """Begin an episode: the machine is at rest."""
        if self._limiter is not None:
            self._limiter.begin()

    @property
    def limiters(self) -> list[Limiter]:
        """What limits actions; empty for no limits."""
        return [] if self._limiter is None else [self._limiter]

    def send(self, action: Any) -> Any:
        """Send what may be sent of an action; return what was sent if it differs, else None."""
        changed = False
        if self._limiter is not None:
            action, changed = self._limiter(action, self._is_at_rest)
            self.limited += changed
            self.changed = changed
        if self._dry_run:
            self.unsent.append(own_copy(action))
            sent = None
        else:
            sent = self._halves.send(own_copy(action) if changed else action)
        return action if sent is None and changed else sent

    def leave(self, action: Any) -> None:
        """Send the last action of an episode, which is no frame's."""
        limited, unsent = self.limited, self.unsent.copy()
        self.send(action)
        self.limited, self.unsent = limited, unsent

    def observe(self) -> Outcome:
        """Return what came of it."""
        return self._halves.observe()

    def abandon(self) -> None:
        """Bring a machine to rest after an error."""
        self._halves.abandon()


def guard_of(
    config: LoopConfig,
    env: gym.Env[Any, Any],
    halves: Halves,
    warns: Callable[[str], None],
    is_at_rest: Callable[[], bool],
) -> Guard | None:
    """Return the guard that the settings ask for; None if they ask for none.

    A machine's limits per second hold on the wall, also where it is sent to a little sooner than a frame after the
    last time. They are the same on the virtual clock.

    Raises:
        ValueError: The limits do not fit the actions, or a dry run of an environment, which has to be stepped.
    """
    if config.dry_run and not isinstance(env, MachineEnv):
        raise ValueError(f"dry_run=True needs a make_env that makes a Machine, as an environment is stepped, got {env}")
    if config.limits is None and not config.dry_run:
        return None
    fps = fastest(config.fps) if halves.reads_late else config.fps
    limiter = None if config.limits is None else Limiter(config.limits, env, fps, warns)
    return Guard(halves, limiter, config.dry_run, is_at_rest)


class Deadman:
    """A switch that has to be held: a function, or a file that somebody touches again and again.

    Args:
        source: A function that returns whether it is held (only True holds), which must be quick; or the file's path.
        timeout: Of a file: nanoseconds since it was touched after which it counts as let go.
        now: The time, in nanoseconds.
        warns: Called once with a sentence, where the function raises or returns neither True nor False, or the file was
            never there; and once where a run waits for it (`remind`).

    Attributes:
        released: How often it was found let go while it counted as held.
    """

    def __init__(
        self, source: Any, timeout: int, now: Callable[[], int], warns: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._is_path, self._warned = not callable(source), False
        self._source: Any = path_of(source) if self._is_path else source
        self._timeout, self._now, self._warns = timeout, now, warns
        self._waits: int | None = None  # since when a run waits for it
        self._reminded = False
        self._touched: int | None = None  # when the file says that it was touched last
        self._touch = -timeout - 1  # when that was at the earliest, on our clock
        self._looked = 0  # when the file was looked at last, on our clock

    def held(self) -> bool:
        """Return whether it is held now; what cannot be told counts as let go."""
        if self._is_path:
            return self._is_touched()
        try:
            answer = self._source()
        except Exception as error:
            self._warn(f"deadman raised {type(error).__name__}: {error}")
            return False
        if isinstance(answer, bool | np.bool_):  # truth has to be said: a method, a coroutine and NaN are true as well
            return bool(answer)
        if inspect.iscoroutine(answer):
            answer.close()  # else Python warns that nobody awaits it
        self._warn(f"deadman must return True or False, got {' '.join(_SHORT.repr(answer).split())}")
        return False

    def remind(self, waits: bool) -> None:
        """Note whether a run waits for it; say once, after a moment, that it does, and what to do."""
        if not waits:
            self._waits = None
            return
        now = self._now()
        self._waits = now if self._waits is None else self._waits
        if not self._reminded and now - self._waits > _MOMENT:
            self._reminded = True
            self._warns(
                "the run waits before an episode, paused by its deadman, which was not held: hold it, then call "
                "resume() of the runner, from another thread or a signal's handler"
            )

    def _warn(self, what: str) -> None:
        """Say once why it counts as let go."""
        if not self._warned:
            self._warned = True
            self._warns(f"{what}; it counts as let go")

    def _is_touched(self) -> bool:
        now, before = self._now(), self._looked
        self._looked = now
        try:
            touched = os.stat(self._source).st_mtime_ns
        except (OSError, ValueError) as error:
            if self._touched is None:  # else somebody deleted it
                self._warn(f"deadman={str(self._source)!r} cannot be read ({getattr(error, 'strerror', error)})")
            return False
        if touched != self._touched:
            # The file says how old its touch is, by a clock that may be set, and jump. But the touch came after the
            # look before this one, which saw none. The first look sees no change, and has to believe the file.
            age = time.time_ns() - touched
            if self._touched is None:
                self._touch = now - max(0, age)
            else:
                self._touch = now - age if 0 <= age <= now - before else before
            self._touched = touched
        return now - self._touch <= self._timeout


def deadman_of(config: LoopConfig, now: Callable[[], int], warns: Callable[[str], None]) -> Deadman | None:
    """Return the deadman that the settings ask for; None if there is none."""
    if config.deadman is None:
        return None
    return Deadman(config.deadman, round(config.deadman_timeout * 1e6), now, warns)


def check_deadman(name: str, value: Any) -> Any:
    """Return a deadman's source, or raise a ValueError that names the argument."""
    wanted = "a function that returns whether it is held, or a path"
    if not (callable(value) or isinstance(value, str | Path)) or value == "":
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    if callable(value):
        _refuse_function(name, value)
        return value
    try:
        kind = os.stat(value).st_mode
    except FileNotFoundError:
        return value  # somebody may make it yet
    except (OSError, ValueError) as error:
        raise ValueError(f"{name} must be {wanted} that can be read, got {str(value)!r} ({error})") from None
    if stat.S_ISDIR(kind):
        raise ValueError(f"{name} must be {wanted} of a file, which somebody touches, got a directory, {str(value)!r}")
    return value


def _refuse_function(name: str, function: Any) -> None:
    """Refuse what can be seen not to return whether the switch is held when it is called without arguments."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    for each in (inner, getattr(inner, "__call__", None)):  # noqa: B004  # the method itself
        if any(is_kind(each) for is_kind in _LATER):
            raise ValueError(f"{name} must be a function that returns True or False at once, got {function!r}")
    try:
        inspect.signature(function).bind()
    except ValueError:  # some of C have no signature
        return
    except TypeError as error:
        raise ValueError(f"{name} must be a function without arguments, got {function!r}: {error}") from None
