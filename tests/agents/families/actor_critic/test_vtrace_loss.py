"""V-trace's loss on replayed rows: CLEAR, LASER's mask, whose entropy counts, and SEED RL's learnt entropy cost."""

from __future__ import annotations

from typing import Any

import cloudpickle
import gin
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

import async_wrappers.agents.configurables  # noqa: F401  # registers what gin files name
from async_wrappers.agents.families.actor_critic.terms import (
    KLCost,
    KLMask,
    PolicyCloning,
    TargetEntropy,
    Term,
    UnrollRows,
    ValueCloning,
)
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.losses.actor_critic import masked_mean
from async_wrappers.agents.losses.loss import LossOutput, Networks
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.networks.torsos import MLPTorso

STEPS, ROWS, ACTIONS, GAMMA = 6, 4, 3, 0.9


def tiny(shape: Any, actions: int) -> torch.nn.Module:
    return create_actor_critic(shape, actions, torso=lambda s: MLPTorso(s, (4,)), feed_previous=False)


def make(*terms: Term, **arguments: Any) -> VTrace:
    arguments = {"terms": terms, "stack_size": 1, "network": tiny, "device": "cpu", **arguments}
    return VTrace(Box(-1, 1, (2,), np.float32), Discrete(ACTIONS), **arguments)


def loss_of(
    spec: VTrace, logits: Tensor, values: Tensor, batch: dict[str, Any], network: torch.nn.Module | None = None
) -> LossOutput:
    """The loss where the network gives these logits [T + 1, B, A] and values [T + 1, B]."""
    read = dict.fromkeys(("observation", "previous_action", "previous_reward", "first", "state"))
    networks: Any = Networks(lambda *_: ((logits, values), None), lambda *_: None, network)  # type: ignore[arg-type, return-value]
    return spec.loss(networks, {**read, **batch}, np.random.default_rng(0))


def scene(seed: int) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """What a network gives, and a batch of half replayed rows with an episode's end in the second one."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape))

    mask, discount = torch.ones(STEPS, ROWS, dtype=torch.float64), torch.full((STEPS, ROWS), GAMMA, dtype=torch.float64)
    mask[3, 1] = discount[3, 1] = 0.0
    batch = {
        "reward": normal(STEPS, ROWS),
        "action": torch.from_numpy(rng.integers(0, ACTIONS, (STEPS, ROWS))),
        "discount": discount,
        "mask": mask,
        "extras": {"logits": normal(STEPS, ROWS, ACTIONS), "value": normal(STEPS, ROWS)},
        "replayed": torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64),
    }
    logits, values = normal(STEPS + 1, ROWS, ACTIONS).requires_grad_(), normal(STEPS + 1, ROWS).requires_grad_()
    return logits, values, batch


def divergences(batch: dict[str, Any], logits: Tensor) -> tuple[Tensor, Tensor]:
    """KL(mu || pi) and KL(pi || mu), [T, B]."""
    mu, pi = Categorical(logits=batch["extras"]["logits"]), Categorical(logits=logits[:-1])
    return kl_divergence(mu, pi), kl_divergence(pi, mu)


# CLEAR.

CLEAR = PolicyCloning(cost=1.0), ValueCloning(cost=1.0)


def test_cloning_is_0_where_the_policies_and_values_agree() -> None:
    logits, values, batch = scene(0)
    batch["extras"] = {"logits": logits[:-1].detach() + 1.0, "value": values[:-1].detach()}
    metrics = loss_of(make(*CLEAR), logits, values, batch).metrics
    assert metrics["PolicyCloning"].item() == pytest.approx(0.0, abs=1e-12)
    assert metrics["ValueCloning"].item() == 0.0


def test_cloning_is_the_mean_over_the_decisions_of_replayed_rows() -> None:
    logits, values, batch = scene(1)
    plain, cloning = make(), make(PolicyCloning(cost=0.3), ValueCloning(cost=0.7))
    replayed = [(t, b) for t in range(STEPS) for b in (1, 3) if batch["mask"][t, b]]
    assert len(replayed) == 2 * STEPS - 1
    forward, _ = divergences(batch, logits.detach())
    kl = sum(forward[at].item() for at in replayed) / len(replayed)
    squared = sum((values[at] - batch["extras"]["value"][at]).item() ** 2 for at in replayed) / len(replayed)
    outputs = [loss_of(spec, logits, values, batch) for spec in (plain, cloning)]
    assert outputs[1].metrics["PolicyCloning"].item() == pytest.approx(kl)
    assert outputs[1].metrics["ValueCloning"].item() == pytest.approx(squared)
    difference = (outputs[1].loss.mean() - outputs[0].loss.mean()).item()
    assert difference == pytest.approx(0.3 * kl + 0.7 * squared)


def test_cloning_pulls_replayed_rows_alone_and_none_where_all_are_fresh() -> None:
    logits, values, batch = scene(2)
    metrics = loss_of(make(*CLEAR), logits, values, batch).metrics
    (metrics["PolicyCloning"] + metrics["ValueCloning"]).backward()  # type: ignore[no-untyped-call]
    for gradient in (logits.grad, values.grad):
        assert gradient is not None
        assert not gradient[:, [0, 2]].any() and gradient[:STEPS, [1, 3]].any()
    del batch["replayed"]
    metrics = loss_of(make(*CLEAR), logits, values, batch).metrics
    assert metrics["PolicyCloning"].item() == metrics["ValueCloning"].item() == 0.0


# LASER.


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.4, 1.0]), st.sampled_from(["behaviour", "implied"]))
def test_a_rejected_step_drops_out_of_deltas_carries_and_advantages(seed: int, threshold: float, to: str) -> None:
    logits, values, batch = scene(seed)
    output = loss_of(make(KLMask(threshold=threshold, to=to), entropy_cost=0.0), logits, values, batch)
    policy_loss = value_loss = kept = 0.0
    pi, mu = logits.detach()[:-1].softmax(2), batch["extras"]["logits"].softmax(2)
    implied = torch.minimum(pi, mu)
    other = mu if to == "behaviour" else implied / implied.sum(2, keepdim=True)
    kl = (pi * (pi.log() - other.log())).sum(2)
    for b in range(ROWS):
        v = [each.item() for each in values[:, b]]
        r, g, a, real = (batch[name][:, b].tolist() for name in ("reward", "discount", "action", "mask"))
        near = [real[t] and kl[t, b].item() < threshold for t in range(STEPS)]
        rho = [min(1.0, (pi[t, b, a[t]] / mu[t, b, a[t]]).item()) for t in range(STEPS)]
        targets = []
        for s in range(STEPS + 1):
            total, weight = v[s], 1.0
            for t in range(s, STEPS):
                if not near[t]:
                    break
                total += weight * rho[t] * (r[t] + g[t] * v[t + 1] - v[t])
                weight *= g[t] * rho[t]
            targets.append(total)
        for s in range(STEPS):
            if near[s]:
                kept += 1
                policy_loss -= pi[s, b, a[s]].log().item() * rho[s] * (r[s] + g[s] * targets[s + 1] - v[s])
                value_loss += 0.5 * (targets[s] - v[s]) ** 2
    decisions = batch["mask"].sum().item()
    assert output.metrics["PolicyLoss"].item() == pytest.approx(policy_loss / decisions, rel=1e-8, abs=1e-9)
    assert output.metrics["ValueLoss"].item() == pytest.approx(value_loss / decisions, rel=1e-8, abs=1e-9)
    assert output.metrics["Accepted"].item() == pytest.approx(kept / decisions)


def test_only_what_is_strictly_below_the_threshold_is_learnt_from() -> None:
    logits, values, batch = scene(3)
    _, reverse = divergences(batch, logits.detach())
    at = (2, 0)
    threshold = reverse[at].item()
    accepted = [
        loss_of(make(KLMask(threshold=each)), logits, values, batch).metrics["Accepted"].item()
        for each in (threshold * (1 - 1e-9), threshold * (1 + 1e-9))
    ]
    assert accepted[1] - accepted[0] == pytest.approx(1 / batch["mask"].sum().item())
    agreeing = {**batch, "extras": {**batch["extras"], "logits": logits[:-1].detach()}}
    tiny_threshold = loss_of(make(KLMask(threshold=1e-9)), logits, values, agreeing).metrics
    assert tiny_threshold["Accepted"].item() == 1.0


# Entropy, and its learnt weight.


def test_the_entropy_may_be_that_of_fresh_rows_alone() -> None:
    logits, values, batch = scene(4)
    h = Categorical(logits=logits.detach()[:-1]).entropy() * batch["mask"]
    for rows, columns in {"all": [0, 1, 2, 3], "fresh": [0, 2]}.items():
        found = loss_of(make(entropy_rows=rows), logits, values, batch).metrics["Entropy"].item()
        assert found == pytest.approx((h[:, columns].sum() / batch["mask"][:, columns].sum()).item())


@pytest.mark.parametrize(("target", "rises"), [(0.2, False), (1.09, True)])
def test_the_entropys_weight_rises_where_the_entropy_is_below_its_target(target: float, rises: bool) -> None:
    logits, values, batch = scene(5)
    spec = make(TargetEntropy(target=target), entropy_cost=0.01)
    network: Any = spec.make_network()
    output = loss_of(spec, logits, values, batch, network=network)
    assert output.metrics["EntropyCost"].item() == pytest.approx(0.01)
    output.loss.mean().backward()  # type: ignore[no-untyped-call]
    entropy = output.metrics["Entropy"].item()
    # exp(speed p) (H - target), by p.
    assert network.entropy_parameter.grad.item() == pytest.approx(10 * 0.01 * (entropy - target), rel=1e-5)
    assert (network.entropy_parameter.grad.item() < 0) == rises


def test_the_entropys_weight_has_no_part_in_the_gradient_of_the_policy_but_as_a_factor() -> None:
    gradients = []
    for spec in (make(entropy_cost=0.01), make(TargetEntropy(target=0.5), entropy_cost=0.01)):
        logits, values, batch = scene(6)
        output = loss_of(spec, logits, values, batch, network=spec.make_network())
        output.loss.mean().backward()  # type: ignore[no-untyped-call]
        gradients.append(logits.grad)
    torch.testing.assert_close(*gradients)


def test_seeds_kl_cost_adds_the_mean_log_ratio() -> None:
    logits, values, batch = scene(7)
    plain, with_kl = (loss_of(spec, logits, values, batch).loss.mean() for spec in (make(), make(KLCost(cost=2.0))))
    action, mask = batch["action"], batch["mask"]
    ratio = Categorical(logits=batch["extras"]["logits"]).log_prob(action)
    ratio = ratio - Categorical(logits=logits.detach()[:-1]).log_prob(action)
    assert (with_kl - plain).item() == pytest.approx(2 * ((ratio * mask).sum() / mask.sum()).item())


# Extras.


def test_what_no_loss_reads_is_not_stored() -> None:
    assert list(make().extras) == ["logits"]
    assert list(make(PolicyCloning()).extras) == ["logits"]
    assert set(make(ValueCloning(), store_version=True).extras) == {"logits", "value", "version"}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: make(entropy_rows="replayed"), "entropy_rows must be 'all' or 'fresh', got 'replayed'"),
        (lambda: KLMask(to="mu"), "KLMask.to must be 'behaviour' or 'implied', got 'mu'"),
        (lambda: KLMask(threshold=0.0), "KLMask.threshold must be > 0, got 0.0"),
        (lambda: PolicyCloning(cost=-1.0), "PolicyCloning.cost must be >= 0 and finite, got -1.0"),
        (lambda: KLCost(), "KLCost.cost must be a number, of at most 1e+30, got None"),
        (
            lambda: make(TargetEntropy(target=1.2)),
            "TargetEntropy.target must lie between 0 and 1.1 nats, those of 3 actions that are equally likely, got 1.2",
        ),
        (
            lambda: make(TargetEntropy(target=0.5), entropy_cost=0.0),
            "entropy_cost must be > 0 where TargetEntropy adjusts it, got 0.0",
        ),
        (lambda: make(store_version=1), "store_version must be True or False, got 1"),
        (
            lambda: make(terms=(PolicyCloning,)),
            "VTraceAgent.terms must be terms such as (@PolicyCloning(), @KLMask()), with brackets, got <class",
        ),
        (
            lambda: make(KLMask(), KLMask(to="implied")),
            "VTraceAgent.terms must have one term of a kind, got 2 of",
        ),
    ],
)
def test_arguments_out_of_range_are_refused(made: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        made()
    assert str(caught.value).startswith(message)


def test_a_single_term_needs_no_brackets() -> None:
    assert list(make(terms=KLMask()).terms) == [KLMask()]


def test_terms_are_bound_each_under_its_own_name() -> None:
    gin.parse_config(
        "VTraceAgent.terms = (@TargetEntropy(), @KLMask())\nTargetEntropy.target = 0.5\nKLMask.to = 'implied'"
    )
    spec = VTrace(Box(-1, 1, (2,), np.float32), Discrete(ACTIONS), stack_size=1, network=tiny, device="cpu")
    assert list(spec.terms) == [TargetEntropy(target=0.5), KLMask(to="implied")]
    gin.clear_config()
    there: Any = cloudpickle.loads(cloudpickle.dumps(spec))
    assert there.terms == spec.terms


class Pull(Term):
    """A term of a user's own: the values' mean square."""

    def loss(self, rows: UnrollRows) -> Tensor:
        pull = rows.metrics["Pull"] = masked_mean(rows.values**2, rows.mask)
        return 3.0 * pull


def test_a_term_of_ones_own_is_added_and_reported() -> None:
    logits, values, batch = scene(8)
    plain, pulled = (loss_of(spec, logits, values, batch) for spec in (make(), make(Pull())))
    square = (values[:-1] ** 2 * batch["mask"]).sum().item() / batch["mask"].sum().item()
    assert pulled.metrics["Pull"].item() == pytest.approx(square)
    assert (pulled.loss.mean() - plain.loss.mean()).item() == pytest.approx(3 * square)
