"""The command line of `train.py`, one file per command. The one room of `agents` that knows async_wrappers too."""
