"""A fixture for tests that export: PyTorch reads the sources of its 500 operators anew for each graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry

__all__ = ["operators_read_once"]


@pytest.fixture(scope="module", autouse=True)
def operators_read_once() -> Iterator[None]:
    """Keep the table of operators, which is a quarter of the time of an export and the same for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield
