"""All shared memory of a run: its blocks, and their contents, which follow from spaces and numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym

from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.exchange import ActionSlots, Controls, FrameRing
from async_wrappers.live.memory.glance import Glance
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.memory.weights import WeightsBoard, WeightsLayout

_RING_DEPTH = 64  # frames that a worker may be late in reading


@dataclass(frozen=True)
class SharedMemory:
    """The blocks of a run; sized when the spaces of the environment and the learner's weights are known."""

    ring: Block
    slots: Block
    controls: Block
    journal: Block
    board: Block
    shared: Block
    glance: Block

    @classmethod
    def private(cls) -> SharedMemory:
        """Return blocks of this process alone, for a run whose parts are all in it."""
        return cls(*(Block(shared=False) for _ in range(7)))


@dataclass(frozen=True)
class SharedLayout:
    """The contents of the shared memory."""

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    workers: int
    learners: int
    journal_capacity: int
    weights: WeightsLayout | None = None
    extras: gym.spaces.Dict | None = None
    chunk_length: int = 0  # entries of a chunk; 0 if actions are no chunks
    features: gym.Space[Any] | None = None
    report_effect: bool = False  # whether transitions hold the observations of the frames of effect

    @property
    def answers(self) -> gym.Space[Any]:
        """The space of the workers' answers: actions, or features of which the environment loop makes actions."""
        return self.action_space if self.features is None else self.features

    @property
    def readers(self) -> int:
        """Number of readers of the weights: the workers and, if they answer features, the environment loop."""
        return self.workers + (self.features is not None)

    def resize(self, memory: SharedMemory) -> None:
        """Size all blocks but those of weights."""
        memory.ring.resize(FrameRing.size(self.observation_space, _RING_DEPTH))
        memory.slots.resize(ActionSlots.size(*self._slots))
        memory.controls.resize(Controls.size(self.workers, self.learners))
        memory.glance.resize(Glance.size())
        if self.learners:
            memory.journal.resize(Journal.size(*self._entries))

    def with_weights(self, weights: WeightsLayout, memory: SharedMemory) -> SharedLayout:
        """Return the layout with weights, whose blocks are sized."""
        memory.board.resize(WeightsBoard.size(weights, self.readers))
        if self.learners > 1:
            memory.shared.resize(WeightsBoard.size(weights, 1))
        return replace(self, weights=weights)

    @property
    def _slots(self) -> tuple[gym.Space[Any], int, gym.spaces.Dict | None]:
        return self.answers, self.workers, None if self.features is not None else self.extras

    @property
    def _entries(self) -> tuple[gym.Space[Any], gym.Space[Any], int, gym.spaces.Dict | None, int, bool]:
        spaces = self.observation_space, self.action_space
        return *spaces, self.journal_capacity, self.extras, self.chunk_length, self.report_effect

    def ring(self, memory: SharedMemory) -> FrameRing:
        """Return the frame ring."""
        return FrameRing(memory.ring, self.observation_space, _RING_DEPTH)

    def slots(self, memory: SharedMemory) -> ActionSlots:
        """Return the action slots."""
        return ActionSlots(memory.slots, *self._slots)

    def controls(self, memory: SharedMemory) -> Controls:
        """Return the controls."""
        return Controls(memory.controls, self.workers, self.learners)

    def glance(self, memory: SharedMemory) -> Glance:
        """Return the newest frames and inferences."""
        return Glance(memory.glance)

    def journal(self, memory: SharedMemory) -> Journal | None:
        """Return the journal; None without learners."""
        return Journal(memory.journal, *self._entries) if self.learners else None

    def board(self, memory: SharedMemory) -> WeightsBoard | None:
        """Return the weights that workers read; None without learners."""
        return None if self.weights is None else WeightsBoard(memory.board, self.weights, self.readers)

    def shared(self, memory: SharedMemory) -> WeightsBoard | None:
        """Return the weights that several learners share."""
        return WeightsBoard(memory.shared, self.weights, 1) if self.weights is not None and self.learners > 1 else None
