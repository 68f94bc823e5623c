"""What somebody else did, frame by frame, and what an agent under delay would have seen of it.

* `demonstration`: an episode of frames.
* `dataset`: episodes in a Minari dataset; `pickled`: episodes in a pickle, read without running what is in it.
* `players`, `recorder`: who plays, and what writes it down.
* `playback`: an episode played back under the delay and the spacing of an agent, as its transitions.
"""
