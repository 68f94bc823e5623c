"""Small runs on hosts of each agent that the vector runner plays, and all that such a run is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.registry import create_runner
from tests.worlds.experiments import load_gin, timeless

__all__ = ["AGENTS", "make", "state"]

_SHARED = (
    "MLPTorso.hidden = (8,)",
    "LSTMCore.hidden = 4",
    "Runner.max_steps_per_episode = 40",
    "Runner.report_episodes = 0",
    "Runner.num_iterations = 2",
    "Runner.training_steps = 100",
    "Runner.evaluation_steps = 0",
    "Runner.evaluation_episodes = 2",
    "VectorRunner.evaluation_envs = 2",
    "VectorRunner.checkpoint_every = 1",
    "VectorRunner.num_envs = 4",
    "create_gym_vector.environment_id = 'CartPole-v1'",
    "Hosts.engine = 'local'",
)

_OF_ENGINES = ("train_rates", "hosts_replaced", "dropped_blocks")

AGENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dqn": (
        "dqn/cartpole",
        (
            "DQNAgent.min_replay_history = 20",
            "DQNAgent.batch_size = 8",
            "DQNAgent.update_period = 3",
            "DQNAgent.replay_capacity = 640",
            "DQNAgent.epsilon_fn = @linearly_decaying_epsilon",
            "DQNAgent.epsilon_decay_period = 100",
            "create_gym_environment.wrappers = [@RealtimeDelay]",
            "RealtimeDelay.delay = 2",
            "DQNAgent.stack_size = 2",
        ),
    ),
    "r2d2": (
        "r2d2/cartpole_no_velocity",
        (
            "R2D2Agent.min_replay_history = 40",
            "R2D2Agent.batch_size = 4",
            "R2D2Agent.burn_in = 2",
            "R2D2Agent.unroll_length = 6",
            "R2D2Agent.state_period = 4",
            "R2D2Agent.update_period = 12",
            "R2D2Agent.replay_capacity = 800",
        ),
    ),
    "vtrace": (
        "vtrace/cartpole",
        (
            "VTraceAgent.unroll_length = 5",
            "VTraceAgent.batch_size = 4",
            "create_actor_critic.core = 'lstm'",
            "VTraceAgent.store_version = True",
        ),
    ),
    "impact": (
        "impact/cartpole",
        (
            "ImpactAgent.unroll_length = 5",
            "ImpactAgent.batch_size = 4",
            "ImpactAgent.buffer_size = 2",
            "ImpactAgent.replay_coefficient = 3",
        ),
    ),
    "ppo": (
        "ppo/cartpole",
        ("PPOAgent.update_period = 32", "PPOAgent.batch_size = 8", "PPOAgent.num_epochs = 2"),
    ),
}


def make(base_dir: Path, agent: str, *bindings: str, schedule: str = "hosts") -> Any:
    """Return the runner of a small run."""
    name, own = AGENTS[agent]
    given = [*_SHARED, *own, f"create_runner.schedule = {schedule!r}", *bindings]
    load_gin(f"configs/{name}.gin", bindings=given)
    return create_runner(base_dir)


def state(runner: Any) -> dict[str, Any]:
    """All that a run is where a checkpoint is written."""
    agent = runner.agent
    lines = [timeless(line) for line in read_iterations(runner.base_dir)]
    return {
        "learner": agent.learner.state_dict(),
        "replay": agent.learner.replay.state_dict(),
        "rows": agent.rows.state_dict(),
        "decisions": agent._decisions,
        "frames": runner.counts.frames,
        "episodes": runner.counts.episodes,
        "lines": [{name: value for name, value in line.items() if name not in _OF_ENGINES} for line in lines],
    }
