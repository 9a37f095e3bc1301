"""The cheapest private estimator: one noisy sum, and in its fit what a test puts there."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from skdp.base import PrivateEstimator, Records
from skdp.mechanisms import GaussianMechanism


@dataclass(frozen=True)
class SumConfig:
    mechanism: GaussianMechanism
    n_releases = 1
    sampling = "full batch, 1 release"

    def event(self):
        return self.mechanism.event()

    def run(self, records, streams, progress=iter):
        total = np.clip(records.X[:, 0], -1, 1).sum()
        return float(self.mechanism.release(total, streams("noise"), charged=True))


@dataclass(eq=False, repr=False)
class PrivateSum(PrivateEstimator):
    """Releases the sum of a column in [-1, 1]; ``before`` runs before the charge."""

    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    before: Any = None
    neighboring_relation: str = "zero_out"
    random_state: Any = None

    def _read(self, X, y):
        X = np.asarray(X, dtype=float)
        if self.before is not None:
            self.before(self, X)
        return Records(X, X[:, 0]), self._facts_of(X)

    def _configure(self, facts, budget):
        mechanism = GaussianMechanism.from_budget(
            epsilon=budget.epsilon,
            delta=budget.delta,
            record_norm=1.0,
            neighboring_relation=budget.neighboring_relation,
        )
        return SumConfig(mechanism)

    def _keep(self, plan, released):
        self.total_ = released
