"""The version, in a leaf of its own so that reports can state it."""

__version__ = "0.3.0"
