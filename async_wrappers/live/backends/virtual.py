"""The virtual clock: one thread, real policies and learners, simulated time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym

from async_wrappers.live.inference.virtual_transport import VirtualTransport
from async_wrappers.live.learning.learner_loop import LearnerLoop, call_make_learner
from async_wrappers.live.learning.learner_state import NotRestored
from async_wrappers.live.learning.virtual_learners import VirtualLearners
from async_wrappers.live.loop import EnvironmentLoop, PhaseSpec
from async_wrappers.live.memory.block import Block
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.memory.slots import Controls
from async_wrappers.live.memory.weights import WeightsBoard, WeightsLayout
from async_wrappers.live.report.measurements import Measurements
from async_wrappers.live.run_spec import RunSpec, made_environment

__all__ = ["VirtualBackend"]


class VirtualBackend:
    """Plays the environment loop on simulated time; every inference is really computed, also those never applied.

    So is every update: nothing but the time that both take is made up. A run is a function of its seed, weights and
    report included, as long as environment, policy and learner are.

    Args:
        spec: What is to be done; its latency models say how long inferences and updates take.

    Raises:
        ValueError: A latency model is missing.
    """

    def __init__(self, spec: RunSpec) -> None:
        """See the class."""
        config = spec.config
        if config.latency is None:
            raise ValueError("latency must be given on the virtual clock, as a model or in seconds, got None")
        self.is_cut = False
        """Whether an error has ended a phase in its middle, and so perhaps an update."""
        self._learners: VirtualLearners | None = None
        self._controls: Controls | None = None
        with ExitStack() as held:
            env = made_environment(spec.make_env)
            held.callback(env.close)
            policies = [spec.make_policy() for _ in range(config.workers)]
            journal, board = self._make_learners(spec, env, held) if spec.learners else (None, None)
            transport = VirtualTransport(policies, env.action_space, config.latency, self._learners, board, spec.extras)
            self._loop = EnvironmentLoop(
                env, transport, config, journal, self._controls, now=transport.now, simulation=transport
            )
            self._held = held.pop_all()

    def _make_learners(self, spec: RunSpec, env: gym.Env[Any, Any], held: ExitStack) -> tuple[Journal, WeightsBoard]:
        """Make the learners and what they share with the loop and the workers."""
        assert spec.make_learner is not None
        if spec.learner_latency is None:
            raise ValueError(
                "learner_latency must be given where learners work on the virtual clock, as a model or in seconds, got "
                "None"
            )
        spaces = env.observation_space, env.action_space
        entries = (*spaces, spec.journal, spec.extras)
        journal = Journal(_memory(Journal.size(*entries)), *entries)
        self._controls = controls = Controls(_memory(Controls.size(0, spec.learners)), 0, spec.learners)
        controls.granted = -1 if spec.config.stagger.granted is None else 0
        learners = []
        for number in range(spec.learners):
            learners.append(call_make_learner(spec.make_learner, number, spec.learners))
            held.callback(learners[-1].close)
        weights = WeightsLayout.of(learners[0].weights())
        for learner in learners:
            weights.check(learner.weights())
        board = WeightsBoard(_memory(WeightsBoard.size(weights, 1)), weights, 1)
        shared = WeightsBoard(_memory(WeightsBoard.size(weights, 1)), weights, 1) if spec.learners > 1 else None
        loops = [
            LearnerLoop(
                number, spec.learners, learner, journal, board, shared, None, controls, spec.updates_per_transition
            )
            for number, learner in enumerate(learners)
        ]
        self._learners = VirtualLearners(loops, controls, spec.learner_latency)
        return journal, board

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase; at its end updates that go on are finished."""
        if self._learners is None or self._controls is None:
            return self._loop.play(phase)
        updates = int(self._controls.updates.sum())
        self._controls.learning = not phase.eval_mode
        try:
            record = self._loop.play(phase)
            self._learners.finish()
        except BaseException:
            self.is_cut = self._loop.begun
            raise
        self._controls.learning = False
        record.updates = int(self._controls.updates.sum()) - updates
        record.learner_steps, record.scalars = self._learners.statistics()
        return record

    def save(self, directory: Path, iteration: int) -> None:
        """Let the learners write their state, between phases; see `AsyncRunner.save`."""
        assert self._learners is not None
        self._learners.save(directory, iteration)

    def restore(self, directory: Path, iteration: int, replays: bool) -> list[int]:
        """Let the learners read their state and publish their weights, between phases; see `AsyncRunner.restore`."""
        assert self._learners is not None
        lost: list[int] = []
        for number, answer in enumerate(self._learners.restore(directory, iteration, replays)):
            if isinstance(answer, str):
                raise NotRestored(f"learner {number} cannot be restored: {answer}")
            lost.append(answer)
        return lost

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Let the learners delete the replays of all other iterations."""
        assert self._learners is not None
        self._learners.forget(directory, keep)

    def close(self) -> None:
        """Close the environment and the learners."""
        self._held.close()


def _memory(size: int) -> Block:
    """Return memory of this process."""
    block = Block(shared=False)
    block.resize(size)
    return block
