"""`train.py export`: the file, the check, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from async_wrappers.onnx_policy import OnnxPolicy
from tests.worlds.command_line import call, place, refused

__all__ = ["call", "place"]

QUICK = ("--gin_bindings", "Runner.num_iterations = 1", "--gin_bindings", "Runner.report_episodes = 0")


def test_a_trained_run_is_written_as_a_file_that_acts_alike(place: Path, call: Any) -> None:
    assert call("--base_dir", "run", "--gin_files", "mine.gin", *QUICK).code == 0
    words = ("export", "--base_dir", "run", "--trust", "--observations", "20")
    told = call(*words, "--output", "there/agent.onnx")
    assert (told.code, told.err) == (0, "")
    assert re.fullmatch(
        r"written to there/agent\.onnx: the same actions as the agent's on 20 random and 20 real observations(, \d of "
        r"them ties)?, the largest difference of a value is \d\.\de-\d\d\n",
        told.out,
    )
    assert OnnxPolicy(place / "there" / "agent.onnx").facts["agent"] == "dqn"
    assert [path.name for path in (place / "there").iterdir()] == ["agent.onnx"]

    assert refused(call(*words)).startswith("export needs --output with the file to write")
    assert refused(call(*words, "--output", "agent")) == "--output must be a file that ends in .onnx, got 'agent'"
    assert refused(call("export", "--base_dir", "no", "--output", "a.onnx")).startswith("export needs --base_dir with")
    random = ("--gin_bindings", "create_agent.agent_name = 'random'")
    assert call("--base_dir", "other", "--gin_files", "mine.gin", "--allow_unread", *QUICK, *random).code == 0
    sentence = refused(call("export", "--base_dir", "other", "--trust", "--output", "a.onnx"))
    assert sentence == "an agent that learns can be exported, got RandomAgent in other"
