"""Contract tests for parts of a user's own: ``pip install 'async-wrappers[testing]'`` brings what they need.

* `async_wrappers.testing.backends.BackendContract`: what every backend of `AsyncRunner` keeps.
* `async_wrappers.testing.batched.BatchedEnvsContract`: what many environments at once keep.
* `async_wrappers.testing.environments.EnvironmentContract`: what an environment keeps, for delays and live play.
* `async_wrappers.testing.staggers.StaggerContract`: what every stagger strategy keeps.

Subclass one in a test module, override the methods that make the object under test, and pytest runs it.
"""

from async_wrappers.extras import extra

with extra("async_wrappers.testing", "testing"):
    import pytest

pytest.register_assert_rewrite(
    "async_wrappers.testing.backends",
    "async_wrappers.testing.batched",
    "async_wrappers.testing.environments",
    "async_wrappers.testing.staggers",
)
