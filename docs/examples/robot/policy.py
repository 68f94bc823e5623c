"""The arm's policy: the actor that SAC has trained, computed in NumPy, and slow on purpose.

``python -m async_wrappers serve policy:make_policy`` serves it. ``python policy.py RUN`` writes its weights,
``arm.npz``, from a run of ``train.py --gin_files docs/examples/robot/arm.gin``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from async_wrappers import LogNormal

WEIGHTS = Path(__file__).with_name("arm.npz")
LATENCY = 60.0  # milliseconds of one inference, as of a large network; `robot.py --latency-ms` sets another one
CV = 0.0  # coefficient of variation of that, log-normal; `robot.py --cv` sets another one


class Released(NamedTuple):
    action: np.ndarray
    state: np.ndarray


class Policy:
    """The mean of SAC's Gaussian, squashed: observations [10] and the last actions to an action [2].

    It is a policy in two halves (`async_wrappers.policy.SplitPolicy`). The server encodes, which takes its time here
    and changes nothing. The arm's side releases, microseconds before an action is due: it knows by then which actions
    the arm has received since the observation.
    """

    def __init__(self, path: str | Path = WEIGHTS, latency_ms: float = LATENCY, cv: float = CV) -> None:
        with np.load(path) as arrays:
            self.layers = [(arrays[f"weight{k}"], arrays[f"bias{k}"]) for k in range(3)]
        self.latency_ms, self.latencies = latency_ms, LogNormal(latency_ms / 1000 or 1e-9, cv).stream(os.getpid())
        self.blank = np.zeros(self.layers[0][0].shape[1] - 10, np.float32)  # the last actions, before there are any
        self.delay = len(self.blank) // 2  # frames, under which it was trained: it reads as many actions [2]

    def encode(self, observation: Any, decision: Any) -> Any:
        time.sleep(self.latencies.draw() / 1e9)
        return observation

    def release(self, features: Any, memory: Any, decision: Any) -> Released:
        last = self.blank if memory.first else np.append(memory.state, memory.previous_action)[2:]  # oldest first
        (first, a), (second, b), (third, c) = self.layers
        hidden = np.maximum(first @ np.concatenate([features, last]) + a, 0)
        mean, _ = np.split(third @ np.maximum(second @ hidden + b, 0) + c, 2)  # _: logarithms of standard deviations
        return Released(np.tanh(mean).astype(np.float32), last.astype(np.float32))


def make_policy() -> Policy:
    return Policy(latency_ms=float(os.environ.get("ARM_LATENCY_MS", LATENCY)), cv=float(os.environ.get("ARM_CV", CV)))


def main(run: str) -> None:
    """Write the weights of a run's newest checkpoint."""
    import torch

    found = Path(run, "checkpoints").glob("ckpt.*")
    newest = max(found, key=lambda path: int(path.suffix[1:]), default=None)
    if newest is None:
        sys.exit(f"{run} must be the directory of a run (--base_dir), but there is no checkpoint in {run}/checkpoints")
    network = torch.load(newest, map_location="cpu", weights_only=True)["agent"]["learner"]["network"]
    arrays = {}
    for k, n in enumerate((0, 2, 4)):  # the linear layers
        for name in ("weight", "bias"):
            arrays[f"{name}{k}"] = network[f"actor.head.layers.{n}.{name}"].numpy()
    np.savez_compressed(WEIGHTS, **arrays)
    print(f"{WEIGHTS} now has the weights of {newest}; `git checkout {WEIGHTS}` brings ours back")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/examples/robot/policy.py RUN, the --base_dir of a run of arm.gin")
    main(sys.argv[1])
