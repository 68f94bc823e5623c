"""An agent with a core under delay: it decides when its action is due, and its sequences hold what it decided on.

By the time action j lands, on frame e_j, action j - 1 and the rewards before e_j are known; the observation is o_{s_j}.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.networks.cores import LSTMCore
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.analysis.regret import decompose
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.latency import LogNormal
from async_wrappers.wrappers.chunk import Chunk
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.latency_models import FAST

ROWS = 5  # of a sequence
MEMORY = ("previous_action", "previous_reward", "first")
CONSTANTS = [{"delay": 4}, {"delay": 6, "noops": 1}, {"delay": 3, "noops": 3}, {"delay": 1, "noops": 2}]
CHUNKS = {"latency": LogNormal(0.05, 0.5), "fps": 60, "default_action": Chunk(9, "noop")}
LATENCIES = [
    {"latency": LogNormal(0.05, 0.5), "workers": 3, "fps": 60},
    {"latency": LogNormal(0.05, 0.8), "workers": 2, "fps": 60, "stagger": "none"},
]


def frozen(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.0)


def spec_of(kind: Any, env: Any, seed: int = 0, window: int | None = None) -> Any:
    """Make an agent with a core; or with a window of the last actions, a core beside it in R2D2 alone."""
    made_by, of_kind = create_actor_critic, dict[str, Any](batch_size=1, unroll_length=ROWS)
    if kind is R2D2:
        made_by, of_kind = create_recurrent_q_network, {"burn_in": 0, "state_period": ROWS, "unroll_length": ROWS}
        of_kind |= {"min_replay_history": 1000, "replay_capacity": 5000, "batch_size": 2}

    def network(shape: Any, actions: int, **chunk: int) -> torch.nn.Module:
        core = None if window is not None and kind is VTrace else lambda size: LSTMCore(size, 4)
        memory = {"core": core, "feed_previous": window is None, "action_window": window}
        return made_by(shape, actions, torso=lambda s: MLPTorso(s, (6,)), **memory, **chunk)

    arguments = {"network": network, "optimizer": frozen, "stack_size": 1, "device": "cpu", "seed": seed, **of_kind}
    return kind(env.observation_space, env.action_space, **arguments)


@pytest.mark.parametrize(("kind", "window"), [(VTrace, None), (R2D2, None), (VTrace, 3)])
def test_regret_is_the_same_for_an_agent_with_a_core_and_for_its_two_halves(kind: Any, window: int | None) -> None:
    spec = spec_of(kind, DriftingEnv(), 3, window)
    agent, halves = TurnBasedAgent(spec), spec.make_policy()
    play: Any = {"default_action": "repeat", "episodes": 2, "max_frames": 40}
    found = [decompose(DriftingEnv, each, 3, 1, **play) for each in (agent, halves)]
    assert found[0] == found[1]
    assert found[0].returns["both"] != found[0].returns["no_delay"]


def lived(agent: TurnBasedAgent, env: gym.Env[Any, Any], seeds: range) -> list[dict[str, Any]]:
    """Play, and return what the policy was given and gave for each decision that was applied."""
    decisions: list[dict[str, Any]] = []
    act = agent.policy.act

    def watched(inputs: Any, memory: Any, of: Any) -> Any:
        output = act(inputs, memory, of)
        first = bool(memory.first[0])
        given = {"observation": inputs[0, 0].copy(), "first": first}
        given["previous_action"] = np.where(first, -1, memory.previous_action[0])
        given["previous_reward"] = 0.0 if first else float(memory.previous_reward[0])
        state = np.asarray(memory.core[0]).copy()  # the agent writes the next one there
        state = np.zeros_like(state) if first else state
        decisions.append({**given, "state": state, "extras": output.extras, "action": output.action[0]})
        return output

    agent.policy.act = watched  # type: ignore[method-assign]
    for seed in seeds:
        observation, info = env.reset(seed=seed)
        action = agent.begin_episode(observation, info.get("realtime"))
        while True:
            observation, reward, terminated, truncated, info = env.step(action)
            if not info["realtime"]["applied"]:
                decisions.pop()
            if terminated or truncated:
                break
            action = agent.step(float(reward), observation, info["realtime"])
        agent.end_episode(float(reward), bool(terminated), observation, info["realtime"])
    return decisions


def watch(learner: Any) -> list[dict[str, Any]]:
    """Return the batches that a learner draws from now on."""
    drawn: list[dict[str, Any]] = []
    sample = learner.replay.sample

    def keep() -> dict[str, Any]:
        drawn.append(sample())
        return drawn[-1]

    learner.replay.sample = keep
    return drawn


@pytest.mark.parametrize(
    ("kind", "delay", "window"),
    [
        *((VTrace, delay, None) for delay in (CONSTANTS[1], CONSTANTS[3], LATENCIES[0], CHUNKS)),
        *((R2D2, delay, None) for delay in (CONSTANTS[0], CONSTANTS[2], LATENCIES[1])),
        *((VTrace, CONSTANTS[0], 3), (VTrace, LATENCIES[1], 3), (R2D2, LATENCIES[0], 3)),
    ],
)
def test_sequences_hold_what_the_policy_was_given_at_release(
    kind: Any, delay: dict[str, Any], window: int | None
) -> None:
    env = RealtimeDelay(DriftingEnv(noop=True), **delay)
    spec = spec_of(kind, env, window=window)
    agent = TurnBasedAgent(spec)
    drawn = watch(agent.learner)
    decisions = iter(lived(agent, env, range(20)))
    if kind is R2D2:  # it draws by chance: all that its ring holds, oldest first
        replay = agent.learner.replay
        drawn = [replay.transitions(replay.valid_slots()[[place]]) for place in range(len(replay))]
    compared = 0
    for sequence in drawn:
        state = torch.from_numpy(sequence["state"])
        for t in range(ROWS):
            with torch.no_grad():
                inputs = (torch.from_numpy(sequence[name][t : t + 1]) for name in MEMORY)
                stack = torch.from_numpy(sequence["observation"][t : t + 1, :, None])
                outputs, state = agent.learner.network(stack, *inputs, state)
            if not sequence["mask"][t, 0]:  # an episode's last observation: no decision
                continue
            decision = next(decisions)
            for name in ("observation", "action", *MEMORY):
                np.testing.assert_array_equal(sequence[name][t, 0], decision[name], err_msg=name)
            if t == 0:
                np.testing.assert_array_equal(sequence["state"][0], decision["state"])
            np.testing.assert_array_equal(state[0].numpy(), decision["extras"]["state"][0])
            if kind is VTrace:
                np.testing.assert_array_equal(outputs[0][0, 0].numpy(), decision["extras"]["logits"][0])
                np.testing.assert_array_equal(sequence["extras"]["logits"][t, 0], decision["extras"]["logits"][0])
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("delay", [CONSTANTS[0], *LATENCIES])
def test_a_replay_of_transitions_gives_the_windows_that_the_policy_acted_on(delay: dict[str, Any]) -> None:
    env = RealtimeDelay(DriftingEnv(noop=True), **delay)
    spec = spec_of(VTrace, env, window=3)
    agent = TurnBasedAgent(spec)
    replay = create_replay(env.observation_space, extras=spec.extras, action_window=3, update_horizon=2, capacity=30)
    observe = agent.learner.observe

    def both(transition: dict[str, Any]) -> None:
        replay.observe(transition)
        observe(transition)

    agent.learner.observe = both  # type: ignore[method-assign, assignment]
    lived(agent, env, range(25))
    batch, network = replay.transitions(replay.valid_slots()), agent.learner.network
    window = torch.from_numpy(batch["action_window"])
    with torch.no_grad():
        logits, _ = network.decide_by_window(network.encode(torch.from_numpy(batch["observation"])), window)
    acted_on = batch["extras"]
    torch.testing.assert_close(logits, torch.from_numpy(acted_on["logits"]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal((window.unsqueeze(2) == torch.arange(3)).flatten(1), acted_on["state"])
    assert len(replay) > 10 and (window[:, 0] >= 0).any() and (window[:, 0] < 0).any()


@settings(FAST, max_examples=25)
@given(
    delay=st.integers(0, 7),
    noops=st.integers(0, 4),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=4),
)
def test_the_previous_reward_is_what_was_paid_from_one_effect_to_the_next(
    delay: int, noops: int, lengths: list[int]
) -> None:
    world = DriftingEnv(noop=True, lengths=lengths)
    env = RealtimeDelay(world, delay, noops)
    decisions = lived(TurnBasedAgent(spec_of(VTrace, env)), env, range(len(lengths)))
    wanted = []
    for life in world.lives:
        effects = range(delay, len(life.rewards), noops + 1)
        for number, effect in enumerate(effects):
            # Rewards before e_0 are decision 0's; before decision 0 there is nothing.
            begins = 0 if number <= 1 else effects[number - 1]
            previous = (life.actions[effects[number - 1]], sum(life.rewards[begins:effect])) if number else (-1, 0.0)
            wanted.append((number == 0, *previous))
    given = [(each["first"], int(each["previous_action"]), each["previous_reward"]) for each in decisions]
    assert given == wanted


def make_vector(name: str, num_envs: int) -> Any:
    def each() -> gym.Env[Any, Any]:
        world: gym.Env[Any, Any] = DriftingEnv(noop=True)
        return world if name.startswith("lockstep") else RealtimeDelay(world, **VECTORS[name])

    mode = AutoresetMode.NEXT_STEP if name == "lockstep, next step" else AutoresetMode.SAME_STEP
    vector = SyncVectorEnv([each] * num_envs, autoreset_mode=mode)
    return VectorRealtimeDelay(vector, **VECTORS[name]) if name.startswith("lockstep") else vector


VECTORS: dict[str, dict[str, Any]] = {
    "delay 4": {"delay": 4},
    "latencies": LATENCIES[0],
    "chunks": CHUNKS,
    "lockstep, chunks": {"delay": 3, "noops": 1, "default_action": "chunk"},
    "lockstep": {"delay": 4},
    "lockstep, noops": {"delay": 5, "noops": 2},
    "lockstep, next step": {"delay": 4},
}


@pytest.mark.parametrize(
    ("name", "window"), [*((name, None) for name in VECTORS), ("latencies", 3), ("lockstep, noops", 3)]
)
def test_many_environments_store_what_their_policy_was_given(name: str, window: int | None) -> None:
    envs = VectorEnvs(make_vector(name, 3))
    agent = VectorAgent(spec_of(VTrace, envs, window=window), 3)
    drawn = watch(agent.learner)
    envs.begin([0, 1, 2])
    for _ in range(55):
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    envs.close()
    ends: dict[int, Any] = {}  # by environment: the observation that its next sequence begins with, and the state
    compared = 0
    for sequence in drawn:
        frames = sequence["observation"][:, 0]
        env_id = next((i for i, (last, _) in ends.items() if np.array_equal(last, frames[0])), len(ends))
        state = ends[env_id][1] if env_id in ends else agent.learner.network.initial_state(1)
        if not sequence["first"][0, 0]:
            torch.testing.assert_close(torch.from_numpy(sequence["state"]), state, rtol=1e-5, atol=1e-6)
        for t in range(ROWS):
            with torch.no_grad():
                inputs = (torch.from_numpy(sequence[each][t : t + 1]) for each in MEMORY)
                stack = torch.from_numpy(frames[t]).view(1, 1, 1, -1)
                (logits, _), state = agent.learner.network(stack, *inputs, state)
            if sequence["mask"][t, 0]:
                found = torch.from_numpy(sequence["extras"]["logits"][t, 0])
                torch.testing.assert_close(logits[0, 0], found, rtol=1e-5, atol=1e-6)
                compared += 1
        ends[env_id] = frames[ROWS], state
    assert len(ends) == 3 and compared > 60
