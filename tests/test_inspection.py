"""Coefficients in raw units equal what a hand computes, and what the fitted line says."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
)

from skdp import (
    DPPCA,
    BoundedScaler,
    DPAdditiveClassifier,
    DPQuantileScaler,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    NormClipper,
    OPSPosteriorSampler,
    OPSRegressor,
)
from skdp.inspection import summary

N = 400
RNG = np.random.default_rng(0)
AGE, DAYS = RNG.uniform(20, 90, N), RNG.uniform(0, 30, N)
X = np.column_stack([AGE, DAYS])
CLASSES = (AGE / 70 + DAYS / 30 + RNG.normal(0, 0.3, N) > 1.3).astype(int)
NUMBERS = AGE / 7 + DAYS
COUNTS = RNG.poisson(np.exp(DAYS / 30))
FREE = {"epsilon": float("inf"), "n_samples": N}
LOWER, UPPER = np.array([0.0, 0.0]), np.array([100.0, 40.0])
Z90 = stats.norm.ppf(0.95)


def bounded():
    return BoundedScaler(LOWER, UPPER)


def logistic(**more):
    return DPVariationalLogisticRegression(**FREE, **{"classes": [0, 1], **more})


def by_hand(fitted, A, b, n):
    """Mean and covariance of (coefficients, intercept) in raw units."""
    whole = np.zeros((n + 1, n + 1))
    whole[:n, :n], whole[n, :n], whole[n, n] = A, b, 1.0
    theta = np.append(np.ravel(fitted.coef_), fitted.intercept_)
    covariance = fitted.covariance_[: n + 1, : n + 1]
    return whole @ theta, whole @ covariance @ whole.T


@pytest.mark.parametrize(
    ("model", "y", "link"),
    [
        (logistic(), CLASSES, np.exp),
        (DPVariationalPoissonRegression(**FREE, largest_count=20), COUNTS, np.exp),
        (DPVariationalLinearRegression(**FREE, target_bounds=(0, 50)), NUMBERS, None),
    ],
    ids=["classes", "counts", "numbers"],
)
def test_a_table_equals_the_computation_by_hand(model, y, link):
    pipeline = make_pipeline(bounded(), model).fit(X, y)
    half, middle = (UPPER - LOWER) / 2, (UPPER + LOWER) / 2
    mean, covariance = by_hand(pipeline[-1], np.diag(1 / half), -middle / half, 2)
    sd = np.sqrt(np.diag(covariance))
    found = summary(pipeline, level=0.9)
    close = {"rtol": 1e-12, "atol": 1e-12}
    assert found.name == ("x0", "x1", "intercept")
    np.testing.assert_allclose(found.mean, mean, **close)
    np.testing.assert_allclose(found.sd, sd, **close)
    np.testing.assert_allclose(found.low, mean - Z90 * sd, **close)
    np.testing.assert_allclose(found.high, mean + Z90 * sd, **close)
    np.testing.assert_allclose(found.positive, stats.norm.cdf(mean / sd), **close)
    if link is None:
        assert found.ratio is None
    else:
        np.testing.assert_allclose(found.ratio, np.exp(mean), **close)
        np.testing.assert_allclose(found.ratio_high, np.exp(mean + Z90 * sd), **close)


SCALERS = {
    "bounded": bounded(),
    "standard": DPStandardScaler(lower=LOWER, upper=UPPER, epsilon=1e6, output_norm=100.0),
    "quantile": DPQuantileScaler(lower=LOWER, upper=UPPER, epsilon=1e6),
    "clipper": NormClipper(norm=1000.0),
    "projected": make_pipeline(bounded(), DPPCA(n_components=1, epsilon=float("inf"))),
    "public": make_pipeline(StandardScaler(), MinMaxScaler((-1, 1)), MaxAbsScaler()),
    "no mean": StandardScaler(with_mean=False),
    "no scale": StandardScaler(with_std=False),
    "columns": ColumnTransformer([("a", bounded().set_params(lower=0, upper=90), [1])],
                                 remainder=StandardScaler()),
    "nested": make_pipeline(
        ColumnTransformer([("keep", "passthrough", slice(0, 1)), ("s", StandardScaler(), [1])]),
        StandardScaler(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALERS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_the_line_in_raw_units_is_the_line_of_the_model(name, intercept):
    pipeline = make_pipeline(SCALERS[name], logistic(fit_intercept=intercept)).fit(X, CLASSES)
    found, model = summary(pipeline), pipeline[-1]
    scaled = pipeline[:-1].transform(X)
    # Where no step clips; the quantile scaler clips what is beyond its quantiles.
    inside = (np.abs(scaled) < 1).all(axis=1) if name == "quantile" else np.ones(N, bool)
    expected = scaled @ model.coef_[0] + model.intercept_[0]
    given = dict(zip(found.name, found.mean, strict=True))
    line = X @ [given["x0"], given["x1"]] + given.get("intercept", 0.0)
    np.testing.assert_allclose(line[inside], expected[inside], rtol=1e-6, atol=1e-9)
    assert inside.sum() > N / 2


def test_columns_that_are_made_keep_their_names_beside_raw_ones():
    frame = pd.DataFrame({"age": AGE, "ward": RNG.choice(["a", "b"], N), "days": DAYS})
    columns = ColumnTransformer([
        ("numbers", BoundedScaler(0, 100), ["age", "days"]),
        ("ward", OneHotEncoder(categories=[["a", "b"]], sparse_output=False), ["ward"]),
        ("again", "passthrough", ["age"]),
        ("bins", KBinsDiscretizer(2, encode="ordinal", quantile_method="averaged_inverted_cdf"),
         ["age"]),
    ])  # fmt: skip
    pipeline = make_pipeline(columns, NormClipper(200.0), logistic()).fit(frame, CLASSES)
    found, coef = summary(pipeline), pipeline[-1].coef_[0]
    expected = {
        "age": coef[0] / 50 + coef[4], "days": coef[1] / 50, "ward_a": coef[2], "ward_b": coef[3],
        "bins__age": coef[5], "intercept": pipeline[-1].intercept_[0] - coef[0] - coef[1],
    }  # fmt: skip
    assert sorted(found.name) == sorted(expected)
    for name, mean in zip(found.name, found.mean, strict=True):
        assert mean == pytest.approx(expected[name], rel=1e-9, abs=1e-12)
    assert any("KBinsDiscretizer" in note for note in found.notes)


def test_classes_have_a_block_each():
    y = np.digitize(AGE, [40, 60])
    pipeline = make_pipeline(bounded(), logistic(classes=[0, 1, 2])).fit(X, y)
    found = summary(pipeline)
    assert found.name[:4] == ("0: x0", "0: x1", "0: intercept", "1: x0")
    model = pipeline[-1]
    middle = model.coef_ - model.coef_.mean(axis=0)
    np.testing.assert_allclose(found.mean[3:5], middle[1] / [50, 20], rtol=1e-9)
    draws = model.sample_posterior(4000, random_state=0).reshape(4000, 3, 3)
    draws = (draws - draws.mean(axis=1, keepdims=True))[:, :, 0] / 50
    np.testing.assert_allclose(found.sd[::3], draws.std(axis=0), rtol=0.05)
    # The direction that classes have in common is the prior's: it hid what the rows say of each.
    assert found.positive[0] < 1e-6
    assert found.positive[6] > 1 - 1e-6
    assert "less the mean of all classes" in repr(found)
    assert found.ratio is None


@pytest.mark.thorough
def test_samples_have_quantiles_and_one_has_none():
    settings = {"epsilon": 10.0, "delta": 1e-5, "n_samples": N}
    several = OPSPosteriorSampler(**settings, classes=[0, 1], n_posterior_samples=5)
    pipeline = make_pipeline(bounded(), several).fit(X, CLASSES)
    draws, found = pipeline[-1].sample_posterior(), summary(pipeline, 0.5)
    raw = np.column_stack([draws[:, :2] / [50, 20], draws[:, 2] - draws[:, 0] - draws[:, 1]])
    np.testing.assert_allclose(found.mean, raw.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.low, np.quantile(raw, 0.25, axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.positive, (raw > 0).mean(0))
    one = OPSRegressor(**settings, target_bounds=(0, 50)).fit(bounded().fit_transform(X), NUMBERS)
    found = one.summary()
    np.testing.assert_allclose(found.mean, [*one.coef_, one.intercept_])
    assert np.isnan(found.low).all()
    assert "1 posterior sample." in repr(found)


def test_a_table_is_a_frame_a_dict_text_and_html():
    frame = pd.DataFrame(X, columns=["age <x>", "days"])
    pipeline = make_pipeline(bounded().set_output(transform="pandas"), logistic())
    found = summary(pipeline.fit(frame, CLASSES))
    table = found.to_frame()
    assert table.loc["days", "mean"] == found.mean[1]
    assert list(table.columns[:5]) == ["mean", "sd", "5 %", "95 %", "P(>0)"]
    assert found.to_dict()["name"] == ("age <x>", "days", "intercept")
    assert "odds ratio" in repr(found)
    html = found._repr_html_()
    assert "age &lt;x&gt;" in html
    assert "lower and upper" in html


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), DPAdditiveClassifier(), make_pipeline(StandardScaler())],
    ids=["peer", "additive", "transformer"],
)
def test_others_have_none(model):
    with pytest.raises(ValueError, match="linear model with a posterior"):
        summary(model)
    with pytest.raises(ValueError, match="level"):
        summary(model, level=2)
    with pytest.raises(ValueError, match="not fitted"):
        summary(make_pipeline(bounded(), logistic()))


class TestIntervalsOfThePrior:
    """Of a column that hardly varies the releases say little, and the table says which."""

    @staticmethod
    def fitted(**more):
        rng = np.random.default_rng(3)
        X = rng.uniform(-1, 1, (20_000, 4))
        X[:, 2] = np.clip(-0.8 + 0.01 * rng.standard_normal(20_000), -1, 1)
        y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.1, 0.1]))).astype(int)
        return DPVariationalLogisticRegression(
            1.0, 1e-6, classes=[0, 1], n_samples=20_000, **more
        ).fit(X, y)

    @staticmethod
    def believed(model, *scales):
        """The model, as if these prior scales had been found, over half the deviation of x2."""
        deviations = np.sqrt(np.diag(model.covariance_))
        assert deviations[2] > 2 * deviations[3]
        model.prior_scale_ = np.squeeze(2 * np.array(scales) * deviations[2])
        return model

    def test_it_is_named_and_not_below_a_quarter(self):
        model = self.fitted()
        note = self.believed(model, 0.95).summary().notes[-1]
        assert "say little of x2: a quarter" in note
        assert "learned from all coefficients" in note
        assert not self.believed(model, 1.05).summary().notes

    def test_by_the_scale_of_its_block(self):
        blocks = {"prior_blocks": ["two", "two", "others", "others"]}
        found = self.believed(self.fitted(**blocks), 1.05, 0.95)
        assert "little of x2: a quarter" in found.summary().notes[-1]
        low, high = (f"{scale:.2g}" for scale in found.prior_scale_[::-1])
        assert f"{low} to {high}" in found.summary().notes[-1]
        assert not self.believed(found, 0.95, 1.05).summary().notes

    def test_a_given_scale_was_not_learned_and_a_wide_one_does_not_decide(self):
        note = self.fitted(prior_scale=0.2).summary().notes[-1]
        assert "x2" in note
        assert "learned" not in note
        assert not self.fitted(prior_scale=30.0).summary().notes

    def test_in_the_units_before_a_scaler(self):
        pipeline = make_pipeline(BoundedScaler([0, 0], [100, 1e6]), logistic()).fit(X, CLASSES)
        assert "little of x1: a quarter" in summary(pipeline).notes[-1]


# --- of several units -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def incomes():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"income": rng.normal(40_000, 9_000, 2000), "sick": rng.random(2000) < 0.3})
    y = rng.random(2000) < 1 / (1 + np.exp(-(X["income"] - 40_000) / 9_000))
    model = DPVariationalLogisticRegression(
        3.0, bounds={"income": (0, 200_000), "sick": (0, 1)}, classes=[False, True], n_samples=2000
    )
    return model.fit(X.astype(float), y)


def test_effects_are_shown_of_as_many_units_as_are_asked_for(incomes):
    one, many = incomes.summary(), incomes.summary(per={"income": 10_000})
    assert many.name == ("income (per 1e+04)", "sick", "intercept")
    for field in ("mean", "sd", "low", "high"):
        first, second = getattr(one, field), getattr(many, field)
        np.testing.assert_allclose(second, first * [10_000, 1, 1])
    np.testing.assert_allclose(many.ratio, np.exp(many.mean))
    deviations = incomes.summary(per="sd")
    np.testing.assert_allclose(deviations.mean[:2], one.mean[:2] * incomes.column_scale_)
    np.testing.assert_allclose(incomes.summary(per=5).mean, one.mean * [5, 5, 1])


def test_a_ratio_has_the_digits_that_tell_it_from_1(incomes):
    (line,) = [line for line in repr(incomes.summary()).splitlines() if line.startswith("income")]
    assert " 1.000" in line
    assert all(float(cell) > 1.0 for cell in line.split()[-3:])


@pytest.mark.parametrize("per", [{"other": 1}, 0, -1.0, "unit", {"income": "many"}])
def test_units_that_are_none(incomes, per):
    with pytest.raises(ValueError, match="per"):
        incomes.summary(per=per)


def test_the_prior_is_of_standardised_columns(incomes):
    assert not [note for note in incomes.summary().notes if "income" in note]
