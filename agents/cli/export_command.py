"""The command ``export``: files of a trained agent, which are checked against it."""

from __future__ import annotations

import os
import re
import shlex
from argparse import Namespace
from collections import deque
from pathlib import Path
from typing import Any

from async_wrappers.agents.cli.commands import EPISODES, OBSERVATIONS, ONNX
from async_wrappers.agents.cli.configuration import build_runner, existing_run, find_modules
from async_wrappers.agents.cli.flags import UsageError, usage_errors
from async_wrappers.agents.cli.run_log import LOG
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.ship import ship
from async_wrappers.agents.play.live import Live
from async_wrappers.agents.play.many.many import Many
from async_wrappers.agents.spaces.schema import stacked
from async_wrappers.agents.trained.agent_file import SUFFIX, score_in_words
from async_wrappers.agents.trained.export import export

_IN_TURN = "create_runner.schedule = 'continuous_train'"


def run(options: Namespace) -> None:
    """Export the weights of the newest checkpoint, and print how file and agent compare."""
    find_modules(options)
    base_dir = existing_run(options, "export")
    if not options.output:
        raise UsageError("export needs --output with the file to write, such as --output agent.onnx")
    output = Path(options.output)
    if output.suffix not in (ONNX, SUFFIX) or output.is_dir():
        raise UsageError(f"--output must be a file that ends in {ONNX} or {SUFFIX}, got {options.output!r}")
    others = {ONNX: ("episodes", "licence", "command"), SUFFIX: ("observations",)}[output.suffix]
    if given := [name for name in others if getattr(options, name) is not None]:
        raise UsageError(
            f"--{given[0]} must be left out for a file that ends in {output.suffix}, got {options.output!r}"
        )
    _refuse_unwritable(output)
    if output.suffix == SUFFIX:
        _ship(options, base_dir, output)
        return
    runner = build_runner(options, base_dir)
    observations = options.observations or OBSERVATIONS
    with usage_errors():
        agent: Any = runner.trained_agent()
        if not hasattr(agent, "spec"):
            raise UsageError(f"an agent that learns can be exported, got {type(agent).__name__} in {base_dir}")
        real = _played(runner, agent.spec, observations)
        found = export(agent, output, real, observations, seed=runner.settings.seed)
    compute = getattr(agent.spec, "compute", None)
    rounded = "; the files compute in float32, the run in bfloat16" if getattr(compute, "bf16", False) is True else ""
    shown = f"{found.random} random and {found.real} real observations"
    ties = f", {found.ties} of them ties" if found.ties else ""
    print(
        f"written to {' and '.join(map(str, found.files))}: the same actions as the agent's on {shown}{ties}, the "
        f"largest difference of a value is {found.difference:.1e}{rounded}"
    )


def _refuse_unwritable(output: Path) -> None:
    """Refuse a file that cannot be written, before episodes are played for it; missing directories are made."""
    above = next(each for each in output.absolute().parents if os.path.lexists(each))
    if not above.is_dir():
        raise UsageError(f"--output must be a file in a directory, got {str(output)!r}: {above} is none")
    if not os.access(above, os.W_OK):
        raise UsageError(f"--output must be a file that can be written, got {str(output)!r}: {above} is read-only")


def _ship(options: Namespace, base_dir: Path, output: Path) -> None:
    runner = build_runner(options, base_dir)
    if isinstance(runner.play, Live | Many):  # the agent of a file plays one environment, in turn
        runner = build_runner(options, base_dir, [_IN_TURN])
    command = _command_of(base_dir) if options.command is None else options.command
    with usage_errors():
        about = ship(
            runner, output, options.episodes or EPISODES, command=command, licence=options.licence or "none stated"
        )
    print(
        f"written to {output} ({output.stat().st_size / 1000:,.0f} KB): the same actions as the agent's in all "
        f"{about['score']['episodes']} episodes; {score_in_words(about)}; trained by {command or 'an unknown command'}"
    )


def _command_of(base_dir: Path) -> str:
    """Return the command that began a run, as its log has it, without the run's directory; empty if it has none."""
    path = base_dir / LOG
    text = path.read_text(encoding="utf-8-sig", errors="replace") if path.is_file() else ""
    if (found := re.search(r"^--- \S+ (.*)$", text, re.MULTILINE)) is None:
        return ""
    try:
        words = shlex.split(found[1])
    except ValueError:
        return ""
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before not in _DIRECTORY
        and word not in _DIRECTORY
        and not word.startswith(tuple(f"{each}=" for each in _DIRECTORY))
    ]
    return shlex.join(kept)


_DIRECTORY = ("--base_dir", "--base-dir")


def _played(runner: Experiment, spec: Any, count: int) -> list[Any]:
    """Return stacks of the environment's observations under random actions; none if the agent's have another form."""
    environment = runner.environment
    if (environment.observation_space, environment.action_space) != (spec.observation_space, spec.action_space):
        return []  # live, the loop makes the policy's inputs of chunks and committed actions
    environment.action_space.seed(runner.settings.seed)
    stacks: list[Any] = []
    stack: deque[Any] = deque(maxlen=spec.stack_size)
    over = True
    while len(stacks) < count:
        if over:
            observation, _ = environment.reset(seed=runner.settings.seed if not stacks else None)
            stack.extend([spec.blank()] * spec.stack_size)
            over = False
        else:
            observation, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
            over = terminated or truncated
        stack.append(spec.without_tuples(observation))
        stacks.append(stacked(stack))
    return stacks
