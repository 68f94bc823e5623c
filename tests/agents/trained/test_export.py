"""Exported agents act as the agents do, row by row and in a runner."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import onnx
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.quantile import ImplicitQuantile
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.families.value_based.rainbow import FullRainbow
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.spaces.actions import BoxActions
from async_wrappers.agents.spaces.schema import batch_of_one, stacked
from async_wrappers.agents.trained.export import ActsDifferently, Agreement, export
from async_wrappers.live.runner import AsyncRunner
from async_wrappers.onnx_policy import OnnxPolicy, OnnxSplitPolicy
from async_wrappers.policy import Decision, Memory

SMALL = partial(MLPTorso, hidden=(8,))
CART = gym.make("CartPole-v1")
MIXED = Dict(
    image=Box(0, 255, (36, 36, 3), np.uint8),
    parts=Tuple([Discrete(3, start=1), MultiDiscrete([3, 4]), Box(-5, 5, (2,), np.float64)]),
    flags=MultiBinary(3),
)


def evaluated(row: int) -> Decision:
    return Decision(0, row, row, True)


def observations(space: gym.Space[Any], count: int) -> list[Any]:
    space.seed(3)
    return [space.sample() for _ in range(count)]


def test_a_full_disk_leaves_nothing_and_names_the_file(tmp_path: Path) -> None:
    agent = TurnBasedAgent(DQN(CART.observation_space, CART.action_space, network=partial(create_network, torso=SMALL)))
    (tmp_path / "agent.onnx.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        export(agent, tmp_path / "agent.onnx", observations=4)
    assert caught.value.filename == str(tmp_path / "agent.onnx")
    assert not list(tmp_path.iterdir())


def test_a_dueling_network_of_a_dict_with_stacks_acts_alike(tmp_path: Path) -> None:
    network = partial(create_network, head="dueling")
    agent = TurnBasedAgent(DQN(MIXED, Discrete(4, start=2), stack_size=2, network=network, epsilon_eval=0.0))
    found = export(agent, tmp_path / "agent.onnx", observations=16)
    assert (found.files, found.random, found.real) == ([tmp_path / "agent.onnx"], 16, 0)
    policy = OnnxPolicy(tmp_path / "agent.onnx")
    assert policy.facts["stack_size"] == 2
    for row, (older, newer) in enumerate(zip(*(observations(MIXED, 40)[part::2] for part in (0, 1)), strict=True)):
        inputs = stacked([agent.spec.without_tuples(each) for each in (older, newer)])
        stack = {**inputs, "parts": tuple(inputs["parts"].values())}  # as a Tuple space has it
        outputs = policy.outputs(stack)
        read = batch_of_one(inputs)
        values = agent.policy.q_values(read).numpy()  # type: ignore[attr-defined]
        np.testing.assert_allclose(outputs["q_values"], values, atol=1e-5)
        assert policy.act(stack) == agent.policy.act(read, (), [evaluated(row)]).action[0]
    with pytest.raises(ValueError, match=r"observation/flags must have the shape \[2, 3\], got \[3\]: give "):
        policy.act(newer)


@pytest.mark.parametrize("kind", [FullRainbow, ImplicitQuantile])
def test_distributions_are_means_without_noise(kind: type[DQN], tmp_path: Path) -> None:
    space = Box(-1, 1, (3,), np.float32)
    agent = TurnBasedAgent(
        kind(space, Discrete(3), stack_size=1, network=partial(create_network, torso=SMALL), epsilon_eval=0.0)
    )
    real = [each[None] for each in observations(space, 5)]
    assert export(agent, tmp_path / "agent.onnx", real, observations=8)[1:3] == (8, 5)
    policy = OnnxPolicy(tmp_path / "agent.onnx")
    for row, observation in enumerate(observations(space, 30)):
        outputs = policy.outputs(observation)
        assert policy.act(observation) == outputs["q_values"][0].argmax()
        if kind is FullRainbow:  # whose values nobody draws
            values = agent.policy.q_values(observation[None, None])  # type: ignore[attr-defined]
            np.testing.assert_allclose(outputs["q_values"], values.numpy(), atol=1e-5)
            assert policy.act(observation) == agent.spec.make_policy().act(observation, evaluated(row))


def test_an_actor_critic_of_chunks_without_memory_is_one_file(tmp_path: Path) -> None:
    space = Box(-1, 1, (3,), np.float32)
    network = partial(create_actor_critic, torso=SMALL, feed_previous=False)
    spec = VTrace(space, MultiDiscrete([3] * 4, start=[1] * 4), stack_size=1, network=network)
    export(TurnBasedAgent(spec), tmp_path / "agent.onnx", observations=8)
    policy, own = OnnxPolicy(tmp_path / "agent.onnx"), spec.make_policy()
    for row, observation in enumerate(observations(space, 30)):
        np.testing.assert_array_equal(policy.act(observation), own.act(observation, evaluated(row)).action)
    assert set(policy.outputs(observation)) == {"action", "logits", "value"}


def test_ppo_is_exported_where_numbers_are_read_one_hot(tmp_path: Path) -> None:
    space = Dict(room=Discrete(3, start=1), parts=MultiDiscrete([3, 4]))
    window = partial(create_policy_value_network, action_window=2)
    spec = PPO(space, Discrete(3), device="cpu", network=window, unroll_length=1)
    found = export(TurnBasedAgent(spec), tmp_path / "agent.onnx", observations=8)
    assert found.random == 8 and found.difference < 1e-5


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> tuple[R2D2, Path, Agreement]:
    """An agent with memory, and its files."""
    path = tmp_path_factory.mktemp("onnx") / "agent.onnx"
    network = partial(create_recurrent_q_network, torso=SMALL)
    spec = R2D2(CART.observation_space, CART.action_space, stack_size=1, network=network, epsilon_eval=0.0)
    return spec, path, export(TurnBasedAgent(spec), path, observations=8)


def test_memory_is_two_files_which_carry_the_state_as_the_agent_does(remembering: Any) -> None:
    spec, path, found = remembering
    assert [each.name for each in found.files] == ["agent.encode.onnx", "agent.decide.onnx"]
    policy, own = OnnxSplitPolicy(path), spec.make_policy()
    assert policy.features == own.features == spec.features
    rng = np.random.default_rng(0)
    theirs, ours = Memory(None, 0.0, True, None), Memory(None, 0.0, True, None)
    for row, observation in enumerate(observations(Box(-1, 1, (4,), np.float32), 40)):
        features = policy.encode(observation)
        np.testing.assert_allclose(features, own.encode(observation, evaluated(row)), atol=1e-5)
        released, kept = policy.release(features, theirs), own.release(features, ours, evaluated(row))
        assert released.action == kept.action
        np.testing.assert_allclose(released.state, kept.state.numpy(), atol=1e-5)
        first, reward = row % 7 == 6, float(rng.normal())
        theirs = Memory(None if first else released.action, reward, first, None if first else released.state)
        ours = Memory(None if first else kept.action, reward, first, None if first else kept.state)


@pytest.mark.parametrize("kind", ["a window", "a core of dicts", "normalised"])
def test_a_fast_path_is_an_input_of_the_light_half(tmp_path: Path, kind: str) -> None:
    made: dict[str, Any] = {"torso": SMALL, "fast": partial(MLPTorso, hidden=(5,)), "fast_age": 1}
    made |= {"core": "lstm"} if kind == "a core of dicts" else {"feed_previous": False, "action_window": 3}
    space, family, network = CART.observation_space, VTrace, create_actor_critic
    if kind == "a core of dicts":
        space = MIXED
        made |= {"torso": "auto", "fast": "auto"}
    if kind == "normalised":
        family, network = PPO, create_policy_value_network
        made = {"torso": SMALL, "fast": SMALL, "fast_age": 1, "action_window": 3}
    arguments = {"unroll_length": 1} if family is PPO else {"stack_size": 1}
    spec = family(space, Discrete(2), network=partial(network, **made), device="cpu", **arguments)
    found = export(TurnBasedAgent(spec), tmp_path / "agent.onnx", observations=8)
    assert found.difference < 1e-4
    policy, own = OnnxSplitPolicy(tmp_path / "agent.onnx"), spec.make_policy()
    assert policy.fast_age == own.fast_age == 1 and policy.features == spec.features
    theirs, ours = Memory(None, 0.0, True, None), Memory(None, 0.0, True, None)
    shown = observations(space, 24)
    for row, observation in enumerate(shown):
        fresh, features = shown[row - 1], policy.encode(observation)
        np.testing.assert_allclose(features, own.encode(observation, evaluated(row)), atol=1e-5)
        outputs = policy.outputs(features, theirs._replace(fresh=fresh))
        older = policy.outputs(features, theirs._replace(fresh=shown[row - 2]))
        assert not np.allclose(outputs["logits"], older["logits"])
        released = policy.release(features, theirs._replace(fresh=fresh))
        kept = own.release(features, ours._replace(fresh=fresh), evaluated(row))
        assert released.action == kept.action
        first = row % 7 == 6
        theirs = Memory(None if first else released.action, 0.5, first, None if first else released.state)
        ours = Memory(None if first else kept.action, 0.5, first, None if first else kept.state)
    if kind == "a window":
        terms = {"fps": 50, "latency": 0.07, "max_features_age": 20}
        scores = play(partial(OnnxSplitPolicy, tmp_path / "agent.onnx"), policy.features, **terms)
        assert scores and scores == play(spec.make_policy, spec.features, **terms)


class Plain(NamedTuple):
    """An agent without memory, and its file."""

    spec: DQN
    path: Path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """A DQN on CartPole."""
    path = tmp_path_factory.mktemp("plain") / "agent.onnx"
    agent = TurnBasedAgent.playing(
        DQN,
        CART,
        stack_size=1,
        network=partial(create_network, torso=SMALL),
        epsilon_eval=0.0,
        device="cpu",
    )
    export(agent, path, observations=8)
    return Plain(agent.spec, path)  # type: ignore[arg-type]


def play(make_policy: Any, features: Any = None, **terms: Any) -> list[float]:
    runner = AsyncRunner(
        lambda: gym.make("CartPole-v1"),
        make_policy,
        **{"workers": 2, "fps": 50, "backend": "virtual", "latency": 0.03, **terms},
        features=features,
        default_action="repeat",
        eval_mode=True,
        seed=1,
    )
    length = {"seconds": 0.5} if terms else {"episodes": 5}
    return [episode.score for episode in runner.run(**length).episodes]


def test_a_runner_plays_the_files_as_it_plays_the_agent(remembering: Any, plain: Plain) -> None:
    spec, path, _ = remembering
    halves = play(partial(OnnxSplitPolicy, path), OnnxSplitPolicy(path).features)
    assert halves == play(spec.make_policy, spec.features)
    policy = partial(OnnxPolicy, plain.path)
    assert play(policy) == play(plain.spec.make_policy)
    assert sum(play(policy, backend="process", latency=None)) > 5  # frames that its workers have played, live


def test_a_runner_gives_a_file_its_stacks(tmp_path: Path) -> None:
    network = partial(create_network, torso=SMALL)
    stacked = DQN(CART.observation_space, CART.action_space, stack_size=3, network=network, epsilon_eval=0.0)
    export(TurnBasedAgent(stacked), tmp_path / "stacked.onnx", observations=8)
    policy = partial(OnnxPolicy, tmp_path / "stacked.onnx")
    scores = play(policy, stack_size=3)
    assert scores and scores == play(stacked.of_stacks().make_policy, stack_size=3)


def test_each_is_refused_where_the_other_one_belongs(remembering: Any, tmp_path: Path) -> None:
    _, path, found = remembering
    with pytest.raises(ValueError, match=r"is not there while .*agent\.encode\.onnx is: use OnnxSplitPolicy\("):
        OnnxPolicy(path)
    with pytest.raises(ValueError, match=r"\(of the kind 'act'\), got .*agent\.encode\.onnx \(encode\)"):
        OnnxPolicy(found.files[0])
    (tmp_path / "one.onnx").write_bytes(found.files[0].read_bytes())
    with pytest.raises(ValueError, match=r"is one without: use OnnxPolicy\("):
        OnnxSplitPolicy(tmp_path / "one.onnx")
    with pytest.raises(ValueError, match=r"there is no .*none\.onnx"):
        OnnxPolicy(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(ValueError, match=r"that ONNX Runtime can run, got .*text\.onnx: [^\n]+$"):
        OnnxPolicy(tmp_path / "text.onnx")
    with pytest.raises(ValueError, match="threads must be a whole number >= 1, got 0"):
        OnnxPolicy(found.files[0], threads=0)


def with_facts(path: Path, text: str) -> bytes:
    model = onnx.load_model(path)
    (entry,) = (each for each in model.metadata_props if each.key == "async_wrappers")
    entry.value = text
    return bytes(model.SerializeToString())


OBSERVED = {"name": "observation", "path": [], "shape": [4], "dtype": "float32"}


@pytest.mark.parametrize(
    "changed",
    [
        "{",
        "[1]",
        "null",
        "[" * 5000,
        {"stack_size": None},
        {"stack_size": 2},
        {"stack_size": 0},
        {"observation": None},
        {"observation": []},
        {"observation": [{**OBSERVED, "dtype": "zz"}]},
        {"observation": [{**OBSERVED, "shape": [9]}]},
        {"observation": [{**OBSERVED, "shape": "x"}]},
        {"observation": [{**OBSERVED, "name": "other"}]},
        {"observation": [{**OBSERVED, "path": ["a"]}]},
    ],
    ids=lambda changed: str(changed)[:60],
)
def test_metadata_that_are_not_of_the_graph_are_refused_in_one_sentence(
    plain: Plain, tmp_path: Path, changed: Any
) -> None:
    path = tmp_path / "agent.onnx"
    text = changed if isinstance(changed, str) else json.dumps({**OnnxPolicy(plain.path).facts, **changed})
    path.write_bytes(with_facts(plain.path, text))
    with pytest.raises(ValueError, match=r"agent.onnx is damaged \(.*\): export it again$") as caught:
        OnnxPolicy(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_refused_in_one_sentence_or_plays(plain: Plain, tmp_path: Path) -> None:
    path, content, rng = tmp_path / "agent.onnx", plain.path.read_bytes(), np.random.default_rng(0)
    for number in range(60):
        damaged = bytearray(content)
        if number % 3:
            damaged[rng.integers(len(damaged))] ^= 1 << int(rng.integers(8))
        else:
            del damaged[rng.integers(len(damaged)) :]
        path.write_bytes(damaged)
        try:
            policy = OnnxPolicy(path)
        except ValueError as error:
            assert "\n" not in str(error) and str(path) in str(error)
        else:
            assert policy.act(np.zeros(4, np.float32)) in (0, 1)


def test_a_file_says_what_it_is_made_for(remembering: Any) -> None:
    _, _, found = remembering
    told = {entry.key: entry.value for entry in onnx.load(found.files[1]).metadata_props}
    facts = json.loads(told["async_wrappers"])
    assert (facts["kind"], facts["agent"], facts["state_size"], facts["actions"]) == ("decide", "r2d2", 1024 // 2, 2)


class Opaque(torch.nn.Module):
    """A network that no exporter can follow."""

    def __init__(self, shape: Any, actions: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, actions)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.array(self.linear(observation[:, 0]).detach().numpy().tolist(), np.float32))


def test_what_cannot_be_exported_is_refused_in_one_sentence(tmp_path: Path) -> None:
    agent: Any = TurnBasedAgent(DQN(CART.observation_space, CART.action_space, stack_size=1, network=Opaque))
    with pytest.raises(
        ValueError, match=r"^network must be one that torch\.export can trace, and Opaque is not: [^\n]+$"
    ):
        export(agent, tmp_path / "agent.onnx", observations=4)
    with pytest.raises(ValueError, match=r"^an agent with a PyTorch network can be exported, got agent 'RandomAgent'"):
        export(RandomAgent(CART), tmp_path / "agent.onnx")
    box = Box(-2, 2, (1,))
    spec = SimpleNamespace(name="sac", reader=None, actions=BoxActions(box, "sac"), action_space=box)
    agent = SimpleNamespace(spec=spec, learner=SimpleNamespace(network=torch.nn.Linear(3, 2)))
    with pytest.raises(
        ValueError, match=r"^an agent of Discrete actions .*'sac' with Box\(-2.*\): play it with .*load_agent"
    ):
        export(agent, tmp_path / "agent.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_acts_otherwise_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    class Wrong(onnxruntime.InferenceSession):  # type: ignore[misc]
        def run(self, *arguments: Any) -> list[Any]:
            action, values = super().run(*arguments)
            return [action, values + 0.01]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Wrong)
    network = partial(create_network, torso=SMALL)
    agent = TurnBasedAgent(DQN(CART.observation_space, CART.action_space, stack_size=1, network=network))
    with pytest.raises(ActsDifferently, match=r"gives other q_values than the agent \(by 0\.01\d*\): not written$"):
        export(agent, tmp_path / "agent.onnx", observations=4)
    assert not list(tmp_path.iterdir())
