"""Loading an agent outside `train.py`: the run's agent and environment, and gin left alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gin
import pytest
import torch

import async_wrappers.agents.configurables
import async_wrappers.configurables
from async_wrappers import RealtimeDelay
from async_wrappers.agents.config.config import ConfigError, empty_gin, save_config
from async_wrappers.agents.load import load_agent, play_episode
from async_wrappers.agents.play.play import Phase, environment_seed
from async_wrappers.agents.registry import create_runner
from tests.worlds.experiments import load_gin

MODULES = (async_wrappers.agents.configurables, async_wrappers.configurables)
QUICK = (
    *(f"import {module.__name__}" for module in MODULES),
    "import tests.worlds.drifting_env",
    "create_gym_environment.environment_id = 'Drifting-v0'",
    "RealtimeDelay.delay = 3",
    "RealtimeDelay.default_action = 'random'",
    "Runner.num_iterations = 1",
    "Runner.training_steps = 60",
    "Runner.evaluation_steps = 0",
    "Runner.seed = 4",
    "DQNAgent.min_replay_history = 10",
    "DQNAgent.epsilon_eval = 0.3",
    "MLPTorso.hidden = (8,)",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A run's directory, and four episodes of its evaluation."""
    base_dir, threads = tmp_path_factory.mktemp("trained") / "run", torch.get_num_threads()
    load_gin("configs/dqn/cartpole.gin", bindings=QUICK)
    runner = create_runner(base_dir)
    save_config(base_dir)
    runner.run_experiment()
    scores = [episode._replace(digest=None) for episode in runner.evaluation(runner.trained_agent(), 4)]
    gin.clear_config()
    torch.set_num_threads(threads)
    return base_dir, scores


@pytest.fixture
def run(tmp_path: Path, trained: tuple[Path, list[Any]]) -> tuple[Path, list[Any]]:
    """A copy of it for each test."""
    return shutil.copytree(trained[0], tmp_path / "run"), trained[1]


def snapshot() -> list[Any]:
    return [gin.config_str(), gin.operative_config_str(), gin.config_is_locked(), torch.get_num_threads()]


def played(agent: Any, env: Any, seed: int = 4) -> list[Any]:
    return [play_episode(agent, env, environment_seed(seed, Phase.FINAL, number)) for number in range(4)]


def test_it_plays_as_the_run_evaluates_and_leaves_the_directory_alone(run: tuple[Path, list[Any]]) -> None:
    base_dir, scores = run
    before = {path: path.stat().st_mtime_ns for path in base_dir.rglob("*")}
    agent, env = load_agent(str(base_dir))
    assert played(agent, env) == scores
    assert {path: path.stat().st_mtime_ns for path in base_dir.rglob("*")} == before


def test_bindings_win_over_those_of_the_run(run: tuple[Path, list[Any]]) -> None:
    _, env = load_agent(run[0], ["RealtimeDelay.delay = 7"])
    assert isinstance(env, RealtimeDelay)
    env.reset(seed=0)
    assert env.step(0)[-1]["realtime"]["delay"] == 7


@pytest.mark.parametrize("locked", [False, True])
def test_gin_and_threads_are_the_callers_before_and_after(run: tuple[Path, list[Any]], locked: bool) -> None:
    torch.set_num_threads(2)
    anything = object()
    gin.parse_config("RealtimeDelay.noops = 5\nmine/RealtimeDelay.delay = 9\nMLPTorso.hidden = (3, 3)\nsize = 4")
    gin.bind_parameter("create_gym_environment.environment_kwargs", anything)  # of which there is no text
    async_wrappers.agents.configurables.MLPTorso((2,))
    if locked:
        gin.finalize()
    before = snapshot()
    with gin.config_scope("mine"):
        agent, env = load_agent(run[0])
    assert snapshot() == before
    assert gin.query_parameter("create_gym_environment.environment_kwargs") is anything
    assert played(agent, env) == run[1]
    with pytest.raises(ValueError):
        load_agent(run[0], ["RealtimeDelay.delays = 7"])
    assert snapshot() == before


def test_an_empty_gin_is_given_even_inside_a_scope() -> None:
    gin.parse_config("mine/RealtimeDelay.delay = 9")
    with gin.config_scope("mine"), empty_gin():
        assert gin.current_scope() == [] and gin.config_str() == ""


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^base_dir must be a run's directory .* that ships \(.*\), got '.*nowhere'$"):
        load_agent(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"^base_dir must hold a run \(a config.gin\), got '.*'$"):
        load_agent(tmp_path)
    (tmp_path / "no_agent.py").touch()
    with pytest.raises(ValueError, match=r"^base_dir must hold a run \(a config.gin\), got '.*no_agent.py'$"):
        load_agent(tmp_path / "no_agent.py")


def test_a_run_without_a_good_checkpoint_is_refused(run: tuple[Path, list[Any]]) -> None:
    (run[0] / "checkpoints" / "ckpt.0").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"run holds no good checkpoint in .*checkpoints: train there first"):
        load_agent(run[0])


@pytest.mark.parametrize(
    ("bindings", "difference"),
    [
        (["create_agent.agent_name = 'c51'"], "agent: DQNAgent there, C51Agent here"),
        (["AppliedActions.flat = True"], "observation_shape: [1, 3] there, [1, 6] here"),
        (
            ["AppliedActions.flat = False"],
            "observation_shape: [1, 3] there, {'applied_actions': [1, 1, 3], 'observation': [1, 3]} here",
        ),
    ],
)
def test_a_checkpoint_of_another_agent_is_refused_with_what_differs(
    run: tuple[Path, list[Any]], bindings: list[str], difference: str
) -> None:
    if "Applied" in bindings[0]:
        bindings = [*bindings, "create_gym_environment.wrappers = [@AppliedActions, @RealtimeDelay]"]
    with pytest.raises(ValueError) as caught:
        load_agent(run[0], bindings)
    path = run[0] / "checkpoints" / "ckpt.0"
    assert str(caught.value) == f"checkpoint {path} does not fit this agent ({difference})"


def test_a_wrong_binding_is_refused_in_one_sentence(run: tuple[Path, list[Any]]) -> None:
    with pytest.raises(
        ConfigError, match=r"^--gin_bindings 'RealtimeDelay.delays = 7': RealtimeDelay has no parameter"
    ):
        load_agent(run[0], ["RealtimeDelay.delays = 7"])
    with pytest.raises(ValueError, match=r"^gin_bindings must be a list, .*, got 'RealtimeDelay.delay = 7'$"):
        load_agent(run[0], "RealtimeDelay.delay = 7")


@pytest.mark.parametrize("binding", ["evaluation/RealtimeDelay.delay = 7", "C51Agent.vmax = 3.0"])
def test_a_binding_that_nothing_reads_is_refused_with_the_reason(run: tuple[Path, list[Any]], binding: str) -> None:
    name = binding.partition(" = ")[0]
    with pytest.raises(ConfigError, match=rf"^--gin_bindings '{binding}': nothing reads {name}, as "):
        load_agent(run[0], [binding])
