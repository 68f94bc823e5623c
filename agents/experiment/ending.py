"""Ctrl+C and SIGTERM: a run that is asked to end continues until a checkpoint can be written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["Ending"]

_PATIENCE = 5.0  # seconds to wait for that moment at most
_WORDS = f"\nthe run ends where it can be continued, in {_PATIENCE:g} s at the latest; once more, and it ends at once\n"


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

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a first signal during the block set `asked`; a second one, or a block that is too slow, is interrupted.

        Signals that do not raise KeyboardInterrupt outside of the block are left alone, and so are those of a program
        whose block runs in another thread than the main one.

        Raises:
            KeyboardInterrupt: At such an interrupt, or at the block's end if the run was asked to end.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        mine = [number for number in numbers if signal.getsignal(number) is signal.default_int_handler]
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._waits:
            raise KeyboardInterrupt
        self.asked = True
        with suppress(OSError):  # nobody reads it, and a handler may interrupt a print
            os.write(2, _WORDS.encode())
        main = threading.get_ident()  # Python runs handlers in the main thread
        self._timer = threading.Timer(_PATIENCE, signal.pthread_kill, (main, number))
        self._timer.daemon = True
        self._timer.start()
