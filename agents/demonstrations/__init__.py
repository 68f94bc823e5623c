"""Demonstrations: episodes of a person, a script or an agent, and their transitions under a delay.

* `demonstration`: an episode of frames.
* `dataset`: writes episodes to Minari datasets and reads them; `pickled` reads a pickle without running it.
* `players`, `recorder`: who plays, and the wrapper that records.
* `playback`: an episode played back under an agent's delay and spacing, as transitions.
"""
