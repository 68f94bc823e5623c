"""A check, before anything is learnt, that a network fits the observations and the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["check_fit"]


@torch.no_grad()
def check_fit(network: nn.Module, inputs: Sequence[Any], output_shape: tuple[int, ...], agent: str) -> None:
    """Call a network once, on one observation, without gradients.

    Args:
        network: Any module; its mode, training or evaluation, is left as it was.
        inputs: Its arguments, batches of one; the first holds an observation [1, k, *shape], or a dict of such.
        output_shape: The shape of its output for one observation, without the batch.
        agent: The agent's name, for the message.

    Raises:
        ValueError: The network raises an error on the inputs, or its output has another shape.
    """
    observation, training = inputs[0], network.training
    kind = type(network).__name__
    try:
        output = network.eval()(*inputs)
    except Exception as error:  # a user's network may raise anything
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"network must take observations {_described(observation)} (stack_size first), and {kind} does not: {what}"
        ) from error
    network.train(training)
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if shape != (1, *output_shape):
        raise ValueError(
            f"network must give [B, {_sizes(output_shape)}] to agent {agent!r}, got {shape} from {kind} for one "
            "observation"
        )


def _described(observation: Any) -> str:
    if not isinstance(observation, Mapping):
        return f"[B, {_sizes(observation.shape[1:])}] of {observation.dtype}"
    return "{" + ", ".join(f"{key}: {_described(inner)}" for key, inner in observation.items()) + "}"


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))
