"""Normalisers of observations and rewards by running statistics, which are buffers of the network.

So they are published and saved with the weights, and a policy stays a pure function of weights and observation. The
learner updates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from async_wrappers.agents.networks.torsos import check_sizes, is_vector
from async_wrappers.agents.spaces.schema import each_array, leaves, nest

_CLIP = 10.0  # in standard deviations
_EPSILON = 1e-8  # added to variances

Average = Callable[[Mapping[str, Tensor], int], Mapping[str, Tensor]]


class RunningMoments(nn.Module):
    """Mean and variance of all rows so far (Chan, Golub and LeVeque 1983, equations 1.5a and 1.5b).

    Args:
        shape: Of a row.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, rows: Tensor, average: Average | None = None) -> None:
        """Add rows `[N, *shape]`, N > 0.

        Args:
            rows: As said.
            average: As `learning.Networks.average`: every learner then adds the rows of all, which count as one
                learner's.
        """
        exact = rows.double()
        new = {"sum": exact.sum(0), "squares": (exact**2).sum(0), "count": exact.new_tensor(float(len(rows)))}
        if average is not None:
            new = dict(average(new, 1))
        mean = new["sum"] / new["count"]
        variance = (new["squares"] / new["count"] - mean**2).clamp(min=0.0)
        total, apart = self.count + new["count"], mean - self.mean
        share = new["count"] / total
        between = apart**2 * share * (1 - share)
        self.variance.copy_(self.variance * (1 - share) + variance * share + between)
        self.mean.copy_(self.mean + apart * share)
        self.count.copy_(total)


class ObservationNormalizer(nn.Module):
    """Subtracts the running mean, divides by the standard deviation, and clips to [-10, 10].

    Each number of a vector has its own statistics; a Dict is normalised by key. Images and tables pass as they are.

    Args:
        observation_shape: Of one observation, `[k, *shape]`; for a Dict, the shapes by key.
    """

    def __init__(self, observation_shape: Any) -> None:
        super().__init__()
        entries = [(path, check_sizes("observation_shape", shape)) for path, shape in leaves(observation_shape)]
        self.moments = nn.ModuleList(
            [RunningMoments(shape) if is_vector(shape) else nn.Identity() for _, shape in entries]
        )
        self._paths = [path for path, _ in entries]
        self._begun: bool | None = not self._running
        self.register_load_state_dict_post_hook(_forget_whether_begun)  # type: ignore[no-untyped-call]

    def forward(self, observation: Any) -> Any:
        """Normalise observations `[N, *observation_shape]`, a tensor or a dict of such."""
        return each_array(_normalized, observation, self._by_key())

    def update(self, observation: Any, average: Average | None = None) -> None:
        """Add observations `[N, *observation_shape]`; see `RunningMoments.update`."""

        def add(rows: Tensor, moments: nn.Module) -> None:
            if isinstance(moments, RunningMoments):
                moments.update(rows, average)

        each_array(add, observation, self._by_key())
        self._begun = True

    @property
    def begun(self) -> bool:
        """Whether there are statistics of all that is normalised; the device is asked after a load alone."""
        if self._begun is None:
            self._begun = all(bool(each.count > 0) for each in self._running)
        return self._begun

    @property
    def _running(self) -> list[RunningMoments]:
        return [each for each in self.moments if isinstance(each, RunningMoments)]

    def _by_key(self) -> Any:
        return nest(self._paths, list(self.moments))


def _forget_whether_begun(normalizer: nn.Module, keys: Any) -> None:
    assert isinstance(normalizer, ObservationNormalizer)
    normalizer._begun = None


def _normalized(rows: Tensor, moments: nn.Module) -> Tensor:
    if not isinstance(moments, RunningMoments):
        return rows
    centred = rows.float() - moments.mean
    return centred.mul_((moments.variance + _EPSILON).rsqrt()).clamp_(-_CLIP, _CLIP)


class RewardNormalizer(nn.Module):
    """Divides rewards by the standard deviation of the discounted return so far, and clips to [-10, 10].

    The return of a step is that of the episode up to it, g_s = gamma g_{s-1} + r_s (Engstrom et al. 2020, section 3, as
    in Gymnasium's ``NormalizeReward``).
    """

    def __init__(self) -> None:
        super().__init__()
        self.returns = RunningMoments()

    def forward(self, rewards: Tensor) -> Tensor:
        """Normalise rewards, of any shape."""
        return (rewards * (self.returns.variance + _EPSILON).rsqrt()).clamp(-_CLIP, _CLIP)

    def update(self, returns: Tensor, average: Average | None = None) -> None:
        """Add discounted returns `[N]`; see `RunningMoments.update`."""
        self.returns.update(returns, average)


class NormalizedNetwork(nn.Module):
    """A network over sequences that reads normalised observations; it holds the normaliser of rewards too.

    Args:
        network: A `sequence_network.SequenceNetwork`, or another module with its methods.
        observation_shape: Of one observation, `[k, *shape]`; for a Dict, the shapes by key.
        observations: Whether observations are normalised.
        rewards: Whether rewards are.

    Attributes:
        network: As given.
        observations: The normaliser of observations, or None.
        rewards: The normaliser of rewards, or None.
        feed_previous: The network's.
        state_size: The network's.
        fast_age: The network's; what its fast path reads is normalised alike.
    """

    def __init__(self, network: Any, observation_shape: Any, observations: bool = True, rewards: bool = True) -> None:
        super().__init__()
        self.network = network
        self.observations = ObservationNormalizer(observation_shape) if observations else None
        self.rewards = RewardNormalizer() if rewards else None
        self.feed_previous, self.state_size = network.feed_previous, network.state_size
        self.fast_age: int | None = getattr(network, "fast_age", None)

    def forward(
        self,
        observation: Any,
        previous_action: Tensor,
        previous_reward: Tensor,
        first: Tensor,
        state: Tensor,
        normalized: bool = False,
    ) -> Any:
        """Return what the network gives for T rows of B sequences; see `SequenceNetwork.forward`.

        Args:
            observation: As said; with `normalized` what `read` has returned.
            previous_action: As said.
            previous_reward: As said.
            first: As said.
            state: As said.
            normalized: Whether the observation is normalised already.
        """
        read = observation if normalized else self.read(observation)
        return self.network(read, previous_action, previous_reward, first, state)

    def encode(self, observation: Any) -> Tensor:
        features: Tensor = self.network.encode(self._read(observation))
        return features

    def decide(self, features: Tensor, *others: Any) -> Any:
        if self.fast_age is not None:
            others = *others[:-1], self._read(others[-1])
        return self.network.decide(features, *others)

    def initial_state(self, rows: int) -> Tensor:
        state: Tensor = self.network.initial_state(rows)
        return state

    def read(self, observation: Any) -> Any:
        """Return observations of any leading dimensions as the network reads them; with a fast path, dicts of two."""
        if self.fast_age is None:
            return self._read(observation)
        return {name: self._read(part) for name, part in observation.items()}

    def _read(self, observation: Any) -> Any:
        return observation if self.observations is None else self.observations(observation)
