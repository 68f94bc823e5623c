"""The virtual clock: one thread, real policies and learners, simulated time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym

from async_wrappers.live.inference.transport import VirtualTransport
from async_wrappers.live.learning.learner import LearnerLoop, VirtualLearners, call_make_learner
from async_wrappers.live.loop.clocks import VirtualClock
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.live.loop.release import Release
from async_wrappers.live.memory.exchange import Controls
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.live.memory.weights import WeightsLayout
from async_wrappers.live.recording.writer import LocalRecording
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import PhaseSpec, RunSpec
from async_wrappers.live.world.environment import made_environment, timed_sensors_of
from async_wrappers.needs import refuse


class VirtualBackend:
    """Plays the environment loop on simulated time; every inference is computed, also those that are never applied.

    So is every update: only their durations are simulated. A run, its weights and report included, is a function of its
    seed if environment, policy and learner are deterministic.

    Args:
        spec: The run; its latency models give the durations of inferences and updates.

    Raises:
        ValueError: A latency model is missing.
    """

    def __init__(self, spec: RunSpec) -> None:
        config = spec.config
        if config.latency is None:
            raise ValueError("latency must be given on the virtual clock, as a model or in seconds, got None")
        refuse({"learners on the virtual clock": spec.learners}, {"learner_latency": spec.learner_latency})
        self.is_cut = False
        """Whether an error has ended a phase in its middle, and so perhaps an update."""
        self._learners: list[LearnerLoop] = []
        self._updating: VirtualLearners | None = None
        self._controls: Controls | None = None
        journal = board = None
        with ExitStack() as held:
            env = made_environment(spec.make_env)
            held.callback(env.close)
            policies = [spec.make_policy() for _ in range(config.workers)]
            if spec.learners:
                memory = SharedMemory.private()
                layout = self._make_learners(spec, env, memory, held)
                journal, board = layout.journal(memory), layout.board(memory)
            answers = config.policy_space(env.action_space)
            beside = self._updating, board, spec.extras, spec.features
            transport = VirtualTransport(policies, answers, config.latency, *beside)
            release = None
            if spec.features is not None:
                release = Release(spec.make_policy(), answers, spec.extras, board, config.workers)
            recorded = env.observation_space, env.action_space, timed_sensors_of(env)
            self._recording = LocalRecording.of(spec.recording(*recorded, simulated=True))
            if self._recording is not None:
                held.callback(self._recording.close)
            self._loop = EnvironmentLoop(
                env,
                transport,
                config,
                journal,
                self._controls,
                now=transport.now,
                release=release,
                recorder=None if self._recording is None else self._recording.recorder,
                clock=VirtualClock,
            )
            self._held = held.pop_all()

    def _make_learners(
        self, spec: RunSpec, env: gym.Env[Any, Any], memory: SharedMemory, held: ExitStack
    ) -> SharedLayout:
        """Make the learners, and the memory that they share with the loop and the workers."""
        assert spec.make_learner is not None and spec.learner_latency is not None
        layout = spec.layout(env.observation_space, env.action_space)
        layout.resize(memory)
        self._controls = layout.controls(memory)
        self._controls.granted = -1 if spec.config.stagger.granted is None else 0
        learners = []
        for number in range(spec.learners):
            learners.append(call_make_learner(spec.make_learner, number, spec.learners))
            held.callback(learners[-1].close)
        layout = layout.with_weights(WeightsLayout.of(learners[0].weights()), memory)
        self._learners = [
            LearnerLoop(number, learner, layout, memory, spec.updates_per_transition, spec.config.timeline is not None)
            for number, learner in enumerate(learners)
        ]
        self._updating = VirtualLearners(self._learners, spec.learner_latency)
        return layout

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase; at its end updates that go on are finished."""
        record = self._play(phase)
        if self._recording is not None:
            record.recording = self._recording.end_phase()
        self._loop.stop(False)  # one that came after the last frame
        return record

    def _play(self, phase: PhaseSpec) -> Measurements:
        if self._updating is None or self._controls is None:
            return self._loop.play(phase)
        updates = int(self._controls.updates.sum())
        self._controls.learning = not phase.eval_mode
        try:
            record = self._loop.play(phase)
            self._updating.finish()
        except BaseException:
            self.is_cut = self._loop.begun
            raise
        self._controls.learning = False
        record.updates = int(self._controls.updates.sum()) - updates
        record.note_learning([learner.statistics() for learner in self._learners])
        return record

    def pause(self, paused: bool) -> None:
        """Pause from the next frame on, or go on; from any thread."""
        self._loop.pause(paused)

    def stop(self) -> None:
        """End the phase that goes on before its next frame; from any thread."""
        self._loop.stop()

    def abandon(self) -> None:
        """Bring a machine to rest after an error."""
        self._loop.abandon()

    def save(self, directory: Path, iteration: int) -> None:
        """Let the learners write their state, between phases; see `AsyncRunner.save`.

        The updates that they owe are dropped, in a run that goes on as in a restored one.
        """
        for learner in self._learners:
            learner.save(directory, iteration)
        for learner in self._learners:
            learner.owe_nothing()

    def restore(self, directory: Path, iteration: int, replays: bool) -> None:
        """Let the learners read their state and publish their weights, between phases; see `AsyncRunner.restore`."""
        for learner in self._learners:
            learner.restore(directory, iteration, replays)
        for learner in self._learners:
            learner.owe_nothing()

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Let the learners delete the replays of all other iterations."""
        for learner in self._learners:
            learner.forget(directory, keep)

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Let the learners take in facts, between phases."""
        for learner in self._learners:
            learner.tell(facts)

    def close(self) -> None:
        """Close the environment and the learners."""
        self._held.close()
