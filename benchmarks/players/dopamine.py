"""Dopamine's JaxRainbow as a contestant of `benchmarks.agent_speed`: one call of its runner, which only trains.

    PYTHON -m benchmarks.players.dopamine rainbow THREADS LEARNING_STARTS

C51, prioritised replay, 3-step, as in its own configuration. JAX has no number of threads: one thread is one core to
run on, and XLA's pool of threads left out. Its Atari module imports ``baselines``, which it does not declare and does
not need here; an empty module stands in for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import types
from typing import Any

from benchmarks.players.turnstile import (
    ATOMS,
    BATCH,
    CAPACITY,
    EPSILON,
    FOREVER,
    GAMMA,
    HORIZON,
    TARGET_PERIOD,
    UPDATE_PERIOD,
    VMAX,
    Turnstile,
    told,
)

BINDINGS = f"""
ReplayBuffer.max_capacity = {CAPACITY}
ReplayBuffer.batch_size = {BATCH}
PrioritizedSamplingDistribution.max_capacity = {CAPACITY}
create_optimizer.name = 'adam'
create_optimizer.learning_rate = 1e-4
create_optimizer.eps = 1e-8
"""


def limit_cores(threads: int) -> None:
    """Leave so many cores to this process; to be called before JAX is imported."""
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def stand_in_for_baselines() -> None:
    """Let ``from baselines.common import atari_wrappers`` pass."""
    for name in ("baselines", "baselines.common", "baselines.common.atari_wrappers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["baselines.common"].atari_wrappers = None  # type: ignore[attr-defined]


def main() -> None:
    player = told()
    limit_cores(player.threads)
    stand_in_for_baselines()
    import gin
    from dopamine.discrete_domains.atari_lib import create_atari_environment
    from dopamine.discrete_domains.run_experiment import TrainRunner
    from dopamine.jax.agents.dqn.dqn_agent import identity_epsilon
    from dopamine.jax.agents.rainbow.rainbow_agent import JaxRainbowAgent

    gin.parse_config(BINDINGS)
    gin.bind_parameter("Runner.num_iterations", 1)
    gin.bind_parameter("Runner.training_steps", FOREVER)
    turnstile = Turnstile()

    def make_environment() -> Any:
        environment = create_atari_environment("Pong", sticky_actions=False)
        step = environment.step

        def watched(action: int) -> Any:
            turnstile.enter()
            return step(action)

        environment.step = watched
        return environment

    def make_agent(session: object, environment: Any, summary_writer: object) -> Any:
        return JaxRainbowAgent(
            num_actions=environment.action_space.n,
            num_atoms=ATOMS,
            vmax=VMAX,
            gamma=GAMMA,
            update_horizon=HORIZON,
            min_replay_history=player.learning_starts,
            update_period=UPDATE_PERIOD,
            target_update_period=TARGET_PERIOD,
            epsilon_fn=identity_epsilon,
            epsilon_train=EPSILON,
            seed=0,
        )

    TrainRunner(tempfile.mkdtemp(), make_agent, make_environment).run_experiment()


if __name__ == "__main__":
    main()
