"""Each command: what it is for, its flags, and the module with its code.

No agent is imported here, so that a mistake in the flags is told before PyTorch is imported, which takes seconds.
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from async_wrappers.agents.cli.flags import FlagParser, at_least
from async_wrappers.agents.cli.run_log import LOG
from async_wrappers.agents.trained.agent_file import SUFFIX
from async_wrappers.files import path_of

ONNX = ".onnx"
OBSERVATIONS, EPISODES = 256, 100  # of an export, unless flags say how many


class Command(NamedTuple):
    """A command.

    Attributes:
        module: Has ``run(options)``.
        add_flags: Adds its flags; its documentation is what the command does.
    """

    module: str
    # Any for Parser: the site has two classes of that name.
    add_flags: Callable[[Any], None]


def parser_of(name: str) -> FlagParser:
    """Return the parser of a command."""
    add_flags = COMMANDS[name].add_flags
    parser = FlagParser(name, inspect.getdoc(add_flags) or "")
    add_flags(parser)
    return parser


def _train(parser: FlagParser) -> None:
    """Train an agent, or let a run go on; without --gin_files and a run, play the main job: a sweep and its figures."""
    _add_run_flags(parser, "directory of the run, new or to be continued; without it a new one in results/")


def _evaluate(parser: FlagParser) -> None:
    """Play evaluation episodes with a run's newest checkpoint, each that it writes, or an agent that ships."""
    _add_run_flags(parser, "directory of the run")
    _add_agent_flag(parser)
    parser.add_argument("--episodes", type=at_least(1), default=20, metavar="N", help="how many episodes (20)")
    parser.add_switch("render", "show the game in a window")
    parser.add_switch("video", "record each episode, in base_dir/videos, or in results/trained/NAME/videos")
    slow = "with --video: show each image N times as long; without it, short episodes are slowed to at least 5 s"
    parser.add_argument("--slow", type=at_least(1), metavar="N", help=slow)
    beside = "with --video: another run or agent, which plays the same episodes beside it"
    parser.add_argument("--beside", type=os.path.expanduser, metavar="DIR_OR_AGENT", help=beside)
    drawn = "draw actions from the policy (V-trace, IMPACT, PPO), where otherwise they are the likeliest"
    parser.add_switch("drawn", drawn)
    parser.add_switch("follow", "evaluate each new checkpoint until the run that writes ends")


def _export(parser: FlagParser) -> None:
    """Write a trained agent as ONNX, or as a file that `load_agent` plays, and check that file and agent act alike."""
    _add_run_flags(parser, "directory of the run")
    written = f"the file, {ONNX} or {SUFFIX}; of an agent with memory two ONNX files are named after it"
    parser.add_argument("--output", type=os.path.expanduser, metavar="FILE", help=written)
    shown = f"for {ONNX}: random observations that both are shown, and as many of the environment's ({OBSERVATIONS})"
    parser.add_argument("--observations", type=at_least(1), metavar="N", help=shown)
    scored = f"for {SUFFIX}: episodes of the agent and of random play for the score ({EPISODES})"
    parser.add_argument("--episodes", type=at_least(1), metavar="N", help=scored)
    parser.add_argument(
        "--licence", metavar="TEXT", help=f"for {SUFFIX}: that of the weights, such as MIT (none stated)"
    )
    told = f"for {SUFFIX}: the command that trained the agent (that of the run's {LOG}, without its --base_dir)"
    parser.add_argument("--command", metavar="TEXT", help=told)


def _sweep(parser: FlagParser) -> None:
    """Run a trial per point of a grid and seed, or the trials of --base_dir that are left."""
    grid = "axis, such as 'RealtimeDelay.delay = 1, 8', repeated; instead of Sweep.grid"
    parser.add_argument("--grid", action="append", default=[], metavar="AXIS", help=grid)
    seeds = "seeds per point; the same as binding Sweep.seeds"
    parser.add_argument("--seeds", type=at_least(1), metavar="N", help=seeds)
    parser.add_argument("--jobs", type=at_least(1), metavar="N", help="trials at a time (the cores that it may use)")
    parser.add_switch("retry_failed", "run trials again that failed before")
    only = "axis or arm of the grid: run the trials with these values, and leave the others to a later call; repeated"
    parser.add_argument("--only", action="append", default=[], metavar="AXIS", help=only)
    table = "results.csv of the same sweep on another machine, whose trials are not run again; repeated"
    parser.add_argument("--finished", action="append", default=[], type=path_of, metavar="TABLE", help=table)
    parser.add_argument("--engine", default="local", metavar="NAME", help="local, or ray (the extra `ray`)")
    parser.add_argument("--address", metavar="ADDRESS", help="address of a Ray cluster (one of this machine's own)")
    new = "directory of the sweep, new or to be continued; without it a new one in results/"
    _add_run_flags(parser, new, seed=False)
    parser.refused["--seed"] = "is for one run: a sweep derives its seeds; say how many with --seeds"


def _plot(parser: FlagParser) -> None:
    """Draw the figures of a sweep, with a page of the numbers; or one of runs, sweeps and tables (CSV) together."""
    what = "directory of a sweep, of a run, or that holds runs; or a CSV with named columns; several are one figure"
    parser.add_word("DIR", what, many=True)
    _add_score_flags(parser)
    parser.add_switch("wins", "draw the share of episodes that were won, not their returns")
    parser.add_argument(
        "--output",
        type=os.path.expanduser,
        metavar="DIR",
        help="where the figure goes (figures/ in the directory of all), or one file, NAME.png or NAME.svg",
    )
    parser.add_argument("--x", metavar="KEY", help="the key along the axis (the delay)")


def _compare(parser: FlagParser) -> None:
    """Print the scores of two sweeps, runs or tables (CSV) side by side; of more, the first beside each other."""
    parser.add_word("A", "directory of a sweep or a run, or a CSV with named columns")
    parser.add_word("B", "another, or several", many=True)
    _add_score_flags(parser)


def _watch(parser: FlagParser) -> None:
    """Watch runs and sweeps, going on or finished, in a browser or in this terminal. Nothing is written."""
    what = "directory of a run or a sweep, or one that holds some; several (results)"
    parser.add_argument("dir", type=os.path.expanduser, metavar="DIR", nargs="*", help=what)
    parser.add_switch("text", "show it in this terminal")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1, this machine alone)")
    parser.add_argument("--port", type=_port, default=8600, help="port to listen on (8600; 0 takes a free one)")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 65535, got {text!r}")
    return int(text)


def _record(parser: FlagParser) -> None:
    """Record episodes of a person, of a script or of a trained agent to a Minari dataset."""
    parser.add_argument(
        "--dataset", type=os.path.expanduser, metavar="NAME_OR_DIR", help="a new dataset, an id or a directory"
    )
    parser.add_argument("--player", metavar="PLAYER", help="human, random or MODULE:FUNCTION (human)")
    parser.add_argument("--episodes", type=at_least(1), default=20, metavar="N", help="how many episodes (20)")
    fps = "frames per second for a person (the environment's)"
    parser.add_argument("--fps", type=at_least(1.0), metavar="FPS", help=fps)
    _add_run_flags(parser, "directory of a run, whose agent plays")
    _add_agent_flag(parser)


def _import(parser: FlagParser) -> None:
    """Write a pickle of the published layout, or another dataset, as a Minari dataset."""
    parser.add_word("FILE", "the pickle, or the dataset")
    parser.add_argument(
        "--dataset", type=os.path.expanduser, metavar="NAME_OR_DIR", help="a new dataset, an id or a directory"
    )


def _list(parser: FlagParser) -> None:
    """List what command line and gin files can name: agents, trained ones, environments, wrappers, configurations."""
    what = "an agent, or another name of gin files, whose parameters are listed: defaults and meanings"
    parser.add_argument("name", nargs="?", metavar="NAME", help=what)


def _add_run_flags(parser: FlagParser, base_dir: str, *, seed: bool = True) -> None:
    """Add the flags of a run: its directory, its configuration and its seed.

    Args:
        parser: Of the command.
        base_dir: The help text of the command's directory.
        seed: Whether the command takes a seed.
    """
    files = "gin file, repeated for several; later ones win"
    bindings = "'NAME.PARAMETER = VALUE', repeated for several; wins over files"
    parser.add_argument("--base_dir", type=os.path.expanduser, metavar="DIR", help=base_dir)
    parser.add_argument("--gin_files", action="append", default=[], type=os.path.expanduser, metavar="FILE", help=files)
    parser.add_argument("--gin_bindings", action="append", default=[], metavar="BINDING", help=bindings)
    parser.add_switch("allow_unread", "accept bindings that nothing reads")
    parser.add_switch("trust", "let a saved configuration import any module, of --base_dir or a file")
    if seed:
        same = "seed of everything; the same as binding Runner.seed"
        parser.add_argument("--seed", type=at_least(0), metavar="N", help=same)


def _add_agent_flag(parser: FlagParser) -> None:
    """Add ``--agent``, which names an agent in the place of a run."""
    named = f"in the place of a run: an agent that ships, such as minatar/breakout, or a {SUFFIX} file of an agent"
    parser.add_argument("--agent", type=os.path.expanduser, metavar="NAME_OR_FILE", help=named)


def _add_score_flags(parser: FlagParser) -> None:
    """Add the flags that say which scores are shown: of which metric, and which statistic of the seeds."""
    parser.add_argument("--metric", metavar="NAME", help="the metric (the final or training return)")
    parser.add_argument("--statistic", choices=("mean", "iqm"), default="mean", help="over seeds (mean)")


COMMANDS = {
    "train": Command("async_wrappers.agents.cli.train", _train),
    "evaluate": Command("async_wrappers.agents.cli.evaluate_command", _evaluate),
    "export": Command("async_wrappers.agents.cli.export_command", _export),
    "sweep": Command("async_wrappers.agents.cli.sweep", _sweep),
    "plot": Command("async_wrappers.agents.cli.plot", _plot),
    "compare": Command("async_wrappers.agents.cli.compare", _compare),
    "watch": Command("async_wrappers.agents.cli.watch", _watch),
    "record": Command("async_wrappers.agents.cli.record", _record),
    "import": Command("async_wrappers.agents.cli.import_dataset", _import),
    "list": Command("async_wrappers.agents.cli.list", _list),
}
