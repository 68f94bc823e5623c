"""`train.py export`: the file, the check, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.trained.agent_file import read_about
from async_wrappers.onnx_policy import OnnxPolicy
from tests.worlds.command_line import bound, call, place, refused

__all__ = ["call", "place"]

QUICK = bound("Runner.num_iterations = 1", "Runner.report_episodes = 0")


def test_a_trained_run_is_written_as_a_file_that_acts_alike(place: Path, call: Any) -> None:
    assert call("--base_dir", "run", "--gin_files", "mine.gin", *QUICK).code == 0
    words = ("export", "--base_dir", "run", "--trust", "--observations", "20")
    told = call(*words, "--output", "there/agent.onnx")
    assert (told.code, told.err) == (0, "")
    assert re.fullmatch(
        r"written to there/agent\.onnx: the same actions as the agent's on 20 random and 20 real observations(, \d of "
        r"them ties)?, the largest difference of a value is \d\.\de[-+]\d\d\n",
        told.out,
    )
    assert OnnxPolicy(place / "there" / "agent.onnx").facts["agent"] == "dqn"
    assert [path.name for path in (place / "there").iterdir()] == ["agent.onnx"]

    assert refused(call(*words)).startswith("export needs --output with the file to write")
    message = "--output must be a file that ends in .onnx or .safetensors, got 'agent'"
    assert refused(call(*words, "--output", "agent")) == message
    assert refused(call("export", "--base_dir", "no", "--output", "a.onnx")).startswith("export needs --base_dir with")
    random = ("--gin_bindings", "create_agent.agent_name = 'random'")
    assert call("--base_dir", "other", "--gin_files", "mine.gin", "--allow_unread", *QUICK, *random).code == 0
    sentence = refused(call("export", "--base_dir", "other", "--trust", "--output", "a.onnx"))
    assert sentence == "an agent that learns can be exported, got RandomAgent in other"


def test_a_trained_run_is_written_as_a_file_that_others_play(
    place: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = ("--base_dir", "run", "--gin_files", "mine.gin", *QUICK)
    monkeypatch.setattr(sys, "argv", ["/any/train.py", *begun])
    assert call(*begun).code == 0
    words = ("export", "--base_dir", "run", "--trust", "--episodes", "3")
    told = call(*words, "--output", "there/mine.safetensors", "--licence", "CC-BY-4.0")
    assert (told.code, told.err) == (0, "")
    assert re.fullmatch(
        r"written to there/mine\.safetensors \(\d+ KB\): the same actions as the agent's in all 3 episodes; mean "
        r"return \S+ \(95 % interval \S+ to \S+, 3 episodes\), random play \S+; trained by train.py --gin_files m.*\n",
        told.out,
    )
    about = read_about(place / "there" / "mine.safetensors")
    assert about["licence"] == "CC-BY-4.0"
    assert about["command"] == shlex.join(("train.py", "--gin_files", "mine.gin", *QUICK))

    played = ("evaluate", "--episodes", "3", "--trust")
    assert call(*played, "--base_dir", "run").code == call(*played, "--agent", "there/mine.safetensors").code == 0
    facts = [place / "run", place / "results" / "trained" / "mine"]
    run, file = (json.loads((folder / "evaluation.json").read_text()) for folder in facts)
    assert run == file and about["score"]["mean"] == file["mean"]

    told = call(*words, "--output", "there/mine.safetensors", "--command", "by hand")
    about = read_about(place / "there" / "mine.safetensors")
    assert (about["licence"], about["command"]) == ("none stated", "by hand")
    assert "--observations must be left out" in refused(
        call(*words, "--output", "a.safetensors", "--observations", "9")
    )
    assert "--episodes must be left out" in refused(call(*words, "--output", "a.onnx"))
    random = ("--gin_bindings", "create_agent.agent_name = 'random'")
    assert call("--base_dir", "other", "--gin_files", "mine.gin", "--allow_unread", *QUICK, *random).code == 0
    sentence = refused(call("export", "--base_dir", "other", "--trust", "--output", "a.safetensors"))
    assert sentence == "an agent that learns can be exported, got RandomAgent in other"
    assert not (place / "a.safetensors").exists()
    for name in ("a.safetensors", "a.onnx"):
        sentence = refused(call("export", "--base_dir", "other", "--trust", "--output", f"mine.gin/there/{name}"))
        assert sentence == (
            f"--output must be a file in a directory, got 'mine.gin/there/{name}': {place / 'mine.gin'} is none"
        )
