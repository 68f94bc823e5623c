"""The examples in docs/examples run, in a few hundred steps each."""

from __future__ import annotations

import json
import runpy
import sys
from collections import deque
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gin
import numpy as np
import pytest

pytest.importorskip("torch")

from async_wrappers import AsyncRunner, Latencies
from tests.worlds.forks import fork_trials

__all__ = ["fork_trials"]

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name), run_name="example")


def test_a_run_is_loaded_in_a_notebook_as_the_docs_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = {
        "create_gym_environment.environment_id": "'async_wrappers/FallingBlocks-v0'",
        "RealtimeDelay.default_action": "'repeat'",
        "Runner.num_iterations": "1",
        "Runner.training_steps": "30",
        "Runner.evaluation_steps": "0",
        "Runner.max_steps_per_episode": "30",
        "Runner.report_episodes": "0",
        "create_gym_environment.environment_kwargs": "{'max_frames': 40}",
    }
    words = [word for name, value in quick.items() for word in ("--gin_bindings", f"{name} = {value}")]
    words += ["--base_dir", "results/run", "--gin_files", "configs/dqn/cartpole.gin"]
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(ROOT / "train.py"), run_name="train")["main"](["train.py", *words]) == 0
    gin.clear_config()
    capsys.readouterr()
    page = (ROOT / "docs" / "how_to" / "trained_agents.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    code = next(block for block in blocks if 'load_agent("results/run")' in block)
    assert len(code.splitlines()) == 5
    names: dict[str, Any] = {}
    exec(code, names)
    assert [episode.frames for episode in names["episodes"]] == [40] * 10
    assert capsys.readouterr().out == f"{[episode.score for episode in names['episodes']]}\n"


def test_stable_baselines3_trains_and_is_evaluated_with_and_without_delay(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3")
    returns = example("sb3_dqn.py")["main"](total_timesteps=200, episodes=2)
    assert set(returns) == {(0, 0), (0, 4), (4, 4)}
    assert all(5 <= score <= 500 for score in returns.values())
    printed = capsys.readouterr().out.splitlines()
    assert [line.rsplit(":")[0] for line in printed] == [
        f"trained under delay {trained}, evaluated under delay {played}" for trained, played in returns
    ]


def test_stable_baselines3_learns_chunks_through_the_action_space_alone(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3")
    returns = example("sb3_chunk.py")["main"](total_timesteps=128, episodes=2)
    assert set(returns) == {"repeat", "chunk"}
    assert all(5 <= score <= 500 for score in returns.values())
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.usefixtures("fork_trials")
def test_stable_baselines3_is_swept_and_the_result_can_be_plotted(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    from async_wrappers.agents.sweep.plan import read_plan
    from async_wrappers.agents.sweep.results import read_rows
    from async_wrappers.agents.sweep.view import make_view

    words = f"{tmp_path} --delays 2 0 --seeds 1 --steps 200 --episodes 2"
    example("sb3_sweep.py")["main"](words.split())
    (panel,) = make_view(read_plan(tmp_path), read_rows(tmp_path)).panels
    scores = {name: [score.x for score in curve] for name, curve in panel.curves.items()}
    assert scores == {"asynchronous": [0, 2], "sequential": [0, 2]}
    assert all(5 <= score.value <= 500 for curve in panel.curves.values() for score in curve)
    assert (tmp_path / "trials" / "0000" / "model.zip").is_file()
    from async_wrappers.agents.sweep.runs import find_runs

    lines = [run.lines for run in find_runs([tmp_path])]
    played = [[line["frames"] for line in each] for each in lines]
    assert played == [[40, 80, 120, 160, 200], [120, 240, 360, 480, 600], [40, 80, 120, 160, 200]]
    assert {run.facts["environment"] for run in find_runs([tmp_path])} == {"CartPole-v1"}

    with pytest.raises(ValueError, match=r"holds a sweep with another grid \(steps = 200 there, 300 here\)"):
        example("sb3_sweep.py")["main"](f"{tmp_path} --delays 2 0 --seeds 1 --steps 300 --episodes 2".split())


def carts_module(place: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a module `carts` into the working directory."""
    head = "import gymnasium as gym\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
    (place / "carts.py").write_text(head + text)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "carts", raising=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--env Crat-v0", "--env Crat-v0, --delays 1: Environment `Crat` doesn't exist"),
        ("--env no_such:Cart-v0", "--env no_such:Cart-v0, --delays 1: No module named 'no_such'"),
        ("--delays -4", "--env CartPole-v1, --delays -4: delay must be "),
        ("--seeds 0", "--seeds must be >= 1, got 0"),
        ("--steps 0", "--steps must be >= 5, got 0"),
        ("--default-action none", "--env CartPole-v1, --delays 1: default_action must be "),
        (
            "--env carts:Many-v0",
            "--env carts:Many-v0 has actions of MultiDiscrete([2 2]), and DQN and SAC take Discrete or Box",
        ),
    ],
)
def test_the_sweep_of_another_trainer_refuses_in_one_sentence(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")
    carts_module(
        tmp_path,
        monkeypatch,
        "class Many(CartPoleEnv):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n        self.action_space = gym.spaces.MultiDiscrete([2, 2])\n"
        "gym.register('Many-v0', Many)\n",
    )
    with pytest.raises(SystemExit):
        example("sb3_sweep.py")["main"]([str(tmp_path / "sb3"), *words.split()])
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("fork_trials")
def test_the_sweep_of_another_trainer_takes_a_dict_and_a_module_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carts_module(
        tmp_path,
        monkeypatch,
        "class Cart(gym.ObservationWrapper):\n"
        "    def __init__(self):\n"
        "        super().__init__(CartPoleEnv())\n"
        "        self.observation_space = gym.spaces.Dict(cart=self.env.observation_space)\n"
        "    def observation(self, observation):\n        return {'cart': observation}\n"
        "gym.register('DictCart-v0', Cart, max_episode_steps=50)\n",
    )
    words = "sb3 --env carts:DictCart-v0 --delays 2 --seeds 1 --steps 50 --episodes 1"
    example("sb3_sweep.py")["main"](words.split())
    assert (tmp_path / "sb3" / "trials" / "0000" / "result.json").is_file()


@pytest.mark.usefixtures("fork_trials")
def test_the_sweep_of_another_trainer_plays_a_box_in_one_way_alone(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    from async_wrappers.agents.sweep.results import read_rows

    words = "--env Pendulum-v1 --delays 2 --ways sequential --default-action noop --seeds 1 --steps 20 --episodes 1"
    example("sb3_sweep.py")["main"]([str(tmp_path), *words.split()])
    rows = read_rows(tmp_path)
    assert {(row["noops"], row["default_action"]) for row in rows} == {(2, "noop")}
    assert next(row["value"] for row in rows if row["metric"] == "score") < 0


@pytest.mark.usefixtures("fork_trials")
def test_the_sweep_of_another_trainer_compares_a_policy_that_is_told_nothing(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    from async_wrappers.agents.sweep.plan import read_plan
    from async_wrappers.agents.sweep.results import read_rows
    from async_wrappers.agents.sweep.view import make_view

    module = example("sb3_sweep.py")
    words = "--env Pendulum-v1 --delays 2 --ways late told --seeds 1 --steps 20 --episodes 1 --jobs 2"
    module["main"]([str(tmp_path), *words.split()])
    (panel,) = make_view(read_plan(tmp_path), read_rows(tmp_path)).panels
    assert set(panel.curves) == {"asynchronous, told False", "asynchronous, told True"}
    shapes = [module["make_env"]("Pendulum-v1", 2, 0, "repeat", told).observation_space.shape for told in (False, True)]
    assert shapes == [(3,), (3 + 2 + 2 * 2,)]  # of an action on its way also whether there is one


@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (4, 4), (3, 0)])
def test_the_single_file_dqn_learns_from_what_is_known(
    delay: int, noops: int, capsys: pytest.CaptureFixture[str]
) -> None:
    score = example("cleanrl_style.py")["main"](delay, noops, total_timesteps=240, learning_starts=100)
    assert 5 <= score <= 500
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_the_single_file_dqn_holds_transitions_back_until_they_are_known() -> None:
    release = example("cleanrl_style.py")["release"]
    pending, replay = deque([(5, "a"), (6, "b"), (10, "c")]), deque()
    release(pending, replay, 4)
    assert list(replay) == []
    release(pending, replay, 6)
    assert list(replay) == ["a", "b"]
    assert list(pending) == [(10, "c")]


def test_the_single_file_dqn_bootstraps_on_an_episode_that_was_cut() -> None:
    import torch

    module = example("cleanrl_style.py")
    observation = np.ones(2, np.float32)
    step = module["Transition"](observation, 0, 1.0, observation, False)
    network, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    for layer, value in ((network, 0.0), (target, 1.0)):  # Q is 0 everywhere, the target's 3
        torch.nn.init.constant_(layer.weight, value)
        torch.nn.init.constant_(layer.bias, value)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    update = module["update"]
    assert float(update(network, target, optimizer, [step])) == pytest.approx(1 + 0.99 * 3 - 0.5)
    assert float(update(network, target, optimizer, [step._replace(terminated=True)])) == pytest.approx(0.5)


def test_the_player_of_falling_blocks_plays_with_and_without_delay(capsys: pytest.CaptureFixture[str]) -> None:
    infos = example("falling_blocks.py")["main"]([0, 2], level=9, frames=240, seed=0)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["delay 0 frames", "delay 2 frames"]
    assert all(line.endswith("in 240 frames") for line in printed)
    assert infos[0]["score"] > infos[2]["score"]


def test_the_player_of_falling_blocks_clears_lines_without_delay() -> None:
    (info,) = example("falling_blocks.py")["main"]([0], level=9, frames=1_000, seed=0).values()
    assert info["lines"] >= 1


def finished_run(directory: Path, returns: list[float], trained: float) -> None:
    (directory / "metrics").mkdir(parents=True)
    lines = [
        {
            "iteration": number,
            "frames": 100 * (number + 1),
            "train_average_return": value,
            "train_episode_lengths": [60, 40],
            "train_average_steps_per_second": 10.0,
        }
        for number, value in enumerate(returns)
    ]
    (directory / "metrics" / "iterations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = [{"agent": "random", "mean": 5.0}, {"agent": "trained", "mean": trained}]
    (directory / "report.json").write_text(json.dumps(report))


def test_runs_side_by_side_give_a_table_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, score in ((0, 20.0), (1, 30.0)):
        finished_run(tmp_path / "dqn" / str(seed), [10.0, score], score)
    finished_run(tmp_path / "rainbow" / "0", [10.0, 40.0, 50.0], 50.0)
    figure = tmp_path / "figure.png"
    example("agents_side_by_side.py")["main"](tmp_path, figure)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| dqn | 20.0 | 30.0 | 25.0 | [20.0, 30.0] | 0.3 |",
        "| rainbow | 50.0 |  | 50.0 | [50.0, 50.0] | 0.5 |",
        "| random |  |  | 5.0 |  |  |",
    ]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_directory_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no finished run in AGENT/SEED"):
        example("agents_side_by_side.py")["main"](tmp_path)


def test_the_arm_of_the_robot_page_comes_to_rest_when_its_policys_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco")
    for name in ("arm", "policy", "robot"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(EXAMPLES / "robot"))
    robot = import_module("robot")
    log = tmp_path / "log.npz"
    with pytest.warns(RuntimeWarning, match="the policy server at tcp://.* is not reached"):
        report = robot.play(seconds=5, kill_at=2.5, away=60, log=log)
    robot.draw_ages(report, log, 2.5, tmp_path / "ages.png")
    assert (tmp_path / "ages.png").stat().st_size > 10_000
    assert capsys.readouterr().out.count("the server was killed\n") == 1
    assert report.frames["fresh"] > 10
    assert report.lost["lost"] >= 1
    speeds = np.abs(np.load(log)["speeds"])
    assert speeds.max() > 1
    assert speeds[-1].max() < 0.05
    for name in ("arm", "policy", "robot"):
        monkeypatch.delitem(sys.modules, name)


def test_the_robot_takes_a_latency_of_ones_own_and_warns_of_a_delay_that_was_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco")
    for name in ("arm", "policy", "robot"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("ARM_LATENCY_MS", "60")  # is set by `main`, and must not outlive the test
    monkeypatch.syspath_prepend(str(EXAMPLES / "robot"))
    robot, policy = import_module("robot"), import_module("policy")
    asked: list[Any] = []

    def play(seconds: float, kill_at: float | None, *given: Any, **named: Any) -> Any:
        asked.append({**named, "kill_at": kill_at})
        frames = {"total": 590, "missed_deadlines": late, "skipped": 0}
        return SimpleNamespace(frames=frames, latencies=lambda: Latencies([0.06]))

    late = 0
    monkeypatch.setattr(robot, "play", play)
    for name in ("draw_ages", "draw_arm"):
        monkeypatch.setattr(robot, name, lambda *given: None)
    output = ["--output", str(tmp_path)]
    monkeypatch.setenv("ARM_CV", "0")
    flags = "--latency-ms 90 --cv 0.1 --fps 100 --workers 6 --playout 6 --hold 2 --ramp 9"
    robot.main([*output, *flags.split()])
    assert asked == [{"workers": 6, "playout": 6, "fps": 100, "hold": 2, "ramp": 9, "kill_at": 4.0}]
    slow = policy.make_policy()
    assert slow.latency_ms == 90
    drawn = [slow.latencies.draw() / 1e6 for _ in range(200)]
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(0.1, abs=0.02)
    warning = "warning: the policy was trained for a delay of 4 frames and plays under 6: train it with --gin_bindings"
    assert capsys.readouterr().out.startswith(f"{warning} 'DELAY = 6'\n")
    robot.main([*output, "--no-kill"])
    assert asked[-1]["kill_at"] is None
    out = capsys.readouterr().out
    assert "warning" not in out and "too slow" not in out
    assert f"ages and speeds: {tmp_path / 'arm_ages.png'}\n" in out
    late = 60
    robot.main(output)
    sentence = "this machine is too slow or too busy for 50 frames a second: 60 of 590 began late and 0 were skipped"
    assert f"\n{sentence}; end other programs, or take --fps 25\n" in capsys.readouterr().out
    for wrong, refusal in (
        ("--workers 0", "--workers and --playout >= 1"),
        ("--fps 30", "--fps must be a divisor of 500"),
        ("--cv 4", "--cv must be from 0 to 3, standard deviation over mean, got 4: try --cv 0.3"),
        ("--ramp 0", "--ramp >= 1 frame"),
        ("--latncy-ms 90", "there is no flag --latncy-ms; did you mean --latency-ms?"),
    ):
        with pytest.raises(SystemExit):
            robot.main([*output, *wrong.split()])
        assert refusal in capsys.readouterr().err
    for name in ("arm", "policy", "robot"):
        monkeypatch.delitem(sys.modules, name)


def test_an_arm_that_takes_positions_plays_chunks_to_their_end_and_then_holds_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco")
    for name in ("arm", "policy", "robot"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(EXAMPLES / "robot"))
    (tmp_path / "mine.py").write_text(POSITIONS)
    monkeypatch.chdir(tmp_path)
    robot = import_module("robot")
    log = tmp_path / "log.npz"
    with pytest.warns(RuntimeWarning, match="the policy server at tcp://.* is not reached"):
        report = robot.play(1.6, 0.8, 60, log, "mine:make_policy", workers=1, chunk=10)
    assert "mine:make_policy is served at" in capsys.readouterr().out
    assert report.lost["lost"] >= 1
    rows = np.load(log)
    angles, sent = rows["angles"], rows["action"]
    np.testing.assert_allclose(sent[0], angles[0], atol=0.05)  # it is held where it was read
    assert np.abs(sent[-1] - sent[0]).min() > 0.1
    np.testing.assert_array_equal(sent[-15:], np.tile(sent[-1], (15, 1)))
    assert np.abs(rows["speeds"][-1]).max() < 0.05
    for name in ("arm", "policy", "robot"):
        monkeypatch.delitem(sys.modules, name)


POSITIONS = """
import numpy as np


def make_policy():
    def act(observation):
        angles = np.arctan2(observation[2:4], observation[:2])
        return np.clip(angles + 0.02 * np.arange(10)[:, None], -3, 3).astype(np.float32)

    return act
"""


def test_a_policy_of_chunks_is_played_by_one_worker_and_takes_no_flags_of_the_other_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco")
    for name in ("arm", "policy", "robot", "vla"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("ARM_LATENCY_MS", "60")
    monkeypatch.setenv("ARM_CV", "0")
    monkeypatch.syspath_prepend(str(EXAMPLES / "robot"))
    robot, vla = import_module("robot"), import_module("vla")
    asked: list[Any] = []

    def play(*given: Any, **named: Any) -> Any:
        asked.append(named)
        frames = {"total": 590, "missed_deadlines": 0, "skipped": 0}
        return SimpleNamespace(frames=frames, latencies=lambda: Latencies([0.06]))

    monkeypatch.setattr(robot, "play", play)
    drawn: list[Any] = []
    monkeypatch.setattr(robot, "draw_ages", lambda *given: None)
    monkeypatch.setattr(robot, "draw_arm", lambda *given: drawn.append(given[3]))
    output = ["--output", str(tmp_path)]
    robot.main([*output, "--policy", "vla:make_policy", "--chunk", "17"])
    assert asked == [{"factory": "vla:make_policy", "workers": 1, "fps": 50, "chunk": 17}]
    assert drawn == [16]
    assert "warning" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        robot.main([*output, "--policy", "vla:make_policy", "--playout", "6"])
    refusal = "--playout must be left out with --policy, whose one worker gives chunks, got 6\n"
    assert capsys.readouterr().err.endswith(refusal)
    monkeypatch.setattr(vla.time, "sleep", lambda seconds: None)
    chunk = vla.make_policy().act(import_module("arm").ArmEnv().reset(seed=0)[0], None)
    assert chunk.shape == (vla.CHUNK, 2) and np.abs(np.diff(chunk, axis=0)).max() <= vla.FASTEST / vla.FPS + 1e-6
    for name in ("arm", "policy", "robot", "vla"):
        monkeypatch.delitem(sys.modules, name)


def test_the_arm_follows_its_target_better_than_one_that_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """On simulated time, under the delay that the policy was trained with."""
    pytest.importorskip("mujoco")
    for name in ("arm", "policy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(EXAMPLES / "robot"))
    arm, policy = import_module("arm"), import_module("policy")
    trained = policy.Policy(latency_ms=0)
    returns = {}
    for name, make in {"trained": lambda: trained, "at rest": lambda: lambda o: np.zeros(2, np.float32)}.items():
        features = {"features": arm.ArmEnv.observation_space} if name == "trained" else {}
        runner = AsyncRunner(arm.ArmEnv, make, 4, arm.FPS, backend="virtual", latency=0.065, playout=4, **features)
        returns[name] = runner.run(frames=300, max_episode_frames=300).episodes[0].score
    assert returns["trained"] > returns["at rest"] / 2
    for name in ("arm", "policy"):
        monkeypatch.delitem(sys.modules, name)


def test_rsl_rl_trains_robots_that_are_late_by_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rsl_rl")
    words = f"--num_envs 8 --iterations 1 --frames 60 --seeds 2 --output {tmp_path / 'rewards.csv'}"
    rows = example("late_robots.py")["main"](words.split())
    assert [seed for seed, *_ in rows] == [0, 1]
    assert all(1 < reward < 500 for _, *rewards in rows for reward in rewards)
    assert len((tmp_path / "rewards.csv").read_text(encoding="utf-8").splitlines()) == 3
    assert capsys.readouterr().out.splitlines()[-1].startswith("gain ")
