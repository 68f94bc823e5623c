"""What chooses replayed unrolls well: sources beside V-trace's queue, on CartPole without velocities, at equal steps.

    python -m benchmarks.studies.elite --base_dir DIR [--seeds 5] [--frames 150000] [--episodes 100]
        [--only elite3 count]

Every learner is given 8 fresh unrolls of 20 rows for an update, so all act and update equally often; but for the plain
queue each batch has 8 replayed ones beside them, from the newest 500. What chooses these is all that differs:

    queue       none: batches of 8 fresh unrolls
    standard    uniform draws
    elite1      the nearest by what the network made of them when they were new and makes of them now (strategy 1)
    elite3      the least learnt from, of these the nearest (strategy 3)
    attentive   the nearest to the present states of the environments (strategy 1)
    count       the least learnt from, of these the oldest: strategy 3 without distances
    newest      the newest

Each run is a process of its own; a finished run in DIR is not played again. Prints, for each, the mean return of all
training episodes and that of the final weights, greedy; and the paired differences over seeds from the queue, standard
and count, with 95 % intervals (Student's t).
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

_HALF = "VTraceAgent.sources = [('queue', 0.5), ('elite', 0.5)]"
_ELITE = "EliteReplay.elite_sampling_strategy = "
ARMS = {
    "queue": ("VTraceAgent.batch_size = 8",),
    "standard": ("VTraceAgent.sources = [('queue', 0.5), ('standard', 0.5)]",),
    "elite1": (_HALF, _ELITE + "'strategy1'"),
    "elite3": (_HALF, _ELITE + "'strategy3'"),
    "attentive": (_HALF, _ELITE + "'strategy1'", "EliteReplay.sample_strategy = 'attentive_sampling'"),
    "count": (_HALF, _ELITE + "'count'"),
    "newest": (_HALF, _ELITE + "'newest'"),
}
ITERATIONS = 10


def play(arm: str, seed: int, frames: int, episodes: int, base_dir: Path) -> None:
    """Train one run, evaluate it, and write down what came out."""
    import gin

    import async_wrappers.configurables  # noqa: F401 - the gin names
    from async_wrappers.agents.experiment.metrics import read_iterations
    from async_wrappers.agents.registry import create_runner

    shared = [
        f"Runner.num_iterations = {ITERATIONS}",
        f"Runner.training_steps = {frames // ITERATIONS}",
        "Runner.evaluation_episodes = None",
        "Runner.evaluation_steps = 0",
        "Runner.report_episodes = 0",
        f"Runner.seed = {seed}",
        f"VTraceAgent.learning_rate_decay = {max(1, frames // 160)}",
        "StandardReplay.capacity = 500",
        "EliteReplay.capacity = 500",
    ]
    gin.parse_config_files_and_bindings(
        ["configs/vtrace/cartpole_no_velocity.gin"], [*shared, *ARMS[arm]], print_includes_and_imports=False
    )
    runner = create_runner(base_dir)
    runner.run_experiment()
    trained = time.process_time()
    learnt = [score for line in read_iterations(base_dir) for score in line["train_episode_returns"]]
    scores = [episode.score for episode in runner.evaluation(runner.trained_agent(), episodes)]
    facts = {"training": statistics.fmean(learnt), "final": statistics.fmean(scores), "cpu_seconds": trained}
    (base_dir / "elite.json").write_text(json.dumps({**facts, "updates": runner.agent.updates}))


def interval(differences: list[float]) -> str:
    """Return the mean of paired differences with its 95 % interval."""
    from scipy import stats

    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return f"{mean:+7.1f}"
    half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{mean:+7.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def main() -> None:
    """Play what is missing, one run after another, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=150_000)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--run", nargs=2, metavar=("ARM", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        arm, seed = arguments.run
        play(arm, int(seed), arguments.frames, arguments.episodes, arguments.base_dir)
        return
    results: dict[str, list[dict[str, float]]] = {arm: [] for arm in arguments.only}
    for seed in range(arguments.seeds):
        for arm, of_arm in results.items():
            directory = (arguments.base_dir / f"{arm}_{arguments.frames}_{seed}").resolve()
            lengths = ["--frames", str(arguments.frames), "--episodes", str(arguments.episodes)]
            if not (directory / "elite.json").is_file():
                command = [sys.executable, "-m", "benchmarks.studies.elite", "--base_dir", str(directory), *lengths]
                subprocess.run([*command, "--run", arm, str(seed)], check=True, stdout=subprocess.DEVNULL, timeout=7200)
            of_arm.append(result := json.loads((directory / "elite.json").read_text()))
            print(
                f"{arm:>9}, seed {seed}: training {result['training']:6.1f}, final {result['final']:6.1f}, "
                f"{result['updates']} updates, {result['cpu_seconds']:.1f} CPU s",
                flush=True,
            )
    for measure in ("training", "final"):
        print(f"\n{measure}: mean return, and paired differences with 95 % intervals")
        for arm, of_arm in results.items():
            own = [result[measure] for result in of_arm]
            against = []
            for other in ("queue", "standard", "count"):
                if other in results and other != arm:
                    theirs = [result[measure] for result in results[other]]
                    differences = [one - another for one, another in zip(own, theirs, strict=True)]
                    against.append(f"minus {other} {interval(differences)}")
            print(f"{arm:>9} {statistics.fmean(own):7.1f}   {';  '.join(against)}")


if __name__ == "__main__":
    main()
