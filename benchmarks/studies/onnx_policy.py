"""One inference of a Nature network on one thread of the CPU: ONNX Runtime beside eager PyTorch, batch of one.

Both read the same 84 x 84 frames (uint8, a stack of 4 by default) and answer an action, as a worker of `AsyncRunner`
asks for it. Hold: ONNX Runtime takes no longer.

    python -m benchmarks.studies.onnx_policy [--stack 4] [--size nature] [--rounds 30]
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.spaces.schema import batch_of_one
from async_wrappers.agents.trained.export import export
from async_wrappers.onnx_policy import OnnxPolicy
from async_wrappers.policy import Decision
from benchmarks.measuring import interleave, median_ratio, parser_of, print_hold, print_load, print_table

CALLS = 50  # inferences of a sample


def main() -> None:
    options = parser_of(
        __doc__, stack=(4, "frames"), size=("nature", "of the network"), rounds=(30, "interleaved samples")
    ).parse_args()
    torch.set_num_threads(1)
    frames = Box(0, 255, (84, 84), np.uint8)
    network = partial(create_network, torso=options.size)
    spec = DQN(frames, Discrete(6), stack_size=options.stack, network=network, epsilon_eval=0.0, device="cpu")
    agent = TurnBasedAgent(spec)
    with tempfile.TemporaryDirectory() as folder:
        found = export(agent, Path(folder) / "agent.onnx", observations=32)
        policy = OnnxPolicy(found.files[0])
        size = found.files[0].stat().st_size
    print(f"{size / 1e6:.1f} MB; the largest difference of a value is {found.difference:.1e}")
    stacks = np.random.default_rng(0).integers(0, 256, (CALLS, options.stack, 84, 84), np.uint8)
    decisions = [Decision(0, row, row, True) for row in range(CALLS)]
    one = stacks if options.stack > 1 else stacks[:, 0]

    def timed(act: Any) -> float:
        begin = time.perf_counter()
        for row in range(CALLS):
            act(row)
        return (time.perf_counter() - begin) / CALLS * 1e6

    contestants = {
        "PyTorch, eager": lambda: timed(
            lambda row: agent.policy.act(batch_of_one(stacks[row]), (), decisions[row:][:1])
        ),
        "ONNX Runtime": lambda: timed(lambda row: policy.act(one[row], decisions[row])),
    }
    samples = interleave(contestants, options.rounds)
    print_table(f"microseconds of one inference, {options.size}, 1 thread", samples, "PyTorch, eager", digits=1)
    print_hold("ONNX Runtime / PyTorch", median_ratio(samples, "ONNX Runtime", "PyTorch, eager"), most=1.0)
    print_load()


if __name__ == "__main__":
    main()
