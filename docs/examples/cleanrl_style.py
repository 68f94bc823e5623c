"""DQN under delay in one file, for people who want to see every line.

python docs/examples/cleanrl_style.py --delay 4 --noops 4

Four places differ from a turn-based DQN; each is marked DELAY.
"""

from __future__ import annotations

import argparse
from collections import deque
from copy import deepcopy
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from async_wrappers import AppliedActions, RealtimeDelay

GAMMA = 0.99  # per decision
BATCH_SIZE = 64
REPLAY_CAPACITY = 50_000  # transitions
TARGET_PERIOD = 200  # updates


class Transition(NamedTuple):
    """What is learnt from: the observation, the action that it led to, and what became of it."""

    observation: np.ndarray
    action: int
    reward: float
    next_observation: np.ndarray
    terminated: bool


def make_env(delay: int, noops: int) -> gym.Env:
    """Return CartPole under delay, with the action that it received last in the observation."""
    # DELAY: while the policy thinks, its last action goes on ("repeat"). The game's own observation does not tell which
    # one; with noops = delay (observe, think, act, observe) this does, and the problem is Markov again. It goes inside
    # the delay: there it is what had been applied when the observation was taken, which a real policy knows too.
    env = AppliedActions(gym.make("CartPole-v1"), length=1, flat=True)
    return RealtimeDelay(env, delay=delay, noops=noops, default_action="repeat")


def release(pending: deque[tuple[int, Transition]], replay: deque[Transition], frame: int) -> None:
    """Move what is known at `frame` into the replay; `pending` holds (frame on which it was complete, transition)."""
    while pending and pending[0][0] <= frame:
        replay.append(pending.popleft()[1])


def update(
    network: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, batch: list[Transition]
) -> torch.Tensor:
    """Take one gradient step on a batch and return its loss."""
    observation, action, reward, next_observation, terminated = (
        torch.as_tensor(np.array(column)) for column in zip(*batch, strict=True)
    )
    with torch.no_grad():
        # Only a termination ends the sum: an episode that was cut (truncated) bootstraps on its last observation.
        following = target(next_observation).max(dim=1).values * ~terminated
    value = network(observation).gather(1, action[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, reward.float() + GAMMA * following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main(
    delay: int = 4, noops: int = 4, total_timesteps: int = 30_000, learning_starts: int = 1_000, seed: int = 0
) -> float:
    """Train for so many decisions; print the mean return as it goes, and return that of the last 20 episodes."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = make_env(delay, noops)
    width, actions = env.observation_space.shape[0], int(env.action_space.n)
    network = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, actions))
    target = deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-4)
    replay: deque[Transition] = deque(maxlen=REPLAY_CAPACITY)
    pending: deque[tuple[int, Transition]] = deque()
    returns: list[float] = []
    begin, score = 0, 0.0  # frames before this episode, its return so far
    observation, _ = env.reset(seed=seed)
    for step in range(total_timesteps):
        epsilon = max(0.02, 1 - step / (0.4 * total_timesteps))
        if rng.random() < epsilon:
            action = int(rng.integers(actions))
        else:
            with torch.no_grad():
                action = int(network(torch.as_tensor(observation[None])).argmax())
        next_observation, reward, terminated, truncated, info = env.step(action)
        realtime: dict[str, Any] = info["realtime"]
        score += float(reward)
        frame = begin + realtime["frame"]
        # DELAY: an episode may end before its first action lands; then the action taught nothing.
        if realtime["applied"]:
            transition = Transition(observation, action, float(reward), next_observation, terminated)
            # DELAY: the simulation has run ahead. The reward is complete at `frame`, but the next decision begins at
            # `start`, `delay` frames earlier: a transition is held back until a decision begins that could know it.
            pending.append((frame, transition))
        release(pending, replay, begin + realtime["start"])
        observation = next_observation
        if terminated or truncated:
            # DELAY: a reset waits for all that is in flight. Frames are counted apart from decisions, each of which
            # takes noops + 1 of them, and the first one `delay` more.
            begin = frame
            release(pending, replay, frame)
            returns.append(score)
            score = 0.0
            observation, _ = env.reset()
        if step >= learning_starts and len(replay) >= BATCH_SIZE:
            update(network, target, optimizer, [replay[i] for i in rng.integers(len(replay), size=BATCH_SIZE)])
            if step % TARGET_PERIOD == 0:
                target.load_state_dict(network.state_dict())
        if (step + 1) % max(1, total_timesteps // 6) == 0:
            print(f"decision {step + 1}, frame {frame}: return {np.mean(returns[-20:]):.1f}")
    env.close()
    return float(np.mean(returns[-20:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=int, default=4, help="frames")
    parser.add_argument("--noops", type=int, default=4, help="frames between two actions")
    parser.add_argument("--total_timesteps", type=int, default=30_000, help="decisions")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
