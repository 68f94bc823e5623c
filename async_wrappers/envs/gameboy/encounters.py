"""What the numbers of the published save states stand for.

From the ``key_details.txt`` files of github.com/CERC-AAI/realtime_rl, which name some of the battles and all of the
encounters in the wild; spelling made even. Yellow's encounters 90 and 92 are the other way round there: the memory of
the states holds a Parasect and Mewtwo.
"""

from __future__ import annotations

__all__ = [
    "BLUE_BATTLES",
    "BLUE_CATCHING",
    "RED_BATTLES",
    "RED_CATCHING",
    "YELLOW_BATTLES",
    "YELLOW_CATCHING",
]

_SAFARI = "Safari Zone: "

RED_BATTLES = {
    1: "Rival, first battle",
    5: "Rival, Route 22",
    6: "Junior trainer, Pewter gym",
    7: "Brock",
    28: "Rival, Cerulean City",
    42: "Misty",
    78: "Rival, S.S. Anne",
    82: "Lt. Surge",
    113: "Rival, Pokemon Tower",
    121: "Erika",
    134: "Giovanni, Celadon game corner",
    186: "Koga",
    210: "Rival, Silph Co.",
    216: "Giovanni, Silph Co.",
    224: "Sabrina",
    243: "Blaine",
    267: "Giovanni, gym",
    268: "Rival, Route 22, last",
    280: "Lorelei",
    281: "Bruno",
    282: "Agatha",
    283: "Lance",
    284: "Champion",
}
BLUE_BATTLES = {
    1: "Rival, first battle",
    5: "Rival, Route 22",
    6: "Junior trainer, Pewter gym",
    7: "Brock",
    28: "Rival, Cerulean City",
    47: "Misty",
    48: "Rocket with Dig",
    65: "First trainer, S.S. Anne",
    81: "Rival, S.S. Anne",
    85: "Lt. Surge",
    96: "First battle, Rock Tunnel",
    123: "Erika",
    136: "Giovanni, Celadon game corner",
    137: "Rival, Lavender Town",
    205: "Koga",
    231: "Rival, Silph Co.",
    233: "Giovanni, Silph Co.",
    246: "Sabrina",
    265: "Blaine",
    277: "Giovanni, gym",
    278: "Rival, Route 22, last",
    291: "Lorelei",
    292: "Bruno",
    293: "Agatha",
    294: "Lance",
    295: "Champion",
}
YELLOW_BATTLES = {
    1: "Rival, first battle",
    7: "Rival, Route 22",
    9: "Brock",
    29: "Jessie and James, Mt. Moon",
    30: "Rival, Cerulean City",
    49: "Misty",
    83: "Rival, S.S. Anne",
    87: "Lt. Surge",
    125: "Erika",
    137: "Giovanni, Celadon game corner",
    138: "Rival, Pokemon Tower",
    183: "Koga",
    217: "Rival, Silph Co.",
    219: "Giovanni, Silph Co.",
    235: "Sabrina",
    259: "Blaine",
    270: "Giovanni, gym",
    271: "Rival, Route 22, last",
    284: "Lorelei",
    285: "Bruno",
    286: "Agatha",
    287: "Lance",
    288: "Champion",
}


def _numbered(names: str, safari: range) -> dict[int, str]:
    """Return names by number, from 1; those of `safari` are met in the Safari Zone."""
    listed = enumerate((name.strip() for name in names.split(",")), start=1)
    return {number: (_SAFARI if number in safari else "") + name for number, name in listed}


RED_CATCHING = _numbered(
    "Rattata, Pidgey, Nidoran F, Nidoran M, Kakuna, Weedle, Metapod, Caterpie, Pikachu, Jigglypuff, Zubat, Clefairy,"
    "Paras, Geodude, Oddish, Abra, Magikarp, Spearow, Ekans, Drowzee, Diglett, Dugtrio, Voltorb, Machop, Doduo, Gastly,"
    "Cubone, Haunter, Snorlax, Poliwag, Slowpoke, Poliwhirl, Tentacool, Krabby, Mankey, Growlithe, Ditto, Venonat,"
    "Pidgeotto, Gloom, Goldeen, Nidorino, Exeggcute, Rhyhorn, Dratini, Nidorina, Kangaskhan, Tauros, Scyther, Fearow,"
    "Raticate, Tangela, Ponyta, Koffing, Weezing, Grimer, Muk, Seel, Horsea, Shellder, Articuno, Slowbro, Staryu,"
    "Dewgong, Psyduck, Golbat, Golduck, Magneton, Electabuzz, Magnemite, Electrode, Zapdos, Kingler, Seadra, Seaking,"
    "Onix, Machoke, Venomoth, Graveler, Moltres, Dodrio, Kadabra, Hypno, Raichu, Arbok, Rhydon, Chansey, Parasect,"
    "Marowak, Wigglytuff, Mewtwo",
    safari=range(42, 50),
)
BLUE_CATCHING = _numbered(
    "Rattata, Pidgey, Nidoran F, Spearow, Metapod, Pikachu, Jigglypuff, Zubat, Clefairy, Geodude, Paras, Sandshrew,"
    "Bellsprout, Abra, Caterpie, Kakuna, Meowth, Magikarp, Diglett, Dugtrio, Drowzee, Sandshrew, Weedle, Voltorb,"
    "Machop, Onix, Raticate, Doduo, Gastly, Haunter, Cubone, Snorlax, Poliwhirl, Venonat, Ditto, Pidgeotto, Weepinbell,"
    "Nidorina, Exeggcute, Rhyhorn, Dratini, Nidorino, Kangaskhan, Tauros, Pinsir, Tangela, Pidgeotto, Tentacool,"
    "Ponyta, Koffing, Grimer, Vulpix, Magmar, Muk, Krabby, Psyduck, Staryu, Seel, Dewgong, Slowpoke, Shellder,"
    "Articuno, Golbat, Magnemite, Magneton, Voltorb, Raichu, Electrode, Zapdos, Poliwag, Goldeen, Horsea, Weezing,"
    "Golduck, Nidoran M, Seaking, Kingler, Slowbro, Seadra, Sandslash, Graveler, Machoke, Venomoth, Moltres, Marowak,"
    "Rhydon, Wigglytuff, Kadabra, Dodrio, Chansey, Parasect, Hypno, Mewtwo",
    safari=range(38, 46),
)
YELLOW_CATCHING = _numbered(
    "Caterpie, Metapod, Pidgey, Nidoran F, Mankey, Sandshrew, Rattata, Spearow, Zubat, Paras, Geodude, Clefairy,"
    "Bellsprout, Oddish, Abra, Jigglypuff, Magikarp, Diglett, Dugtrio, Drowzee, Pidgeotto, Magnemite, Nidoran M,"
    "Machop, Doduo, Raticate, Gastly, Haunter, Cubone, Snorlax, Seadra, Horsea, Goldeen, Seaking, Dodrio, Fearow,"
    "Ponyta, Tentacool, Shellder, Exeggcute, Kangaskhan, Dragonair, Dratini, Marowak, Pinsir, Tauros, Tangela, Scyther,"
    "Krabby, Kingler, Poliwag, Poliwhirl, Staryu, Psyduck, Golduck, Gyarados, Kadabra, Slowpoke, Weepinbell,"
    "Farfetch'd, Gloom, Venonat, Tentacruel, Voltorb, Grimer, Magneton, Electrode, Muk, Zapdos, Raticate, Growlithe,"
    "Dewgong, Articuno, Golbat, Seel, Slowbro, Primeape, Nidorino, Nidorina, Graveler, Onix, Machoke, Moltres, Rhydon,"
    "Rhyhorn, Sandslash, Ditto, Chansey, Lickitung, Parasect, Venomoth, Mewtwo",
    safari=range(40, 49),
)
