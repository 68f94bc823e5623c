"""The parts that CONTRIBUTING.md adds keep the contracts. (test_code_blocks.py runs what the page shows.)"""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import gin
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from async_wrappers.agents.losses.loss import Networks

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def contracts() -> dict[str, Any]:
    """Return the classes of tests that the page's blocks define, as a module, by which their parts are pickled."""
    module = types.ModuleType("parts_of_contributing")
    sys.modules[module.__name__] = module
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        # The page's other test may have registered the same names with gin.
        with gin.config.interactive_mode():
            exec(block, vars(module))
    return {name: thing for name, thing in vars(module).items() if name.startswith("Test")}


CONTRACTS = contracts()
globals().update(CONTRACTS)


def test_the_page_shows_a_part_of_each_kind() -> None:
    bases = {base.__name__ for contract in CONTRACTS.values() for base in contract.__bases__}
    assert bases == {
        "BackendContract",
        "EnvironmentContract",
        "FamilyContract",
        "SelectorContract",
        "StudentContract",
        "TorsoContract",
    }


def test_the_agents_error_is_the_papers() -> None:
    """Munchausen DQN, equation 2 of Vieillard et al. 2020, with sums over actions written out."""
    rng = np.random.default_rng(0)
    rows, actions, tau, alpha, least = 16, 3, 0.3, 0.7, -0.4
    tables = {name: torch.from_numpy(rng.normal(size=(2 * rows, actions))) for name in ("online", "target")}
    networks: Any = Networks(*(lambda index, table=table: table[index] for table in tables.values()))
    batch = {
        "observation": torch.arange(rows),
        "next_observation": torch.arange(rows, 2 * rows),
        "action": torch.from_numpy(rng.integers(0, actions, rows)),
        "reward": torch.from_numpy(rng.normal(size=rows)),
        "discount": torch.from_numpy(rng.uniform(size=rows)),
    }
    spaces = Box(-1, 1, (2,), np.float32), Discrete(actions)
    made: Any = CONTRACTS["TestMunchausen"].member
    found = made(*spaces, alpha=alpha, tau=tau, most_taken_off=-least, device="cpu").td_error(networks, batch)
    taken_off = 0
    for row in range(rows):
        q, q_next = (tables["target"][at].numpy() for at in (row, rows + row))
        pi, pi_next = (np.exp(each / tau) / np.exp(each / tau).sum() for each in (q, q_next))
        action = int(batch["action"][row])
        bonus = max(tau * np.log(pi[action]), least)
        taken_off += bonus == least
        soft = (pi_next * (q_next - tau * np.log(pi_next))).sum()
        target = batch["reward"][row].item() + alpha * bonus + batch["discount"][row].item() * soft
        np.testing.assert_allclose(found[row].item(), target - tables["online"][row, action].item())
    assert 0 < taken_off < rows
