"""Check that an estimator keeps what skdp promises: ours, or one that was built on skdp.

>>> from skdp.testing import check_private_estimator, private_estimators
>>> scaler = private_estimators()["DPStandardScaler"]
>>> check_private_estimator(scaler)

The parts that the checks are made of serve for tests of your own: data sets that differ in one
record (`neighbours`) or in all rows of a person (`neighbouring_persons`), the same random bits for
two fits (`fixed_streams`), and the releases of one fit handed to another (`record_releases`,
`replay_releases`).
"""

from skdp.testing._checks import check_private_estimator, private_estimator_checks
from skdp.testing._inputs import bad_inputs
from skdp.testing._registry import private_estimators
from skdp.testing._replay import (
    fixed_streams,
    neighbouring_persons,
    neighbours,
    record_releases,
    replay_releases,
)

__all__ = [
    "bad_inputs",
    "check_private_estimator",
    "fixed_streams",
    "neighbouring_persons",
    "neighbours",
    "private_estimator_checks",
    "private_estimators",
    "record_releases",
    "replay_releases",
]
