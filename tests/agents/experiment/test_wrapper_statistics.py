"""Statistics of wrappers: kept in checkpoints, with the weights in evaluation; and returns below wrappers that change
rewards.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics

from async_wrappers import RealtimeDelay
from async_wrappers.agents.cli.train import _what
from async_wrappers.agents.config.config import save_config
from async_wrappers.agents.experiment.checkpoint import newest_bundle
from async_wrappers.agents.experiment.closing_report import compare_with_baselines
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.experiment.ship import ship
from async_wrappers.agents.load import load_agent, play_episode
from async_wrappers.agents.play.play import Phase, environment_seed
from async_wrappers.wrapper_statistics import statistics_of
from tests.worlds import host_runs
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import drifting, lives, make_runner, run
from tests.worlds.plain_data import assert_identical

STATISTICS = (
    "create_gym_environment.wrappers = [@NormalizeObservation, @NormalizeReward, @RealtimeDelay]",
    "Runner.exact_resume = True",
    "Runner.training_steps = 60",
    "Runner.evaluation_steps = 20",
    "Runner.evaluation_episodes = 2",
)
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "in turn": ("continuous_train_and_eval", ()),
    "vector": ("vector", ()),
    "halves": ("vector", ("VectorRunner.double_buffered = True",)),
    "hosts that act": ("hosts", ()),
    "hosts that step": ("hosts", ("Hosts.inference = 'learner'",)),
}


def make(base_dir: Path, way: str, *bindings: str) -> Any:
    schedule, own = WAYS[way]
    return host_runs.make(base_dir, "dqn", *STATISTICS, *own, *bindings, schedule=schedule)


def lines(base_dir: Path) -> list[Any]:
    return [[line.get(f"{phase}_episode_returns") for phase in ("train", "eval")] for line in read_iterations(base_dir)]


def played(experiment: Experiment) -> list[float]:
    return [episode.score for episode in experiment.evaluation(experiment.trained_agent(), 3)]


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_resumed_goes_on_with_the_statistics_of_its_wrappers(tmp_path: Path, way: str) -> None:
    straight = make(tmp_path / "straight", way)
    straight.run_experiment()
    make(tmp_path / "resumed", way, "Runner.num_iterations = 1").run_experiment()
    resumed = make(tmp_path / "resumed", way)
    resumed.run_experiment()
    assert lines(resumed.base_dir) == lines(straight.base_dir)
    one, other = (newest_bundle(each.base_dir)[1] for each in (straight, resumed))
    assert_identical(one["agent"]["learner"], other["agent"]["learner"])
    assert_identical(one["statistics"], other["statistics"])
    assert one["statistics"]["NormalizeObservation"]["obs_rms"]["count"] > 60
    assert played(resumed) == played(straight)


def test_the_closing_table_plays_with_the_statistics_of_training(tmp_path: Path) -> None:
    runner = make(tmp_path, "in turn", "Runner.num_iterations = 1", "Runner.report_episodes = 3")
    runner.run_experiment()
    of_training = newest_bundle(tmp_path)[1]["statistics"]
    rows = compare_with_baselines(runner)
    assert rows[-1].scores == played(runner)
    assert_identical(statistics_of(runner.environment), of_training)


def test_hosts_that_act_keep_the_statistics_that_a_vector_keeps(tmp_path: Path) -> None:
    found = []
    for way, block in (("vector", ()), ("hosts that act", ("Hosts.num_hosts = 1", "Hosts.block_length = 1"))):
        runner = make(tmp_path / way, way, *block)
        runner.run_experiment()
        found.append(newest_bundle(runner.base_dir)[1])
    assert_identical(found[0]["agent"]["rows"], found[1]["agent"]["rows"])
    assert_identical(found[0]["statistics"], found[1]["statistics"])


class Seen(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps the first observation of each episode."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.first: list[Any] = []

    def reset(self, **arguments: Any) -> Any:
        observation, info = self.env.reset(**arguments)
        self.first.append(observation)
        return observation, info


def normalized(**arguments: Any) -> Any:
    return Seen(NormalizeObservation(drifting(0, 0, **arguments)))


def test_an_evaluation_sees_the_statistics_of_training_and_changes_nothing_of_them(tmp_path: Path) -> None:
    runner = run(tmp_path / "one", create_environment_fn=normalized, num_iterations=2, evaluation_episodes=2)
    without = run(tmp_path / "other", create_environment_fn=normalized, num_iterations=2, evaluation_steps=0)
    statistics = [newest_bundle(each.base_dir)[1]["statistics"] for each in (runner, without)]
    assert_identical(*statistics)

    rms = runner.environment.get_wrapper_attr("obs_rms")
    before = rms.mean.copy(), rms.count
    agent, env = runner.trained_agent(), runner.environment
    runner.evaluation(agent, 2)
    assert env.get_wrapper_attr("update_running_mean") is True
    assert (rms.mean == before[0]).all()
    assert rms.count == before[1]
    raw = env.unwrapped.lives[-1].observations[0]  # type: ignore[attr-defined]
    wanted = (raw - rms.mean) / np.sqrt(rms.var + 1e-8)
    assert env.get_wrapper_attr("first")[-1] == pytest.approx(wanted, rel=1e-6)


def test_an_agent_that_is_loaded_or_shipped_plays_as_in_evaluation(tmp_path: Path) -> None:
    runner = make(tmp_path / "run", "in turn")
    save_config(runner.base_dir)
    runner.run_experiment()
    wanted, seed = played(runner), runner.settings.seed
    file = tmp_path / "agent.safetensors"
    ship(runner, file, 2)
    for source in (runner.base_dir, file):
        agent, env = load_agent(source)
        assert env.get_wrapper_attr("update_running_mean") is False
        scores = [play_episode(agent, env, environment_seed(seed, Phase.FINAL, n), 40).score for n in range(3)]
        assert scores == wanted


def test_a_run_begins_with_the_statistics_of_its_initial_checkpoint(tmp_path: Path) -> None:
    first = run(tmp_path / "one", create_environment_fn=normalized, num_iterations=1)
    second = make_runner(tmp_path / "other", create_environment_fn=normalized, initial_checkpoint=str(first.base_dir))
    second.resume()
    assert second.environment.get_wrapper_attr("obs_rms").count == first.environment.get_wrapper_attr("obs_rms").count


class Counting(gym.Wrapper[Any, Any, Any, Any]):
    """Adds the number of frames ever played, which only its own words can keep."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.frames = np.zeros(1)

    def state_dict(self) -> dict[str, Any]:
        return {"frames": self.frames}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.frames = state["frames"]

    def step(self, action: Any) -> Any:
        self.frames = self.frames + 1
        return self.env.step(action)


class Forgetful(gym.Wrapper[Any, Any, Any, Any]):
    """The same without these words."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.frames = 0

    def step(self, action: Any) -> Any:
        self.frames += 1
        return self.env.step(action)


def test_a_wrapper_of_ones_own_keeps_what_its_state_dict_returns(tmp_path: Path) -> None:
    terms: dict[str, Any] = {"create_environment_fn": lambda: Counting(drifting(0, 0)), "evaluation_steps": 20}
    first = run(tmp_path, num_iterations=1, **terms)
    assert first.environment.get_wrapper_attr("frames") == [first.counts.frames]  # those of evaluation are undone
    second = make_runner(tmp_path, num_iterations=2, **terms)
    second.resume()
    assert second.environment.get_wrapper_attr("frames") == [first.counts.frames]


@pytest.mark.parametrize(("wrapper", "warns"), [(Forgetful, True), (Counting, False), (Seen, False)])
def test_one_warning_names_a_wrapper_whose_state_cannot_be_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrapper: Any, warns: bool
) -> None:
    run(tmp_path, create_environment_fn=lambda: wrapper(drifting()), num_iterations=1)
    found = [record.getMessage() for record in caplog.records if "episode to episode" in record.getMessage()]
    assert len(found) == warns
    assert not warns or found[0].startswith("wrapper Forgetful keeps frames from episode to episode")


def test_a_checkpoint_without_statistics_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, create_environment_fn=drifting, num_iterations=1)
    make_runner(tmp_path, create_environment_fn=lambda: NormalizeObservation(drifting())).trained_agent()
    assert "holds no statistics of NormalizeObservation" in caplog.text


# Returns.


class Shaped(gym.Wrapper[Any, Any, Any, Any]):
    """Ten times the reward, by a step of its own."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = 10 * reward
        return observation, reward, terminated, truncated, info


class Doubled(gym.RewardWrapper[Any, Any]):
    """Twice the reward."""

    def reward(self, reward: Any) -> float:
        return 2 * float(reward)


def delayed(env: Any) -> Any:
    return RealtimeDelay(env, 2, 1, 0)


CHANGED = {
    "NormalizeReward": lambda env: delayed(NormalizeReward(env)),
    "outside the delay": lambda env: NormalizeReward(delayed(env)),
    "a RewardWrapper": lambda env: delayed(Doubled(env)),
    "a step of one's own": lambda env: delayed(Shaped(env)),
    "several": lambda env: NormalizeReward(delayed(Shaped(Doubled(env)))),
    "recorded inside": lambda env: delayed(Doubled(RecordEpisodeStatistics(env))),
}


@pytest.mark.parametrize("wrap", CHANGED.values(), ids=CHANGED)
def test_returns_are_the_environments_own_where_wrappers_change_rewards(tmp_path: Path, wrap: Any) -> None:
    runner = run(tmp_path, create_environment_fn=lambda: wrap(DriftingEnv()), num_iterations=1)
    paid = [sum(life.rewards) for life in lives(runner)]
    found = read_iterations(tmp_path)[0]
    assert found["train_episode_returns"] + found["eval_episode_returns"] == pytest.approx(paid, rel=1e-12)
    with open(tmp_path / "episodes.csv", newline="") as file:
        assert [float(row["score"]) for row in csv.DictReader(file)] == pytest.approx(paid, rel=1e-12)
    assert "\nrewards: learnt from as " in _what(runner)


def test_a_recorder_outside_says_where_returns_are_counted(tmp_path: Path) -> None:
    wrap = lambda: delayed(RecordEpisodeStatistics(Doubled(DriftingEnv())))  # noqa: E731
    runner = run(tmp_path, create_environment_fn=wrap, num_iterations=1, evaluation_steps=0)
    assert read_iterations(tmp_path)[0]["train_episode_returns"] == [2 * sum(each.rewards) for each in lives(runner)]


@pytest.mark.parametrize("way", ["vector", "hosts that act", "hosts that step"])
def test_returns_of_many_environments_are_their_own(tmp_path: Path, way: str) -> None:
    runner = make(tmp_path, way, "Runner.num_iterations = 1")
    runner.run_experiment()
    found = read_iterations(tmp_path)[0]
    for phase in ("train", "eval"):  # of CartPole, which pays 1 for each frame
        assert found[f"{phase}_episode_returns"] == found[f"{phase}_episode_lengths"] != []


def test_a_run_without_such_wrappers_has_neither_statistics_nor_a_line_about_rewards(tmp_path: Path) -> None:
    runner = run(tmp_path, num_iterations=1)
    assert "statistics" not in newest_bundle(tmp_path)[1]
    assert "rewards" not in runner.facts()
