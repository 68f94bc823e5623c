""" "Same" padding against an example worked by hand, and against plain loops over windows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.networks.torsos import SameConv2d, SameMaxPool2d, same_padding, size_after

Images = npt.NDArray[np.float64]

SIXTEEN = torch.arange(1.0, 17.0).view(1, 1, 4, 4)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "after"),
    [
        (84, 8, 4, (2, 2), 21),  # the Nature network
        (21, 4, 2, (1, 2), 11),
        (11, 3, 1, (1, 1), 11),
        (84, 3, 2, (0, 1), 42),  # IMPALA's pooling
        (21, 3, 2, (1, 1), 11),
        (5, 1, 3, (0, 0), 2),
        (1, 8, 4, (3, 4), 1),
    ],
)
def test_the_paddings_of_known_layers(
    size: int, kernel: int, stride: int, padding: tuple[int, int], after: int
) -> None:
    assert same_padding(size, kernel, stride) == padding
    assert size_after(size, kernel, stride, "same") == after


def test_what_is_odd_is_padded_below_and_to_the_right() -> None:
    convolution = SameConv2d(1, 1, kernel=3, stride=2)
    with torch.no_grad():
        convolution.weight.fill_(1.0)
        convolution.bias.fill_(0.5)  # type: ignore[union-attr]
        assert convolution(SIXTEEN).tolist() == [[[[54.5, 45.5], [72.5, 54.5]]]]
    assert SameMaxPool2d(3, 2)(SIXTEEN).tolist() == [[[[11.0, 12.0], [15.0, 16.0]]]]
    assert SameMaxPool2d(3, 2)(-SIXTEEN).tolist() == [[[[-1.0, -3.0], [-9.0, -11.0]]]]


def windows(images: Images, kernel: int, stride: int, fill: float) -> Images:
    """Each window of a padded batch, [B, C, H', W', kernel, kernel], written from the definition."""
    batch, channels, *sizes = images.shape
    counts = [math.ceil(size / stride) for size in sizes]
    found = np.full((batch, channels, *counts, kernel, kernel), fill)
    before = [max((n - 1) * stride + kernel - size, 0) // 2 for n, size in zip(counts, sizes, strict=True)]
    for i in range(counts[0]):
        for j in range(counts[1]):
            for y in range(kernel):
                for x in range(kernel):
                    row, column = i * stride + y - before[0], j * stride + x - before[1]
                    if 0 <= row < sizes[0] and 0 <= column < sizes[1]:
                        found[:, :, i, j, y, x] = images[:, :, row, column]
    return found


SIZES = st.integers(1, 13)
WINDOWS = {"height": SIZES, "width": SIZES, "kernel": st.integers(1, 6), "stride": st.integers(1, 5)}


@settings(deadline=None, max_examples=75)
@given(**WINDOWS, channels_last=st.booleans(), seed=st.integers(0, 2**31))
def test_a_convolution_is_the_sum_over_its_windows(
    height: int, width: int, kernel: int, stride: int, channels_last: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    images, weight, bias = (
        rng.normal(size=(2, 3, height, width)),
        rng.normal(size=(4, 3, kernel, kernel)),
        rng.normal(size=4),
    )
    expected = np.einsum("bchwyx,ocyx->bohw", windows(images, kernel, stride, 0.0), weight) + bias[:, None, None]
    convolution = SameConv2d(3, 4, kernel, stride).double()
    with torch.no_grad():
        convolution.weight.copy_(torch.from_numpy(weight))
        convolution.bias.copy_(torch.from_numpy(bias))  # type: ignore[union-attr]
        batch = torch.from_numpy(images)
        if channels_last:
            convolution, batch = (
                convolution.to(memory_format=torch.channels_last),
                batch.to(memory_format=torch.channels_last),
            )  # type: ignore[call-overload]
        found = convolution(batch)
    assert found.shape[2:] == (math.ceil(height / stride), math.ceil(width / stride))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=75)
@given(**WINDOWS, seed=st.integers(0, 2**31))
def test_a_pooling_is_the_maximum_of_its_windows_and_never_padding(
    height: int, width: int, kernel: int, stride: int, seed: int
) -> None:
    images = np.random.default_rng(seed).normal(size=(2, 3, height, width)) - 5.0  # below the zeros of a convolution's
    expected = windows(images, kernel, stride, -np.inf).max(axis=(4, 5))
    np.testing.assert_array_equal(SameMaxPool2d(kernel, stride)(torch.from_numpy(images)).numpy(), expected)


def test_padding_passes_gradients_on_as_the_windows_do() -> None:
    images = SIXTEEN.double().requires_grad_()
    layer = SameConv2d(1, 2, kernel=4, stride=3).double()
    assert torch.autograd.gradcheck(layer, (images,))
    assert torch.autograd.gradcheck(SameMaxPool2d(3, 2), (images,))
