"""The settings of agents that learn from unrolls, and the sources that they make: a queue, and replays beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from torch import nn

from async_wrappers.agents.replay.elite import NetworkEncoder
from async_wrappers.agents.replay.mixture import Mixture, checked_sources
from async_wrappers.agents.replay.queue import WHEN_FULL, UnrollQueue
from async_wrappers.agents.schema import Compute, Reader
from async_wrappers.agents.settings import choice, flag, must, setting, settings, whole
from async_wrappers.agents.spec import Spec

__all__ = ["UnrollSettings"]


@settings
class UnrollSettings(Spec):
    """What an agent of unrolls declares beside its own settings; a base to stand before `NetworkAgent`."""

    unroll_length: int = whole(100, "T, in rows: decisions, and the final observation of each episode.", 1, "row")
    batch_size: int = whole(32, "Unrolls of an update, B.", 1, "unroll")
    sources: Sequence[tuple[Any, float]] | None = setting(
        None,
        'Pairs of a source and its share of a batch, which sum to 1: ``"queue"``, ``"standard"``, ``"elite"``, or what '
        "makes a source, such as ``@StandardReplay``; None for the queue alone.",
        lambda name, value: None,
    )
    prefetch: bool = flag(
        False, "Whether the replays' rows of the next batch are drawn in threads while the learner computes."
    )
    when_full: Literal["wait", "drop_oldest", "drop_newest", "alternate"] = choice(
        "wait",
        'Whether acting waits for the learner, ``"wait"``; or what is dropped if it is slower: ``"drop_oldest"``, '
        '``"drop_newest"``, ``"alternate"`` (one or the other by chance).',
        *WHEN_FULL,
    )
    queue_capacity: int | None = whole(
        None,
        "Unrolls that wait at most, where some are dropped; at least B.",
        1,
        "unroll",
        none="64, or B if that is more",
    )
    update_period: int = whole(1, "Decisions between two updates at least; 1 where acting waits.", 1, "decision")

    # Of the agent.
    gin_name: str
    reader: Reader
    compute: Compute
    stored_in_stacks: int | None
    gamma: float
    discount_by: Literal["decision", "frame"]
    learning_rate_decay: int | None
    chunk: int | None

    def check_unrolls(self) -> None:
        """Check what must hold between these settings, and take the sources apart."""
        given = [("queue", 1.0)] if self.sources is None else self.sources
        self.sources = checked_sources(given, f"{self.gin_name}.sources")
        self.learns_once = any(source == "queue" for source, _ in self.sources)
        must(
            self.queue_capacity is None or self.queue_capacity >= self.batch_size,
            f"queue_capacity must be >= {self.batch_size} unrolls, those of a batch, got {self.queue_capacity}",
        )
        must(
            not self.learns_once or self.when_full != "wait" or self.update_period == 1,
            f"update_period must be 1 where when_full='wait', got {self.update_period}",
        )
        must(
            self.unroll_length * self.batch_size >= 2,
            "unroll_length and batch_size must not both be 1: give batch_size >= 2 unrolls",
        )

    @property
    def transitions_per_update(self) -> int:
        """Transitions that an update learns from."""
        return self.batch_size * self.unroll_length

    def make_sources(self, network: nn.Module, num_envs: int, seed: int, learners: int = 1) -> Mixture:
        """Make what a learner of a network draws its batches from: of so many environments, those of one of several.

        Raises:
            ValueError: `batch_size` is no multiple of `learners`, or there are replays beside the queue of several.
        """
        unrolls, capacity = self.batch_size, None
        if self.when_full != "wait":
            capacity = max(64, self.batch_size) if self.queue_capacity is None else self.queue_capacity
        assert self.sources is not None
        if learners > 1:
            must(unrolls % learners == 0, f"batch_size must be a multiple of the {learners} learners, got {unrolls}")
            must(
                all(source == "queue" for source, _ in self.sources),
                f"{self.gin_name}.sources must be the queue alone where there are {learners} learners, got "
                f"{self.sources}: bind VectorRunner.learners = 1",
            )
            unrolls //= learners
            capacity = None if capacity is None else max(capacity // learners, unrolls)
        queue = partial(UnrollQueue, capacity=capacity, when_full=self.when_full)
        return Mixture(
            self.stored_space,
            self.extras,
            [(queue if source == "queue" else source, share) for source, share in self.sources],
            num_envs=num_envs,
            seed=seed,
            encoder=NetworkEncoder(network, self.reader, self.compute, self.stored_in_stacks),
            in_flight=self.in_flight,
            unroll_length=self.unroll_length,
            batch_size=unrolls,
            stack_size=self.stored_in_stacks or 1,
            gamma=self.gamma,
            discount_by=self.discount_by,
            updates=self.learning_rate_decay,
            prefetch=self.prefetch,
            chunk=self.chunk,
        )
