"""Comparing states bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def assert_identical(left: Any, right: Any, where: str = "state") -> None:
    """Compare nested mappings and sequences of tensors, arrays and plain values, types included."""
    assert type(left) is type(right), f"{where}: {type(left)} and {type(right)}"
    if isinstance(left, Mapping):
        assert list(left) == list(right), f"{where}: other keys or another order"
        for key in left:
            assert_identical(left[key], right[key], f"{where}[{key!r}]")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), f"{where}: {len(left)} and {len(right)} elements"
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_identical(one, other, f"{where}[{index}]")
    elif isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and torch.equal(left, right), f"{where}: {left} and {right}"
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, f"{where}: {left.dtype} and {right.dtype}"
        np.testing.assert_array_equal(left, right, err_msg=where)
    else:
        assert left == right, f"{where}: {left!r} and {right!r}"


def differs(left: Any, right: Any) -> bool:
    """Whether `assert_identical` finds a difference."""
    try:
        assert_identical(left, right)
    except AssertionError:
        return True
    return False
