"""Boxing games at 60 frames a second, served by the Nature network: what the simulation predicts, and what happens.

    python -m benchmarks.served [--environments 32] [--playout 2] [--seconds 60] [--accelerators 1] [--fifo 40]
        [--policy torch]

Hold, on two cores that are idle before: >= 99.5 % of the actions in time, within a point of the prediction.

The prediction is that of `ServedSchedule`, from two measurements of the latency of batches: one before the run, with
nothing beside it (`measure_batches`, which is what `plan --batch-trace` takes), and one of the batches of the run
itself, with games, dispatch and whatever else the machine does beside them. The first says what a plan would have said;
the second whether the rule holds.

The policy computes in PyTorch with float32 (`torch`, which the bar is for) or bfloat16, or in ONNX Runtime with float32
(`onnx`).
"""

from __future__ import annotations

import argparse
import io
import os
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import MeasuredBatches, ServedRunner, ServedSchedule, create_atari_environment, measure_batches

SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
IDLE = 0.5  # load average up to which a machine counts as idle
STACK = 4


def make_env() -> gym.Env[Any, Any]:
    game = create_atari_environment("Boxing", frame_skip=1, sticky_actions=False)
    return gym.wrappers.FrameStackObservation(game, STACK)


def make_policy(kind: str) -> Any:
    import torch

    from async_wrappers.agents.networks.torsos import NatureTorso

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torso = NatureTorso((STACK, 84, 84))
    network = torch.nn.Sequential(torso, torch.nn.Linear(torso.output_size, 18)).eval()
    if kind == "onnx":
        return in_onnx_runtime(network)
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    network = network.to(dtype)

    def infer(observations: Any) -> Any:
        with torch.inference_mode():
            return network(torch.from_numpy(observations).to(dtype).div_(255)).argmax(dim=1).numpy()

    return infer


def in_onnx_runtime(network: Any) -> Any:
    import onnxruntime
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter, which needs no trace of this plain network
        named: dict[str, Any] = {"input_names": ["cells"], "dynamic_axes": {"cells": {0: "batch"}}}
        torch.onnx.export(network, (torch.zeros(2, STACK, 84, 84),), file, dynamo=False, **named)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])

    def infer(observations: Any) -> Any:
        cells = observations.astype(np.float32) / np.float32(255)
        return session.run(None, {"cells": cells})[0].argmax(axis=1)

    return infer


def predicted(latency: MeasuredBatches, options: argparse.Namespace) -> ServedSchedule:
    return ServedSchedule(
        latency, options.environments, 60, options.playout, accelerators=options.accelerators, phases=options.phases
    )


def described(latency: MeasuredBatches) -> str:
    sizes = ", ".join(f"{size}: {1000 * float(np.median(trace.latencies)):.2f}" for size, trace in _some(latency))
    line = latency.fit
    return f"{1000 * line.fixed:.2f} + {1000 * line.each:.3f} b ms, cv {line.cv:.2f} (medians {sizes} ms)"


def _some(latency: MeasuredBatches) -> list[Any]:
    found = list(latency.traces.items())
    return found[:: max(len(found) // 6, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=32)
    parser.add_argument("--playout", type=int, default=2, help="frames")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--accelerators", type=int, default=1)
    parser.add_argument("--phases", default="spread", choices=("spread", "together"))
    parser.add_argument("--fifo", type=int, help="real-time priority of all processes, for a machine with other work")
    parser.add_argument("--policy", default="torch", choices=("torch", "bfloat16", "onnx"))
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if options.fifo is not None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(options.fifo))
    before = measure_batches(make_policy(options.policy), np.zeros((STACK, 84, 84), np.uint8), SIZES, repeats=20)
    runner = ServedRunner(
        make_env,
        partial(make_policy, options.policy),
        options.environments,
        60,
        options.playout,
        accelerators=options.accelerators,
        phases=options.phases,
    )
    with runner:
        runner.run(seconds=2)  # the first second of processes is not a server's
        report = runner.run(seconds=options.seconds)
    frames = report.environments[0].frames["total"]
    plan = predicted(before, options).play(frames, 40)
    scheduling = "ordinary" if options.fifo is None else f"SCHED_FIFO {options.fifo}"
    print(f"load before {load:.2f}, {os.cpu_count()} cores, {scheduling} priority")
    print(report)
    print(f"batches alone, before the run: {described(before)}")
    print(f"  predicted from them:      {plan.in_time:8.2%} in time, batches of {plan.mean_batch:.1f}")
    try:
        during = report.batch_latency()
    except ValueError as error:
        print(f"batches of the run: {error}")
        same = float("nan")
    else:
        found = predicted(during, options).play(frames, 40)
        same = found.in_time
        print(f"batches of the run:            {described(during)}")
        print(f"  predicted from them:      {same:8.2%} in time, batches of {found.mean_batch:.1f}")
    print(f"measured:                   {report.in_time:8.2%} in time, batches of {report.batch_size['mean']:.1f}")
    off = abs(report.in_time - plan.in_time)
    held = report.in_time >= 0.995 and off <= 0.01
    verdict = ("held  " if held else "MISSED") if load <= IDLE else "BUSY  "
    print(
        f"{verdict} {report.in_time:.2%} in time (hold >= 99.5 %), {100 * off:.2f} points off the plan, "
        f"{100 * abs(report.in_time - same):.2f} off the prediction from the run's own batches (hold <= 1)"
    )
    if load > IDLE:
        print(f"the machine was not idle (load {load:.2f} > {IDLE}): the bar is for two idle cores")


if __name__ == "__main__":
    main()
