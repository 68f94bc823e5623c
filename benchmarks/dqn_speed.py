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

from benchmarks.dqn_players import LEARNING_STARTS, PLAYERS
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table
from benchmarks.player import Player, dqn_player

OURS, PEER = "ours, channels_last", "SB3"


def compete(names: list[str], threads: int, rounds: int, steps: int) -> None:
    """Warm all players up, let them take turns, and print the tables."""
    players: dict[str, Player] = {}
    try:
        for name in names:  # one after the other: warming up together would only make each wait
            players[name] = dqn_player(name, threads, steps)
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
