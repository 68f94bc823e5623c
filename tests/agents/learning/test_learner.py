"""The learner with DQN's loss: updates worked by hand on a table of Q-values, and small worlds with known values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.learner import Learner, NotShared
from async_wrappers.agents.losses.loss import Learning, Loss, LossOutput, Networks
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.agents.spaces.compute import Compute
from tests.worlds.plain_data import assert_identical, differs

CPU = Compute("cpu")
PAIRS = Box(-np.inf, np.inf, (2,))


def q_learning(double: bool = False, loss_type: str = "huber") -> Loss:
    """DQN's loss, of an agent that is nothing else."""
    spec = DQN.__new__(DQN)
    spec.double_dqn, spec.loss_type, spec.priority = double, loss_type, "loss"
    return spec.loss


def make_learner(network: nn.Module, replay: Any, **arguments: Any) -> Learner:
    own = {name: arguments.pop(name) for name in ("double", "loss_type") if name in arguments}
    others = {name: arguments.pop(name) for name in ("compute", "seed", "diverged_dir") if name in arguments}
    return Learner(network, q_learning(**own), replay, Learning(**arguments), **others)


class Table(nn.Module):
    """Q-values [B, 2] of the states 0 and 1, told as one-hot observations [B, 1, 2]."""

    def __init__(self, values: list[list[float]]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, observation: Tensor) -> Tensor:
        return observation[:, 0] @ self.values


class OneBatch:
    """Gives the same batch whenever it is asked, and keeps what it is shown."""

    def __init__(self, reward: float = 0.25, discount: float = 0.25) -> None:
        self.seen: list[Mapping[str, Any]] = []
        self._batch = {
            "observation": one_hot(0)[None, None],
            "action": np.array([1]),
            "reward": np.array([reward], np.float32),
            "discount": np.array([discount], np.float32),
            "next_observation": one_hot(1)[None, None],
            "interval": np.array([1]),
            "index": np.array([0]),
        }

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.seen.append(transition)

    def sample(self) -> Mapping[str, Any]:
        return self._batch


def one_hot(state: int) -> np.ndarray:
    return np.eye(2, dtype=np.float32)[state]


def sgd(learning_rate: float) -> Callable[..., torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, lr=learning_rate)


def learner_with_another_target(replay: OneBatch, **arguments: Any) -> tuple[Learner, Table]:
    """Target Q(s') = (4, 2), online Q(s') = (1, 3), online Q(s, a) = 1."""
    network = Table([[7.0, 9.0], [4.0, 2.0]])
    arguments = {"optimizer": sgd(1.0), "compute": CPU, **arguments}
    learner = make_learner(network, replay, **arguments)
    with torch.no_grad():
        network.values.copy_(torch.tensor([[5.0, 1.0], [1.0, 3.0]]))
    return learner, network


class TestOneUpdate:
    # Q-learning: y = 0.25 + 0.25 * 4 = 1.25; double: the online network chooses action 1, y = 0.25 + 0.25 * 2 = 0.75.
    # The value was 1; Huber's gradient is the error, that of the squared error is twice the error.
    @pytest.mark.parametrize(
        ("double", "loss_type", "value", "loss"),
        [
            (False, "huber", 1.25, 0.03125),
            (False, "mse", 1.5, 0.0625),
            (True, "huber", 0.75, 0.03125),
            (True, "mse", 0.5, 0.0625),
        ],
    )
    def test_it_moves_the_taken_actions_value_alone(
        self, double: bool, loss_type: str, value: float, loss: float
    ) -> None:
        learner, network = learner_with_another_target(OneBatch(), double=double, loss_type=loss_type)
        assert {name: float(scalar) for name, scalar in learner.update().items()} == {"Loss": loss}
        assert network.values.tolist() == [[5.0, value], [1.0, 3.0]]
        assert learner.updates == 1

    def test_hubers_step_is_at_most_the_learning_rate(self) -> None:
        learner, network = learner_with_another_target(OneBatch(reward=100.0), optimizer=sgd(0.5))
        learner.update()
        assert network.values.tolist() == [[5.0, 1.5], [1.0, 3.0]]

    def test_a_discount_of_zero_leaves_the_reward(self) -> None:
        learner, network = learner_with_another_target(OneBatch(reward=0.5, discount=0.0))
        learner.update()
        assert network.values.tolist() == [[5.0, 0.5], [1.0, 3.0]]

    def test_a_gradient_beyond_the_norm_is_clipped_to_it(self) -> None:
        learner, network = learner_with_another_target(OneBatch(reward=100.0), loss_type="mse", max_gradient_norm=0.125)
        before = network.values.detach().clone()
        learner.update()
        assert float((network.values.detach() - before).norm()) == pytest.approx(0.125, rel=1e-4)

    def test_a_gradient_within_the_norm_is_left_as_it_is(self) -> None:
        learner, network = learner_with_another_target(OneBatch(), max_gradient_norm=10.0)
        learner.update()
        assert network.values.tolist() == [[5.0, 1.25], [1.0, 3.0]]


class TestTarget:
    def test_it_is_copied_every_so_many_updates_and_not_in_between(self) -> None:
        learner, network = learner_with_another_target(OneBatch(), optimizer=sgd(0.1), target_update_period=3)
        copied = []
        for _ in range(9):
            learner.update()
            copied.append(torch.equal(learner.state_dict()["target"]["values"], network.values))
        assert copied == [False, False, True] * 3

    @settings(max_examples=100, deadline=None, database=None)
    @given(others=st.lists(st.integers(0, 9), min_size=1, max_size=20))
    def test_of_several_learners_it_is_copied_when_their_updates_together_pass_a_multiple(
        self, others: list[int]
    ) -> None:
        """Before each update, what the others have done since is told; they may have passed several multiples."""
        learner, network = learner_with_another_target(OneBatch(), optimizer=sgd(0.1), target_update_period=4)
        of_all = 0
        for own, more in enumerate(others):
            network.values.data += 1.0  # the newest weights of all are loaded
            target, newest = (each.clone() for each in (learner.target.state_dict()["values"], network.values.data))
            learner.note_updates(own, of_all + more)
            due = (of_all + more) // 4 > of_all // 4
            assert torch.equal(learner.target.state_dict()["values"], newest if due else target)
            of_all += more + 1
            target = learner.target.state_dict()["values"].clone()
            learner.update()
            expected = network.values if of_all % 4 == 0 else target
            assert torch.equal(learner.target.state_dict()["values"], expected)
        assert learner.updates == len(others)

    def test_a_restored_learner_copies_it_when_it_would_have_been_due(self) -> None:
        one, _ = learner_with_another_target(OneBatch(reward=1.0), optimizer=sgd(0.1), target_update_period=4)
        one.note_updates(0, 5)
        for _ in range(2):
            one.update()
        state = deepcopy(one.state_dict())
        other, network = learner_with_another_target(OneBatch(reward=1.0), optimizer=sgd(0.1), target_update_period=4)
        other.load_state_dict(state)
        of_all = 7
        for own in range(2, 7):
            other.update()
            of_all += 1
            assert other.updates == own + 1
            assert torch.equal(other.target.state_dict()["values"], network.values) == (of_all % 4 == 0)

    def test_it_receives_no_gradient(self) -> None:
        learner, _ = learner_with_another_target(OneBatch(), optimizer=sgd(0.1), target_update_period=100)
        for _ in range(5):
            learner.update()
        assert learner.state_dict()["target"]["values"].tolist() == [[7.0, 9.0], [4.0, 2.0]]

    def test_loaded_weights_are_copied_into_the_network_and_not_into_the_target(self) -> None:
        learner, network = learner_with_another_target(OneBatch())
        weights = {"values": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
        learner.load_weights(weights)
        weights["values"].zero_()
        assert network.values.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert learner.state_dict()["target"]["values"].tolist() == [[7.0, 9.0], [4.0, 2.0]]


class TestSmoothTarget:
    def test_it_follows_the_weights_by_tau_after_each_update(self) -> None:
        arguments = {"optimizer": sgd(1.0), "target_update_period": None, "target_smoothing": 0.25}
        learner, network = learner_with_another_target(OneBatch(), **arguments)
        learner.update()
        assert network.values.tolist() == [[5.0, 1.25], [1.0, 3.0]]
        # (7, 9), (4, 2) and a quarter of the way to these.
        assert learner.state_dict()["target"]["values"].tolist() == [[6.5, 7.0625], [3.25, 2.25]]

    @settings(deadline=None, max_examples=50, database=None)
    @given(tau=st.floats(0.001, 1), others=st.integers(0, 20))
    def test_updates_of_other_learners_are_steps_of_it_too(self, tau: float, others: int) -> None:
        arguments = {"optimizer": sgd(0.0), "target_update_period": None, "target_smoothing": tau}
        at_once, _ = learner_with_another_target(OneBatch(), **arguments)
        one_by_one, _ = learner_with_another_target(OneBatch(), **arguments)
        at_once.note_updates(0, others)
        for _ in range(others):
            one_by_one.update()
        assert at_once.target is not None and one_by_one.target is not None
        torch.testing.assert_close(at_once.target.state_dict(), one_by_one.target.state_dict())

    def test_it_takes_the_place_of_copies(self) -> None:
        with pytest.raises(
            ValueError, match=r"target_update_period must be None where target_smoothing=0\.5, got 2000"
        ):
            make_learner(Table([[0.0, 0.0], [0.0, 0.0]]), OneBatch(), target_smoothing=0.5)
        with pytest.raises(ValueError, match=r"target_smoothing must lie in \(0, 1\], or None for copies .*, got 0"):
            Learning(target_smoothing=0)


class Parts(nn.Module):
    """A network that names its parts: a policy's table, and one of values that has a target."""

    def __init__(self) -> None:
        super().__init__()
        self.acting, self.with_target = Table([[1.0, 2.0], [3.0, 4.0]]), Table([[5.0, 6.0], [7.0, 8.0]])

    def forward(self, observation: Tensor) -> Tensor:
        return self.acting(observation) + self.with_target(observation)


class TestParts:
    def learner(self, **arguments: Any) -> tuple[Learner, Parts]:
        network = Parts()
        arguments = {"optimizer": sgd(0.5), "target_update_period": 2, **arguments}
        return make_learner(network, OneBatch(), compute=CPU, **arguments), network

    def test_the_weights_that_are_given_out_are_those_of_the_acting_part(self) -> None:
        learner, network = self.learner()
        learner.update()
        assert_identical(dict(learner.weights()), dict(network.acting.state_dict()))
        assert set(learner.state_dict()["network"]) == {"acting.values", "with_target.values"}

    @pytest.mark.parametrize("soft", [{}, {"target_update_period": None, "target_smoothing": 1.0}])
    def test_the_target_is_of_the_part_that_has_one(self, soft: dict[str, Any]) -> None:
        learner, network = self.learner(**soft)
        assert learner.networks.target(torch.eye(2)[:, None]).tolist() == [[5.0, 6.0], [7.0, 8.0]]
        for _ in range(2):
            learner.update()
        assert_identical(dict(learner.state_dict()["target"]), dict(network.with_target.state_dict()))

    def test_a_restored_learner_has_all_of_it(self) -> None:
        (one, _), (other, network) = self.learner(), self.learner()
        for _ in range(3):
            one.update()
        other.load_state_dict(deepcopy(one.state_dict()))
        assert_identical(other.state_dict(), one.state_dict())
        one.update(), other.update()
        assert_identical(other.state_dict(), one.state_dict())
        other.load_policy(one.state_dict())
        assert other.target is not None
        assert_identical(dict(other.target.state_dict()), dict(network.with_target.state_dict()))

    def test_what_is_given_out_is_not_enough_for_another_learner_to_go_on_from(self) -> None:
        learner, _ = self.learner()
        for take, remedy in ((learner.load_weights, "AsyncRunner.learners must be 1"),
                             (learner.take_over, "start the run again, from its last checkpoint")):  # fmt: skip
            with pytest.raises(NotShared, match=remedy) as error:
                take(learner.weights())
            assert error.value.ends_run  # a live run is not to start the learner again


class TestGradients:
    def test_an_update_is_their_application(self) -> None:
        one, _ = learner_with_another_target(OneBatch(), target_update_period=2)
        other, _ = learner_with_another_target(OneBatch(), target_update_period=2)
        for _ in range(5):
            scalars = one.update()
            other.apply(other.gradients())
            assert_identical(dict(scalars), dict(other.scalars))
        assert_identical(one.state_dict(), other.state_dict())

    def test_taking_them_changes_no_weights(self) -> None:
        learner, _ = learner_with_another_target(OneBatch())
        before = deepcopy(learner.state_dict())
        gradients = learner.gradients()
        assert_identical(learner.state_dict(), {**before, "batches": 1})
        assert gradients["values"].tolist() == [[0.0, -0.25], [0.0, 0.0]]

    def test_those_of_one_learner_step_another(self) -> None:
        # The other one's batch has an error of 1, this one's of 1/4.
        here, network = learner_with_another_target(OneBatch())
        there, _ = learner_with_another_target(OneBatch(reward=1.0))
        here.gradients()
        here.apply(deepcopy(dict(there.gradients())))
        assert network.values.tolist() == [[5.0, 2.0], [1.0, 3.0]]
        assert (here.updates, there.updates) == (1, 0)


class TestState:
    def test_a_restored_learner_goes_on_bit_for_bit(self) -> None:
        def adam(parameters: Any) -> torch.optim.Optimizer:
            return torch.optim.Adam(parameters, lr=0.1)

        one, _ = learner_with_another_target(OneBatch(), optimizer=adam, target_update_period=2)
        other, _ = learner_with_another_target(OneBatch(), optimizer=adam, target_update_period=2)
        for _ in range(3):
            one.update()
        assert differs(one.state_dict(), other.state_dict())
        other.load_state_dict(deepcopy(one.state_dict()))  # a state is not a copy; a file is
        assert_identical(one.state_dict(), other.state_dict())
        for _ in range(3):
            one.update()
            other.update()
        assert_identical(one.state_dict(), other.state_dict())

    def test_weights_are_the_networks_own_and_not_a_copy(self) -> None:
        learner, network = learner_with_another_target(OneBatch())
        assert learner.weights()["values"].data_ptr() == network.values.data_ptr()

    def test_what_it_observes_goes_to_the_replay(self) -> None:
        replay = OneBatch()
        learner, _ = learner_with_another_target(replay)
        transition = {"observation": 0, "reward": 1.0, "action": 2, "terminal": True, "truncated": False}
        learner.observe(transition)
        assert replay.seen == [transition]
        learner.close()


def test_a_period_below_one_update_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError) as caught:
        learner_with_another_target(OneBatch(), target_update_period=0)
    assert str(caught.value) == (
        "target_update_period must be >= 1 update, or None for a loss that asks for no target, got 0"
    )


def mean_squared(networks: Networks, batch: Any, rng: np.random.Generator) -> LossOutput:
    """A regression that needs neither a target network nor priorities."""
    error = networks.online(batch["observation"])[:, 0] - batch["reward"]
    return LossOutput(error**2, metrics={"Error": error.detach().abs().mean()})


def test_a_loss_may_do_without_a_target_and_reports_metrics_of_its_own() -> None:
    network, own = Table([[7.0, 9.0], [4.0, 2.0]]), Learning(target_update_period=None, optimizer=sgd(0.5))
    learner = Learner(network, mean_squared, OneBatch(), own, compute=CPU)
    scalars = learner.update()
    assert learner.target is None and "target" not in learner.state_dict()
    assert float(scalars["Error"]) == 6.75 and float(scalars["Loss"]) == 6.75**2
    assert network.values[0].tolist() == [0.25, 9.0]
    alike = Learner(Table([[0.0] * 2] * 2), mean_squared, OneBatch(), own, compute=CPU)
    alike.load_state_dict(learner.state_dict())
    assert_identical(alike.state_dict(), learner.state_dict())


def test_a_loss_that_asks_for_a_target_it_has_not_is_an_error_with_its_remedy() -> None:
    learner = make_learner(Table([[7.0, 9.0], [4.0, 2.0]]), OneBatch(), target_update_period=None, compute=CPU)
    with pytest.raises(RuntimeError, match=r"asks for a target network, and the agent declares none: give a target"):
        learner.update()


def test_a_loss_without_priorities_is_an_error_where_the_replay_draws_by_them() -> None:
    class Weighted(OneBatch):
        def sample(self) -> Mapping[str, Any]:
            return {**super().sample(), "weight": np.ones(1, np.float32)}

    network = Table([[7.0, 9.0], [4.0, 2.0]])
    learner = Learner(network, mean_squared, Weighted(), Learning(target_update_period=None), compute=CPU)
    with pytest.raises(ValueError, match=r"^the loss must return priorities, .*, got None"):
        learner.update()


@pytest.mark.parametrize("loss_type", ["huber", "mse"])
@pytest.mark.parametrize("double", [False, True])
def test_a_world_of_two_states_is_solved_exactly(double: bool, loss_type: str) -> None:
    # gamma 1/2. State 0: action 0 ends, paying 1; action 1 leads to state 1.
    # State 1: action 0 pays 2 and is cut in state 0; action 1 ends, paying 3.
    # Q(1, 1) = 3, Q(0, 1) = 3 / 2, Q(0, 0) = 1, and the cut one goes on: Q(1, 0) = 2 + Q(0, 1) / 2 = 2.75.
    replay = create_replay(PAIRS, capacity=100, gamma=0.5, batch_size=64, seed=0)
    for state, action, reward, terminal, truncated, following in [
        (0, 1, 0.0, False, False, 1),
        (1, 0, 2.0, False, True, 0),
        (0, 0, 1.0, True, False, 1),
        (1, 1, 3.0, True, False, 0),
    ]:
        replay.observe(
            {
                "observation": one_hot(state),
                "action": action,
                "reward": reward,
                "interval": 1,
                "terminal": terminal,
                "truncated": truncated,
                "next_observation": one_hot(following),
            }
        )
    network = Table([[0.0, 0.0], [0.0, 0.0]])
    learner = make_learner(
        network,
        replay,
        target_update_period=10,
        optimizer=sgd(0.5),
        loss_type=loss_type,
        double=double,
        compute=CPU,
    )
    for _ in range(400):
        learner.update()
    np.testing.assert_allclose(network.values.detach().numpy(), [[1.0, 1.5], [2.75, 3.0]], atol=1e-3)


# An update of several gradient steps.


def value_loss(networks: Networks, batch: Mapping[str, Any], rng: np.random.Generator) -> LossOutput:
    """The squared error of the chosen action's value to the reward."""
    values = networks.online(batch["observation"])[torch.arange(len(batch["action"])), batch["action"]]
    return LossOutput((values - batch["reward"]) ** 2, metrics={"Value": values.mean()})


def learner_in_passes(passes: Any, replay: Any = None, **arguments: Any) -> Learner:
    settings_ = Learning(target_update_period=None, optimizer=sgd(0.25), **arguments)
    return Learner(Table([[0, 1.0], [0, 0]]), value_loss, replay or OneBatch(), settings_, passes=passes, compute=CPU)


def test_an_update_has_a_gradient_step_for_each_minibatch() -> None:
    seen = []

    def passes(networks: Networks, batch: Any, rng: np.random.Generator) -> Any:
        for target in (0.0, 3.0):
            yield {**batch, "reward": torch.tensor([target])}
            seen.append(networks.online(batch["observation"])[0, 1].item())

    learner = learner_in_passes(passes, learning_rate_decay=4)
    # 1 - 1/4 * 2 (1 - 0) = 1/2; 1/2 - 1/4 * 2 (1/2 - 3) = 7/4; the losses are 1 and 25/4.
    scalars = learner.update()
    assert seen == [0.5, 1.75]
    assert {name: value.item() for name, value in scalars.items()} == {"Loss": 3.625, "Value": 0.75}
    assert (learner.updates, learner.updates_of_all, learner.version) == (1, 1, 1)
    # The rate falls with whole updates: it is 3/4 of 1/4 in both steps of the second.
    learner.update()
    assert learner.state_dict()["optimizer"]["param_groups"][0]["lr"] == 0.1875


def test_the_loss_of_each_gradient_step_is_checked(tmp_path: Path) -> None:
    def passes(networks: Networks, batch: Any, rng: np.random.Generator) -> Any:
        yield {**batch, "reward": batch["reward"] * np.nan}
        pytest.fail("went on")

    learner = learner_in_passes(passes, diverged_dir=str(tmp_path))
    with pytest.raises(DivergedError):
        learner.update()
    assert not differs(learner.network.state_dict(), Table([[0, 1.0], [0, 0]]).state_dict())


def test_the_gradients_of_each_step_are_averaged_over_the_learners() -> None:
    averaged = []

    def average(gradients: Mapping[str, Tensor], count: Any) -> Mapping[str, Tensor]:
        averaged.append(count)
        return {name: gradient / 2 for name, gradient in gradients.items()}

    given_ = []

    def passes(networks: Networks, batch: Any, rng: np.random.Generator) -> Any:
        given_.append(networks.average)
        return [batch, batch]

    learner = learner_in_passes(passes)
    learner.average = average
    learner.update()
    # 1 - 1/4 (1 - 1/4) = 13/16; 13/16 - 1/4 (13/16 - 1/4) = 43/64
    assert learner.network.state_dict()["values"][0, 1].item() == 43 / 64
    assert averaged == [1, 1] and given_ == [average]


def test_the_gradient_of_an_update_of_several_steps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^learners must be 1 with Learner, whose update has several gradient steps$"):
        learner_in_passes(lambda networks, batch, rng: [batch]).gradients()
