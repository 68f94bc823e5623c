"""The files of the page on an environment of one's own train, as a reader writes them, on a vector and on a Dict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.worlds.command_line import ROOT, Done, bound, in_a_fork, iterations, place, refused

__all__ = ["place"]

PAGE = (ROOT / "docs" / "how_to" / "own_environment.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FILES = {name[1]: text for text in BLOCKS if (name := re.match(r".*# (\w+\.(?:py|gin))\n", text))}
AS_DICT = """
class Shown(gym.ObservationWrapper):
    def __init__(self):
        super().__init__(CartPoleEnv())
        self.observation_space = gym.spaces.Dict(cart=self.env.observation_space)

    def observation(self, observation):
        return {"cart": observation}


gym.register("MyDict-v0", Shown, max_episode_steps=500)
"""
SHORT = bound(
    "Runner.num_iterations = 1",
    "Runner.training_steps = 1_000",
    "Runner.evaluation_steps = 0",
    "Runner.evaluation_episodes = None",
    "Runner.report_episodes = 0",
)
FLAT = "CommittedActions.flat = True"
FLATTENED = "create_gym_environment.wrappers = [@FlattenObservation, @RealtimeDelay, @CommittedActions]"


def train(place: Path, name: str, environment: str, *bindings: str) -> Done:
    (place / "my_environments.py").write_text(FILES["my_environments.py"] + AS_DICT)
    (place / name).write_text(FILES[name])
    words = bound(f"create_gym_environment.environment_id = {environment!r}", *bindings)
    return in_a_fork(place, "--base_dir", "run", "--gin_files", name, *SHORT, *words)


@pytest.mark.parametrize("environment", ["MyEnvironment-v0", "MyDict-v0"])
@pytest.mark.parametrize("name", ["my_experiment.gin", "my_dqn.gin"])
def test_a_file_of_the_page_trains_with_the_actions_on_their_way(name: str, environment: str, place: Path) -> None:
    done = train(place, name, environment)
    assert done.code == 0, done.err
    assert f"environment: {environment}" in done.out and "delay: 4 frames\n" in done.out
    [line] = iterations(place / "run")
    assert line["train_updates"] > 0
    config = (place / "run" / "config.gin").read_text()
    assert ("create_actor_critic.action_window = 4" in config) != ("CommittedActions.length = 4" in config)


def test_one_vector_of_a_dict_needs_it_flattened_first_which_the_refusal_says(place: Path) -> None:
    said = refused(train(place, "my_dqn.gin", "MyDict-v0", FLAT))
    assert said.startswith("flat=True needs a vector observation, got Dict('cart': ")
    assert said.endswith("(in gin @FlattenObservation begins the list of wrappers), or use flat=False")
    assert train(place, "my_dqn.gin", "MyDict-v0", FLAT, FLATTENED).code == 0
