"""Every gin file that is shipped is parsed, built, stepped and learns; those of the paper bind what their names say."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from async_wrappers.agents.acting.exploration import noisy_layers
from async_wrappers.agents.config.config import save_config
from async_wrappers.agents.experiment.closing_report import compare_with_baselines, table, why_no_noop
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.progress import closing_line
from async_wrappers.agents.learning.making import make_learner, make_vector_learner
from async_wrappers.agents.networks.q_network import count_parameters, create_network
from async_wrappers.agents.networks.torsos import ImpalaTorso
from async_wrappers.agents.play.play import DifferentExperiment
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import AGENTS, create_runner, create_spec, spec_of
from async_wrappers.envs.gameboy import find_spec, games
from tests.worlds.atari_games import games_loaded_once
from tests.worlds.experiments import load_gin
from tests.worlds.gameboy.games import own, pokemon_like, tetris_like, written

__all__ = ["games_loaded_once"]

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("games_loaded_once")
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").glob("**/*.gin"))
MANY = ("configs/apex/", "configs/elite/", "configs/impact/", "configs/r2d2/", "configs/vtrace/")
MANY += ("configs/minatar/impact", "configs/minatar/ppo", "configs/minatar/vtrace", "configs/sweeps/minatar")
MANY += ("configs/ppo/halfcheetah", "configs/dqn/pong_two_cores.gin")
VARIANTS = (
    "configs/sweeps/",
    "configs/elite/",
    "configs/r2d2/atari_rela",
    "configs/apex/atari_rela",
    "configs/paper/rainbow",
    "configs/vtrace/pong",
    "configs/dqn/pong",
)
VECTORS = [name for name in FILES if name.startswith(MANY)]  # many environments at once
TINY = {  # what agents with sequences are made small by
    "vtrace": (
        "VTraceAgent.batch_size = 2",
        "VTraceAgent.unroll_length = 5",
        "create_actor_critic.torso = @MLPTorso",
        "LSTMCore.hidden = 4",
    ),
    "impact": (
        "ImpactAgent.batch_size = 2",
        "ImpactAgent.unroll_length = 5",
        "ImpactAgent.buffer_size = 2",
        "create_actor_critic.torso = @MLPTorso",
    ),
    "elite": (
        "VTraceAgent.batch_size = 2",
        "VTraceAgent.unroll_length = 4",
        "StandardReplay.capacity = 5",
        "EliteReplay.capacity = 5",
        "EliteReplay.elite_batch_size = 2",
        "EliteReplay.feature_out_layer_size = 8",
        "create_actor_critic.torso = @MLPTorso",
    ),
    "ppo": ("PPOAgent.update_period = 16", "PPOAgent.batch_size = 4", "PPOAgent.num_epochs = 2"),
    "sac": ("SACAgent.min_replay_history = 20",),
    "r2d2": (
        "VectorRunner.replay_ratio = 1.0",
        "R2D2Agent.batch_size = 2",
        "R2D2Agent.burn_in = 2",
        "R2D2Agent.unroll_length = 4",
        "R2D2Agent.state_period = 4",
        "R2D2Agent.min_replay_history = 10",
        "R2D2Agent.replay_capacity = 1_000",
        "LSTMCore.hidden = 4",
        "create_recurrent_q_network.torso = @MLPTorso",
    ),
}
# Students need a teacher, and live the runner makes chunks of actions: both have tests of their own.
TURNS = [name for name in FILES if "reincarnation" not in name and name != "configs/live/cartpole_chunk.gin"]
LIVE = [name for name in TURNS if "live" in name or name == "configs/sweeps/pokemon_paper.gin"]
GAME_BOY = {
    *("configs/paper/tetris.gin", "configs/sweeps/tetris_paper.gin", "configs/live/tetris.gin"),
    *(f"configs/live/pokemon_{size}.gin" for size in ("1m", "10m", "100m", "1b")),
    "configs/sweeps/pokemon_paper.gin",
}
SHORT = (  # frames; a decision may span many
    "Runner.num_iterations = 1",
    "Runner.training_steps = 1",
    "Runner.training_episodes = None",
    "Runner.evaluation_steps = 1",
    "Runner.max_steps_per_episode = 10",
    "Runner.report_episodes = 1",
)
SHORT_LIVE = (
    "AsyncRunner.calibration_time = 0.2",
    "Runner.num_iterations = 1",
    "Runner.training_steps = 120",
    "Runner.evaluation_steps = 0",
    "Runner.max_steps_per_episode = 60",
    "create_network.torso = @MLPTorso",
    "MLPTorso.hidden = (4,)",
)
DELAYS = (1, 3, 5, 8, 29, 47, 70, 80, 599, 750)  # frames; the networks of the paper's table
PAPER = [
    f"configs/paper/{interaction}_{delay}.gin" for interaction in ("asynchronous", "sequential") for delay in DELAYS
]
SMALL = ("DQNAgent.replay_capacity = 1_000", "DQNAgent.batch_size = 2")
SMALL += ("SACAgent.replay_capacity = 1_000", "SACAgent.batch_size = 2", "SACAgent.hidden_units = 4")
# Agents that files of theirs for other games, or for another delay, let run to the end.
ENDING_ELSEWHERE = {
    *(f"configs/{agent}/atari.gin" for agent in ("c51", "full_rainbow", "implicit_quantile", "quantile", "rainbow")),
    *(name for name in PAPER if not name.endswith("_5.gin")),
}
# Large networks are built for one file, and those of 100 million and a billion parameters for none, as seconds
# would pass: tests of networks count them on the meta device.
BUILT_LARGE = ("configs/live/paper_10m.gin",)


def load(name: str, *bindings: str) -> None:
    load_gin(name, bindings=bindings)


@cache
def game_of(name: str) -> str | None:
    """Which Game Boy game a file plays; None if it needs no ROM."""
    if "ROM" not in text_of(name) or "FallingBlocks" in text_of(name):
        return None
    load(name)
    found = gin.query_parameter("create_gym_environment.environment_id")
    return found.removeprefix("async_wrappers/").removesuffix("-v0")  # type: ignore[no-any-return]


@cache
def text_of(name: str) -> str:
    """All that a file binds, with what it includes."""
    load(name)
    return gin.config_str()  # type: ignore[no-any-return]


Build = Callable[..., Experiment]


@pytest.fixture(scope="module")
def cartridges(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A folder with a ROM of our own and save states of it, by game."""
    roms = {"Tetris": tetris_like(), "PokemonBlue-battles": pokemon_like("PokemonBlue-battles")}
    folders = {game: tmp_path_factory.mktemp(game) for game in roms}
    for game, folder in folders.items():
        states = find_spec(game).states
        assert states is not None
        written(folder, roms[game], [states.name(number) for number in (states.first, states.first + 1)])
    return folders


@pytest.fixture
def build(cartridges: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> Build:
    """Build the experiment of a file, on a cartridge of our own if it plays a Game Boy game."""

    def build(name: str, base_dir: Path, *bindings: str) -> Experiment:
        game = game_of(name)
        if game is not None:
            folder = cartridges[game]
            spec = {parity: own(find_spec(game, parity), (folder / "rom.gb").read_bytes()) for parity in (False, True)}
            monkeypatch.setattr(games, "find_spec", lambda _, parity: spec[parity])
            bindings = (f"ROM = '{folder / 'rom.gb'}'", f"STATES = '{folder}'", *bindings)
        large = re.search(r"create_network\.torso = '(10m|100m|1b)'", text_of(name))
        if large and name not in BUILT_LARGE:
            bindings = ("create_network.torso = '55k'", *bindings)
        load(name, *SMALL, *bindings)
        runner: Experiment = create_runner(base_dir)
        return runner

    return build


def run_a_little(name: str, tmp_path: Path, build: Build) -> None:
    """Train an experiment of many environments until it learns."""
    few = ("VectorRunner.num_envs = 2", "VectorRunner.evaluation_envs = 1")
    path = Path(name)
    kind = path.stem.split("_")[0] if "configs/minatar/" in name else path.parent.name
    if "sweeps/minatar" in name:
        kind = "impact" if "impact" in name else "vtrace"
    few += ("Hosts.engine = 'local'",) if "hosts" in name else ()  # processes take seconds to start
    few += TINY.get(kind, ("VectorRunner.replay_ratio = 1.0",))
    many = ("vtrace/cartpole", "vtrace/boxing", "impact/cartpole", "minatar")
    frames = 200 if any(each in name for each in many) else 40  # a decision may span many
    short = ("Runner.num_iterations = 1", f"Runner.training_steps = {frames}")
    small = ("DQNAgent.min_replay_history = 20", "create_network.torso = @MLPTorso", "MLPTorso.hidden = (4,)")
    ends = ("Runner.evaluation_steps = 0", "Runner.report_episodes = 1", "Runner.max_steps_per_episode = 100")
    runner = build(name, tmp_path, *few, *short, *small, *ends)
    run_to_its_end(name, runner)
    assert runner.agent.updates > 0


def run_to_its_end(name: str, runner: Experiment) -> None:
    """Do what `train` does until it prints the table, to which every agent that can play belongs.

    Sweeps and variants play the environments and the agents of other files, whose tables are seen there.
    """
    runner.run_experiment()
    if name.startswith(VARIANTS):
        return
    rows = compare_with_baselines(runner)
    no_op = [] if why_no_noop(runner.environment) else ["no-op"]
    assert [row.agent for row in rows] == ["random", *no_op, "trained"]
    assert all(math.isfinite(score) for row in rows for score in row.scores)
    assert "trained minus this" in table(rows)


def play(runner: Experiment, seed: int, most: int) -> int:
    """Play an episode until it ends, the agent has learnt, or it has made `most` decisions; return their number."""
    agent, environment = runner.agent, runner.environment
    assert isinstance(agent, TurnBasedAgent)
    observation, info = environment.reset(seed=seed)
    action = agent.begin_episode(observation, info.get("realtime"))
    for decisions in count(1):
        observation, reward, terminated, truncated, info = environment.step(action)
        if terminated or truncated or agent.updates or decisions == most:
            break
        action = agent.step(float(reward), observation, info.get("realtime"))
    agent.end_episode(float(reward), bool(terminated), observation, info.get("realtime"))
    return decisions


def test_there_are_files() -> None:
    assert {
        "configs/default.gin",
        "configs/dqn/kung_fu_master.gin",
        "configs/dqn/atari.gin",
        "configs/dqn/cartpole.gin",
        "configs/paper/atari.gin",
        "configs/paper/rainbow.gin",
    } <= set(FILES)
    assert {
        f"configs/{agent}/{environment}.gin"
        for agent in ("c51", "rainbow", "full_rainbow", "quantile", "implicit_quantile")
        for environment in ("atari", "cartpole", "acrobot")
    } <= set(FILES)


@pytest.mark.parametrize("name", TURNS)
def test_a_file_is_played_in_training_and_evaluation_and_learns(name: str, tmp_path: Path, build: Build) -> None:
    if name in VECTORS:
        return run_a_little(name, tmp_path, build)
    load(name)
    kind = next((each for each in ("vtrace", "ppo", "sac") if each in name), None)
    history = 0 if kind else min(int(gin.query_parameter("DQNAgent.min_replay_history")), 20)
    small = TINY[kind] if kind else (f"DQNAgent.min_replay_history = {history}",)
    runner = build(name, tmp_path, *small, *(SHORT if name not in LIVE else ()))
    seed = count()
    for runner.agent.eval_mode, most in ((True, 3), (False, 2000)):
        while most > 0 and not runner.agent.updates:
            most -= play(runner, next(seed), most)
    assert runner.agent.updates == 1
    if name not in LIVE and name not in ENDING_ELSEWHERE:
        run_to_its_end(name, runner)


# A closing table is of turn-based play: a live run ends with its closing line. A ROM is played in a process of its own,
# which knows the published cartridges alone: those files have twins that need none.
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*LIVE, "configs/live/cartpole_chunk.gin"} - {*GAME_BOY}))
def test_a_live_file_is_played_to_its_closing_line(name: str, tmp_path: Path, build: Build) -> None:
    kind = "vtrace" if "chunk" in name else next((each for each in ("vtrace", "ppo", "sac") if each in name), None)
    small = ["DQNAgent.min_replay_history = 20"] if kind is None else [*TINY[kind]]
    few = ("AsyncRunner.workers = 1", "AsyncRunner.learners = 1", "AsyncRunner.start_timeout = 60.0")
    runner = build(name, tmp_path, *small, *few, *SHORT_LIVE)
    runner.run_experiment()
    assert closing_line(runner.history).startswith("training: ")


def uniform(fan_in: int, fan_out: int) -> float:
    """Bound of uniform weights of variance 1 / (sqrt(3) fan_in)."""
    return math.sqrt(3 / math.sqrt(3) / fan_in)


def xavier(fan_in: int, fan_out: int) -> float:
    return math.sqrt(6 / (fan_in + fan_out))


@pytest.mark.parametrize(
    ("agent", "parameters", "bound"),
    [
        ("dqn", 4_046_502, xavier),
        ("c51", 4_200_402, uniform),
        ("rainbow", 4_200_402, uniform),
        ("full_rainbow", 8_375_146, xavier),
        ("quantile", 4_659_024, uniform),
        ("implicit_quantile", 4_549_862, uniform),
    ],
)
def test_on_atari_an_agents_network_and_its_first_weights_are_dopamines(
    agent: str, parameters: int, bound: Callable[[int, int], float], tmp_path: Path, build: Build
) -> None:
    made = build(f"configs/{agent}/atari.gin", tmp_path).agent
    assert isinstance(made, TurnBasedAgent)
    assert made.spec.num_actions == 6
    network = made.learner.network
    assert count_parameters(network) == parameters
    plain = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(plain) == {"full_rainbow": 3, "implicit_quantile": 6}.get(agent, 5)
    for layer in plain:
        outputs, inputs, *kernel = layer.weight.shape
        expected = bound(inputs * math.prod(kernel), outputs * math.prod(kernel))
        assert float(layer.weight.detach().abs().max()) == pytest.approx(expected, rel=0.01)
        assert layer.bias is not None and not layer.bias.any()


def test_the_files_of_the_paper_keep_its_networks(tmp_path: Path, build: Build) -> None:
    for name in ("configs/paper/atari.gin", "configs/live/boxing.gin"):
        made = build(name, tmp_path).agent
        assert isinstance(made, TurnBasedAgent)
        blank = create_network((1, 84, 84), made.spec.num_actions, torso=ImpalaTorso)
        assert count_parameters(made.learner.network) == count_parameters(blank)
        assert made.spec.loss_type == "huber"
        assert made.learner.network.initializer == "torch"  # type: ignore[union-attr]


def test_dqn_on_atari_has_the_loss_of_dopamines_jax_agent() -> None:
    load("configs/dqn/atari.gin")
    assert gin.query_parameter("DQNAgent.loss_type") == "mse"


def test_a_run_that_was_begun_unpadded_is_not_continued_padded(tmp_path: Path, build: Build) -> None:
    build("configs/dqn/atari.gin", tmp_path, "NatureTorso.padding = 'valid'").write(0)
    assert build("configs/dqn/atari.gin", tmp_path, "NatureTorso.padding = 'valid'").resume()
    difference = r"\(network: torso.layers.7.weight: \[512, 3136\] there, \[512, 7744\] here\)"
    with pytest.raises(DifferentExperiment, match=difference):
        build("configs/dqn/atari.gin", tmp_path).resume()


@pytest.mark.parametrize("name", [name for name in VECTORS if "cartpole" not in name])
def test_a_file_of_many_games_makes_its_learner_with_its_own_numbers(name: str) -> None:
    """Other tests make batches and replays small; memory is not written to here."""
    load(name)
    space = gym.spaces.Box(0, 255, (84, 84), np.uint8)
    kind = spec_of(gin.query_parameter("create_agent.agent_name"))
    spec: Any = kind(space, gym.spaces.Discrete(6), decision_interval=1, seed=0)
    assert not make_vector_learner(spec, gin.query_parameter("VectorRunner.num_envs")).ready


def of_atari(name: str) -> Any:
    """The spec of a file's agent for a game of six actions."""
    load(name)
    space = gym.spaces.Box(0, 255, (84, 84), np.uint8)
    kind = spec_of(gin.query_parameter("create_agent.agent_name"))
    return kind(space, gym.spaces.Discrete(6), decision_interval=1, seed=0)


@pytest.mark.parametrize(
    ("name", "centred", "decay", "eps", "epsilon"),
    [("configs/apex/atari.gin", True, 0.95, 1.5e-7, 0.001), ("configs/apex/atari_rela.gin", False, 0.99, 1.5e-4, 0.0)],
)
def test_apex_has_the_optimiser_of_the_paper_or_of_rela(
    name: str, centred: bool, decay: float, eps: float, epsilon: float
) -> None:
    spec = of_atari(name)
    optimizer: Any = spec.optimizer([nn.Parameter(torch.zeros(1))])
    (group,) = optimizer.param_groups
    assert type(optimizer).__name__ == "RMSprop"
    found = {name: group[name] for name in ("lr", "alpha", "eps", "momentum", "centered")}
    assert found == {"lr": 0.00025 / 4, "alpha": decay, "eps": eps, "momentum": 0.0, "centered": centred}
    assert spec.epsilon_eval == epsilon


CONVOLUTIONS = (8 * 8 * 4 * 32 + 32) + (4 * 4 * 32 * 64 + 64) + (3 * 3 * 64 * 64 + 64)


def lstm_parameters(inputs: int, units: int) -> int:
    """Of PyTorch's, which has two biases."""
    return 4 * units * (inputs + units + 2)


@pytest.mark.parametrize(
    ("name", "loss_type", "parameters"),
    [
        (
            "configs/r2d2/atari.gin",  # agents/r2d2 and atari/networks.py of SEED RL, and biases of the advantages
            "mse",
            CONVOLUTIONS
            + (64 * 7 * 7 + 1) * 512
            + lstm_parameters(512 + 6 + 1, 512)
            + 2 * (512 + 1) * 512
            + (512 + 1) * (1 + 6),
        ),
        (
            "configs/r2d2/atari_rela.gin",  # pyrela/net.py of rela
            "huber",
            CONVOLUTIONS + lstm_parameters(64 * 7 * 7, 512) + (512 + 1) * (1 + 6),
        ),
    ],
)
def test_r2d2_has_the_network_and_the_loss_of_seed_rl_or_of_rela(name: str, loss_type: str, parameters: int) -> None:
    spec = of_atari(name)
    assert spec.loss_type == loss_type
    assert count_parameters(spec.make_network()) == parameters


@pytest.mark.parametrize("name", [*FILES, PAPER[0], PAPER[-1]])
def test_a_file_binds_what_is_saved_and_plays_the_agent_of_its_folder(name: str, tmp_path: Path) -> None:
    load(name)
    bound, folder = gin.config_str(), Path(name).parent.name
    if folder in AGENTS:
        assert gin.query_parameter("create_agent.agent_name") == folder
    load(str(save_config(tmp_path)))
    assert gin.config_str() == bound


@pytest.mark.parametrize("name", PAPER)
def test_a_simulation_of_the_paper_binds_the_schedule_of_its_name_and_differs_in_nothing_else(name: str) -> None:
    interaction, delay = Path(name).stem.split("_")
    expected, found = (
        re.sub(r"RealtimeDelay\.(delay|noops) = \d+", "", text_of(each)) for each in ("configs/paper/atari.gin", name)
    )
    assert found == expected
    noops = {"asynchronous": "0", "sequential": delay}[interaction]
    assert dict(re.findall(r"RealtimeDelay\.(delay|noops) = (\d+)", text_of(name))) == {"delay": delay, "noops": noops}


def test_either_binding_leaves_the_evaluation_of_many_environments_out(tmp_path: Path, build: Build) -> None:
    name, few = "configs/vtrace/cartpole.gin", ("VectorRunner.num_envs = 2", "VectorRunner.evaluation_envs = 1")
    assert "evaluation" in build(name, tmp_path, *few).facts()["iterations"]
    for binding in ("Runner.evaluation_steps = 0", "Runner.evaluation_episodes = 0"):
        assert "evaluation" not in build(name, tmp_path, *few, binding).facts()["iterations"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_its_units_and_departures(name: str) -> None:
    text = told = (ROOT / name).read_text()
    while included := re.search(r'^include "(.+)"$', text, re.MULTILINE):
        text = (ROOT / included[1]).read_text()
        told += text
    assert told.startswith("# ")
    assert "Units:" in told


def test_the_papers_rainbow_is_what_its_header_says(tmp_path: Path, build: Build) -> None:
    """The noisy hidden layer, the noise of biases, the support; the rest is told by the tests of the parts."""
    agent = build("configs/paper/rainbow.gin", tmp_path).agent
    assert isinstance(agent, TurnBasedAgent)
    network = agent.learner.network
    layers = noisy_layers(network)
    assert not [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(1568, 512), (512, 51), (512, 18 * 51)]
    for layer in layers:
        assert torch.all(layer.bias_sigma == 0.5 / layer.in_features**0.5)
        assert torch.all(layer.weight_sigma == 0.5 / layer.in_features**0.5)
    assert agent.spec.support.tolist() == pytest.approx([6.0 * atom - 100 for atom in range(51)])
    grey = torch.full((1, 1, 84, 84), 100, dtype=torch.uint8)
    assert torch.equal(network(grey), network(grey.float() / 255))


def test_the_first_decisions_can_act_on_zeros_as_published(tmp_path: Path, build: Build) -> None:
    """The bindings of docs/concepts/published_loop.md, on the screen of a game."""
    page = (ROOT / "docs" / "concepts" / "published_loop.md").read_text()
    (block,) = re.findall(r"```gin\n(create_atari_environment\.wrappers.*?)```", page, re.DOTALL)
    bindings = [line.partition("  #")[0] for line in block.splitlines()]
    environment = build("configs/paper/atari.gin", tmp_path, *bindings, "DelayObservation.delay = 2").environment
    seen = [environment.reset(seed=0)[0]]
    for _ in range(2):
        observation, *_, info = environment.step(0)
        seen.append(observation)
        assert (info["realtime"]["delay"], info["realtime"]["interval"]) == (0, 600)
    assert [observation.any() for observation in seen] == [False, False, True]


TWINS = {  # of each file that needs a ROM, the one that needs none
    "configs/paper/tetris.gin": "configs/falling_blocks/tetris_paper.gin",
    "configs/live/tetris.gin": "configs/falling_blocks/live_tetris.gin",
    "configs/sweeps/tetris_paper.gin": "configs/sweeps/falling_blocks_paper.gin",
    "configs/sweeps/pokemon_paper.gin": "configs/sweeps/falling_blocks_live.gin",
    **{f"configs/live/pokemon_{k}.gin": f"configs/falling_blocks/live_{k}.gin" for k in ("1m", "10m", "100m", "1b")},
}


def test_the_files_that_need_a_rom_are_known_and_have_a_twin_that_needs_none() -> None:
    assert {name for name in FILES if game_of(name)} == GAME_BOY == set(TWINS)


@pytest.mark.parametrize("name", sorted(GAME_BOY))
def test_a_missing_rom_is_told_in_one_sentence_with_the_remedy(name: str, tmp_path: Path) -> None:
    load(name)
    game = "Tetris" if "tetris" in name else "Pokemon Blue"
    with pytest.raises(ValueError, match=rf"^rom must be the path of your own file of {game} .*SHA-256.*needs none\n"):
        create_runner(tmp_path)
    load(name, "ROM = '/nowhere/rom.gb'")
    with pytest.raises(ValueError, match=r"^rom: there is no file '/nowhere/rom.gb': give the path of your own"):
        create_runner(tmp_path)


def settings() -> dict[str, str]:
    """All that is bound, but the environment."""
    text = re.sub(r"\\\n +", "", gin.config_str())
    return {
        line.partition(" = ")[0]: line.partition(" = ")[2]
        for line in text.splitlines()
        if " = " in line and not line.startswith(("#", "create_gym_environment.", "ResizeObservation.", " "))
    }


@pytest.mark.parametrize(("with_rom", "without"), sorted(TWINS.items()))
def test_a_twin_differs_in_nothing_but_the_environment(with_rom: str, without: str) -> None:
    load(with_rom)
    expected = settings()
    assert {"DQNAgent.replay_capacity", "Runner.num_iterations", "create_network.torso"} <= expected.keys()
    load(without)
    found = settings()
    if "sweeps" in with_rom:  # one game in the place of battles and catching
        expected, found = ({k: v for k, v in of.items() if not k.startswith("Sweep.")} for of in (expected, found))
    assert found == expected
    assert gin.query_parameter("create_gym_environment.environment_id") == "async_wrappers/FallingBlocks-v0"


@pytest.mark.parametrize(
    ("size", "workers", "learners", "initial_latency"),
    [("1m", 7, 1, 0.04), ("10m", 12, 3, 0.1), ("100m", 72, 33, 0.01), ("1b", 597, 318, 9.98)],
)
def test_the_live_files_have_the_published_workers_learners_and_latencies(
    size: str, workers: int, learners: int, initial_latency: float
) -> None:
    load(f"configs/live/pokemon_{size}.gin")
    expected = {
        "create_network.torso": size,
        "AsyncRunner.workers": workers,
        "AsyncRunner.learners": learners,
        "MaxTime.initial_latency": initial_latency,
        "AsyncRunner.fps": 59.7275,
        "DQNAgent.batch_size": 16,
        "DQNAgent.replay_capacity": 10_000,
        "LiveRunner.standing_at": 20_000,
    }
    assert {name: gin.query_parameter(name) for name in expected} == expected


def learners_of_the_page() -> dict[str, list[Any]]:
    """What the page on live training says of each file: learners, updates between two copies, its own, memory."""
    found = {}
    for line in (ROOT / "docs" / "live" / "training.md").read_text().splitlines():
        names, *numbers = (cell.strip() for cell in line.strip("|").split(" | "))
        if len(numbers) == 4 and numbers[0].isdigit():
            files = [Path(name).name for name in re.findall(r"`(.+?)`", names)]
            found |= {
                f"configs/live/{name}": [*(int(number.replace(",", "")) for number in numbers[:3]), numbers[3]]
                for name in files
            }
    return found


@pytest.mark.parametrize("name", [name for name in FILES if re.search("/live/(?!cartpole|pendulum)", name)])
def test_the_page_and_the_file_say_what_several_learners_keep(name: str) -> None:
    load(name, "create_network.torso = @MLPTorso", "MLPTorso.hidden = (4,)")
    count = gin.query_parameter("AsyncRunner.learners")
    spaces = gym.spaces.Box(0, 255, (84, 84), np.uint8), gym.spaces.Discrete(7)
    parts = create_spec(*spaces, seed=0)
    learner = make_learner(parts, count - 1, count)
    capacity = learner.replay.facts()["capacity"]
    period = learner.settings.target_update_period
    bytes_in_all = count * capacity * 84 * 84
    memory = f"{bytes_in_all / 1e6:.0f} MB" if bytes_in_all < 1e9 else f"{bytes_in_all / 1e9:.2g} GB"
    assert learners_of_the_page()[name] == [count, period, round(period / count), memory]
    said = re.search(r"Each learner keeps the ([\d,]+) observations .*, (.*) in all", (ROOT / name).read_text())
    assert (said is not None) == (count > 1)
    assert said is None or (int(said[1].replace(",", "")), said[2]) == (capacity, memory)


def test_tetris_has_the_published_settings() -> None:
    load("configs/paper/tetris.gin")
    expected = {
        "DQNAgent.update_period": 1,
        "DQNAgent.epsilon_decay_period": 16_001,
        "DQNAgent.target_update_period": 10_000,
        "DQNAgent.replay_capacity": 1_000_000,
        "DQNAgent.batch_size": 32,
        "Runner.num_iterations": 20,
        "Runner.training_episodes": 100,
        "create_network.torso": "1m",
    }
    assert {name: gin.query_parameter(name) for name in expected} == expected
