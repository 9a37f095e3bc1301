"""Slow, obvious versions that the fast paths are held against."""
