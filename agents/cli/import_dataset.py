"""The command ``import``: a pickle, or another dataset, as a Minari dataset."""

from __future__ import annotations

from argparse import Namespace

from async_wrappers.agents.cli.flags import UsageError, usage_errors
from async_wrappers.agents.demonstrations.dataset import DatasetWriter
from async_wrappers.agents.experiment.pretraining import import_demonstrations


def run(options: Namespace) -> None:
    """Import, and print where the dataset is."""
    if not options.dataset:
        raise UsageError("import needs --dataset: a new directory, or an id such as tetris/human-v0")
    with usage_errors():
        written = import_demonstrations(options.file, options.dataset)
    print(dataset_summary(written, options.dataset))


def dataset_summary(written: DatasetWriter, dataset: str) -> str:
    """Return a summary of the dataset, and the binding that learns from it."""
    count = f"{written.episodes} episodes, {written.frames} frames"
    if not written.episodes:
        return f"{count}: no episode has ended, and nothing is written"
    return f'{count} in {written.path}\nlearn from it: --gin_bindings "Runner.pretrain_dataset = {dataset!r}"'
