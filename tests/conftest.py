"""What all tests share."""

from __future__ import annotations

import pytest

# An assertion that fails in a contract, or in a world, is to show what was compared, as one in a test does.
pytest.register_assert_rewrite("tests.contracts", "tests.worlds")
