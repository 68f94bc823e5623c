"""Simulators that step on a CPU, under delay: each where it is installed."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from async_wrappers import LogNormal, delay_simulator

N = 4


def test_brax_trains_on_copies_that_are_late() -> None:
    envs = pytest.importorskip("brax.envs")
    import jax
    import jax.numpy as jnp

    env = delay_simulator(envs.get_environment("fast"), delay=2, action_window=2)  # faster with actions above 0
    assert isinstance(env, envs.Env)
    wrapped = envs.training.wrap(env, episode_length=6)
    step, state = jax.jit(wrapped.step), jax.jit(wrapped.reset)(jax.random.split(jax.random.PRNGKey(0), N))
    speeds, dones = [], []
    for _ in range(13):
        state = step(state, jnp.ones((N, 1)))
        speeds.append(state.pipeline_state.xd.vel[0, 0].item())
        dones.append(state.done[0].item())
        assert state.obs.shape == (N, 4)
    expected = [0, 0, 0.02, 0.04, 0.06, 0]  # after the sixth frame it is reset
    assert speeds[:12] == pytest.approx(expected * 2)
    assert dones == [0, 0, 0, 0, 0, 1] * 2 + [0]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_braxs_own_ppo_trains_late() -> None:
    envs = pytest.importorskip("brax.envs")
    if not hasattr(pytest.importorskip("jax"), "device_put_replicated"):
        pytest.skip("brax 0.14.2's PPO needs JAX < 0.10")
    from brax.training.agents.ppo.train import train

    env = delay_simulator(envs.get_environment("fast"), latency=0.03, fps=50, action_window=2)
    shown: list[Any] = []
    train(
        environment=env,
        num_timesteps=2_000,
        episode_length=50,
        num_envs=8,
        batch_size=8,
        num_minibatches=4,
        unroll_length=5,
        num_evals=2,
        num_eval_envs=8,
        progress_fn=lambda steps, metrics: shown.append((steps, metrics["eval/episode_reward"])),
    )
    assert len(shown) == 2
    assert all(np.isfinite(float(reward)) for _, reward in shown)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_playgrounds_cartpole_is_late() -> None:
    pytest.importorskip("mujoco_playground")
    import jax
    import jax.numpy as jnp
    from mujoco_playground._src import dm_control_suite, wrapper

    env = delay_simulator(
        dm_control_suite.load("CartpoleBalance", config_overrides={"impl": "jax"}), delay=2, action_window=2
    )
    wrapped = wrapper.wrap_for_brax_training(env, episode_length=5)
    step, state = jax.jit(wrapped.step), jax.jit(wrapped.reset)(jax.random.split(jax.random.PRNGKey(0), 2))
    first = state.obs
    for number in range(7):
        state = step(state, jnp.full((2, 1), 0.1 * (number + 1)))
        frame = number % 5 + 1
        assert state.info["realtime"]["frame"].tolist() == [frame % 5 if number == 4 else frame] * 2 or frame == 5
        assert state.done.tolist() == [float(frame == 5)] * 2
        if frame <= 2:
            assert state.obs.tolist() == first.tolist()
        elif frame < 5:
            assert state.obs[0, -1].item() == pytest.approx(0.1 * (number + 1))


def test_gymnaxs_pendulum_goes_through_vmap_and_resets_itself() -> None:
    gymnax = pytest.importorskip("gymnax")
    import jax
    import jax.numpy as jnp

    inner, params = gymnax.make("Pendulum-v1")
    params = params.replace(max_steps_in_episode=6)
    env = delay_simulator(inner, delay=2, default_action="noop", action_window=3)
    assert env.observation_space(params).shape == (6,)
    keys = jax.random.split(jax.random.PRNGKey(0), N)
    observation, state = jax.vmap(env.reset, (0, None))(keys, params)
    bare, bare_state = jax.vmap(inner.reset, (0, None))(keys, params)
    steps = [jax.jit(jax.vmap(each.step, (0, 0, 0, None))) for each in (env, inner)]
    rows, ends = [np.asarray(bare)], 0
    for number in range(1, 13):
        action = jnp.full((N, 1), 0.1 * number)
        frame = (number - 1) % 6
        observation, state, _, terminated, truncated, info = steps[0](keys, state, action, params)
        sent = action if frame >= 2 else action * 0
        bare, bare_state, *_ = steps[1](keys, bare_state, sent, params)
        rows = [*rows, np.asarray(bare)] if frame < 5 else [np.asarray(bare)]
        np.testing.assert_allclose(observation[:, :3], rows[max(0, len(rows) - 3)], rtol=1e-5)
        assert info["realtime"]["applied"].tolist() == [frame >= 2] * N
        ends += int((terminated | truncated).sum())
        assert bool((observation[:, 3:] == 0).all()) == (frame < 2 or frame == 5)
    assert ends == 2 * N


def test_maniskills_vector_keeps_its_ends() -> None:
    pytest.importorskip("mani_skill")
    pytest.importorskip("sapien")
    import mani_skill.envs  # noqa: F401 - registers them
    from mani_skill.vector.wrappers.gymnasium import ManiSkillVectorEnv

    bare = gym.make(  # it alone needs no device that draws
        "Empty-v1", num_envs=1, obs_mode="state", sim_backend="physx_cpu", render_backend="none", max_episode_steps=6
    )
    env = delay_simulator(ManiSkillVectorEnv(bare), delay=2, default_action="repeat", action_window=2)
    first, _ = env.reset(seed=0)
    assert first.shape == (1, 18 + 2 * 8)
    ends = []
    for number in range(9):
        observation, _, terminated, truncated, info = env.step(torch.full((1, 8), 0.1 * (number + 1)))
        ends.append(bool(terminated | truncated))
        assert ("final_obs" in info) == ends[-1]
        assert bool(observation[0, 18:].any()) != ends[-1] or number > 3
    assert ends == [number == 3 for number in range(9)]  # the first step runs three frames
    env.close()


@pytest.fixture(scope="module")
def cartpole() -> Any:
    """mjlab's smallest robot; the first start compiles its kernels for a minute."""
    pytest.importorskip("mjlab")
    import mjlab.tasks  # noqa: F401 - registers them
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs = N
    env = ManagerBasedRlEnv(cfg, device="cpu")
    yield env
    env.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_mjlabs_groups_are_late_each_robot_by_its_own_delay(cartpole: Any) -> None:
    env = delay_simulator(cartpole, delay=[0, 1, 2, 3], default_action="repeat", action_window=2)
    shown, _ = env.reset(seed=0)
    assert shown["actor"].shape == shown["critic"].shape == (N, env.single_observation_space.spaces["actor"].shape[0])
    for number in range(5):
        shown, rewards, terminated, truncated, extras = env.step(torch.full((N, 1), float(number + 1)))
        assert extras["realtime"]["applied"].tolist() == [delay <= number for delay in range(N)]
        assert shown["actor"][:, -1].tolist() == [number + 1.0 if delay <= number else 0.0 for delay in range(N)]
        assert (rewards != 0).tolist() == extras["realtime"]["closed"].tolist()
        assert rewards.dtype is torch.float32
        assert not (terminated | truncated).any()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rsl_rl_trains_on_mjlab_late(cartpole: Any) -> None:
    pytest.importorskip("rsl_rl")
    from mjlab.rl import RslRlVecEnvWrapper
    from rsl_rl.env import VecEnv
    from rsl_rl.runners import OnPolicyRunner

    latency = LogNormal(mean=0.08, cv=0.3)
    env = delay_simulator(
        RslRlVecEnvWrapper(cartpole), latency=latency, per="frame", default_action="repeat", action_window=4
    )
    assert isinstance(env, VecEnv)
    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu"}
    settings = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "obs_groups": {"actor": ["actor"], "critic": ["critic"]},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution"}},
        "critic": network,
        "algorithm": {"class_name": "PPO", "rnd_cfg": None},
    }
    runner = OnPolicyRunner(env, settings, log_dir=None, device="cpu")
    before = [weights.clone() for weights in runner.alg.get_policy().parameters()]
    runner.learn(2, init_at_random_ep_len=True)
    assert any((one != other).any() for one, other in zip(before, runner.alg.get_policy().parameters(), strict=True))
