"""What the pool of a sweep costs: idle time between trials, and the parent's own CPU. Hold: together <= 5 %.

python -m benchmarks.studies.sweep_pool [--trials 12] [--seconds 3] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle

from async_wrappers.agents.sweep.trial import run_pool

HOLD = 0.05


def nap(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
    """Do nothing for so many seconds."""
    time.sleep(point["seconds"])
    return {"score": 0.0}


def main(trials: int, seconds: float, jobs: int) -> None:
    """Run trials that sleep, and print the shares of the time that was lost."""
    times: dict[Path, list[float]] = defaultdict(list)
    with TemporaryDirectory() as place:
        directories = [Path(place) / str(number) for number in range(trials)]
        for directory in directories:
            directory.mkdir()
        payloads = {each: cloudpickle.dumps((nap, {"seconds": seconds}, 0, each)) for each in directories}
        cpu = time.process_time()
        run_pool(payloads, jobs, None, lambda directory, _: times[directory].append(time.perf_counter()))
        cpu = time.process_time() - cpu
        asleep = sum(json.loads((each / "result.json").read_text())["seconds"] for each in directories)
    begins, ends = zip(*times.values(), strict=True)
    total = jobs * (max(ends) - min(begins))
    alive = sum(ends) - sum(begins)
    lost = (total - alive + cpu) / total
    print(f"{trials} trials of {seconds:g} s, {jobs} at a time, load average {os.getloadavg()[0]:.1f}")
    print(f"idle between trials  {(total - alive) / total:.2%}")
    print(f"the parent's CPU     {cpu / total:.2%}")
    print(f"together             {lost:.2%}  {'held' if lost <= HOLD else 'MISSED'} (<= {HOLD:.0%})")
    print(f"starting each trial's interpreter, which is part of the trial: {(alive - asleep) / trials:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    main(**vars(parser.parse_args()))
