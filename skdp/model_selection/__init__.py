"""Whole workflows: one budget for a pipeline, every fit counted, and a search that is private."""

from skdp.model_selection.budgets import split_budget

__all__ = ["split_budget"]
