"""The environment loop's punctuality, what it computes and exchanges, and its memory.

* ``loop``: 59.7275 frames a second with 32 workers (100 ms of simulated inference) and one learner that works all the
  time. Hold: p99 lateness at most 1 ms, no drift.
* ``exchange``: one worker that answers at once: from ticket to action, less the inference. Hold: p50 at most 50 us.
  The peer, in the same run: the same through ``multiprocessing.Manager`` values, as the published runner has it.
* ``khz``: 1,000 frames a second, one worker, two cores, ``Realtime(core=1)`` where this process may have it, in rounds
  that alternate with the same without. Hold: p99 lateness at most 0.2 ms. An observation has 12 numbers, an action 6.
* ``in_loop``: the same with the policy in the loop (``workers=0``).
* ``hour``: 3.6 million frames on the virtual clock with ``timeline=10``. Hold: resident memory grows by at most 1 MB
  from the first tenth to the last (the numbers after it are with the report made). Beside it a twentieth of the frames
  with ``timeline="all"``, and what all of them would take. A tenth has to be 10 s at least: 100,000 frames in all.
* ``core``: a policy with memory whose core and head run in the loop: 60 frames a second, 4 workers whose inference
  takes 60 ms, V-trace's network with an LSTM of 256; the same agent without memory, whose loop computes nothing, in the
  same run. Hold: p99 lateness of the loop's frames at most 1 ms with memory. Half as long as the others.
* ``core_learning``: the same with a learner that works all the time: the loop reads new weights now and then.
* ``fast``: a fast path of 50,000 weights in the loop, beside a slow half of 130 ms in 10 workers, at 60 and 500 frames
  a second, and the same without the fast path. At 500 Hz the slow half reads every eighth frame, and the fast path
  decides on all others by the features before (``max_features_age``); the same with ``Realtime()`` where this process
  may have it. `other` counts the frames whose action is not that of the virtual clock with the times that were
  measured. Hold: p99 lateness at 60 Hz at most 1 ms. Half as long as the others.
* ``release``: microseconds of one release of a core in one process, beside encoding and the whole network, for cores of
  several sizes: what the loop computes between its choice and the environment's step.

    python -m benchmarks.frame_loop [loop] [exchange] [khz] [in_loop] [hour] [core] [core_learning] [fast]
        [release] [--seconds 60] [--frames 3600000]
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import torch

from async_wrappers import AsyncRunner, Realtime
from async_wrappers.agents.acting.decisions import Memories
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.learning.making import maker_of_learners
from async_wrappers.agents.networks.cores import LSTMCore
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.latency import LogNormal, Trace
from async_wrappers.live.world.environment import FrameStatus
from async_wrappers.live.world.realtime import may_lock, may_schedule
from async_wrappers.policy import Decision, Memory
from benchmarks.measuring import print_hold, quietly, run_parts
from benchmarks.staggered_workers import CONSTANT, Screens, Sleeper


class BusyLearner:
    """Multiplies matrices, for about 20 ms an update."""

    def __init__(self) -> None:
        self._matrix = np.random.default_rng(0).normal(size=(500, 500)).astype(np.float32)

    def observe(self, transition: Any) -> None:
        """Keep nothing."""

    def update(self) -> dict[str, float]:
        """Work for 20 ms."""
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            self._matrix @ self._matrix
        return {}

    def weights(self) -> dict[str, Any]:
        """Return the matrix."""
        return {"matrix": self._matrix}

    def load_weights(self, weights: Any) -> None:
        """Take over the matrix."""
        self._matrix = weights["matrix"]

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Take nothing over."""

    def close(self) -> None:
        """Release nothing."""


class Learning(Sleeper):
    """A policy with weights."""

    def load_weights(self, weights: Any, version: int) -> None:
        """Read them in place."""
        self._weights = weights


def learning_runner(workers: int, fps: float) -> AsyncRunner:
    """Return a runner whose learner works all the time."""
    with quietly():
        return AsyncRunner(Screens, lambda: Learning(CONSTANT), workers, fps, make_learner=BusyLearner)


def loop(args: Namespace) -> None:
    report = learning_runner(32, 59.7275).run(seconds=args.seconds)
    print(f"\n32 workers and a learner, {args.seconds:g} s\n{report}")


def exchange(args: Namespace) -> None:
    runner = AsyncRunner(Screens, lambda: lambda observation: 1, 1, 20_000, "sequential", calibration_time=0.1)
    took = runner.run(frames=20_000).exchange_us
    assert took is not None
    manager = managed_exchange(2_000)
    print(
        f"\nexchange of one decision, us: p50 {took['p50']:.1f}, p99 {took['p99']:.1f}; through a Manager's "
        f"values p50 {manager:.1f}; ratio {manager / took['p50']:.1f}"
    )


def _answer(state: Any, ticket: Any, action: Any, stop: Any) -> None:
    done = 0
    while not stop.value:
        if ticket.value > done:
            done = ticket.value
            _ = state[0]
            action.value = done


def managed_exchange(count: int) -> float:
    """Return the median microseconds of an exchange through a Manager."""
    manager = multiprocessing.Manager()
    state, (ticket, action, stop) = manager.list([None]), (manager.Value("i", 0) for _ in range(3))
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(state, ticket, action, stop))
    process.start()
    frame = np.zeros((84, 84, 1), np.uint8)
    took = []
    for number in range(1, count + 1):
        begin = time.perf_counter()
        state[0] = frame
        ticket.value = number
        while action.value < number:
            pass
        took.append((time.perf_counter() - begin) * 1e6)
    stop.value = 1
    process.join(10)
    manager.shutdown()
    return statistics.median(took)


# 1,000 frames a second.

HZ, ROUNDS = 1000, 3


class Numbers(gym.Env[Any, Any]):
    """Shows the same numbers for ever.

    Args:
        size: How many.
        action_space: Of actions, which change nothing.
    """

    def __init__(self, size: int, action_space: gym.Space[Any]) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode without end."""
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}  # type: ignore[arg-type]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one frame."""
        return np.zeros(self.observation_space.shape, np.float32), 1.0, False, False, {}  # type: ignore[arg-type]


joints = partial(Numbers, 12, gym.spaces.Box(-1, 1, (6,), np.float32))


def gains() -> Any:
    """Return a policy of microseconds."""
    return lambda observation: np.clip(-0.5 * observation[:6], -1, 1)


def khz(args: Namespace, workers: int = 1) -> None:
    """Print rounds with realtime scheduling and without, in turns."""
    permitted = may_schedule(50)
    realtime = Realtime(core=max(os.sched_getaffinity(0)), lock=may_lock()) if permitted else None
    spinning = realtime or Realtime(priority=None, lock=False)
    print(f"\n{HZ} frames a second, {workers} workers, {ROUNDS} rounds, load average {os.getloadavg()[0]:.1f}")
    if not permitted:
        print("SCHED_FIFO is not permitted here (`python -m async_wrappers doctor` says what is missing)")
    terms: dict[str, Any] = {"timeline": 1.0, "calibration_time": 0.5, "default_action": "repeat"}
    shares, worst = [], []
    for _ in range(ROUNDS):
        for name, setting, part in (("as it is", None, 0.25), (str(spinning), spinning, 1.0)):
            with quietly():
                runner = AsyncRunner(joints, gains, workers, HZ, realtime=setting, **terms)
                report = runner.run(seconds=part * args.seconds / ROUNDS)
            late, missed = report.lateness_ms, report.frames["missed_deadlines"]
            print(
                f"  {name:<72} lateness ms p50 {late['p50']:.4f}, p99 {late['p99']:.4f}, max {late['max']:.2f}; "
                f"{missed} of {report.frames['total']} missed, {report.actions_per_frame:.1%} fresh, "
                f"{report.loop_share:.0%} of a core"
            )
            if setting is not None:
                worst.append(late["p99"])
                shares.append(report.loop_share or 0.0)
    print_hold("p99 lateness, ms, median", statistics.median(worst), most=0.2)
    print(f"{statistics.median(shares):.0%} of a core (median); load average {os.getloadavg()[0]:.1f}")


def hour(args: Namespace) -> None:
    """Print resident memory while a run goes on."""

    def resident() -> float:
        return psutil.Process().memory_info().rss / 1e6

    def play(count: int, timeline: Any) -> list[float]:
        sizes = []

        def look(status: FrameStatus) -> None:
            if status.frame % (count // 10) == 0:
                sizes.append(resident())

        latency = LogNormal(0.0012, 0.3)
        runner = AsyncRunner(joints, gains, 2, HZ, backend="virtual", latency=latency, timeline=timeline)
        report = runner.run(frames=count, on_frame=look)
        sizes.append(resident())
        print(f"  {timeline!r}: {report.frames['total']} frames, MB {', '.join(f'{size:.1f}' for size in sizes)}")
        return sizes

    print(f"\nresident memory at each tenth of {args.frames:,} frames at {HZ} Hz, two workers, one episode")
    few = play(args.frames // 20, "all")  # first, while nothing is free to be used again
    began = time.monotonic()
    sizes = play(args.frames, 10.0)
    took, whole = time.monotonic() - began, 20 * (few[-2] - few[0]) / 0.9
    print(f"in {took:.0f} s; all of it kept: {whole:,.0f} MB")
    print_hold("grown since the first tenth, MB", sizes[-2] - sizes[1], most=1.0)


# A core at release.

LATENCY = 0.060  # seconds that a worker's inference takes
HIDDEN = 256
numbers = partial(Numbers, 8, gym.spaces.Discrete(6))


class Slow:
    """A policy whose inference, or the slow half of it, takes so many seconds in all, to the absolute end."""

    def __init__(self, spec: VTrace, seconds: float = LATENCY) -> None:
        self._policy: Any = spec.make_policy()
        self._seconds, self.fast_age = seconds, getattr(self._policy, "fast_age", None)
        self.load_weights = self._policy.load_weights
        if hasattr(self._policy, "encode"):
            self.encode, self.release = partial(self._slowly, self._policy.encode), self._policy.release
        else:
            self.act = partial(self._slowly, self._policy.act)

    def _slowly(self, infer: Any, observation: Any, decision: Decision) -> Any:
        end = time.monotonic() + self._seconds
        answer = infer(observation, decision)
        while (rest := end - time.monotonic()) > 0:
            time.sleep(rest)
        return answer


def agent(hidden: int | None) -> VTrace:
    """Return V-trace with an LSTM of so many units; None for a network without memory."""
    env = numbers()
    network = partial(
        create_actor_critic,
        torso=partial(MLPTorso, hidden=(256,)),
        core=None if hidden is None else partial(LSTMCore, hidden=hidden),
        feed_previous=hidden is not None,
    )
    terms: dict[str, Any] = {"unroll_length": 20, "batch_size": 4, "when_full": "drop_oldest", "store_version": True}
    return VTrace(env.observation_space, env.action_space, stack_size=1, network=network, device="cpu", **terms)


def core(args: Namespace, learns: bool = False) -> None:
    """Print how late frames begin with memory and without."""
    what, seconds = f"4 workers{' and a learner' * learns}", args.seconds / 2
    print(f"\n{what}, 60 frames/s, {seconds:g} s{'':<14}{'p50 ms':>8}{'p99 ms':>8}{'fresh':>8}{'late':>6}{'delay':>7}")
    for name, units in ((f"LSTM of {HIDDEN}, core at release", HIDDEN), ("no memory", None)):
        spec = agent(units)
        terms: dict[str, Any] = {"default_action": 0, "extras": spec.extras, "features": spec.features}
        if learns:
            terms["make_learner"] = maker_of_learners(spec)
        with quietly():
            report = AsyncRunner(numbers, partial(Slow, spec), 4, 60, **terms).run(seconds=seconds)
        share, late = report.frames["fresh"] / report.frames["total"], report.frames["late_actions"]
        print(
            f"{name:<48}{report.lateness_ms['p50']:>8.3f}{report.lateness_ms['p99']:>8.3f}{share:>8.1%}{late:>6}"
            f"{report.delay_frames['mean']:>7.2f}"
        )


# A fast path.

FAST_LATENCY, FAST_UNITS, TEAM = 0.130, (200, 240), 10
RATES = {60: (1, 9), 500: (8, 72)}  # slot and playout, in frames


class Waves(Numbers):
    """Shows numbers that tell the frame, and writes the actions of its episode to a file when it is closed.

    Args:
        file: Where the actions go.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(8, gym.spaces.Discrete(6))
        self._file, self._actions = file, list[int]()

    def _shown(self) -> Any:
        return np.sin(np.arange(1, 9) * (len(self._actions) + 1) / 7).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode without end."""
        super().reset(seed=seed)
        self._actions = []
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one frame."""
        self._actions.append(int(action))
        return self._shown(), 1.0, False, False, {}

    def close(self) -> None:
        """Write the actions."""
        if self._actions:
            np.save(self._file, self._actions)


class InOrder(Trace):
    """Gives the recorded times in their order, from the first one on."""

    def stream(self, seed: Any = None) -> Any:
        """Return what draws them."""
        left = iter(self.latencies.tolist())
        return SimpleNamespace(draw=lambda: round(next(left, FAST_LATENCY) * 1e9))


def two_speeds(units: tuple[int, ...] | None) -> VTrace:
    """Return V-trace with a fast path of such layers; None for none."""
    env = Numbers(8, gym.spaces.Discrete(6))
    fast = None if units is None else partial(MLPTorso, hidden=units)
    torso = partial(MLPTorso, hidden=(256,))
    network = partial(create_actor_critic, torso=torso, fast=fast, feed_previous=False, action_window=8)
    terms: dict[str, Any] = {"unroll_length": 20, "batch_size": 4, "stack_size": 1, "device": "cpu"}
    return VTrace(env.observation_space, env.action_space, network=network, **terms)


def fast(args: Namespace) -> None:
    """Print how late frames begin with a fast path and without, and whether its decisions are the virtual clock's."""
    weights = sum(each.numel() for each in MLPTorso((8,), FAST_UNITS).parameters())
    names = ("p50 ms", "p99 ms", "missed", "fresh", "held", "late", "other")
    print(f"\na slow half of {FAST_LATENCY * 1e3:g} ms in {TEAM} workers, {args.seconds / 2:g} s each")
    print(f"{'':<48}" + "".join(f"{name:>9}" for name in names))
    rows: list[tuple[int, Any, Realtime | None]] = [(fps, units, None) for fps in RATES for units in (FAST_UNITS, None)]
    if may_schedule(50):
        rows += [(fps, FAST_UNITS, Realtime(lock=may_lock())) for fps in RATES]
    for fps, units, realtime in rows:
        slot, playout = RATES[fps]
        name = f"{fps} Hz, {'none' if units is None else f'a fast path of {weights:,} weights'}"
        name += ", Realtime()" * (realtime is not None)
        spec = two_speeds(units)
        terms: dict[str, Any] = {"default_action": 0, "features": spec.features, "extras": spec.extras}
        terms |= {"slot": slot, "playout": playout}
        terms |= {} if units is None else {"max_features_age": 4 * playout}
        slow = partial(Slow, spec, FAST_LATENCY), partial(Slow, spec, 0.0)
        with tempfile.TemporaryDirectory() as directory:
            files = [Path(directory) / f"{clock}.npy" for clock in ("real", "virtual")]
            with quietly():
                worlds, real = [partial(Waves, file) for file in files], {"latency": FAST_LATENCY, "realtime": realtime}
                with AsyncRunner(worlds[0], slow[0], TEAM, fps, **real, **terms) as runner:
                    report = runner.run(seconds=args.seconds / 2)
                virtual: dict[str, Any] = {"backend": "virtual"}
                virtual["latency"] = InOrder(report.latency_trace().latencies)
                with AsyncRunner(worlds[1], slow[1], TEAM, fps, **virtual, **terms) as runner:
                    runner.run(frames=report.frames["total"])
            actions = [np.load(file) for file in files]
        frames, late = report.frames, report.lateness_ms
        counts = frames["missed_deadlines"], frames["fresh"] / frames["total"], frames.get("held", 0)
        told = f"{late['p50']:>9.3f}{late['p99']:>9.3f}{counts[0]:>9}{counts[1]:>9.1%}{counts[2]:>9}"
        print(f"{name:<48}{told}{frames['late_actions']:>9}{int((actions[0] != actions[1]).sum()):>9}", flush=True)
        if fps == 60 and units is not None:
            print_hold("p99 lateness, ms", late["p99"], most=1.0)


def release(args: Namespace, times: int = 2_000) -> None:
    """Print what one release takes, beside the slow half and the whole."""
    torch.set_num_threads(1)
    print(f"\n{'microseconds, one row':<28}{'encode':>10}{'release p50':>14}{'p99':>8}{'whole':>8}")
    for size in (64, HIDDEN, 512):
        policy: Any = agent(size).make_policy()
        observation, memory = np.zeros(8, np.float32), Memory(None, 0.0, True, None)
        rows, nothing = observation[None, None], np.zeros(1, np.float32)
        of_one = Memories(policy.policy.initial_state(1), nothing.astype(np.int64), nothing, nothing == 0)
        stamps = np.zeros((times, 4))
        with torch.inference_mode():
            for step in range(times):
                decision = Decision(0, step, step, eval_mode=False)
                begin = time.perf_counter_ns()
                features = policy.encode(observation, decision)
                encoded = time.perf_counter_ns()
                answer = policy.release(features, memory, decision)
                released = time.perf_counter_ns()
                policy.policy.act(rows, of_one, (decision,))
                stamps[step] = begin, encoded, released, time.perf_counter_ns()
                memory = Memory(answer.action, 1.0, False, answer.state)
        took = np.diff(stamps - stamps[:1, :1]) / 1e3
        encode, released_p50, whole = np.median(took, axis=0)
        p99 = np.quantile(took[:, 1], 0.99)
        print(f"{f'LSTM of {size}':<28}{encode:>10.0f}{released_p50:>14.0f}{p99:>8.0f}{whole:>8.0f}")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {
            "exchange": exchange,
            "loop": loop,
            "khz": khz,
            "in_loop": partial(khz, workers=0),
            "hour": hour,
            "release": release,
            "core": core,
            "core_learning": partial(core, learns=True),
            "fast": fast,
        },
        seconds=(60.0, "of each run"),
        frames=(3_600_000, "of the hour"),
    )
