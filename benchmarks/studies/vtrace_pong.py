"""What V-trace on 32 games of Pong takes, learning included, beside its parts as bare loops and beside a peer.

The network is the Nature DQN's (unpadded convolutions, 512 units) with a policy and a value on stacks of four frames;
each game step emulates four frames. An update learns from 20 rows of each game, 640 agent steps.

**Bare loops**: agent steps per second of processor time, with one thread of PyTorch and one of the emulator:

* games: ``AtariVectorEnv`` alone, with actions drawn beforehand.
* forward: the network alone on 32 stacks, from arrays to logits.
* update: a loop of a few lines of PyTorch on one batch of 640 steps that never changes: the network, V-trace, the
  gradient, its norm, Adam.
* V-trace: `VectorAgent`, which plays, stores and learns.

What the three parts allow together is 1 / (1 / games + 1 / forward + 1 / update). Hold: V-trace makes >= 0.85 of that.

**Peer**: Stable-Baselines3's A2C with the same network, number of games and steps per update, in fp32, on its own
wrappers, with the games in its own process (``DummyVecEnv``) or each in one of its own (``SubprocVecEnv``). Each
contestant has a process to itself; they take turns of some updates. Printed are agent steps per second of wall-clock
time, and of its main process's processor time where that is all. With two threads ours makes its updates beside the
games (``Runner.overlap``), and a peer has two threads of PyTorch. Hold: on two, fp32 >= 1.5 times the best peer.

    python -m benchmarks.studies.vtrace_pong [bare] [peer]

Where cores are shared, put ``OMP_WAIT_POLICY=passive`` before the command, as for `benchmarks.dqn_speed`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.interleave import interleave, print_hold, print_load, print_table
from benchmarks.player import Player

NUM_ENVS, UNROLL = 32, 20  # games, and rows of an update in each
STEPS = NUM_ENVS * UNROLL  # agent steps of an update
_FOREVER = 10**9  # agent steps


def make_vector(threads: int = 1) -> Any:
    from async_wrappers.envs import create_atari_vector

    return create_atari_vector("Pong", NUM_ENVS, sticky_actions=False, num_threads=threads)


def make_agent(vector: Any, bf16: bool = False) -> Any:
    """Return V-trace with A2C's settings of Stable-Baselines3, which are none of speed but the batch."""
    from async_wrappers.agents.families.actor_critic.vtrace import VTrace
    from async_wrappers.agents.networks.sequence_network import create_actor_critic
    from async_wrappers.agents.networks.torsos import NatureTorso
    from async_wrappers.agents.play.many.vector_agent import VectorAgent

    spec = VTrace(
        vector.single_observation_space,
        vector.single_action_space,
        stack_size=4,
        network=partial(create_actor_critic, torso=partial(NatureTorso, padding="valid"), feed_previous=False),
        unroll_length=UNROLL,
        batch_size=NUM_ENVS,
        entropy_cost=0.01,
        max_gradient_norm=0.5,
        device="cpu",
        bf16=bf16,
    )
    return VectorAgent(spec, NUM_ENVS)


# Bare loops: each is made once, and returns agent steps per second of processor time whenever it is called.


def games(updates: int) -> Callable[[], float]:
    """The vector alone."""
    vector = make_vector()
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(17)]
    vector.reset(seed=0)

    def play() -> float:
        begin = time.process_time()
        for step in range(updates * UNROLL):
            vector.step(actions[step % 17])
        return STEPS * updates / (time.process_time() - begin)

    return play


def _bare_network(bf16: bool) -> tuple[Any, Callable[[np.ndarray], Any]]:
    """Return a network, and a function from stacks [N, 4, 84, 84] to logits [N, A] and values [N]."""
    import torch

    vector = make_vector()
    network = make_agent(vector, bf16).spec.make_network()
    vector.close()

    def forward(stacks: Any) -> Any:
        tensor = torch.from_numpy(stacks).to(memory_format=torch.channels_last).float() / 255
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits, values = network.head(network.torso(tensor))
        return logits.float(), values.float()

    return network, forward


def forward(bf16: bool, updates: int) -> Callable[[], float]:
    """The network alone on a row of each game."""
    import torch

    _, run = _bare_network(bf16)
    stacks = np.random.default_rng(0).integers(0, 256, (NUM_ENVS, 4, 84, 84), np.uint8)

    @torch.inference_mode()
    def infer() -> float:
        begin = time.process_time()
        for _ in range(updates * UNROLL):
            run(stacks)[0].numpy()
        return STEPS * updates / (time.process_time() - begin)

    return infer


def update(bf16: bool, updates: int) -> Callable[[], float]:
    """An update alone, always of the same batch, whose last row is that of every game's next unroll."""
    import torch
    from torch.nn.functional import cross_entropy

    rng = np.random.default_rng(0)
    network, run = _bare_network(bf16)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)
    stacks = rng.integers(0, 256, ((UNROLL + 1) * NUM_ENVS, 4, 84, 84), np.uint8)
    actions = torch.from_numpy(rng.integers(0, 6, STEPS))
    rewards, log_mu = torch.zeros(UNROLL, NUM_ENVS), torch.full((UNROLL, NUM_ENVS), float(np.log(1 / 6)))

    def learn() -> None:
        logits, values = run(stacks)
        logits, values = logits[:STEPS], values.view(UNROLL + 1, NUM_ENVS)
        log_pi = -cross_entropy(logits, actions, reduction="none").view(UNROLL, NUM_ENVS)
        ratios, fixed = (log_pi - log_mu).exp().clamp(max=1).detach(), values.detach()
        deltas = ratios * (rewards + 0.99 * fixed[1:] - fixed[:-1])
        errors = torch.zeros_like(fixed)
        for s in reversed(range(UNROLL)):
            errors[s] = deltas[s] + 0.99 * ratios[s] * errors[s + 1]
        targets = fixed + errors
        advantages = ratios * (rewards + 0.99 * targets[1:] - fixed[:-1])
        log_probs = logits.log_softmax(1)
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        loss = (-log_pi * advantages).mean() + 0.25 * ((targets - values)[:-1] ** 2).mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()

    def learn_some() -> float:
        begin = time.process_time()
        for _ in range(updates):
            learn()
        return STEPS * updates / (time.process_time() - begin)

    return learn_some


def whole(bf16: bool, updates: int) -> Callable[[], float]:
    """Our agent, which plays, stores and learns."""
    from async_wrappers.batched.vector_envs import VectorEnvs

    vector = make_vector()
    agent = make_agent(vector, bf16)
    play = _rounds(agent, VectorEnvs(vector))

    def play_and_learn() -> float:
        begin, updates_before, steps = time.process_time(), agent.updates, 0
        while agent.updates < updates_before + updates:
            steps += next(play)
        return steps / (time.process_time() - begin)

    return play_and_learn


def _rounds(agent: Any, envs: Any) -> Iterator[int]:
    """Play for ever, as `VectorRunner` does; yield the agent steps of each round."""
    envs.begin(range(envs.num_envs))
    while True:
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
        yield len(shown.env_ids)


def measure_bare(bf16: bool, rounds: int, updates: int) -> None:
    """Print a table, and whether the share is held."""
    samples = interleave(
        {
            "games": games(updates),
            "forward": forward(bf16, updates),
            "update": update(bf16, updates),
            "V-trace": whole(bf16, updates),
        },
        rounds,
    )
    parts = zip(samples["games"], samples["forward"], samples["update"], strict=True)
    bounds = [1 / sum(1 / part for part in each) for each in parts]
    shares = [ours / bound for ours, bound in zip(samples["V-trace"], bounds, strict=True)]
    precision = "bf16" if bf16 else "fp32"
    print(f"\n{precision}, agent steps per processor second; median of {rounds} interleaved rounds")
    for name, values in (*samples.items(), ("what the parts allow", bounds)):
        print(f"{name:<24}{statistics.median(values):>10,.0f}")
    print(f"{'V-trace, share of that':<24}{statistics.median(shares):>10.3f}  ({min(shares):.3f} .. {max(shares):.3f})")
    print_hold(f"{precision}: share of what the bare loops allow", statistics.median(shares), least=0.85)


# Contestants in processes of their own.


class Gate:
    """Lets as many agent steps through as standard input says, then answers with the time that they took, and waits."""

    def __init__(self) -> None:
        self._left = 0
        self._begin: tuple[float, float] | None = None

    def __call__(self, steps: int) -> None:
        """Pass so many steps, after waiting if need be; the end of the input ends the process."""
        if self._left <= 0:
            if self._begin is not None:
                wall, cpu = self._begin
                print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)
            line = sys.stdin.readline()
            if not line:
                sys.exit()
            self._left = int(line.removeprefix("go "))
            self._begin = time.perf_counter(), time.process_time()
        self._left -= steps


def play_ours(threads: int, bf16: bool = False) -> None:
    """Train V-trace for ever; with two threads its updates run beside the games."""
    import torch

    from async_wrappers.batched.vector_envs import VectorEnvs

    torch.set_num_threads(1)
    vector = make_vector(threads)
    agent = make_agent(vector, bf16)
    if threads > 1:
        agent.overlap_learning()
    gate = Gate()
    for steps in _rounds(agent, VectorEnvs(vector)):
        gate(steps)


def play_sb3(processes: bool, threads: int) -> None:
    """Train Stable-Baselines3's A2C for ever, in one call of ``learn``, with its logging off."""
    import ale_py
    import gymnasium as gym
    import torch
    from stable_baselines3 import A2C
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    torch.set_num_threads(threads)
    gym.register_envs(ale_py)
    vector = make_vec_env(
        "PongNoFrameskip-v4",
        n_envs=NUM_ENVS,
        seed=0,
        wrapper_class=partial(AtariWrapper, noop_max=0, terminal_on_life_loss=False),
        vec_env_cls=SubprocVecEnv if processes else DummyVecEnv,
        vec_env_kwargs={"start_method": "fork"} if processes else {},
    )
    model = A2C("CnnPolicy", VecFrameStack(vector, n_stack=4), n_steps=UNROLL, ent_coef=0.01, seed=0, device="cpu")
    gate = Gate()

    def step(_locals: Any, _globals: Any) -> bool:
        gate(NUM_ENVS)
        return True

    model.learn(total_timesteps=_FOREVER, log_interval=_FOREVER, callback=step)


PLAYERS: Mapping[str, Callable[[int], None]] = {
    "ours": play_ours,
    "ours, bf16": partial(play_ours, bf16=True),
    "SB3's A2C": partial(play_sb3, False),
    "SB3's A2C, processes": partial(play_sb3, True),
}
PEERS = ("SB3's A2C", "SB3's A2C, processes")


def measure_peer(names: list[str], threads: int, rounds: int, updates: int) -> None:
    """Warm all players up, let them take turns, print the table, and on two threads whether the ratio is held."""
    players: dict[str, Player] = {}
    try:
        for name in names:  # one after the other: warming up together would only make each wait
            script = "benchmarks.studies.vtrace_pong"
            command = [sys.executable, "-m", script, "--player", name, "--threads", str(threads)]
            players[name] = Player(command, updates * STEPS)
            players[name].play(2 * STEPS)
        walls = interleave(players, rounds, warmup=0)
    finally:
        for player in players.values():
            player.close()
    peers = [name for name in PEERS if name in names]
    best = max(peers, key=lambda name: statistics.median(walls[name]))
    print_table(f"{threads} thread(s), agent steps per second", walls, best, digits=1)
    per_round = [ours / max(walls[peer][i] for peer in peers) for i, ours in enumerate(walls["ours"])]
    if threads > 1:
        print_hold(f"ours / the best peer, fp32, {threads} threads", statistics.median(per_round), least=1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="bare, peer; both if none is named")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--updates", type=int, default=6, help="updates per repetition")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads beside the peer")
    parser.add_argument("--players", nargs="+", default=list(PLAYERS), choices=list(PLAYERS))
    parser.add_argument("--player", choices=list(PLAYERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.player:
        os.environ["OMP_NUM_THREADS"] = str(args.threads[0])  # read when torch is imported
        PLAYERS[args.player](args.threads[0])
        return
    if not {"ours", *args.players} & set(PEERS) or "ours" not in args.players:
        parser.error(f"--players must include 'ours' and one of {', '.join(map(repr, PEERS))}")
    parts = args.parts or ["bare", "peer"]
    if unknown := set(parts) - {"bare", "peer"}:
        parser.error(f"parts must be bare or peer, got {', '.join(sorted(unknown))}")
    if "bare" in parts:
        import torch

        torch.set_num_threads(1)
        for bf16 in (False, True):
            measure_bare(bf16, args.rounds, args.updates)
    if "peer" in parts:
        for threads in args.threads:
            measure_peer(args.players, threads, args.rounds, args.updates)
    print_load()


if __name__ == "__main__":
    main()
