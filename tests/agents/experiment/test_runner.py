"""The runner: its phases, and runs that are stopped, crash or are damaged and go on as if nothing had happened."""

from __future__ import annotations

import csv
import hashlib
import itertools
import math
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import pytest
import torch

from async_wrappers import RealtimeDelay
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.experiment import ending
from async_wrappers.agents.experiment.checkpoint import Checkpointer, NoCheckpointLoads, newest_bundle, read_bundle
from async_wrappers.agents.experiment.ending import Ending
from async_wrappers.agents.experiment.evaluate import evaluate
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.play import DifferentExperiment, Phase, environment_seed
from async_wrappers.agents.play.run_settings import TrainRunner
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import WAYS_OF_PLAYING, create_runner
from async_wrappers.agents.replay.segments import read_index
from async_wrappers.envs import ClipReward, create_atari_environment
from async_wrappers.files import OtherFormat
from tests.worlds.agents import tiny_network
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import (
    ITERATIONS,
    Environment,
    drifting,
    lives,
    make_dqn,
    make_runner,
    run,
    state,
)
from tests.worlds.plain_data import assert_identical, differs
from tests.worlds.scripted_agent import ScriptedAgent

Whole = tuple[dict[str, Any], Path]
small_mlp = partial(create_network, torso=partial(MLPTorso, hidden=(8,)))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The final state of a run of three iterations, and where it lies."""
    base_dir = tmp_path_factory.mktemp("uninterrupted")
    return state(run(base_dir)), base_dir


@pytest.fixture
def signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM interrupt, whatever runs the tests does with them."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def in_step(env: Environment, number: int, do: Callable[[], object]) -> None:
    """Do something in an environment's n-th step."""
    step, steps = env.step, itertools.count(1)

    def step_and_do(action: Any) -> Any:
        if next(steps) == number:
            do()
        return step(action)

    env.step = step_and_do  # type: ignore[method-assign]


class TestPhases:
    def test_an_iteration_is_whole_episodes_until_so_many_frames_have_passed(self, tmp_path: Path) -> None:
        lengths = [7, 5, 9, 6]
        env = partial(DriftingEnv, lengths=lengths)
        agent = ScriptedAgent()
        runner = make_runner(
            tmp_path,
            create_environment_fn=env,
            create_agent_fn=lambda environment, seed: agent,
            num_iterations=2,
            training_steps=13,
            evaluation_steps=12,
        )
        runner.run_experiment()
        # 7 + 5 + 9 >= 13; 6 + 7 >= 12; 5 + 9 >= 13; 6 + 7 >= 12
        assert [len(life.actions) for life in lives(runner)] == [7, 5, 9, 6, 7, 5, 9, 6, 7]
        assert agent.modes == [False] * 3 + [True] * 2 + [False] * 2 + [True] * 2
        lines = read_iterations(tmp_path)
        assert [line["train_episode_lengths"] for line in lines] == [[7, 5, 9], [5, 9]]
        assert [line["eval_episode_lengths"] for line in lines] == [[6, 7], [6, 7]]
        assert [line["frames"] for line in lines] == [21, 35]
        assert [line["iteration"] for line in lines] == [0, 1]
        returns = [sum(life.rewards) for life in lives(runner)]
        assert [line["train_episode_returns"] for line in lines] == [returns[:3], returns[5:7]]
        assert lines[0]["train_average_return"] == pytest.approx(sum(returns[:3]) / 3)
        assert lines[1]["eval_average_return"] == pytest.approx(sum(returns[7:9]) / 2)

    def test_frames_are_counted_through_the_delay(self, tmp_path: Path) -> None:
        runner = run(
            tmp_path,
            create_environment_fn=partial(drifting, 3, 4, lengths=[14]),
            create_agent_fn=RandomAgent,
            num_iterations=1,
            training_steps=15,
            evaluation_steps=14,
        )
        assert [len(life.actions) for life in lives(runner)] == [14, 14, 14]
        assert read_iterations(tmp_path)[0]["train_episode_lengths"] == [14, 14]
        assert read_iterations(tmp_path)[0]["frames"] == 28

    def test_a_phase_may_be_counted_in_episodes(self, tmp_path: Path) -> None:
        runner = run(tmp_path, create_agent_fn=RandomAgent, training_episodes=3, evaluation_episodes=2)
        assert len(lives(runner)) == 3 * 5
        line = read_iterations(tmp_path)[1]
        assert (len(line["train_episode_lengths"]), len(line["eval_episode_lengths"])) == (3, 2)

    @pytest.mark.parametrize(
        "lengths",
        [
            {"evaluation_steps": 0},
            {"evaluation_steps": 0, "evaluation_episodes": 2},
            {"evaluation_episodes": 0},
            {"evaluation_steps": 0, "evaluation_episodes": 0},
        ],
        ids=str,
    )
    def test_an_evaluation_of_no_frames_or_no_episodes_is_left_out(
        self, tmp_path: Path, lengths: dict[str, int]
    ) -> None:
        runner = run(tmp_path, create_agent_fn=RandomAgent, **lengths)
        assert "evaluation" not in runner.facts()["iterations"]
        assert not any(name.startswith("eval") for name in read_iterations(tmp_path)[0])

    @pytest.mark.parametrize("evaluations", [{}, {"evaluation_episodes": 3}])
    def test_the_training_schedule_never_evaluates(self, tmp_path: Path, evaluations: dict[str, int]) -> None:
        bound = {"training_steps": 5, "num_iterations": 2, **evaluations}
        for name, value in bound.items():
            gin.bind_parameter(f"Runner.{name}", value)
        gin.bind_parameter("Runner.create_environment_fn", DriftingEnv)
        gin.bind_parameter("Runner.create_agent_fn", RandomAgent)
        runner = create_runner(tmp_path, "continuous_train")
        assert TrainRunner in WAYS_OF_PLAYING["continuous_train"].records
        runner.run_experiment()
        assert len(read_iterations(tmp_path)) == 2
        assert not any(name.startswith("eval") for name in read_iterations(tmp_path)[0])

    def test_an_unknown_schedule_is_refused_in_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError) as caught:
            create_runner(tmp_path, "continuous_eval")
        known = ", ".join(map(repr, WAYS_OF_PLAYING))
        assert (
            str(caught.value).splitlines()[0] == f"create_runner.schedule must be one of {known}, got 'continuous_eval'"
        )

    def test_the_time_limit_cuts_and_the_cut_is_no_end(self, tmp_path: Path) -> None:
        agent = ScriptedAgent()
        runner = make_runner(
            tmp_path,
            create_environment_fn=partial(drifting, 2, 1, lengths=[60], ends=[(True, False)]),
            create_agent_fn=lambda environment, seed: agent,
            num_iterations=1,
            training_episodes=2,
            evaluation_steps=0,
            max_steps_per_episode=9,
        )
        runner.run_experiment()
        # s = 0 2 4 6, e = 2 4 6 8: steps end on the frames 4 6 8 10
        assert [len(life.actions) for life in lives(runner)] == [10, 10]
        ends = [call for call in agent.calls if call[0] == "end"]
        assert [(terminal, realtime["frame"]) for _, _, terminal, _, realtime in ends] == [(False, 10)] * 2
        assert ends[0][3] == lives(runner)[0].observations[8].tolist()

    def test_each_episode_has_the_seed_of_its_phase_and_number(self, tmp_path: Path) -> None:
        runner = run(tmp_path, create_agent_fn=RandomAgent, training_episodes=2, evaluation_episodes=1, seed=5)
        numbers = {Phase.TRAIN: 0, Phase.EVAL: 0}
        for index, life in enumerate(lives(runner)):
            phase = Phase.EVAL if index % 3 == 2 else Phase.TRAIN
            assert life.seed == environment_seed(5, phase, numbers[phase])
            numbers[phase] += 1

    def test_returns_are_unclipped_where_rewards_are_clipped_inside_the_delay(self, tmp_path: Path) -> None:
        runner = run(
            tmp_path,
            create_environment_fn=lambda: RealtimeDelay(ClipReward(DriftingEnv(lengths=[9]), -0.125, 0.125), 2, 1, 0),
            create_agent_fn=RandomAgent,
            num_iterations=1,
            training_episodes=2,
            evaluation_steps=0,
        )
        paid = [sum(life.rewards) for life in lives(runner)]
        assert read_iterations(tmp_path)[0]["train_episode_returns"] == paid
        assert paid[0] != sum(max(-0.125, min(0.125, reward)) for reward in lives(runner)[0].rewards)

    def test_a_run_of_no_iterations_trains_nothing(self, tmp_path: Path) -> None:
        runner = run(tmp_path, num_iterations=0)
        assert lives(runner) == []
        assert read_iterations(tmp_path) == []

    @pytest.mark.parametrize(
        ("name", "value", "allowed"),
        [
            ("seed", -1, ">= 0"),
            ("seed", 1.0, "a whole number"),
            ("num_iterations", -1, ">= 0 iterations"),
            ("num_iterations", True, "a whole number (iterations)"),
            ("training_steps", 0, ">= 1 frame"),
            ("training_steps", 1e6, "a whole number (frame)"),
            ("evaluation_steps", -5, ">= 0 frames"),
            ("training_episodes", 0, ">= 1 episode, or None for `training_steps`"),
            ("evaluation_episodes", 0.5, "a whole number (episodes), or None for `evaluation_steps`"),
            ("evaluation_episodes", -1, ">= 0 episodes, or None for `evaluation_steps`"),
            ("max_steps_per_episode", 0, ">= 1 frame, or None for no limit"),
            ("checkpoint_duration", 0, ">= 1 checkpoint"),
            ("report_episodes", -1, ">= 0 episodes"),
            ("threads", 0, ">= 1 thread"),
            ("overlap", 1, "True or False"),
            ("checkpoint_minutes", math.inf, "> 0 and finite, or None for no such checkpoint"),
            ("initial_checkpoint", 3, "text, or None for new weights"),
            ("create_agent_fn", 3, "a function or a class, such as @create_agent (without brackets)"),
        ],
    )
    def test_settings_out_of_range_are_refused_in_one_sentence(
        self, tmp_path: Path, name: str, value: Any, allowed: str
    ) -> None:
        with pytest.raises(ValueError) as caught:
            make_runner(tmp_path, **{name: value})
        message = f"Runner.{name} must be {allowed}, got {value!r}"
        assert str(caught.value).splitlines()[0] == message
        assert not any(tmp_path.iterdir())


class TestResuming:
    def test_a_run_stopped_after_every_iteration_ends_as_an_uninterrupted_one(
        self, tmp_path: Path, uninterrupted: Whole
    ) -> None:
        for iterations in range(1, ITERATIONS + 1):
            runner = make_runner(tmp_path, num_iterations=iterations)
            assert runner.resume() == (iterations > 1) and runner.start_iteration == iterations - 1
            runner.run_experiment()
        assert_identical(state(runner), uninterrupted[0])

    def test_the_uninterrupted_run_learnt_and_filled_its_replay(self, uninterrupted: Whole) -> None:
        final = uninterrupted[0]
        assert final["learner"]["updates"] > 10
        assert final["replay"]["head"] > make_dqn.keywords["replay_capacity"]
        assert differs(final["learner"]["network"], final["learner"]["target"])
        assert final["learner"]["optimizer"]["state"]
        assert final["waiting"] == []

    def test_another_seed_ends_elsewhere(self, tmp_path: Path, uninterrupted: Whole) -> None:
        other = state(run(tmp_path, seed=1))
        assert differs(other["learner"]["network"], uninterrupted[0]["learner"]["network"])
        assert other["lines"] != uninterrupted[0]["lines"]

    def test_evaluation_phases_change_nothing_in_training(self, tmp_path: Path, uninterrupted: Whole) -> None:
        runner = run(tmp_path, evaluation_steps=0)
        for part in ("learner", "replay", "training_steps", "frames"):
            assert_identical(state(runner)[part], uninterrupted[0][part], part)

    @pytest.mark.parametrize("steps", [3, 75, 150])
    def test_a_run_that_crashes_in_the_middle_of_an_iteration_ends_as_an_uninterrupted_one(
        self, tmp_path: Path, steps: int, uninterrupted: Whole
    ) -> None:
        with pytest.raises(Crash):
            run(tmp_path, create_environment_fn=lambda: drifting_that_crashes(steps))
        resumed = make_runner(tmp_path)
        resumed.run_experiment()
        assert_identical(state(resumed), uninterrupted[0])

    @pytest.mark.parametrize("at", [1, 2, 4])
    def test_a_run_that_is_asked_to_end_between_two_episodes_ends_as_an_uninterrupted_one(
        self, tmp_path: Path, at: int, uninterrupted: Whole
    ) -> None:
        stopped, asked = make_runner(tmp_path), []

        def due() -> bool:
            asked.append(None)
            stopped.ending.asked = len(asked) == at
            return stopped.ending.asked

        stopped.saved.is_late = due  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            stopped.run_experiment()
        assert stopped.counts.frames > stopped.counts.cut_frames == 0
        resumed = make_runner(tmp_path)
        assert resumed.resume() and resumed.start_iteration == stopped.saved.iterations_done
        assert resumed.counts.frames == stopped.counts.frames and resumed.agent.updates == stopped.agent.updates
        resumed.run_experiment()
        assert_identical(state(resumed), uninterrupted[0])

    @pytest.mark.parametrize("overlap", [False, True])
    @pytest.mark.parametrize("at", [1, 8, 30, 52, 75])
    def test_a_run_that_was_interrupted_ends_as_one_that_was_cut_at_the_same_decision(
        self, tmp_path: Path, at: int, overlap: bool
    ) -> None:
        here = make_runner(tmp_path / "here", overlap=overlap)
        in_step(here.environment, at, lambda: here.ending.ask(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            here.run_experiment()
        shutil.copytree(tmp_path / "here", tmp_path / "there")
        here.run_experiment()
        there = make_runner(tmp_path / "there", overlap=overlap)
        assert there.resume()
        there.run_experiment()
        assert_identical(state(there), state(here))
        assert len(here.history) == ITERATIONS and here.counts.frames >= 40 * ITERATIONS
        assert here.counts.cut_frames == there.counts.cut_frames < 15

    def test_checkpoints_after_every_episode_change_nothing(self, tmp_path: Path, uninterrupted: Whole) -> None:
        runner = run(tmp_path, checkpoint_minutes=1e-6)
        last = runner.saved.number
        assert last >= 2 * ITERATIONS
        assert_identical(state(runner), uninterrupted[0])
        names = {f"ckpt.{number}" for number in range(last - 3, last + 1)}
        assert {path.name for path in (tmp_path / "checkpoints").glob("ckpt*")} == names

    @pytest.mark.usefixtures("signals")
    @pytest.mark.parametrize("how", ["twice", "too slow"])
    def test_a_run_that_does_not_come_to_a_moment_is_interrupted(
        self, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ending, "_PATIENCE", 0.05)
        begun, told = time.monotonic(), list[str]()
        with pytest.raises(KeyboardInterrupt), Ending().deferred(lambda: told.append("stop")):
            signal.raise_signal(signal.SIGINT)
            if how == "twice":
                signal.raise_signal(signal.SIGINT)
            time.sleep(60)
        assert time.monotonic() - begun < 30
        assert told == ["stop"]

    @pytest.mark.usefixtures("signals")
    def test_a_first_signal_while_a_checkpoint_is_written_lets_it_take_its_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ending, "_PATIENCE", 0.05)
        asked, written = Ending(), False
        with pytest.raises(KeyboardInterrupt), asked.deferred():
            with asked.writing():
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.5)
                written = True
            assert asked.asked
        assert written

    @pytest.mark.usefixtures("signals")
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_episode_is_cut_by_a_signal_and_played_again(self, tmp_path: Path, number: signal.Signals) -> None:
        endless = {"max_steps_per_episode": None, "create_environment_fn": partial(DriftingEnv, lengths=[10**9])}
        stopped = make_runner(tmp_path, training_episodes=2, **endless)
        in_step(stopped.environment, 20, lambda: signal.raise_signal(number))
        with pytest.raises(KeyboardInterrupt):
            stopped.run_experiment()
        assert stopped.counts.cut_frames == stopped.counts.frames == 20 and stopped.saved.unsaved == ""
        short = partial(DriftingEnv, lengths=[9])
        resumed = make_runner(tmp_path, training_episodes=2, create_environment_fn=short)
        assert resumed.resume() and resumed.start_iteration == 0
        assert resumed.counts.frames == resumed.agent._frames() == stopped.counts.frames
        resumed.run_experiment()
        assert lives(resumed)[0].seed == lives(stopped)[0].seed == environment_seed(0, Phase.TRAIN, 0)

    @pytest.mark.parametrize(
        ("at", "delays"), [(1, (0, 0)), (2, (3, 4)), (17, (2, 0)), (45, (3, 4)), (70, (0, 0)), (100, (2, 0))]
    )
    def test_of_an_episode_that_is_cut_nothing_is_counted_twice_or_lost(
        self, tmp_path: Path, at: int, delays: tuple[int, int]
    ) -> None:
        short = {"create_environment_fn": partial(drifting, *delays, lengths=[20]), "max_steps_per_episode": None}
        short |= {"training_steps": 50, "evaluation_steps": 30, "num_iterations": 2}
        stopped = make_runner(tmp_path, **short)
        in_step(stopped.environment.unwrapped, at, lambda: stopped.ending.ask(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            stopped.run_experiment()
        lived = [len(life.actions) for life in lives(stopped)]
        resumed = make_runner(tmp_path, **short)
        assert resumed.resume()
        assert resumed.counts.frames == stopped.counts.frames and resumed.counts.episodes == stopped.counts.episodes
        assert resumed.agent.updates == stopped.agent.updates
        assert len(resumed.agent.learner.replay) == len(stopped.agent.learner.replay)
        resumed.run_experiment()
        again = lives(resumed)[0]
        if lived[-1] < 20:  # the episode that was cut
            assert again.seed == lives(stopped)[-1].seed and len(again.actions) == 20
        lines = read_iterations(tmp_path)
        lengths = [length for line in lines for length in line["train_episode_lengths"]]
        cut = lines[-1].get("cut_frames", 0)
        assert lines[-1]["frames"] == resumed.counts.frames == resumed.agent._frames() == sum(lengths) + cut
        assert set(lengths) == {20} and cut == resumed.counts.cut_frames < 20 + delays[0] + delays[1] + 1
        in_training = len(lived) <= 3  # 3 episodes of training, 2 of evaluation
        assert (cut > 0) == (lived[-1] < 20 and in_training)
        assert [len(line["eval_episode_lengths"]) for line in lines] == [2, 2]
        assert sum(line["train_updates"] for line in lines) == resumed.agent.updates
        whole = [life.seed for life in [*lives(stopped), *lives(resumed)] if len(life.actions) == 20]
        numbers = {Phase.TRAIN: len(lengths), Phase.EVAL: 4}
        each = [environment_seed(0, phase, n) for phase, count in numbers.items() for n in range(count)]
        assert sorted(whole) == sorted(each)
        rows = list(csv.DictReader((tmp_path / "episodes.csv").open()))
        assert [sum(row["phase"] == phase.name.lower() for row in rows) for phase in numbers] == list(numbers.values())

    @pytest.mark.usefixtures("signals")
    def test_what_is_lost_is_told_where_no_decision_comes_soon(
        self, tmp_path: Path, uninterrupted: Whole, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ending, "_PATIENCE", 0.05)
        stopped = make_runner(tmp_path)
        in_step(stopped.environment, 20, lambda: (signal.raise_signal(signal.SIGINT), time.sleep(60)))
        with pytest.raises(KeyboardInterrupt):
            stopped.run_experiment()
        assert stopped.saved.unsaved == "no checkpoint was written, so that the run begins anew"
        with pytest.raises(ValueError, match=r"\(none was completed: the first iteration has not ended\): train there"):
            newest_bundle(tmp_path)
        resumed = make_runner(tmp_path)
        resumed.run_experiment()
        assert_identical(state(resumed), uninterrupted[0])

    @pytest.mark.parametrize("what", ["bundle_and_checkpoint", "forget_checkpoints"])
    def test_a_run_that_crashes_while_it_saves_ends_as_an_uninterrupted_one(
        self, tmp_path: Path, what: str, uninterrupted: Whole
    ) -> None:
        runner = make_runner(tmp_path)
        done = getattr(runner.agent, what)
        left = [None, None]

        def crash_the_second_time(*arguments: Any) -> Any:
            result = done(*arguments)
            left.pop()
            if not left:
                raise Crash
            return result

        setattr(runner.agent, what, crash_the_second_time)
        with pytest.raises(Crash):
            runner.run_experiment()
        resumed = make_runner(tmp_path)
        resumed.run_experiment()
        assert_identical(state(resumed), uninterrupted[0])

    def test_a_finished_run_does_nothing_when_it_is_resumed(self, tmp_path: Path, uninterrupted: Whole) -> None:
        base_dir = shutil.copytree(uninterrupted[1], tmp_path / "copy")
        resumed = make_runner(base_dir)
        resumed.run_experiment()
        assert resumed.start_iteration == ITERATIONS
        assert lives(resumed) == []
        assert_identical(state(resumed), uninterrupted[0])

    def test_boxing_goes_on_bit_for_bit(self, tmp_path: Path) -> None:
        def boxing() -> Environment:
            make = partial(create_atari_environment, "Boxing", obs_type="ram", noop_max=5)
            return make(wrappers=[lambda env: RealtimeDelay(env, 4, 1, "random")])

        small = {
            "create_environment_fn": boxing,
            "create_agent_fn": partial(make_dqn, stack_size=1, replay_capacity=200, network=small_mlp),
            "training_steps": 100,
            "evaluation_steps": 30,
            "max_steps_per_episode": 60,
        }
        straight = run(tmp_path / "straight", num_iterations=2, **small)
        run(tmp_path / "stopped", num_iterations=1, **small)
        resumed = run(tmp_path / "stopped", num_iterations=2, **small)
        assert_identical(state(resumed), state(straight))
        assert state(straight)["learner"]["updates"] > 5
        assert straight.identity()["environment"] == "ALE/Boxing-v5"


quick_dqn = partial(  # one whose actions show what it has learnt
    make_dqn, epsilon_decay_period=0, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.3)
)
run_overlapping = partial(run, create_agent_fn=quick_dqn, overlap=True)


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The final state of an uninterrupted run with overlap."""
    return state(run_overlapping(tmp_path_factory.mktemp("overlapping")))


class TestOverlap:
    def test_a_run_without_ends_elsewhere(self, tmp_path: Path, overlapping: dict[str, Any]) -> None:
        without = state(run(tmp_path, create_agent_fn=quick_dqn))
        assert differs(overlapping["learner"]["network"], without["learner"]["network"])
        assert overlapping["learner"]["updates"] > 10

    def test_a_run_stopped_after_every_iteration_ends_as_an_uninterrupted_one(
        self, tmp_path: Path, overlapping: dict[str, Any]
    ) -> None:
        for iterations in range(1, ITERATIONS + 1):
            runner = run_overlapping(tmp_path, num_iterations=iterations)
        assert_identical(state(runner), overlapping)

    def test_an_agent_that_does_not_learn_plays_as_ever(self, tmp_path: Path) -> None:
        runners = [
            run(tmp_path / str(overlap), create_agent_fn=RandomAgent, overlap=overlap) for overlap in (False, True)
        ]
        one, other = ([(life.seed, life.actions) for life in lives(runner)] for runner in runners)
        assert one == other


class Unpaid(gym.RewardWrapper[Any, Any]):
    """Pays NaN."""

    def reward(self, reward: Any) -> float:
        return float("nan")


@pytest.mark.parametrize("given", [None, "elsewhere"])
def test_a_batch_with_the_environments_nan_lies_in_base_dir_unless_another_place_is_given(
    tmp_path: Path, given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "run" if given is None else tmp_path / given
    monkeypatch.chdir(tmp_path)
    make_it = partial(make_dqn, diverged_dir=given)

    with pytest.raises(DivergedError, match=r"^the environment returned nan as its reward") as caught:
        run(Path("run"), create_environment_fn=lambda: Unpaid(drifting()), create_agent_fn=make_it)
    (path,) = tmp_path.rglob("diverged_batch_*")
    assert path.parent == place
    assert str(path) in str(caught.value)


class Crash(Exception):
    """The process dies."""


class Fragile(gym.Wrapper[Any, Any, Any, Any]):
    """Crashes in the step after so many frames."""

    def __init__(self, env: Environment, steps: int) -> None:
        super().__init__(env)
        self._left = steps

    def step(self, action: Any) -> Any:
        if not self._left:
            raise Crash
        self._left -= 1
        return self.env.step(action)


def drifting_that_crashes(steps: int) -> Environment:
    return RealtimeDelay(Fragile(gym.make("Drifting-v0"), steps), 2, 1, "random")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def segments(base_dir: Path, number: int) -> list[Path]:
    """The replay's segments that iteration `number` needs and the one before does not."""
    replay = base_dir / "checkpoints" / "replay"
    old, new = ({segment.name for segment in read_index(replay, n)[0]} for n in (number - 1, number))
    return [replay / name for name in sorted(new - old)]


def flip(path: Path) -> None:
    """Alter the first byte of the first array in a file of arrays."""
    content = bytearray(path.read_bytes())
    content[content.index(b"\n", content.index(b"NUMPY")) + 1] ^= 255
    path.write_bytes(content)


def as_format_1(path: Path) -> None:
    """Write a checkpoint as it was before it stated its format."""
    bundle = torch.load(path, weights_only=True)
    del bundle["stamp"]
    torch.save(bundle, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(f"sentinel_checkpoint_complete{path.suffix}").write_text(f"done sha256={digest}\n")


class TestDamage:
    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda base_dir: cut(base_dir / "checkpoints" / "ckpt.1"), id="torn checkpoint"),
            pytest.param(lambda base_dir: segments(base_dir, 1)[0].unlink(), id="missing segment"),
            pytest.param(lambda base_dir: flip(segments(base_dir, 1)[0]), id="altered segment"),
            pytest.param(lambda base_dir: cut(base_dir / "checkpoints" / "replay" / "index_1.json"), id="torn index"),
        ],
    )
    def test_in_the_newest_checkpoint_goes_back_to_the_one_before_and_on_to_the_same_end(
        self,
        tmp_path: Path,
        damage: Callable[[Path], None],
        uninterrupted: Whole,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        run(tmp_path, num_iterations=2)
        damage(tmp_path)
        resumed = make_runner(tmp_path)
        assert resumed.resume()
        assert resumed.start_iteration == 1
        assert "checkpoint 1 is not used: " in caplog.text
        resumed.run_experiment()
        assert_identical(state(resumed), uninterrupted[0])
        again = make_runner(tmp_path)
        assert again.resume()
        assert_identical(state(again), uninterrupted[0])

    def test_in_every_checkpoint_ends_the_run_in_one_sentence_and_touches_nothing(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=2)
        for number in range(2):
            cut(tmp_path / "checkpoints" / f"ckpt.{number}")
        before = contents(tmp_path)
        with pytest.raises(NoCheckpointLoads) as caught:
            run(tmp_path)
        assert str(caught.value) == (
            f"{tmp_path / 'checkpoints'} holds 2 checkpoints of which none loads (checkpoint 1: "
            f"{tmp_path / 'checkpoints' / 'ckpt.1'} is torn or altered: its SHA-256 is not the one recorded): restore "
            "the files, or choose another --base_dir"
        )
        assert contents(tmp_path) == before

    def test_sentinels_that_are_gone_do_not_make_it_begin_anew(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=2, checkpoint_duration=1)
        for path in (tmp_path / "checkpoints").glob("sentinel*"):
            path.unlink()
        before = contents(tmp_path)
        with pytest.raises(NoCheckpointLoads, match=r"sentinel_checkpoint_complete\.1 is missing"):
            run(tmp_path)
        assert contents(tmp_path) == before

    def test_a_run_killed_while_it_wrote_its_first_checkpoint_begins_again(
        self, tmp_path: Path, uninterrupted: Whole
    ) -> None:
        run(tmp_path, num_iterations=1)
        (tmp_path / "checkpoints" / "sentinel_checkpoint_complete.0").unlink()
        resumed = make_runner(tmp_path)
        assert not resumed.resume()
        resumed.run_experiment()
        assert_identical(state(resumed), uninterrupted[0])

    @pytest.mark.parametrize(("damage", "scheme"), [(flip, "prioritized"), (Path.unlink, "uniform")])
    def test_in_a_segment_that_all_checkpoints_share_refuses_all_and_names_the_way_to_keep_the_weights(
        self, tmp_path: Path, damage: Callable[[Path], None], scheme: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_agent = partial(make_dqn, replay_scheme=scheme, replay_capacity=1000)
        whole = state(run(tmp_path, num_iterations=2, create_agent_fn=make_agent))
        first = read_index(tmp_path / "checkpoints" / "replay", 1)[0][0].name
        damage(tmp_path / "checkpoints" / "replay" / first)
        before, newest = contents(tmp_path), tmp_path / "checkpoints" / "ckpt.1"
        with pytest.raises(NoCheckpointLoads) as caught:
            make_runner(tmp_path, create_agent_fn=make_agent).resume()
        told = [message.partition(": ")[0] for message in caplog.messages]
        assert told == ["checkpoint 1 is not used", "checkpoint 0 is not used"]
        assert first in str(caught.value) and "\n" not in str(caught.value)
        assert str(caught.value).endswith(
            "restore the files, or choose another --base_dir, which may begin with its weights "
            f"(Runner.initial_checkpoint = {str(newest)!r})"
        )
        assert contents(tmp_path) == before
        warm = make_runner(tmp_path / "warm", create_agent_fn=make_agent, initial_checkpoint=str(newest))
        assert not warm.resume()
        assert_identical(dict(state(warm)["learner"]["network"]), dict(whole["learner"]["network"]))

    def test_in_an_older_index_that_is_kept_does_not_end_the_run(
        self, tmp_path: Path, uninterrupted: Whole, caplog: pytest.LogCaptureFixture
    ) -> None:
        run(tmp_path, num_iterations=2)
        cut(tmp_path / "checkpoints" / "replay" / "index_0.json")
        assert_identical(state(run(tmp_path)), uninterrupted[0])
        assert "no replay file is deleted, for one that is kept may be needed: " in caplog.text

    def test_of_another_format_is_not_continued_but_its_weights_are_taken(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=1)
        as_format_1(tmp_path / "checkpoints" / "ckpt.0")
        before = contents(tmp_path)
        with pytest.raises(
            OtherFormat, match=r"ckpt\.0 has format 1 \(async_wrappers 0\.1\.0 or older\), and .* format 2"
        ):
            run(tmp_path)
        assert contents(tmp_path) == before
        agent = make_runner(tmp_path).trained_agent()
        bundle = torch.load(tmp_path / "checkpoints" / "ckpt.0", weights_only=True)
        assert isinstance(agent, TurnBasedAgent)
        assert_identical(dict(agent.learner.weights()), dict(bundle["agent"]["learner"]["network"]))

    def test_only_what_is_kept_lies_in_the_directory(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=4, checkpoint_duration=2)
        kept = range(2, 4)
        directory = tmp_path / "checkpoints"
        names = {path.name for path in directory.iterdir() if path.is_file()}
        assert names == {f"{name}.{n}" for name in ("ckpt", "sentinel_checkpoint_complete") for n in kept}
        replay = {path.name for path in (directory / "replay").iterdir()}
        assert {name for name in replay if name.startswith("index")} == {f"index_{n}.json" for n in kept}
        for number in list(kept)[1:]:
            assert segments(tmp_path, number)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


class TestAnotherExperiment:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"create_agent_fn": RandomAgent}, " there, "),
            ({"create_agent_fn": partial(make_dqn, stack_size=3)}, "observation_shape: [2, 3] there, [3, 3] here"),
            (
                {
                    "create_agent_fn": partial(
                        make_dqn, network=lambda *sizes: torch.nn.Sequential(tiny_network(*sizes))
                    )
                },
                "network",
            ),
            (
                {"create_environment_fn": partial(drifting, name="OtherDrifting-v0")},
                "environment: Drifting-v0 there, OtherDrifting-v0 here",
            ),
            ({"create_environment_fn": partial(drifting, actions=4)}, "actions: 3 there, 4 here"),
            ({"seed": 1}, "seed: 0 there, 1 here"),
        ],
    )
    def test_is_refused_and_nothing_is_overwritten(self, tmp_path: Path, change: dict[str, Any], named: str) -> None:
        run(tmp_path, num_iterations=1)
        before = contents(tmp_path)
        with pytest.raises(DifferentExperiment) as caught:
            run(tmp_path, **change)
        assert str(caught.value).startswith(f"base_dir {tmp_path} holds checkpoints of another experiment (")
        assert named in str(caught.value)
        assert "\n" not in str(caught.value)
        assert contents(tmp_path) == before

    @pytest.mark.parametrize(
        "change", [{"gamma": 0.5}, {"batch_size": 8}, {"replay_capacity": 50}, {"update_horizon": 2}]
    )
    def test_a_run_with_another_replay_does_not_begin_anew_over_good_checkpoints(
        self, tmp_path: Path, change: dict[str, Any]
    ) -> None:
        run(tmp_path, num_iterations=2)
        before = contents(tmp_path)
        with pytest.raises(ValueError, match=next(iter(change)).removeprefix("replay_")):
            run(tmp_path, create_agent_fn=partial(make_dqn, **change))
        assert contents(tmp_path) == before

    def test_another_learning_rate_is_taken_or_refused_but_never_ignored(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=1)
        resumed = make_runner(
            tmp_path,
            create_agent_fn=partial(make_dqn, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.5)),
        )
        try:
            resumed.resume()
        except ValueError:
            return
        assert isinstance(resumed.agent, TurnBasedAgent)
        assert resumed.agent.learner._optimizer.param_groups[0]["lr"] == 0.5

    def test_another_optimiser_is_refused(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=1)
        make_agent = partial(make_dqn, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
        with pytest.raises(ValueError):
            run(tmp_path, create_agent_fn=make_agent)

    def test_more_iterations_and_other_lengths_of_phases_go_on(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=1)
        resumed = run(tmp_path, num_iterations=2, training_steps=20, max_steps_per_episode=8)
        assert [line["iteration"] for line in read_iterations(tmp_path)] == [0, 1]
        assert resumed.start_iteration == 2


class TestInitialCheckpoint:
    @pytest.mark.parametrize("name", ["", "checkpoints/ckpt.0", "checkpoints/ckpt.2"])
    def test_the_first_iteration_begins_with_its_weights_alone(
        self, tmp_path: Path, name: str, uninterrupted: Whole
    ) -> None:
        checkpoint = uninterrupted[1] / name
        number = name[-1:] or "2"
        bundle = torch.load(uninterrupted[1] / "checkpoints" / f"ckpt.{number}", weights_only=True)
        weights = bundle["agent"]["learner"]["network"]
        runner = make_runner(tmp_path, initial_checkpoint=str(checkpoint), seed=7)
        fresh = state(make_runner(tmp_path / "fresh", seed=7))
        assert not runner.resume()
        warm = state(runner)
        assert_identical(dict(warm["learner"].pop("network")), dict(weights))
        assert_identical(dict(warm["learner"].pop("target")), dict(weights))
        for part in ("network", "target"):
            del fresh["learner"][part]
        assert_identical(warm, fresh)
        runner.run_experiment()
        assert len(read_iterations(tmp_path)) == ITERATIONS

    def test_the_optimiser_goes_on_with_its_moments_under_new_settings(
        self, tmp_path: Path, uninterrupted: Whole
    ) -> None:
        make_agent = partial(make_dqn, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.5))
        arguments = {"create_agent_fn": make_agent, "initial_checkpoint": str(uninterrupted[1])}
        cold, warm = (make_runner(tmp_path / str(each), initial_optimizer=each, **arguments) for each in (False, True))
        assert not cold.resume() and not warm.resume()
        moments = uninterrupted[0]["learner"]["optimizer"]["state"]
        states = [state(runner) for runner in (cold, warm)]
        optimizers = [each["learner"].pop("optimizer") for each in states]
        assert moments and not optimizers[0]["state"]
        assert_identical(optimizers[1]["state"], moments)
        assert [each["param_groups"][0]["lr"] for each in optimizers] == [0.5, 0.5]
        assert_identical(*states)
        warm.run_experiment()

    def test_another_optimisers_moments_are_refused(self, tmp_path: Path, uninterrupted: Whole) -> None:
        make_agent = partial(make_dqn, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
        arguments = {"create_agent_fn": make_agent, "initial_optimizer": True}
        runner = make_runner(tmp_path / "a", initial_checkpoint=str(uninterrupted[1]), **arguments)
        with pytest.raises(ValueError, match=r"initial_optimizer must be False where .* \(Adam there, SGD here\), got"):
            runner.resume()
        with pytest.raises(ValueError, match=r"initial_optimizer must be False where Runner.initial_checkpoint=None"):
            make_runner(tmp_path / "b", **arguments)

    @pytest.mark.parametrize("change", [{"gamma": 0.5}, {"batch_size": 8}, {"replay_capacity": 90}])
    def test_a_run_that_learns_otherwise_may_begin_with_its_weights(
        self, tmp_path: Path, change: dict[str, Any], uninterrupted: Whole
    ) -> None:
        make_agent = partial(make_dqn, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), **change)
        runner = make_runner(tmp_path, create_agent_fn=make_agent, initial_checkpoint=str(uninterrupted[1]))
        assert not runner.resume()
        assert_identical(dict(state(runner)["learner"]["network"]), dict(uninterrupted[0]["learner"]["network"]))

    def test_a_resumed_run_takes_its_own_checkpoint(self, tmp_path: Path, uninterrupted: Whole) -> None:
        arguments = {"initial_checkpoint": str(uninterrupted[1]), "seed": 7}
        straight = run(tmp_path / "straight", **arguments)
        run(tmp_path / "stopped", num_iterations=1, **arguments)
        assert_identical(state(run(tmp_path / "stopped", **arguments)), state(straight))

    def test_weights_of_another_network_are_refused_in_one_sentence(self, tmp_path: Path, uninterrupted: Whole) -> None:
        runner = make_runner(
            tmp_path, create_agent_fn=partial(make_dqn, stack_size=3), initial_checkpoint=str(uninterrupted[1])
        )
        with pytest.raises(ValueError, match=r"^checkpoint .* does not fit this agent \([^\n]*\)$"):
            runner.resume()
        assert not any(tmp_path.iterdir())

    @pytest.mark.parametrize("name", ["nowhere", "", "a text", "tensors of another program"])
    def test_what_is_no_checkpoint_is_refused_in_one_sentence(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "a text").write_text("not a checkpoint\n")
        torch.save({"weights": torch.zeros(2)}, tmp_path / "tensors of another program")
        runner = make_runner(tmp_path / "run", initial_checkpoint=str(tmp_path / name))
        with pytest.raises(ValueError) as caught:
            runner.resume()
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)


class TestTrainedAgent:
    def test_it_evaluates_alike_whenever_and_wherever_it_is_asked_for(self, uninterrupted: Whole) -> None:
        results = []
        for _ in range(2):
            runner = make_runner(uninterrupted[1])
            for _ in range(2):
                results.append(evaluate(runner.trained_agent(), runner.environment, 4, runner.settings.seed, 15))
        assert results == [results[0]] * 4

    def test_it_has_the_newest_good_checkpoints_weights(self, tmp_path: Path, uninterrupted: Whole) -> None:
        base_dir = shutil.copytree(uninterrupted[1], tmp_path / "copy")
        cut(base_dir / "checkpoints" / "ckpt.2")
        agent = make_runner(base_dir).trained_agent()
        bundle = torch.load(base_dir / "checkpoints" / "ckpt.1", weights_only=True)
        assert isinstance(agent, TurnBasedAgent)
        assert_identical(dict(agent.learner.weights()), dict(bundle["agent"]["learner"]["network"]))

    def test_it_is_found_while_a_run_replaces_all_that_there_were(
        self, tmp_path: Path, uninterrupted: Whole, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base_dir = shutil.copytree(uninterrupted[1], tmp_path / "copy")
        checkpoints = Checkpointer(base_dir, checkpoint_duration=1)
        newest = checkpoints.numbers()[0]
        bundle = read_bundle(base_dir / "checkpoints" / f"ckpt.{newest}")
        looked: list[Path] = []

        def saved_meanwhile(path: Path, **how: Any) -> Any:
            looked.append(path)
            if len(looked) == 1:
                checkpoints.save(newest + 1, bundle)  # and all the others are forgotten
            return load(path, **how)

        load = torch.load
        monkeypatch.setattr(torch, "load", saved_meanwhile)
        path, found = newest_bundle(base_dir)
        assert path == base_dir / "checkpoints" / f"ckpt.{newest + 1}" == looked[-1]
        assert found["episodes"] == bundle["episodes"]

    def test_without_a_checkpoint_there_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="holds no good checkpoint"):
            make_runner(tmp_path).trained_agent()


def test_epsilon_and_the_loss_follow_training_frames(tmp_path: Path) -> None:
    asked: list[int] = []

    def epsilon_fn(decay: int, frame: int, warmup: int, final: float) -> float:
        asked.append(frame)
        return identity_epsilon(decay, frame, warmup, final)

    runner = run(tmp_path, create_agent_fn=partial(make_dqn, epsilon_fn=epsilon_fn))
    assert asked == sorted(asked)
    assert (
        asked[-1]
        < runner.counts.frames
        == read_iterations(tmp_path)[-1]["frames"]
        == sum(sum(line["train_episode_lengths"]) for line in read_iterations(tmp_path))
    )
