"""The settings of agents that learn from a replay, and the replay that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from async_wrappers.agents.learning import Learning
from async_wrappers.agents.replay.replay import Replay, create_replay
from async_wrappers.agents.replay.selectors import SELECTORS, Selector
from async_wrappers.agents.settings import again, choice, flag, must, number, setting, settings, whole
from async_wrappers.agents.spec import Spec

__all__ = ["ReplaySettings"]


def _check_scheme(name: str, value: Any) -> None:
    if not callable(value) and not (isinstance(value, str) and value in SELECTORS):
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, SELECTORS))}, or the class of a selector such as @MySelector, got "
            f"{value!r}"
        )


@settings
class ReplaySettings(Spec):
    """What an agent with a replay declares beside its own settings; a base to stand before `NetworkAgent`."""

    update_horizon: int = whole(1, "n of the n-step return.", 1, "decision")
    min_replay_history: int = again(Learning, "min_replay_history", 20_000)
    batch_size: int = whole(32, "Transitions per update.", 1, "transition")
    replay_scheme: str | Callable[..., Selector] = setting(
        "uniform",
        '``"uniform"``, or ``"prioritized"`` (Schaul et al. 2016): a transition\'s priority is its loss; or a selector '
        "of your own, ``@MySelector`` in gin.",
        _check_scheme,
    )
    priority_exponent: float = number(0.5, "alpha of the priorities; Dopamine's square root of the loss is 0.5.")
    importance_exponent: float = number(0.5, "beta of the weights that undo the bias.")
    priority: str = choice(
        "loss",
        'What makes a transition\'s priority: its ``"loss"``, or its ``"error"``, the size of the temporal-difference '
        "error (Schaul et al. 2016, equation 1 with proportional priorities), for agents whose network gives one value "
        "for an action.",
        "loss",
        "error",
    )
    priority_epsilon: float = again(Learning, "priority_epsilon")
    actor_priorities: bool = flag(
        False,
        "Let transitions enter with the priority that the values show which the policy computed to act (Horgan et al. "
        "2018, Ape-X, section 3), not with the largest one. Without effect where one environment is played in turn or "
        "live; for agents whose network gives one value for an action.",
    )
    replay_capacity: int | None = whole(
        None,
        "Observations kept; None for 1,000,000, or for what `replay_bytes` holds.",
        1,
        "observation",
        none="1,000,000",
    )
    replay_bytes: int | None = whole(
        None,
        "Memory of the replay in the place of `replay_capacity`, in bytes: as many observations as fit with all that "
        "is stored beside them (`Replay.nbytes`); None where observations are packed.",
        1,
        "byte",
        none="replay_capacity",
    )
    replay_eviction: Literal["oldest", "reservoir"] = choice(
        "oldest",
        'What goes when the replay is full: the ``"oldest"``, or a random transition (``"reservoir"``, for stacks of '
        "one and without priorities).",
        "oldest",
        "reservoir",
    )
    replay_compression: Literal["lz4"] | None = choice(
        None, '``"lz4"`` keeps observations packed (needs the extra ``lz4``); None as they are.', "lz4", none=True
    )

    # Of the agent.
    stored_in_stacks: int | None
    gamma: float
    discount_by: Literal["decision", "frame"]
    one_step_loss: bool

    def check_replay(self) -> None:
        """Check what must hold between the settings of a replay."""
        scheme, eviction, packed, size = (
            self.replay_scheme,
            self.replay_eviction,
            self.replay_compression,
            self.replay_bytes,
        )
        must(
            eviction == "oldest" or scheme == "uniform",
            f"replay_eviction must be 'oldest' where replay_scheme={scheme!r}, got {eviction!r}",
        )
        must(
            eviction == "oldest" or not self.one_step_loss,
            f"replay_eviction must be 'oldest' where one_step_loss=True, got {eviction!r}",
        )
        must(
            eviction == "oldest" or packed is None,
            f"replay_compression must be None where replay_eviction={eviction!r}, got {packed!r}",
        )
        must(
            size is None or self.replay_capacity is None,
            f"replay_capacity must be None where replay_bytes={size}, got {self.replay_capacity}: bind one of the two",
        )
        must(
            size is None or packed is None,
            f"replay_bytes must be None where replay_compression={packed!r}, as packed observations have no fixed "
            f"size, got {size}: bind replay_capacity",
        )
        must(
            not self.actor_priorities or scheme != "uniform",
            "actor_priorities must be False where replay_scheme='uniform', which has no priorities",
        )

    def make_replay(self, seed: int, num_envs: int = 1) -> Replay:
        """Make the replay memory, with a lane for each environment."""
        exponents = {"priority_exponent": self.priority_exponent, "importance_exponent": self.importance_exponent}
        return create_replay(
            self.stored_space,
            extras=self.extras,
            selector=self.replay_scheme,
            eviction=self.replay_eviction,
            capacity=self.replay_capacity,
            replay_bytes=self.replay_bytes,
            num_envs=num_envs,
            compression=self.replay_compression,
            stack_size=self.stored_in_stacks or 1,
            update_horizon=self.update_horizon,
            gamma=self.gamma,
            discount_by=self.discount_by,
            batch_size=self.batch_size,
            seed=seed,
            **exponents if self.replay_scheme == "prioritized" else {},
        )

    def replay_that_fits(self, seed: int, num_envs: int = 1) -> Replay:
        """Make the replay memory.

        Raises:
            ValueError: Memory does not hold it.
        """
        try:
            return self.make_replay(seed, num_envs)
        except MemoryError as error:
            name = "replay_capacity" if self.replay_capacity is not None else "replay_bytes"
            given = self.replay_capacity or self.replay_bytes or 1_000_000
            unit = "bytes" if self.replay_bytes else "observations"
            what = str(error).splitlines()[0]
            raise ValueError(
                f"{name} must be what memory holds, got {given:,} {unit} ({what}): bind a smaller one"
            ) from None

    def share_of(self, learners: int) -> Mapping[str, int]:
        """Return the settings of one of several learners: its part of a batch, of the capacity and of the history.

        Raises:
            ValueError: `batch_size` is no multiple of `learners`.
        """
        must(
            self.batch_size % learners == 0,
            f"batch_size must be a multiple of the {learners} learners, got {self.batch_size}",
        )
        size = {"replay_capacity": (self.replay_capacity or 1_000_000) // learners}
        if self.replay_bytes is not None:
            size = {"replay_bytes": self.replay_bytes // learners}
        return {
            **size,
            "batch_size": self.batch_size // learners,
            "min_replay_history": self.min_replay_history // learners,
        }
