"""Tensors as NumPy arrays of the same bytes, and back; torch is imported only where there are tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["as_array", "as_given", "axes_by_stride", "is_dense", "is_tensor"]

Array = npt.NDArray[Any]


def is_tensor(value: Any) -> bool:
    """Return whether a value is a torch tensor."""
    torch = sys.modules.get("torch")  # there can be no tensor without it
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(value: Any) -> tuple[Array, str | None]:
    """Return an array over a tensor's bytes, and the name of its torch type; None for what is an array already.

    A type that NumPy lacks, such as bfloat16, travels as integers of its size.
    """
    if not is_tensor(value):
        return np.asarray(value), None
    import torch

    tensor = value.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return tensor.numpy(), name
    except TypeError:
        return tensor.view({1: torch.int8, 2: torch.int16}[tensor.itemsize]).numpy(), name


def as_given(array: Array, torch_dtype: str | None) -> Any:
    """Return a tensor over an array's bytes, or the array itself where `torch_dtype` is None."""
    if torch_dtype is None:
        return array
    import torch

    return torch.from_numpy(array).view(getattr(torch, torch_dtype))


def axes_by_stride(array: Array) -> Sequence[int]:
    """Return the axes from the one whose neighbours lie furthest apart to the one whose lie next to each other."""
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])


def is_dense(array: Array) -> bool:
    """Return whether the array's bytes lie without gaps or overlaps, in whatever order of axes."""
    expected = array.itemsize
    for axis in reversed(axes_by_stride(array)):
        if array.shape[axis] > 1:
            if array.strides[axis] != expected:
                return False
            expected *= array.shape[axis]
    return True
