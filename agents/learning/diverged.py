"""Checks that end a run before its weights are spoilt: of losses, weights and observations that are not finite, and of
weights that are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from async_wrappers.agents.spaces.schema import each_array, in_brackets, leaves
from async_wrappers.array_libraries import on_host
from async_wrappers.files import write_atomically

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # a network takes each in its own


class DivergedError(RuntimeError):
    """The loss is not finite, and the message names the file that holds the batch; or a weight is not.

    If the environment's own reward or observation is not finite, the message names it.
    """

    ends_run = True  # live too: a restarted learner would lose its replay, and diverge again


def refuse_loss(
    loss: float,
    update: int,
    arrays: Mapping[str, Any],
    state: Callable[[], Mapping[str, Any]],
    directory: str | Path | None,
) -> NoReturn:
    """Refuse a loss that is not finite, and write down the batch and the state that led to it.

    Args:
        loss: On the host.
        update: Its number.
        arrays: The batch as the replay gave it.
        state: Returns the learner's state.
        directory: Where the file goes; None for the working directory.

    Raises:
        DivergedError: Always.
    """
    path = (Path(directory or ".") / f"diverged_batch_{update}.pt").resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = on_host(arrays)
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


def refuse_statistics(rows: Any) -> NoReturn:
    """Refuse statistics of observations that are not finite: clipping hides the observation that spoilt them.

    Args:
        rows: The observations that were added, [N, k, *shape] or a dict of such.

    Raises:
        DivergedError: Always.
    """
    read = {"observation": each_array(lambda tensor: tensor.cpu().numpy(), rows)}
    culprit = _not_finite_of_the_environment(read) or "an observation that is too large for float32"
    raise DivergedError(
        f"the environment returned {culprit}, which spoils the running statistics that observations are normalised by; "
        "mend the environment, or clip what it returns"
    )


def check_loaded(network: nn.Module, state: Mapping[str, Any]) -> None:
    """Refuse a learner's state whose weights a network cannot take, or cannot act with.

    Args:
        network: Would load them.
        state: As `learner.Learner.state_dict` returns it.

    Raises:
        ValueError: They are no tensors, of another network, or not finite.
    """
    weights = state.get("network")
    if not isinstance(weights, Mapping):
        raise ValueError(f'the state must have weights by name as its "network", and has {type(weights).__name__}')
    own = network.state_dict()
    for name in [*own, *weights]:
        here, there = (_kind_of(each.get(name)) for each in (own, weights))
        if here != there:
            raise ValueError(
                f"the state is that of another network ({name} has {there} there, {here} here): make the network alike"
            )
    learnt = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    for name, weight in weights.items():
        if not isinstance(weight, Tensor) or weight.dtype not in _FLOATS:
            continue
        # A buffer may be infinite, as a mask is.
        if not weight.isfinite().all() and (name in learnt or weight.isnan().any()):
            raise ValueError(f"{name} is not finite in the state: take another one")


def cause_of_action(error: ValueError, network: nn.Module, read: Mapping[str, Any]) -> DivergedError:
    """Return why an action is no finite number: what the environment returned, or the weights.

    Args:
        error: Names the agent and the action, and the weights as the cause.
        network: Chose it.
        read: What it read, as arrays: ``"observation"``, stacks [R, k, *shape], and ``"reward"``, [R], or neither.
    """
    chose = str(error).partition(":")[0]
    if (culprit := _not_finite_of_the_environment(on_host(read))) is not None:
        return DivergedError(
            f"the environment returned {culprit}, for which {chose}; mend the environment, or clip what it returns"
        )
    if all(bool(weight.isfinite().all()) for weight in network.parameters()):
        return DivergedError(
            f"{chose}, though its weights are finite: what it observed is not, or is too large for float32; mend the "
            "environment, or scale what it returns"
        )
    return DivergedError(str(error))


def _kind_of(weight: Any) -> str:
    """Return what two weights must share, in words."""
    if not isinstance(weight, Tensor):
        return "no weights" if weight is None else f"a {type(weight).__name__}"
    numbers = "" if weight.dtype in _FLOATS else f" of {str(weight.dtype).removeprefix('torch.')}"
    return f"the shape {list(weight.shape)}{numbers}"


def _not_finite_of_the_environment(arrays: Mapping[str, Any]) -> str | None:
    """Name the reward or observation of arrays that is not finite; None where all are."""
    rewards = {"reward": arrays["reward"]} if "reward" in arrays else {}
    observed = {name.replace("_", " "): arrays[name] for name in ("observation", "next_observation") if name in arrays}
    named = {f"{name}{in_brackets(path)}": array for name, tree in observed.items() for path, array in leaves(tree)}
    for name, array in {**rewards, **named}.items():
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
