"""A policy with memory whose core and head run in the environment loop: its punctuality, and what a release costs.

* ``lateness``: 60 frames a second, 4 workers whose inference takes 60 ms, V-trace's network with an LSTM of 256; the
  same agent without memory, whose loop computes nothing, in the same run. Hold: p99 lateness of the loop's frames at
  most 1 ms with memory.
* ``learning``: the same with a learner that works all the time: the loop reads new weights now and then.
* ``release``: microseconds of one release in one process, beside encoding and the whole network, for cores of several
  sizes: what the loop computes between its choice and the environment's step.

    python -m benchmarks.core_at_release [lateness] [learning] [release] [--seconds 30] [--hidden 256]
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from async_wrappers import AsyncRunner
from async_wrappers.agents.acting.decisions import Memories
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.learning.making import maker_of_learners
from async_wrappers.agents.networks.sequence_network import LSTMCore, create_actor_critic
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.policy import Decision, Memory

LATENCY = 0.060  # seconds that a worker's inference takes


class Numbers(gym.Env[Any, Any]):
    """Shows eight numbers, for ever."""

    observation_space = gym.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gym.spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show the first ones."""
        super().reset(seed=seed)
        return self._numbers(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show the next ones."""
        return self._numbers(), 1.0, False, False, {}

    def _numbers(self) -> Any:
        return self.np_random.uniform(-1, 1, 8).astype(np.float32)


class Slow:
    """A policy whose inference, or the slow half of it, takes `LATENCY` in all, to the absolute end."""

    def __init__(self, spec: VTrace) -> None:
        self._policy: Any = spec.make_policy()
        self.load_weights = self._policy.load_weights
        if hasattr(self._policy, "encode"):
            self.encode, self.release = partial(self._slowly, self._policy.encode), self._policy.release
        else:
            self.act = partial(self._slowly, self._policy.act)

    def _slowly(self, infer: Any, observation: Any, decision: Decision) -> Any:
        end = time.monotonic() + LATENCY
        answer = infer(observation, decision)
        while (rest := end - time.monotonic()) > 0:
            time.sleep(rest)
        return answer


def agent(hidden: int | None) -> VTrace:
    """Return V-trace with an LSTM of so many units; None for a network without memory."""
    env = Numbers()
    network = partial(
        create_actor_critic,
        torso=partial(MLPTorso, hidden=(256,)),
        core=None if hidden is None else partial(LSTMCore, hidden=hidden),
        feed_previous=hidden is not None,
    )
    terms: dict[str, Any] = {"unroll_length": 20, "batch_size": 4, "when_full": "drop_oldest", "store_version": True}
    return VTrace(env.observation_space, env.action_space, stack_size=1, network=network, device="cpu", **terms)


def lateness(hidden: int, seconds: float, learns: bool) -> None:
    """Print how late frames begin with memory and without."""
    what = "4 workers and a learner" if learns else "4 workers"
    print(f"\n{what}, 60 frames/s, {seconds:g} s{'':<14}{'p50 ms':>8}{'p99 ms':>8}{'fresh':>8}{'late':>6}{'delay':>7}")
    for name, units in ((f"LSTM of {hidden}, core at release", hidden), ("no memory", None)):
        spec = agent(units)
        learning: dict[str, Any] = {"make_learner": maker_of_learners(spec)} if learns else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more workers than cores
            runner = AsyncRunner(
                Numbers,
                partial(Slow, spec),
                4,
                60,
                default_action=0,
                extras=spec.extras,
                features=spec.features,
                **learning,
            )
        report = runner.run(seconds=seconds)
        share, late = report.frames["fresh"] / report.frames["total"], report.frames["late_actions"]
        print(
            f"{name:<48}{report.lateness_ms['p50']:>8.3f}{report.lateness_ms['p99']:>8.3f}{share:>8.1%}{late:>6}"
            f"{report.delay_frames['mean']:>7.2f}"
        )


def release(sizes: tuple[int, ...], times: int = 2_000) -> None:
    """Print what one release takes, beside the slow half and the whole."""
    torch.set_num_threads(1)
    print(f"\n{'microseconds, one row':<28}{'encode':>10}{'release p50':>14}{'p99':>8}{'whole':>8}")
    for size in sizes:
        policy: Any = agent(size).make_policy()
        observation, memory = np.zeros(8, np.float32), Memory(None, 0.0, True, None)
        took: dict[str, list[int]] = {"encode": [], "release": [], "whole": []}
        rows, nothing = observation[None, None], np.zeros(1, np.float32)
        of_one = Memories(policy.policy.initial_state(1), nothing.astype(np.int64), nothing, nothing == 0)
        with torch.inference_mode():
            for step in range(times):
                decision = Decision(0, step, step, eval_mode=False)
                begin = time.perf_counter_ns()
                features = policy.encode(observation, decision)
                encoded = time.perf_counter_ns()
                answer = policy.release(features, memory, decision)
                released = time.perf_counter_ns()
                policy.policy.act(rows, of_one, (decision,))
                whole = time.perf_counter_ns()
                memory = Memory(answer.action, 1.0, False, answer.state)
                for name, span in (
                    ("encode", encoded - begin),
                    ("release", released - encoded),
                    ("whole", whole - released),
                ):
                    took[name].append(span)
        p50 = {name: np.median(spans) / 1e3 for name, spans in took.items()}
        p99 = np.quantile(took["release"], 0.99) / 1e3
        print(f"{f'LSTM of {size}':<28}{p50['encode']:>10.0f}{p50['release']:>14.0f}{p99:>8.0f}{p50['whole']:>8.0f}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], choices=[[], "lateness", "learning", "release"])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--hidden", type=int, default=256)
    arguments = parser.parse_args()
    parts = arguments.parts or ["lateness", "learning", "release"]
    if "release" in parts:
        release((64, arguments.hidden, 512))
    for part in ("lateness", "learning"):
        if part in parts:
            lateness(arguments.hidden, arguments.seconds, part == "learning")


if __name__ == "__main__":
    main()
