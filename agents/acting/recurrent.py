"""The policy of agents whose networks remember, and its two halves, which live runs call at different moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import (
    DecisionRandom,
    Decisions,
    Memories,
    OfWorker,
    PolicyOutput,
    WorkerPolicy,
)
from async_wrappers.agents.learning.captured import OFTEN, Captured, Function, copies
from async_wrappers.agents.learning.diverged import cause_of_action
from async_wrappers.agents.losses.loss import Host
from async_wrappers.agents.spaces.actions import Actions, NotFinite
from async_wrappers.agents.spaces.compute import Compute, Reader
from async_wrappers.agents.spaces.schema import STATE, TORSO_VERSION, VERSION, each_part, first_array
from async_wrappers.agents.spec import Spec
from async_wrappers.policy import Decision, Memory

Choose = Callable[..., tuple[Any, dict[str, Any]]]
"""From what the network gives [R, ...], the decisions, and what `DecisionRandom.for_actions` draws, to
actions [R, ...] as they are stored and extras [R, ...]."""


class RecurrentPolicy:
    """Acts by a network over sequences, a row at a time: with its core's state, the previous action and reward.

    Beside the extras of `choose` it leaves ``state``, what the core remembers after the decision, if there is a core.

    Args:
        network: Read in place; a `networks.sequence_network.SequenceNetwork`.
        choose: Makes actions from the network's outputs.
        actions: The action space.
        seed: Of the exploration.
        compute: Where the forward pass runs; the network must have been placed there.
        read: Turns batches of stacks into what the network reads.
        version: Returns the weights' number of updates, for the extra ``version`` and, where the network remembers,
            ``torso_version``, which may be older where `release` comes later; None leaves both out.

    Attributes:
        remembers: Whether the network reads more than the observation.
        fast_age: Of the observation that its fast path reads beside it; None without one. Inputs are then dicts of
            ``"start"``, stacks, and ``"effect"``, single observations [R, 1, *shape].
    """

    def __init__(
        self,
        network: Any,
        choose: Choose,
        actions: Actions,
        seed: int,
        compute: Compute,
        read: Callable[[Any], Any],
        version: Callable[[], int] | None = None,
    ) -> None:
        self.network, self.compute, self._version, self.actions = network, compute, version, actions
        self._known: int | None = None  # the weights' updates, once some were loaded
        self.fast_age: int | None = getattr(network, "fast_age", None)
        self.remembers: bool = network.feed_previous or network.state_size > 0 or self.fast_age is not None
        self._choose, self._read_stacks = choose, read
        self._read = read if self.fast_age is None else each_part(read)
        self._random = DecisionRandom(seed)
        self._gives_several = False  # outputs; known once the network was called
        self._captured: dict[str, Captured] = {}
        if compute.graphs:
            parts: dict[str, Function] = {"whole": self._of_whole, "light": self._of_light, "slow": self._of_slow}
            self._captured = {
                part: Captured(function, compute, f"a decision ({part} network)", often=OFTEN)
                for part, function in parts.items()
            }
        self._blanks: dict[int, list[Tensor]] = {}  # by the number of rows, where nothing is remembered

    def initial_state(self, rows: int) -> Tensor:
        """Return what episodes begin with, [rows, S]."""
        state: Tensor = self.network.initial_state(rows)
        return state

    @torch.inference_mode()
    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the chosen actions [R] for stacks [R, k, *shape], the core's states [R, S] and the extras.

        Raises:
            DivergedError: A real-valued action is not finite; the message names the environment or the weights.
        """
        rows = Decisions.of(decisions)
        stacks = _one_step(self._read(inputs))
        remembered = self._tensors(state) if self.remembers else self._blank(len(rows))
        outputs, core = self._forward(self.network, stacks, remembered)
        try:
            return self._chosen(outputs, core, rows, self.version)
        except NotFinite as error:
            rewards = {"reward": np.asarray(state.previous_reward)} if self.remembers else {}
            raise cause_of_action(error, self.network, {"observation": inputs, **rewards}) from None

    @torch.inference_mode()
    def first_outputs(self, inputs: Any) -> Any:
        """Return the network's outputs [R, ...] for stacks [R, k, *shape] at the beginning of episodes.

        A network of a policy and a value returns two.
        """
        stacks = _one_step(self._read(inputs))
        outputs, _ = self._forward(self.network, stacks, self._blank(first_array(stacks).shape[1]))
        return outputs

    @torch.inference_mode()
    def encode(self, inputs: Any) -> Tensor:
        """Return the network's features [R, F] of stacks [R, k, *shape], which `release` decides by."""
        if self._captured:
            return copies(self._captured["slow"]({"stacks": self._read_stacks(inputs)}))["features"]
        with self.compute.autocast():
            features: Tensor = self.network.encode(self._read_stacks(inputs))
        return features

    @torch.inference_mode()
    def release(
        self,
        features: Tensor,
        memory: Memories,
        decisions: Sequence[Decision],
        torso_version: int | None = None,
        fresh: Any = None,
    ) -> PolicyOutput:
        """Return what `act` returns, from features [R, F] that `encode` computed, perhaps in another process.

        Args:
            features: Of R rows.
            memory: The rows' present state.
            decisions: R of them.
            torso_version: Updates of the weights that computed the features; by default those of the present weights.
            fresh: With a fast path, what it reads, [R, 1, *shape].
        """
        rows = [*self._tensors(memory)]
        if self.fast_age is not None:
            rows.append(_one_step(self._read_stacks(fresh)))
        outputs, core = self._forward(self.network.decide, features.unsqueeze(0), rows)
        version = self.version if torso_version is None else torso_version
        try:
            return self._chosen(outputs, core, Decisions.of(decisions), version)
        except NotFinite as error:
            raise cause_of_action(error, self.network, {"reward": np.asarray(memory.previous_reward)}) from None

    @property
    def version(self) -> int | None:
        """How many updates the weights have; None where that is not left beside actions."""
        return self._version() if self._known is None and self._version is not None else self._known

    def _chosen(self, outputs: Any, core: Tensor, rows: Decisions, torso_version: int | None) -> PolicyOutput:
        actions, extras = self._choose(outputs, rows, *self._random.for_actions(self.actions, rows))
        if self.network.state_size:
            extras[STATE] = core.cpu().numpy()
        if self._version is not None:
            count = len(rows.start)
            extras[VERSION] = np.full(count, self.version)
            if self.remembers:
                extras[TORSO_VERSION] = np.full(count, torso_version)
        return PolicyOutput(self.actions.environment(actions), core if self.remembers else (), extras or None)

    def _forward(self, decide: Callable[..., Any], rows: Any, remembered: Sequence[Tensor]) -> tuple[Any, Tensor]:
        """Call the network, or its half that reads features, on one step of R sequences [1, R, ...]."""
        if self._captured:
            given = {"rows": rows, **{str(number): each for number, each in enumerate(remembered)}}
            found = copies(self._captured["whole" if decide is self.network else "light"](given))
            core = found.pop("core")
            return (tuple(found.values()) if self._gives_several else found["0"]), core
        with self.compute.autocast():
            outputs, core = decide(rows, *remembered)
        if isinstance(outputs, tuple):
            return tuple(map(_only_step, outputs)), core
        return outputs[0], core

    @torch.inference_mode()
    def prepare(self, inputs: Any) -> None:
        """Capture decisions of as many rows, where there are graphs: a worker has no time for it later.

        The light half of a network with a fast path is captured when it is used.
        """
        for part, captured in self._captured.items():
            if part == "whole" and not self.remembers:
                captured.capture(partial(self.first_outputs, inputs))
            elif part == "slow" and self.remembers:
                captured.capture(partial(self.encode, inputs))
            elif part == "light" and self.remembers and self.fast_age is None:
                features = self.encode(inputs)
                blank = self._blank(len(features))
                captured.capture(partial(self._forward, self.network.decide, features.unsqueeze(0), blank))

    # The same as functions of tensors (`learning.captured`).

    def _of_whole(self, given: Mapping[str, Any], rng: Any, host: Host) -> dict[str, Tensor]:
        return self._decided(self.network, given)

    def _of_light(self, given: Mapping[str, Any], rng: Any, host: Host) -> dict[str, Tensor]:
        return self._decided(self.network.decide, given)

    def _of_slow(self, given: Mapping[str, Any], rng: Any, host: Host) -> dict[str, Tensor]:
        with self.compute.autocast():
            return {"features": self.network.encode(given["stacks"])}

    def _decided(self, decide: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the outputs by their numbers, and the core's state."""
        with self.compute.autocast():
            outputs, core = decide(*given.values())
        self._gives_several = isinstance(outputs, tuple)
        each = outputs if self._gives_several else (outputs,)
        return {**{str(number): _only_step(output) for number, output in enumerate(each)}, "core": core}

    def _tensors(self, memory: Memories) -> list[Tensor]:
        """Return the previous action [1, R, ...] and reward [1, R], where an episode begins, and the core's state."""
        first = memory.first
        action = self.actions.stored(memory.previous_action)
        action[first] = self.actions.none
        reward = np.where(first, np.float32(0), memory.previous_reward)
        return [*self.compute.tensors(action[None], reward[None], first[None]), memory.core]

    def _blank(self, rows: int) -> list[Tensor]:
        """Return what a network is given that reads none of it."""
        if rows not in self._blanks:
            action, reward = self.actions.blank(rows), np.zeros(rows, np.float32)
            memory = Memories(self.initial_state(rows), action, reward, np.ones(rows, bool))
            self._blanks[rows] = self._tensors(memory)
        return self._blanks[rows]

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on, which have `version` updates; those on another device are copied.

        With graphs all are copied, since a graph reads the same places.
        """
        if self._version is not None:
            self._known = version
        device = self.compute.torch_device
        here = {name: tensor.to(device) for name, tensor in weights.items()}
        self.network.requires_grad_(False).load_state_dict(here, assign=not self.compute.graphs)

    def note_updates(self, updates: int) -> None:
        """Set the weights' number of updates, where versions count something else."""
        if self._version is not None:
            self._known = updates

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        weights: Mapping[str, Tensor] = self.network.state_dict()
        return weights


_only_step = itemgetter(0)  # of outputs [1, R, ...]


def _one_step(tensors: Any) -> Any:
    """Return tensors [R, ...], or a dict of such, as one step of R sequences [1, R, ...]."""
    if isinstance(tensors, Tensor):
        return tensors.unsqueeze(0)
    return {key: _one_step(inner) for key, inner in tensors.items()}


class SplitWorkerPolicy(OfWorker):
    """A policy with memory as an asynchronous runner calls it: workers encode, the environment loop releases.

    A worker sends the features of one observation, float32 [F] whatever the network's precision; with versions, a dict
    of ``features`` and ``version``, how many updates the torso's weights have.

    Args:
        policy: Whose network has `encode` and `decide`, as a `networks.sequence_network.SequenceNetwork`.
        blank: An observation as the policy reads it, [1, 1, *shape] or a dict of such.
        without_tuples: As in `OfWorker`.
        whole_stacks: As in `OfWorker`.

    Attributes:
        policy: As given.
        features: The space of what `encode` returns.
        fast_age: As `RecurrentPolicy.fast_age`, for the environment loop.

    Raises:
        ValueError: The network is not in two halves.
    """

    policy: RecurrentPolicy

    def __init__(
        self,
        policy: RecurrentPolicy,
        blank: Any,
        without_tuples: Callable[[Any], Any] | None = None,
        whole_stacks: bool = False,
    ) -> None:
        if not (hasattr(policy.network, "encode") and hasattr(policy.network, "decide")):
            raise ValueError(
                "network must have encode(observation) and decide(features, previous_action, previous_reward, first, "
                f"state) to play live with memory, as SequenceNetwork has, got {type(policy.network).__name__}"
            )
        super().__init__(policy, without_tuples, whole_stacks)
        policy.prepare(blank)
        self.fast_age = policy.fast_age
        encoded = policy.encode(blank)
        self._dtype = encoded.dtype  # of the network's features, float32 or narrower
        self.features: gym.Space[Any] = Box(-np.inf, np.inf, tuple(encoded.shape[1:]), np.float32)
        if policy.version is not None:
            version = Box(0, np.iinfo(np.int64).max, (), np.int64)
            self.features = Dict({"features": self.features, "version": version})

    def encode(self, observation: Any, decision: Decision) -> Any:
        """Return the features of one observation, [*shape] or a dict of such."""
        features = self.policy.encode(self.row_of(observation))[0].float().cpu().numpy()
        version = self.policy.version
        return features if version is None else {"features": features, "version": np.array(version)}

    def release(self, features: Any, memory: Memory, decision: Decision) -> PolicyOutput:
        """Return the environment's action, what the core remembers [1, S] and the extras.

        Args:
            features: What `encode` returned.
            memory: As in `async_wrappers.policy.SplitPolicy`.
            decision: The one that is released.
        """
        version = None
        if self.policy.version is not None:
            features, version = features["features"], int(features["version"])
        # A copy, as `encode` gave it: where an array begins in memory may decide on how it is computed with.
        row = torch.tensor(features, device=self.policy.compute.torch_device).to(self._dtype).unsqueeze(0)
        core = self.policy.initial_state(1) if memory.first else memory.state
        action = self.policy.actions.blank(1) if memory.first else np.array([memory.previous_action])
        reward = np.array([memory.previous_reward], np.float32)
        of_one = Memories(core, action, reward, np.array([memory.first]))
        fresh = None if self.fast_age is None else self.row_of(memory.fresh)
        output = self.policy.release(row, of_one, (decision,), version, fresh)
        extras = {name: values[0, ...] for name, values in (output.extras or {}).items()}
        return PolicyOutput(output.action[0], output.state, extras)


def one_row(
    policy: RecurrentPolicy,
    blank: Any,
    without_tuples: Callable[[Any], Any] | None = None,
    whole_stacks: bool = False,
) -> WorkerPolicy | SplitWorkerPolicy:
    """Return a policy over sequences as a worker calls it: in two halves where it remembers, else as it is."""
    if policy.remembers:
        return SplitWorkerPolicy(policy, blank, without_tuples, whole_stacks)
    policy.prepare(blank)
    return WorkerPolicy(policy, without_tuples, whole_stacks)


class Remembering(Spec):
    """Base class of agents with a `SequenceNetwork`; it stands before `NetworkAgent`."""

    make_network: Callable[[], nn.Module]
    make_policy: Callable[..., Any]
    reader: Reader

    @cached_property
    def state_size(self) -> int:
        """How many numbers the network's core remembers, S; 0 without a core."""
        network: Any = self.make_network()
        return int(network.state_size)

    @cached_property
    def remembers(self) -> bool:
        """Whether the network reads more than observations: what it remembers, or the action and reward before."""
        network: Any = self.make_network()
        return bool(network.feed_previous or network.state_size) or self.fast_age is not None

    @cached_property
    def fast_age(self) -> int | None:  # type: ignore[override]
        age: int | None = getattr(self.make_network(), "fast_age", None)
        return age

    @cached_property
    def needs_effect(self) -> bool:  # type: ignore[override]
        """Whether transitions have two observations, as those of a network with a fast path have; see `Spec`."""
        return self.fast_age is not None

    @cached_property
    def features(self) -> gym.Space[Any] | None:  # type: ignore[override]
        """Space of the features that a worker's policy returns in place of actions, where the network remembers."""
        return getattr(self.make_policy(), "features", None) if self.remembers else None

    def in_worker(self, policy: Any) -> Any:
        """Return a policy of rows as a worker calls it: with `act`, or in two halves where the network remembers."""
        return one_row(policy, self.reader.blank_stacks(), self.reader.without_tuples, self.whole_stacks)
