"""SAC's and PPO's updates and training per second of processor time on one thread, beside other libraries'.

``sac_updates``: the batch is given, so nobody samples. Sizes are HalfCheetah's (17 numbers observed, 6 of an action),
batch 256, 2 x 256 units, two critics. "ours" is `Learner.learn` of agent ``sac``; "critics first" has
Stable-Baselines3's order. Stable-Baselines3 is its `SAC.train`. CleanRL's script cannot be called for an update alone,
so `CleanRL` here does the same operations in the same order as its published `sac_continuous_action.py`: two critics
one after the other, and every second step two updates of the actor, each with one of the temperature.

``sac_training``: steps of HalfCheetah-v5, an update after each, all included: the environment, acting, the replay. Ours
is the turn-based agent, Stable-Baselines3 its `learn`.

``ppo_steps``: gradient steps of an update on a round that is given, of the same sizes: 2,048 decisions of 8
environments, 10 passes in minibatches of 64. Ours is `Learner.update`, from the arrays of the queue to the weights,
advantages included; Stable-Baselines3's is `PPO.train`, to which they are given.

``ppo_training``: rounds of 2,048 decisions with 8 HalfCheetah-v5, all included: environments, acting, normalisation,
storing, updates. Networks and settings are alike: two hidden layers of 64 for policy and value each, normalised
observations and rewards.

All contestants are in one process and take turns, so that a busy machine slows them alike. Training needs the extra
mujoco.

    OMP_NUM_THREADS=1 python -m benchmarks.learning_speed [sac_updates] [sac_training] [ppo_steps] [ppo_training]

Holds: SAC's updates >= 1.4 times both, its training >= 1.25 times Stable-Baselines3's; PPO's gradient steps >= 2 times,
its environment steps >= 1.6 times Stable-Baselines3's.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional

from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.losses.loss import create_adam
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.batched.factory import create_batched_envs
from benchmarks.gpu.cases import CASES, ROBOT, VECTOR, Drawn
from benchmarks.gpu.plain import perceptron
from benchmarks.gpu.speed import given_batch, of_all, turn_based
from benchmarks.measuring import interleave, median_ratio, print_hold, print_table, rate, run_parts

OURS, FIRST, SB3, CLEANRL = "ours", "ours, critics first", "Stable-Baselines3", "CleanRL"
BATCH, UNITS, OBSERVED, ACTED = 256, 256, *VECTOR.shape, *ROBOT.shape
LEARNING_STARTS = 300  # steps of SAC
ENVS, ROWS, STEPS = 8, 256, 320  # PPO's environments, decisions of each in a round, gradient steps of an update

Measure = Callable[[], float]


# SAC.


def our_update(critics_first: bool) -> Callable[[], Any]:
    """Return `Learner.learn` on a batch that is given."""
    settings = {**CASES["SAC"].settings, "critics_first": critics_first}
    return given_batch(CASES["SAC"]._replace(settings=settings), "cpu")[1]


def tensors() -> list[Tensor]:
    """Return a batch: observations, actions, next observations, ends and rewards."""
    drawn = [torch.randn(BATCH, size) for size in (OBSERVED, ACTED, OBSERVED, 1)]
    return [drawn[0], drawn[1].tanh(), drawn[2], torch.zeros(BATCH, 1), drawn[3]]


def sb3_update() -> Callable[[], Any]:
    """Return Stable-Baselines3's `SAC.train` on a batch that is given."""
    import stable_baselines3
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    model = stable_baselines3.SAC("MlpPolicy", Drawn(VECTOR, ROBOT), device="cpu", buffer_size=1_000)
    model._setup_learn(1)
    samples = ReplayBufferSamples(*tensors())
    model.replay_buffer.sample = lambda *_, **__: samples  # type: ignore[union-attr, method-assign, assignment]
    return lambda: model.train(1, BATCH)


class Actor(nn.Module):
    """The actor, as CleanRL's script has it: the logarithm of a deviation is a tangent between -5 and 2."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = perceptron(OBSERVED, UNITS, ACTED, nn.ReLU)[:-1]
        self.mean, self.log_std = nn.Linear(UNITS, ACTED), nn.Linear(UNITS, ACTED)
        self.register_buffer("scale", torch.ones(ACTED))
        self.register_buffer("bias", torch.zeros(ACTED))

    def draw(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions and their log-densities `[B, 1]`."""
        hidden = self.hidden(observation)
        log_std = -5 + 3.5 * (self.log_std(hidden).tanh() + 1)
        normal = torch.distributions.Normal(self.mean(hidden), log_std.exp())
        before = normal.rsample()
        squashed = before.tanh()
        log_prob = normal.log_prob(before) - (self.scale * (1 - squashed.pow(2)) + 1e-6).log()
        self.mean(hidden).tanh()  # the script computes the mean action here too
        return squashed * self.scale + self.bias, log_prob.sum(1, keepdim=True)


def cleanrl_update() -> Callable[[], Any]:
    """Return what CleanRL's script does for a step of its environment, on a batch that is given."""
    actor, (*critics, one, other) = Actor(), [perceptron(OBSERVED + ACTED, UNITS, 1, nn.ReLU) for _ in range(4)]
    targets = one, other
    of_critics = torch.optim.Adam([each for critic in critics for each in critic.parameters()], lr=1e-3)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    log_alpha = torch.zeros(1, requires_grad=True)
    of_alpha = torch.optim.Adam([log_alpha], lr=1e-3)
    observation, action, following, done, reward = tensors()
    alpha, steps = 1.0, count()

    def values(networks: Any, seen: Tensor, acted: Tensor) -> list[Tensor]:
        return [network(torch.cat([seen, acted], 1)) for network in networks]

    def descend(loss: Any, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def update() -> None:
        nonlocal alpha
        with torch.no_grad():
            next_action, next_log_prob = actor.draw(following)
            least = torch.min(*values(targets, following, next_action)) - alpha * next_log_prob
            wanted = reward.flatten() + (1 - done.flatten()) * 0.99 * least.view(-1)
        found = values(critics, observation, action)
        descend(sum(functional.mse_loss(each.view(-1), wanted) for each in found), of_critics)
        if next(steps) % 2 == 0:
            for _ in range(2):
                drawn, log_prob = actor.draw(observation)
                least = torch.min(*values(critics, observation, drawn))
                descend((alpha * log_prob - least).mean(), of_actor)
                with torch.no_grad():
                    _, log_prob = actor.draw(observation)
                descend((-log_alpha.exp() * (log_prob - ACTED)).mean(), of_alpha)
                alpha = log_alpha.exp().item()
        for critic, target in zip(critics, targets, strict=True):
            for own, old in zip(critic.parameters(), target.parameters(), strict=True):
                old.data.copy_(0.005 * own.data + 0.995 * old.data)

    return update


def sac_updates(args: Namespace) -> dict[str, Measure]:
    """Return updates of a batch that is given."""
    updates = {OURS: our_update(False), FIRST: our_update(True), SB3: sb3_update(), CLEANRL: cleanrl_update()}
    return {name: partial(rate, update, args.updates) for name, update in updates.items()}


def sac_training(args: Namespace) -> dict[str, Measure]:
    """Return steps on HalfCheetah-v5: of the turn-based agent, and of Stable-Baselines3's `learn`."""
    import stable_baselines3

    ours, theirs = (gym.make("HalfCheetah-v5") for _ in range(2))
    agent = TurnBasedAgent.playing(SAC, ours, min_replay_history=LEARNING_STARTS, replay_capacity=100_000, device="cpu")
    step = turn_based(ours, agent)
    model = stable_baselines3.SAC(
        "MlpPolicy", theirs, learning_starts=LEARNING_STARTS, buffer_size=100_000, device="cpu"
    )
    for _ in range(LEARNING_STARTS + 10):
        step()
    model.learn(LEARNING_STARTS + 10)
    learn = partial(model.learn, args.steps, reset_num_timesteps=False)
    return {OURS: partial(rate, step, args.steps), SB3: partial(rate, learn, 1, args.steps)}


# PPO.


def our_ppo(envs: Any) -> VectorAgent:
    """Return an agent on environments that have begun; Adam's eps is Stable-Baselines3's."""
    adam = partial(create_adam, eps=1e-5)
    return VectorAgent(PPO(envs.observation_space, envs.action_space, device="cpu", optimizer=adam), ENVS)


def ppo_steps(args: Namespace) -> dict[str, Measure]:
    """Return updates of a round that is given."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env

    make = partial(Drawn, VECTOR, ROBOT)
    envs = create_batched_envs(make, ENVS)
    agent = our_ppo(envs)
    envs.begin(list(range(ENVS)))

    def ours() -> float:
        while not agent.learner.ready:
            shown = envs.recv()
            agent.observe(shown)
            envs.send(shown.env_ids, agent.decide(shown))
        return rate(agent.learner.update, 1, STEPS)

    model = stable_baselines3.PPO("MlpPolicy", make_vec_env(make, ENVS), n_steps=ROWS, device="cpu")
    model.learn(ENVS * ROWS)
    return {OURS: ours, SB3: partial(rate, model.train, 1, STEPS)}


def ppo_training(args: Namespace) -> dict[str, Measure]:
    """Return rounds on 8 HalfCheetah-v5: until ours has learnt from one, and Stable-Baselines3's `learn`."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    envs = create_batched_envs(partial(gym.make, "HalfCheetah-v5"), ENVS)
    agent = our_ppo(envs)
    step = of_all(envs, agent)

    def ours() -> float:
        begin, updates, before = time.process_time(), agent.learner.updates, agent.rows.frames_of_all
        while agent.learner.updates == updates:
            step()
        return (agent.rows.frames_of_all - before) / (time.process_time() - begin)

    normalised = VecNormalize(make_vec_env("HalfCheetah-v5", ENVS))
    model = stable_baselines3.PPO("MlpPolicy", normalised, n_steps=ROWS, device="cpu")
    learn = partial(model.learn, ENVS * ROWS, reset_num_timesteps=False)
    return {OURS: ours, SB3: partial(rate, learn, 1, ENVS * ROWS)}


CONTESTS: Mapping[str, tuple[Callable[[Namespace], dict[str, Measure]], str, float]] = {
    "sac_updates": (sac_updates, "SAC's updates, the batch given", 1.4),
    "sac_training": (sac_training, "SAC's steps of HalfCheetah-v5, learning included", 1.25),
    "ppo_steps": (ppo_steps, "PPO's gradient steps", 2.0),
    "ppo_training": (ppo_training, "PPO's steps of 8 HalfCheetah-v5, learning included", 1.6),
}


def compete(name: str, args: Namespace) -> None:
    """Let the contestants take turns, and print the table and what is held."""
    torch.set_num_threads(1)
    make, title, least = CONTESTS[name]
    samples = interleave(make(args), args.rounds)
    print_table(f"{title}, per second of processor time", samples, SB3, digits=1)
    for peer in samples.keys() - {OURS, FIRST}:
        print_hold(f"{title}: {OURS} / {peer}", median_ratio(samples, OURS, peer), least=least)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {name: partial(compete, name) for name in CONTESTS},
        rounds=(9, "interleaved windows"),
        updates=(60, "of SAC per window, an even number"),
        steps=(150, "of SAC's training per window"),
    )
