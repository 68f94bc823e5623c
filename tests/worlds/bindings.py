"""A fixture for tests that bind gin's parameters."""

from __future__ import annotations

from collections.abc import Iterator

import gin
import pytest
import torch


@pytest.fixture(autouse=True)
def no_bindings() -> Iterator[None]:
    """Leave gin without bindings, and PyTorch's threads as they were."""
    threads = torch.get_num_threads()
    gin.clear_config()
    yield
    gin.clear_config()
    torch.set_num_threads(threads)
