"""Every kind of many environments keeps the contract."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.protocol import BatchedEnvs
from async_wrappers.batched.vector import VectorEnvs
from async_wrappers.testing.batched import BatchedEnvsContract
from tests.worlds.seeded_env import SeededEnv

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


class OfAVector(BatchedEnvsContract):
    """A `SyncVectorEnv` of three."""

    mode = SAME_STEP
    form = "array"

    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv(self.form)

    def make_vector(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        return SyncVectorEnv([self.make_environment] * 3, autoreset_mode=self.mode)

    def make_batched(self) -> BatchedEnvs:
        return VectorEnvs(self.make_vector())

    def paid(self, envs: BatchedEnvs) -> float | None:
        assert isinstance(envs, VectorEnvs)
        return sum(env.unwrapped.paid for env in envs._vector.unwrapped.envs)


class TestSameStep(OfAVector):
    pass


class TestNextStep(OfAVector):
    mode = NEXT_STEP


class TestDisabled(OfAVector):
    mode = DISABLED


class TestDicts(OfAVector):
    form = "dict"


class TestDictsNextStep(OfAVector):
    form, mode = "dict", NEXT_STEP


class TestTuplesDisabled(OfAVector):
    form, mode = "tuple", DISABLED


class TestTuples(OfAVector):
    form = "tuple"


class TestNumbers(OfAVector):
    form = "number"


class TestBoxActions(OfAVector):
    mode = NEXT_STEP

    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv(action_space=Box(1, 2, (2,)))


class TestMultiDiscreteActions(OfAVector):
    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv(action_space=MultiDiscrete([3, 4]))


class TestOneEnvironmentNextStep(OfAVector):
    mode = NEXT_STEP

    def make_vector(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        return SyncVectorEnv([self.make_environment], autoreset_mode=self.mode)


class OfDelayed(OfAVector):
    def make_environment(self) -> gym.Env[Any, Any]:
        return RealtimeDelay(SeededEnv(), delay=2, noops=1)


class TestDelayedSameStep(OfDelayed):
    pass


class TestDelayedNextStep(OfDelayed):
    mode = NEXT_STEP


class TestDelayedDisabled(OfDelayed):
    mode = DISABLED


class OfADelayedVector(OfAVector):
    """Without noops, and where each episode outlives the delay, rows are those of `RealtimeDelay`."""

    def make_environment(self) -> gym.Env[Any, Any]:
        return RealtimeDelay(SeededEnv(shortest=4), delay=2)

    def make_vector(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        vector = SyncVectorEnv([lambda: SeededEnv(shortest=4)] * 3, autoreset_mode=self.mode)
        return VectorRealtimeDelay(vector, delay=2)


class TestDelayedVectorSameStep(OfADelayedVector):
    pass


class TestDelayedVectorNextStep(OfADelayedVector):
    mode = NEXT_STEP


class TestDelayedVectorDisabled(OfADelayedVector):
    mode = DISABLED


class TestUndelayedVectorDisabled(OfADelayedVector):
    mode = DISABLED

    def make_environment(self) -> gym.Env[Any, Any]:
        return RealtimeDelay(SeededEnv())

    def make_vector(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        return VectorRealtimeDelay(SyncVectorEnv([SeededEnv] * 3, autoreset_mode=self.mode))


class OfShortEpisodes(OfAVector):
    """Episodes that end before a decision of theirs is shown are counted, with their rewards."""

    own_seeds = False  # boundaries are common: a longer wait for another's first decision moves one's own
    schedule = (3, 1)

    def make_environment(self) -> None:  # type: ignore[override]
        return None

    def make_vector(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        return VectorRealtimeDelay(SyncVectorEnv([SeededEnv] * 3, autoreset_mode=self.mode), *self.schedule)


class TestShortEpisodesSameStep(OfShortEpisodes):
    pass


class TestShortEpisodesNextStep(OfShortEpisodes):
    mode = NEXT_STEP


class TestShortEpisodesNextStepManyNoops(OfShortEpisodes):
    mode, schedule = NEXT_STEP, (1, 4)


class TestShortEpisodesDisabled(OfShortEpisodes):
    mode = DISABLED


class TestCartPoleVector(BatchedEnvsContract):
    """One generator for all rows."""

    own_seeds = False

    def make_batched(self) -> BatchedEnvs:
        return VectorEnvs(gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point"))


class TestAsyncVector(OfAVector):
    def make_vector(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        return AsyncVectorEnv([self.make_environment] * 2, autoreset_mode=self.mode)

    def paid(self, envs: BatchedEnvs) -> None:
        return None


class TestDoubleBuffered(OfAVector):
    mode = NEXT_STEP

    def make_batched(self) -> BatchedEnvs:
        small = SyncVectorEnv([self.make_environment] * 2, autoreset_mode=SAME_STEP)
        return DoubleBuffered(VectorEnvs(self.make_vector()), VectorEnvs(small))

    def paid(self, envs: BatchedEnvs) -> float | None:
        assert isinstance(envs, DoubleBuffered)
        return sum(super(TestDoubleBuffered, self).paid(half.envs) or 0.0 for half in envs._halves)


class TestProcesses(BatchedEnvsContract):
    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv("dict")

    def make_batched(self) -> BatchedEnvs:
        return ProcessEnvs(lambda: SeededEnv("dict"), 3, processes=2)


class TestDelayedProcesses(BatchedEnvsContract):
    def make_environment(self) -> gym.Env[Any, Any]:
        return RealtimeDelay(SeededEnv("tuple"), delay=2, noops=1)

    def make_batched(self) -> BatchedEnvs:
        return ProcessEnvs(lambda: RealtimeDelay(SeededEnv("tuple"), delay=2, noops=1), 3, processes=1)


def test_the_contracts_of_delays_have_seen_episodes_without_a_decision() -> None:
    short = TestShortEpisodesSameStep()
    envs = short.make_batched()
    rows, _ = short.play(envs, short.seeds(envs), short.actions(envs))
    envs.close()
    assert sum(row.realtime["unreported_episodes"] for of_it in rows for row in of_it) > 0
