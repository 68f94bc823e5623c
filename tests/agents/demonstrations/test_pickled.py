"""The published layout is read, and nothing in a pickle is run."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.demonstrations.dataset import read_demonstrations


def rows(frames: int = 4, shape: tuple[int, ...] = (1, 1, 3, 3), kind: Any = np.uint8) -> list[tuple[Any, ...]]:
    """(obs, action, reward, next_obs) of one episode."""
    observations = [np.full(shape, number, kind) for number in range(frames + 1)]
    return [(observations[frame], frame % 7, float(frame), observations[frame + 1]) for frame in range(frames)]


def written(tmp_path: Path, value: Any, protocol: int = 4) -> str:
    path = tmp_path / "tetris_episode0.pkl"
    path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol))
    return str(path)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64, ">f4", "?"])
def test_every_protocol_and_type_of_number_is_read(tmp_path: Path, protocol: int, kind: Any) -> None:
    (episode,) = read_demonstrations(written(tmp_path, rows(kind=np.dtype(kind)), protocol))
    expected = np.stack([np.full((1, 1, 3, 3), number, kind) for number in range(5)])
    np.testing.assert_array_equal(episode.observations, expected)
    assert episode.actions.tolist() == [0, 1, 2, 3]
    assert episode.rewards.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert not episode.terminated  # the layout holds no end


@pytest.mark.parametrize("container", [list, tuple, deque])
def test_the_tuples_lie_in_a_list_a_tuple_or_a_deque(tmp_path: Path, container: Any) -> None:
    (episode,) = read_demonstrations(written(tmp_path, container(rows())))
    assert len(episode) == 4


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_scalars_and_arrays_of_any_memory_order_are_read(tmp_path: Path, protocol: int) -> None:
    first = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    second = np.arange(12.0).reshape(4, 3)[::2]
    value = [(first, np.int64(3), np.float32(1.5), second)]
    (episode,) = read_demonstrations(written(tmp_path, value, protocol))
    np.testing.assert_array_equal(episode.observations, np.stack([first, second]))
    assert (episode.actions.tolist(), episode.rewards.tolist()) == ([3], [1.5])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pictures_whose_channels_were_moved_to_the_front_are_read(tmp_path: Path, protocol: int) -> None:
    first, second = (np.arange(24).reshape(4, 2, 3).transpose(2, 0, 1) + number for number in range(2))
    (episode,) = read_demonstrations(written(tmp_path, [(first, 0, 0.0, second)], protocol))
    np.testing.assert_array_equal(episode.observations, np.stack([first, second]))


def test_the_names_of_older_numpy_are_read(tmp_path: Path) -> None:
    content = pickle.dumps(rows(), 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    (episode,) = read_demonstrations(written(tmp_path, content))
    assert len(episode) == 4


def test_a_new_episode_begins_where_an_observation_is_not_the_one_before_it(tmp_path: Path) -> None:
    first, second = rows(3), rows(2)
    episodes = list(read_demonstrations(written(tmp_path, first + second)))
    assert [len(episode) for episode in episodes] == [3, 2]
    assert [episode.observations[-1].max() for episode in episodes] == [3, 2]


class Runs:
    """Whose pickle calls `os.system`."""

    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


class Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Runs(), "the global posix.system"),
        ([(Runs(), 0, 0.0, 0)], "the global posix.system"),
        (Calls(eval, "1"), ".eval"),
        (Calls(getattr, "", "upper"), ".getattr"),
        (Calls(np.load, "x"), "the global numpy.load"),
        (np.array([Runs()], object), "arrays of numpy.object"),
        (np.zeros(2, [("a", "i4")]), "arrays of numpy.|V4"),
        (np.array(["a"]), "arrays of numpy.<U1"),
        (Path("x"), "the global pathlib"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_what_is_no_data_is_named_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any, named: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="which is not loaded") as caught:
        list(read_demonstrations(written(tmp_path, value, protocol)))
    assert named in str(caught.value)
    assert not (tmp_path / "ran").exists()


class PointerType:
    """Pickles as a number type whose state declares its bytes to be pointers."""

    def __reduce__(self) -> Any:
        return np.dtype, ("i8", False, True), (3, "|", None, None, None, -1, -1, 63)


class Pointers:
    """Pickles as an array of that type."""

    def __reduce__(self) -> Any:
        constructor, *_ = np.zeros(1).__reduce__()
        return constructor, (np.ndarray, (0,), b"b"), (1, (1,), PointerType(), False, b"\x01" * 8)


def test_an_array_that_declares_its_bytes_to_be_pointers_is_read_as_numbers(tmp_path: Path) -> None:
    """NumPy's own constructor would take the bytes for objects."""
    (episode,) = read_demonstrations(written(tmp_path, [(Pointers(), 0, 0.0, Pointers())]))
    assert episode.observations.dtype == np.int64
    assert episode.observations.tolist() == [[0x0101010101010101]] * 2


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "must hold a list of (obs, action, reward, next_obs), got a list of 0 ()"),
        ({"obs": 1}, "must hold a list of (obs, action, reward, next_obs), got a dict"),
        (np.zeros(3), "must hold a list of (obs, action, reward, next_obs), got a ndarray"),
        ([(np.zeros(2), 0, 0.0)], "entry 0 must be (obs, action, reward, next_obs)"),
        ([(np.zeros(2), 0, 0.0, np.zeros(3))], "entry 0 must be (obs, action, reward, next_obs)"),
        ([(np.zeros(2), float("inf"), 0.0, np.zeros(2))], "entry 0 must be (obs, action, reward, next_obs)"),
        ([*rows(2), (np.zeros(2), 0.5, 0.0, np.zeros(2))], "entry 2 must be (obs, action, reward, next_obs)"),
        ([(np.zeros(2), "left", 0.0, np.zeros(2))], "entry 0 must be (obs, action, reward, next_obs)"),
        (pickle.dumps(rows())[:-20], "is no whole pickle of (obs, action, reward, next_obs)"),
        (b"no pickle", "is no whole pickle of (obs, action, reward, next_obs)"),
        (b"", "is no whole pickle of (obs, action, reward, next_obs)"),
    ],
)
def test_other_data_is_refused_in_one_sentence(tmp_path: Path, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        list(read_demonstrations(written(tmp_path, value)))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def nested(levels: int) -> list[Any]:
    """A list of two in a list of two and so on, each the same one twice: as many numbers as 2 to the levels."""
    found: list[Any] = [0, 0]
    for _ in range(levels - 1):
        found = [found, found]
    return found


LOOP: list[Any] = []
LOOP += [LOOP, LOOP]
LARGE = np.zeros(200_000)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"Nr\xff\xff\xff\x7f.", "place 2,147,483,647 of its memo"),
        (b"Np4294967295\n.", "place 4,294,967,295 of its memo"),
        (b"\x80\x04\x95" + (2**40).to_bytes(8, "little") + b"N.", "a frame is longer"),
        (b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b"N.", "is no whole pickle"),
        (b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"N.", "is no whole pickle"),
        (Calls(bytearray, 2**40), "a bytearray of a int"),
        (b"\x80\x04}N" + b"\x85" * 1000 + b"Ns.", "tuples lie in each other"),
        (b"\x80\x04\x8fN(" + b"N\x86" * 1000 + b"\x90.", "tuples lie in each other"),
        ([(nested(40), 0, 0.0, nested(40))], "entry 0 must be"),
        ([(LOOP, 0, 0.0, LOOP)], "entry 0 must be"),
        ([(["a" * 10**4, *[""] * 10**4], 0, 0.0, [""])], "entry 0 must be"),
        ([(LARGE, 0, 0.0, LARGE)] * 200, "from its 1,60"),
    ],
)
@pytest.mark.timeout(20)
def test_a_small_file_does_not_take_much_memory_stack_or_time(tmp_path: Path, value: Any, said: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            list(read_demonstrations(written(tmp_path, value, 5)))
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()
    assert said in str(caught.value)


def test_a_second_pickle_in_a_file_is_not_left_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is no whole pickle .*bytes follow its end, and a file is one pickle: write"):
        list(read_demonstrations(written(tmp_path, 2 * pickle.dumps(rows()))))


@pytest.mark.parametrize("action", [2**63, -(2**63) - 1, 2**70])
def test_an_action_of_more_than_64_bits_is_refused(tmp_path: Path, action: int) -> None:
    with pytest.raises(ValueError, match=r"entry 1 must be .* a whole number of 64 bits"):
        list(
            read_demonstrations(
                written(tmp_path, [*rows(1), (np.ones((1, 1, 3, 3)), action, 0.0, np.zeros((1, 1, 3, 3)))])
            )
        )


def test_an_array_without_content_is_refused(tmp_path: Path) -> None:
    empty = Calls(*np.zeros(1).__reduce__()[:1], np.ndarray, (0,), b"b")
    (episode,) = read_demonstrations(written(tmp_path, [(empty, 0, 0.0, empty)]))
    assert episode.observations.shape == (2, 0)


@pytest.mark.parametrize("state", [{"__defaults__": ("F", None)}, (None, {"__defaults__": ("F", None)})])
def test_a_pickle_cannot_change_how_the_next_is_read(tmp_path: Path, state: Any) -> None:
    content = b"\x80\x04cnumpy._core.numeric\n_frombuffer\n" + pickle.dumps(state, 4)[2:-1] + b"b."
    with pytest.raises(ValueError, match="asks for a change of a function"):
        list(read_demonstrations(written(tmp_path, content)))


def test_a_sensor_that_was_nan_does_not_end_an_episode(tmp_path: Path) -> None:
    value = [(np.full(2, np.nan), frame, 0.0, np.full(2, np.nan)) for frame in range(3)]
    (episode,) = read_demonstrations(written(tmp_path, value))
    assert len(episode) == 3


def test_episodes_with_observations_of_two_shapes_are_stopped_at(tmp_path: Path) -> None:
    episodes = list(read_demonstrations(written(tmp_path, rows(2) + rows(3, (2, 2)))))
    assert [episode.observations.shape for episode in episodes] == [(3, 1, 1, 3, 3), (4, 2, 2)]
