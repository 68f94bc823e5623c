"""``score``: a policy of the user's on realtime MinAtar."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from async_wrappers.analysis.scoring import DELAYS, PLAYED, GameScore, score_policy
from async_wrappers.cli.command_arguments import add_json, function_named, tell
from async_wrappers.envs.minatar import MINATAR_GAMES


def add(commands: Any) -> None:
    """Add the command."""
    score = commands.add_parser("score", help="a policy of yours on realtime MinAtar, beside our scores")
    score.add_argument(
        "--policy",
        required=True,
        metavar="MODULE:FACTORY",
        help="a function of some or none of game, delay and env (for its spaces) that returns the policy: a function "
        "of the observation, or an object with Stable-Baselines3's predict",
    )
    score.add_argument(
        "--wrapper",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="wraps the delayed environment, such as gymnasium.wrappers:FlattenObservation; may be given again",
    )
    games = ", ".join(MINATAR_GAMES)
    score.add_argument("--games", nargs="+", default=MINATAR_GAMES, metavar="GAME", help=f"some of {games} (all)")
    frames = " ".join(map(str, DELAYS))
    score.add_argument("--delays", type=int, nargs="+", default=DELAYS, metavar="FRAMES", help=f"delays ({frames})")
    score.add_argument("--episodes", type=int, default=30, help="of each game at each delay (30)")
    score.add_argument("--seed", type=int, default=0, help="of the episodes, the same for each game and delay (0)")
    score.add_argument(
        "--way",
        choices=PLAYED,
        default=PLAYED[0],
        help=f"an action on every frame, or one every delay + 1 frames ({PLAYED[0]})",
    )
    score.add_argument(
        "--default-action", default="noop", metavar="ACTION", help="on the other frames: noop, repeat, random, 2 (noop)"
    )
    add_json(score)
    score.add_argument("--csv", metavar="FILE", help="write a row per episode")
    score.set_defaults(run=_score)


def _score(options: argparse.Namespace) -> int:
    """Print a policy's scores, and a line for each game and delay as they are played."""
    played: list[GameScore] = []

    def show(score: GameScore) -> None:
        played.append(score)
        print(score, file=sys.stderr, flush=True)

    action = options.default_action
    try:
        found = score_policy(
            function_named("--policy", options.policy, "my_policy:make_policy"),
            options.games,
            options.delays,
            options.way,
            options.episodes,
            seed=options.seed,
            default_action=int(action) if action.isdecimal() else action,
            wrappers=[
                function_named("--wrapper", name, "gymnasium.wrappers:FlattenObservation") for name in options.wrapper
            ],
            progress=show,
        )
    except KeyboardInterrupt:
        words = f"after {played[-1].game} at delay {played[-1].delay}" if played else "no game was played to its end"
        print(f"\ninterrupted: {words}", file=sys.stderr)
        return 130
    try:
        if options.csv is not None:
            found.to_csv(options.csv)
    finally:  # a full disk does not take the table too
        tell(found, {"policy": options.policy, **found.to_dict()}, options.json)
    return 0
