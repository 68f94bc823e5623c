"""The names of the paper's simulations: how they are written, where they are found, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gin
import pytest

import agents.configurables
import async_wrappers.configurables
from agents.experiment.config import ConfigError, code_named, find_gin_files, load_config
from agents.experiment.paper_simulations import DELAYS, SIMULATIONS

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def an_empty_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    gin.clear_config()
    yield
    gin.clear_config()


def schedule(*gin_files: str, bindings: tuple[str, ...] = ()) -> tuple[int, int]:
    """The delay and the no-ops that gin files bind."""
    names = (*agents.configurables.CONFIGURABLES, *async_wrappers.configurables.CONFIGURABLES)
    load_config(gin_files, bindings, names, search_paths=[ROOT])
    return gin.query_parameter("RealtimeDelay.delay"), gin.query_parameter("RealtimeDelay.noops")


@pytest.mark.parametrize("delay", DELAYS)
def test_a_name_binds_its_delay_and_its_interaction(delay: int) -> None:
    for form in ("{}", "{}.gin", "configs/paper/{}", "configs/paper/{}.gin"):
        assert schedule(form.format(f"asynchronous_{delay}")) == (delay, 0)
        assert schedule(form.format(f"sequential_{delay}")) == (delay, delay)
        assert gin.query_parameter("Runner.training_episodes") == 100


def test_bindings_and_later_files_win_over_a_name() -> None:
    assert schedule("asynchronous_8", bindings=("RealtimeDelay.noops = 3",)) == (8, 3)
    assert schedule("asynchronous_8", "sequential_70") == (70, 70)
    Path("mine.gin").write_text("RealtimeDelay.delay = 5")
    assert schedule("sequential_8", "mine.gin") == (5, 8)
    assert schedule("mine.gin", "sequential_8") == (8, 8)


def test_a_gin_file_may_include_a_name() -> None:
    Path("mine.gin").write_text('include "configs/paper/sequential_29.gin"\nDQNAgent.gamma = 0.5')
    assert schedule("mine.gin") == (29, 29)
    assert gin.query_parameter("DQNAgent.gamma") == 0.5
    assert code_named(["mine.gin", "asynchronous_8"], [], search_paths=[ROOT]) == (set(), [])


def test_a_file_of_that_name_wins() -> None:
    path = Path("configs/paper/asynchronous_8.gin")
    path.parent.mkdir(parents=True)
    path.write_text("RealtimeDelay.delay = 2\nRealtimeDelay.noops = 1")
    assert schedule(str(path)) == (2, 1)


@pytest.mark.parametrize("name", ["asynchronous_9", "configs/paper/sequential_0.gin", "sequential_08000"])
def test_a_delay_that_the_table_does_not_have_is_refused_with_a_remedy(name: str) -> None:
    delay = int(re.findall(r"\d+", name)[0])
    with pytest.raises(ConfigError) as error:
        schedule(name)
    message = str(error.value)
    assert message.startswith(
        f"--gin_files {name}: the paper's table has no delay of {delay} frames, but 1, 3, 5, 8, 29,"
    )
    assert f"configs/paper/atari.gin with --gin_bindings 'RealtimeDelay.delay = {delay}'" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["asynchronous_", "asynchronous_x", "synchronous_8", "other/asynchronous_8.gin"])
def test_another_name_is_no_such_file(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--gin_files {name}: no such file")):
        schedule(name)


def test_names_are_listed_where_the_simulations_are() -> None:
    assert {*SIMULATIONS} <= {*find_gin_files([ROOT])}
    assert len(SIMULATIONS) == 20
    assert find_gin_files([Path()]) == []
