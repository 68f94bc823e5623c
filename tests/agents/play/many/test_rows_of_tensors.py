"""Agents play a vector whose arrays are tensors as they play it with NumPy's, and its observations stay tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch.overrides import TorchFunctionMode

from async_wrappers import VectorRealtimeDelay
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.play.hosts.played_block import BlockRecorder
from async_wrappers.agents.play.many.rounds import Share, Trained
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import Length
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.replay.unrolls import StandardReplay
from async_wrappers.batched import DoubleBuffered, VectorEnvs
from async_wrappers.tensors import arrays
from tests.worlds.experiments import load_gin
from tests.worlds.plain_data import assert_identical
from tests.worlds.tensor_vector import Point, Points

N = 4  # fewer than the numbers of an observation
NUMBERS = 5  # of an observation, and no other array has as many
DELAYS: dict[str, Any] = {"delay": range(4), "default_action": "repeat"}
NUMPYS, TENSORS = np.zeros(1), torch.zeros(1)

ppo = partial(PPO, device="cpu", update_period=48, batch_size=16, num_epochs=2)


class Split(gym.vector.VectorWrapper):
    """Shows the two halves of observations in a dict."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.single_observation_space = Dict({name: Box(-np.inf, np.inf, (n,)) for name, n in (("of", 2), ("to", 3))})
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        observations, info = self.env.reset(seed=seed, options=options)
        return self._split(observations), info

    def step(self, actions: Any) -> Any:
        observations, *outcome, info = self.env.step(actions)
        return self._split(observations), *outcome, {name: self._split(last) for name, last in info.items()}

    @staticmethod
    def _split(observations: Any) -> Any:
        return {"of": observations[:, :2], "to": observations[:, 2:]}


def vector(
    like: Any, mode: AutoresetMode, num_envs: int = N, discrete: bool = False, wrap: Callable[[Any], Any] | None = None
) -> Any:
    points = Points(num_envs, like, mode, discrete)
    return VectorEnvs(VectorRealtimeDelay(points if wrap is None else wrap(points), **DELAYS))


def trained(agent: Callable[..., Any], envs: Any, frames: int) -> tuple[VectorAgent, Trained]:
    """Return an agent of many environments after a phase, and what the phase has shown."""
    learning = VectorAgent(agent(envs.observation_space, envs.action_space), envs.num_envs)
    share = Share(learning, envs, lambda numbers: [3] * envs.num_envs)
    return learning, share.train(Length(frames, None), cuts=True)


def state(agent: VectorAgent) -> Any:
    learner = agent.learner
    return learner.state_dict(), learner.replay.state_dict(), agent.rows.state_dict()


AGENTS: dict[str, Callable[..., Any]] = {
    "ppo": ppo,
    "ppo in stacks": partial(ppo, stack_size=3),
    "ppo that remembers": partial(ppo, network=partial(create_policy_value_network, action_window=2), unroll_length=4),
    "sac": partial(SAC, device="cpu", min_replay_history=60, batch_size=8, update_period=24, replay_capacity=400),
    "vtrace": partial(
        VTrace,
        device="cpu",
        unroll_length=8,
        batch_size=4,
        sources=[("queue", 0.5), (partial(StandardReplay, capacity=20), 0.5)],
    ),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, mode) for mode in AutoresetMode for name in AGENTS if mode is AutoresetMode.SAME_STEP or name == "ppo"],
)
def test_an_agent_learns_from_tensors_what_it_learns_from_numpys_arrays(name: str, mode: AutoresetMode) -> None:
    discrete = name == "vtrace"
    agents = [trained(AGENTS[name], vector(like, mode, discrete=discrete), 240) for like in (NUMPYS, TENSORS)]
    assert agents[0][0].updates > 2
    assert_identical(*(state(agent) for agent, _ in agents))
    assert_identical(*([each._replace(when=0) for each in result.over] for _, result in agents))


def test_halves_of_tensors_take_turns_as_those_of_numpys_arrays() -> None:
    def halves(like: Any) -> Any:
        return DoubleBuffered(*(vector(like, AutoresetMode.SAME_STEP, N // 2) for _ in range(2)))

    assert_identical(*(state(trained(ppo, halves(like), 200)[0]) for like in (NUMPYS, TENSORS)))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_whose_values_wait_for_a_device_plays_the_same(
    mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = partial(ppo, update_period=96)
    here = trained(late, vector(TENSORS, mode), 80)[1]
    monkeypatch.setattr(arrays, "is_host", lambda device: False)
    agent, there = trained(late, vector(TENSORS, mode), 80)
    assert agent.updates == 0  # rewards are summed in float32 there
    assert [each._replace(when=0, score=0) for each in there.over] == [
        each._replace(when=0, score=0) for each in here.over
    ]
    assert [each.score for each in there.over] == pytest.approx([each.score for each in here.over], rel=1e-5)
    assert there.over


@pytest.mark.parametrize("mode", AutoresetMode)
def test_dicts_of_tensors_are_learnt_from_as_dicts_of_numpys_arrays(mode: AutoresetMode) -> None:
    agents = [trained(AGENTS["ppo in stacks"], vector(like, mode, wrap=Split), 200)[0] for like in (NUMPYS, TENSORS)]
    assert agents[0].updates > 1
    assert_identical(*map(state, agents))


def test_a_host_sends_numpys_arrays() -> None:
    recorder = BlockRecorder(0)
    shown = {"observation": torch.ones(2, 3), "final": {1: torch.full((3,), 2.0)}}
    recorder.extend({"env_ids": np.arange(2), "reward": np.zeros(2, np.float32), **shown})
    recorder.cut(torch.zeros(3), 0)
    block = recorder.take()
    assert type(block["columns"]["observation"]) is type(block["of_ends"]["final"][1]) is np.ndarray
    assert type(block["cuts"][1]) is np.ndarray


class NoObservationOnTheHost(TorchFunctionMode):
    """Raises where an observation becomes NumPy's array, or one of NumPy's a tensor."""

    away = (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist, torch.Tensor.cpu)
    back = (torch.from_numpy, torch.as_tensor, torch.asarray, torch.tensor)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in self.away or (function in self.back and not isinstance(args[0], torch.Tensor)):
            shape = np.shape(args[0])
            # The reserve of a store is made on the host, of zeros.
            blank = function in self.back and not np.any(args[0])
            assert not shape or shape[-1] != NUMBERS or blank, f"{function.__name__} of an observation {shape}"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", ["ppo", "ppo in stacks"])
def test_no_observation_leaves_its_device(name: str, mode: AutoresetMode) -> None:
    with NoObservationOnTheHost():
        agent, result = trained(AGENTS[name], vector(TENSORS, mode), 200)
    assert agent.updates > 1
    assert len(result.over) > 10


def test_the_mode_above_sees_an_observation_that_leaves() -> None:
    with NoObservationOnTheHost(), pytest.raises(AssertionError, match="of an observation"):
        trained(AGENTS["sac"], vector(TENSORS, AutoresetMode.SAME_STEP), 60)


def test_ppo_learns_on_tensors_under_a_delay_of_each_episode() -> None:
    agent = partial(PPO, device="cpu", update_period=240, batch_size=60, num_epochs=6)
    _, result = trained(agent, vector(TENSORS, AutoresetMode.SAME_STEP, num_envs=24), 4_000)
    scores = [episode.score for episode in result.over]
    assert np.mean(scores[-40:]) > np.mean(scores[:40]) + 3


def test_a_replay_of_tensors_goes_on_from_its_files(tmp_path: Path) -> None:
    agent, _ = trained(ppo, vector(TENSORS, AutoresetMode.SAME_STEP), 200)
    bundle = agent.bundle_and_checkpoint(tmp_path, 0)
    other = VectorAgent(agent.spec, N)
    other.unbundle(tmp_path, 0, bundle)
    assert_identical(other.learner.state_dict(), agent.learner.state_dict())
    envs = vector(TENSORS, AutoresetMode.SAME_STEP)
    result = Share(other, envs, lambda numbers: [3] * N).train(Length(150, None), cuts=True)
    assert result.over
    assert other.updates > agent.updates


def tensor_points(num_envs: int) -> Points:
    return Points(num_envs, TENSORS)


def test_a_run_trains_on_a_registered_vector_of_tensors(tmp_path: Path) -> None:
    gym.register("Points-v0", entry_point=Point, vector_entry_point=tensor_points)
    try:
        load_gin(
            "configs/ppo/pendulum.gin",
            bindings=[
                "create_runner.schedule = 'vector'",
                "create_gym_environment.environment_id = 'Points-v0'",
                "RealtimeDelay.delay = 2",
                "VectorRunner.num_envs = 4",
                "VectorRunner.create_vector_fn = @create_gym_vector",
                "create_gym_vector.environment_id = 'Points-v0'",
                "create_gym_vector.wrappers = [@VectorRealtimeDelay]",
                "VectorRealtimeDelay.delay = 2",
                "VectorRealtimeDelay.default_action = 'repeat'",
                "Runner.num_iterations = 2",
                "Runner.training_steps = 150",
                "Runner.evaluation_episodes = 2",
                "Runner.report_episodes = 0",
                "PPOAgent.update_period = 64",
                "PPOAgent.batch_size = 32",
                "PPOAgent.num_epochs = 1",
            ],
        )
        runner: Any = create_runner(tmp_path)
        runner.run_experiment()
    finally:
        del gym.registry["Points-v0"]
    assert isinstance(runner.agent.learner.replay.sources[0]._columns["observation"], torch.Tensor)
