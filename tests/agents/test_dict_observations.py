"""Every agent on observations that are a Dict or Tuple: the agent contract, policy and learner apart, and live."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import AppliedActions, AsyncRunner, CommittedActions, DecisionDelay, RealtimeDelay
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.making import make_learner, maker_of_learners
from async_wrappers.agents.networks.q_network import DictTorso, create_network
from async_wrappers.agents.networks.torsos import ImpalaTorso, MLPTorso, NatureTorso, output_size
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.spaces.compute import Compute, Reader
from async_wrappers.agents.spaces.schema import are_equal, copied, space_without_tuples, stacked
from async_wrappers.policy import Decision
from tests.contracts.agent_contract import WORLDS, assert_apart_as_in_turn, assert_virtual_as_simulated, play
from tests.contracts.family_contract import FamilyContract
from tests.worlds.agents import make_agent, make_spec
from tests.worlds.dict_env import DictEnv, TupleEnv

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")

# The contract, for every agent.


class DictContract(FamilyContract):
    def make_environment(self, **arguments: Any) -> Any:
        return DictEnv(picture=False, **arguments)


class TestDQN(DictContract):
    member = "dqn, double, dueling, prioritized"

    def make_environment(self, **arguments: Any) -> Any:
        return DictEnv(**arguments)

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_agent(self.member, environment, stack_size=2, seed=seed, channels_last=True)


class TestFullRainbow(DictContract):
    member = "full_rainbow"


class TestImplicitQuantile(DictContract):
    member = "implicit_quantile"


class TestTuples(DictContract):
    member = "full_rainbow"

    def make_environment(self, **arguments: Any) -> Any:
        return TupleEnv(**arguments)

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_agent(self.member, environment, stack_size=2, seed=seed)


# Policy and learner apart.


@pytest.mark.parametrize(("member", "world"), [("full_rainbow", DictEnv), ("c51", TupleEnv)])
def test_policy_and_learner_apart_do_the_same_as_in_turn(member: str, world: type[Any], tmp_path: Path) -> None:
    assert_apart_as_in_turn(
        lambda env: make_agent(member, env, seed=4),
        lambda: WORLDS["delay 2, noops 3"](world(noop=True, first_action=2)),
        tmp_path,
    )


@pytest.mark.parametrize(("member", "world"), [("c51", DictEnv), ("dqn, double, dueling, prioritized", TupleEnv)])
def test_the_runner_on_the_virtual_clock_gives_the_frames_of_the_simulated_delay(member: str, world: type[Any]) -> None:
    frozen = {"min_replay_history": 10**6, "epsilon_warmup": 10**6, "epsilon_train": 0.3, "seed": 2}
    assert_virtual_as_simulated(
        lambda env: make_agent(member, env, **frozen), lambda: world(noop=True, first_action=1), episodes=4
    )


@pytest.mark.slow  # five processes import torch
@pytest.mark.parametrize("world", [DictEnv, TupleEnv])
def test_processes_play_and_learn_live(world: type[Any]) -> None:
    made = make_spec("rainbow", world(noop=True), min_replay_history=5)
    runner = AsyncRunner(
        lambda: world(noop=True),
        made.make_policy,
        make_learner=maker_of_learners(made),
        workers=2,
        fps=200,
        default_action="repeat",
        calibration_time=0.2,
        updates_per_transition=0.2,
    )
    report = runner.run(frames=200)
    assert report.to_dict()["updates_per_frame"] > 0


def test_parts_that_are_pickled_do_the_same() -> None:
    env = DictEnv()
    made = make_spec("full_rainbow", env, noisy_sigma=1.0, epsilon_eval=0.0)
    there = cloudpickle.loads(cloudpickle.dumps(made))
    shown = [env.reset(seed=seed)[0] for seed in range(20)]
    asked = [Decision(0, start, start, False) for start in range(20)]
    one, other = ([each.make_policy().act(*pair) for pair in zip(shown, asked, strict=True)] for each in (made, there))
    assert one == other and len(set(one)) > 1


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("world", [DictEnv, TupleEnv])
def test_a_learner_takes_a_gap_between_transitions_for_a_truncation(world: type[Any], reuse: bool) -> None:
    env = world(lengths=[20], reuse=reuse)
    learner = make_learner(make_spec("c51", env))
    shown, _ = env.reset(seed=0)
    before = copy.deepcopy(shown)
    for step in range(10):
        following, reward, *_ = env.step(0)
        transition = {
            "observation": before,
            "action": 0,
            "reward": reward,
            "interval": 1,
            "next_observation": following,
        }
        if step not in (4, 5):  # another learner's
            learner.observe({**transition, "terminal": False, "truncated": False})
        before = copy.deepcopy(following)
    assert learner.replay.add_count == 8
    assert len(learner.replay) == 7  # the newest one's next observation has not come


# What real wrappers and environments show.


def stacks(wrapped: gym.Env[Any, Any], **arguments: Any) -> list[Any]:
    agent = make_agent("dqn, double, dueling, prioritized", wrapped, **arguments)
    actions = play(agent, wrapped, range(6)) + play(agent, wrapped, range(2), eval_mode=True)
    assert agent.learner.updates > 2
    return actions


def test_what_wrappers_tell_of_the_delay_is_read() -> None:
    env: Any = RealtimeDelay(AppliedActions(gym.make("CartPole-v1"), length=3), delay=2, default_action="repeat")
    env = DecisionDelay(CommittedActions(env, length=2))
    assert stacks(env, stack_size=2, update_period=2)
    agent = make_agent("c51", env)
    assert agent.identity()["observation_shape"] == {
        "observation": {
            "observation": {"observation": [1, 4], "applied_actions": [1, 3, 2]},
            "committed_actions": [1, 2, 3],
        },
        "decision_delay": [1, 1],
    }


def test_falling_blocks_are_read_with_their_numbers() -> None:
    env = gym.make("async_wrappers/FallingBlocks-v0", observation="dict", max_frames=40)
    assert stacks(RealtimeDelay(env, delay=1, noops=1))


def test_a_whole_number_is_read_as_one_hot() -> None:
    env = gym.make("FrozenLake-v1", max_episode_steps=20)
    agent = make_agent("c51", env)
    assert all(play(agent, env, range(3)))
    assert agent.identity()["observation_shape"] == [1, 16]


# The pieces.


def test_a_reader_gives_the_floats_that_a_table_says() -> None:
    space = Dict(
        camera=Box(0, 255, (1, 2), np.uint8),
        gear=Discrete(3, start=-1),
        switches=MultiBinary(2),
        dials=MultiDiscrete([2, 3], start=[0, 5]),
        speed=Box(-1, 1, (1,), np.float32),
    )
    reader = Reader(space, 2, Compute("cpu"))
    assert reader.shape == {"camera": (2, 1, 2), "gear": (2, 3), "switches": (2, 2), "dials": (2, 5), "speed": (2, 1)}
    batch = {
        "camera": np.array([[[[7, 8]], [[9, 255]]]], np.uint8),
        "gear": np.array([[-1, 1]]),
        "switches": np.array([[[0, 1], [1, 1]]], np.int8),
        "dials": np.array([[[1, 5], [0, 7]]]),
        "speed": np.array([[[-0.5], [1.0]]], np.float32),
    }
    read = reader(batch)
    assert {key: tensor.tolist() for key, tensor in read.items()} == {
        "camera": [[[[7, 8]], [[9, 255]]]],
        "gear": [[[1, 0, 0], [0, 0, 1]]],
        "switches": [[[0, 1], [1, 1]]],
        "dials": [[[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]],
        "speed": [[[-0.5], [1.0]]],
    }
    assert {key: tensor.dtype for key, tensor in read.items() if key != "camera"} == dict.fromkeys(
        ("gear", "switches", "dials", "speed"), torch.float32
    )
    blank = reader(reader.blank_stacks())
    assert {key: tuple(tensor.shape) for key, tensor in blank.items()} == {
        key: (1, *shape) for key, shape in reader.shape.items()
    }


SPACES = st.recursive(
    st.one_of(
        st.builds(lambda n, start: Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3)),
        st.builds(MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
        st.builds(MultiBinary, st.integers(1, 4)),
        st.builds(
            lambda size, dtype: Box(-1, 1, (size, 2), dtype),
            st.integers(1, 3),
            st.sampled_from([np.float32, np.float64, np.int8, np.int64]),
        ),
    ),
    lambda inner: st.one_of(
        st.builds(Dict, st.dictionaries(st.sampled_from("abc"), inner, min_size=1)),
        st.builds(Tuple, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)


@given(SPACES, st.integers(1, 3), st.integers(0, 99))
def test_a_reader_keeps_all_that_is_observed(space: gym.Space[Any], stack_size: int, seed: int) -> None:
    space.seed(seed)
    given_observations = [space.sample() for _ in range(stack_size)]
    reader = Reader(space, stack_size, Compute("cpu"))
    seen = [reader.without_tuples(each) for each in given_observations]
    assert all(each in space_without_tuples(space) for each in seen)
    batch = stacked([stacked(seen)])
    network = create_network(reader.shape, 3, torso=lambda shape: MLPTorso(shape, ()))
    assert network(reader(batch)).shape == (1, 3)
    assert are_equal(copied(batch), batch)
    width = output_size(network.torso)
    flat = [gym.spaces.flatten(space, each) for each in given_observations]
    assert width == sum(map(len, flat))
    if isinstance(space, Dict | Tuple):
        read = network.torso(reader(batch))
        assert read.sum().item() == pytest.approx(float(sum(each.sum() for each in flat)), abs=1e-4)


class TestDictTorso:
    SHAPE = {"image": (2, 40, 36), "told": {"age": (2, 1), "row": (2, 3)}}

    def test_each_image_has_a_torso_and_the_rest_is_joined_to_their_features(self) -> None:
        torso = DictTorso({**self.SHAPE, "other": (1, 36, 36)}, NatureTorso)
        assert [type(each) for each in torso.torsos] == [NatureTorso, NatureTorso]
        first_layer = next(layer for layer in torso.join if isinstance(layer, torch.nn.Linear))
        assert (first_layer.in_features, torso.output_size) == (512 + 512 + 2 + 6, 512)

    def test_features_depend_on_every_entry_and_not_on_the_order_of_keys(self) -> None:
        torch.manual_seed(0)
        torso = DictTorso(self.SHAPE, lambda shape: ImpalaTorso(shape, 1 / 16))
        batch = {"image": torch.rand(3, 2, 40, 36), "told": {"age": torch.rand(3, 2, 1), "row": torch.rand(3, 2, 3)}}
        features = torso(batch)
        assert features.shape == (3, 512)
        told = batch["told"]
        turned = {"told": {"row": told["row"], "age": told["age"]}, "image": batch["image"]}
        assert torch.equal(torso(turned), features)
        for changed in (
            {**batch, "image": batch["image"] + 1},
            {**batch, "told": {**told, "age": told["age"] + 1}},
            {**batch, "told": {**told, "row": told["row"] + 1}},
        ):
            assert not torch.allclose(torso(changed), features)

    def test_without_an_image_one_torso_reads_the_vector(self) -> None:
        torso = DictTorso({"a": (2, 3), "b": (1, 4, 18)}, lambda shape: MLPTorso(shape, (5,)))
        assert torso.torsos[0].layers[1].in_features == 6 + 72
        assert torso.output_size == 5

    def test_an_image_torso_without_an_image_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r'^observation_shape must be \[C, H, W\], .*, got \[3\]; use torso "mlp"'):
            create_network({"a": (1, 3)}, 2, torso="nature")

    def test_an_empty_dict_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^observation_shape must hold a shape, got an empty dict"):
            DictTorso({}, MLPTorso)

    def test_a_batch_with_other_keys_or_shapes_is_refused(self) -> None:
        network = create_network({"a": (1, 3), "b": {"c": (1, 2)}}, 2)
        with pytest.raises(ValueError, match=r"^observation must be a dict with the keys \['a', 'b'\], got \['a'\]"):
            network({"a": torch.zeros(1, 1, 3)})
        with pytest.raises(ValueError, match=r"^observation\['b'\] must be a dict with the keys \['c'\], got Tensor"):
            network({"a": torch.zeros(1, 1, 3), "b": torch.zeros(1)})
        with pytest.raises(
            ValueError, match=r"^observation\['b'\]\['c'\] must have the shape \[B, 1, 2\], got \[1, 3\]"
        ):
            network({"a": torch.zeros(1, 1, 3), "b": {"c": torch.zeros(1, 3)}})


# Bad input.


def test_a_network_that_does_not_fit_a_dict_is_refused() -> None:
    def network(shape: Any, actions: int, atoms: int) -> torch.nn.Module:
        return create_network((1, 3), actions, atoms)

    with pytest.raises(ValueError) as caught:
        make_agent("c51", DictEnv(), network=network)
    assert str(caught.value).startswith(
        "network must take observations {drift: [B, 1, 2] of torch.float32, told: {clock: [B, 1, 5] of torch.float32, "
        "odd: [B, 1, 1] of torch.float32, push: [B, 1, 6] of torch.float32}, picture: [B, 1, 29, 29] of torch.uint8} "
        "(stack_size first), and QNetwork does not: observation must be a tensor [B, 1, 3], got a dict with the keys"
    )


def test_a_loss_that_is_not_finite_stops_with_the_batch_in_a_file(tmp_path: Path) -> None:
    env = DictEnv(lengths=[30])
    agent = make_agent("c51", env, diverged_dir=str(tmp_path))
    agent.begin_episode(env.reset(seed=0)[0])
    with pytest.raises(DivergedError, match=r"^the environment returned nan as its reward .* update 0 nan"):
        for _ in range(30):
            agent.step(float("nan"), env.step(0)[0])
    saved = torch.load(tmp_path / "diverged_batch_0.pt", weights_only=True)
    assert saved["batch"]["observation"]["told"]["clock"].shape == (8, 1, 2)
