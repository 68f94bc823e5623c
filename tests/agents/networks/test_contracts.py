"""The torsos and heads keep their contracts."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from async_wrappers.agents.networks.q_network import DictTorso, DuelingHead, LinearHead
from async_wrappers.agents.networks.torsos import ImpalaTorso, MinAtarTorso, MLPTorso, NatureTorso
from tests.contracts.network_contract import HeadContract, TorsoContract


class TestMLP(TorsoContract):
    shapes = ((4,), (2, 3))

    def make_torso(self, shape: Any) -> nn.Module:
        return MLPTorso(shape, (16,))


class TestNature(TorsoContract):
    shapes = ((2, 36, 40), (2, 36, 40, 3))

    def make_torso(self, shape: Any) -> nn.Module:
        return NatureTorso(shape)


class TestImpala(TorsoContract):
    shapes = ((1, 36, 40),)

    def make_torso(self, shape: Any) -> nn.Module:
        return ImpalaTorso(shape, width=1 / 4)


class TestPaddedImpala(TorsoContract):
    shapes = ((1, 9, 5),)

    def make_torso(self, shape: Any) -> nn.Module:
        return ImpalaTorso(shape, width=1 / 4, deep=True, padding="same")


class TestConvolutionsAlone(TorsoContract):
    shapes = ((2, 36, 40),)

    def make_torso(self, shape: Any) -> nn.Module:
        return NatureTorso(shape, hidden=None)


class TestMinAtar(TorsoContract):
    shapes = ((4, 10, 10), (2, 3, 10, 10), (2, 10, 10, 3), (1, 3, 4))

    def make_torso(self, shape: Any) -> nn.Module:
        return MinAtarTorso(shape, hidden=16)


class TestMinAtarAndAPrefix(TorsoContract):
    shapes = ({"observation": (1, 4, 10, 10), "committed_prefix": (1, 8, 4)},)

    def make_torso(self, shape: Any) -> nn.Module:
        return DictTorso(shape, MinAtarTorso)


class TestDict(TorsoContract):
    shapes = ({"image": (1, 36, 36), "inner": {"delay": (1, 3)}}, {"a": (2,), "b": (1, 3)})

    def make_torso(self, shape: Any) -> nn.Module:
        images = "image" in shape
        return DictTorso(shape, partial(ImpalaTorso, width=1 / 4) if images else partial(MLPTorso, hidden=(16,)))


class TestLinear(HeadContract):
    def make_head(self, input_size: int, num_actions: int, *outputs: int) -> nn.Module:
        return LinearHead(input_size, num_actions, *outputs)


class TestDueling(HeadContract):
    def make_head(self, input_size: int, num_actions: int, *outputs: int) -> nn.Module:
        return DuelingHead(input_size, num_actions, *outputs)


class TestDuelingWithHiddenLayers(HeadContract):
    def make_head(self, input_size: int, num_actions: int, *outputs: int) -> nn.Module:
        return DuelingHead(input_size, num_actions, *outputs, hidden=5)
