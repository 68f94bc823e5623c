"""The rules of falling blocks, frame by frame, against the tables of docs/reference/falling_blocks_rules.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.envs.falling_blocks import Game
from async_wrappers.envs.falling_blocks.game import (
    DOWN,
    LEFT,
    NAMES,
    NO_PIECE,
    RIGHT,
    TURN_LEFT,
    TURN_RIGHT,
    Biased,
    UniformPieces,
    field_of,
    full_rows,
    rows_of,
)

FRAMES_PER_ROW = {
    **{0: 53, 1: 49, 2: 45, 3: 41, 4: 37, 5: 33, 6: 28, 7: 22, 8: 17, 9: 11, 10: 10},
    **{11: 9, 12: 8, 13: 7, 14: 6, 15: 6, 16: 5, 17: 5, 18: 4, 19: 4, 20: 3},
}
WAIT = 0  # no button
FULL = (1 << 10) - 1
BUTTONS = st.sampled_from([WAIT, WAIT, TURN_RIGHT, TURN_LEFT, LEFT, RIGHT, DOWN, DOWN])

Cells = set[tuple[int, int]]  # (row, column), from the top left


class Dealer:
    """Deals the given pieces, and the last one again and again."""

    def __init__(self, names: str) -> None:
        self.pieces = [NAMES.index(name) for name in names]

    def roll(self) -> int:
        return self.pieces.pop(0) if len(self.pieces) > 1 else self.pieces[0]

    def after(self, falling: int, preview: int) -> int:
        return self.roll()


def game_of(names: str, level: int = 0, rows: Sequence[int] = (), **state: Any) -> Game:
    """Return a game of these pieces whose lowest `rows` are filled."""
    game = Game(level, Dealer(names))
    game.set_state({**game.get_state(), "rows": [0] * (18 - len(rows)) + list(rows), **state})
    return game


def cells(game: Game) -> Cells:
    """Return the cells of the falling piece."""
    bits = [bit for bit in range(250) if game.shape >> bit & 1]
    return {(bit // 12 - 2, bit % 12 - 1) for bit in bits}  # two rows of ceiling, a column of wall


def top(game: Game) -> int:
    return min(row for row, _ in cells(game))


def left(game: Game) -> int:
    return min(column for _, column in cells(game))


def hold(game: Game, button: int, frames: int) -> int:
    """Hold a button, or none, and return the points."""
    return sum(game.step(button) for _ in range(frames))


def moves(game: Game, buttons: Iterable[int], place: Any) -> list[int]:
    """Return the numbers of the frames after which `place` of the game is another."""
    changed, before = [], place(game)
    for frame, button in enumerate(buttons):
        game.step(button)
        if place(game) != before:
            changed.append(frame)
            before = place(game)
    return changed


def soft_drop(game: Game) -> int:
    """Hold down until the piece has locked, and return the points."""
    points = 0
    while game.piece != NO_PIECE:
        points += game.step(DOWN)
    return points


# gravity and locking


@pytest.mark.parametrize(("level", "frames"), FRAMES_PER_ROW.items())
def test_a_piece_falls_by_a_row_every_so_many_frames_of_its_level_and_locks_when_it_cannot(
    level: int, frames: int
) -> None:
    game = game_of("O", level)
    assert top(game) == 1
    for frame in range(1, 16 * frames):
        game.step(WAIT)
        assert top(game) == min(1 + frame // frames, 16)
    assert cells(game) == {(16, 4), (16, 5), (17, 4), (17, 5)}
    assert game.field == field_of([0] * 18)
    game.step(WAIT)
    assert game.piece == NO_PIECE
    assert rows_of(game.field) == [0] * 16 + [0b0000110000] * 2


def test_a_piece_on_the_ground_can_still_be_moved_until_it_locks() -> None:
    game = game_of("O", level=9)
    hold(game, WAIT, 15 * 11)
    hold(game, LEFT, 1)
    hold(game, WAIT, 10)
    assert rows_of(game.field)[17] == 0b0000011000


def test_a_piece_turns_then_shifts_then_falls_within_one_frame() -> None:
    game = game_of("I", level=20)
    hold(game, WAIT, 5)
    game.step(TURN_RIGHT | LEFT)
    # before: row 2, columns 3 - 6; upright it fills rows 0 - 3 of column 4, is shifted to column 3 and falls
    assert cells(game) == {(1, 3), (2, 3), (3, 3), (4, 3)}


# soft drop


def test_a_soft_drop_falls_at_once_and_then_by_a_row_every_third_frame() -> None:
    for level in FRAMES_PER_ROW:
        assert moves(game_of("O", level), [DOWN] * 45, top) == list(range(0, 45, 3))


def test_tapping_falls_no_faster_than_every_third_frame() -> None:
    assert moves(game_of("O"), [DOWN, WAIT] * 12, top) == [0, 4, 8, 12, 16, 20]
    assert moves(game_of("O"), [DOWN, WAIT, WAIT] * 4, top) == [0, 3, 6, 9]


def test_gravity_rests_during_a_soft_drop_and_begins_anew_after_each_of_its_rows() -> None:
    game = game_of("O")
    assert moves(game, [WAIT] * 52 + [DOWN] + [WAIT] * 60, top) == [52, 52 + 53]
    game = game_of("O")
    assert moves(game, [DOWN, DOWN] + [WAIT] * 60, top) == [0, 1 + 53]


def test_a_soft_drop_pays_a_point_per_row_whatever_the_level() -> None:
    for level in (0, 9, 20):
        assert soft_drop(game_of("O", level)) == 15


def test_only_the_last_uninterrupted_soft_drop_pays_and_only_when_the_piece_locks() -> None:
    game = game_of("O")
    hold(game, DOWN, 3 * 9 + 1)
    assert (top(game), game.score) == (11, 0)
    game.step(WAIT)
    assert soft_drop(game) == 5
    game = game_of("O", level=9)
    hold(game, DOWN, 3 * 14 + 1)
    hold(game, WAIT, 11)
    assert (game.piece, game.score) == (NO_PIECE, 0)  # gravity locked it


def test_a_held_soft_drop_ends_with_its_piece_until_down_is_pressed_again() -> None:
    game = game_of("O")
    assert soft_drop(game) == 15
    hold(game, DOWN, 2 + 52)
    assert top(game) == 1
    hold(game, DOWN, 1)
    assert top(game) == 2  # by gravity
    hold(game, WAIT, 1)
    assert soft_drop(game) == 12


def test_a_piece_that_has_no_room_to_fall_can_lock_in_the_frame_of_its_entry() -> None:
    game = game_of("O", level=9, rows=[0b0000110000] * 15)
    hold(game, WAIT, 11 + 2)
    assert game.piece == NO_PIECE
    field = game.field
    game.set_state({**game.get_state(), "rows": [0] * 3 + [0b0000110000] * 15})
    game.step(DOWN)
    assert (game.piece, game.entering) == (NO_PIECE, 2)
    assert game.field == field


# entry and line clear


def test_two_frames_without_a_piece_pass_before_the_next_one_enters_and_plays() -> None:
    game = game_of("OTL", level=9)
    hold(game, WAIT, 16 * 11)
    pieces = []
    for _ in range(4):
        pieces.append(game.piece)
        game.step(LEFT)
    assert pieces == [NO_PIECE, NO_PIECE, NO_PIECE, NAMES.index("T")]  # after the lock, and after the delay's frames
    assert game.preview == NAMES.index("L")


def test_the_frame_of_entry_counts_for_gravity_and_for_a_press() -> None:
    game = game_of("O", level=9)
    hold(game, WAIT, 16 * 11 + 2)
    game.step(LEFT)
    assert (top(game), left(game)) == (1, 3)
    hold(game, WAIT, 9)
    assert top(game) == 1
    game.step(WAIT)
    assert top(game) == 2


def test_full_rows_stay_for_91_frames_and_93_frames_pass_without_a_piece() -> None:
    nearly = FULL & ~0b0000110000
    game = game_of("O", rows=[0b1, nearly, nearly])
    soft_drop(game)
    locked = rows_of(game.field)
    assert locked[15:] == [1, FULL, FULL]
    for _ in range(90):
        game.step(WAIT)
        assert (rows_of(game.field), game.piece, game.lines) == (locked, NO_PIECE, 0)
    assert game.step(WAIT) == 100
    assert rows_of(game.field) == [0] * 17 + [1]
    assert game.lines == 2
    hold(game, WAIT, 2)
    assert game.piece == NO_PIECE
    game.step(WAIT)
    assert game.piece == NAMES.index("O")


def test_rows_that_are_not_adjacent_are_cleared_and_what_lies_between_comes_down() -> None:
    slit = FULL & ~(1 << 4)
    game = game_of("I", rows=[0b11, slit, slit & ~1, slit, slit & ~2])
    game.step(TURN_RIGHT)  # refused: no room above the field
    hold(game, WAIT, 52)
    game.step(TURN_RIGHT)
    soft_drop(game)
    hold(game, WAIT, 91)
    assert game.lines == 2
    assert rows_of(game.field) == [0] * 15 + [0b11, FULL & ~1, FULL & ~2]


def test_the_two_top_rows_are_never_cleared() -> None:
    assert full_rows(field_of([FULL] * 4 + [0] * 14)) == [2, 3]
    assert full_rows(field_of([0] * 17 + [FULL])) == [17]


def test_a_press_during_the_delays_is_lost() -> None:
    game = game_of("T", level=9)
    hold(game, WAIT, 16 * 11)
    assert game.piece == NO_PIECE
    hold(game, TURN_RIGHT, 3)  # pressed before the piece enters, and held
    assert (game.piece, game.turn) == (NAMES.index("T"), 0)
    hold(game, WAIT, 1)
    hold(game, TURN_RIGHT, 1)
    assert game.turn == 1


# shifting


@pytest.mark.parametrize(("button", "first", "step"), [(LEFT, 4, -1), (RIGHT, 4, 1)])
def test_a_held_direction_moves_at_once_then_after_23_frames_and_then_every_9(
    button: int, first: int, step: int
) -> None:
    game = game_of("O")
    expected = [first + step * sum(frame >= moved for moved in (0, 23, 32, 41)) for frame in range(50)]
    columns = []
    for _ in range(50):
        game.step(button)
        columns.append(left(game))
    assert columns == expected


def test_letting_go_and_pressing_again_moves_at_once_and_begins_the_count_anew() -> None:
    assert moves(game_of("O"), [LEFT] * 20 + [WAIT] + [LEFT] * 24, left) == [0, 21, 44]
    assert moves(game_of("O"), [LEFT, WAIT] * 4, left) == [0, 2, 4, 6]
    assert moves(game_of("O"), [LEFT] * 20 + [RIGHT] * 24, left) == [0, 20, 43]


def test_another_button_held_beside_a_direction_does_not_disturb_it() -> None:
    assert moves(game_of("O"), [LEFT] + [LEFT | TURN_RIGHT] * 23, left) == [0, 23]


def test_walls_and_blocks_stop_a_shift() -> None:
    game = game_of("O")
    hold(game, LEFT, 50)
    assert left(game) == 0
    game = game_of("O", rows=[1 << 3] * 17)
    hold(game, LEFT, 50)
    assert left(game) == 4


def test_a_direction_held_from_the_delay_on_counts_from_the_entry_on() -> None:
    game = game_of("O", level=9)
    hold(game, WAIT, 16 * 11)
    hold(game, LEFT, 2)
    assert game.piece == NO_PIECE
    assert moves(game, [LEFT] * 33, lambda game: left(game) if game.piece != NO_PIECE else 4) == [22, 31]


def test_the_count_of_a_held_direction_rests_during_the_delays() -> None:
    game = game_of("O", level=9)
    hold(game, WAIT, 16 * 11 - 10)
    hold(game, LEFT, 10)  # a press and nine frames
    assert game.piece == NO_PIECE
    hold(game, LEFT, 2)
    assert moves(game, [LEFT] * 14, lambda game: left(game) if game.piece != NO_PIECE else 4) == [13]


# turning


def centred(offsets: Iterable[tuple[int, int]], quarters: int) -> Cells:
    """Return offsets (down, right) about row 4, column 4, turned to the right."""
    turned = list(offsets)
    for _ in range(quarters):
        turned = [(right, -down) for down, right in turned]
    return {(4 + down, 4 + right) for down, right in turned}


BAR = [(0, -1), (0, 0), (0, 1)]
I_TURNS = ({(4, 3), (4, 4), (4, 5), (4, 6)}, {(2, 4), (3, 4), (4, 4), (5, 4)})
S_TURNS = ({(4, 4), (4, 5), (5, 3), (5, 4)}, {(3, 3), (4, 3), (4, 4), (5, 4)})
Z_TURNS = ({(4, 3), (4, 4), (5, 4), (5, 5)}, {(3, 4), (4, 3), (4, 4), (5, 3)})
TURNS: dict[str, list[Cells]] = {
    "T": [centred([*BAR, (1, 0)], quarters) for quarters in range(4)],
    "J": [centred([*BAR, (1, 1)], quarters) for quarters in range(4)],
    "L": [centred([*BAR, (1, -1)], quarters) for quarters in range(4)],
    "I": [*I_TURNS, *I_TURNS],
    "S": [*S_TURNS, *S_TURNS],
    "Z": [*Z_TURNS, *Z_TURNS],
    "O": [{(4, 4), (4, 5), (5, 4), (5, 5)}] * 4,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("button", "quarter"), [(TURN_RIGHT, 1), (TURN_LEFT, -1)])
def test_a_piece_turns_as_in_the_left_handed_nintendo_rotation_system(name: str, button: int, quarter: int) -> None:
    game = game_of(name)
    hold(game, DOWN, 9)
    assert cells(game) == TURNS[name][0]  # three rows below where it entered
    for count in range(1, 5):
        hold(game, button, 1)
        assert cells(game) == TURNS[name][count * quarter % 4]
        hold(game, WAIT, 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_piece_enters_with_its_highest_block_on_the_second_row_and_three_wide_ones_in_columns_4_to_6(
    name: str,
) -> None:
    assert cells(game_of(name)) == {(row - 3, column) for row, column in TURNS[name][0]}
    assert top(game_of(name)) == 1


def test_a_held_button_turns_once() -> None:
    game = game_of("T")
    hold(game, TURN_RIGHT, 20)
    assert game.turn == 1


@pytest.mark.parametrize(("button", "wall"), [(LEFT, "left"), (RIGHT, "right")])
def test_a_turn_into_a_wall_is_refused_without_a_kick(button: int, wall: str) -> None:
    game = game_of("T")
    hold(game, TURN_LEFT if wall == "left" else TURN_RIGHT, 1)  # its flat side to the wall
    hold(game, button, 60)
    before = cells(game)
    assert {column for _, column in before} == ({0, 1} if wall == "left" else {8, 9})
    for turn in (TURN_LEFT, TURN_RIGHT):
        hold(game, WAIT, 1)
        hold(game, turn, 1)
        assert cells(game) == before


def test_a_turn_into_blocks_is_refused() -> None:
    game = game_of("I", rows=[(1 << 3) | (1 << 5)] * 14)
    hold(game, DOWN, 4)
    hold(game, TURN_RIGHT, 1)
    hold(game, DOWN, 10)
    before = cells(game)
    assert before == {(row, 4) for row in range(4, 8)}  # upright between two walls of blocks
    for turn in (TURN_LEFT, TURN_RIGHT):
        hold(game, turn, 1)
        assert cells(game) == before


def test_an_i_cannot_stand_up_before_it_has_come_down_by_a_row() -> None:
    game = game_of("I")
    hold(game, TURN_LEFT, 1)
    assert game.turn == 0
    hold(game, WAIT, 52)
    hold(game, TURN_LEFT, 1)
    assert game.turn == 3
    assert cells(game) == {(0, 4), (1, 4), (2, 4), (3, 4)}


# score and levels


@pytest.mark.parametrize(("lines", "points"), [(1, 40), (2, 100), (3, 300), (4, 1200)])
def test_lines_pay_by_their_number_times_the_level_plus_one(lines: int, points: int) -> None:
    slit = FULL & ~(1 << 4)
    for level in FRAMES_PER_ROW:
        game = game_of("I", level, rows=[slit ^ 1] * (4 - lines) + [slit] * lines)
        while top(game) < 2:
            game.step(WAIT)
        game.step(TURN_RIGHT)
        while game.piece != NO_PIECE:
            game.step(WAIT)
        assert hold(game, WAIT, 91) == points * (level + 1)
        assert (game.score, game.lines) == (points * (level + 1), lines)


def test_points_are_paid_by_the_level_before_the_lines() -> None:
    game = game_of("O", rows=[FULL & ~0b0000110000], lines=9)
    soft_drop(game)
    assert hold(game, WAIT, 91) == 40
    assert (game.lines, game.level) == (10, 1)


def test_the_score_stops_at_999_999_and_pays_what_is_left() -> None:
    game = game_of("O", rows=[FULL & ~0b0000110000], score=999_980, level=9)
    assert soft_drop(game) == 15
    assert hold(game, WAIT, 91) == 4
    assert game.score == 999_999


@pytest.mark.parametrize(
    ("start", "lines", "level"),
    [
        *[(0, 9, 0), (0, 10, 1), (0, 19, 1), (0, 20, 2), (0, 199, 19), (0, 200, 20), (0, 500, 20)],
        *[(5, 10, 5), (5, 59, 5), (5, 60, 6), (9, 99, 9), (9, 100, 10), (9, 110, 11), (20, 300, 20)],
    ],
)
def test_the_first_level_takes_ten_lines_more_than_ten_times_the_start_and_each_further_one_ten(
    start: int, lines: int, level: int
) -> None:
    game = game_of("O", start, lines=0)
    for count in range(lines):
        cleared = {"rows": [0] * 17 + [FULL], "piece": NO_PIECE, "clearing": 1, "entering": 2, "lines": count}
        game.set_state({**game.get_state(), **cleared})
        game.step(WAIT)
    assert game.level == level
    hold(game, WAIT, 3)
    assert game.fall_timer == FRAMES_PER_ROW[level] - 1


def test_a_clear_of_four_crosses_the_threshold_too() -> None:
    slit = FULL & ~(1 << 4)
    game = game_of("I", rows=[slit] * 4, lines=8)
    hold(game, WAIT, 53)
    game.step(TURN_RIGHT)
    soft_drop(game)
    hold(game, WAIT, 91)
    assert (game.lines, game.level) == (12, 1)


# the end


def test_the_game_is_over_when_the_next_piece_finds_no_room() -> None:
    game = game_of("O", level=20)
    for _ in range(8):  # O upon O
        assert not game.over
        while game.piece != NO_PIECE:
            game.step(WAIT)
        hold(game, WAIT, 2)
        field, before = game.field, game.over
        game.step(WAIT)
    assert rows_of(field) == [0] * 2 + [0b0000110000] * 16
    assert (before, game.over) == (False, True)  # on the frame of entry
    assert (game.piece, game.field) == (NO_PIECE, field)


def test_a_block_beside_the_entry_does_not_end_the_game() -> None:
    game = game_of("OO", level=20, rows=[FULL & ~0b0000110000 & ~1] * 17)
    hold(game, WAIT, 16 * 3 + 3)
    assert not game.over
    assert top(game) == 1


# the pieces


def divider_piece(divider: int) -> int:
    """Count the divider register down, as the original does, through the seven pieces in turn."""
    piece = 0
    for _ in range((divider or 256) - 1):
        piece = (piece + 1) % 7
    return piece


class Register:
    """Stands in for a NumPy generator: gives the given numbers."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = list(numbers)

    def integers(self, high: int) -> int:
        assert high == 256
        return self.numbers.pop(0)


def test_a_roll_is_the_divider_counted_down_through_the_pieces() -> None:
    biased: Any = Biased(Register(range(256)))  # type: ignore[arg-type]
    assert [biased.roll() for _ in range(256)] == [divider_piece(divider) for divider in range(256)]


@given(st.lists(st.integers(0, 255), min_size=3, max_size=3), st.integers(0, 6), st.integers(0, 6))
def test_a_roll_is_rejected_at_most_twice_when_the_or_of_the_codes_adds_nothing(
    dividers: list[int], falling: int, preview: int
) -> None:
    register = Register(dividers)
    dealt = Biased(register).after(falling, preview)  # type: ignore[arg-type]
    codes = [4 * divider_piece(divider) for divider in dividers]  # the original's codes are four apart
    rejected = [(code | 4 * preview | 4 * falling) & 0xFC == 4 * falling for code in codes]
    used = 0 if not rejected[0] else 1 if not rejected[1] else 2
    assert dealt == codes[used] // 4
    assert len(register.numbers) == 2 - used


def test_the_bias_in_the_long_run_is_the_published_one() -> None:
    # The chain of (falling, preview), solved exactly. Published: L 10.7 %, J I Z 13.7 %, O S T 16.1 %.
    roll = np.bincount([divider_piece(divider) for divider in range(256)]) / 256
    chain = np.zeros((7, 7, 7, 7))
    for falling in range(7):
        for preview in range(7):
            rejected = np.array([piece | preview | falling == falling for piece in range(7)])
            again = roll[rejected].sum()
            dealt = np.where(rejected, 0, roll) * (1 + again) + roll * again**2
            chain[falling, preview, preview] = dealt
    share = np.full(49, 1 / 49)
    for _ in range(500):
        share = share @ chain.reshape(49, 49)
    in_the_long_run = dict(zip(NAMES, 100 * share.reshape(7, 7).sum(1), strict=True))
    published = {"L": 10.7, **dict.fromkeys("JIZ", 13.7), **dict.fromkeys("OST", 16.1)}
    assert in_the_long_run == pytest.approx(published, abs=0.3)
    generator, piece, preview, count = Biased(np.random.default_rng(0)), 0, 1, Counter[str]()
    for _ in range(20_000):
        piece, preview = preview, generator.after(piece, preview)
        count[NAMES[piece]] += 1
    assert {name: count[name] / 200 for name in NAMES} == pytest.approx(in_the_long_run, abs=1.3)  # 5 sigma


def test_the_uniform_generator_deals_all_pieces_alike_whatever_came_before() -> None:
    generator = UniformPieces(np.random.default_rng(0))
    for falling, preview in ((0, 0), (6, 6)):
        count = Counter(generator.after(falling, preview) for _ in range(7_000))
        assert {piece: count[piece] for piece in range(7)} == pytest.approx(dict.fromkeys(range(7), 1_000), abs=150)


@pytest.mark.parametrize("generator", [Biased, UniformPieces])
def test_pieces_are_dealt_in_the_order_in_which_preview_and_hidden_showed_them(generator: Any) -> None:
    game = Game(20, generator(np.random.default_rng(3)))
    for _ in range(4):
        expected = (game.preview, game.hidden)
        soft_drop(game)
        hold(game, WAIT, 3)
        assert (game.piece, game.preview) == expected


def test_the_generator_is_asked_with_the_piece_that_enters_and_the_one_that_is_shown_next() -> None:
    class Recorder(Dealer):
        asked: list[tuple[str, str]] = []

        def after(self, falling: int, preview: int) -> int:
            self.asked.append((NAMES[falling], NAMES[preview]))
            return super().after(falling, preview)

    game = Game(20, Recorder("LJIOZ"))
    for _ in range(2):
        soft_drop(game)
        hold(game, WAIT, 3)
    assert Recorder.asked == [("L", "J"), ("J", "I"), ("I", "O")]


# what always holds


def count_cells(game: Game) -> int:
    return sum(row.bit_count() for row in rows_of(game.field))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 20),
    st.lists(st.integers(0, FULL - 1) | st.integers(3, 6).map(lambda column: FULL & ~(1 << column)), max_size=8),
    st.lists(st.tuples(BUTTONS, st.integers(1, 40)), max_size=60),
)
def test_blocks_never_overlap_nor_leave_the_field_and_are_conserved(
    seed: int, level: int, rows: list[int], held: list[tuple[int, int]]
) -> None:
    game = Game(level, Biased(np.random.default_rng(seed)))
    game.set_state({**game.get_state(), "rows": [0] * (18 - len(rows)) + rows})
    for button, frames in held:
        for _ in range(frames):
            field, lines, score, total = game.field, game.lines, game.score, count_cells(game)
            points = game.step(button)
            assert not game.field & game.shape
            assert field_of(rows_of(game.field)) == game.field  # the border is whole
            assert game.shape.bit_count() == (0 if game.piece == NO_PIECE else 4)
            if game.field != field:
                cleared = game.lines - lines
                assert count_cells(game) == total + (-10 * cleared if cleared else 4)
            assert game.score == score + points
            assert points >= 0
            if game.over:
                return


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.lists(BUTTONS, max_size=300), st.lists(BUTTONS, max_size=300))
def test_a_game_goes_on_alike_from_its_state_in_another_game(seed: int, before: list[int], after: list[int]) -> None:
    random = np.random.default_rng(seed)
    game = Game(19, Biased(random))
    for button in before:
        game.step(button)
    drawn = random.bit_generator.state
    others = np.random.default_rng()
    other = Game(0, Biased(others))
    other.set_state(game.get_state())
    played = [(game.step(button), game.get_state()) for button in after]
    others.bit_generator.state = drawn
    assert [(other.step(button), other.get_state()) for button in after] == played


def test_a_state_with_a_wrong_name_or_rows_that_do_not_fit_is_refused_and_changes_nothing() -> None:
    game = game_of("O")
    state = game.get_state()
    with pytest.raises(ValueError, match=r"^state must have the names that get_state returns, .*scor"):
        game.set_state({**state, "scor": 3})
    with pytest.raises(ValueError, match=r"^rows must be 18 numbers in 0..1023, got \[0"):
        game.set_state({**state, "score": 5, "rows": [0] * 17})
    with pytest.raises(ValueError, match=r"^rows must be 18 numbers"):
        game.set_state({**state, "rows": [0] * 17 + [1024]})
    assert game.get_state() == state
