"""The command line: ``python -m async_wrappers plan --latency-ms 120 --fps 60``, ``... probe CartPole-v1``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gymnasium.error import DependencyNotInstalled

from async_wrappers.cli import machine_commands as machines
from async_wrappers.cli import plan_command as plan
from async_wrappers.cli import score
from async_wrappers.cli.command_arguments import Parser, refuse_unwritable
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.printing import OwnCodeFailed, in_pipeline, let_all_be_printed, own_traceback

COMMANDS = ("plan", "probe", "score", "convert", "doctor", "serve")
_MOVED = {"workers": "plan --latencies-ms", "networks": "plan --networks"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after ``python -m async_wrappers``; None means those of this process.

    Returns:
        The exit code: 0, 1 where `probe` cannot tell the delay, or 130 where Ctrl-C has ended `score`.

    Raises:
        SystemExit: A usage error, with code 2 and one line on standard error, below the traceback of an error that
            the user's own code has raised; code 1 where `serve` has failed.
    """
    parser = _make_parser()
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in _MOVED:
        parser.error(f"the command {words[0]!r} is {_MOVED[words[0]]!r} now")
    options = parser.parse_args(words)
    try:
        for flag in ("json", "csv", "picture"):
            refuse_unwritable(f"--{flag}", getattr(options, flag, None))
        return options.run(options) or 0
    except BrokenPipeError:  # the reader of the output has ended, which is no usage error
        raise
    except RunFailed as error:
        parser.exit(1, f"{parser.prog} {options.command}: {error}\n")
    except (ValueError, OSError, DependencyNotInstalled) as error:
        if isinstance(error, OwnCodeFailed) and error.__cause__ is not None:
            print(own_traceback(error.__cause__), end="", file=sys.stderr)
        parser.exit(2, f"{parser.prog} {options.command}: {error}\n")


def _make_parser() -> Parser:
    parser = Parser(prog="python -m async_wrappers", description="Make any Gymnasium environment realtime.")
    commands = parser.add_subparsers(dest="command", required=True, metavar=f"{{{','.join(COMMANDS)}}}")
    plan.add(commands)
    machines.add_probe(commands)
    score.add(commands)
    machines.add_convert(commands)
    machines.add_doctor(commands)
    machines.add_serve(commands)
    return parser


if __name__ == "__main__":
    let_all_be_printed()
    sys.exit(in_pipeline(main))
