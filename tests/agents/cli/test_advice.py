"""Whoever follows an error's advice, to the letter, gets what he wanted."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Graph, MultiBinary, Sequence, Text

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers import RealtimeDelay
from async_wrappers.agents.config.config import ConfigError, load_config
from async_wrappers.agents.registry import create_agent
from async_wrappers.envs import create_atari_environment, create_gym_environment
from tests.worlds.agents import make_agent
from tests.worlds.command_line import ROOT, bound, call, iterations, place, refused

__all__ = ["call", "place"]


class Shows(gym.Env[Any, Any]):
    """Shows what its space holds for ten frames."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.observation_space, self.action_space, self.frame = observation_space, action_space, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.frame = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.frame += 1
        return self.observation_space.sample(), 0.0, self.frame == 10, False, {}


ADVISED = "AsyncWrappersAdvice/Shows-v0"
VECTOR = Box(-1, 1, (2,), np.float32)


@pytest.fixture
def shows(request: pytest.FixtureRequest) -> Any:
    """Registers an environment with the spaces that a test is given."""
    spaces = dict(zip(("observation_space", "action_space"), request.param, strict=True))
    gym.register(ADVISED, entry_point=Shows, kwargs=spaces, disable_env_checker=True)
    yield
    del gym.registry[ADVISED]


def train(call: Any, *bindings: str) -> Any:
    words = bound(*bindings)
    return call("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1", *words)


@pytest.mark.parametrize(
    "shows",
    [(Text(4, min_length=4), Discrete(2)), (VECTOR, Box(-1, 1, (2,), np.float32)), (Text(3, min_length=3), VECTOR)],
    indirect=True,
    ids=["observations", "actions", "both"],
)
def test_the_wrappers_that_a_refused_space_names_let_an_agent_train(shows: Any, call: Any) -> None:
    bindings = [f"create_gym_environment.environment_id = {ADVISED!r}"]
    names: list[str] = []
    done = train(call, *bindings)
    while done.code:
        message = refused(done)
        found = re.search(r"in gin (create_gym_environment\.wrappers = \[@(\w+), @RealtimeDelay\])", message)
        assert found and found[2] not in names, message
        names.append(found[2])
        whole = found[1] if len(names) == 1 else found[1].replace("[", f"[@{names[0]}, ")
        others = re.findall(r"\] and (\w+\.\w+ = \w+)", message)
        bindings = [each for each in bindings if not each.startswith("create_gym_environment.wrappers")]
        bindings += [whole, *others]
        done = train(call, *bindings)
    assert names
    assert len(iterations(Path("run"))) == 1


@pytest.mark.parametrize("space", [Sequence(Discrete(2)), Graph(VECTOR, None)], ids=["Sequence", "Graph"])
def test_a_space_that_cannot_be_flattened_is_not_advised_to_be(space: Any) -> None:
    with pytest.raises(ValueError, match="turn it into one in an ObservationWrapper of your own"):
        make_agent("c51", Shows(space, Discrete(2)))
    own = gym.wrappers.TransformObservation(Shows(space, Discrete(2)), lambda shown: np.zeros(3, np.float32), VECTOR)
    own.observation_space = Box(-1, 1, (3,), np.float32)
    assert make_agent("c51", own).begin_episode(own.reset(seed=0)[0]) in (0, 1)


def test_actions_of_several_numbers_are_not_advised_to_be_discretised() -> None:
    with pytest.raises(ValueError, match="turn them into one number in an ActionWrapper of your own"):
        make_agent("c51", Shows(VECTOR, MultiBinary(2)))


# Atari.


@pytest.mark.parametrize("game", ["ALE/Pong-v5", "BreakoutDeterministic-v4"])
def test_an_id_of_atari_names_what_makes_it(game: str) -> None:
    # As in a notebook that begins: nobody has imported ale-py.
    code = f"from async_wrappers.envs import create_gym_environment\ncreate_gym_environment({game!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    message = done.stderr.splitlines()[-1].removeprefix("ValueError: ")
    assert message.startswith(
        f"environment_id {game!r} is an Atari game, made by create_atari_environment: in gin bind "
    )
    advised = re.findall(r"\w+\.\w+ = [^ ,]+", message)
    assert len(advised) == 2
    load_config([], advised)
    env = gin.get_bindings("Runner")["create_environment_fn"]()
    assert env.unwrapped.spec.id == f"ALE/{game.removeprefix('ALE/')[:-3].removesuffix('Deterministic')}-v5"


# Near names.


@pytest.mark.parametrize(
    ("binding", "pattern"),
    [
        ("RealtimeDelay.delai = 3", r"did you mean (\S+?)(?: or .*)?\?"),
        ("RealtimeDeley.delay = 3", r"did you mean (\S+?)(?: or .*)?\?"),
        ("create_gym_environment.wrappers = [@FrameStakObservation]", r"did you mean (\S+?)(?: or .*)?\?"),
    ],
)
def test_the_name_that_gin_is_said_to_mean_is_one(binding: str, pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([], [binding])
    found = re.search(pattern, str(caught.value))
    assert found, str(caught.value)
    wrong = re.search(r"\w+\.delai|RealtimeDeley|FrameStakObservation", binding)
    assert wrong
    load_config([], [binding.replace(wrong[0], found[1])])


def cart_pole() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


@pytest.mark.parametrize(
    ("follow", "wrong"),
    [
        (lambda name: create_gym_environment(name), "CartPol-v1"),
        (lambda name: create_gym_environment(name), "Taxi-v3"),
        (lambda name: create_atari_environment(name), "Brekout"),
        (lambda name: RealtimeDelay(cart_pole(), delay=1, default_action=name), "repeet"),
        (lambda name: create_agent(cart_pole(), name), "rainbo"),
    ],
    ids=["environment", "older environment", "game", "default action", "agent"],
)
def test_the_nearest_name_works(follow: Callable[[str], Any], wrong: str) -> None:
    with pytest.raises(ValueError) as caught:
        follow(wrong)
    found = re.search(r"(?:close names are|did you mean) '?([\w/-]+)'?", str(caught.value))
    assert found, str(caught.value)
    assert found[1] != wrong
    follow(found[1])


def test_the_newer_id_that_is_named_for_an_older_one_is_made_or_says_what_to_install() -> None:
    with pytest.raises(ValueError, match="cannot be made") as caught:
        create_gym_environment("Ant-v2")
    newer = re.search(r": use '([\w-]+)'$", str(caught.value))
    assert newer, str(caught.value)
    if importlib.util.find_spec("mujoco"):
        assert create_gym_environment(newer[1]).reset(seed=0)
    else:
        with pytest.raises(ValueError, match=r"needs a module that is missing .*pip install"):
            create_gym_environment(newer[1])


def test_the_flag_that_is_meant_is_one(call: Any) -> None:
    found = re.search(r"did you mean (--\w+)\?", refused(call("evaluate", "--episode", "1")))
    assert found
    assert "--base_dir" in refused(call("evaluate", found[1], "1"))
