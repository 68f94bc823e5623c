"""Gin files; packages, so that ``include "configs/..."`` is found from any working directory."""
