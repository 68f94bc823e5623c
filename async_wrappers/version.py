"""The version, which files state beside their format."""

__all__ = ["__version__"]

__version__ = "0.1.0"
