"""The games of the published experiments: their memory, rewards, ends and states, on the user's own ROM.

Rewards and ends are those of the scripts of github.com/CERC-AAI/realtime_rl: after every emulated frame the end is
asked first, the reward then, both on the memory of that frame; the last frame of an episode is paid, too. Once after
the reset both are asked and thrown away, so that later frames are compared with that one (`begin`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from async_wrappers.envs.gameboy import encounters
from async_wrappers.envs.gameboy.emulator import Console
from async_wrappers.envs.gameboy.game_spec import Field, Memory, Rom, Spec, StateList
from async_wrappers.envs.gameboy.gameboy_env import GameBoyEnv

# Tetris, type A, from each of the levels 0 to 9

Picture = NDArray[np.uint8]

_ROM = Rom("Tetris", "rom.gb of 32 KiB", "0d6535aef23969c7e5af2b077acaddb4a445b3d0df7bf34c8acef07b51b015c3")
_LEVELS = StateList("TypeA_Level", 0, 9, {level: f"type A, level {level}" for level in range(10)}, "Tetris-GameBoy")
_MOST_NOOPS = 40  # frames before the button is pressed
_LONGEST_WAIT = 600  # frames until the game has begun, else the state is loaded again
_LEAST_CHANGE = 10_000  # of the 84 x 84 grey picture from the menu to the game, summed


class Points:
    """Tetris: the growth of the score. The end: the game is in any other state than 0."""

    watched = ("score_bcd", "game_state", "level")

    def begin(self, ram: Memory) -> None:
        """Begin an episode."""
        self._score = ram["score_bcd"]

    def step(self, ram: Memory) -> tuple[float, bool]:
        """Return the points of a frame, and whether the game is over."""
        reward = ram["score_bcd"] - self._score
        self._score = ram["score_bcd"]
        return float(reward), ram["game_state"] != 0


def tetris(parity: bool = False) -> Spec:
    """Return the spec of Tetris.

    Args:
        parity: As published: the score modulo 10,000 (the script reads four of its six digits, so that passing 10,000
            costs 10,000 points), a press of A where START and A are meant (START is filtered), and the begin of the
            game recognised in the picture. Otherwise all digits, both buttons, and the begin read from the memory.
    """
    return Spec(
        title="Tetris, type A",
        roms=(_ROM,),
        ram={
            "score_bcd": Field(0xC0A0, 2 if parity else 3, "decimal", "little"),
            "level": Field(0xFFA9, 1, "decimal"),
            "game_state": Field(0xFFE1, 1, "signed"),
        },
        rule=Points,
        states=_LEVELS,
        start=_press_and_look if parity else _press_and_wait,
    )


def _press_and_wait(console: Console, ram: Callable[[], Memory], random: np.random.Generator) -> bool:
    """Begin the game from the choice of the level: some frames of nothing, START and A, until its state is 0."""
    for _ in range(int(random.integers(0, _MOST_NOOPS, endpoint=True))):
        console.frame(draw=False)
    console.frame(("start", "a"))
    for _ in range(_LONGEST_WAIT):
        if ram()["game_state"] == 0:
            return True
        console.frame()
    return False


def _press_and_look(console: Console, ram: Callable[[], Memory], random: np.random.Generator) -> bool:
    """Begin the game as published: wait until the picture changes, and while it has one colour; compare the sums."""
    menu = console.grayscale()
    for _ in range(int(random.integers(0, _MOST_NOOPS, endpoint=True))):
        console.frame()
    before = console.grayscale()
    console.frame(("a",))
    begun = _wait_while(console, lambda picture: np.array_equal(picture, before))
    if begun is not None:
        begun = _wait_while(console, lambda picture: bool((picture == picture[0, 0]).all()))
    return begun is not None and int((begun - menu).sum(dtype=np.int64)) >= _LEAST_CHANGE  # differences wrap around


def _wait_while(console: Console, waiting: Callable[[Picture], bool]) -> Picture | None:
    """Run frames while the picture is such, and return the first that is not; None if that takes too long."""
    for _ in range(_LONGEST_WAIT):
        picture = console.grayscale()
        if not waiting(picture):
            return picture
        console.frame()
    return None


# Pokemon Red, Blue and Yellow: one battle, or one catch, from a numbered save state

_SLOTS, _SLOT_BYTES = 6, 0x2C  # of a party


class Faints:
    """Battles: -1 for a frame on which one of one's own faints, else +1 for one on which one of the opponent's does.

    One event is paid per frame, one's own first; other events of the same frame are lost. The end: no hit points in one
    of the two parties. An empty slot is one without hit points.
    """

    MINE = tuple(f"my_hp{slot}" for slot in range(1, 7))
    THEIRS = tuple(f"opp_hp{slot}" for slot in range(1, 7))
    watched = MINE + THEIRS

    def begin(self, ram: Memory) -> None:
        """Begin an episode."""
        self._before = ram

    def step(self, ram: Memory) -> tuple[float, bool]:
        """Return the reward of a frame, and whether a party is beaten."""
        before, self._before = self._before, ram
        over = not any(ram[name] for name in self.MINE) or not any(ram[name] for name in self.THEIRS)
        if ram == before:
            return 0.0, over
        for party, reward in ((self.MINE, -1.0), (self.THEIRS, 1.0)):
            if any(ram[name] == 0 and before[name] > 0 for name in party):
                return reward, over
        return 0.0, over


class Catch:
    """Catching: +1 for the catch, -1 for a battle that ends without one. The end: there is no battle.

    A catch is one more in the box (where it goes when the party is full), or a change of the list of species owned. So
    a species that is owned already, caught while the party has room, is not seen, and the battle's end costs 1. Of all
    catches of an episode the first is paid. ``InBattle`` is 0 without a battle, 1 in a wild one, 2 in a trainer's, -1
    when all have fainted: a blackout is paid -1 on the frame of that, and ends later.
    """

    OWNED = tuple(f"Owned{byte}" for byte in range(1, 20))
    watched = ("InBattle", "box_qnt", *OWNED)

    def begin(self, ram: Memory) -> None:
        """Begin an episode."""
        self._caught, self._battle, self._box = 0, 0, -10
        self._owned: list[int] | None = None
        self._steady: Memory | None = None  # memory that pays nothing if it comes again: for speed
        self._reward(ram)

    def step(self, ram: Memory) -> tuple[float, bool]:
        """Return the reward of a frame, and whether there is no battle any more."""
        return 0.0 if ram == self._steady else float(self._reward(ram)), ram["InBattle"] == 0

    def _reward(self, ram: Memory) -> int:
        self._steady = None
        if ram["box_qnt"] - self._box == 1:
            first, self._caught = 1 - self._caught, 1
            self._remember(ram)
            return first
        if self._owned is not None and not self._caught and self._owned != [ram[name] for name in self.OWNED]:
            self._caught = 1
            self._remember(ram)
            return 1
        if ram["InBattle"] < self._battle:
            self._battle = ram["InBattle"]
            return self._caught - 1
        self._battle = ram["InBattle"]
        self._remember(ram)
        self._steady = ram
        return 0

    def _remember(self, ram: Memory) -> None:
        self._owned = [ram[name] for name in self.OWNED]
        self._box = ram["box_qnt"]


@dataclass(frozen=True)
class Edition:
    """One of the three games.

    Args:
        rom: Its cartridge.
        battles: The published save states before battles.
        catching: The published save states before encounters in the wild.
        shift: Number added to Red's addresses.
    """

    rom: Rom
    battles: StateList
    catching: StateList
    shift: int = 0


RED = Edition(
    Rom("Pokemon Red", "rom.gb of 1 MiB", "5ca7ba01642a3b27b0cc0b5349b52792795b62d3ed977e98a09390659af96b7b"),
    StateList("Bulb_B", 1, 284, encounters.RED_BATTLES, "PokemonRed_Battles"),
    StateList("Bulb_C", 1, 91, encounters.RED_CATCHING, "PokemonRed_Catching"),
)
BLUE = Edition(
    Rom("Pokemon Blue", "rom.gb of 1 MiB", "2a951313c2640e8c2cb21f25d1db019ae6245d9c7121f754fa61afd7bee6452d"),
    StateList("Squirt_B", 1, 295, encounters.BLUE_BATTLES, "PokemonBlue_Battles"),
    StateList("Squirt_C", 1, 93, encounters.BLUE_CATCHING, "PokemonBlue_Catching"),
)
YELLOW = Edition(
    Rom("Pokemon Yellow", "rom.gbc of 1 MiB", "8cbaa499397e4f1a679c992ea9382a2dd7942ab398b48c19829c2d9529de47bf"),
    StateList("Pika_B", 1, 288, encounters.YELLOW_BATTLES, "PokemonYellow_Battles"),
    StateList("Pika_C", 1, 92, encounters.YELLOW_CATCHING, "PokemonYellow_Catching"),
    shift=-1,
)


def battles(edition: Edition, parity: bool = False) -> Spec:
    """Return the spec of an edition's battles.

    Args:
        edition: `RED`, `BLUE` or `YELLOW`.
        parity: As published: every episode is the first battle, while the count goes on, and Blue's battles are played
            on Red's cartridge, too, which the published code asks for although the states are Blue's. Otherwise each
            edition has its own, and a battle that is won is followed by the next.
    """
    asked_for = (RED.rom,) if parity and edition is BLUE else ()
    return Spec(
        title=f"{edition.rom.title}, battles",
        roms=(edition.rom, *asked_for),
        ram=_party(edition.shift),
        rule=Faints,
        states=edition.battles,
        goes_on=True,
        always_first=parity,
        plausible={"party_size": range(1, _SLOTS + 1)},
    )


def catching(edition: Edition, parity: bool = False) -> Spec:
    """Return the spec of an edition's encounters in the wild.

    Args:
        edition: `RED`, `BLUE` or `YELLOW`.
        parity: As published: every episode is the first encounter, while the count goes on. Otherwise a catch is
            followed by the next.
    """
    return replace(
        battles(edition, parity),
        title=f"{edition.rom.title}, catching",
        roms=(edition.rom,),
        ram=_party(edition.shift) | _catch(edition.shift),
        rule=Catch,
        states=edition.catching,
    )


def _party(shift: int) -> dict[str, Field]:
    ram = {"party_size": Field(0xD163 + shift, 1, "signed")}
    for slot in range(_SLOTS):
        offset = shift + slot * _SLOT_BYTES
        ram[f"my_hp{slot + 1}"] = Field(0xD16C + offset, 2)
        ram[f"exp{slot + 1}"] = Field(0xD179 + offset, 3)
        ram[f"opp_hp{slot + 1}"] = Field(0xD8A5 + offset, 2)
    return ram | {
        "money": Field(0xD347 + shift, 3, "decimal"),
        "mapID": Field(0xD35D + shift, 2, "decimal"),
        "yPosOverworld": Field(0xD361 + shift, 1, "signed"),
        "xPosOverworld": Field(0xD362 + shift, 1, "signed"),
    }


def _catch(shift: int) -> dict[str, Field]:
    owned = {name: 0xD2F7 + byte for byte, name in enumerate(Catch.OWNED)}
    addresses = {"InBattle": 0xD057, **owned, "Item1": 0xD31F, "box_qnt": 0xDA80}
    return {name: Field(address + shift, 1, "signed") for name, address in addresses.items()}


GAMES: Mapping[str, Callable[[bool], Spec]] = {
    "Tetris": tetris,
    "PokemonRed-battles": partial(battles, RED),
    "PokemonRed-catching": partial(catching, RED),
    "PokemonBlue-battles": partial(battles, BLUE),
    "PokemonBlue-catching": partial(catching, BLUE),
    "PokemonYellow-battles": partial(battles, YELLOW),
    "PokemonYellow-catching": partial(catching, YELLOW),
}


def find_spec(game: str, parity: bool = False) -> Spec:
    """Return the spec of a game.

    Args:
        game: A name, such as ``"PokemonBlue-battles"``.
        parity: With the quirks of the published code, which are otherwise corrected.

    Raises:
        ValueError: No game has that name.
    """
    if game not in GAMES:
        close = get_close_matches(game, list(GAMES), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"game must be one of {', '.join(GAMES)}, got {game!r}{hint}")
    return GAMES[game](parity)


def make_game(game: str, rom: Any = None, parity: bool = False, **arguments: Any) -> GameBoyEnv:
    """Return a game as an environment, for ``gymnasium.make("async_wrappers/PokemonBlue-battles-v0", ...)``.

    Args:
        game: A name, such as ``"PokemonBlue-battles"``.
        rom: Path of your own ROM.
        parity: With the quirks of the published code, which are otherwise corrected.
        **arguments: Of `GameBoyEnv`: ``states``, ``state``, ``obs_type`` and so on.
    """
    return GameBoyEnv(rom, find_spec(game, parity), **arguments)
