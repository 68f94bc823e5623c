"""Rows with delays of their own against a `RealtimeDelay` for each, in every library that is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from array_api_compat import is_jax_array
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import RecordEpisodeStatistics
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import Chunk, LimitAction, Limits, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.tensors.row_schedule import Pool
from async_wrappers.tensors.vector_rows import draws_of_terms
from tests.worlds.tensor_vector import Counting, Tensors, counting_vector

MS = 1_000_000
FPS = 50


class Kind(NamedTuple):
    """A library: how arrays of NumPy's become its own, and back."""

    to: Callable[[Any], Any]
    back: Callable[[Any], Any]


def _jax() -> Kind:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    return Kind(jnp.asarray, np.asarray)


KINDS: dict[str, Callable[[], Kind]] = {
    "numpy": lambda: Kind(np.asarray, np.asarray),
    "torch": lambda: Kind(lambda array: torch.as_tensor(np.array(array)), lambda tensor: tensor.numpy()),
}
if find_spec("jax") is not None:
    KINDS["jax"] = _jax

Decision = tuple[Any, ...]


def policy(observation: Any, row: int, length: int | None) -> Any:
    """Return an action that says which observation it was computed from, or a chunk of them."""
    action = np.array([observation[0] * 1000 + observation[1] * 10 + row + 1.0])
    return action if length is None else np.stack([action + entry / 100 for entry in range(length)])


def alone(row: int, episodes: int, length: int | None, make: Callable[[Any, int], Any]) -> list[list[Decision]]:
    """Return the decisions of a row's episodes, each played under a `RealtimeDelay` of its own."""
    inner, played = Counting(row), []
    for episode in range(episodes):
        env = make(inner, episode)
        observation, _ = env.reset()
        decisions, over = [], False
        while not over:
            before = observation
            observation, reward, terminated, truncated, info = env.step(policy(observation, row, length))
            realtime, over = info["realtime"], terminated or truncated
            decisions.append(
                (
                    before.tolist() if realtime["applied"] else None,
                    *(reward, terminated, truncated, realtime["interval"], realtime["default_frames"]),
                    *((observation.tolist(), realtime["frame"], realtime["start"]) if over else ()),
                    *((realtime["executed"].tolist(),) if "executed" in realtime else ()),
                )
            )
        played.append(decisions)
    return played


def together(env: Any, kind: Kind, steps: int, length: int | None) -> list[list[list[Decision]]]:
    """Return the decisions of each row's episodes, the last of which may be under way."""
    log: list[list[list[Decision]]] = [[[]] for _ in range(env.num_envs)]
    read: list[Any] = [None] * env.num_envs
    returned: list[Any] = []
    observations, info = env.reset(seed=3)
    deciding = kind.back(info["realtime"]["deciding"])
    for _ in range(steps):
        shown = kind.back(observations)
        actions = kind.to(np.stack([policy(shown[row], row, length) for row in range(env.num_envs)]))
        observations, rewards, terminated, truncated, info = env.step(actions)
        if not is_jax_array(actions):
            actions[...] = np.nan  # a caller may use its array again
        assert type(observations) is type(rewards) is type(kind.to(np.zeros(1)))
        arrays = [observations, rewards, terminated, truncated, *info["realtime"].values()]
        returned += [(array, kind.back(array).copy()) for array in arrays]
        realtime = {name: kind.back(values) for name, values in info["realtime"].items()}
        ends = kind.back(terminated) | kind.back(truncated)
        for row in np.flatnonzero(realtime["unreported_reward"]).tolist():
            log[row].append([("unreported", realtime["unreported_reward"][row])])
        for row in range(env.num_envs):
            if realtime["applied"][row]:
                assert deciding[row]
                read[row] = shown[row].tolist()
            assert realtime["closed"][row] or kind.back(rewards)[row] == 0
            if not realtime["closed"][row]:
                continue
            values = [kind.back(rewards), kind.back(terminated), kind.back(truncated)]
            values += [realtime["interval"], realtime["default_frames"]]
            of_the_end: tuple[Any, ...] = ()
            if ends[row]:
                ended = info["final_info"]["realtime"]
                of_the_end = (kind.back(info["final_obs"])[row].tolist(),)
                of_the_end += (kind.back(ended["frame"])[row], kind.back(ended["start"])[row])
            executed = (realtime["executed"][row].tolist(),) if "executed" in realtime else ()
            log[row][-1].append((read[row], *(value[row].item() for value in values), *of_the_end, *executed))
            if ends[row]:
                log[row].append([])
                read[row] = None
        deciding = realtime["deciding"]
    for array, then in returned:
        np.testing.assert_array_equal(kind.back(array), then)
    return log


def agree(
    kind: Kind,
    mode: AutoresetMode,
    num_envs: int,
    terms: dict[str, Any],
    make: Callable[[int], Callable[[Any, int], Any]],
    length: int | None = None,
) -> None:
    vector = counting_vector(num_envs, mode)
    env = VectorRealtimeDelay(Tensors(vector, *kind), **terms)
    for row, episodes in enumerate(together(env, kind, 45, length)):
        if ("unreported",) in [each[:1] for decisions in episodes for each in decisions]:
            continue  # a second episode has ended within the frames of the first step
        expected = alone(row, len(episodes), length, make(row))
        if "latency" in terms:  # `RealtimeDelay.reset` has run default frames that are not the first step's
            for decisions in (*episodes, *expected):
                decisions[:1] = [tuple(value for at, value in enumerate(each) if at != 5) for each in decisions[:1]]
        assert len(episodes) > 2
        assert episodes[:-1] == expected[:-1]
        assert episodes[-1] == expected[-1][: len(episodes[-1])]
    vector.close()


every_kind = pytest.mark.parametrize("kind", KINDS)
every_mode = pytest.mark.parametrize("mode", AutoresetMode)
ROWS = st.integers(1, 5)


@every_kind
@every_mode
@settings(max_examples=3, deadline=None)
@given(data=st.data(), num_envs=ROWS, repeats=st.booleans())
def test_rows_with_delays_and_intervals_of_their_own(
    kind: str, mode: AutoresetMode, data: st.DataObject, num_envs: int, repeats: bool
) -> None:
    delays = data.draw(st.lists(st.integers(0, 6), min_size=num_envs, max_size=num_envs))
    noops = data.draw(st.lists(st.integers(0, 3), min_size=num_envs, max_size=num_envs))
    default: Any = "repeat" if repeats else np.arange(num_envs * 1.0)[:, None]
    terms: dict[str, Any] = {"delay": delays, "noops": noops, "default_action": default}

    def make(row: int) -> Callable[[Any, int], Any]:
        own = "repeat" if repeats else default[row]
        return lambda env, episode: RealtimeDelay(env, delays[row], noops[row], own)

    agree(KINDS[kind](), mode, num_envs, terms, make)


@every_kind
@every_mode
@settings(max_examples=3, deadline=None)
@given(num_envs=ROWS, first=st.integers(0, 3), number=st.integers(1, 5))
def test_each_episode_of_each_row_draws_its_delay(
    kind: str, mode: AutoresetMode, num_envs: int, first: int, number: int
) -> None:
    terms: dict[str, Any] = {"delay": range(first, first + number), "default_action": "repeat"}
    draws = draws_of_terms(VectorRealtimeDelay(counting_vector(1, mode), **terms).terms, 3)
    drawn = set()

    def make(row: int) -> Callable[[Any, int], Any]:
        def of(env: Any, episode: int) -> Any:
            delay = int(draws[Pool.place(row, episode, 0) % len(draws)])
            drawn.add(delay)
            return RealtimeDelay(env, delay, 0, "repeat")

        return of

    agree(KINDS[kind](), mode, num_envs, terms, make)
    assert drawn <= set(terms["delay"])
    assert len(drawn) > 1 or number == 1 or num_envs < 3


class Whole:
    """A latency of 0 to 5 whole frames, drawn alike."""

    mean = 0.05

    def stream(self, seed: Any) -> Any:
        draws = np.random.default_rng(seed)

        class Stream:
            def draw(self) -> int:
                return int(draws.integers(6)) * 1000 // FPS * MS

        return Stream()


class Told:
    """The latencies that a row's episode takes from the pool."""

    mean = 0.05

    def __init__(self, draws: Any, row: int, episode: int) -> None:
        self._draws, self._row, self._episode, self._frame = draws, row, episode, -1

    def stream(self, seed: Any) -> Told:
        return self

    def draw(self) -> int:
        self._frame += 1
        place = Pool.place(self._row, self._episode, self._frame) % len(self._draws)
        return int(self._draws[place]) * 1000 // FPS * MS


@every_kind
@every_mode
@settings(max_examples=3, deadline=None)
@given(num_envs=ROWS, playout=st.integers(0, 5), length=st.none() | st.just(8))
def test_a_latency_of_each_frame_is_that_of_tickets_with_enough_workers(
    kind: str, mode: AutoresetMode, num_envs: int, playout: int, length: int | None
) -> None:
    default: Any = "repeat" if length is None else Chunk(length, after="repeat")
    terms: dict[str, Any] = {
        "latency": Whole(),
        "fps": FPS,
        "per": "frame",
        "playout": playout,
        "default_action": default,
    }
    draws = draws_of_terms(VectorRealtimeDelay(counting_vector(1, mode), **terms).terms, 3)

    def make(row: int) -> Callable[[Any, int], Any]:
        of_workers: dict[str, Any] = {
            "workers": 9,
            "fps": FPS,
            "playout": playout,
            "slot": 1,
            "default_action": default,
        }
        return lambda env, episode: RealtimeDelay(env, latency=Told(draws, row, episode), **of_workers)

    agree(KINDS[kind](), mode, num_envs, terms, make, length)


@every_kind
@pytest.mark.parametrize("delay", [0, 1, 3])
@pytest.mark.parametrize("default", ["repeat", np.array([7.0])])
def test_constants_on_tensors_are_those_on_numpys_arrays(kind: str, delay: int, default: Any) -> None:
    library = KINDS[kind]()

    def played(to: Callable[[Any], Any], back: Callable[[Any], Any], wraps: bool) -> list[Any]:
        vector = counting_vector(4, AutoresetMode.SAME_STEP)
        env = VectorRealtimeDelay(Tensors(vector, to, back) if wraps else vector, delay, 0, default)
        observations, info = env.reset(seed=0)
        seen: list[Any] = []
        for _ in range(50):
            realtime, deciding = info["realtime"], back(info["realtime"]["deciding"])
            seen.append((back(observations)[deciding].tolist(), deciding.tolist(), back(realtime["start"]).tolist()))
            shown = np.where(deciding[:, None], back(observations), 0.0)
            actions = to(np.stack([policy(shown[row], row, None) for row in range(4)]))
            observations, *results, info = env.step(actions)
            names = ("applied", "interval", "default_frames", "frame", "carried_reward")
            seen.append([back(each).tolist() for each in results])
            seen.append([back(info["realtime"][name]).tolist() for name in names])
            ends = np.flatnonzero(back(results[1]) | back(results[2])).tolist()
            seen.append([back(info["final_obs"][row]).tolist() for row in ends])
        vector.close()
        return seen

    assert played(*library, wraps=kind != "numpy") == played(np.asarray, np.asarray, wraps=False)


@every_kind
def test_rows_that_are_reset_by_a_mask_begin_anew_and_the_others_go_on(kind: str) -> None:
    library = KINDS[kind]()
    vector = counting_vector(3, AutoresetMode.DISABLED)
    env = VectorRealtimeDelay(Tensors(vector, *library), [0, 1, 2], default_action="repeat")
    env.reset(seed=0)
    mask = np.array([False, True, False])
    before = [each.episode for each in vector.envs]
    observations, info = env.reset(options={"reset_mask": library.to(mask)})
    assert [each.episode for each in vector.envs] == [before[0], before[1] + 1, before[2]]
    assert library.back(observations)[1, :2].tolist() == [before[1] + 1, 0]
    assert library.back(info["realtime"]["frame"])[1] == 0
    assert library.back(info["realtime"]["deciding"]).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"delay": [1, 2]}, "delay must be one for each of 3 environments, got [1, 2]"),
        ({"noops": [1, 2, 3, 4]}, "noops must be one for each of 3 environments, got [1, 2, 3, 4]"),
        ({"delay": [1, 2, -3]}, "delay must be whole numbers of frames from 0 on, got [1, 2, -3]"),
        ({"delay": [0, 0, 10**10]}, "delay must be <= 100,000 frames, got 10000000000: each of them is kept"),
        ({"delay": range(-1, 3)}, "delay must be a range of frames from 0 to 100,000, got range(-1, 3)"),
        ({"delay": 1, "fps": 50}, "fps=50 needs a latency"),
        ({"delay": [3, 3, 3], "default_action": Chunk(2, after="repeat")}, "the length of a Chunk must be >= delay"),
        ({"default_action": np.full((3, 1), 1e10)}, "default_action must hold actions of Box"),
        ({"delay": range(3, 3)}, "delay must be a range of some frames, got range(3, 3)"),
        ({"latency": 0.1}, "a latency needs fps, in frames per second, got None"),
        ({"latency": 0.1, "fps": 50, "delay": 1}, "give delay or a latency, got delay=1 and 0.1"),
        ({"latency": 0.1, "fps": 50, "per": "step"}, "per must be one of 'episode', 'frame', got 'step'"),
        ({"per": "frame"}, "per='frame' needs a latency, got None: give latency= and fps="),
        ({"latency": 0.1, "fps": 50, "playout": 2}, "playout=2 needs a latency and per='frame'"),
        (
            {"latency": 0.1, "fps": 50, "per": "frame", "noops": 1},
            "per='frame' needs noops=0, got 1",
        ),
        ({"latency": "robot.json", "fps": 50}, "latency must be a number of seconds, a list of seconds or a model"),
        ({"latency": -0.1, "fps": 50}, "latency must be"),
        ({"latency": 0.1, "fps": 0}, "fps must be > 0 frames per second, got 0"),
    ],
)
def test_terms_that_cannot_be_played_are_one_sentence(terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        VectorRealtimeDelay(counting_vector(3, AutoresetMode.SAME_STEP), **{"default_action": "repeat", **terms})


def test_a_latency_of_too_many_frames_is_refused_before_room_is_made_for_them() -> None:
    env = VectorRealtimeDelay(counting_vector(2, AutoresetMode.SAME_STEP), latency=1e6, fps=50, default_action="repeat")
    with pytest.raises(ValueError, match=r"^latency must be <= 100,000 frames, got 50000000: each of them is kept$"):
        env.reset()


def test_a_latency_may_be_an_array_of_seconds() -> None:
    vector = counting_vector(2, AutoresetMode.SAME_STEP)
    env = VectorRealtimeDelay(vector, latency=np.array([0.04, 0.04]), fps=50, default_action="repeat")
    env.reset(seed=0)
    delays = [env.step(np.zeros((2, 1)))[-1]["realtime"]["delay"].tolist() for _ in range(3)]
    assert delays == [[0, 0], [0, 0], [2, 2]]


def test_default_actions_that_are_asked_for_and_arrays_of_another_library_are_one_sentence() -> None:
    vector = counting_vector(2, AutoresetMode.SAME_STEP)
    env = VectorRealtimeDelay(vector, [1, 2], default_action="random")
    with pytest.raises(ValueError, match=r"^default_action must be 'noop', 'repeat', an action"):
        env.reset()
    env = VectorRealtimeDelay(vector, [1, 2], default_action="repeat")
    env.reset()
    with pytest.raises(ValueError, match=r"^actions must be of the library and on the device"):
        env.step(torch.zeros(2, 1))


def rows(**terms: Any) -> Any:
    vector = counting_vector(2, AutoresetMode.SAME_STEP)
    return VectorRealtimeDelay(vector, **{"delay": [1, 1], "default_action": "repeat", **terms})


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        (1.0, "actions must be one for each of 2 sub-environments, got none"),
        (np.zeros((1, 1)), "actions must be one for each of 2 sub-environments, got 1"),
        (np.zeros((2, 3)), "actions must have the shape [2, 1], got [2, 3]"),
        (np.zeros(2), "actions must have the shape [2, 1], got [2]"),
    ],
)
def test_actions_of_another_number_or_shape_are_one_sentence(actions: Any, sentence: str) -> None:
    env = rows()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        env.step(actions)
    with pytest.raises(ResetNeeded):  # as an exception in the environment
        env.step(np.zeros((2, 1)))


def test_what_rows_cannot_play_is_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"leave mean None$"):
        rows(default_action=Chunk(4, mean="average")).reset()
    limited = SyncVectorEnv([lambda: LimitAction(Counting(0), Limits(rate=0.1), fps=50)])
    with pytest.raises(ValueError, match=r"put LimitAction outside of the delay$"):
        VectorRealtimeDelay(limited, [1], default_action="repeat").reset()


def test_a_copy_in_mid_episode_goes_on_alike() -> None:
    env = rows(delay=[1, 2])
    env.reset(seed=[None, 3])
    env.step(np.ones((2, 1)))
    twin = deepcopy(env)
    for _ in range(20):
        one, other = (each.step(np.full((2, 1), 3.0)) for each in (env, twin))
        assert [each.tolist() for each in one[:4]] == [each.tolist() for each in other[:4]]


def test_the_infos_of_ended_episodes_come_with_them_and_of_their_reset_with_the_next() -> None:
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        vector = SyncVectorEnv(
            [partial(RecordEpisodeStatistics, Counting(row)) for row in range(2)], autoreset_mode=mode
        )
        env: Any = VectorRealtimeDelay(vector, [1, 2], default_action="repeat")
        env.reset(seed=0)
        ended = 0
        for _ in range(30):
            *_, terminated, truncated, info = env.step(np.zeros((2, 1)))
            for row in np.flatnonzero(terminated | truncated).tolist():
                ended += 1
                last = info["final_info"]
                assert last["_episode"][row]
                assert last["episode"]["l"][row] == last["realtime"]["frame"][row]
            assert "episode" not in info or not (info["_episode"] & (terminated | truncated)).any()
        assert ended > 4


def test_rows_reset_by_a_mask_before_the_first_step_decide_as_after_a_reset() -> None:
    vector = counting_vector(2, AutoresetMode.DISABLED)
    env = VectorRealtimeDelay(Tensors(vector, *KINDS["torch"]()), 2, default_action="repeat")
    env.reset(seed=0)
    _, info = env.reset(options={"reset_mask": torch.tensor([True, True])})
    assert info["realtime"]["deciding"].tolist() == [True, True]
    assert info["realtime"]["start"].tolist() == [0, 0]


class Reused(VectorWrapper):
    """Writes each result into the arrays of the last one, and shows no last observations."""

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observations, _ = self.env.reset(seed=seed, options=options)
        if options is None:
            self._arrays = [observations.copy(), np.zeros(self.num_envs), *np.zeros((2, self.num_envs), bool)]
        self._write(observations, *(np.zeros_like(array) for array in self._arrays[1:]))
        return self._arrays[0], {}

    def step(self, actions: Any) -> Any:
        *results, _ = self.env.step(actions)
        self._write(*results)
        return (*self._arrays, {})

    def _write(self, *results: Any) -> None:
        for array, result in zip(self._arrays, results, strict=True):
            array[...] = result


class Fresh(Reused):
    """The same in new arrays."""

    def _write(self, *results: Any) -> None:
        self._arrays = [np.array(result) for result in results]


@every_mode
@pytest.mark.parametrize("delay", [[0, 0], [2, 1], range(3)])
def test_a_vector_may_write_into_the_arrays_that_it_has_returned(delay: Any, mode: AutoresetMode) -> None:
    logs: list[Any] = []
    for kind in (Fresh, Reused):
        env = VectorRealtimeDelay(kind(counting_vector(2, mode)), delay, default_action="repeat")
        env.reset(seed=1)
        logs.append([])
        for frame in range(40):
            *shown, terminated, truncated, info = env.step(np.full((2, 1), float(frame)))
            over = terminated | truncated
            last = info["final_obs"][over] if over.any() else over
            logs[-1].append([each.tolist() for each in (*shown, terminated, truncated, last)])
    assert logs[0] == logs[1]


@every_mode
@pytest.mark.parametrize("delay", [[0, 0], [2, 1], range(3)])
def test_a_caller_may_write_into_all_that_a_step_returns(delay: Any, mode: AutoresetMode) -> None:
    logs: list[Any] = []
    for writes in (False, True):
        vector = Tensors(counting_vector(2, mode), *KINDS["torch"]())
        env = VectorRealtimeDelay(vector, delay, default_action="repeat")
        observations, info = env.reset(seed=1)
        returned = [observations, *info["realtime"].values()]
        logs.append([])
        for frame in range(40):
            for array in returned if writes else ():
                array[...] = ~array if array.dtype == torch.bool else array + 5
            *results, info = env.step(torch.full((2, 1), float(frame)))
            over = results[2] | results[3]
            returned = [*results, *info["realtime"].values(), *([info["final_obs"]] if over.any() else [])]
            logs[-1].append(
                [each[over].tolist() if each is info.get("final_obs") else each.tolist() for each in returned]
            )
    assert logs[0] == logs[1]
