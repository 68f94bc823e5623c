"""Bindings that nothing reads: which are found, which are not, and what the sentences say."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.cli.commands import COMMANDS, parser_of
from async_wrappers.agents.cli.configuration import find_modules, load_gin
from async_wrappers.agents.config.config import load_config
from async_wrappers.agents.config.unread import GivenBinding, LoadedConfig, ours_by_name
from async_wrappers.agents.registry import AGENTS, BASELINES, WAYS_OF_PLAYING
from async_wrappers.agents.sweep.grid import make_points
from async_wrappers.agents.sweep.plan import Sweep
from async_wrappers.configurables import WRAPPERS
from tests.worlds.experiments import ROOT

BY_NAME = ours_by_name()
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").glob("**/*.gin"))
CARTPOLE, ATARI, LIVE = "configs/dqn/cartpole.gin", "configs/dqn/atari.gin", "configs/live/cartpole.gin"
AGENT = "create_agent.agent_name = {!r}".format
ALL_AGENTS = (*AGENTS, *BASELINES)


def load(*bindings: str, files: tuple[str, ...] = (CARTPOLE,)) -> LoadedConfig:
    return load_config(files, bindings, search_paths=[ROOT])


def unread(*bindings: str, files: tuple[str, ...] = (CARTPOLE,)) -> dict[str, str]:
    return {name: f"{found.source}: {found.reason}" for name, found in load(*bindings, files=files).unread().items()}


class TestWhatNothingReads:
    @pytest.mark.parametrize(
        ("file", "binding", "reason"),
        [
            (CARTPOLE, "C51Agent.vmax = 3.0", "create_agent.agent_name is 'dqn'"),
            (CARTPOLE, "FullRainbowAgent.noisy = False", "create_agent.agent_name is 'dqn'"),
            ("configs/c51/cartpole.gin", "QuantileAgent.kappa = 1.0", "create_agent.agent_name is 'c51'"),
            (CARTPOLE, "LiveRunner.standing_at = 3", "create_runner.schedule is 'continuous_train_and_eval'"),
            ("configs/live/cartpole.gin", "RealtimeDelay.delay = 4", "nothing that is made refers to it"),
            (CARTPOLE, "AsyncRunner.workers = 3", "nothing that is made refers to it"),
            (CARTPOLE, "AppliedActions.length = 3", "nothing that is made refers to it"),
            (CARTPOLE, "eval/AppliedActions.length = 3", "nothing that is made refers to it"),
            (CARTPOLE, "LogNormal.mean = 0.1", "nothing that is made refers to it"),
            ("configs/elite/standard.gin", "EliteReplay.capacity = 9", "nothing that is made refers to it"),
            (CARTPOLE, "create_atari_environment.game_name = 'Pong'", "nothing that is made refers to it"),
            (CARTPOLE, "per_actor_epsilon.base = 0.3", "nothing that is made refers to it"),
            (CARTPOLE, "NatureTorso.padding = 'same'", "create_network.torso is @MLPTorso"),
            (ATARI, "MLPTorso.hidden = (8,)", "create_network.torso is 'nature'"),
            (CARTPOLE, "variance_scaling.scale = 2.0", "create_network.initializer is 'torch'"),
        ],
    )
    def test_it_is_found_with_the_reason(self, file: str, binding: str, reason: str) -> None:
        name = name_of(binding)
        found = unread(binding, files=(file,))
        assert found.keys() == {name}
        assert found[name].startswith(f"--gin_bindings {binding!r}: nothing reads {name}, as {reason}")
        assert "leave it out" in found[name] and "\n" not in found[name]

    @pytest.mark.parametrize(
        ("bindings", "scoped", "scopes"),
        [
            ([], "evaluation/RealtimeDelay.delay = 7", "none"),
            ([], "evaluation/async_wrappers.RealtimeDelay.delay = 7", "none"),
            ([], "evaluation/RealtimeDelay:\n  delay = 7", "none"),
            (["d = 7"], "evaluation/RealtimeDelay.delay = %d", "none"),
            # a scope that is entered around something else, which makes no delay
            (["DQNAgent.optimizer = @slow/create_optimizer"], "slow/RealtimeDelay.delay = 7", "'slow'"),
            # a prefix of the scope that is entered is not the scope
            (["create_gym_environment.wrappers = [@e/RealtimeDelay]"], "e/f/RealtimeDelay.delay = 7", "'e'"),
            (["create_gym_environment.wrappers = [@e/f/RealtimeDelay]"], "f/RealtimeDelay.delay = 7", "'e/f'"),
            # a macro enters its scope for what it makes, not for what it refers to
            (
                ["e = @f/RealtimeDelay", "create_gym_environment.wrappers = [%e]"],
                "e/RealtimeDelay.delay = 7",
                "'f'",
            ),
        ],
    )
    def test_a_scope_that_nothing_enters_is_found_and_named(
        self, bindings: list[str], scoped: str, scopes: str
    ) -> None:
        scope = scoped.rpartition("/")[0]
        found = unread(*bindings, scoped)
        assert found == {
            f"{scope}/RealtimeDelay.delay": f"--gin_bindings {scoped!r}: nothing reads {scope}/RealtimeDelay.delay, as "
            f"RealtimeDelay is never made in the scope {scope!r} (scopes that references enter: {scopes}): bind "
            f"RealtimeDelay.delay, or refer to @{scope}/RealtimeDelay where it is used"
        }

    def test_a_macro_in_a_scope_is_found_unless_a_value_has_the_scope_too(self) -> None:
        assert unread("evaluation/d = 7", "d = 3", "RealtimeDelay.delay = %d").keys() == {"evaluation/d"}
        assert unread("evaluation/d = 7", "RealtimeDelay.delay = %evaluation/d") == {}

    def test_a_saved_configuration_with_such_a_scope_loads(self, tmp_path: Path) -> None:
        saved = tmp_path / "config.gin"
        saved.write_text(f'include "{CARTPOLE}"\nevaluation/RealtimeDelay.delay = 7\n')
        loaded = load_config([], [], saved=saved, search_paths=[ROOT], trusted=None)
        assert loaded.unread() == {} and "evaluation/RealtimeDelay.delay = 7" in loaded.texts[-1]

    def test_an_agent_that_does_not_learn_reads_no_hyperparameter(self) -> None:
        bindings = ("DQNAgent.gamma = 0.5", "create_optimizer.learning_rate = 0.1", "create_network.head = 'dueling'")
        assert unread(*bindings) == {}
        found = unread(AGENT("random"), *bindings)
        assert found.keys() == {"DQNAgent.gamma", "create_optimizer.learning_rate", "create_network.head"}
        assert all("create_agent.agent_name is 'random'" in sentence for sentence in found.values())

    def test_a_macro_without_a_use_is_found(self) -> None:
        assert unread("RMO = 'x'") == {
            "RMO": "--gin_bindings \"RMO = 'x'\": nothing reads the macro RMO, as no value is %RMO: leave it out"
        }
        assert unread("ROM = 'x'", "create_gym_environment.environment_kwargs = {'rom': %ROM}") == {}
        assert unread("delay = 3", "Sweep.grid = ['RealtimeDelay.delay = %delay, 4']") == {}

    def test_a_binding_of_the_top_file_is_found_and_one_of_an_include_is_not(self, tmp_path: Path) -> None:
        mine, top = tmp_path / "mine.gin", tmp_path / "top.gin"
        mine.write_text(f'include "{CARTPOLE}"\nC51Agent.vmax = 3.0\n')
        assert unread(files=(str(mine),))["C51Agent.vmax"].startswith(
            f"--gin_files {mine}: nothing reads C51Agent.vmax"
        )
        top.write_text(f'include "{mine}"\nRunner.seed = 3\n')
        assert unread(files=(str(top),)) == {}


class TestWhatMayBeRead:
    @pytest.mark.parametrize("name", FILES)
    def test_every_binding_of_a_shipped_file_is_read(self, name: str) -> None:
        assert unread(files=(name,)) == {}

    @pytest.mark.parametrize(
        ("name", "agent"),
        # A file of each folder with one of the agents in turn, and one file with all of them.
        [
            *zip({Path(name).parent: name for name in FILES}.values(), cycle(ALL_AGENTS), strict=False),
            *((CARTPOLE, agent) for agent in ALL_AGENTS),
        ],
    )
    def test_a_file_may_be_followed_by_the_choice_of_another_agent(self, name: str, agent: str) -> None:
        assert unread(AGENT(agent), files=(name,)) == {}

    @pytest.mark.parametrize(
        "bindings",
        [
            ["RealtimeDelay.delay = 4"],
            ["create_gym_environment.wrappers = [@eval/RealtimeDelay]", "eval/RealtimeDelay.delay = 4"],
            ["create_gym_environment.wrappers = [@eval/one/RealtimeDelay]", "eval/RealtimeDelay.delay = 4"],
            # what is made within a reference is made in its scope
            ["Runner.create_environment_fn = @eval/create_gym_environment", "eval/RealtimeDelay.delay = 4"],
            [
                "delayed = @eval/RealtimeDelay",
                "create_gym_environment.wrappers = [%delayed]",
                "eval/RealtimeDelay.delay = 4",
            ],
            ["RealtimeDelay.latency = %slow", "slow = @Constant()", "slow/Constant.seconds = 0.1"],
            ["d = 4", "create_gym_environment.wrappers = [@eval/RealtimeDelay]", "eval/RealtimeDelay.delay = %d"],
            [
                "RealtimeDelay.latency = @Constant()",
                "Sweep.grid = ['RealtimeDelay.latency = @b/Constant(), @c/Constant()']",
                "c/Constant.seconds = 0.1",
            ],
            ["async_wrappers.RealtimeDelay.delay = 4"],
            ["RealtimeDelay.latency = @LogNormal()", "LogNormal.mean = 0.1"],
            ["RealtimeDelay.latency = @Spikes()", "Spikes.base = @slow/Constant()", "slow/Constant.seconds = 0.1"],
            ["latency = @LogNormal()", "RealtimeDelay.latency = %latency", "LogNormal.mean = 0.1"],
            ["DQNAgent.epsilon_fn = @per_actor_epsilon", "per_actor_epsilon.base = 0.3"],
            [AGENT("rainbow"), "C51Agent.vmax = 3.0", "DQNAgent.gamma = 0.5", "RainbowAgent.double_dqn = True"],
            ["create_network.initializer = @variance_scaling", "variance_scaling.scale = 2.0"],
            ["create_network.initializer = 'variance_scaling'", "variance_scaling.scale = 2.0"],
            [AGENT("vtrace"), "VTraceAgent.sources = [('queue', 0.5), ('elite', 0.5)]", "EliteReplay.capacity = 9"],
            [AGENT("vtrace"), "VTraceAgent.sources = [(@a/EliteReplay, 1.0)]", "a/EliteReplay.capacity = 9"],
            ["create_network.torso = '1m'", "ImpalaTorso.padding = 'same'"],
            ["create_network.torso = 'auto'", "NatureTorso.padding = 'same'", "MLPTorso.hidden = (8,)"],
            ["Sweep.seeds = 3"],
            ["Runner.overlap = True", "create_optimizer.eps = 0.1"],
            ["agent = 'c51'", "create_agent.agent_name = %agent", "C51Agent.vmax = 3.0"],
            # a wrong value is refused where it is used, by its own sentence
            ["create_agent.agent_name = 3", "C51Agent.vmax = 3.0"],
            ["x = %x", "Runner.seed = %x"],
        ],
    )
    def test_it_counts_as_read(self, bindings: list[str]) -> None:
        assert unread(*bindings) == {}

    def test_the_live_runner_is_a_runner(self) -> None:
        assert unread("Runner.seed = 3", "LiveRunner.standing_at = 3", "AsyncRunner.workers = 3", files=(LIVE,)) == {}

    def test_code_of_the_users_own_may_read_anything(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        module = f"factory_of_{tmp_path.name}"
        (tmp_path / f"{module}.py").write_text(
            "import gin\nfrom async_wrappers.envs import create_gym_environment\n\n\n"
            "@gin.configurable\ndef make_level(level=1):\n    return create_gym_environment('CartPole-v1')\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        bindings = (f"import {module}", "make_level.level = 2", "C51Agent.vmax = 3.0")
        assert unread(*bindings).keys() == {"C51Agent.vmax"}  # nothing of the user's is reached, but it may be called
        assert unread(*bindings, "Runner.create_environment_fn = @make_level") == {}

    def test_every_configurable_is_read_in_some_experiment(self) -> None:
        """One that no choice, reference or default reaches would be refused wherever it is bound."""
        referred_to = {
            "Runner.create_environment_fn": (
                "create_gym_environment",
                "create_atari_environment",
                "create_atari_vector",
            ),
            "create_gym_environment.wrappers": ("RealtimeDelay", "AppliedActions", "CommittedActions", "DecisionDelay"),
            "create_atari_environment.wrappers": tuple(wrapper.__name__ for wrapper in WRAPPERS),
            "create_atari_vector.wrappers": ("VectorSensorDelay", "VectorRealtimeDelay"),
            "SensorDelay.sensors": ("Sensor", "Latencies"),
            "RealtimeDelay.latency": ("Constant", "Correlated", "Gamma", "LogNormal", "Spikes", "Trace", "Uniform"),
            "RealtimeDelay.default_action": ("RampDown", "Chunk"),
            "RealtimeDelay.schedule": ("ServedStream",),
            "ServedStream.server": ("ServedSchedule",),
            "ServedSchedule.latency": ("LinearBatches", "MeasuredBatches"),
            "Chunk.mean": ("TemporalEnsemble",),
            "RealtimeDelay.stagger": ("ExpectedTime", "MaxTime", "NoStagger", "Sequential", "Tickets"),
            "LiveRunner.create_async_runner_fn": ("AsyncRunner",),
            "AsyncRunner.realtime": ("Realtime",),
            "AsyncRunner.limits": ("Limits",),
            "AsyncRunner.backend": ("RayWorkers",),
            "DQNAgent.epsilon_fn": (
                "identity_epsilon",
                "linearly_decaying_epsilon",
                "per_actor_epsilon",
                "zero_epsilon",
            ),
        }
        everything = ["create_runner.schedule = 'realtime'", "RealtimeDelay.workers = 2"]
        everything += ["create_atari_environment.game_name = 'Pong'"]
        everything += [f"{key} = [@{', @'.join(names)}]" for key, names in referred_to.items()]
        choices = [everything, *([AGENT(agent)] for agent in AGENTS)]
        choices += [[f"create_runner.schedule = {name!r}"] for name in WAYS_OF_PLAYING]
        vectors = ("create_gym_vector", "create_atari_vector")
        choices += [
            [
                "create_runner.schedule = 'vector'",
                f"VectorRunner.create_vector_fn = @{name}",
                f"{name}.wrappers = [@VectorSensorDelay, @VectorRealtimeDelay]",
            ]
            for name in vectors
        ]
        choices += [[f"create_network.torso = {name}"] for name in ("'mlp'", "'nature'", "'1m'", "@CentredTorso")]
        choices += [["create_agent.agent_name = 'vtrace'", "VTraceAgent.sources = [('standard', 0.5), ('elite', 0.5)]"]]
        terms = ", ".join(
            f"@{name}()" for name in ("PolicyCloning", "ValueCloning", "KLMask", "TargetEntropy", "KLCost")
        )
        choices += [["create_agent.agent_name = 'vtrace'", f"VTraceAgent.terms = ({terms})"]]
        choices += [["create_network.initializer = 'variance_scaling'"]]
        choices += [["Runner.create_environment_fn = @create_minatar_environment"]]
        first = {name: next(iter(inspect.signature(thing).parameters), "") for name, thing in BY_NAME.items()}
        every = [
            GivenBinding("here", name, parameter, from_file=False) for name, parameter in first.items() if parameter
        ]
        read = {name for name, parameter in first.items() if not parameter}  # nothing of it can be bound
        for choice in choices:
            for file in (CARTPOLE, "configs/default.gin"):
                every = [each for each in every if each.owner not in read]
                never_read = LoadedConfig(every, load(*choice, files=(file,)).texts).unread().keys()
                read |= {each.owner for each in every if each.name not in never_read}
        assert read == set(BY_NAME)


class TestDefaultsOfTheChosenAgent:
    @pytest.mark.parametrize(
        ("agent", "binding", "owner"),
        [
            ("rainbow", "DQNAgent.update_horizon = 1", "RainbowAgent"),
            ("rainbow", "DQNAgent.replay_scheme = 'uniform'", "RainbowAgent"),
            ("quantile", "DQNAgent.replay_scheme = 'uniform'", "QuantileAgent"),
            ("full_rainbow", "DQNAgent.double_dqn = False", "FullRainbowAgent"),
            ("full_rainbow", "DQNAgent.epsilon_fn = @identity_epsilon", "FullRainbowAgent"),
            ("full_rainbow", "DQNAgent.update_horizon = 1", "RainbowAgent"),
            ("r2d2", "DQNAgent.loss_type = 'huber'", "R2D2Agent"),
        ],
    )
    def test_a_binding_that_one_hides_is_found_and_both_are_named(self, agent: str, binding: str, owner: str) -> None:
        name, parameter = binding.partition(" = ")[0], binding.partition(" = ")[0].partition(".")[2]
        (sentence,) = unread(AGENT(agent), binding).values()
        assert sentence.startswith(
            f"--gin_bindings {binding!r}: nothing reads {name}, as {owner} has a default of its own"
        )
        assert f"bind {owner}.{parameter} instead" in sentence
        for bound in (owner, {"full_rainbow": "FullRainbowAgent"}.get(agent, owner)):
            assert unread(AGENT(agent), binding, binding.replace("DQNAgent", bound)) == {}
        assert unread(binding) == {}


CHOICES = (
    *(
        "create_agent.agent_name = 'c51'",
        "create_agent.agent_name = 'full_rainbow'",
        "create_agent.agent_name = 'random'",
    ),
    *("create_network.torso = 'nature'", "create_network.torso = @MLPTorso", "create_runner.schedule = 'realtime'"),
    "RainbowAgent.update_horizon = 3",
)
OTHERS = (
    *("C51Agent.vmax = 3.0", "DQNAgent.gamma = 0.5", "DQNAgent.update_horizon = 1", "LiveRunner.standing_at = 3"),
    *("RealtimeDelay.delay = 3", "MLPTorso.hidden = (8,)", "NatureTorso.padding = 'same'", "ROM = 'x'"),
    "AsyncRunner.workers = 2",
)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from(CHOICES + OTHERS), max_size=6), st.sampled_from(OTHERS))
def test_to_bind_more_takes_nothing_away_where_no_choice_is_made(bindings: list[str], extra: str) -> None:
    before, after = unread(*bindings), unread(*bindings, extra)
    assert before.keys() == after.keys() - ({name_of(extra)} - set(map(name_of, bindings)))


def name_of(binding: str) -> str:
    return binding.partition(" = ")[0]


def commands() -> list[str]:
    """Return the command lines of train.py that the pages, the files and the README give, without placeholders."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md")), *sorted((ROOT / "configs").glob("**/*.gin"))]
    found: set[str] = set()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if page.suffix == ".md":
            blocks = "".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
            text = re.sub(r"\\\n\s*", " ", blocks)
        found |= set(re.findall(r"^\s*(?:\$ )?(?:\S*python) train\.py (.*?)(?:\s+#.*)?$", text, re.MULTILINE))
    placeholders = re.compile(r"[\[$]|\.\.\.|FILE|my_experiment|my_dqn|my_environments")
    return sorted(line for line in found if "--gin" in line and not placeholders.search(line.replace("[@", "")))


def test_commands_are_found() -> None:
    assert len(commands()) > 15


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_pages_is_accepted(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a file's own modules lie beside it
    words = shlex.split(line.replace("--seed N", "--seed 1"))
    name = words.pop(0) if words[0] in COMMANDS else "train"
    options = parser_of(name).parse(words)
    find_modules(options)
    loaded = load_gin(options)
    given_here, never_read = set(), loaded.unread().keys()
    if name == "sweep":  # what one of its points reads is read
        settings = Sweep()
        bindings = options.gin_bindings
        for point in make_points(options.grid or settings.grid, settings.arms, settings.exclude, None):
            options.gin_bindings = [*bindings, *(f"{key} = {value}" for key, value in point.bindings.items())]
            loaded = load_gin(options)
            given_here |= {each.name for each in loaded.given} - loaded.unread().keys()
            never_read = (never_read | loaded.unread().keys()) - given_here
            if not never_read:
                break
    assert never_read == set()
