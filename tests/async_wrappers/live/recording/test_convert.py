"""Recordings as datasets of others: Minari's own reader, LeRobot's documented calls, and both back as demonstrations.

`FakeLeRobot` keeps to the documented signatures of LeRobotDataset v3 and checks frames as it does; LeRobot itself wants
an environment of its own.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import gymnasium as gym
import minari
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled

from async_wrappers import AsyncRunner, load_recording
from async_wrappers.__main__ import main
from async_wrappers.latency import LogNormal
from async_wrappers.live.recording.convert import from_lerobot, to_lerobot, to_minari
from tests.worlds.machines import Turning
from tests.worlds.recording_env import RecordingEnv


class Arm(gym.Env[Any, Any]):
    """Pays the frame's number; an episode terminates after 6 frames, or is truncated after 4."""

    observation_space = spaces.Dict(
        {
            "wrist": spaces.Box(0, 255, (4, 5, 3), np.uint8),
            "joints": spaces.Box(-9, 9, (2,), np.float32),
        }
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self) -> None:
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.frame, self.episodes = 0, self.episodes + 1
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        terminates = self.episodes % 2 == 1
        return self._seen(), float(self.frame), terminates and self.frame == 6, not terminates and self.frame == 4, {}

    def _seen(self) -> Any:
        return {"wrist": np.full((4, 5, 3), self.frame, np.uint8), "joints": np.full(2, self.frame / 8, np.float32)}


def make_policy() -> Any:
    return lambda observation: -observation["joints"] / 2


def recorded(directory: Path, fps: Any = 50, **arguments: Any) -> Path:
    given: dict[str, Any] = {"backend": "virtual", "latency": LogNormal(0.04, 0.3), "default_action": "repeat"}
    with AsyncRunner(Arm, make_policy, 3, fps, record=directory, **{**given, **arguments}) as runner:
        runner.run(episodes=4)
    return directory


def test_minari_reads_what_was_recorded(tmp_path: Path) -> None:
    source = recorded(tmp_path / "run")
    converted = to_minari(source, str(tmp_path / "arm"))
    assert converted == (tmp_path / "arm", 4, 20)
    dataset = minari.MinariDataset(tmp_path / "arm" / "data")
    assert (dataset.total_episodes, dataset.total_steps) == (4, 20)
    found = load_recording(source)
    for episode, ours in zip(dataset.iterate_episodes(), found, strict=True):
        assert np.array_equal(episode.observations["wrist"], ours.observations["wrist"])
        assert np.array_equal(episode.observations["joints"], ours.observations["joints"])
        assert np.array_equal(episode.actions, ours.sent)
        assert np.array_equal(episode.rewards, ours.rewards)
        assert episode.terminations.tolist() == [False] * (len(ours) - 1) + [ours.terminated]
        assert episode.truncations[-1] != ours.terminated
        assert np.array_equal(episode.infos["drawn"][1:], ours.drawn)
        assert all(np.array_equal(episode.infos[name][1:], values) for name, values in ours.columns.items())
    delays = found.delays()
    told = {"median": np.median(delays), "least": delays.min(), "most": delays.max()}
    assert dataset.storage.metadata["delay_frames"] == told


def test_a_minari_id_is_kept_where_minari_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "kept"))
    to_minari(recorded(tmp_path / "run"), "arm/test-v0")
    assert minari.load_dataset("arm/test-v0").total_episodes == 4


@pytest.mark.usefixtures("lerobot")
def test_a_target_that_exists_and_an_empty_recording_are_refused(tmp_path: Path) -> None:
    source = recorded(tmp_path / "run")
    (tmp_path / "there").mkdir()
    for converts in (to_minari, to_lerobot):
        with pytest.raises(ValueError, match=r"output '.*there' must be a new one, but .*there exists"):
            converts(source, str(tmp_path / "there"))
    for path in source.glob("*.npy"):
        path.unlink()
    with pytest.raises(ValueError, match="must have an episode with a frame, but nothing was recorded"):
        to_minari(source, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("lerobot")
def test_a_dry_runs_actions_which_had_no_effect_become_no_dataset(tmp_path: Path) -> None:
    given: dict[str, Any] = {"backend": "virtual", "latency": 0.01, "record": tmp_path / "run"}
    with AsyncRunner(Turning, lambda: lambda observation: [1.0], 1, dry_run=True, **given) as runner:
        runner.run(frames=6)
    facts = json.loads((tmp_path / "run" / "recording.json").read_text())
    assert facts["dry_run"] is True
    for converts in (to_minari, to_lerobot):
        with pytest.raises(ValueError, match="but it is one of a dry run, whose actions had no effect: record a run"):
            converts(tmp_path / "run", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_recording_from_before_dry_runs_were_noted_converts(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run") / "recording.json"
    facts = json.loads(path.read_text())
    assert facts.pop("dry_run") is False
    assert facts.pop("checksum")
    path.write_text(json.dumps({**facts, "format": 1}))
    with pytest.warns(RuntimeWarning, match="is of format 1, without checksums: damage to the content of its rows is"):
        assert to_minari(tmp_path / "run", str(tmp_path / "new")).episodes == 4


# LeRobot's documented interface.


class FakeLeRobot:
    """LeRobotDataset, as far as a conversion calls it; it keeps frames in memory, by its directory."""

    kept: ClassVar[list[FakeLeRobot]] = []

    def __init__(self, repo_id: str, root: Any = None) -> None:
        self.__dict__ = self.kept[int((Path(root) / "meta" / "info.json").read_text())].__dict__

    @classmethod
    def create(
        cls, repo_id: str, fps: int, features: Any, root: Any = None, robot_type: Any = None, use_videos: bool = True
    ) -> FakeLeRobot:
        made = cls.__new__(cls)
        assert isinstance(fps, int)
        assert not any("/" in name for name in features)
        made.fps, made.features, made.frames, made.rows, made.over = fps, features, [], [], False
        (Path(root) / "meta").mkdir(parents=True)
        (Path(root) / "meta" / "info.json").write_text(str(len(cls.kept)))
        cls.kept.append(made)
        return made

    def add_frame(self, frame: Any) -> None:
        assert set(frame) == {*self.features, "task"}
        for name, feature in self.features.items():
            assert isinstance(frame[name], np.ndarray)
            assert frame[name].shape == tuple(feature["shape"]), name
            if feature["dtype"] not in ("video", "image"):
                assert frame[name].dtype == feature["dtype"], name
        self.frames.append(dict(frame))

    def save_episode(self) -> None:
        episode = len({int(row["episode_index"]) for row in self.rows})
        for number, frame in enumerate(self.frames):
            values = {name: value for name, value in frame.items() if name != "task"}
            for name, feature in self.features.items():  # a reader gives floats, channels first
                if feature["dtype"] in ("video", "image"):
                    values[name] = np.moveaxis(values[name], -1, 0).astype(np.float32) / 255
            self.rows.append({**values, "frame_index": np.array(number), "episode_index": np.array(episode)})
        self.frames = []

    def finalize(self) -> None:
        self.over = True

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        assert self.over
        return self.rows[index]


@pytest.fixture
def lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("lerobot.datasets")
    module.LeRobotDataset = FakeLeRobot
    monkeypatch.setitem(sys.modules, "lerobot", ModuleType("lerobot"))
    monkeypatch.setitem(sys.modules, "lerobot.datasets", module)


@pytest.mark.usefixtures("lerobot")
def test_lerobot_gets_its_names_and_gives_the_recording_back(tmp_path: Path) -> None:
    source = recorded(tmp_path / "run")
    assert to_lerobot(source, tmp_path / "arm", "wave") == (tmp_path / "arm", 4, 20)
    features = FakeLeRobot.kept[-1].features
    assert features["observation.images.wrist"] == {
        "dtype": "video",
        "shape": (4, 5, 3),
        "names": ["height", "width", "channels"],
    }
    assert features["observation.state"]["dtype"] == "float32"
    assert {"action", "next.reward", "next.done", "realtime.delay", "realtime.drawn"} <= set(features)
    # Terminated episodes keep their frames, and of the others the last observation becomes the one after.
    assert from_lerobot(tmp_path / "arm", tmp_path / "back") == (tmp_path / "back", 4, 18)
    ours, back = load_recording(source), load_recording(tmp_path / "back")
    assert (back.fps, [len(episode) for episode in back]) == (50, [6, 3, 6, 3])
    for episode, again in zip(ours, back, strict=True):
        frames = len(again)
        assert np.array_equal(episode.sent[:frames], again.sent)
        assert np.array_equal(episode.drawn[:frames], again.drawn)
        assert np.array_equal(episode.rewards[:frames], again.rewards)
        assert np.array_equal(episode.observations["wrist"][:frames], again.observations["wrist"][:frames])
        assert np.array_equal(episode.observations["joints"][:frames], again.observations["state"][:frames])
        assert episode.terminated == again.terminated
        assert all(np.array_equal(values[:frames], again.columns[name]) for name, values in episode.columns.items())


@pytest.mark.usefixtures("lerobot")
def test_a_dataset_of_somebody_elses_has_no_delay(tmp_path: Path) -> None:
    features = {"observation.state": {"dtype": "float32", "shape": (2,), "names": None}}
    features["action"] = features["observation.state"]
    made = FakeLeRobot.create("local/x", 30, features, root=tmp_path / "theirs")
    for frame in range(5):
        made.add_frame({"observation.state": np.full(2, frame, "f4"), "action": np.ones(2, "f4"), "task": "x"})
    made.save_episode()
    made.finalize()
    assert from_lerobot(tmp_path / "theirs", tmp_path / "back").frames == 4
    (episode,) = load_recording(tmp_path / "back")
    assert episode.observations[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert episode.columns["delay"].tolist() == [0, 0, 0, 0]
    assert episode.sent.tolist() == [[1, 1]] * 4


@pytest.mark.usefixtures("lerobot")
def test_a_frame_rate_that_is_no_whole_number_is_refused_for_lerobot(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 59\.7275 frames per second, and LeRobot's datasets a whole number"):
        to_lerobot(recorded(tmp_path / "run", fps=59.7275), tmp_path / "arm")


JOINTS, CAMERA = spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 255, (4, 5, 3), np.uint8)


class Drawn(gym.Env[Any, Any]):
    """Observes what its space draws; an episode terminates after 3 frames.

    Args:
        observation_space: Of what it observes.
        action_space: Of what it takes.
    """

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any] = JOINTS) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.frame = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        return self.observation_space.sample(), 0.1, self.frame == 3, False, {}


def recorded_of(directory: Path, env: gym.Env[Any, Any]) -> Path:
    given: dict[str, Any] = {"backend": "virtual", "latency": 0.01, "default_action": "repeat", "record": directory}
    with AsyncRunner(lambda: env, lambda: lambda observation: env.action_space.sample(), 1, 50, **given) as runner:
        runner.run(episodes=1)
    return directory


@pytest.mark.parametrize(
    ("observed", "acted", "sentence"),
    [
        (
            {"joint.pos": JOINTS, "joint_pos": JOINTS},
            JOINTS,
            r"\['joint.pos'\] and \['joint_pos'\] .* 'observation.joint",
        ),
        (
            {"a": spaces.Dict({"b_c": JOINTS}), "a_b": spaces.Dict({"c": JOINTS})},
            JOINTS,
            r"\['a'\]\['b_c'\] and \['a_b'\]\['c'\] are both 'observation.a_b_c' in a LeRobot dataset: rename one",
        ),
        ({"a.b": CAMERA, "a_b": CAMERA}, JOINTS, r"\['a.b'\] and \['a_b'\] are both 'observation.images.a_b'"),
        ({"x": JOINTS}, spaces.Dict({"a.b": JOINTS, "a_b": JOINTS}), r"\['a.b'\] and \['a_b'\] are both 'action.a_b'"),
    ],
)
@pytest.mark.usefixtures("lerobot")
def test_entries_whose_names_would_meet_in_lerobot_are_refused(
    tmp_path: Path, observed: Any, acted: gym.Space[Any], sentence: str
) -> None:
    source = recorded_of(tmp_path / "run", Drawn(spaces.Dict(observed), acted))
    with pytest.raises(ValueError, match=sentence):
        to_lerobot(source, tmp_path / "arm")
    assert not (tmp_path / "arm").exists()


@pytest.mark.usefixtures("lerobot")
def test_features_that_would_be_one_entry_of_a_recording_are_refused(tmp_path: Path) -> None:
    observed = spaces.Dict({"state": CAMERA, "joints": JOINTS})
    to_lerobot(recorded_of(tmp_path / "run", Drawn(observed)), tmp_path / "arm")
    names = "observation.images.state and observation.state"
    with pytest.raises(ValueError, match=f"but {names} would both be 'state': rename one of them"):
        from_lerobot(tmp_path / "arm", tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.usefixtures("lerobot")
def test_actions_of_several_features_do_not_come_back_and_say_so(tmp_path: Path) -> None:
    acted = spaces.Dict({"arm": JOINTS, "hand": JOINTS})
    to_lerobot(recorded_of(tmp_path / "run", Drawn(JOINTS, acted)), tmp_path / "arm")
    with pytest.raises(ValueError, match=r"actions in one feature, 'action', got action\.arm, action\.hand: those of"):
        from_lerobot(tmp_path / "arm", tmp_path / "back")
    assert not (tmp_path / "back").exists()


# Minari's names, and what is not as it was written.


def test_names_with_a_slash_convert_to_names_that_minari_reads(tmp_path: Path) -> None:
    gripper = spaces.Tuple([JOINTS, spaces.Discrete(3)])
    observed = spaces.Dict(
        {"observation/joint_position": JOINTS, "observation/camera": CAMERA, "a": spaces.Dict({"b/c": JOINTS})}
    )
    acted = spaces.Dict({"arm/joints": JOINTS, "gripper": gripper})
    source = recorded_of(tmp_path / "run", Drawn(observed, acted))
    to_minari(source, str(tmp_path / "arm"))
    dataset = minari.MinariDataset(tmp_path / "arm" / "data")
    (theirs,), (ours,) = list(dataset.iterate_episodes()), load_recording(source)
    assert set(theirs.observations) == {"observation.joint_position", "observation.camera", "a"}
    for name in ("joint_position", "camera"):
        found, expected = theirs.observations[f"observation.{name}"], ours.observations[f"observation/{name}"]
        assert np.array_equal(found, expected)
    assert np.array_equal(theirs.observations["a"]["b.c"], ours.observations["a"]["b/c"])
    assert np.array_equal(theirs.actions["arm.joints"], ours.sent["arm/joints"])
    assert all(map(np.array_equal, theirs.actions["gripper"], ours.sent["gripper"]))
    assert dataset.observation_space["a"]["b.c"] == JOINTS


@pytest.mark.parametrize("name", ["", ".", "a\0b"])
def test_names_that_minari_cannot_read_back_are_refused_and_leave_nothing(tmp_path: Path, name: str) -> None:
    source = recorded_of(tmp_path / "run", Drawn(spaces.Dict({"x": JOINTS, name: JOINTS})))
    with pytest.raises(ValueError, match=r"^output '.*arm' is not written, as Minari fails \(.*\)$"):
        to_minari(source, str(tmp_path / "arm"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_entries_whose_names_would_meet_in_minari_are_refused(tmp_path: Path) -> None:
    source = recorded_of(tmp_path / "run", Drawn(spaces.Dict({"a/b": JOINTS, "a.b": JOINTS})))
    with pytest.raises(
        ValueError, match=r"^the entries 'a[./]b' and 'a[./]b' are both 'a\.b' in Minari: rename one of"
    ):
        to_minari(source, str(tmp_path / "arm"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_minari_reads_otherwise_than_it_was_given_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    source = recorded(tmp_path / "run")
    episodes = minari.MinariDataset.iterate_episodes

    def other(dataset: Any) -> Any:
        for episode in episodes(dataset):
            episode.actions[1] += 1
            yield episode

    monkeypatch.setattr(minari.MinariDataset, "iterate_episodes", other)
    with pytest.raises(ValueError, match=r"as Minari fails \(it reads other actions than it was given\)"):
        to_minari(source, str(tmp_path / "arm"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("to", ["minari", "lerobot"])
@pytest.mark.usefixtures("lerobot")
def test_a_damaged_recording_is_not_converted_and_leaves_nothing(tmp_path: Path, to: str, capsys: Any) -> None:
    path = recorded(tmp_path / "run") / "episode-000002.npy"
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-300] ^= 16
    for content in (whole[:-500], whole[: len(whole) // 2], bytes(flipped), b""):
        path.write_bytes(content)
        with pytest.raises(SystemExit) as ended:
            main(["convert", str(tmp_path / "run"), "--to", to, "--output", str(tmp_path / "arm")])
        assert ended.value.code == 2
        assert re.fullmatch(r".*episode-000002\.npy is damaged .*: delete it .*\n", capsys.readouterr().err)
        assert [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.usefixtures("lerobot")
def test_an_error_of_lerobots_is_a_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    source = recorded(tmp_path / "run")
    to_lerobot(source, tmp_path / "arm")

    def fails(*given: Any) -> Any:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(FakeLeRobot, "save_episode", fails)
    with pytest.raises(ValueError, match=r"^output '.*other' is not written, as LeRobot fails \(first line\)$"):
        to_lerobot(source, tmp_path / "other")
    monkeypatch.setattr(FakeLeRobot, "__getitem__", fails)
    with pytest.raises(ValueError, match=r"^'.*arm' cannot become a recording \(first line\)$"):
        from_lerobot(tmp_path / "arm", tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arm", "run"]


def test_without_lerobot_one_sentence_names_its_environment(tmp_path: Path, capsys: Any) -> None:
    source = recorded(tmp_path / "run")
    with pytest.raises(DependencyNotInstalled, match="needs LeRobot's own environment"):
        to_lerobot(source, tmp_path / "arm")
    with pytest.raises(SystemExit) as ended:
        main(["convert", str(source), "--to", "lerobot", "--output", str(tmp_path / "arm")])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_converts(tmp_path: Path, capsys: Any) -> None:
    source = recorded(tmp_path / "run")
    assert main(["convert", str(source), "--to", "minari", "--output", str(tmp_path / "arm")]) == 0
    assert capsys.readouterr().out == f"4 episodes, 20 frames: {tmp_path / 'arm'}\n"
    with pytest.raises(SystemExit):
        main(["convert", str(tmp_path / "none"), "--to", "minari", "--output", str(tmp_path / "other")])
    assert "must be a recording of AsyncRunner(record=...)" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--task", "pick"], ["--images"]])
def test_what_is_of_lerobot_is_refused_for_minari(words: list[str], tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["convert", str(tmp_path), "--to", "minari", "--output", str(tmp_path / "other"), *words])
    assert f"{words[0]} is of --to lerobot, got it with --to minari: leave it out\n" in capsys.readouterr().err


def test_flags_are_not_abbreviated(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["convert", str(tmp_path), "--to", "minari", "--out", str(tmp_path / "other")])
    assert "--output" in capsys.readouterr().err


def test_a_discrete_action_and_a_vector_convert(tmp_path: Path) -> None:
    given: dict[str, Any] = {"backend": "virtual", "latency": 0.03}
    with AsyncRunner(
        lambda: RecordingEnv(length=9), lambda: lambda observation: 3, 2, 60, record=tmp_path / "run", **given
    ) as runner:
        runner.run(episodes=2)
    to_minari(tmp_path / "run", str(tmp_path / "dataset"))
    metadata = json.loads((tmp_path / "dataset" / "data" / "metadata.json").read_text())
    assert metadata["fps"] == 60
    assert metadata["delay_frames"]["median"] == 2
