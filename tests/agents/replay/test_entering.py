"""The priorities that an actor finds are those of the transitions that the replay puts together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.replay.n_step import ActorPriorities
from async_wrappers.agents.replay.replay import create_replay

ENVIRONMENTS = 3


@given(
    horizon=st.integers(1, 4),
    discount_by=st.sampled_from(["decision", "frame"]),
    rounds=st.lists(
        st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 3), st.sampled_from("....tc-")), min_size=3, max_size=3),
        max_size=15,
    ),
    seed=st.integers(0, 9),
)
def test_a_transition_enters_with_its_error(
    horizon: int, discount_by: str, rounds: list[list[tuple[int, int, str]]], seed: int
) -> None:
    terms: dict[str, Any] = {"update_horizon": horizon, "gamma": 0.75, "discount_by": discount_by}
    replay = create_replay(Box(-np.inf, np.inf, (), np.float64), num_envs=ENVIRONMENTS, capacity=300, **terms)
    priorities, rng = ActorPriorities(ENVIRONMENTS, np.abs, **terms), np.random.default_rng(seed)
    entered: dict[float, float] = {}  # by the observation, which no other transition has
    seen: list[list[float]] = [[] for _ in range(ENVIRONMENTS)]  # observations of the running episodes
    values: dict[float, tuple[float, float]] = {}
    number = 0.0
    for rows in rounds:
        chosen = [env_id for env_id, (_, _, fate) in enumerate(rows) if fate != "-"]
        if not chosen:
            continue
        env_ids = np.array(chosen)
        observation = np.arange(number, number + len(env_ids))
        number += len(env_ids)
        value, max_value = rng.normal(size=(2, len(env_ids)))
        reward, interval = (np.array([rows[env_id][place] for env_id in chosen]) for place in (0, 1))
        terminal, truncated = (np.array([rows[env_id][2] == fate for env_id in chosen]) for fate in "tc")
        priority, tails = priorities.enter(env_ids, value, max_value, reward, interval, terminal, truncated)
        ended = env_ids[terminal | truncated]
        replay.extend(
            {
                "env_ids": env_ids,
                "observation": observation,
                "action": np.zeros(len(env_ids), np.int64),
                "reward": reward.astype(np.float32),
                "interval": interval,
                "terminal": terminal,
                "truncated": truncated,
                "final": {int(env_id): np.float64(-1.0) for env_id in ended},
            }
        )
        for row, env_id in enumerate(chosen):
            values[observation[row]] = value[row], max_value[row]
            if len(seen[env_id]) >= horizon:
                entered[seen[env_id][-horizon]] = priority[row]
            else:
                assert np.isnan(priority[row])
            seen[env_id].append(observation[row])
            if terminal[row]:
                last = seen[env_id][-horizon:]
                assert np.isnan(tails[env_id][len(last) :]).all()
                entered |= dict(zip(reversed(last), tails[env_id], strict=False))
            if terminal[row] or truncated[row]:
                assert (env_id in tails) == terminal[row]
                seen[env_id] = []
    if not len(replay):
        return
    batch = replay.transitions(replay.valid_slots())
    found = 0
    for row, observation in enumerate(batch["observation"][:, 0].tolist()):
        following = batch["next_observation"].item(row)
        if following == -1 and batch["discount"][row]:
            assert observation not in entered  # it bootstraps on what no actor has acted on
            continue
        bootstrap = values[following][1] if batch["discount"][row] else 0.0
        target = batch["reward"].item(row) + batch["discount"].item(row) * bootstrap
        assert entered[observation] == pytest.approx(abs(target - values[observation][0]), rel=1e-5, abs=1e-5)
        found += 1
    assert found == len(entered)
