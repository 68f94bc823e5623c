"""Many environments of one process, and an agent that plays them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.batched.vector_envs import VectorEnvs


def vector_envs(num_envs: int, make_env: Callable[[], Any]) -> VectorEnvs:
    """Environments that go in step, each of which begins its next episode at once."""
    return VectorEnvs(SyncVectorEnv([make_env] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP))


def rounds(agent: VectorAgent, envs: VectorEnvs, count: int) -> None:
    """Play so many steps of all environments, and close them."""
    envs.begin(list(range(agent.num_envs)))
    for _ in range(count):
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    envs.close()
