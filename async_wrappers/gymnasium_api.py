"""Gymnasium's interface: what an environment's reset and step return, and a sentence for one of Gym's older interface.

There `reset` returns the observation alone, so that an observation of two numbers would pass for an observation and an
info, and `step` returns four values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from async_wrappers.checks import BrokenEnvironment

OLDER = (
    "one of Gym's older interface plays in Shimmy's GymV21CompatibilityV0(env=env), or GymV26CompatibilityV0 "
    "(python -m pip install shimmy)"
)


def begun(env: gym.Env[Any, Any], **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Reset an environment, and return the observation and the info.

    Raises:
        ValueError: It is of the older interface.
    """
    try:
        answer: Any = env.reset(**arguments)
    except TypeError as error:
        if re.search(r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)) is None:
            raise
        raise older_interface(env, "take seed and options", str(error)) from error
    # The exact type is asked first, for speed.
    if isinstance(answer, tuple) and len(answer) == 2 and (type(answer[1]) is dict or isinstance(answer[1], Mapping)):
        observation, info = answer
        return observation, info
    raise older_interface(env, "return (observation, info)", f"{answer!r:.200}")


def stepped(env: gym.Env[Any, Any], action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Step an environment, and return the observation, the reward, terminated, truncated and the info.

    Raises:
        ValueError: It is of the older interface, or returned something else.
        BrokenEnvironment: Terminated or truncated is neither True nor False, or the info is no dict.
    """
    outcome: Any = env.step(action)
    try:
        observation, reward, terminated, truncated, info = outcome
    except (TypeError, ValueError):
        raise no_step(env, outcome) from None
    # The exact types are asked first, for speed.
    if not (type(terminated) is bool and type(truncated) is bool and type(info) is dict):
        refuse_ends(terminated, truncated, info)
    return observation, reward, terminated, truncated, info


def no_step(env: gym.Env[Any, Any], outcome: Any) -> ValueError:
    """Return the refusal of an environment whose step returned anything but five values."""
    return older_interface(env, "return five values", f"{outcome!r:.200}", "step")


def refuse_ends(terminated: Any, truncated: Any, info: Any) -> None:
    """Refuse what a step must not say of an episode's end, and an info that is no dict; 0 and 1 are flags too.

    Raises:
        BrokenEnvironment: Terminated or truncated is neither True nor False, or the info is no dict.
    """
    wanted = "let its step return (observation, reward, terminated, truncated, info)"
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if isinstance(value, str | bytes) or getattr(value, "shape", ()) != () or value not in (0, 1):
            raise BrokenEnvironment(f"the environment's {name} must be True or False, got {value!r:.100}: {wanted}")
    if not isinstance(info, Mapping):
        raise BrokenEnvironment(f"the environment's info must be a dict, got {info!r:.100}: {wanted}")


def older_interface(env: gym.Env[Any, Any], must: str, got: str, method: str = "reset") -> ValueError:
    """Return the refusal of an environment whose method does not do what Gymnasium's must."""
    return ValueError(f"{method} of {type(env.unwrapped).__name__} must {must}, got {got}: {OLDER}")
