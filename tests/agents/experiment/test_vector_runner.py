"""Runs of many environments: one of them is the turn-based run, and stopped runs go on as if nothing had happened."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.agents.experiment.closing_report import draw_learning_curve
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.experiment.progress import closing_line
from async_wrappers.agents.load import load_agent
from async_wrappers.agents.play.many.environments import NumberedEpisodes
from async_wrappers.agents.play.many.many import Many
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import DifferentExperiment, Interruption, Phase, environment_seed
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import create_runner
from tests.worlds import host_runs
from tests.worlds.duels_env import Duels
from tests.worlds.experiments import load_gin, timeless
from tests.worlds.plain_data import assert_identical, differs

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")

SMALL = (
    "MLPTorso.hidden = (8,)",
    "DQNAgent.min_replay_history = 20",
    "DQNAgent.batch_size = 8",
    "DQNAgent.update_period = 3",
    "DQNAgent.target_update_period = 30",
    "DQNAgent.replay_capacity = 640",
    "DQNAgent.epsilon_fn = @linearly_decaying_epsilon",
    "DQNAgent.epsilon_decay_period = 100",
    "DQNAgent.summary_writing_frequency = 10",
    "Runner.max_steps_per_episode = 40",
    "Runner.report_episodes = 0",
    "create_gym_vector.environment_id = 'CartPole-v1'",
)


def make(base_dir: Path, schedule: str, *bindings: str, agent: str = "dqn") -> Any:
    load_gin(f"configs/{agent}/cartpole.gin", bindings=[*SMALL, f"create_runner.schedule = {schedule!r}", *bindings])
    return create_runner(base_dir)


def make_vector(base_dir: Path, *bindings: str, agent: str = "dqn") -> Any:
    runner = make(base_dir, "vector", *bindings, agent=agent)
    assert isinstance(runner.play, Many)
    return runner


def learnt(runner: Experiment) -> dict[str, Any]:
    """The learner and the replay."""
    agent: Any = runner.agent
    assert isinstance(agent, TurnBasedAgent | VectorAgent)
    return {"learner": agent.learner.state_dict(), "replay": agent.learner.replay.state_dict()}


def state(runner: Any) -> dict[str, Any]:
    """All that a run is where a checkpoint is written."""
    agent = runner.agent
    lines = [timeless(line) for line in read_iterations(runner.base_dir)]
    return {
        **learnt(runner),
        "rows": agent.rows.state_dict(),
        "decisions": agent._decisions,
        "frames": runner.counts.frames,
        "evaluated": runner.play.evaluated.tolist(),
        "lines": [{name: value for name, value in line.items() if name != "train_rates"} for line in lines],
    }


@pytest.mark.parametrize(
    ("agent", "wrapping", "processes"),
    [
        ("dqn", "[]", 0),
        ("rainbow", "[@RealtimeDelay]", 0),
        pytest.param("dqn", "[@RealtimeDelay]", 1, marks=pytest.mark.slow),  # a process imports PyTorch
    ],
)
def test_one_environment_is_the_turn_based_run(tmp_path: Path, agent: str, wrapping: str, processes: int) -> None:
    bindings = (
        f"create_gym_environment.wrappers = {wrapping}",
        "RealtimeDelay.delay = 3",
        "RealtimeDelay.noops = 1",
        "DQNAgent.stack_size = 2",
        "Runner.training_episodes = 6",
        "Runner.evaluation_episodes = 3",
        "Runner.num_iterations = 2",
        "VectorRunner.evaluation_envs = 1",
        f"VectorRunner.processes = {processes}",
    )
    in_turn = make(tmp_path / "in_turn", "continuous_train_and_eval", *bindings, agent=agent)
    in_turn.run_experiment()
    one = make_vector(tmp_path / "vector", *bindings, "VectorRunner.num_envs = 1", agent=agent)
    one.run_experiment()
    assert in_turn.agent.updates > 10
    assert_identical(learnt(one), learnt(in_turn))
    for line, other in zip(*map(read_iterations, (one.base_dir, in_turn.base_dir)), strict=True):
        names = list(timeless(other))
        assert {name: line[name] for name in names} == {name: other[name] for name in names}


RUNS = {
    "32": ("VectorRunner.num_envs = 32", "VectorRunner.evaluation_envs = 3"),
    "halves, overlapping": (
        "VectorRunner.num_envs = 5",
        "VectorRunner.double_buffered = True",
        "Runner.overlap = True",
        "DQNAgent.replay_scheme = 'prioritized'",
    ),
    "delayed": (
        "VectorRunner.num_envs = 3",
        "create_gym_environment.wrappers = [@RealtimeDelay]",
        "RealtimeDelay.delay = 2",
    ),
    "served": (
        "VectorRunner.num_envs = 3",
        "create_gym_environment.wrappers = [@RealtimeDelay]",
        "RealtimeDelay.schedule = @ServedStream()",
        "ServedStream.server = @ServedSchedule()",
        "ServedSchedule.latency = @LinearBatches()",
        "ServedSchedule.environments = 40",
        "ServedSchedule.fps = 50",
        "ServedSchedule.playout = 1",
        "LinearBatches.fixed = 0.004",
        "LinearBatches.each = 0.0005",
        "LinearBatches.cv = 0.5",
        "DQNAgent.epsilon_warmup = 20",
    ),
    "copies, overlapping": (
        "VectorRunner.num_envs = 3",
        "VectorRunner.act_devices = ('cpu', 'cpu')",
        "VectorRunner.act_sync_period = 4",
        "Runner.overlap = True",
    ),
    "a vector": (
        "VectorRunner.num_envs = 4",
        "VectorRunner.replay_ratio = 4.0",
        "VectorRunner.create_vector_fn = @create_gym_vector",
    ),
}


@pytest.mark.parametrize("of", [name for name in RUNS if name != "32"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path: Path, of: str) -> None:
    bindings = RUNS[of]
    every = ("Runner.training_steps = 40", "Runner.evaluation_steps = 10", "VectorRunner.checkpoint_every = 2")
    every += ("Runner.exact_resume = True",)
    whole = make_vector(tmp_path / "whole", *every, "Runner.num_iterations = 4", *bindings)
    whole.run_experiment()

    class Stopped(Exception):
        pass

    def stop(*arguments: Any) -> None:
        raise Stopped

    stopped = make_vector(tmp_path / "parts", *every, "Runner.num_iterations = 4", *bindings)
    train, phases = stopped.play.train, []

    def train_three_times(*arguments: Any) -> Any:
        phases.append(arguments)
        return stop() if len(phases) == 4 else train(*arguments)  # in the fourth iteration, two after a checkpoint

    stopped.play.train = train_three_times  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        stopped.run_experiment()
    assert stopped.saved.iterations_done == 2
    resumed = make_vector(tmp_path / "parts", *every, "Runner.num_iterations = 4", *bindings)
    assert resumed.resume() and resumed.start_iteration == 2
    resumed.run_experiment()
    assert whole.agent.updates > 20
    assert_identical(state(resumed), state(whole))
    assert differs(learnt(stopped), learnt(whole))


RUNS_OF_AGENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "vtrace, gru, halves": (
        "vtrace",
        ("create_actor_critic.core = 'gru'", "Runner.overlap = True", "VectorRunner.double_buffered = True"),
    ),
    "vtrace, no memory": ("vtrace", ("create_actor_critic.core = None",)),
    "vtrace, queue, elite, standard, drawn ahead": (
        "vtrace",
        (
            "VTraceAgent.sources = [('queue', 0.5), ('elite', 0.3), ('standard', 0.2)]",
            "VTraceAgent.batch_size = 3",
            "VTraceAgent.prefetch = True",
            "VTraceAgent.learning_rate_decay = 200",
            "EliteReplay.capacity = 8",
            "EliteReplay.insert_strategy = 'elite_insertion'",
            "EliteReplay.elite_batch_size = 3",
            "StandardReplay.capacity = 6",
            "Runner.overlap = True",
        ),
    ),
    "impact": ("impact", ()),
    "impact, lstm, overlapping": ("impact", ("create_actor_critic.core = 'lstm'", "Runner.overlap = True")),
    "r2d2, no memory, drawn ahead": (
        "r2d2",
        (
            "create_recurrent_q_network.core = None",
            "Runner.overlap = True",
            "VectorRunner.replay_ratio = 2.0",
            "R2D2Agent.prefetch = True",
        ),
    ),
    "r2d2, priorities of acting": ("r2d2", ("R2D2Agent.actor_priorities = True",)),
    "r2d2, huber, hidden streams, two updates": (
        "r2d2",
        (
            "R2D2Agent.loss_type = 'huber'",
            "R2D2Agent.learning_rate_decay = 30",
            "R2D2Agent.learning_rate_power = 2.0",
            "R2D2Agent.num_updates_per_train_step = 2",
            "VectorRunner.replay_ratio = None",
            "DuelingHead.hidden = 5",
            "create_recurrent_q_network.feed_previous = False",
        ),
    ),
    "ppo": ("ppo", ()),
    "ppo, lstm": ("ppo", ("create_policy_value_network.core = 'lstm'", "PPOAgent.unroll_length = 3")),
}


@pytest.mark.parametrize(("agent", "bindings"), RUNS_OF_AGENTS.values(), ids=RUNS_OF_AGENTS)
def test_a_resumed_run_of_each_agent_with_unrolls_ends_as_an_uninterrupted_one(
    tmp_path: Path, agent: str, bindings: Sequence[str]
) -> None:
    def make_run(name: str, *more: str) -> Any:
        terms = (*bindings, *more, "Runner.exact_resume = True")
        return host_runs.make(tmp_path / name, agent, *terms, schedule="vector")

    whole = make_run("whole")
    whole.run_experiment()
    make_run("parts", "Runner.num_iterations = 1").run_experiment()
    resumed = make_run("parts")
    assert resumed.resume() and resumed.start_iteration == 1
    before = {name: weight.clone() for name, weight in resumed.agent.learner.state_dict()["network"].items()}
    resumed.run_experiment()
    assert whole.agent.updates > resumed.agent.updates // 2 > 2
    assert_identical(host_runs.state(resumed), host_runs.state(whole))
    assert differs(before, dict(whole.agent.learner.state_dict()["network"]))


OFTEN = ("Runner.training_steps = 90", "Runner.evaluation_steps = 10", "Runner.num_iterations = 4")


@pytest.mark.parametrize("of", ["32", "copies, overlapping"])
def test_checkpoints_change_nothing_of_a_run(tmp_path: Path, of: str) -> None:
    bindings = RUNS[of]
    often = make_vector(tmp_path / "often", *OFTEN, *bindings)
    asked = itertools.count()
    often.saved.is_late = lambda: next(asked) % 2 == 1  # type: ignore[method-assign]
    often.run_experiment()
    last = often.saved.number
    assert last >= 8
    seldom = make_vector(tmp_path / "seldom", *OFTEN, *bindings, "VectorRunner.checkpoint_every = 4")
    seldom.run_experiment()
    assert_identical(state(often), state(seldom))
    assert often.counts.cut_frames == 0 and often.agent.updates > 15
    names = sorted(path.name for path in (tmp_path / "often" / "checkpoints").glob("ckpt.*"))
    assert set(names) == {f"ckpt.{number}" for number in range(last - 3, last + 1)}
    assert len(list((tmp_path / "often" / "checkpoints" / "replay").glob("index_*"))) == 4


def counts(runner: Any) -> dict[str, Any]:
    """What the lines say of all training, beside what the run counts by itself."""
    lines = read_iterations(runner.base_dir)
    assert [line["iteration"] for line in lines] == list(range(len(lines)))
    ended = sum(sum(line["train_episode_lengths"]) for line in lines)
    return {
        "ended, cut and running": ended + lines[-1]["cut_frames"] + sum(runner.agent.rows.state_dict()["cut"]),
        "frames": lines[-1]["frames"],
        "updates": sum(line["train_updates"] for line in lines),
        "actions": sum(line["train_actions"] for line in lines),
        "episodes": sum(len(line["train_episode_returns"]) for line in lines),
    }


def ask_at(runner: Any, number: int) -> None:
    """Ask a run to end when the n-th look at the clock is due."""
    asked: list[None] = []

    def due() -> bool:
        asked.append(None)
        if len(asked) == number:
            runner.ending.ask(KeyboardInterrupt())
        return False

    runner.saved.is_late = due


@pytest.mark.parametrize(
    ("of", "at"),
    [
        *(("halves, overlapping", 1), ("copies, overlapping", 1), ("delayed", 8), ("a vector", 8)),
        *(("halves, overlapping", 24), ("copies, overlapping", 37), ("delayed", 37), ("a vector", 24)),
    ],
)
def test_a_run_that_was_interrupted_ends_as_one_that_was_cut_at_the_same_round(
    tmp_path: Path, of: str, at: int
) -> None:
    bindings = (*OFTEN, "Runner.training_steps = 45", *RUNS[of])
    here = make_vector(tmp_path / "here", *bindings)
    ask_at(here, at)
    with pytest.raises(KeyboardInterrupt):
        here.run_experiment()
    assert not sum(here.agent.rows.state_dict()["cut"])  # nothing runs any more
    done = here.saved.iterations_done
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    here.run_experiment()
    there = make_vector(tmp_path / "there", *bindings)
    assert there.resume() and there.start_iteration == done
    there.run_experiment()
    assert_identical(state(there), state(here))
    found, frames = counts(there), there.counts.frames
    assert here.counts.cut_frames == there.counts.cut_frames
    assert found["ended, cut and running"] == found["frames"] == frames
    assert 180 <= frames < 180 + 5 * there.agent.num_envs
    assert found["updates"] == there.agent.updates and found["episodes"] == there.counts.episodes[Phase.TRAIN]
    assert found["actions"] <= frames
    assert there.saved.iterations_done == 4


def test_an_interrupted_evaluation_is_begun_again(tmp_path: Path) -> None:
    bindings = (*OFTEN, *RUNS["delayed"])
    here, whole = (make_vector(tmp_path / name, *bindings) for name in ("here", "whole"))
    ask = here.play.environments.make

    def made(phase: Phase, *arguments: Any, **how: Any) -> Any:
        envs = ask(phase, *arguments, **how)
        if phase == Phase.EVAL:
            recv, left = envs.recv, [None] * 5

            def interrupted() -> Any:
                if left and not (left.pop(), left)[1]:
                    here.ending.ask(KeyboardInterrupt())
                return recv()

            envs.recv = interrupted
        return envs

    here.play.environments.make = made
    with pytest.raises(KeyboardInterrupt):
        here.run_experiment()
    assert here.counts.episodes[Phase.EVAL] == 0 and here.counts.frames >= 90
    there = make_vector(tmp_path / "here", *bindings)
    assert there.resume() and there.start_iteration == 0
    there.run_experiment()
    whole.run_experiment()
    one, other = (read_iterations(tmp_path / name)[0] for name in ("here", "whole"))
    assert timeless(one)["eval_episode_returns"] == timeless(other)["eval_episode_returns"]
    assert one["train_episode_returns"] == other["train_episode_returns"]


@pytest.mark.parametrize("of", ["halves, overlapping", "delayed"])
def test_a_run_that_goes_on_in_its_process_is_the_one_that_goes_on_from_its_checkpoint(tmp_path: Path, of: str) -> None:
    bindings = (*OFTEN, *RUNS[of])
    here = make_vector(tmp_path / "here", *bindings)
    here.num_iterations = 2
    here.run_experiment()
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    here.num_iterations = 4
    here.run_experiment()
    there = make_vector(tmp_path / "there", *bindings)
    assert there.resume() and there.start_iteration == 2
    there.run_experiment()
    assert_identical(state(here), state(there))
    assert here.counts.cut_frames == there.counts.cut_frames > 0
    found = counts(here)
    assert found["ended, cut and running"] == found["frames"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_of_what_was_played(tmp_path: Path, number: signal.Signals) -> None:
    terms = ("Runner.training_steps = 100_000", "Runner.num_iterations = 1", "VectorRunner.num_envs = 4")
    run = make_vector(tmp_path, *terms)
    decide, rounds = run.agent.decide, []

    def interrupted(shown: Any) -> Any:
        rounds.append(shown)
        if len(rounds) == 50:
            signal.raise_signal(number)
        return decide(shown)

    run.agent.decide = interrupted  # type: ignore[method-assign]
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run.run_experiment()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert run.saved.iterations_done == 0
    resumed = make_vector(tmp_path, *terms)
    assert resumed.resume() and resumed.start_iteration == 0
    assert 196 <= resumed.counts.frames <= 208 and resumed.agent.updates == run.agent.updates > 5


@pytest.mark.parametrize(
    ("bindings", "sentence"),
    [
        (
            ("Runner.checkpoint_minutes = 0",),
            "Runner.checkpoint_minutes must be > 0 and finite, or None for no such checkpoint, got 0",
        ),
        (("Runner.exact_resume = 1",), "exact_resume must be True or False, got 1"),
        (
            ("Runner.checkpoint_minutes = 5", "Runner.exact_resume = True"),
            "Runner.checkpoint_minutes must be None where Runner.exact_resume=True",
        ),
    ],
)
def test_wrong_terms_of_checkpoints_are_refused(tmp_path: Path, bindings: Sequence[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make_vector(tmp_path, *bindings)


def test_a_checkpoint_is_written_after_so_many_minutes(tmp_path: Path) -> None:
    run = make_vector(tmp_path / "seldom", *OFTEN, "Runner.checkpoint_minutes = 2")
    run.saved.saved_at = time.monotonic() - 115
    assert run.due() is Interruption.NOTHING
    run.saved.saved_at -= 6
    assert run.due() is Interruption.CHECKPOINT
    often = make_vector(tmp_path / "often", *OFTEN, "Runner.checkpoint_minutes = 1e-6", "Runner.num_iterations = 1")
    often.run_experiment()
    assert often.saved.number >= 3


def test_halves_play_as_the_whole(tmp_path: Path) -> None:
    num_envs = 5

    def play(halves: bool) -> Any:
        runner = make_vector(
            tmp_path / str(halves),
            f"VectorRunner.num_envs = {num_envs}",
            f"VectorRunner.double_buffered = {halves}",
            "DQNAgent.min_replay_history = 1000",  # nothing is learnt
            "DQNAgent.epsilon_warmup = 20",
            "DQNAgent.stack_size = 3",
            "DQNAgent.replay_capacity = 5_000",
            "Runner.training_steps = 600",
            "Runner.num_iterations = 1",
            "Runner.evaluation_steps = 0",
        )
        runner.run_experiment()
        return runner.agent.learner.replay.state_dict()["slots"]

    whole, halves = play(False), play(True)
    assert differs(whole[0], whole[1])
    for one, other in zip(whole, halves, strict=True):
        # All but the end, where a half may have been shown once more than the whole.
        count = min(len(one["kind"]), len(other["kind"])) - 2
        assert count > 100 // num_envs
        assert_identical(
            {name: column[:count] for name, column in one.items()},
            {name: column[:count] for name, column in other.items()},
        )


def test_each_environment_plays_its_share_of_an_evaluation(tmp_path: Path) -> None:
    runner = make_vector(
        tmp_path,
        "VectorRunner.num_envs = 3",
        "VectorRunner.evaluation_envs = 3",
        "Runner.training_steps = 30",
        "Runner.evaluation_episodes = 7",
        "Runner.num_iterations = 2",
    )
    runner.run_experiment()
    assert runner.play.evaluated.tolist() == [6, 4, 4]
    assert [len(line["eval_episode_returns"]) for line in read_iterations(tmp_path)] == [7, 7]


def test_the_checkpoint_cuts_and_the_lines_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = make_vector(
        tmp_path,
        "VectorRunner.num_envs = 8",
        "VectorRunner.checkpoint_every = 2",
        "Runner.exact_resume = True",
        "Runner.training_steps = 80",
        "Runner.evaluation_steps = 0",
        "Runner.num_iterations = 3",
        "Runner.max_steps_per_episode = 500",
    )
    runner.run_experiment()
    lines = read_iterations(tmp_path)
    assert [line["frames"] for line in lines] == [80, 160, 240]
    assert lines[0]["cut_frames"] == 0 < lines[1]["cut_frames"] < lines[2]["cut_frames"]
    ended = sum(sum(line["train_episode_lengths"]) for line in lines)
    assert ended + lines[-1]["cut_frames"] == 240
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("ckpt.*")) == ["ckpt.1", "ckpt.2"]
    rates = lines[-1]["train_rates"]
    assert rates["LearntPerLived"] == pytest.approx(8 * lines[-1]["train_updates"] / 80)
    assert rates["PolicyLag"] == 0 and 0.3 < rates["ReplayFill"] < 0.5
    assert f"{lines[-1]['cut_frames'] / 240:.2%}" in capsys.readouterr().out
    assert re.fullmatch(
        r"(last return \S+, )?act [\d,.]+/s, add [\d,.]+/s, sample [\d,.]+/s, learn [\d,.]+/s, ratio [\d.]+, lag 0\.0, "
        r"replay \d+%",
        runner.shown.progress._last,
    )
    assert closing_line(runner.history).startswith(
        f"training: {sum(len(line['train_episode_returns']) for line in lines)} episodes, 240 "
    )


def test_no_episode_need_end_in_an_iteration(tmp_path: Path) -> None:
    few = ("VectorRunner.num_envs = 16", "Runner.training_steps = 32", "Runner.evaluation_steps = 0")
    make_vector(tmp_path, *few, "Runner.num_iterations = 1").run_experiment()
    (line,) = read_iterations(tmp_path)
    assert line["train_episode_returns"] == [] and "train_average_return" not in line
    assert draw_learning_curve(tmp_path).is_file()


def test_what_was_trained_is_evaluated_and_loaded_as_ever(tmp_path: Path) -> None:
    from async_wrappers.agents.config.config import save_config

    runner = make_vector(
        tmp_path, "Runner.num_iterations = 1", "Runner.training_steps = 100", "Runner.evaluation_steps = 0"
    )
    save_config(tmp_path)
    runner.run_experiment()
    scores = [episode.score for episode in runner.evaluation(runner.trained_agent(), 4)]
    gin.clear_config()
    agent, env = load_agent(tmp_path)
    assert isinstance(agent, TurnBasedAgent)
    from async_wrappers.agents.experiment.evaluate import evaluate

    assert [episode.score for episode in evaluate(agent, env, 4, seed=0, max_frames=40)] == scores
    for name, tensor in agent.learner.network.state_dict().items():
        assert (tensor == runner.agent.learner.network.state_dict()[name]).all()


def test_other_experiments_are_refused(tmp_path: Path) -> None:
    short = ("Runner.num_iterations = 1", "Runner.training_steps = 30", "Runner.evaluation_steps = 0")
    make(tmp_path / "in_turn", "continuous_train", *short).run_experiment()
    make_vector(tmp_path / "vector", *short, "VectorRunner.num_envs = 3").run_experiment()
    with pytest.raises(DifferentExperiment, match="with one environment"):
        make_vector(tmp_path / "in_turn", *short).resume()
    with pytest.raises(DifferentExperiment, match="environments: 3 there, None here"):
        make(tmp_path / "vector", "continuous_train", *short).resume()
    with pytest.raises(DifferentExperiment, match="environments: 3 there, 4 here"):
        make_vector(tmp_path / "vector", *short, "VectorRunner.num_envs = 4").resume()


@pytest.mark.parametrize(
    ("binding", "sentence"),
    [
        ("VectorRunner.num_envs = 0", r"VectorRunner.num_envs must be >= 1 environment, got 0"),
        (
            "VectorRunner.checkpoint_every = 0.5",
            r"VectorRunner.checkpoint_every must be a whole number \(iteration\), got 0.5",
        ),
        (
            "VectorRunner.replay_ratio = 0",
            r"VectorRunner.replay_ratio must be > 0 and finite, or None for the agent's own rate, got 0",
        ),
        ("create_agent.agent_name = 'random'", r"create_runner.schedule = 'vector' needs an agent that learns"),
        (
            "VectorRunner.act_devices = ('cpu', 'cuda:99')",
            r"act_devices=\('cpu', 'cuda:99'\): device='cuda:99' is not there, torch sees \d CUDA devices",
        ),
        ("VectorRunner.act_devices = 'cpu'", r"act_devices must be devices such as .*, or None, got 'cpu'"),
        ("VectorRunner.act_sync_period = 2", r"act_sync_period must be 1 where act_devices=None, got 2"),
        ("VectorRunner.act_sync_period = 0", r"VectorRunner.act_sync_period must be >= 1 update, got 0"),
        ("VectorRunner.double_buffered = 1", r"double_buffered must be True or False, got 1"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(tmp_path: Path, binding: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_vector(tmp_path, binding)


def test_a_vector_of_other_environments_is_refused(tmp_path: Path) -> None:
    vector = "VectorRunner.create_vector_fn = @create_gym_vector"
    runner = make_vector(tmp_path, vector, "create_gym_environment.environment_id = 'Acrobot-v1'")
    with pytest.raises(ValueError, match="must make environments with the observation space of Runner"):
        runner.resume()
    assert not list(tmp_path.iterdir())


def test_an_order_of_encounters_is_refused(tmp_path: Path) -> None:
    load_gin("configs/dqn/cartpole.gin", bindings=SMALL)
    with gin.unlock_config():
        gin.bind_parameter("Runner.create_environment_fn", Duels)
    with pytest.raises(ValueError, match=r"must not be 'vector' where an environment goes from"):
        create_runner(tmp_path, "vector")


def test_numbered_episodes_are_functions_of_their_number() -> None:
    def first(seed: int) -> Any:
        return gym.make("CartPole-v1").reset(seed=seed)[0]

    env = NumberedEpisodes(gym.make("CartPole-v1"), seed=7, phase=Phase.EVAL, num_envs=4, max_frames=3)
    np.testing.assert_array_equal(env.reset(seed=4 * 5 + 2)[0], first(environment_seed(7, Phase.EVAL, 5, 2)))
    steps = [env.step(0)[2:4] for _ in range(3)]
    assert steps == [(False, False), (False, False), (False, True)]
    np.testing.assert_array_equal(env.reset()[0], first(environment_seed(7, Phase.EVAL, 6, 2)))
    of_episode = [environment_seed(7, Phase.EVAL, 5, *env_id) for env_id in ((), (0,), (1,))]
    assert of_episode[0] == of_episode[1] != of_episode[2]
