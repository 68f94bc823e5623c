"""Demonstrations: episodes of a person, a script or an agent, and their transitions under a delay.

* `demonstration`: an episode of frames; the wrapper that records it, and the environment that plays it back under an
  agent's delay and spacing, as transitions.
* `players`: who plays.
* `dataset`: writes episodes to Minari datasets and reads them; `pickled` reads a pickle without running it.
"""
