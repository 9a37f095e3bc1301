"""How good a model is on private rows: one private release, everything else read off it."""

from skdp.evaluation.base_report import EvaluationReport
from skdp.evaluation.curves import CalibrationCurve, PrecisionRecallCurve, RocCurve, ThresholdReport
from skdp.evaluation.estimates import Estimate
from skdp.evaluation.evaluator import DPEvaluator, private_regression_report, private_report
from skdp.evaluation.regression_report import RegressionReport
from skdp.evaluation.report import BinaryReport, MulticlassReport

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
