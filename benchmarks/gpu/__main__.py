"""What a GPU changes: whether it computes what the CPU does, how fast agents learn on it, how fast networks infer.

Four parts, of which each prints its table as soon as it has it:

* ``graphs``: whether CUDA graphs compute what eager updates do, bit for bit; how fast both are beside plain loops, also
  beside those captured by hand; how busy the device is. Alone it is what to run first on a GPU.
* ``right``: losses and gradients as on the CPU, losses that are checked late, bfloat16 by ``"auto"``, checkpoints from
  one device to the other and back, live workers, a policy server, a server of many environments, and `act_devices`.
* ``speed``: updates and agent steps per second beside plain loops of PyTorch with the same networks.
* ``latency``: an inference of the paper's networks, from 1 M to 1 B weights, at batch 1, as the file that ``python -m
  async_wrappers plan --networks FILE`` reads.

Nothing is downloaded. A part begins only while there is time for it, so the whole takes at most ``--minutes``.

    python -m benchmarks.gpu [PART ...] [--device cuda] [--minutes 8] [--json FILE] [--times FILE]

On a machine without a GPU ``--device cpu`` plays all of it with the CPU in the GPU's place, ``--brief`` with the fewest
repetitions: that is how its own tests run it. Exit code 0: everything that was tried is right.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.graphs import measure_graphs
from benchmarks.gpu.latency import SIZES, measure_latencies
from benchmarks.gpu.right import check_all
from benchmarks.gpu.speed import measure_speed
from benchmarks.measuring import print_load


class Left:
    """The time that is left.

    Args:
        seconds: Of the whole.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def __call__(self) -> float:
        """Return the seconds that are left."""
        return self._until - time.monotonic()


PARTS: Mapping[str, Callable[[str, Left, bool], Any]] = {
    "right": check_all,
    "graphs": measure_graphs,
    "latency": measure_latencies,
    "speed": measure_speed,
}
"""In the order in which they run: what is quick, and what the others rest on, comes first."""


def card(device: str) -> str:
    """Return the name of what `device` stands for."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} (CPU)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ...; cpu tries the script without a GPU")
    parser.add_argument("--minutes", type=float, default=8.0, help="of the whole, at most")
    parser.add_argument("--brief", action="store_true", help="the fewest repetitions and the smallest networks")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--times", metavar="FILE", help="write the table of latencies, for `networks --times`")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), help="networks whose latency is measured")
    args = parser.parse_args()
    if unknown := set(args.parts) - PARTS.keys():
        parser.error(f"parts must be of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {args.device} needs a GPU, and torch {torch.__version__} sees none: give --device cpu")
    left = Left(60 * args.minutes)
    found: dict[str, Any] = {
        "device": card(args.device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "gymnasium": version("gymnasium"),
    }
    print(", ".join(f"{name} {value}" for name, value in found.items()), flush=True)
    runs = {**PARTS, "latency": partial(measure_latencies, sizes=args.sizes)}
    for part, run in runs.items():
        if part in (args.parts or PARTS):
            found[part] = run(args.device, left, args.brief)
    print_load()
    if args.json is not None:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.times is not None:
        Path(args.times).write_text(json.dumps(found.get("latency", []), indent=1) + "\n", encoding="utf-8")
    rows = [*found.get("right", []), *found.get("graphs", {}).get("right", [])]
    wrong = [row["what"] for row in rows if not row["right"]]
    if wrong:
        sys.exit(f"not right: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
