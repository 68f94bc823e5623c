"""Stable-Baselines3's DQN under delay: what it costs a policy that never met it, and what training under it gives back.

python docs/examples/sb3_dqn.py
"""

from __future__ import annotations

import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from async_wrappers import AppliedActions, RealtimeDelay

DELAY = 4  # frames


def make_env(delay: int) -> gym.Env:
    """Return CartPole under sequential interaction: observe, think for `delay` frames, act, observe.

    While the policy thinks, its last action goes on (``"repeat"``). `AppliedActions` shows it which one that is;
    without it the observation would not tell where the pole will be when the next action lands. It goes inside the
    delay: there it shows what the environment had received when the observation was taken.
    """
    env = AppliedActions(gym.make("CartPole-v1"), length=1, flat=True)
    return Monitor(RealtimeDelay(env, delay=delay, noops=delay, default_action="repeat"))


def train(delay: int, total_timesteps: int, seed: int) -> DQN:
    """Train for so many decisions.

    Stable-Baselines3 may learn from a transition as soon as the simulation has it, up to `delay` frames before a real
    agent could; `cleanrl_style.py` holds it back.
    """
    model = DQN(
        "MlpPolicy",
        make_env(delay),
        learning_rate=5e-4,
        batch_size=64,
        buffer_size=50_000,
        learning_starts=min(1_000, total_timesteps // 4),
        target_update_interval=200,
        train_freq=4,
        gradient_steps=4,
        exploration_fraction=0.4,
        exploration_final_eps=0.02,
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
    )
    return model.learn(total_timesteps)


def evaluate(model: DQN, delay: int, episodes: int) -> float:
    """Return the mean return of the greedy policy, over the same seeds each time."""
    env = DummyVecEnv([lambda: make_env(delay)])
    env.seed(1_000)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=episodes)
    env.close()
    return float(mean)


def main(total_timesteps: int = 30_000, episodes: int = 20, seed: int = 0) -> dict[tuple[int, int], float]:
    """Train without delay and under it, and print the returns by (delay in training, delay in evaluation)."""
    returns = {}
    for trained, played in ((0, (0, DELAY)), (DELAY, (DELAY,))):
        model = train(trained, total_timesteps, seed)
        for delay in played:
            returns[trained, delay] = evaluate(model, delay, episodes)
            print(f"trained under delay {trained}, evaluated under delay {delay}: {returns[trained, delay]:6.1f}")
    return returns


if __name__ == "__main__":
    main()
