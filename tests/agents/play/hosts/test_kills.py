"""Twenty runs on hosts of a Ray cluster, of each of which something is killed at a moment drawn by its seed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from async_wrappers.ray_cluster import python_path

pytest.importorskip("ray", reason="the extra `ray` is not installed")

from ray.cluster_utils import Cluster  # of the extra

ROOT = Path(__file__).parents[4]
VICTIMS = "host", "raylet", "learner"
MODES = "rounds", "free"
BINDINGS = (
    "create_runner.schedule = 'hosts'",
    "Hosts.engine = 'ray'",
    "Hosts.host_timeout = 60.0",
    "VectorRunner.num_envs = 4",
    "VectorRunner.checkpoint_every = 1",
    "VTraceAgent.batch_size = 4",
    "MLPTorso.hidden = (8,)",
    "Runner.num_iterations = 5",
    "Runner.training_steps = 4_000",
    "Runner.evaluation_steps = 0",
    "Runner.evaluation_episodes = None",
    "Runner.report_episodes = 0",
)
LIMIT = 240.0  # seconds of a run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, where the learner is, and three nodes with a CPU each, of which two are needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("PYTHONPATH", python_path())
        small = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        for _ in range(3):
            cluster.add_node(num_cpus=1, **small)
        yield cluster
        cluster.shutdown()


def train(base_dir: Path, cluster: Cluster, mode: str) -> subprocess.Popen[str]:
    """Begin a run, or go on with it."""
    given = [*BINDINGS, f"Hosts.address = {cluster.address!r}", f"Hosts.mode = {mode!r}"]
    command = [sys.executable, "train.py", "--gin_files", "configs/vtrace/cartpole.gin", "--base_dir", str(base_dir)]
    for binding in given:
        command += ["--gin_bindings", binding]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def hosts() -> list[psutil.Process]:
    """The processes of Ray's that are hosts now."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "".join(process.info["cmdline"] or ()).startswith("ray::_RemoteHost"):
            found.append(process)
    return found


def blocks(base_dir: Path) -> list[dict[str, Any]]:
    """What the journal of a run says; its last line may be under way."""
    path = base_dir / "metrics" / "blocks.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def kill(victim: str, learner: subprocess.Popen[str], cluster: Cluster, draws: random.Random) -> None:
    if victim == "learner":
        learner.kill()
    elif victim == "host":
        draws.choice(sorted(hosts(), key=lambda process: process.pid)).send_signal(signal.SIGKILL)
    else:
        node = draws.choice(sorted(cluster.worker_nodes, key=lambda node: node.raylet_socket_name))
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)


@pytest.mark.timeout(3 * LIMIT)
@pytest.mark.parametrize("seed", range(20))
def test_a_run_ends_in_a_sentence_or_goes_on(tmp_path: Path, cluster: Cluster, seed: int) -> None:
    draws, victim, mode = random.Random(seed), VICTIMS[seed % 3], MODES[seed // 3 % 2]
    with train(tmp_path, cluster, mode) as learner:
        try:
            begin = time.monotonic()
            while not blocks(tmp_path) and learner.poll() is None:
                assert time.monotonic() - begin < LIMIT
                time.sleep(0.05)
            time.sleep(draws.uniform(0.0, 3.0))
            assert learner.poll() is None, "the run has ended before anything was killed"
            kill(victim, learner, cluster, draws)
            said, _ = learner.communicate(timeout=LIMIT)
        finally:
            learner.kill()
    print(f"seed {seed}: {victim} killed, {mode}: exit code {learner.returncode}")
    if victim != "learner":
        assert "Traceback" not in said, said
    if learner.returncode:
        with train(tmp_path, cluster, mode) as again:
            try:
                said, _ = again.communicate(timeout=LIMIT)
            finally:
                again.kill()
        assert again.returncode == 0, said
    learnt = [(block["host"], block["incarnation"], block["number"]) for block in blocks(tmp_path) if block["learnt"]]
    assert [key for key, times in Counter(learnt).items() if times > 1] == []
    assert len((tmp_path / "metrics" / "iterations.jsonl").read_text().splitlines()) == 5
    deadline = time.monotonic() + 30
    while hosts() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert hosts() == []
