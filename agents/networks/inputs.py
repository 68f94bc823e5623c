"""What networks ask of their arguments: sizes above 0, and observations of the shape that they were built for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

__all__ = ["as_float32", "check_observation", "check_sizes"]


def check_sizes(argument: str, sizes: Iterable[int]) -> tuple[int, ...]:
    """Return sizes as a tuple.

    Args:
        argument: what the message calls them.
        sizes: numbers of channels, pixels, features, actions.

    Raises:
        ValueError: If one is not positive.
    """
    checked = tuple(sizes)
    for size in checked:
        if size <= 0:
            got = checked[0] if len(checked) == 1 else list(checked)
            raise ValueError(f"{argument} must be > 0, got {got}")
    return checked


def check_observation(observation: Any, observation_shape: Any, name: str = "observation") -> None:
    """Check that a batch fits the shape that a network was built for.

    Args:
        observation: A tensor, or a dict of tensors.
        observation_shape: Shape of one observation, without the batch; for a Dict, the shapes by key.
        name: What the message calls the batch.

    Raises:
        ValueError: If a tensor is not `[B, *observation_shape]`, or a dict has other keys.
    """
    if isinstance(observation_shape, Mapping):
        if not isinstance(observation, Mapping) or observation.keys() != observation_shape.keys():
            got = sorted(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"{name} must be a dict with the keys {sorted(observation_shape)}, got {got}")
        for key, shape in observation_shape.items():
            check_observation(observation[key], shape, f"{name}[{key!r}]")
        return
    expected = ", ".join(["B", *map(str, observation_shape)])
    if isinstance(observation, Mapping):
        raise ValueError(f"{name} must be a tensor [{expected}], got a dict with the keys {sorted(observation)}")
    if observation.shape[1:] != observation_shape:
        raise ValueError(
            f"{name} must have the shape [{expected}], got {list(observation.shape)}; "
            "add the batch dimension or build the network for this observation_shape"
        )


def as_float32(observation: Any) -> Any:
    """Return uint8 as floats in [0, 1], and floats as they are; those of a dict by key."""
    if isinstance(observation, Mapping):
        return {key: as_float32(entry) for key, entry in observation.items()}
    if observation.dtype == torch.uint8:
        # The conversion makes a fresh tensor, so dividing in place saves a second one and leaves the caller's alone.
        return observation.to(torch.float32).div_(255.0)
    if observation.is_floating_point():
        return observation.to(torch.float32)
    raise TypeError(f"observation must be uint8 or floating point, got {observation.dtype}; convert it with .float()")
