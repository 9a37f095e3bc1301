"""Noisy sums of clipped per-record values, step by step; knows no scikit-learn and no ε."""
