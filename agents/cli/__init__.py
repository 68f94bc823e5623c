"""The command line of `train.py`, one file per command; this package imports both agents and async_wrappers."""
