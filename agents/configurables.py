"""What gin files may name of this package. Import it for its effect."""

from __future__ import annotations

from agents.create import create_agent
from agents.dqn import DQNAgent
from agents.experiment.runner import Runner, TrainRunner, create_runner
from agents.exploration import identity_epsilon, linearly_decaying_epsilon, zero_epsilon
from agents.networks import DuelingHead, ImpalaTorso, LinearHead, MLPTorso, NatureTorso, create_network
from agents.optimizers import create_optimizer

__all__ = ["CONFIGURABLES"]

CONFIGURABLES = (
    DQNAgent,
    DuelingHead,
    ImpalaTorso,
    LinearHead,
    MLPTorso,
    NatureTorso,
    Runner,
    TrainRunner,
    create_agent,
    create_network,
    create_optimizer,
    create_runner,
    identity_epsilon,
    linearly_decaying_epsilon,
    zero_epsilon,
)
