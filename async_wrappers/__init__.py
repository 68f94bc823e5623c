"""Realtime reinforcement learning: any Gymnasium environment, made realtime.

* `RealtimeDelay`: simulate inference latency on any environment, with constants or with a latency model.
* `VectorRealtimeDelay`: the same, with constants, on a vector environment that steps in lockstep.
* `delay_simulator`: the same for thousands of robots in tensors, by their simulator's interface.
* `AppliedActions`, `CommittedActions`: show the policy which actions were applied, and which are on their way.
* `CommittedPrefix`: shows a policy of chunks which actions are fixed until its next chunk lands.
* `DecisionDelay`: shows the policy how late its actions land.
* `FreshObservation`: shows it what a fast path reads on the frame on which its action lands.
* `RampDown`: a default action that brings the last one down to the no-op.
* `Limits`: bounds, rate and jerk of what a machine is sent; `LimitAction` is a wrapper that keeps them.
* `Chunk`: a default action that is the policy's own, which gives the actions of several frames at once;
  `TemporalEnsemble` weighs those of several chunks.
* `AsyncRunner`: many workers of one slow policy play one environment, live or on the virtual clock.
* `RayWorkers`: its workers on the nodes of a Ray cluster.
* `load_recording`: the episodes that ``AsyncRunner(record=...)`` has recorded, as arrays.
* `Machine`: a robot, sent to and read in two halves of a step; `MachineEnv` makes an environment of
  one.
* `plan`: how many workers a latency needs, and the results of each strategy. Also `python -m async_wrappers plan`.
* `capacity`: how many realtime environments an accelerator that infers batches can serve, and with which delay;
  `measure_batches` measures a policy, `LinearBatches` and `MeasuredBatches` are models of batches. Also
  `python -m async_wrappers plan --batch-ms`.
* `hosts_or_inference`: whether many actors' network is better run on their hosts or beside the learner.
* `ServedSchedule`: such a server, simulated; `ServedStream`: the schedule of one of its environments, to train under.
* `ServedRunner`: many environments that do not wait, in processes, and the accelerators that infer for all of them.
* `VectorEnvs`, `LocalEnvs`, `ProcessEnvs`, `DoubleBuffered`: many environments at once; `BatchedEnvs` is their
  interface, and `Shown` the rows that need decisions. `create_atari_vector`, `create_gym_vector`: vectors by name.
* `KeepEntries`: shows some entries of a vector; the hidden ones have to be remembered.
* `probe_delay`: finds the hidden delay of an environment. Also `python -m async_wrappers probe`.
* `decompose`: how much of an agent's loss is delay, and how much inaction.
* `score_policy`: the scores of a policy of any library on realtime MinAtar, beside ours. Also
  `python -m async_wrappers score`.
* `Constant`, `Uniform`, `LogNormal`, `Gamma`, `Trace`, `Spikes`, `Correlated`: latency models; `measure` makes one of a
  policy.
* `SensorDelay`, `VectorSensorDelay`: sensors that are late, each a `Sensor`.
* `Latencies`: what a live run measured of decisions, transport and sensors, for these, `RealtimeDelay` and `plan`.
* `NoStagger`, `Sequential`, `MaxTime`, `ExpectedTime`, `Tickets`: stagger strategies.
* `async_wrappers.testing`: contract tests for your own backends, strategies and environments.

A name is imported when it is first asked for. Importing the package registers ``async_wrappers/FallingBlocks-v0``, the
Game Boy's games and MinAtar's (``async_wrappers/MinAtar-Breakout-v1``) with Gymnasium.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from async_wrappers.version import __version__

if TYPE_CHECKING:
    from async_wrappers.analysis.capacity import Capacity, capacity
    from async_wrappers.analysis.hosts_or_inference import hosts_or_inference
    from async_wrappers.analysis.planning import Plan, plan
    from async_wrappers.analysis.probing import ProbeResult, probe_delay
    from async_wrappers.analysis.regret import Decomposition, decompose
    from async_wrappers.analysis.scaling import workers_against_latency
    from async_wrappers.analysis.scoring import MinAtarScores, score_policy
    from async_wrappers.analysis.timeline import timeline
    from async_wrappers.batched.double_buffered import DoubleBuffered
    from async_wrappers.batched.local import LocalEnvs
    from async_wrappers.batched.processes import ProcessEnvs
    from async_wrappers.batched.protocol import BatchedEnvs, Shown
    from async_wrappers.batched.vector_envs import VectorEnvs
    from async_wrappers.envs.atari import create_atari_environment, create_atari_vector
    from async_wrappers.envs.factories import ClipReward, KeepEntries, create_gym_environment, create_gym_vector
    from async_wrappers.envs.falling_blocks import FallingBlocksEnv
    from async_wrappers.envs.minatar import MinAtarEnv, create_minatar_environment
    from async_wrappers.fleet.supervised import RunFailed
    from async_wrappers.latency import (
        Constant,
        Correlated,
        Gamma,
        Latency,
        LogNormal,
        Spikes,
        Trace,
        Uniform,
        as_latency,
        measure,
    )
    from async_wrappers.latency.batches import BatchLatency, LinearBatches, MeasuredBatches, measure_batches
    from async_wrappers.live.cluster.ray_workers import RayWorkers
    from async_wrappers.live.recording.reader import Recording, load_recording
    from async_wrappers.live.report.report import TimingReport
    from async_wrappers.live.runner import AsyncRunner
    from async_wrappers.live.served.served_report import ServedEnvironment, ServedReport
    from async_wrappers.live.served.served_runner import ServedRunner
    from async_wrappers.live.world.machine import Machine, MachineEnv, MachineFailed
    from async_wrappers.live.world.realtime import Realtime
    from async_wrappers.policy import Decision, Memory, NoAction, Policy, SplitPolicy
    from async_wrappers.schedule.batching import Batcher
    from async_wrappers.schedule.plain import PlainSchedule
    from async_wrappers.schedule.served import ServedSchedule
    from async_wrappers.schedule.served_stream import ServedStream
    from async_wrappers.schedule.simulated import SimulatedSchedule
    from async_wrappers.schedule.stagger import (
        ExpectedTime,
        MaxTime,
        NoStagger,
        Sequential,
        Stagger,
        Tickets,
        make_stagger,
    )
    from async_wrappers.simulators.delay_simulator import delay_simulator
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

__all__ = [
    "AppliedActions",
    "AsyncRunner",
    "BatchLatency",
    "BatchedEnvs",
    "Batcher",
    "Capacity",
    "Chunk",
    "ClipReward",
    "CommittedActions",
    "CommittedPrefix",
    "Constant",
    "Correlated",
    "Decision",
    "DecisionDelay",
    "Decomposition",
    "DoubleBuffered",
    "ExpectedTime",
    "FallingBlocksEnv",
    "FreshObservation",
    "Gamma",
    "KeepEntries",
    "Latencies",
    "Latency",
    "LimitAction",
    "Limits",
    "LinearBatches",
    "LocalEnvs",
    "LogNormal",
    "Machine",
    "MachineEnv",
    "MachineFailed",
    "MaxTime",
    "MeasuredBatches",
    "Memory",
    "MinAtarEnv",
    "MinAtarScores",
    "NoAction",
    "NoStagger",
    "PlainSchedule",
    "Plan",
    "Policy",
    "ProbeResult",
    "ProcessEnvs",
    "RampDown",
    "RayWorkers",
    "Realtime",
    "RealtimeDelay",
    "Recording",
    "RunFailed",
    "Sensor",
    "SensorDelay",
    "Sequential",
    "ServedEnvironment",
    "ServedReport",
    "ServedRunner",
    "ServedSchedule",
    "ServedStream",
    "Shown",
    "SimulatedSchedule",
    "Spikes",
    "SplitPolicy",
    "Stagger",
    "TemporalEnsemble",
    "Tickets",
    "TimingReport",
    "Trace",
    "Uniform",
    "VectorEnvs",
    "VectorRealtimeDelay",
    "VectorSensorDelay",
    "__version__",
    "as_latency",
    "capacity",
    "create_atari_environment",
    "create_atari_vector",
    "create_gym_environment",
    "create_gym_vector",
    "create_minatar_environment",
    "decompose",
    "delay_simulator",
    "hosts_or_inference",
    "load_recording",
    "make_stagger",
    "measure",
    "measure_batches",
    "plan",
    "probe_delay",
    "score_policy",
    "timeline",
    "workers_against_latency",
]

# The names that are imported when they are first asked for, by the module that has them; as above, for type checkers.
_LAZY = {
    "analysis.capacity": "Capacity capacity",
    "analysis.hosts_or_inference": "hosts_or_inference",
    "analysis.planning": "Plan plan",
    "analysis.scaling": "workers_against_latency",
    "analysis.probing": "ProbeResult probe_delay",
    "analysis.regret": "Decomposition decompose",
    "analysis.scoring": "MinAtarScores score_policy",
    "analysis.timeline": "timeline",
    "batched.double_buffered": "DoubleBuffered",
    "batched.local": "LocalEnvs",
    "batched.processes": "ProcessEnvs",
    "batched.protocol": "BatchedEnvs Shown",
    "batched.vector_envs": "VectorEnvs",
    "envs.atari": "create_atari_environment create_atari_vector",
    "envs.factories": "ClipReward KeepEntries create_gym_environment create_gym_vector",
    "envs.falling_blocks": "FallingBlocksEnv",
    "envs.minatar": "MinAtarEnv create_minatar_environment",
    "latency": "Constant Correlated Gamma Latency LogNormal Spikes Trace Uniform as_latency measure",
    "latency.batches": "BatchLatency LinearBatches MeasuredBatches measure_batches",
    "live.world.machine": "Machine MachineEnv MachineFailed",
    "live.world.realtime": "Realtime",
    "live.recording.reader": "Recording load_recording",
    "live.cluster.ray_workers": "RayWorkers",
    "live.report.report": "TimingReport",
    "live.runner": "AsyncRunner",
    "live.served.served_report": "ServedEnvironment ServedReport",
    "live.served.served_runner": "ServedRunner",
    "schedule.batching": "Batcher",
    "policy": "Decision Memory NoAction Policy SplitPolicy",
    "fleet.supervised": "RunFailed",
    "schedule.plain": "PlainSchedule",
    "schedule.served": "ServedSchedule",
    "schedule.served_stream": "ServedStream",
    "schedule.simulated": "SimulatedSchedule",
    "schedule.stagger": "ExpectedTime MaxTime NoStagger Sequential Stagger Tickets make_stagger",
    "simulators.delay_simulator": "delay_simulator",
    "tensors.sensor_rows": "Sensor",
    "wrappers.action_history": "AppliedActions CommittedActions DecisionDelay",
    "wrappers.chunk": "Chunk TemporalEnsemble",
    "wrappers.committed_prefix": "CommittedPrefix",
    "wrappers.default_action": "RampDown",
    "wrappers.delay": "RealtimeDelay",
    "wrappers.fresh_observation": "FreshObservation",
    "wrappers.limits": "LimitAction Limits",
    "wrappers.measured_latencies": "Latencies",
    "wrappers.sensor_delay": "SensorDelay VectorSensorDelay",
    "wrappers.vector_delay": "VectorRealtimeDelay",
}
_WHERE = {name: module for module, names in _LAZY.items() for name in names.split()}
_PACKAGES = (
    "analysis",
    "batched",
    "envs",
    "latency",
    "live",
    "schedule",
    "simulators",
    "tensors",
    "testing",
    "wrappers",
)

# Ids such as "async_wrappers/PokemonBlue-battles-v0"; an environment's module is imported when one is made.
_GAME_BOY_GAMES = (
    "Tetris",
    "PokemonRed-battles",
    "PokemonRed-catching",
    "PokemonBlue-battles",
    "PokemonBlue-catching",
    "PokemonYellow-battles",
    "PokemonYellow-catching",
)

# MinAtar's, in its spelling; the limit of frames is `envs.minatar.LONGEST_EPISODE`, whose import is left for later.
_MINATAR_GAMES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}

gym.register(id="async_wrappers/FallingBlocks-v0", entry_point="async_wrappers.envs.falling_blocks:FallingBlocksEnv")
for _game in _GAME_BOY_GAMES:
    gym.register(
        id=f"async_wrappers/{_game}-v0", entry_point="async_wrappers.envs.gameboy:make_game", kwargs={"game": _game}
    )
for _id, _game in _MINATAR_GAMES.items():
    gym.register(
        id=f"async_wrappers/MinAtar-{_id}-v1",
        entry_point="async_wrappers.envs.minatar:MinAtarEnv",
        kwargs={"game": _game},
        max_episode_steps=10_000,
    )


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for, since wrapping an environment needs few of them."""
    if name in _WHERE:
        found = getattr(import_module(f"async_wrappers.{_WHERE[name]}"), name)
        globals()[name] = found
        return found
    if name in _PACKAGES:
        return import_module(f"async_wrappers.{name}")
    raise AttributeError(f"module 'async_wrappers' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*__all__, *_PACKAGES})
