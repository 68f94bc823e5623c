"""Size against delay: the hand knows where the piece is, a network is asked what it saw, and a trial is played once."""

from __future__ import annotations

import csv
import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from async_wrappers.envs.falling_blocks.game import ACTIONS, EMPTY_FIELD, ENTRY, NAMES, NO_PIECE, STRIDE, Biased, Game
from async_wrappers.envs.falling_blocks.observation import Seen, Vector
from async_wrappers.envs.falling_blocks.player import best_place, towards
from benchmarks.studies import size

NOOP, A, B, LEFT, RIGHT, DOWN = range(6)
LONG = NAMES.index("I")
BUTTONS = tuple(ACTIONS.values())


def seen_of(game: Game, held: int = NOOP) -> tuple[Seen, int]:
    """Return what is seen of a game, and the frames without a piece that are left."""
    return Seen(game.field, game.piece, game.turn, game.position, game.preview, held), game.clearing + game.entering


class Player:
    """The player in the place of a network; notes what it is asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def place(self, field: int, piece: int) -> tuple[int, int]:
        self.asked.append((field, piece))
        return divmod(int(size.merits_of(field, piece).argmax()), STRIDE)


@pytest.mark.parametrize("units", size.UNITS)
def test_weights_are_those_of_the_network(units: int) -> None:
    assert size.weights(units) == sum(each.numel() for each in size.Network(units).parameters())


def test_delay_grows_as_the_square_root_of_weights() -> None:
    assert [size.delay_of(size.UNITS[0], slow) for slow in (1, 2, 4)] == [1, 2, 4]
    for units in size.UNITS:
        times = size.weights(units) / size.weights(size.UNITS[0])
        assert (size.delay_of(units, 3) - 1) ** 2 < 9 * times <= size.delay_of(units, 3) ** 2


# Two columns to each side of the entry no wall is met, and in 8 frames at level 20 no floor; an I meets the ceiling.
@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1000), before=st.integers(0, 3), since=st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=8)
)
def test_the_hand_knows_what_its_presses_will_have_done(seed: int, before: int, since: list[int]) -> None:
    game, held = Game(size.LEVEL, Biased(np.random.default_rng(seed))), NOOP
    if before:  # 1 to 3 frames before a piece enters
        while game.piece != NO_PIECE:
            game.step(NOOP)
        for _ in range(3 - before):
            game.step(NOOP)
    seen, without = seen_of(game, held)
    shifts = np.cumsum([(action == RIGHT) - (action == LEFT) for action in since] or [0])
    assume(abs(shifts).max() <= 2 and LONG not in (seen.piece, seen.preview))
    found = size.now(seen, without, since)
    for action in since:
        game.step(BUTTONS[action])
        held = action
    if found is None:
        game.step(NOOP)  # nor is it there for the action that lands now
        assert game.piece == NO_PIECE
        return
    if game.piece == NO_PIECE:
        game.step(BUTTONS[held])  # it enters with the action that lands now
    assert (found.turn, found.position, found.held) == (game.turn, game.position % STRIDE, held)


def test_the_best_of_the_merits_is_the_players_place_and_the_field_is_the_games() -> None:
    random = np.random.default_rng(0)
    game, held, compared = Game(size.LEVEL, Biased(random)), NOOP, 0
    while compared < 40:
        seen, _ = seen_of(game, held)
        if seen.piece == NO_PIECE:
            game.step(NOOP)
            held = NOOP
            continue
        if seen.position == ENTRY and not seen.turn:
            merits = size.merits_of(seen.field, seen.piece)
            place = best_place(*seen[:4])
            assert place is not None
            assert merits[place[0] * STRIDE + place[1]] == merits.max()
            after = size.placed(seen.field, seen.piece, place)
            while game.piece != NO_PIECE:
                held = towards(seen, *place, drops=False)
                game.step(BUTTONS[held])
                seen, _ = seen_of(game, held)
            while game.clearing:
                game.step(NOOP)
            assert game.field == after
            compared += 1
        if game.over:
            game = Game(size.LEVEL, Biased(random))


def test_a_network_reads_cells_heights_and_the_piece() -> None:
    rows = np.zeros((1, 18), np.uint16)
    rows[0, 17], rows[0, 15] = 0b0000000101, 0b1000000000
    numbers = size.read(rows, np.array([3]))[0]
    assert numbers[:180].reshape(18, 10).nonzero()[0].tolist() == [15, 17, 17]
    assert (4 * numbers[180:190]).tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 0, 3]
    assert numbers[190:].tolist() == [0, 0, 0, 1, 0, 0, 0]


def test_what_is_taught_is_the_softmax_of_merits_over_possible_places() -> None:
    fields = size.record(30, 0)
    numbers, taught = fields.examples()
    assert numbers.shape == (30, size.READ) and taught.shape == (30, size.PLACES)
    for merits, shares in zip(fields.merits, taught.numpy(), strict=True):
        assert (shares > 0).sum() <= np.isfinite(merits).sum() < size.PLACES
        assert shares.argmax() == merits.argmax() and shares.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("way", [size.ASYNCHRONOUS, size.BESIDE])
def test_a_piece_is_placed_late_as_without_delay(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "LONGEST", 700)
    player: Any = Player()
    networks = dict.fromkeys(size.UNITS, player)
    met = size.Met(way, 8, 6, 1 if way == size.BESIDE else 0)
    assert size.play(met, networks, 1) == size.play(size.Met(size.NO_DELAY, 8, 0), networks, 1) > 0


def test_a_sequential_student_has_nothing_on_its_way() -> None:
    player: Any = Player()
    student = size.Student(size.Met(size.SEQUENTIAL, 8, 3), player, player)
    env = size.Met(size.SEQUENTIAL, 8, 3).environment()
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        action = student.act(observation)
        seen = Vector.read(observation)
        turn, column = player.place(*player.asked[-1])
        assert action == towards(seen._replace(position=seen.position % STRIDE, held=NOOP), turn, column, drops=False)
        observation, *_ = env.step(action)


def test_beside_the_smallest_the_hand_follows_the_large_network_once_it_has_seen_the_piece() -> None:
    large, small = Player(), Player()
    networks: Any = large, small
    student = size.Student(size.Met(size.BESIDE, 8, 9, 1), *networks)
    game = Game(size.LEVEL, Biased(np.random.default_rng(0)))
    view, shown = Vector(), deque[Any](maxlen=10)
    first, asked = game.piece, dict[str, set[int]]()
    for frame in range(70):
        shown.append(view(game))
        counts = len(large.asked), len(small.asked)
        student.act({"observation": shown[0], "fresh": shown[-1]})
        if len(large.asked) + len(small.asked) > sum(counts):
            who = "large" if len(large.asked) > counts[0] else "small"
            asked.setdefault(who, set()).add(frame)
        if game.piece == NO_PIECE and "entered" not in asked:
            asked["entered"] = {frame}
        game.step(NOOP)
    entered = min(asked["entered"])
    assert {piece for field, piece in small.asked if field == EMPTY_FIELD} <= {first}
    # The second piece is known from the frame on which the first one lies, and to the large network 9 frames later.
    assert {frame for frame in asked["small"] if frame > entered} == set(range(entered, entered + 9)) - {entered}
    assert min(frame for frame in asked["large"] if frame >= entered) == entered + 9


def test_a_trial_is_played_once_and_tabled(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in {"PIECES": 60, "UPDATES": 2, "BATCH": 8, "GAMES": 2, "LONGEST": 40, "UNITS": (2, 4)}.items():
        monkeypatch.setattr(size, name, number)
    monkeypatch.setattr(size, "TABLE", tmp_path / "size.csv")
    monkeypatch.setattr(size, "PICTURE", tmp_path / "size.png")
    words = ["size", "--base_dir", str(tmp_path / "trials"), "--seeds", "0", "1", "--slowness", "1", "2", "--draw"]
    monkeypatch.setattr("sys.argv", words)
    size.main()
    files = [*(tmp_path / "trials").glob("*.json")]
    assert len(files) == 2 * (2 + 2 * (2 + 2 + 1))
    assert all(len(json.loads(path.read_text())) == 2 for path in files)
    monkeypatch.setattr(size, "play", None)  # nothing is played again
    capsys.readouterr()
    size.main()
    assert len(capsys.readouterr().out.splitlines()) == 2 + 2 * 2
    with (tmp_path / "size.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == len(files) and {row["weights"] for row in rows} == {str(size.weights(u)) for u in (2, 4)}
    assert (tmp_path / "size.png").stat().st_size > 10_000
