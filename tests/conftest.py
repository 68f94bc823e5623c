"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
from contextlib import suppress

import pytest
from hypothesis import settings

# An assertion that fails in a contract, or in a world, is to show what was compared, as one in a test does.
pytest.register_assert_rewrite("tests.contracts", "tests.worlds")

# Of properties that give no number of examples themselves; --hypothesis-profile=default tries 100.
settings.register_profile("every day", settings(), max_examples=50)
settings.load_profile("every day")

# Two processes of tests with two threads each would compute more slowly; PyTorch reads it when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Runs write and remove thousands of small files, which take a disk a minute or two and memory none.
with suppress(OSError):
    if shutil.disk_usage("/dev/shm").free > 4e9:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# Live play collects garbage before each phase, and unfreezes at its end what was frozen. Whether anything is frozen
# is noted here, since `gc.get_freeze_count` counts it: a tenth of a second beside all tests.
_collect, _unfreeze, _thawed = gc.collect, gc.unfreeze, [True]  # some tests put others in their places


def _note_unfreezing() -> None:
    _unfreeze()
    _thawed.append(True)


gc.unfreeze = _note_unfreezing


def pytest_collection_finish() -> None:
    """Let no collection of garbage look at 13,000 tests and what they import."""
    _collect()
    gc.freeze()
    _thawed.clear()


def pytest_runtest_setup() -> None:
    """Freeze again what the end of a live phase has unfrozen, but for what the last test has left."""
    if _thawed:
        _thawed.clear()
        _collect(1)
        gc.freeze()
