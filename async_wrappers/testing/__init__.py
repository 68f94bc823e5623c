"""Contract tests for parts of a user's own; they need pytest, those of strategies hypothesis, of backends psutil too.

* `async_wrappers.testing.backends.BackendContract`: what every backend of `AsyncRunner` keeps.
* `async_wrappers.testing.batched.BatchedEnvsContract`: what many environments at once keep.
* `async_wrappers.testing.environments.EnvironmentContract`: what an environment keeps, for delays and live play.
* `async_wrappers.testing.staggers.StaggerContract`: what every stagger strategy keeps.

Subclass one in a test module, override the methods that make the object under test, and pytest runs it.
"""

import pytest

pytest.register_assert_rewrite(
    "async_wrappers.testing.backends",
    "async_wrappers.testing.batched",
    "async_wrappers.testing.environments",
    "async_wrappers.testing.staggers",
)
