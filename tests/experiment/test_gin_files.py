"""Every gin file that is shipped is parsed, built, stepped and learns; those of the paper bind what their names say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import gin
import pytest
import torch

import agents.configurables
import async_wrappers.configurables
from agents.create import AGENTS
from agents.experiment.config import load_config, save_config
from agents.experiment.runner import Runner
from agents.experiment.schedules import create_runner
from agents.turn_based import TurnBasedAgent

ROOT = Path(__file__).parents[2]
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").glob("**/*.gin"))
PAPER = [name for name in FILES if re.search(r"/(asynchronous|sequential)_", name)]
DELAYS = (1, 3, 5, 8, 29, 47, 70, 80, 599, 750)  # frames; the networks of the paper's table
SMALL = ("DQNAgent.replay_capacity = 1_000", "DQNAgent.batch_size = 2")


@pytest.fixture(autouse=True)
def no_bindings() -> Iterator[None]:
    threads = torch.get_num_threads()
    gin.clear_config()
    yield
    gin.clear_config()
    torch.set_num_threads(threads)


def load(name: str, *bindings: str) -> None:
    names = (*agents.configurables.CONFIGURABLES, *async_wrappers.configurables.CONFIGURABLES)
    load_config([name], bindings, names, search_paths=[ROOT])


def build(name: str, base_dir: Path, *bindings: str) -> Runner:
    load(name, *SMALL, *bindings)
    runner: Runner = create_runner(base_dir)
    return runner


def play(runner: Runner, seed: int, enough: Callable[[int], bool]) -> int:
    """Play an episode until it ends or `enough` of the number of decisions made is true; return that number."""
    agent, environment = runner.agent, runner.environment
    observation, info = environment.reset(seed=seed)
    action = agent.begin_episode(observation, info.get("realtime"))
    for decisions in count(1):
        observation, reward, terminated, truncated, info = environment.step(action)
        if terminated or truncated or enough(decisions):
            break
        action = agent.step(float(reward), observation, info.get("realtime"))
    agent.end_episode(float(reward), bool(terminated), observation, info.get("realtime"))
    return decisions


def test_there_are_files() -> None:
    assert {
        "configs/default.gin",
        "configs/dqn/atari.gin",
        "configs/dqn/cartpole.gin",
        "configs/paper/atari.gin",
        "configs/paper/rainbow.gin",
    } <= set(FILES)
    assert {
        f"configs/{agent}/{environment}.gin"
        for agent in ("c51", "rainbow", "full_rainbow", "quantile", "implicit_quantile")
        for environment in ("atari", "cartpole", "acrobot")
    } <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_built_and_stepped_in_training_and_evaluation(name: str, tmp_path: Path) -> None:
    runner = build(name, tmp_path)
    for runner.agent.eval_mode in (False, True):
        assert play(runner, seed=0, enough=lambda decisions: decisions == 3) == 3


@pytest.mark.parametrize("name", FILES)
def test_a_file_learns_from_its_first_episodes(name: str, tmp_path: Path) -> None:
    load(name)
    history = min(int(gin.query_parameter("DQNAgent.min_replay_history")), 20)
    small = (f"DQNAgent.min_replay_history = {history}", "create_network.torso = @MLPTorso", "MLPTorso.hidden = (4,)")
    runner = build(name, tmp_path, *small)
    assert isinstance(runner.agent, TurnBasedAgent)
    learner, seed = runner.agent._learner, count()
    decisions = 0
    while not learner.updates and decisions < 2000:
        decisions += play(runner, next(seed), enough=lambda _: bool(learner.updates))
    assert learner.updates == 1


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_binds_is_what_is_saved(name: str, tmp_path: Path) -> None:
    load(name)
    expected = gin.config_str()
    saved = save_config(tmp_path)
    load(str(saved))
    assert gin.config_str() == expected


@pytest.mark.parametrize("name", PAPER)
def test_a_file_of_the_paper_binds_the_delay_and_the_interaction_of_its_name(name: str) -> None:
    load(name)
    interaction, delay = Path(name).stem.split("_")
    assert gin.query_parameter("RealtimeDelay.delay") == int(delay)
    assert gin.query_parameter("RealtimeDelay.noops") == {"asynchronous": 0, "sequential": int(delay)}[interaction]


def test_the_paper_has_both_interactions_at_each_delay_of_its_table() -> None:
    names = {
        f"configs/paper/{interaction}_{delay}.gin" for interaction in ("asynchronous", "sequential") for delay in DELAYS
    }
    assert set(PAPER) == names


@pytest.mark.parametrize("name", PAPER)
def test_files_of_the_paper_differ_in_nothing_but_the_schedule(name: str) -> None:
    load("configs/paper/atari.gin")
    expected = re.sub(r"RealtimeDelay\.(delay|noops) = \d+", "", gin.config_str())
    load(name)
    assert re.sub(r"RealtimeDelay\.(delay|noops) = \d+", "", gin.config_str()) == expected


@pytest.mark.parametrize("name", FILES)
def test_a_file_plays_the_agent_of_its_folder(name: str) -> None:
    load(name)
    folder = Path(name).parent.name
    if folder in AGENTS:
        assert gin.query_parameter("create_agent.agent_name") == folder


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_its_units_and_departures(name: str) -> None:
    text = told = (ROOT / name).read_text()
    while included := re.search(r'^include "(.+)"$', text, re.MULTILINE):
        text = (ROOT / included[1]).read_text()
        told += text
    assert told.startswith("# ")
    assert "Units:" in told
