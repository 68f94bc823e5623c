"""What gin files may name of this package. Import it for its effect."""

from __future__ import annotations

from agents.compute import create_optimizer
from agents.experiment.create_runner import create_runner
from agents.experiment.live import LiveRunner
from agents.experiment.runner import Runner, TrainRunner
from agents.networks.q_network import DuelingHead, LinearHead, create_network
from agents.networks.torsos import ImpalaTorso, MLPTorso, NatureTorso, variance_scaling
from agents.policy import identity_epsilon, linearly_decaying_epsilon, per_actor_epsilon, zero_epsilon
from agents.registry import create_agent
from agents.sweep.settings import Sweep
from agents.value_based.c51 import C51
from agents.value_based.dqn import DQN
from agents.value_based.full_rainbow import FullRainbow
from agents.value_based.implicit_quantile import ImplicitQuantile
from agents.value_based.quantile import Quantile
from agents.value_based.rainbow import Rainbow

__all__ = ["CONFIGURABLES"]

CONFIGURABLES = (
    C51,
    DQN,
    DuelingHead,
    FullRainbow,
    ImpalaTorso,
    ImplicitQuantile,
    LinearHead,
    LiveRunner,
    MLPTorso,
    NatureTorso,
    Quantile,
    Rainbow,
    Runner,
    Sweep,
    TrainRunner,
    create_agent,
    create_network,
    create_optimizer,
    create_runner,
    identity_epsilon,
    linearly_decaying_epsilon,
    per_actor_epsilon,
    variance_scaling,
    zero_epsilon,
)
