"""Whether a device computes what the CPU does, and whether what is special to it works.

Updates are compared by the change of the weights under plain gradient descent: it is the gradient, and the distance of
two such changes, as a share of the CPU's, is what a tolerance bounds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from async_wrappers import AsyncRunner, ServedRunner
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.making import make_vector_learner, maker_of_learners
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.spaces.compute import computes_bf16
from async_wrappers.batched.factory import create_batched_envs
from async_wrappers.live.remote.server import PolicyServer
from benchmarks.gpu.cases import CASES, Case, Drawn, pair, plain_descent

EXACT = 2e-3  # share of the CPU's gradient, in float32 without TF32
DEFAULT = 5e-2  # with what torch allows by itself: convolutions in TF32, 10 bits of mantissa
BF16 = 0.25  # forward passes in bfloat16, 8 bits
UPDATES = 2
ROOT = Path(__file__).parents[2]

Row = dict[str, Any]


def row(what: str, right: bool, figure: str) -> Row:
    """Print and return a line of the table."""
    print(f"{'right' if right else 'WRONG':<6} {what:<58} {figure}", flush=True)
    return {"what": what, "right": bool(right), "figure": figure}


def check_all(device: str, left: Callable[[], float], brief: bool) -> list[Row]:
    """Make every check, and return a row for each; those that no time is left for are named and are not right."""
    checks: dict[str, Callable[[], Iterator[Row]]] = {
        **{f"gradients of {name}": partial(gradients, name, case, device) for name, case in CASES.items()},
        "late losses": partial(late_losses, device),
        "bfloat16": partial(bfloat16, device),
        "states": partial(states, device),
        "devices that act": partial(devices_that_act, device),
        "live workers": partial(live_workers, device, 1.0 if brief else 3.0),
        "a policy server": partial(policy_server, device, 1.0 if brief else 3.0),
        "a server of many environments": partial(served, device, 1.0 if brief else 3.0),
        "checkpoints": partial(checkpoints, device),
    }
    print(f"\nright: {device} beside the CPU", flush=True)
    rows: list[Row] = []
    for name, check in checks.items():
        if left() < 5:
            rows.append(row(name, False, "not tried: no time was left"))
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows += check()
        except Exception as error:  # the others are worth their rows
            rows.append(row(name, False, f"{type(error).__name__}: {error}"))
    return rows


# Gradients.


def weights_of(learner: Any) -> dict[str, torch.Tensor]:
    """Return a copy of a learner's weights on the CPU, in double precision."""
    return {name: weight.detach().cpu().double().clone() for name, weight in learner.network.named_parameters()}


def change(learner: Any, updates: int = UPDATES) -> torch.Tensor:
    """Return by how much some updates change a learner's weights, as one vector."""
    before = weights_of(learner)
    for _ in range(updates):
        learner.update()
        learner.finish_update()
    after = weights_of(learner)
    return torch.cat([(after[name] - before[name]).flatten() for name in before])


def distance(there: torch.Tensor, here: torch.Tensor) -> float:
    """Return how far two changes are apart, as a share of the second."""
    return float((there - here).norm() / here.norm())


class _Exactly:
    """Without TF32, in which a GPU convolves by default."""

    def __enter__(self) -> None:
        self._before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: Any) -> None:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = self._before


def gradients(name: str, case: Case, device: str) -> Iterator[Row]:
    """Compare losses and gradients of the same batches with those on the CPU, exactly and as torch computes them."""
    for exactly, most in ((True, EXACT), (False, DEFAULT)):
        here, there = pair(case, case.spec("cpu", optimizer=plain_descent), case.spec(device, optimizer=plain_descent))
        if exactly:
            with _Exactly():
                moved = change(there)
        else:
            moved = change(there)
        apart = distance(moved, change(here))
        losses = float(here.scalars["Loss"]), float(there.scalars["Loss"])
        agree = abs(losses[1] - losses[0]) <= most * max(1.0, abs(losses[0]))
        how = "float32" if exactly else "as torch computes by default"
        yield row(
            f"{name}: gradient, {how}",
            agree and apart <= most,
            f"{apart:.1e} <= {most:g} of the CPU's; loss {losses[1]:.6g}, there {losses[0]:.6g}",
        )


def late_losses(device: str) -> Iterator[Row]:
    """Losses that nobody waits for: the same weights, and one that is not finite is found before anything is given."""
    case = CASES["DQN"]
    waiting, late = (case.spec(device, optimizer=plain_descent) for _ in range(2))
    waiting.compute, late.compute = replace(waiting.compute, wait=True), replace(late.compute, wait=False)
    if device != "cpu":
        yield row("a loss is checked late by default", case.spec(device).compute.deferred, f"on {device}")
    learners = pair(case, waiting, late)
    apart = distance(change(learners[1], 4), change(learners[0], 4))
    yield row("late losses: the same weights", apart <= EXACT, f"{apart:.1e} <= {EXACT:g}")
    learner = learners[1]
    sample = learner.replay.sample

    def spoilt() -> dict[str, Any]:
        batch = dict(sample())
        return {**batch, "reward": batch["reward"] * float("nan")}

    learner.replay.sample = spoilt
    with tempfile.TemporaryDirectory() as directory:
        learner.diverged_dir = directory
        learner.update()
        try:
            learner.weights()
            found = "nothing was raised"
        except DivergedError as error:
            found = str(error)[:60]
    finite = all(bool(weight.isfinite().all()) for weight in learner.network.parameters())
    yield row("a late loss of nan is found, and the weights stay finite", finite and "reward" in found, found)


def bfloat16(device: str) -> Iterator[Row]:
    """``bf16="auto"``, and the gradients of forward passes in bfloat16."""
    own = computes_bf16(torch.device(device))
    auto = CASES["DQN"].spec(device, bf16="auto")
    yield row('bf16="auto"', bool(auto.compute.bf16) == own, auto.compute.precision_in_words())
    if not own:  # a device that imitates it takes minutes
        return
    for name in ("DQN", "V-trace"):
        case = CASES[name]
        plain, half = case.spec("cpu", optimizer=plain_descent), case.spec(device, optimizer=plain_descent, bf16="auto")
        here, there = pair(case, plain, half)
        apart = distance(change(there), change(here))
        yield row(f"{name}: gradient, bfloat16", apart <= BF16, f"{apart:.1e} <= {BF16:g} of the CPU's in float32")


# States.


def states(device: str) -> Iterator[Row]:
    """A learner's state goes from the CPU to the device and back, through a file."""
    for name in ("R2D2", "PPO", "SAC"):
        case = CASES[name]
        here, there = pair(case, case.spec("cpu"), case.spec(device))
        here.update()
        there.load_state_dict(_through_file(here.state_dict()))
        same = all(torch.equal(weight, weights_of(there)[key]) for key, weight in weights_of(here).items())
        if here.ready:  # a round is learnt from once
            there.update()
        back = make_vector_learner(case.spec("cpu"), case.envs)
        back.load_state_dict(_through_file(there.state_dict()))
        same = same and all(torch.equal(weight, weights_of(back)[key]) for key, weight in weights_of(there).items())
        same = same and back.updates == there.updates
        yield row(f"{name}: a state from the CPU to {device} and back", same, f"{back.updates} updates")


def _through_file(state: Any) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.pt"
        torch.save(state, path)
        return torch.load(path, map_location="cpu", weights_only=True)


def devices_that_act(device: str) -> Iterator[Row]:
    """Copies of the policy on devices choose the learner's actions."""
    case = CASES["DQN"]
    spec = case.spec("cpu", epsilon_train=0.0, epsilon_decay_period=0)
    one = VectorAgent(spec, case.envs)
    number = "cuda:0" if device == "cuda" else device
    other = VectorAgent(case.spec("cpu", epsilon_train=0.0, epsilon_decay_period=0), case.envs, act_devices=(number,))
    envs = create_batched_envs(partial(Drawn, case.observation_space, case.action_space), case.envs)
    envs.begin(list(range(case.envs)))
    same = total = 0
    for _ in range(60):
        shown = envs.recv()
        for agent in (one, other):
            agent.observe(shown)
        chosen, theirs = one.decide(shown), other.decide(shown)
        same, total = same + int((chosen == theirs).sum()), total + len(chosen)
        envs.send(shown.env_ids, chosen)
    envs.close()
    yield row(f"act_devices=({number!r},): the learner's actions", same >= 0.98 * total, f"{same} of {total}")


# Live.


def _cartpole() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def _small(device: str) -> DQN:
    env = _cartpole()
    return DQN(
        env.observation_space,
        env.action_space,
        stack_size=1,
        device=device,
        min_replay_history=5,
        replay_capacity=5_000,
        epsilon_eval=0.0,
    )


def live_workers(device: str, seconds: float) -> Iterator[Row]:
    """Workers, and a learner that publishes to them, compute on the device; in processes and in threads."""
    spec = _small(device)
    for backend in ("process", "thread"):
        learner: dict[str, Any] = {"make_learner": maker_of_learners(spec)} if backend == "process" else {}
        runner = AsyncRunner(
            _cartpole,
            spec.make_policy,
            2,
            30,
            backend=backend,
            default_action="repeat",
            start_timeout=120,
            **learner,
        )
        report = runner.run(seconds=seconds)
        frames, restarts = report.frames, report.workers["restarts"]
        took = np.nan if report.learner_step_ms is None else report.learner_step_ms["p50"]
        yield row(
            f"live workers, backend={backend!r}",
            frames["fresh"] >= 0.8 * frames["total"] and not restarts and bool(np.isfinite(took)) == bool(learner),
            f"{frames['fresh']} of {frames['total']} frames fresh, an inference {report.latency_ms['p50']:.2f} ms"
            + (f", an update {took:.1f} ms" if learner else ""),
        )


def policy_server(device: str, seconds: float) -> Iterator[Row]:
    """A policy server whose workers share the device."""
    spec = _small(device)
    for backend in ("process", "thread"):
        with PolicyServer(spec.make_policy, "tcp://127.0.0.1:0", workers=2, backend=backend) as server:
            runner = AsyncRunner(_cartpole, server.address, 2, 30, default_action="repeat", start_timeout=120)
            report = runner.run(seconds=seconds)
        frames = report.frames
        yield row(
            f"a policy server, backend={backend!r}",
            frames["fresh"] >= 0.8 * frames["total"],
            f"{frames['fresh']} of {frames['total']} frames fresh, an inference {report.latency_ms['p50']:.2f} ms",
        )


class Upright:
    """A network on a device that infers for many environments at a time."""

    def __init__(self, device: str) -> None:
        self._network = torch.nn.Linear(4, 2).to(device)
        self._device = device

    @torch.inference_mode()
    def __call__(self, observations: Any) -> Any:
        """Return an action for each row."""
        rows = torch.as_tensor(np.asarray(observations)).to(self._device)
        return self._network(rows).argmax(dim=1).cpu().numpy()


def served(device: str, seconds: float) -> Iterator[Row]:
    """One process with the device infers for eight environments that do not wait."""
    runner = ServedRunner(
        _cartpole, partial(Upright, device), environments=8, fps=30, default_action="repeat", playout=2
    )
    report = runner.run(seconds=seconds)
    yield row("a server of 8 environments", report.in_time >= 0.8, f"{report.in_time:.1%} of the actions in time")


# A run.


def checkpoints(device: str) -> Iterator[Row]:
    """A run begins on the CPU, goes on on the device, and ends on the CPU."""
    with tempfile.TemporaryDirectory() as directory:
        for iterations, where in enumerate(("cpu", device, "cpu"), 1):
            command = [sys.executable, "train.py", "--base_dir", directory]
            for binding in (
                f"Runner.num_iterations = {iterations}",
                f"DQNAgent.device = '{where}'",
                "Runner.training_steps = 1_000",
                "Runner.evaluation_steps = 200",
                "Runner.report_episodes = 0",
            ):
                command += ["--gin_bindings", binding]
            command += [] if iterations > 1 else ["--gin_files", "configs/dqn/cartpole.gin"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
            last = [*done.stderr.splitlines(), "nothing was printed"][0] if done.returncode else ""
            yield row(f"a run's iteration {iterations} on {where}", not done.returncode, last[:80])
            if done.returncode:
                return
