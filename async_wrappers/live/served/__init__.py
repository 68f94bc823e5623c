"""Many environments that one server infers for, live: `ServedRunner`, its processes and its report.

* `served_settings.py`, `served_runner.py`: the arguments of `ServedRunner`, and the class.
* `board.py`: the shared memory: observations, actions, and who has shown and answered what.
* `world.py`: one environment of many: what it shows on a frame, and which action it takes.
* `accelerators.py`: which observations become a batch, and what is counted of it; an accelerator, which infers batches.
* `served_virtual.py`, `served_processes.py`, `children.py`: these parts on simulated time, and on a real clock in
  processes: who starts them and looks after them, and what each does.
* `served_report.py`: the report.
"""
