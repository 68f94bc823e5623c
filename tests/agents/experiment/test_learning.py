"""Every agent learns CartPole, and a delay costs DQN: runs of minutes each, asked for with ``-m slow``."""

from __future__ import annotations

from pathlib import Path

import pytest

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.config.config import load_config
from async_wrappers.agents.experiment.closing_report import ReportRow, compare_with_baselines
from async_wrappers.agents.experiment.evaluate import difference_interval
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.registry import create_runner

ROOT = Path(__file__).parents[3]
SEEDS = (0, 1, 2)
SOLVED = 195.0  # Gymnasium's mark for CartPole, there over 100 episodes of at most 200 frames


def trained(base_dir: Path, seed: int, *bindings: str, agent: str = "dqn") -> list[float]:
    """The returns of a run's final evaluation."""
    load_config([f"configs/{agent}/cartpole.gin"], [f"Runner.seed = {seed}", *bindings], search_paths=[ROOT])
    runner: Experiment = create_runner(base_dir)
    runner.run_experiment()
    row: ReportRow = compare_with_baselines(runner)[-1]
    assert row.agent == "trained"
    return row.scores


def test_the_way_to_a_result_works_with_one_tiny_iteration(tmp_path: Path) -> None:
    tiny = (
        "Runner.num_iterations = 1",
        "Runner.training_steps = 60",
        "Runner.evaluation_steps = 20",
        "Runner.report_episodes = 3",
        "DQNAgent.min_replay_history = 20",
        "DQNAgent.batch_size = 4",
        "MLPTorso.hidden = (4,)",
    )
    prompt, delayed = (trained(tmp_path / str(d), 0, *tiny, f"RealtimeDelay.delay = {d}") for d in (0, 4))
    assert len(prompt) == len(delayed) == 3
    low, high = difference_interval(prompt, delayed)
    assert low <= high


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_cartpole_is_solved_on_every_seed_and_a_delay_of_four_frames_costs_return(tmp_path: Path) -> None:
    prompt = [trained(tmp_path / f"prompt {seed}", seed) for seed in SEEDS]
    for seed, scores in zip(SEEDS, prompt, strict=True):
        assert len(scores) == 100
        assert sum(scores) / 100 >= SOLVED, f"seed {seed}"
    delayed = [trained(tmp_path / f"delayed {seed}", seed, "RealtimeDelay.delay = 4") for seed in SEEDS]
    low, _ = difference_interval([x for scores in prompt for x in scores], [x for scores in delayed for x in scores])
    assert low > 0.0


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("agent", ["c51", "rainbow", "full_rainbow", "quantile", "implicit_quantile"])
def test_cartpole_is_solved_by_every_agent_of_the_family(agent: str, seed: int, tmp_path: Path) -> None:
    scores = trained(tmp_path, seed, agent=agent)
    assert len(scores) == 100
    assert sum(scores) / 100 >= SOLVED
