"""Where the runs of `AsyncRunner` take place: processes, threads, or the virtual clock."""
