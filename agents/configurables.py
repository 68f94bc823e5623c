"""Registers the names of this package with gin, as an effect of its import."""

from __future__ import annotations

from async_wrappers.agents.acting.exploration import (
    identity_epsilon,
    linearly_decaying_epsilon,
    per_actor_epsilon,
    zero_epsilon,
)
from async_wrappers.agents.families.actor_critic.terms import KLCost, KLMask, PolicyCloning, TargetEntropy, ValueCloning
from async_wrappers.agents.losses.loss import create_adam, create_optimizer
from async_wrappers.agents.losses.teaching import create_linear_schedule
from async_wrappers.agents.networks.box_actor_critic import create_box_actor_critic
from async_wrappers.agents.networks.cores import GRUCore, LSTMCore
from async_wrappers.agents.networks.q_network import DuelingHead, LinearHead, create_network
from async_wrappers.agents.networks.sequence_network import (
    ActorCriticHead,
    create_actor_critic,
    create_recurrent_q_network,
)
from async_wrappers.agents.networks.torsos import (
    CentredTorso,
    ImpalaTorso,
    MinAtarTorso,
    MLPTorso,
    NatureTorso,
    variance_scaling,
)
from async_wrappers.agents.play.hosts.hosts import Hosts
from async_wrappers.agents.play.live import LiveRunner
from async_wrappers.agents.play.many.environments import VectorRunner
from async_wrappers.agents.play.run_settings import Runner, TrainRunner
from async_wrappers.agents.registry import AGENTS, create_agent, create_runner
from async_wrappers.agents.replay.elite import EliteReplay
from async_wrappers.agents.replay.unrolls import StandardReplay
from async_wrappers.agents.sweep.plan import Sweep
from async_wrappers.agents.teaching.dopamine.dopamine import DopamineTeacher
from async_wrappers.agents.teaching.teaching import RunnerWithTeacher

CONFIGURABLES = (
    *AGENTS.values(),
    ActorCriticHead,
    CentredTorso,
    DopamineTeacher,
    DuelingHead,
    EliteReplay,
    GRUCore,
    Hosts,
    ImpalaTorso,
    KLCost,
    KLMask,
    LSTMCore,
    LinearHead,
    LiveRunner,
    MLPTorso,
    MinAtarTorso,
    NatureTorso,
    PolicyCloning,
    RunnerWithTeacher,
    Runner,
    StandardReplay,
    Sweep,
    TargetEntropy,
    TrainRunner,
    ValueCloning,
    VectorRunner,
    create_actor_critic,
    create_adam,
    create_agent,
    create_box_actor_critic,
    create_linear_schedule,
    create_network,
    create_optimizer,
    create_recurrent_q_network,
    create_runner,
    identity_epsilon,
    linearly_decaying_epsilon,
    per_actor_epsilon,
    variance_scaling,
    zero_epsilon,
)
