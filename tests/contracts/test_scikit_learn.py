"""scikit-learn's own checks over the registry; none is excused but from checks of weights."""

import pytest
from contracts.subjects import VARIANTS
from sklearn.base import is_classifier

from skdp import DPPCA, DPStandardScaler, DPVariationalLinearRegression
from skdp.testing import private_estimators
from skdp.testing._checks import check_scikit_learn

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")

AT_LENGTH = private_estimators(cheap=False)
# Of classifiers scikit-learn asks for an accuracy, which takes all of their steps.
LEARNS_NOTHING = dict.fromkeys(
    ("check_classifiers_train", "check_classifiers_classes"), "the settings are of two noisy steps"
)
# Of the relation where n is private, a fit is told it; a pair is of two features.
TOLD = {"DPVariationalLogisticRegression, add_or_remove_one": {"n_samples": 100}}
EXCUSED = {
    f"DPAdditive{kind}, pairs": {"check_fit2d_1feature": "a pair is of two features"}
    for kind in ("Classifier", "Regressor")
}
# Secure steps of a chain at length take minutes a check.
SLOWEST = ("DPSGLDClassifier, secure", "DPSGLDRegressor, secure")
# The others repeat what these show, and take longer.
QUICK = [
    "DPVariationalLogisticRegression, dpvi", "DPVariationalLinearRegression",
    "DPVariationalPoissonRegression, dpvi, Poisson", "DPVariationalModel", "DPSGDClassifier",
    "DPSGDRegressor", "DPSGLDClassifier", "DPSGLDRegressor", "OPSPosteriorSampler, exact",
    "OPSRegressor", "DPTemperatureScaler", "DPConformalClassifier", "DPRandomizedSearch",
    "DPPCA", "DPStandardScaler",
    "DPQuantileScaler", "DPQuantileScaler, pure", "DPBins", "DPBins, ordinal", "AdditiveFeatures",
    "AdditiveFeatures, splines", "AdditiveFeatures, onehot", "BoundedScaler", "NormClipper",
    "NormClipper, norm", "GaborTransformer", "ScatteringTransformer",
    "ScatteringTransformer, groups",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_LENGTH)
def test_scikit_learn_finds_nothing(name):
    estimator = AT_LENGTH[name].set_params(**TOLD.get(name, {}))
    if name in SLOWEST:
        learns = LEARNS_NOTHING if is_classifier(estimator) else {}
        check_scikit_learn(VARIANTS[name], learns)
    else:
        check_scikit_learn(estimator, EXCUSED.get(name))


@pytest.mark.quick(28)
@pytest.mark.parametrize("name", QUICK)
def test_scikit_learn_finds_nothing_in_a_few_steps(name):
    learns = LEARNS_NOTHING if is_classifier(VARIANTS[name]) else {}
    check_scikit_learn(VARIANTS[name], learns)


@pytest.mark.parametrize(
    "estimator",
    [
        DPStandardScaler(lower=-100.0, upper=100.0, epsilon=float("inf")),
        DPPCA(n_components=1, data_norm=100.0, epsilon=float("inf")),
        pytest.param(DPVariationalLinearRegression(float("inf")), marks=pytest.mark.slow),
    ],
)
def test_scikit_learn_finds_nothing_without_noise(estimator):
    check_scikit_learn(estimator)
