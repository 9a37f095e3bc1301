"""A whole private pipeline: what leaves it is the trace and nothing else, from a raw table on."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdp import DPVariationalLogisticRegression, PrivacyLedger
from skdp.engine import release_hook
from skdp.model_selection import split_budget
from skdp.preprocessing import DPStandardScaler, NormClipper
from skdp.privacy import privacy_of
from skdp.testing import fixed_streams

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.uniform(20, 80, N),
        "income": np.where(RNG.random(N) < 0.2, np.nan, RNG.uniform(0, 9e4, N)),
        "work": RNG.choice(np.array(["farm", "office", None], dtype=object), N),
    }
)
Y = (TABLE["age"] > 50).to_numpy().astype(int)


def pipeline(numbers=None):
    columns = ColumnTransformer(
        [
            ("numbers", numbers or DPStandardScaler([0, 0], [100, 1e5]), ["age", "income"]),
            (
                "work",
                OneHotEncoder(
                    categories=[["farm", "office"]], handle_unknown="ignore", sparse_output=False
                ),
                ["work"],
            ),
        ]
    )
    classifier = DPVariationalLogisticRegression(classes=[0, 1], n_samples=N, max_iter=3)
    return split_budget(make_pipeline(columns, NormClipper(3**0.5), classifier), 2.0, 1e-5)


def neighbours():
    """Tables that differ from TABLE in one record, every number as an age and as an income."""
    numbers = [0.0, -1e300, 1e308, 5e-324, np.nan, 33.0]
    words = ["farm", "moon", None, ""]
    yield TABLE.iloc[1:], Y[1:]
    for i, number in enumerate(numbers):
        for j, columns in enumerate((["age"], ["income"], ["age", "income"])):
            row = TABLE.iloc[[0]].copy()
            row[columns] = number
            row["work"] = pd.Series([words[(i + j) % 4]], dtype=TABLE["work"].dtype)
            rest = slice((i + j) % 2, None)  # replaces a record or is one more
            yield (
                pd.concat([TABLE.iloc[rest], row], ignore_index=True),
                np.append(Y[rest], i // 2 % 2),
            )


def public_state(fitted):
    classifier = {k: v for k, v in vars(fitted[-1]).items() if k != "_likelihood"}
    numbers = vars(fitted[0].named_transformers_["numbers"])
    answers = fitted.predict_proba(TABLE)
    return pickle.dumps((classifier, numbers, answers)), repr(fitted), repr(privacy_of(fitted))


@pytest.mark.thorough
def test_with_the_releases_frozen_nothing_depends_on_the_table():
    with fixed_streams():
        with release_hook.record() as tape, PrivacyLedger() as ledger:
            first = public_state(pipeline().fit(TABLE, Y))
        for other in neighbours():
            outputs = [release.output for release in tape]
            with release_hook.replay(outputs) as again, PrivacyLedger() as charged:
                second = public_state(pipeline().fit(*other))
            assert [release.call for release in again] == [release.call for release in tape]
            assert second == first
            assert charged.entries == ledger.entries


def test_the_same_with_a_leaking_scaler_is_found_out():
    other = TABLE.copy()
    other.loc[0, "age"] = 100.0
    with fixed_streams():
        with release_hook.record() as tape:
            first = pipeline(StandardScaler()).fit(TABLE.fillna({"income": 0.0}), Y)
        with release_hook.replay([release.output for release in tape]):
            second = pipeline(StandardScaler()).fit(other.fillna({"income": 0.0}), Y)
    means = [model[0].named_transformers_["numbers"].mean_ for model in (first, second)]
    assert means[0][0] != means[1][0]
    assert not privacy_of(first).valid


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_frames_in_and_between(frame, output):
    columns = {name: [None if pd.isna(v) else v for v in TABLE[name]] for name in TABLE}
    table = frame(columns)
    model = pipeline().set_output(transform=output).fit(table, Y)
    probabilities = model.predict_proba(table)
    assert probabilities.shape == (N, 2)
    assert np.isfinite(probabilities).all()
    assert 2.0 - 1e-8 <= privacy_of(model).epsilon <= 2.0


def test_a_category_that_nobody_declared_changes_no_width():
    model = pipeline().fit(TABLE, Y)
    new = TABLE.assign(work="moon", income=np.nan)
    rows = model[:-1].transform(new)
    np.testing.assert_array_equal(rows[:, 1:], 0.0)  # the private mean, and no category
    assert np.isfinite(model.predict_proba(new)).all()


def test_the_norm_reaches_the_classifier():
    assert pipeline().fit(TABLE, Y)[-1].data_norm_ == pytest.approx(3**0.5)
    assert clone(pipeline()).fit(TABLE, Y)[-1].data_norm_ == pytest.approx(3**0.5)
