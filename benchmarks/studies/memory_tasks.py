"""What memory is worth: agents with a core and without, on the same inputs and in the same CPU time.

    python -m benchmarks.studies.memory_tasks --base_dir DIR [--seeds 3] [--seconds 60] [--episodes 100] [--config NAME]

Two tasks: CartPole without its velocities, and a corridor whose first observation tells which way to turn at its end.

Each seed of each agent is trained in a process of its own until its CPU seconds, counted from the process's start, are
over (at the end of an iteration, of which it has as many as fit, or all that its file asks for); then the final weights
play greedily. A finished run in DIR is not played again. Prints a line per run, the medians and the paired difference.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from benchmarks.measuring import parser_of
from benchmarks.studies.trials import Facts, keep, load, played, table, train_until

CORE = {"vtrace": "create_actor_critic.core", "r2d2": "create_recurrent_q_network.core"}
CONFIGS = [f"{agent}/{task}" for task in ("cartpole_no_velocity", "corridor") for agent in CORE]
CORES = ("lstm", "None")
# The corridor is played with the settings of CartPole without velocities, but for these. The previous action is not
# shown: an agent without core could pass the cue on to itself by what it does on the way.
_OF_CORRIDOR = (
    "create_gym_environment.environment_id = 'Corridor-v0'",
    "create_gym_environment.wrappers = []",
    "create_actor_critic.feed_previous = False",
    "create_recurrent_q_network.feed_previous = False",
    "VTraceAgent.max_abs_reward = None",
    "VTraceAgent.entropy_cost = 0.001",
    "VTraceAgent.batch_size = 8",  # unrolls
    "VTraceAgent.learning_rate_decay = 2_250",  # updates, those of the run
    "Runner.training_steps = 12_000",  # frames
)
# With V-trace's learning rate and eps of CartPole, 0.003 and 3e-7, what had been learnt was lost again. An LSTM whose
# forget gates begin at about a half has a thousandth of the cue left at the junction.
_OF_VTRACE = (
    "create_optimizer.learning_rate = 0.001",
    "create_optimizer.eps = 1e-5",
    "LSTMCore.forget_bias = 3.0",
)
_ITERATIONS = {"vtrace": 30, "r2d2": 4}  # of the corridor


class Corridor(gym.Env[npt.NDArray[np.float32], int]):
    """A T-maze: the first observation shows a cue, and `length` steps later the agent turns to its side or does not.

    Bakker, "Reinforcement learning with long short-term memory", 2002, has such a task. An observation is (cue, whether
    this is the junction); the cue is -1 or 1 in the first, 0 in all others. In the corridor every action goes on; at
    the junction action 0 turns to the side of cue -1 and 1 to that of cue 1, which is worth 1 if it is the cue's, else
    0. So without memory the mean return is 0.5.

    Args:
        length: Steps from the cue to the junction.
    """

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 10) -> None:
        self._length = length

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Show the cue."""
        super().reset(seed=seed)
        self._cue, self._at = int(self.np_random.integers(2)), 0
        return np.array([2 * self._cue - 1, 0], np.float32), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Go on, or turn."""
        ends = self._at == self._length
        self._at += 1
        observation = np.array([0, self._at == self._length], np.float32)
        return observation, float(ends and action == self._cue), ends, False, {}


def train(config: str, core: str, seed: int, seconds: float, episodes: int, directory: Path) -> None:
    """Train one run until its time is over, evaluate it, and write down what came out."""
    from async_wrappers.agents.registry import create_runner

    gym.register("Corridor-v0", Corridor)
    agent, task = config.split("/")
    bindings = [f"{CORE[agent]} = {None if core == 'None' else core!r}", f"Runner.seed = {seed}"]
    if task == "corridor":
        own = _OF_VTRACE if agent == "vtrace" else ()
        bindings = [*_OF_CORRIDOR, *own, f"Runner.num_iterations = {_ITERATIONS[agent]}", *bindings]
    load(f"configs/{agent}/cartpole_no_velocity.gin", bindings)
    runner = create_runner(directory)
    trained = train_until(runner, seconds)
    scores = [episode.score for episode in runner.evaluation(runner.trained_agent(), episodes)]
    facts = {"mean": statistics.fmean(scores), "iterations": runner.start_iteration, "cpu_seconds": trained}
    keep(directory, {**facts, "scores": scores})


def main() -> None:
    """Play what is missing, one run after another, and print the table."""
    parser = parser_of(__doc__, seeds=(3, "of each"), seconds=(60.0, "of CPU"), episodes=(100, "played then"))
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--config", choices=CONFIGS, default=CONFIGS[0])
    parser.add_argument("--trial", nargs=2, metavar=("CORE", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trial is not None:
        train(args.config, args.trial[0], int(args.trial[1]), args.seconds, args.episodes, args.base_dir)
        return
    found: dict[str, dict[int, Facts]] = {core: {} for core in CORES}
    options = ["--config", args.config, "--seconds", str(args.seconds), "--episodes", str(args.episodes)]
    for seed in range(args.seeds):
        for core, of_core in found.items():
            name = f"{args.config.replace('/', '_')}_{core}_{seed}"
            if facts := played("benchmarks.studies.memory_tasks", (core, str(seed)), args.base_dir, options, name):
                of_core[seed] = facts
    print("\n" + table(f"{args.config}, core", found, [CORES], columns=("iterations", "cpu_seconds")))


if __name__ == "__main__":
    main()
