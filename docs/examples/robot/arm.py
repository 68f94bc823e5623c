"""An arm of two links that follows a target, in MuJoCo: as a machine that waits for nobody, and as an environment.

The arm lies flat. Its joints are driven by speed, or held at positions by servos. The target jumps now and then. `Arm`
is simulated in a thread of its own, 500 times a second of real time, whether anybody sends an action or not, and
follows the last one it was sent. `ArmEnv` is the same arm on simulated time, for training: a step is a frame.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np

FPS, HZ = 50, 500  # frames (as a rule), steps of the simulation per second
REACH = 0.6  # metres, of both links
FASTEST = 4.0  # radians per second, at an action of 1
JUMP = 1.5  # seconds between two targets
SPEEDS = '<velocity joint="shoulder" kv="2"/><velocity joint="elbow" kv="1"/>'
SERVOS = '<position joint="shoulder" kp="40" kv="2"/><position joint="elbow" kp="20" kv="1"/>'

MODEL = f"""
<mujoco model="arm">
  <option timestep="0.002" gravity="0 0 0" integrator="implicitfast"/>
  <visual><headlight ambient=".5 .5 .5"/><global offwidth="640" offheight="640"/></visual>
  <default><geom rgba=".25 .35 .6 1" density="600"/><joint type="hinge" axis="0 0 1" damping=".05"/></default>
  <worldbody>
    <camera name="above" pos="0 0 1.7"/>
    <light pos="0 0 2" dir="0 0 -1"/>
    <geom type="plane" size=".8 .8 .1" pos="0 0 -.06" rgba=".93 .93 .93 1" contype="0" conaffinity="0"/>
    <geom type="cylinder" size=".05 .05" rgba=".2 .2 .2 1" contype="0" conaffinity="0"/>
    <body>
      <joint name="shoulder"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".025" contype="0" conaffinity="0"/>
      <body pos=".3 0 0">
        <joint name="elbow"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" contype="0" conaffinity="0"/>
        <site name="tip" pos=".3 0 0" size=".03" rgba=".1 .1 .1 1"/>
      </body>
    </body>
    <body name="target" mocap="true">
      <geom type="sphere" size=".035" rgba=".85 .3 .1 1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator>{SPEEDS}</actuator>
</mujoco>
"""


class Simulation:
    """The arm and its target, stepped by whoever owns it.

    Observations are numbers about 1, float32 [10]: cosine and sine of both angles, both speeds, the place of the tip,
    and the way from there to the target. A reward is minus the distance of the tip from the target, in reaches.

    Args:
        positions: Whether an action is both angles, in radians, and not both speeds.
    """

    observation_space = gym.spaces.Box(-10.0, 10.0, (10,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, positions: bool = False) -> None:
        self.positions = positions
        self.model = mujoco.MjModel.from_xml_string(MODEL.replace(SPEEDS, SERVOS) if positions else MODEL)
        self.data = mujoco.MjData(self.model)
        self.random = np.random.default_rng()
        self.jumps_at = 0.0

    def reset(self, seed: int | None) -> None:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.random.uniform(-np.pi, np.pi), self.random.uniform(-2, 2)
        if self.positions:
            self.data.ctrl[:] = self.data.qpos
        self.jumps_at = 0.0
        self.step()

    def step(self) -> None:
        """Simulate 2 ms."""
        if self.data.time >= self.jumps_at:
            angle, distance = self.random.uniform(-np.pi, np.pi), self.random.uniform(0.3, 0.95) * REACH
            self.data.mocap_pos[0, :2] = distance * np.cos(angle), distance * np.sin(angle)
            self.jumps_at += JUMP
        mujoco.mj_step(self.model, self.data)

    def send(self, action: Any) -> None:
        self.data.ctrl[:] = (1.0 if self.positions else FASTEST) * np.asarray(action, float)

    def observe(self) -> tuple[np.ndarray, float]:
        """Return the observation and the reward."""
        data = self.data
        tip, target = data.site_xpos[0, :2], data.mocap_pos[0, :2]
        parts = (np.cos(data.qpos), np.sin(data.qpos), data.qvel / FASTEST, tip / REACH, (target - tip) / REACH)
        return np.concatenate(parts).clip(-10, 10).astype(np.float32), -float(np.hypot(*(target - tip)) / REACH)


class ArmEnv(gym.Env):
    """The arm on simulated time, with a number of frames per second that divides 500."""

    observation_space, action_space = Simulation.observation_space, Simulation.action_space
    metadata = {"render_modes": [], "render_fps": FPS}
    noop_action = np.zeros(2, np.float32)

    def __init__(self, fps: int = FPS) -> None:
        self.simulation, self.steps = Simulation(), HZ // fps
        self.metadata = {**self.metadata, "render_fps": fps}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.simulation.reset(seed)
        return self.simulation.observe()[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.simulation.send(action)
        for _ in range(self.steps):
            self.simulation.step()
        return *self.simulation.observe(), False, False, {}


class Arm:
    """The arm on real time: a `async_wrappers.live.world.machine.Machine`.

    Args:
        log: A file for what happened on each frame, written by `close`: ``time`` in seconds, ``angles``, ``speeds``,
            ``target``, ``action`` [frames, ...]. None writes nothing.
        positions: Whether it takes positions: both angles, in radians. It has ``hold_action`` then, else
            ``noop_action``.
    """

    observation_space = Simulation.observation_space
    timed_sensors = {"joints": slice(0, 8), "target": slice(8, 10)}  # numbers of the observation
    fps = FPS

    def __init__(self, log: str | Path | None = None, positions: bool = False) -> None:
        self.simulation, self.lock, self.stops = Simulation(positions), threading.Lock(), threading.Event()
        if positions:
            self.action_space = gym.spaces.Box(-np.pi, np.pi, (2,), np.float32)
            self.hold_action = angles_of
        else:
            self.action_space, self.noop_action = Simulation.action_space, np.zeros(2, np.float32)
        self.thread: threading.Thread | None = None
        self.log, self.rows, self.sent = log, [], np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Go on from where the arm is: only the first reset puts it anywhere."""
        if self.thread is None:
            self.simulation.reset(seed)
            self.stamp = time.monotonic()
            self.thread = threading.Thread(target=self._live, daemon=True)
            self.thread.start()
        with self.lock:
            return self.simulation.observe()[0], self._stamped()

    def send(self, action: Any) -> None:
        with self.lock:
            self.simulation.send(action)
        self.sent = action

    def observe(self) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        with self.lock:
            data, (observation, reward) = self.simulation.data, self.simulation.observe()
            if self.log is not None:
                row = (time.monotonic(), data.qpos.copy(), data.qvel.copy(), data.mocap_pos[0, :2].copy(), self.sent)
                self.rows.append(row)
            stamped = self._stamped()
        return observation, reward, False, False, stamped

    def _stamped(self) -> dict[str, Any]:
        """Return when the sensors were read: here both with the simulation's newest step."""
        return {"sensor_stamps": dict.fromkeys(self.timed_sensors, self.stamp)}

    def close(self) -> None:
        """Bring the arm to rest, and stop its world."""
        if self.thread is not None:
            positions = self.simulation.positions
            self.send(angles_of(self.simulation.observe()[0]) if positions else self.noop_action)
            time.sleep(0.1)  # it comes to rest, as a real one would have to
            self.stops.set()
            self.thread.join()
            self.thread = None
            if self.log is not None:
                names = ("time", "angles", "speeds", "target", "action")
                columns = zip(*self.rows, strict=True)
                np.savez(self.log, **{name: np.array(each) for name, each in zip(names, columns, strict=True)})

    def _live(self) -> None:
        """Simulate 2 ms every 2 ms. A thread that was late catches up."""
        begin = time.monotonic()
        step = 0
        while not self.stops.is_set():
            with self.lock:
                self.simulation.step()
                self.stamp = time.monotonic()
            step += 1
            if (rest := begin + step / HZ - time.monotonic()) > 0:
                time.sleep(rest)


def angles_of(observation: Any) -> np.ndarray:
    """Return both angles of an observation, in radians: as positions, they hold the arm where it was read."""
    return np.arctan2(observation[2:4], observation[:2])


gym.register(id="Arm-v0", entry_point=ArmEnv)
