"""Cores: what a network over sequences remembers, carried from row to row.

A core is an ``nn.Module``, made from F, that maps features [T, B, F] and a state [B, S] to outputs [T, B, output_size]
and the next state. Its attributes `output_size` and `state_size` say what it gives, and what it remembers, S.

The cell is called row by row. `nn.LSTM` on the pieces between two resets takes as long on a CPU, since with dozens of
environments some episode begins on nearly every row; packed sequences take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real

import gin
import torch
from torch import Tensor, nn

from async_wrappers.agents.networks.torsos import (
    check_sizes,
)


@gin.configurable(module="agents")
class LSTMCore(nn.Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; with forget gates, Gers et al. 2000).

    Args:
        input_size: Features of a row, F.
        hidden: Units.
        forget_bias: Added to the first biases of the forget gates, which PyTorch draws around 0. With 0 half of the
            cell is forgotten on each row, so that a thousandth is left after ten rows; with 3 about 60 % is left (Gers
            et al. 2000; Jozefowicz et al. 2015). Keras, and with it SEED RL, adds 1.

    Attributes:
        output_size: `hidden`.
        state_size: 2 `hidden`: the output and the cell.

    Raises:
        ValueError: A size is not positive, or `forget_bias` is not a finite number.
    """

    def __init__(self, input_size: int, hidden: int = 256, forget_bias: float = 0.0) -> None:
        super().__init__()
        check_sizes("input_size", [input_size])
        check_sizes("LSTMCore.hidden", [hidden])
        if isinstance(forget_bias, bool) or not isinstance(forget_bias, Real) or not math.isfinite(forget_bias):
            raise ValueError(f"LSTMCore.forget_bias must be a finite number, got {forget_bias!r}")
        self.output_size, self.state_size = hidden, 2 * hidden
        self.cell: nn.LSTMCell = nn.LSTMCell(input_size, hidden)
        if forget_bias:
            with torch.no_grad():
                self.cell.bias_hh[hidden : 2 * hidden] += forget_bias  # the gates in, forget, cell, out

    def forward(self, features: Tensor, state: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Carry the state over T rows.

        Args:
            features: `[T, B, F]`.
            state: What was left before the first row, `[B, state_size]`.
            first: Bool `[T, B]`, True where an episode begins: the state is zeros there.

        Returns:
            Outputs `[T, B, output_size]`, and the state after the last row.
        """
        hidden, cell = state.chunk(2, dim=1)
        outputs = []
        for row, begins in zip(features.unbind(), first.unsqueeze(2).unbind(), strict=True):
            hidden, cell = self.cell(row, (hidden.masked_fill(begins, 0.0), cell.masked_fill(begins, 0.0)))
            outputs.append(hidden)
        return torch.stack(outputs), torch.cat([hidden, cell], dim=1)


@gin.configurable(module="agents")
class GRUCore(nn.Module):
    """Gated recurrent units (Cho et al. 2014): half the state of `LSTMCore`, three quarters of its weights.

    Args:
        input_size: Features of a row, F.
        hidden: Units.

    Attributes:
        output_size: `hidden`.
        state_size: `hidden`.

    Raises:
        ValueError: A size is not positive.
    """

    def __init__(self, input_size: int, hidden: int = 256) -> None:
        super().__init__()
        check_sizes("input_size", [input_size])
        check_sizes("GRUCore.hidden", [hidden])
        self.output_size = self.state_size = hidden
        self.cell = nn.GRUCell(input_size, hidden)

    def forward(self, features: Tensor, state: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Carry the state over T rows; see `LSTMCore.forward`."""
        outputs = []
        for row, begins in zip(features.unbind(), first.unsqueeze(2).unbind(), strict=True):
            state = self.cell(row, state.masked_fill(begins, 0.0))
            outputs.append(state)
        return torch.stack(outputs), state


class NoCore(nn.Module):
    """Features pass unchanged; there is no state."""

    state_size = 0

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.output_size = input_size

    def forward(self, features: Tensor, state: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Return the arguments."""
        return features, state


CORES: Mapping[str, Callable[[int], nn.Module]] = {"lstm": LSTMCore, "gru": GRUCore}
