"""Pictures, drawn the way scikit-learn's displays are: arrays, then ``plot``.

``from_estimator`` and its siblings compute and draw; ``plot`` draws again, on other axes. Nothing
here needs matplotlib until something is drawn.
"""

from skdp.displays.additive import AdditiveDisplay
from skdp.displays.evaluation import ConfusionMatrixDisplay, PrecisionRecallDisplay, RocCurveDisplay
from skdp.displays.posterior import PosteriorDisplay
from skdp.displays.privacy_utility import PrivacyUtilityDisplay, UtilityCurve
from skdp.displays.reliability import ReliabilityDisplay
from skdp.displays.trace import TraceDisplay

__all__ = [
    "AdditiveDisplay",
    "ConfusionMatrixDisplay",
    "PosteriorDisplay",
    "PrecisionRecallDisplay",
    "PrivacyUtilityDisplay",
    "ReliabilityDisplay",
    "RocCurveDisplay",
    "TraceDisplay",
    "UtilityCurve",
]
