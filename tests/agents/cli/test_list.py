"""`train.py list`: what the command line and gin files can name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from ale_py import roms

from async_wrappers.agents.trained.agent_file import shipped_agents
from async_wrappers.envs import create_gym_environment
from tests.worlds.command_line import call, place, refused

__all__ = ["call", "place"]


@pytest.mark.parametrize("word", ["list", "--list"])
def test_the_list_names_agents_games_environments_and_configurations(call: Any, word: str) -> None:
    done = call(word)
    assert done.code == 0
    words = set(done.out.split())
    assert {"dqn", "noop", "random", "Boxing", "Pong", "CartPole-v1", "configs/dqn/cartpole.gin"} <= words
    assert {"configs/paper/asynchronous_8.gin", "configs/paper/asynchronous_10m.gin"} <= words


def sections(out: str) -> dict[str, list[str]]:
    """Return the lines below each title, by the title's first words."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in out.splitlines():
        if line.startswith("  "):
            lines.append(line.strip())
        else:
            lines = found.setdefault(line.split(" (")[0].rstrip(":"), [])
    return found


def test_the_agents_that_ship_are_listed_with_their_scores(call: Any) -> None:
    lines = sections(call("list").out)["trained agents"]
    assert [line.partition(":")[0] for line in lines] == [*shipped_agents()]
    for line in lines:
        score = r"(\S+): mean return \S+ \(95 % interval .*\), random play \S+?"
        found = re.fullmatch(score + r"(, (\d+) frames late)?; \S+ frames of training; MIT", line)
        assert found is not None and found[3] == (found[1].partition("@")[2] or None)  # the delay of the name


def test_every_environment_of_the_list_can_be_made_and_the_others_say_what_they_miss(call: Any, place: Path) -> None:
    before = {*place.iterdir()}
    found = sections(call("list").out)
    assert {*place.iterdir()} == before  # MuJoCo writes its warnings into the working directory
    assert {"CartPole-v1", "async_wrappers/FallingBlocks-v0", "Blackjack-v1"} <= {*found["other environments"]}
    for name in found["other environments"]:
        create_gym_environment(name).close()
    missing = "\n".join(found["environments that miss something here"])
    assert "async_wrappers/Tetris-v0: rom must be the path of your own file of Tetris" in missing
    ours = {name for name, spec in gym.registry.items() if not str(spec.entry_point).startswith("ale_py")}
    assert all(name in missing for name in ours - {*found["other environments"]})


def test_a_game_without_its_rom_is_listed_as_missing_it(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = roms.get_rom_path
    monkeypatch.setattr(roms, "get_rom_path", lambda name: None if name == "pong" else path(name))
    found = sections(call("list").out)
    assert "Boxing" in found["Atari games"] and "Pong" not in found["Atari games"]
    assert "Pong: ale-py has no ROM" in found["environments that miss something here"]


def test_the_wrappers_of_gymnasium_are_listed_as_gin_names_them(call: Any) -> None:
    assert {"@FrameStackObservation", "@FlattenObservation", "@RealtimeDelay"} <= {
        *sections(call("list").out)["wrappers"]
    }


class TestParametersOfAName:
    def test_an_agents_come_first_then_those_that_it_shares_each_as_gin_binds_it(self, call: Any) -> None:
        head, *lines = call("list", "c51").out.splitlines()
        assert head.startswith("C51Agent, create_agent.agent_name = 'c51': C51 (Bellemare et al. 2017)")
        wanted = "N, how many atoms the support has, equally spaced from vmin to vmax. It must be >= 2 atoms."
        assert lines[0] == f"  C51Agent.num_atoms = 51  # {wanted}"
        assert "  DQNAgent.gamma = 0.99  # Discount. It must lie in [0, 1]." in lines
        names = [line.split()[0] for line in lines]
        assert names == sorted(names, key=lambda name: name.startswith("DQNAgent"))
        assert not [name for name in names if re.search("_space|shared|decision_interval", name)]

    def test_a_default_that_an_agent_declares_anew_takes_the_place_of_its_bases(self, call: Any) -> None:
        lines = call("list", "full_rainbow").out.splitlines()
        declared = [line for line in lines if ".replay_scheme =" in line]
        assert [line.split("  #")[0] for line in declared] == ["  RainbowAgent.replay_scheme = 'prioritized'"]

    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("RealtimeDelay", "  RealtimeDelay.delay = 0  # Age of the observation behind an action, in frames."),
            (
                "@RealtimeDelay",
                "  RealtimeDelay.noops = 0  # Frames between two actions, ",
            ),
            ("create_gym_environment", "  create_gym_environment.environment_id  # "),
            ("random", "  RandomAgent.seed = 0  # "),
        ],
    )
    def test_any_name_of_gin_files_has_them(self, call: Any, name: str, line: str) -> None:
        assert any(each.startswith(line) for each in call("list", name).out.splitlines())

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("dnq", "did you mean 'dqn'?"),
            ("DNQAgent", "did you mean 'DQNAgent'?"),
            ("0", "`python train.py list` names the agents"),
        ],
    )
    def test_another_name_is_refused_with_the_nearest(self, call: Any, name: str, hint: str) -> None:
        message = refused(call("list", name))
        assert message == f"list knows no agent {name!r}, and gin files have no such name; {hint}"
