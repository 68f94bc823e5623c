"""What comes with somebody else's directory runs no code but this project's, unless the user has named it."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import pytest
from hypothesis import given
from hypothesis import strategies as st

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.config.config import ConfigError, code_named, find_gin_files, load_config
from async_wrappers.agents.config.gin_text import DELAYS, NETWORKS, SIMULATIONS, code_in, strangers
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.load import load_agent
from async_wrappers.agents.networks.q_network import PRESETS
from async_wrappers.agents.trained.agent_file import read_config, write_agent
from tests.worlds.command_line import bound, call, place, refused

__all__ = ["call", "place"]

HOSTILE = {
    "an import": "import evil",
    "an import from": "from evil_package import evil",
    "an import under another name": "import evil as agents",
    "a submodule": "import evil_package.evil",
    "an include": "include 'evil.gin'",
    "an include of a package": "include 'evil_package/inner.gin'",
    "an include below a package": "include 'evil_package.evil/inner.gin'",
    "an id": "create_gym_environment.environment_id = 'evil:X-v0'",
    "an id of a scope": "a/create_gym_environment.environment_id = 'evil:X-v0'",
    "an id in two pieces": "create_gym_environment.environment_id = 'ev' 'il:X-v0'",
    "an id in a macro": "x = 'evil:X-v0'\ncreate_gym_environment.environment_id = %x",
    "an id by a function": (
        "identity_epsilon.epsilon = 'evil:X-v0'\ncreate_gym_environment.environment_id = @identity_epsilon()"
    ),
    "an id in arguments": "create_gym_environment.environment_kwargs = {'env_id': 'evil:X-v0'}",
    "dynamic registration": (
        "from __gin__ import dynamic_registration\n"
        "import async_wrappers.agents.sweep.results\n"
        "x = @async_wrappers.agents.sweep.results.subprocess.getoutput()\n"
        "async_wrappers.agents.sweep.results.subprocess.getoutput.cmd = 'touch ran'"
    ),
    "a block": "create_gym_environment:\n  environment_id = 'evil:X-v0'\n",
    "ours in name alone": "import agents_evil",
    "a module of the tests": "import tests.worlds.drifting_env",
    "a program of Python's": "import antigravity",
}


@pytest.fixture
def evil(place: Path) -> Iterator[Path]:
    """Modules in the working directory that leave a file if they are ever run, and a run's directory."""
    names = ("evil", "agents_evil")
    (place / "evil_package").mkdir()
    mark = "open('ran', 'a').close()\n"
    for path in ("evil.py", "agents_evil.py", "evil_package/__init__.py", "evil_package/evil.py"):
        (place / path).write_text(mark)
    (place / "evil.gin").write_text("import evil\n")
    (place / "evil_package" / "inner.gin").write_text("import evil\n")
    (place / "run").mkdir()
    sys.path.append(str(place))
    importlib.invalidate_caches()
    yield place
    for name in [each for each in sys.modules if each.split(".")[0] in (*names, "evil_package")]:
        del sys.modules[name]


def saved(place: Path, text: str) -> None:
    ours = "import async_wrappers.agents.configurables\nimport async_wrappers.configurables\n"
    rest = "\nRunner.create_environment_fn = @create_gym_environment\n"
    before = "" if text.startswith("from __gin__") else ours
    (place / "run" / "config.gin").write_text(before + text + ("" if text.startswith("from __gin__") else rest))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_configuration_runs_nothing(evil: Path, call: Any, text: str) -> None:
    saved(evil, text)
    mine = ("--gin_bindings", "RealtimeDelay.delay = 2")  # so that modules of the working directory could be imported
    for command in ([], ["evaluate"], ["record", "--dataset", "d"]):
        message = refused(call(*command, "--base_dir", "run", *mine))
        assert message.startswith("run/config.gin ")
        assert "--trust" in message
    with pytest.raises(ConfigError, match="trust=True"):
        refuse_as_unseen(evil)
    assert not (evil / "ran").exists()
    assert {path.name for path in (evil / "run").iterdir()} <= {"config.gin", "lock"}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_of_an_agent_runs_nothing(evil: Path, call: Any, text: str) -> None:
    saved(evil, text)
    write_agent(Path("a.safetensors"), read_config(evil / "run" / "config.gin"), ABOUT, {}, {})
    message = refused(call("evaluate", "--agent", "a.safetensors", "--gin_bindings", "RealtimeDelay.delay = 2"))
    assert message.startswith("a.safetensors ")
    assert "--trust" in message
    assert not (evil / "ran").exists()
    assert not (evil / "results").exists()


ABOUT = {
    **{"frames": 1, "agent": "an agent", "environment": "a game", "delay": "none", "licence": "MIT"},
    "score": {"mean": 1.0, "interval": [0.0, 2.0], "episodes": 2, "random": {"mean": 0.0}},
}


def refuse_as_unseen(place: Path) -> None:
    """Load an agent where the tests' module has not been imported yet, as in another process."""
    held = {name: sys.modules.pop(name) for name in [*sys.modules] if name == "tests.worlds.drifting_env"}
    try:
        load_agent(place / "run")
    finally:
        sys.modules.update(held)


def test_the_module_and_both_remedies_are_named(evil: Path, call: Any) -> None:
    saved(evil, "import evil")
    assert refused(call("evaluate", "--base_dir", "run")) == (
        "run/config.gin imports evil, which is code that neither comes with this project nor is named on the command "
        "line: name it (--gin_bindings 'import evil', or the --gin_files that do), or trust all of it (--trust; in "
        "Python trust=True)"
    )


def test_a_plan_of_somebody_elses_sweep_runs_nothing(evil: Path, call: Any) -> None:
    (evil / "torn.gin").write_text("import evil\n)(\n")
    for arguments, key, value in (
        (["--gin_files", "evil.gin"], "Runner.threads", "1"),
        (["--gin_bindings", "import evil"], "Runner.threads", "1"),
        (["--gin_files", "configs/default.gin"], "create_gym_environment.environment_id", "'evil:X-v0'"),
        (["--gin_files", "configs/default.gin"], "import evil\nRunner.threads", "1"),
        (["--gin_bindings", "import evil\n)("], "Runner.threads", "1"),
        (["--gin_files", "torn.gin"], "Runner.threads", "1"),
        (["--gin_bindings", "include 'evil_package.evil/inner.gin'"], "Runner.threads", "1"),
        (["--gin_bindings", "include 'evil_package/inner.gin'"], "Runner.threads", "1"),
    ):
        point = {"arm": "", "bindings": {key: value}}
        plan = {"points": [point], "axes": [key], "seeds": 1, "arguments": arguments, "function": "train.py"}
        (evil / "run" / "sweep.json").write_text(json.dumps(plan))
        message = refused(call("sweep", "--base_dir", "run", "--jobs", "1"))
        assert message.startswith(
            ("run/sweep.json imports evil, which is code", "run/sweep.json includes evil_pack")
        ) or ("not a gin statement" in message)
    assert not (evil / "ran").exists()
    assert not (evil / "run" / "trials").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gin-bindings", "import evil"],
        ["-gin_bindings", "import evil"],
        ["--trust", "--gin_bindings=import evil"],
        ["--gin_bindings=import evil", "--notrust"],
        ["--gin_files", "--flagfile=options"],
        ["--gin_files"],
    ],
    ids=str,
)
def test_a_plan_gives_its_trials_no_option_that_was_not_looked_at(evil: Path, call: Any, arguments: list[str]) -> None:
    point = {"arm": "", "bindings": {"Runner.num_iterations": "0"}}
    plan = {"points": [point], "axes": [], "seeds": 1, "arguments": arguments, "function": "train.py"}
    (evil / "run" / "sweep.json").write_text(json.dumps(plan))
    message = refused(call("sweep", "--base_dir", "run", "--jobs", "1"))
    assert message.startswith("run/sweep.json is not the plan of a sweep (arguments must be pairs of --gin_files")
    assert not (evil / "ran").exists()
    assert not (evil / "run" / "trials").exists()


def test_what_the_user_names_is_imported(place: Path, call: Any) -> None:
    begun = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
    assert call(*begun).code == 0
    module = "module_" + place.name
    (place / "outer.gin").write_text("include 'mine.gin'\nRunner.num_iterations = 1\n")
    evaluate = ("evaluate", "--base_dir", "run", "--episodes", "1")
    sys.modules.pop(module)
    assert f"imports {module} (of {place}), which is code" in refused(call(*evaluate))
    assert module not in sys.modules
    for words in (["--gin_files", "outer.gin"], ["--gin_bindings", f"import {module}"], ["--trust"]):
        sys.modules.pop(module, None)
        done = call(*evaluate, *words)
        assert done.code == 0, done.err
    assert call(*begun).out.startswith("base_dir: run")
    sys.modules.pop(module)
    with pytest.raises(ConfigError, match=module):
        load_agent(place / "run")
    load_agent(place / "run", [f"import {module}"])
    load_agent(place / "run")  # which has been imported by now
    sys.modules.pop(module)
    load_agent(place / "run", trust=True)


def test_the_next_command_that_is_told_names_what_it_needs(place: Path, call: Any) -> None:
    begun = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
    assert call(*begun).code == 0
    done = call(*begun)
    assert f"evaluate --base_dir run --gin_bindings 'import module_{place.name}'" in done.out


def test_an_interrupted_run_tells_what_the_next_command_needs(
    place: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Experiment) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "run_experiment", interrupt)
    done = call("--base_dir", "run", "--gin_files", "mine.gin")
    assert done.code == 130
    anew = "and no checkpoint was written, so that the run begins anew"
    told = f"\ninterrupted: 0 of {{}} iterations are done in {{}}, {anew}; to go on: python train.py --base_dir {{}}"
    assert done.err == f"{told.format(2, 'run', 'run')} --gin_bindings 'import module_{place.name}'\n"
    done = call("--base_dir", "my run", "--gin_files", "configs/dqn/cartpole.gin")
    assert done.err == f"{told.format(10, 'my run', repr('my run'))}\n"


def test_nothing_of_the_parse_looks_anything_up() -> None:
    modules, includes = code_in("import a.b\nfrom c import d as e\ninclude 'f.gin'\nx.y = {'z': [@u/v.w(), %m, 'g:H']}")
    assert (modules, includes) == ({"a.b", "c.d", "g"}, ["f.gin"])


@pytest.mark.parametrize(
    "parameter", ["Hosts.address", "RayWorkers.address", "async_wrappers.agents.play.hosts.hosts.Hosts.address"]
)
def test_a_clusters_address_is_no_module(parameter: str) -> None:
    assert code_in(f"{parameter} = '10.0.0.1:6379'\nmine.address = 'a:b'") == ({"a"}, [])


@given(st.text(st.characters(blacklist_characters="'\\\"\n\r/:\0", blacklist_categories=["Cs"]), min_size=1))
def test_whatever_gymnasium_would_import_for_an_id_is_found(module: str) -> None:
    modules, _ = code_in(f"create_gym_environment.environment_id = {f'{module}:Name-v0'!r}")
    assert modules == {module}


def test_ours_are_no_strangers_and_neither_are_parts_of_what_is_named() -> None:
    modules = [
        "async_wrappers.agents",
        "async_wrappers.agents.dqn",
        "agentsx",
        "agents",
        "mine",
        "mine.parts",
        "minex",
        "os",
    ]
    assert strangers(modules, ["mine"]) == ["agents", "agentsx", "minex", "os"]


def test_the_configuration_that_every_run_of_ours_saves_needs_no_trust(place: Path, call: Any) -> None:
    gin.clear_config()
    bindings = ("Runner.num_iterations = 1", "Runner.training_steps = 20", "Runner.evaluation_steps = 10")
    words = bound(*bindings, "Runner.report_episodes = 1")
    assert call("--base_dir", "run", "--gin_files", "configs/dqn/cartpole.gin", *words).code == 0
    assert call("evaluate", "--base_dir", "run", "--episodes", "1").code == 0
    assert "finished" in call("--base_dir", "run").out


ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def schedule(*gin_files: str, bindings: tuple[str, ...] = ()) -> tuple[int, int]:
    """The delay and the no-ops that gin files bind."""
    load_config(gin_files, bindings, search_paths=[ROOT])
    return gin.query_parameter("RealtimeDelay.delay"), gin.query_parameter("RealtimeDelay.noops")


@pytest.mark.parametrize("delay", DELAYS)
def test_a_name_binds_its_delay_and_its_interaction(delay: int) -> None:
    for form in ("{}", "{}.gin", "configs/paper/{}", "configs/paper/{}.gin"):
        assert schedule(form.format(f"asynchronous_{delay}")) == (delay, 0)
        assert schedule(form.format(f"sequential_{delay}")) == (delay, delay)
        assert gin.query_parameter("Runner.training_episodes") == 100


@pytest.mark.parametrize(("network", "delay"), NETWORKS.items())
def test_a_network_names_itself_and_its_delay(network: str, delay: int) -> None:
    for form in ("{}", "{}.gin", "configs/paper/{}", "configs/paper/{}.gin"):
        assert schedule(form.format(f"asynchronous_{network}")) == (delay, 0)
        assert schedule(form.format(f"sequential_{network}")) == (delay, delay)
        assert gin.query_parameter("create_network.torso") == network
    assert schedule(f"asynchronous_{delay}") == (delay, 0)
    assert gin.query_parameter("create_network.torso") == "1m"  # a delay alone keeps the published network


def test_the_networks_that_have_names_are_those_of_the_table() -> None:
    assert set(NETWORKS) == set(PRESETS)
    assert NETWORKS["10m"] == 8
    Path("mine.gin").write_text('include "configs/paper/sequential_10m.gin"\nRealtimeDelay.noops = 1')
    assert schedule("mine.gin") == (8, 1)
    assert gin.query_parameter("create_network.torso") == "10m"


@pytest.mark.parametrize("name", ["asynchronous_2m", "configs/paper/sequential_55k-deep.gin"])
def test_a_network_that_the_table_does_not_have_is_refused_with_a_remedy(name: str) -> None:
    network = re.findall(r"_(\w+?(?:-deep)?)(?:\.gin)?$", name)[0]
    with pytest.raises(ConfigError) as error:
        schedule(name)
    message = str(error.value)
    assert message.startswith(f"--gin_files {name}: the paper's table has no network {network}, but 55k, 70k-deep, 1m,")
    assert "take configs/paper/atari.gin with --gin_bindings of create_network.torso" in message
    assert "\n" not in message


def test_bindings_and_later_files_win_over_a_name() -> None:
    assert schedule("asynchronous_8", bindings=("RealtimeDelay.noops = 3",)) == (8, 3)
    assert schedule("asynchronous_8", "sequential_70") == (70, 70)
    Path("mine.gin").write_text("RealtimeDelay.delay = 5")
    assert schedule("sequential_8", "mine.gin") == (5, 8)
    assert schedule("mine.gin", "sequential_8") == (8, 8)


def test_a_gin_file_may_include_a_name() -> None:
    Path("mine.gin").write_text('include "configs/paper/sequential_29.gin"\nDQNAgent.gamma = 0.5')
    assert schedule("mine.gin") == (29, 29)
    assert gin.query_parameter("DQNAgent.gamma") == 0.5
    assert code_named(["mine.gin", "asynchronous_8"], [], search_paths=[ROOT]) == (set(), [])


def test_a_file_of_that_name_wins() -> None:
    path = Path("configs/paper/asynchronous_8.gin")
    path.parent.mkdir(parents=True)
    path.write_text("RealtimeDelay.delay = 2\nRealtimeDelay.noops = 1")
    assert schedule(str(path)) == (2, 1)


@pytest.mark.parametrize("name", ["asynchronous_9", "configs/paper/sequential_0.gin", "sequential_08000"])
def test_a_delay_that_the_table_does_not_have_is_refused_with_a_remedy(name: str) -> None:
    delay = int(re.findall(r"\d+", name)[0])
    with pytest.raises(ConfigError) as error:
        schedule(name)
    message = str(error.value)
    assert message.startswith(
        f"--gin_files {name}: the paper's table has no delay of {delay} frames, but 1, 3, 5, 8, 29,"
    )
    assert f"configs/paper/atari.gin with --gin_bindings 'RealtimeDelay.delay = {delay}'" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["asynchronous_", "asynchronous_x", "synchronous_8", "other/asynchronous_8.gin"])
def test_another_name_is_no_such_file(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--gin_files {name}: no such file")):
        schedule(name)


@pytest.mark.parametrize(
    ("wrong", "meant"), [("asynchronus_10m", "asynchronous_10m"), ("sequental_1m-deep.gin", "sequential_1m-deep")]
)
def test_a_misspelled_network_is_told_the_nearest_one(wrong: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"{wrong}: no such file; did you mean configs/paper/{meant}\.gin"):
        schedule(wrong)
    assert schedule(f"configs/paper/{meant}.gin") == schedule(meant)


def test_names_are_listed_where_the_simulations_are() -> None:
    assert {*SIMULATIONS} <= {*find_gin_files([ROOT])}
    assert len(SIMULATIONS) == 40 and "configs/paper/sequential_1m-deep.gin" in SIMULATIONS
    assert find_gin_files([Path()]) == []
