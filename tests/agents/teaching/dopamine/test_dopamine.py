"""Dopamine's checkpoints: its own bytes read back, the formats written here, and what is refused.

The files in `dopamine/` were written by Dopamine 4.1.2 and TensorFlow 2.21
(`benchmarks/studies/dopamine_checkpoints.py`).
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TransformObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import AppliedActions, RealtimeDelay
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.teaching.dopamine import dopamine_replay
from async_wrappers.agents.teaching.dopamine.dopamine import DopamineTeacher, is_dopamine
from async_wrappers.agents.teaching.dopamine.dopamine_replay import DopamineReplay
from async_wrappers.agents.teaching.dopamine.tensor_bundle import read_tensors
from benchmarks.studies.dopamine_checkpoints import (
    CARTPOLE_HIGH,
    TOLERANCE,
    compare_replay,
    compare_tensors,
    compare_values,
)
from tests.worlds.experiments import load_gin
from tests.worlds.teachers import lessons_of, teachers_run

FILES = Path(__file__).parent / "files"
RANGE: dict[str, Any] = {"min_vals": [-each for each in CARTPOLE_HIGH], "max_vals": list(CARTPOLE_HIGH)}


def cartpole_teacher(path: Path = FILES / "jax_cartpole", **options: Any) -> DopamineTeacher:
    return DopamineTeacher(path, gym.make("CartPole-v1"), **{**RANGE, **options})


# Dopamine's own bytes.


def test_a_checkpoint_of_jax_dqn_has_dopamines_q_values() -> None:
    difference, largest = compare_values(FILES / "jax_cartpole", "jax_cartpole")
    assert difference <= TOLERANCE < largest


@pytest.mark.parametrize(("number", "prefix"), [(0, "0_"), (1, "1_")], ids=["full", "with room"])
def test_a_replay_of_dopamines_is_read_back_equal(number: int, prefix: str) -> None:
    equal, left_out, different = compare_replay(FILES / "replay", number, prefix, stack_size=3)
    assert different == 0 and equal > 80
    assert (left_out > 0) is (number == 0)  # a full ring's oldest episode has lost its beginning


def test_tensors_of_tensorflows_are_read_back_equal() -> None:
    assert compare_tensors(FILES / "tensors")
    assert list(read_tensors(FILES / "tensors" / "tf_ckpt-7", "Target/")) == ["Target/layer/bias", "Target/mask"]


def test_without_the_range_of_its_inputs_a_checkpoint_has_other_values() -> None:
    asked = np.load(FILES / "jax_cartpole" / "observations.npz")
    stacks = asked["states"].reshape(100, 1, 4)
    values = DopamineTeacher(FILES / "jax_cartpole", gym.make("CartPole-v1")).values(stacks)
    assert np.abs(values - asked["values"]).max() > 0.1


# Networks for images, against convolutions written out.


def padded(images: Any, kernel: int, stride: int) -> Any:
    """Pad [B, H, W, C] as "same" does."""
    total = max((-(-images.shape[1] // stride) - 1) * stride + kernel - images.shape[1], 0)
    return np.pad(images, ((0, 0), *2 * ((total // 2, total - total // 2),), (0, 0)))


def convolved(images: Any, layer: dict[str, Any], stride: int) -> Any:
    kernel = layer["kernel"]
    size = kernel.shape[0]
    windows = np.lib.stride_tricks.sliding_window_view(padded(images, size, stride), (size, size), axis=(1, 2))
    return np.einsum("bhwcij,ijco->bhwo", windows[:, ::stride, ::stride], kernel, optimize=True) + layer["bias"]


def nature_values(tree: dict[str, Any], states: Any, centred: bool = False) -> Any:
    """Dopamine's Nature DQN on states [B, H, W, k]."""
    features = states / 255.0
    if centred:
        features = 2 * features - 1
    for name, stride in (("Conv_0", 4), ("Conv_1", 2), ("Conv_2", 1)):
        features = np.maximum(convolved(features, tree[name], stride), 0)
    flat = features.reshape(len(states), -1)
    hidden = np.maximum(flat @ tree["Dense_0"]["kernel"] + tree["Dense_0"]["bias"], 0)
    return hidden @ tree["Dense_1"]["kernel"] + tree["Dense_1"]["bias"]


HEIGHT, WIDTH, STACK = 20, 36, 2


def nature_tree(actions: int = 3, state: tuple[int, int, int] = (HEIGHT, WIDTH, STACK)) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    flat = -(-state[0] // 8) * -(-state[1] // 8) * 64
    shapes = {
        "Conv_0": (8, 8, state[2], 32),
        "Conv_1": (4, 4, 32, 64),
        "Conv_2": (3, 3, 64, 64),
        "Dense_0": (flat, 512),
        "Dense_1": (512, actions),
    }
    return {
        name: {
            "kernel": (rng.normal(size=shape) / math.sqrt(math.prod(shape[:-1]))).astype(np.float32),
            "bias": rng.normal(size=shape[-1]).astype(np.float32),
        }
        for name, shape in shapes.items()
    }


class Images(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 255, (HEIGHT, WIDTH), np.uint8)
    action_space = gym.spaces.Discrete(3)


class _Reconstructed:
    """Pickles as an array of JAX does."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __reduce__(self) -> Any:
        function, arguments, state = self.array.__reduce__()
        module: Any = sys.modules["jax._src.array"]
        return module._reconstruct_array, (function, arguments, state, {"weak_type": False})


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module by the name of JAX's, so that pickles can name its function."""

    def _reconstruct_array(*arguments: Any) -> None:
        raise AssertionError("the pickle was executed")

    _reconstruct_array.__module__, _reconstruct_array.__qualname__ = "jax._src.array", "_reconstruct_array"
    for name in ("jax", "jax._src", "jax._src.array"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["jax._src.array"]._reconstruct_array = _reconstruct_array  # type: ignore[attr-defined]
    yield


def as_jax(tree: Any) -> Any:
    return {name: as_jax(each) for name, each in tree.items()} if isinstance(tree, dict) else _Reconstructed(tree)


def write_bundle(path: Path, **bundle: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps({"training_steps": 7, **bundle}))
    return path


@pytest.mark.parametrize("inputs", ["unit", "centred"])
def test_the_nature_network_of_images_that_are_no_squares_has_the_q_values_of_convolutions_written_out(
    tmp_path: Path, jax: None, inputs: str
) -> None:
    tree = nature_tree()
    state = np.zeros((HEIGHT, WIDTH, STACK))
    path = write_bundle(tmp_path / "ckpt.3", online_params={"params": as_jax(tree)}, state=state)
    states = np.random.default_rng(1).integers(0, 256, (5, HEIGHT, WIDTH, STACK), np.uint8)
    teacher = DopamineTeacher(path, Images(), inputs=inputs)
    expected = nature_values(tree, states, centred=inputs == "centred")
    np.testing.assert_allclose(teacher.values(np.moveaxis(states, -1, 1)), expected, atol=TOLERANCE)
    assert teacher.state()["training_steps"] == 7


def test_a_checkpoint_from_before_flaxs_linen_numbers_its_layers_through(tmp_path: Path) -> None:
    tree = nature_tree()
    tree["Dense_3"], tree["Dense_4"] = tree.pop("Dense_0"), tree.pop("Dense_1")
    path = write_bundle(tmp_path / "ckpt.3", online_params=tree)
    states = np.random.default_rng(1).integers(0, 256, (2, HEIGHT, WIDTH, STACK), np.uint8)
    tree = {**tree, "Dense_0": tree["Dense_3"], "Dense_1": tree["Dense_4"]}
    values = DopamineTeacher(path, Images()).values(np.moveaxis(states, -1, 1))
    np.testing.assert_allclose(values, nature_values(tree, states), atol=TOLERANCE)


# Which checkpoint, of which observations and actions.


def test_a_directory_names_its_newest_checkpoint(tmp_path: Path) -> None:
    assert is_dopamine(FILES / "jax_cartpole") and is_dopamine(FILES / "jax_cartpole" / "checkpoints" / "ckpt.1")
    assert not is_dopamine(tmp_path)
    with pytest.raises(ValueError, match=r"teacher_checkpoint_number must be one of .*checkpoints \(1\), got 399"):
        cartpole_teacher(number=399)


def test_a_run_of_ours_is_none_of_dopamines(tmp_path: Path) -> None:
    path = teachers_run(tmp_path, "Runner.num_iterations = 1", "create_agent.agent_name = 'random'")
    assert not is_dopamine(path) and not is_dopamine(path / "checkpoints" / "ckpt.0")


def test_a_teacher_plays_the_part_of_its_students_environment_that_shows_what_it_reads() -> None:
    told = RealtimeDelay(AppliedActions(gym.make("CartPole-v1"), length=2, flat=True), 3, 0, 0)
    teacher = DopamineTeacher(FILES / "jax_cartpole", told)
    assert teacher.environment is told.env.env  # type: ignore[attr-defined]


def test_other_observations_or_actions_are_refused_with_both_names() -> None:
    with pytest.raises(ValueError, match=r"must read the observations of its student, Box\(.*\(6,\).* of floats \[4\]"):
        DopamineTeacher(FILES / "jax_cartpole", gym.make("Acrobot-v1"))
    shown = TransformObservation(
        gym.make("Acrobot-v1"), lambda o: o[:4], gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    )
    with pytest.raises(
        ValueError, match=r"must have the actions of its student, Discrete\(3\), got a network of 2 out"
    ):
        DopamineTeacher(FILES / "jax_cartpole", shown)


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"min_vals and max_vals must be 4 numbers each, all below, got \[1\]"):
        cartpole_teacher(min_vals=[1])
    with pytest.raises(ValueError, match=r"DopamineTeacher\.inputs must be"):
        cartpole_teacher(inputs="raw")


def test_an_unknown_network_is_refused(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "ckpt.1", online_params={"Conv_0": nature_tree()["Conv_0"], "Dense_0": {}})
    with pytest.raises(ValueError, match=r"must hold the layers of a network of Dopamine's, got Conv_0, Dense_0"):
        DopamineTeacher(path, Images())
    tree = nature_tree()
    del tree["Conv_2"]
    path = write_bundle(tmp_path / "ckpt.1", online_params=tree)
    with pytest.raises(ValueError, match="must be a network of Dopamine's"):
        DopamineTeacher(path, Images())
    path = write_bundle(tmp_path / "ckpt.1", other=1)
    with pytest.raises(
        ValueError, match=r"must hold the weights of a JAX agent, online_params, got other, training_steps"
    ):
        DopamineTeacher(path, Images())


# Torn and hostile files.


class _Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return exec, (f"open({str(self.path)!r}, 'w')",)


def test_a_hostile_checkpoint_executes_nothing(tmp_path: Path) -> None:
    executed = tmp_path / "executed"
    path = write_bundle(tmp_path / "ckpt.1", online_params=_Hostile(executed))
    with pytest.raises(ValueError, match=r"ckpt.1 asks for the global builtins.exec, which is not loaded"):
        DopamineTeacher(path, Images())
    assert not executed.exists()
    assert pickle.loads(pickle.dumps(_Hostile(executed))) is None  # it does execute where nothing stands guard
    assert executed.exists()


def test_hostile_ends_of_episodes_execute_nothing(tmp_path: Path) -> None:
    copied = tmp_path / "checkpoints"
    shutil.copytree(FILES / "replay" / "checkpoints", copied)
    executed = tmp_path / "executed"
    (copied / "episode_end_indices_ckpt.0.gz").write_bytes(gzip.compress(pickle.dumps(_Hostile(executed))))
    with pytest.raises(ValueError, match=r"asks for the global builtins\.exec, which is not loaded"):
        DopamineReplay(copied, 0, 3)
    assert not executed.exists()


def test_ends_of_episodes_that_unpack_to_gigabytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dopamine_replay, "_MOST_ENDS", 1000)
    copied = tmp_path / "checkpoints"
    shutil.copytree(FILES / "replay" / "checkpoints", copied)
    (copied / "episode_end_indices_ckpt.0.gz").write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(ValueError, match="must hold the ends of episodes, got more than 1,000 bytes"):
        DopamineReplay(copied, 0, 3)


@pytest.mark.parametrize("name", ["observation", "terminal"])
def test_an_array_that_states_more_than_any_memory_holds_is_torn(tmp_path: Path, name: str) -> None:
    copied = tmp_path / "checkpoints"
    shutil.copytree(FILES / "replay" / "checkpoints", copied)
    header = io.BytesIO()
    rows = DopamineReplay(copied, 0, 3).capacity
    shape = (rows, 2**55) if name == "observation" else (2**55,)
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    (copied / f"$store$_{name}_ckpt.0.gz").write_bytes(gzip.compress(header.getvalue() + bytes(100)))
    with pytest.raises(ValueError, match="is no whole array of Dopamine's replay"):
        list(DopamineReplay(copied, 0, 3).episodes())


@pytest.mark.parametrize("length", [0, 1, 100, 3000, 6000])
def test_a_torn_checkpoint_is_refused_in_one_sentence(tmp_path: Path, length: int) -> None:
    whole = (FILES / "jax_cartpole" / "checkpoints" / "ckpt.1").read_bytes()
    (tmp_path / "ckpt.1").write_bytes(whole[:length])
    with pytest.raises(ValueError, match=r"ckpt.1 is no whole checkpoint of Dopamine's"):
        cartpole_teacher(tmp_path)


@pytest.mark.parametrize("name", ["tf_ckpt-7.index", "tf_ckpt-7.data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_damaged_tensors_are_refused_in_one_sentence(tmp_path: Path, name: str, damage: str) -> None:
    shutil.copytree(FILES / "tensors", tmp_path / "tensors")
    path = tmp_path / "tensors" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content[:-60] if damage == "cut" else content)
    if damage == "missing":
        path.unlink()
    expected = "cannot be read" if damage == "missing" else "is no whole checkpoint of TensorFlow's"
    with pytest.raises(ValueError, match=expected):
        read_tensors(tmp_path / "tensors" / "tf_ckpt-7")


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_is_changed_in_an_index_ends_in_a_sentence_or_changes_nothing(data: st.DataObject) -> None:
    whole = (FILES / "tensors" / "tf_ckpt-7.index").read_bytes()
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    changed = bytearray(whole)
    changed[at] ^= 1 << bit
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        (directory / "tf_ckpt-7.index").write_bytes(changed)
        shutil.copy(FILES / "tensors" / "tf_ckpt-7.data-00000-of-00001", directory)
        try:
            read = read_tensors(directory / "tf_ckpt-7")
        except ValueError as error:
            assert "tf_ckpt-7" in str(error)
        else:
            assert len(read) == 23


@pytest.mark.parametrize("name", ["$store$_observation", "$store$_reward", "add_count", "episode_end_indices"])
def test_a_torn_or_missing_file_of_a_replay_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    copied = tmp_path / "checkpoints"
    shutil.copytree(FILES / "replay" / "checkpoints", copied)
    path = copied / f"{name}_ckpt.1.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"_ckpt\.1\.gz is no whole"):
        list(DopamineReplay(copied, 1, 3).episodes())
    path.unlink()
    if name == "episode_end_indices":  # which Dopamine did not write before 2020
        assert list(DopamineReplay(copied, 1, 3).episodes())
        return
    with pytest.raises(ValueError, match=r"is no whole array of Dopamine.s replay .No such file or directory."):
        DopamineReplay(copied, 1, 3)


def test_without_the_ends_of_episodes_the_padding_shows_where_they_were_cut(tmp_path: Path) -> None:
    copied = tmp_path / "checkpoints"
    shutil.copytree(FILES / "replay" / "checkpoints", copied)
    known = list(DopamineReplay(copied, 1, 3).episodes())
    (copied / "episode_end_indices_ckpt.1.gz").unlink()
    found = list(DopamineReplay(copied, 1, 3).episodes())
    assert len(known) == len(found) > 5
    for (one, columns), (other, others) in zip(known, found, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(columns["kind"], others["kind"])


def test_a_replay_of_other_observations_or_actions_is_refused() -> None:
    replay = DopamineReplay(FILES / "replay" / "checkpoints", 0, 3)
    replay.check((3, 2), 5)
    with pytest.raises(ValueError, match=r"must hold observations \[84, 84\], as its teacher reads, got \[3, 2\]"):
        replay.check((84, 84), 5)
    with pytest.raises(ValueError, match="must hold actions below 3, its teacher's, got 4"):
        replay.check((3, 2), 3)


# A student of Dopamine's.


README_DEBUG = (
    "create_gym_environment.environment_id = 'CartPole-v1'",
    "Runner.training_steps = 30",
    "Runner.evaluation_steps = 10",
    "Runner.num_iterations = 1",
    "Runner.report_episodes = 0",
    "RunnerWithTeacher.num_pretraining_iterations = 2",
    "RunnerWithTeacher.num_pretraining_steps = 10",
    "DQNAgent.min_replay_history = 64",
    "DQNAgent.batch_size = 4",
)


def students_runner(tmp_path: Path, file: str, *bindings: str) -> Any:
    teacher = f"RunnerWithTeacher.teacher_checkpoint_dir = '{FILES / 'jax_cartpole'}'"
    number = "RunnerWithTeacher.teacher_checkpoint_number = 1"
    scale = [f"DopamineTeacher.{name} = {value}" for name, value in RANGE.items()]
    load_gin(file, bindings=[*README_DEBUG, teacher, number, *scale, *bindings])
    return create_runner(tmp_path / "student")


def write_columns(directory: Path, number: int, columns: dict[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, column in columns.items():
        with gzip.open(directory / f"{name}_ckpt.{number}.gz", "wb") as file:
            np.save(file, column)


def test_a_student_of_dopamines_teacher_collects_and_learns(tmp_path: Path) -> None:
    file = "configs/reincarnation/qdagger_dqn_cartpole.gin"
    runner = students_runner(tmp_path, file, "RunnerWithTeacher.teacher_steps = 40")
    runner.run_experiment()
    assert isinstance(runner.teaching.teacher, DopamineTeacher)
    assert runner.agent.updates >= 20
    gin.clear_config()
    again = students_runner(tmp_path, file, "RunnerWithTeacher.teacher_steps = 40")
    assert again.resume()


def test_offline_phases_without_a_replay_say_how_to_collect(tmp_path: Path) -> None:
    runner = students_runner(tmp_path, "configs/reincarnation/qdagger_dqn_cartpole.gin")
    with pytest.raises(ValueError, match=r"has no replay, .*ckpt.1.gz\): collect .*teacher_steps = 100_000"):
        runner.resume()


def test_dopamine_4s_own_replay_is_named(tmp_path: Path) -> None:
    shutil.copytree(FILES / "jax_cartpole", tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "1" / "replay").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"checkpoint\.msgpack, which is not read"):
        list(cartpole_teacher(tmp_path / "run").demonstrations())


def test_a_student_learns_offline_from_dopamines_replay(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    checkpoints = tmp_path / "run" / "checkpoints"
    shutil.copytree(FILES / "jax_cartpole", tmp_path / "run")
    columns = {
        "$store$_observation": rng.normal(size=(50, 4, 1)).astype(np.float32),
        "$store$_action": rng.integers(0, 2, 50),
        "$store$_reward": np.ones(50, np.float32),
        "$store$_terminal": (np.arange(50) % 10 == 9).astype(np.uint8),
        "add_count": np.array(40),
    }
    write_columns(checkpoints, 1, columns)
    runner = students_runner(
        tmp_path,
        "configs/reincarnation/qdagger_dqn_cartpole.gin",
        f"RunnerWithTeacher.teacher_checkpoint_dir = '{tmp_path / 'run'}'",
    )
    runner.resume()
    replay = lessons_of(runner.agent).teacher_replay
    assert len(replay) == 40
    stored = replay.transitions(replay.valid_slots(), 1)
    np.testing.assert_allclose(stored["observation"][:, 0], columns["$store$_observation"][:40, :, 0])
    expected = runner.teaching.teacher.values(columns["$store$_observation"][:40].reshape(40, 1, 4))
    labels = [label for each in runner.teaching.teacher.demonstrations() for _, label in each.transitions()]
    np.testing.assert_allclose(labels, expected, rtol=1e-5)


def test_the_debug_command_of_reincarnating_rl_has_a_counterpart(tmp_path: Path, jax: None) -> None:
    pytest.importorskip("ale_py")
    rng = np.random.default_rng(0)
    checkpoints = tmp_path / "Breakout" / "1" / "checkpoints"
    tree = as_jax(nature_tree(4, (84, 84, 4)))
    write_bundle(checkpoints / "ckpt.399", online_params={"params": tree}, state=np.zeros((84, 84, 4)))
    columns = {
        "$store$_observation": rng.integers(0, 256, (64, 84, 84), np.uint8),
        "$store$_action": rng.integers(0, 4, 64),
        "$store$_reward": np.zeros(64, np.float32),
        "$store$_terminal": np.zeros(64, np.uint8),
        "add_count": np.array(60),
    }
    # Published checkpoints have their replay in a directory beside, by another count.
    write_columns(checkpoints.parent / "replay_logs", 100, columns)
    bindings = (
        "create_atari_environment.game_name = 'Breakout'",
        f"RunnerWithTeacher.teacher_checkpoint_dir = '{checkpoints.parent}'",
        "RunnerWithTeacher.teacher_checkpoint_number = 399",
        "Runner.evaluation_steps = 10",
        "RunnerWithTeacher.num_pretraining_iterations = 2",
        "RunnerWithTeacher.num_pretraining_steps = 2",
        "DQNAgent.min_replay_history = 64",
        "create_network.torso = @ImpalaTorso",  # their ImpalaRainbowNetwork
        # Smaller and shorter than theirs, which plays on for hours.
        "ImpalaTorso.width = 0.0625",
        "Runner.num_iterations = 1",
        "Runner.training_steps = 70",
        "Runner.max_steps_per_episode = 20",
        "Runner.report_episodes = 0",
        "DQNAgent.replay_capacity = 500",
        "DQNAgent.batch_size = 4",
    )
    load_gin("configs/reincarnation/qdagger_rainbow.gin", bindings=bindings)
    runner: Any = create_runner(tmp_path / "qdagger_rainbow")
    runner.run_experiment()
    assert isinstance(runner.teaching.teacher, DopamineTeacher) and runner.agent.updates > 4


def test_fine_tuning_begins_with_dopamines_weights_and_moments(tmp_path: Path) -> None:
    shared = ("ReloadedDQNAgent.load_replay = False", "MLPTorso.hidden = (16, 16)", "DQNAgent.epsilon_train = 0.0")
    plain = (
        "RunnerWithTeacher.num_pretraining_iterations = 0",
        "DopamineTeacher.min_vals = None",
        "DopamineTeacher.max_vals = None",
    )
    runner = students_runner(tmp_path, "configs/reincarnation/reloaded_dqn_cartpole.gin", *shared, *plain)
    runner.resume()
    teacher = runner.teaching.teacher
    assert teacher.optimizer_name == "Adam"
    stacks = np.random.default_rng(0).normal(size=(5, 1, 4)).astype(np.float32)
    values = runner.agent.learner.network(torch.from_numpy(stacks)).detach().numpy()
    np.testing.assert_allclose(values, teacher.values(stacks), rtol=1e-6)
    moments = runner.agent.learner.state_dict()["optimizer"]["state"]
    assert moments[0]["step"] > 0 and moments[0]["exp_avg_sq"].abs().sum() > 0
