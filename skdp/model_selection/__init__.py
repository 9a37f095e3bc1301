"""Whole workflows: one budget for a pipeline, every fit counted, and searches that are private."""

from skdp.model_selection.budgets import split_budget
from skdp.model_selection.callback import PrivacyLedgerCallback
from skdp.model_selection.disjoint_search import DPDisjointSearch
from skdp.model_selection.search import DPRandomizedSearch
from skdp.model_selection.splits import DisjointSplit

__all__ = [
    "DPDisjointSearch",
    "DPRandomizedSearch",
    "DisjointSplit",
    "PrivacyLedgerCallback",
    "split_budget",
]
