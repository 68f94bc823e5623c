"""Write a trained agent as ONNX, which ONNX Runtime plays without PyTorch, and check that both act alike."""

from __future__ import annotations

from argparse import Namespace
from collections import deque
from pathlib import Path
from typing import Any

from async_wrappers.agents.cli.configuration import add_run_flags, build_runner, existing_run, find_modules
from async_wrappers.agents.cli.flags import Parser, UsageError, at_least, usage_errors
from async_wrappers.agents.experiment.runner import Runner
from async_wrappers.agents.export import export
from async_wrappers.agents.schema import stacked

__all__ = ["add_flags", "run"]


def add_flags(parser: Parser) -> None:
    """Add the flags of ``export``."""
    add_run_flags(parser, "directory of the run")
    parser.add_argument("--output", metavar="FILE", help="the ONNX file; with memory, two are named after it")
    shown = "random observations that both are shown, and as many of the environment's (256)"
    parser.add_argument("--observations", type=at_least(1), default=256, metavar="N", help=shown)


def run(options: Namespace) -> None:
    """Export the weights of the newest checkpoint, and print how the files compare."""
    find_modules(options)
    base_dir = existing_run(options, "export")
    if not options.output:
        raise UsageError("export needs --output with the file to write, such as --output agent.onnx")
    output = Path(options.output)
    if output.suffix != ".onnx" or output.is_dir():
        raise UsageError(f"--output must be a file that ends in .onnx, got {options.output!r}")
    runner = build_runner(options, base_dir)
    with usage_errors():
        agent: Any = runner.trained_agent()
        if not hasattr(agent, "spec"):
            raise UsageError(f"an agent that learns can be exported, got {type(agent).__name__} in {base_dir}")
        real = _played(runner, agent.spec, options.observations)
        found = export(agent, output, real, options.observations, seed=runner.seed)
    compute = getattr(agent.spec, "compute", None)
    rounded = "; the files compute in float32, the run in bfloat16" if getattr(compute, "bf16", False) is True else ""
    shown = f"{found.random} random and {found.real} real observations"
    ties = f", {found.ties} of them ties" if found.ties else ""
    print(
        f"written to {' and '.join(map(str, found.files))}: the same actions as the agent's on {shown}{ties}, the "
        f"largest difference of a value is {found.difference:.1e}{rounded}"
    )


def _played(runner: Runner, spec: Any, count: int) -> list[Any]:
    """Return stacks of the environment's observations under random actions; none if the agent's have another form."""
    environment = runner.environment
    if (environment.observation_space, environment.action_space) != (spec.observation_space, spec.action_space):
        return []  # live, the loop makes the policy's inputs of chunks and committed actions
    environment.action_space.seed(runner.seed)
    stacks: list[Any] = []
    stack: deque[Any] = deque(maxlen=spec.stack_size)
    over = True
    while len(stacks) < count:
        if over:
            observation, _ = environment.reset(seed=runner.seed if not stacks else None)
            stack.extend([spec.blank()] * spec.stack_size)
            over = False
        else:
            observation, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
            over = terminated or truncated
        stack.append(spec.without_tuples(observation))
        stacks.append(stacked(stack))
    return stacks
