"""What torsos and heads of networks keep: subclass `TorsoContract` or `HeadContract` and give it what makes one.

    class TestMyTorso(TorsoContract):
        shapes = ((4,), (2, 3))

        def make_torso(self, shape):
            return MyTorso(shape)

A torso and a head must work in every agent, so the contract puts each of them into a Q-network too, and asks for what
agents do with it: copies, weights of other memory, noise, other first weights, sizes without memory.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn

from async_wrappers.agents.networks.noisy import make_noisy
from async_wrappers.agents.networks.q_network import DuelingHead, LinearHead, QNetwork, check_fit, count_parameters
from async_wrappers.agents.networks.torsos import INITIALIZERS, MLPTorso, output_size
from async_wrappers.agents.spaces.schema import each_array
from tests.worlds.plain_data import assert_identical

BATCH, ACTIONS = 5, 3


def inputs(shape: Any, batch: int = BATCH, seed: int = 0) -> Any:
    """Return floats in [0, 1) `[batch, *shape]`; a dict of such for a dict of shapes."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(shape, dict):
        return {key: inputs(inner, batch, seed + number) for number, (key, inner) in enumerate(shape.items())}
    return torch.rand((batch, *shape), generator=generator)


class _Contract:
    """What holds for a module, whatever it reads."""

    @pytest.fixture(autouse=True)
    def _seeded(self) -> Iterator[None]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield

    def _make(self) -> tuple[nn.Module, Any, tuple[int, ...]]:
        """Return the module, a batch for it, and the shape of what it gives for one row."""
        raise NotImplementedError

    def _made(self, seed: int = 0) -> tuple[nn.Module, Any, tuple[int, ...]]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._make()

    def test_it_gives_floats_of_the_shape_that_it_says_for_any_batch(self) -> None:
        module, batch, shape = self._made()
        for rows in (1, BATCH):
            output = module(each_array(lambda array, rows=rows: array[:rows], batch))
            assert (output.shape, output.dtype) == ((rows, *shape), torch.float32)
            assert output.isfinite().all()

    def test_a_row_does_not_depend_on_the_others(self) -> None:
        module, batch, _ = self._made()
        together = module(batch)
        for row in range(BATCH):
            alone = module(each_array(lambda array, row=row: array[row : row + 1], batch))
            torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-4)

    def test_rows_that_differ_are_told_apart(self) -> None:
        module, batch, _ = self._made()
        output = module(batch)
        assert all(bool((output[0] != output[row]).any()) for row in range(1, BATCH))

    def test_every_parameter_is_learnt(self) -> None:
        module, batch, _ = self._made()
        output = module(batch)
        # A weight for each number, so that what has a constant sum, such as a softmax, has a gradient too.
        (output * inputs(output.shape[1:], BATCH, seed=9)).sum().backward()
        learnt = {name for name, each in module.named_parameters() if each.grad is not None and each.grad.any()}
        assert learnt == {name for name, _ in module.named_parameters()}

    def test_its_weights_follow_from_the_seed_of_torch(self) -> None:
        one, alike, other = (self._made(seed)[0].state_dict() for seed in (1, 1, 2))
        assert all(torch.equal(one[name], alike[name]) for name in one)
        assert any(not torch.equal(one[name], other[name]) for name in one)

    def test_all_that_it_learns_is_in_its_state(self) -> None:
        (one, batch, _), (other, *_) = self._made(1), self._made(2)
        assert not torch.equal(one(batch), other(batch))
        other.load_state_dict(one.state_dict())
        assert torch.equal(one(batch), other(batch))

    def test_copies_and_pickles_give_the_same(self) -> None:
        module, batch, _ = self._made()
        for twin in (copy.deepcopy(module), cloudpickle.loads(cloudpickle.dumps(module))):
            assert torch.equal(twin(batch), module(batch))
            assert not {id(each) for each in twin.parameters()} & {id(each) for each in module.parameters()}

    def test_it_gives_the_same_for_the_same_and_changes_nothing(self) -> None:
        module, batch, _ = self._made()
        before = copy.deepcopy((module.state_dict(), batch))
        first = module(batch)
        with torch.no_grad():
            assert torch.equal(module.eval()(batch), first)
        assert_identical(dict(module.state_dict()), dict(before[0]))
        assert_identical(batch, before[1])

    def test_its_size_can_be_known_without_its_memory(self) -> None:
        expected = count_parameters(self._made()[0])
        with torch.device("meta"):
            without = self._make()[0]
        assert count_parameters(without) == expected
        assert {each.device.type for each in without.parameters()} == {"meta"}


class TorsoContract(_Contract):
    """Tests of one torso, for each of `shapes`.

    Attributes:
        shapes: Observations without the batch, such as ``(4,)`` or ``(3, 36, 40)``; dicts of such for a torso of a
            Dict.
    """

    shapes: tuple[Any, ...]

    def make_torso(self, shape: Any) -> nn.Module:
        """Make the torso for observations of that shape."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for each of the shapes."""
        metafunc.parametrize("shape", self.shapes, ids=str, indirect=True)

    @pytest.fixture(autouse=True)
    def shape(self, request: pytest.FixtureRequest) -> None:
        """The shape of this test."""
        self.of_shape = request.param

    def _make(self) -> tuple[nn.Module, Any, tuple[int, ...]]:
        torso = self.make_torso(self.of_shape)
        return torso, inputs(self.of_shape), (output_size(torso),)

    @pytest.mark.parametrize("head", [LinearHead, DuelingHead])
    @pytest.mark.parametrize("initializer", INITIALIZERS)
    def test_with_a_head_it_is_a_network_whose_first_weights_can_be_chosen(self, head: Any, initializer: Any) -> None:
        network = QNetwork(self.of_shape, ACTIONS, self.make_torso, head, initializer=initializer)
        check_fit(network, (inputs(self.of_shape, 1),), (ACTIONS,), "of a test")
        assert (network(inputs(self.of_shape)).std(dim=0) > 0).all()

    def test_with_noisy_layers_it_is_still_a_network(self) -> None:
        network = make_noisy(QNetwork(self.of_shape, ACTIONS, self.make_torso), 0.5)
        check_fit(network, (inputs(self.of_shape, 1),), (ACTIONS,), "of a test")

    def test_in_the_memory_format_of_images_it_gives_the_same(self) -> None:
        torso, batch, _ = self._made()
        expected = torso(batch)
        last = torso.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = each_array(
            lambda array: array.to(memory_format=torch.channels_last) if array.ndim == 4 else array, batch
        )
        torch.testing.assert_close(last(images), expected, atol=1e-4, rtol=1e-4)


class HeadContract(_Contract):
    """Tests of one head: of values, and of distributions of values with several outputs per action."""

    def make_head(self, input_size: int, num_actions: int, *outputs: int) -> nn.Module:
        """Make the head; `outputs` is empty, or one number, the outputs per action."""
        raise NotImplementedError

    @pytest.fixture(autouse=True, params=[(), (7,)], ids=["values", "distributions"])
    def _outputs(self, request: pytest.FixtureRequest) -> None:
        self.outputs: tuple[int, ...] = request.param

    def _make(self) -> tuple[nn.Module, Any, tuple[int, ...]]:
        return self.make_head(6, ACTIONS, *self.outputs), inputs((6,)), (ACTIONS, *self.outputs)

    def test_on_a_torso_it_is_a_network(self) -> None:
        network = QNetwork((4,), ACTIONS, lambda shape: MLPTorso(shape, (6,)), self.make_head, *self.outputs)
        check_fit(network, (inputs((4,), 1),), (ACTIONS, *self.outputs), "of a test")
