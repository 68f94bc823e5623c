"""Many environments at once: frames per second, as ratios within one run.

* ``light``: 128 pure Python CartPoles in 2 processes of `ProcessEnvs`, against Gymnasium's `SyncVectorEnv` and
  `AsyncVectorEnv` (32 processes). Hold: >= 1.3x `SyncVectorEnv`, on two idle cores.
* ``heavy``: 16 environments of 1 ms of processor time per step in 2 processes, against two processes that step 8 of
  them each and talk to nobody. Hold: >= 0.9.
* ``rows``: `VectorEnvs` around 8 and 1,000 of `CartPoleVectorEnv`, against the bare vector, in processor time. Hold:
  >= 300,000 frames/s of 1,000.
* ``acting``: `VectorAgent` with DQN on `VectorEnvs`, which chooses actions with epsilon-greedy and stores every
  transition in a replay of a lane for each environment; nothing is learnt. Beside it the vector alone, and the network
  alone on a batch of as many rows: both together allow 1 / (1 / environments + 1 / forward). Pong has 32 games of
  ale-py's vector with frame skip 4 and the Nature network on stacks of 4; CartPole 1,000 environments of Gymnasium's
  vector and a network of 64 x 64. Processor time, ALE's threads included, with one thread of PyTorch. Hold: Pong >=
  0.85 of what is allowed; >= 300,000 frames/s of CartPole.

The actions of bare vectors are drawn uniformly beforehand. A frame is one ``step`` of one environment.

    python -m benchmarks.many_environments [light] [heavy] [rows] [acting]
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from async_wrappers import ProcessEnvs, VectorEnvs
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.envs import create_atari_vector, create_gym_vector
from benchmarks.measuring import interleave, median_ratio, print_hold, print_table, rate, run_parts

LIGHT, ASYNC, HEAVY = 128, 32, 16  # environments
WARM = 10  # steps


class Heavy(gym.Env[Any, Any]):
    """A step takes 1 ms of processor time; an episode has 100."""

    observation_space = gym.spaces.Box(0, 1, (84, 84), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._frame = 0
        return np.zeros((84, 84), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Compute for 1 ms."""
        self._frame += 1
        end = time.thread_time() + 0.001
        while time.thread_time() < end:
            pass
        return np.ones((84, 84), np.uint8), 1.0, self._frame == 100, False, {}


def light() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def step_of(envs: Any) -> Callable[[], Any]:
    """Return a step of all environments of a vector, or of batched environments, which have begun."""
    actions = cycle(np.random.default_rng(0).integers(0, 2, (97, envs.num_envs)))
    if isinstance(envs, gym.vector.VectorEnv):
        envs.reset(seed=0)
        return lambda: envs.step(next(actions))
    envs.begin(range(envs.num_envs))

    def step() -> None:
        shown = envs.recv()
        envs.send(shown.env_ids, next(actions)[: len(shown.env_ids)])

    return step


def frames_per_second(make: Callable[[], Any], steps: int, clock: Callable[[], float] = time.perf_counter) -> float:
    envs = make()
    step = step_of(envs)
    rate(step, WARM)
    found = rate(step, steps, envs.num_envs, clock)
    envs.close()
    return found


def alone(num_envs: int, steps: int, pipe: Connection) -> None:
    """Step some environments in this process, when told to."""
    envs = [Heavy() for _ in range(num_envs)]
    for env in envs:
        env.reset()
    pipe.send("ready")
    pipe.recv()
    for _ in range(steps):
        for env in envs:
            if env.step(0)[2]:
                env.reset()
    pipe.send("done")


def by_nobody(num_envs: int, steps: int) -> float:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    children = [context.Process(target=alone, args=(num_envs // 2, steps, theirs)) for _, theirs in pipes]
    for child in children:
        child.start()
    for ours, _ in pipes:
        ours.recv()
    begin = time.perf_counter()
    for ours, _ in pipes:
        ours.send("go")
    for ours, _ in pipes:
        ours.recv()
    seconds = time.perf_counter() - begin
    for child in children:
        child.join()
    return num_envs * steps / seconds


def measure_light(args: Namespace) -> None:
    ours, base = "ProcessEnvs, 2 processes", "SyncVectorEnv"
    in_processes = partial(AsyncVectorEnv, [light] * ASYNC, autoreset_mode=AutoresetMode.SAME_STEP)
    contestants = {
        base: partial(frames_per_second, partial(SyncVectorEnv, [light] * LIGHT), args.steps),
        ours: partial(frames_per_second, partial(ProcessEnvs, light, LIGHT, processes=2), args.steps),
        f"AsyncVectorEnv, {ASYNC}": partial(frames_per_second, in_processes, args.steps // 8),
    }
    samples = interleave(contestants, args.rounds, warmup=0)
    print_table(f"light: {LIGHT} CartPoles in Python, frames/s", samples, base)
    print_hold(f"ProcessEnvs / {base}, two idle cores", median_ratio(samples, ours, base), least=1.3)


def measure_heavy(args: Namespace) -> None:
    ours, base, steps = "ProcessEnvs, 2 processes", "two processes that talk to nobody", args.steps // 10
    contestants = {
        base: partial(by_nobody, HEAVY, steps),
        ours: partial(frames_per_second, partial(ProcessEnvs, Heavy, HEAVY, processes=2), steps),
    }
    samples = interleave(contestants, args.rounds, warmup=0)
    print_table(f"heavy: {HEAVY} environments of 1 ms, frames/s", samples, base)
    print_hold(f"ProcessEnvs / {base}", median_ratio(samples, ours, base), least=0.9)


def measure_rows(args: Namespace) -> None:
    for num_envs in (8, 1000):
        make = partial(create_gym_vector, "CartPole-v1", num_envs)
        contestants = {
            "bare": partial(frames_per_second, make, args.steps, time.process_time),
            "VectorEnvs": partial(
                frames_per_second, lambda make=make: VectorEnvs(make()), args.steps, time.process_time
            ),
        }
        samples = interleave(contestants, args.rounds)
        print_table(f"rows: {num_envs} of CartPoleVectorEnv, frames/s of processor time", samples, "bare")
    print_hold("frames/s shown, 1,000 CartPoles", statistics.median(samples["VectorEnvs"]), least=300_000)


# Acting.


def make_agent(vector: Any) -> VectorAgent:
    """Return an agent that never learns: of frames with the Nature network, of numbers with a small one."""
    frames = vector.single_observation_space.dtype == np.uint8
    small = {"network": partial(create_network, torso=partial(MLPTorso, hidden=(64, 64)))}
    spec = DQN(
        vector.single_observation_space,
        vector.single_action_space,
        stack_size=4 if frames else 1,
        min_replay_history=10**9,
        replay_capacity=20_000 if frames else 1_000_000,
        epsilon_fn=identity_epsilon,
        epsilon_train=0.01,
        device="cpu",
        channels_last=frames,
        **({} if frames else small),
    )
    return VectorAgent(spec, vector.num_envs)


def environments(make: Callable[[], Any], steps: int) -> float:
    """Return frames per second of the vector alone."""
    vector = make()
    vector.action_space.seed(0)
    actions = cycle([vector.action_space.sample() for _ in range(17)])
    vector.reset(seed=0)
    found = rate(lambda: vector.step(next(actions)), steps, vector.num_envs)
    vector.close()
    return found


def forward(make: Callable[[], Any], steps: int) -> float:
    """Return rows per second of the network alone, from arrays to values."""
    vector = make()
    policy: Any = make_agent(vector).policy
    space, stack = vector.single_observation_space, 4 if vector.single_observation_space.dtype == np.uint8 else 1
    stacks = np.zeros((vector.num_envs, stack, *space.shape), space.dtype)
    vector.close()
    return rate(lambda: policy.q_values(stacks), steps, len(stacks))


def acting(make: Callable[[], Any], steps: int) -> float:
    """Return frames per second of the agent, which stores what it plays."""
    vector = make()
    agent, envs = make_agent(vector), VectorEnvs(vector)
    envs.begin(range(envs.num_envs))
    shown = envs.recv()

    def step() -> None:
        nonlocal shown
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
        shown = envs.recv()

    found = rate(step, steps, envs.num_envs)
    assert len(agent.learner.replay) > 0
    envs.close()
    return found


def measure_acting(args: Namespace) -> None:
    """Print tables, and whether the frames per second and the share that are to be held are reached."""
    torch.set_num_threads(1)
    for title, make, steps in (
        ("1,000 CartPole-v1", partial(create_gym_vector, "CartPole-v1", 1000), args.steps),
        ("32 Pong", partial(create_atari_vector, "Pong", 32, num_threads=1), max(1, args.steps // 4)),
    ):
        measures = {each.__name__: partial(each, make, steps) for each in (environments, forward, acting)}
        samples = interleave(measures, args.rounds)
        bare = zip(samples["environments"], samples["forward"], strict=True)
        samples["what both allow"] = [1 / (1 / environment + 1 / network) for environment, network in bare]
        print_table(f"acting: {title}, frames/s of processor time", samples, "what both allow")
        share = median_ratio(samples, "acting", "what both allow")
        if title == "32 Pong":
            print_hold(f"{title}: share of what the bare loops allow", share, least=0.85)
        else:
            print_hold(f"{title}: frames/s, acted and stored", statistics.median(samples["acting"]), least=300_000)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"light": measure_light, "heavy": measure_heavy, "rows": measure_rows, "acting": measure_acting},
        rounds=(5, "interleaved repetitions"),
        steps=(400, "of all environments per repetition, a tenth of heavy ones, a quarter of Pong"),
    )
