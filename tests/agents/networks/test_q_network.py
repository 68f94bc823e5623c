"""Q-networks, and the torsos and heads that they are made of."""

import copy
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import gin
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.networks.q_network import (
    PRESETS,
    DuelingHead,
    LinearHead,
    QNetwork,
    count_parameters,
    create_network,
)
from async_wrappers.agents.networks.torsos import CentredTorso, ImpalaTorso, MinAtarTorso, MLPTorso, NatureTorso
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent

ATARI = (1, 84, 84)
PUBLISHED_COUNTS = {
    "55k": 54_178,
    "1m": 903_718,
    "10m": 10_368_742,
    "100m": 104_682_918,
    "1b": 1_008_092_742,
    "70k-deep": 70_108,
    "1m-deep": 1_288_198,
    "10m-deep": 11_126_790,
    "100m-deep": 104_783_878,
    "1b-deep": 998_875_142,
}
SMALL_TORSOS = ("auto", "nature", "mlp", "55k", "70k-deep", "1m")
TORSOS_AND_HEADS = [*zip(SMALL_TORSOS, itertools.cycle(("linear", "dueling")), strict=False)]


def images(batch: int, shape: tuple[int, ...] = ATARI) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8, generator=generator)


def seeded_network(torso: str, head: str = "linear", shape: tuple[int, ...] = ATARI) -> QNetwork:
    torch.manual_seed(0)
    return create_network(shape, 6, torso=torso, head=head)


def sentence(caught: pytest.ExceptionInfo[Exception]) -> str:
    """The message without gin's second line, which names the configurable that raised it."""
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_exactly_the_published_number_of_parameters_and_takes_any_head(name: str) -> None:
    with torch.device("meta"):
        assert count_parameters(create_network(ATARI, 6, torso=name)) == PUBLISHED_COUNTS[name]
        network = create_network((4, 96, 84), 5, 51, torso=name, head="dueling")
        assert network(torch.empty(2, 4, 96, 84, dtype=torch.uint8)).shape == (2, 5, 51)


def test_a_batch_may_be_empty() -> None:
    assert create_network(ATARI, 6, 4, torso="55k")(images(0)).shape == (0, 6, 4)


def test_the_nature_network_has_the_parameter_count_of_the_nature_paper() -> None:
    assert count_parameters(create_network((4, 84, 84), 18)) == 1_693_362


SAME = {"nature": partial(NatureTorso, padding="same"), "impala": partial(ImpalaTorso, padding="same")}


def impala_parameters(stack: int, actions: int) -> int:
    """Of Dopamine's IMPALA network for 84 x 84 pixels, counted layer by layer."""
    count, channels = 0, stack
    for more in (16, 32, 32):
        count += 9 * channels * more + more + 4 * (9 * more * more + more)
        channels = more
    return count + 512 * (32 * 11 * 11 + 1) + actions * 513


@pytest.mark.parametrize(
    ("torso", "outputs", "expected"),
    [
        ("nature", None, 4_046_502),  # DQN of 6 actions
        ("nature", 51, 4_200_402),  # Rainbow
        ("nature", 200, 4_659_024),  # QR-DQN
        ("impala", None, impala_parameters(4, 6)),
    ],
)
def test_padded_networks_have_dopamines_numbers_of_parameters(torso: str, outputs: int | None, expected: int) -> None:
    network = create_network((4, 84, 84), 6, outputs, torso=SAME[torso])
    assert count_parameters(network) == expected
    assert network(images(2, (4, 84, 84))).shape == (2, 6) if outputs is None else (2, 6, outputs)


@pytest.mark.parametrize("torso", SAME)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 29, 35), (3, 84, 60), (1, 97, 96)])
def test_a_padded_torso_takes_an_image_of_any_size(torso: str, shape: tuple[int, int, int]) -> None:
    made = SAME[torso](shape)
    seen = images(2, shape).float()
    expected = made(seen)
    assert expected.shape == (2, 512)
    last = copy.deepcopy(made).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    torch.testing.assert_close(last(seen.to(memory_format=torch.channels_last)), expected, atol=1e-4, rtol=1e-4)


def test_a_padded_torso_has_the_layers_of_an_unpadded_one_but_for_the_hidden_one() -> None:
    padded, bare = (
        {name: list(tensor.shape) for name, tensor in NatureTorso((4, 84, 84), padding).named_parameters()}
        for padding in ("same", "valid")
    )
    assert padded.keys() == bare.keys()
    assert {name for name in bare if bare[name] != padded[name]} == {"layers.7.weight"}
    assert (padded["layers.7.weight"], bare["layers.7.weight"]) == ([512, 7744], [512, 3136])


def test_padding_is_bound_by_gin_for_named_torsos() -> None:
    gin.clear_config()
    gin.parse_config("NatureTorso.padding = 'same'\nImpalaTorso.padding = 'same'")
    try:
        assert count_parameters(create_network((4, 84, 84), 6)) == 4_046_502
        assert count_parameters(create_network((4, 84, 84), 6, torso="nature")) == 4_046_502
        assert count_parameters(create_network((4, 84, 84), 6, torso="1m")) == impala_parameters(4, 6)
    finally:
        gin.clear_config()


def test_a_torso_for_images_ends_with_as_many_units_as_asked_for() -> None:
    seen = images(2, (4, 84, 84)).float()
    for torso, flat in ((NatureTorso, 64 * 7 * 7), (ImpalaTorso, 32 * 7 * 7)):
        whole, small, bare = (torso((4, 84, 84), hidden=hidden) for hidden in (512, 256, None))
        assert (small.output_size, bare.output_size) == (256, flat)
        assert small(seen).shape == (2, 256)
        assert count_parameters(whole) - count_parameters(small) == 256 * (flat + 1)
        bare.load_state_dict({name: whole.state_dict()[name] for name in bare.state_dict()})
        # What the last layer of the whole torso reads.
        assert torch.equal(bare(seen), whole.layers[:-2](seen))


def test_the_units_of_a_torso_are_bound_by_gin() -> None:
    gin.clear_config()
    gin.parse_config("NatureTorso.hidden = None\nImpalaTorso.hidden = 256\nDuelingHead.hidden = 16")
    try:
        nature = create_network((4, 84, 84), 6, torso="nature", head="dueling")
        assert (nature.torso.output_size, nature.head.value[0].weight.shape) == (3136, (16, 3136))
        assert create_network((4, 84, 84), 6, torso="1m").torso.output_size == 256
    finally:
        gin.clear_config()


@pytest.mark.parametrize("hidden", [0, -1, 2.5, True, "512"])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("NatureTorso.hidden", partial(NatureTorso, (4, 84, 84))),
        ("ImpalaTorso.hidden", partial(ImpalaTorso, (4, 84, 84))),
        ("DuelingHead.hidden", partial(DuelingHead, 8, 4)),
    ],
)
def test_units_that_are_no_whole_number_are_refused_by_name(name: str, make: Callable[..., Any], hidden: Any) -> None:
    with pytest.raises(ValueError) as caught:
        make(hidden=hidden)
    assert sentence(caught) == f"{name} must be a whole number > 0 of units, or None for no layer, got {hidden!r}"


def spread(initializer: str, seed: int) -> float:
    """How much Q varies over images of noise, as the standard deviation averaged over the actions."""
    torch.manual_seed(seed)
    network = create_network((4, 84, 84), 6, torso=SAME["nature"], initializer=initializer)
    with torch.no_grad():
        return float(network(images(24, (4, 84, 84))).std(dim=0).mean())


def test_q_varies_ten_times_as_much_with_dopamines_first_weights() -> None:
    torch_s, xavier, scaled = (
        sum(spread(initializer, seed) for seed in range(3))
        for initializer in ("torch", "xavier_uniform", "variance_scaling")
    )
    assert 7 < xavier / torch_s < 20
    # Scaling all five layers by sqrt(3 / sqrt(3)) is 3 ** 1.25, about 3.9: the biases of PyTorch's add to that.
    assert 3 < scaled / torch_s < 6


def test_adding_a_constant_to_every_advantage_changes_no_q_value() -> None:
    head = DuelingHead(8, 4)
    features = torch.randn(5, 8)
    before = head(features)
    with torch.no_grad():
        head.advantage.bias.add_(3.0)
    torch.testing.assert_close(head(features), before)


def test_a_hidden_layer_of_each_dueling_stream_is_one_of_its_own() -> None:
    head = DuelingHead(2, 3, hidden=2)
    weights = {
        "value.0.weight": [[1.0, 0.0], [0.0, -1.0]],
        "value.0.bias": [0.5, 0.0],
        "value.2.weight": [[2.0, 3.0]],
        "value.2.bias": [1.0],
        "advantage.0.weight": [[0.0, 1.0], [1.0, 1.0]],
        "advantage.0.bias": [0.0, -1.0],
        "advantage.2.weight": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        "advantage.2.bias": [0.0, 0.0, 3.0],
    }
    head.load_state_dict({name: torch.tensor(weight) for name, weight in weights.items()})
    # Of (1, -2): the value's layer gives (1.5, 2) and V = 3 + 6 + 1; the advantage's (0, 0) and A = (0, 0, 3).
    # Of (1, 2): (1.5, 0) and V = 4; (2, 2) and A = (2, 2, 7), whose mean is 11 / 3.
    expected = torch.tensor([[9.0, 9.0, 12.0], [4 - 5 / 3, 4 - 5 / 3, 4 + 10 / 3]])
    torch.testing.assert_close(head(torch.tensor([[1.0, -2.0], [1.0, 2.0]])), expected)


def test_the_mean_dueling_q_value_is_the_state_value() -> None:
    head = DuelingHead(8, 4)
    features = torch.randn(5, 8)
    torch.testing.assert_close(head(features).mean(dim=1, keepdim=True), head.value(features))


def test_dueling_q_values_order_actions_by_advantage() -> None:
    head = DuelingHead(8, 4)
    features = torch.randn(5, 8)
    assert torch.equal(head(features).argsort(dim=1), head.advantage(features).argsort(dim=1))


def test_each_output_of_a_dueling_head_duels_by_itself() -> None:
    head = DuelingHead(8, 4, 3)
    features = torch.randn(5, 8)
    torch.testing.assert_close(head(features).mean(dim=1), head.value(features))
    single = DuelingHead(8, 4)
    with torch.no_grad():  # the outputs number 1 of all actions, alone
        single.value.weight.copy_(head.value.weight[1:2])
        single.value.bias.copy_(head.value.bias[1:2])
        single.advantage.weight.copy_(head.advantage.weight[1::3])
        single.advantage.bias.copy_(head.advantage.bias[1::3])
    torch.testing.assert_close(head(features)[:, :, 1], single(features))


@pytest.mark.parametrize("torso", SMALL_TORSOS)
def test_uint8_agrees_with_the_same_image_as_float_in_zero_to_one(torso: str) -> None:
    network = seeded_network(torso)
    observation = images(2)
    torch.testing.assert_close(network(observation), network(observation.float() / 255), rtol=0, atol=0)


def test_float64_observations_are_taken_as_float32() -> None:
    network = create_network((3,), 2)
    observation = torch.randn(4, 3)
    assert torch.equal(network(observation.double()), network(observation))


def test_float32_observations_reach_the_torso_without_a_copy() -> None:
    seen: list[Tensor] = []
    network = create_network((3,), 2)
    network.torso.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    observation = torch.randn(4, 3)
    network(observation)
    assert seen[0] is observation


@pytest.mark.parametrize(("torso", "head"), TORSOS_AND_HEADS)
def test_bfloat16_autocast_gives_float32_values_close_to_full_precision(torso: str, head: str) -> None:
    network, observation = seeded_network(torso, head), images(2)
    with torch.autocast("cpu", torch.bfloat16):
        q_values = network(observation)
    assert q_values.dtype == torch.float32
    torch.testing.assert_close(q_values, network(observation), rtol=0.05, atol=0.01)


def test_bfloat16_autocast_trains_in_channels_last() -> None:
    network = seeded_network("1m").to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.autocast("cpu", torch.bfloat16):
        loss = network(images(2)).square().mean()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize(
    "shape", [(5,), (4, 5), (2, 3, 4), (3, 35, 84), (1, 4, 10, 10), (2, 84, 35, 3), (1, 84, 3, 84)]
)
def test_auto_takes_the_mlp_for_vectors_stacks_and_small_images(shape: tuple[int, ...]) -> None:
    network = create_network(shape, 3)
    assert isinstance(network.torso, MLPTorso)
    assert network(torch.randn(2, *shape)).shape == (2, 3)


COLOURS = [(1, 40, 40, 3), (1, 3, 40, 40), (4, 40, 44, 1), (2, 36, 40, 3), (2, 4, 36, 40), (2, 2, 40, 36, 3)]


@pytest.mark.parametrize("shape", [(1, 36, 36), (4, 84, 84), (3, 210, 160), *COLOURS])
def test_auto_takes_the_nature_torso_for_images_it_can_take(shape: tuple[int, ...]) -> None:
    network = create_network(shape, 3)
    assert isinstance(network.torso, NatureTorso)
    assert network(images(2, shape)).shape == (2, 3)


@pytest.mark.parametrize("torso", [NatureTorso, ImpalaTorso, CentredTorso, MinAtarTorso])
@pytest.mark.parametrize("stack", [1, 3])
def test_both_places_of_the_channels_are_read_as_one_image_of_all_channels(
    torso: Callable[[tuple[int, ...]], nn.Module], stack: int
) -> None:
    pictures = torch.rand(2, stack, 3, 40, 44)
    made = [torso((3 * stack, 40, 44)), torso((stack, 3, 40, 44)), torso((stack, 40, 44, 3))]
    weights = list(made[0].parameters())
    for other in made[1:]:
        for mine, given in zip(other.parameters(), weights, strict=True):
            mine.data = given.data
    expected = made[0](pictures.flatten(1, 2))
    for other, shown in zip(made[1:], (pictures, pictures.movedim(2, -1)), strict=True):
        torch.testing.assert_close(other(shown), expected)


def test_grey_pictures_have_the_network_of_those_without_an_axis_of_channels() -> None:
    with_axis, without = (create_network(shape, 3) for shape in ((4, 40, 40, 1), (4, 40, 40)))
    assert count_parameters(with_axis) == count_parameters(without)
    with_axis.load_state_dict(dict(zip(with_axis.state_dict(), without.state_dict().values(), strict=True)))
    shown = images(2, (4, 40, 40))
    torch.testing.assert_close(with_axis(shown.unsqueeze(-1)), without(shown))


@pytest.mark.parametrize("shape", COLOURS)
def test_pictures_of_a_dict_have_torsos_of_their_own(shape: tuple[int, ...]) -> None:
    network: Any = create_network({"picture": shape, "vector": (1, 3)}, 3)
    assert [type(torso) for torso in network.torso.torsos] == [NatureTorso]
    assert network({"picture": images(2, shape), "vector": torch.rand(2, 1, 3)}).shape == (2, 3)


@pytest.mark.parametrize("shape", [(36, 40, 3), (3, 36, 40), (36, 40, 1)])
def test_an_agent_learns_from_stacks_of_pictures_with_channels(shape: tuple[int, ...]) -> None:
    space = Box(0, 255, shape, np.uint8)
    small: dict[str, Any] = {"min_replay_history": 4, "batch_size": 2, "replay_capacity": 20, "update_period": 4}
    network = partial(create_network, torso=partial(NatureTorso, hidden=8))
    agent = TurnBasedAgent(DQN(space, Discrete(3), stack_size=2, network=network, device="cpu", **small))
    agent.begin_episode(space.sample())
    for _ in range(8):
        agent.step(1.0, space.sample())
    assert agent.learner.updates > 0
    assert count_parameters(agent.learner.network) < 150_000


def test_an_mlp_without_hidden_layers_passes_the_flattened_observation_on() -> None:
    torso = MLPTorso((2, 3), hidden=())
    observation = torch.randn(4, 2, 3)
    assert torso.output_size == 6
    assert torch.equal(torso(observation), observation.flatten(1))


def test_factories_are_taken_for_torso_and_head() -> None:
    network = create_network(ATARI, 6, torso=partial(ImpalaTorso, width=0.5), head=LinearHead)
    assert isinstance(network.torso, ImpalaTorso)
    assert isinstance(network.head, LinearHead)
    assert network(images(2)).shape == (2, 6)


def test_a_shape_given_as_a_list_is_taken() -> None:
    assert create_network([1, 84, 84], 6)(images(2)).shape == (2, 6)


@pytest.mark.parametrize(("deep", "count"), [(False, 6), (True, 12)])
def test_residual_blocks_with_zero_weights_pass_their_input_on(deep: bool, count: int) -> None:
    torso = ImpalaTorso(ATARI, width=1 / 16, deep=deep)
    blocks = [module for module in torso.modules() if type(module).__name__ == "_ResidualBlock"]
    assert len(blocks) == count
    for block in blocks:
        for parameter in block.parameters():
            nn.init.zeros_(parameter)
        features = torch.randn(2, next(block.parameters()).shape[0], 5, 5)
        assert torch.equal(block(features.clone()), features)


def test_channels_never_round_down_to_none() -> None:
    assert ImpalaTorso(ATARI, width=0.001)(torch.rand(2, *ATARI)).shape == (2, 512)


@pytest.mark.parametrize(
    ("torso", "smallest"), [(NatureTorso, 36), (ImpalaTorso, 29), (partial(ImpalaTorso, deep=True), 53)]
)
def test_the_smallest_image_works_and_one_pixel_less_is_refused(
    torso: Callable[[tuple[int, ...]], nn.Module], smallest: int
) -> None:
    assert torso((1, smallest, smallest))(torch.rand(2, 1, smallest, smallest)).shape == (2, 512)
    with pytest.raises(ValueError, match=rf"H and W >= {smallest} for this torso, got \[1, 84, {smallest - 1}\]"):
        torso((1, 84, smallest - 1))


NO_PADDING = "padding must be 'valid' or 'same', got 'SAME'"
NO_TORSO = (
    'torso must be one of "auto", "nature", "minatar", "mlp", "55k", "1m", "10m", "100m", "1b", "70k-deep", '
    '"1m-deep", "10m-deep", "100m-deep", "1b-deep" or a factory, got "natur"; did you mean "nature"?'
)
NO_HEAD = 'head must be one of "linear", "dueling" or a factory, got "Duelling"; did you mean "dueling"?'
NO_UNITS = "MLPTorso.hidden must be a list of whole numbers of units, got "
NO_BATCH = "observation must have the shape [B, 3], got [3]; add the batch"
VECTOR = 'observation_shape must be [C, H, W], [k, C, H, W] or [k, H, W, C], got [4]; use torso "mlp"'


@pytest.mark.parametrize(
    ("error", "make", "message"),
    [
        (ValueError, lambda: NatureTorso((4, 84, 84), padding="SAME"), NO_PADDING),
        (ValueError, lambda: ImpalaTorso((4, 84, 84), padding="SAME"), NO_PADDING),
        (ValueError, lambda: create_network(ATARI, 6, torso="natur"), NO_TORSO),
        (ValueError, lambda: create_network(ATARI, 6, head="Duelling"), NO_HEAD),
        (ValueError, lambda: ImpalaTorso(ATARI, width=-1), "width must be > 0, got -1"),
        (ValueError, lambda: ImpalaTorso(ATARI, width=0), "width must be > 0, got 0"),
        (ValueError, lambda: ImpalaTorso(ATARI, width=float("nan")), "width must be > 0, got nan"),
        (ValueError, lambda: create_network(ATARI, 0), "num_actions must be > 0, got 0"),
        (ValueError, lambda: create_network(ATARI, 6, 0), "outputs must be > 0, got 0"),
        (ValueError, lambda: create_network((0, 84, 84), 6), "observation_shape must be > 0, got [0, 84, 84]"),
        (ValueError, lambda: create_network((4,), 2, torso="nature"), VECTOR),
        (ValueError, lambda: DuelingHead(-2, 6), "input_size must be > 0, got -2"),
        (ValueError, lambda: MLPTorso((3,), hidden=(256, 0)), "hidden must be > 0, got [256, 0]"),
        *(
            (ValueError, partial(MLPTorso, (4,), hidden), f"{NO_UNITS}{hidden!r}")
            for hidden in (3, "ab", ("a",), (1.5,), None, {4: 5})
        ),
        (ValueError, lambda: create_network((3,), 2)(torch.zeros(3)), NO_BATCH),
        (ValueError, lambda: create_network((3,), 2)(torch.zeros(3)), NO_BATCH),
        (
            TypeError,
            lambda: create_network((3,), 2)(torch.zeros(1, 3, dtype=torch.int64)),
            "observation must be uint8 or floating point, got torch.int64",
        ),
        (
            TypeError,
            lambda: create_network(ATARI, 6, torso=NatureTorso(ATARI)),
            "torso must be a name or a factory, got NatureTorso; pass the class",
        ),
        (
            TypeError,
            lambda: create_network(ATARI, 6, torso=lambda _: nn.Flatten()),
            "torso must have an integer output_size, got None from Flatten",
        ),
    ],
)
def test_what_is_no_network_is_refused_in_one_sentence(
    error: type[Exception], make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert sentence(caught).startswith(message)


class TestSteps:
    @pytest.mark.parametrize("head", ["linear", "dueling"])
    @pytest.mark.parametrize(
        ("shape", "outputs"), [((4, 3), None), ((1, 40, 40), 5), ({"a": (1, 40, 40), "b": (2,)}, None)]
    )
    def test_a_call_is_the_torso_and_the_head(self, shape: Any, outputs: int | None, head: str) -> None:
        network = create_network(shape, 3, outputs, head=head)
        shapes = shape if isinstance(shape, dict) else {"": shape}
        tensors = {key: torch.rand(2, *each) for key, each in shapes.items()}
        observation = tensors if isinstance(shape, dict) else tensors[""]
        features = network.torso(observation)
        assert features.shape == (2, network.torso.output_size)
        assert torch.equal(network.head(features), network(observation))
