"""The parts that CONTRIBUTING.md adds keep the contracts. (test_code_blocks.py runs what the page shows.)"""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import gin

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
        "TorsoContract",
    }
