"""What acting on many environments costs beside the environments and the network: frames per second.

Each contestant plays the same number of steps of all environments, one after the other in each round:

* bare loops: the vector alone with actions drawn beforehand, and the network alone on a batch of as many rows. What
  both together allow is 1 / (1 / environments + 1 / forward).
* acting: `VectorAgent` with DQN on `VectorEnvs`, which chooses actions with epsilon-greedy and stores every transition
  in a replay of a lane for each environment. Nothing is learnt.

Pong has 32 games of ale-py's vector with frame skip 4 and the Nature network on stacks of 4; CartPole 1,000
environments of Gymnasium's own vector and a network of 64 x 64. A frame is one step of one environment. Time is
processor time of this process, ALE's threads included, with one thread of PyTorch.

    python -m benchmarks.vector_runner
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.envs import create_atari_vector, create_gym_vector
from benchmarks.interleave import interleave, print_hold, print_load

Make = Callable[[], Any]


def pong(num_envs: int) -> Any:
    return create_atari_vector("Pong", num_envs, num_threads=1)


def cartpole(num_envs: int) -> Any:
    return create_gym_vector("CartPole-v1", num_envs)


def make_agent(vector: Any, stack: int, network: Callable[..., Any] | None) -> VectorAgent:
    given = {} if network is None else {"network": network}
    spec = DQN(
        vector.single_observation_space,
        vector.single_action_space,
        stack_size=stack,
        min_replay_history=10**9,
        replay_capacity=20_000 if stack > 1 else 1_000_000,
        epsilon_fn=identity_epsilon,
        epsilon_train=0.01,
        device="cpu",
        channels_last=stack > 1,
        **given,
    )
    return VectorAgent(spec, vector.num_envs)


def environments(make: Make, steps: int) -> float:
    """Frames per second of the vector alone."""
    vector = make()
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(17)]
    vector.reset(seed=0)
    begin = time.process_time()
    for step in range(steps):
        vector.step(actions[step % 17])
    seconds = time.process_time() - begin
    vector.close()
    return float(vector.num_envs * steps / seconds)


def forward(make: Make, stack: int, network: Callable[..., Any] | None, steps: int) -> float:
    """Rows per second of the network alone, from arrays to values."""
    vector = make()
    agent = make_agent(vector, stack, network)
    space = vector.single_observation_space
    stacks = np.zeros((vector.num_envs, stack, *space.shape), space.dtype)
    vector.close()
    policy: Any = agent.policy
    begin = time.process_time()
    for _ in range(steps):
        policy.q_values(stacks)
    return float(len(stacks) * steps / (time.process_time() - begin))


def acting(make: Make, stack: int, network: Callable[..., Any] | None, steps: int) -> float:
    """Frames per second of the agent, which stores what it plays."""
    vector = make()
    agent, envs = make_agent(vector, stack, network), VectorEnvs(vector)
    envs.begin(range(envs.num_envs))
    shown = envs.recv()
    begin = time.process_time()
    for _ in range(steps):
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
        shown = envs.recv()
    seconds = time.process_time() - begin
    assert len(agent.learner.replay) > 0
    envs.close()
    return envs.num_envs * steps / seconds


def measure(
    title: str, make: Make, stack: int, network: Callable[..., Any] | None, steps: int, rounds: int, hold: float
) -> None:
    """Print a table, and whether the share (below 1) or the frames per second that are to be held are reached."""
    samples = interleave(
        {
            "environments": partial(environments, make, steps),
            "forward": partial(forward, make, stack, network, steps),
            "acting": partial(acting, make, stack, network, steps),
        },
        rounds,
    )
    rows = list(zip(samples["environments"], samples["forward"], samples["acting"], strict=True))
    bounds = [1 / (1 / environment + 1 / network) for environment, network, _ in rows]
    shares = [act / bound for (_, _, act), bound in zip(rows, bounds, strict=True)]
    print(f"\n{title}, frames/s of processor time; median of {rounds} interleaved rounds")
    for name, values in (*samples.items(), ("1 / (1 / environments + 1 / forward)", bounds)):
        print(f"{name:<38}{statistics.median(values):>12,.0f}")
    print(f"{'acting, share of that':<38}{statistics.median(shares):>12.2f}  ({min(shares):.2f} .. {max(shares):.2f})")
    if hold < 1:
        print_hold(f"{title}: share of what the bare loops allow", statistics.median(shares), least=hold)
    else:
        print_hold(f"{title}: frames/s of processor time", statistics.median(samples["acting"]), least=hold)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--pong-steps", type=int, default=100, help="steps of all games per repetition")
    parser.add_argument("--cartpole-steps", type=int, default=500, help="steps of all environments per repetition")
    args = parser.parse_args()
    torch.set_num_threads(1)
    small = partial(create_network, torso=partial(MLPTorso, hidden=(64, 64)))
    if args.cartpole_steps:
        measure("1,000 CartPole-v1", partial(cartpole, 1000), 1, small, args.cartpole_steps, args.rounds, 300_000)
    if args.pong_steps:
        measure("32 Pong", partial(pong, 32), 4, None, args.pong_steps, args.rounds, 0.85)
    print_load()


if __name__ == "__main__":
    main()
