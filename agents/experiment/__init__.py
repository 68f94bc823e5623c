"""Experiments as in Dopamine: iterations of whole episodes, checkpoints, metrics, evaluation, one file each."""
