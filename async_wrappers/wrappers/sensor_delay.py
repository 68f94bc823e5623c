"""`SensorDelay`: sensors of an environment that are late, each by its own latency and at its own rate.

A camera is later than an encoder, and shows fewer pictures than there are frames. Put it *inside* a `RealtimeDelay`:
first the sensors are late, then inference is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from async_wrappers.frame_rate import frame_rate
from async_wrappers.gymnasium_api import begun, stepped
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.tensors.arrays import Array, Library, Tree, each, first_array
from async_wrappers.tensors.sensor_rows import Sensor, SensorRows, ShownReadings, share_of, timing_of
from async_wrappers.wrappers.copies import VectorEnv, VectorWrapper
from async_wrappers.wrappers.lockstep import autoreset_mode
from async_wrappers.wrappers.measured_latencies import Latencies
from async_wrappers.wrappers.recorded import given, recorded

AGES = "sensor_ages"


class _Sensors:
    """The sensors of N environments.

    Args:
        space: Of one environment's observations.
        sensors: As given by the user.
        fps: Frames per second.
        shows_age: Whether ages are part of the observation.
    """

    def __init__(self, space: gym.Space[Any], sensors: Any, fps: Any, shows_age: bool) -> None:
        sensors = sensors.sensors if isinstance(sensors, Latencies) else sensors
        if not isinstance(sensors, Mapping):
            raise ValueError(f"sensors must be a dict from names to sensors or latencies, got {sensors!r}")
        FrameClock(fps)  # refuses what is no rate
        if shows_age and isinstance(space, Box) and not np.issubdtype(space.dtype, np.floating):
            raise ValueError(f"shows_age needs observations of real numbers or a Dict, got {space}")
        self._sensors = {
            name: sensor if isinstance(sensor := given(one), Sensor) else Sensor(sensor)
            for name, one in sensors.items()
        }
        self._fps, self._shows_age, self._is_dict = fps, shows_age, isinstance(space, Dict)
        if not self._sensors:
            raise ValueError("sensors must have one at least, got {}: name keys of the observation")
        if isinstance(space, Dict):
            for name, sensor in self._sensors.items():
                if name not in space.spaces or sensor.of is not None:
                    raise ValueError(f"sensors must be keys of {list(space.spaces)}, got {name!r}: {sensor}")
        elif isinstance(space, Box) and len(space.shape) == 1:
            numbers, of = range(space.shape[0]), dict[int, str]()
            for name, sensor in self._sensors.items():
                if sensor.of is None or not numbers[sensor.of] or (sensor.of.stop or 0) > len(numbers):
                    raise ValueError(
                        f"sensors must be slices of {len(numbers)} numbers, got {name!r}: {sensor}: give "
                        "Sensor(of=slice(...))"
                    )
                for each_number in numbers[sensor.of]:
                    if (other := of.setdefault(each_number, name)) != name:
                        raise ValueError(
                            f"sensors must have numbers of their own, got {each_number} of both {other!r} and {name!r}"
                        )
        else:
            raise ValueError(f"sensors need observations of a Dict, or of a Box of one axis, got {space}")
        for name, sensor in self._sensors.items():
            share_of(name, sensor, fps)  # refuses rates
        self.space = self._with_ages(space) if shows_age else space

    def _with_ages(self, space: gym.Space[Any]) -> gym.Space[Any]:
        ages = Box(0, np.inf, (len(self._sensors),), np.float32)
        if isinstance(space, Dict):
            return Dict({**space.spaces, AGES: ages})
        assert isinstance(space, Box)
        low, high = (np.concatenate([bound, of]) for bound, of in ((space.low, ages.low), (space.high, ages.high)))
        return Box(low, high, dtype=space.dtype.type)

    @property
    def timed(self) -> dict[str, slice | None]:
        """Each sensor's numbers of a Box; None of a Dict's key."""
        return {name: sensor.of for name, sensor in self._sensors.items()}

    def begin(self, observation: Tree, num_envs: int, seed: int | None) -> tuple[Tree, dict[str, Array]]:
        """Begin all episodes; return what the sensors show, and the age of each in seconds."""
        library = self._library = Library(first_array(observation))
        for name in self._sensors if self._is_dict else ():
            library.refuse_others(self._part(name, observation), f"the readings of {name!r}")
        entropy = np.random.SeedSequence(seed).generate_state(len(self._sensors)).tolist()
        self._rows = {
            name: SensorRows(library, timing_of(name, sensor, self._fps, library, its), num_envs)
            for (name, sensor), its in zip(self._sensors.items(), entropy, strict=True)
        }
        self._frame = self._episode = library.xp.zeros_like(library.xp.arange(num_envs, device=library.device))
        self._clock = 0
        self._shown: dict[str, ShownReadings] = {
            name: rows.begin(self._part(name, observation)) for name, rows in self._rows.items()
        }
        return self._joined(observation)

    def next(self, observation: Tree) -> tuple[Tree, dict[str, Array]]:
        """Show the next frame of all episodes."""
        self._frame, self._clock = self._frame + 1, self._clock + 1
        self._show(observation, self._frame < 0)
        return self._joined(observation)

    def mixed(self, over: Array, last: Any, observations: Tree) -> Tree:
        """Return the last observations of episodes that have ended, and the newest of the other rows."""
        if isinstance(last, np.ndarray) and last.dtype.hasobject:
            mixed = each(np.copy, observations)
            for row in np.flatnonzero(over).tolist():
                each(lambda array, value, row=row: array.__setitem__(row, value), mixed, last[row])
            return mixed
        return each(lambda one, other: self._library.where(over, one, other), last, observations)

    def restart(self, observation: Tree, which: Array) -> tuple[Tree, dict[str, Array]]:
        """Begin the episodes of some rows, bool [N], on the frame that was shown last."""
        where = self._library.xp.where
        self._frame = where(which, self._frame * 0, self._frame)
        self._episode = where(which, self._episode + 1, self._episode)
        self._show(observation, which)
        return self._joined(observation)

    def _show(self, observation: Tree, begun: Array) -> None:
        for name, rows in self._rows.items():
            part, when = self._part(name, observation), (self._frame, self._episode, self._clock)
            self._shown[name] = rows.show(self._shown[name], part, *when, begun)

    def _part(self, name: str, observation: Tree) -> Tree:
        return observation[name] if self._is_dict else observation[:, self._sensors[name].of]

    def _joined(self, observation: Tree) -> tuple[Tree, dict[str, Array]]:
        xp, per = self._library.xp, 1 / float(self._fps)
        ages = {
            name: rows.age(self._shown[name], self._frame, self._episode) * per for name, rows in self._rows.items()
        }
        stacked = xp.stack(list(ages.values()), axis=1) if self._shows_age else None
        if self._is_dict:
            own = self._library.own  # what is shown goes on being shown, whatever a caller writes into it
            joined = {**observation, **{name: each(own, shown.value) for name, shown in self._shown.items()}}
            return joined if stacked is None else {**joined, AGES: xp.astype(stacked, xp.float32)}, ages
        joined = xp.asarray(observation, copy=True)
        for name, shown in self._shown.items():
            joined = self._library.put(joined, (slice(None), self._sensors[name].of), shown.value)
        return joined if stacked is None else xp.concat([joined, xp.astype(stacked, joined.dtype)], axis=1), ages


class SensorDelay(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Shows what an environment's sensors show: each is late by its own latency and takes readings at its own rate.

    After ``reset`` and ``step`` ``info["sensor_ages"]`` has the age of each in seconds, of the reading that is shown.

    Example:
        >>> from async_wrappers import RealtimeDelay, Sensor, SensorDelay
        >>> import gymnasium as gym
        >>> env = gym.make("Pendulum-v1")  # cos, sin and speed of an arm, 20 frames a second
        >>> sensors = {"camera": Sensor(latency=0.1, rate=10, of=slice(0, 2)), "gyroscope": Sensor(of=slice(2, 3))}
        >>> env = RealtimeDelay(SensorDelay(env, sensors), delay=1, default_action="repeat")

    Args:
        env: An environment whose observations are a Dict, or a Box of one axis.
        sensors: By key of the Dict: a `Sensor`, or its latency alone. Of a Box a name, and a `Sensor` with ``of``. What
            no sensor names is never late. Or `Latencies`: those of a live run.
        fps: Frames per second; None for the environment's own (`async_wrappers.frame_rate.frame_rate`).
        shows_age: Whether the ages in seconds are a part of the observation, in the order of `sensors`: under the key
            ``"sensor_ages"``, or the last numbers of a Box.

    Attributes:
        fps: Frames per second, as given or found.

    Raises:
        ValueError: A sensor that is no part of the observations, a rate above the frame rate, or a vector; from
            `reset`: observations of several libraries or devices.
    """

    def __init__(
        self, env: gym.Env[Any, Any], sensors: Mapping[str, Any] | Latencies, fps: Any = None, shows_age: bool = False
    ) -> None:
        if isinstance(env, gym.vector.VectorEnv):
            raise ValueError(f"env must be a gymnasium.Env, got {env}: use VectorSensorDelay")
        sensors, fps = given(sensors), given(fps)
        told = recorded(sensors=sensors, fps=fps, shows_age=shows_age)
        gym.utils.RecordConstructorArgs.__init__(self, **told)
        gym.Wrapper.__init__(self, env)
        self.fps = frame_rate(env) if fps is None else fps
        self._sensors = _Sensors(env.observation_space, sensors, self.fps, bool(shows_age))
        self.observation_space = self._sensors.space
        self._begun = False

    @property
    def timed_sensors(self) -> dict[str, slice | None]:
        """The sensors, with their numbers of a Box, as a live run asks for them."""
        return self._sensors.timed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; a seed also restarts the draws of latencies, phases and losses."""
        observation, info = begun(self.env, seed=seed, options=options)
        rows = each(lambda array: np.asarray(array)[None], observation)
        if seed is not None or not self._begun:
            self._begun = True
            shown, ages = self._sensors.begin(rows, 1, seed)
        else:
            shown, ages = self._sensors.restart(rows, np.array([True]))
        return _first(shown), {**info, AGES: {name: float(age[0]) for name, age in ages.items()}}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment by a frame."""
        observation, reward, terminated, truncated, info = stepped(self.env, action)
        shown, ages = self._sensors.next(each(lambda array: np.asarray(array)[None], observation))
        info = {**info, AGES: {name: float(age[0]) for name, age in ages.items()}}
        return _first(shown), reward, terminated, truncated, info


def _first(shown: Tree) -> Tree:
    return each(lambda array: array[0].copy(), shown)


class VectorSensorDelay(VectorWrapper, gym.utils.RecordConstructorArgs):
    """As `SensorDelay`, of a vector whose environments step together: NumPy's arrays, PyTorch's, JAX's or CuPy's.

    Each environment has phases, latencies and losses of its own. ``info["sensor_ages"]`` has arrays [N], and where an
    episode has ended, the last observation is what its sensors show then.

    Args:
        env: The vector.
        sensors: As in `SensorDelay`.
        fps: Frames per second.
        shows_age: As in `SensorDelay`.

    Raises:
        ValueError: As in `SensorDelay`.
    """

    def __init__(
        self, env: VectorEnv, sensors: Mapping[str, Any] | Latencies, fps: Any, shows_age: bool = False
    ) -> None:
        if not isinstance(env, gym.vector.VectorEnv):
            raise ValueError(f"env must be a gymnasium.vector.VectorEnv, got {env}: use SensorDelay")
        gym.utils.RecordConstructorArgs.__init__(self, sensors=sensors, fps=fps, shows_age=shows_age)
        gym.vector.VectorWrapper.__init__(self, env)
        self._mode = autoreset_mode(env)
        self._sensors = _Sensors(env.single_observation_space, sensors, fps, bool(shows_age))
        self.single_observation_space = self._sensors.space
        self.observation_space = batch_space(self._sensors.space, env.num_envs)
        self._begun = False
        self._ended: Any = None  # whose next frame is the first of an episode, where that resets

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the vector, or by ``options={"reset_mask": ...}`` some of it."""
        chosen = None if options is None else options.get("reset_mask")
        if chosen is not None and not self._begun:
            raise ResetNeeded("VectorSensorDelay: call reset() without a reset_mask first: no episodes are running")
        passed_on: Any = {"seed": seed, "options": None if options is None else {**options}}
        observations, info = self.env.reset(**passed_on)
        if chosen is None:
            first = seed if seed is None or isinstance(seed, int) else next(iter(seed))
            first = None if first is None else int(first)
            self._ended, self._begun = None, True
            shown, ages = self._sensors.begin(observations, self.num_envs, first)
        else:
            if self._ended is not None:
                self._ended = self._ended & ~chosen
            shown, ages = self._sensors.restart(observations, chosen)
        return shown, {**info, AGES: ages}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments by a frame."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        over, info = terminated | truncated, dict(info)
        if self._mode is not AutoresetMode.SAME_STEP:
            shown, ages = self._sensors.next(observations)
            if self._mode is AutoresetMode.NEXT_STEP:
                if self._ended is not None:
                    shown, ages = self._sensors.restart(observations, self._ended)
                self._ended = over
            return shown, rewards, terminated, truncated, {**info, AGES: ages}
        name = next((name for name in ("final_obs", "final_observation") if name in info), None)
        last = observations if name is None else self._sensors.mixed(over, info[name], observations)
        shown, ages = self._sensors.next(last)
        if name is not None:
            info[name] = shown
        shown, ages = self._sensors.restart(observations, over)
        return shown, rewards, terminated, truncated, {**info, AGES: ages}
