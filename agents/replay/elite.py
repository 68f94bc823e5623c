"""Elite and attentive replay: unrolls are drawn by the change of the network's features of them.

Sun, Zhou, Li, "Attentive experience replay", AAAI 2020, draw lambda B transitions uniformly and keep the B that are
most similar to the agent's present state; lambda falls linearly to 1. The V-trace platform with elite experience replay
(parralplex/elite_buffer_vtrace) does it with unrolls. Instead of states it compares the network's present features of
an unroll with those when the unroll was new: if the two are near, the unroll is nearly on-policy.

For the k-th update, counted from 0, from a replay that holds U unrolls and must give n rows:

1.  lambda_k = lambda_0 - (lambda_0 - 1) k / (alfa * updates of the run), and 1 once that would be less.
2.  m = min(U, floor(lambda_k n)) candidates are drawn uniformly, none of them twice. If m = n, these are the rows.
3.  Each candidate has a distance, and they are sorted by it; of two at the same distance the older one is first.
4.  A strategy takes n of them (`chosen`), and the count of each of these goes up by 1.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.hyperparameters import Range, choice, made_for, must, number, whole
from async_wrappers.agents.networks.sequence_network import sequence_tensors
from async_wrappers.agents.replay.selectors import Positions, Selector
from async_wrappers.agents.replay.unrolls import SourceSpec, UnrollReplay, UnrollRing
from async_wrappers.agents.spaces.compute import Compute, Reader
from async_wrappers.agents.spaces.schema import STATE, Arrays, Column, each_array, whole_stacks

Floats = npt.NDArray[np.floating]

DISTANCES = ("ln_norm", "cos_dist", "kl_div")
STRATEGIES = ("strategy1", "strategy2", "strategy3", "strategy4", "count", "newest")
_OF_DISTANCES = STRATEGIES[:4]

_STATES = 2048  # states that are encoded at a time, which bounds the memory of the activations


# Choosing.


def chosen(strategy: str, rows: int, distance: Floats | None, count: npt.NDArray[Any], age: npt.NDArray[Any]) -> Any:
    """Return which of m candidates a strategy takes.

    - ``"strategy1"``: the nearest n.
    - ``"strategy2"``: the nearest of each of n runs of s = floor(m / n) candidates, in the order of distance; the last
      m - n s are ignored.
    - ``"strategy3"``: those with the smallest count, of these the nearest.
    - ``"strategy4"``: of each of those n runs the one with the smallest count, of these the nearest.
    - ``"count"``: as strategy 3 without distances, a control: those with the smallest count, of these the oldest.
    - ``"newest"``: the newest n, a control.

    Args:
        strategy: One of these.
        rows: n, at most m.
        distance: `[m]`; None for a control.
        count: How often each was learnt from, `[m]`.
        age: Numbers that rise with age, `[m]`, distinct.

    Returns:
        Indices `[n]`, in the order in which they were taken.

    Raises:
        ValueError: An unknown strategy.
    """
    older_first = -age
    if strategy == "newest":
        return np.argsort(age)[:rows]
    if strategy == "count":
        return np.lexsort((older_first, count))[:rows]
    assert distance is not None
    if strategy == "strategy3":
        return np.lexsort((older_first, distance, count))[:rows]
    order = np.lexsort((older_first, distance))
    if strategy == "strategy1":
        return order[:rows]
    run = len(order) // rows
    runs = order[: run * rows].reshape(rows, run)
    if strategy == "strategy2":
        return runs[:, 0]
    if strategy == "strategy4":
        return runs[np.arange(rows), count[runs].argmin(axis=1)]
    raise ValueError(f"strategy must be one of {', '.join(map(repr, STRATEGIES))}, got {strategy!r}")


class Elite(Selector):
    """Draws candidates, and takes the best of them; see the module's comment.

    Args:
        distances: From places `[m]` of the storage to distances `[m]`; not called for a control.
        strategy: See `chosen`.
        multiplier: lambda_0, at least 1.
        annealing: Updates after which lambda is 1; None for a constant lambda.

    Attributes:
        updates: Batches that were drawn.
        count: How often the unroll at each place was learnt from, `[capacity]`.
    """

    _storage: UnrollRing
    count: npt.NDArray[np.int64]

    def __init__(
        self,
        distances: Callable[[Positions], Floats],
        strategy: str,
        multiplier: float,
        annealing: float | None,
    ) -> None:
        self._distances, self._strategy, self._multiplier = distances, strategy, multiplier
        self._annealing, self.updates = annealing, 0

    def attach(self, storage: Any) -> None:
        super().attach(storage)
        self.count = np.zeros(storage.capacity, np.int64)

    def became_valid(self, position: int) -> None:
        """Set the new unroll's count to 0."""
        self.count[position] = 0

    @property
    def lambda_(self) -> float:
        """The next update's lambda."""
        if self._annealing is None:
            return self._multiplier
        if self.updates >= self._annealing:
            return 1.0
        return self._multiplier - (self._multiplier - 1) * self.updates / self._annealing

    def draw(
        self, rng: np.random.Generator, batch_size: int, importance_exponent: float | None = None
    ) -> tuple[Positions, Arrays]:
        """At least as many unrolls are valid as are drawn."""
        # A rounding below a whole number is that number.
        wanted = int(self.lambda_ * batch_size + 1e-9)
        self.updates += 1
        positions = self.candidates(rng, wanted)
        if len(positions) > batch_size:
            distance = self._distances(positions) if self._strategy in _OF_DISTANCES else None
            age = -self._storage.number[positions]
            positions = positions[chosen(self._strategy, batch_size, distance, self.count[positions], age)]
        self.count[positions] += 1
        return positions, {}

    def candidates(self, rng: np.random.Generator, wanted: int) -> Positions:
        """Return the places of a number of unrolls, or of all if there are fewer, drawn uniformly, none twice."""
        live = np.flatnonzero(self._storage.number >= 0)
        return rng.choice(live, min(wanted, len(live)), replace=False)

    def clear(self) -> None:
        self.count.fill(0)

    def nbytes_at(self, capacity: int) -> int:
        """Return the bytes of the counts of this number of places."""
        return capacity * self.count.itemsize

    def facts(self) -> dict[str, Any]:
        """Return the settings that may not change when a run is continued; lambda may."""
        return {"strategy": self._strategy}

    def counters(self) -> dict[str, Any]:
        """Return lambda's clock."""
        return {"updates": self.updates}

    def snapshot(self) -> Arrays:
        """Return the counts."""
        return {"count": self.count}

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        self.updates = counters["updates"]
        self.count[...] = snapshot["count"]


# Distances.


def distances(
    one: Tensor, other: Tensor, mask: Tensor | None = None, *, dist_function: str = "ln_norm", p: float = 2.0
) -> Tensor:
    """Return distances between features, which are 0 for equal features.

    - ``"ln_norm"``: (sum |one - other|^p)^(1/p).
    - ``"cos_dist"``: 1 - cos(one, other).
    - ``"kl_div"``: sum over t of KL(softmax(one_t) || softmax(other_t)), where the F features of step t are logits.

    Sums and the cosine are over T and F.

    Args:
        one: `[..., T, F]`.
        other: `[..., T, F]`.
        mask: 0 for steps that are left out, `[..., T]`; None for none.
        dist_function: One of these.
        p: Of the norm, at least 1.

    Returns:
        `[...]`, at least 0.
    """
    if mask is not None:
        one, other = one * mask.unsqueeze(-1), other * mask.unsqueeze(-1)
    if dist_function == "ln_norm":
        norm: Tensor = torch.linalg.vector_norm((one - other).flatten(-2), ord=p, dim=-1)
        return norm
    if dist_function == "cos_dist":
        return (1.0 - torch.cosine_similarity(one.flatten(-2), other.flatten(-2), dim=-1)).clamp(min=0.0)
    # Steps that are left out are zeros in both, and so equal.
    log_one, log_other = one.log_softmax(dim=-1), other.log_softmax(dim=-1)
    return (log_one.exp() * (log_one - log_other)).sum(dim=(-2, -1)).clamp(min=0.0)


def state_distances(states: Tensor, others: Tensor, *, dist_function: str = "ln_norm", p: float = 2.0) -> Tensor:
    """Return the distance `[N, E]` of the features of each of N states `[N, F]` from those of each of E `[E, F]`.

    Each is that of `distances` for T = 1.
    """
    if dist_function == "ln_norm":
        return torch.cdist(states, others, p=p, compute_mode="donot_use_mm_for_euclid_dist")
    if dist_function == "cos_dist":
        one, other = nn.functional.normalize(states, dim=1), nn.functional.normalize(others, dim=1)
        return (1.0 - one @ other.T).clamp(min=0.0)
    log_one, log_other = states.log_softmax(dim=1), others.log_softmax(dim=1)
    of_states = (log_one.exp() * log_one).sum(dim=1, keepdim=True)
    return (of_states - log_one.exp() @ log_other.T).clamp(min=0.0)


# Features.


class NetworkEncoder:
    """Computes features of observations by the learner's network, `network.encode`, with weights of its own.

    The weights are those at the last draw of a batch. No update changes them, so features may be computed in parallel
    with an update, and do not depend on its progress.

    Args:
        network: The learner's, with a method ``encode`` from observations `[N, k, *shape]` to features `[N, F]`.
        reader: Turns stacks of observations into the network's input.
        compute: Where it computes.
        stack_size: Observations in a stack, k; None where an observation is a stack.

    Attributes:
        is_used: Whether features were ever requested.
    """

    def __init__(self, network: Any, reader: Reader, compute: Compute, stack_size: int | None) -> None:
        self._network, self._reader, self._compute, self._stack_size = network, reader, compute, stack_size
        self._copy: Any = None
        self.is_used = False
        self._expired = True
        self._newest: Any = None

    @property
    def size(self) -> int:
        """Features of an observation, F.

        Raises:
            ValueError: The network has no ``encode``.
        """
        if not hasattr(self._network, "encode"):
            raise ValueError(
                f"EliteReplay needs a network whose method encode(observation) gives its features, such as "
                f"@create_actor_critic's, got {type(self._network).__name__}"
            )
        return int(self._features(self._reader(self._reader.blank_stacks())).shape[1])

    def refresh(self, newest: Callable[[], Any]) -> None:
        """Copy the learner's present weights, and the environments' present states, where the encoder `is_used`.

        Args:
            newest: Returns these states, as `Assembly.newest` does.
        """
        self._load()
        self._newest = newest()

    def expire(self) -> None:
        """Copy the learner's weights when features are next requested."""
        self._expired = True

    def _load(self) -> None:
        self._copy.load_state_dict(self._network.state_dict())
        self._expired = False

    def unrolls(self, batch: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return the features `[B, T, F]` of a batch of unrolls (`sequences.py`), without row T."""
        unrolls, steps = batch["mask"].shape[1], len(batch["mask"])
        at_a_time = max(1, _STATES // steps)
        found = []
        for start in range(0, unrolls, at_a_time):
            some = slice(start, start + at_a_time)
            part = {"observation": each_array(lambda array, some=some: array[:, some], batch["observation"])}
            part["first"] = batch["first"][:, some]
            tensors = sequence_tensors(part, self._reader, self._compute.tensor, self._stack_size)
            states = each_array(lambda stacks: stacks[:-1].flatten(0, 1), tensors["observation"])
            features = self._features(states)
            found.append(features.reshape(steps, -1, features.shape[1]).swapaxes(0, 1))
        return np.concatenate(found)

    def present(self) -> npt.NDArray[np.float32]:
        """Return the features `[N, F]` of the environments' states at the last `refresh`."""
        read = whole_stacks(self._reader) if self._stack_size is None else self._reader
        return self._features(read(self._newest))

    @torch.no_grad()
    def _features(self, observation: Any) -> npt.NDArray[np.float32]:
        if self._copy is None:
            self._copy, self.is_used = copy.deepcopy(self._network).requires_grad_(False), True
        if self._expired:
            self._load()
        with self._compute.autocast():
            features: npt.NDArray[np.float32] = self._copy.encode(observation).float().cpu().numpy()
        return features


def _projection(inputs: int, outputs: int, seed: int) -> npt.NDArray[np.float32]:
    """Return a fixed random matrix `[inputs, outputs]` that keeps norms on average (Johnson and Lindenstrauss 1984)."""
    matrix = np.random.Generator(np.random.PCG64((seed, 1))).normal(scale=outputs**-0.5, size=(inputs, outputs))
    return matrix.astype(np.float32)


# The source.


@made_for("spec", "Its agent and unrolls; the agent gives it.")
class EliteReplay(UnrollReplay):
    """Unrolls near to the present policy, or to the present state, come first; ``"elite"`` among an agent's sources.

    The names are the platform's; docs/algorithms/elite.md lists the departures from it.

    An unroll's first features are computed when it enters, by the weights at the last draw of a batch, which are at
    most a few updates from those that acted. They take 4 T F bytes for each unroll, and are kept only if a distance to
    them is used.

    Raises:
        ValueError: An argument is out of its range, or the agent's network has no features.
    """

    sample_strategy: Literal["elite_sampling", "attentive_sampling"] | None = choice(
        "elite_sampling",
        'By which distance unrolls are chosen. ``"elite_sampling"``: of an unroll\'s features now from those when it '
        'was new. ``"attentive_sampling"``: the mean one of its states from the present state of each environment, '
        "by the present network. None: they are drawn uniformly, none twice in a batch.",
        "elite_sampling",
        "attentive_sampling",
        none=True,
    )
    elite_sampling_strategy: str = choice(
        "strategy3",
        'Which candidates are taken: ``"strategy1"``, the nearest; ``"strategy2"``, the nearest of each of n runs in '
        'the order of distance; ``"strategy3"``, those learnt from least often, of these the nearest; '
        '``"strategy4"``, of each of those runs the one learnt from least often. As controls, ``"count"``: those '
        'learnt from least often; ``"newest"``. The function `chosen` has the details.',
        *STRATEGIES,
    )
    lambda_batch_multiplier: float = number(
        6.0,
        "lambda, the number of candidates drawn for each row of a batch, before the first update; it falls to 1.",
        Range("be >= 1 candidate for each row", lambda value: 1 <= value < math.inf),
    )
    alfa_annealing_factor: float = number(
        1.0,
        "Share of the run's updates, `run_updates`, after which lambda is 1.",
        Range("be > 0", lambda value: 0 < value < math.inf),
    )
    run_updates: int | None = whole(None, "Updates of the run.", 1, "update", none="`VTraceAgent.learning_rate_decay`")
    dist_function: str = choice(
        "ln_norm",
        'Distance of two unrolls\' features: ``"ln_norm"``, the norm of order `p`; ``"cos_dist"``, 1 minus the '
        'cosine; or ``"kl_div"``, the KL divergence of their softmax.',
        *DISTANCES,
    )
    p: float = number(2.0, 'Order of the norm of ``"ln_norm"``.', Range("be >= 1", lambda value: 1 <= value < math.inf))
    features: Literal["network", "projection"] = choice(
        "network",
        '``"network"``: what the network\'s torso gives; ``"projection"``: a fixed random projection of that.',
        "network",
        "projection",
    )
    feature_out_layer_size: int = whole(512, "Features that a projection gives.", 1, "feature")
    insert_strategy: Literal["elite_insertion"] | None = choice(
        None,
        'Which unroll a new one replaces in a full replay. ``"elite_insertion"``: of `elite_batch_size` unrolls that '
        'are drawn uniformly, the farthest by the distance of ``"elite_sampling"``. None: the oldest.',
        "elite_insertion",
        none=True,
    )
    elite_batch_size: int = whole(20, 'Unrolls that ``"elite_insertion"`` draws.', 1, "unroll")

    def settle(self, spec: SourceSpec) -> tuple[Selector, Mapping[str, Column]]:
        """The further column holds features."""
        inserts, capacity = self.insert_strategy is not None, self.capacity
        must(
            not inserts or self.elite_batch_size <= capacity,
            f"EliteReplay.elite_batch_size must be <= EliteReplay.capacity = {capacity} unrolls, got "
            f"{self.elite_batch_size}",
        )
        updates = spec.updates if self.run_updates is None else self.run_updates
        must(
            self.sample_strategy is None or self.lambda_batch_multiplier <= 1 or updates is not None,
            "EliteReplay.run_updates must be the updates of the run, over a share of which "
            f"lambda_batch_multiplier = {self.lambda_batch_multiplier} falls to 1, got None: bind it, or "
            "VTraceAgent.learning_rate_decay",
        )
        attentive = self.sample_strategy == "attentive_sampling"
        by_distance = self.sample_strategy is not None and self.elite_sampling_strategy in _OF_DISTANCES
        self._stored = inserts or (by_distance and not attentive)
        self._assembly, self._encoder = spec.assembly, spec.encoder
        self._matrix: npt.NDArray[np.float32] | None = None
        further = {}
        if self._stored or by_distance:
            must(
                spec.encoder is not None,
                "EliteReplay needs an agent that computes features, such as VTraceAgent: use 'standard'",
            )
            size = self._size(spec)
            if self._stored:
                further["features"] = Column((spec.assembly.length, size), np.dtype(np.float32))
        multiplier, annealing = 1.0, None
        if self.sample_strategy is not None:
            multiplier = float(self.lambda_batch_multiplier)
            annealing = None if updates is None else self.alfa_annealing_factor * updates
        measure = self.distances_to_present if attentive else self.distances_to_stored
        self._elite = Elite(measure, self.elite_sampling_strategy, multiplier, annealing)
        return self._elite, further

    def _size(self, spec: SourceSpec) -> int:
        """Return the number of a state's features, and draw their projection, if there is one."""
        assert spec.encoder is not None
        if self.features == "network":
            return spec.encoder.size
        self._matrix = _projection(spec.encoder.size, self.feature_out_layer_size, spec.seed)
        return self.feature_out_layer_size

    def put(self, unrolls: Mapping[str, npt.NDArray[Any]], begun: bool) -> None:
        """Store unrolls, each in the place of the oldest one or of the farthest; see `UnrollReplay.put`."""
        columns = dict(unrolls)
        if self._stored:
            time_first = {name: each if name == STATE else each.swapaxes(0, 1) for name, each in unrolls.items()}
            columns["features"] = self._of_batch(self._assembly.batch(time_first))
        for row in range(len(unrolls["mask"])):
            unroll = {name: column[row] for name, column in columns.items()}
            self._storage.put_whole(unroll, self._place())

    def _place(self) -> int | None:
        """Return the next unroll's place; None for the oldest one's."""
        ring = self._storage
        if self.insert_strategy is None:
            return None
        if ring.count < ring.capacity:
            return int(np.flatnonzero(ring.number < 0)[0])
        candidates = self._elite.candidates(self._rng, self.elite_batch_size)
        farthest = np.lexsort((ring.number[candidates], -self.distances_to_stored(candidates)))[0]
        return int(candidates[farthest])

    # Distances of the unrolls at some places.

    def distances_to_stored(self, places: Positions) -> Floats:
        """Return the distances of unrolls' present features from those when they were new, `[M]`."""
        batch = self._storage.assemble(places)
        now, then = self._of_batch(batch), self._storage.further("features", places)
        mask = torch.from_numpy(batch["mask"].swapaxes(0, 1))
        found = distances(
            torch.from_numpy(now), torch.from_numpy(then), mask, dist_function=self.dist_function, p=float(self.p)
        )
        return found.numpy()

    def distances_to_present(self, places: Positions) -> Floats:
        """Return the mean distance of each unroll's states from the present states of the environments, `[M]`."""
        batch = self._storage.assemble(places)
        states = torch.from_numpy(self._of_batch(batch))
        assert self._encoder is not None
        present = torch.from_numpy(self._projected(self._encoder.present()))
        found = state_distances(states.flatten(0, 1), present, dist_function=self.dist_function, p=float(self.p))
        mask = torch.from_numpy(batch["mask"].swapaxes(0, 1))
        mean = (found.mean(dim=1).view(mask.shape) * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
        return mean.numpy()

    def _of_batch(self, batch: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        assert self._encoder is not None
        return self._projected(self._encoder.unrolls(batch))

    def _projected(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return features if self._matrix is None else features @ self._matrix

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""
        rows = self.elite_batch_size if self.insert_strategy else None
        own = {"sample_strategy": self.sample_strategy, "dist_function": self.dist_function, "p": float(self.p)}
        return {**super().facts(), **own, "features": self.features, "elite_batch_size": rows}
