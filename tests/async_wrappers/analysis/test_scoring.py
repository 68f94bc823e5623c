"""Tests of async_wrappers/analysis/scoring.py: the environment played, the policies, the arithmetic, the command."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FlattenObservation, TransformReward
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from stable_baselines3 import DQN

from async_wrappers import MinAtarScores, RealtimeDelay, create_minatar_environment, score_policy
from async_wrappers.__main__ import main
from async_wrappers.analysis.regret import Estimate, episode_seeds
from async_wrappers.analysis.scoring import GameScore, Reference, interquartile_mean, read_reference
from async_wrappers.envs.minatar import LONGEST_EPISODE, MINATAR_GAMES, STICKY_PROBABILITY

ROOT = Path(__file__).parents[3]
play = partial(score_policy, games=["breakout"], delays=[0], episodes=2)


def follow(observation: Any) -> int:
    """Move Breakout's paddle (channel 0) below its ball (channel 1)."""
    paddle, ball = observation[0].any(axis=0).argmax(), observation[1].any(axis=0).argmax()
    return 1 + int(ball > paddle) if ball != paddle else 0


def played_by_hand(delay: int, noops: int, episodes: int) -> list[float]:
    env = RealtimeDelay(create_minatar_environment("breakout"), delay, noops, "noop")
    scores = []
    for seed in episode_seeds(5, episodes):
        observation, _ = env.reset(seed=seed)
        score, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(follow(observation))
            score, over = score + float(reward), terminated or truncated
        scores.append(score)
    return scores


class TestGames:
    @pytest.mark.parametrize(("way", "noops"), [("asynchronous", 0), ("sequential", 2)])
    def test_a_score_is_that_of_the_delayed_environment(self, way: str, noops: int) -> None:
        found = score_policy(lambda: follow, ["breakout"], [0, 2], way, 4, seed=5)
        assert list(found.score("breakout", 0).scores) == played_by_hand(0, 0, 4)
        assert list(found.score("breakout", 2).scores) == played_by_hand(2, noops, 4)

    def test_they_are_those_of_the_grid(self) -> None:
        import_module("async_wrappers.configurables")  # the gin names
        gin.clear_config()
        gin.parse_config_file(str(ROOT / "configs/minatar/vtrace.gin"), skip_unknown=True)
        of_game = {"sticky_probability": STICKY_PROBABILITY, "max_episode_steps": LONGEST_EPISODE}
        for name, value in of_game.items():
            assert gin.query_parameter(f"create_minatar_environment.{name}") == value
        assert gin.query_parameter("RealtimeDelay.default_action") == "noop"
        gin.clear_config()

    def test_an_episode_has_the_same_seed_at_every_delay_and_is_repeatable(self) -> None:
        two = [play(lambda: lambda observation: 0, delays=[0, 2, 8]) for _ in range(2)]
        assert two[0] == two[1]
        # Nothing but no-ops: a delay changes nothing, as the episodes are the same.
        assert len({each.frames for each in two[0].played}) == 1

    def test_no_wrapper_changes_a_score(self) -> None:
        richer = partial(TransformReward, func=lambda reward: reward + 100)
        assert play(lambda: follow, wrappers=[richer]).played == play(lambda: follow).played

    def test_games_are_named_in_any_spelling_and_played_once(self) -> None:
        found = play(
            lambda: lambda observation: 0, games=["Breakout", "breakout", "asterix"], delays=[2, 2], episodes=1
        )
        assert [(each.game, each.delay) for each in found.played] == [("breakout", 2), ("asterix", 2)]


class TestFactory:
    def test_it_is_called_once_for_all_per_game_or_per_game_and_delay(self) -> None:
        calls: list[tuple[Any, ...]] = []

        def policy(*values: Any) -> Callable[[Any], int]:
            calls.append(values)
            return lambda observation: 0

        of: dict[str, Callable[..., Any]] = {
            "nothing": lambda: policy(),
            "game": lambda game: policy(game),
            "both": lambda delay, game, other=3: policy(game, delay, other),
            "all": lambda **names: policy(*sorted(names)),
        }
        made = {}
        for name, factory in of.items():
            calls.clear()
            score_policy(factory, ["breakout", "asterix"], [0, 2], episodes=1)
            made[name] = list(calls)
        points = [(game, delay, 3) for game in ("breakout", "asterix") for delay in (0, 2)]
        assert made["nothing"] == [()]
        assert made["game"] == [("breakout",), ("asterix",)]
        assert made["both"] == points
        assert made["all"] == [("delay", "env", "game")] * 4

    def test_env_is_the_delayed_environment_in_its_wrappers_and_another_one_than_is_played(self) -> None:
        seen: list[gym.Env[Any, Any]] = []

        def make_policy(env: gym.Env[Any, Any]) -> Callable[[Any], int]:
            seen.append(env)
            env.reset(seed=3)
            env.step(0)
            return lambda observation: int(observation.sum()) % env.action_space.n  # type: ignore[attr-defined]

        found = play(make_policy, wrappers=[FlattenObservation])
        assert seen[0].observation_space.shape == (400,)
        assert isinstance(seen[0].unwrapped, type(create_minatar_environment("breakout").unwrapped))
        assert found == play(lambda: lambda observation: int(observation.sum()) % 3)


class Predicts:
    """A policy with memory as SB3-Contrib's, which notes what it is given."""

    def __init__(self) -> None:
        self.begins: list[bool] = []
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        assert deterministic and observation.shape == (4, 10, 10) and episode_start.shape == (1,)
        assert (state is None) == bool(episode_start[0])
        self.begins.append(bool(episode_start[0]))
        return np.array([0]), (0 if state is None else state) + 1


class TestPolicies:
    def test_predict_is_given_its_state_and_where_an_episode_begins(self) -> None:
        policy = Predicts()
        found = play(lambda: policy)
        frames = found.score("breakout", 0).frames
        assert [n for n, begins in enumerate(policy.begins) if begins] == [0, frames[0]]
        assert (len(policy.begins), policy.resets) == (sum(frames), 2)

    def test_predict_may_take_the_observation_alone_and_give_the_action_alone(self) -> None:
        class Plain:
            def predict(self, observation: Any) -> int:
                return follow(observation)

        assert play(Plain) == play(lambda: follow)

    def test_policies_of_ours_play_too(self) -> None:
        class Ours:
            def act(self, observation: Any, decision: Any) -> int:
                assert decision.eval_mode
                return follow(observation)

        assert play(Ours) == play(lambda: follow)

    @pytest.mark.parametrize(
        "one", [np.int64(1), np.array(1), np.array([1]), np.uint8(1), np.bool_(True), np.array([True]), torch.tensor(1)]
    )
    def test_whole_numbers_and_bools_of_numpy_are_actions(self, one: Any) -> None:
        assert play(lambda: lambda observation: one) == play(lambda: lambda observation: 1)

    @pytest.mark.filterwarnings("ignore:.*cuda.*")
    def test_a_model_of_stable_baselines3_is_trained_and_scored(self) -> None:
        made: list[DQN] = []

        def train(env: gym.Env[Any, Any]) -> DQN:
            model = DQN("MlpPolicy", env, buffer_size=200, learning_starts=20, seed=0, device="cpu")
            made.append(model.learn(60))
            return model

        found = play(train, delays=[2], wrappers=[FlattenObservation])
        assert made[0].observation_space.shape == (400,)
        by_hand = play(
            lambda: lambda observation: made[0].predict(observation.ravel(), deterministic=True)[0], delays=[2]
        )
        assert found.played == by_hand.played
        with pytest.raises(ValueError, match=r"breakout at delay 0 .* \(4, 10, 10\).*raised ValueError: .*\(400,\)"):
            play(lambda: made[0])


def refuses(sentence: str, *arguments: Any, **others: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=sentence) as raised:
            play(*arguments, **others)
    assert "\n" not in str(raised.value)


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "shown"),
        [
            (3, "3"),
            (-1, "-1"),
            (1.0, "1.0"),
            (None, "None"),
            (np.float32(1), r"np.float32\(1.0\)"),
            (np.array([1, 2]), r"array\(\[1, 2\]\)"),
            (np.array([0.1, 0.7, 0.2]), r"array\(\[0.1, 0.7, 0.2\]\)"),
            ("left", "'left'"),
        ],
    )
    def test_an_action_outside_the_space(self, given: Any, shown: str) -> None:
        words = rf"the policy for breakout at delay 0 must give an action of Discrete\(3\), got {shown}: "
        refuses(words + "give a whole number from 0 to 2", lambda: lambda observation: given)

    def test_a_policy_that_raises_names_the_first_line_of_its_error(self) -> None:
        def act(observation: Any) -> int:
            raise KeyError("no such cell\nand more")

        refuses(r"for breakout at delay 0 must answer observations of Box\(.*raised KeyError: .*no such", lambda: act)

    @pytest.mark.parametrize("nothing", [None, 3, "policy", Predicts, {}])
    def test_what_is_no_policy(self, nothing: Any) -> None:
        refuses("make_policy must return a policy for breakout at delay 0, .*predict.*, got ", lambda: nothing)

    def test_a_factory_that_cannot_be_called(self) -> None:
        refuses("make_policy must be a function that makes the policy, got 3", 3)
        refuses("got 'follow', which needs 'observation': give that argument a default", follow)

        def broken(game: str) -> None:
            raise RuntimeError("no model\nfor it")

        refuses("breakout at delay 0, and '.*broken' raised RuntimeError: no model$", broken)

    def test_arguments_out_of_range(self) -> None:
        def make() -> Any:
            pytest.fail("it is called before the arguments are checked")

        refuses("game must be one of .*, got 'brekout'; did you mean 'breakout'", make, games=["brekout"])
        refuses("games must be a list of one game or more, such as .*, got 'breakout'", make, games="breakout")
        refuses(r"games must be a list of one game or more, such as .*, got \[\]", make, games=[])
        refuses("delays must be >= 0 frames, got -1", make, delays=[0, -1])
        refuses("delays must be a whole number of frames .*, got 1.5", make, delays=[1.5])
        refuses(r"delays must be a list of one number of frames or more, .*, got 2", make, delays=2)
        refuses(r"delays must be a list of one number of frames or more, .*, got 2.0", make, delays=2.0)
        refuses("delays must be a list of one number of frames or more, .*, got None", make, delays=None)
        refuses("games must be a list of one game or more, such as .*, got 5", make, games=5)
        refuses("wrappers must be a list of functions, such as .*Flatten", make, wrappers=FlattenObservation)
        refuses("progress must be a function that is called with each score, got 3", make, progress=3)
        refuses("way must be 'asynchronous' or 'sequential', got 'chunks'", make, way="chunks")
        refuses("episodes must be a whole number >= 1, got 0", make, episodes=0)
        refuses("seed must be a whole number >= 0, got -1", make, seed=-1)
        refuses("default_action must be .*, got 7", make, delays=[0, 2], default_action=7)

    def test_wrappers_that_do_not_fit(self) -> None:
        class NoInfo(gym.Wrapper[Any, Any, Any, Any]):
            def reset(self, **arguments: Any) -> Any:
                return super().reset(**arguments)[0], {}

        refuses("wrappers must be a function that wraps the delayed environment, got 3", lambda: follow, wrappers=[3])
        refuses("and '.*<lambda>' at breakout, delay 0, returned 3", lambda: follow, wrappers=[lambda env: 3])
        refuses("'dict' at .* raised TypeError", lambda: follow, wrappers=[dict])
        refuses("'.*NoInfo' at .* took 'realtime' out of info", lambda: follow, wrappers=[NoInfo])


def scores_of(scores: dict[str, list[float]], tops: dict[str, float], random: float = 1.0) -> MinAtarScores:
    """Return scores at delay 8, with a reference whose scores without delay are `tops`."""
    ours = {(game, "asynchronous", 0): Estimate(top, top - 0.5, top + 0.5) for game, top in tops.items()}
    played = tuple(GameScore(game, 8, tuple(own), (9,) * len(own)) for game, own in scores.items())
    return MinAtarScores("asynchronous", "noop", 0, played, Reference(ours, dict.fromkeys(scores, random)))


numbers = st.floats(-1e3, 1e3, allow_subnormal=False)


class TestArithmetic:
    @given(values=st.lists(numbers, min_size=1, max_size=30))
    def test_the_interquartile_mean_is_scipys(self, values: list[float]) -> None:
        assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-9)

    @given(
        scores=st.dictionaries(
            st.sampled_from(MINATAR_GAMES), st.lists(numbers, min_size=1, max_size=6), min_size=1, max_size=5
        ),
        random=st.floats(-5, 5),
        gain=st.floats(1, 100),
    )
    def test_random_is_0_and_ours_without_delay_is_1(
        self, scores: dict[str, list[float]], random: float, gain: float
    ) -> None:
        found = scores_of(scores, dict.fromkeys(scores, random + gain), random)
        shares = [(np.mean(own) - random) / gain for own in scores.values()]
        assert [found.normalised(game, 8) for game in scores] == pytest.approx(shares, abs=1e-9)
        over = found.over_games(8)
        assert over is not None and over.mean == pytest.approx(stats.trim_mean(shares, 0.25), abs=1e-9)
        least, most = ([(edge(own) - random) / gain for own in scores.values()] for edge in (min, max))
        assert min(least) - 1e-9 <= over.low <= over.high <= max(most) + 1e-9
        for game, own in scores.items():
            mean, low, high = found.score(game, 8).estimate
            assert mean == pytest.approx(np.mean(own), abs=1e-9)
            assert min(own) - 1e-9 <= low <= high <= max(own) + 1e-9

    def test_worked_by_hand(self) -> None:
        # Shares 0, 1, 2, 9: the middle two are 1 and 2.
        found = scores_of(
            {"asterix": [1, 1], "breakout": [4, 6], "freeway": [9.0], "seaquest": [37.0]},
            dict.fromkeys(("asterix", "breakout", "freeway", "seaquest"), 5.0),
        )
        over = found.over_games(8)
        assert over is not None and over.mean == 1.5
        # Freeway and Seaquest stay; Breakout is 0.75, 1 or 1.25.
        assert (over.low, over.high) == (1.375, 1.625)

    def test_a_game_without_a_scale_is_left_out_and_named(self) -> None:
        found = scores_of({"asterix": [3.0], "breakout": [3.0], "freeway": [9.0]}, {"asterix": 5.0, "breakout": 1.2})
        assert [found.normalised(game, 8) for game in found.games] == [0.5, None, None]
        assert found.over_games(8) == Estimate(0.5, 0.5, 0.5)
        assert "not normalised: breakout, freeway" in str(found).splitlines()[-1]
        assert found.ours_over_games("asynchronous", 8) is None

    def test_the_table_has_our_rows_and_dashes_where_there_are_none(self) -> None:
        found = scores_of({"breakout": [2.0, 4.0]}, {"breakout": 5.0})
        scores = {**found.reference.scores, ("breakout", "chunks", 8): Estimate(4.0, 3.0, 5.0)}
        found = MinAtarScores("asynchronous", "noop", 0, found.played, Reference(scores, found.reference.random))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in str(found).splitlines() if line[:1] == "|"]
        assert rows[0] == ["game", "policy", "random", "delay 8", "normalised 8"]
        assert rows[2:10] == [
            ["breakout", "yours", "1.0", "3.0 [2.0, 4.0]", "0.50"],
            ["", "ours, sequential", "", "-", "-"],
            ["", "ours, asynchronous", "", "-", "-"],
            ["", "ours, core at release", "", "-", "-"],
            ["", "ours, chunks", "", "4.0 [3.0, 5.0]", "0.75"],
            ["", "ours, told", "", "-", "-"],
            ["", "ours, fast path alone", "", "-", "-"],
            ["", "ours, fast path", "", "-", "-"],
        ]
        assert rows[10] == ["over games", "yours", "", "", "0.50 [0.25, 0.75]"]
        assert rows[-4] == ["", "ours, chunks", "", "", "0.75"]
        json.dumps(found.to_dict(), allow_nan=False)

    def test_without_delay_sequential_play_is_asynchronous_play(self) -> None:
        reference = scores_of({"breakout": [2.0]}, {"breakout": 5.0}).reference
        assert reference.ours("breakout", "sequential", 0) == reference.ours("breakout", "asynchronous", 0)
        assert reference.ours("breakout", "chunks", 0) is None

    def test_the_table_of_the_package_can_be_read_and_a_damaged_one_is_refused(self, tmp_path: Path) -> None:
        assert read_reference().random.keys() == set(MINATAR_GAMES)
        (tmp_path / "scores.csv").write_text("game,way\nbreakout,chunks\n")
        with pytest.raises(ValueError, match=r"scores.csv is damaged .*: make it again with"):
            read_reference(tmp_path / "scores.csv")


MODULE = """
import numpy as np
from gymnasium.wrappers import FlattenObservation

def make_policy(game, delay):
    return lambda observation: np.bool_(observation.sum() % 2)

def interrupted(delay):
    if delay:
        raise KeyboardInterrupt
    return make_policy("breakout", delay)

def flat(env):
    assert env.observation_space.shape == (400,)
    return lambda observation: 0

def raising():
    return lambda observation: [][3]

thing = 3
"""


class TestCommand:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "scored_policy.py").write_text(MODULE)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.delitem(sys.modules, "scored_policy", raising=False)
        return tmp_path

    def score(self, *words: str) -> int:
        return main(["score", "--games", "breakout", "--episodes", "2", *words])

    def test_it_prints_the_table_and_a_line_for_each_game_and_delay(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.score("--policy", "scored_policy:make_policy", "--delays", "0", "2", "--seed", "3") == 0
        out, err = capsys.readouterr()
        found = play(lambda: lambda observation: int(observation.sum() % 2), delays=[0, 2], seed=3)
        assert out == f"{found}\n"
        assert err == "".join(f"{each}\n" for each in found.played)

    def test_it_writes_each_episode(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = (
            "--policy",
            "scored_policy:flat",
            "--wrapper",
            "gymnasium.wrappers:FlattenObservation",
            "--delays",
            "2",
        )
        assert self.score(*words, "--way", "sequential", "--json", "scores.json", "--csv", "scores.csv") == 0
        facts = json.loads((place / "scores.json").read_text())
        assert (facts["policy"], facts["way"]) == ("scored_policy:flat", "sequential")
        (own,) = facts["played"]
        with open(place / "scores.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [float(row["score"]) for row in rows] == own["scores"] and len(rows) == 2
        assert [int(row["frames"]) for row in rows] == own["frames"]
        capsys.readouterr()
        assert self.score(*words, "--json") == 0
        assert json.loads(capsys.readouterr().out)["played"][0]["game"] == "breakout"

    def test_control_c_ends_it_in_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.score("--policy", "scored_policy:interrupted", "--delays", "0", "2") == 130
        out, err = capsys.readouterr()
        assert out == "" and err.splitlines()[-1] == "interrupted: after breakout at delay 0"

    @pytest.mark.parametrize(
        ("name", "line", "message"),
        [
            ("scored_policy:flat", "assert env.observation_space", "and 'flat' raised AssertionError"),
            ("scored_policy:raising", "[][3]", "and raised IndexError: list index out of range"),
            ("without_numpy:make", "import no_numpy", "importing without_numpy raised ModuleNotFoundError: No"),
            ("without_value:make", 'int("x")', "importing without_value raised ValueError: invalid literal"),
            ("unwritten:make", "def make(:", "importing unwritten raised SyntaxError: invalid syntax"),
        ],
    )
    def test_an_error_in_the_users_code_shows_its_line_and_none_of_ours(
        self, name: str, line: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for module, text in (
            ("without_numpy", "import no_numpy"),
            ("without_value", 'int("x")'),
            ("unwritten", "def make(:"),
        ):
            (place / f"{module}.py").write_text(f"{text}\n")
        with pytest.raises(SystemExit) as raised:
            self.score("--policy", name)
        *traceback, sentence = capsys.readouterr().err.splitlines()
        assert raised.value.code == 2 and message in sentence
        assert f"{name.partition(':')[0]}.py" in "".join(traceback) and line in "".join(traceback)
        assert not [each for each in traceback if "async_wrappers" in each and "File" in each]

    def test_an_error_that_reaches_no_code_of_the_users_has_no_traceback(
        self, place: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (place / "two_arguments.py").write_text("def make(): return lambda observation, reward: 0\n")
        with pytest.raises(SystemExit):
            self.score("--policy", "two_arguments:make")
        assert capsys.readouterr().err.count("\n") == 1

    def test_a_file_that_cannot_be_written_does_not_take_the_table(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(MinAtarScores, "to_csv", full)
        with pytest.raises(SystemExit) as raised:
            self.score("--policy", "scored_policy:make_policy", "--delays", "0", "--csv", "scores.csv")
        assert raised.value.code == 2 and "| breakout" in capsys.readouterr().out

    def test_what_ends_while_json_is_written_leaves_the_older_file(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        (place / "scores.json").write_text("older")
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(SystemExit):
            self.score("--policy", "scored_policy:make_policy", "--delays", "0", "--json", "scores.json")
        assert (place / "scores.json").read_text() == "older"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ((), "the following arguments are required: --policy"),
            (
                ("--policy", "scored_policy"),
                "--policy must name a function, such as my_policy:make_policy, got 'scored_po",
            ),
            (("--policy", "no_such:make"), "got 'no_such:make': No module named 'no_such'"),
            (("--policy", "scored_policy:mkae"), "has no attribute 'mkae'"),
            (("--policy", "scored_policy:thing"), "got 'scored_policy:thing': 3"),
            (
                ("--policy", "scored_policy:flat", "--wrapper", "flat"),
                "--wrapper must name a function, such as gymnasium",
            ),
            (("--policy", "scored_policy:make_policy", "--games", "pong"), "game must be one of MinAtar's"),
            (("--policy", "scored_policy:make_policy", "--delays", "-2"), "delays must be >= 0 frames, got -2"),
            (
                ("--policy", "scored_policy:make_policy", "--episodes", "0"),
                "episodes must be a whole number >= 1, got 0",
            ),
            (
                ("--policy", "scored_policy:make_policy", "--default-action", "9", "--delays", "2"),
                "default_action must be",
            ),
            (
                ("--policy", "scored_policy:make_policy", "--csv", "no/where"),
                "--csv must be a file in a directory that",
            ),
            (("--policy", "scored_policy:make_policy", "--csv", "."), "--csv must be a file, got the directory '.'"),
            (("--policy", "scored_policy:make_policy", "--json", ""), "--json must be a file, got the directory ''"),
            (("--policy", "..:make_policy"), "--policy must name a function, such as my_policy:make_policy, got '..:"),
        ],
        ids=str,
    )
    def test_two_with_one_sentence(
        self, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            self.score(*words)
        error = capsys.readouterr().err
        assert raised.value.code == 2
        assert error.startswith("python -m async_wrappers score: ") and error.count("\n") == 1 and message in error
