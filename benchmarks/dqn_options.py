"""What options of DQN are worth on a CPU: agent steps per second of wall-clock time, against the agent as it is.

* ``overlap``: ``Runner.overlap = True``, an update is computed in a thread while the environment steps on.
* ``compiled``: ``DQNAgent.compile = True``, networks go through ``torch.compile``; needs a C++ compiler, and minutes
  before the first window.
* ``2 threads``: ``Runner.threads = 2`` without either, the other use that an update can make of a second core.

They play Pong with the Nature network as `benchmarks.dqn_players` says, or CartPole with the small one of
configs/dqn/cartpole.gin, each in a process of its own, and take turns of some hundred steps. An update under way when a
turn ends is finished outside of it: of a hundred updates, one.

Where cores are shared, put ``OMP_WAIT_POLICY=passive`` before the command, as for `benchmarks.dqn_speed`.

    python -m benchmarks.dqn_options
"""

from __future__ import annotations

import argparse

from benchmarks.dqn_players import LEARNING_STARTS
from benchmarks.dqn_speed import Player
from benchmarks.interleave import interleave, print_load, print_table

BASE = "as it is"
CONTESTANTS = {  # label: (player, threads)
    "Pong": {
        BASE: ("as it is", 1),
        "overlap": ("overlap", 1),
        "compiled": ("compiled", 1),
        "2 threads": ("as it is", 2),
        "2 threads, overlap": ("overlap", 2),
    },
    "CartPole": {BASE: ("CartPole", 1), "overlap": ("CartPole, overlap", 1)},
}


def compete(game: str, options: list[str], rounds: int, steps: int) -> None:
    """Warm all up that play the game, let them take turns, and print the tables."""
    players: dict[str, Player] = {}
    try:
        for label, (name, threads) in CONTESTANTS[game].items():
            if label == BASE or label in options:
                players[label] = Player(name, threads, steps)
                players[label].play(LEARNING_STARTS + 100)
        walls = interleave(players, rounds)
    finally:
        for player in players.values():
            player.close()
    processor = {label: player.per_processor_second[-rounds:] for label, player in players.items()}
    print_table(f"{game}, agent steps per second", walls, BASE, digits=1)
    print_table(f"{game}, agent steps per processor second", processor, BASE, digits=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved windows")
    parser.add_argument("--steps", type=int, default=400, help="agent steps per window, a multiple of 4")
    parser.add_argument("--games", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    parser.add_argument("--options", nargs="+", default=list(CONTESTANTS["Pong"]), choices=list(CONTESTANTS["Pong"]))
    args = parser.parse_args()
    if args.steps % 4:
        parser.error(f"--steps must be a multiple of 4, the update period, got {args.steps}")
    for game in args.games:
        compete(game, args.options, args.rounds, args.steps)
    print_load()


if __name__ == "__main__":
    main()
