"""What a private estimator of your own package is made of.

`PrivateEstimator` is the base class of every private estimator and transformer of skdp;
`PublicFacts` is what its plan is made of, `FitPlan` the plan, `Records` the private rows.

>>> from skdp import DPVariationalLogisticRegression
>>> plan = DPVariationalLogisticRegression(epsilon=1.0).plan(569, 30, classes=[0, 1])
>>> plan.n_steps, round(plan.noise_multiplier, 1)
(21, 17.1)
"""

from skdp._fitting import PrivateEstimator, Records
from skdp._plan import Config, FitPlan, MissingFactError, PublicFacts
from skdp.privacy.budget import Budget

__all__ = [
    "Budget",
    "Config",
    "FitPlan",
    "MissingFactError",
    "PrivateEstimator",
    "PublicFacts",
    "Records",
]
