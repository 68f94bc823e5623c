"""Networks over sequences: a core starts afresh where an episode begins, and a sequence is its rows one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from async_wrappers.agents.networks.cores import GRUCore, LSTMCore
from async_wrappers.agents.networks.q_network import LinearHead, check_fit, create_network
from async_wrappers.agents.networks.sequence_network import (
    ActorCriticHead,
    SequenceNetwork,
    check_sequence_fit,
    create_actor_critic,
    create_recurrent_q_network,
)
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.spaces.actions import BoxActions
from async_wrappers.agents.spaces.schema import each_array

ACTIONS = 3


def made(core: Any, shape: Any = (1, 2), **arguments: Any) -> SequenceNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return create_actor_critic(shape, ACTIONS, torso=lambda shape: MLPTorso(shape, (5,)), core=core, **arguments)


def rows(steps: int, batch: int, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    observation = torch.rand((steps, batch, 1, 2), generator=generator)
    first = torch.rand((steps, batch), generator=generator) < 0.3
    action = torch.randint(0, ACTIONS, (steps, batch), generator=generator).masked_fill(first, -1)
    reward = torch.rand((steps, batch), generator=generator).masked_fill(first, 0.0)
    return observation, action, reward, first


CORES = {"lstm": lambda size: LSTMCore(size, 4), "gru": lambda size: GRUCore(size, 4)}


def small(shape: Any) -> MLPTorso:
    return MLPTorso(shape, (3,))


@pytest.mark.parametrize(("window", "fast"), [(None, None), (3, None), (3, small)])
@pytest.mark.parametrize("core", [*CORES.values(), None], ids=[*CORES, "none"])
@settings(deadline=None, max_examples=10)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**31))
def test_a_sequence_is_its_rows_one_by_one(
    core: Any, window: Any, fast: Any, steps: int, batch: int, seed: int
) -> None:
    network, given_ = made(core, action_window=window, fast=fast), rows(steps, batch, seed)
    if fast is not None:
        given_ = {"start": given_[0], "effect": given_[0].flip(0)}, *given_[1:]
    state = torch.rand((batch, network.state_size), generator=torch.Generator().manual_seed(seed))
    (logits, values), last = network(*given_, state)
    for t in range(steps):
        (row_logits, row_values), state = network(
            *(each_array(lambda array, t=t: array[t : t + 1], each) for each in given_), state
        )
        torch.testing.assert_close(row_logits[0], logits[t], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(row_values[0], values[t], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, last, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("core", CORES.values(), ids=CORES)
def test_what_was_before_an_episode_makes_no_difference_to_it(core: Any, window: Any) -> None:
    network, given_ = made(core, action_window=window), rows(4, 2)
    given_[3][:] = False
    given_[3][2] = True
    outputs = []
    for state in (network.initial_state(2), torch.full((2, network.state_size), 7.0)):
        (logits, _), _ = network(*given_, state)
        outputs.append(logits)
    assert not torch.equal(outputs[0][:2], outputs[1][:2])
    assert torch.equal(outputs[0][2:], outputs[1][2:])


@pytest.mark.parametrize(("core", "kind"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_without_resets_a_core_is_pytorchs(core: str, kind: Any) -> None:
    made_core, theirs = CORES[core](3), kind(3, 4)
    theirs.load_state_dict({f"{name}_l0": weight for name, weight in made_core.cell.state_dict().items()})
    features, first = torch.rand((5, 2, 3)), torch.zeros((5, 2), dtype=torch.bool)
    outputs, state = made_core(features, torch.zeros(2, made_core.state_size), first)
    expected, last = theirs(features)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(state, torch.cat([each[0] for each in last], dim=1) if core == "lstm" else last[0])


def test_the_previous_action_and_reward_are_read_where_they_are_fed() -> None:
    observation, action, reward, first = rows(1, 2)
    first[:] = False
    for fed in (True, False):
        network = made(None, feed_previous=fed)
        state = network.initial_state(2)
        (logits, _), _ = network(observation, torch.zeros_like(action), reward, first, state)
        for other in (
            network(observation, torch.ones_like(action), reward, first, state),
            network(observation, torch.zeros_like(action), reward - 1, first, state),
        ):
            assert torch.equal(logits, other[0][0]) != fed


# The light half.


def test_layers_between_features_and_head_are_those_that_are_asked_for() -> None:
    assert (
        len(made(None).hidden)
        == len(made(CORES["lstm"]).hidden)
        == len(made(None, action_window=2, hidden=()).hidden)
        == 0
    )
    assert [layer.out_features for layer in made(None, action_window=2).hidden if hasattr(layer, "bias")] == [128]
    network = made(CORES["gru"], action_window=2, hidden=(7, 6))
    shapes = [tuple(each.shape) for each in network.hidden.parameters()]
    assert shapes == [(7, 4), (7,), (6, 7), (6,)] and network.head.policy.in_features == 6
    plain = made(None, action_window=2, hidden=())
    assert not [name for name in plain.state_dict() if name.startswith(("hidden", "fast"))]


def test_a_hidden_layer_lets_a_windows_meaning_depend_on_the_observation() -> None:
    seen, other = 20 * torch.rand((2, 1, 1, 1, 2), generator=torch.Generator().manual_seed(0)) - 10
    none, first = torch.zeros((1, 1)), torch.zeros((1, 1), dtype=torch.bool)

    def effect_of_the_action(network: SequenceNetwork, observation: Tensor) -> Tensor:
        each = [network(observation, torch.tensor([[a]]), none, first, network.initial_state(1))[0][0] for a in (0, 1)]
        return each[1] - each[0]

    for hidden, alike in (((), True), ((16,), False)):
        network = made(None, action_window=1, feed_previous=False, hidden=hidden)
        effects = [effect_of_the_action(network, observation) for observation in (seen, other)]
        assert torch.allclose(*effects, atol=1e-6) == alike


@pytest.mark.parametrize(("hidden", "core"), [((), None), ((6,), None), ((), CORES["lstm"])])
def test_a_fast_path_reads_the_newest_observation_alone_and_reaches_the_head(hidden: Any, core: Any) -> None:
    network = made(core, (2, 2), hidden=hidden, fast=small, fast_age=3)
    assert network.fast_age == 3 and made(core).fast_age is None
    slow, fresh = torch.rand((2, 4, 3, 2, 2))
    given_ = rows(4, 3)[1:]
    state = network.initial_state(3)
    (logits, values), _ = network({"start": slow, "effect": fresh}, *given_, state)
    older = torch.cat([torch.rand_like(fresh[:, :, :1]), fresh[:, :, 1:]], dim=2)
    assert torch.equal(network({"start": slow, "effect": older}, *given_, state)[0][0], logits)
    newer = torch.cat([fresh[:, :, :1], torch.rand_like(fresh[:, :, :1])], dim=2)
    assert not torch.equal(network({"start": slow, "effect": newer}, *given_, state)[0][0], logits)
    # In halves, as it acts: the slow half has seen nothing of it.
    features = network.encode(slow.flatten(0, 1)).view(4, 3, -1)
    torch.testing.assert_close(network.decide(features, *given_, state, fresh)[0][0], logits)
    torch.testing.assert_close(network.decide(features, *given_, state, fresh[:, :, 1:])[0][0], logits)
    (logits.sum() + values.sum()).backward()
    assert all(
        each.grad is not None and each.grad.any() for each in (*network.fast.parameters(), *network.torso.parameters())
    )
    # What the slow half gives is 0 at first to the head, and the fast path still acts.
    with torch.no_grad():
        network.head.policy.weight[:, : -3 if network._both else 0] = 0
    assert network({"start": slow, "effect": fresh}, *given_, state)[0][0].std() > 0


@pytest.mark.parametrize("age", [-1, 1.5, True, "0"])
def test_an_age_that_is_no_number_of_frames_is_refused(age: Any) -> None:
    with pytest.raises(ValueError, match=rf"^fast_age must be a whole number of frames >= 0, got {age!r}"):
        made(None, fast=small, fast_age=age)


def test_a_fresh_observation_of_another_shape_is_refused() -> None:
    network = made(None, (2, 2), fast=small)
    slow, fresh, given_ = torch.rand((4, 3, 2, 2)), torch.rand((4, 3, 2, 3)), rows(4, 3)[1:]
    with pytest.raises(ValueError, match=r"^fresh must have the shape \[B, 1, 2\], got \[12, 1, 3\]; "):
        network({"start": slow, "effect": fresh}, *given_, network.initial_state(3))


# The window of the last actions.

WINDOW_SPACE = Box(-1, 1, (2,), np.float32)


def with_window(actions: str, window: int | None, core: Any = None, feed_previous: bool = False) -> SequenceNetwork:
    of_box = BoxActions(WINDOW_SPACE, "sac") if actions == "box" else None
    torso = lambda shape: MLPTorso(shape, (5,))  # noqa: E731
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SequenceNetwork(
            (1, 2), ACTIONS, torso, LinearHead, core, feed_previous, actions=of_box, action_window=window, hidden=()
        )


def played(actions: str, steps: int, batch: int, seed: int) -> tuple[Tensor, ...]:
    """Return rows as `rows` does; of real-valued actions too, 0 where there was none."""
    observation, action, reward, first = rows(steps, batch, seed)
    if actions == "box":
        numbers = torch.rand((steps, batch, 2), generator=torch.Generator().manual_seed(seed + 1))
        action = (2 * numbers - 1).masked_fill(first.unsqueeze(2), 0.0)
    return observation, action, reward, first


def numbers_of(actions: str, action: Tensor) -> list[float]:
    return action.tolist() if actions == "box" else [float(action == each) for each in range(ACTIONS)]


@pytest.mark.parametrize("actions", ["discrete", "box"])
@settings(deadline=None, max_examples=20)
@given(
    window=st.integers(1, 4),
    steps=st.integers(1, 9),
    batch=st.integers(1, 3),
    cut=st.integers(0, 9),
    seed=st.integers(0, 2**31),
)
def test_the_window_is_the_episodes_last_actions_wherever_a_sequence_is_cut(
    actions: str, window: int, steps: int, batch: int, cut: int, seed: int
) -> None:
    network, given_ = with_window(actions, window), played(actions, steps, batch, seed)
    seen: list[Tensor] = []
    network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    state, pieces = network.initial_state(batch), (slice(0, min(cut, steps)), slice(min(cut, steps), steps))
    for piece in pieces:
        if piece.stop > piece.start:
            _, state = network(*(each[piece] for each in given_), state)
    read = torch.cat(seen)[:, 5:].view(steps, batch, window, -1)
    nothing = [0.0] * read.shape[3]
    for b in range(batch):
        lived: list[list[float]] = []
        for t in range(steps):
            lived = [] if given_[3][t, b] else [*lived, numbers_of(actions, given_[1][t, b])]
            expected = ([nothing] * window + lived)[-window:]
            torch.testing.assert_close(read[t, b], torch.tensor(expected), rtol=0, atol=0)
    assert torch.equal(state, read[-1].flatten(1))


@pytest.mark.parametrize("core", [*CORES.values(), None], ids=[*CORES, "none"])
def test_a_core_reads_the_window_beside_the_features_and_its_own_state_is_what_it_was(core: Any) -> None:
    network, given_ = with_window("discrete", 2, core, feed_previous=True), rows(5, 2)
    bare = with_window("discrete", None, core, feed_previous=True)
    assert network.state_size == bare.state_size + 2 * ACTIONS == network.initial_state(1).shape[1]
    assert check_sequence_fit(network, torch.rand(1, 1, 2), ((ACTIONS,),), "vtrace") is None
    # With zeros for what reads the window, all else is as without.
    name = "head.values.weight" if core is None else "core.cell.weight_ih"
    of_window = torch.zeros_like(network.state_dict()[name][:, -2 * ACTIONS :])
    network.load_state_dict({**bare.state_dict(), name: torch.cat([bare.state_dict()[name], of_window], dim=1)})
    outputs, state = network(*given_, network.initial_state(2))
    expected, of_core = bare(*given_, bare.initial_state(2))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(state[:, : bare.state_size], of_core)


@pytest.mark.parametrize("actions", ["discrete", "box"])
def test_a_decision_by_its_window_is_the_same_row_of_the_sequence(actions: str) -> None:
    window, steps = 3, 12
    network, given_ = with_window(actions, window), played(actions, steps, 1, 7)
    expected, _ = network(*given_, network.initial_state(1))
    lived: list[Tensor] = []
    none = torch.full_like(given_[1][0, 0], -1 if actions == "discrete" else 0)
    for t in range(steps):
        lived = [] if given_[3][t, 0] else [*lived, given_[1][t, 0]]
        drawn = torch.stack([none] * window + lived)[-window:]
        features = network.encode(given_[0][t])
        torch.testing.assert_close(network.decide_by_window(features, drawn[None]), expected[t], rtol=1e-6, atol=1e-7)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(network.decide_by_window(features, drawn.flip(0)[None]), expected[-1])


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        ({"window": None}, "action_window=None, feed_previous=False and a core's state of 0"),
        ({"window": 2, "feed_previous": True}, "action_window=2, feed_previous=True and a core's state of 0"),
        ({"window": 2, "core": CORES["gru"]}, "action_window=2, feed_previous=False and a core's state of 4"),
    ],
)
def test_a_network_that_reads_more_than_a_window_does_not_decide_by_it(arguments: Any, got: str) -> None:
    with pytest.raises(ValueError, match=f"^decide_by_window needs a network with action_window, without .* got {got}"):
        with_window("discrete", **arguments).decide_by_window(torch.zeros(1, 5), torch.zeros(1, 2, dtype=torch.int64))


def test_a_reward_beyond_1_is_read_as_1() -> None:
    network, (observation, action, reward, first) = made(None), rows(1, 2)
    one, other = (
        network(observation, action, torch.full_like(reward, r), first, torch.zeros(2, 0))[0] for r in (1.0, 9.0)
    )
    assert torch.equal(one[0], other[0])


def test_without_a_core_there_is_no_state_and_no_weight_more() -> None:
    network = made(None, feed_previous=False)
    assert network.state_size == 0 and network.initial_state(3).shape == (3, 0)
    plain = nn.Sequential(MLPTorso((1, 2), (5,)), ActorCriticHead(5, ACTIONS))
    assert sum(each.numel() for each in network.parameters()) == sum(each.numel() for each in plain.parameters())


def test_a_dict_of_observations_is_read_by_key() -> None:
    network = made("gru", {"a": (1, 2), "b": (1, 3)})
    observation = {"a": torch.rand(4, 2, 1, 2), "b": torch.rand(4, 2, 1, 3)}
    (logits, values), _ = network(observation, *rows(4, 2)[1:], network.initial_state(2))
    assert logits.shape == (4, 2, ACTIONS) and values.shape == (4, 2)


def test_agents_without_memory_refuse_a_network_over_sequences() -> None:
    with pytest.raises(ValueError, match=r"^agent 'dqn' remembers nothing from decision to decision, and SequenceN"):
        check_fit(made("lstm"), (torch.rand(1, 1, 2),), (ACTIONS,), "dqn")


class Unmasked(GRUCore):
    """Carries its state over the end of an episode."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 4)

    def forward(self, features: torch.Tensor, state: torch.Tensor, first: torch.Tensor) -> Any:
        return super().forward(features, state, torch.zeros_like(first))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda: create_network((1, 2), ACTIONS), "network must be one over sequences with agent 'vtrace', such as "),
        (lambda: made("lstm", (1, 5)), "network must take sequences of observations, and SequenceNetwork does not: "),
        (
            lambda: SequenceNetwork((1, 2), ACTIONS, lambda shape: MLPTorso(shape, (5,)), LinearHead),
            "network must give [(1, 1, 3), (1, 1)] to agent 'vtrace' for a sequence of one observation, got [(1, 1, 3)",
        ),
        (
            lambda: made(Unmasked),
            "network must begin its memory afresh where `first` is True with agent 'vtrace', and what SequenceNetwork ",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_refused(network: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_sequence_fit(network(), torch.rand(1, 1, 2), ((ACTIONS,), ()), "vtrace")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"core": "lsmt"}, 'core must be one of "lstm", "gru" or a factory, got "lsmt"; did you mean "lstm"?'),
        ({"core": lambda size: LSTMCore(size, 0)}, "LSTMCore.hidden must be > 0, got 0"),
        ({"core": lambda size: GRUCore(size, -1)}, "GRUCore.hidden must be > 0, got -1"),
        (
            {"core": lambda size: LSTMCore(size, forget_bias=math.inf)},
            "LSTMCore.forget_bias must be a finite number, got inf",
        ),
        (
            {"core": lambda size: LSTMCore(size, forget_bias="1")},
            "LSTMCore.forget_bias must be a finite number, got '1'",
        ),
        *(
            (
                {"action_window": window},
                f"action_window must be a whole number of actions >= 1, or None, got {window!r}",
            )
            for window in (0, -1, True, 2.0, "5")
        ),
        ({"action_window": 2, "chunk": 4}, "action_window must be None where a decision gives a chunk "),
        *(
            ({"skip": skip}, f"create_actor_critic.skip must be True or False, got {skip!r}")
            for skip in (1, "torso", None)
        ),
        *(
            ({"head_scale": scale}, "create_actor_critic.head_scale must be a number >= 0 and finite, got")
            for scale in (-1.0, math.inf, True, "small")
        ),
    ],
)
def test_arguments_that_it_cannot_use_are_refused(arguments: dict[str, Any], message: str) -> None:
    for create in (create_actor_critic, create_recurrent_q_network):
        if create is create_actor_critic or arguments.keys() == {"action_window"}:
            with pytest.raises(ValueError) as caught:
                create((1, 2), ACTIONS, **arguments)
            assert str(caught.value).splitlines()[0].startswith(message)


def test_with_a_forget_bias_more_is_left_of_the_cell_and_nothing_else_differs() -> None:
    torch.manual_seed(0)
    core = LSTMCore(3, 4)
    torch.manual_seed(0)
    keeps = LSTMCore(3, 4, forget_bias=40.0)
    differences = {name: weight - core.state_dict()[name] for name, weight in keeps.state_dict().items()}
    expected = {name: torch.zeros_like(each) for name, each in differences.items()}
    expected["cell.bias_hh"][4:8] = 40.0
    torch.testing.assert_close(differences, expected)
    with torch.no_grad():  # so that nothing is added to the cell
        keeps.cell.bias_hh[:4] = -100.0
    cell = torch.rand(2, 4)
    state = torch.cat([torch.zeros(2, 4), cell], dim=1)
    _, state = keeps(torch.rand(10, 2, 3), state, torch.zeros(10, 2, dtype=torch.bool))
    torch.testing.assert_close(state[:, 4:], cell)


def test_a_small_head_scale_lets_actions_begin_equally_likely_and_values_near_0() -> None:
    observation = torch.rand(1, 8, 1, 6)
    rows = torch.zeros(1, 8)
    for scale, far in ((1.0, True), (0.01, False)):
        torch.manual_seed(0)
        network = create_actor_critic(
            (1, 6), 4, torso=lambda s: MLPTorso(s, (32,)), initializer="orthogonal", head_scale=scale
        )
        (logits, values), _ = network(observation, rows.long() - 1, rows, rows == 0, network.initial_state(8))
        assert (logits.detach().std() > 0.1) == far
        assert (values.detach().abs().max() > 0.1) == far


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_with_a_skip_the_head_reads_the_torsos_features_beside_the_core(core: str) -> None:
    network, (observation, *others) = made(core, skip=True), rows(4, 2)
    seen: list[Tensor] = []
    network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    features = network.encode(observation.flatten(0, 1))
    for outputs in (
        network(observation, *others, network.initial_state(2))[0],
        network.decide(features.view(4, 2, -1), *others, network.initial_state(2))[0],
    ):
        assert outputs[0].shape == (4, 2, ACTIONS)
    for read in seen:
        assert torch.equal(read[:, -5:], features) and read.shape[1] == network.core.output_size + 5
    # Of the core it reads the same as without.
    without = made(core)
    without.load_state_dict(
        {name: weight for name, weight in network.state_dict().items() if "head" not in name}, False
    )
    without.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    without(observation, *others, without.initial_state(2))
    assert torch.equal(seen[-1], seen[0][:, :-5])


def test_without_a_core_there_is_nothing_to_skip() -> None:
    shapes = [
        {name: weight.shape for name, weight in made(None, skip=skip).named_parameters()} for skip in (False, True)
    ]
    assert shapes[0] == shapes[1]


def test_orthogonal_weights_keep_angles_and_have_the_gain_for_relus() -> None:
    network = create_actor_critic(
        (1, 6), 4, torso=lambda s: MLPTorso(s, (6,)), feed_previous=False, initializer="orthogonal"
    )
    weight = next(network.torso.parameters()).detach()
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(6))


@pytest.mark.parametrize("core", [*CORES.values(), None], ids=[*CORES, "none"])
def test_under_autocast_the_head_is_computed_in_float32(core: Any) -> None:
    network = made(core, feed_previous=False)
    seen: list[Tensor] = []
    network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.autocast("cpu", torch.bfloat16):
        (logits, values), _ = network(*rows(4, 2), network.initial_state(2))
    expected_logits, expected_values = network.head(seen[0].float())
    assert seen[0].dtype == torch.float32
    torch.testing.assert_close(logits.flatten(0, 1), expected_logits, rtol=0, atol=0)
    torch.testing.assert_close(values.flatten(), expected_values, rtol=0, atol=0)
