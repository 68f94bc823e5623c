"""Boxing at 60 frames a second, played by networks that are slower than a frame, or serve many games.

``served``: many games, served by the Nature network: what the simulation predicts, and what happens. The prediction is
that of `ServedSchedule`, from two measurements of the latency of batches: one before the run, with nothing beside it
(`measure_batches`, which is what `plan --batch-trace` takes), and one of the batches of the run itself, with games,
dispatch and whatever else the machine does beside them. The first says what a plan would have said; the second whether
the rule holds. The policy computes in PyTorch with float32 (`torch`, which the bar is for) or bfloat16, or in ONNX
Runtime with float32 (`onnx`). Hold, on two cores that are idle before: >= 99.5 % of the actions in time, within a point
of the prediction.

``network``: one game, played by the 10 M network (``--size``): the share of fresh frames in sequential interaction and
with 1, 2, 3 staggered workers on the cores there are, beside what `plan` says from the latency measured in the same
run; a third as long.

    python -m benchmarks.boxing [served] [network] [--environments 32] [--playout 2] [--seconds 60] [--accelerators 1]
        [--fifo 40] [--policy torch] [--size 10m]
"""

from __future__ import annotations

import io
import os
import warnings
from argparse import Namespace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import (
    AsyncRunner,
    MeasuredBatches,
    ServedRunner,
    ServedSchedule,
    create_atari_environment,
    measure_batches,
    plan,
)
from async_wrappers.latency import measure
from async_wrappers.policy import Decision
from benchmarks.measuring import FIFO, print_hold, quietly, run_parts

SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
IDLE = 0.5  # load average up to which a machine counts as idle
STACK = 4


def boxing() -> gym.Env[Any, Any]:
    return create_atari_environment("Boxing", frame_skip=1, sticky_actions=False)


def stacked() -> gym.Env[Any, Any]:
    return gym.wrappers.FrameStackObservation(boxing(), STACK)


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


def predicted(latency: MeasuredBatches, args: Namespace) -> ServedSchedule:
    return ServedSchedule(
        latency, args.environments, 60, args.playout, accelerators=args.accelerators, phases=args.phases
    )


def described(latency: MeasuredBatches) -> str:
    found = list(latency.traces.items())
    some = found[:: max(len(found) // 6, 1)]
    sizes = ", ".join(f"{size}: {1000 * float(np.median(trace.latencies)):.2f}" for size, trace in some)
    line = latency.fit
    return f"{1000 * line.fixed:.2f} + {1000 * line.each:.3f} b ms, cv {line.cv:.2f} (medians {sizes} ms)"


def served(args: Namespace) -> None:
    """Print predictions and what happened."""
    load = os.getloadavg()[0]
    make = partial(make_policy, args.policy)
    before = measure_batches(make(), np.zeros((STACK, 84, 84), np.uint8), SIZES, repeats=20)
    terms: dict[str, Any] = {"accelerators": args.accelerators, "phases": args.phases}
    with ServedRunner(stacked, make, args.environments, 60, args.playout, **terms) as runner:
        runner.run(seconds=2)  # the first second of processes is not a server's
        report = runner.run(seconds=args.seconds)
    frames = report.environments[0].frames["total"]
    scheduling = "ordinary" if args.fifo is None else f"SCHED_FIFO {args.fifo}"
    print(f"load before {load:.2f}, {os.cpu_count()} cores, {scheduling} priority\n{report}")
    measured: dict[str, MeasuredBatches] = {"batches alone, before the run": before}
    try:
        measured["batches of the run"] = report.batch_latency()
    except ValueError as error:
        print(f"batches of the run: {error}")
    off = []
    for name, latency in measured.items():
        found = predicted(latency, args).play(frames, 40)
        off.append(100 * abs(report.in_time - found.in_time))
        print(f"{name}: {described(latency)}")
        print(f"  predicted from them:      {found.in_time:8.2%} in time, batches of {found.mean_batch:.1f}")
    print(f"measured:                   {report.in_time:8.2%} in time, batches of {report.batch_size['mean']:.1f}")
    print_hold("in time", report.in_time, least=0.995)
    print_hold("points off the plan", off[0], most=1)
    print(f"points off the prediction from the run's own batches: {', '.join(f'{each:.2f}' for each in off[1:])}")
    if load > IDLE:
        print(f"the machine was not idle (load {load:.2f} > {IDLE}): the bar is for two idle cores")


def network(args: Namespace) -> None:
    """Print the share of fresh frames, sequentially and with 1 to 3 workers."""
    from async_wrappers.agents.families.value_based.dqn import DQN
    from async_wrappers.agents.networks.q_network import create_network

    env = boxing()
    torso = partial(create_network, torso=args.size)
    dqn = DQN(env.observation_space, env.action_space, stack_size=1, network=torso, epsilon_eval=0.0)
    observation, policy = env.reset(seed=0)[0], dqn.make_policy()
    latency = measure(lambda seen: policy.act(seen, Decision(0, 0, 0, True)), observation, repeats=40)
    print(f"\n{args.size} network, one process alone: {1000 * latency.mean:.1f} ms an inference")
    print(f"{'':<22}{'fresh':>8}{'delay':>8}{'latency ms':>12}{'late':>6}{'dropped':>9}{'lateness p99 ms':>17}")
    for name, workers, stagger, slot in (
        ("sequential", 1, "sequential", None),
        ("1 worker", 1, "tickets", None),
        ("2 workers", 2, "tickets", None),
        ("2 workers, slot 1", 2, "tickets", 1),
        ("3 workers", 3, "tickets", None),
        ("3 workers, slot 1", 3, "tickets", 1),
    ):
        with quietly():
            runner = AsyncRunner(boxing, dqn.make_policy, workers, 60, stagger, slot=slot, eval_mode=True)
        report = runner.run(seconds=args.seconds / 3)
        share = report.frames["fresh"] / report.frames["total"]
        print(
            f"{name:<22}{share:>8.1%}{report.delay_frames['mean']:>8.2f}{report.latency_ms['mean']:>12.1f}"
            f"{report.frames['late_actions']:>6}{report.frames['dropped_actions']:>9}{report.lateness_ms['p99']:>17.3f}"
        )
    print(f"\nplan, from the latency of one process alone:\n{plan(latency, fps=60)}")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"served": served, "network": network},
        environments=(32, "that are served"),
        playout=(2, "frames"),
        seconds=(60.0, "of the run"),
        accelerators=(1, "that serve"),
        phases=("spread", "spread or together"),
        fifo=FIFO,
        policy=("torch", "torch, bfloat16 or onnx"),
        size=("10m", "of the network"),
    )
