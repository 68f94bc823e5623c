"""What a teacher's labels cost, made by whoever acts or when a batch is drawn.

    python -m benchmarks.studies.teacher_labels

The teachers are agents that ship: `cartpole`, two layers of 256 units, and `minatar/breakout`, a convolution of images
of 10 x 10. Who acts labels the rows of N environments in one forward pass. When a batch is drawn the teacher reads all
its rows: 32 for each update of DQN, one every 4 decisions, so 8 rows a decision; 160 (16 unrolls of 10) for each update
of V-trace, which learns from a decision once.

Prints microseconds of processor time, medians of 7 rounds, on one thread.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from async_wrappers.agents.teaching.teacher import Teacher

ROUNDS, CALLS = 7, 20


def microseconds(teacher: Teacher, rows: int) -> float:
    """Return the processor time of a forward pass of a number of rows, and of its labels."""
    stacks = np.stack([np.stack([teacher.spec.blank()] * teacher.spec.stack_size)] * rows)
    teacher.values(stacks)
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(CALLS):
            teacher.values(stacks)
        times.append((time.process_time() - begin) / CALLS * 1e6)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'teacher':<20}{'made':<34}{'us a pass':>10}{'us a decision':>15}")
    for name in ("cartpole", "minatar/breakout"):
        teacher = Teacher.of_run(name)
        passes = [(f"by who acts, {rows} environments", rows, rows) for rows in (1, 16, 64)]
        passes += [("at draw, DQN's 32 rows", 32, 4), ("at draw, V-trace's 160 rows", 160, 160)]
        for made, rows, decisions in passes:
            took = microseconds(teacher, rows)
            print(f"{name:<20}{made:<34}{took:>10.0f}{took / decisions:>15.1f}")


if __name__ == "__main__":
    main()
