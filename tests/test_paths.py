"""Paths as users give them: with a home directory in them, and of any bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.agents.demonstrations.dataset import read_demonstrations
from async_wrappers.agents.load import load_agent
from async_wrappers.agents.sweep.figures import write_figure
from async_wrappers.agents.sweep.sweeping import sweep
from async_wrappers.agents.trained.agent_file import read_agent, shipped_agents
from async_wrappers.analysis.scaling import read_networks
from async_wrappers.files import path_of
from async_wrappers.latency import Trace
from async_wrappers.live.recording.reader import load_recording
from async_wrappers.live.remote.address import Address
from async_wrappers.onnx_policy import OnnxPolicy
from tests.worlds.forks import fork_trials
from tests.worlds.sweeps import play

__all__ = ["fork_trials"]

USES: dict[str, Callable[[str], object]] = {
    "latencies": Trace([0.1, 0.2]).to_json,
    "a recording": load_recording,
    "an agent": load_agent,
    "demonstrations": lambda path: list(read_demonstrations(path)),
    "a socket": lambda path: Address.of("bind", f"unix://{path}").path,
    "networks": read_networks,
    "a policy": OnnxPolicy,
    "a sweep": lambda path: sweep(play, {"delay": [1]}, 1, path, finished=[f"{path}/results.csv"]),
}


@pytest.mark.parametrize("use", USES)
def test_a_tilde_at_the_beginning_is_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    try:
        told = str(USES[use]("~/x"))
    except (ValueError, OSError) as error:
        told = str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert str(home) in told or any(home.iterdir())
    assert path_of("~/x") == home / "x" and path_of("./~") == Path("~")


NAME = os.fsdecode(b"r\xe9sum\xe9 $_")


@pytest.mark.usefixtures("fork_trials")
def test_a_sweep_is_played_in_a_directory_whose_name_is_no_utf_8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = sweep(play, {"delay": [1], "place": [NAME]}, 1, tmp_path / NAME)
    assert table.is_file() and "1 of 1 done" in capsys.readouterr().out
    assert json.loads((tmp_path / NAME / "trials" / "0000" / "result.json").read_text())["metrics"]


def test_ray_which_takes_utf_8_alone_refuses_another_name_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^base_dir must be a path in UTF-8 with Ray, got .*r\\udce9sum"):
        sweep(play, {"delay": [1]}, 1, tmp_path / NAME, engine="ray")
    assert not (tmp_path / NAME).exists()


def test_a_figure_shows_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    figure = Figure()
    figure.subplots().set_title(NAME)
    png, svg = write_figure(figure, tmp_path / NAME)
    assert png.is_file() and "udce9sum" in svg.read_text(encoding="utf-8")


def test_an_agent_is_read_from_a_file_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    shipped = shipped_agents()["cartpole"]
    copy = tmp_path / f"{NAME}.safetensors"
    copy.write_bytes(shipped.read_bytes())
    assert read_agent(copy).config == read_agent(shipped).config
