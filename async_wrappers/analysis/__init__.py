"""Tools that answer questions before anything is trained: how many workers, how late, at what cost."""
