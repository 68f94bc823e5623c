"""Agents that read stacks, live: they act as in turn, and learn from the stacks that they have read."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

from async_wrappers import AsyncRunner, LogNormal, RealtimeDelay
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.c51 import C51
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.networks.cores import LSTMCore
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.play import environment_seed
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.spec import Spec
from tests.worlds.agents import tiny_network
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv

K, FPS, EPISODES = 4, 100, 12


def torso(shape: Any) -> torch.nn.Module:
    return MLPTorso(shape, (6,))


def spec_of(kind: Any, env: Any, core: bool = False, **arguments: Any) -> Any:
    made: dict[str, Any] = {"network": tiny_network, "min_replay_history": 10**6, "replay_capacity": 3000}
    cores = (lambda size: LSTMCore(size, 4)) if core else None
    if kind is VTrace:
        made = {
            "network": lambda shape, actions: create_actor_critic(shape, actions, torso=torso, core=cores),
            "batch_size": 2,
            "unroll_length": 5,
        }
    if kind is R2D2:
        made |= {
            "network": lambda shape, actions: create_recurrent_q_network(shape, actions, torso=torso, core=cores),
            "burn_in": 0,
            "state_period": 5,
            "unroll_length": 5,
            "batch_size": 2,
        }
    if kind is C51:
        made |= {"network": None, "num_atoms": 7, "vmax": 60.0, "update_horizon": 3}
        del made["network"]
    if kind is not VTrace:
        made |= {"epsilon_decay_period": 100, "epsilon_warmup": 50, "epsilon_train": 0.2}
    frozen = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.0), "device": "cpu", "seed": 3}
    return kind(env.observation_space, env.action_space, stack_size=K, **{**made, **frozen, **arguments})


def watched(learner: Any) -> list[dict[str, Any]]:
    """Return what a learner will observe."""
    seen: list[dict[str, Any]] = []
    observe = learner.observe

    def note(transition: dict[str, Any]) -> None:
        seen.append(transition)
        observe(transition)

    learner.observe = note
    return seen


def drawn_by(learner: Any) -> list[Any]:
    """Return the batches that a learner will draw."""
    batches: list[Any] = []
    sample = learner.replay.sample

    def note() -> Any:
        batches.append(sample())
        return batches[-1]

    learner.replay.sample = note
    return batches


def in_turn(spec: Any, env: Any) -> TurnBasedAgent:
    agent = TurnBasedAgent(spec)
    agent.learner.drawn = drawn_by(agent.learner)
    for number in range(EPISODES):
        play_episode(agent, env, environment_seed(0, 0, number))
    return agent


def live(spec: Any, env: Any, **timing: Any) -> tuple[Any, list[dict[str, Any]], dict[tuple[int, int], Any], Any]:
    """Play as `in_turn`; return the learner, what it observed, what decisions read, and the report."""
    learner = make_learner(spec)
    seen, read = watched(learner), {}
    learner.drawn = drawn_by(learner)

    def policy() -> Any:
        made = spec.make_policy()
        name = "act" if spec.features is None else "encode"
        inner = getattr(made, name)

        def note(observation: Any, decision: Any) -> Any:
            read[decision.episode, decision.start] = observation
            return inner(observation, decision)

        setattr(made, name, note)
        return made

    runner = AsyncRunner(
        lambda: env,
        policy,
        fps=FPS,
        backend="virtual",
        make_learner=lambda: learner,
        learner_latency=0.001,
        journal=1000,
        stack_size=K,
        extras=spec.extras,
        features=spec.features,
        **timing,
    )
    with runner, TemporaryDirectory() as directory:
        report = runner.run(episodes=EPISODES)
        runner.save(directory)  # before which it observes what is left
    return learner, seen, read, report


def batch_of(learner: Any, kind: Any) -> dict[str, Any]:
    """Return all that a learner has, as tensors of a batch."""
    if kind is VTrace:
        batches = [learner.tensors(batch) for batch in learner.drawn]
        names = ("observation", "action", "reward", "discount", "mask", "first", "previous_action", "previous_reward")
        return {name: torch.cat([batch[name] for batch in batches], dim=1) for name in names}
    return learner.tensors(learner.replay.transitions(learner.replay.valid_slots()))


SHORT, SLOTS = {"latency": 0.025, "workers": 3}, {"latency": 0.035, "workers": 2, "slot": 2}


@pytest.mark.parametrize(
    ("kind", "core", "timing"),
    [
        (DQN, False, SHORT),
        (DQN, False, SLOTS),
        (C51, False, SLOTS),
        (R2D2, False, SLOTS),
        (R2D2, True, SHORT),
        (VTrace, False, SLOTS),
        (VTrace, True, SHORT),
    ],
)
def test_an_agent_acts_and_learns_from_the_stacks_of_turn_based_play(
    kind: Any, core: bool, timing: dict[str, Any]
) -> None:
    ends = [(True, False), (False, True), (False, True)]
    envs = [DriftingEnv([20, 3, 9, 14], ends, noop=True) for _ in range(2)]
    spec = spec_of(kind, envs[0], core)
    agent = in_turn(spec, RealtimeDelay(envs[0], fps=FPS, **timing))
    learner, *_ = live(spec.of_stacks(), envs[1], **timing)
    assert [life.actions for life in envs[0].lives] == [life.actions for life in envs[1].lives]
    turn, found = batch_of(agent.learner, kind), batch_of(learner, kind)
    assert found["observation"].shape[-2:] == (K, 3)
    for name in turn.keys() & found.keys() - {"extras"}:
        if name == "next_observation":
            on = turn["discount"] > 0  # else nobody reads it
            torch.testing.assert_close(found[name][on], turn[name][on], rtol=0, atol=0)
        else:
            torch.testing.assert_close(found[name], turn[name], rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("kind", [DQN, VTrace])
def test_transitions_hold_the_stacks_that_were_read_whatever_is_dropped(kind: Any) -> None:
    env = DriftingEnv([25], [(True, False)], noop=True)
    latency = LogNormal(0.04, 0.8)
    _, seen, read, report = live(
        spec_of(kind, env).of_stacks(), env, latency=latency, workers=4, stagger="none", playout=0
    )
    assert report.frames["dropped_actions"] > 20
    keys = [(span.episode, span.start) for span in report.spans if span.effect is not None]
    keys.sort()
    assert len(seen) == len(keys)
    for transition, key in zip(seen, keys, strict=True):
        np.testing.assert_array_equal(transition["observation"], read[key])


def test_stacks_of_dicts_are_learnt_from() -> None:
    env = DictEnv(picture=False, lengths=[15], noop=True)
    spec = spec_of(DQN, env, network=create_network).of_stacks()
    learner, seen, *_ = live(spec, env, latency=0.02, workers=2)
    assert len(seen) > 50
    assert np.isfinite(float(learner.update()["Loss"]))


def test_an_agent_without_stacks_of_its_own_is_refused_in_a_sentence() -> None:
    class Mine(Spec):
        name = "mine"
        stack_size = 3

    with pytest.raises(
        ValueError, match=r"^stack_size must be 1 with agent 'mine' beside a real clock, got 3: give Min"
    ):
        Mine(DriftingEnv().observation_space, DriftingEnv().action_space).of_stacks()
    env = DriftingEnv()
    with pytest.raises(ValueError, match=r"take of_stacks\(\), and give AsyncRunner stack_size=4$"):
        DQN(env.observation_space, env.action_space, stack_size=4, network=tiny_network).make_policy()
