"""Agents as files: the same actions after the way through a file, damage, names, and the files that ship."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest
import torch
from gymnasium.error import DependencyNotInstalled
from safetensors.torch import load_file, save_file

import async_wrappers
from async_wrappers.agents.config.config import ConfigError, save_config
from async_wrappers.agents.config.gin_text import code_in, strangers
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.ship import ship
from async_wrappers.agents.learning.diverged import check_loaded
from async_wrappers.agents.load import load_agent, play_episode
from async_wrappers.agents.play.play import Phase, environment_seed
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.trained.agent_file import (
    agent_path,
    read_about,
    read_agent,
    read_config,
    score_in_words,
    shipped_agents,
    write_agent,
)
from async_wrappers.agents.trained.export import ActsDifferently
from async_wrappers.version import __version__
from tests.worlds.experiments import load_gin

SHORT = (
    "import async_wrappers.agents.configurables",
    "import async_wrappers.configurables",
    "Runner.num_iterations = 1",
    "Runner.training_steps = 200",  # frames
    "Runner.evaluation_steps = 0",
    "Runner.evaluation_episodes = 0",
    "Runner.max_steps_per_episode = 30",  # frames
    "MLPTorso.hidden = (8,)",
    "Runner.seed = 3",
)
IN_TURN = "create_runner.schedule = 'continuous_train'"
AGENTS: dict[str, tuple[str, list[str]]] = {
    "dqn": ("configs/dqn/cartpole.gin", ["DQNAgent.epsilon_eval = 0.3"]),
    "noise": (
        "configs/full_rainbow/cartpole.gin",
        ["DQNAgent.min_replay_history = 100", "DQNAgent.update_period = 50"],
    ),
    "vtrace": ("configs/vtrace/cartpole.gin", ["VTraceAgent.drawn_evaluation = True"]),
    "lstm": ("configs/vtrace/cartpole_delay_lstm.gin", ["RealtimeDelay.delay = 2"]),
    "sac": ("configs/sac/pendulum.gin", []),
    "ppo": ("configs/ppo/pendulum.gin", []),
    "impact": ("configs/impact/cartpole.gin", ["ImpactAgent.drawn_evaluation = True"]),
}


def trained(base_dir: Path, name: str) -> Experiment:
    """A short run, and its runner as `train.py export` makes it."""
    config, bindings = AGENTS[name]
    load_gin(config, bindings=[*SHORT, *bindings])
    first: Experiment = create_runner(base_dir)
    save_config(base_dir)
    first.run_experiment()
    load_gin(config, bindings=[*SHORT, *bindings, IN_TURN])
    runner: Experiment = create_runner(base_dir)
    return runner


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a DQN on CartPole."""
    folder, threads = tmp_path_factory.mktemp("file"), torch.get_num_threads()
    ship(trained(folder / "run", "dqn"), folder / "agent.safetensors", 2, command="train.py --seed 3", licence="CC0")
    gin.clear_config()
    torch.set_num_threads(threads)
    return folder / "agent.safetensors"


def played(agent: Any, env: Any, episodes: int = 2) -> list[Any]:
    return [play_episode(agent, env, environment_seed(3, Phase.FINAL, number), 30) for number in range(episodes)]


# The way through a file.


@pytest.mark.parametrize("name", AGENTS)
def test_the_agent_of_a_file_plays_as_that_of_the_run(tmp_path: Path, name: str) -> None:
    runner, output = trained(tmp_path / "run", name), tmp_path / "there" / "agent.safetensors"
    about = ship(runner, output, 2)
    gin.clear_config()
    assert [path.name for path in output.parent.iterdir()] == ["agent.safetensors"]
    of_the_run, of_the_file = (load_agent(each) for each in (tmp_path / "run", output))
    assert of_the_file[0].identity() == of_the_run[0].identity()
    scores = [episode.score for episode in played(*of_the_run)]
    assert [episode.score for episode in played(*of_the_file)] == scores
    assert about["score"]["mean"] == np.mean(scores)


def test_a_file_tells_what_it_is(file: Path) -> None:
    about = read_about(file)
    score = about.pop("score")
    assert about == {
        "environment": "CartPole-v1",
        "agent": "DQNAgent, 58 weights",
        "delay": "none",
        "seed": 3,
        "frames": 200 + about["frames"] % 200,  # of whole episodes
        "command": "train.py --seed 3",
        "version": __version__,
        "licence": "CC0",
    }
    assert score["protocol"] == (
        "the episodes of `train.py evaluate` with seed 3, the best actions, and one at random with probability 0.3"
    )
    assert (score["episodes"], score["random"]["episodes"]) == (2, 2)
    assert score["interval"][0] <= score["mean"] <= score["interval"][1]
    assert re.fullmatch(
        r"mean return \S+ \(95 % interval \S+ to \S+, 2 episodes\), random play \S+", score_in_words(read_about(file))
    )
    assert read_agent(file).bundle["frames"] == about["frames"]


def test_the_delay_of_training_and_that_of_the_score_are_told_apart(tmp_path: Path) -> None:
    trained(tmp_path / "run", "lstm")
    load_gin(AGENTS["lstm"][0], bindings=[*SHORT, "RealtimeDelay.delay = 3", IN_TURN])
    about = ship(create_runner(tmp_path / "run"), tmp_path / "a.safetensors", 1)
    assert (about["delay"], about["score"]["delay"]) == ("2 frames", "3 frames")
    assert "RealtimeDelay.delay = 3" in read_config(tmp_path / "a.safetensors")


def test_bindings_win_over_those_of_the_file(file: Path) -> None:
    _, env = load_agent(file, ["RealtimeDelay.delay = 5"])
    env.reset(seed=0)
    assert env.step(0)[-1]["realtime"]["delay"] == 5


def test_a_file_that_would_act_differently_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = trained(tmp_path / "run", "vtrace")

    def forgetful(path: Path, config: str, about: Any, identity: Any, state: Any, *others: Any) -> None:
        zeros = {name: torch.randn(weight.shape) * 9 for name, weight in state["network"].items()}
        write_agent(path, config, about, identity, {"network": zeros}, *others)

    monkeypatch.setattr("async_wrappers.agents.experiment.ship.write_agent", forgetful)
    with pytest.raises(ActsDifferently, match=r"agent.safetensors would act differently from the agent, .* nothing is"):
        ship(runner, tmp_path / "agent.safetensors", 2)
    assert not (tmp_path / "agent.safetensors").exists()


def test_any_state_of_tensors_arrays_and_plain_data_comes_back(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    state = {
        "weight": weight,
        "turned": weight.T,  # not contiguous, and of the same memory
        "half": torch.ones((), dtype=torch.bfloat16),
        "nested": {"table": np.arange(4)[::2], "of": [1, None, True, "text", 0.5, torch.zeros(0)]},
        "updates": 7,
    }
    write_agent(tmp_path / "a.safetensors", "", {"frames": 1}, {}, state)
    found = read_agent(tmp_path / "a.safetensors").bundle["agent"]["learner"]
    assert found.keys() == state.keys() and found["updates"] == 7
    assert all(torch.equal(found[name], state[name]) for name in ("weight", "turned", "half"))  # type: ignore[arg-type]
    assert found["half"].dtype == torch.bfloat16
    assert isinstance(found["nested"]["table"], np.ndarray) and found["nested"]["table"].tolist() == [0, 2]
    assert found["nested"]["of"][:5] == [1, None, True, "text", 0.5]
    with pytest.raises(ValueError, match=r"its learner's state has 'a/0', a complex: leave it out of .*policy_state"):
        write_agent(tmp_path / "b.safetensors", "", {"frames": 1}, {}, {"a": [1j]})
    assert not (tmp_path / "b.safetensors").exists()


def test_a_run_begins_with_the_weights_of_a_file(file: Path, tmp_path: Path) -> None:
    def begun(*bindings: str) -> Experiment:
        load_gin(AGENTS["dqn"][0], bindings=[*SHORT, f"Runner.initial_checkpoint = {str(file)!r}", *bindings])
        runner: Experiment = create_runner(tmp_path / "new")
        runner.resume()
        return runner

    there = read_agent(file).bundle["agent"]["learner"]["network"]
    here: Any = begun().agent
    assert all(torch.equal(weight, there[name]) for name, weight in here.learner.network.state_dict().items())
    with pytest.raises(
        ValueError, match=r"initial_optimizer must be False where .*safetensors begins a run, which hol"
    ):
        begun("Runner.initial_optimizer = True")


# What is refused.


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def flipped(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def with_texts(path: Path, **changes: str | None) -> None:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        texts = {**file.metadata(), **changes}
    save_file(load_file(path), path, {name: text for name, text in texts.items() if text is not None})


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: cut(path, 0), "is damaged, or no .safetensors file"),
    "half a header": (lambda path: cut(path, 100), "is damaged, or no .safetensors file"),
    "without its end": (lambda path: cut(path, path.stat().st_size - 1), "is damaged, or no .safetensors file"),
    "a weight": (lambda path: flipped(path, -3), r"is damaged \(its SHA-256 is not the one recorded\): take another"),
    "a text": (lambda path: with_texts(path, identity="{}"), "is damaged .its SHA-256"),
    "no JSON": (lambda path: with_texts(path, about="{"), "is damaged .its SHA-256"),
    "a text too few": (lambda path: with_texts(path, state=None), r"is damaged \(its metadata has no 'state'\)"),
    "another format": (
        lambda path: with_texts(path, format="async_wrappers.agent.2"),
        "has the format 'async_wrappers.agent.2', and this version reads 'async_wrappers.agent.1' alone",
    ),
    "others' weights": (lambda path: save_file({"a": torch.zeros(1)}, path), "holds no agent of async_wrappers, whose"),
    "a text file": (lambda path: path.write_text("weights " * 99), "is damaged, or no .safetensors file"),
    "a pickle": (lambda path: torch.save({"a": 1}, path), "is damaged, or no .safetensors file"),
}


def damaged(file: Path, tmp_path: Path, kind: str) -> tuple[Path, str]:
    """Return a damaged copy of a file, and the sentence that refuses it."""
    path = tmp_path / "agent.safetensors"
    path.write_bytes(file.read_bytes())
    damage, message = DAMAGE[kind]
    damage(path)
    return path, message


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_file_that_is_none_is_refused_in_one_sentence(file: Path, tmp_path: Path, kind: str) -> None:
    path, message = damaged(file, tmp_path, kind)
    with pytest.raises(ValueError, match=message) as caught:
        load_agent(path)
    assert "\n" not in str(caught.value) and str(caught.value).count(str(path)) == 1


@pytest.mark.parametrize("kind", ["empty", "a text too few", "another format", "others' weights", "a text file"])
def test_what_a_file_tells_is_refused_in_the_same_sentence(file: Path, tmp_path: Path, kind: str) -> None:
    path, message = damaged(file, tmp_path, kind)
    with pytest.raises(ValueError, match=message) as of_the_agent:
        read_agent(path)
    with pytest.raises(ValueError, match=message) as of_its_texts:
        read_about(path)
    assert str(of_its_texts.value) == str(of_the_agent.value)


WEIGHT = "head.values.weight"  # [2, 8]
WRONG: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "no network": (lambda state, _: state.pop("network"), r"weights by name as its \"network\", and has NoneType"),
    "a list": (lambda state, _: state.update(network=[1]), r"weights by name as its \"network\", and has list"),
    "another shape": (
        lambda state, _: state["network"].update({WEIGHT: torch.zeros(3)}),
        r"another network .head.values.weight has the shape \[3\] there, the shape \[2, 8\] here.: make",
    ),
    "a weight too few": (lambda state, _: state["network"].pop(WEIGHT), "head.values.weight has no weights there, the"),
    "a weight too many": (
        lambda state, _: state["network"].update(a=torch.zeros(1)),
        r"a has the shape \[1\] there, n",
    ),
    "a number": (lambda state, _: state["network"].update({WEIGHT: 3.0}), "head.values.weight has a float there, the"),
    "whole numbers": (
        lambda state, _: state["network"].update({WEIGHT: state["network"][WEIGHT].long()}),
        r"head.values.weight has the shape \[2, 8\] of int64 there, the shape \[2, 8\] here",
    ),
    "eighths": (
        lambda state, _: state["network"].update({WEIGHT: state["network"][WEIGHT].to(torch.float8_e4m3fn)}),
        r"has the shape \[2, 8\] of float8_e4m3fn there",
    ),
    "NaN": (
        lambda state, _: state["network"][WEIGHT].view(-1)[3].fill_(np.nan),
        f"{WEIGHT} is not finite in the state",
    ),
    "inf": (
        lambda state, _: state["network"][WEIGHT].view(-1)[0].fill_(np.inf),
        f"{WEIGHT} is not finite in the state",
    ),
    "no state": (lambda state, _: state.clear(), "and has NoneType"),
    "frames in words": (lambda _, about: about.update(frames="many"), r"is damaged .TypeError: frames is 'many'"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_whole_file_with_wrong_content_is_refused_in_one_sentence(file: Path, tmp_path: Path, kind: str) -> None:
    config, about, bundle = read_agent(file)
    change, message = WRONG[kind]
    change(bundle["agent"]["learner"], about)
    path = tmp_path / "agent.safetensors"
    write_agent(path, config, about, bundle["identity"], bundle["agent"]["learner"])
    with pytest.raises(ValueError, match=message) as caught:
        load_agent(path)
    assert "\n" not in str(caught.value) and str(caught.value).count(str(path)) == 1


@pytest.mark.parametrize("part", ["identity", "learner"])
def test_a_file_whose_parts_are_lists_is_refused(file: Path, tmp_path: Path, part: str) -> None:
    config, about, bundle = read_agent(file)
    parts = {"identity": bundle["identity"], "learner": bundle["agent"]["learner"], part: [1]}
    write_agent(tmp_path / "agent.safetensors", config, about, parts["identity"], parts["learner"])
    with pytest.raises(ValueError, match=r"agent.safetensors (is not one of a run|does not fit this agent)"):
        load_agent(tmp_path / "agent.safetensors")


def test_a_mask_of_a_network_may_be_infinite_and_a_weight_in_half_precision_is_taken() -> None:
    network = torch.nn.Linear(2, 1)
    network.register_buffer("mask", torch.tensor([-np.inf, 0.0]))
    state = {name: weight.half() for name, weight in network.state_dict().items()}
    check_loaded(network, {"network": state})
    state["mask"][0] = np.nan
    with pytest.raises(ValueError, match=r"^mask is not finite in the state"):
        check_loaded(network, {"network": state})


@pytest.mark.parametrize("config", ["", "# nothing\n"])
def test_a_file_with_an_empty_configuration_is_refused_by_its_name(file: Path, tmp_path: Path, config: str) -> None:
    _, about, bundle = read_agent(file)
    write_agent(tmp_path / "a.safetensors", config, about, bundle["identity"], bundle["agent"]["learner"])
    with pytest.raises(ConfigError, match=r"a.safetensors does not bind Runner.create_environment_fn, .*: bind it$"):
        load_agent(tmp_path / "a.safetensors")


@pytest.mark.parametrize("lost", ["score", "delay", "licence"])
def test_a_file_that_lacks_what_is_shown_of_it_is_refused_where_it_is_shown(
    file: Path, tmp_path: Path, lost: str
) -> None:
    config, about, bundle = read_agent(file)
    del about[lost]
    write_agent(tmp_path / "a.safetensors", config, about, bundle["identity"], bundle["agent"]["learner"])
    with pytest.raises(ValueError, match=rf"a.safetensors is damaged \(KeyError: '{lost}'\): take another copy of it"):
        read_about(tmp_path / "a.safetensors")


def test_a_file_of_another_network_is_refused_with_what_differs(file: Path) -> None:
    with pytest.raises(
        ValueError, match=r"agent.safetensors does not fit this agent \(network: head.*: \[2, 8\] there, \[2, 9\] here"
    ):
        load_agent(file, ["MLPTorso.hidden = (9,)"])


def test_a_file_imports_no_module_that_nobody_has_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stranger_in_a_file.py").write_text("open('ran', 'a').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    _, about, bundle = read_agent(file)
    config = "import stranger_in_a_file\n" + read_config(file)
    write_agent(Path("a.safetensors"), config, about, bundle["identity"], bundle["agent"]["learner"])
    with pytest.raises(ConfigError, match=r"^a.safetensors imports stranger_in_a_file, which is code .*trust=True"):
        load_agent("a.safetensors")
    assert not os.path.exists("ran") and "stranger_in_a_file" not in sys.modules
    load_agent("a.safetensors", trust=True)
    assert os.path.exists("ran")
    del sys.modules["stranger_in_a_file"]


def test_a_file_has_no_place_of_the_machine_that_made_it(tmp_path: Path) -> None:
    load_gin(AGENTS["dqn"][0], bindings=[*SHORT, "import tests.worlds.drifting_env"])
    save_config(tmp_path)
    create_runner(tmp_path / "run").run_experiment()
    assert "# Imported from" in (tmp_path / "config.gin").read_text()
    ship(create_runner(tmp_path / "run"), tmp_path / "a.safetensors", 1)
    assert "import tests.worlds.drifting_env" in read_config(tmp_path / "a.safetensors")
    assert str(Path(__file__).parents[3]).encode() not in (tmp_path / "a.safetensors").read_bytes()


# Names.


def test_an_unknown_name_is_refused_with_those_that_ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:
        load_agent("minatar/breakot")
    assert str(caught.value) == (
        "base_dir must be a run's directory (with a config.gin) or checkpoint, a .safetensors file of an agent, or one "
        f"that ships ({', '.join(shipped_agents())}), got 'minatar/breakot'; did you mean 'minatar/breakout'?"
    )


@pytest.mark.parametrize(
    "name", ["../trained/cartpole", "minatar/../cartpole", "/cartpole", "minatar", "", "a\0b", "n" * 300]
)
def test_a_name_leads_to_no_other_place(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert agent_path(name) == Path(name)
    with pytest.raises(ValueError, match=r"^base_dir must (be a run's directory .* that ships|hold a run)"):
        load_agent(name)


def test_a_run_or_a_file_that_is_there_wins_over_a_name(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = shipped_agents()["cartpole"]
    (tmp_path / "cartpole").mkdir()
    assert agent_path("cartpole") == shipped  # a directory that is no run hides nothing
    (tmp_path / "cartpole" / "config.gin").write_text("")
    assert agent_path("cartpole") == Path("cartpole")
    (tmp_path / "minatar").mkdir()
    (tmp_path / "minatar" / "breakout").write_bytes(file.read_bytes())
    assert agent_path("minatar/breakout") == Path("minatar/breakout")


# What ships.


def test_what_ships_is_small_tells_what_it_is_and_imports_this_project_alone() -> None:
    assert {"cartpole", "minatar/breakout"} <= shipped_agents().keys()
    for name, path in shipped_agents().items():
        about = read_about(path)
        assert path.stat().st_size < 1_000_000, name
        assert about["licence"] == "MIT" and about["frames"] > 0
        assert about["delay"] == (f"{delay} frames" if (delay := name.partition("@")[2]) else "none")
        assert about["command"].startswith("train.py ") and not re.search(r"(^|[\s'\"=])/", about["command"])
        assert about["score"]["delay"] == about["delay"]
        assert about["score"]["episodes"] >= 20 and about["score"]["mean"] > about["score"]["random"]["mean"]
        modules, includes = code_in(read_config(path))
        assert (strangers(modules, ()), includes) == ([], [])
        json.dumps(about)


@pytest.mark.parametrize("name", shipped_agents())
def test_what_ships_plays(name: str) -> None:
    if name.startswith("minatar/"):
        pytest.importorskip("minatar")
    agent, env = load_agent(name)
    assert play_episode(agent, env, seed=0, max_frames=20).frames <= 20


def test_what_ships_is_in_the_wheel() -> None:
    setup = ConfigParser()
    setup.read(Path(async_wrappers.__file__).parents[1] / "setup.cfg")
    package = Path(async_wrappers.__file__).parent
    patterns = [each.strip() for each in setup["options.package_data"]["async_wrappers"].split(",")]
    packed = {
        path.resolve()
        for pattern in patterns
        for path in package.glob(pattern.replace("agents/**", "agents/trained/**"))
    }
    assert {path.resolve() for path in shipped_agents().values()} <= packed


def test_without_minatar_its_agents_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [each for each in sys.modules if f"{each}.".startswith("minatar.")] + ["minatar"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DependencyNotInstalled, match=r"^a game of MinAtar needs the extra 'minatar' .*pip install"):
        load_agent("minatar/breakout")


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "agent.safetensors")
    with pytest.raises(ValueError, match=r"agent\.safetensors is a directory or a device, and no \.safetensors file"):
        read_about(tmp_path / "agent.safetensors")
