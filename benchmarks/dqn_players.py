"""The contestants of `dqn_speed` and `studies.dqn_options`: each plays in a process, as many steps as it is told.

A process reads lines ``go N`` and answers each with ``wall_seconds processor_seconds`` of N agent steps. It stands
still in between, in the middle of its library's own training loop: a `Turnstile` around the environment keeps it
there, so what is timed is the loop as users run it, from one step of the environment to the N-th next.

    python -m benchmarks.dqn_players "ours, channels_last" 1

All train on Pong with the Nature network: four emulated frames per step, maximum over two, 84 x 84 grey, stack of
four, rewards clipped; batch 32, an update every 4 steps, Huber loss, Adam (learning rate 1e-4, eps 1e-8), gradient norm
clipped to 10, target copied every 8000 steps, a replay of 50,000, epsilon 0.01 once learning began after 1000 steps.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym

Env = gym.Env[Any, Any]

LEARNING_STARTS = 1000  # agent steps
_FOREVER = 10**9  # agent steps


class Turnstile(gym.Wrapper[Any, Any, Any, Any]):
    """Lets as many steps through as standard input says, then answers with the time that they took, and waits."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._left = 0
        self._begin: tuple[float, float] | None = None

    def step(self, action: Any) -> Any:
        """Step, after waiting if need be; the end of the input ends the process."""
        if self._left == 0:
            self._answer()
            self._left = self._asked()
            self._begin = time.perf_counter(), time.process_time()
        self._left -= 1
        return self.env.step(action)

    def _answer(self) -> None:
        if self._begin is not None:
            wall, cpu = self._begin
            print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)

    def _asked(self) -> int:
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        return int(line.removeprefix("go "))


def play_ours(channels_last: bool = False, bf16: bool = False, overlap: bool = False, compile: bool = False) -> None:
    """Train our agent for ever, episode by episode, as the runner does."""
    from async_wrappers.agents.families.value_based.dqn import DQN
    from async_wrappers.agents.losses.optimizers import create_optimizer
    from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
    from async_wrappers.envs import create_atari_environment

    environment = Turnstile(create_atari_environment("Pong", frame_skip=4, sticky_actions=False))
    agent = TurnBasedAgent.playing(
        DQN,
        environment,
        stack_size=4,
        min_replay_history=LEARNING_STARTS,
        update_period=4,
        target_update_period=2000,  # updates
        epsilon_train=0.01,
        epsilon_decay_period=0,
        replay_capacity=50_000,
        batch_size=32,
        optimizer=partial(create_optimizer, learning_rate=1e-4, eps=1e-8),
        loss_type="huber",
        max_gradient_norm=10.0,
        device="cpu",
        channels_last=channels_last,
        bf16=bf16,
        compile=compile,
    )
    _train(agent, environment, overlap)


def play_cartpole(overlap: bool = False) -> None:
    """Train our agent on CartPole for ever, with the network, the batch and the periods of configs/dqn/cartpole.gin."""
    from async_wrappers.agents.families.value_based.dqn import DQN
    from async_wrappers.agents.networks.q_network import create_network
    from async_wrappers.agents.networks.torsos import MLPTorso
    from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent

    environment = Turnstile(gym.make("CartPole-v1"))
    agent = TurnBasedAgent.playing(
        DQN,
        environment,
        stack_size=1,
        network=partial(create_network, torso=partial(MLPTorso, hidden=(512, 512))),
        min_replay_history=LEARNING_STARTS,
        update_period=4,
        target_update_period=100,
        epsilon_train=0.05,
        epsilon_decay_period=0,
        replay_capacity=50_000,
        batch_size=128,
        device="cpu",
    )
    _train(agent, environment, overlap)


def _train(agent: Any, environment: Env, overlap: bool) -> None:
    from async_wrappers.agents.play.turns.episode import play_episode

    if overlap:
        agent.overlap_learning()
    seed = 0
    while True:
        play_episode(agent, environment, seed)
        seed += 1


def play_sb3(environment: Callable[[], Any]) -> None:
    """Train Stable-Baselines3's agent for ever, in one call of ``learn``, with its logging off."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.logger import Logger

    model = DQN(
        "CnnPolicy",
        environment(),
        learning_rate=1e-4,
        buffer_size=50_000,
        learning_starts=LEARNING_STARTS,
        batch_size=32,
        gamma=0.99,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=8000,  # steps
        exploration_initial_eps=0.01,  # before learning starts, it draws at random whatever this says
        exploration_final_eps=0.01,
        max_grad_norm=10.0,
        policy_kwargs={"optimizer_kwargs": {"eps": 1e-8}},
        seed=0,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.learn(total_timesteps=_FOREVER, log_interval=_FOREVER)


def sb3_environment() -> Any:
    """Return what Stable-Baselines3 recommends: ``make_atari_env`` in a stack of four, with a turnstile."""
    import ale_py
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    def wrapped(env: Env) -> Env:
        return Turnstile(AtariWrapper(env, noop_max=0, terminal_on_life_loss=False))

    gym.register_envs(ale_py)
    return VecFrameStack(make_vec_env("PongNoFrameskip-v4", seed=0, wrapper_class=wrapped), n_stack=4)


def gymnasium_environment() -> Any:
    """Return our environment in Gymnasium's stack of four, with a turnstile: grey straight from the emulator."""
    from gymnasium.wrappers import FrameStackObservation

    from async_wrappers.envs import create_atari_environment

    env = create_atari_environment("Pong", frame_skip=4, sticky_actions=False)
    return Turnstile(FrameStackObservation(env, 4))


PLAYERS: Mapping[str, Callable[[], None]] = {
    "ours": play_ours,
    "ours, channels_last": partial(play_ours, channels_last=True),
    "ours, channels_last bf16": partial(play_ours, channels_last=True, bf16=True),
    "SB3": partial(play_sb3, sb3_environment),
    "SB3, our environment": partial(play_sb3, gymnasium_environment),
}
"""Those of `benchmarks.dqn_speed`."""

OPTIONS: Mapping[str, Callable[[], None]] = {
    "as it is": partial(play_ours, channels_last=True),
    "overlap": partial(play_ours, channels_last=True, overlap=True),
    "compiled": partial(play_ours, channels_last=True, compile=True),
    "CartPole": play_cartpole,
    "CartPole, overlap": partial(play_cartpole, overlap=True),
}
"""Those of `benchmarks.studies.dqn_options`."""


def main() -> None:
    name, threads = sys.argv[1], int(sys.argv[2])
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is imported, below
    import cv2
    import torch

    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    {**PLAYERS, **OPTIONS}[name]()


if __name__ == "__main__":
    main()
