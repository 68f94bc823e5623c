"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
from contextlib import suppress
from itertools import accumulate, groupby

import cloudpickle
import pytest
from hypothesis import settings

# An assertion that fails in a contract, or in a world, is to show what was compared, as one in a test does.
pytest.register_assert_rewrite("tests.contracts", "tests.worlds")

# Of properties that give no number of examples themselves; --hypothesis-profile=default tries 100. An example has no
# deadline, since no test may depend on how busy the machine is.
settings.register_profile("every day", settings(deadline=None), max_examples=50)
settings.load_profile("every day")

# Two processes of tests with two threads each would compute more slowly; PyTorch reads it when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Runs write and remove thousands of small files, which take a disk a minute or two and memory none.
with suppress(OSError):
    if shutil.disk_usage("/dev/shm").free > 4e9:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

gc.disable()  # a third of the time in which 13,000 tests and what they import come into being


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules of live play among the others: they wait for a clock, and the others compute.

    A module's place is the share of its kind's tests that have come when it ends. Those that wait come sooner, so that
    no process of tests waits at the end while the others have nothing left to compute.
    """
    modules = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    parts: tuple[list[list[pytest.Item]], ...] = ([], [])
    for module in modules:
        parts["live" in module[0].path.parts].append(module)
    places = []
    for part, until in zip(parts, (1.0, 0.8), strict=True):
        ends = list(accumulate(map(len, part)))
        places += [(until * end / ends[-1], module) for end, module in zip(ends, part, strict=True)]
    items[:] = [item for _, module in sorted(places, key=lambda place: place[0]) for item in module]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let what a test sends to a process not import the test, and pytest with it, there: each time half a second."""
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        if module.__name__.startswith("tests.async_wrappers."):
            cloudpickle.register_pickle_by_value(module)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Let no collection of garbage look at the tests and what they import: live play collects before each phase."""
    gc.enable()
    gc.collect()
    gc.freeze()  # live play leaves it so
    gc.get_freeze_count = lambda: 1  # each phase of live play asks, and to count millions takes a twentieth of a second
