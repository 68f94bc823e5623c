"""What gin files may name of this package. Import it for its effect; `async_wrappers` itself does not need gin."""

from __future__ import annotations

import gin
from gymnasium.wrappers import DelayObservation, ResizeObservation

from async_wrappers.envs import create_atari_environment, create_gym_environment
from async_wrappers.latency import Constant, Correlated, Gamma, LogNormal, Spikes, Trace, Uniform
from async_wrappers.live import AsyncRunner
from async_wrappers.schedule.stagger import ExpectedTime, MaxTime, NoStagger, Sequential, Tickets
from async_wrappers.wrappers.action_history import AppliedActions, CommittedActions, DecisionDelay
from async_wrappers.wrappers.delay import RealtimeDelay

__all__ = ["CONFIGURABLES"]

CONFIGURABLES = (
    AppliedActions,
    AsyncRunner,
    CommittedActions,
    Constant,
    Correlated,
    DecisionDelay,
    DelayObservation,  # Gymnasium's, in decisions
    ExpectedTime,
    Gamma,
    LogNormal,
    MaxTime,
    NoStagger,
    RealtimeDelay,
    ResizeObservation,  # Gymnasium's
    Sequential,
    Spikes,
    Tickets,
    Trace,
    Uniform,
    create_atari_environment,
    create_gym_environment,
)

for _configurable in CONFIGURABLES:
    gin.external_configurable(_configurable, module="async_wrappers")
