"""Gin files and bindings: what wins, what is saved, and mistakes told in one sentence."""

from __future__ import annotations

import logging
from pathlib import Path

import gin
import gymnasium as gym
import pytest
import torch

import async_wrappers.agents.configurables
import async_wrappers.configurables  # noqa: F401 - the gin names
from async_wrappers.agents.acting.exploration import linearly_decaying_epsilon
from async_wrappers.agents.config.config import (
    CONFIG,
    ConfigError,
    code_named,
    find_gin_files,
    load_config,
    save_config,
)
from async_wrappers.agents.losses.loss import create_optimizer

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(*bindings: str, files: tuple[str, ...] = (), saved: Path | None = None) -> None:
    load_config(files, bindings, saved=saved, search_paths=[ROOT])


def learning_rate() -> float:
    """What `create_optimizer` really uses."""
    optimizer = create_optimizer([torch.nn.Parameter(torch.zeros(1))], name="sgd")
    return float(optimizer.defaults["lr"])


def write(name: str, *lines: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def refused(*bindings: str, files: tuple[str, ...] = (), saved: Path | None = None) -> str:
    """The sentence with which a configuration is refused."""
    with pytest.raises(ConfigError) as caught:
        load(*bindings, files=files, saved=saved)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestPrecedence:
    def test_bindings_win_over_files_those_over_the_saved_configuration_and_that_over_defaults(self) -> None:
        saved = write("run/config.gin", "create_optimizer.learning_rate = 2.0")
        write("mine.gin", "create_optimizer.learning_rate = 3.0")
        load()
        assert learning_rate() == 6.25e-5
        load(saved=saved)
        assert learning_rate() == 2.0
        load(saved=saved, files=("mine.gin",))
        assert learning_rate() == 3.0
        load("create_optimizer.learning_rate = 4.0", saved=saved, files=("mine.gin",))
        assert learning_rate() == 4.0

    def test_later_files_and_bindings_win(self) -> None:
        write("one.gin", "create_optimizer.learning_rate = 1.0")
        write("two.gin", "create_optimizer.learning_rate = 2.0")
        load(files=("one.gin", "two.gin"))
        assert learning_rate() == 2.0
        load("create_optimizer.learning_rate = 5.0", "create_optimizer.learning_rate = 6.0", files=("one.gin",))
        assert learning_rate() == 6.0

    def test_loading_forgets_what_was_loaded_before(self) -> None:
        load("create_optimizer.learning_rate = 5.0")
        load()
        assert learning_rate() == 6.25e-5

    def test_a_missing_saved_configuration_is_none(self) -> None:
        load("create_optimizer.learning_rate = 5.0", saved=Path("nowhere/config.gin"))
        assert learning_rate() == 5.0

    def test_a_file_may_include_one_of_ours_from_any_directory(self) -> None:
        write("mine.gin", "include 'configs/dqn/cartpole.gin'", "DQNAgent.gamma = 0.5")
        load(files=("mine.gin",))
        assert gin.query_parameter("DQNAgent.gamma") == 0.5
        assert gin.query_parameter("create_gym_environment.environment_id") == "CartPole-v1"

    def test_a_file_of_the_working_directory_wins_over_one_of_ours(self) -> None:
        write("configs/dqn/cartpole.gin", "DQNAgent.gamma = 0.25")
        load(files=("configs/dqn/cartpole.gin",))
        assert gin.query_parameter("DQNAgent.gamma") == 0.25

    def test_a_file_may_be_named_by_its_whole_path(self, tmp_path: Path) -> None:
        write("mine.gin", "DQNAgent.gamma = 0.25")
        load(files=(str(tmp_path / "mine.gin"),))
        assert gin.query_parameter("DQNAgent.gamma") == 0.25

    def test_macros_are_replaced(self) -> None:
        load("frames = 8", "RealtimeDelay.delay = %frames", "RealtimeDelay.noops = %frames")
        env = gin.get_configurable("RealtimeDelay")(gym.make("CartPole-v1"), default_action="repeat")
        assert env.spec.additional_wrappers[-1].kwargs.items() >= {"delay": 8, "noops": 8}.items()


class TestMistakes:
    def test_an_unknown_file_names_the_nearest(self) -> None:
        assert refused(files=("configs/dqn/cartpol.gin",)) == (
            "--gin_files configs/dqn/cartpol.gin: no such file; did you mean configs/dqn/cartpole.gin or "
            "configs/ppo/cartpole.gin?"
        )
        assert "configs/dqn/cartpole.gin?" in refused(files=("cartpole.gin",))
        assert refused(files=("zzzzz",)) == "--gin_files zzzzz: no such file"

    def test_a_file_beside_the_unknown_one_is_nearer_than_one_of_ours(self, tmp_path: Path) -> None:
        write("cartpole2.gin", "")
        write("mine/cartpoles.gin", "")
        begin = "no such file; did you mean {}"
        assert begin.format("cartpole2.gin") in refused(files=("cartpole.gin",))
        assert begin.format("mine/cartpoles.gin") in refused(files=("mine/cartpole.gin",))
        assert begin.format(tmp_path / "cartpole2.gin") in refused(files=(str(tmp_path / "cartpole3.gin"),))

    @pytest.mark.parametrize(
        ("value", "token", "remedy"),
        [
            ("dqn", "dqn", "a text has quotes ('dqn'), what gin makes has @ (@dqn), and a number has digits"),
            ("[dqn, 'c51']", "dqn", "a text has quotes ('dqn'), what gin makes has @ (@dqn), and a number has digits"),
            ("{dqn: 1}", "dqn", "a text has quotes ('dqn'), what gin makes has @ (@dqn), and a number has digits"),
            (
                "LogNormal()",
                "LogNormal",
                "a text has quotes ('LogNormal'), what gin makes has @ (@LogNormal), and a number has digits",
            ),
            ("-x", "x", "a text has quotes ('x'), what gin makes has @ (@x), and a number has digits"),
            ("true", "true", "write True"),
            ("null", "null", "write None"),
        ],
    )
    @pytest.mark.parametrize("place", ["binding", "file", "macro"])
    def test_a_text_without_quotes_is_named_with_the_remedy(
        self, place: str, value: str, token: str, remedy: str
    ) -> None:
        text = f"{'name' if place == 'macro' else 'create_agent.agent_name'} = {value}"
        if place == "file":
            write("mine.gin", "include 'configs/dqn/cartpole.gin'", text)
        message = refused(files=("mine.gin",)) if place == "file" else refused(text)
        source = "--gin_files mine.gin (line 2)" if place == "file" else f"--gin_bindings {text!r}"
        assert message == f"{source}: {token} is no value of gin: {remedy}"

    def test_a_byte_order_mark_is_no_part_of_a_file(self, tmp_path: Path) -> None:
        Path("marked.gin").write_text("DQNAgent.gamma = 0.5\n", encoding="utf-8-sig")
        Path("top.gin").write_text("include 'marked.gin'\nDQNAgent.batch_size = 8\n", encoding="utf-8-sig")
        load(files=("top.gin",))
        assert gin.query_parameter("DQNAgent.gamma") == 0.5
        assert code_named(["top.gin"], []) == (set(), [])
        saved = tmp_path / "config.gin"
        saved.write_text("DQNAgent.gamma = 0.25\n", encoding="utf-8-sig")
        load(saved=saved)
        assert gin.query_parameter("DQNAgent.gamma") == 0.25

    def test_an_unknown_name_names_the_nearest(self) -> None:
        message = refused("DQNAgnt.gamma = 0.5")
        assert message.startswith(
            "--gin_bindings 'DQNAgnt.gamma = 0.5': nothing is named 'DQNAgnt'; did you mean DQNAgent"
        )
        assert "did you mean DQNAgent" in refused("JaxDQNAgent.gamma = 0.5")

    def test_a_file_of_dopamines_points_to_the_page_of_names(self) -> None:
        write("rainbow.gin", "import dopamine.jax.agents.rainbow.rainbow_agent", "JaxRainbowAgent.num_atoms = 51")
        message = refused(files=("rainbow.gin",))
        assert message.startswith("--gin_files rainbow.gin")
        assert "this is a file of Dopamine's (No module named 'dopamine')" in message.replace("\n", " ")
        assert message.endswith("docs/reference/dopamine_names.md says what Dopamine's names are here")

    @pytest.mark.parametrize("name", ["JaxRainbowAgent", "JaxQuantileAgent", "JaxFullRainbowAgent"])
    def test_a_name_of_dopamines_points_to_ours_and_to_the_page(self, name: str) -> None:
        message = refused(f"{name}.num_atoms = 51")
        assert f"did you mean {name.removeprefix('Jax')}" in message
        assert message.endswith("docs/reference/dopamine_names.md says what Dopamine's names are here")

    def test_an_unknown_name_in_a_file_is_told_with_its_line(self) -> None:
        write("mine.gin", "DQNAgent.gamma = 0.5", "", "RealtimDelay.delay = 3")
        message = refused(files=("mine.gin",))
        assert message.startswith("--gin_files mine.gin (line 3): nothing is named 'RealtimDelay'; did you mean")
        assert "RealtimeDelay" in message.removeprefix("--gin_files mine.gin (line 3): nothing is named 'RealtimDelay'")

    def test_an_unknown_parameter_names_the_nearest(self) -> None:
        assert refused("DQNAgent.gama = 0.5") == (
            "--gin_bindings 'DQNAgent.gama = 0.5': DQNAgent has no parameter 'gama'; did you mean DQNAgent.gamma?"
        )

    @pytest.mark.parametrize("agent", ["C51Agent", "RainbowAgent", "FullRainbowAgent", "agents.QuantileAgent"])
    def test_an_unknown_parameter_of_an_agent_that_extends_another_names_the_nearest(self, agent: str) -> None:
        name = agent.rpartition(".")[2]
        message = refused(f"{agent}.num_atom = 5")
        assert message.startswith(
            f"gin configuration: {name} has no parameter 'num_atom'; did you mean {name}.num_atoms"
        )
        assert f"did you mean {name}.gamma" in refused(f"{agent}.gama = 0.5")
        load(f"{agent}.gamma = 0.5", f"{agent}.num_atoms = 5")

    def test_a_parameter_of_another_thing_names_that_one(self) -> None:
        others = "DelayObservation.delay or RealtimeDelay.delay or VectorRealtimeDelay.delay"
        assert f"did you mean {others}?" in refused("DQNAgent.delay = 3")
        assert "create_optimizer.learning_rate" in refused("DQNAgent.learning_rate = 3")

    @pytest.mark.parametrize("reference", ["@NatureTors", "@NatureTors()", "@agents.NatureTors"])
    def test_an_unknown_reference_names_the_nearest(self, reference: str) -> None:
        message = refused(f"create_network.torso = {reference}")
        assert "nothing is named 'NatureTors'; did you mean NatureTorso" in message
        assert f"create_network.torso = {reference}" in message

    def test_a_macro_that_is_not_defined_is_named(self) -> None:
        message = refused("RealtimeDelay.delay = %frames")
        assert "frames" in message
        assert "not defined" in message

    @pytest.mark.parametrize("binding", ["DQNAgent.gamma", "DQNAgent.gamma = ", "DQNAgent.gamma == 1", "= 3", "a b c"])
    def test_what_is_no_statement_is_shown_how_to_write_one(self, binding: str) -> None:
        message = refused(binding)
        assert message.startswith(f"--gin_bindings {binding!r}")
        assert "RealtimeDelay.delay = 8" in message

    def test_a_text_without_quotes_is_told_about_them(self) -> None:
        assert "quotes" in refused("create_agent.agent_name = dqn")

    def test_a_module_that_cannot_be_imported_is_named(self) -> None:
        write("mine.gin", "import no_such_module_of_mine")
        message = refused(files=("mine.gin",))
        assert message.startswith("--gin_files mine.gin")
        assert "no_such_module_of_mine" in message

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"# caf\xe9\n", "it is not a text in UTF-8 ("),
            (b'include "mine.gin"\n', "it includes itself"),
            (b"MLPTorso.hidden = " + b"[" * 3000 + b"]" * 3000, "it is nested too deeply"),
            (b"Runner.seed = (1, 2\n", "a bracket or a quote is not closed"),
            (b'create_agent.agent_name = """dqn\n', "a bracket or a quote is not closed"),
            (b"import breaks\n", "a module that it imports fails (ZeroDivisionError: division by zero, "),
            (b"import ends\n", "a module that it imports fails (SystemExit: 3, "),
            (b"import torn\n", "a module that it imports has a mistake (invalid syntax (torn.py, line 1))"),
            (b"\0\1", "not a gin statement"),
        ],
    )
    def test_a_file_that_cannot_be_used_is_one_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, said: str
    ) -> None:
        write("breaks.py", "1 / 0")
        write("ends.py", "import sys; sys.exit(3)")
        write("torn.py", "x = = 1")
        monkeypatch.syspath_prepend(tmp_path)
        Path("mine.gin").write_bytes(content)
        message = refused(files=("mine.gin",))
        assert message.startswith("--gin_files mine.gin")
        assert said in message

    def test_an_empty_file_binds_nothing(self) -> None:
        Path("mine.gin").write_bytes(b"")
        load(files=("mine.gin",))
        assert gin.config_str().strip() == ""

    def test_an_included_file_that_is_not_there_is_named(self) -> None:
        write("mine.gin", "include 'no_such_file.gin'")
        message = refused(files=("mine.gin",))
        assert message.startswith("--gin_files mine.gin")
        assert "no_such_file.gin" in message

    def test_a_mistake_in_the_saved_configuration_names_its_file(self) -> None:
        saved = write("run/config.gin", "DQNAgent.gama = 0.5")
        assert str(saved) in refused(saved=saved)

    def test_logging_is_as_before_after_a_mistake(self) -> None:
        refused("DQNAgent.gama = 0.5")
        assert logging.root.manager.disable == logging.NOTSET


class TestSaved:
    def test_what_was_used_is_saved_with_its_defaults(self) -> None:
        load("create_optimizer.learning_rate = 0.5")
        learning_rate()
        path = save_config(Path("run"))
        assert path == Path("run") / CONFIG
        gin.clear_config()
        gin.parse_config(path.read_text())
        assert gin.query_parameter("create_optimizer.learning_rate") == 0.5
        assert gin.query_parameter("create_optimizer.eps") == 1.5e-4

    def test_what_was_bound_and_not_yet_used_is_saved_too(self) -> None:
        load("linearly_decaying_epsilon.epsilon = 0.25", "MLPTorso.hidden = (7, 8)")
        load(saved=save_config(Path("run")))
        assert gin.query_parameter("linearly_decaying_epsilon.epsilon") == 0.25
        assert gin.query_parameter("MLPTorso.hidden") == (7, 8)
        assert linearly_decaying_epsilon(decay_period=0, frame=5, warmup_frames=0) == 0.25

    def test_a_saved_configuration_loaded_and_saved_again_is_the_same(self) -> None:
        long = tuple(range(1, 80))
        load(
            "frames = 8",
            "RealtimeDelay.delay = %frames",
            f"MLPTorso.hidden = {long}",
            "create_network.torso = @MLPTorso",
            "create_gym_environment.environment_kwargs = {'a': 1, 'b': [1.5, None, True]}",
            "create_agent.agent_name = 'dqn'",
            "late/create_optimizer.learning_rate = 0.125",
            "create_optimizer.learning_rate = 0.5",
        )
        learning_rate()
        gin.get_configurable("RealtimeDelay")(gym.make("CartPole-v1"), default_action="repeat")
        first = save_config(Path("run")).read_text()
        load(saved=Path("run") / CONFIG)
        again = gin.config_str()
        learning_rate()
        gin.get_configurable("RealtimeDelay")(gym.make("CartPole-v1"), default_action="repeat")
        second = save_config(Path("run")).read_text()
        load(saved=Path("run") / CONFIG)
        assert gin.config_str() == again
        assert sorted(second.splitlines()) == sorted(first.splitlines())
        assert gin.query_parameter("MLPTorso.hidden") == long
        assert gin.query_parameter("late/create_optimizer.learning_rate") == 0.125
        env = gin.get_configurable("RealtimeDelay")(gym.make("CartPole-v1"), default_action="repeat")
        assert env.spec.additional_wrappers[-1].kwargs["delay"] == 8

    def test_imports_are_saved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write("a_module_of_mine.py", "import gin", "@gin.configurable", "def mine(value=1):", "    return value")
        monkeypatch.syspath_prepend(tmp_path)
        write("mine.gin", "import a_module_of_mine", "mine.value = 5")
        load(files=("mine.gin",))
        assert "import a_module_of_mine" in save_config(Path("run")).read_text()


class TestFinding:
    def test_gin_files_are_found_below_configs(self) -> None:
        write("configs/one.gin")
        write("configs/deep/er/two.gin")
        write("elsewhere/three.gin")
        write("configs/readme.txt")
        assert find_gin_files([Path()]) == ["configs/deep/er/two.gin", "configs/one.gin"]

    def test_ours_are_found(self) -> None:
        assert "configs/dqn/cartpole.gin" in find_gin_files([ROOT])
