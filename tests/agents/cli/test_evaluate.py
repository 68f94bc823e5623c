"""`train.py evaluate`: scores, videos, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import cv2
import gymnasium as gym
import pytest

from async_wrappers.agents.experiment.metrics import read_evaluations, read_iterations
from async_wrappers.agents.trained.agent_file import shipped_agents
from tests.worlds.command_line import bound, call, place, refused
from tests.worlds.lives_env import LivesEnv

__all__ = ["call", "place"]


def test_an_evaluation_with_videos_gives_the_same_scores_as_without(place: Path, call: Any) -> None:
    pytest.importorskip("moviepy")
    bindings = ("create_gym_environment.environment_id = 'async_wrappers/FallingBlocks-v0'",)
    bindings += ("Runner.num_iterations = 1", "Runner.report_episodes = 0", "Runner.evaluation_steps = 0")
    words = bound(*bindings)
    assert call("--base_dir", "run", "--gin_files", "mine.gin", *words).code == 0
    told = call("evaluate", "--base_dir", "run", "--trust", "--episodes", "2")
    facts = json.loads((place / "run" / "evaluation.json").read_text())
    assert {"mean", "median", "iqm", "iqm_interval", "interval"} <= set(facts)
    assert re.search(r"median .*, interquartile mean \S+ \(95 % interval \S+ to \S+\); written to", told.out)
    again = call("evaluate", "--base_dir", "run", "--trust", "--episodes", "2", "--video")
    assert again.out == told.out.rstrip("\n") + ", videos to run/videos\n"
    assert json.loads((place / "run" / "evaluation.json").read_text()) == facts
    videos = sorted(path.name for path in (place / "run" / "videos").iterdir())
    assert videos == ["evaluation-episode-0.mp4", "evaluation-episode-1.mp4"]
    assert "--render and --video" in refused(call("evaluate", "--base_dir", "run", "--trust", "--render", "--video"))


def test_an_agent_that_ships_is_evaluated_by_its_name(place: Path, call: Any) -> None:
    evaluate = ("evaluate", "--agent", "cartpole", "--episodes", "1")
    told = call(*evaluate)
    introduction, score = told.out.splitlines()
    assert (told.code, told.err) == (0, "")
    assert re.fullmatch(
        r"cartpole: DQNAgent, \S+ weights, trained on CartPole-v1 with no delay for \S+ frames; mean return \S+ "
        r"\(95 % interval \S+ to \S+, \d+ episodes\), random play \S+",
        introduction,
    )
    assert re.fullmatch(r"1 episode: return \S+; written to results/trained/cartpole/evaluation.json", score)
    written = json.loads((place / "results" / "trained" / "cartpole" / "evaluation.json").read_text())
    delayed = call(*evaluate, "--gin_bindings", "RealtimeDelay.delay = 30")
    assert delayed.code == 0
    there = json.loads((place / "results" / "trained" / "cartpole" / "evaluation.json").read_text())
    assert there["mean"] < written["mean"]


def test_an_agent_of_minatar_is_recorded_in_the_working_directory(place: Path, call: Any) -> None:
    pytest.importorskip("minatar")
    pytest.importorskip("moviepy")
    words = ("--episodes", "1", "--gin_bindings", "Runner.max_steps_per_episode = 12")
    told = call("evaluate", "--agent", "minatar/breakout", "--video", *words)
    assert (told.code, told.err) == (0, "")
    folder = place / "results" / "trained" / "minatar" / "breakout"
    assert told.out.endswith("evaluation.json, videos to results/trained/minatar/breakout/videos\n")
    assert call("evaluate", "--agent", "./minatar/breakout/", *words).out.endswith("minatar/breakout/evaluation.json\n")
    assert sorted(path.name for path in folder.iterdir()) == ["evaluation.json", "videos"]
    assert [path.name for path in (folder / "videos").iterdir()] == ["evaluation-episode-0.mp4"]


def test_an_agent_plays_beside_another_way_of_the_same_game(place: Path, call: Any) -> None:
    pytest.importorskip("minatar")
    pytest.importorskip("moviepy")
    short = ("--gin_bindings", "Runner.max_steps_per_episode = 12")
    words = ("evaluate", "--agent", "minatar/breakout", "--episodes", "1", *short)
    alone = call(*words)
    both = call(*words, "--video", "--beside", "minatar/breakout")
    assert (both.code, both.err) == (0, "")
    assert both.out.startswith(alone.out.rstrip("\n"))
    path = place / "results" / "trained" / "minatar" / "breakout" / "videos" / "evaluation-episode-0.mp4"
    assert cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FRAME_WIDTH) == 960
    refusals = {
        ("--beside", "minatar/breakout"): "--beside minatar/breakout needs --video, which shows both: add it, or",
        (
            "--video",
            "--beside",
            "nobody",
        ): "--beside must be the directory of a run, or an agent as --agent takes it",
        (
            "--video",
            "--beside",
            "minatar/freeway",
        ): "--beside must be of the same environment, async_wrappers/MinAta",
    }
    for more, said in refusals.items():
        assert said in refused(call(*words, *more))


def test_an_agent_that_ships_plays_where_nothing_can_be_written(place: Path, call: Any) -> None:
    (place / "results").touch()
    words = ("evaluate", "--agent", "cartpole", "--episodes", "1", "--gin_bindings", "Runner.max_steps_per_episode = 9")
    told = call(*words)
    assert (told.code, told.err) == (0, "")
    assert told.out.endswith("not written to results/trained/cartpole/evaluation.json (Not a directory)\n")
    pytest.importorskip("moviepy")
    assert re.fullmatch(
        r"--video writes to results/trained/cartpole/videos, and results/trained\S* cannot be made \(Not a "
        r"directory\): work in another directory, or leave --video out",
        refused(call(*words, "--video")),
    )


def test_an_agent_of_a_file_is_evaluated_and_its_mistakes_are_told(place: Path, call: Any) -> None:
    pytest.importorskip("minatar")
    (place / "files").mkdir()
    shutil.copy(shipped_agents()["minatar/breakout"], place / "files" / "mine.safetensors")
    words = ("--episodes", "2", "--drawn", "--gin_bindings", "Runner.max_steps_per_episode = 9")
    told = call("evaluate", "--agent", "files/mine.safetensors", *words)
    assert (told.code, told.err) == (0, "")
    assert "2 episodes of drawn actions: " in told.out and "to results/trained/mine/evaluation.json" in told.out
    assert sorted(path.name for path in (place / "files").iterdir()) == ["mine.safetensors"]

    known = ", ".join(shipped_agents())
    assert refused(call("evaluate", "--agent", "minatar/brekout")) == (
        f"--agent must be a .safetensors file of an agent, or one that ships ({known}), got 'minatar/brekout'; did you "
        "mean 'minatar/breakout'?"
    )
    assert refused(call("evaluate", "--agent", "mine.gin")).startswith("--agent must be a .safetensors file of an ag")
    (place / "run").mkdir()
    (place / "run" / "config.gin").write_text("")
    assert refused(call("evaluate", "--agent", "run")).endswith("got a run: --base_dir run")
    assert "--agent and --base_dir exclude" in refused(call("evaluate", "--agent", "cartpole", "--base_dir", "run"))
    assert "--agent and --follow exclude" in refused(call("evaluate", "--agent", "cartpole", "--follow"))
    (place / "files" / "mine.safetensors").write_bytes(b"torn")
    assert "mine.safetensors is damaged, or no" in refused(call("evaluate", "--agent", "files/mine.safetensors"))


@pytest.mark.parametrize("agent", ["VTraceAgent", "PPOAgent"])
def test_a_policy_is_evaluated_by_drawn_actions_where_that_is_asked_for(place: Path, call: Any, agent: str) -> None:
    config = {"VTraceAgent": "configs/vtrace/cartpole.gin", "PPOAgent": "configs/ppo/pendulum.gin"}[agent]
    bindings = ("Runner.num_iterations = 1", "Runner.training_steps = 50", "Runner.report_episodes = 0")
    bindings += ("Runner.evaluation_steps = 0", "Runner.evaluation_episodes = 0", "Runner.max_steps_per_episode = 50")
    words = bound(*bindings)
    assert call("--base_dir", "run", "--gin_files", config, *words).code == 0

    def evaluated(*more: str) -> tuple[str, dict[str, Any]]:
        told = call("evaluate", "--base_dir", "run", "--episodes", "2", *more).out
        return told, json.loads((place / "run" / "evaluation.json").read_text())

    likeliest, drawn, by_gin = (
        evaluated(),
        evaluated("--drawn"),
        evaluated("--gin_bindings", f"{agent}.drawn_evaluation = True"),
    )
    assert likeliest[1]["returns"] != drawn[1]["returns"] == by_gin[1]["returns"]
    assert drawn == evaluated("--drawn")  # of the run's seed
    assert likeliest[0].startswith("2 episodes: ") and drawn[0].startswith("2 episodes of drawn actions: ")
    assert "actions" not in likeliest[1] and drawn[1]["actions"] == "drawn"
    assert likeliest[1]["different"] == drawn[1]["different"] == 2


def test_drawn_actions_need_a_policy_to_draw_from(place: Path, call: Any) -> None:
    words = bound("Runner.num_iterations = 1", "Runner.report_episodes = 0")
    assert call("--base_dir", "run", "--gin_files", "mine.gin", *words).code == 0
    message = refused(call("evaluate", "--base_dir", "run", "--trust", "--drawn"))
    assert "--drawn needs an agent whose evaluation may draw, such as VTraceAgent or PPOAgent, got DQNAgent" in message


def test_equal_episodes_are_told(place: Path, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = ("Runner.num_iterations = 1", "Runner.report_episodes = 0")
    bindings += ("create_gym_environment.environment_id = 'Same-v0'", "RealtimeDelay.default_action = 0")
    words = bound(*bindings)
    monkeypatch.setitem(gym.registry, "Same-v0", gym.envs.registration.EnvSpec("Same-v0", entry_point=LivesEnv))
    assert call("--base_dir", "run", "--gin_files", "mine.gin", *words).code == 0
    told = call(
        "evaluate", "--base_dir", "run", "--trust", "--episodes", "3", "--gin_bindings", "DQNAgent.epsilon_eval = 0.0"
    )
    assert told.out.splitlines()[-1].startswith("3 episodes, 1 different: the others repeat it")
    assert json.loads((place / "run" / "evaluation.json").read_text())["different"] == 1


def test_a_run_is_followed_until_it_ends(call: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(iterations: int) -> None:
        (place / "run" / "lock").write_text("")
        words = ("--gin_files", "mine.gin", "--gin_bindings", f"Runner.num_iterations = {iterations}")
        assert call("--base_dir", "run", *words).code == 0

    def go_on() -> None:
        (place / "run" / "lock").write_text(f"{os.getpid()} {socket.gethostname()}\n")

    def lines() -> list[dict[str, Any]]:
        return read_evaluations(place / "run")

    rests: list[list[int]] = []

    def rest(seconds: float) -> None:
        rests.append([line["iteration"] for line in lines()])
        train(3)  # ends the run, too

    (place / "run").mkdir()
    train(1)
    go_on()
    monkeypatch.setattr("async_wrappers.agents.cli.evaluate_command.time.sleep", rest)
    follow = ("evaluate", "--base_dir", "run", "--trust", "--episodes", "3", "--follow")
    told = call(*follow)
    assert (told.code, rests) == (0, [[0]])
    assert [line["iteration"] for line in lines()] == [0, 2]
    assert [len(line["returns"]) for line in lines()] == [3, 3]
    assert [line["training_frames"] for line in lines()] == [line["frames"] for line in read_iterations(place / "run")][
        ::2
    ]
    assert re.match(r"iteration 2, \d+ training frames: 3 episodes: mean return", told.out)
    assert call("evaluate", "--base_dir", "run", "--trust", "--episodes", "3").code == 0
    assert json.loads((place / "run" / "evaluation.json").read_text())["returns"] == lines()[-1]["returns"]
    assert call(*follow).out == ""
    assert "--follow and --video exclude each other" in refused(call(*follow, "--video"))


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["evaluate", "--base_dir", "run", "--trust", "--render"], "record the episodes with --video"),
        (["record", "--gin_files", "mine.gin", "--dataset", "shown"], "name a script with --player"),
    ],
)
def test_a_window_is_refused_where_there_is_no_display(
    call: Any, place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], remedy: str
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert call("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1").code == 0
    message = refused(call(*words))
    assert "opens a window, and this machine has no display (neither DISPLAY nor" in message
    assert remedy in message
    monkeypatch.setenv("DISPLAY", ":0")
    # the next thing that is wrong with an environment that cannot be seen
    assert "render_mode of 'Mine-v0' must be None" in refused(call(*words))


def test_two_where_there_is_nothing_to_evaluate(call: Any, place: Path) -> None:
    assert call("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1").code == 0
    for path in (place / "run" / "checkpoints").glob("ckpt.*"):
        path.unlink()
    assert "holds no good checkpoint" in refused(call("evaluate", "--base_dir", "run", "--trust"))
    before = {path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()}
    message = refused(call("--base_dir", "run", "--trust", "--gin_bindings", "Runner.num_iterations = 2"))
    assert "holds 1 checkpoint of which none loads (checkpoint 0: " in message
    assert "restore the files, or choose another --base_dir" in message
    assert {path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("words", [[], ["--base_dir", "nowhere"]])
def test_a_directory_without_a_run_is_refused(call: Any, place: Path, words: list[str]) -> None:
    before = sorted(place.iterdir())
    assert "evaluate needs --base_dir with a run in it" in refused(call("evaluate", *words))
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize("words", [["train"], ["evaluate"]])
def test_an_empty_configuration_is_refused_by_its_name(call: Any, place: Path, words: list[str]) -> None:
    (place / "run").mkdir(exist_ok=True)
    (place / "run" / "config.gin").write_text("")
    assert refused(call(*words, "--base_dir", "run")) == (
        "run/config.gin does not bind Runner.create_environment_fn, and nothing runs without it: bind it"
    )
