"""What a finished trial need not keep: its replay and its older checkpoints."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

__all__ = ["forget_replay"]


def forget_replay(base_dir: Path) -> None:
    """Leave of a finished run's checkpoints only the newest iteration's file, with weights and counts.

    The run can then be evaluated, and another begin with its weights; it cannot itself go on. Where no iteration's
    checkpoint is complete, as in the directory of a trial in Python that keeps files of its own there, all stay.
    """
    directory = base_dir / "checkpoints"
    complete = [re.fullmatch(r"sentinel_checkpoint_complete\.(\d+)", path.name) for path in directory.glob("*")]
    newest = max((int(name[1]) for name in complete if name), default=None)
    if newest is None:
        return
    for path in directory.glob("*"):
        if path.name not in (f"ckpt.{newest}", f"sentinel_checkpoint_complete.{newest}"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
