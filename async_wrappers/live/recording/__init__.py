"""Recording of live runs: what was seen, drawn and sent on each frame, and when.

* `frame_rows`: the row of a frame; the ring in shared memory through which rows leave the environment loop, and the
  loop's side of it.
* `recording_files`: a recording's directory, which NumPy alone reads, and its writer.
* `writer`: the writer beside a run, in a process, in a thread or in the loop itself.
* `reader`: `load_recording`.
* `convert`: to Minari and to LeRobot datasets, and from the latter.
"""

from async_wrappers.live.recording.reader import Episode, Recording, load_recording

__all__ = ["Episode", "Recording", "load_recording"]
