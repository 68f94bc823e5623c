"""How fast priorities are set and batches drawn by them, and what a million Atari transitions with priorities take.

The first part compares an update of a batch's priorities, followed by the draw of the next batch with its weights,
at a capacity of a million, with cpprb's and TorchRL's, which are written in C++. The contestants are those of
`benchmarks.studies.prioritized_players`; each has a process of its own, and all take turns. The peers live in virtual
environments of their own:

    python -m venv cpprb && cpprb/bin/pip install cpprb==11.0.0
    python -m venv torchrl && torchrl/bin/pip install torch==2.13.0 torchrl==0.14.1
    python -m benchmarks.studies.prioritized_replay --cpprb cpprb/bin/python --torchrl torchrl/bin/python

A peer whose Python is not given is left out; one whose C++ was built for another PyTorch must be compiled again. The
second part measures our replay alone, on 84 x 84 frames in stacks of four: its memory, and the same update and draw
with the frames put together.

Hold: update + draw <= 150 us at a batch of 32, with a capacity of a million, and with stacks of frames;
<= 7.2 GB (10^9 bytes) for 1 M transitions.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np

from benchmarks.interleave import interleave, print_hold, print_load, print_table
from benchmarks.replay import BATCH, Ours, fill, million_bytes

OURS = "ours"
BATCHES = (32, 512)


class Player:
    """A contestant in a process of its own.

    Args:
        name: Of `benchmarks.studies.prioritized_players.PLAYERS`.
        python: The interpreter that its library is installed for.
        calls: Updates and draws per burst.
    """

    def __init__(self, name: str, python: str, calls: int) -> None:
        command = [python, "-m", "benchmarks.studies.prioritized_players", name]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._name, self._command, self._calls = name, command, calls
        self.batch_size = BATCHES[0]
        self.split: dict[int, list[tuple[float, float]]] = {batch_size: [] for batch_size in BATCHES}
        while self._answer() != ["ready"]:
            pass  # what a library says when it is imported

    def close(self) -> None:
        """Close the pipe, on which the process ends."""
        self._process.communicate()

    def _answer(self) -> list[str]:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"{self._name!r} died: run {' '.join(self._command)} to see why")
        return answer

    def __call__(self) -> float:
        """Return the microseconds of an update and a draw, both medians of a burst; each alone is kept."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self.batch_size} {self._calls}\n")
        self._process.stdin.flush()
        update, sample = map(float, self._answer())
        self.split[self.batch_size].append((update, sample))
        return update + sample


def compete(pythons: dict[str, str], rounds: int, calls: int) -> None:
    """Fill all contestants, let them take turns at each batch size, and print the tables."""
    players: dict[str, Player] = {}
    try:
        for name, python in pythons.items():
            players[name] = Player(name, python, calls)
        for batch_size in BATCHES:
            for player in players.values():
                player.batch_size = batch_size
            both = interleave(players, rounds)
            print_table(f"update + sample({batch_size}), us", both, OURS, digits=1)
            for name, player in players.items():
                update, sample = (statistics.median(column) for column in zip(*player.split[batch_size], strict=True))
                print(f"{name:10} update {update:.1f} us, sample {sample:.1f} us")
            if batch_size == BATCH:
                print_hold(f"us for update + sample({BATCH}), 1 M", statistics.median(both[OURS]), most=150)
    finally:
        for player in players.values():
            player.close()


def measure_frames(size: int, calls: int) -> None:
    """Print the memory of our replay of frames, and the time of an update and a draw."""
    ours = Ours(size, prioritized=True)
    fill("ours, prioritised", ours)
    rng = np.random.default_rng(0)
    seconds = []
    index = ours.replay.sample()["index"]
    for _ in range(calls):
        priority = rng.random(BATCH) + 0.01
        begin = time.perf_counter()
        ours.replay.set_priorities(index, priority)
        index = ours.replay.sample()["index"]
        seconds.append(time.perf_counter() - begin)
    microseconds = 1e6 * np.array(seconds)
    print(f"update + sample({BATCH}) of stacks, 90th percentile: {np.percentile(microseconds, 90):.0f} us")
    print_hold(f"us for update + sample({BATCH}) of stacks, median", float(np.median(microseconds)), most=150)
    print_hold("GB for 1 M transitions", million_bytes(prioritized=True) / 1e9, most=7.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpprb", metavar="PYTHON", help="the Python that cpprb is installed for")
    parser.add_argument("--torchrl", metavar="PYTHON", help="the Python that TorchRL is installed for")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved bursts")
    parser.add_argument("--calls", type=int, default=200, help="updates and draws per burst")
    parser.add_argument("--transitions", type=int, default=100_000, help="of frames, in the second part")
    args = parser.parse_args()
    peers = {"cpprb": args.cpprb, "TorchRL": args.torchrl}
    given = {name: python for name, python in peers.items() if python}
    compete({OURS: sys.executable, "ours, iid": sys.executable, **given}, args.rounds, args.calls)
    measure_frames(args.transitions, 10 * args.calls)
    print_load()


if __name__ == "__main__":
    main()
