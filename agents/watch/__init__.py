"""Runs and sweeps as they go on, read from the files that they write, and shown in a browser or a terminal.

`reading` reads a file again only when it has changed. `watched_run`, `last_shown`, `watched_sweep` and `machine_load`
turn a directory, or this machine, into plain records; `watcher` finds the directories and joins the records. `browser`
and `text` are two faces of the same records. Nothing here writes, imports PyTorch, or speaks to a run.
"""
