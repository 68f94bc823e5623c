"""Whether a network fits the observations and the agent, told in one sentence before anything is learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["check_fit"]


@torch.no_grad()
def check_fit(network: nn.Module, inputs: Sequence[Any], output_shape: tuple[int, ...], agent: str) -> None:
    """Try a network once.

    Args:
        network: Any.
        inputs: What it is called with, batches of one; the first are observations [1, k, *shape], or a dict of such.
        output_shape: What it must give for one observation.
        agent: Name of the agent.

    Raises:
        ValueError: It does not take the inputs, or gives something else.
    """
    observation, training = inputs[0], network.training
    kind = type(network).__name__
    try:
        output = network.eval()(*inputs)
    except Exception as error:  # whatever a network of the user's raises
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"network must take observations {_told(observation)} (stack_size first), and {kind} does not: {what}"
        ) from error
    network.train(training)
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if shape != (1, *output_shape):
        raise ValueError(
            f"network must give [B, {_sizes(output_shape)}] to agent {agent!r}, got {shape} from {kind} for one "
            "observation"
        )


def _told(observation: Any) -> str:
    if not isinstance(observation, Mapping):
        return f"[B, {_sizes(observation.shape[1:])}] of {observation.dtype}"
    return "{" + ", ".join(f"{key}: {_told(inner)}" for key, inner in observation.items()) + "}"


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))
