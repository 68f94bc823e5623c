"""Pokemon Red, Blue and Yellow: one battle, or one catch, from a numbered save state."""

from __future__ import annotations

from dataclasses import dataclass

from async_wrappers.envs.gameboy import encounters
from async_wrappers.envs.gameboy.roms import Rom
from async_wrappers.envs.gameboy.rules import Catch, Faints
from async_wrappers.envs.gameboy.spec import Field, Spec, StateList

__all__ = ["BLUE", "RED", "YELLOW", "Edition", "battles", "catching"]

_SLOTS, _SLOT_BYTES = 6, 0x2C  # of a party


@dataclass(frozen=True)
class Edition:
    """One of the three games.

    Args:
        title: Its name.
        rom: Its cartridge.
        shift: What is added to Red's addresses.
        battles: The published save states before battles.
        catching: The published save states before encounters in the wild.
    """

    title: str
    rom: Rom
    shift: int
    battles: StateList
    catching: StateList


RED = Edition(
    "Pokemon Red",
    Rom("Pokemon Red", "rom.gb of 1 MiB", "5ca7ba01642a3b27b0cc0b5349b52792795b62d3ed977e98a09390659af96b7b"),
    0,
    StateList("Bulb_B", 1, 284, encounters.RED_BATTLES, "PokemonRed_Battles"),
    StateList("Bulb_C", 1, 91, encounters.RED_CATCHING, "PokemonRed_Catching"),
)
BLUE = Edition(
    "Pokemon Blue",
    Rom("Pokemon Blue", "rom.gb of 1 MiB", "2a951313c2640e8c2cb21f25d1db019ae6245d9c7121f754fa61afd7bee6452d"),
    0,
    StateList("Squirt_B", 1, 295, encounters.BLUE_BATTLES, "PokemonBlue_Battles"),
    StateList("Squirt_C", 1, 93, encounters.BLUE_CATCHING, "PokemonBlue_Catching"),
)
YELLOW = Edition(
    "Pokemon Yellow",
    Rom("Pokemon Yellow", "rom.gbc of 1 MiB", "8cbaa499397e4f1a679c992ea9382a2dd7942ab398b48c19829c2d9529de47bf"),
    -1,
    StateList("Pika_B", 1, 288, encounters.YELLOW_BATTLES, "PokemonYellow_Battles"),
    StateList("Pika_C", 1, 92, encounters.YELLOW_CATCHING, "PokemonYellow_Catching"),
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
        title=f"{edition.title}, battles",
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
    return Spec(
        title=f"{edition.title}, catching",
        roms=(edition.rom,),
        ram=_party(edition.shift) | _catch(edition.shift),
        rule=Catch,
        states=edition.catching,
        goes_on=True,
        always_first=parity,
        plausible={"party_size": range(1, _SLOTS + 1)},
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
    owned = {f"Owned{byte + 1}": Field(0xD2F7 + byte + shift, 1, "signed") for byte in range(19)}
    return {
        "InBattle": Field(0xD057 + shift, 1, "signed"),
        **owned,
        "Item1": Field(0xD31F + shift, 1, "signed"),
        "box_qnt": Field(0xDA80 + shift, 1, "signed"),
    }
