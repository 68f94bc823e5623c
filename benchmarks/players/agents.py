"""The contestants of `benchmarks.agent_speed`: an agent in its library's own training loop, run as users run it.

    PYTHON -m benchmarks.players.agents LIBRARY AGENT THREADS LEARNING_STARTS [HOW ...]

Each stands still at its environment's `Turnstile`, so what is timed is the loop, from one step of the environment to
the N-th next. All play Pong: four emulated frames per step, maximum over two, 84 x 84 grey, a stack of four, rewards
clipped; the Nature network's convolutions, batch 32, an update every 4 steps, Adam (learning rate 1e-4, eps 1e-8), a
target copied every 8000 steps, a replay of 50,000, epsilon 0.01 where noise does not explore. Some libraries live in
Pythons of their own: at the top only Python's library is imported.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import types
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.players.before_after import Turnstile

GAME = "PongNoFrameskip-v4"
BATCH, UPDATE_PERIOD, TARGET_PERIOD = 32, 4, 8000  # transitions, agent steps, agent steps
CAPACITY = 50_000  # transitions
EPSILON, GAMMA = 0.01, 0.99
ATOMS, VMAX, HORIZON = 51, 10.0, 3  # of the Rainbow family; the support begins at -VMAX
ALPHA, BETA = 0.5, 0.4  # exponents of priorities and of importance weights
ADAM = {"learning_rate": 1e-4, "eps": 1e-8}
CLIP = 10.0  # of the gradient's norm, of DQN
FOREVER = 10**9  # agent steps


class Told(NamedTuple):
    """What a contestant's command line says."""

    agent: str
    threads: int
    learning_starts: int  # agent steps
    how: tuple[str, ...]


def limit_threads(threads: int) -> None:
    """Let NumPy, OpenCV and PyTorch compute with so many threads; to be called before they are imported."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    os.environ["NUMBA_NUM_THREADS"] = str(threads)
    import cv2
    import torch

    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)


def watched(env: Any) -> Any:
    """Return an environment of Gymnasium's with a turnstile in front of each step."""
    import gymnasium as gym

    turnstile = Turnstile()

    class Watched(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            turnstile.enter()
            return self.env.step(action)

    return Watched(env)


# Ours. The network is that of those that an agent is compared with: full Rainbow's is CleanRL's and Tianshou's, whose
# two streams have a hidden layer each; Rainbow's is Dopamine's, whose convolutions pad, so that it has 7,744 features
# in the place of 3,136. With "own_network" it is ours: unpadded, and with streams that share the hidden layer.


def peers_network(agent: str) -> Any:
    """Return a factory of the network that the agent's peers have."""
    from torch import nn

    from async_wrappers.agents.networks.q_network import DuelingHead, create_network
    from async_wrappers.agents.networks.torsos import NatureTorso

    class Convolutions(NatureTorso):
        def __init__(self, observation_shape: Any) -> None:
            super().__init__(observation_shape)
            *convolutions, hidden, _ = self.layers
            self.layers = nn.Sequential(*convolutions)
            self.output_size = hidden.in_features

    class Streams(DuelingHead):
        def __init__(self, input_size: int, num_actions: int, outputs: int) -> None:
            super().__init__(512, num_actions, outputs)
            self.value = nn.Sequential(nn.Linear(input_size, 512), nn.ReLU(inplace=True), self.value)
            self.advantage = nn.Sequential(nn.Linear(input_size, 512), nn.ReLU(inplace=True), self.advantage)

    class Padded(NatureTorso):
        def __init__(self, observation_shape: Any) -> None:
            super().__init__(observation_shape)
            convolutions = [layer for layer in self.layers if isinstance(layer, nn.Conv2d)]
            for layer, padding in zip(convolutions, (2, 2, 1), strict=True):
                layer.padding = (padding, padding)  # 84 -> 21 -> 11 -> 11
            self.layers[-2] = nn.Linear(64 * 11 * 11, 512)

    parts = {"rainbow": {"torso": Padded}, "full_rainbow": {"torso": Convolutions, "head": Streams}}

    def network(*sizes: Any, head: str = "linear") -> nn.Module:
        return create_network(*sizes, **{"head": head, **parts[agent]})

    return network


def play_ours(player: Told) -> None:
    """Train our agent for ever, episode by episode, as the runner does; on CartPole as configs/dqn/cartpole.gin."""
    limit_threads(player.threads)
    import gymnasium as gym

    from async_wrappers.agents.families.value_based.dqn import DQN
    from async_wrappers.agents.families.value_based.rainbow import FullRainbow, Rainbow
    from async_wrappers.agents.losses.loss import create_optimizer
    from async_wrappers.agents.networks.q_network import create_network
    from async_wrappers.agents.networks.torsos import MLPTorso
    from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
    from async_wrappers.agents.play.turns.turns import play_episode
    from async_wrappers.envs import create_atari_environment

    kinds = {"dqn": DQN, "dqn_cartpole": DQN, "rainbow": Rainbow, "full_rainbow": FullRainbow}
    settings: dict[str, Any] = {
        "min_replay_history": player.learning_starts,
        "update_period": UPDATE_PERIOD,
        "epsilon_decay_period": 0,
        "replay_capacity": CAPACITY,
        "device": "cpu",
    }
    if player.agent == "dqn_cartpole":
        environment = watched(gym.make("CartPole-v1"))
        network = partial(create_network, torso=partial(MLPTorso, hidden=(512, 512)))
        settings |= {"stack_size": 1, "network": network, "target_update_period": 100, "epsilon_train": 0.05}
        settings["batch_size"] = 128
    else:
        environment = watched(create_atari_environment("Pong", frame_skip=4, sticky_actions=False))
        settings |= {"stack_size": 4, "target_update_period": TARGET_PERIOD, "epsilon_train": EPSILON}
        settings |= {"batch_size": BATCH, "gamma": GAMMA, "optimizer": partial(create_optimizer, **ADAM)}
        settings |= {"channels_last": "plain" not in player.how, "bf16": "bf16" in player.how}
    if player.agent == "dqn":
        settings |= {"loss_type": "huber", "max_gradient_norm": CLIP, "compile": "compile" in player.how}
    elif player.agent != "dqn_cartpole":
        settings |= {"update_horizon": HORIZON, "num_atoms": ATOMS, "vmax": VMAX, "epsilon_warmup": 0}
        settings |= {"priority_exponent": ALPHA, "importance_exponent": BETA}
        settings["network"] = create_network if "own_network" in player.how else peers_network(player.agent)
    agent = TurnBasedAgent.playing(kinds[player.agent], environment, **settings)
    if "overlap" in player.how:
        agent.overlap_learning()
    for seed in range(FOREVER):
        play_episode(agent, environment, seed)


def play_sb3(player: Told) -> None:
    """Train Stable-Baselines3's DQN in one call of ``learn``, with its logging off.

    Its Atari wrappers are those it recommends. With ``our_environment`` it has ours, in Gymnasium's stack of four: grey
    straight from the emulator.
    """
    limit_threads(player.threads)
    import ale_py
    import gymnasium as gym
    from stable_baselines3 import DQN
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import VecFrameStack

    from async_wrappers.envs import create_atari_environment

    environment: Any
    if "our_environment" in player.how:
        ours = create_atari_environment("Pong", frame_skip=4, sticky_actions=False)
        environment = watched(gym.wrappers.FrameStackObservation(ours, 4))
    else:
        gym.register_envs(ale_py)
        wrapped = partial(AtariWrapper, noop_max=0, terminal_on_life_loss=False)
        vector = make_vec_env(GAME, seed=0, wrapper_class=lambda env: watched(wrapped(env)))
        environment = VecFrameStack(vector, n_stack=4)
    model = DQN(
        "CnnPolicy",
        environment,
        learning_rate=ADAM["learning_rate"],
        buffer_size=CAPACITY,
        learning_starts=player.learning_starts,
        batch_size=BATCH,
        gamma=GAMMA,
        train_freq=UPDATE_PERIOD,
        target_update_interval=TARGET_PERIOD,
        exploration_initial_eps=EPSILON,  # before learning starts, it draws at random whatever this says
        exploration_final_eps=EPSILON,
        max_grad_norm=CLIP,
        policy_kwargs={"optimizer_kwargs": {"eps": ADAM["eps"]}},
        seed=0,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.learn(total_timesteps=FOREVER, log_interval=FOREVER)


def play_cleanrl(player: Told) -> None:
    """Run CleanRL's script with the options it has: of DQN the package's, of Rainbow a file from its repository.

    Both take a vector of one environment, and that is where the turnstile stands.
    """
    limit_threads(player.threads)
    import ale_py.registration
    import gymnasium as gym

    turnstile = Turnstile()

    class Watched(gym.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            turnstile.enter()
            return super().step(actions)

    gym.vector.SyncVectorEnv = Watched  # type: ignore[misc]
    ale_py.registration.register_v0_v4_envs()  # Gymnasium 0.29 does not look for this version's
    options: dict[str, Any] = {
        "env-id": GAME,
        "total-timesteps": FOREVER,
        "buffer-size": CAPACITY,
        "batch-size": BATCH,
        "train-frequency": UPDATE_PERIOD,
        "target-network-frequency": TARGET_PERIOD,
        "gamma": GAMMA,
        "start-e": EPSILON,
        "end-e": EPSILON,
        "learning-starts": player.learning_starts,
    }
    if player.agent == "full_rainbow":
        script = Path(player.how[0]).resolve()
        options |= {"n-step": HORIZON, "n-atoms": ATOMS, "v-min": -VMAX, "v-max": VMAX}
        options |= {"prioritized-replay-alpha": ALPHA, "prioritized-replay-beta": BETA}
    else:
        import cleanrl

        script = Path(cleanrl.__path__[0]) / "dqn_atari.py"
    sys.argv = [str(script), *(f"--{name}={value}" for name, value in options.items())]
    os.chdir(tempfile.mkdtemp())  # where it writes its scalars
    runpy.run_path(str(script), run_name="__main__")


def play_tianshou(player: Told) -> None:
    """Train Tianshou's Rainbow in one call of ``run_training``, as in the project's Atari example.

    `RainbowDQN` (C51, double, 3-step, noisy and dueling by its network) has a prioritised buffer of single frames. Four
    steps are collected, then one update is made. The environment is its `wrap_deepmind`.
    """
    limit_threads(player.threads)
    import ale_py
    import gymnasium as gym
    from tianshou.algorithm.modelfree.c51 import C51Policy
    from tianshou.algorithm.modelfree.rainbow import RainbowDQN
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, PrioritizedVectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.env.atari.atari_network import RainbowNet, ScaledObsInputActionReprNet
    from tianshou.env.atari.atari_wrapper import wrap_deepmind
    from tianshou.trainer import OffPolicyTrainerParams

    gym.register_envs(ale_py)
    environments = DummyVectorEnv([lambda: watched(wrap_deepmind(gym.make(GAME)))])
    space = environments.action_space[0]
    network = ScaledObsInputActionReprNet(RainbowNet(c=4, h=84, w=84, action_shape=[space.n], num_atoms=ATOMS))
    policy = C51Policy(model=network, action_space=space, num_atoms=ATOMS, v_min=-VMAX, v_max=VMAX)
    rainbow = RainbowDQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=ADAM["learning_rate"]),
        gamma=GAMMA,
        n_step_return_horizon=HORIZON,
        target_update_freq=TARGET_PERIOD // UPDATE_PERIOD,
    )
    replay = PrioritizedVectorReplayBuffer(
        CAPACITY, buffer_num=1, ignore_obs_next=True, save_only_last_obs=True, stack_num=4, alpha=ALPHA, beta=BETA
    )
    collector: Any = Collector(policy, environments, replay)
    collector.reset()
    collector.collect(n_step=player.learning_starts)
    rainbow.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=FOREVER,
            collection_step_num_env_steps=UPDATE_PERIOD,
            update_step_num_gradient_steps_per_sample=1 / UPDATE_PERIOD,
            batch_size=BATCH,
            show_progress=False,
        )
    )


def play_dopamine(player: Told) -> None:
    """Train Dopamine's JaxRainbow (C51, prioritised, 3-step) in one call of its runner, which only trains.

    JAX has no number of threads: one thread is one core to run on, and XLA's pool of threads left out. Its Atari module
    imports ``baselines``, which it does not declare and does not need here; an empty module stands in for it.
    """
    if player.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["OMP_NUM_THREADS"] = str(player.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-player.threads :])
    for name in ("baselines", "baselines.common", "baselines.common.atari_wrappers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["baselines.common"].atari_wrappers = None  # type: ignore[attr-defined]
    import gin
    from dopamine.discrete_domains.atari_lib import create_atari_environment
    from dopamine.discrete_domains.run_experiment import TrainRunner
    from dopamine.jax.agents.dqn.dqn_agent import identity_epsilon
    from dopamine.jax.agents.rainbow.rainbow_agent import JaxRainbowAgent

    bound = {
        "ReplayBuffer.max_capacity": CAPACITY,
        "ReplayBuffer.batch_size": BATCH,
        "PrioritizedSamplingDistribution.max_capacity": CAPACITY,
        "create_optimizer.name": "adam",
        **{f"create_optimizer.{name}": value for name, value in ADAM.items()},
        "Runner.num_iterations": 1,
        "Runner.training_steps": FOREVER,
    }
    gin.parse_config([f"{name} = {value!r}" for name, value in bound.items()])
    turnstile = Turnstile()

    def make_environment() -> Any:
        environment = create_atari_environment("Pong", sticky_actions=False)
        step = environment.step

        def watched_step(action: int) -> Any:
            turnstile.enter()
            return step(action)

        environment.step = watched_step
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


LIBRARIES = {
    "ours": play_ours,
    "sb3": play_sb3,
    "cleanrl": play_cleanrl,
    "tianshou": play_tianshou,
    "dopamine": play_dopamine,
}

if __name__ == "__main__":
    library, agent, threads, starts, *how = sys.argv[1:]
    LIBRARIES[library](Told(agent, int(threads), int(starts), tuple(how)))
