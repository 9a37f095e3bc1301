"""What a private estimator of your own package is made of.

`PrivateEstimator` is the base class of every private estimator and transformer of skdp, and
`ProtectedUnit`, before it among the bases, has the parameter ``unit`` of those that know persons.
`PublicFacts` is what a plan is made of, `FitPlan` the plan, `Records` the private rows. The checks
of input are scikit-learn's, with errors that quote no data.

>>> from skdp import DPVariationalLogisticRegression
>>> plan = DPVariationalLogisticRegression(epsilon=1.0).plan(569, 30, classes=[0, 1])
>>> plan.n_steps, round(plan.noise_multiplier, 1)
(18, 17.3)
"""

from typing import TYPE_CHECKING

from skdp.fitting.declared import encode_labels, n_classes
from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import check_features, check_features_and_labels, check_features_and_targets
from skdp.fitting.lazy import fetcher
from skdp.fitting.plan import Config, FitPlan, MissingFactError, PublicFacts
from skdp.fitting.reading import ProtectedUnit, Records
from skdp.fitting.scores import AccuracyMixin, R2Mixin

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

__all__ = [
    "AccuracyMixin",
    "Budget",
    "Config",
    "FitPlan",
    "MissingFactError",
    "PrivateEstimator",
    "ProtectedUnit",
    "PublicFacts",
    "R2Mixin",
    "Records",
    "check_features",
    "check_features_and_labels",
    "check_features_and_targets",
    "encode_labels",
    "n_classes",
]

__getattr__ = fetcher("skdp", {"privacy.budget": ("Budget",)})  # it imports the accountants
