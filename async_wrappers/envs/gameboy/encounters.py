"""The meanings of the published save states' numbers.

From the ``key_details.txt`` files of github.com/CERC-AAI/realtime_rl, which name some of the battles and all of the
encounters in the wild; spelling made even. Yellow's encounters 90 and 92 are the other way round there: the memory of
the states holds a Parasect and Mewtwo.
"""

from __future__ import annotations

# Battles, and their numbers in Red, Blue and Yellow; 0 where the file of an edition does not name it.
_BATTLES = {
    "Rival, first battle": (1, 1, 1),
    "Rival, Route 22": (5, 5, 7),
    "Junior trainer, Pewter gym": (6, 6, 0),
    "Brock": (7, 7, 9),
    "Jessie and James, Mt. Moon": (0, 0, 29),
    "Rival, Cerulean City": (28, 28, 30),
    "Misty": (42, 47, 49),
    "Rocket with Dig": (0, 48, 0),
    "First trainer, S.S. Anne": (0, 65, 0),
    "Rival, S.S. Anne": (78, 81, 83),
    "Lt. Surge": (82, 85, 87),
    "First battle, Rock Tunnel": (0, 96, 0),
    "Erika": (121, 123, 125),
    "Rival, Pokemon Tower": (113, 0, 138),
    "Giovanni, Celadon game corner": (134, 136, 137),
    "Rival, Lavender Town": (0, 137, 0),
    "Koga": (186, 205, 183),
    "Rival, Silph Co.": (210, 231, 217),
    "Giovanni, Silph Co.": (216, 233, 219),
    "Sabrina": (224, 246, 235),
    "Blaine": (243, 265, 259),
    "Giovanni, gym": (267, 277, 270),
    "Rival, Route 22, last": (268, 278, 271),
    "Lorelei": (280, 291, 284),
    "Bruno": (281, 292, 285),
    "Agatha": (282, 293, 286),
    "Lance": (283, 294, 287),
    "Champion": (284, 295, 288),
}
RED_BATTLES, BLUE_BATTLES, YELLOW_BATTLES = (
    {numbers[edition]: title for title, numbers in _BATTLES.items() if numbers[edition]} for edition in range(3)
)


def _numbered(names: str, safari: range) -> dict[int, str]:
    """Return names by number, from 1; those of `safari` are met in the Safari Zone."""
    listed = enumerate((name.strip() for name in names.split(",")), start=1)
    return {number: f"Safari Zone: {name}" if number in safari else name for number, name in listed}


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
