"""What every test of agents leaves behind: gin without bindings, and PyTorch's threads as they were."""

from __future__ import annotations

from tests.worlds.bindings import no_bindings  # noqa: F401 - a fixture
