"""Any environment that is registered with Gymnasium, by its id."""

from __future__ import annotations

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
        ValueError: No environment has that id; the sentence names the closest ones.
    """
    kwargs = dict(environment_kwargs or {})
    if render_mode is not None:  # an environment that cannot render need not take the argument
        kwargs["render_mode"] = render_mode
    try:
        env = gym.make(environment_id, **kwargs)
    except (gym.error.Error, ModuleNotFoundError) as error:
        if environment_id in gym.registry:
            if isinstance(error, gym.error.Error):
                raise
            raise ValueError(f"environment_id {environment_id!r} needs a module that is missing ({error})") from None
        close = get_close_matches(environment_id, list(gym.registry), n=3, cutoff=0.5)
        hint = f"; close names are {', '.join(close)}" if close else ""
        raise ValueError(
            f"environment_id must be registered with Gymnasium, got {environment_id!r}{hint} ({error})"
        ) from None
    return wrap(env, clip_rewards, wrappers)
