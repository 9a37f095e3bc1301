"""How good a model is on private rows: one private release, everything else read off it."""

from skdp.evaluation.estimates import Estimate
from skdp.evaluation.evaluator import DPEvaluator, private_regression_report, private_report
from skdp.evaluation.report import (
    BinaryReport,
    CalibrationCurve,
    EvaluationReport,
    MulticlassReport,
    PrecisionRecallCurve,
    RegressionReport,
    RocCurve,
    ThresholdReport,
)

__all__ = [
    "BinaryReport",
    "CalibrationCurve",
    "DPEvaluator",
    "Estimate",
    "EvaluationReport",
    "MulticlassReport",
    "PrecisionRecallCurve",
    "RegressionReport",
    "RocCurve",
    "ThresholdReport",
    "private_regression_report",
    "private_report",
]
