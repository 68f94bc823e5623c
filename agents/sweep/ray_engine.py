"""Trials on Ray, of this machine or of a cluster: Ray Tune says when each runs, and a scheduler may end it early.

A trial is the same process as in the pool, with the same files; an actor on the node that Ray chose starts it, looks
after it, and takes it along when it ends. This module needs the extra `ray`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import ray
from absl import logging
from ray import tune
from ray._private import ray_constants
from ray.tune.schedulers import ASHAScheduler

from agents.experiment.config import ConfigError
from agents.experiment.lock import alone_in
from agents.experiment.metrics import read_iterations
from agents.sweep.pool import OnChange
from agents.sweep.settings import Sweep
from agents.sweep.trial import FAILURE, record_stop, state
from agents.sweep.trial_process import end_processes, python_path, record_end, record_failure, start_process

__all__ = ["run_on_ray"]

LOOPBACK = "127.0.0.1"
LOOK = 0.2  # seconds between two looks at a trial's iterations, where a scheduler wants them
ENDED = "trial_ended"  # by itself; Tune says "done" of those that a scheduler ends, too
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the trial writes its own
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a trial that fails at once has no metric
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interrupt is ours
    "RAY_AIR_NEW_OUTPUT": "0",
}


def run_on_ray(
    payloads: Mapping[Path, bytes],
    jobs: int | None,
    lock: int | None,
    on_change: OnChange,
    *,
    address: str | None,
    told: Sweep,
) -> None:
    """Run one process per directory, on Ray, until all have ended.

    Args:
        payloads: By the trial's directory, on a path that all nodes see, what its process is told.
        jobs: Trials at a time; None is as many as the cluster has cores for.
        lock: Not handed on, since a process may run elsewhere: each trial's directory has a lock of its own.
        on_change: As for `run_pool`.
        address: Of the cluster; None starts one on this machine, for this sweep alone.
        told: Which scheduler.

    Raises:
        ConfigError: No cluster answers, or its nodes do not see the directory.
        KeyboardInterrupt: Interrupted; the trials have been ended, and are not marked as failed.
    """
    if not payloads:
        return
    os.environ.update(QUIET)
    base_dir = next(iter(payloads)).parents[1]
    watched = told.scheduler is not None
    directories = [*(_finished(base_dir) if watched else ()), *payloads]
    place = base_dir / "ray"  # what Tune keeps for itself; it also finds out there whether all nodes see base_dir
    shutil.rmtree(place, ignore_errors=True)
    process = tune.with_parameters(
        _TrialProcess,
        payloads=dict(payloads),
        place=(python_path(), os.getcwd()),  # Ray's own processes work elsewhere
        metric=told.scheduler_metric if watched else None,
    )
    with _cluster(address, jobs):
        results = tune.Tuner(
            tune.with_resources(process, {"cpu": 1}),
            param_space={"directory": tune.grid_search([str(directory) for directory in directories])},
            tune_config=tune.TuneConfig(max_concurrent_trials=jobs, scheduler=_scheduler(told), reuse_actors=True),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(place),
                verbose=0,
                callbacks=[_Teller(set(payloads), on_change)],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # trials keep their own
            ),
        ).fit()
    for directory, result in zip(directories, results, strict=True):
        if result.error is not None:  # which Tune does not have yet when it says that a trial failed
            lines = str(result.error).strip().splitlines()
            record_failure(directory, lines[-1], lines)


class _TrialProcess(tune.Trainable):  # type: ignore[misc]
    """A trial's process, on the node that Ray chose; one that had finished before only tells its iterations again."""

    def setup(
        self, config: dict[str, Any], payloads: Mapping[Path, bytes], place: tuple[str, str], metric: str | None
    ) -> None:
        self._payloads, self._place, self._metric = payloads, place, metric
        self._start(Path(config["directory"]))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Look after another trial: an actor takes seconds to start, and a trial need not."""
        self.cleanup()
        self._start(Path(new_config["directory"]))
        return True

    def _start(self, directory: Path) -> None:
        self._directory = directory
        self._told = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._held = ExitStack()
        if directory not in self._payloads:
            return
        if not directory.is_dir():
            raise FileNotFoundError(f"{directory} is not there: base_dir must be a path that all nodes see")
        (directory / FAILURE).unlink(missing_ok=True)
        lock = self._held.enter_context(alone_in(directory, "trial.lock"))  # train.py has its own
        self._begin = time.perf_counter()
        self._process = start_process(directory, self._payloads[directory], lock, *self._place)

    def step(self) -> dict[str, Any]:
        """Wait for the next iteration, if a scheduler wants it, or for the end."""
        while True:
            code = None if self._process is None else self._process.poll()
            ended = self._process is None or code is not None
            lines = [] if self._metric is None else read_iterations(self._directory)
            if self._told < len(lines):
                self._told += 1
                return self._numbers(lines[self._told - 1])
            if ended:
                if code is not None:
                    record_end(self._directory, code, time.perf_counter() - self._begin)
                return {tune.result.DONE: True, ENDED: True}
            assert self._process is not None
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(None if self._metric is None else LOOK)

    def cleanup(self) -> None:
        """End the process, if it has not ended."""
        if self._process is not None:
            end_processes([self._process])
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._held.close()

    def _numbers(self, line: Mapping[str, Any]) -> dict[str, Any]:
        numbers = {name: value for name, value in line.items() if isinstance(value, int | float)}
        if self._metric not in numbers:
            raise ValueError(f"Sweep.scheduler_metric must be one of {', '.join(numbers)}, got {self._metric!r}")
        return numbers


class _Teller(tune.Callback):  # type: ignore[misc]
    """Tells what Tune does with the trials that are `ours`, and records what their processes could not."""

    def __init__(self, ours: set[Path], on_change: OnChange) -> None:
        self._ours = ours
        self._on_change = on_change

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune keeps a copy for resuming, which is done by what the trials left."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell(trial, lambda directory: "running")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        def end(directory: Path) -> str:
            if state(directory) == "waiting" and ENDED not in trial.last_result:
                record_stop(directory, trial.last_result["time_total_s"])
            return "finished" if state(directory) == "finished" else "failed"

        self._tell(trial, end)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell(trial, lambda directory: record_failure(directory, "Ray ended it", []))

    def _tell(self, trial: Any, change: Callable[[Path], str]) -> None:
        directory = Path(trial.config["directory"])
        if directory in self._ours:
            self._on_change(directory, change(directory))


@contextmanager
def _cluster(address: str | None, jobs: int | None) -> Iterator[None]:
    """Be connected to Ray; where the caller is already, with that."""
    if ray.is_initialized():
        if address is not None:
            raise ConfigError(f"address {address}: this process is connected to Ray already: leave the address out")
        yield
        return
    if address is not None:
        _check_answers(address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    own = {"address": "local", "num_cpus": jobs, "include_dashboard": False, "dashboard_host": LOOPBACK}
    where = {"address": address} if address else {**own, "_node_ip_address": LOOPBACK}
    # Without the second, Ray hides a node's accelerators from what asks for none, and trials would not be the pool's.
    env = {"PYTHONPATH": python_path(), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    try:
        with nullcontext() if address else _on_the_loopback():
            ray.init(**where, runtime_env={"env_vars": env}, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"address {address}: no Ray cluster answers there ({reason}): see ray start --help") from None
    with suppress(ValueError):  # not in the main thread
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray has put its own in their place
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _on_the_loopback() -> Iterator[None]:
    """Let a Ray that is started within listen on this machine's loopback alone.

    Whoever reaches a Ray runs what he likes there. On Linux Ray replaces a loopback address that it is given by the
    machine's own, and listens on all interfaces; on macOS and Windows it does not, by this switch of its own.
    """
    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    try:
        if before is not None:
            ray_constants.ENABLE_RAY_CLUSTER = False
        yield
    finally:
        if before is not None:
            ray_constants.ENABLE_RAY_CLUSTER = before
    if (there := ray.util.get_node_ip_address()) != LOOPBACK:  # another version of Ray
        logging.warning("Ray listens on %s, where others may reach it: keep a firewall before this machine", there)


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens at once: Ray itself would try for minutes."""
    place = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address)
    if place is None:
        return  # a name of Ray's own, such as "auto"
    try:
        socket.create_connection((place[1], int(place[2])), timeout=10).close()
    except OSError as error:
        raise ConfigError(f"address {address}: no Ray cluster answers there ({error}): see ray start --help") from None


def _finished(base_dir: Path) -> list[Path]:
    """Return trials that had finished before, so that a scheduler can compare with them."""
    return [path for path in sorted((base_dir / "trials").iterdir()) if state(path) == "finished"]


def _scheduler(told: Sweep) -> Any:
    if told.scheduler is None:
        return None
    return ASHAScheduler(
        metric=told.scheduler_metric,
        mode="max",
        grace_period=told.grace_period,
        reduction_factor=told.reduction_factor,
        stop_last_trials=False,  # a trial ends by itself
        max_t=10**6,  # iterations, more than any trial has
    )
