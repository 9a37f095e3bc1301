"""Each estimator on rows in chunks: the fit in memory, or a refusal by name before the charge."""

import numpy as np
import pytest
from chunks.common import charged, in_chunks
from contracts.subjects import RELEASING, with_facts

from skdp.engine.release_hook import record, rerun
from skdp.rows.bounded_sum import ROUNDING
from skdp.testing._subjects import good_data, relation_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:A column-vector"),
]
# Every number of a network's sum is in single precision, whose order of additions no bound covers
# (docs/privacy.md, §8); the rest is within what is declared.
REFUSED = {
    "DPAdditiveClassifier, private edges": "Or use declared edges",
    "DPAdditiveRegressor, private edges": "Or use declared edges",
    "DPAdditivePoissonRegressor, private edges": "Or use declared edges",
    "DPQuantileScaler": "Or use declared bounds",
    "DPBins": "Or use declared bounds",
    "OPSPosteriorSampler, two draws": "sampler='langevin'",
    "OPSPosteriorSampler, exact": "sampler='langevin'",
    "OPSRegressor, exact": "sampler='langevin'",
    "DPTemperatureScaler": "needs all rows at once",
    "DPConformalClassifier": "not an array",
    "DPConformalRegressor": "not an array",
    "DPRandomizedSearch": "not an array",
    "DPDisjointSearch": "not an array",
}


def is_refused(name):
    return name in REFUSED or name.partition(",")[0] in REFUSED


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", [name for name in RELEASING if not is_refused(name)])
def test_sums_of_chunks_at_the_states_of_a_fit_in_memory_are_its_sums(name, fixed):
    estimator = with_facts(name)
    X, y = good_data(estimator)
    with record() as tape:
        estimator.fit(X, y)
    n = len(X)
    for cuts in ([0, 3, 3, 10, 11, n], [*range(0, n, 2), n]):
        other = with_facts(name)
        once = charged(1, relation=relation_of(estimator))
        with once, rerun([release.output for release in tape]) as found:
            other.fit(in_chunks(cuts, X, y))
        assert other.privacy_.epsilon == estimator.privacy_.epsilon
        assert [one.call for one in found] == [one.call for one in tape]
        for one, whole in zip(found, tape, strict=True):
            off = np.linalg.norm(np.asarray(one.output) - np.asarray(whole.output))
            if one.call.kind == "discrete_gaussian":
                assert off == 0.0
            else:
                cells = one.call.width * np.asarray(one.output).size ** 0.5
                assert off <= one.call.sensitivity * ROUNDING + cells
        for prediction in ("predict", "predict_proba", "score_samples"):
            if hasattr(other, prediction):
                expected = getattr(estimator, prediction)(X)
                assert np.allclose(getattr(other, prediction)(in_chunks([0, 5, n], X, y)), expected)


@pytest.mark.parametrize("name", [name for name in RELEASING if is_refused(name)])
def test_what_needs_all_rows_at_once_is_refused_before_the_charge(name):
    estimator = with_facts(name)
    X, y = good_data(estimator)
    says = REFUSED.get(name) or REFUSED[name.partition(",")[0]]
    with charged(0, ValueError, says, relation=relation_of(estimator), n_releases=0):
        estimator.fit(in_chunks([0, 10, len(X)], X, y), None)
