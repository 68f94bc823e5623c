"""Every kind of many environments keeps the contract."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.protocol import BatchedEnvs, Shown
from async_wrappers.batched.vector_envs import VectorEnvs, seeds_of
from async_wrappers.testing.batched import BatchedEnvsContract
from tests.worlds.seeded_env import SeededEnv

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


class Opened(VectorEnvs):
    """`VectorEnvs` whose vector can be looked into."""

    def __init__(self, vector: Any) -> None:
        super().__init__(vector)
        self.vector = vector


class Both(DoubleBuffered):
    """`DoubleBuffered` whose halves can be looked into."""

    def __init__(self, *halves: Any) -> None:
        super().__init__(*halves)
        self.halves = halves


class OfAVector(BatchedEnvsContract):
    """A `SyncVectorEnv` of three."""

    mode = SAME_STEP
    form = "array"

    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv(self.form)

    def make_vector(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        return SyncVectorEnv([self.make_environment] * 3, autoreset_mode=self.mode)

    def make_batched(self) -> BatchedEnvs:
        return Opened(self.make_vector())

    def paid(self, envs: BatchedEnvs) -> float | None:
        assert isinstance(envs, Opened)
        return sum(env.unwrapped.paid for env in envs.vector.unwrapped.envs)


class TestSameStep(OfAVector):
    pass


class TestNextStep(OfAVector):
    mode = NEXT_STEP


class TestDisabled(OfAVector):
    mode = DISABLED


class TestDicts(OfAVector):
    form = "dict"


class TestTuplesDisabled(OfAVector):
    form, mode = "tuple", DISABLED


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
        return Both(Opened(self.make_vector()), Opened(small))

    def paid(self, envs: BatchedEnvs) -> float | None:
        assert isinstance(envs, Both)
        return sum(super(TestDoubleBuffered, self).paid(half) or 0.0 for half in envs.halves)


class TestLocal(BatchedEnvsContract):
    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv("dict")

    def make_batched(self) -> BatchedEnvs:
        return LocalEnvs(self.make_environment, 3)


class TestLocalBoxActions(TestLocal):
    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv(action_space=Box(1, 2, (2,)))


class TestDelayedLocal(TestLocal):
    def make_environment(self) -> gym.Env[Any, Any]:
        return RealtimeDelay(SeededEnv("tuple"), delay=2, noops=1)


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


class OneByOne:
    """As a user would write it: a list of environments, of which every other one is shown at a time."""

    def __init__(self, envs: list[gym.Env[Any, Any]]) -> None:
        self.envs, self.num_envs = envs, len(envs)
        self.observation_space, self.action_space = envs[0].observation_space, envs[0].action_space
        self.running = False

    def begin(self, seeds: Any) -> None:
        seeds_of(seeds, self.num_envs)
        self.last = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)]
        self.came: list[Any] = [(0.0, True, False, False, None, False)] * self.num_envs
        self.frames = [0] * self.num_envs
        self.lengths = list(self.frames)
        self.running, self.shown, self.turn = True, None, 0

    def recv(self) -> Shown:
        if not self.running or self.shown is not None:
            raise RuntimeError("not now")
        self.shown = range(self.turn, self.num_envs, 2)
        self.turn = 1 - self.turn
        return self.rows(list(self.shown))

    def send(self, env_ids: Any, actions: Any) -> None:
        if self.shown is None or list(env_ids) != list(self.shown) or len(actions) != len(env_ids):
            raise ValueError("other rows were shown")
        self.shown = None
        for i, action in zip(env_ids.tolist(), actions, strict=True):
            self.last[i], reward, terminated, truncated, _ = self.envs[i].step(int(action))
            final, over = self.last[i], terminated or truncated
            self.frames[i] += 1
            self.lengths[i] = self.frames[i]
            if over:
                self.last[i], self.frames[i] = self.envs[i].reset()[0], 0
            self.came[i] = (reward, over, terminated, truncated, final, True)

    def cut(self) -> Shown:
        if not self.running:
            raise RuntimeError("not now")
        for i in range(self.num_envs):
            reward, first, terminated, truncated, final, applied = self.came[i]
            if i in (self.shown or ()) or not applied:
                reward, terminated, truncated, applied = 0.0, False, False, False
            over = terminated or truncated
            self.came[i] = (reward, first, terminated, truncated or not over, final if over else self.last[i], applied)
            self.last[i] = self.came[i][4]
            self.frames[i] = self.lengths[i] = self.lengths[i] if over else self.frames[i]
        self.running = False
        for i, (_, _, *others) in enumerate(self.came):
            self.came[i] = (self.came[i][0], False, *others)
        return self.rows(list(range(self.num_envs)))

    def rows(self, ids: list[int]) -> Shown:
        came = [self.came[i] for i in ids]
        reward, first, terminal, truncated, _, applied = (np.array(each) for each in zip(*came, strict=True))
        frame, none = np.array([self.frames[i] for i in ids]), np.zeros(len(ids), int)
        over = [i for i in ids if self.came[i][2] or self.came[i][3]]
        return Shown(
            np.array(ids),
            np.stack([self.last[i] for i in ids]),
            reward.astype(np.float32),
            first,
            terminal,
            truncated,
            {i: self.came[i][4] for i in over},
            {i: {"realtime": {"frame": self.lengths[i], "start": self.lengths[i]}} for i in over},
            {"start": frame, "frame": frame, "interval": applied.astype(int), "applied": applied}
            | {"unreported_episodes": none, "unreported_reward": none},
        )

    def close(self) -> None:
        self.running = False


class TestAUsersOwn(BatchedEnvsContract):
    def make_environment(self) -> gym.Env[Any, Any]:
        return SeededEnv()

    def make_batched(self) -> BatchedEnvs:
        return OneByOne([SeededEnv() for _ in range(4)])

    def paid(self, envs: BatchedEnvs) -> float:
        assert isinstance(envs, OneByOne)
        return sum(env.unwrapped.paid for env in envs.envs)  # type: ignore[attr-defined]


def test_the_contracts_of_delays_have_seen_episodes_without_a_decision() -> None:
    short = TestShortEpisodesSameStep()
    envs = short.make_batched()
    rows, _ = short.play(envs, short.seeds(envs), short.actions(envs))
    envs.close()
    assert sum(row.realtime["unreported_episodes"] for of_it in rows for row in of_it) > 0
