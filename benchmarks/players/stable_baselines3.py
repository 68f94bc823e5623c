"""Stable-Baselines3's DQN as a contestant of `benchmarks.agent_speed`: one call of ``learn``, its logging off.

    python -m benchmarks.players.stable_baselines3 dqn THREADS LEARNING_STARTS [our_environment]

Its environment is what it recommends, ``make_atari_env`` in a stack of four. With ``our_environment`` it has ours,
which takes grey straight from the emulator, in Gymnasium's stack: the difference is the environments'.
"""

from __future__ import annotations

from typing import Any

from benchmarks.players.turnstile import (
    BATCH,
    CAPACITY,
    EPSILON,
    FOREVER,
    GAME,
    GAMMA,
    TARGET_PERIOD,
    UPDATE_PERIOD,
    limit_threads,
    told,
)


def its_environment() -> Any:
    """Return Pong in Stable-Baselines3's own wrappers."""
    import ale_py
    import gymnasium as gym
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    from benchmarks.players.watched import Watched

    def wrapped(env: Any) -> Any:
        return Watched(AtariWrapper(env, noop_max=0, terminal_on_life_loss=False))

    gym.register_envs(ale_py)
    return VecFrameStack(make_vec_env(GAME, seed=0, wrapper_class=wrapped), n_stack=4)


def our_environment() -> Any:
    """Return Pong in ours."""
    from gymnasium.wrappers import FrameStackObservation

    from async_wrappers.envs import create_atari_environment
    from benchmarks.players.watched import Watched

    env = create_atari_environment(GAME, frame_skip=4, sticky_actions=False)
    return Watched(FrameStackObservation(env, 4))


def main() -> None:
    player = told()
    limit_threads(player.threads)
    from stable_baselines3 import DQN
    from stable_baselines3.common.logger import Logger

    model = DQN(
        "CnnPolicy",
        our_environment() if player.how else its_environment(),
        learning_rate=1e-4,
        buffer_size=CAPACITY,
        learning_starts=player.learning_starts,
        batch_size=BATCH,
        gamma=GAMMA,
        train_freq=UPDATE_PERIOD,
        gradient_steps=1,
        target_update_interval=TARGET_PERIOD,
        exploration_initial_eps=EPSILON,  # before learning starts, it draws at random whatever this says
        exploration_final_eps=EPSILON,
        max_grad_norm=10.0,
        policy_kwargs={"optimizer_kwargs": {"eps": 1e-8}},
        seed=0,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.learn(total_timesteps=FOREVER, log_interval=FOREVER)


if __name__ == "__main__":
    main()
