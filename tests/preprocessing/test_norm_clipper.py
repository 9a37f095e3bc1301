import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skdp.preprocessing import NormClipper
from skdp.privacy import PrivacyLedger
from skdp.rows.bounds import row_norm

ROWS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    elements=st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([0.0, -0.0, 1e300, -1.7e308, 5e-324, 1e-160]),
    ),
)
NORMS = st.sampled_from([1e-99, 1e-8, 0.3, 1.0, 7.0, 1e99])


def exact_norms(rows):
    return np.array([float(np.hypot.reduce(row)) for row in np.asarray(rows)])


@given(ROWS, NORMS)
def test_no_row_exceeds_the_norm_and_none_within_is_changed(X, norm):
    out = NormClipper(norm).fit_transform(X)
    assert (exact_norms(out) <= norm * (1 + 1e-14)).all()
    with np.errstate(over="ignore"):
        within = exact_norms(X) < norm * (1 - 1e-14)
    assert np.asarray(out)[within].tobytes() == X[within].tobytes()


@given(ROWS, NORMS)
def test_a_clipped_row_keeps_its_direction_and_has_the_norm(X, norm):
    with np.errstate(over="ignore"):
        beyond = exact_norms(X) > norm * (1 + 1e-14)
    out = np.asarray(NormClipper(norm).fit_transform(X))[beyond]
    assert exact_norms(out) == pytest.approx(norm, rel=1e-14)
    X = X[beyond] / np.abs(X[beyond]).max(axis=1, keepdims=True)
    np.testing.assert_allclose(out / norm, X / exact_norms(X)[:, None], atol=1e-14)


def test_auto_is_the_root_of_the_number_of_features():
    clipper = NormClipper().fit(np.zeros((2, 9)))
    assert clipper.output_norm_ == 3.0
    assert row_norm(clipper.transform(np.ones((2, 9)))) == 3.0


def test_fit_reads_no_value_and_is_charged_nothing():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with PrivacyLedger() as ledger:
        first, second = NormClipper(2.0).fit(X), NormClipper(2.0).fit(1e300 * X[:5])
    assert vars(first) == vars(second)
    assert ledger.entries == ()
    assert not hasattr(first, "privacy_")


def test_names_are_kept_and_frames_are_taken():
    frame = pd.DataFrame({"a": [3.0, 0.1], "b": [4.0, 0.2]})
    clipper = NormClipper(1.0).set_output(transform="pandas")
    out = clipper.fit_transform(frame)
    assert out.columns.tolist() == ["a", "b"]
    np.testing.assert_allclose(out, [[0.6, 0.8], [0.1, 0.2]])
    np.testing.assert_allclose(NormClipper(1.0).fit_transform(pl.from_pandas(frame)), out)
    assert clipper.get_feature_names_out().tolist() == ["a", "b"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        NormClipper().fit([[1.0, value]])
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        NormClipper().fit([[1.0, 2.0]]).transform([[1.0, value]])
