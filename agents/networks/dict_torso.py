"""A torso for a Dict of observations, made of torsos for one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from agents.networks.inputs import check_sizes
from agents.networks.torsos import HIDDEN_SIZE, TorsoFactory, hidden_layer, output_size
from agents.trees import at, leaves

__all__ = ["DictTorso"]

_LEAST_IMAGE = 29  # pixels of height and width, the least that a convolutional torso takes


class DictTorso(nn.Module):
    """Torso for observations of several arrays, made of a torso for one.

    An entry ``[C, H, W]`` with H and W of at least 29 is an image, and read by a torso of its own. All other entries
    are flattened and concatenated, in the order of their keys in `observation_shape`. Where there are images, a fully
    connected layer of 512 and a ReLU join their features to that vector, so that what an image means can depend on it;
    where there are none, one torso reads the vector.

    Args:
        observation_shape: The shape of each entry by key; a dict of shapes for an entry that is a dict in its turn.
        torso: Makes the torso for each image, or for the vector, from its shape.

    Attributes:
        output_size: Number of features.

    Raises:
        ValueError: If there is no entry, or a shape does not suit the torso.
    """

    def __init__(self, observation_shape: Mapping[str, Any], torso: TorsoFactory) -> None:
        super().__init__()
        entries = [(path, check_sizes("observation_shape", shape)) for path, shape in leaves(observation_shape)]
        if not entries:
            raise ValueError("observation_shape must hold a shape, got an empty dict")
        images = [(path, shape) for path, shape in entries if len(shape) == 3 and min(shape[1:]) >= _LEAST_IMAGE]
        vectors = [entry for entry in entries if entry not in images]
        self._images, self._vectors = [path for path, _ in images], [path for path, _ in vectors]
        width = sum(math.prod(shape) for _, shape in vectors)
        self.torsos = nn.ModuleList([torso(shape) for _, shape in images] or [torso((width,))])
        self.output_size = sum(output_size(each) for each in self.torsos)
        self.join: nn.Module = nn.Identity()
        if images:
            self.join = nn.Sequential(*hidden_layer(self.output_size + width))
            self.output_size = HIDDEN_SIZE

    def forward(self, observation: Mapping[str, Any]) -> Tensor:
        """Map floats `[B, *shape]` of each entry to features `[B, output_size]`."""
        flat = [at(observation, path).flatten(1) for path in self._vectors]
        if not self._images:
            features: Tensor = self.torsos[0](torch.cat(flat, dim=1))
            return features
        images = [at(observation, path) for path in self._images]
        seen = [torso(image) for torso, image in zip(self.torsos, images, strict=True)]
        features = self.join(torch.cat([*seen, *flat], dim=1))
        return features
