"""Tetris and Pokemon: their tables, and how their episodes begin and follow each other, on cartridges of our own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import async_wrappers
from async_wrappers.envs import create_gym_environment
from async_wrappers.envs.gameboy import GAMES, Field, GameBoyEnv, StateList, find_spec
from async_wrappers.envs.gameboy.games import Catch, Faints, Points
from tests.worlds.gameboy import retro
from tests.worlds.gameboy.cartridge import cartridge
from tests.worlds.gameboy.counter import NOOP, RAM, A, B, counter_spec
from tests.worlds.gameboy.games import MENU, PLAYING, STARTED, STATE, own, pokemon_like, tetris_like, written

RED = "5ca7ba01642a3b27b0cc0b5349b52792795b62d3ed977e98a09390659af96b7b"
BLUE = "2a951313c2640e8c2cb21f25d1db019ae6245d9c7121f754fa61afd7bee6452d"
YELLOW = "8cbaa499397e4f1a679c992ea9382a2dd7942ab398b48c19829c2d9529de47bf"
TETRIS = "0d6535aef23969c7e5af2b077acaddb4a445b3d0df7bf34c8acef07b51b015c3"


@pytest.mark.parametrize(
    ("game", "rom", "asked_for", "prefix", "first", "last", "folder"),
    [
        ("Tetris", TETRIS, [], "TypeA_Level", 0, 9, "Tetris-GameBoy"),
        ("PokemonRed-battles", RED, [], "Bulb_B", 1, 284, "PokemonRed_Battles"),
        ("PokemonRed-catching", RED, [], "Bulb_C", 1, 91, "PokemonRed_Catching"),
        ("PokemonBlue-battles", BLUE, [RED], "Squirt_B", 1, 295, "PokemonBlue_Battles"),
        ("PokemonBlue-catching", BLUE, [], "Squirt_C", 1, 93, "PokemonBlue_Catching"),
        ("PokemonYellow-battles", YELLOW, [], "Pika_B", 1, 288, "PokemonYellow_Battles"),
        ("PokemonYellow-catching", YELLOW, [], "Pika_C", 1, 92, "PokemonYellow_Catching"),
    ],
)
def test_each_game_has_the_published_states_and_its_own_cartridge(
    game: str, rom: str, asked_for: list[str], prefix: str, first: int, last: int, folder: str
) -> None:
    for parity, expected in ((False, [rom]), (True, [rom, *asked_for])):
        spec = find_spec(game, parity)
        assert [accepted.sha256 for accepted in spec.roms] == expected
        states = spec.states
        assert (states.prefix, states.first, states.last, states.folder) == (prefix, first, last, folder)
        assert len(list(states)) == last - first + 1
        assert set(states.titles) <= set(range(first, last + 1))
        assert list(spec.actions) == ["A", "B", "LEFT", "UP", "RIGHT", "DOWN", "NOOP"]
        assert spec.fps == 59.7275


def test_the_wild_encounters_are_named_completely_and_the_great_battles_are() -> None:
    for edition, count, names in (
        ("Red", 91, {1: "Rattata", 9: "Pikachu", 29: "Snorlax", 45: "Safari Zone: Dratini", 91: "Mewtwo"}),
        ("Blue", 93, {6: "Pikachu", 32: "Snorlax", 45: "Safari Zone: Pinsir", 46: "Tangela", 93: "Mewtwo"}),
        ("Yellow", 92, {1: "Caterpie", 30: "Snorlax", 48: "Safari Zone: Scyther", 90: "Parasect", 92: "Mewtwo"}),
    ):
        titles = find_spec(f"Pokemon{edition}-catching").states.titles
        assert sorted(titles) == list(range(1, count + 1))
        assert {number: titles[number] for number in names} == names
    for edition, names in (
        ("Red", {7: "Brock", 42: "Misty", 82: "Lt. Surge", 121: "Erika", 186: "Koga", 224: "Sabrina"}),
        ("Blue", {7: "Brock", 47: "Misty", 85: "Lt. Surge", 123: "Erika", 205: "Koga", 246: "Sabrina"}),
        ("Yellow", {9: "Brock", 49: "Misty", 87: "Lt. Surge", 125: "Erika", 183: "Koga", 235: "Sabrina"}),
    ):
        states = find_spec(f"Pokemon{edition}-battles").states
        assert {number: states.titles[number] for number in names} == names
        assert states.titles[states.last] == "Champion"


@pytest.mark.parametrize(("edition", "shift"), [("Red", 0), ("Blue", 0), ("Yellow", -1)])
def test_pokemons_memory_is_where_the_published_tables_have_it(edition: str, shift: int) -> None:
    battles = find_spec(f"Pokemon{edition}-battles").ram
    assert [battles[f"my_hp{slot}"].address - shift for slot in range(1, 7)] == [
        *(0xD16C, 0xD198, 0xD1C4, 0xD1F0, 0xD21C, 0xD248),
    ]
    assert [battles[f"opp_hp{slot}"].address - shift for slot in range(1, 7)] == [
        *(0xD8A5, 0xD8D1, 0xD8FD, 0xD929, 0xD955, 0xD981),
    ]
    catching = find_spec(f"Pokemon{edition}-catching").ram
    assert battles.items() <= catching.items()
    single = {"party_size": 0xD163, "InBattle": 0xD057, "Owned1": 0xD2F7, "Owned19": 0xD309, "box_qnt": 0xDA80}
    single |= {"Item1": 0xD31F, "yPosOverworld": 0xD361, "xPosOverworld": 0xD362}
    assert {name: catching[name].address - shift for name in single} == single
    assert {(catching[name].size, catching[name].kind) for name in single} == {(1, "signed")}
    assert (battles["exp2"].address - shift, battles["exp2"].size) == (0xD179 + 0x2C, 3)
    assert (battles["money"].address - shift, battles["money"].size, battles["money"].kind) == (0xD347, 3, "decimal")
    points = [battles[f"{who}_hp{slot}"] for who in ("my", "opp") for slot in range(1, 7)]
    assert {(field.size, field.kind, field.order) for field in points} == {(2, "unsigned", "big")}


def test_tetris_reads_all_six_digits_unless_the_published_four_are_asked_for() -> None:
    memory = {0xC0A0: 0x56, 0xC0A1: 0x34, 0xC0A2: 0x12}
    scores = [find_spec("Tetris", parity).ram["score_bcd"].reader(memory, False)() for parity in (False, True)]
    assert scores == [123_456, 3_456]
    ram = find_spec("Tetris").ram
    assert (ram["game_state"].address, ram["level"].address) == (0xFFE1, 0xFFA9)


def test_each_game_has_its_rule() -> None:
    rules = {game: type(find_spec(game).rule()) for game in GAMES}
    assert rules.pop("Tetris") is Points
    assert {game: Faints if "battles" in game else Catch for game in rules} == rules


def test_an_unknown_game_is_refused_with_a_close_name() -> None:
    with pytest.raises(ValueError, match=r"got 'PokemonBlue-battle'; did you mean 'PokemonBlue-battles'\?$"):
        find_spec("PokemonBlue-battle")


def test_numbers_and_names_of_states() -> None:
    states = StateList("Squirt_B", 1, 295)
    assert states.name(12) == "Squirt_B12"
    assert [states.number(name) for name in ("Squirt_B12", "Squirt_B295", "12", "Squirt_B0", "Squirt_B296")] == [
        *(12, 295, None, None, None),
    ]
    assert [states.number(name) for name in ("Squirt_B", "Squirt_B012", "Squirt_Bx", "Pika_B1")] == [None] * 4
    with pytest.raises(ValueError, match=r"^state must be a number from 1 to 295, got 296$"):
        states.name(296)


# By id


@pytest.mark.parametrize("game", GAMES)
def test_each_game_is_registered_and_asks_for_the_users_own_rom(game: str) -> None:
    for make in (gym.make, create_gym_environment):
        with pytest.raises(ValueError, match=r"^rom must be the path of your own file of ") as error:
            make(f"async_wrappers/{game}-v0")
        assert find_spec(game).roms[0].sha256 in str(error.value)


def test_the_ids_are_known_without_importing_an_emulator() -> None:
    code = (
        "import sys, gymnasium, async_wrappers; "
        "assert 'async_wrappers/PokemonBlue-battles-v0' in gymnasium.registry; "
        "print([name for name in ('pyboy', 'cv2', 'sdl2', 'async_wrappers.envs') if name in sys.modules])"
    )
    root = Path(async_wrappers.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_parity_is_an_argument_of_the_id(tmp_path: Path) -> None:
    rom = tmp_path / "rom.gb"
    rom.write_bytes(b"a")
    for parity, expected in ((False, BLUE), (True, f"{BLUE}.* or .*{RED}")):
        with pytest.raises(ValueError, match=f"{expected}.*got") as error:
            gym.make("async_wrappers/PokemonBlue-battles-v0", rom=rom, parity=parity)
        assert (RED in str(error.value)) == parity


@pytest.mark.parametrize("parity", [False, True])
def test_blues_battles_are_played_on_blues_cartridge_and_with_parity_on_reds_too(tmp_path: Path, parity: bool) -> None:
    game = "PokemonBlue-battles"
    spec, cartridges = find_spec(game, parity), {"Blue": pokemon_like(game), "Red": pokemon_like("PokemonRed-catching")}
    own_of = {
        find_spec(f"Pokemon{title}-battles").roms[0]: sha256(rom).hexdigest() for title, rom in cartridges.items()
    }
    spec = replace(spec, roms=tuple(replace(rom, sha256=own_of[rom]) for rom in spec.roms))
    for title, rom in cartridges.items():
        path = written(tmp_path, rom, ["Squirt_B1"])
        if title == "Red" and not parity:
            with pytest.raises(ValueError, match=r"^rom must be Pokemon Blue "):
                GameBoyEnv(path, spec, states=tmp_path)
        else:
            assert GameBoyEnv(path, spec, states=tmp_path).reset()[1]["state"] == "Squirt_B1"


# Tetris: a cartridge whose menu leads to a game as the real one's does


@pytest.fixture(scope="module")
def tetris_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tetris")
    written(folder, tetris_like(), [f"TypeA_Level{level}" for level in range(10)], lambda console, _: None)
    return folder


def tetris_env(folder: Path, parity: bool = False, **arguments: Any) -> GameBoyEnv:
    rom = (folder / "rom.gb").read_bytes()
    spec = own(find_spec("Tetris", parity), rom)
    counts = {"started": Field(STARTED), "frames": Field(0xC000, 2, order="little")}  # of the cartridge's own
    return GameBoyEnv(folder / "rom.gb", replace(spec, ram={**spec.ram, **counts}), states=folder, **arguments)


@pytest.mark.parametrize("parity", [False, True])
@pytest.mark.parametrize("obs_type", ["grayscale", "ram"])
def test_an_episode_of_tetris_begins_in_the_game(tetris_folder: Path, parity: bool, obs_type: str) -> None:
    env = tetris_env(tetris_folder, parity, obs_type=obs_type)
    observation, info = env.reset(seed=0)
    assert info["state"] == "TypeA_Level0"
    assert info["game_state"] == PLAYING
    assert env.observation_space.contains(observation)
    assert env.step(NOOP)[1:4] == (0, False, False)
    assert env.step(A)[1] == 7
    *_, reward, terminated, _, info = env.step(B)
    assert (reward, terminated) == (0, True)
    assert "won" not in info  # points are no wins
    assert env.encounter is None


def test_start_is_pressed_unless_it_is_filtered_as_published(tetris_folder: Path) -> None:
    for parity, pressed in ((False, 1), (True, 0)):
        env = tetris_env(tetris_folder, parity)
        env.reset(seed=0)
        assert env.read("started") == pressed


@pytest.mark.parametrize("parity", [False, True])
def test_the_begin_of_tetris_is_drawn_from_the_seed(tetris_folder: Path, parity: bool) -> None:
    env = tetris_env(tetris_folder, parity, obs_type="ram")

    def begins(seeds: list[int | None]) -> list[int]:
        counts = []
        for seed in seeds:
            env.reset(seed=seed)
            counts.append(env.read("frames"))
        return counts

    first = begins([0, *[None] * 12])
    assert begins([0, *[None] * 12]) == first
    assert len(set(first)) > 5
    assert max(first) - min(first) <= 40


def test_each_level_of_tetris_has_its_state(tetris_folder: Path) -> None:
    for state in (3, "TypeA_Level3"):
        assert tetris_env(tetris_folder, state=state).reset(seed=0)[1]["state"] == "TypeA_Level3"


@pytest.mark.parametrize("parity", [False, True])
def test_a_state_from_which_the_game_never_begins_is_refused(tmp_path: Path, parity: bool) -> None:
    rom = cartridge("dmg", begin=bytes((0x3E, MENU, 0xE0, STATE)))
    written(tmp_path, rom, ["TypeA_Level0"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("async_wrappers.envs.gameboy.games._LONGEST_WAIT", 5)
        with pytest.raises(ValueError, match=r"^state TypeA_Level0: the game did not begin in 20 tries"):
            tetris_env(tmp_path, parity).reset(seed=0)


def test_with_parity_a_game_that_looks_like_its_menu_is_begun_again(tetris_folder: Path) -> None:
    env = tetris_env(tetris_folder, parity=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("async_wrappers.envs.gameboy.games._LEAST_CHANGE", 84 * 84 * 256)
        with pytest.raises(ValueError, match=r"the game did not begin in 20 tries"):
            env.reset(seed=0)
    env.reset(seed=0)


# Pokemon: cartridges with parties where the real ones have them


POKEMON = [game for game in GAMES if game != "Tetris"]


def pokemon_env(folder: Path, game: str, numbers: list[int], parity: bool = False, **arguments: Any) -> GameBoyEnv:
    rom, spec = pokemon_like(game), find_spec(game, parity)
    path = written(folder, rom, [spec.states.name(number) for number in numbers])
    return GameBoyEnv(path, own(spec, rom), states=folder, obs_type="ram", **arguments)


@pytest.mark.parametrize("game", POKEMON)
def test_a_won_encounter_is_followed_by_the_next_and_a_lost_one_by_itself(tmp_path: Path, game: str) -> None:
    env = pokemon_env(tmp_path, game, [1, 2, 3])
    name = find_spec(game).states.name
    for action, won, state in ((B, False, 1), (A, True, 1), (B, False, 2), (A, True, 2), (B, False, 3)):
        assert env.reset()[1]["state"] == name(state)
        assert env.step(NOOP)[1:4] == (0, False, False)
        _, reward, terminated, _, info = env.step(action)
        assert (reward, terminated, info["won"]) == (1 if won else -1, True, won)


def test_an_encounter_whose_state_is_missing_is_asked_for_until_it_is_there(tmp_path: Path) -> None:
    env = pokemon_env(tmp_path, "PokemonBlue-battles", [1])
    env.reset()
    env.step(A)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"there is no Squirt_B2\.state"):
            env.reset()
    (tmp_path / "Squirt_B1.state").rename(tmp_path / "Squirt_B2.state")
    assert env.reset()[1]["state"] == "Squirt_B2"


def test_an_encounter_that_is_cut_short_is_not_won(tmp_path: Path) -> None:
    env = pokemon_env(tmp_path, "PokemonBlue-battles", [1, 2])
    for _ in range(3):
        assert env.reset()[1]["state"] == "Squirt_B1"
        env.step(NOOP)


def test_with_parity_every_episode_is_the_first_encounter_while_the_count_goes_on(tmp_path: Path) -> None:
    env = pokemon_env(tmp_path, "PokemonBlue-battles", [1, 2], parity=True)
    for encounter in (1, 2, 3):
        assert env.encounter == encounter
        assert env.reset()[1]["state"] == "Squirt_B1"
        env.step(A)
        env.reset()  # the next one, which is lost
        env.step(B)


@pytest.mark.parametrize("parity", [False, True])
def test_the_order_of_encounters_goes_on_where_it_is_told_to(tmp_path: Path, parity: bool) -> None:
    env = pokemon_env(tmp_path, "PokemonBlue-catching", [1, 2, 3], parity)
    assert env.encounter == 1
    env.reset()
    env.step(A)
    assert env.encounter == 2  # before the reset, too
    later = pokemon_env(tmp_path, "PokemonBlue-catching", [1, 2, 3], parity)
    later.encounter = env.encounter
    assert later.reset()[1]["state"] == ("Squirt_C1" if parity else "Squirt_C2")
    later.step(A)
    assert later.encounter == 3
    later.reset(options={"state": "Squirt_C2"})  # an episode out of order changes nothing
    later.step(A)
    assert later.encounter == 3
    later.encounter = None
    assert later.encounter == 1
    assert later.reset()[1]["state"] == "Squirt_C1"


def test_an_encounter_that_is_not_there_or_an_order_that_is_not_followed_is_refused(tmp_path: Path) -> None:
    env = pokemon_env(tmp_path, "PokemonBlue-battles", [1, 2])
    with pytest.raises(ValueError, match="from 1 to 295, got 296"):
        env.encounter = 296
    fixed = pokemon_env(tmp_path, "PokemonBlue-battles", [1, 2], state=2)
    assert fixed.encounter is None
    with pytest.raises(ValueError, match="no order of encounters is followed, got 2"):
        fixed.encounter = 2


def test_after_the_last_encounter_comes_the_first(tmp_path: Path) -> None:
    game = "PokemonRed-battles"
    rom, spec = pokemon_like(game), find_spec(game)
    spec = replace(own(spec, rom), first_state=284)
    path = written(tmp_path, rom, ["Bulb_B284", "Bulb_B1"])
    env = GameBoyEnv(path, spec, states=tmp_path)
    assert env.reset()[1]["state"] == "Bulb_B284"
    env.step(A)
    assert env.reset()[1]["state"] == "Bulb_B1"


def test_a_chosen_encounter_stays(tmp_path: Path) -> None:
    for state in (2, "Squirt_B2"):
        env = pokemon_env(tmp_path, "PokemonBlue-battles", [1, 2], state=state)
        for _ in range(2):
            assert env.reset()[1]["state"] == "Squirt_B2"
            env.step(A)


def test_an_episode_with_an_encounter_of_its_own_changes_nothing_in_the_order(tmp_path: Path) -> None:
    env = pokemon_env(tmp_path, "PokemonBlue-battles", [1, 2, 7])
    env.reset()
    assert env.reset(options={"state": 7})[1]["state"] == "Squirt_B7"
    env.step(A)
    assert env.reset()[1]["state"] == "Squirt_B1"


def test_the_money_can_be_read(tmp_path: Path) -> None:
    env = pokemon_env(tmp_path, "PokemonBlue-battles", [1])
    env.reset()
    assert (env.read("money"), env.read("my_hp1"), env.read("opp_hp1"), env.read("party_size")) == (0, 256, 9, 1)


def test_a_state_of_another_game_on_the_same_hardware_is_refused(tmp_path: Path) -> None:
    rom = retro.cartridges()["mbc3"]
    (tmp_path / "rom.gb").write_bytes(rom)
    (tmp_path / "Squirt_B1.state").write_bytes(retro.recording("mbc3")["state"].tobytes())
    env = GameBoyEnv(tmp_path / "rom.gb", own(find_spec("PokemonBlue-battles"), rom), states=tmp_path)
    with pytest.raises(ValueError, match=r"^state Squirt_B1: it is not of Pokemon Blue, battles: party_size "):
        env.reset()


@pytest.mark.parametrize("below", [True, False])
def test_a_directory_of_gym_retros_states_is_used_as_it_is(tmp_path: Path, below: bool) -> None:
    rom = retro.cartridges()["cgb"]
    folder = tmp_path / "Counter-GameBoy" if below else tmp_path
    folder.mkdir(exist_ok=True)
    (tmp_path / "rom.gbc").write_bytes(rom)
    (folder / "Level1.state").write_bytes(retro.recording("cgb")["state"].tobytes())
    ram = RAM | {"game_state": Field(0xC060)}  # gym-retro's high RAM begins with anything
    spec = counter_spec(rom, ram=ram, states=StateList("Level", 1, 9, folder="Counter-GameBoy"))
    env = GameBoyEnv(tmp_path / "rom.gbc", spec, states=tmp_path, obs_type="ram")
    first = [env.reset()] + [env.step(A) for _ in range(5)]
    again = [env.reset()] + [env.step(A) for _ in range(5)]
    assert first[0][1]["state"] == "Level1"
    assert [step[-1] for step in first] == [step[-1] for step in again]
    with pytest.raises(ValueError, match=r"^states: there is no Level2\.state in '.*': give the directory "):
        env.reset(options={"state": 2})


def test_a_missing_directory_of_states_is_refused_with_where_they_are(tmp_path: Path) -> None:
    rom = pokemon_like("PokemonBlue-battles")
    spec = own(find_spec("PokemonBlue-battles"), rom)
    path = written(tmp_path, rom, [])
    for states, sentence in (
        (None, "states must be a directory with Squirt_B1.state in it, got None"),
        (tmp_path / "none", "states must be a directory with save states, got "),
        (tmp_path, "states: there is no Squirt_B1.state in "),
    ):
        with pytest.raises(ValueError) as error:
            GameBoyEnv(path, spec, states=states)
        assert str(error.value).startswith(sentence)
        assert states == tmp_path / "none" or "custom_integrations/PokemonBlue_Battles" in str(error.value)


@pytest.mark.parametrize(("state", "sentence"), [(296, "1 to 295, got 296"), (2.5, "one of Squirt_B1 to Squirt_B295")])
def test_a_state_that_is_none_of_the_game_is_refused(tmp_path: Path, state: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        pokemon_env(tmp_path, "PokemonBlue-battles", [1], state=state)
