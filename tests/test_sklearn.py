"""scikit-learn's own checks over every public estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdp import (
    BoundedScaler,
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    OPSPosteriorSampler,
    OPSRegressor,
)
from skdp.calibration import DPTemperatureScaler

# Checks that a public estimator is excused from, with the reason. Empty is the aim.
EXCUSED: dict[type, dict[str, str]] = {}


def excused(estimator):
    return EXCUSED.get(type(estimator), {})


# The checks seed every estimator, which is what the warning is about.
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
@parametrize_with_checks(
    [
        DPVariationalLogisticRegression(),
        DPVariationalLogisticRegression(inference="dpvi"),
        DPVariationalLogisticRegression(inference="dpvi", covariance="full"),
        DPVariationalPoissonRegression(),
        DPVariationalLinearRegression(),
        DPSGDClassifier(),
        DPSGDRegressor(),
        DPSGLDClassifier(),
        DPSGLDRegressor(),
        OPSPosteriorSampler(),
        OPSPosteriorSampler(delta=0),
        OPSRegressor(),
        OPSRegressor(delta=0, target_bounds=(-200, 200)),
        DPTemperatureScaler(DPVariationalLogisticRegression(random_state=0)),
        BoundedScaler(lower=-5.0, upper=5.0),
    ],
    expected_failed_checks=excused,
)
def test_sklearn_compatible(estimator, check):
    check(estimator)


def test_no_check_is_excused_without_a_reason():
    assert all(reason.strip() for checks in EXCUSED.values() for reason in checks.values())
