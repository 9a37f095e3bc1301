"""Bad parameters and bad data: an error that names the parameter, and nothing spent."""

import numpy as np
import pytest
from scipy import sparse

from skdp import DPVariationalLogisticRegression, PrivacyLedger

NAN, INF = float("nan"), float("inf")
SECRET = 8675309.125

BAD_PARAMETERS = [
    *[("epsilon", bad) for bad in (0, -1, NAN, -INF, "1", None, True, [1.0], 1j)],
    *[("delta", bad) for bad in (0, 1, -1e-5, 2, NAN, INF, "1e-5", None, True)],
    *[("clip_norm", bad) for bad in (0, -1, NAN, INF, "large", None, True)],
    *[("data_norm", bad) for bad in (0, -1, NAN, INF, "large", None, True)],
    *[("prior_scale", bad) for bad in (0, -1, NAN, INF, "wide", None)],
    *[("learning_rate", bad) for bad in (0, -1, NAN, INF, "fast", None)],
    *[("max_iter", bad) for bad in (0, -1, 1.5, NAN, INF, "many", None, True)],
    *[("batch_size", bad) for bad in (0, -1, 1.5, NAN, "all", None, True)],
    *[("sampling_rate", bad) for bad in (0, -0.5, 1.5, NAN, INF, "auto")],
    *[("neighboring_relation", bad) for bad in ("replace", None, 1)],
    *[("accountant", bad) for bad in ("best", None, 1)],
    *[("classes", bad) for bad in ([1], [], "ab", 3, [[0, 1]], [0, 0], [None, 1])],
    *[("n_samples", bad) for bad in (0, -1, 1.5, NAN, "many")],
]


@pytest.mark.parametrize(("name", "bad"), BAD_PARAMETERS)
def test_a_bad_parameter_is_named_before_anything_is_spent(name, bad, two_blobs):
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=f"Expected {name}=") as error:
        DPVariationalLogisticRegression(**{name: bad}).fit(*two_blobs)
    assert type(bad).__name__ in str(error.value)
    assert ledger.entries == ()


@pytest.mark.parametrize("bad", [0, -1, NAN, INF, "1", True])
def test_a_bad_noise_multiplier_is_named(bad, two_blobs):
    classifier = DPVariationalLogisticRegression(None, noise_multiplier=bad)
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="noise_multiplier="):
        classifier.fit(*two_blobs)
    assert ledger.entries == ()


def test_alternatives_may_not_both_be_given(two_blobs):
    both = DPVariationalLogisticRegression(1.0, noise_multiplier=2.0)
    with pytest.raises(ValueError, match=r"epsilon=1\.0.*None when noise_multiplier"):
        both.fit(*two_blobs)
    both = DPVariationalLogisticRegression(batch_size=10, sampling_rate=0.1)
    with pytest.raises(ValueError, match="batch_size=10"):
        both.fit(*two_blobs)


def test_add_or_remove_needs_a_declared_number_of_rows(two_blobs):
    classifier = DPVariationalLogisticRegression(neighboring_relation="add_or_remove_one")
    with pytest.raises(ValueError, match="n_samples=None"):
        classifier.fit(*two_blobs)


def with_value(value):
    def change(X, y):
        X = X.copy()
        X[3, 1] = value
        return X, y

    return change


BAD_DATA = {
    "NaN in X": (with_value(NAN), "NaN"),
    "inf in X": (with_value(INF), "infinity"),
    "-inf in X": (with_value(-INF), "infinity"),
    "one class": (lambda X, y: (X, np.zeros_like(y)), "one class"),
    "lengths differ": (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
    "sparse X": (lambda X, y: (sparse.csr_array(X), y), "toarray"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "no columns": (lambda X, y: (X[:, :0], y), "0 feature"),
    "one-dimensional X": (lambda X, y: (X[:, 0], y), "2D array"),
    "three-dimensional X": (lambda X, y: (X[:, :, None], y), "dim 3"),
    "text in X": (lambda X, y: (np.where(X > 9, X, f"patient {SECRET}"), y), "encode text"),
    "objects in X": (lambda X, y: ([["a", SECRET]] * 120, y), "encode text"),
    "complex X": (lambda X, y: (X + 1j, y), "[Cc]omplex"),
    "NaN in y": (lambda X, y: (X, np.where(y, NAN, 0.0)), "NaN"),
    "continuous y": (lambda X, y: (X, X[:, 0]), "[Uu]nknown label type"),
    "two columns of y": (lambda X, y: (X, np.column_stack([y, y])), "1d array|label type"),
    "no y": (lambda X, y: (X, None), "y"),
}


@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data_is_refused_before_anything_is_spent(kind, two_blobs):
    change, message = BAD_DATA[kind]
    X, y = change(*two_blobs)
    with (
        PrivacyLedger() as ledger,
        pytest.raises((ValueError, TypeError), match=message) as error,
    ):
        DPVariationalLogisticRegression().fit(X, y)
    assert ledger.entries == ()
    assert str(SECRET) not in str(error.value)


def test_more_rows_than_the_rounding_bound_covers_are_refused(two_blobs, monkeypatch):
    from skdp.algorithms import dp_vi

    monkeypatch.setattr(dp_vi, "MAX_ROWS", 119)
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="at most 119 rows"):
        DPVariationalLogisticRegression().fit(*two_blobs)
    assert ledger.entries == ()


def test_a_label_outside_the_declared_classes_is_not_quoted(two_blobs):
    X, y = two_blobs
    y = y.astype(float)
    y[5] = 8675309
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="declared classes") as error:
        DPVariationalLogisticRegression(classes=[0, 1]).fit(X, y)
    assert ledger.entries == ()
    assert "8675309" not in str(error.value)


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 1e-200])
def test_extreme_but_finite_values_give_a_valid_release(value, two_blobs):
    classifier = DPVariationalLogisticRegression().fit(*with_value(value)(*two_blobs))
    assert np.isfinite(classifier.coef_).all()
    assert classifier.privacy_.valid


@pytest.mark.parametrize(
    "shape", [(1, 3), (2, 30), (120, 1)], ids=["one row", "more columns than rows", "one column"]
)
def test_odd_shapes_give_a_valid_release(shape):
    X = np.random.default_rng(0).uniform(-1, 1, shape)
    y = np.arange(shape[0]) % 2
    classifier = DPVariationalLogisticRegression(classes=[0, 1]).fit(X, y)
    assert np.isfinite(classifier.predict_proba(X)).all()


def test_constant_columns_and_duplicates_give_a_valid_release():
    X, y = np.ones((1000, 4)), np.arange(1000) % 2
    classifier = DPVariationalLogisticRegression().fit(X, y)
    assert np.isfinite(classifier.coef_).all()


def test_prediction_before_fit_is_an_error(two_blobs):
    from sklearn.exceptions import NotFittedError

    X, _ = two_blobs
    for method in ("predict", "predict_proba", "decision_function", "sample_predictive"):
        with pytest.raises(NotFittedError):
            getattr(DPVariationalLogisticRegression(), method)(X)
    with pytest.raises(NotFittedError):
        DPVariationalLogisticRegression().sample_posterior()


@pytest.mark.parametrize("n_samples", [0, -1, 1.5, "1", None])
def test_a_number_of_draws_that_is_none_is_named(n_samples, two_blobs):
    classifier = DPVariationalLogisticRegression(max_iter=2).fit(*two_blobs)
    with pytest.raises(ValueError, match="n_samples="):
        classifier.sample_posterior(n_samples)
