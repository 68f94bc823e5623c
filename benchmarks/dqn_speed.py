"""Agent steps per second of DQN in steady state, against Stable-Baselines3's, with the same work per step.

Network, batch, update ratio, replay and environment are those that `benchmarks.dqn_players` lists. Each contestant has
a process of its own, and all take turns, a window of some hundred steps at a time, after learning has begun: each step
emulates four frames, chooses an action by a forward pass, stores a transition, and every fourth one learns. Rewards,
scores and logs are not looked at. "SB3" is Stable-Baselines3 with its own Atari wrappers; "SB3, our environment" has
ours instead, which hands over grey frames at once, so the difference between these two is the environments'.

Printed are steps per second of wall-clock time, and of processor time, which other jobs on the machine disturb less.
Two threads want two idle cores: threads that wait for each other spin. Where cores are shared, put
``OMP_WAIT_POLICY=passive``, which all contestants inherit, before the command, or it takes many times as long.

    python -m benchmarks.dqn_speed

Hold: ours in fp32 (channels_last) makes >= 1.3 times the steps of Stable-Baselines3, on 1 and on 2 threads. bf16 is a
row of its own: it is another arithmetic.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.dqn_players import LEARNING_STARTS, PLAYERS
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table

OURS, PEER = "ours, channels_last", "SB3"


class Player:
    """A contestant in a process of its own.

    Args:
        name: Of `PLAYERS`.
        threads: Intra-op threads.
        steps: Agent steps of one window.
    """

    def __init__(self, name: str, threads: int, steps: int) -> None:
        command = [sys.executable, "-m", "benchmarks.dqn_players", name, str(threads)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._name, self._steps = name, steps
        self.per_processor_second: list[float] = []

    def close(self) -> None:
        """Close the pipe, on which the process ends."""
        self._process.communicate()

    def play(self, steps: int) -> tuple[float, float]:
        """Return the wall-clock and the processor seconds of so many steps."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"go {steps}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"{self._name!r} died: run python -m benchmarks.dqn_players {self._name!r} 1 to see why")
        wall, cpu = map(float, answer)
        return wall, cpu

    def __call__(self) -> float:
        """Play a window and return its steps per second; those per processor second are kept."""
        wall, cpu = self.play(self._steps)
        self.per_processor_second.append(self._steps / cpu)
        return self._steps / wall


def compete(names: list[str], threads: int, rounds: int, steps: int) -> None:
    """Warm all players up, let them take turns, and print the tables."""
    players: dict[str, Player] = {}
    try:
        for name in names:  # one after the other: warming up together would only make each wait
            players[name] = Player(name, threads, steps)
            players[name].play(LEARNING_STARTS + 100)
        walls = interleave(players, rounds)
    finally:
        for player in players.values():
            player.close()
    cpus = {name: player.per_processor_second[-rounds:] for name, player in players.items()}
    print_table(f"{threads} thread(s), agent steps per second", walls, PEER, digits=1)
    print_table(f"{threads} thread(s), agent steps per processor second", cpus, PEER, digits=1)
    print_hold(f"{OURS} / {PEER}, {threads} thread(s)", median_ratio(walls, OURS, PEER), least=1.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved windows")
    parser.add_argument("--steps", type=int, default=400, help="agent steps per window, a multiple of 4")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads to measure")
    parser.add_argument("--players", nargs="+", default=list(PLAYERS), choices=list(PLAYERS))
    args = parser.parse_args()
    if args.steps % 4:
        parser.error(f"--steps must be a multiple of 4, the update period, got {args.steps}")
    if not {OURS, PEER} <= set(args.players):
        parser.error(f"--players must include {OURS!r} and {PEER!r}, which the hold compares")
    for threads in args.threads:
        compete(args.players, threads, args.rounds, args.steps)
    print_load()


if __name__ == "__main__":
    main()
