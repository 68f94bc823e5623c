"""`GameBoyEnv`, on a cartridge that shows what happens to it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from async_wrappers import RealtimeDelay
from async_wrappers.envs.gameboy import Field, GameBoyEnv
from async_wrappers.wrappers.default_action import find_noop
from tests.worlds.gameboy.cartridge import BIT
from tests.worlds.gameboy.counter import NOOP, RIGHT, UP, A, B, counter_rom, counter_spec, make_counter

ACTIONS = np.random.default_rng(0).choice([A, UP, RIGHT, RIGHT, RIGHT, NOOP], size=60).tolist()


@pytest.fixture
def env(tmp_path: Path) -> Iterator[GameBoyEnv]:
    env = make_counter(tmp_path, obs_type="ram")
    yield env
    env.close()


def play(env: gym.Env[Any, Any], actions: list[int] = ACTIONS) -> list[Any]:
    """Reset and step; return all that was seen."""
    observation, info = env.reset(seed=0)
    seen: list[Any] = [(observation.tobytes(), info)]
    for action in actions:
        observation, *rest = env.step(action)
        seen.append((observation.tobytes(), *rest))
    return seen


def test_it_passes_gymnasiums_checks(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has no id here
        for obs_type in ("grayscale", "rgb", "ram"):
            check_env(make_counter(tmp_path, obs_type=obs_type), skip_render_check=True)


def test_a_step_is_one_frame(env: GameBoyEnv) -> None:
    env.reset()
    first = env.read("frames")
    for step in range(1, 20):
        env.step(NOOP)
        assert env.read("frames") == first + step


def test_an_action_holds_its_button_for_its_frame_alone(env: GameBoyEnv) -> None:
    env.reset()
    for action, button in enumerate(["a", None, "left", "up", "right", "down", None]):
        if action != B:
            env.step(action)
            assert env.read("buttons") == (0 if button is None else 1 << BIT[button])


def test_the_rule_is_paid_and_ends_the_episode_on_its_frame(env: GameBoyEnv) -> None:
    env.reset()
    assert [env.step(action)[1:3] for action in (A, NOOP, A, A)] == [(7, False), (0, False), (7, False), (7, False)]
    _, reward, terminated, truncated, info = env.step(B)
    assert (reward, terminated, truncated) == (0, True, False)
    assert info["game_state"] == 1
    with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
        env.step(NOOP)
    env.reset()
    assert env.step(NOOP)[1:4] == (0, False, False)


def test_who_changes_the_info_changes_nothing_else(env: GameBoyEnv) -> None:
    env.reset()
    for reward in (7, 7, 7):
        _, paid, _, _, info = env.step(A)
        assert paid == reward
        info["score_bcd"] = 9_999


def test_an_action_may_be_any_kind_of_whole_number_within_the_range(env: GameBoyEnv) -> None:
    env.reset()
    for action in (np.int64(A), np.array(A), A):
        assert env.step(action)[1] == 7
    frames = env.read("frames")
    for action in (-1, 7):
        with pytest.raises(ValueError, match=rf"^action must be a whole number from 0 to 6, got {action}$"):
            env.step(action)
    assert env.read("frames") == frames


def test_nothing_is_stepped_before_the_first_reset(env: GameBoyEnv) -> None:
    with pytest.raises(ResetNeeded):
        env.step(NOOP)


def test_each_reset_begins_at_the_same_frame(env: GameBoyEnv) -> None:
    first = play(env)
    assert play(env) == first
    assert first[0][1]["state"] == "power on"


def test_the_noop_is_found_by_name(env: GameBoyEnv) -> None:
    assert env.get_action_meanings() == ["A", "B", "LEFT", "UP", "RIGHT", "DOWN", "NOOP"]
    assert find_noop(env) == NOOP


@pytest.mark.parametrize("obs_type", ["grayscale", "rgb"])
def test_the_picture_lags_the_memory_by_a_frame(tmp_path: Path, obs_type: str) -> None:
    env = make_counter(tmp_path, obs_type=obs_type)
    still, _ = env.reset()
    unchanged, *_, info = env.step(RIGHT)
    assert info["level"] == 1  # scrolled
    assert np.array_equal(unchanged, still)
    assert not np.array_equal(env.step(NOOP)[0], still)


def test_observations_are_new_arrays(tmp_path: Path) -> None:
    env = make_counter(tmp_path, obs_type="rgb")
    env.reset()
    seen = [env.step(RIGHT)[0] for _ in range(3)]
    copies = [observation.copy() for observation in seen]
    env.step(RIGHT)
    assert all(np.array_equal(observation, copy) for observation, copy in zip(seen, copies, strict=True))
    assert not np.array_equal(seen[1], seen[2])


def test_grey_values_are_the_published_ones(tmp_path: Path) -> None:
    env = make_counter(tmp_path, obs_type="rgb", render_mode="rgb_array")
    shown, _ = env.reset()
    assert set(map(tuple, shown.reshape(-1, 3).tolist())) <= {(248, 252, 248), (168, 168, 168), (80, 84, 80), (0, 0, 0)}
    assert np.array_equal(env.render(), shown)
    grey, _ = make_counter(tmp_path, screen_size=144).reset()
    assert grey.shape == (144, 144)
    assert make_counter(tmp_path).reset()[0].shape == (84, 84)


def test_ram_observations_are_the_bytes_of_the_numbers_in_their_order(env: GameBoyEnv) -> None:
    env.reset()
    observation = env.step(A)[0]
    assert observation.tolist()[:6] == [0x07, 0, 0, 0, 0, env.read("frames") & 0xFF]
    assert observation.shape == env.observation_space.shape == (8,)


def test_a_number_can_be_read_by_name(env: GameBoyEnv) -> None:
    env.reset()
    env.step(UP)
    assert env.read("buttons") == 1 << BIT["up"]
    with pytest.raises(ValueError, match=r"^name must be one of score_bcd, .*, got 'money'$"):
        env.read("money")


def test_frames_that_are_not_looked_at_show_the_last_picture(tmp_path: Path) -> None:
    every, third = make_counter(tmp_path), make_counter(tmp_path, look_every=3)
    all_seen, seen = play(every), play(third)
    for frame, (one, other) in enumerate(zip(all_seen, seen, strict=True)):
        assert other[1:] == one[1:]
        assert other[0] == all_seen[frame - frame % 3][0]
    assert len({frame[0] for frame in seen}) > 5


@pytest.mark.parametrize(("delay", "noops"), [(0, 3), (3, 3), (8, 3), (4, 2)])
def test_under_a_delay_only_the_frames_that_decisions_read_need_be_looked_at(
    tmp_path: Path, delay: int, noops: int
) -> None:
    seen = []
    for look_every in (1, noops + 1):
        seen.append(play(RealtimeDelay(make_counter(tmp_path, look_every=look_every), delay, noops), ACTIONS[:12]))
    assert [step[0] for step in seen[0]] == [step[0] for step in seen[1]]
    assert len({step[0] for step in seen[0]}) > 3  # they differ


def test_all_frames_are_drawn_where_they_are_rendered(tmp_path: Path) -> None:
    env = make_counter(tmp_path, look_every=5, render_mode="rgb_array")
    assert play(env) == play(make_counter(tmp_path))
    env = make_counter(tmp_path, obs_type="ram", render_mode="rgb_array")
    env.reset()
    pictures = set()
    for _ in range(8):
        env.step(RIGHT)
        pictures.add(env.render().tobytes())
    assert len(pictures) > 4


def test_without_a_render_mode_nothing_is_rendered(env: GameBoyEnv) -> None:
    env.reset()
    assert env.render() is None


def test_a_window_shows_the_game_at_its_frame_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    slept: list[float] = []
    monkeypatch.setattr("async_wrappers.envs.gameboy.gameboy_env.time.sleep", slept.append)
    monkeypatch.setattr("async_wrappers.envs.gameboy.gameboy_env.time.monotonic_ns", lambda: 0)
    env = make_counter(tmp_path, render_mode="human", fps=50)
    assert env.metadata["render_fps"] == 50
    env.reset()
    for _ in range(3):
        env.step(RIGHT)
    assert slept == pytest.approx([0.02, 0.04, 0.06])
    assert env.render() is None
    env.close()


def test_the_frame_rate_is_that_of_a_game_boy(env: GameBoyEnv) -> None:
    assert env.metadata["render_fps"] == 59.7275


def test_a_saved_state_goes_on_as_it_did(tmp_path: Path) -> None:
    env = make_counter(tmp_path)
    play(env)
    state = env.save_state()
    observation, info = env.load_state(state)
    frames = env.read("frames")
    then = [env.step(action) for action in ACTIONS]
    again, info_again = env.load_state(state)
    assert np.array_equal(again, observation)
    assert info_again == info
    assert env.read("frames") == frames
    for action, (observation, *rest) in zip(ACTIONS, then, strict=True):
        seen, *rest_again = env.step(action)
        assert np.array_equal(seen, observation)
        assert rest_again == rest


def test_a_button_that_was_held_when_a_state_was_saved_is_let_go(env: GameBoyEnv) -> None:
    env.reset()
    env.step(UP)
    state = env.save_state()
    env.load_state(state)
    env.step(NOOP)
    assert env.read("buttons") == 0
    env.step(UP)
    env.load_state(state)
    env.step(UP)
    assert env.read("buttons") == 1 << BIT["up"]


def test_a_button_of_the_last_episode_can_be_pressed_anew(env: GameBoyEnv) -> None:
    for _ in range(2):
        env.reset()
        env.step(UP)
        assert env.read("buttons") == 1 << BIT["up"]


def test_an_episode_begins_with_the_state_that_is_asked_for(env: GameBoyEnv, tmp_path: Path) -> None:
    env.reset()
    for _ in range(30):
        env.step(A)
    content = env.save_state(tmp_path / "later.state")
    frames = env.read("frames")
    for state in (content, tmp_path / "later.state", str(tmp_path / "later.state")):
        _, info = env.reset(options={"state": state})
        assert info["score_bcd"] == 30 * 7
        assert env.read("frames") == frames + 1  # one frame without buttons
    assert env.reset()[1]["score_bcd"] == 0  # that was for one episode
    later = make_counter(tmp_path, state=tmp_path / "later.state")
    for _ in range(2):
        assert later.reset()[1]["score_bcd"] == 30 * 7


def traces(folder: str) -> list[Any]:
    return play(make_counter(Path(folder)))


def test_threads_and_processes_play_alike(tmp_path: Path) -> None:
    here = traces(str(tmp_path))
    folders = []
    for worker in range(3):
        (tmp_path / str(worker)).mkdir()
        folders.append(str(tmp_path / str(worker)))
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(traces, folders)) == [here] * 3
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        assert processes.submit(traces, folders[0]).result() == here


def test_another_thread_can_play_on(tmp_path: Path, env: GameBoyEnv) -> None:
    play(env)
    with ThreadPoolExecutor(1) as threads:
        moved = threads.submit(lambda: [env.step(action)[1:] for action in ACTIONS]).result()
    assert moved == [step[1:] for step in play_on(tmp_path)]


def play_on(folder: Path) -> list[Any]:
    env = make_counter(folder, obs_type="ram")
    play(env)
    return [env.step(action) for action in ACTIONS]


def test_a_pickled_environment_is_a_new_one(tmp_path: Path) -> None:
    env = make_counter(tmp_path, obs_type="rgb", look_every=2)
    play(env)
    copy = pickle.loads(pickle.dumps(env))
    with pytest.raises(ResetNeeded):
        copy.step(NOOP)
    assert play(copy) == play(env)


def test_sound_changes_nothing_but_the_time_it_takes(tmp_path: Path) -> None:
    assert play(make_counter(tmp_path, sound=True)) == play(make_counter(tmp_path))


@pytest.mark.parametrize("kind", ["dmg", "mbc3", "cgb"])
def test_nothing_is_read_or_written_beside_the_rom(tmp_path: Path, kind: str) -> None:
    for ending in ("ram", "rtc", "state"):
        (tmp_path / f"counter.gb.{ending}").write_bytes(b"\x55" * 0x8000)
    env = make_counter(tmp_path, kind)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    alone = tmp_path.parent / f"{tmp_path.name} alone"
    alone.mkdir()
    assert play(env) == play(make_counter(alone, kind))
    env.save_state()
    env.close()
    env.close()
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before


def test_a_game_boy_color_is_one_by_its_header(tmp_path: Path) -> None:
    shown, _ = make_counter(tmp_path, "cgb", obs_type="rgb").reset()
    assert (shown[..., 0] != shown[..., 2]).any()
    shown, _ = make_counter(tmp_path, "mbc3", obs_type="rgb").reset()
    assert (shown[..., 0] == shown[..., 2]).all()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (Field(0xC100, 1), 0x98),
        (Field(0xC100, 1, "signed"), 0x98 - 256),
        (Field(0xC101, 1, "signed"), 0x12),
        (Field(0xC100, 2), 0x9812),
        (Field(0xC100, 2, order="little"), 0x1298),
        (Field(0xC100, 3), 0x981234),
        (Field(0xC100, 3, order="little"), 0x341298),
        (Field(0xC100, 1, "decimal"), 98),
        (Field(0xC100, 2, "decimal"), 9812),
        (Field(0xC100, 3, "decimal", "little"), 341298),
    ],
)
def test_a_number_is_read_as_it_is_written(field: Field, expected: int) -> None:
    assert field.reader({0xC100: 0x98, 0xC101: 0x12, 0xC102: 0x34}, color=False)() == expected


def test_the_upper_work_ram_of_a_color_machine_is_read_in_its_first_bank() -> None:
    memory = {(1, 0xDFFF): 5, 0xDFFF: 6, 0xCFFF: 7, 0xE000: 8}
    assert Field(0xDFFF).reader(memory, color=True)() == 5
    assert Field(0xDFFF).reader(memory, color=False)() == 6
    assert [Field(address).reader(memory, color=True)() for address in (0xCFFF, 0xE000)] == [7, 8]


# What is refused


def refusal(**arguments: Any) -> str:
    with pytest.raises(ValueError) as error:
        GameBoyEnv(**arguments)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_missing_rom_is_refused_with_the_expected_hash_and_file(tmp_path: Path) -> None:
    spec = counter_spec(counter_rom())
    for rom in (None, tmp_path / "no.gb", tmp_path):
        message = refusal(rom=rom, spec=spec)
        assert message.startswith("rom")
        assert spec.roms[0].sha256 in message
        assert "counter.gb" in message
        assert rom is None or str(rom) in message


def test_another_rom_is_refused_with_both_hashes(tmp_path: Path) -> None:
    path = tmp_path / "other.gb"
    path.write_bytes(counter_rom("cgb"))
    message = refusal(rom=path, spec=counter_spec(counter_rom()))
    assert str(path) in message
    assert counter_spec(counter_rom("cgb")).roms[0].sha256 in message
    assert counter_spec(counter_rom()).roms[0].sha256 in message


def test_a_rom_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    message = refusal(rom=tmp_path / "mine.gb", spec=counter_spec(counter_rom()))
    assert "may not be read" in message
    assert "chmod u+r" in message


@pytest.mark.parametrize("content", [b"", b"no rom", bytes(0x8000), bytes(0x4001), counter_rom()[:0x4000]])
def test_bytes_that_are_no_cartridge_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rom.gb"
    path.write_bytes(content)
    assert "no Game Boy cartridge" in refusal(rom=path, spec=counter_spec(content))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"obs_type": "pixels"}, "obs_type must be 'grayscale', 'rgb' or 'ram', got 'pixels'"),
        ({"look_every": 0}, "look_every must be a whole number >= 1, got 0"),
        ({"screen_size": 8.5}, "screen_size must be a whole number >= 1, got 8.5"),
        ({"fps": 0}, "fps must be > 0 frames per second, got 0"),
        ({"render_mode": "ansi"}, "render_mode must be None, 'human' or 'rgb_array', got 'ansi'"),
        ({"state": 3}, "state must be the path of a save state, got 3"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_name_and_value(
    tmp_path: Path, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as error:
        make_counter(tmp_path, **arguments)
    assert str(error.value) == sentence
