"""The loop between an agent and an environment, call by call, and what a phase of episodes comes to."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.experiment.progress import closing_line, facts
from async_wrappers.agents.play.live import note_standing
from async_wrappers.agents.play.play import EpisodeResult, Phase, PlayedPhase, environment_seed
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.turns import EpisodeCut, Running, play_episode
from async_wrappers.envs import ClipReward
from async_wrappers.live.loop.loop import episode_seed
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.duels_env import FRAMES, Duels, won_by
from tests.worlds.experiments import experiment, make_dqn
from tests.worlds.scripted_agent import ScriptedAgent

TRUNCATED, TERMINATED, BOTH = (False, True), (True, False), (True, True)


def rewards(calls: list[tuple[Any, ...]]) -> list[float]:
    return [call[1] for call in calls if call[0] != "begin"]


class TestTurnBased:
    def test_each_observation_and_reward_is_passed_once_and_in_order(self) -> None:
        env, agent = DriftingEnv(lengths=[4], ends=[TERMINATED]), ScriptedAgent(action=2)
        episode = play_episode(agent, env, seed=7)
        [life] = env.lives
        assert life.seed == 7
        assert life.actions == [2] * 4
        seen = [observation.tolist() for observation in life.observations]
        assert agent.calls == [
            ("begin", seen[0], None),
            ("step", life.rewards[0], seen[1], None),
            ("step", life.rewards[1], seen[2], None),
            ("step", life.rewards[2], seen[3], None),
            ("end", life.rewards[3], True, seen[4], None),
        ]
        assert episode == EpisodeResult(sum(life.rewards), 4, actions=4)

    @pytest.mark.parametrize(("end", "terminal"), [(TERMINATED, True), (TRUNCATED, False), (BOTH, True)])
    def test_an_end_is_terminal_if_the_environment_terminated(self, end: tuple[bool, bool], terminal: bool) -> None:
        agent = ScriptedAgent()
        play_episode(agent, DriftingEnv(lengths=[3], ends=[end]), seed=0)
        assert agent.calls[-1][:1] + agent.calls[-1][2:3] == ("end", terminal)

    @pytest.mark.parametrize(
        ("limit", "frames", "terminal"), [(1, 1, False), (4, 4, False), (5, 5, True), (6, 5, True)]
    )
    def test_the_limit_cuts_an_episode_without_ending_it(self, limit: int, frames: int, terminal: bool) -> None:
        env, agent = DriftingEnv(lengths=[5], ends=[TERMINATED]), ScriptedAgent()
        episode = play_episode(agent, env, 0, max_frames=limit)
        [life] = env.lives
        assert (episode.frames, len(life.actions)) == (frames, frames)
        assert agent.calls[-1] == ("end", life.rewards[-1], terminal, life.observations[-1].tolist(), None)

    def test_a_cut_is_a_truncation_at_the_next_decision_and_comes_after_an_end(self) -> None:
        running = Running(ending := SimpleNamespace(asked=False))

        class Cutting(DriftingEnv):
            def step(self, action: Any) -> Any:
                step = super().step(action)
                if running.frames == 2:  # of the steps before
                    ending.asked = True
                return step

        env, agent = Cutting(lengths=[5, 3]), ScriptedAgent()
        with pytest.raises(EpisodeCut) as caught:
            play_episode(agent, env, 0, running=running)
        [life] = env.lives
        assert (caught.value.frames, caught.value.actions, running.frames, len(life.actions)) == (3, 3, 3, 3)
        assert agent.calls[-1] == ("end", life.rewards[-1], False, life.observations[-1].tolist(), None)
        ending.asked = False
        assert play_episode(agent, env, 1, running=running).frames == 3
        assert ending.asked


class TestUnderDelay:
    def test_the_report_of_the_very_step_is_passed_along(self) -> None:
        # s = 0 2 4, e = 3 5 7; T = 6
        agent = ScriptedAgent()
        episode = play_episode(agent, RealtimeDelay(DriftingEnv(lengths=[6]), 3, 1, 0), seed=0)
        told = [(call[0], call[-1]["start"], call[-1]["frame"]) for call in agent.calls]
        assert told == [("begin", 0, 0), ("step", 2, 5), ("end", 4, 6)]
        assert episode.frames == 6

    @pytest.mark.parametrize(("limit", "frames"), [(1, 5), (5, 5), (6, 7), (7, 7), (8, 9), (100, 20)])
    def test_the_limit_cuts_at_the_end_of_the_step_that_reaches_it(self, limit: int, frames: int) -> None:
        env, agent = DriftingEnv(lengths=[20], ends=[TERMINATED]), ScriptedAgent()
        episode = play_episode(agent, RealtimeDelay(env, 3, 1, 0), 0, max_frames=limit)
        assert (episode.frames, len(env.lives[0].actions)) == (frames, frames)
        kind, _, terminal, observation, realtime = agent.calls[-1]
        assert (kind, terminal) == ("end", frames == 20)
        assert observation == env.lives[0].observations[realtime["start"]].tolist()

    def test_the_score_is_all_that_the_environment_paid(self) -> None:
        env = DriftingEnv(lengths=[2, 9, 15])
        delayed = RealtimeDelay(env, 4, 2, 1)
        scores = [play_episode(ScriptedAgent(), delayed, seed).score for seed in range(3)]
        assert scores == [sum(life.rewards) for life in env.lives]


class Won(gym.Wrapper[Any, Any, Any, Any]):
    """Says whether an episode was won as NumPy does."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *rest, info = self.env.step(action)
        return *rest, {**info, "won": np.bool_(True)}


def test_a_win_is_a_plain_value_which_checkpoints_can_hold() -> None:
    assert play_episode(ScriptedAgent(action=2), Won(DriftingEnv(lengths=[3])), 0).won is True


class Paying(gym.Wrapper[Any, Any, Any, Any]):
    """Pays ten times as much, so that clipping matters."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = self.env.step(action)
        return observation, 10 * float(reward), *rest


@pytest.mark.parametrize("limit", [None, 7])
@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (2, 3)])
def test_the_score_is_unclipped_where_the_environment_clips_inside_the_delay(
    delay: int, noops: int, limit: int | None
) -> None:
    env, agent = DriftingEnv(lengths=[12]), ScriptedAgent(action=2)
    episode = play_episode(agent, RealtimeDelay(ClipReward(Paying(env)), delay, noops, 2), 0, limit)
    paid = [10 * reward for reward in env.lives[0].rewards]
    assert episode.score == sum(paid)
    assert sum(rewards(agent.calls)) == sum(max(-1.0, min(1.0, reward)) for reward in paid) != sum(paid)


class TestSeeds:
    @given(st.integers(0, 2**40), st.sampled_from(Phase), st.integers(0, 10**6))
    def test_they_are_ones_that_gymnasium_takes(self, seed: int, phase: Phase, number: int) -> None:
        assert 0 <= environment_seed(seed, phase, number) < 2**31
        assert environment_seed(seed, phase, number) == environment_seed(seed, phase, number)

    def test_runs_phases_and_episodes_have_seeds_of_their_own(self) -> None:
        seeds = [environment_seed(seed, phase, number) for seed in range(10) for phase in Phase for number in range(50)]
        assert len(set(seeds)) == len(seeds)

    def test_they_never_change_between_versions(self) -> None:
        # A run that is resumed with a later version must go on as it would have.
        asked = [(0, Phase.TRAIN, 0), (3, Phase.EVAL, 7), (1, Phase.FINAL, 2)]
        assert [environment_seed(*question) for question in asked] == [821_328_062, 912_422_222, 1_718_757_946]
        assert [environment_seed(*question) for question in asked] == [episode_seed(*question) for question in asked]


EPISODES = 6  # of a phase


def under_delay() -> gym.Env[Any, Any]:
    return RealtimeDelay(Duels(), delay=1, noops=1)  # decisions take effect on frames 1 and 3 of 0 to 3


def make_runner(base_dir: Path, iterations: int, **arguments: Any) -> Experiment:
    return experiment(
        base_dir,
        **{
            "create_environment_fn": under_delay,
            "create_agent_fn": partial(RandomAgent),
            "num_iterations": iterations,
            "training_episodes": EPISODES,
            "evaluation_episodes": 2,
            **arguments,
        },
    )


def outcomes(phase: Phase, first: int, episodes: int) -> list[bool | None]:
    return [won_by(environment_seed(0, phase, number)) for number in range(first, first + episodes)]


class TestFacts:
    @pytest.mark.parametrize(
        ("played", "expected"),
        [
            (
                PlayedPhase([EpisodeResult(1.0, 10), EpisodeResult(0.0, 6)], 8, 2),
                {"actions": 8, "actions_per_frame": 0.5, "updates": 2, "updates_per_action": 0.25},
            ),
            (
                PlayedPhase(
                    [EpisodeResult(1.0, 3, won=True), EpisodeResult(-1.0, 1, won=False), EpisodeResult(0.0, 4)], 4, 0
                ),
                {"actions": 4, "actions_per_frame": 0.5, "updates": 0, "updates_per_action": 0, "wins": 1, "losses": 1},
            ),
            (
                PlayedPhase([EpisodeResult(0.0, 5)], 0, 3, encounter=7),  # neither won nor lost
                {
                    "actions": 0,
                    "actions_per_frame": 0,
                    "updates": 3,
                    "wins": 0,
                    "losses": 0,
                    "encounter": 7,
                },
            ),
            (PlayedPhase([], 0, 20, frames=0), {"actions": 0, "updates": 20}),  # offline
        ],
    )
    def test_what_a_phase_came_to(self, played: PlayedPhase, expected: dict[str, Any]) -> None:
        assert facts(played) == expected

    def test_the_closing_line_adds_the_iterations_up(self) -> None:
        first = facts(PlayedPhase([EpisodeResult(1.0, 10, won=True), EpisodeResult(-1.0, 10, won=False)], 15, 30, 2))
        second = facts(PlayedPhase([EpisodeResult(1.0, 20, won=True)], 15, 0, 3))
        history = [
            {"train_episode_lengths": lengths, **{f"train_{name}": value for name, value in found.items()}}
            for lengths, found in (([10, 10], first), ([20], second))
        ]
        assert closing_line(history) == (
            "training: 3 episodes, 40 frames; 2 wins, 1 losses; at encounter 3; "
            "0.750 actions per frame, 1.000 updates per action"
        )
        assert closing_line([]) == "training: 0 episodes, 0 frames"

    def test_the_closing_line_tells_how_many_actions_an_update_of_a_round_follows(self) -> None:
        line = {"frames": 4096, "train_updates": 2, "train_actions": 4096}
        assert closing_line([line]).endswith("1.000 actions per frame, 2,048 actions per update")

    def test_the_closing_line_tells_offline_updates_apart(self) -> None:
        offline = {"phase": "offline", "frames": 0, "train_updates": 2_000, "train_actions": 0}
        assert closing_line([offline] * 2) == "training: 0 episodes, 0 frames; 4,000 offline updates"
        online = {"phase": "online", "frames": 40, "train_updates": 10, "train_actions": 20}
        assert closing_line([offline, online]) == (
            "training: 0 episodes, 40 frames; 0.500 actions per frame, 0.500 updates per action, 2,000 offline updates"
        )


class TestSimulatedRuns:
    def test_wins_and_losses_are_the_environments_and_actions_those_that_took_effect(self, tmp_path: Path) -> None:
        make_runner(tmp_path, 2).run_experiment()
        for iteration, line in enumerate(read_iterations(tmp_path)):
            won = outcomes(Phase.TRAIN, iteration * EPISODES, EPISODES)
            assert (line["train_wins"], line["train_losses"]) == (won.count(True), won.count(False))
            assert line["train_actions"] == 2 * EPISODES
            assert line["train_actions_per_frame"] == 2 / FRAMES
            assert line["train_updates"] == 0  # random
        assert 0 < sum(line["train_wins"] for line in read_iterations(tmp_path)) < 2 * EPISODES

    def test_updates_are_counted_in_training(self, tmp_path: Path) -> None:
        agent = partial(make_dqn, min_replay_history=0, update_period=1)
        runner = make_runner(tmp_path, 1, create_agent_fn=agent)
        runner.run_experiment()
        [line] = read_iterations(tmp_path)
        assert line["train_updates"] == runner.agent.updates > 0
        assert line["train_updates_per_action"] == line["train_updates"] / line["train_actions"]
        assert line["eval_updates"] == 0

    def test_each_phase_passes_encounters_by_itself(self, tmp_path: Path) -> None:
        runner = make_runner(tmp_path, 3)
        runner.run_experiment()
        lines = read_iterations(tmp_path)
        for phase, episodes in ((Phase.TRAIN, EPISODES), (Phase.EVAL, 2)):
            for iteration, line in enumerate(lines):
                passed = outcomes(phase, 0, (iteration + 1) * episodes).count(True)
                assert line[f"{phase.name.lower()}_encounter"] == 1 + passed
        assert closing_line(runner.history).split("; ")[2] == f"at encounter {lines[-1]['train_encounter']}"

    def test_a_run_that_is_continued_goes_on_with_its_encounter(self, tmp_path: Path) -> None:
        make_runner(tmp_path / "whole", 3).run_experiment()
        make_runner(tmp_path / "parts", 1).run_experiment()
        rest = make_runner(tmp_path / "parts", 3)
        assert rest.resume()
        rest.run_experiment()
        whole, parts = (read_iterations(tmp_path / name) for name in ("whole", "parts"))
        assert [line["train_encounter"] for line in parts] == [line["train_encounter"] for line in whole]
        assert [line["eval_encounter"] for line in parts] == [line["eval_encounter"] for line in whole]
        began = rest.environment.unwrapped.played[0]  # type: ignore[attr-defined]
        assert began == parts[0]["train_encounter"] > 1

    def test_an_evaluation_begins_with_the_first_encounter_each_time(self, tmp_path: Path) -> None:
        runner = make_runner(tmp_path, 1)
        runner.run_experiment()
        duels = runner.environment.unwrapped
        for _ in range(2):
            duels.played.clear()  # type: ignore[attr-defined]
            runner.evaluation(runner.agent, 5)
            won = outcomes(Phase.FINAL, 0, 4)
            assert duels.played == [1 + won[:n].count(True) for n in range(5)]  # type: ignore[attr-defined]

    def test_an_environment_without_encounters_says_nothing_of_them(self, tmp_path: Path) -> None:
        runner = make_runner(tmp_path, 1, create_environment_fn=partial(DriftingEnv, lengths=[5]))
        runner.run_experiment()
        [line] = read_iterations(tmp_path)
        assert not {"train_wins", "train_losses", "train_encounter"} & line.keys()
        assert "encounter" not in closing_line(runner.history)


class TestTheRunner:
    @pytest.mark.parametrize("backend", ["virtual", "thread"])
    def test_it_begins_with_the_encounter_it_is_told_and_reports_the_next(self, backend: str) -> None:
        runner = AsyncRunner(
            Duels, lambda: lambda observation: 1, 1, fps=400, backend=backend, latency=0.001, calibration_time=0.0
        )
        report = runner.run(episodes=EPISODES, phase_state=5)
        won = [won_by(_seed(number)) for number in range(EPISODES)]
        assert [episode.won for episode in report.episodes] == won
        assert (report.wins, report.losses) == (won.count(True), won.count(False))
        assert report.phase_state == 5 + won.count(True)
        told = report.to_dict()
        assert told["actions_per_frame"] == report.frames["fresh"] / (FRAMES * EPISODES)
        assert told["updates_per_action"] == 0
        assert f"{report.wins} won, {report.losses} lost" in str(report)
        assert f"state      {report.phase_state}" in str(report)
        runner.close()

    def test_it_notes_how_it_stands_when_a_frame_begins(self) -> None:
        runner = AsyncRunner(
            Duels, lambda: lambda observation: 1, 1, fps=400, backend="thread", latency=0.001, calibration_time=0.0
        )
        lived, after = 1000, 3 * FRAMES + 2  # in the fourth episode
        report = runner.run(
            episodes=5, phase_state=2, frames_before=lived, on_frame=partial(note_standing, lived + after)
        )
        won = [won_by(_seed(number)) for number in range(3)]
        ((frame, standing),) = report.notes
        assert frame == lived + after
        assert 0 <= standing["actions"] <= after
        assert standing == {
            "frame": lived + after,
            "episodes": 3,
            "wins": won.count(True),
            "losses": won.count(False),
            "score": 0.0,
            "encounter": 2 + won.count(True),
            "actions": standing["actions"],
            "updates": 0,
        }
        assert report.to_dict()["notes"] == [[frame, standing]]

    @pytest.mark.usefixtures("children_of_a_server")
    def test_a_function_of_each_frame_runs_where_the_environment_does(self) -> None:
        runner = AsyncRunner(
            Duels, lambda: lambda observation: 1, 1, fps=400, backend="process", latency=0.001, calibration_time=0.0
        )
        report = runner.run(frames=3, on_frame=lambda status: (status.frame, os.getpid()))
        assert [(frame, note[0]) for frame, note in report.notes] == [(0, 0), (1, 1), (2, 2)]
        assert os.getpid() not in {note[1] for _, note in report.notes}
        lock = threading.Lock()
        with pytest.raises(ValueError, match=r"^on_frame cannot be sent to another process: "):
            runner.run(frames=3, on_frame=lambda status: lock)
        with pytest.raises(ValueError, match=r"^on_frame must be a function that .*, got 3$"):
            runner.run(frames=3, on_frame=3)


def _seed(number: int) -> int:
    return environment_seed(0, Phase.TRAIN, number)
