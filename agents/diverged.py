"""Checks that end a run before its weights are spoilt: of losses, weights and observations that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from async_wrappers.agents.schema import each_array, in_brackets, leaves
from async_wrappers.files import write_atomically

__all__ = ["DivergedError", "check_loss", "check_weights"]


class DivergedError(RuntimeError):
    """The loss is not finite, and the message names the file that holds the batch; or a weight is not.

    If the environment's own reward or observation is not finite, the message names it.
    """

    ends_run = True  # live too: a restarted learner would lose its replay, and diverge again


def check_loss(
    loss: float,
    update: int,
    arrays: Mapping[str, Any],
    state: Callable[[], Mapping[str, Any]],
    directory: str | Path | None,
) -> None:
    """Refuse a loss that is not finite, and write down the batch and the state that led to it.

    Args:
        loss: On the host.
        update: Its number.
        arrays: The batch as the replay gave it.
        state: Returns the learner's state.
        directory: Where the file goes; None for the working directory.

    Raises:
        DivergedError: It is not finite.
    """
    if math.isfinite(loss):
        return
    path = (Path(directory or ".") / f"diverged_batch_{update}.pt").resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = each_array(lambda array: torch.from_numpy(np.ascontiguousarray(array)), arrays)
    write_atomically(path, lambda file: torch.save({"batch": tensors, "learner": state()}, file))
    stops = "learning stops before it spoils the weights: they and the batch are in"
    if (culprit := _not_finite_of_the_environment(arrays)) is not None:
        raise DivergedError(
            f"the environment returned {culprit}, which makes the loss of update {update} {loss}, and "
            f"{stops} {path}; mend the environment, or clip what it returns"
        )
    raise DivergedError(
        f"the loss of update {update} is {loss}, and {stops} {path}; a smaller learning rate or a "
        "max_gradient_norm may help"
    )


def check_weights(parameters: Mapping[str, Tensor], updates: int) -> None:
    """Refuse weights that are not finite: an infinite gradient of a finite loss spoils a weight.

    Args:
        parameters: By name.
        updates: Done so far.

    Raises:
        DivergedError: One is not finite.
    """
    for name, parameter in parameters.items():
        if not parameter.isfinite().all():
            raise DivergedError(
                f"{name} is not finite after update {updates}, though the loss was: a smaller learning rate "
                "or a max_gradient_norm may help"
            )


def _not_finite_of_the_environment(arrays: Mapping[str, Any]) -> str | None:
    """Name the reward or observation of a batch that is not finite; None where all are."""
    observed = {name.replace("_", " "): arrays[name] for name in ("observation", "next_observation") if name in arrays}
    named = {f"{name}{in_brackets(path)}": array for name, tree in observed.items() for path, array in leaves(tree)}
    for name, array in {"reward": arrays["reward"], **named}.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        at = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        place = list(at[2:]) or ""  # of the observation, not of batch and stack
        slot = ""
        if "index" in arrays:
            in_sequences = "first" in arrays
            of_what, number = ("sequence", at[1]) if in_sequences else ("transition", at[0])
            slot = f" ({of_what} {arrays['index'][number]} of the replay)"
        return f"{array[at]} as its {name}{place}{slot}"
    return None
