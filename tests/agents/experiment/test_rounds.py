"""Several learners: what they do is what one does, with the same weights, and none of them is left behind."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.learners import Group, LearnerFailed, open_meeting_place
from async_wrappers.agents.play.many.rounds import Share, Trained
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import DifferentExperiment, Length, Phase
from async_wrappers.agents.spec import Spec
from async_wrappers.batched.vector_envs import VectorEnvs
from tests.worlds import host_runs
from tests.worlds.agents import tiny_network
from tests.worlds.command_line import bound, place, start
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.learners_in_threads import InThreads
from tests.worlds.plain_data import assert_identical, differs

__all__ = ["place"]


def network(shape: Any, actions: int) -> torch.nn.Module:
    return create_actor_critic(shape, actions, torso=lambda s: MLPTorso(s, (6,)), core="lstm")


def recurrent_values(shape: Any, actions: int) -> torch.nn.Module:
    return create_recurrent_q_network(shape, actions, torso=lambda s: MLPTorso(s, (6,)), core="lstm")


OF_REPLAY = {"min_replay_history": 40, "update_period": 8, "target_update_period": 40, "replay_capacity": 400}
AGENTS: dict[type[Spec], dict[str, Any]] = {
    VTrace: {"network": network, "unroll_length": 5, "batch_size": 4},
    R2D2: {
        "network": recurrent_values,
        "burn_in": 2,
        "unroll_length": 5,
        "state_period": 4,
        "batch_size": 8,
        **OF_REPLAY,
    },
    DQN: {"network": tiny_network, "batch_size": 8, **OF_REPLAY},
}


def shares(learners: int, lengths: Sequence[int] | None, rate: float, kind: type[Spec] = VTrace) -> list[Share]:
    group, made = InThreads(learners), []
    of_one = 4 // learners
    for number in range(learners):
        envs = VectorEnvs(
            SyncVectorEnv(
                [partial(DriftingEnv, lengths=lengths, noop=True)] * of_one, autoreset_mode=AutoresetMode.SAME_STEP
            )
        )
        make_spec: Any = kind
        spec = make_spec(
            envs.observation_space,
            envs.action_space,
            **AGENTS[kind],
            stack_size=2,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=rate),
            max_gradient_norm=1.0,
            device="cpu",
        )
        agent = VectorAgent(spec, of_one, number=number, learners=learners)

        def seeds(numbers: Sequence[int], first: int = number * of_one) -> list[int]:
            return [1000 * each + env_id for env_id, each in enumerate(numbers, first)]

        one: Any = group.one(number) if learners > 1 else None
        made.append(Share(agent, envs, seeds, one))
    return made


def train(of: Sequence[Share], frames: int, cuts: bool = True) -> list[Trained]:
    trained: list[Any] = [None] * len(of)

    def play(number: int) -> None:
        trained[number] = of[number].train(Length(frames, None), cuts)

    threads = [threading.Thread(target=play, args=(number,)) for number in range(1, len(of))]
    for thread in threads:
        thread.start()
    play(0)
    for thread in threads:
        thread.join(30)
    assert all(trained)
    return trained


def weights(share: Share) -> dict[str, Any]:
    return {name: weight.clone() for name, weight in share.agent.learner.network.state_dict().items()}


def test_learners_with_a_share_of_each_batch_are_one_learner_but_for_rounding() -> None:
    # Episodes of one length, so that unrolls become whole together and every batch is the same.
    one, two = shares(1, [7], 0.1), shares(2, [7], 0.1)
    first = weights(one[0])
    for frames in (60, 80):
        of_one, of_two = train(one, frames), train(two, frames)
        assert sum(each.frames for each in of_two) == of_one[0].frames
        assert sum(len(each.over) for each in of_two) == len(of_one[0].over)
    updates = one[0].agent.updates
    assert updates > 5 and [share.agent.updates for share in two] == [updates] * 2
    for name, weight in weights(one[0]).items():
        torch.testing.assert_close(weights(two[0])[name], weight, rtol=1e-5, atol=1e-6)
    assert max((weight - first[name]).abs().max() for name, weight in weights(one[0]).items()) > 1e-3


@pytest.mark.parametrize(("learners", "kind"), [(4, VTrace), (2, R2D2), (2, DQN)])
def test_all_learners_keep_the_same_weights_and_make_the_same_updates(learners: int, kind: type[Spec]) -> None:
    of = shares(learners, None, 0.1, kind)
    first = weights(of[0])
    for frames, cuts in ((90, False), (40, True), (70, True)):
        before = sum(share.agent.rows.frames_of_all for share in of)
        trained = train(of, frames, cuts)
        assert sum(each.frames for each in trained) - before >= frames
        for share in of[1:]:
            assert_identical(weights(share), weights(of[0]))
            assert share.agent.updates == of[0].agent.updates
    assert of[0].agent.updates > 5 and differs(weights(of[0]), first)
    if kind is not VTrace:
        facts = of[1].agent.learner.replay.facts()
        assert (facts["num_envs"], facts["capacity"]) == (2, 50 if kind is R2D2 else 200)
        assert [len(share.agent.learner.replay.sample()["index"]) for share in of] == [4, 4]
        # Updates fall due by the decisions of all: as many as one learner would make, but for the last round.
        whole = of[0].agent.rows.frames_of_all + of[1].agent.rows.frames_of_all
        assert abs(of[0].agent.updates - (whole - 40) // 8) <= 2


def test_an_environment_plays_the_same_episodes_whichever_learner_plays_it() -> None:
    def episodes(of: Sequence[Share]) -> dict[int, list[Any]]:
        by_env: dict[int, list[Any]] = {env_id: [] for env_id in range(4)}
        for number, each in enumerate(train(of, 200)):
            for episode in each.over:
                by_env[number * (4 // len(of)) + episode.env_id].append(episode[1:6])  # not when it was over
        return by_env

    alone, shared = episodes(shares(1, None, 0.0)), episodes(shares(4, None, 0.0))
    for env_id, of_env in alone.items():
        both = min(len(of_env), len(shared[env_id]))  # a learner that is ahead may have ended one more
        assert both > 1 and of_env[:both] == shared[env_id][:both]
    assert alone[0] != alone[1]


# Processes.

RUNS = ("Runner.training_steps = 120", "Runner.num_iterations = 4", "VectorRunner.checkpoint_every = 2")


def make(base_dir: Path, *bindings: str, learners: int = 2) -> Any:
    several = (*RUNS, "Runner.exact_resume = True", f"VectorRunner.learners = {learners}", *bindings)
    return host_runs.make(base_dir, "vtrace", *several, schedule="vector")


def state(runner: Any) -> dict[str, Any]:
    return {**host_runs.state(runner), "shares": runner.play.others.states}


@pytest.mark.usefixtures("children_of_a_server")
def test_a_learner_that_dies_ends_the_run_which_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    whole.run_experiment()
    assert len(list((tmp_path / "whole" / "checkpoints" / "replay_1").glob("index_*"))) == 2
    assert whole.agent.updates > 10 and whole.play.others.states[0]["rows"]["frames"][0] > 40
    frames = [*whole.agent.rows.frames], whole.play.others.states[0]["rows"]["frames"]
    assert whole.counts.frames == sum(map(sum, frames))

    stopped = make(tmp_path / "parts")
    train_once, phases, killed = stopped.play.train, [], []

    def kill_in_the_last_iteration(length: Any) -> Any:
        phases.append(length)
        if len(phases) == 4:
            [child] = learners_that_live()
            killed.append(child.name)
            os.kill(child.pid, signal.SIGKILL)
        return train_once(length)

    stopped.play.train = kill_in_the_last_iteration  # type: ignore[method-assign]
    with pytest.raises(LearnerFailed) as caught:
        stopped.run_experiment()
    assert "learner 1 of 2 (process " in str(caught.value) and "was ended by SIGKILL" in str(caught.value)
    assert "goes on from the newest checkpoint" in str(caught.value) and "\n" not in str(caught.value)
    assert killed == ["learner 1 of 2"] and not learners_that_live()

    with pytest.raises(DifferentExperiment, match="learners: 2 there, None here"):
        make(tmp_path / "parts", learners=1).resume()
    resumed = make(tmp_path / "parts")
    assert resumed.resume() and resumed.start_iteration == 2
    resumed.run_experiment()
    assert_identical(state(resumed), state(whole))
    assert differs(state(stopped)["learner"], state(whole)["learner"])
    assert not learners_that_live()


@pytest.mark.usefixtures("children_of_a_server")
def test_a_run_that_was_interrupted_ends_as_one_that_was_cut_at_the_same_round(tmp_path: Path) -> None:
    here = make(tmp_path / "here", "Runner.exact_resume = False")
    parts: list[int] = []

    def due() -> bool:
        if here.agent.updates >= 3 * (len(parts) + 1):  # a checkpoint by the clock, then a signal
            parts.append(here.agent.updates)
            if len(parts) == 2:
                here.ending.ask(KeyboardInterrupt())
            return len(parts) == 1
        return False

    here.saved.is_late = due  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        here.run_experiment()
    assert here.saved.number >= 1 and not learners_that_live()
    assert not any(sum(each["cut"]) for each in rows_of(here)) and here.counts.cut_frames > 0
    replays, found = (list((tmp_path / "here" / "checkpoints").glob(each)) for each in ("replay_1/index_*", "ckpt.*"))
    assert len(replays) == len(found)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = make(tmp_path / "there", "Runner.exact_resume = False")
    assert there.resume() and there.start_iteration == here.saved.iterations_done
    assert (there.counts.frames, there.agent.updates) == (here.counts.frames, here.agent.updates)
    for runner in (here, there):
        runner.run_experiment()
    assert_identical(state(there), state(here))
    lines = read_iterations(tmp_path / "there")
    running = sum(sum(each["cut"]) for each in rows_of(there))
    ended = sum(sum(line["train_episode_lengths"]) for line in lines)
    assert ended + lines[-1]["cut_frames"] + running == lines[-1]["frames"] == there.counts.frames >= 480
    assert sum(line["train_updates"] for line in lines) == there.agent.updates > 10
    assert sum(len(line["train_episode_returns"]) for line in lines) == there.counts.episodes[Phase.TRAIN]
    assert not learners_that_live()


def rows_of(runner: Any) -> list[dict[str, Any]]:
    return [runner.agent.rows.state_dict(), *(share["rows"] for share in runner.play.others.states)]


def learners_that_live() -> list[Any]:
    """Processes of learners; those of other tests may take a moment to end."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("learner ")]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_learner(place: Path, number: signal.Signals) -> None:
    psutil = pytest.importorskip("psutil")
    bindings = (*RUNS, "VectorRunner.num_envs = 4", "VectorRunner.learners = 2", "Runner.num_iterations = 10_000")
    words = bound(*bindings)
    with start(place, "--base_dir", "run", "--gin_files", "configs/vtrace/cartpole_no_velocity.gin", *words) as process:
        deadline = time.monotonic() + 120
        while not list((place / "run").glob("checkpoints/sentinel*")) and time.monotonic() < deadline:
            time.sleep(0.2)
        learners = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert learners
    assert not psutil.wait_procs(learners, timeout=30)[1]
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "iterations are done in run; to go on: python train.py --base_dir run" in err


def _of_group(number: int, place: str, answers: Any) -> None:
    group = Group(number, 2, place)
    gradients = {"a": torch.full((2, 3), float(number)), "b": torch.tensor([1.0, 10.0]) * (number + 1)}
    average = {name: each.tolist() for name, each in group.average(gradients, torch.tensor(1.0 + 2 * number)).items()}
    answers.put((number, group.sum(1, number), average))
    group.close()


@pytest.mark.usefixtures("children_of_a_server")
@pytest.mark.parametrize("on_a_port", [False, True])
def test_gradients_are_averaged_by_what_their_losses_are_means_over(tmp_path: Path, on_a_port: bool) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    place, _held = open_meeting_place("127.0.0.1") if on_a_port else (str(tmp_path / "store"), None)
    if on_a_port:
        with pytest.raises(OSError, match="in use"), socket.create_server(("127.0.0.1", int(place.split(":")[-1]))):
            pass
    other = context.Process(target=_of_group, args=(1, place, answers))
    other.start()
    _of_group(0, place, answers)
    other.join(60)
    expected = {"a": [[0.75] * 3] * 2, "b": [1.75, 17.5]}  # weights 1 and 3
    assert sorted([answers.get(), answers.get()]) == [(0, [2.0, 1.0], expected), (1, [2.0, 1.0], expected)]


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (("VectorRunner.num_envs = 5",), r"VectorRunner.num_envs must be a multiple of the 2 learners, got 5"),
        (
            ("create_agent.agent_name = 'dqn'", "DQNAgent.batch_size = 33"),
            "batch_size must be a multiple of the 2 learn",
        ),
        (("VTraceAgent.batch_size = 3",), r"batch_size must be a multiple of the 2 learners, got 3"),
        (("Runner.overlap = True",), r"Runner.overlap must be False where VectorRunner.learners = 2, got True"),
        (
            ("VectorRunner.act_devices = ('cpu',)",),
            r"VectorRunner.act_devices must be None where VectorRunner.learners = 2, got \('cpu',\)",
        ),
        (
            ("VectorRunner.double_buffered = True", "VectorRunner.num_envs = 2"),
            r"VectorRunner.num_envs must be >= 4 where double_buffered=True, 2 for each learner, got 2",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused(tmp_path: Path, bindings: Sequence[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path, *bindings)


def test_an_agent_whose_learner_is_alone_is_refused() -> None:
    class Alone(VTrace):
        def make_vector_learner(self, num_envs: int) -> Any:  # type: ignore[override]
            return super().make_vector_learner(num_envs)

    spaces = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)
    with pytest.raises(ValueError, match=r"VectorRunner.learners must be 1 with agent 'vtrace', whose Alone has no"):
        VectorAgent(Alone(*spaces, stack_size=1, network=network, device="cpu"), 2, learners=2)
