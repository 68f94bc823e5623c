"""rsl_rl's PPO on hundreds of robots, late by a trace of latencies and told its actions, beside one trained in time.

Cart-poles, or mjlab's, on the CPU; a quadruped on a GPU:

python docs/examples/late_robots.py
python docs/examples/late_robots.py --task Mjlab-Cartpole-Balance --num_envs 64
python docs/examples/late_robots.py --task Mjlab-Velocity-Flat-Unitree-Go1 --num_envs 4096 --device cuda

Both policies are then played late, the latter in time too. The trace is a JSON file of measured latencies, as
`Trace.to_json` of a live run's report writes it; without one it is `LATENCIES`, which were made up.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from async_wrappers import Trace, delay_simulator

LATENCIES = [0.071, 0.074, 0.069, 0.083, 0.078, 0.072, 0.118, 0.076, 0.070, 0.081, 0.095, 0.073]  # seconds
TOLD = 6  # frames: as many actions as may be on their way


class CartPoles(VecEnv):
    """Cart-poles that are pushed by a force, 50 frames a second: Barto, Sutton and Anderson's (1983), in tensors.

    Args:
        num_envs: Robots.
        device: Where they are.
    """

    num_actions, max_episode_length, step_dt, cfg = 1, 500, 0.02, {}

    def __init__(self, num_envs: int, device: str) -> None:
        self.num_envs, self.device = num_envs, device
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)
        self._state = self._begun()

    def _begun(self) -> torch.Tensor:
        return 0.1 * torch.rand(self.num_envs, 4, device=self.device) - 0.05

    def get_observations(self) -> TensorDict:
        """Return place, speed, angle and its speed."""
        return TensorDict({"policy": self._state}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Push each cart; a pole that falls, or a cart that leaves the track, begins anew in the same step."""
        x, speed, angle, turn = self._state.unbind(1)
        sin, cos, force = angle.sin(), angle.cos(), 10 * actions[:, 0].clamp(-1, 1)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        turning = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        speed, turn = speed + 0.02 * (push - 0.05 * turning * cos / 1.1), turn + 0.02 * turning
        x, angle = x + 0.02 * speed, angle + 0.02 * turn
        state = torch.stack([x, speed, angle, turn], dim=1)
        fallen = (angle.abs() > 0.21) | (x.abs() > 2.4)
        self.episode_length_buf = self.episode_length_buf + 1
        late = (self.episode_length_buf >= self.max_episode_length) & ~fallen
        dones = fallen | late
        self._state = torch.where(dones[:, None], self._begun(), state)
        self.episode_length_buf = torch.where(dones, 0, self.episode_length_buf)
        return self.get_observations(), (~fallen).float(), dones.long(), {"time_outs": late}


def make_env(args: argparse.Namespace, late: bool) -> Any:
    """Return robots: late by the trace, or in time, and both tell the last actions."""
    if args.task == "cartpoles":
        env: Any = CartPoles(args.num_envs, args.device)
    else:
        import mjlab.tasks  # noqa: F401 - registers them
        from mjlab.envs import ManagerBasedRlEnv
        from mjlab.rl import RslRlVecEnvWrapper
        from mjlab.tasks.registry import load_env_cfg

        cfg = load_env_cfg(args.task)
        cfg.scene.num_envs = args.num_envs
        env = RslRlVecEnvWrapper(ManagerBasedRlEnv(cfg, device=args.device))
    if not late:
        return delay_simulator(env, default_action="repeat", action_window=TOLD)
    latency = Trace(args.trace if args.trace else LATENCIES)
    rate = {} if hasattr(env, "step_dt") or hasattr(env.unwrapped, "step_dt") else {"fps": 50}
    # Actions land when they are due, so that the policy knows as it infers when those on their way do.
    terms = {"per": "frame", "playout": TOLD, "default_action": "repeat", "action_window": TOLD}
    return delay_simulator(env, latency=latency, **terms, **rate)


def settings(groups: Any) -> dict[str, Any]:
    """Return rsl_rl's settings, as mjlab's cart-pole has them; who has no group of its own reads the first."""
    names = list(groups.keys())
    network = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "elu"}
    noise = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    return {
        "num_steps_per_env": 32,
        "save_interval": 1_000,
        "obs_groups": {name: [name if name in names else names[0]] for name in ("actor", "critic")},
        "actor": {**network, "distribution_cfg": noise},
        "critic": network,
        "algorithm": {
            "class_name": "PPO",
            "learning_rate": 1e-3,
            "schedule": "adaptive",
            "desired_kl": 0.01,
            "entropy_coef": 0.005,
            "num_learning_epochs": 5,
            "num_mini_batches": 4,
            "rnd_cfg": None,
        },
    }


def train(args: argparse.Namespace, late: bool, seed: int) -> Any:
    """Train a policy."""
    torch.manual_seed(seed)
    env = make_env(args, late)
    runner = OnPolicyRunner(env, settings(env.get_observations()), log_dir=None, device=args.device)
    runner.learn(args.iterations, init_at_random_ep_len=True)
    return runner.get_inference_policy()


@torch.inference_mode()
def play(args: argparse.Namespace, policy: Any, late: bool) -> float:
    """Return the reward of an episode: of all frames, divided by the ends."""
    torch.manual_seed(10_000)
    env = make_env(args, late)
    observations, total, ends = env.get_observations(), 0.0, 0
    for _ in range(args.frames):
        observations, rewards, dones, _ = env.step(policy(observations))
        total, ends = total + float(rewards.sum()), ends + int(dones.sum())
    return total / max(1, ends)


def main(argv: list[str] | None = None) -> list[tuple[int, float, float, float]]:
    """Train and play each seed both ways; print the rewards, and a 95 % interval of what being trained late gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cartpoles", help="or the name of a task of mjlab")
    parser.add_argument("--trace", type=Path, help="a JSON file of latencies")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--num_envs", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=60, help="of PPO, of 32 frames each")
    parser.add_argument("--frames", type=int, default=1_000, help="that each policy is played")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, help="a CSV file for the results")
    args = parser.parse_args(argv)
    rows = []
    for seed in range(args.seeds):
        in_time, late = (train(args, how, seed) for how in (False, True))
        rows.append(
            (seed, play(args, in_time, late=False), play(args, in_time, late=True), play(args, late, late=True))
        )
        print("seed {}, reward of an episode: trained in time and played so {:.1f}, ".format(*rows[-1]), end="")
        print("played late {:.1f}; trained and played late {:.1f}".format(*rows[-1][2:]), flush=True)
    if args.output:
        with args.output.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("seed", "in_time", "in_time_played_late", "late"), *rows])
    if args.seeds > 1:
        from scipy.stats import t

        gains = np.array([late - in_time for _, _, in_time, late in rows])
        half = t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains))
        print(f"gain {gains.mean():.1f}, 95 % interval {gains.mean() - half:.1f} to {gains.mean() + half:.1f}")
    return rows


if __name__ == "__main__":
    main()
