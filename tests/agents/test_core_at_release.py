"""Agents with memory, live: encoded in workers and released in the environment loop, they are what they are in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, LogNormal, RealtimeDelay
from async_wrappers.agents.acting.decisions import Memories, PolicyOutput
from async_wrappers.agents.families.actor_critic.impact import Impact
from async_wrappers.agents.families.actor_critic.terms import ValueCloning
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.networks.cores import GRUCore, LSTMCore
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.spaces.schema import batch_of_one, stacked
from async_wrappers.live.loop.release import Release
from async_wrappers.live.memory.exchange import Fate
from async_wrappers.policy import Decision, Memory
from async_wrappers.testing.staggers import Played
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.fake_transport import Stage
from tests.worlds.hashing_policy import DEFAULTS
from tests.worlds.latency_models import FAST
from tests.worlds.recording_env import MEANINGS, RecordingEnv, mixed
from tests.worlds.remembering import around_the_wrapper, replayed
from tests.worlds.schedule_cases import Case, cases


def actor_critic(
    core: Any, feed_previous: bool = True, window: int | None = None, **light: Any
) -> Callable[..., torch.nn.Module]:
    made = None if core is None else lambda size: core(size, 8)
    torso = "auto"
    return lambda shape, actions: create_actor_critic(
        shape,
        actions,
        torso=torso if isinstance(shape, Mapping) else lambda s: MLPTorso(s, (7,)),
        core=made,
        feed_previous=feed_previous,
        action_window=window,
        **light,
    )


def q_network(shape: Any, actions: int) -> torch.nn.Module:
    return create_recurrent_q_network(
        shape, actions, torso=lambda s: MLPTorso(s, (6,)), core=lambda size: LSTMCore(size, 4)
    )


def windowed(env: Any = None, **arguments: Any) -> VTrace:
    """Make an agent whose network remembers the last 3 actions alone."""
    return vtrace(env, network=actor_critic(None, False, 3), **arguments)


def beside_a_core(env: Any = None) -> VTrace:
    """Make an agent whose network remembers the last 2 actions beside its core's state."""
    return vtrace(env, network=actor_critic(LSTMCore, True, 2))


def fast(env: Any = None, age: int = 0) -> VTrace:
    """Make an agent with a fast path, and a window of the last 3 actions."""
    small = "auto" if isinstance(env, DictEnv) else lambda shape: MLPTorso(shape, (5,))
    return vtrace(env, network=actor_critic(None, False, 3, fast=small, fast_age=age))


def fast_and_older(env: Any = None) -> VTrace:
    return fast(env, age=2)


def vtrace(env: Any = None, lr: float = 0.0, **arguments: Any) -> VTrace:
    env = DriftingEnv() if env is None else env
    settings: dict[str, Any] = {
        "stack_size": 1,
        "network": actor_critic(LSTMCore),
        "unroll_length": 5,
        "batch_size": 2,
        "when_full": "drop_oldest",
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=lr),
        "device": "cpu",
        "store_version": True,
        "terms": (ValueCloning(),),
        **arguments,
    }
    return VTrace(env.observation_space, env.action_space, **settings)


def impact(env: Any = None) -> Impact:
    env = DriftingEnv() if env is None else env
    return Impact(
        env.observation_space,
        env.action_space,
        stack_size=1,
        network=actor_critic(LSTMCore),
        unroll_length=5,
        batch_size=2,
        when_full="drop_oldest",
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        device="cpu",
        store_version=True,
    )


def r2d2(env: Any = None) -> R2D2:
    env = DriftingEnv() if env is None else env
    return R2D2(
        env.observation_space,
        env.action_space,
        stack_size=1,
        network=q_network,
        burn_in=2,
        unroll_length=4,
        state_period=3,
        batch_size=2,
        min_replay_history=12,
        replay_capacity=300,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        device="cpu",
    )


class Whole:
    """The network as a turn-based agent asks it, one call of the whole, behind the interface of the two halves."""

    def __init__(self, spec: Any) -> None:
        self._policy = spec.make_policy().policy
        self._first = int(spec.action_space.start)
        self._without_tuples = spec.without_tuples
        self.fast_age = spec.fast_age

    def _stack(self, observation: Any) -> Any:
        return batch_of_one(stacked([self._without_tuples(observation)]))

    def encode(self, observation: Any, decision: Any) -> Any:
        return observation

    def release(self, observation: Any, memory: Any, decision: Any) -> PolicyOutput:
        core = self._policy.initial_state(1) if memory.first else memory.state
        action = np.array([self._first if memory.first else memory.previous_action])
        reward = np.array([memory.previous_reward], np.float32)
        inputs = self._stack(observation)
        if self.fast_age is not None:
            inputs = {"start": inputs, "effect": self._stack(memory.fresh)}
        given = Memories(core, action, reward, np.array([memory.first]))
        output = self._policy.act(inputs, given, (decision,))
        extras = {name: values[0] for name, values in output.extras.items()}
        return PolicyOutput(output.action[0], output.state, extras)


def assert_same(one: Any, other: Any) -> None:
    assert one.action == other.action
    assert torch.equal(one.state, other.state)
    assert one.extras.keys() == other.extras.keys()
    for name, value in one.extras.items():
        assert np.array_equal(value, other.extras[name]), name


NETWORKS: dict[str, Callable[[], Any]] = {
    "lstm": vtrace,
    "gru": lambda: vtrace(network=actor_critic(GRUCore)),
    "lstm alone": lambda: vtrace(network=actor_critic(LSTMCore, feed_previous=False)),
    "previous action alone": lambda: vtrace(network=actor_critic(None)),
    "a window of actions alone": windowed,
    "a window beside an lstm": lambda: beside_a_core(DriftingEnv(first_action=2)),
    "first action 2": lambda: vtrace(DriftingEnv(first_action=2), store_version=False),
    "a dict with an image": lambda: vtrace(DictEnv(), network=actor_critic(LSTMCore)),
    "bf16": lambda: vtrace(bf16=True),
    "a fast path": fast,
    "a fast path of dicts": lambda: fast(DictEnv()),
    "r2d2": r2d2,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_two_halves_compute_what_the_whole_does_bit_for_bit(name: str) -> None:
    spec = NETWORKS[name]()
    encoder, releaser, whole = spec.make_policy(), spec.make_policy(), Whole(spec)  # three processes' policies
    assert not hasattr(encoder, "act")
    spec.observation_space.seed(1)
    memory = Memory(None, 0.0, True, None, spec.observation_space.sample())
    for step in range(12):
        decision = Decision(3, 2 * step, 100 + 2 * step, step % 4 == 0)
        observation = spec.observation_space.sample()
        features = encoder.encode(observation, decision)
        assert spec.features.contains(features)
        answer = releaser.release(features, memory, decision)
        assert_same(answer, whole.release(observation, memory, decision))
        assert spec.extras is None or set(spec.extras.spaces) == set(answer.extras)
        memory = Memory(answer.action, 0.3 * step - 1, step == 7, None if step == 7 else answer.state)
        memory = memory._replace(fresh=None if spec.fast_age is None else spec.observation_space.sample())


@pytest.mark.parametrize("make", [vtrace, windowed, r2d2, fast, fast_and_older])
def test_on_the_virtual_clock_it_is_the_ordinary_agent_around_the_wrapper(make: Callable[[], Any]) -> None:
    schedule: dict[str, Any] = {"latency": LogNormal(mean=0.07, cv=0.5), "workers": 5, "fps": 60}
    spec, answers = make(), []

    class Noting:
        def __init__(self) -> None:
            self._policy = spec.make_policy()
            self.encode, self.fast_age = self._policy.encode, spec.fast_age

        def release(self, *given: Any) -> Any:
            answers.append(self._policy.release(*given))
            return answers[-1]

    runner = AsyncRunner(
        lambda: DriftingEnv([40, 15, 30], noop=True), Noting, backend="virtual", features=spec.features, **schedule
    )
    runner.run(episodes=3)
    env = RealtimeDelay(DriftingEnv([40, 15, 30], noop=True), **schedule)
    env.fresh_age = spec.fast_age
    expected = around_the_wrapper(env, Whole(spec), 3)
    assert len(answers) == len(expected) > 40
    for one, other in zip(answers, expected, strict=True):
        assert_same(one, other)


# The window of the last actions, whatever the schedule.

FEATURES = Box(0, 1, (7,), np.float32)
LIVED = Box(-(2**63), 2**63 - 1, (1,), np.int64)


class Windowed:
    """Features that are hashes, released by a policy with a window; it keeps what it gave."""

    def __init__(self, taken: list[Any]) -> None:
        world = SimpleNamespace(observation_space=LIVED, action_space=Discrete(len(MEANINGS)))
        self._policy, self._taken = windowed(world, store_version=False).make_policy(), taken

    def encode(self, observation: Any, decision: Decision) -> Any:
        return np.random.default_rng(mixed(*observation.tolist())).random(7, np.float32)

    def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
        answer = self._policy.release(features, memory, decision)
        given = SimpleNamespace(action=int(answer.action), state=answer.state, first=memory.first)
        self._taken.append(given)
        return given


def chain(answers: list[Any]) -> list[Any]:
    return [(each.first, each.action, each.state.tolist()) for each in answers]


def assert_windows_of_applied(answers: list[Any]) -> None:
    """Compare each window with the actions of the decisions applied before it in its episode."""
    lived: list[int] = []
    for each in answers:
        lived = [] if each.first else lived
        rows = [np.eye(len(MEANINGS), dtype=np.float32)[action] for action in lived]
        expected = np.concatenate(([np.zeros(len(MEANINGS), np.float32)] * 3 + rows)[-3:])
        np.testing.assert_array_equal(each.state[0].numpy(), expected)
        lived.append(each.action)


@settings(FAST, max_examples=12)
@given(cases(), st.dictionaries(st.integers(0, 60), st.sampled_from([Fate.PASSED, Fate.DISCARDED]), max_size=10))
def test_a_window_holds_the_applied_actions_in_the_simulation_and_live(case: Case, fates: dict[int, Fate]) -> None:
    terms: dict[str, Any] = {"workers": case.workers, "fps": case.fps, "default_action": "repeat"}
    ends = [(True, False), (False, True)]

    def schedule() -> dict[str, Any]:
        return {"latency": Played(case.latencies), "stagger": case.stagger()}

    # In the simulation, and on the virtual clock.
    env = RealtimeDelay(RecordingEnv(case.episodes, ends), **schedule(), **terms)
    simulated = around_the_wrapper(env, Windowed([]), len(case.episodes))
    assert_windows_of_applied(simulated)
    taken: list[Any] = []
    world = RecordingEnv(case.episodes, ends)
    virtual = {"backend": "virtual", "features": FEATURES, **schedule(), **terms}
    AsyncRunner(lambda: world, lambda: Windowed(taken), **virtual).run(episodes=len(case.episodes))
    assert chain(taken) == chain(simulated)
    # Live, with inferences that are lost; and again on its recorded times.
    released: list[Any] = []
    stage = Stage(
        [max(1, latency) for latency in case.latencies],
        case.workers,
        case.stagger(),
        case.episodes,
        case.fps,
        Windowed([]).encode,
        env={"ends": ends},
        release=Release(Windowed(released), Discrete(len(MEANINGS))),
        default_action="repeat",
    )
    stage.transport.fates = fates
    record = stage.play(episodes=len(case.episodes))
    applied = released[len(released) - record.accepted :]  # the others warmed up
    assert_windows_of_applied(applied)
    frames, default = [episode.frames for episode in record.episodes], DEFAULTS["repeat"][1]
    again = replayed(RecordingEnv(case.episodes, ends), Windowed([]), record.effects, default, frames)
    assert chain(again) == chain(applied)


# Learning.


class Recomputing:
    """A learner that holds what the policy left beside each action against the whole network's own."""

    def __init__(self, spec: Any, file: Path) -> None:
        self.learner, self._whole, self._file = make_learner(spec), Whole(spec), file
        self._spec, self._memory = spec, Memory(None, 0.0, True, None)
        for name in ("update", "weights", "state_dict", "close", "note_updates", "save_replay", "take_over"):
            if hasattr(self.learner, name):
                setattr(self, name, getattr(self.learner, name))

    @property
    def ready(self) -> bool:
        return bool(self.learner.ready)

    @property
    def updates(self) -> int:
        return int(self.learner.updates)

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.learner.observe(transition)
        # With start 0 for all: what is drawn decides on the action alone.
        seen, memory = transition["observation"], self._memory
        if self._whole.fast_age is not None:
            seen, memory = seen["start"], memory._replace(fresh=seen["effect"])
        again = self._whole.release(seen, memory, Decision(0, 0, 0, False))
        left = transition["extras"]
        names = [name for name in left if "version" not in name]
        same = all(np.array_equal(left[name], again.extras[name]) for name in names)
        with self._file.open("a") as file:
            print(int(same), int(self._memory.first), ",".join(names), file=file)
        ended = transition["terminal"] or transition["truncated"]
        self._memory = Memory(transition["action"], transition["reward"], False, again.state)
        if ended:
            self._memory = Memory(None, 0.0, True, None)


@pytest.mark.usefixtures("children_of_a_server")
@pytest.mark.filterwarnings("ignore:workers=")
@pytest.mark.parametrize(
    ("backend", "make"),
    [
        *(("virtual", make) for make in (vtrace, windowed, impact, r2d2, fast, fast_and_older)),
        ("process", beside_a_core),
        ("process", fast_and_older),
    ],
)
def test_with_frozen_weights_states_and_mu_are_those_of_the_network(backend: str, make: Any, tmp_path: Path) -> None:
    spec = make()
    terms: dict[str, Any] = {"learner_latency": 0.02} if backend == "virtual" else {"calibration_time": 0.2}
    runner = AsyncRunner(
        lambda: DriftingEnv([40], noop=True),
        spec.make_policy,
        3,
        60,
        backend=backend,
        latency=0.05,
        make_learner=lambda: Recomputing(spec, tmp_path / "checked"),
        extras=spec.extras,
        features=spec.features,
        report_effect=spec.needs_effect,
        **terms,
    )
    reports: list[Any] = []
    with runner:
        for _ in range(50):  # a learner on a busy machine may have no turn in the two seconds of two episodes
            reports.append(runner.run(episodes=2))
            if reports[-1].updates > 0 and sum(each.frames["fresh"] for each in reports) > 30:
                break
        runner.save(tmp_path)
    report = reports[-1]
    checked = [line.split() for line in (tmp_path / "checked").read_text().splitlines()]
    assert len(checked) == sum(each.frames["fresh"] for each in reports) > 30 and report.updates > 0
    assert all(same == "1" for same, *_ in checked)
    begun = [{span.episode for span in each.spans if span.applied is not None} for each in reports]
    assert [first for _, first, _ in checked].count("1") == sum(map(len, begun))
    stored = {r2d2: "state", impact: "logits,state"}.get(make, "logits,state,value")
    assert {names for *_, names in checked} == {stored}
    if make is not r2d2:
        assert report.scalars["Rho"] == pytest.approx(1.0, abs=1e-5)
        assert report.scalars["EffectiveSampleSize"] == pytest.approx(1.0, abs=1e-5)


def test_each_applied_step_is_learnt_from_once_and_has_both_versions() -> None:
    spec = vtrace(lr=0.05)
    learner, observed, drawn = make_learner(spec), [], []  # type: ignore[var-annotated]
    observe, sample = learner.observe, learner.replay.sample

    def watched_observe(transition: Mapping[str, Any]) -> None:
        observed.append(transition)
        observe(transition)

    def watched_sample() -> Any:
        drawn.append(sample())
        return drawn[-1]

    learner.observe, learner.replay.sample = watched_observe, watched_sample  # type: ignore[method-assign]
    runner = AsyncRunner(
        lambda: DriftingEnv([60], noop=True),
        spec.make_policy,
        4,
        60,
        backend="virtual",
        latency=LogNormal(mean=0.05, cv=0.4),
        make_learner=lambda: learner,
        learner_latency=0.004,
        extras=spec.extras,
        features=spec.features,
    )
    report = runner.run(episodes=6)
    assert report.updates == len(drawn) > 20
    learnt = [batch["observation"][:-1][:, row][batch["mask"][:, row] > 0] for batch in drawn for row in range(2)]
    in_order = np.concatenate(learnt)
    assert np.array_equal(in_order, np.stack([each["observation"] for each in observed])[: len(in_order)])
    assert len(np.unique(in_order[:, 0])) == len(in_order) > report.frames["fresh"] - 25
    core, torso = ([int(each["extras"][name]) for each in observed] for name in ("version", "torso_version"))
    assert core == sorted(core) and torso == sorted(torso)
    assert core[0] == 0 and max(core) <= report.updates  # updates, and not how often weights were published
    lags = [newer - older for newer, older in zip(core, torso, strict=True)]
    assert min(lags) == 0 < max(lags)  # weights flip while an inference goes on
    assert report.scalars["TorsoLag"] >= report.scalars["Lag"]


# What is refused.


def test_a_stack_is_refused_live() -> None:
    with pytest.raises(
        ValueError, match="stack_size must be 1 for a policy that reads one observation at a time, got 2"
    ):
        _ = vtrace(stack_size=2).features


def test_a_network_that_is_not_in_two_halves_is_refused_live() -> None:
    class InOnePiece(torch.nn.Module):
        feed_previous, state_size = True, 16

        def __init__(self) -> None:
            super().__init__()
            self.inner = actor_critic(LSTMCore)((1, 3), 3)
            self.initial_state = self.inner.initial_state

        def forward(self, *given: Any) -> Any:
            return self.inner(*given)

    with pytest.raises(ValueError, match=r"^network must have encode\(observation\) and decide.* got InOnePiece"):
        vtrace(network=lambda shape, actions: InOnePiece()).make_policy()


def test_without_memory_there_are_no_features() -> None:
    spec = vtrace(network=actor_critic(None, feed_previous=False))
    assert spec.features is None and hasattr(spec.make_policy(), "act")
