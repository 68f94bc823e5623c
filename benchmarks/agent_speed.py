"""Agent steps per second in steady state, side by side with other libraries, which do the same work per step.

Each contestant of `benchmarks.players.agents` has a process and, where it needs one, a Python of its own; all take
turns, a window of some steps at a time, after learning has begun. Each step emulates four frames, chooses an action by
a forward pass, stores a transition, and every fourth one learns from a batch of 32. In each contest all have the same
network, unless a name says otherwise. Rewards, scores and logs are not looked at. README.md in this folder tells how to
make the environments of the peers. A peer whose Python is not given is left out; Stable-Baselines3 ("SB3", with its own
Atari wrappers or, without its preprocessing, with ours) needs none.

    python -m benchmarks.agent_speed --agents dqn
    python -m benchmarks.agent_speed --cleanrl cleanrl/bin/python --cleanrl-rainbow rainbow_atari.py \
        --tianshou tianshou/bin/python --dopamine dopamine/bin/python
    python -m benchmarks.agent_speed --agents options options_cartpole --threads 1 [--only overlap]

Two contests are among ours: what `Runner.overlap` (an update is computed in a thread while the environment steps on),
`DQNAgent.compile` (needs a C++ compiler, and minutes before the first window) and `Runner.threads = 2`, the other use
that an update can make of a second core, are worth to DQN on Pong, and overlap on CartPole. An update under way when a
turn ends is finished outside of it: of a hundred updates, one.

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

from benchmarks.measuring import Samples, chosen, contest, parser_of, print_hold, print_load, print_table, ratios

OURS = "ours"


class Contest(NamedTuple):
    """An agent, by whom it is played, and what ours is held to.

    Attributes:
        agent: What is played.
        players: By name, the library that plays, and what it is told besides.
        peers: Those that ours is held against, of `players`.
        least: The ratio of our steps per second to those of the fastest of them; None where nothing is held.
    """

    agent: str
    players: Mapping[str, str]
    peers: tuple[str, ...] = ()
    least: float | None = None


_DQN = {OURS: "ours", "ours, bf16": "ours bf16", "ours, plain memory format": "ours plain"}
_SB3 = {"SB3": "sb3", "SB3, our environment": "sb3 our_environment"}
_RAINBOW = {OURS: "ours", "ours, bf16": "ours bf16", "ours, own network": "ours own_network"}
_OPTIONS = {"overlap": "ours overlap", "compiled": "ours compile"}
_THREADS = {"2 threads": "ours 2_threads", "2 threads, overlap": "ours 2_threads overlap"}
CONTESTS: Mapping[str, Contest] = {
    "dqn": Contest("dqn", {**_DQN, **_SB3, "CleanRL": "cleanrl"}, ("SB3", "CleanRL"), 1.3),
    "full_rainbow": Contest(
        "full_rainbow", {**_RAINBOW, "CleanRL": "cleanrl", "Tianshou": "tianshou"}, ("CleanRL", "Tianshou"), 1.5
    ),
    "rainbow": Contest("rainbow", {**_RAINBOW, "Dopamine": "dopamine"}, ("Dopamine",)),
    "options": Contest("dqn", {OURS: "ours", **_OPTIONS, **_THREADS}),
    "options_cartpole": Contest("dqn_cartpole", {OURS: "ours", "overlap": "ours overlap"}),
}


def command_of(agent: str, how: str, threads: int, args: argparse.Namespace) -> list[str]:
    """Return what runs a player; empty where its Python is not given."""
    library, *words = how.split()
    python = sys.executable if library in ("ours", "sb3") else getattr(args, library)
    if library == "cleanrl" and agent == "full_rainbow":
        words = [args.cleanrl_rainbow]
    if python is None or None in words:
        return []
    threads = 2 if "2_threads" in words else threads
    told = [library, agent, str(threads), str(args.learning_starts), *words]
    return [python, "-m", "benchmarks.players.agents", *told]


def compete(name: str, threads: int, args: argparse.Namespace) -> None:
    """Let all players of a contest take turns, and print the tables."""
    agent, players = CONTESTS[name].agent, CONTESTS[name].players
    wanted = [OURS, *(each for each in chosen(players, args.only) if each != OURS)]
    commands = {each: command_of(agent, players[each], threads, args) for each in wanted}
    commands = {each: words for each, words in commands.items() if words and not (args.brief and "," in each)}
    walls, cpus = contest(commands, args.steps, args.learning_starts + 100, args.rounds)
    for samples, unit in ((walls, "second"), (cpus, "processor second")):
        print_against(f"{name}, {threads} thread(s), agent steps per {unit}", samples, CONTESTS[name])
    print_load()


def print_against(title: str, samples: Samples, held: Contest) -> None:
    """Print a table of ratios to the fastest peer, our ratio to each peer, and whether it was held."""
    present = [peer for peer in held.peers if peer in samples]
    best = max(present, key=lambda peer: statistics.median(samples[peer]), default=OURS)
    print_table(title, samples, best, digits=1)
    for peer in present:
        per_round = ratios(samples, OURS, peer)
        print(f"{OURS} / {peer}: {statistics.median(per_round):.2f} ({min(per_round):.2f} .. {max(per_round):.2f})")
    if present and held.least is not None:
        print_hold(f"{title}: {OURS} / {best}", statistics.median(ratios(samples, OURS, best)), least=held.least)


def main() -> None:
    parser = parser_of(
        __doc__,
        threads=((1, 2), "numbers of threads to measure"),
        rounds=(5, "interleaved windows, after one that does not count"),
        steps=(80, "agent steps per window, a multiple of 4"),
        learning_starts=(1000, "agent steps before learning begins"),
        brief=(False, "each library once: no row with a comma in its name"),
        cleanrl=(str, "the Python that CleanRL is installed for"),
        cleanrl_rainbow=(str, "CleanRL's rainbow_atari.py"),
        tianshou=(str, "the Python that Tianshou is installed for"),
        dopamine=(str, "the Python that Dopamine is installed for"),
    )
    parser.add_argument("--agents", nargs="+", default=["dqn", "full_rainbow", "rainbow"], choices=list(CONTESTS))
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of players, beside ours")
    args = parser.parse_args()
    if args.steps % 4:
        parser.error(f"--steps must be a multiple of 4, the update period, got {args.steps}")
    for threads in args.threads:
        for name in args.agents:
            compete(name, threads, args)


if __name__ == "__main__":
    main()
