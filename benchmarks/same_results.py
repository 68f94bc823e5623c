"""Whether two versions of the project give the same results, bit for bit: an earlier commit beside the working tree.

Each case runs in both trees, at the same time and on the same machine, and is compared by content: every array of the
newest checkpoint (weights, target network, optimiser, replay) by type, shape and SHA-256, without regard to its name or
file, so that a change of structure may rename; and the iterations' statistics without their times. A case that has
learnt too little to prove anything (updates, target copies) fails.

    python -m benchmarks.same_results COMMIT [--only NAME]... [--jobs 2]

Exit code 0: every case is equal. What differs is printed, for each case, as what only one of the two holds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
AGENTS = {  # the folder of its gin files, and the name of its class in gin
    "dqn": "DQNAgent",
    "c51": "C51Agent",
    "rainbow": "RainbowAgent",
    "full_rainbow": "FullRainbowAgent",
    "quantile": "QuantileAgent",
    "implicit_quantile": "ImplicitQuantileAgent",
}
TIMES = ("per_second", "seconds", "time")


@dataclass(frozen=True)
class Case:
    """A run of `train.py` in one or more calls with the same directory, or a script of its own.

    Attributes:
        gin_file: What is run.
        bindings: Of every call.
        calls: Further bindings of each call; more than one continues the run.
        updates: The run must have made at least so many.
        undone: Bindings of the working tree alone: they undo what its gin file has changed on purpose since the commit.
        script: Run in the place of `train.py`; prints JSON, which is compared.
    """

    gin_file: str = ""
    bindings: tuple[str, ...] = ()
    calls: tuple[tuple[str, ...], ...] = ((),)
    updates: int = 1
    undone: tuple[str, ...] = ()
    script: str = ""


SHORT = ("Runner.num_iterations = 2", "Runner.report_episodes = 0")
CARTPOLE = (*SHORT, "Runner.training_steps = 2_000", "Runner.evaluation_steps = 500")
ATARI = (  # 1,400 decisions, an update on every fourth of those after 200, a copy after every hundredth update
    "Runner.num_iterations = 1",
    "Runner.training_steps = 1_450",
    "Runner.evaluation_steps = 100",
    "Runner.max_steps_per_episode = 500",
    "DQNAgent.replay_capacity = 2_000",
    "DQNAgent.loss_type = 'huber'",
)
UNPADDED = ("NatureTorso.padding = 'valid'", "create_network.initializer = 'torch'")
DELAYED = (*CARTPOLE, "RealtimeDelay.delay = 4", "RealtimeDelay.noops = 1")
DICTS = (
    "Runner.num_iterations = 2",
    "Runner.report_episodes = 0",
    "Runner.training_steps = 2_000",
    "Runner.evaluation_steps = 500",
    "Runner.max_steps_per_episode = 1_000",
    'create_gym_environment.environment_kwargs = {"observation": "dict", "level": 9}',
    "DQNAgent.min_replay_history = 500",
    "DQNAgent.target_update_period = 100",
)
VIRTUAL = """
import json, sys
from pathlib import Path
import gymnasium as gym
from async_wrappers import AsyncRunner
from async_wrappers.latency import Trace, LogNormal

latencies = json.loads(Path(sys.argv[1]).read_text())
reports = []
for stagger in ("sequential", "none", "max_time", "expected_time", "tickets"):
    for latency in (0.060, LogNormal(mean=0.060, cv=0.3), Trace(latencies)):
        runner = AsyncRunner(
            lambda: gym.make("CartPole-v1"), lambda: lambda observation: int(observation[2] > 0), 4, 50, stagger,
            backend="virtual", latency=latency, default_action="repeat", seed=3,
        )
        reports.append([f"{stagger}, {latency!r:.30}", runner.run(episodes=20).to_dict()])
print(json.dumps(reports))
"""
LIVE = """
import json
import time
import warnings
import gymnasium as gym
from async_wrappers import AsyncRunner

def policy(observation):
    time.sleep(0.02 + 0.01 * abs(float(observation[0])))
    return int(observation[2] > 0)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    runner = AsyncRunner(
        lambda: gym.make("CartPole-v1"), lambda: policy, 4, 50, backend="thread", default_action="repeat"
    )
    report = runner.run(frames=300)
    print(json.dumps([(span.ended - span.began) / 1e9 for span in report.spans]))
"""


def cases() -> dict[str, Case]:
    """Return the cases by name."""
    found = {
        "default": Case(
            "configs/default.gin",
            (*SHORT, "Runner.training_steps = 20_000", "Runner.max_steps_per_episode = 2_000"),
            updates=2_000,
        ),
        "delayed": Case("configs/dqn/cartpole.gin", DELAYED, updates=200),
        "random latencies": Case("configs/staggered.gin", CARTPOLE, updates=200),
        "dict observations": Case("configs/dqn/falling_blocks.gin", DICTS, updates=300),
        "overlap": Case("configs/dqn/cartpole.gin", (*CARTPOLE, "Runner.overlap = True"), updates=700),
        "prioritised": Case("configs/dqn/cartpole.gin", (*CARTPOLE, "DQNAgent.replay_scheme = 'prioritized'")),
        "reservoir": Case(
            "configs/dqn/cartpole.gin",
            (*CARTPOLE, "DQNAgent.replay_eviction = 'reservoir'", "DQNAgent.replay_capacity = 1_000"),
            updates=700,
        ),
        "continued": Case(
            "configs/rainbow/cartpole.gin", CARTPOLE, (("Runner.num_iterations = 1",), ("Runner.num_iterations = 2",))
        ),
        "virtual clock": Case(script=VIRTUAL),
    }
    for folder, name in AGENTS.items():
        found[f"{folder} on CartPole"] = Case(f"configs/{folder}/cartpole.gin", CARTPOLE, updates=700)
        own = (f"{name}.min_replay_history = 200", f"{name}.target_update_period = 100", f"{name}.update_period = 4")
        found[f"{folder} on Atari"] = Case(f"configs/{folder}/atari.gin", (*ATARI, *own), updates=300, undone=UNPADDED)
    return found


def run(tree: Path, case: Case, directory: Path, latencies: Path) -> dict[str, Any]:
    """Run a case in a tree; return what it came to: a count of each array, and the statistics."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    if case.script:
        return {"printed": json.loads(_call([sys.executable, "-c", case.script, str(latencies)], tree, environment))}
    files = ["--base_dir", str(directory), "--gin_files", case.gin_file]
    for further in case.calls:
        undone = case.undone if tree == ROOT else ()
        bound = [word for binding in (*case.bindings, *further, *undone) for word in ("--gin_bindings", binding)]
        _call([sys.executable, "train.py", *files, *bound], tree, environment)
    lines = [json.loads(line) for line in (directory / "metrics" / "iterations.jsonl").read_text().splitlines()]
    updates = sum(line["train_updates"] for line in lines)
    if updates < case.updates:
        raise SystemExit(f"{case.gin_file} in {tree}: {updates} updates, {case.updates} were wanted")
    return {"arrays": arrays(directory / "checkpoints"), "lines": [_without_times(line) for line in lines]}


def _call(command: Sequence[str], tree: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=3_000)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} in {tree} ended with {done.returncode}:\n{done.stderr[-3_000:]}")
    return done.stdout


def _without_times(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not any(word in name for word in TIMES)}


def arrays(checkpoints: Path) -> Counter[str]:
    """Count the arrays of the newest checkpoint and of all replay files, each told by type, shape and SHA-256."""
    newest = max(checkpoints.glob("ckpt.*"), key=lambda path: int(path.suffix[1:]))
    counted = Counter(map(_digest, _leaves(torch.load(newest, map_location="cpu", weights_only=True))))
    rows: dict[str, list[Any]] = {}
    for path in sorted(checkpoints.rglob("segment_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            for name in sorted(file.files, key=lambda name: int(name.rpartition("_")[2])):
                rows.setdefault(name.rpartition("_")[0], []).append(file[name])
    for pieces in rows.values():  # the columns of the replay, whatever pieces they lie in
        if len({piece.shape[1:] for piece in pieces}) == 1:
            counted[_digest(np.concatenate(pieces))] += 1
    return counted


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value.detach().numpy()
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)


def _digest(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say what only one of two results holds."""
    found = []
    for before, now in zip(old.get("printed", []), new.get("printed", []), strict=True):
        (what, report), (_, now_report) = before, now
        changed = [name for name, value in report.items() if value != now_report.get(name)]
        if changed:
            found.append(f"{what}: {', '.join(changed)}")
    old_arrays, new_arrays = old.get("arrays", Counter()), new.get("arrays", Counter())
    found += [f"only before: {name}" for name in old_arrays - new_arrays]
    found += [f"only now: {name}" for name in new_arrays - old_arrays]
    for number, (before, now) in enumerate(zip(old.get("lines", []), new.get("lines", []), strict=False)):
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                found.append(f"iteration {number}, {name}: {before.get(name)} before, {now.get(name)} now"[:300])
    if len(old.get("lines", [])) != len(new.get("lines", [])):
        found.append("the numbers of iterations differ")
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--only", action="append", default=[], help="part of a case's name")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, both trees' together")
    arguments = parser.parse_args()
    chosen = {
        name: case
        for name, case in cases().items()
        if not arguments.only or any(part in name for part in arguments.only)
    }
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        old_tree = place / "old"
        subprocess.run(
            ["git", "worktree", "add", "-q", "--detach", str(old_tree), arguments.commit], check=True, cwd=ROOT
        )
        try:
            latencies = place / "latencies.json"  # of a live run, in seconds: one for both
            (place / "live.py").write_text(LIVE)
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            latencies.write_text(_call([sys.executable, str(place / "live.py")], place, environment))
            with ThreadPoolExecutor(arguments.jobs) as pool:
                futures = {
                    name: [
                        pool.submit(run, tree, case, place / "runs" / side / name.replace(" ", "_"), latencies)
                        for side, tree in (("old", old_tree), ("new", ROOT))
                    ]
                    for name, case in chosen.items()
                }
                for name, (old, new) in futures.items():
                    different = differences(old.result(), new.result())
                    failed += bool(different)
                    what = "DIFFERS" if different else "equal"
                    kinds = old.result().get("arrays", {})
                    print(f"{what:8} {name}{f' ({sum(kinds.values())} arrays)' if kinds else ''}", flush=True)
                    for line in different[:12]:
                        print(f"           {line}")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old_tree)], check=True, cwd=ROOT)
    print(f"{len(chosen) - failed} of {len(chosen)} cases are equal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
