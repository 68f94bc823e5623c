"""A step of rows and sensors never waits for the device that their arrays lie on.

PyTorch's device "meta" has shapes and no values: whatever needs a value raises there, such as a branch, a mask as an
index or a copy to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch.overrides import TorchFunctionMode

from async_wrappers import Chunk, LogNormal, Sensor, VectorRealtimeDelay, VectorSensorDelay
from async_wrappers.tensors import arrays
from async_wrappers.tensors.arrays import Library
from async_wrappers.tensors.row_delay import Outcome, RowDelay
from async_wrappers.tensors.row_schedule import EachEpisode, EachFrame, Pool
from async_wrappers.tensors.sensor_rows import SensorRows, timing_of
from tests.worlds.tensor_vector import Points

N = 4
TERMS: dict[str, dict[str, Any]] = {
    "constants": {"delay": 2},
    "of each row": {"delay": [0, 1, 2, 3], "noops": [0, 1, 0, 2]},
    "of each episode": {"delay": range(4)},
    "of each frame": {"latency": LogNormal(0.04, 0.5), "fps": 50, "per": "frame", "playout": 1},
    "chunks": {"latency": LogNormal(0.04, 0.5), "fps": 50, "per": "frame", "default_action": Chunk(4, after="repeat")},
}


class NoCopyToTheDevice(TorchFunctionMode):
    """Raises where a tensor is made of numbers on the host, whose copy a device waits for."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.asarray, torch.as_tensor, torch.tensor, torch.from_numpy):
            assert isinstance(args[0], torch.Tensor), f"{function.__name__} of {args[0]!r}"
        return function(*args, **(kwargs or {}))


@contextmanager
def waits_for_nothing(device: str) -> Iterator[None]:
    """Raise where a device would be waited for."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        with NoCopyToTheDevice():
            yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


every_device = pytest.mark.parametrize("device", ["meta", *(["cuda"] if torch.cuda.is_available() else [])])


def played(terms: dict[str, Any], mode: AutoresetMode, device: str, sensors: bool) -> Any:
    """Return a vector on a device after its first frames, and its actions."""
    vector: Any = Points(N, torch.zeros(1, device=device), mode)
    if sensors:
        late = {"of some": Sensor(LogNormal(0.03, 0.5), rate=30, drop=0.1, hold=0.1, of=slice(0, 2))}
        vector = VectorSensorDelay(vector, late, fps=50, shows_age=True)
    env: Any = VectorRealtimeDelay(vector, **{"default_action": "repeat", **terms})
    env.reset(seed=0)
    chunk = terms.get("default_action")
    actions = torch.zeros((N, 1) if chunk is None else (N, chunk.length, 1), device=device)
    env.step(actions)  # also runs the frames before anybody's action
    return env, actions


@every_device
@pytest.mark.parametrize(
    ("terms", "mode", "sensors"),  # sensors with and without, by turns, meet all terms and all modes
    [(term, mode, (i + j) % 2 == 1) for i, term in enumerate(TERMS) for j, mode in enumerate(AutoresetMode)],
)
def test_a_step_waits_for_nothing(terms: str, mode: AutoresetMode, sensors: bool, device: str) -> None:
    env, actions = played(TERMS[terms], mode, device, sensors)
    with waits_for_nothing(device):
        for _ in range(3):
            observations, rewards, *_, info = env.step(actions)
    arrays = [observations, rewards, info["final_obs"], *info["realtime"].values()]
    assert {array.device.type for array in arrays} == {device}


@pytest.mark.parametrize(
    "waits",
    [
        lambda array: bool(array[0] > 0),
        lambda array: array[array > 0],
        lambda array: array.cpu(),
        lambda array: array.numpy(),
        lambda array: array.tolist(),
        lambda array: array.nonzero(),
        lambda array: array + torch.zeros(N),
        lambda array: array + torch.asarray(np.zeros(N), device="meta"),
    ],
)
def test_what_waits_raises_here(waits: Callable[[Any], Any]) -> None:
    with waits_for_nothing("meta"), pytest.raises((RuntimeError, NotImplementedError, TypeError, AssertionError)):
        waits(torch.zeros(N, device="meta"))


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("terms", TERMS)
def test_a_step_that_may_not_look_at_values_returns_the_same(
    terms: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for looks in (True, False):
        monkeypatch.setattr(arrays, "is_host", lambda device, looks=looks: looks)
        env, actions = played(TERMS[terms], mode, "cpu", sensors=False)
        for frame in range(40):
            observations, rewards, terminated, truncated, info = env.step(actions + frame % 3 - 1)
            over, realtime = terminated | truncated, info["realtime"]
            results.append([observations, terminated, truncated, *(realtime[name] for name in sorted(realtime))])
            results[-1] += [rewards.float(), info["final_obs"][over] if over.any() else over]
            results[-1] += [info["final_info"]["realtime"][name][over] for name in ("frame", "start") if over.any()]
    for one, other in zip(results[:40], results[40:], strict=True):
        for array, same in zip(one, other, strict=True):
            torch.testing.assert_close(array, same, check_dtype=False)  # rewards are summed in float32 on a device


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
@pytest.mark.parametrize("per", ["episode", "frame"])
def test_a_step_of_jax_is_compiled_as_a_whole(per: str) -> None:
    import jax
    import jax.numpy as jnp

    library, draws = Library(jnp.zeros(1)), np.arange(4)
    pool = Pool(library, draws)
    schedule = EachFrame(library, pool) if per == "frame" else EachEpisode(library, pool, 1, 3)
    delay = RowDelay(library, schedule, jnp.zeros((N, 1)), repeats=True)
    sensor = SensorRows(library, timing_of("all", Sensor(LogNormal(0.03, 0.5), rate=30), 50, library, 0), N)

    def step(rows: Any, shown: Any, actions: Any, frame: Any) -> Any:
        observation, ends = jnp.broadcast_to(frame * 1.0, (N, 2)) + actions, frame % 5 == jnp.arange(N)
        shown = sensor.show(shown, observation, rows.frame + 1, rows.episode, rows.clock + 1, ends)
        outcome = Outcome(shown.value, actions[:, 0], ends, ends & False, observation)
        return (*delay.step(rows, actions, lambda sent: outcome), shown)

    first = jnp.zeros((N, 2))
    results = []
    for compiled in (step, jax.jit(step)):
        rows, shown = delay.begin(first, jnp.zeros(N)), sensor.begin(first)
        for frame in range(1, 12):
            rows, returned, shown = compiled(rows, shown, jnp.full((N, 1), frame * 0.5), jnp.asarray(frame))
            results.append([np.asarray(each).tolist() for each in jax.tree.leaves(returned)])
    assert results[:11] == results[11:]
