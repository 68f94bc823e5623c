"""Makes learners and their replays from an agent's declarations.

A `NetworkAgent` declares its network, its loss, the settings of its learning and those of its replay. Runners make its
learners here. An agent that has a method ``make_learner`` or ``make_vector_learner`` of its own makes its learners
itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from async_wrappers.agents.families.network_agent import NetworkAgent
from async_wrappers.agents.hyperparameters import must
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.replay.elite import NetworkEncoder
from async_wrappers.agents.replay.mixture import Mixture, UnrollQueue
from async_wrappers.agents.replay.n_step import ActorPriorities
from async_wrappers.agents.replay.prefetch import PrefetchedReplay
from async_wrappers.agents.replay.replay import Replay, create_replay
from async_wrappers.agents.replay.replay_settings import ReplaySettings, SequenceSettings, UnrollSettings
from async_wrappers.agents.replay.sequence_replay import create_sequence_replay
from async_wrappers.agents.spec import Spec, own_seed


def maker_of_learners(spec: Spec) -> Callable[..., Any]:
    """Return a factory of an agent's learner `number` of `learners`, which works in another process too."""
    states = isinstance(spec, NetworkAgent) and type(spec).make_learner is NetworkAgent.make_learner
    return partial(make_learner, spec) if states else spec.make_learner


def make_learner(spec: Any, number: int = 0, learners: int = 1) -> Learner:
    """Make learner `number` of `learners` of an agent that declares its learning.

    All begin with the same weights, those of every policy. Each observes every transition into a replay of the full
    capacity, and draws batches of its own: together they act as several learners of one buffer, and each takes the
    memory of a replay.

    Raises:
        ValueError: `number` is not one of them, or an argument is out of range.
    """
    if not 0 <= number < learners:
        raise ValueError(f"number must lie in [0, {learners}), one for each learner, got {number}")
    refuse({"several gradient steps": spec.several_steps}, {"learners": learners}, agent=spec.name)
    return _learner(spec, number, 1)


def make_vector_learner(spec: Any, num_envs: int, number: int = 0, learners: int = 1) -> Any:
    """Make the learner of many environments, whose replay has a lane for each: together they have the capacity.

    With several learners, each with its own environments, it is learner `number`, with its part of each batch, of the
    capacity and of the history before the first update.

    Raises:
        ValueError: An argument is out of range, or the agent's settings cannot be shared out among the learners.
    """
    if isinstance(spec, NetworkAgent) and type(spec).make_vector_learner is NetworkAgent.make_vector_learner:
        one: Any = spec if learners == 1 else spec.with_settings(**spec.share_of(learners))
        return _learner(one, number, num_envs, learners)
    if learners == 1:
        return spec.make_vector_learner(num_envs)
    alone = "learners" not in inspect.signature(spec.make_vector_learner).parameters
    needs = {"VectorRunner.learners": learners}
    refuse({"an own learner of many": alone}, needs, agent=spec.name, kind=type(spec).__name__)
    return spec.make_vector_learner(num_envs, number, learners)


def make_actor_priorities(spec: Any, num_envs: int) -> ActorPriorities | None:
    """Make the `ActorPriorities`, which compute first priorities; None where the agent or its replay needs none."""
    # The replay of sequences computes the priorities itself, when a sequence is complete.
    if isinstance(spec, SequenceSettings) or not getattr(spec, "actor_priorities", False):
        return None
    return ActorPriorities(
        num_envs,
        spec.priority_of_error,
        update_horizon=spec.update_horizon,
        gamma=spec.gamma,
        discount_by=spec.discount_by,
    )


def _learner(spec: Any, number: int, num_envs: int, learners: int = 1) -> Learner:
    spec.check_learning()
    network = spec.make_network()
    return Learner(
        network,
        spec.loss,
        _store(spec, network, own_seed(spec.replay_seed, number), num_envs, learners),
        spec.learning,
        kind=spec.learner_kind,
        compute=spec.compute,
        tensors=spec.batch_tensors,
        actions=spec.actions,
        seed=own_seed(spec.learning_seed, number),
        monitors=[monitor for _ in range(num_envs) if (monitor := spec.make_monitor()) is not None],
        passes=spec.passes if spec.several_steps else None,
    )


# Replays, by an agent's settings.


def _store(spec: Any, network: nn.Module, seed: int, num_envs: int, learners: int) -> Replay | Mixture:
    if isinstance(spec, UnrollSettings):
        return _sources(spec, network, seed, num_envs, learners)
    try:
        return make_replay(spec, seed, num_envs)
    except MemoryError as error:
        name = "replay_capacity" if spec.replay_capacity is not None else "replay_bytes"
        given = spec.replay_capacity or spec.replay_bytes or 1_000_000
        unit = "bytes" if spec.replay_bytes else "observations"
        what = str(error).splitlines()[0]
        raise ValueError(
            f"{name} must be what memory holds, got {given:,} {unit} ({what}): bind a smaller one"
        ) from None


def make_replay(spec: ReplaySettings, seed: int, num_envs: int = 1) -> Replay:
    """Make the replay of an agent: of transitions with a lane for each environment, or of all environments' sequences.

    Raises:
        ValueError: It cannot hold a sequence of each environment.
    """
    if isinstance(spec, SequenceSettings):
        return _of_sequences(spec, seed, num_envs)
    return create_replay(
        spec.stored_space,
        extras=spec.extras,
        selector=spec.replay_scheme,
        eviction=spec.replay_eviction,
        capacity=spec.replay_capacity,
        replay_bytes=spec.replay_bytes,
        action=spec.actions.column,
        num_envs=num_envs,
        compression=spec.replay_compression,
        stack_size=spec.stored_in_stacks or 1,
        update_horizon=spec.update_horizon,
        gamma=spec.gamma,
        discount_by=spec.discount_by,
        action_window=getattr(spec, "action_window", None),
        batch_size=spec.batch_size,
        seed=seed,
        **spec.exponents,
    )


def _of_sequences(spec: SequenceSettings, seed: int, num_envs: int) -> Replay:
    capacity = 1_000_000 if spec.replay_capacity is None else spec.replay_capacity
    sequences, period = capacity // spec.state_period, spec.state_period
    must(
        sequences >= num_envs,
        f"replay_capacity must be >= {period * num_envs} rows, state_period for each of {num_envs} environments, "
        f"got {capacity}",
    )
    return create_sequence_replay(
        spec.stored_space,
        spec.extras,
        length=spec.burn_in + spec.unroll_length,
        period=period,
        selector=spec.replay_scheme,
        capacity=sequences,
        num_envs=num_envs,
        stack_size=spec.stored_in_stacks or 1,
        gamma=spec.gamma,
        discount_by=spec.discount_by,
        batch_size=spec.batch_size,
        seed=seed,
        kind=PrefetchedReplay if spec.prefetch else Replay,
        priority=spec.priority_of_sequences if spec.actor_priorities else None,
        **spec.exponents,
    )


def _sources(spec: UnrollSettings, network: nn.Module, seed: int, num_envs: int, learners: int) -> Mixture:
    unroll_length, batch_size = spec.unrolls(num_envs)
    queue = partial(
        UnrollQueue,
        capacity=None if spec.when_full == "wait" else spec.room_for(batch_size),
        when_full=spec.when_full,
        batches=spec.buffer_size,
        replay_coefficient=spec.replay_coefficient,
    )
    return Mixture(
        spec.stored_space,
        spec.extras,
        [(queue if source == "queue" else source, share) for source, share in spec.sources or ()],
        num_envs=num_envs,
        seed=seed,
        encoder=NetworkEncoder(network, spec.reader, spec.compute, spec.stored_in_stacks),
        in_flight=spec.in_flight,
        unroll_length=unroll_length,
        batch_size=batch_size,
        stack_size=spec.stored_in_stacks or 1,
        gamma=spec.gamma,
        discount_by=spec.discount_by,
        updates=spec.learning_rate_decay,
        prefetch=spec.prefetch,
        with_returns=spec.with_returns,
        decisions=spec.round_decisions,
        chunk=spec.actions.chunk,
        learners=learners,
        action=spec.actions.column,
    )
