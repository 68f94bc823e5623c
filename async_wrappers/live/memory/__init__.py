"""Shared memory: fixed layouts of bytes, one writer for every number."""
