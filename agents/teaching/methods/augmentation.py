"""Shifted images: a student may learn from copies of its observations that are moved by some pixels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from async_wrappers.agents.hyperparameters import flag, must, settings
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.spaces.compute import Compute, drawn
from async_wrappers.agents.spec import Spec


@settings
class Augmented(Spec):
    """Lets a student learn from shifted images (DrQ: Kostrikov et al. 2020): a base to stand before `Student`."""

    compute: Compute  # of the agent

    data_augmentation: bool = flag(
        False,
        "Shift the images [H, W] of each row of a batch at random by up to 4 pixels, those of the observation and the "
        "next one each by themselves. The teacher sees them as they are.",
    )

    def settle(self) -> None:
        super().settle()  # type: ignore[misc]
        must(
            not self.data_augmentation or len(self.observation_space.shape or ()) == 2,
            f"data_augmentation must be False for observations that are no images [H, W], got {self.observation_space}",
        )

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the student's loss of a batch, whose images are shifted if that is asked for."""
        if self.data_augmentation:
            shifted = {name: self._shifted(batch[name], rng) for name in ("observation", "next_observation")}
            batch = {**batch, **shifted}
        output: LossOutput = super().loss(networks, batch, rng)  # type: ignore[misc]
        return output

    def _shifted(self, images: Tensor, rng: np.random.Generator) -> Tensor:
        size = (2, len(images), 1)
        return shifted(images, drawn(rng, lambda rng: rng.integers(-_PIXELS, _PIXELS + 1, size), self.compute.tensor))


_PIXELS = 4  # the largest shift


def shifted(images: Tensor, shifts: Tensor) -> Tensor:
    """Move the images of each row in both directions; what comes in repeats the edge.

    Args:
        images: [B, k, H, W]; all k of a row move alike.
        shifts: Pixels down and to the right, whole numbers [2, B, 1].

    Returns:
        The same shape and type.
    """
    rows, _, height, width = images.shape
    down = (torch.arange(height, device=images.device) + shifts[0]).clamp(0, height - 1)
    right = (torch.arange(width, device=images.device) + shifts[1]).clamp(0, width - 1)
    each = torch.arange(rows, device=images.device)
    # Indices of rows, heights and widths stand around the stack's axis, which therefore comes last.
    moved = images[each[:, None, None], :, down[:, :, None], right[:, None, :]]
    return moved.movedim(-1, 1)
