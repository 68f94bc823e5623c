"""A person, chance and a function play; what they do is written down."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.agents.demonstrations.demonstration import Demonstration, EpisodeRecorder
from async_wrappers.agents.demonstrations.players import Keyboard, Script, make_player
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.recording_env import MEANINGS, NOOP, RecordingEnv

try:
    import pygame
except ImportError:
    pygame = None

with_pygame = pytest.mark.skipif(pygame is None, reason="pygame is not installed: pip install pygame")


def ignored(episode: Demonstration) -> None:
    pass


LEFT, UP = MEANINGS.index("LEFT"), MEANINGS.index("UP")


class TestPlayers:
    def test_chance_plays_the_same_again_with_its_seed(self) -> None:
        def actions(seed: int) -> list[int]:
            player = make_player("random", DriftingEnv(), seed)
            return [int(player(None)) for _ in range(50)]

        assert actions(1) == actions(1) != actions(2)
        assert set(actions(1)) == {0, 1, 2}

    def test_a_function_is_given_the_environment_and_then_each_observation(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        env = DriftingEnv(lengths=[4])
        module = types.ModuleType("a_script")
        module.player_of = lambda environment: lambda observation: (environment is env) + int(observation[2] > 0.15)
        monkeypatch.setitem(sys.modules, "a_script", module)
        Script(make_player("a_script:player_of", env, 0)).play(EpisodeRecorder(env, ignored), [0])
        assert env.lives[0].actions == [1, 1, 2, 2]

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("humn", "player must be 'human', 'random' or 'MODULE:FUNCTION', got 'humn'; did you mean 'human'?"),
            ("no_such_module:f", "player 'no_such_module:f' cannot be imported (No module named 'no_such_module')"),
            ("math:f", "player 'math:f' cannot be imported (module 'math' has no attribute 'f')"),
            ("builtins:id", "player 'builtins:id' must return a function from an observation to an action, got "),
            ("json:dumps", "player 'json:dumps' could not be made for the environment (TypeError: Object of type "),
        ],
    )
    def test_another_player_is_one_sentence(self, name: str, sentence: str) -> None:
        with pytest.raises(ValueError) as caught:
            make_player(name, DriftingEnv(), 0)
        assert str(caught.value).startswith(sentence)

    def test_an_episode_ends_after_so_many_frames(self) -> None:
        env = DriftingEnv(lengths=[9])
        kept: list[Demonstration] = []
        Script(lambda observation: 0, max_frames=4).play(EpisodeRecorder(env, kept.append), [0, 1])
        assert [len(life.actions) for life in env.lives] == [4, 4]
        assert [(len(each), each.terminated) for each in kept] == [(4, False)] * 2


class TestRecorder:
    def test_each_episode_is_handed_over_when_it_has_ended(self) -> None:
        kept: list[Demonstration] = []
        env = DriftingEnv(lengths=[3, 2], ends=[(True, False), (False, True)], reuse=True)
        recorder = EpisodeRecorder(env, kept.append)
        Script(lambda observation: 2).play(recorder, [5, 6])
        assert [(each.terminated, each.seed, len(each)) for each in kept] == [(True, 5, 3), (False, 6, 2)]
        for each, life in zip(kept, env.lives, strict=True):
            np.testing.assert_array_equal(each.observations, np.stack(life.observations))
            assert (each.actions.tolist(), each.rewards.tolist()) == (life.actions, life.rewards)

    def test_an_episode_that_is_cut_is_a_truncation_and_one_that_is_left_is_forgotten(self) -> None:
        kept: list[Demonstration] = []
        recorder = EpisodeRecorder(DriftingEnv(lengths=[9]), kept.append)
        for frames in (4, 2):
            recorder.reset()
            for _ in range(frames):
                recorder.step(0)
        recorder.truncate_episode()
        recorder.truncate_episode()
        assert [(each.terminated, len(each)) for each in kept] == [(False, 2)]


class Hand(gym.Wrapper[Any, Any, Any, Any]):
    """Presses and releases keys before the frames of an episode: {frame: [(key, down)]}."""

    def __init__(self, env: gym.Env[Any, Any], keys: dict[int, list[tuple[str, bool]]]) -> None:
        super().__init__(env)
        self._keys = keys

    def render(self) -> Any:
        for name, down in self._keys.pop(len(self.env.unwrapped.actions) if self.env.unwrapped.episodes else 0, []):  # type: ignore[attr-defined]
            kind = pygame.KEYDOWN if down else pygame.KEYUP
            if pygame.display.get_init():
                pygame.event.post(pygame.event.Event(kind, key=pygame.key.key_code(name)))
        return self.env.render()


def by_hand(env: gym.Env[Any, Any], seeds: list[int], fps: float) -> None:
    Keyboard(env, fps).play(env, seeds)


@with_pygame
class TestByHand:
    @pytest.fixture(autouse=True)
    def no_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")

    def test_held_keys_are_actions_of_every_frame_and_no_key_is_the_no_op(self) -> None:
        env = RecordingEnv(length=[99, 6, 3], render_mode="rgb_array")
        keys = {2: [("left", True)], 4: [("left", False)]}
        by_hand(Hand(env, keys), [1, 2], 999.5)
        played = [actions for actions in env.episodes if actions]
        assert played == [[NOOP, NOOP, LEFT, LEFT, NOOP, NOOP], [NOOP, NOOP, NOOP]]

    def test_escape_ends_it_and_what_had_ended_is_kept(self) -> None:
        kept: list[Demonstration] = []
        env = RecordingEnv(length=[6, 6, 6], render_mode="rgb_array")
        by_hand(Hand(EpisodeRecorder(env, kept.append), {3: [("up", True)]}), [1], 1000)
        assert [each.actions.tolist() for each in kept] == [[NOOP, NOOP, NOOP, UP, UP, UP]]
        hand = Hand(EpisodeRecorder(env, kept.append), {3: [("escape", True)]})
        by_hand(hand, [1, 2, 3], 1000)
        assert len(kept) == 1

    def test_an_environment_without_names_of_actions_is_one_sentence(self) -> None:
        env = DriftingEnv()
        env.render_mode = "rgb_array"
        with pytest.raises(ValueError, match="a person needs an environment that names its actions, got no names"):
            Keyboard(env)

    def test_the_rate_is_that_of_the_environments_steps_and_one_sentence_asks_for_it(self) -> None:
        env = gym.wrappers.RepeatAction(RecordingEnv(render_mode="rgb_array"), 4)
        assert Keyboard(env)._play.keywords["fps"] == 15
        env.unwrapped.metadata = {"render_modes": ["rgb_array"]}
        with pytest.raises(ValueError, match=r"^fps must be given, in frames per second"):
            Keyboard(env)
        assert Keyboard(env, 30)._play.keywords["fps"] == 30


def test_an_environment_without_pictures_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="render_mode='rgb_array', got None: use create_gym_environment"):
        Keyboard(RecordingEnv())


def test_the_module_of_players_needs_no_pygame(tmp_path: Path) -> None:
    assert "pygame" not in vars(sys.modules["async_wrappers.agents.demonstrations.players"])
