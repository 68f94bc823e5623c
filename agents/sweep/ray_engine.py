"""The Ray engine of a sweep: Ray Tune starts the trials, on this machine or on a cluster, and may end them early.

A trial is the same process as in the pool, with the same files. Ray chooses a node; an actor there starts the process,
waits for it, and ends it when the actor itself is ended. A trial's files decide its status, as in the pool, so that
each engine continues the other's sweeps. This module needs the extra `ray`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ray import tune

from async_wrappers.agents.experiment.lock import alone_in
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.sweep.plan import Sweep
from async_wrappers.agents.sweep.trial import (
    OnChange,
    TrialProcess,
    TrialsCutOff,
    record_failure,
    record_stop,
    refuse_cut_off,
    trial_status,
)
from async_wrappers.ray_cluster import NoCluster, connected_to_ray, python_path, room_for

# Seconds between two looks at a trial's iterations, if a scheduler compares them.
POLL_SECONDS = 0.2
# The key of a result with which a trial ends by itself. Tune's own "done" is also set when a scheduler ends a trial.
ENDED = "trial_ended"
TUNE_SETTINGS = {
    # Trials write their own logs.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # A trial that fails at once has no metric.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # The sweep handles interrupts itself.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}


def run_on_ray(
    payloads: Mapping[Path, bytes],
    jobs: int | None,
    lock: int | None,
    on_change: OnChange,
    *,
    address: str | None,
    settings: Sweep,
) -> None:
    """Run one process per directory, on Ray, until all have ended.

    Args:
        payloads: Pickled trials, by the trial's directory, which all nodes must see under the same path.
        jobs: Trials at a time; None is as many as the cluster has cores for.
        lock: Not used, since a process may run on another machine: each trial's directory has a lock of its own.
        on_change: Called when a trial begins or ends.
        address: Address of the cluster; None starts one on this machine, for this sweep alone.
        settings: The scheduler.

    Raises:
        NoCluster: No cluster answers, or none of its nodes has a core.
        TrialsCutOff: A process of Ray's has died, or a node does not see the directory. What has not ended by itself is
            not marked as failed.
        KeyboardInterrupt: Interrupted; the trials have been ended, and are not marked as failed.
    """
    if not payloads:
        return
    os.environ.update(TUNE_SETTINGS)
    trials = next(iter(payloads)).parent
    directories, metric, scheduler = list(payloads), None, None
    if settings.scheduler is not None:
        # The trials that finished before are reported again, so that the scheduler can compare with them.
        directories = [path for path in sorted(trials.iterdir()) if trial_status(path) == "finished"] + directories
        metric = settings.scheduler_metric
        rungs = {"grace_period": settings.grace_period, "reduction_factor": settings.reduction_factor}
        # The last trials end by themselves too. `max_t` is in iterations, more than any trial has.
        bounds = {"stop_last_trials": False, "max_t": 10**6}
        scheduler = tune.schedulers.ASHAScheduler(metric=metric, mode="max", **rungs, **bounds)
    # Tune's own files. By writing there it also finds out whether all nodes see base_dir.
    files_of_tune = trials.parent / "ray"
    shutil.rmtree(files_of_tune, ignore_errors=True)
    # Ray's processes have another working directory.
    place = (python_path(), os.getcwd())
    process = tune.with_parameters(_TrialActor, payloads=dict(payloads), place=place, metric=metric)
    with connected_to_ray(address, jobs):
        if not room_for({"CPU": 1.0}):
            raise NoCluster("the cluster's nodes have no core for a trial: give one some (ray start --num-cpus)")
        results = tune.Tuner(
            tune.with_resources(process, {"cpu": 1}),
            param_space={"directory": tune.grid_search([str(directory) for directory in directories])},
            tune_config=tune.TuneConfig(max_concurrent_trials=jobs, scheduler=scheduler, reuse_actors=True),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(files_of_tune),
                verbose=0,
                callbacks=[TrialCallback(set(payloads), on_change)],
                # An error that Tune notices is none of a trial's, and others would meet it too.
                failure_config=tune.FailureConfig(fail_fast=True),
                # Trials keep their own checkpoints.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()
    if results.errors:
        lines = str(results.errors[0]).strip().splitlines()
        raise TrialsCutOff(f"Ray has ended a trial ({lines[-1].strip().rstrip('.')}): the same call runs what is left")
    refuse_cut_off(each for each in payloads if trial_status(each) == "waiting")


class _TrialActor(tune.Trainable):  # type: ignore[misc]
    """A trial's process, on the node that Ray chose.

    A trial that had finished before starts no process; it only reports its iterations, for a scheduler to compare.
    """

    def setup(
        self, config: dict[str, Any], payloads: Mapping[Path, bytes], place: tuple[str, str], metric: str | None
    ) -> None:
        self._payloads, self._place, self._metric = payloads, place, metric
        self._start(Path(config["directory"]))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Run another trial in this actor, since a new actor takes seconds to start."""
        self.cleanup()
        self._start(Path(new_config["directory"]))
        return True

    def _start(self, directory: Path) -> None:
        self._directory = directory
        self._reported = 0
        self._process: TrialProcess | None = None
        self._held = ExitStack()
        if directory not in self._payloads:
            return
        if not directory.is_dir():
            raise FileNotFoundError(f"{directory} is not there: base_dir must be a path that all nodes see")
        # Another lock than train.py's, which locks the same directory.
        lock = self._held.enter_context(alone_in(directory, "trial.lock"))
        try:
            self._process = TrialProcess(directory, self._payloads[directory], lock, *self._place)
        except Exception as error:
            self._record(error)
            return
        # Undone from the last to the first: the process is ended, its input closed, and the lock given back.
        self._held.enter_context(self._process)
        self._held.callback(TrialProcess.end_all, [self._process])

    def _record(self, error: Exception) -> None:
        """Record the trial's failure here: Tune notices the same error where a process of Ray's has died."""
        record_failure(self._directory, f"{type(error).__name__}: {error}", traceback.format_exc().splitlines())

    def step(self) -> dict[str, Any]:
        """Wait for the next iteration, if a scheduler compares iterations, or for the end; return its result."""
        try:
            return self._next_result()
        except Exception as error:
            self.cleanup()
            self._record(error)
            return {tune.result.DONE: True, ENDED: True}

    def _next_result(self) -> dict[str, Any]:
        process = self._process
        while True:
            # Polled before the iterations are read: a process that has ended has written all of them.
            runs = process is not None and process.poll() is None
            lines = [] if self._metric is None else read_iterations(self._directory)
            if self._reported < len(lines):
                numbers = {name: each for name, each in lines[self._reported].items() if isinstance(each, int | float)}
                if self._metric not in numbers:
                    known = ", ".join(numbers)
                    raise ValueError(f"Sweep.scheduler_metric must be one of {known}, got {self._metric!r}")
                self._reported += 1
                return numbers
            if process is None or not runs:
                if process is not None:
                    process.record_end()
                return {tune.result.DONE: True, ENDED: True}
            with suppress(subprocess.TimeoutExpired):
                process.wait(None if self._metric is None else POLL_SECONDS)

    def cleanup(self) -> None:
        """End the process, if it still runs."""
        self._held.close()


class TrialCallback(tune.Callback):  # type: ignore[misc]
    """Reports when Tune starts and ends a trial that is `ours`."""

    def __init__(self, ours: set[Path], on_change: OnChange) -> None:
        self._ours = ours
        self._on_change = on_change

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune keeps a copy for resuming, and a sweep resumes from its trials' files instead."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that runs."""
        if directory := self._our_directory(trial):
            self._on_change(directory, "running")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that has ended, by itself or by the scheduler."""
        if directory := self._our_directory(trial):
            if trial_status(directory) == "waiting" and ENDED not in trial.last_result:
                record_stop(directory, trial.last_result["time_total_s"])
            self._tell_end(directory)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial whose actor has died; it may have ended just before."""
        if directory := self._our_directory(trial):
            self._tell_end(directory)

    def _tell_end(self, directory: Path) -> None:
        status = trial_status(directory)
        self._on_change(directory, "cut off" if status == "waiting" else status)

    def _our_directory(self, trial: Any) -> Path | None:
        directory = Path(trial.config["directory"])
        return directory if directory in self._ours else None
