"""LeRobot's policies and robots through stand-ins with its modules, signatures and conventions (0.6.1).

LeRobot needs Python 3.12 and another PyTorch, so it is not installed where these tests run; `docs/live/adapters.md`
has what was tried with LeRobot itself.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Box

from async_wrappers import AsyncRunner, Chunk, Decision, MachineEnv, RealtimeDelay
from async_wrappers.live.adapters.lerobot import LeRobotMachine, left_over, lerobot_policy
from async_wrappers.testing.machines import MachineContract

SCALE = 4.0  # of the stand-in's normalised actions
HORIZON = 8


class FakePolicy:
    """Answers chunks [1, 8, 2]: entry i is the state plus i, in normalised units; it keeps what it was asked."""

    name = "fake"
    made: ClassVar[list[FakePolicy]] = []

    def __init__(self, config: Any) -> None:
        self.config, self.asked, self.resets, self.processor = config, [], 0, None
        self.made.append(self)

    @classmethod
    def from_pretrained(cls, path: str, *, config: Any = None) -> FakePolicy:
        return cls(config)

    def to(self, device: Any) -> FakePolicy:
        return self

    def eval(self) -> FakePolicy:
        return self

    def reset(self) -> None:
        self.resets += 1

    def supports_rtc(self) -> bool:
        return bool(self.config.supports)

    def init_rtc_processor(self) -> None:
        self.processor = self.config.rtc_config

    def predict_action_chunk(
        self, batch: dict[str, Any], inference_delay: int | None = None, prev_chunk_left_over: Any = None
    ) -> torch.Tensor:
        assert "action" not in batch
        self.asked.append((batch, inference_delay, prev_chunk_left_over))
        with torch.enable_grad():  # as guided real-time chunking does
            x = torch.zeros(1, HORIZON, 2).requires_grad_(True)
            (gradient,) = torch.autograd.grad((x * x).sum(), x)
        state = batch["observation.state"][:, None, :2]
        noise = 1e-3 * torch.randn(1)
        return (state + torch.arange(HORIZON)[None, :, None]) / SCALE + gradient + self.config.noise * noise


def tensors(observation: dict[str, Any], device: Any, task: str | None = None) -> dict[str, Any]:
    """Do what LeRobot's prepare_observation_for_inference does."""
    for name in observation:
        tensor = torch.from_numpy(observation[name]).to(device)
        if "image" in name:
            tensor = (tensor.type(torch.float32) / 255).permute(2, 0, 1).contiguous()
        observation[name] = tensor.unsqueeze(0)
    return {**observation, "task": task or ""}


def processors(config: Any, pretrained_path: str, **overrides: Any) -> tuple[Any, Any]:
    """Normalise states not at all, and actions by a factor, before and after the policy, as LeRobot's steps do."""
    assert overrides["preprocessor_overrides"] == {"device_processor": {"device": "cpu"}}

    def before(batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["task"] == [config.task]
        return {**batch, "action": batch["action"] / SCALE} if "action" in batch else dict(batch)

    return before, lambda actions: actions * SCALE


@pytest.fixture
def lerobot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Put the stand-ins in LeRobot's place; return a folder with a policy."""
    made: dict[str, dict[str, Any]] = {
        "lerobot.policies.utils": {"prepare_observation_for_inference": tensors},
        "lerobot.policies.factory": {
            "get_policy_class": {"fake": FakePolicy}.__getitem__,
            "make_pre_post_processors": processors,
        },
        "lerobot.configs.policies": {"PreTrainedConfig": SimpleNamespace(from_pretrained=read_config)},
        "lerobot.policies.rtc.configuration_rtc": {
            "RTCConfig": lambda enabled=True, **others: SimpleNamespace(enabled=enabled, **others)
        },
    }
    for name, contents in made.items():
        for parent in _parents(name):
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
        module = types.ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    write_config(tmp_path)
    monkeypatch.setattr(FakePolicy, "made", [])
    return str(tmp_path)


def _parents(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words))]


def read_config(path: str) -> Any:
    return SimpleNamespace(**json.loads((Path(path) / "config.json").read_text()))


def write_config(folder: Path, **changes: Any) -> None:
    config = {"type": "fake", "input_features": {"observation.state": 0}, "n_obs_steps": 1, "supports": True}
    config |= {"rtc_config": None, "task": "", "noise": 0.0}
    (folder / "config.json").write_text(json.dumps(config | changes))


def decision(start: int = 0, episode: int = 0) -> Decision:
    return Decision(episode, start, start, False)


def test_a_chunk_is_the_policys_after_its_processors_and_each_inference_is_afresh(lerobot: str) -> None:
    policy = lerobot_policy(lerobot, length=5)()
    chunk = policy.act(np.array([1.0, 2.0]), decision())
    assert chunk.dtype == np.float32
    np.testing.assert_allclose(chunk, np.array([1.0, 2.0]) + np.arange(5)[:, None])
    policy.act(np.array([1.0, 2.0]), decision())
    assert FakePolicy.made[0].resets == 2
    assert FakePolicy.made[0].asked[0][1:] == (None, None)


def test_inputs_are_renamed_and_pictures_are_lerobots(lerobot: str) -> None:
    names = ["observation.state", "observation.images.top", "observation.images.empty_camera_0"]
    write_config(Path(lerobot), input_features=dict.fromkeys(names, 0), task="fold")
    policy = lerobot_policy(
        lerobot, rename={"front": "observation.images.top", "q": "observation.state"}, task="fold"
    )()
    picture = np.full((4, 6, 3), 255, np.uint8)
    policy.act({"front": picture, "q": np.zeros(2), "unused": 3}, decision())
    batch = FakePolicy.made[0].asked[0][0]
    assert batch["observation.images.top"].shape == (1, 3, 4, 6)
    assert float(batch["observation.images.top"].max()) == 1.0
    assert batch["observation.state"].dtype == torch.float32
    assert batch["task"] == ["fold"]


def test_noise_follows_from_the_seed_and_the_decision(lerobot: str) -> None:
    write_config(Path(lerobot), noise=1.0)
    policy, other = lerobot_policy(lerobot)(), lerobot_policy(lerobot, seed=1)()
    first = policy.act(np.zeros(2), decision(3))
    policy.act(np.zeros(2), decision(4))
    np.testing.assert_array_equal(policy.act(np.zeros(2), decision(3)), first)
    assert not np.array_equal(policy.act(np.zeros(2), decision(3, episode=1)), first)
    assert not np.array_equal(other.act(np.zeros(2), decision(3)), first)


PREFIX = np.array([[1.0, 2.0, 0], [3.0, 4.0, 0], [5.0, 6.0, 0], [0, 0, 1], [7.0, 8.0, 0]], np.float32)


@pytest.mark.parametrize(("given", "delay"), [(None, 3), (2, 2), (9, 3)])
def test_the_committed_prefix_is_the_left_over_chunk_as_the_network_sees_it(
    lerobot: str, given: int | None, delay: int
) -> None:
    policy = lerobot_policy(lerobot, inference_delay=given, rtc={"execution_horizon": 4})()
    policy.act({"observation": np.zeros(2), "committed_prefix": PREFIX}, decision())
    assert FakePolicy.made[0].processor.execution_horizon == 4
    _, asked, left = FakePolicy.made[0].asked[0]
    assert asked == delay
    np.testing.assert_allclose(left, PREFIX[:3, :2] / SCALE)


def test_without_a_known_action_there_is_no_prefix(lerobot: str) -> None:
    policy = lerobot_policy(lerobot)()
    policy.act({"observation": np.zeros(2), "committed_prefix": np.float32([[0, 0, 1]] * 4)}, decision())
    assert FakePolicy.made[0].asked[0][1:] == (0, None)


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        ([[1, 0], [0, 0], [2, 0], [0, 0]], [[1], [0], [2], [0]]),
        ([[0, 1], [1, 0]], None),
        ([[0, 0], [0, 0]], [[0], [0]]),
        ([[1, 0], [0, 1]], [[1]]),
    ],
)
def test_what_is_left_over_ends_where_nothing_is_known(rows: Any, known: Any) -> None:
    found = left_over(np.array(rows, np.float32))
    assert found is None if known is None else found is not None and found.tolist() == known


class Joints(gym.Env[Any, Any]):
    """Two joints, driven by their place; its rewards show what came."""

    observation_space = Box(-100.0, 100.0, (2,), np.float32)
    action_space = Box(-100.0, 100.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.ones(2, np.float32), float(action[0]), False, False, {}


def test_an_episode_with_real_time_chunking_counts_its_steps_in_frames(lerobot: str) -> None:
    """A chunk lands 3 frames after its observation, and its first 3 entries are the running one's."""
    arguments: Any = {"fps": 10, "latency": 0.25, "playout": 3, "default_action": Chunk(HORIZON)}
    runner = AsyncRunner(Joints, lerobot_policy(lerobot), 1, backend="virtual", committed_prefix=3, **arguments)
    report = runner.run(frames=40)
    assert report.frames["fresh"] > 10
    asked = FakePolicy.made[0].asked
    assert asked[0][1:] == (0, None)
    assert len(asked) > 10
    for _, delay, left in asked[1:]:  # each chunk is the state plus 0, 1, 2, ..., and its successor starts on frame 3
        assert delay == 3
        np.testing.assert_allclose(left * SCALE, 1 + np.arange(3, 6)[:, None] * np.ones(2))


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        ({"n_obs_steps": 2}, {}, "reads one observation, .* which remembers n_obs_steps=2"),
        ({}, {"length": 9}, "length must be at most 8, the policy's own chunk, got 9"),
        (
            {"input_features": {"observation.images.top": 0}},
            {},
            r"top is missing, and the observation has 'observation\.s",
        ),
        ({"supports": False}, {}, "committed_prefix must be None for a policy without real-time chunking"),
    ],
)
def test_a_policy_that_does_not_fit_is_one_sentence(
    lerobot: str, change: dict[str, Any], arguments: dict[str, Any], sentence: str
) -> None:
    write_config(Path(lerobot), **change)
    shown = {"observation": np.zeros(2), "committed_prefix": PREFIX} if "supports" in change else np.zeros(2)
    with pytest.raises(ValueError, match=sentence) as raised:
        lerobot_policy(lerobot, **arguments)().act(shown, decision())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"path": 3}, "path must be a folder with a LeRobot policy"),
        ({"rename": ["a"]}, "rename must be a dict"),
        ({"task": None}, "task must be a sentence"),
        ({"length": 0}, "length must be a whole number of entries >= 1, got 0"),
        ({"inference_delay": -1}, "inference_delay must be a whole number of frames >= 0, got -1"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_loaded(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        lerobot_policy(**{"path": "somewhere", **arguments})


@pytest.mark.usefixtures("lerobot")
def test_a_folder_without_a_policy_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must be a folder with a LeRobot policy and its processors, .*nowhere"):
        lerobot_policy(str(tmp_path / "nowhere"))()


def test_without_lerobot_the_sentence_says_where_to_run_it() -> None:
    with pytest.raises(DependencyNotInstalled, match=r"needs the package lerobot .*in LeRobot's own environment"):
        lerobot_policy("somewhere")()


class Robot:
    """A robot with LeRobot's methods: two joints that a driver limits to 90, and a camera."""

    observation_features = {"pan.pos": float, "top": (4, 6, 3), "lift.pos": float}
    action_features = {"pan.pos": float, "lift.pos": float}
    is_connected = False

    def __init__(self) -> None:
        self.places = {"pan.pos": 1.0, "lift.pos": 2.0}

    def connect(self) -> None:
        self.is_connected = True

    def disconnect(self) -> None:
        assert self.is_connected
        self.is_connected = False

    def get_observation(self) -> dict[str, Any]:
        assert self.is_connected
        return {**self.places, "top": np.zeros((4, 6, 3), np.uint8)}

    def send_action(self, action: dict[str, float]) -> dict[str, float]:
        self.places = {name: max(-90.0, min(90.0, place)) for name, place in action.items()}
        return self.places


def test_a_robot_shows_lerobots_names_and_says_what_was_really_sent() -> None:
    robot = Robot()
    machine = LeRobotMachine(robot, lambda read: (-read["pan.pos"], read["lift.pos"] > 50), low=-100, high=100)
    observation, _ = machine.reset(seed=0)
    assert machine.observation_space.contains(observation)
    assert observation["observation.state"].tolist() == [1, 2]
    assert observation["observation.images.top"].shape == (4, 6, 3)
    assert machine.action_space == Box(-100, 100, (2,), np.float32)
    assert machine.send(np.array([99, 60], np.float32)).tolist() == [90, 60]
    _, reward, terminated, truncated, _ = machine.observe()
    assert (reward, terminated, truncated) == (-90, True, False)
    machine.close()
    machine.close()
    assert not robot.is_connected


def test_a_robot_holds_still_where_it_was_read_until_its_first_action() -> None:
    sent: list[list[float]] = []

    class Noting(Robot):
        def send_action(self, action: dict[str, float]) -> dict[str, float]:
            sent.append([*action.values()])
            return super().send_action(action)

    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.04, "playout": 2, "default_action": "repeat"}
    AsyncRunner(
        lambda: LeRobotMachine(Noting(), low=-100, high=100),
        lambda: lambda observation: np.array([5, 6], np.float32),
        1,
        50,
        **terms,
    ).run(frames=4)
    assert sent == [[1, 2], [1, 2], [5, 6], [5, 6], [5, 6]]


def test_a_speed_is_held_at_0_and_an_action_that_is_not_read_has_to_be_said() -> None:
    robot = Robot()
    robot.action_features = {"lift.pos": float, "x.vel": float, "pan.pos": float}
    machine = LeRobotMachine(robot)
    assert machine.hold_action(machine.reset()[0]).tolist() == [2, 0, 1]
    robot.action_features = {"lift.pos": float, "gripper.torque": float}
    unsaid = LeRobotMachine(robot)
    assert not hasattr(unsaid, "hold_action")
    with pytest.raises(ValueError, match=r"^default_action='repeat' needs to know what keeps LeRobotMachine at rest"):
        RealtimeDelay(MachineEnv(unsaid, waits=False), 1, default_action="repeat")


def test_a_robot_that_does_not_say_what_was_sent_is_sent_all_the_same() -> None:
    robot = Robot()
    robot.send_action = lambda action: robot.places.update(action)  # type: ignore[method-assign, assignment]
    machine = LeRobotMachine(robot, low=-100, high=100)
    machine.reset(seed=0)
    assert machine.send(np.array([30, 40], np.float32)) is None  # type: ignore[func-returns-value]
    assert machine.observe()[0]["observation.state"].tolist() == [30, 40]


@pytest.mark.parametrize("name", ["pan.pos", "top"])
def test_a_feature_that_the_robot_leaves_out_is_one_sentence(name: str) -> None:
    robot = Robot()
    machine = LeRobotMachine(robot, low=-100, high=100)
    machine.reset(seed=0)
    read = robot.get_observation()
    del read[name]
    robot.get_observation = lambda: read  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=rf"^get_observation must return a dict with .*, and '{name}' is missing$"):
        machine.observe()
    robot.send_action = lambda action: {"lift.pos": 1.0}  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"^send_action must return a dict with .*, and 'pan\.pos' is missing$"):
        machine.send(np.array([30, 40], np.float32))


@pytest.mark.parametrize(
    ("robot", "arguments", "sentence"),
    [
        (object(), {}, "robot must be a Robot of LeRobot's, which has observation_features"),
        (Robot(), {"judge": 3}, "judge must be a function"),
        (Robot(), {"low": [1, 2, 3]}, r"low and high must be numbers, or 2 each, .* got low=\[1, 2, 3\] and high=inf"),
    ],
)
def test_a_robot_that_is_none_is_refused(robot: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        LeRobotMachine(robot, **arguments)


def test_a_feature_of_another_kind_is_refused() -> None:
    robot = Robot()
    robot.observation_features = {"name": "a string"}  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"numbers .float. or pictures .shapes., got 'name'"):
        LeRobotMachine(robot)


class TestLeRobotMachine(MachineContract):
    def make_machine(self) -> LeRobotMachine:
        return LeRobotMachine(Robot(), low=-100, high=100)
