"""Train and evaluate agents under realtime delay.

  python train.py [train] [--base_dir DIR] [--gin_files FILE]... [--gin_bindings 'NAME.PARAMETER = VALUE']... [--seed N]
  python train.py evaluate --base_dir DIR [--episodes N] [--render | --video] [--gin_bindings ...]
  python train.py sweep [--gin_files FILE]... [--grid 'RealtimeDelay.delay = 1, 8, 70']... [--seeds N] [--jobs N]
                        [--base_dir DIR] [--retry-failed] [--engine local|ray] [--address ADDRESS] [--gin_bindings ...]
  python train.py plot DIR [--metric NAME] [--statistic mean|iqm] [--x KEY]
  python train.py compare A B [--metric NAME] [--statistic mean|iqm]
  python train.py record --gin_files FILE --dataset NAME_OR_DIR [--player human|random|MODULE:FUNCTION] [--episodes N]
  python train.py record --base_dir DIR --dataset NAME_OR_DIR [--episodes N]
  python train.py import FILE --dataset NAME_OR_DIR
  python train.py --list

Without --gin_files a new run takes configs/default.gin; a --base_dir that holds a run is continued with its own
config.gin. Gin files are code: they may import modules. Those of a --base_dir import this project's modules alone, and
what the command line names; --trust lets them import anything. Exit codes: 0 done, 1 the run failed, 2 usage,
130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys


def _end_at_once(number: int, frame: object) -> None:
    """End while the libraries are still being imported, which takes seconds."""
    os.write(2, b"\ninterrupted: nothing had begun\n")
    os._exit(130)


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM):
        if _number == signal.SIGTERM or signal.getsignal(_number) != signal.SIG_IGN:  # as nohup and `&` leave it
            signal.signal(_number, _end_at_once)

import errno
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent

from absl import flags, logging

import agents

if Path(agents.__file__ or "").resolve().parent != HERE / "agents":
    sys.exit(f"train.py: 'agents' was imported from {agents.__file__}, not from beside train.py: uninstall that one")

import gin
import gymnasium as gym

import agents.configurables
import async_wrappers.configurables
from agents.demonstrations.dataset import DatasetWriter
from agents.divergence import DivergedError
from agents.experiment.checkpoint import NoCheckpointLoads
from agents.experiment.config import (
    CONFIG,
    ConfigError,
    code_named,
    find_gin_files,
    load_config,
    refuse_strangers,
    save_config,
)
from agents.experiment.create_runner import create_runner
from agents.experiment.lock import DirectoryInUse, alone_in
from agents.experiment.optional_imports import extra
from agents.experiment.record_demonstrations import (
    Recording,
    bound_environment,
    import_demonstrations,
    record_agent,
    record_player,
)
from agents.experiment.report import compare_with_baselines, draw_learning_curve, evaluation_facts, table
from agents.experiment.runner import Runner
from agents.experiment.trust import code_in, strangers
from agents.files import write_text_atomically
from agents.registry import AGENTS, BASELINES
from agents.sweep.compare import compare, comparison_table
from agents.sweep.figures import draw_learning_curves, draw_scores, draw_workers, write_figure
from agents.sweep.grid import make_points, parse_axis
from agents.sweep.ladder import draw_ladders, make_ladders, why_no_ladder
from agents.sweep.page import write_report
from agents.sweep.plan import PLAN, SweepPlan, read_plan
from agents.sweep.results import read_rows
from agents.sweep.run import run_sweep
from agents.sweep.settings import Sweep, check_engine
from agents.sweep.trial import GinTrial, trial_status
from agents.sweep.view import make_view
from async_wrappers.analysis.planning import workers_against_latency
from async_wrappers.analysis.scaling import GAME_BOY_FPS, processes_needed
from async_wrappers.analysis.scaling_picture import PUBLISHED_TIMES, scaling_picture
from async_wrappers.live.run_spec import RunFailed

FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]
flags.DEFINE_string("base_dir", None, "Directory of the run.", flag_values=FLAGS)
flags.DEFINE_multi_string("gin_files", [], "Gin files, later ones winning.", flag_values=FLAGS)
flags.DEFINE_multi_string("gin_bindings", [], "Gin bindings, which win over files.", flag_values=FLAGS)
flags.DEFINE_integer("seed", None, "Seed of everything; the same as Runner.seed.", flag_values=FLAGS, lower_bound=0)
flags.DEFINE_integer("episodes", 20, "evaluate, record: how many episodes.", flag_values=FLAGS, lower_bound=1)
flags.DEFINE_bool("render", False, "evaluate: show the game in a window.", flag_values=FLAGS)
flags.DEFINE_bool("video", False, "evaluate: record each episode, in base_dir/videos.", flag_values=FLAGS)
flags.DEFINE_multi_string("grid", [], "sweep: axes, such as 'RealtimeDelay.delay = 1, 8'.", flag_values=FLAGS)
flags.DEFINE_integer(
    "seeds", None, "sweep: seeds per point; the same as Sweep.seeds.", flag_values=FLAGS, lower_bound=1
)
flags.DEFINE_integer("jobs", None, "sweep: trials at a time; the cores.", flag_values=FLAGS, lower_bound=1)
flags.DEFINE_bool("retry_failed", False, "sweep: run trials again that failed before.", flag_values=FLAGS)
flags.DEFINE_string("engine", "local", "sweep: local, or ray (the extra `ray`).", flag_values=FLAGS)
flags.DEFINE_string("address", None, "sweep: of a Ray cluster; one of this machine's own.", flag_values=FLAGS)
flags.DEFINE_string("metric", None, "plot, compare: what to look at; the final or training return.", flag_values=FLAGS)
flags.DEFINE_enum("statistic", "mean", ["mean", "iqm"], "plot, compare: over seeds.", flag_values=FLAGS)
flags.DEFINE_string("x", None, "plot: the key along the axis; the delay.", flag_values=FLAGS)
flags.DEFINE_float(
    "fps",
    60,
    "plot: of workers against latency; record: of a person, instead of the environment's.",
    flag_values=FLAGS,
    lower_bound=1,
)
flags.DEFINE_string("dataset", None, "record, import: a new dataset, an id or a directory.", flag_values=FLAGS)
flags.DEFINE_string("player", None, "record: human, random or MODULE:FUNCTION; human.", flag_values=FLAGS)
flags.DEFINE_bool("trust", False, "Let the configuration that lies in base_dir import any module.", flag_values=FLAGS)
flags.DEFINE_bool("list", False, "List agents, environments and configurations.", flag_values=FLAGS)
flags.DEFINE_bool("help", False, "Show this help.", short_name="h", flag_values=FLAGS)


LATENCIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds, of workers against latency
LONGEST_EPISODE = inspect.signature(Runner).parameters["max_steps_per_episode"].default  # frames, where none is bound


_GOES_ON = "the same --base_dir goes on from its last checkpoint"


class UsageError(Exception):
    """The command line or the configuration is wrong; the message is one sentence."""


class TrialsFailed(Exception):
    """A sweep went through, and some of its trials failed."""


def train() -> None:
    """Run an experiment, or continue one."""
    base_dir = _new_or_there()
    with alone_in(base_dir):
        runner = _build_runner(base_dir)
        _or_usage_error(runner.resume)
        print(f"base_dir: {base_dir}\nseed: {runner.seed}", flush=True)
        reported = (base_dir / "report.json").is_file() or not runner.report_episodes or not runner.num_iterations
        if runner.start_iteration >= runner.num_iterations and reported:
            here = f"--base_dir {base_dir}"
            more = f"--gin_bindings 'Runner.num_iterations = {runner.num_iterations + 1}'"
            print(
                f"finished: all {runner.num_iterations} iterations are done. To go on, give more: {here} {more}"
                f"{_trusting(base_dir)}. To evaluate: python train.py evaluate {here}{_trusting(base_dir)}"
            )
            return
        save_config(base_dir)
        (base_dir / "report.json").unlink(missing_ok=True)  # of fewer iterations
        try:
            runner.run_experiment()
        except KeyboardInterrupt as interrupt:
            words = _trusting(base_dir)
            if not words or interrupt.args:
                raise
            raise KeyboardInterrupt(f"{_GOES_ON}; without the --gin_files add{words}") from None
        rows = compare_with_baselines(runner) if runner.report_episodes else None
        if rows:
            print(f"\n{table(rows)}\n")
        print(runner.closing_line())
        print(f"learning curve: {_or_usage_error(lambda: draw_learning_curve(base_dir, rows))}\nbase_dir: {base_dir}")


def evaluate_run() -> None:
    """Play evaluation episodes with the newest checkpoint's weights."""
    base_dir = _run_there("evaluate")
    if FLAGS.render and FLAGS.video:
        raise UsageError("--render and --video exclude each other: a game is shown in a window or recorded")
    mode = "human" if FLAGS.render else "rgb_array" if FLAGS.video else None
    makers = ("create_atari_environment", "create_gym_environment")
    runner = _build_runner(base_dir, [f"{maker}.render_mode = {mode!r}" for maker in makers] if mode else [])
    agent = _or_usage_error(runner.trained_agent)
    videos = base_dir / "videos" if FLAGS.video else None
    if videos:
        _or_usage_error(runner.check_recordable)
    facts = evaluation_facts(runner.evaluation(agent, FLAGS.episodes, videos))
    path = base_dir / "evaluation.json"
    told = f"written to {path}"
    try:
        write_text_atomically(path, json.dumps(facts, indent=1) + "\n")
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        told = f"not written to {path} ({error.strerror})"
    interval = "{:.1f} (95 % interval {:.1f} to {:.1f})"
    print(
        f"{len(facts['returns'])} episodes: mean return {interval.format(facts['mean'], *facts['interval'])}, "
        f"median {facts['median']:.1f}, interquartile mean {interval.format(facts['iqm'], *facts['iqm_interval'])}; "
        f"{told}{f', videos to {videos}' if videos else ''}"
    )


def sweep() -> None:
    """Run a trial per point of a grid and seed, or what is left of them."""
    base_dir = _new_or_there()
    if FLAGS.seed is not None:
        raise UsageError("--seed is for one run: a sweep derives its seeds; say how many with --seeds")
    named = {"--gin_files": FLAGS.gin_files, "--gin_bindings": FLAGS.gin_bindings}
    arguments = [word for name, values in named.items() for value in values for word in (name, value)]
    if (base_dir / PLAN).is_file() and not arguments and not FLAGS.grid:
        plan, told = _plan_there(base_dir)
    else:
        plan, told = _new_plan(arguments)
    print(f"base_dir: {base_dir}", flush=True)
    trial = GinTrial(str(HERE / "train.py"), tuple(plan.arguments))
    table = _or_usage_error(
        lambda: run_sweep(
            plan,
            trial,
            base_dir,
            told,
            jobs=FLAGS.jobs or (None if FLAGS.address else os.cpu_count() or 1),
            retry_failed=FLAGS.retry_failed,
            engine=FLAGS.engine,
            address=FLAGS.address,
            check=lambda: _check_points(plan),
        )
    )
    failed = [each.name for each in plan.trials() if trial_status(base_dir / "trials" / each.name) == "failed"]
    print(f"table: {table}\nplot it: python train.py plot {base_dir}\nbase_dir: {base_dir}")
    if failed:
        count = f"{len(failed)} of {len(plan.trials())} trials failed ({', '.join(failed)})"
        raise TrialsFailed(f"{count}: mend the cause, add --retry-failed")


def _plan_there(base_dir: Path) -> tuple[SweepPlan, Sweep]:
    """Return the plan of a directory, and what the gin files that it names say of how it is run."""
    plan = read_plan(base_dir)
    if plan.function != "train.py":
        raise UsageError(f"--base_dir {base_dir} holds a sweep of {plan.function}: go on with it in Python")
    if not FLAGS.trust:
        _refuse_strangers_of(plan, base_dir)
    for name in ("gin_files", "gin_bindings"):
        pairs = zip(plan.arguments[::2], plan.arguments[1::2], strict=True)
        FLAGS[name].value = [value for option, value in pairs if option == f"--{name}"]
    return replace(plan, seeds=FLAGS.seeds or plan.seeds), _told()


def _refuse_strangers_of(plan: SweepPlan, base_dir: Path) -> None:
    """Refuse a plan that asks for code which is neither ours nor named: nobody has named its files on this command."""
    pairs = list(zip(plan.arguments[::2], plan.arguments[1::2], strict=True))
    bindings = [value for option, value in pairs if option == "--gin_bindings"]
    bindings += [f"{key} = {value}" for point in plan.points for key, value in point.bindings.items()]
    files = [value for option, value in pairs if option == "--gin_files"]
    modules, includes = code_named(files, bindings, search_paths=[HERE])
    refuse_strangers(str(base_dir / PLAN), modules, includes, named=())


def _new_plan(arguments: Sequence[str]) -> tuple[SweepPlan, Sweep]:
    """Return what gin and the options make a sweep of, and what gin says of how it is run."""
    told = _told()
    grid = FLAGS.grid or told.grid
    draw = None
    if told.search == "random":
        with extra("Sweep.search = 'random'", "ray"):
            from agents.sweep.grid import draw_bindings
        draw = partial(draw_bindings, num_samples=told.num_samples)
    points = make_points(grid, told.arms, told.exclude, draw)
    if any(key.endswith("Runner.seed") for point in points for key in point.bindings):
        raise UsageError("grid: Runner.seed is not a key of a grid: say how many seeds with --seeds")
    axes = [key for text in grid for key in parse_axis(text).keys]
    return SweepPlan(points, axes, FLAGS.seeds or told.seeds, list(arguments), "train.py"), told


def _told() -> Sweep:
    """Return what gin says of a sweep."""
    _load_config(FLAGS.gin_bindings)
    told: Sweep = _or_usage_error(Sweep)
    check_engine(FLAGS.engine, FLAGS.address, told)
    return told


def _check_points(plan: SweepPlan) -> None:
    """Build the experiment of points that together have every value, so that a wrong one is refused at once."""
    built: set[tuple[str, str]] = set()
    for point in plan.points:
        new = {("", point.arm), *point.bindings.items()} - built
        if not new:
            continue
        built |= new
        bindings = [f"{key} = {value}" for key, value in point.bindings.items()]
        try:
            _load_config([*FLAGS.gin_bindings, *bindings])
            runner = _or_usage_error(lambda: create_runner("not_written"))
        except (UsageError, ConfigError) as error:
            raise UsageError(f"grid point {', '.join(bindings)}: {error}") from None
        runner.environment.close()


def plot(directory: str) -> None:
    """Draw the figures of a sweep, and put them into one page with the numbers."""
    base_dir = Path(directory)
    plan = _or_usage_error(lambda: read_plan(base_dir))
    rows = _or_usage_error(lambda: read_rows(base_dir))
    view = _or_usage_error(lambda: make_view(plan, rows, metric=FLAGS.metric, statistic=FLAGS.statistic, x=FLAGS.x))
    curve = next((row["metric"] for row in rows if row["iteration"] is not None and row["metric"] != "frames"), None)
    figures = {f"Score against {view.x_label}": ("score", draw_scores(view))}
    ladders = make_ladders(view)
    if ladders:
        figures["Regret ladder: what delay costs, what inaction costs"] = ("ladder", draw_ladders(view, ladders))
    else:
        print(why_no_ladder(view))
    if curve is not None:
        figures["Learning curves"] = ("learning_curves", draw_learning_curves(view, curve))
    needs = workers_against_latency(LATENCIES, FLAGS.fps, seconds=60)
    points = [(need.latency_s, need.mean_rule, need.enough.workers) for need in needs if need.enough]
    title = f"log-normal latencies, coefficient of variation 0.2, {FLAGS.fps:g} frames a second, simulated"
    figures["Workers needed against latency"] = ("workers", draw_workers(points, FLAGS.fps, title))
    title = f"{PUBLISHED_TIMES}, cv 0.2, {GAME_BOY_FPS:g} frames a second"
    sizes = scaling_picture(processes_needed(seconds=60), title)
    figures["Workers and learners needed against parameters"] = ("networks", sizes)
    paths = {name: write_figure(figure, base_dir / "figures" / file) for name, (file, figure) in figures.items()}
    for path in (path for pair in paths.values() for path in pair):
        print(path)
    print(write_report(base_dir, view, {name: svg for name, (_, svg) in paths.items()}))


def compare_results(first: str, second: str) -> None:
    """Print two results side by side."""
    found = _or_usage_error(lambda: compare(Path(first), Path(second), metric=FLAGS.metric, statistic=FLAGS.statistic))
    print(f"A: {first}\nB: {second}\n{comparison_table(found, FLAGS.statistic)}")


def record() -> None:
    """Record episodes of a person, of a script or of a trained agent to a Minari dataset."""
    if not FLAGS.dataset:
        raise UsageError("record needs --dataset: a new directory, or an id such as falling_blocks/human-v0")
    if FLAGS.base_dir and FLAGS.player:
        raise UsageError("--base_dir and --player exclude each other: a trained agent plays, or somebody else")
    recording = _or_usage_error(_record_agent if FLAGS.base_dir else _record_player)
    try:
        _tell_dataset(recording.run())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the episodes that had ended are in {FLAGS.dataset}, if there were any") from None


def _record_agent() -> Recording:
    runner = _build_runner(_run_there("record"))
    length = {"episodes": FLAGS.episodes, "seed": runner.seed, "max_frames": runner.max_steps_per_episode}
    return record_agent(runner.trained_agent(), runner.environment, FLAGS.dataset, **length)


def _record_player() -> Recording:
    player = FLAGS.player or "human"
    makers = ("create_atari_environment", "create_gym_environment")
    shown = [f"{maker}.render_mode = 'rgb_array'" for maker in makers] if player == "human" else []
    _load_config([*FLAGS.gin_bindings, *shown])
    return record_player(
        bound_environment(),
        FLAGS.dataset,
        player,
        episodes=FLAGS.episodes,
        seed=FLAGS.seed or 0,
        max_frames=gin.get_bindings("Runner").get("max_steps_per_episode", LONGEST_EPISODE),
        fps=FLAGS.fps if FLAGS["fps"].present else None,
    )


def import_file(path: str) -> None:
    """Write a pickle of the published layout as a Minari dataset."""
    if not FLAGS.dataset:
        raise UsageError("import needs --dataset: a new directory, or an id such as tetris/human-v0")
    _tell_dataset(_or_usage_error(lambda: import_demonstrations(path, FLAGS.dataset)))


def _tell_dataset(written: DatasetWriter) -> None:
    count = f"{written.episodes} episodes, {written.frames} frames"
    if not written.episodes:
        print(f"{count}: no episode has ended, and nothing is written")
        return
    print(f'{count} in {written.path}\nlearn from it: --gin_bindings "Runner.pretrain_dataset = {FLAGS.dataset!r}"')


def list_names() -> None:
    """Print what can be named on the command line and in gin files."""
    import ale_py

    gym.register_envs(ale_py)
    games = sorted(name[4:-3] for name in gym.registry if name.startswith("ALE/") and name.endswith("-v5"))
    others = sorted(name for name in gym.registry if not name.startswith("ALE/") and "Frameskip" not in name)
    for title, names in (
        ("agents (create_agent.agent_name)", [*AGENTS, *BASELINES]),
        ("Atari games (create_atari_environment.game_name)", games),
        ("other environments (create_gym_environment.environment_id)", [name for name in others if "-ram" not in name]),
        ("configurations (--gin_files)", find_gin_files([HERE])),
    ):
        print(f"{title}:\n  " + "\n  ".join(names))


class Command(NamedTuple):
    """What a first word does, and the names of the directories that follow it."""

    run: Callable[..., None]
    directories: tuple[str, ...] = ()


COMMANDS: Mapping[str, Command] = {
    "train": Command(train),
    "evaluate": Command(evaluate_run),
    "sweep": Command(sweep),
    "plot": Command(plot, ("DIR",)),
    "compare": Command(compare_results, ("A", "B")),
    "record": Command(record),
    "import": Command(import_file, ("FILE",)),
}


def _run_there(command: str) -> Path:
    """Return --base_dir, which must hold a run."""
    if not FLAGS.base_dir or not os.path.isfile(os.path.join(FLAGS.base_dir, CONFIG)):
        raise UsageError(f"{command} needs --base_dir with a run in it (a {CONFIG}), got {FLAGS.base_dir!r}")
    return Path(FLAGS.base_dir)


def _new_or_there() -> Path:
    """Return --base_dir, or a new one."""
    base_dir = Path(FLAGS.base_dir or _default_base_dir())
    if "\0" in str(base_dir):
        raise UsageError(f"--base_dir must be a path, got {str(base_dir)!r}")
    if os.path.exists(base_dir) and not base_dir.is_dir():
        raise UsageError(f"--base_dir must be a directory, got the file {base_dir}")
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(base_dir)  # which a name that is too long does not survive
    return base_dir


def _build_runner(base_dir: Path, further_bindings: Sequence[str] = ()) -> Runner:
    saved = base_dir / CONFIG
    bindings = [*FLAGS.gin_bindings, *further_bindings]
    if FLAGS.seed is not None:
        bindings.append(f"Runner.seed = {FLAGS.seed}")
    _load_config(bindings, saved)
    runner: Runner = _or_usage_error(lambda: create_runner(str(base_dir)))
    return runner


def _load_config(bindings: Sequence[str], saved: Path | None = None) -> None:
    """Replace gin's configuration by that of the command line, or by the saved one where no files are named."""
    gin_files = FLAGS.gin_files or ([] if saved is not None and saved.is_file() else ["configs/default.gin"])
    modules = (agents.configurables, async_wrappers.configurables)
    names = [name for module in modules for name in module.CONFIGURABLES]
    imports = [f"import {module.__name__}" for module in modules]  # config.gin can then be read without this script
    trusted = None if FLAGS.trust else ()
    load_config(gin_files, [*imports, *bindings], names, saved=saved, search_paths=[HERE], trusted=trusted)


def _names_modules() -> bool:
    """Return whether the gin files and bindings of the command line name modules other than ours.

    Only then can modules of the working directory be imported: it may be somebody else's, with a `tensorflow.py`, which
    a library would import if there were one.
    """
    try:
        modules, missing = code_named(FLAGS.gin_files, FLAGS.gin_bindings, search_paths=[HERE])
    except ConfigError:
        return True  # it is told where they are used
    return bool(missing or strangers(modules, ()))


def _trusting(base_dir: Path) -> str:
    """Return what a command must add for this run's own configuration to be read: the modules that it imports."""
    if FLAGS.trust:
        return " --trust"
    if not (base_dir / CONFIG).is_file():
        return ""
    modules, _ = code_in((base_dir / CONFIG).read_text(encoding="utf-8"))
    return "".join(f" --gin_bindings 'import {module}'" for module in strangers(modules, ()))


def _or_usage_error(build: Callable[[], Any]) -> Any:
    """Call `build`; what a wrong value makes it raise is the user's to mend, in one line."""
    try:
        return build()
    except (ValueError, TypeError, RuntimeError, gym.error.Error) as error:
        logging.debug("while building the experiment", exc_info=True)
        if isinstance(error, RecursionError):
            raise UsageError(
                f"gin configuration: a reference or a macro leads back to itself ({_first_line(error)})"
            ) from None
        required = isinstance(error, RuntimeError) and "Required bindings" in str(error)
        if isinstance(error, RuntimeError) and not required:
            raise
        raise UsageError(_one_line(error)) from None


def _one_line(error: Exception) -> str:
    """Return the first line of a message; Python's own is given the name of the gin configurable it came from."""
    sentence = _first_line(error)
    configurable = re.search(r"In call to configurable '(.+?)'", str(error))
    return f"{configurable[1]}: {sentence}" if isinstance(error, TypeError) and configurable else sentence


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# What the system says where a file cannot be written: it is full, or forbidden, or there is no such place.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def _disk_sentence(error: OSError) -> str | None:
    """Say what to do about a file that cannot be written; None where the error is about something else."""
    where = error.filename or "a file"
    if error.errno in _FULL:
        return f"{error.strerror}, writing {where}: free space, and continue with the same --base_dir"
    named = FLAGS.base_dir or "results"
    base_dir, there = os.path.abspath(named), os.path.abspath(os.fsdecode(error.filename or os.devnull))
    above, below = os.path.join(base_dir, "").startswith(os.path.join(there, "")), there.startswith(base_dir + os.sep)
    if (above and error.errno in _NO_PLACE) or ((above or below) and error.errno in _FORBIDDEN):
        return f"--base_dir {named} cannot be written ({error.strerror}: {where}): name another"
    return None


def _default_base_dir() -> Path:
    name = Path(FLAGS.gin_files[-1]).stem if FLAGS.gin_files else "default"
    return Path("results") / f"{name}_{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def _with_underscores(word: str) -> str:
    """Return an option written --like-this as --like_this; other words as they are."""
    name, equals, value = word.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if re.match(r"--[a-z]", word) else word


def main(argv: Sequence[str]) -> int:
    """Run the command that the first word names, and return the exit code."""
    words = list(argv[1:])
    command = words.pop(0) if words and not words[0].startswith("-") else "train"
    try:
        if command not in COMMANDS:
            raise UsageError(f"no command {command!r}: use one of {', '.join(COMMANDS)}, or options alone to train")
        rest = FLAGS([argv[0], *map(_with_underscores, words)])[1:]
        if FLAGS.player or FLAGS.grid or FLAGS.trust or _names_modules():
            sys.path.append(os.getcwd())  # these may name a module of the user's
        directories = COMMANDS[command].directories
        if len(rest) > len(directories):
            extra = rest[len(directories)]
            raise UsageError(f"{extra!r} belongs to no option; gin_files and gin_bindings are repeated for each value")
        if FLAGS.help:
            print(f"{__doc__}\n{FLAGS.get_help()}")
        elif FLAGS.list:
            list_names()
        elif len(rest) < len(directories):
            what = "a file" if "FILE" in directories else "results"
            raise UsageError(f"{command} needs {what}: python train.py {command} {' '.join(directories)}")
        else:
            COMMANDS[command].run(*rest)
    except (
        UsageError,
        ConfigError,
        DirectoryInUse,
        NoCheckpointLoads,
        flags.Error,
        gym.error.DependencyNotInstalled,
    ) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        sentence = _disk_sentence(error)
        if sentence is None:
            raise
        print(f"train.py: {sentence}", file=sys.stderr)
        return 1 if error.errno in _FULL else 2
    except (DivergedError, RunFailed, TrialsFailed) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        told = str(interrupt) or _GOES_ON
        print(f"\ninterrupted: {told}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(_number) == _end_at_once:
            signal.signal(_number, signal.default_int_handler)
    sys.exit(main(sys.argv))
