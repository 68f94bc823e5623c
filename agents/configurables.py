"""What gin files may name of this package. Import it for its effect."""

from __future__ import annotations

from agents.c51 import C51Agent
from agents.dqn import DQNAgent
from agents.experiment.create_runner import create_runner
from agents.experiment.live import LiveRunner
from agents.experiment.runner import Runner, TrainRunner
from agents.exploration import identity_epsilon, linearly_decaying_epsilon, per_actor_epsilon, zero_epsilon
from agents.full_rainbow import FullRainbowAgent
from agents.implicit_quantile import ImplicitQuantileAgent
from agents.networks.initializers import variance_scaling
from agents.networks.q_network import DuelingHead, ImpalaTorso, LinearHead, MLPTorso, NatureTorso, create_network
from agents.optimizers import create_optimizer
from agents.quantile import QuantileAgent
from agents.rainbow import RainbowAgent
from agents.registry import create_agent
from agents.sweep.settings import Sweep

__all__ = ["CONFIGURABLES"]

CONFIGURABLES = (
    C51Agent,
    DQNAgent,
    DuelingHead,
    FullRainbowAgent,
    ImpalaTorso,
    ImplicitQuantileAgent,
    LinearHead,
    LiveRunner,
    MLPTorso,
    NatureTorso,
    QuantileAgent,
    RainbowAgent,
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
