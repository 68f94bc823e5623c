"""Elite and attentive replay: strategies by hand, distances, lambda's clock, and what a mixture makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.spatial.distance
import torch
from torch import nn

from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.replay.elite import (
    STRATEGIES,
    Elite,
    EliteReplay,
    NetworkEncoder,
    chosen,
    distances,
    state_distances,
)
from async_wrappers.agents.replay.mixture import Mixture, UnrollQueue
from async_wrappers.agents.replay.sequences import Assembly
from async_wrappers.agents.spaces.compute import Compute, Reader
from tests.contracts.source_contract import SourceContract, lived
from tests.worlds.lived_rows import EXTRAS, SPACE, AtLast, AtOnce, World, trained
from tests.worlds.plain_data import assert_identical

# Six candidates. By distance, the older of two that are alike first: 1, 3, 5 | 2, 0, 4.
DISTANCE = np.array([0.5, 0.1, 0.4, 0.1, 0.9, 0.2])
COUNT = np.array([0, 2, 0, 1, 0, 1])
NUMBER = np.array([10, 11, 12, 13, 14, 15])  # the larger, the newer


@pytest.mark.parametrize(
    ("strategy", "rows", "taken"),
    [
        ("strategy1", 2, [1, 3]),
        ("strategy2", 2, [1, 2]),  # the first of 1, 3, 5 and of 2, 0, 4
        ("strategy3", 2, [2, 0]),  # 0, 2 and 4 were never learnt from
        ("strategy4", 2, [3, 2]),  # counts 2, 1, 1 and 0, 0, 0
        ("count", 2, [0, 2]),
        ("newest", 2, [5, 4]),
        ("strategy1", 4, [1, 3, 5, 2]),
        ("strategy2", 4, [1, 3, 5, 2]),  # runs of one, and two that are not looked at
        ("strategy3", 4, [2, 0, 4, 3]),
        ("strategy4", 4, [1, 3, 5, 2]),
        ("count", 4, [0, 2, 4, 3]),
        ("newest", 4, [5, 4, 3, 2]),
        ("strategy2", 3, [1, 5, 0]),
        ("strategy4", 3, [3, 2, 0]),
    ],
)
def test_each_strategy_takes_of_six_candidates_what_it_says(strategy: str, rows: int, taken: list[int]) -> None:
    distance = None if strategy in ("count", "newest") else DISTANCE
    assert chosen(strategy, rows, distance, COUNT, -NUMBER).tolist() == taken


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_candidates_are_taken_where_as_many_are_wanted(strategy: str) -> None:
    assert sorted(chosen(strategy, 6, DISTANCE, COUNT, -NUMBER).tolist()) == [0, 1, 2, 3, 4, 5]


# Distances.


def features(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).normal(size=shape))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_norm_is_minkowskis_and_the_cosine_distance_falls_with_likeness(p: float) -> None:
    one, other = features(5, 3, 4), features(5, 3, 4).flip(0)
    pairs = list(zip(one.flatten(1).numpy(), other.flatten(1).numpy(), strict=True))
    norms = [scipy.spatial.distance.minkowski(*pair, p=p) for pair in pairs]
    np.testing.assert_allclose(distances(one, other, dist_function="ln_norm", p=p), norms)
    cosines = [scipy.spatial.distance.cosine(*pair) for pair in pairs]
    np.testing.assert_allclose(distances(one, other, dist_function="cos_dist"), cosines)


def test_the_divergence_is_torchs_and_is_summed_over_steps() -> None:
    one, other = features(5, 3, 4), features(5, 3, 4).flip(0)
    arguments = {"reduction": "none", "log_target": True}
    wanted = nn.functional.kl_div(other.log_softmax(-1), one.log_softmax(-1), **arguments).sum(dim=(1, 2))
    torch.testing.assert_close(distances(one, other, dist_function="kl_div"), wanted)


@pytest.mark.parametrize("dist_function", ["ln_norm", "cos_dist", "kl_div"])
def test_distances_are_0_where_features_are_alike_and_leave_final_rows_out(dist_function: str) -> None:
    one, mask = features(5, 3, 4), torch.ones(5, 3)
    mask[:, 1] = 0
    torch.testing.assert_close(distances(one, one, dist_function=dist_function), torch.zeros(5).double())
    other = one.clone()
    other[:, 1] += features(5, 4) * 9
    found = distances(one, other, mask, dist_function=dist_function)
    torch.testing.assert_close(found, torch.zeros(5).double())
    assert (distances(one, other, dist_function=dist_function) > 0.01).all()


@pytest.mark.parametrize("dist_function", ["ln_norm", "cos_dist", "kl_div"])
def test_distances_of_states_are_those_of_unrolls_of_one_step(dist_function: str) -> None:
    states, others = features(7, 4), features(3, 4)
    found = state_distances(states, others, dist_function=dist_function, p=3.0)
    for row, state in enumerate(states):
        for column, other in enumerate(others):
            wanted = distances(state[None], other[None], dist_function=dist_function, p=3.0)
            assert found[row, column].item() == pytest.approx(wanted.item(), abs=1e-9)


# Drawing.


def elite(held: int, strategy: str = "strategy1", **arguments: Any) -> tuple[Elite, list[int]]:
    """A selector over so many unrolls of which the older ones are nearer, and how many were looked at in each draw."""
    looked_at: list[int] = []

    def measure(places: npt.NDArray[np.int64]) -> npt.NDArray[np.floating]:
        looked_at.append(len(places))
        return places.astype(float)

    selector = Elite(measure, strategy, **{"multiplier": 3.0, "annealing": 4, **arguments})
    number = np.full(10, -1)
    number[:held] = np.arange(held)
    selector.attach(SimpleNamespace(capacity=10, number=number))
    return selector, looked_at


def test_lambda_begins_at_its_start_counts_updates_and_ends_at_1() -> None:
    selector, looked_at = elite(10)
    rng, lambdas = np.random.default_rng(0), []
    for _ in range(6):
        lambdas.append(selector.lambda_)
        selector.draw(rng, 2)
    assert lambdas == [3.0, 2.5, 2.0, 1.5, 1.0, 1.0]
    assert looked_at == [6, 5, 4, 3]  # two candidates for two rows need no distance
    restored, looked_at = elite(10)
    restored.restore({"updates": 3}, {"count": np.zeros(10, np.int64)})
    restored.draw(rng, 2)
    assert looked_at == [3]
    steady, looked_at = elite(10, annealing=None)
    for _ in range(5):
        steady.draw(rng, 2)
    assert looked_at == [6] * 5


def test_counts_rise_for_rows_that_are_learnt_from_and_no_unroll_is_drawn_twice() -> None:
    selector, _ = elite(10, multiplier=5.0, annealing=None)
    for draws in range(1, 4):
        places, _ = selector.draw(np.random.default_rng(draws), 2)
        assert sorted(places.tolist()) == [0, 1]  # all ten are candidates
        assert selector.count.tolist() == [draws, draws] + [0] * 8
    selector.became_valid(0)
    assert selector.count[:2].tolist() == [0, 3]


def test_no_more_candidates_are_drawn_than_are_held() -> None:
    selector, looked_at = elite(4, multiplier=6.0, annealing=None)
    assert sorted(selector.draw(np.random.default_rng(0), 2)[0].tolist()) == [0, 1] and looked_at == [4]
    assert sorted(selector.draw(np.random.default_rng(0), 4)[0].tolist()) == [0, 1, 2, 3] and looked_at == [4]


@pytest.mark.parametrize(("strategy", "taken"), [("count", [0, 1]), ("newest", [8, 9])])
def test_controls_ask_for_no_distance(strategy: str, taken: list[int]) -> None:
    selector, looked_at = elite(10, strategy, multiplier=5.0, annealing=None)
    assert sorted(selector.draw(np.random.default_rng(0), 2)[0].tolist()) == taken and not looked_at


def test_strategy_3_learns_from_each_unroll_as_often_as_from_any_other() -> None:
    selector, _ = elite(10, "strategy3", multiplier=5.0, annealing=None)
    rng = np.random.default_rng(0)
    for _ in range(20):
        selector.draw(rng, 2)
    assert selector.count.tolist() == [4] * 10


# In a mixture.


class Scaling:
    """An encoder whose one weight the test sets: features are observations times it."""

    is_used = True

    def __init__(self) -> None:
        self.weight, self.refreshed, self._present = 1.0, 0, np.zeros((0, 2), np.float32)

    size = 2

    def refresh(self, newest: Callable[[], Any]) -> None:
        self.refreshed += 1
        self._present = newest()[:, -1]

    def expire(self) -> None:
        """Nothing expires."""

    def unrolls(self, batch: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        steps = len(batch["mask"])
        found: npt.NDArray[np.float32] = batch["observation"][-steps - 1 : -1].swapaxes(0, 1) * np.float32(self.weight)
        return found

    def present(self) -> npt.NDArray[np.float32]:
        return self._present * np.float32(self.weight)


def make(encoder: Any = None, share: float = 1.0, **arguments: Any) -> Mixture:
    own = {
        name: arguments.pop(name)
        for name in list(arguments)
        if name not in ("gamma", "prefetch", "num_envs", "batch_size")
    }
    source = partial(EliteReplay, **{"capacity": 12, "lambda_batch_multiplier": 2.0, "run_updates": 30, **own})
    queue = [(partial(UnrollQueue, capacity=100), 1 - share)] if share < 1 else []
    defaults = {"num_envs": 3, "unroll_length": 4, "batch_size": 4, "stack_size": 2}
    return Mixture(SPACE, EXTRAS, [*queue, (source, share)], encoder=encoder or Scaling(), **{**defaults, **arguments})


class TestElite(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make(share=0.5, insert_strategy="elite_insertion", elite_batch_size=3, **arguments)


class TestAttentive(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make(sample_strategy="attentive_sampling", elite_sampling_strategy="strategy1", **arguments)


class TestPrefetchedElite(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make(share=0.5, prefetch=True, features="projection", feature_out_layer_size=5, **arguments)


def replay_of(mixture: Mixture) -> EliteReplay:
    source = mixture.sources[-1]
    assert isinstance(source, EliteReplay)
    return source


def chosen_of(replay: EliteReplay) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The numbers of three unrolls of a replay without insertion, and their places."""
    numbers = replay.valid_slots()[[3, 0, 7]]
    assert numbers[-1] >= 12  # some have taken the place of older ones
    return numbers, numbers % 12


def test_the_distance_of_an_unroll_is_that_of_its_features_now_from_those_when_it_entered() -> None:
    encoder = Scaling()
    mixture = make(encoder, dist_function="ln_norm", p=1.0)
    lived(mixture, World(3, 0), 40)
    replay = replay_of(mixture)
    numbers, places = chosen_of(replay)
    assert replay.distances_to_stored(places).tolist() == [0.0, 0.0, 0.0]
    encoder.weight = 1.5
    batch = replay.transitions(numbers)
    observed = batch["observation"][1:-1] * batch["mask"][:, :, None]
    np.testing.assert_allclose(replay.distances_to_stored(places), 0.5 * np.abs(observed).sum(axis=(0, 2)), rtol=1e-5)


def test_the_distance_of_attentive_replay_is_the_mean_from_the_present_state_of_each_environment() -> None:
    encoder, world = Scaling(), World(3, 0)
    mixture = make(encoder, sample_strategy="attentive_sampling")
    lived(mixture, world, 40)
    present = [rows[-1][0] for rows in world.rows]
    mixture.sample()
    replay = replay_of(mixture)
    numbers, places = chosen_of(replay)
    batch = replay.transitions(numbers)
    for found, row in zip(replay.distances_to_present(places), range(3), strict=True):
        own = [batch["observation"][1 + t, row, 0] for t in range(4) if batch["mask"][t, row]]
        wanted = np.mean([[np.sqrt(2) * abs(state - now) for now in present] for state in own])
        assert found == pytest.approx(wanted, rel=1e-5)
    assert replay.facts()["further"] == {}


def test_the_present_state_is_the_last_observation_that_each_environment_has_shown() -> None:
    world = World(3, 4)
    assembly = Assembly(SPACE, EXTRAS, lambda unrolls: None, num_envs=3, length=4, period=4, stack_size=2)
    assert assembly.newest().shape == (0, 2, 2)
    for _ in range(30):
        assembly.extend(world.block())
        shown = [rows for rows in world.rows if rows]
        newest = assembly.newest()
        assert newest[:, -1, 0].tolist() == [rows[-1][0] for rows in shown]
        before = [0.0 if rows[-1][2] else rows[-2][0] for rows in shown]
        assert newest[:, 0, 0].tolist() == before


def test_elite_insertion_takes_the_place_of_the_farthest_once_the_replay_is_full() -> None:
    encoder, world = Scaling(), World(1, 0)
    mixture = make(encoder, num_envs=1, insert_strategy="elite_insertion", elite_batch_size=12, dist_function="ln_norm")
    replay = replay_of(mixture)
    while len(replay) < 12:
        mixture.extend(world.block())
    assert replay.valid_slots().tolist() == list(range(12))
    encoder.weight = 2.0  # the distance is now the norm of what was observed
    batch = replay.transitions(np.arange(12))
    norms = np.sqrt(((batch["observation"][1:-1] * batch["mask"][:, :, None]) ** 2).sum(axis=(0, 2)))
    while replay.valid_slots()[-1] < 12:
        mixture.extend(world.block())
    farthest = int(norms.argmax())
    assert replay.valid_slots().tolist() == [number for number in range(13) if number != farthest]
    while replay.valid_slots()[-1] < 18:  # newcomers are near, for they entered with the weights of now
        mixture.extend(world.block())
    assert replay.valid_slots()[-7:].tolist() == list(range(12, 19)) and len(replay) == 12
    found = replay.transitions(replay.valid_slots())
    assert found["index"].tolist() == replay.valid_slots().tolist()


class Learning(Scaling):
    """Has other weights at each draw, as after an update."""

    def refresh(self, newest: Callable[[], Any]) -> None:
        super().refresh(newest)
        self.weight = 1 + self.refreshed % 3


def test_a_thread_that_draws_ahead_makes_no_difference_however_slow_it_is() -> None:
    played = []
    for executor in (AtOnce(), ThreadPoolExecutor(1), AtLast()):
        # Each environment completes an unroll at once, for three batches without a transition between them.
        candidates = {"lambda_batch_multiplier": 6.0, "run_updates": 10_000, "elite_sampling_strategy": "strategy1"}
        mixture = make(Learning(), share=0.5, batch_size=2, prefetch=True, **candidates)
        ahead: Any = mixture.sources[1]
        ahead.ahead.executor = executor
        played.append((trained(mixture, World(3, 0), 100), mixture.state_dict()))
    assert len(played[0][0]) > 15
    assert_identical(played[1], played[0])
    assert_identical(played[2], played[0])


def test_without_a_strategy_draws_are_uniform_and_need_no_features() -> None:
    mixture = make(sample_strategy=None, capacity=6)
    lived(mixture, World(3, 0), 60)
    drawn = np.concatenate([mixture.sample()["index"] for _ in range(100)])
    counts = np.unique(drawn, return_counts=True)[1]
    assert len(counts) == 6 and counts.min() > 40
    assert replay_of(mixture).facts()["further"] == {}


# Features of a network.


def test_features_are_those_of_the_network_when_the_last_batch_was_drawn() -> None:
    torch.manual_seed(0)
    network = create_actor_critic((2, 2), 2, torso=lambda shape: MLPTorso(shape, (6,)))
    encoder = NetworkEncoder(network, Reader(SPACE, 2, Compute("cpu")), Compute("cpu"), 2)
    assert encoder.size == 6
    observation = np.random.default_rng(0).normal(size=(6, 3, 2)).astype(np.float32)  # T = 4, k = 2, B = 3
    first = np.zeros((5, 3), np.bool_)
    first[2, 1] = True
    batch = {"observation": observation, "first": first, "mask": np.ones((4, 3), np.float32)}

    def wanted() -> npt.NDArray[np.float32]:
        stacks = np.stack([observation[:4], observation[1:5]], axis=2)
        stacks[2, 1, 0] = 0  # before the episode
        with torch.no_grad():
            flat: npt.NDArray[np.float32] = network.encode(torch.from_numpy(stacks.reshape(12, 2, 2))).numpy()
        return flat.reshape(4, 3, 6).swapaxes(0, 1)

    before = wanted()
    np.testing.assert_allclose(encoder.unrolls(batch), before, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.1
    np.testing.assert_allclose(encoder.unrolls(batch), before, rtol=1e-5, atol=1e-6)
    present = np.stack([observation[3:5, row] for row in range(3)])
    encoder.refresh(lambda: present)
    np.testing.assert_allclose(encoder.unrolls(batch), wanted(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(encoder.present(), wanted()[:, 3], rtol=1e-5, atol=1e-6)
    assert not np.allclose(before, wanted())


def test_a_network_without_features_is_refused() -> None:
    encoder = NetworkEncoder(nn.Linear(2, 2), Reader(SPACE, 2, Compute("cpu")), Compute("cpu"), 2)
    with pytest.raises(ValueError, match=r"^EliteReplay needs a network whose method encode\(observation\) gives its"):
        make(encoder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"sample_strategy": "elite"},
            "EliteReplay.sample_strategy must be 'elite_sampling' or 'attentive_sampling' or None, got 'elite'",
        ),
        (
            {"elite_sampling_strategy": "strategy5"},
            "EliteReplay.elite_sampling_strategy must be one of 'strategy1', 'strategy2', 'strategy3', 'strategy4', "
            "'count', 'newest', got 'strategy5'",
        ),
        (
            {"dist_function": "l2"},
            "EliteReplay.dist_function must be one of 'ln_norm', 'cos_dist', 'kl_div', got 'l2'",
        ),
        (
            {"insert_strategy": "elite_insertion", "elite_batch_size": 13},
            "EliteReplay.elite_batch_size must be <= EliteReplay.capacity = 12 unrolls, got 13",
        ),
        (
            {"lambda_batch_multiplier": 0.5},
            "EliteReplay.lambda_batch_multiplier must be >= 1 candidate for each row, got 0.5",
        ),
        ({"alfa_annealing_factor": 0.0}, "EliteReplay.alfa_annealing_factor must be > 0, got 0.0"),
        ({"p": 0.5}, "EliteReplay.p must be >= 1, got 0.5"),
        ({"p": "two"}, "EliteReplay.p must be a number, of at most 1e+30, got 'two'"),
        ({"elite_batch_size": 2.5}, "EliteReplay.elite_batch_size must be a whole number (unroll), got 2.5"),
        (
            {"run_updates": None},
            "EliteReplay.run_updates must be the updates of the run, over a share of which lambda_batch_multiplier = "
            "2.0 falls to 1, got None: bind it, or VTraceAgent.learning_rate_decay",
        ),
        (
            {"capacity": 3},
            "EliteReplay.capacity must be >= 4 unrolls, those that a batch takes of it, got 3",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make(**arguments)
    assert str(caught.value).splitlines()[0] == message
