"""Sweeps: many trials of one experiment, and the table and figures that come of them.

* `settings`, `grid`, `plan`: how a sweep is run, which points it tries, and the plan that its directory keeps.
* `trial`: one trial, its process and its files.
* `run`: runs what is left of a plan, on an engine: `pool` on this machine, `ray_engine` on Ray.
* `results`, `trackers`: the table and the manifest; TensorBoard and Weights & Biases.
* `view`: the table as panels of curves. `figures`, `ladder`, `page` and `compare` show a view.
"""
