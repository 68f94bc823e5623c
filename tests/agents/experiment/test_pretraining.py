"""Learning from demonstrations before the first iteration: what is learnt from, and runs that are stopped there."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers import AsyncRunner, RealtimeDelay, load_recording
from async_wrappers.agents.demonstrations.dataset import read_demonstrations, recorded_delay
from async_wrappers.agents.demonstrations.demonstration import Demonstration, EpisodeRecorder, Playback, transitions
from async_wrappers.agents.demonstrations.players import Script, make_player
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.experiment.pretraining import Pretraining, record_agent
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.play import DifferentExperiment
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.live.recording.convert import to_minari
from tests.worlds.agents import make_agent
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import build_live as build
from tests.worlds.experiments import drifting, make_dqn, make_runner, run, state
from tests.worlds.plain_data import assert_identical, differs
from tests.worlds.scripted_agent import ScriptedAgent

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")
UPDATES = 12


def record(path: Path, episodes: int = 3, frames: int = 12) -> str:
    """Play at random without a delay, and write the published layout; return the file."""
    kept: list[Demonstration] = []
    recorder = EpisodeRecorder(DriftingEnv(lengths=[frames]), kept.append)
    Script(make_player("random", recorder, seed=0)).play(recorder, range(episodes))
    rows = [
        (each.observations[frame], int(each.actions[frame]), float(each.rewards[frame]), each.observations[frame + 1])
        for each in kept
        for frame in range(len(each))
    ]
    path.write_bytes(pickle.dumps(rows))
    return str(path)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    return record(tmp_path_factory.mktemp("shown") / "shown.pkl")


def pretrained(base_dir: Path, shown: str, **arguments: Any) -> Experiment:
    return make_runner(base_dir, pretrain_dataset=shown, pretrain_updates=UPDATES, **arguments)


def learner(runner: Experiment) -> Any:
    assert isinstance(runner.agent, TurnBasedAgent)
    return runner.agent.learner


@pytest.fixture(scope="module")
def uninterrupted(shown: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    runner = pretrained(tmp_path_factory.mktemp("uninterrupted"), shown, num_iterations=2)
    runner.run_experiment()
    return state(runner)


class TestLearning:
    def test_the_replay_begins_with_what_an_agent_under_the_delay_would_have_seen(
        self, shown: str, tmp_path: Path
    ) -> None:
        runner = pretrained(tmp_path, shown)
        assert not runner.resume()
        replay = learner(runner).replay
        episodes = list(read_demonstrations(shown))
        # delay 2, noops 1: decisions read frames 0, 2, 4, 6, 8 and land on 2, 4, 6, 8, 10 of the twelve
        batch = replay.transitions(replay.valid_slots())
        assert batch["action"].tolist() == [int(each.actions[e]) for each in episodes for e in range(2, 12, 2)]
        np.testing.assert_array_equal(
            batch["observation"][:, -1], [each.observations[s] for each in episodes for s in range(0, 10, 2)]
        )
        begins = [0, 4, 6, 8, 10]  # rewards before the first effect belong to the first decision
        paid = [sum(each.rewards[b : e + 2]) for each in episodes for b, e in zip(begins, range(2, 12, 2), strict=True)]
        assert batch["reward"].tolist() == paid
        assert batch["discount"].tolist() == [pytest.approx(0.99)] * 15  # no end is told: each is a cut

    def test_so_many_updates_are_done_before_the_first_frame_and_then_it_goes_on(
        self, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runner = pretrained(tmp_path, shown, num_iterations=0)
        begun = learner(runner).state_dict()
        begun = {name: tensor.clone() for name, tensor in begun["network"].items()}
        runner.run_experiment()
        assert learner(runner).updates == UPDATES
        assert differs(begun, dict(learner(runner).state_dict()["network"]))
        assert read_iterations(tmp_path) == []
        lines = [json.loads(line) for line in (tmp_path / "metrics" / "pretraining.jsonl").read_text().splitlines()]
        assert [line.get("update") for line in lines] == [None, 5, 10, 12]  # every 5th, and the last
        assert lines[0] == {"episodes": 3, "frames": 36, "departures": lines[0]["departures"], "transitions": 15}
        assert all(np.isfinite(line["Loss"]) for line in lines[1:])
        told = capsys.readouterr().out
        assert told.startswith("pretraining: 12 updates on 15 transitions (3 episodes, 36 frames, ")

        going_on = pretrained(tmp_path, shown, num_iterations=1)
        assert going_on.resume()
        going_on.run_experiment()
        assert learner(going_on).replay.add_count > 15
        assert learner(going_on).updates > UPDATES
        assert read_iterations(tmp_path)[-1]["frames"] >= 40

    def test_without_updates_the_demonstrations_are_only_remembered(self, shown: str, tmp_path: Path) -> None:
        runner = make_runner(tmp_path, pretrain_dataset=shown, pretrain_updates=0, num_iterations=0)
        runner.run_experiment()
        assert learner(runner).updates == 0
        assert len(learner(runner).replay) == 15

    @pytest.mark.parametrize("member", ["full_rainbow", "implicit_quantile", "c51, in a reservoir"])
    def test_every_agent_of_the_family_learns_from_them(self, shown: str, member: str) -> None:
        agent = make_agent(member, drifting())
        pretraining = Pretraining(shown, updates=3)
        pretraining.load(agent, drifting, seed=0)
        before = {name: tensor.clone() for name, tensor in agent.learner.weights().items()}
        for _ in range(3):
            assert np.isfinite(float(agent.pretrain()["Loss"]))
        assert differs(before, dict(agent.learner.weights()))


class Own:
    """An agent of a user's own, around one of ours."""

    def __init__(self) -> None:
        self._agent = make_agent("full_rainbow", drifting())
        self.spec = self._agent.spec

    @property
    def transitions(self) -> int:
        return self._agent.transitions

    @property
    def batch_size(self) -> int:
        return self._agent.batch_size

    def demonstrate(self, transition: Mapping[str, Any]) -> None:
        self._agent.demonstrate(transition)

    def pretrain(self) -> Mapping[str, Any]:
        return self._agent.pretrain()


def test_an_agent_of_a_users_own_that_learns_from_demonstrations_may_pretrain(shown: str, tmp_path: Path) -> None:
    own: Any = Own()
    pretraining = Pretraining(shown, updates=3)
    pretraining.load(own, drifting, seed=0)
    assert own.transitions == pretraining.facts["transitions"] > 0
    pretraining.run(own, tmp_path)
    assert len((tmp_path / "metrics" / "pretraining.jsonl").read_text().splitlines()) > 1


class Interrupted(Exception):
    pass


class TestStopping:
    def test_after_pretraining_it_is_not_done_again_and_the_run_ends_alike(
        self, shown: str, tmp_path: Path, uninterrupted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = pretrained(tmp_path, shown, num_iterations=2)
        with monkeypatch.context() as patch:
            patch.setattr(first, "_run_iteration", _interrupt)
            with pytest.raises(Interrupted):
                first.run_experiment()
        assert [path.name for path in (tmp_path / "checkpoints").glob("ckpt*")] == ["ckpt.-1"]
        monkeypatch.setattr(Pretraining, "run", _interrupt)
        again = pretrained(tmp_path, shown, num_iterations=2)
        again.run_experiment()
        assert_identical(state(again), uninterrupted)

    def test_amid_pretraining_it_is_begun_again_and_the_run_ends_alike(
        self, shown: str, tmp_path: Path, uninterrupted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = pretrained(tmp_path, shown, num_iterations=2)
        assert isinstance(first.agent, TurnBasedAgent)
        update, done = first.agent.pretrain, []

        def stop_after_seven() -> Any:
            if len(done) == 7:
                raise KeyboardInterrupt
            done.append(update())
            return done[-1]

        monkeypatch.setattr(first.agent, "pretrain", stop_after_seven)
        with pytest.raises(KeyboardInterrupt):
            first.run_experiment()
        assert not (tmp_path / "checkpoints").exists()
        again = pretrained(tmp_path, shown, num_iterations=2)
        again.run_experiment()
        assert_identical(state(again), uninterrupted)

    def test_between_two_iterations_the_run_ends_alike(
        self, shown: str, tmp_path: Path, uninterrupted: dict[str, Any]
    ) -> None:
        for iterations in (1, 2):
            runner = pretrained(tmp_path, shown, num_iterations=iterations)
            runner.run_experiment()
        assert_identical(state(runner), uninterrupted)

    def test_a_first_iteration_that_was_damaged_is_begun_again_from_what_was_pretrained(
        self, shown: str, tmp_path: Path, uninterrupted: dict[str, Any]
    ) -> None:
        pretrained(tmp_path, shown, num_iterations=1).run_experiment()
        path = tmp_path / "checkpoints" / "ckpt.0"
        path.write_bytes(path.read_bytes()[:-9])
        again = pretrained(tmp_path, shown, num_iterations=2)
        assert again.resume()
        assert again.start_iteration == 0
        again.run_experiment()
        assert_identical(state(again), uninterrupted)

    def test_demonstrations_make_a_difference(self, shown: str, tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
        assert differs(state(run(tmp_path, num_iterations=2))["learner"], uninterrupted["learner"])

    def test_a_run_with_other_pretraining_is_another_experiment(self, shown: str, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=1)
        with pytest.raises(DifferentExperiment, match="pretraining: None there"):
            pretrained(tmp_path, shown).resume()


def _interrupt(*_: Any) -> Any:
    raise Interrupted


def recorded(path: Path, latency: float) -> str:
    """Record a live run on the virtual clock, and convert it; return the dataset."""
    given: dict[str, Any] = {"backend": "virtual", "latency": latency, "default_action": 0, "record": path / "run"}
    with AsyncRunner(lambda: DriftingEnv(lengths=[20]), lambda: lambda observation: 1, 3, 60, **given) as runner:
        runner.run(episodes=3)
    to_minari(path / "run", str(path / "dataset"))
    return str(path / "dataset")


class TestRecordedLive:
    def test_the_delay_of_the_recording_is_known_and_another_one_is_told(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        dataset = recorded(tmp_path, 4 / 60)
        assert recorded_delay(dataset) == {"median": 4.0, "least": 4.0, "most": 4.0}
        pretrained(tmp_path / "other", dataset).resume()
        assert caplog.messages[-1] == (
            f"Runner.pretrain_dataset {dataset!r} was recorded under a delay of 4 frames (4 to 4), and this run "
            "has one of 2: its actions answer other observations than this agent will see; train under that delay, or "
            "record under this one"
        )

    def test_under_the_same_delay_the_transitions_are_those_of_the_run(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        dataset = recorded(tmp_path, 2 / 60)
        pretrained(tmp_path / "same", dataset, create_environment_fn=lambda: drifting(noops=0)).resume()
        assert not [message for message in caplog.messages if "was recorded under" in message]
        environment, playback = Playback.under(drifting(noops=0))
        (first, *_) = read_demonstrations(dataset)
        playback.load(first)
        shown = list(transitions(environment, playback, seed=0))
        assert playback.delays == [2] * len(shown)
        (ours, *_) = load_recording(tmp_path / "run")
        starts = ours.columns["start"][~ours.columns["default"]]
        assert [each["action"] for each in shown] == [1] * len(starts)
        for transition, start in zip(shown, starts, strict=True):
            assert np.array_equal(transition["observation"], ours.observations[start])

    def test_a_player_without_delay_is_not_compared(self, shown: str) -> None:
        assert recorded_delay(shown) is None

    @pytest.mark.parametrize(("delay", "told"), [(3, 1), (0, 0)])
    def test_an_agent_is_recorded_with_its_delay(
        self, delay: int, told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        environment = RealtimeDelay(DriftingEnv(lengths=[20]), delay, 0, 0) if delay else DriftingEnv(lengths=[20])
        agent: Any = ScriptedAgent(1)
        dataset = str(tmp_path / "dataset")
        record_agent(agent, environment, dataset, episodes=2)()
        assert recorded_delay(dataset) == {"median": delay, "least": delay, "most": delay}
        pretrained(tmp_path / "run", dataset).resume()
        assert len([message for message in caplog.messages if "was recorded under" in message]) == told


class TestBadInput:
    def test_fewer_transitions_than_a_batch_are_one_sentence(self, tmp_path: Path) -> None:
        few = record(tmp_path / "few.pkl", episodes=1, frames=7)
        with pytest.raises(ValueError) as caught:
            pretrained(tmp_path, few).resume()
        assert str(caught.value) == (
            f"Runner.pretrain_dataset {few!r} gives 3 transitions under this delay and spacing, fewer than a batch of "
            "4: record more, or bind a smaller batch_size"
        )

    def test_demonstrations_of_another_environment_are_one_sentence(self, shown: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError) as caught:
            pretrained(tmp_path, shown, create_environment_fn=lambda: drifting(actions=2)).resume()
        assert str(caught.value) == (
            f"Runner.pretrain_dataset {shown!r} does not fit, in episode 0 it holds the action 2, and the "
            "environment's actions are Discrete(2): record it with the environment of this configuration"
        )

    def test_observations_that_are_a_dict_are_one_sentence(self, shown: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"is for observations that are arrays, .* got Dict\(.*: flatten them"):
            pretrained(
                tmp_path,
                shown,
                create_environment_fn=DictEnv,
                create_agent_fn=lambda env, seed: TurnBasedAgent.playing(DQN, env, replay_capacity=50, seed=seed),
            ).resume()

    @pytest.mark.parametrize("kind", [PPO, VTrace])
    def test_an_agent_that_learns_from_its_draws_is_one_sentence(self, shown: str, tmp_path: Path, kind: Any) -> None:
        runner = pretrained(
            tmp_path, shown, create_agent_fn=lambda env, seed: TurnBasedAgent.playing(kind, env, seed=seed)
        )
        with pytest.raises(ValueError, match=r"also needs what its own policy said of each action: bind None$"):
            runner.resume()

    @pytest.mark.parametrize("iterations", [0, 1])
    def test_an_agent_that_does_not_learn_is_one_sentence(self, shown: str, tmp_path: Path, iterations: int) -> None:
        runner = pretrained(tmp_path, shown, create_agent_fn=RandomAgent, num_iterations=iterations)
        with pytest.raises(ValueError, match="is for an agent that learns, got RandomAgent: bind None"):
            runner.run_experiment()

    def test_a_number_of_updates_below_zero_is_one_sentence(self, shown: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="pretrain_updates must be >= 0 updates, got -1"):
            make_runner(tmp_path, pretrain_dataset=shown, pretrain_updates=-1)

    def test_live_runs_refuse_them(self, shown: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="pretrain_dataset must be None where create_runner"):
            build(tmp_path, f"Runner.pretrain_dataset = {shown!r}")


def test_a_replay_that_is_smaller_than_the_demonstrations_keeps_the_newest(tmp_path: Path) -> None:
    many = record(tmp_path / "many.pkl", episodes=9)
    runner = make_runner(
        tmp_path,
        pretrain_dataset=many,
        pretrain_updates=2,
        num_iterations=0,
        create_agent_fn=lambda environment, seed: make_dqn(environment, seed=seed, replay_capacity=30),
    )
    runner.run_experiment()
    assert learner(runner).replay.add_count == 45
    assert len(learner(runner).replay) < 30
