"""Train and evaluate agents under realtime delay: ``python train.py --help``. Each command is a file in agents/cli.

It is the console command ``async-wrappers`` for a clone that is not installed.
"""

from __future__ import annotations

import sys

try:
    from async_wrappers.console import main, run
except ModuleNotFoundError as error:
    if error.name not in ("cloudpickle", "gymnasium", "numpy"):
        raise
    print(f"train.py: {error}: in the clone, pip install -e '.[all]' -c constraints.txt", file=sys.stderr)
    sys.exit(2)

__all__ = ["main", "run"]

if __name__ == "__main__":
    run()
