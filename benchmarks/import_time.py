"""What ``import async_wrappers`` costs, against ``import gymnasium``, each in a fresh process.

The time is that of the import statement alone: the interpreter's own start, which both share, would hide a difference.
Processor time is printed beside wall-clock time, because other jobs on the machine disturb it less.

    python -m benchmarks.import_time

Hold: the ratio of wall-clock times is <= 1.3, and torch is not imported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table

BASE, OURS = "gymnasium", "async_wrappers"
CHILD = """
import sys, time
wall, cpu = time.perf_counter(), time.process_time()
import {module}
print(time.perf_counter() - wall, time.process_time() - cpu, int("torch" in sys.modules))
"""


class Import:
    """Imports a module in a fresh process, and keeps the processor times and what else came along."""

    def __init__(self, module: str) -> None:
        self._code = CHILD.format(module=module)
        self.cpu: list[float] = []
        self.imports_torch = False

    def __call__(self) -> float:
        """Return the wall-clock time in milliseconds."""
        done = subprocess.run([sys.executable, "-c", self._code], capture_output=True, text=True, check=True)
        wall, cpu, torch = map(float, done.stdout.split())
        self.cpu.append(1e3 * cpu)
        self.imports_torch = bool(torch)
        return 1e3 * wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved repetitions")
    args = parser.parse_args()
    imports = {name: Import(name) for name in (BASE, OURS)}
    walls = interleave(imports, args.rounds)
    cpus = {name: each.cpu[-args.rounds :] for name, each in imports.items()}
    print_table("import, wall-clock ms", walls, BASE, digits=1)
    print_table("import, processor ms", cpus, BASE, digits=1)
    print_hold(f"{OURS} / {BASE}, wall-clock", median_ratio(walls, OURS, BASE), most=1.3)
    print_hold("torch imported (0: no)", imports[OURS].imports_torch, most=0)
    print_load()


if __name__ == "__main__":
    main()
