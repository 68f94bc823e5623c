"""Contract tests for your own parts: ``pip install 'async-wrappers[testing]'`` brings their libraries.

* `async_wrappers.testing.backends.BackendContract`: the rules of every backend of `AsyncRunner`.
* `async_wrappers.testing.batched.BatchedEnvsContract`: the rules of many environments at once.
* `async_wrappers.testing.environments.EnvironmentContract`: the rules of an environment, for delays and live play.
* `async_wrappers.testing.machines.MachineContract`: the rules of a machine, for live play.
* `async_wrappers.testing.staggers.StaggerContract`: the rules of every stagger strategy.

Subclass one in a test module, override the methods that make the object under test, and pytest runs it.
"""

from async_wrappers.extras import extra

with extra("async_wrappers.testing", "testing"):
    import pytest

pytest.register_assert_rewrite(
    "async_wrappers.testing.backends",
    "async_wrappers.testing.batched",
    "async_wrappers.testing.environments",
    "async_wrappers.testing.machines",
    "async_wrappers.testing.staggers",
)
