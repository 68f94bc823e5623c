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
import statistics
import time
from pathlib import Path

from benchmarks.measuring import parser_of
from benchmarks.studies.trials import Facts, keep, load, played, table

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


def train(arm: str, seed: int, frames: int, episodes: int, directory: Path) -> None:
    """Train one run, evaluate it, and write down what came out."""
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
    load("configs/vtrace/cartpole_no_velocity.gin", [*shared, *ARMS[arm]])
    runner = create_runner(directory)
    runner.run_experiment()
    trained = time.process_time()
    learnt = [score for line in read_iterations(directory) for score in line["train_episode_returns"]]
    scores = [episode.score for episode in runner.evaluation(runner.trained_agent(), episodes)]
    facts = {"training": statistics.fmean(learnt), "final": statistics.fmean(scores)}
    keep(directory, {**facts, "updates": runner.agent.updates, "cpu_seconds": trained})


def main() -> None:
    """Play what is missing, one run after another, and print the tables."""
    parser = parser_of(__doc__, seeds=(5, "of each"), frames=(150_000, "of training"), episodes=(100, "played then"))
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--trial", nargs=2, metavar=("ARM", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trial is not None:
        train(args.trial[0], int(args.trial[1]), args.frames, args.episodes, args.base_dir)
        return
    results: dict[str, dict[int, Facts]] = {arm: {} for arm in args.only}
    lengths = ["--frames", str(args.frames), "--episodes", str(args.episodes)]
    for seed in range(args.seeds):
        for arm, of_arm in results.items():
            name = f"{arm}_{args.frames}_{seed}"
            if facts := played("benchmarks.studies.elite", (arm, str(seed)), args.base_dir, lengths, name):
                of_arm[seed] = facts
    pairs = [(arm, other) for arm in results for other in ("queue", "standard", "count")]
    for measure in ("training", "final"):
        print("\n" + table(measure, results, pairs, measure, ("updates", "cpu_seconds")))


if __name__ == "__main__":
    main()
