"""A life's end is an episode's for the learner alone: runners, evaluations and live reports count games."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers import (
    AsyncRunner,
    RealtimeDelay,
    VectorRealtimeDelay,
    create_atari_environment,
    create_atari_vector,
)
from async_wrappers.agents.experiment.evaluate import evaluate
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.actor import RunningEpisodes
from async_wrappers.agents.play.many.environments import NumberedEpisodes
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import EpisodeResult, Phase, environment_seed
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.registry import create_runner
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.envs import ClipReward, EpisodicLife
from async_wrappers.live import Decision
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import load_gin
from tests.worlds.lives_env import FRAMES, LENGTH, RETURN, LivesEnv
from tests.worlds.scripted_agent import ScriptedAgent

DELAYS: list[dict[str, int]] = [{}, {"delay": 2}, {"delay": 1, "noops": 1}]


def lives(delays: Mapping[str, int], game: LivesEnv | None = None) -> gym.Env[Any, Any]:
    env: gym.Env[Any, Any] = EpisodicLife(ClipReward(game or LivesEnv()))
    return RealtimeDelay(env, **delays, default_action=2) if delays else env


@pytest.mark.parametrize("delays", DELAYS, ids=str)
def test_an_agent_plays_lives_and_the_episode_is_the_game(delays: dict[str, int]) -> None:
    game, agent = LivesEnv(), ScriptedAgent(action=1)
    episode = play_episode(agent, lives(delays, game), 5)
    assert (episode.score, episode.frames) == (RETURN, FRAMES)
    assert game.seeds == [5]
    assert len(game.actions) == FRAMES
    assert [call[0] for call in agent.calls if call[0] != "step"] == ["begin", "end"] * 3
    assert [call[2] for call in agent.calls if call[0] == "end"] == [True] * 3
    assert sum(call[1] for call in agent.calls if call[0] != "begin") == FRAMES  # clipped; none is lost
    # Each life begins as an episode does: what was decided on in the life before is never applied.
    delay, noops = delays.get("delay", 0), delays.get("noops", 0)
    of_lives = np.split(np.array(game.actions), [LENGTH + 1, 2 * LENGTH + 1])
    for actions in of_lives:
        frames = np.arange(len(actions))
        applied = (frames >= delay) & ((frames - delay) % (noops + 1) == 0)
        assert actions.tolist() == np.where(applied, 1, 2).tolist()
    assert episode.actions == game.actions.count(1)


@pytest.mark.parametrize("limit", [3, LENGTH + 1, LENGTH + 3])
def test_a_game_is_cut_after_so_many_frames_of_all_its_lives(limit: int) -> None:
    agent = ScriptedAgent()
    env = lives({})
    assert play_episode(agent, env, 0, limit) == EpisodeResult(3.0 * limit, limit, actions=limit)
    assert agent.calls[-1][:3:2] == ("end", limit == LENGTH + 1)  # a life's end is one also there
    assert play_episode(agent, env, 1).frames == FRAMES  # the next one is a whole game


@pytest.mark.parametrize("schedule", ["continuous_train_and_eval", "vector"])
def test_an_evaluation_phase_says_how_many_of_its_games_differ(
    schedule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(name: str, make_environment: Any) -> tuple[str, Any]:
        bindings = [
            "create_agent.agent_name = 'dqn'",
            f"create_runner.schedule = '{schedule}'",
            "Runner.num_iterations = 1",
            "Runner.training_steps = 20",
            "Runner.evaluation_episodes = 4",
            "VectorRunner.num_envs = 2",
            "DQNAgent.epsilon_eval = 0.0",
            "DQNAgent.replay_capacity = 500",
            "MLPTorso.hidden = (8,)",
        ]
        load_gin(bindings=bindings)
        with gin.unlock_config():
            gin.bind_parameter("Runner.create_environment_fn", make_environment)
        create_runner(str(tmp_path / name)).run_experiment()
        line = read_iterations(tmp_path / name)[-1]
        return capsys.readouterr().out, line

    out, line = told("same", LivesEnv)
    assert line["eval_episode_returns"] == [RETURN] * 4 and line["eval_different_episodes"] == 1
    assert "over 4 episodes (1 different), " in out
    out, line = told("differs", DriftingEnv)
    assert len(line["eval_episode_returns"]) == 4 and "eval_different_episodes" not in line
    assert "over 4 episodes, " in out


def test_evaluations_report_whole_games() -> None:
    episodes = evaluate(ScriptedAgent(), lives({}), 3, seed=1)  # type: ignore[arg-type]
    assert [(episode.score, episode.frames) for episode in episodes] == [(RETURN, FRAMES)] * 3


def test_the_episodes_of_a_vector_are_numbered_by_game_and_cut_by_its_frames() -> None:
    game = LivesEnv()
    env = NumberedEpisodes(lives({}, game), seed=7, phase=Phase.TRAIN, num_envs=2, max_frames=LENGTH + 3)
    env.reset(seed=2 * 4 + 1)
    ends = []
    for _ in range(3 * (LENGTH + 3)):
        *_, terminated, truncated, info = env.step(0)
        if terminated or truncated:
            ends.append((terminated, truncated, info["game_over"] if terminated else None, len(game.actions)))
            env.reset()
    one = LENGTH + 3  # frames of a game that is cut
    assert ends[:4] == [
        (True, False, False, LENGTH + 1),
        (False, True, None, one),
        (True, False, False, one + LENGTH + 1),
        (False, True, None, 2 * one),
    ]
    assert game.seeds[:3] == [environment_seed(7, Phase.TRAIN, number, 1) for number in (4, 5, 6)]
    env = NumberedEpisodes(lives({}), seed=7, phase=Phase.TRAIN, num_envs=2, max_frames=LENGTH + 1)
    env.reset(seed=0)
    last = [env.step(0) for _ in range(LENGTH + 1)][-1]
    assert last[2:4] == (True, False) and last[4]["game_over"]  # the game is cut where a life ends


def made_of_environments(num_envs: int, delays: dict[str, int], mode: AutoresetMode) -> Any:
    makes = [lambda: NumberedEpisodes(lives(delays), 5, Phase.TRAIN, num_envs)] * num_envs
    return VectorEnvs(SyncVectorEnv(makes, autoreset_mode=mode))


def made_of_a_vector(num_envs: int, delays: dict[str, int], mode: AutoresetMode) -> Any:
    vector: Any = SyncVectorEnv([lambda: lives({})] * num_envs, autoreset_mode=mode)
    return VectorEnvs(VectorRealtimeDelay(vector, **delays, default_action=2))


def in_processes(num_envs: int, delays: dict[str, int], mode: AutoresetMode) -> Any:
    return ProcessEnvs(lambda: NumberedEpisodes(lives(delays), 5, Phase.TRAIN, num_envs), num_envs, 1)


@pytest.mark.usefixtures("children_of_a_server")
@pytest.mark.parametrize("delays", DELAYS, ids=str)
@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (made_of_environments, AutoresetMode.SAME_STEP),
        (made_of_environments, AutoresetMode.NEXT_STEP),
        (made_of_a_vector, AutoresetMode.SAME_STEP),
        (in_processes, AutoresetMode.SAME_STEP),
    ],
)
def test_many_environments_store_lives_and_count_games(make: Any, mode: AutoresetMode, delays: dict[str, int]) -> None:
    env = lives(delays)
    spec = DQN(
        env.observation_space,
        env.action_space,
        stack_size=1,
        update_horizon=1,
        min_replay_history=10**6,
        replay_capacity=500,
        device="cpu",
    )
    agent, envs = VectorAgent(spec, 2), make(2, delays, mode)
    stored: list[Any] = []
    extend = agent.learner.extend

    def watched(block: Any) -> None:
        stored.append({**block})
        extend(block)

    agent.learner.extend = watched  # type: ignore[method-assign]
    over = []
    try:
        envs.begin([0, 1])
        while len(over) < 5:
            shown = envs.recv()
            over += agent.observe(shown)
            envs.send(shown.env_ids, agent.act(shown))
        frames = agent.rows.frames_of_all
        cut = agent.observe(envs.cut())
    finally:
        envs.close()
    assert [(each.score, each.frames, each.terminal) for each in over] == [(RETURN, FRAMES, True)] * len(over)
    assert len(cut) == 2 and not any(each.terminal for each in cut)
    assert agent.rows.frames_of_all == sum(each.frames for each in over + cut) >= frames
    terminals = sum(int(np.sum(columns["terminal"])) for columns in stored)
    assert terminals >= 3 * len(over)  # and those of the games that were cut


def test_games_of_an_atari_vector_are_counted_whole() -> None:
    pytest.importorskip("ale_py")
    # Nobody plays: FIRE begins each life, which is lost after 25 steps.
    game = {"sticky_actions": False, "episodic_life": True, "fire_on_reset": True, "clip_rewards": True}
    vector = create_atari_vector("Breakout", 2, num_threads=1, **game)
    spec = DQN(vector.single_observation_space, vector.single_action_space, replay_capacity=500, device="cpu")
    envs, rows = VectorEnvs(vector), RunningEpisodes(spec, 2, eval_mode=True)
    envs.begin([0, 1])
    over, lives_lost = [], 0
    while len(over) < 2:
        shown = envs.recv()
        lives_lost += int(shown.terminal.sum())
        over += rows.note(shown)
        envs.send(shown.env_ids, np.zeros(2, np.int64))
    envs.close()
    assert lives_lost == 10
    assert [(each.score, each.frames, each.actions, each.terminal) for each in over] == [(0.0, 125, 125, True)] * 2
    episode = play_episode(ScriptedAgent(), create_atari_environment("Breakout", **game), 0)
    assert (episode.score, episode.frames, episode.actions) == (0.0, 125, 125)


class Still:
    """A policy of one action."""

    def __init__(self, starts: list[int]) -> None:
        self._starts = starts

    def load_weights(self, weights: Any, version: int) -> None:
        """There are none."""

    def act(self, observation: Any, decision: Decision) -> int:
        self._starts.append(decision.start)
        return 1


class Writing:
    """A learner that writes down what it observes."""

    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen
        self.ready = False

    def observe(self, transition: Mapping[str, Any]) -> None:
        self._seen.append(dict(transition))

    def weights(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("frames", [1, 2])
def test_live_a_game_goes_on_on_the_same_clock_and_the_report_counts_games(frames: int) -> None:
    game, seen, starts = LivesEnv(), list[Any](), list[int]()
    runner = AsyncRunner(
        partial(EpisodicLife, game),
        partial(Still, starts),
        fps=1000,
        workers=4,
        latency=0.001 * frames,
        default_action=2,
        backend="virtual",
        make_learner=partial(Writing, seen),
        learner_latency=0.001,
    )
    with runner:
        report = runner.run(episodes=3)
    assert [(each.score, each.frames) for each in report.episodes] == [(RETURN, FRAMES)] * 3
    assert len(game.seeds) == 3 and None not in game.seeds
    ends = [transition["terminal"] for transition in seen]
    of_two_games = seen[: np.flatnonzero(ends)[5] + 1]  # the newest transitions are not handed on
    assert sum(transition["reward"] for transition in of_two_games) == 2 * RETURN
    assert not any(transition["truncated"] for transition in of_two_games)
    # No action that was decided on in one life takes effect in the next.
    one_life = [2] * frames + [1] * (LENGTH - frames)
    first_life = [2] * frames + [1] * (LENGTH + 1 - frames)
    assert game.actions == (first_life + 2 * one_life) * 3
    assert set(starts) <= set(range(FRAMES))  # of the game
