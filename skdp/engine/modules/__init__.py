"""Sums over the records of a torch module, its layer rules, and the trial of a module."""
