"""Gin's text: files, bindings, what a run has not read."""
