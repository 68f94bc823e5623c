"""Tianshou's Rainbow as a contestant of `benchmarks.agent_speed`: one call of ``run_training``.

    PYTHON -m benchmarks.players.tianshou full_rainbow THREADS LEARNING_STARTS

`RainbowDQN` (C51, double, 3-step, noisy and dueling by its network) with a prioritised buffer of single frames, as in
the project's Atari example. Four steps are collected, then one update is made. The environment is its `wrap_deepmind`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.players.turnstile import (
    ALPHA,
    ATOMS,
    BATCH,
    BETA,
    CAPACITY,
    FOREVER,
    GAME,
    GAMMA,
    HORIZON,
    TARGET_PERIOD,
    UPDATE_PERIOD,
    VMAX,
    limit_threads,
    told,
)


def main() -> None:
    player = told()
    limit_threads(player.threads)
    import ale_py
    import gymnasium as gym
    from tianshou.algorithm.modelfree.c51 import C51Policy
    from tianshou.algorithm.modelfree.rainbow import RainbowDQN
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, PrioritizedVectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.env.atari.atari_network import RainbowNet, ScaledObsInputActionReprNet
    from tianshou.env.atari.atari_wrapper import wrap_deepmind
    from tianshou.trainer import OffPolicyTrainerParams

    from benchmarks.players.watched import Watched

    gym.register_envs(ale_py)

    def environment() -> Any:
        return Watched(wrap_deepmind(gym.make(GAME)))

    environments = DummyVectorEnv([environment])
    space = environments.action_space[0]
    network = RainbowNet(c=4, h=84, w=84, action_shape=[space.n], num_atoms=ATOMS)
    policy = C51Policy(
        model=ScaledObsInputActionReprNet(network),
        action_space=space,
        num_atoms=ATOMS,
        v_min=-VMAX,
        v_max=VMAX,
    )
    rainbow = RainbowDQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-4),
        gamma=GAMMA,
        n_step_return_horizon=HORIZON,
        target_update_freq=TARGET_PERIOD // UPDATE_PERIOD,
    )
    replay = PrioritizedVectorReplayBuffer(
        CAPACITY, buffer_num=1, ignore_obs_next=True, save_only_last_obs=True, stack_num=4, alpha=ALPHA, beta=BETA
    )
    collector: Any = Collector(policy, environments, replay)
    collector.reset()
    collector.collect(n_step=player.learning_starts)
    rainbow.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=FOREVER,
            collection_step_num_env_steps=UPDATE_PERIOD,
            update_step_num_gradient_steps_per_sample=1 / UPDATE_PERIOD,
            batch_size=BATCH,
            show_progress=False,
        )
    )


if __name__ == "__main__":
    main()
