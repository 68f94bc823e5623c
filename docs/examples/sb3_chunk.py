"""Stable-Baselines3's PPO on one decision per nine frames: the last action repeated, and a chunk of actions.

python docs/examples/sb3_chunk.py
"""

from __future__ import annotations

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from async_wrappers import CommittedPrefix, RealtimeDelay

DELAY, NOOPS = 2, 8  # frames: an action is two frames late, and the next one lands nine frames later


def make_env(default_action: str) -> gym.Env:
    """Return CartPole with one decision per nine frames.

    With chunks the action space is ``MultiDiscrete([2] * 11)``: PPO draws eleven actions at once, of which the frames
    receive the third to the last. That is all it has to know of chunks. `CommittedPrefix` shows it which actions the
    cart receives until its own land.
    """
    env = gym.make("CartPole-v1")
    if default_action == "chunk":
        env = RealtimeDelay(env, DELAY, NOOPS, "chunk")
        return Monitor(CommittedPrefix(env, flat=True))
    return Monitor(RealtimeDelay(env, DELAY, NOOPS, default_action))


def train(default_action: str, total_timesteps: int, seed: int) -> PPO:
    """Train for so many decisions.

    PPO's log-probability of a chunk is the sum over all of its entries, those that no frame received included: they
    add noise to its ratios, and no bias. `info["realtime"]["executed"]` says which ones to sum where that matters.
    """
    env = DummyVecEnv([lambda: make_env(default_action)] * 8)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=max(8, min(64, total_timesteps // 16)),
        batch_size=64,
        learning_rate=1e-3,
        gamma=0.98,
        n_epochs=8,
        ent_coef=0.003,
        seed=seed,
        device="cpu",
    )
    return model.learn(total_timesteps)


def evaluate(model: PPO, default_action: str, episodes: int) -> float:
    """Return the mean return of the greedy policy, over the same seeds each time."""
    env = DummyVecEnv([lambda: make_env(default_action)])
    env.seed(1_000)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=episodes)
    env.close()
    return float(mean)


def main(total_timesteps: int = 30_000, episodes: int = 20, seed: int = 0) -> dict[str, float]:
    """Train with both, and print the returns by default action."""
    returns = {}
    for default_action in ("repeat", "chunk"):
        model = train(default_action, total_timesteps, seed)
        returns[default_action] = evaluate(model, default_action, episodes)
        print(f"one decision per nine frames, {default_action}: {returns[default_action]:6.1f}", flush=True)
    return returns


if __name__ == "__main__":
    main()
