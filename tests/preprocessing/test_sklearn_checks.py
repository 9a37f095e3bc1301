"""scikit-learn's own checks over the transformers; none is excused."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdp.preprocessing import DPPCA, DPQuantileScaler, DPStandardScaler, NormClipper


# The checks seed every estimator, which is what the warning is about.
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
@parametrize_with_checks(
    [
        NormClipper(),
        NormClipper(norm=3.0),
        DPStandardScaler(lower=-100.0, upper=100.0),
        DPStandardScaler(lower=-100.0, upper=100.0, epsilon=float("inf")),
        DPQuantileScaler(),
        DPQuantileScaler(delta=0.0, lower=-100.0, upper=100.0),
        DPPCA(n_components=1),
        DPPCA(n_components=1, data_norm=100.0, epsilon=float("inf")),
    ]
)
def test_sklearn_compatible(estimator, check):
    check(estimator)
