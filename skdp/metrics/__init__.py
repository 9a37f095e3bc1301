"""Calibration of predicted probabilities.

Brier score and log-loss are scikit-learn's: `sklearn.metrics.brier_score_loss`, `log_loss`.
"""

from skdp.metrics.calibration import (
    adaptive_calibration_error,
    expected_calibration_error,
    static_calibration_error,
)
from skdp.metrics.reliability import ReliabilityTable, reliability_table

__all__ = [
    "ReliabilityTable",
    "adaptive_calibration_error",
    "expected_calibration_error",
    "reliability_table",
    "static_calibration_error",
]
