"""Ctrl+C and SIGTERM: a run that is asked to end cuts its episodes, writes a checkpoint and ends."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_PATIENCE = 5.0  # seconds to wait for the checkpoint to begin
_WORDS = (
    "\nthe run writes a checkpoint and ends; if it comes to none in {:g} s, it ends without; once more, and it ends at "
    "once\n"
)


class Ending:
    """Whether a signal has asked the run to end.

    Attributes:
        asked: Whether a signal came, or what plays has ended the run.
        reason: What is raised then, after the checkpoint.
    """

    def __init__(self) -> None:
        """Begin unasked."""
        self.asked = False
        self.reason: BaseException = KeyboardInterrupt()
        self._timer: threading.Timer | None = None
        self._writes = False  # a checkpoint, which may take longer
        self._stop: Callable[[], None] | None = None

    def ask(self, reason: BaseException) -> None:
        """Ask the run to end, and to raise this."""
        self.asked, self.reason = True, reason

    @contextmanager
    def deferred(self, stop: Callable[[], None] | None = None) -> Iterator[None]:
        """Let a first signal during the block set `asked`; a second one, or a block that is too slow, is interrupted.

        Signals that do not raise KeyboardInterrupt outside of the block are left alone, and so are those of a program
        whose block runs in another thread than the main one.

        Args:
            stop: Called by the first signal; None where the block looks at `asked`.

        Raises:
            KeyboardInterrupt: At such an interrupt, or at the block's end if a signal came.
        """
        self.asked = False
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        mine = [number for number in numbers if signal.getsignal(number) is signal.default_int_handler]
        self._stop = stop
        for number in mine:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            self._wait_no_more()
            for number in mine:
                signal.signal(number, signal.default_int_handler)
        if self.asked:
            raise self.reason

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let only a second signal interrupt the block, which writes a checkpoint, however long that takes."""
        self._wait_no_more()
        self._writes = True
        try:
            yield
        finally:
            self._writes = False

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.ask(KeyboardInterrupt())
        with suppress(OSError):  # nobody reads it, and a handler may interrupt a print
            os.write(2, _WORDS.format(_PATIENCE).encode())
        if self._writes:
            return
        main = threading.get_ident()  # Python runs handlers in the main thread
        self._timer = threading.Timer(_PATIENCE, _again, (main, number))
        self._timer.daemon = True
        self._timer.start()
        if self._stop is not None:
            self._stop()


def _again(main: int, number: int) -> None:
    """Give the main thread a signal once more; on Windows it is noticed between two of Python's instructions alone."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, number)
    else:
        _thread.interrupt_main(signal.Signals(number))
