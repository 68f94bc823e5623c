"""What memory is worth: agents with a core and without on CartPole without velocities, in the same CPU time.

    python -m benchmarks.memory_tasks --base_dir DIR [--seeds 3] [--seconds 60] [--episodes 100] [--config NAME]

Each seed of each agent is trained in a process of its own until its CPU seconds, counted from the process's start, are
over (at the end of an iteration, of which it has as many as fit, or all that its file asks for); then the final weights
play greedily. A finished run in DIR is not played again. Prints a line per run, the medians and the paired difference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

CORE = {
    "vtrace/cartpole_no_velocity": ("create_actor_critic.core", "'lstm'"),
    "r2d2/cartpole_no_velocity": ("create_recurrent_q_network.core", "'lstm'"),
}


def play(config: str, core: str, seed: int, seconds: float, episodes: int, base_dir: Path) -> None:
    """Train one run until its time is over, evaluate it, and write down what came out."""
    import gin

    import async_wrappers.configurables  # noqa: F401 - the gin names
    from async_wrappers.agents.experiment.live import create_runner

    gin.parse_config_files_and_bindings(
        [f"configs/{config}.gin"],
        [f"{CORE[config][0]} = {core}", f"Runner.seed = {seed}"],
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
                command = [sys.executable, "-m", "benchmarks.memory_tasks", *own, *lengths]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=3600)
            result = json.loads((directory / "memory_task.json").read_text())
            of_core.append(result["mean"])
            print(
                f"core {core:>7}, seed {seed}: {result['mean']:6.1f} after {result['iterations']} iterations and "
                f"{result['cpu_seconds']:.1f} CPU s",
                flush=True,
            )
    with_core, without = means.values()
    print(f"median with core {statistics.median(with_core):.1f}, without {statistics.median(without):.1f}")
    differences = [one - other for one, other in zip(with_core, without, strict=True)]
    print(f"paired differences {', '.join(f'{each:.1f}' for each in differences)}")


if __name__ == "__main__":
    main()
