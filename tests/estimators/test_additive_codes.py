"""Fits of additive models pass over codes, and release what passes over rows do."""

import numpy as np
import pytest
from sklearn.base import clone

from skdp import DPAdditiveClassifier, DPAdditivePoissonRegressor, DPAdditiveRegressor, Persons
from skdp.algorithms.additive import OfCodes
from skdp.models.additive import Additive
from skdp.testing import fixed_streams, record_releases

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = 2000
FITS = {
    "two classes": (DPAdditiveClassifier, {"classes": [0, 1]}),
    "add or remove": (
        DPAdditiveClassifier,
        {"classes": [0, 1], "neighboring_relation": "add_or_remove_one"},
    ),
    "robust": (DPAdditiveClassifier, {"classes": [0, 1], "robust": True}),
    "three classes": (DPAdditiveClassifier, {"classes": [0, 1, 2]}),
    "numbers": (DPAdditiveRegressor, {"target_bounds": (-1, 1)}),
    "counts": (DPAdditivePoissonRegressor, {"largest_count": 4}),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("model", "options"), FITS.values(), ids=FITS)
def test_passes_over_codes_release_what_passes_over_rows_do(model, options, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 3))
    X[:5, 0] = np.nan
    y = (X[:, 1] > 0).astype(int)

    def released():
        with fixed_streams(), record_releases() as tape:
            model(epsilon=100.0, n_samples=N, n_bins=8, **options).fit(X, y)
        return tape

    with monkeypatch.context() as patch:
        patch.setattr(OfCodes, "coded", False)
        expected = released()
    monkeypatch.setattr(Additive, "rows", None)  # none are made
    for found, other in zip(released(), expected, strict=True):
        assert found.call == other.call
        # Both lie on the grid of the release, and sums differ by less than a step of it.
        np.testing.assert_allclose(
            found.output, other.output, rtol=0, atol=2.0**-19 * other.call.scale
        )


def test_rows_are_made_where_each_records_share_is_needed():
    n = 10**6
    model = DPAdditiveClassifier(classes=[0, 1], n_samples=n)
    persons = {"unit": Persons(n // 10)}
    for changes, coded in (({}, True), ({"secure": True}, False), (persons, False)):
        config = clone(model).set_params(**changes).plan(n_features=20).config
        assert config.coded == coded
        assert (config.memory < 8 * n * config.model.size) == coded
