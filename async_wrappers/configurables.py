"""Registers this package's names with gin. Import it for this effect; `async_wrappers` itself does not need gin."""

from __future__ import annotations

from operator import attrgetter

import gin
import gymnasium as gym
import gymnasium.wrappers

from async_wrappers.batched.factory import create_batched_envs
from async_wrappers.batched.hosted import HostedEnvs
from async_wrappers.envs import (
    KeepEntries,
    create_atari_environment,
    create_atari_vector,
    create_gym_environment,
    create_gym_vector,
    create_minatar_environment,
)
from async_wrappers.latency import Constant, Correlated, Gamma, LogNormal, Spikes, Trace, Uniform
from async_wrappers.latency.batches import LinearBatches, MeasuredBatches
from async_wrappers.live import AsyncRunner
from async_wrappers.live.cluster.ray_workers import RayWorkers
from async_wrappers.live.world.realtime import Realtime
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.schedule.served_stream import ServedStream
from async_wrappers.schedule.stagger import ExpectedTime, MaxTime, NoStagger, Sequential, Tickets
from async_wrappers.tensors.sensor_rows import Sensor
from async_wrappers.wrappers.action_history import AppliedActions, CommittedActions, DecisionDelay
from async_wrappers.wrappers.chunk import Chunk, TemporalEnsemble
from async_wrappers.wrappers.committed_prefix import CommittedPrefix
from async_wrappers.wrappers.default_action import RampDown
from async_wrappers.wrappers.delay import RealtimeDelay
from async_wrappers.wrappers.fresh_observation import FreshObservation
from async_wrappers.wrappers.limits import LimitAction, Limits
from async_wrappers.wrappers.measured_latencies import Latencies
from async_wrappers.wrappers.sensor_delay import SensorDelay, VectorSensorDelay
from async_wrappers.wrappers.vector_delay import VectorRealtimeDelay

_ENVIRONMENTS = (
    create_atari_environment,
    create_atari_vector,
    create_gym_environment,
    create_gym_vector,
    create_minatar_environment,
)
_WRAPPERS = (
    AppliedActions,
    CommittedActions,
    CommittedPrefix,
    DecisionDelay,
    FreshObservation,
    KeepEntries,
    LimitAction,
    RealtimeDelay,
    SensorDelay,
)
# Those that turn arrays of one library into another's would import JAX and PyTorch, and agents read NumPy's.
_CONVERSIONS = {"ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"}
# All of Gymnasium's for one environment. `DelayObservation` delays by decisions; `ClipReward` is not the one that
# `create_gym_environment.clip_rewards` puts inside all wrappers.
_GYMNASIUMS = tuple(
    thing
    for thing in (getattr(gymnasium.wrappers, name) for name in gymnasium.wrappers.__all__ if name not in _CONVERSIONS)
    if isinstance(thing, type) and issubclass(thing, gym.Wrapper)
)
_LATENCIES = (Constant, Correlated, Gamma, Latencies, LogNormal, Spikes, Trace, Uniform)
_SERVERS = (LinearBatches, MeasuredBatches, ServedSchedule, ServedStream)
_STRATEGIES = (ExpectedTime, MaxTime, NoStagger, Sequential, Tickets)

# In the order of the alphabet, in which a message names several of them.
CONFIGURABLES = tuple(
    sorted(
        (
            *(*_ENVIRONMENTS, *_WRAPPERS, *_GYMNASIUMS, *_LATENCIES, *_SERVERS, *_STRATEGIES),
            *(AsyncRunner, Chunk, Limits, RampDown, RayWorkers, Realtime, Sensor, TemporalEnsemble),
            *(VectorRealtimeDelay, VectorSensorDelay),
        ),
        key=attrgetter("__name__"),
    )
)

# The wrappers for `create_gym_environment.wrappers` and `create_atari_environment.wrappers`.
WRAPPERS = tuple(sorted((*_WRAPPERS, *_GYMNASIUMS), key=attrgetter("__name__")))

for _configurable in CONFIGURABLES:
    gin.external_configurable(_configurable, module="async_wrappers")

# Runners' parameters are their arguments, so that nothing of them is bound: their module is another one.
gin.external_configurable(create_batched_envs, module="async_wrappers.batched")
gin.external_configurable(HostedEnvs, module="async_wrappers.batched")
