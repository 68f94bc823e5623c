"""What memory is worth: agents with a core and without, on the same inputs and in the same CPU time.

    python -m benchmarks.studies.memory_tasks --base_dir DIR [--seeds 3] [--seconds 60] [--episodes 100] [--config NAME]

Two tasks: CartPole without its velocities, and a corridor whose first observation tells which way to turn at its end.

Each seed of each agent is trained in a process of its own until its CPU seconds, counted from the process's start, are
over (at the end of an iteration, of which it has as many as fit, or all that its file asks for); then the final weights
play greedily. A finished run in DIR is not played again. Prints a line per run, the medians and the paired difference.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

CORE = {
    "vtrace/cartpole_no_velocity": ("create_actor_critic.core", "'lstm'"),
    "r2d2/cartpole_no_velocity": ("create_recurrent_q_network.core", "'lstm'"),
    "vtrace/corridor": ("create_actor_critic.core", "'lstm'"),
    "r2d2/corridor": ("create_recurrent_q_network.core", "'lstm'"),
}
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
        """See the class."""
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


def _of_corridor(agent: str) -> list[str]:
    own = _OF_VTRACE if agent == "vtrace" else ()
    return [*_OF_CORRIDOR, *own, f"Runner.num_iterations = {_ITERATIONS[agent]}"]


def play(config: str, core: str, seed: int, seconds: float, episodes: int, base_dir: Path) -> None:
    """Train one run until its time is over, evaluate it, and write down what came out."""
    import gin

    import async_wrappers.configurables  # noqa: F401 - the gin names
    from async_wrappers.agents.registry import create_runner

    gym.register("Corridor-v0", Corridor)
    agent, task = config.split("/")
    gin.parse_config_files_and_bindings(
        [f"configs/{agent}/cartpole_no_velocity.gin"],
        [
            *(_of_corridor(agent) if task == "corridor" else ()),
            f"{CORE[config][0]} = {core}",
            f"Runner.seed = {seed}",
        ],
        print_includes_and_imports=False,
    )
    runner = create_runner(base_dir)
    whole, longest = runner.num_iterations, 0.0
    for iterations in range(1, whole + 1):
        before = time.process_time()
        runner.num_iterations = iterations
        runner.run_experiment()
        longest = max(longest, time.process_time() - before)
        if time.process_time() + longest > seconds:
            break
    trained = time.process_time()
    scores = [episode.score for episode in runner.evaluation(runner.trained_agent(), episodes)]
    facts = {"iterations": runner.start_iteration, "cpu_seconds": trained, "mean": statistics.fmean(scores)}
    (base_dir / "memory_task.json").write_text(json.dumps({**facts, "scores": scores}))


def main() -> None:
    """Play what is missing, one run after another, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--config", choices=CORE, default="vtrace/cartpole_no_velocity")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--run", nargs=2, metavar=("CORE", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        core, seed = arguments.run
        play(arguments.config, core, int(seed), arguments.seconds, arguments.episodes, arguments.base_dir)
        return
    means: dict[str, list[float]] = {CORE[arguments.config][1]: [], "None": []}
    for seed in range(arguments.seeds):
        for core, of_core in means.items():
            name = f"{arguments.config.replace('/', '_')}_{core.strip(chr(39))}_{seed}"
            directory = (arguments.base_dir / name).resolve()
            own = ["--base_dir", str(directory), "--config", arguments.config, "--run", core, str(seed)]
            lengths = ["--seconds", str(arguments.seconds), "--episodes", str(arguments.episodes)]
            if not (directory / "memory_task.json").is_file():
                command = [sys.executable, "-m", "benchmarks.studies.memory_tasks", *own, *lengths]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=3600)
            result = json.loads((directory / "memory_task.json").read_text())
            of_core.append(result["mean"])
            print(
                f"core {core:>7}, seed {seed}: {result['mean']:6.2f} after {result['iterations']} iterations and "
                f"{result['cpu_seconds']:.1f} CPU s",
                flush=True,
            )
    with_core, without = means.values()
    print(f"median with core {statistics.median(with_core):.2f}, without {statistics.median(without):.2f}")
    differences = [one - other for one, other in zip(with_core, without, strict=True)]
    print(f"paired differences {', '.join(f'{each:.2f}' for each in differences)}")
    if len(differences) > 1:
        from scipy import stats

        half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
        mean = statistics.fmean(differences)
        print(f"mean paired difference {mean:.2f}, 95 % interval {mean - half:.2f} to {mean + half:.2f}")


if __name__ == "__main__":
    main()
