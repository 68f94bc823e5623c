"""The frame on which an action lands, in every world: the environment's own log of actions says which it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import DelayObservation, NormalizeObservation, TransformObservation
from gymnasium.wrappers.vector import NormalizeObservation as NormalizeRows
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, Chunk, CommittedActions, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.agents.acting.decisions import PolicyOutput
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.acting.frames_read import (
    VIEW,
    FramesRead,
    ShowPast,
    ShowPastRows,
    report_effect,
    reported_effects,
)
from async_wrappers.agents.demonstrations.demonstration import Demonstration, Playback, transitions
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.losses.loss import Learning, LossOutput
from async_wrappers.agents.play.many.environments import NumberedEpisodes
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import environment_seed
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.agents.spec import Spec
from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.latency import LogNormal
from async_wrappers.live.loop.loop import episode_seed
from tests.worlds.agents import tiny
from tests.worlds.dict_env import DictEnv, TupleEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.landing import DEFAULT, ENDS, Keeping, Starts, Writing, game, reckoned, told
from tests.worlds.plain_data import assert_identical
from tests.worlds.recording_env import EPISODE, FRAME, RecordingEnv


class Landing(Spec):
    needs_effect = True

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:
        return Starts()

    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        return Keeping()


def episodes_of(observed: list[Mapping[str, Any]], count: int) -> list[list[tuple[Any, ...]]]:
    """Return the transitions of each episode, each of whose observations is of that episode."""
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(count)]
    for transition in observed:
        both = [transition[name] for name in ("observation", "next_observation")]
        (episode,) = {int(one[part][EPISODE]) for one in both for part in ("start", "effect")}
        found[episode].append(told(transition))
    return found


def played(environment: gym.Env[Any, Any], episodes: int, max_frames: int | None = None) -> list[Mapping[str, Any]]:
    agent = TurnBasedAgent.playing(Landing, environment)
    for number in range(episodes):
        play_episode(agent, environment, number, max_frames)
    return agent.learner.observed


def assert_reckoned(observed: list[Mapping[str, Any]], world: RecordingEnv, terminals: list[bool]) -> None:
    for number, found in enumerate(episodes_of(observed, len(world.episodes))):
        final = found[-1][2] if found else 0  # which decision is in flight at the end, tests of the delay say
        assert found == reckoned(world.episodes[number], terminals[number], final)
        assert final <= len(world.episodes[number])


@settings(max_examples=100, deadline=None)
@given(
    delay=st.integers(0, 6),
    noops=st.integers(0, 4),
    lengths=st.lists(st.integers(1, 15), min_size=1, max_size=4),
    ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=2),
    reuse=st.booleans(),
)
def test_an_agent_learns_from_the_frame_of_each_effect(
    delay: int, noops: int, lengths: list[int], ends: list[tuple[bool, bool]], reuse: bool
) -> None:
    world = game(lengths, ends, reuse)
    observed = played(RealtimeDelay(world, delay, noops, DEFAULT), 4)
    assert_reckoned(observed, world, [ends[number % len(ends)][0] for number in range(4)])
    for number, log in enumerate(world.episodes):
        assert sum(start != DEFAULT for start in log) == len(range(delay, lengths[number % len(lengths)], noops + 1))


@settings(max_examples=40, deadline=None)
@given(
    mean=st.floats(0.0, 0.1),
    cv=st.floats(0.1, 1.0),
    workers=st.integers(1, 4),
    stagger=st.sampled_from(["tickets", "none", "sequential"]),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=4),
)
def test_so_it_does_under_random_latencies(
    mean: float, cv: float, workers: int, stagger: str, lengths: list[int]
) -> None:
    world = game(lengths)
    latency = LogNormal(mean=max(mean, 1e-3), cv=cv)
    terms: dict[str, Any] = {"stagger": stagger, "default_action": DEFAULT}
    observed = played(RealtimeDelay(world, latency=latency, workers=workers, fps=60, **terms), 4)
    assert_reckoned(observed, world, [True, False] * 2)


def test_without_a_delay_an_action_lands_where_its_decision_started() -> None:
    world = game(5, reuse=True)
    observed = played(world, 2)
    assert [told(each)[:4] for each in observed[:5]] == [(k, k, k + 1, k + 1) for k in range(5)]


def test_an_episode_that_is_cut_ends_with_the_observation_of_the_frame_on_which_it_was() -> None:
    world = game(100)
    observed = played(RealtimeDelay(world, 3, 0, DEFAULT), 1, max_frames=10)
    assert told(observed[-1]) == (6, 9, 7, 10, 1.0, False)
    assert observed[-1]["truncated"]


def test_what_continues_a_transition_is_the_same_object_and_costs_no_comparison() -> None:
    observed = played(RealtimeDelay(game(8), 2, 0, DEFAULT), 1)
    for one, then in pairwise(observed):
        assert one["next_observation"] is then["observation"]


@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (3, 0), (2, 1)])
def test_a_demonstration_that_is_played_back_has_its_effects(delay: int, noops: int) -> None:
    world = game(12)
    observations = np.array([[0, frame, 0] for frame in range(13)])
    demonstration = Demonstration(observations, np.arange(12) % 5, np.ones(12), True)
    delayed_world = RealtimeDelay(world, delay, noops, DEFAULT) if delay or noops else world
    environment, playback = Playback.under(delayed_world)
    playback.load(demonstration)
    report_effect(environment, "agent")
    shown = list(transitions(environment, playback, 0, effects=True))
    effects = [*range(delay, 12, noops + 1)]
    assert [told(each)[:2] for each in shown] == [(effect - delay, effect) for effect in effects]
    assert [told(each)[3] for each in shown] == [*effects[1:], 12]
    assert [each["action"] for each in shown] == [effect % 5 for effect in effects]


# A replay: the dict is stored as any other, and n-step returns and stacks are made of both of its parts.


class Stored(Landing):
    """Keeps its transitions in a replay of n-step returns, with a lane for each environment."""

    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        return self.make_vector_learner(1)

    def make_vector_learner(self, num_envs: int) -> Learner:
        def loss(networks: Any, batch: Any, rng: Any) -> LossOutput:
            raise AssertionError("nothing is learnt here")

        replay = create_replay(
            self.stored_space, capacity=2_000, stack_size=1, batch_size=4, update_horizon=2, num_envs=num_envs
        )
        settings = Learning(target_update_period=None, min_replay_history=10**6)
        return Learner(torch.nn.Linear(1, 1), loss, replay, settings)

    def make_policy_of(self, learner: Any) -> Any:
        return RowsOfStarts()

    def make_vector_policy(self, learner: Any, num_envs: int) -> Any:
        return RowsOfStarts()


class RowsOfStarts:
    def act(self, inputs: Any, state: Any, decisions: Any) -> PolicyOutput:
        assert inputs.shape[1:] == (1, 3)  # the policy reads the start alone
        return PolicyOutput(inputs[:, -1, FRAME])


class Fresh(Stored):
    """Has a fast path, which reads what the environment showed a frame before the action lands."""

    fast_age = 1

    def make_policy_of(self, learner: Any) -> Any:
        return RowsOfBoth()

    def make_vector_policy(self, learner: Any, num_envs: int) -> Any:
        return RowsOfBoth()


class RowsOfBoth(RowsOfStarts):
    def act(self, inputs: Any, state: Any, decisions: Any) -> PolicyOutput:
        start, fresh = inputs["start"], inputs["effect"]
        assert start.shape == fresh.shape and (start[..., EPISODE] == fresh[..., EPISODE]).all()
        assert (start[..., FRAME] <= fresh[..., FRAME] + 1).all()  # one, where the episode is over before it lands
        return super().act(start, state, decisions)


@settings(max_examples=60, deadline=None)
@given(
    delay=st.integers(1, 6),
    noops=st.integers(0, 4),
    lengths=st.lists(st.integers(1, 15), min_size=1, max_size=4),
    reuse=st.booleans(),
)
def test_what_a_fast_path_reads_is_learnt_from(delay: int, noops: int, lengths: list[int], reuse: bool) -> None:
    world, observed = game(lengths, reuse=reuse), []
    agent = TurnBasedAgent.playing(Fresh, environment := RealtimeDelay(world, delay, noops, DEFAULT))
    agent.learner.observe = observed.append  # type: ignore[method-assign]
    for number in range(4):
        play_episode(agent, environment, number)
    for number, found in enumerate(episodes_of(observed, 4)):
        final = found[-1][2] if found else 0
        late = reckoned(world.episodes[number], ENDS[number % 2][0], final)
        older = [(start, max(0, at - 1), then, max(0, upto - 1), *rest) for start, at, then, upto, *rest in late]
        assert found == older


def numbered(make: Callable[[], gym.Env[Any, Any]], count: int, kind: type[Spec] = Stored) -> gym.Env[Any, Any]:
    env = make()
    past = FramesRead("landing", kind.fast_age is None, kind.fast_age)
    return NumberedEpisodes(ShowPast(env, past), 5, 0, count)


def delayed(delay: int, noops: int, lengths: list[int]) -> gym.Env[Any, Any]:
    """Return an environment under delay, or none where both numbers are 0."""
    world = game(lengths)
    return RealtimeDelay(world, delay, noops, DEFAULT) if delay or noops else world


def batched(make: Callable[[], gym.Env[Any, Any]], kind: str, spec: type[Spec] = Stored) -> Any:
    if kind == "processes":
        return ProcessEnvs(partial(numbered, make, 3, spec), 3, 1)
    if kind == "halves":
        makes = [partial(numbered, make, 4, spec)] * 2
        each = [VectorEnvs(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP)) for _ in range(2)]
        return DoubleBuffered(*each)
    if kind in LOCKSTEP:
        delay: Any = make()
        bare = [lambda: NumberedEpisodes(make().env, 5, 0, 3)] * 3
        vector = SyncVectorEnv(bare, autoreset_mode=LOCKSTEP[kind])
        constants = delay.playout, delay.decision_interval - 1, DEFAULT
        return VectorEnvs(ShowPastRows(VectorRealtimeDelay(vector, *constants), FramesRead(age=spec.fast_age or 0)))
    return VectorEnvs(SyncVectorEnv([partial(numbered, make, 3, spec)] * 3, autoreset_mode=AutoresetMode(kind)))


LOCKSTEP = {f"lockstep, {mode.value}": mode for mode in AutoresetMode}
KINDS = ["halves", *(mode.value for mode in AutoresetMode)]


@pytest.mark.usefixtures("children_of_a_server")
@pytest.mark.parametrize(
    ("spec", "kind", "delay", "noops"),
    [
        *((spec, "processes", 5, 1) for spec in (Stored, Fresh)),
        *((Stored, kind, *both) for kind in KINDS for both in [(0, 0), (2, 0), (5, 1)]),
        *((Fresh, kind, 5, 1) for kind in KINDS),
        *((Fresh, kind, 5, 0) for kind in LOCKSTEP),
    ],
)
def test_each_of_many_environments_stores_what_it_would_store_alone(
    spec: type[Spec], kind: str, delay: int, noops: int
) -> None:
    make = partial(delayed, delay, noops, [7, 3, 12, 5, 1])
    envs = batched(make, kind, spec)
    try:
        agent = VectorAgent(spec(make().observation_space, make().action_space), envs.num_envs)
        envs.begin(range(envs.num_envs))
        for _ in range(40):
            shown = envs.recv()
            agent.observe(shown)
            envs.send(shown.env_ids, agent.act(shown))
        agent.observe(envs.recv())
        agent.observe(envs.cut())  # of rows that were shown and wait for their actions
    finally:
        envs.close()
    lanes = agent.learner.replay.state_dict()["slots"]
    env = make()
    alone = TurnBasedAgent.playing(spec, env)
    for number in range(60):
        play_episode(alone, env, environment_seed(5, 0, number, 0))
    mine = alone.learner.replay.state_dict()["slots"]
    names = [name for name in mine if name.startswith("observation")]
    assert sorted(names) == ["observation/effect", "observation/start"]
    for lane in lanes:
        kept = len(lane["kind"])
        assert kept > 12
        # What is cut ends with the next decision's start, and with the frame on which its action would have landed.
        for name in ("action", *names):
            upto = kept if name in names else kept - 1
            np.testing.assert_array_equal(lane[name][:upto], mine[name][:upto], name)
        np.testing.assert_array_equal(lane["kind"][: kept - 2], mine["kind"][: kept - 2])


def test_a_vector_that_shows_a_fast_path_nothing_is_refused() -> None:
    def of(*layers: Callable[[Any], Any], each: Callable[[], Any] = DriftingEnv) -> Any:
        vector: Any = SyncVectorEnv([each] * 2)
        for layer in layers:
            vector = layer(vector)
        return vector

    def delay(vector: Any) -> Any:
        return VectorRealtimeDelay(vector, 2, 0, 0)

    outside = r"^fast must be None where NormalizeObservation changes observations outside the delay, .* inside Vector"
    with pytest.raises(ValueError, match=outside):
        ShowPastRows(of(delay, NormalizeRows), FramesRead(age=0))
    assert ShowPastRows(of(NormalizeRows, delay), FramesRead(age=2)).env.fresh_age == 2
    with pytest.raises(ValueError, match=r"^fast must be None where create_vector_fn delays each of its environments"):
        ShowPastRows(of(each=lambda: RealtimeDelay(DriftingEnv(), 2, 0, 0)), FramesRead(age=0))
    with pytest.raises(ValueError, match=r"^fast_age must be 0 where nothing delays actions, got 1: delay with Vector"):
        ShowPastRows(of(), FramesRead(age=1))
    shown, _ = ShowPastRows(of(NormalizeRows), FramesRead(age=0)).reset(seed=1)
    np.testing.assert_array_equal(shown["start"], shown["effect"])


def test_a_critic_and_a_teacher_are_shown_frames_of_their_own() -> None:
    def seen(number: int) -> dict[str, Any]:
        return {VIEW: np.array([[number]])}

    def parts(applied: bool, before: Any, **reported: Any) -> dict[str, Any]:
        both = {"effect_observation": 3 if applied else None, "next_effect_observation": 7}
        realtime = {"applied": applied, "observation_info": seen(40), **both, **reported}
        return {name: np.ravel(part).item() for name, part in past.show(4, realtime, before).items()}

    past = FramesRead("agent", effect=True, label_at="effect")
    assert set(past.parts) == {"landed", "effect", "teacher", "labelled"}
    of_both = {"start": 4, "landed": 3, "effect": 7, "teacher": 40, "labelled": 30}
    assert parts(True, 0, effect_info=seen(30)) == of_both
    # Nothing has landed: the parts of the effect are those of the start, as many environments need a value.
    assert parts(False, 0, effect_info=seen(30)) == {**of_both, "landed": 4, "labelled": 40}
    assert parts(True, None) == {"start": 4, "landed": 4, "effect": 4, "teacher": 40, "labelled": 40}
    # What a delay does not report is left out, and whoever reads it refuses that.
    assert parts(True, 0) == {name: part for name, part in of_both.items() if name != "labelled"}


def test_an_info_is_passed_on_without_what_is_shown() -> None:
    reported = {"effect_observation": 1, "_effect_observation": True, "observation_info": {}, "start": 3}
    info = {"realtime": reported, VIEW: 1, "lives": 2}
    assert FramesRead(age=1).without_shown(info) == {"realtime": {"observation_info": {}, "start": 3}, "lives": 2}
    assert FramesRead(label_at="start").without_shown(info) == {"realtime": {"start": 3}, "lives": 2}
    assert FramesRead(age=1).without_shown({"lives": 2}) == {"lives": 2}


class Effective(DQN):
    needs_effect = True


@pytest.mark.parametrize("kind", [DictEnv, TupleEnv])
def test_observations_of_several_arrays_have_effects_of_several_arrays(kind: type[gym.Env[Any, Any]]) -> None:
    arguments: dict[str, Any] = {"stack_size": 2, "network": tiny, "min_replay_history": 10**6, "device": "cpu"}
    arguments |= {"epsilon_fn": identity_epsilon, "epsilon_train": 0.0, "replay_capacity": 3_000}

    def make() -> gym.Env[Any, Any]:
        return RealtimeDelay(kind(), 2, 1, "repeat")

    envs = batched(make, AutoresetMode.SAME_STEP.value)
    agent = VectorAgent(Effective(make().observation_space, make().action_space, **arguments), 3)
    envs.begin(range(3))
    for _ in range(30):
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    lanes = agent.learner.replay.state_dict()["slots"]
    for env_id, lane in enumerate(lanes):
        env = make()
        alone = TurnBasedAgent.playing(Effective, env, **arguments)
        for number in range(30):
            play_episode(alone, env, environment_seed(5, 0, number, env_id))
        mine = alone.learner.replay.state_dict()["slots"]
        kept = len(lane["kind"]) - 2
        assert kept > 12
        assert_identical(*({name: column[:kept] for name, column in each.items()} for each in (lane, mine)))
    envs.close()


def test_an_environment_that_is_gone_leaves_both_parts_to_a_learner_of_ones_own() -> None:
    class Cutting(Keeping):
        def __init__(self) -> None:
            super().__init__()
            self.cuts: dict[int, Any] = {}

        def extend(self, block: Mapping[str, Any]) -> None:
            pass

        def cut(self, observation: Any, env_id: int = 0) -> None:
            self.cuts[env_id] = observation

    class Own(Stored):
        def make_vector_learner(self, num_envs: int) -> Any:
            return Cutting()

    make = partial(delayed, 3, 0, [50])
    envs = batched(make, AutoresetMode.SAME_STEP.value)
    agent = VectorAgent(Own(make().observation_space, make().action_space), 3)
    envs.begin(range(3))
    for _ in range(5):
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    agent.cut_running()
    cut = {i: [int(one[part][FRAME]) for part in ("start", "effect")] for i, one in agent.learner.cuts.items()}
    assert cut == {i: [4, 7] for i in range(3)}
    envs.close()


# Live: the same transitions on the virtual clock as in the simulation, for the same schedule.


@settings(max_examples=25, deadline=None)
@given(
    mean=st.floats(0.001, 0.1),
    cv=st.floats(0.1, 1.0),
    workers=st.integers(1, 4),
    stagger=st.sampled_from(["tickets", "none", "sequential"]),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=3),
    reuse=st.booleans(),
)
def test_the_virtual_clock_gives_the_transitions_of_the_simulation(
    mean: float, cv: float, workers: int, stagger: str, lengths: list[int], reuse: bool
) -> None:
    latency, learners = LogNormal(mean=mean, cv=cv), list[Keeping]()
    terms: dict[str, Any] = {"stagger": stagger, "default_action": DEFAULT, "latency": latency}
    world = game(lengths, reuse=reuse)

    def make_learner() -> Keeping:
        learners.append(Keeping())
        return learners[-1]

    runner = AsyncRunner(
        lambda: game(lengths, reuse=reuse),
        Starts,
        workers,
        60,
        backend="virtual",
        make_learner=make_learner,
        learner_latency=0.01,
        report_effect=True,
        **terms,
    )
    with runner, TemporaryDirectory() as directory:
        runner.run(episodes=4)
        runner.save(directory)  # which observes what is left in the journal
    agent = TurnBasedAgent.playing(Landing, simulated := RealtimeDelay(world, workers=workers, fps=60, **terms))
    for number in range(4):
        play_episode(agent, simulated, episode_seed(0, 0, number))
    (live,) = learners
    assert len(live.observed) == len(agent.learner.observed)
    for one, other in zip(live.observed, agent.learner.observed, strict=True):
        assert told(one) == told(other)
        assert one["truncated"] == other["truncated"]
        for name in ("observation", "next_observation"):
            for part in ("start", "effect"):  # the history too: no frame of another game
                np.testing.assert_array_equal(one[name][part], other[name][part])


class StartsInHalves:
    """A policy with a fast path that answers the frame that its slow half has seen."""

    fast_age = 1

    def encode(self, observation: Any, decision: Any) -> Any:
        return observation[FRAME : FRAME + 1]

    def release(self, features: Any, memory: Any, decision: Any) -> Any:
        return SimpleNamespace(action=int(features[0]), state=0)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass


@settings(max_examples=15, deadline=None)
@given(
    mean=st.floats(0.02, 0.1),
    cv=st.floats(0.1, 1.0),
    workers=st.integers(1, 2),
    stagger=st.sampled_from(["tickets", "none", "sequential"]),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=3),
    longest=st.integers(1, 15),
)
def test_decisions_by_held_features_are_learnt_from_alike(
    mean: float, cv: float, workers: int, stagger: str, lengths: list[int], longest: int
) -> None:
    terms: dict[str, Any] = {"stagger": stagger, "default_action": DEFAULT, "latency": LogNormal(mean=mean, cv=cv)}
    terms |= {"workers": workers, "fps": 60}
    terms["max_features_age"] = longest + (RealtimeDelay(game(), **terms).playout or 1)
    learners = list[Keeping]()

    def make_learner() -> Keeping:
        learners.append(Keeping())
        return learners[-1]

    live = {"backend": "virtual", "make_learner": make_learner, "learner_latency": 0.01, "report_effect": True}
    features = gym.spaces.Box(0, 1000, (1,), np.int64)
    runner = AsyncRunner(lambda: game(lengths), StartsInHalves, features=features, **live, **terms)
    with runner, TemporaryDirectory() as directory:
        runner.run(episodes=4)
        runner.save(directory)  # which observes what is left in the journal
    observed: list[Any] = []
    agent = TurnBasedAgent.playing(Fresh, simulated := RealtimeDelay(game(lengths), **terms))
    agent.learner.observe = observed.append  # type: ignore[method-assign]
    for number in range(4):
        play_episode(agent, simulated, episode_seed(0, 0, number))
    assert [told(one) for one in learners[0].observed] == [told(one) for one in observed]
    assert [one["interval"] for one in learners[0].observed] == [one["interval"] for one in observed]


def test_a_run_in_processes_reports_the_frames_that_its_journal_crossed(tmp_path: Path) -> None:
    runner = AsyncRunner(
        game,
        Starts,
        2,
        100,
        latency=0.02,
        default_action=DEFAULT,
        make_learner=partial(Writing, tmp_path / "seen"),
        report_effect=True,
    )
    with runner:
        report = runner.run(episodes=3)
        runner.save(tmp_path)
    rows = [tuple(map(int, line.split())) for line in (tmp_path / "seen").read_text().splitlines()]
    applied = sorted((span.episode, span.effect, span.start) for span in report.spans if span.effect is not None)
    assert [row[:2] for row in rows] == [(start, effect) for _, effect, start in applied]
    assert len(rows) > 3
    for one, then in pairwise(rows):
        assert one[2:] == then[:2] or one[3] == 9  # the last frame of an episode


# What cannot be learnt from is refused in one sentence.


class Blind(gym.Wrapper[Any, Any, Any, Any]):
    """Delays, and reports what the agent's clock needs alone."""

    def step(self, action: Any) -> Any:
        *step, info = self.env.step(action)
        return *step, {**info, "realtime": {"frame": 1, "start": 1, "interval": 1, "applied": True}}


def test_an_environment_whose_delay_does_not_report_is_refused() -> None:
    late = DelayObservation(DriftingEnv(), 2)
    with pytest.raises(ValueError, match=r"^critic_at must be 'start' with agent 'agent' .* where DelayObservation"):
        TurnBasedAgent.playing(Landing, late)
    own = Blind(game(5))
    agent = TurnBasedAgent.playing(Landing, own)
    with pytest.raises(ValueError, match=r"^critic_at must be 'start' .* where info\['realtime'\] has no 'effect_obs"):
        play_episode(agent, own, 0)
    own.decision_interval = 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"^critic_at must be 'start' .* no attribute report_effect, as Blind's"):
        TurnBasedAgent.playing(Landing, own)


@pytest.mark.parametrize(
    "wrap",
    [
        NormalizeObservation,
        lambda env: TransformObservation(env, lambda observation: observation, env.observation_space),
        lambda env: CommittedActions(env, 2),
    ],
)
def test_what_changes_observations_outside_the_delay_is_refused_and_inside_it_is_not(wrap: Any) -> None:
    outside = wrap(RealtimeDelay(DriftingEnv(), 2, 0, 0))
    with pytest.raises(ValueError, match=rf"^critic_at must be 'start' .* where {type(outside).__name__} changes obs"):
        TurnBasedAgent.playing(Landing, outside)
    if not isinstance(outside, CommittedActions):
        TurnBasedAgent.playing(Landing, RealtimeDelay(wrap(DriftingEnv()), 2, 0, 0))


def test_chunks_are_refused() -> None:
    chunked = RealtimeDelay(DriftingEnv(), 1, 1, default_action=Chunk(4, after=0))
    with pytest.raises(ValueError, match=r"^critic_at must be 'start' .* where actions are chunks, which land on"):
        TurnBasedAgent.playing(Landing, chunked)
    observation, _ = chunked.reset(seed=0)
    *_, info = chunked.step(np.zeros(4, np.int64))
    with pytest.raises(ValueError, match=r"where actions are chunks"):
        reported_effects(info["realtime"], observation, observation)


@pytest.mark.parametrize(
    ("given", "words"),
    [({"default_action": Chunk(9, after=0)}, "default_action="), ({"stack_size": 3}, "stack_size=3$")],
)
def test_a_live_run_refuses_effects_of_what_is_of_several_frames(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^report_effect must be False with chunks and stacks.*{words}"):
        AsyncRunner(DriftingEnv, Starts, 1, 60, report_effect=True, backend="virtual", latency=0.01, **given)
