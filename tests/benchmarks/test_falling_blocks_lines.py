"""The students of falling blocks: what they learn from is what they will read, and a trial is played once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from async_wrappers.envs.falling_blocks.game import NO_PIECE
from async_wrappers.envs.falling_blocks.observation import Vector
from async_wrappers.envs.falling_blocks.player import Landings
from benchmarks.studies import falling_blocks_lines as lines

NOOP, A, B, LEFT, RIGHT, DOWN = range(6)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make trials that take a moment."""
    for name, number in {"TAUGHT": 1_500, "FIRST_UPDATES": 3, "ROUND_GAMES": 2, "ROUND_STEPS": 40}.items():
        monkeypatch.setattr(lines, name, number)
    for name, number in {"UPDATES": 2, "BATCH": 8, "GAMES": 2, "LONGEST": 60}.items():
        monkeypatch.setattr(lines, name, number)
    lines.record.cache_clear()
    yield
    lines.record.cache_clear()


@pytest.mark.parametrize(("name", "delay"), [("asynchronous", 0), ("asynchronous", 3), ("sequential", 3)])
def test_decisions_of_recorded_games_are_those_of_the_delayed_game(name: str, delay: int) -> None:
    interaction = lines.Interaction(name, delay)
    recording = lines.record(interaction.noops, 0)
    landing = recording.frame % (interaction.noops + 1) == interaction.noops
    given = recording._replace(kept=landing).decisions(interaction)
    effects = np.flatnonzero(landing & (recording.frame >= delay))
    assert len(given.labels) == len(given.places) == len(effects) > 100
    assert given.observations.shape[1:] == interaction.environment().observation_space.shape
    for row, effect in enumerate(effects[:50]):
        start = effect - delay
        np.testing.assert_array_equal(given.observations[row, : Landings.SIZE], recording.observations[start])
        told = given.observations[row, Landings.SIZE :].reshape(interaction.told, 7)
        assert (told.sum(axis=1) == 255).all()
        if interaction.told:
            assert told.argmax(axis=1).tolist() == recording.pressed[start:effect].tolist()
        assert (given.labels[row], given.places[row]) == lines.taught(recording.seen[start], recording.seen[effect])


@pytest.mark.parametrize(("name", "delay"), [("asynchronous", 2), ("sequential", 2)])
def test_a_recorded_decision_is_what_the_delayed_game_shows(name: str, delay: int) -> None:
    interaction = lines.Interaction(name, delay)
    env = interaction.environment()
    observation, _ = env.reset(seed=0)
    assert observation.shape == (Landings.SIZE + 7 * interaction.told,)
    for action in (LEFT, NOOP, A, NOOP):
        observation = env.step(action)[0]
    told = observation[Landings.SIZE :].reshape(interaction.told, 7)
    assert [each.argmax() for each in told] == ([A, NOOP] if interaction.told else [])


def test_unrolls_have_the_decisions_of_a_student_that_is_told_nothing_and_the_actions_before_them() -> None:
    recording, delay = lines.record(0, 0), 3
    found = recording.unrolls(delay)
    plain = recording.decisions(lines.Interaction(lines.TOLD_NOTHING, delay))
    for name in ("observations", "labels", "places"):
        np.testing.assert_array_equal(getattr(found, name)[found.kept], getattr(plain, name))
    effects = np.flatnonzero(recording.frame >= delay)
    assert len(found.row) == len(effects) and (found.row == recording.frame[effects] - delay).all()
    for row, effect in enumerate(effects[:300].tolist()):
        assert found.previous[row] == (recording.pressed[effect - 1] if found.row[row] else NOOP)
    observations, previous, labels, places, moves, learnt = found.draw(np.random.default_rng(0), 5)
    assert observations.shape[:2] == (lines.UNROLL, 5)
    assert previous.shape == labels.shape == places.shape == moves.shape == learnt.shape
    # A sequence begins with rows that only bring the core into its state, unless a game begins with it.
    assert not learnt[: lines.BURN_IN].any() and learnt[lines.BURN_IN :].any()


def test_a_core_decides_alike_step_by_step_and_in_a_sequence() -> None:
    torch.manual_seed(0)
    network, steps = lines.CoreNetwork(Landings.SIZE), 6
    shown = np.random.default_rng(0).integers(0, 256, (steps, 2, Landings.SIZE)).astype(np.uint8)
    acted = np.array([network.act(each, [4, 7]) for each in shown])
    previous = np.vstack([np.full((1, 2), NOOP), acted[:-1]])
    with torch.no_grad():
        logits, *_ = network(torch.from_numpy(shown), torch.from_numpy(previous))
    np.testing.assert_array_equal(logits.argmax(dim=-1).numpy(), acted)


def test_a_place_is_seen_from_the_frame_on_which_the_student_started() -> None:
    recording = lines.record(0, 0)
    rows = [row for row in range(200) if recording.seen[row].piece != NO_PIECE]
    for row in rows:
        seen = recording.seen[row]
        place = lines.best_place(*seen[:4])
        action, index = lines.taught(seen, seen)
        assert lines.moved(seen, seen) == lines.REACH
        assert place is not None
        assert action == lines.press(seen, drops=False)
        shown = recording.observations[row][Vector.SIZE :].reshape(-1, 5)[index]
        assert shown[4] in (0, 255)
        turn, column = divmod(index, 21)
        assert ((seen.turn + turn) % 4, seen.position % 12 + column - 10) == place
    other = next(seen for seen in recording.seen if seen.piece not in (recording.seen[0].piece, NO_PIECE))
    assert lines.taught(recording.seen[0], other) == (NOOP, lines.NO_PLACE)  # a piece that it could not see
    assert lines.moved(recording.seen[0], other) == lines.NO_PLACE
    entering = recording.seen[0]._replace(piece=NO_PIECE, preview=other.piece, held=LEFT)
    entered = entering._replace(piece=other.piece, turn=0, position=lines.ENTRY, held=NOOP)
    assert lines.taught(entering, entered) == lines.taught(entered, entered)


@pytest.mark.parametrize(
    ("held", "told", "there"),
    [
        (NOOP, [LEFT, A], (0, 9)),  # where it will be turned once and one column to the left
        (NOOP, [LEFT, NOOP, LEFT], (1, 10)),
        (NOOP, [LEFT, LEFT], (1, 9)),  # one long press
        (LEFT, [LEFT, NOOP], (1, 8)),
        (NOOP, [B, RIGHT], (2, 7)),
        (NOOP, [NOOP, DOWN], (1, 8)),
    ],
)
def test_landings_are_moved_by_the_presses_on_their_way(held: int, told: list[int], there: tuple[int, int]) -> None:
    network = lines.StudentNetwork(Landings.SIZE + 7 * len(told))
    numbers = torch.zeros(1, Landings.SIZE + 7 * len(told), dtype=torch.uint8)
    numbers[0, Vector.HELD + held] = 255
    for row, action in enumerate(told):
        numbers[0, Landings.SIZE + 7 * row + action] = 255
    aimed = torch.zeros(1, 84)
    aimed[0, 1 * 21 + 8] = 1.0  # a turn to the right, and two columns to the left
    assert network._from_there(aimed, numbers).nonzero().tolist() == [[0, there[0] * 21 + there[1]]]


def test_landings_are_moved_by_what_a_core_believes() -> None:
    recording, delay = lines.record(0, 0), 6
    network = lines.CoreNetwork(Landings.SIZE)
    told, moves, theirs = 0, set(), 4 * (2 * lines.REACH + 1)
    for effect in range(delay, len(recording.seen)):
        started, landed = recording.seen[effect - delay], recording.seen[effect]
        (_, place), move = lines.taught(started, landed), lines.moved(started, landed)
        if recording.frame[effect] < delay or place == lines.NO_PLACE or started.piece == NO_PIECE:
            continue
        _, there = lines.taught(landed, landed)  # the same landing, as seen from where the piece is then
        aimed, believed = torch.zeros(1, 1, 84), torch.zeros(1, 1, theirs)
        aimed[..., place] = believed[..., move] = 1.0
        assert network._from_there(aimed, believed).nonzero().tolist() == [[0, 0, there]]
        told, moves = told + 1, moves | {move}
    assert told > 100 and len(moves) > 5


def test_a_trial_is_played_once_and_tabled(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["lines", "--base_dir", str(tmp_path), "--delays", "0", "2", "--seeds", "1", "--rounds", "1"]
    monkeypatch.setattr("sys.argv", words)
    lines.main()
    played = {path.name: json.loads(path.read_text())["lines"] for path in tmp_path.glob("*.json")}
    assert len(played) == 3 * 3 + 1 + 2  # and the students that are told nothing, or decide at their release
    assert all(len(each) == 2 for each in played.values())
    monkeypatch.setattr(lines.Trial, "run", None)  # nothing is played again
    capsys.readouterr()
    lines.main()
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + len(played)
    assert any(row.startswith("| student | sequential | 2 |") for row in table)
