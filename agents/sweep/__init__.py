"""Sweeps: many trials of one experiment, and their table and figures.

* `grid`, `plan`: which points a sweep tries; how it is run, and the plan that its directory keeps.
* `trial`: one trial, its process and its files; the pool that runs trials on this machine.
* `sweeping`: runs the remaining trials of a plan, on the pool or with `ray_engine` on Ray.
* `results`: the table and the manifest; TensorBoard and Weights & Biases.
* `view`: the table as panels of curves and as regret ladders. `figures` draws a view; `result_pages` makes the page
  of it, and compares two results.
"""
