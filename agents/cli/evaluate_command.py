"""The command ``evaluate``: episodes of a trained agent, and their scores."""

from __future__ import annotations

import errno
import json
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from async_wrappers.agents.cli.configuration import (
    agent_file,
    build_runner,
    existing_run,
    find_modules,
    place_of_agent,
    refuse_without_display,
    render_bindings,
)
from async_wrappers.agents.cli.flags import UsageError, usage_errors
from async_wrappers.agents.config.config import CONFIG
from async_wrappers.agents.experiment.checkpoint import CHECKPOINTS, newest_bundle
from async_wrappers.agents.experiment.closing_report import evaluation_facts
from async_wrappers.agents.experiment.evaluate import words_of_equal_episodes
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.lock import NOT_WRITABLE, is_in_use
from async_wrappers.agents.experiment.metrics import add_evaluation, read_evaluations
from async_wrappers.agents.experiment.video import check_beside
from async_wrappers.agents.sweep.plan import title_of
from async_wrappers.agents.trained.agent_file import read_about, score_in_words
from async_wrappers.files import write_text_atomically

_REST = 2.0  # seconds between two looks for a new checkpoint


def run(options: Namespace) -> None:
    """Evaluate, print the scores, and write ``evaluation.json``; or a line for each checkpoint of a run."""
    if options.agent and options.follow:
        raise UsageError("--agent and --follow exclude each other: an agent of a file is trained no more")
    find_modules(options)
    file = agent_file(options)
    base_dir = existing_run(options, "evaluate") if file is None else place_of_agent(options.agent, file)
    if options.render and options.video:
        raise UsageError("--render and --video exclude each other: a game is shown in a window or recorded")
    if options.follow and options.video:
        raise UsageError("--follow and --video exclude each other: the videos of two checkpoints would have one name")
    if options.beside and not options.video:
        raise UsageError(f"--beside {options.beside} needs --video, which shows both: add it, or leave --beside out")
    if options.slow and not options.video:
        raise UsageError(f"--slow {options.slow} needs --video, which it slows down: add it, or leave --slow out")
    if options.render:
        refuse_without_display("--render", "record the episodes with --video, or leave --render out")
    mode = "human" if options.render else "rgb_array" if options.video else None
    bindings = render_bindings(mode) if mode else []
    if file is not None:
        with usage_errors():
            about = read_about(file)
    runner = build_runner(options, base_dir, bindings, file)
    if options.drawn:
        # An agent of the user's own has a name of its own in gin, which is known once it is made.
        runner = build_runner(options, base_dir, [*bindings, f"{_drawing(runner)}.drawn_evaluation = True"], file)
    how = {"actions": "drawn"} if options.drawn else {}
    if options.follow:
        _follow(runner, base_dir, options.episodes, how)
        return
    videos = base_dir / "videos" if options.video else None
    with usage_errors():
        agent = runner.trained_agent(file)
        if videos:
            runner.check_recordable()
    other = _beside(options, runner, bindings) if options.beside else None
    if file is not None:
        print(_introduced(options.agent, about), flush=True)
        if videos:
            try:
                base_dir.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"--video writes to {videos}, and {error.filename} cannot be made ({error.strerror}): work in "
                    "another directory, or leave --video out"
                ) from None
    with usage_errors():
        title = options.agent or title_of(base_dir)
    facts = evaluation_facts(runner.evaluation(agent, options.episodes, videos, title, other, options.slow)) | how
    path = base_dir / "evaluation.json"
    written = f"written to {path}"
    try:
        if file is not None:
            base_dir.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, json.dumps(facts, indent=1) + "\n")
    except OSError as error:
        if error.errno not in (*NOT_WRITABLE, errno.EEXIST, errno.ENOTDIR):
            raise
        written = f"not written to {path} ({error.strerror})"
    print(f"{_in_words(facts)}; {written}{f', videos to {videos}' if videos else ''}")
    _tell_of_equal_ones(facts)


def _beside(options: Namespace, runner: Experiment, bindings: list[str]) -> tuple[Experiment, Any, str]:
    """Return the experiment that is shown beside one, its agent, and its title."""
    is_run = (Path(options.beside) / CONFIG).is_file()
    named = {"base_dir": options.beside if is_run else None, "agent": None if is_run else options.beside}
    own = Namespace(**{**vars(options), **named, "gin_files": [], "seed": None})
    try:
        file = agent_file(own)
        place = existing_run(own, "evaluate") if file is None else place_of_agent(own.agent, file)
    except UsageError:
        raise UsageError(
            f"--beside must be the directory of a run, or an agent as --agent takes it, got {options.beside}"
        ) from None
    other = build_runner(own, place, bindings, file)
    with usage_errors():
        agent = other.trained_agent(file)
        other.check_recordable()
        check_beside(runner.environment, other.environment)
    return other, agent, own.agent or title_of(place)


def _introduced(name: str, about: dict[str, Any]) -> str:
    delay = "no delay" if about["delay"] == "none" else f"a delay of {about['delay']}"
    return (
        f"{name}: {about['agent']}, trained on {about['environment']} with {delay} for {about['frames']:,} frames; "
        f"{score_in_words(about)}"
    )


def _drawing(runner: Experiment) -> str:
    """Return the agent's name in gin; a UsageError names one whose evaluation draws no actions."""
    spec: Any = getattr(runner.agent, "spec", None)
    if not hasattr(spec, "drawn_evaluation"):
        raise UsageError(
            "--drawn needs an agent whose evaluation may draw, such as VTraceAgent or PPOAgent, got "
            f"{runner.agent.identity()['agent']}: leave --drawn out"
        )
    name: str = spec.gin_name
    return name


def _in_words(facts: dict[str, Any]) -> str:
    interval = "{:.1f} (95 % interval {:.1f} to {:.1f})"
    drawn = " of drawn actions" if facts.get("actions") == "drawn" else ""
    if len(facts["returns"]) == 1:
        return f"1 episode{drawn}: return {facts['mean']:.1f}"
    return (
        f"{len(facts['returns'])} episodes{drawn}: mean return {interval.format(facts['mean'], *facts['interval'])}, "
        f"median {facts['median']:.1f}, interquartile mean {interval.format(facts['iqm'], *facts['iqm_interval'])}"
    )


def _tell_of_equal_ones(facts: dict[str, Any]) -> None:
    if sentence := words_of_equal_episodes(len(facts["returns"]), facts.get("different")):
        print(sentence, flush=True)


def _follow(runner: Experiment, base_dir: Path, episodes: int, how: dict[str, str]) -> None:
    """Evaluate the newest checkpoint whenever there is a new one, until no process trains in the directory.

    All play the same episodes. Training does not wait: where it writes checkpoints faster, some are left out.
    """
    while True:
        trains = is_in_use(base_dir)  # asked first: what is written before training ends is evaluated
        done = max((line["iteration"] for line in read_evaluations(base_dir)), default=-2)
        written = any((base_dir / CHECKPOINTS).glob("sentinel_*")) or not trains
        with usage_errors():
            path, bundle = newest_bundle(base_dir) if written else (base_dir, {"current_iteration": done})
        if bundle["current_iteration"] > done:
            with usage_errors():
                agent = runner.trained_agent(path)
            facts = evaluation_facts(runner.evaluation(agent, episodes)) | how
            number, frames = bundle["current_iteration"], bundle["frames"]
            add_evaluation(base_dir, {"iteration": number, "training_frames": frames, **facts})
            print(f"iteration {number}, {frames:,} training frames: {_in_words(facts)}", flush=True)
            _tell_of_equal_ones(facts)
        elif trains:
            time.sleep(_REST)
        else:
            return
