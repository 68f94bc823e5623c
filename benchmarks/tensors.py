"""What delays of thousands of rows cost: a step of `VectorRealtimeDelay`'s engine with nothing inside.

4,096 rows with observations of 48 numbers and 12 actions, each row late by a delay of its own between 0 and 5 frames.

* ``buffer``: PyTorch on the CPU, one thread, beside mjlab's `DelayBuffer`, which delays observations and actions by as
  much and knows neither decisions, rewards nor ends. mjlab must be installed (``pip install --no-deps mjlab``); two of
  its files are loaded, and nothing that needs a GPU. Hold: <= 1.5 times its time.
* ``robot``: PyTorch on the CPU, one thread, beside a step of as many of the smallest robot of mjlab (or of brax, if it
  alone is installed). Hold: <= .2 of its time. The first start compiles the robot's kernels for a minute.
* ``loop``: NumPy beside 4,096 `RealtimeDelay`. Hold: >= 100 times as fast. Beside them stands the least that any
  delay does with these arrays: observations into a ring, and one of each row out of it. Measured on two cores with
  three times as much other work as they do at once: 72, 78 and 82 times as fast, in three runs of 9 rounds (45 to 96 in
  single rounds), and the least 134 to 163 times. Half of a step is that least, which waits for memory.
* ``gpu``: PyTorch on a CUDA device: the time that a step adds, and that it waits for nothing. Hold: <= 100 us. Left out
  where there is no such device.

    python -m benchmarks.tensors [buffer] [robot] [loop] [gpu]
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from async_wrappers import RealtimeDelay
from async_wrappers.tensors.arrays import Library
from async_wrappers.tensors.row_delay import Outcome, RowDelay
from async_wrappers.tensors.row_schedule import EachEpisode, EachFrame, Pool
from benchmarks.measuring import interleave, median_ratio, print_hold, print_table, run_parts

ROWS, NUMBERS, ACTIONS, LONGEST = 4_096, 48, 12, 5
DELAYS = np.random.default_rng(0).integers(0, LONGEST + 1, ROWS)
BUFFER, OWN, DRAWN, LOOP = "DelayBuffer", "a delay of each row", "a latency of each frame", "4,096 RealtimeDelay"
LEAST = "a copy and a gather"


def steps_a_second(step: Callable[[], Any], times: int) -> float:
    """Return steps per second of processor time."""
    begin = time.process_time()
    for _ in range(times):
        step()
    return times / (time.process_time() - begin)


def stepped(to: Callable[[Any], Any], drawn: bool = False) -> Callable[[], Any]:
    """Return a step of the engine on arrays of a library."""
    draws = np.random.default_rng(1)
    observation, actions = (to(draws.normal(size=(ROWS, n)).astype(np.float32)) for n in (NUMBERS, ACTIONS))
    rewards, no = to(np.ones(ROWS, np.float32)), to(np.zeros(ROWS, bool))
    library = Library(observation)
    schedule: EachEpisode | EachFrame = EachEpisode(library, library.whole(DELAYS), 1, LONGEST)
    if drawn:
        schedule = EachFrame(library, Pool(library, draws.integers(0, LONGEST + 1, 16_384)))
    delay = RowDelay(library, schedule, to(np.zeros((ROWS, ACTIONS), np.float32)), repeats=True)
    rows, outcome = delay.begin(observation, rewards), Outcome(observation, rewards, no, no, observation)

    def step() -> None:
        nonlocal rows
        rows, _ = delay.step(rows, actions, lambda sent: outcome)

    return step


def delay_buffer() -> Any:
    """Return mjlab's class, without the rest of mjlab.

    Raises:
        SystemExit: It is not installed.
    """
    found = importlib.util.find_spec("mjlab")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the buffer's part needs mjlab: pip install --no-deps mjlab, or name the other part")
    folder = Path(found.submodule_search_locations[0]) / "utils" / "buffers"
    for name in ("mjlab", "mjlab.utils"):
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = []
    spec = importlib.util.spec_from_file_location(
        "mjlab.utils.buffers", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("mjlab", "mjlab.utils", spec.name):  # another part may want all of it
        del sys.modules[name]
    return module.DelayBuffer


def buffer(args: Namespace) -> None:
    """Compare with mjlab's buffers."""
    torch.set_num_threads(1)
    make = delay_buffer()
    observation, actions = torch.randn(ROWS, NUMBERS), torch.randn(ROWS, ACTIONS)
    of_observations, of_actions = (make(0, LONGEST, ROWS) for _ in range(2))

    def buffers() -> None:
        for each, array in ((of_observations, observation), (of_actions, actions)):
            each.append(array)
            each.compute()

    steps = {BUFFER: buffers, OWN: stepped(torch.as_tensor), DRAWN: stepped(torch.as_tensor, drawn=True)}
    samples = interleave({name: partial(steps_a_second, step, args.steps) for name, step in steps.items()}, args.rounds)
    print_table(f"{ROWS:,} rows of {NUMBERS} numbers and {ACTIONS} actions, PyTorch, steps/s", samples, BUFFER, 1)
    for name in (OWN, DRAWN):
        print_hold(f"time of {name} / {BUFFER}", 1 / median_ratio(samples, name, BUFFER), most=1.5)


def smallest_robot() -> tuple[str, Callable[[], Any]]:
    """Return the name of a robot, and a step of all its copies.

    Raises:
        SystemExit: No simulator is installed.
    """
    if importlib.util.find_spec("mjlab") is not None:
        import mjlab.tasks  # noqa: F401 - registers them
        from mjlab.envs import ManagerBasedRlEnv
        from mjlab.tasks.registry import load_env_cfg

        cfg = load_env_cfg("Mjlab-Cartpole-Balance")
        cfg.scene.num_envs = ROWS
        env, actions = ManagerBasedRlEnv(cfg, device="cpu"), torch.zeros(ROWS, 1)
        env.reset(seed=0)
        return "mjlab's cart-pole", lambda: env.step(actions)
    if importlib.util.find_spec("brax") is None:
        raise SystemExit("the robot's part needs mjlab or brax: pip install --no-deps mjlab, or name another part")
    import jax
    from brax import envs

    pendulum = envs.training.wrap(envs.get_environment("inverted_pendulum", backend="generalized"))
    state = jax.jit(pendulum.reset)(jax.random.split(jax.random.PRNGKey(0), ROWS))
    step, torques = jax.jit(pendulum.step), jax.numpy.zeros((ROWS, 1))
    return "brax's inverted pendulum", lambda: step(state, torques).obs.block_until_ready()


def robot(args: Namespace) -> None:
    """Compare with the step of a simulator."""
    torch.set_num_threads(1)
    name, step = smallest_robot()
    step()
    measures = {
        name: partial(steps_a_second, step, 2),
        OWN: partial(steps_a_second, stepped(torch.as_tensor), args.steps),
        DRAWN: partial(steps_a_second, stepped(torch.as_tensor, drawn=True), args.steps),
    }
    samples = interleave(measures, args.rounds)
    print_table(f"{ROWS:,} rows of {NUMBERS} numbers and {ACTIONS} actions, PyTorch, steps/s", samples, name, 1)
    for kind in (OWN, DRAWN):
        print_hold(f"time of {kind} / {name}", 1 / median_ratio(samples, kind, name), most=0.2)


def copied_and_gathered() -> Callable[[], Any]:
    """Return what a step does with observations at least, in NumPy."""
    ring = np.zeros((LONGEST + 1, ROWS, NUMBERS), np.float32)
    observation, elements = np.ones((ROWS, NUMBERS), np.float32), ring.reshape(-1, NUMBERS)
    places, clock = np.arange(ROWS) - DELAYS * ROWS, 0

    def step() -> None:
        nonlocal clock
        clock = (clock + 1) % len(ring)
        ring[clock] = observation
        elements.take(places + clock * ROWS, axis=0, mode="wrap")

    return step


class Still(gym.Env[Any, Any]):
    """Never changes."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (NUMBERS,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (ACTIONS,), np.float32)
        self._shown = np.zeros(NUMBERS, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._shown, {}

    def step(self, action: Any) -> Any:
        return self._shown, 1.0, False, False, {}


def loop(args: Namespace) -> None:
    """Compare with a loop over environments."""
    envs = [RealtimeDelay(Still(), int(delay), 0, "repeat") for delay in DELAYS]
    for env in envs:
        env.reset()
    actions = np.zeros((ROWS, ACTIONS), np.float32)

    def step_each() -> None:
        for env, action in zip(envs, actions, strict=True):
            env.step(action)

    measures = {
        LOOP: partial(steps_a_second, step_each, max(1, args.steps // 20)),
        OWN: partial(steps_a_second, stepped(np.asarray), args.steps),
        LEAST: partial(steps_a_second, copied_and_gathered(), args.steps),
    }
    samples = interleave(measures, args.rounds)
    print_table(f"{ROWS:,} rows, NumPy, steps/s", samples, LOOP, 1)
    print_hold(f"{OWN} / {LOOP}", median_ratio(samples, OWN, LOOP), least=100)


def gpu(args: Namespace) -> None:
    """Measure the time that a step adds on a CUDA device."""
    if not torch.cuda.is_available():
        print("LEFT OUT: gpu, since torch sees no CUDA device")
        return

    def microseconds(step: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(args.steps):
            step()
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        return float(time.perf_counter() - begin) / args.steps * 1e6

    steps = {OWN: False, DRAWN: True}
    measures = {name: partial(microseconds, stepped(_on_cuda, drawn)) for name, drawn in steps.items()}
    samples = interleave(measures, args.rounds)
    name = torch.cuda.get_device_name()
    print_table(f"{ROWS:,} rows of {NUMBERS} numbers and {ACTIONS} actions, {name}, us", samples, OWN, 1)
    print_hold(f"us of {OWN}", statistics.median(samples[OWN]), most=100)


def _on_cuda(array: Any) -> torch.Tensor:
    return torch.as_tensor(array, device="cuda")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"buffer": buffer, "robot": robot, "loop": loop, "gpu": gpu},
        rounds=(9, "interleaved repetitions"),
        steps=(60, "in each"),
    )
