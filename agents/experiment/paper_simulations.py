"""The simulations of arXiv 2412.14355's table by name: ``asynchronous_8`` or ``sequential_8``, with 8 frames of delay.

A name stands for ``configs/paper/atari.gin`` with a delay of D frames and, for sequential interaction, D no-ops. It may
be written as a path, ``configs/paper/asynchronous_8.gin``, and be included by another gin file. If there is a file of
that name, the file wins.
"""

from __future__ import annotations

import io
import re
from typing import NamedTuple

import gin

__all__ = ["ATARI", "DELAYS", "SIMULATIONS", "Simulation", "find_simulation"]

ATARI = "configs/paper/atari.gin"
# Frames that the networks of the table take, from 55 k to 1 B parameters.
DELAYS = (1, 3, 5, 8, 29, 47, 70, 80, 599, 750)
SIMULATIONS = tuple(
    f"configs/paper/{interaction}_{delay}.gin" for interaction in ("asynchronous", "sequential") for delay in DELAYS
)
_NAME = re.compile(r"(?:configs/paper/)?(asynchronous|sequential)_(\d+)(?:\.gin)?")


class Simulation(NamedTuple):
    """A gin file, and the bindings that follow it."""

    file: str
    bindings: tuple[str, ...]


def find_simulation(name: str) -> Simulation | None:
    """Return the simulation of a name; None if the name is not of this kind.

    Raises:
        ValueError: The paper's table does not have the delay.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    delay = int(found[2])
    noops = 0 if found[1] == "asynchronous" else delay
    bindings = (f"RealtimeDelay.delay = {delay}", f"RealtimeDelay.noops = {noops}")
    if delay not in DELAYS:
        raise ValueError(
            f"the paper's table has no delay of {delay} frames, but {', '.join(map(str, DELAYS))}: for another one "
            f"take {ATARI} with --gin_bindings '{bindings[0]}' --gin_bindings '{bindings[1]}'"
        )
    return Simulation(ATARI, bindings)


def _is_simulation(name: str) -> bool:
    return name in SIMULATIONS


def _read_simulation(name: str) -> io.StringIO:
    simulation = find_simulation(name)
    assert simulation is not None
    return io.StringIO("\n".join([f'include "{simulation.file}"', *simulation.bindings]))


# Gin asks its readers, one after the other, for a file that another file includes.
gin.config.register_file_reader(_read_simulation, _is_simulation)
