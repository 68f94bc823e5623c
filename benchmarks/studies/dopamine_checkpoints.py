"""Checkpoints made by Dopamine itself, read here: the same Q-values, the same replay.

In a virtual environment with Dopamine and TensorFlow, `--make` plays some hundred steps of Pong with Dopamine's JAX DQN
(with its Nature network and with IMPALA's), Rainbow and full Rainbow and with its TensorFlow DQN, and of CartPole with
its JAX DQN. It trains them a little (not full Rainbow, which takes minutes to compile), and writes beside each
checkpoint what Dopamine's own network says of 100 observations, and what its own replay says of all its transitions. It
also fills a small replay with short episodes, and saves a few tensors with TensorFlow. Here, `--compare` reads all that
without Dopamine. Exit status 1 where a Q-value differs by more than 1e-4, or a transition at all.

    python3.11 -m venv dopamine
    dopamine/bin/pip install "dopamine-rl==4.1.2" "jax[cpu]==0.5.3" "flax==0.10.4" "orbax-checkpoint==0.11.13" \
        "numpy<2.2" tensorboard "setuptools<81"
    dopamine/bin/python benchmarks/studies/dopamine_checkpoints.py --make DIR
    python -m benchmarks.studies.dopamine_checkpoints --compare DIR

(TensorFlow Probability 0.25, which Dopamine imports, does not run with newer JAX.)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

QUESTIONS, QUESTIONED = "observations.npz", 100
TRANSITIONS, TENSORS = "transitions.npz", "tensors.npz"
TOLERANCE = 1e-4
CARTPOLE_HIGH = (2.4, 5.0, np.pi / 12, 2 * np.pi)  # dopamine.jax.networks.CARTPOLE_MAX_VALS

RUN = """
import dopamine.discrete_domains.run_experiment
TrainRunner.create_environment_fn = @atari_lib.create_atari_environment
atari_lib.create_atari_environment.game_name = 'Pong'
Runner.num_iterations = 2
Runner.training_steps = 120
Runner.max_steps_per_episode = 60
"""
JAX = """
import dopamine.jax.networks
create_agent.agent_name = '{agent}'
JaxDQNAgent.min_replay_history = 40
JaxDQNAgent.target_update_period = 30
JaxDQNAgent.seed = 0
ReplayBuffer.max_capacity = 200
ReplayBuffer.batch_size = 8
PrioritizedSamplingDistribution.max_capacity = 200
"""
CARTPOLE = """
import dopamine.discrete_domains.gym_lib
TrainRunner.create_environment_fn = @gym_lib.create_gym_environment
create_gym_environment.environment_name = 'CartPole'
create_gym_environment.version = 'v1'
JaxDQNAgent.observation_shape = %gym_lib.CARTPOLE_OBSERVATION_SHAPE
JaxDQNAgent.observation_dtype = %jax_networks.CARTPOLE_OBSERVATION_DTYPE
JaxDQNAgent.stack_size = %gym_lib.CARTPOLE_STACK_SIZE
JaxDQNAgent.network = @networks.ClassicControlDQNNetwork
networks.ClassicControlDQNNetwork.hidden_units = 16
networks.ClassicControlDQNNetwork.min_vals = %jax_networks.CARTPOLE_MIN_VALS
networks.ClassicControlDQNNetwork.max_vals = %jax_networks.CARTPOLE_MAX_VALS
"""
TENSORFLOW = """
create_agent.agent_name = 'dqn'
DQNAgent.min_replay_history = 40
DQNAgent.target_update_period = 30
DQNAgent.tf_device = '/cpu:*'
WrappedReplayBuffer.replay_capacity = 200
WrappedReplayBuffer.batch_size = 8
"""
GIN = {
    "jax_dqn": RUN + JAX.format(agent="jax_dqn"),
    "jax_impala": RUN + JAX.format(agent="jax_dqn") + "JaxDQNAgent.network = @networks.ImpalaDQNNetwork\n",
    "jax_rainbow": RUN + JAX.format(agent="jax_rainbow"),
    "jax_full_rainbow": RUN + JAX.format(agent="full_rainbow").replace("= 40", "= 10_000"),
    "jax_cartpole": RUN + JAX.format(agent="jax_dqn") + CARTPOLE,
    "dqn": RUN + TENSORFLOW,
}


def make(directory: Path, agent: str) -> None:
    """Make what `agent` names: an agent's checkpoint, a replay or tensors."""
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Dopamine's networks are of Keras 2
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Dopamine imports OpenAI's baselines, which is not installed with it, for PPO alone.
    for name in ("baselines", "baselines.common", "baselines.common.atari_wrappers"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["baselines.common"].atari_wrappers = None  # type: ignore[attr-defined]
    others = {"replay": _make_replay, "tensors": _make_tensors}
    others[agent](directory / agent) if agent in others else _make_agent(directory, agent)


def _make_agent(directory: Path, agent: str) -> None:
    """Let Dopamine train an agent for a few steps, and write what it says of its observations and transitions."""
    import gin
    from dopamine.discrete_domains import run_experiment

    base = directory / agent
    gin.parse_config(GIN[agent])
    runner = run_experiment.create_runner(str(base), schedule="continuous_train")
    runner.run_experiment()
    agent_made = runner._agent
    rng = np.random.default_rng(0)
    state = np.asarray(agent_made.state)
    if agent == "jax_cartpole":
        states = rng.normal(size=(QUESTIONED, *state.shape)).astype(np.float32)
    else:
        states = rng.integers(0, 256, (QUESTIONED, *state.shape[-3:]), np.uint8)
        # Half of them are of the game, the most an agent sees.
        played = _played(runner, QUESTIONED // 2)
        states[: len(played)] = played
    values = _values_tensorflow(agent_made, states) if agent == "dqn" else _values_jax(agent_made, states)
    np.savez(base / QUESTIONS, states=states, values=values)
    if agent == "dqn":
        np.savez(base / TRANSITIONS, **_transitions(agent_made._replay.memory))


def _played(runner: Any, number: int) -> Any:
    """Return stacks of four frames of the game, [number, 84, 84, 4]."""
    environment = runner._environment
    frames = [np.asarray(environment.reset()).squeeze()]
    for step in range(number + 2):
        frames.append(np.asarray(environment.step(step % 3)[0]).squeeze())
    return np.stack([np.stack(frames[i : i + 4], axis=-1) for i in range(number)])


def _values_jax(agent: Any, states: Any) -> Any:
    def of_one(state: Any) -> Any:
        arguments: dict[str, Any] = {}
        if hasattr(agent, "_support"):
            arguments["support"] = agent._support
        if type(agent).__name__ == "JaxFullRainbowAgent":
            import jax

            arguments |= {"eval_mode": True, "key": jax.random.PRNGKey(0)}
        return agent.network_def.apply(agent.online_params, state, **arguments).q_values

    return np.stack([np.asarray(of_one(agent.preprocess_fn(state))) for state in states])


def _values_tensorflow(agent: Any, states: Any) -> Any:
    run, outputs, state_ph = agent._sess.run, agent._net_outputs.q_values, agent.state_ph
    return np.concatenate([run(outputs, {state_ph: state[None]}) for state in states])


def _make_replay(base: Path) -> None:
    """Fill a ring of 120 rows with 300 steps of short episodes, some cut; and one of 200 rows that has room left."""
    from dopamine.tf.replay_memory.circular_replay_buffer import OutOfGraphReplayBuffer

    for number, capacity in enumerate((120, 200)):
        rng = np.random.default_rng(number)
        memory = OutOfGraphReplayBuffer((3, 2), stack_size=3, replay_capacity=capacity, batch_size=4)
        for _ in range(300 if number == 0 else 130):
            ends = rng.random() < 0.08
            terminal = ends and rng.random() < 0.5
            observation = rng.integers(0, 4, (3, 2), np.uint8)
            memory.add(observation, rng.integers(0, 5), rng.normal(), int(terminal), episode_end=bool(ends))
        (base / "checkpoints").mkdir(parents=True, exist_ok=True)
        memory.save(str(base / "checkpoints"), number)
        np.savez_compressed(base / f"{number}_{TRANSITIONS}", **_transitions(memory))


def _make_tensors(base: Path) -> None:
    """Save a few tensors with TensorFlow's own saver."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    rng = np.random.default_rng(0)
    values = {f"Online/layer_{i}/kernel": rng.normal(size=(i, 3, 7)).astype(np.float32) for i in range(20)}
    values |= {
        "Online/step": np.array(2**40),
        "Target/layer/bias": np.arange(5.0),
        "Target/mask": np.array([True, False]),
    }
    base.mkdir(parents=True, exist_ok=True)
    variables = {name: tf.Variable(value, name=name) for name, value in values.items()}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver(variables).save(session, str(base / "tf_ckpt"), global_step=7, write_meta_graph=False)
    np.savez_compressed(base / TENSORS, **{name.replace("/", "|"): value for name, value in values.items()})


def _transitions(memory: Any) -> Mapping[str, Any]:
    """Return all transitions that a replay may give."""
    oldest = memory.cursor() - memory._replay_capacity if memory.is_full() else 0
    indices = [int(i) % memory._replay_capacity for i in range(oldest + memory._stack_size - 1, memory.cursor() - 1)]
    indices = [i for i in indices if memory.is_valid_transition(i)]
    names = [element.name for element in memory.get_transition_elements(len(indices))]
    batch = memory.sample_transition_batch(len(indices), indices)
    kept = ("state", "action", "reward", "next_state", "terminal", "indices")
    return {name: column for name, column in zip(names, batch, strict=True) if name in kept}


# Reading, without Dopamine.


def compare(directory: Path) -> bool:
    """Print how far each checkpoint that was made is from what Dopamine says of it; return whether all are equal."""
    held = True
    for agent in GIN:
        if not (directory / agent / QUESTIONS).is_file():
            continue
        difference, largest = compare_values(directory / agent, agent)
        held &= difference <= TOLERANCE
        verdict = "held" if difference <= TOLERANCE else "MISSED"
        print(f"{agent:18} {QUESTIONED} rows of Q-values up to {largest:.3f}: differ by {difference:.1e}  {verdict}")
    replays = [("dqn", 1, "", 4), ("replay", 0, "0_", 3), ("replay", 1, "1_", 3)]
    for name, number, prefix, stack_size in replays:
        if (directory / name / f"{prefix}{TRANSITIONS}").is_file():
            equal, left_out, others = compare_replay(directory / name, number, prefix, stack_size)
            held &= not others
            print(
                f"{name:18} replay {number}: {equal} transitions equal, {left_out} of the oldest episode left out, "
                f"{others} different  {'MISSED' if others else 'held'}"
            )
    if (directory / "tensors").is_dir():
        equal = compare_tensors(directory / "tensors")
        held &= equal
        print(f"{'tensors':18} {'equal  held' if equal else 'different  MISSED'}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return held


def compare_values(base: Path, agent: str) -> tuple[float, float]:
    """Return the largest difference of a converted agent's Q-values, and the largest Q-value."""
    from async_wrappers.agents.teaching.dopamine.dopamine import DopamineTeacher
    from async_wrappers.envs import create_atari_environment, create_gym_environment

    asked = np.load(base / QUESTIONS)
    states, options = asked["states"], dict[str, Any]()
    if agent == "jax_cartpole":
        environment = create_gym_environment("CartPole-v1")
        options = {"min_vals": [-each for each in CARTPOLE_HIGH], "max_vals": list(CARTPOLE_HIGH)}
        stacks = states.reshape(len(states), 1, -1)
    else:
        environment = create_atari_environment("Pong")
        stacks = np.moveaxis(states, -1, 1)
    values = DopamineTeacher(base, environment, **options).values(stacks)
    return float(np.abs(values - asked["values"]).max()), float(np.abs(asked["values"]).max())


def compare_replay(base: Path, number: int, prefix: str, stack_size: int) -> tuple[int, int, int]:
    """Return how many of Dopamine's transitions are read back equal, how many left out, and how many differ."""
    from async_wrappers.agents.replay.ring import TERMINAL
    from async_wrappers.agents.teaching.dopamine.dopamine_replay import DopamineReplay

    saved = np.load(base / f"{prefix}{TRANSITIONS}")
    read = []
    replay = DopamineReplay(base / "checkpoints", number, stack_size)
    # Dopamine draws the padding that follows an episode that was cut, too.
    padding = {(end + 1 + i) % replay.capacity for end in replay.ends() for i in range(stack_size - 1)}
    wanted = [row for row, index in enumerate(saved["indices"].tolist()) if index not in padding]
    kept = {name: saved[name][wanted] for name in saved.files}
    for observations, columns in replay.episodes():
        blank = np.zeros_like(observations[:1]).repeat(stack_size - 1, axis=0)
        padded = np.concatenate([blank, observations])
        for step in range(len(observations) - 1):
            stacks = [np.moveaxis(padded[at : at + stack_size], 0, -1) for at in (step, step + 1)]
            terminal = columns["kind"][step] == TERMINAL
            read.append((stacks[0], columns["action"][step], columns["reward"][step], stacks[1], terminal))
    if replay.newest_is_terminal:
        read.pop()  # Dopamine draws the newest row never, though nothing is missing of it
    first, others = len(kept["action"]) - len(read), 0
    if first < 0:
        return 0, 0, len(read)
    for row, (state, action, reward, next_state, terminal) in enumerate(read, first):
        same = (state == kept["state"][row]).all() and action == kept["action"][row] and reward == kept["reward"][row]
        # What follows a terminal transition is undefined there.
        same &= terminal == bool(kept["terminal"][row]) and (terminal or (next_state == kept["next_state"][row]).all())
        others += not same
    return len(read) - others, first, others


def compare_tensors(base: Path) -> bool:
    """Return whether all tensors are read back equal."""
    from async_wrappers.agents.teaching.dopamine.tensor_bundle import read_tensors

    saved = np.load(base / TENSORS)
    read = read_tensors(base / "tf_ckpt-7")
    same = (np.array_equal(saved[name], read.get(name.replace("|", "/"))) for name in saved.files)
    return len(read) == len(saved.files) and all(same)


def main() -> None:
    """Make or compare."""
    names = (*GIN, "replay", "tensors")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", type=Path, metavar="DIR")
    parser.add_argument("--compare", type=Path, metavar="DIR")
    parser.add_argument("--only", choices=names, help="make this one alone")
    arguments = parser.parse_args()
    if arguments.make and arguments.only:
        make(arguments.make, arguments.only)
    elif arguments.make:
        for name in names:  # in a process each, as gin and TensorFlow's graph are global
            subprocess.run([sys.executable, __file__, "--make", str(arguments.make), "--only", name], check=True)
    if arguments.compare and not compare(arguments.compare):
        sys.exit(1)


if __name__ == "__main__":
    main()
