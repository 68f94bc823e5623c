"""Many environments that one server infers for, live: `ServedRunner`, its processes and its report.

* `settings.py`, `runner.py`: the arguments of `ServedRunner`, and the class.
* `board.py`: the shared memory: observations, actions, and who has shown and answered what.
* `world.py`: one environment of many: what it shows on a frame, and which action it takes.
* `server.py`: which observations become a batch, and what is counted of it; an accelerator, which infers batches.
* `virtual.py`, `processes.py`: these parts on simulated time in one thread, and on a real clock in processes.
* `report.py`: the report.
"""
