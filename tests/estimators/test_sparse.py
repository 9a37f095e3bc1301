"""Sparse X: the fit of the dense one, or a refusal that says what to do."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from skdp import (
    BoundedScaler,
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    NormClipper,
    OPSPosteriorSampler,
    Persons,
    PrivacyLedger,
)
from skdp.model_selection import DPDisjointSearch
from skdp.testing import fixed_streams

rng = np.random.default_rng(0)
X = sparse.random_array((300, 12), density=0.25, rng=rng, format="csr")
DENSE = X.toarray()
LINES = X @ rng.normal(size=12)
LABELS = (np.median(LINES) < LINES).astype(int)
LOGISTIC = {"classes": [0, 1], "n_samples": 300, "data_norm": 1.5, "delta": 1e-6}
FITS = {
    "noise-aware": (DPVariationalLogisticRegression(**LOGISTIC), LABELS),
    "dpvi": (
        DPVariationalLogisticRegression(inference="dpvi", covariance="diag", **LOGISTIC),
        LABELS,
    ),
    "vanilla": (
        DPVariationalLogisticRegression(
            inference="dpvi", covariance="diag", gradient="vanilla", **LOGISTIC
        ),
        LABELS,
    ),
    "batches": (
        DPVariationalLogisticRegression(inference="dpvi", sampling_rate=0.2, **LOGISTIC),
        LABELS,
    ),
    "without privacy": (DPVariationalLogisticRegression(float("inf"), **LOGISTIC), LABELS),
    "three classes": (
        DPVariationalLogisticRegression(**(LOGISTIC | {"classes": [0, 1, 2]})),
        np.arange(300) % 3,
    ),
    "robust": (DPVariationalLogisticRegression(robust=True, **LOGISTIC), LABELS),
    "counts": (
        DPVariationalPoissonRegression(n_samples=300, data_norm=1.5, delta=1e-6),
        np.arange(300) % 5,
    ),
    "numbers": (
        DPVariationalLinearRegression(
            n_samples=300, data_norm=1.5, delta=1e-6, target_bounds=(-3, 3)
        ),
        LINES,
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_and_its_predictions_are_those_of_the_dense_rows(name):
    model, y = FITS[name]
    if name == "without privacy":
        model.set_params(inference="dpvi", max_iter=20)
    found = []
    for rows in (X, DENSE):
        with fixed_streams(bytes(32)):
            model.fit(rows, y)
        draws = model.sample_predictive(rows[:5], 3, random_state=0)
        found.append((model.coef_, model.predict(rows), draws))
    for ours, dense in zip(*found, strict=True):
        np.testing.assert_allclose(ours, dense, atol=1e-9)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_other_formats_are_taken(kind):
    model = DPVariationalLogisticRegression(**LOGISTIC)
    assert get_tags(model).input_tags.sparse
    assert model.fit(kind(X), LABELS).predict(kind(X)).shape == (300,)


@pytest.mark.filterwarnings("ignore:Constructing a DIA matrix")
@pytest.mark.parametrize("kind", [sparse.coo_array, sparse.dia_array, sparse.bsr_array])
def test_a_search_on_parts_takes_rows_of_formats_that_have_none_to_take(kind):
    grid = {"prior_scale": [0.3, 3.0]}
    search = DPDisjointSearch(
        DPVariationalLogisticRegression(**LOGISTIC), grid, n_samples=300, delta=1e-6
    )
    assert search.fit(kind(X), LABELS).predict(X).shape == (300,)


def test_a_pipeline_stays_sparse_and_hands_on_the_norm():
    pipeline = make_pipeline(
        BoundedScaler(0.0, 2.0, center=False),
        NormClipper(1.0),
        DPVariationalLogisticRegression(classes=[0, 1], n_samples=300),
    ).fit(X, LABELS)
    assert pipeline[-1].data_norm_ == 1.0
    assert pipeline.predict_proba(X).shape == (300, 2)


def test_without_a_declared_norm_a_fit_warns_before_it_spends():
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=300)
    wide = sparse.hstack([X, sparse.csr_array((300, 50))])
    with pytest.warns(UserWarning, match=r"data_norm='auto', which is √62"):
        model.fit(wide, LABELS)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (DPSGDClassifier(classes=[0, 1]), "sparse_output=False"),
        (OPSPosteriorSampler(classes=[0, 1], n_samples=300), "sparse_output=False"),
        (DPStandardScaler(0, 1), "sparse_output=False"),
        (BoundedScaler(0, 1), "sparse_output=False"),
        (DPVariationalLogisticRegression(secure=True, **LOGISTIC), "secure=True"),
        (DPVariationalLogisticRegression(bounds=(0, 2), **LOGISTIC), "bounds='given'"),
    ],
)
def test_what_takes_no_sparse_rows_says_what_to_do(model, words):
    assert not get_tags(model).input_tags.sparse
    with pytest.raises((TypeError, ValueError), match=words):
        model.fit(X, LABELS)


def test_entries_that_add_up_to_infinity_are_refused_before_the_charge():
    # Each is finite, so that scikit-learn lets them pass; the sum is not, and neither is the norm.
    indptr = np.r_[0, 2, np.arange(3, 302)]
    where = np.r_[0, 0, np.zeros(299, dtype=int)]
    rows = sparse.csr_array((np.r_[1e308, 1e308, np.ones(299)], where, indptr), shape=(300, 3))
    model = DPVariationalLogisticRegression(**LOGISTIC)
    with PrivacyLedger() as ledger:
        for refused in (model.fit, NormClipper(1.0).fit):
            with pytest.raises(ValueError, match="Input X contains infinity"):
                refused(rows, LABELS)
        assert ledger.entries == ()


def test_persons_need_dense_rows():
    model = DPVariationalLogisticRegression(unit=Persons(100), **LOGISTIC)
    with pytest.raises(ValueError, match="Expected dense rows with persons"):
        model.fit(X, LABELS, groups=np.arange(300) // 3)


def test_bounds_by_column_name_are_those_in_the_order_of_the_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [10.0, 130.0], "bmi": [20.0, 30.0]})
    named = BoundedScaler({"bmi": 10, "age": 0}, pd.Series({"bmi": 50, "age": 120}))
    plain = BoundedScaler([0, 10], [120, 50])
    np.testing.assert_array_equal(named.fit_transform(frame), plain.fit_transform(frame))
    for wrong, words in (
        ({"age": 0}, "missing: bmi"),
        ({"age": 0, "bmi": 1, "weight": 2}, "not in X: weight"),
    ):
        with pytest.raises(ValueError, match=f"by its name, and no others.*{words}"):
            BoundedScaler(wrong, 200).fit(frame)
    with pytest.raises(ValueError, match="X must be a frame"):
        BoundedScaler({"age": 0, "bmi": 1}, 200).fit(frame.to_numpy())
