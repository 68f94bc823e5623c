"""Ctrl+C and SIGTERM: a run that is asked to end continues until a checkpoint can be written."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_PATIENCE = 5.0  # seconds to wait for that moment, and once more for a cut
_WORDS = (
    "\nthe run writes a checkpoint and ends; if it comes to none in {:g} s, it ends without; once more, and it ends at "
    "once\n"
)


class Ending:
    """Whether a signal has asked the run to end.

    Attributes:
        asked: Whether a signal came.
    """

    def __init__(self) -> None:
        """See the class."""
        self.asked = False
        self._timer: threading.Timer | None = None
        self._waits = True
        self._cut: Callable[[], None] | None = None
        self._lock = threading.Lock()  # of the timer, but in the handler, which may interrupt its holder

    @contextmanager
    def deferred(self, cut: Callable[[], None] | None = None) -> Iterator[None]:
        """Let a first signal during the block set `asked`; a second one, or a block that is too slow, is interrupted.

        Signals that do not raise KeyboardInterrupt outside of the block are left alone, and so are those of a program
        whose block runs in another thread than the main one.

        Args:
            cut: Called in another thread when the time is up, to make a moment where the run can be continued; the
                block then has as much time again. None where there is no such way.

        Raises:
            KeyboardInterrupt: At such an interrupt, or at the block's end if the run was asked to end.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        mine = [number for number in numbers if signal.getsignal(number) is signal.default_int_handler]
        self._cut = cut
        for number in mine:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            self.wait_no_more()
            for number in mine:
                signal.signal(number, signal.default_int_handler)
        if self.asked:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal interrupt the block at once: it takes long, and nothing that it does is kept."""
        self._waits = False
        try:
            yield
        finally:
            self._waits = True

    def wait_no_more(self) -> None:
        """Note that a checkpoint can be written now: from here on only a second signal interrupts."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._waits:
            raise KeyboardInterrupt
        self.asked = True
        with suppress(OSError):  # nobody reads it, and a handler may interrupt a print
            os.write(2, _WORDS.format(_PATIENCE if self._cut is None else 2 * _PATIENCE).encode())
        main = threading.get_ident()  # Python runs handlers in the main thread
        self._begin_timer(self._cut_in_time if self._cut is not None else _again, main, number)

    def _begin_timer(self, function: Callable[..., None], main: int, number: int) -> None:
        self._timer = threading.Timer(_PATIENCE, function, (main, number))
        self._timer.daemon = True
        self._timer.start()

    def _cut_in_time(self, main: int, number: int) -> None:
        with self._lock:
            if self._timer is threading.current_thread() and self._cut is not None:
                self._begin_timer(_again, main, number)
                self._cut()


def _again(main: int, number: int) -> None:
    """Give the main thread a signal once more; on Windows it is noticed between two of Python's instructions alone."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, number)
    else:
        _thread.interrupt_main(signal.Signals(number))
