"""Whether two versions of the project give the same results, bit for bit: an earlier commit beside the working tree.

Each case runs in both trees on the same machine and is compared by content: every array of the newest checkpoint
(weights, target network, optimiser, replay) by type, shape and SHA-256, without regard to its name or file, so that a
change of structure may rename; and the iterations' statistics without their times. A case that has learnt too little to
prove anything (updates, copies into the target network) fails.

    python -m benchmarks.same_results COMMIT [--only NAME]... [--jobs 2] [--before DIR [--fill]]

A live run cannot be repeated. The earlier commit plays two of them once, and both trees replay what was recorded: the
latencies of the inferences, on the virtual clock and in training; and the decisions of the trained agent, whose weights
both trees load.

With ``--before`` the results of the earlier commit are kept in a directory, so that the next comparison runs the
working tree alone; ``--fill`` runs what is missing there and compares nothing. A kept result is found again by the
commit, by all that the case says, by the recordings that it replays, and by the processor and the libraries, on which
the last bits depend.

Exit code 0: every case is equal. What differs is printed, for each case, as what only one of the two holds.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
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
FEWER = {  # what makes a case affordable; the two numbers differ so that exchanging them cannot go unseen
    "implicit_quantile": (
        "ImplicitQuantileAgent.num_tau_samples = 16",
        "ImplicitQuantileAgent.num_tau_prime_samples = 8",
    ),
}
TIMES = ("per_second", "seconds", "time")
LATENCIES, LIVE_RUN = "latencies.json", "live_run"  # what is recorded live, once for both trees
BOTH = "."  # the folder of the recordings
PATIENCE = 3_000  # seconds that one call of `train.py` may take


class CaseFailed(Exception):
    """A run ended with an error, or learnt too little to prove anything."""


@dataclass(frozen=True)
class Case:
    """A run of `train.py` in one or more calls with the same directory, or a script of its own.

    Attributes:
        gin_file: What is run.
        bindings: Of every call; ``{latencies}`` stands for the file of recorded latencies.
        calls: Further bindings of each call; more than one continues the run.
        updates: The run must have made at least so many.
        copies: The target network must have been copied at least so often.
        replays: The recordings that it depends on: `LATENCIES`, `BOTH` or none.
        script: Run in the place of `train.py`, with the directory of the recordings; prints JSON, which is compared.
    """

    gin_file: str = ""
    bindings: tuple[str, ...] = ()
    calls: tuple[tuple[str, ...], ...] = ((),)
    updates: int = 300
    copies: int = 2
    replays: str = ""
    script: str = ""


SHORT = ("Runner.num_iterations = 2", "Runner.report_episodes = 0")
CARTPOLE = (*SHORT, "Runner.training_steps = 2_000", "Runner.evaluation_steps = 500")
ATARI = (  # 1,500 decisions; an update on every fourth of those after 200, a copy after every 25th update
    "Runner.num_iterations = 1",
    "Runner.training_steps = 1_450",
    "Runner.evaluation_steps = 100",
    "Runner.max_steps_per_episode = 500",
    "DQNAgent.replay_capacity = 2_000",
)
DELAYED = (*CARTPOLE, "Runner.training_steps = 3_000", "RealtimeDelay.delay = 4", "RealtimeDelay.noops = 1")
DELAYED_ATARI = (
    *ATARI,
    "create_atari_environment.wrappers = [@RealtimeDelay]",
    "RealtimeDelay.delay = 2",
    "DQNAgent.min_replay_history = 200",
    "DQNAgent.target_update_period = 100",
)
RECORDED = (
    *CARTPOLE,
    "Runner.training_steps = 3_000",
    "RealtimeDelay.latency = @Trace()",
    "Trace.latencies = '{latencies}'",
)
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

recorded = Trace(Path(sys.argv[1]) / "latencies.json")
reports = []
for stagger in ("sequential", "none", "max_time", "expected_time", "tickets"):
    for name, latency in (("constant", 0.060), ("drawn", LogNormal(mean=0.060, cv=0.3)), ("recorded", recorded)):
        runner = AsyncRunner(
            lambda: gym.make("CartPole-v1"), lambda: lambda observation: int(observation[2] > 0), 4, 50, stagger,
            backend="virtual", latency=latency, default_action="repeat", seed=3,
        )
        report = runner.run(episodes=20)
        decisions = [[span.worker, span.episode, span.start, span.effect] for span in report.spans]
        facts = report.to_dict()
        for renamed in ("encounter", "standing", "phase_state", "notes"):  # empty here; their names differ by version
            facts.pop(renamed, None)
        reports.append([f"{stagger}, {name} latencies", {**facts, "decisions": decisions}])
print(json.dumps(reports))
"""
REPLAYED = """
import json, sys
from pathlib import Path
try:
    from async_wrappers.agents.load import load_agent, play_episode
except ModuleNotFoundError:  # an earlier commit
    try:
        from async_wrappers.agents.experiment import load_agent, play_episode
    except ModuleNotFoundError:  # one of before 0.1.0
        from agents.experiment import load_agent, play_episode
from async_wrappers import RealtimeDelay
from async_wrappers.latency import Trace

agent, environment = load_agent(Path(sys.argv[1]) / "live_run")
latency = Trace(Path(sys.argv[1]) / "latencies.json")
environment = RealtimeDelay(environment, latency=latency, workers=4, fps=50, default_action="repeat")
actions, step = [], environment.step

def recorded_step(action):
    actions.append(int(action))
    return step(action)

environment.step = recorded_step
reports = []
for number in range(10):
    episode = play_episode(agent, environment, seed=number)
    reports.append([f"episode {number}", {"return": episode.score, "frames": episode.frames, "actions": [*actions]}])
    actions.clear()
print(json.dumps(reports))
"""
LIVE = """
import json
import time
import warnings
import gymnasium as gym
from async_wrappers import AsyncRunner

def policy(observation):
    time.sleep(0.02 + 0.05 * abs(float(observation[1])))
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
    dqn = "configs/dqn/cartpole.gin"
    found = {
        "default": Case(
            "configs/default.gin",
            (*SHORT, "Runner.training_steps = 20_000", "Runner.max_steps_per_episode = 2_000"),
            updates=2_000,
        ),
        "delayed": Case(dqn, DELAYED),
        "delayed on Atari": Case("configs/dqn/atari.gin", DELAYED_ATARI),
        "random latencies": Case("configs/staggered.gin", CARTPOLE),
        "recorded latencies": Case("configs/staggered.gin", RECORDED, replays=LATENCIES),
        "dict observations": Case("configs/dqn/falling_blocks.gin", DICTS),
        "overlap": Case(dqn, (*CARTPOLE, "Runner.overlap = True"), updates=700),
        "prioritised": Case(dqn, (*CARTPOLE, "DQNAgent.replay_scheme = 'prioritized'"), updates=700),
        "reservoir": Case(
            dqn,
            (*CARTPOLE, "DQNAgent.replay_eviction = 'reservoir'", "DQNAgent.replay_capacity = 1_000"),
            updates=700,
        ),
        "continued": Case(
            "configs/rainbow/cartpole.gin", CARTPOLE, (("Runner.num_iterations = 1",), ("Runner.num_iterations = 2",))
        ),
        "virtual clock": Case(script=VIRTUAL, replays=LATENCIES),
        "live decisions replayed": Case(script=REPLAYED, replays=BOTH),
    }
    for folder, name in AGENTS.items():
        found[f"{folder} on CartPole"] = Case(f"configs/{folder}/cartpole.gin", CARTPOLE, updates=700)
        own = (f"{name}.min_replay_history = 200", f"{name}.target_update_period = 100", f"{name}.update_period = 4")
        found[f"{folder} on Atari"] = Case(f"configs/{folder}/atari.gin", (*ATARI, *own, *FEWER.get(folder, ())))
    return found


def record(tree: Path, directory: Path) -> None:
    """Play live what the cases replay, unless it was recorded before: inference latencies, and a short training run."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / LATENCIES).is_file():
        with tempfile.TemporaryDirectory() as place:
            script = Path(place) / "live.py"
            script.write_text(LIVE)
            _write_whole(directory / LATENCIES, _call([sys.executable, str(script)], tree))
    if not (directory / LIVE_RUN).is_dir():
        unfinished = directory / f"{LIVE_RUN}.tmp"
        shutil.rmtree(unfinished, ignore_errors=True)
        short = ("Runner.num_iterations = 1", "Runner.training_steps = 1_000", "Runner.evaluation_steps = 200")
        _train(tree, unfinished, "configs/live/cartpole.gin", short)
        unfinished.rename(directory / LIVE_RUN)


def run(tree: Path, case: Case, directory: Path, recordings: Path) -> dict[str, Any]:
    """Run a case in a tree; return a count of each array and the statistics, or what the script printed.

    Raises:
        CaseFailed: It ended with an error, or with too few updates or copies.
    """
    if case.script:
        return {"printed": json.loads(_call([sys.executable, "-c", case.script, str(recordings)], tree))}
    latencies = str(recordings / LATENCIES)
    for further in case.calls:
        _train(
            tree, directory, case.gin_file, [b.replace("{latencies}", latencies) for b in (*case.bindings, *further)]
        )
    lines = [json.loads(line) for line in (directory / "metrics" / "iterations.jsonl").read_text().splitlines()]
    updates = sum(line["train_updates"] for line in lines)
    if updates < case.updates:
        raise CaseFailed(f"{case.gin_file} in {tree}: {updates} updates, at least {case.updates} were wanted")
    copies = target_copies((directory / "config.gin").read_text(), updates)
    if copies < case.copies:
        raise CaseFailed(f"{case.gin_file} in {tree}: {copies} target copies, at least {case.copies} were wanted")
    return {
        "updates": updates,
        "copies": copies,
        "arrays": arrays(directory / "checkpoints"),
        "lines": [_without_times(line) for line in lines],
    }


def target_copies(config: str, updates: int) -> int:
    """Return how often the target network was copied, by the periods in the configuration that the run saved.

    Where several agents of a family show a period, the answer is the least that they allow.
    """
    read = config.partition("# Bound, but not used")[0]
    periods = {
        name: [int(value) for value in re.findall(rf"^\w+\.{name} = ([\d_]+)$", read, re.MULTILINE)]
        for name in ("update_period", "target_update_period")
    }
    if not all(periods.values()):
        raise CaseFailed(f"the saved configuration must hold update_period and target_update_period, got {periods}")
    return updates // max(1, round(max(periods["target_update_period"]) / min(periods["update_period"])))


def _train(tree: Path, directory: Path, gin_file: str, bindings: Sequence[str]) -> None:
    bound = [word for binding in bindings for word in ("--gin_bindings", binding)]
    _call([sys.executable, "train.py", "--base_dir", str(directory), "--gin_files", gin_file, *bound], tree)


def _call(command: Sequence[str], tree: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise CaseFailed(f"{' '.join(command)} in {tree} ended with {done.returncode}:\n{done.stderr[-3_000:]}")
    return done.stdout


def _write_whole(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text)
    unfinished.rename(path)


def _without_times(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not any(word in name for word in TIMES)}


def arrays(checkpoints: Path) -> Counter[str]:
    """Count the arrays of the newest checkpoint and of all replay files, each told by type, shape and SHA-256."""
    newest = max(checkpoints.glob("ckpt.*"), key=lambda path: int(path.suffix[1:]))
    counted = Counter(map(_digest, _leaves(torch.load(newest, map_location="cpu", weights_only=True))))
    segments = []
    for path in checkpoints.rglob("segment_*.npz"):
        with np.load(path, allow_pickle=False) as file:
            names = sorted(file.files, key=lambda name: int(name.rpartition("_")[2]))
            found = {name: file[name] for name in names}
        # A name ends in random letters; files of the same slots (a log and its snapshot) are put in order by content.
        slots = path.name.rpartition("_")[0]
        segments.append((slots, sorted(map(_digest, found.values())), found))
    rows: dict[str, list[Any]] = {}
    for _, _, found in sorted(segments, key=lambda segment: segment[:2]):
        for name, array in found.items():
            rows.setdefault(name.rpartition("_")[0], []).append(array)
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


class Kept:
    """The results of one commit, in files that the next comparison finds again.

    Args:
        directory: Of all commits.
        commit: Its full hash.
    """

    def __init__(self, directory: Path, commit: str) -> None:
        self.directory = directory / commit[:12]
        self.recordings = self.directory / "recorded"

    def path(self, name: str, case: Case) -> Path:
        """Return the file of a case; its name depends on all that the result depends on, but the commit."""
        parts = [repr(case), machine()]
        recorded = self.recordings / case.replays if case.replays else self.recordings / "nothing"
        for file in sorted(each for each in (recorded, *recorded.rglob("*")) if each.is_file()):
            parts.append(hashlib.sha256(file.read_bytes()).hexdigest())
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        return self.directory / f"{name.replace(' ', '_')}-{key}.json"

    def result(self, name: str, case: Case, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the kept result of a case, or make it and keep it."""
        path = self.path(name, case)
        if not path.is_file():
            _write_whole(path, json.dumps({"case": name, **make()}))
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept


def machine() -> str:
    """Return what the last bits of a result depend on besides the project: the processor and the libraries."""
    names = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else platform.processor()
    model = re.search(r"^model name\s*: (.*)$", names, re.MULTILINE)
    libraries = {name: version(name) for name in ("ale-py", "gin-config", "gymnasium", "numpy", "torch")}
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{model[1] if model else names} {capability} {platform.python_version()} {libraries}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say what only one of two results holds."""
    found = []
    if [what for what, _ in old.get("printed", [])] != [what for what, _ in new.get("printed", [])]:
        return ["the scripts printed results of different things"]
    for (what, report), (_, now_report) in zip(old.get("printed", []), new.get("printed", []), strict=True):
        if changed := [name for name in sorted({*report, *now_report}) if _differ(report, now_report, name)]:
            found.append(f"{what}: {', '.join(changed)}")
    old_arrays, new_arrays = Counter(old.get("arrays", {})), Counter(new.get("arrays", {}))
    found += [f"only before: {name}" for name in old_arrays - new_arrays]
    found += [f"only now: {name}" for name in new_arrays - old_arrays]
    for number, (before, now) in enumerate(zip(old.get("lines", []), new.get("lines", []), strict=False)):
        for name in sorted({*before, *now}):
            if _differ(before, now, name):
                found.append(f"iteration {number}, {name}: {before.get(name)} before, {now.get(name)} now"[:300])
    if len(old.get("lines", [])) != len(new.get("lines", [])):
        found.append("the numbers of iterations differ")
    return found


def _differ(before: Mapping[str, Any], now: Mapping[str, Any], name: str) -> bool:
    """Compare as text: NaN equals itself, and 0.0 is not -0.0."""
    return json.dumps(before.get(name, "missing")) != json.dumps(now.get(name, "missing"))


def extract(commit: str, place: Path) -> Path:
    """Write the files of a commit into a folder that is made; git keeps no record that a killed run would leave."""
    archived = subprocess.run(["git", "archive", "--format=tar", commit], check=True, cwd=ROOT, capture_output=True)
    place.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place


def compare(name: str, old: Future[dict[str, Any]], new: Future[dict[str, Any]] | None) -> bool:
    """Print how a case ended; return whether it was equal, or was run where nothing is compared."""
    try:
        before = old.result()
        different = [] if new is None else differences(before, new.result())
    except (CaseFailed, OSError, subprocess.TimeoutExpired) as error:
        print(f"FAILED   {name}\n           {error}", flush=True)
        return False
    what = "kept" if new is None else "DIFFERS" if different else "equal"
    counted = {"updates": before.get("updates"), "copies": before.get("copies")}
    counted["arrays"] = sum(before.get("arrays", {}).values())
    facts = ", ".join(f"{count} {kind}" for kind, count in counted.items() if count)
    print(f"{what:8} {name}{f' ({facts})' if facts else ''}", flush=True)
    for line in different[:12]:
        print(f"           {line}")
    return not different


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--only", action="append", default=[], help="part of a case's name")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, both trees' together")
    parser.add_argument("--before", type=Path, metavar="DIR", help="where the earlier commit's results are kept")
    parser.add_argument("--fill", action="store_true", help="only run what is missing there")
    arguments = parser.parse_args()
    if arguments.fill and arguments.before is None:
        parser.error("--fill needs --before, the directory that is to be filled")
    chosen = {
        name: case
        for name, case in cases().items()
        if not arguments.only or any(word in name for word in arguments.only)
    }
    if not chosen:
        parser.error(f"--only must be part of a case's name, of {', '.join(cases())}; got {', '.join(arguments.only)}")
    parsed = ["git", "rev-parse", "--verify", f"{arguments.commit}^{{commit}}"]
    commit = subprocess.run(parsed, check=True, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        kept = Kept((arguments.before or place / "kept").resolve(), commit)
        old_tree = extract(commit, place / "old")
        with ThreadPoolExecutor(arguments.jobs) as pool:
            record(old_tree, kept.recordings)
            futures: dict[str, tuple[Future[dict[str, Any]], Future[dict[str, Any]] | None]] = {}
            for name, case in chosen.items():

                def make(tree: Path, side: str, name: str = name, case: Case = case) -> dict[str, Any]:
                    return run(tree, case, place / "runs" / side / name.replace(" ", "_"), kept.recordings)

                futures[name] = (
                    pool.submit(kept.result, name, case, partial(make, old_tree, "old")),
                    None if arguments.fill else pool.submit(make, ROOT, "new"),
                )
            good = sum([compare(name, old, new) for name, (old, new) in futures.items()])
    print(f"{good} of {len(chosen)} cases are {'kept' if arguments.fill else 'equal'}")
    return 0 if good == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
