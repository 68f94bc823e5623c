"""LeRobot's policies as policies of ours, and its robots as machines of ours.

LeRobot needs libraries of other versions than most environments have, so a policy of its runs where LeRobot is
installed, behind ``python -m async_wrappers serve``, and the robot's loop needs neither LeRobot nor PyTorch::

    # arm.py, beside LeRobot: python -m async_wrappers serve arm:make_policy
    make_policy = lerobot_policy("outputs/act/checkpoints/last/pretrained_model", device="cuda", length=25)

Real-time chunking (Black, Galliker, Levine, arXiv 2506.07339) has two inputs in LeRobot, which its own loop estimates
from wall time. Here both are counted in frames::

    prev_chunk_left_over   [T, A], what the running chunk has for this frame and the following ones: the rows of the
                           committed prefix (`async_wrappers.wrappers.committed_prefix`), as the network sees actions
    inference_delay        how many of them will be applied before the new chunk lands: the playout, or the delay
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Box, Dict

from async_wrappers.checks import function, whole
from async_wrappers.policy import Decision
from async_wrappers.wrappers.committed_prefix import KEY as PREFIX

_STATE, _IMAGES = "observation.state", "observation.images"
_EMPTY = f"{_IMAGES}.empty_camera"  # pictures that a policy pads itself


def lerobot_policy(
    path: str,
    device: str = "cpu",
    rename: Mapping[str, str] | None = None,
    *,
    task: str = "",
    length: int | None = None,
    inference_delay: int | None = None,
    rtc: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Callable[[], LeRobotPolicy]:
    """Return a function that makes a `LeRobotPolicy` with these arguments, which are checked now.

    Raises:
        ValueError: An argument is wrong.
    """
    if not isinstance(path, str) or not path:
        raise ValueError(f"path must be a folder with a LeRobot policy, or its name on the Hub, got {path!r}")
    if rename is not None and not isinstance(rename, Mapping):
        raise ValueError(f"rename must be a dict from the observation's names to LeRobot's, got {rename!r}")
    if not isinstance(task, str):
        raise ValueError(f"task must be a sentence for the policy, such as 'pick up the cube', got {task!r}")
    length = None if length is None else whole("length", length, 1, unit="entries")
    if inference_delay is not None:
        inference_delay = whole("inference_delay", inference_delay, 0, unit="frames")
    return partial(
        LeRobotPolicy,
        path,
        device,
        rename,
        task=task,
        length=length,
        inference_delay=inference_delay,
        rtc=rtc,
        seed=whole("seed", seed, 0),
    )


class LeRobotPolicy:
    """A `async_wrappers.policy.Policy` that LeRobot computes by ``predict_action_chunk``; it answers chunks [H, A].

    It is a pure function of the observation and the decision: LeRobot's policy is reset before each inference, and
    its noise follows from `seed` and the decision. So policies that remember observations are refused.

    Observations are dicts of LeRobot's names, pictures as [height, width, colours], or a vector, which is
    ``observation.state``. With ``AsyncRunner(committed_prefix=...)`` the policy must support real-time chunking.

    Args:
        path: Folder with ``config.json``, ``model.safetensors`` and the processors, as LeRobot saves it, or the name of
            such a folder on the Hub.
        device: Of PyTorch, such as ``"cuda"``.
        rename: From the observation's names to LeRobot's, as ``{"front": "observation.images.front"}``.
        task: A sentence for policies that read language.
        length: H, entries that are taken of the policy's chunk, as in ``Chunk(H)``. None takes all of them.
        inference_delay: With a committed prefix: frames until a chunk lands, the runner's playout. None: as many as the
            prefix has rows, which is right for ``committed_prefix=playout``.
        rtc: With a committed prefix: arguments of LeRobot's ``RTCConfig``, such as ``{"execution_horizon": 12}``; None
            for the policy's own, or the defaults.
        seed: Of the noise.

    Raises:
        DependencyNotInstalled: LeRobot is not installed here.
        ValueError: There is no such policy, or it remembers observations; in `act`: an input is missing, the chunk is
            shorter than `length`, or the policy has no real-time chunking.
    """

    def __init__(
        self,
        path: str,
        device: str = "cpu",
        rename: Mapping[str, str] | None = None,
        *,
        task: str = "",
        length: int | None = None,
        inference_delay: int | None = None,
        rtc: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        try:
            import torch
            from lerobot.policies.utils import prepare_observation_for_inference
        except ImportError as error:
            raise DependencyNotInstalled(
                f"a policy of LeRobot's needs the package lerobot ({error}): install async-wrappers in LeRobot's own "
                "environment, and run `python -m async_wrappers serve` there"
            ) from None
        self._torch, self._tensors = torch, prepare_observation_for_inference
        self._path, self._device, self._rename = path, torch.device(device), dict(rename or {})
        self._task, self._length, self._delay = task, length, inference_delay
        self._rtc, self._rtc_is_on, self._seed = rtc, False, seed
        self._policy, self._before, self._after = self._loaded()
        self._inputs = list(self._policy.config.input_features)
        remembered = getattr(self._policy.config, "n_obs_steps", 1)
        if remembered != 1:
            raise ValueError(
                f"path must be a policy that reads one observation, got {path!r}, which remembers n_obs_steps="
                f"{remembered}: staggered inferences have no common memory"
            )

    def act(self, observation: Any, decision: Decision) -> npt.NDArray[np.float32]:
        """Return the chunk [H, A] for an observation."""
        torch, rows = self._torch, None
        if isinstance(observation, Mapping) and PREFIX in observation:
            observation, rows = observation["observation"], observation[PREFIX]
            self._turn_rtc_on()
        self._policy.reset()
        torch.manual_seed(_noise(self._seed, decision))
        is_half = self._device.type == "cuda" and getattr(self._policy.config, "use_amp", False)
        # Guided real-time chunking differentiates, which nothing can inside of inference mode.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cuda") if is_half else nullcontext():
            batch = self._batch(observation)
            if rows is None:
                actions = self._policy.predict_action_chunk(self._before(batch))
            else:
                actions = self._continued(batch, rows)
            chunk: npt.NDArray[Any] = self._after(actions).float().cpu().numpy()
        chunk = chunk.reshape(chunk.shape[-2:]) if chunk.ndim > 2 else chunk
        if self._length is not None and len(chunk) < self._length:
            raise ValueError(f"length must be at most {len(chunk)}, the policy's own chunk, got {self._length}")
        return chunk[: self._length].astype(np.float32)

    def _continued(self, batch: dict[str, Any], rows: npt.NDArray[Any]) -> Any:
        """Return a chunk that goes on from the committed actions."""
        known = left_over(rows)
        if known is None:
            return self._policy.predict_action_chunk(self._before(batch), inference_delay=0, prev_chunk_left_over=None)
        # LeRobot's processors turn actions into what the network sees: normalised, and relative to the state.
        batch["action"] = self._torch.as_tensor(known, device=self._device)[None]
        batch = self._before(batch)
        prefix = batch.pop("action")[0]
        delay = len(known) if self._delay is None else min(self._delay, len(known))
        return self._policy.predict_action_chunk(batch, inference_delay=delay, prev_chunk_left_over=prefix)

    def _batch(self, observation: Any) -> dict[str, Any]:
        """Return LeRobot's tensors [1, ...] of an observation, with the task."""
        given = observation if isinstance(observation, Mapping) else {_STATE: observation}
        named = {self._rename.get(name, name): value for name, value in given.items()}
        missing = [name for name in self._inputs if name not in named and not name.startswith(_EMPTY)]
        if missing:
            raise ValueError(
                f"rename must give all inputs of {self._path!r}: {', '.join(missing)} is missing, and the observation "
                f"has {', '.join(map(repr, given))}"
            )
        arrays = {}
        for name in self._inputs:
            if name in named:
                array = np.array(named[name])  # a copy: tensors share their array's memory
                arrays[name] = array.astype(np.float32) if array.dtype == np.float64 else array
        batch: dict[str, Any] = self._tensors(arrays, self._device, self._task)
        batch["task"] = [self._task]
        return batch

    def _turn_rtc_on(self) -> None:
        if self._rtc_is_on:
            return
        policy = self._policy
        if not (callable(getattr(policy, "supports_rtc", None)) and policy.supports_rtc()):
            raise ValueError(
                f"committed_prefix must be None for a policy without real-time chunking, such as this "
                f"{getattr(policy, 'name', type(policy).__name__)}, or the policy one that has it (pi0, smolvla, ...)"
            )
        from lerobot.policies.rtc.configuration_rtc import RTCConfig

        if self._rtc is not None or getattr(policy.config, "rtc_config", None) is None:
            policy.config.rtc_config = RTCConfig(**(self._rtc or {}))
        policy.config.rtc_config.enabled = True
        if hasattr(policy, "init_rtc_processor"):
            policy.init_rtc_processor()
        self._rtc_is_on = True

    def _loaded(self) -> tuple[Any, Any, Any]:
        """Return the policy and its processors, before it and after it."""
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        try:
            config = PreTrainedConfig.from_pretrained(self._path)
            config.device = str(self._device)
            policy = get_policy_class(config.type).from_pretrained(self._path, config=config)
            on = {"device_processor": {"device": str(self._device)}}
            processors = make_pre_post_processors(
                policy.config, pretrained_path=self._path, preprocessor_overrides=on, postprocessor_overrides=on
            )
        except Exception as error:  # of LeRobot, safetensors, the Hub
            first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"path must be a folder with a LeRobot policy and its processors, or its name on the Hub, got "
                f"{self._path!r}: {first_line}"
            ) from error
        return policy.to(self._device).eval(), *processors


def left_over(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
    """Return the actions of a committed prefix, [T, A], up to the first that is not known; None for none.

    Args:
        rows: [length, A + 1]; the last column is one where the action is not known.
    """
    unknown = np.flatnonzero(rows[:, -1])
    known = rows[: unknown[0] if len(unknown) else len(rows), :-1]
    return np.array(known, np.float32) if len(known) else None


class LeRobotMachine:
    """A robot of LeRobot's as a `async_wrappers.live.world.machine.Machine`.

    Observations are dicts of LeRobot's names for data sets and policies: ``observation.state`` holds the numbers among
    ``observation_features`` in their order, ``observation.images.NAME`` each picture. An action holds the numbers of
    ``action_features``; `send` returns what ``send_action`` says was really sent, if it says so. The robot is connected
    by the first `reset` and disconnected by `close`. Where an episode begins is up to you: a subclass's `reset`, or
    your hands.

    Until the first action it holds still: each joint is sent the place where the reset read it, and a speed (its name
    ends in ``.vel``) is 0. For a robot with other actions than it reads, a subclass has to say how it is held, by
    ``noop_action`` or ``hold_action`` (`async_wrappers.live.world.machine.Machine`).

    Args:
        robot: A ``lerobot.robots.Robot``, or an object with its methods.
        judge: Function of the robot's own observation to (reward, terminated); None for 0 and False.
        low: Least action, a number or one for each joint.
        high: Largest action.

    Raises:
        ValueError: `robot` lacks a method, a feature is neither a number nor a picture, or a bound is of another shape.
    """

    def __init__(
        self,
        robot: Any,
        judge: Callable[[Mapping[str, Any]], tuple[float, bool]] | None = None,
        *,
        low: Any = -np.inf,
        high: Any = np.inf,
    ) -> None:
        needed = ("observation_features", "action_features", "get_observation", "send_action", "connect", "disconnect")
        if missing := [name for name in needed if not hasattr(robot, name)]:
            raise ValueError(f"robot must be a Robot of LeRobot's, which has {', '.join(missing)}, got {robot!r}")
        if judge is not None:
            function("judge", judge, "returns (reward, terminated) of an observation")
        self._robot, self._judge = robot, judge
        self._numbers, self._pictures = _features(robot.observation_features)
        self._joints, _ = _features(robot.action_features)
        spaces: dict[str, Any] = {
            f"{_IMAGES}.{name}": Box(0, 255, shape, np.uint8) for name, shape in self._pictures.items()
        }
        if self._numbers:
            spaces[_STATE] = Box(-np.inf, np.inf, (len(self._numbers),), np.float32)
        self.observation_space = Dict(spaces)
        shape = (len(self._joints),)
        try:
            with np.errstate(over="ignore"):  # beyond float32 there is no bound
                least, most = (np.broadcast_to(np.asarray(bound, np.float32), shape) for bound in (low, high))
            fits = bool((least <= most).all())  # not of NaN
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise ValueError(
                f"low and high must be numbers, or {shape[0]} each, and low <= high, got low={low!r} and high={high!r}"
            )
        self.action_space = Box(least, most, dtype=np.float32)
        if not hasattr(self, "hold_action") and all(name in self._numbers or _is_speed(name) for name in self._joints):
            self.hold_action = self._where_it_is

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Connect the robot, if it is not connected, and read it."""
        if not self._robot.is_connected:
            self._robot.connect()
        return self._shown(self._robot.get_observation()), {}

    def send(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
        """Send an action, and return what the robot's driver made of it; None where it does not say."""
        sent = self._robot.send_action(dict(zip(self._joints, action.tolist(), strict=True)))
        return None if sent is None else _array("send_action", sent, self._joints)

    def observe(self) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Read the robot."""
        read = self._robot.get_observation()
        reward, terminated = (0.0, False) if self._judge is None else self._judge(read)
        return self._shown(read), reward, terminated, False, {}

    def close(self) -> None:
        """Disconnect the robot."""
        if self._robot.is_connected:
            self._robot.disconnect()

    def _where_it_is(self, observation: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return the action that holds the robot where it was read."""
        read = dict(zip(self._numbers, observation.get(_STATE, ()), strict=True))
        return np.array([0.0 if _is_speed(name) else read[name] for name in self._joints], np.float32)

    def _shown(self, read: Mapping[str, Any]) -> dict[str, Any]:
        _refuse_missing("get_observation", read, self._pictures)
        shown: dict[str, Any] = {f"{_IMAGES}.{name}": read[name] for name in self._pictures}
        if self._numbers:
            shown[_STATE] = _array("get_observation", read, self._numbers)
        return shown


def _array(method: str, answer: Mapping[str, Any], names: Iterable[str]) -> npt.NDArray[np.float32]:
    """Return the numbers of these names that a method of a robot's has answered."""
    _refuse_missing(method, answer, names)
    return np.array([answer[name] for name in names], np.float32)


def _refuse_missing(method: str, answer: Any, names: Iterable[str]) -> None:
    if missing := [name for name in names if not isinstance(answer, Mapping) or name not in answer]:
        raise ValueError(f"{method} must return a dict with all of the robot's features, and {missing[0]!r} is missing")


def _features(features: Mapping[str, Any]) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """Return the names of the numbers among features, and the shapes of the pictures."""
    numbers = [name for name, kind in features.items() if isinstance(kind, type)]
    pictures = {name: kind for name, kind in features.items() if isinstance(kind, tuple)}
    if other := [name for name in features if name not in numbers and name not in pictures]:
        raise ValueError(f"a robot's features must be numbers (float) or pictures (shapes), got {other[0]!r}")
    return numbers, pictures


def _is_speed(name: str) -> bool:
    return name.endswith(".vel")


def _noise(seed: int, decision: Decision) -> int:
    """Return the seed of a decision's noise."""
    key = (seed, decision.episode, max(decision.start, 0), decision.env_id)
    return int(np.random.SeedSequence(key).generate_state(1)[0])
