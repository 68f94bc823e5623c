"""Any environment that is registered with Gymnasium, by its id."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import gymnasium as gym

from async_wrappers.envs.wrapping import Wrapper, wrap

__all__ = ["create_gym_environment"]


def create_gym_environment(
    environment_id: str,
    environment_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] = (),
    clip_rewards: bool = False,
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """Make a registered environment and wrap it.

    An environment of your own works too: register it in a module beside the gin file's working directory, and import
    that module in the gin file (``import my_environments``), or give ``"my_environments:MyEnv-v0"``.

    Args:
        environment_id: A Gymnasium id, such as ``"CartPole-v1"``.
        environment_kwargs: Passed to ``gymnasium.make``.
        wrappers: Applied in this order, the first one innermost, such as ``[@AppliedActions, @RealtimeDelay]``.
        clip_rewards: Clip each frame's reward to [-1, 1], inside all `wrappers`.
        render_mode: Gymnasium's, such as ``"human"`` or ``"rgb_array"``.

    Raises:
        ValueError: No environment has that id (the sentence names the closest ones), what it needs is not installed, or
            it has no such `render_mode`.
    """
    if not isinstance(environment_id, str):
        raise ValueError(f"environment_id must be a text, such as 'CartPole-v1', got {environment_id!r}")
    if environment_id.count(":") > 1 or environment_id.startswith(":"):
        raise ValueError(f"environment_id must read 'Name-v0' or 'module:Name-v0', got {environment_id!r}")
    if environment_kwargs is not None and not isinstance(environment_kwargs, Mapping):
        raise ValueError(f"environment_kwargs must be a dict, such as {{'gravity': 1.62}}, got {environment_kwargs!r}")
    if render_mode is not None and not isinstance(render_mode, str):
        raise ValueError(_no_such_mode(environment_id, render_mode, []))
    kwargs = dict(environment_kwargs or {})
    if render_mode is not None:  # an environment that cannot render need not take the argument
        kwargs["render_mode"] = render_mode
    try:
        with warnings.catch_warnings(record=True) as warned:  # a refusal is one sentence, without warnings before it
            warnings.filterwarnings("ignore", ".*that is not in the possible render_modes")  # refused below
            env = gym.make(environment_id, **kwargs)
    except TypeError as error:
        if render_mode is not None and "'render_mode'" in str(error):
            raise ValueError(_no_such_mode(environment_id, render_mode, [])) from None
        raise
    except (gym.error.Error, ImportError) as error:
        if environment_id in gym.registry:
            raise ValueError(_missing(environment_id, error)) from None
        close = get_close_matches(environment_id, list(gym.registry), n=3, cutoff=0.5)
        hint = f"; close names are {', '.join(close)}" if close else ""
        raise ValueError(
            f"environment_id must be registered with Gymnasium, got {environment_id!r}{hint} ({error})"
        ) from None
    for each in warned:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    modes = env.metadata.get("render_modes") or []
    if render_mode is not None and render_mode not in modes:
        raise ValueError(_no_such_mode(environment_id, render_mode, modes))
    return wrap(env, clip_rewards, wrappers)


def _missing(environment_id: str, error: Exception) -> str:
    """Say what an environment needs; of one that has moved to another package, name that of ours which has not."""
    if isinstance(error, gym.error.Error) and not isinstance(error, gym.error.DependencyNotInstalled):
        return f"environment_id {environment_id!r} cannot be made ({error})"
    name, _, version = environment_id.rpartition("-v")
    newer = [
        f"{name}-v{spec.version}"
        for spec in gym.registry.values()
        if spec.version is not None and spec.id == f"{name}-v{spec.version}" and spec.version > int(version or 0)
    ]
    what = str(error).strip().rstrip(".")
    if isinstance(error, gym.error.DependencyNotInstalled) or not newer:
        return f"environment_id {environment_id!r} needs a module that is missing ({what})"
    return f"environment_id {environment_id!r} cannot be made ({what}): use {max(newer)!r}"


def _no_such_mode(environment_id: str, render_mode: Any, modes: Sequence[str]) -> str:
    known = f"one of {', '.join(map(repr, modes))}" if modes else "None"
    return f"render_mode of {environment_id!r} must be {known}, got {render_mode!r}"
