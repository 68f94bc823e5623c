"""Agent steps per second in steady state, side by side with other libraries, which do the same work per step.

Each contestant, of `benchmarks.players` or `benchmarks.dqn_players`, has a process and, where it needs one, a Python
of its own; all take turns, a window of some steps at a time, after learning has begun. Each step emulates four frames,
chooses an action by a forward pass, stores a transition, and every fourth one learns from a batch of 32. The game, the
update ratio and the replay are those that `benchmarks.players.turnstile` lists; in each contest all have the same
network, unless a name says otherwise. Rewards, scores and logs are not looked at. README.md in this folder tells how to
make the environments of the peers. A peer whose Python is not given is left out.

    python -m benchmarks.agent_speed --cleanrl cleanrl/bin/python --cleanrl-rainbow rainbow_atari.py \
        --tianshou tianshou/bin/python --dopamine dopamine/bin/python

Printed are steps per second of wall-clock time, and of processor time, which other jobs on the machine disturb less.
Two threads want two idle cores: threads that wait for each other spin. Where cores are shared, put
``OMP_WAIT_POLICY=passive``, which all contestants inherit, before the command, or it takes many times as long.

Hold, in fp32, on 1 and on 2 threads: DQN makes >= 1.3 times the steps of the best peer, full Rainbow >= 1.5 times. bf16
is a row of its own: it is another arithmetic.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.dqn_players import LEARNING_STARTS
from benchmarks.interleave import Samples, interleave, print_hold, print_load, print_table, ratios
from benchmarks.player import Player

OURS = "ours"
DQN_PLAYERS = "dqn_players"  # which need no Python of their own


class Contest(NamedTuple):
    """An agent, by whom it is played, and what ours is held to.

    Attributes:
        players: By name, the library that plays, and what it is told besides.
        peers: Those that ours is held against, of `players`.
        least: The ratio of our steps per second to those of the fastest of them; None where nothing is held.
    """

    players: Mapping[str, tuple[str, ...]]
    peers: tuple[str, ...]
    least: float | None


CONTESTS: Mapping[str, Contest] = {
    "dqn": Contest(
        {
            OURS: (DQN_PLAYERS, "ours, channels_last"),
            "ours, bf16": (DQN_PLAYERS, "ours, channels_last bf16"),
            "SB3": (DQN_PLAYERS, "SB3"),
            "CleanRL": ("cleanrl",),
        },
        ("SB3", "CleanRL"),
        1.3,
    ),
    "full_rainbow": Contest(
        {
            OURS: ("ours",),
            "ours, bf16": ("ours", "bf16"),
            "ours, own network": ("ours", "own_network"),
            "CleanRL": ("cleanrl",),
            "Tianshou": ("tianshou",),
        },
        ("CleanRL", "Tianshou"),
        1.5,
    ),
    "rainbow": Contest(
        {
            OURS: ("ours",),
            "ours, bf16": ("ours", "bf16"),
            "ours, own network": ("ours", "own_network"),
            "Dopamine": ("dopamine",),
        },
        ("Dopamine",),
        None,
    ),
}


def learning_starts_of(agent: str, args: argparse.Namespace) -> int:
    """Return the agent steps before learning begins; `benchmarks.dqn_players` has a number of its own."""
    return LEARNING_STARTS if agent == "dqn" else int(args.learning_starts)


def command_of(agent: str, name: str, threads: int, args: argparse.Namespace) -> list[str]:
    """Return what runs a player; empty where its Python is not given."""
    module, *how = CONTESTS[agent].players[name]
    if module == DQN_PLAYERS:
        return [sys.executable, "-m", "benchmarks.dqn_players", *how, str(threads)]
    python = sys.executable if module == "ours" else getattr(args, module)
    if module == "cleanrl" and agent == "full_rainbow":
        if args.cleanrl_rainbow is None:
            return []
        how = [args.cleanrl_rainbow]
    if python is None:
        return []
    return [
        python,
        "-m",
        f"benchmarks.players.{module}",
        agent,
        str(threads),
        str(learning_starts_of(agent, args)),
        *how,
    ]


def compete(agent: str, threads: int, args: argparse.Namespace) -> None:
    """Warm all players of a contest up, let them take turns, and print the tables."""
    commands = {name: command_of(agent, name, threads, args) for name in CONTESTS[agent].players}
    names = [name for name, command in commands.items() if command and not (args.brief and name.count(","))]
    players: dict[str, Player] = {}
    try:
        for name in names:  # one after the other: warming up together would only make each wait
            players[name] = Player(commands[name], args.steps)
            players[name].play(learning_starts_of(agent, args) + 40)
        walls = interleave(players, args.rounds)
    finally:
        for player in players.values():
            player.close()
    cpus = {name: player.per_processor_second[-args.rounds :] for name, player in players.items()}
    for samples, unit in ((walls, "second"), (cpus, "processor second")):
        print_against(f"{agent}, {threads} thread(s), agent steps per {unit}", samples, agent)
    print_load()


def print_against(title: str, samples: Samples, agent: str) -> None:
    """Print a table of ratios to the fastest peer, our ratio to each peer, and whether it was held."""
    contest = CONTESTS[agent]
    present = [peer for peer in contest.peers if peer in samples]
    best = max(present, key=lambda peer: statistics.median(samples[peer]), default=OURS)
    print_table(title, samples, best, digits=1)
    for peer in present:
        per_round = ratios(samples, OURS, peer)
        print(f"{OURS} / {peer}: {statistics.median(per_round):.2f} ({min(per_round):.2f} .. {max(per_round):.2f})")
    if present and contest.least is not None:
        print_hold(f"{title}: {OURS} / {best}", statistics.median(ratios(samples, OURS, best)), least=contest.least)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(CONTESTS), choices=list(CONTESTS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads to measure")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved windows, after one that does not count")
    parser.add_argument("--steps", type=int, default=80, help="agent steps per window, a multiple of 4")
    parser.add_argument(
        "--learning-starts", type=int, default=LEARNING_STARTS, help="agent steps before learning begins, but for DQN"
    )
    parser.add_argument("--brief", action="store_true", help="each library once: no row with a comma in its name")
    parser.add_argument("--cleanrl", metavar="PYTHON", help="the Python that CleanRL is installed for")
    parser.add_argument("--cleanrl-rainbow", metavar="FILE", help="CleanRL's rainbow_atari.py")
    parser.add_argument("--tianshou", metavar="PYTHON", help="the Python that Tianshou is installed for")
    parser.add_argument("--dopamine", metavar="PYTHON", help="the Python that Dopamine is installed for")
    args = parser.parse_args()
    if args.steps % 4:
        parser.error(f"--steps must be a multiple of 4, the update period, got {args.steps}")
    for threads in args.threads:
        for agent in args.agents:
            compete(agent, threads, args)


if __name__ == "__main__":
    main()
