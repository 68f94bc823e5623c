"""Our agents of the Rainbow family as contestants of `benchmarks.agent_speed`.

    python -m benchmarks.players.ours AGENT THREADS LEARNING_STARTS [bf16] [own_network]

Each has the network of those that it is compared with. Full Rainbow's is CleanRL's and Tianshou's, whose two streams
have a hidden layer each; Rainbow's is Dopamine's, whose convolutions pad, so that it has 7,744 features instead of
3,136. With ``own_network`` it is ours: unpadded, and with streams that share the hidden layer. ``bf16`` is with
bfloat16 autocast.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.players.turnstile import (
    ALPHA,
    ATOMS,
    BATCH,
    BETA,
    CAPACITY,
    EPSILON,
    GAME,
    GAMMA,
    HORIZON,
    TARGET_PERIOD,
    UPDATE_PERIOD,
    VMAX,
    Told,
    limit_threads,
    told,
)


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

    parts: Mapping[str, Mapping[str, Any]] = {
        "rainbow": {"torso": Padded},
        "full_rainbow": {"torso": Convolutions, "head": Streams},
    }

    def network(*sizes: Any, head: str = "linear") -> nn.Module:
        return create_network(*sizes, **{"head": head, **parts[agent]})

    return network


def make_agent(player: Told, environment: Any) -> Any:
    """Make an agent for Pong."""
    from async_wrappers.agents.families.value_based.rainbow import FullRainbow, Rainbow
    from async_wrappers.agents.losses.optimizers import create_optimizer
    from async_wrappers.agents.networks.q_network import create_network
    from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent

    agents = {"rainbow": Rainbow, "full_rainbow": FullRainbow}
    return TurnBasedAgent.playing(
        agents[player.agent],
        environment,
        stack_size=4,
        update_horizon=HORIZON,
        num_atoms=ATOMS,
        vmax=VMAX,
        priority_exponent=ALPHA,
        importance_exponent=BETA,
        network=create_network if "own_network" in player.how else peers_network(player.agent),
        gamma=GAMMA,
        min_replay_history=player.learning_starts,
        update_period=UPDATE_PERIOD,
        target_update_period=TARGET_PERIOD,
        epsilon_train=EPSILON,
        epsilon_decay_period=0,
        epsilon_warmup=0,
        replay_capacity=CAPACITY,
        batch_size=BATCH,
        optimizer=partial(create_optimizer, learning_rate=1e-4, eps=1e-8),
        device="cpu",
        channels_last=True,
        bf16="bf16" in player.how,
    )


def main() -> None:
    player = told()
    limit_threads(player.threads)
    from async_wrappers.agents.play.turns.episode import play_episode
    from async_wrappers.envs import create_atari_environment
    from benchmarks.players.watched import Watched

    environment = Watched(create_atari_environment(GAME, frame_skip=4, sticky_actions=False))
    agent = make_agent(player, environment)
    seed = 0
    while True:
        play_episode(agent, environment, seed)
        seed += 1


if __name__ == "__main__":
    main()
