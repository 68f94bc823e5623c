"""Files that gin files include, and modules beside them, from any working directory, and when a run goes on."""

from __future__ import annotations

from pathlib import Path

from tests.worlds.command_line import in_a_fork, iterations, place

__all__ = ["place"]

OUTER = 'include "base/middle.gin"\ninclude "configs/dqn/cartpole.gin"\ninclude "mine.gin"\nDQNAgent.gamma = 0.5\n'


def test_an_include_is_beside_its_file_and_so_is_its_code(place: Path) -> None:
    (place / "project" / "base").mkdir(parents=True)
    (place / "mine.gin").rename(place / "project" / "mine.gin")
    (place / "project" / "outer.gin").write_text(OUTER)
    (place / "project" / "base" / "middle.gin").write_text(
        'import beside_middle\ninclude "inner.gin"\nRunner.report_episodes = 0\n'
    )
    (place / "project" / "base" / "inner.gin").write_text("Runner.checkpoint_duration = 7\n")
    (place / "project" / "base" / "beside_middle.py").write_text("")
    module = next(place.glob("module_*.py"))
    module.rename(place / "project" / module.name)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "inner.gin").write_text("Runner.checkpoint_duration = 9\n")  # another one, of the working directory

    done = in_a_fork(elsewhere, "--gin_files", "../project/outer.gin", "--base_dir", "run")
    assert (done.code, done.err.count("Traceback")) == (0, 0), done.err
    saved = (elsewhere / "run" / "config.gin").read_text()
    assert "Runner.checkpoint_duration = 7\n" in saved
    assert "DQNAgent.gamma = 0.5\n" in saved
    assert f'# Imported from "{(place / "project" / "base").resolve()}": beside_middle\n' in saved
    assert f'# Imported from "{(place / "project").resolve()}": {module.stem}\n' in saved

    more = ("--base_dir", "elsewhere/run", "--gin_bindings", "Runner.num_iterations = 3")
    went_on = in_a_fork(place, *more, "--trust")
    assert (went_on.code, len(iterations(elsewhere / "run"))) == (0, 3), went_on.err


def test_a_file_that_is_nowhere_is_named_in_one_sentence(place: Path) -> None:
    (place / "project").mkdir()
    (place / "project" / "outer.gin").write_text("Runner.seed = 1\ninclude 'no_such_file.gin'\n")
    done = in_a_fork(place, "--gin_files", "project/outer.gin", "--base_dir", "run")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith(
        "train.py: --gin_files project/outer.gin (line 2): Unable to open file: no_such_file.gin."
    )


def test_files_that_include_each_other_are_refused_in_one_sentence(place: Path) -> None:
    (place / "one.gin").write_text("include 'two.gin'\n")
    (place / "two.gin").write_text("include 'one.gin'\n")
    done = in_a_fork(place, "--gin_files", "one.gin", "--base_dir", "run")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "it includes itself, or is nested too deeply" in done.err
