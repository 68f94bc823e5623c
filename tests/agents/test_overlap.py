"""Updates computed beside the environment: the same results whatever takes how long, and errors that surface."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.play import learning_agent
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from tests.contracts.agent_contract import WORLDS, AgentContract, in_a_file, play
from tests.worlds.agents import make_agent
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.plain_data import assert_identical, differs

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")


def overlapping(member: str, environment: gym.Env[Any, Any], **arguments: Any) -> TurnBasedAgent:
    agent = make_agent(member, environment, **{"update_period": 3, "target_update_period": 6, **arguments})
    agent.overlap_learning()
    return agent


class TestContract(AgentContract):
    """The agent contract with overlap: of one agent, since it is the same code in all; the others are below."""

    played = "turn-based"

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return overlapping("dqn, double, dueling, prioritized", environment, stack_size=2, seed=seed)


class AtOnce:
    """A thread that is always faster than the environment."""

    used = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.used += 1
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done


class AtTheJoin:
    """A thread that never begins before somebody waits for it."""

    used = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.used += 1

        class Waiting:
            def result(self) -> Any:
                return function(*arguments)

        return Waiting()


def dawdling(learn: Callable[..., Any]) -> Callable[..., Any]:
    rng = np.random.default_rng(0)

    def learn_later(*arguments: Any) -> Any:
        time.sleep(rng.random() / 500)
        return learn(*arguments)

    return learn_later


@pytest.mark.parametrize("member", ["full_rainbow", "implicit_quantile", "c51, in a reservoir"])
def test_results_do_not_depend_on_what_takes_how_long(
    member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for timing in ("thread", "dawdling thread", "at once", "at the join", "thread, restored"):
        env = WORLDS["delay 2, noops 3"](DriftingEnv(noop=True))
        with monkeypatch.context() as patch:
            if timing in ("at once", "at the join"):
                thread = AtOnce() if timing == "at once" else AtTheJoin()
                patch.setattr(learning_agent, "ThreadPoolExecutor", lambda *_, thread=thread, **named: thread)
            agent = overlapping(member, env, seed=4)
        if timing == "dawdling thread":
            agent.learner.learn = dawdling(agent.learner.learn)  # type: ignore[method-assign]
        actions = play(agent, env, range(5))
        if timing == "thread, restored":
            bundle = in_a_file(agent.bundle_and_checkpoint(tmp_path / timing, 0), tmp_path)
            agent = overlapping(member, env, seed=4)
            agent.unbundle(tmp_path / timing, 0, bundle)
        actions += play(agent, env, range(100, 102), eval_mode=True) + play(agent, env, range(5, 8))
        assert agent.learner.updates > 3
        if timing in ("at once", "at the join"):
            assert thread.used == agent.learner.updates
        bundle = agent.bundle_and_checkpoint(tmp_path / timing, 1)
        runs.append((actions, bundle, agent.learner.replay.state_dict()))
    for run in runs[1:]:
        assert_identical(run, runs[0])


def test_results_differ_from_those_without_overlap() -> None:
    runs = []
    for make in (make_agent, overlapping):
        env = DriftingEnv(noop=True)
        agent = make("full_rainbow", env, update_period=3, target_update_period=6)
        play(agent, env, range(12))
        runs.append(agent.learner.state_dict())
    assert differs(*runs)


def test_the_weights_that_act_are_those_of_the_update_before_the_one_under_way() -> None:
    env = DriftingEnv(lengths=[26], noop=True)
    agent = overlapping("c51", env, update_period=4, min_replay_history=7)
    learn, act = agent.learner.learn, agent.policy.act
    learnt, acting = [deepcopy(dict(agent.learner.weights()))], []

    def learn_and_look(*arguments: Any) -> Any:
        scalars = learn(*arguments)
        learnt.append({name: tensor.clone() for name, tensor in agent.learner.network.state_dict().items()})
        return scalars

    def look_and_act(*arguments: Any) -> int:
        acting.append({name: tensor.clone() for name, tensor in agent.policy.weights().items()})
        return act(*arguments)

    agent.learner.learn = learn_and_look  # type: ignore[method-assign]
    agent.policy.act = look_and_act  # type: ignore[method-assign]
    play(agent, env, range(2))
    # Decision 8 is the first that has seen eight transitions. Updates begin at 8, 12, 16, 20, 24, at 28, 32, ..., 48 of
    # the second episode, which begins at 26; each acts from the next one on, an episode's last from its end on.
    one = [0] * 12 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 2
    other = [5] * 6 + [6] * 4 + [7] * 4 + [8] * 4 + [9] * 4 + [10] * 4
    assert len(learnt) == 12
    for weights, number in zip(acting, one + other, strict=True):
        assert_identical(weights, {name: learnt[number][name] for name in weights})
    assert_identical(dict(agent.policy.weights()), learnt[-1])


def test_the_environment_steps_on_while_an_update_is_under_way() -> None:
    env = DriftingEnv(lengths=[12], noop=True)
    agent = overlapping("c51", env)
    learn, step, stepped = agent.learner.learn, env.step, threading.Event()
    waited, threads = [], set()

    def learn_once_stepped(*arguments: Any) -> Any:
        waited.append(stepped.wait(timeout=60))
        threads.add(threading.current_thread())
        return learn(*arguments)

    def step_and_tell(action: Any) -> Any:
        stepped.set()
        return step(action)

    agent.learner.learn = learn_once_stepped  # type: ignore[method-assign]
    env.step = step_and_tell  # type: ignore[method-assign]
    draw = agent.learner.draw  # as an update begins
    agent.learner.draw = lambda: (stepped.clear(), draw())[1]  # type: ignore[method-assign, func-returns-value]
    play(agent, env, range(3))
    assert waited == [True] * agent.learner.updates and len(waited) > 8
    assert len(threads) == 1 and threading.current_thread() not in threads


def test_a_loss_that_is_not_finite_ends_the_game_with_the_weights_as_they_were(tmp_path: Path) -> None:
    env = DriftingEnv(noop=True)
    agent = overlapping("full_rainbow", env, diverged_dir=str(tmp_path))
    play(agent, env, range(6))
    updates, before = agent.learner.updates, deepcopy(dict(agent.learner.weights()))
    observe = agent.learner.replay.observe
    agent.learner.replay.observe = lambda transition: observe({**transition, "reward": float("nan")})  # type: ignore[method-assign]
    with pytest.raises(DivergedError, match=r"^the environment returned nan as its reward .* update \d+ nan") as caught:
        play(agent, env, range(6, 20))
    assert updates < agent.learner.updates
    path = tmp_path / f"diverged_batch_{agent.learner.updates}.pt"
    assert str(path) in str(caught.value)
    assert torch.load(path, weights_only=True)["batch"]["reward"].isnan().any()
    for weights in (agent.learner.weights(), agent.policy.weights()):
        assert all(tensor.isfinite().all() for tensor in weights.values())
        assert differs(dict(weights), before)
