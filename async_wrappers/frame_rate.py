"""Frames per second of an environment's own time, where one frame is one of its steps."""

from __future__ import annotations

import dis
from fractions import Fraction
from itertools import pairwise
from math import inf
from numbers import Real
from types import CodeType
from typing import Any

import gymnasium as gym

_EMULATED_FRAMES_PER_SECOND = 60  # of ale-py, whose games are NTSC's
# Wrappers that play several frames in a step, by name, so that none has to be imported; where they say how many.
_SKIPS = {
    "AtariPreprocessing": "frame_skip",
    "MaxAndSkipEnv": "_skip",  # Stable-Baselines3's
    "MaxAndSkipObservation": "_skip",
    "RepeatAction": "num_repeats",
}


def frame_rate(environment: Any) -> float:
    """Return the frames per second of an environment's own time, one frame a step.

    The outermost of its layers that knows how long its step is says it: an Atari game (60 a second, divided by its
    ``frameskip``), and what has an attribute ``dt``, the seconds that a step simulates, as Gymnasium's MuJoCo
    environments (the timestep times the steps of the simulator) and its Pendulum. Where none does, it is
    ``metadata["render_fps"]``, the rate of pictures (Pendulum shows 30 a second, and simulates 20), of the outermost
    layer that has one of its own.

    This is divided by the frames that each wrapper around that layer plays in a step. They are known of Gymnasium's
    (``AtariPreprocessing``, ``MaxAndSkipObservation``, ``RepeatAction``), of Stable-Baselines3's, and of a wrapper with
    ``decision_interval``, such as `RealtimeDelay`. Another one plays one, unless its ``step`` has a loop around the
    call of ``step``.

    Args:
        environment: A `gymnasium.Env`, with whatever wrappers.

    Raises:
        ValueError: No layer says it as a number > 0; or a wrapper plays frames that are random or not known.
    """
    layers = [environment]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    number, rate = _said_by(layers)
    for wrapper in layers[:number]:
        frames = _frames_of_step(wrapper)
        if frames is None:
            reason = f"{type(wrapper).__name__} plays a number of frames in a step that is random or not known"
            raise _missing(reason, environment)
        rate = rate / frames
    return int(rate) if rate == int(rate) else float(rate)


def _said_by(layers: list[Any]) -> tuple[int, Any]:
    """Return the layer that says how many of its steps a second has, by its number, and how many it says."""
    for number, layer in enumerate(layers):
        if (seconds := _seconds_of_step(layer)) is not None:
            return number, 1 / seconds
    pictures = [_positive((layer.metadata or {}).get("render_fps")) for layer in layers]
    # Wrappers that do not say their own have that of what they wrap, or a copy.
    number = next((number for number, (own, inner) in enumerate(pairwise(pictures)) if own != inner), len(layers) - 1)
    if pictures[number] is None:
        reason = "the environment has neither dt (seconds of a step) nor metadata['render_fps']"
        raise _missing(reason, layers[0])
    return number, pictures[number]


def _seconds_of_step(layer: Any) -> Fraction | None:
    """Return what a layer itself knows of its step; None if that is nothing."""
    if (seconds := _positive(getattr(layer, "dt", None))) is not None:
        return Fraction(float(seconds)).limit_denominator(10**9)  # 5 * 0.003 is not exactly what it says
    if isinstance(layer, gym.Wrapper) or not hasattr(layer, "ale"):
        return None
    skip = getattr(layer, "_frameskip", None)  # ale-py's; its render_fps is of no skip
    if not isinstance(skip, int):
        raise _missing(f"the game skips frames at random, frameskip={skip!r}", layer)
    return Fraction(skip, _EMULATED_FRAMES_PER_SECOND)


def _frames_of_step(wrapper: Any) -> int | None:
    """Return how often a wrapper steps what it wraps in a step of its own; None if that is random or not known."""
    for kind in type(wrapper).__mro__:
        if hasattr(wrapper, name := _SKIPS.get(kind.__name__, "")):
            return int(getattr(wrapper, name))
    if hasattr(wrapper, "decision_interval"):
        interval: int | None = wrapper.decision_interval
        return interval
    step = type(wrapper).step
    code = getattr(step, "__code__", None)
    return None if code is not None and _steps_in_a_loop(code) else 1


def _steps_in_a_loop(code: CodeType) -> bool:
    """Return whether a function has a loop, or a comprehension, in which it calls or reads ``step``."""
    instructions = list(dis.get_instructions(code))
    steps = [each.offset for each in instructions if each.argval == "step" and each.opname != "LOAD_CONST"]
    jumps = {*dis.hasjrel, *dis.hasjabs}
    back = [(each.argval, each.offset) for each in instructions if each.opcode in jumps and each.argval < each.offset]
    if any(begin <= step <= end for begin, end in back for step in steps):
        return True
    return any(_steps_in_a_loop(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def _positive(value: Any) -> Any:
    """Return a positive, finite number, and None in the place of anything else."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return value if is_number and 0 < float(value) < inf else None


def _missing(reason: str, environment: Any) -> ValueError:
    return ValueError(f"fps must be given, in frames per second, where {reason}, got None and {environment}")
