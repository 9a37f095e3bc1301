"""What is charged and answered: ledgers, marks, persons, missing values, messages, intervals."""

import itertools
import math
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest

from skdp import (
    BudgetExceededError,
    DisjointSplit,
    FitWarning,
    Persons,
    PrivacyLedger,
    PrivacyWarning,
    privacy_of,
    statistics,
)
from skdp.engine import release_hook
from skdp.fitting.streams import SecureStream
from skdp.relations import Relation
from skdp.statistics import (
    dp_count,
    dp_covariance,
    dp_histogram,
    dp_mean,
    dp_quantile,
    dp_sum,
    dp_var,
)
from skdp.statistics.moments import Share
from skdp.statistics.variances import VarConfig

X = np.random.default_rng(0).normal(40.0, 10.0, (400, 2))
BOUNDS = {"lower": 0.0, "upper": 100.0}
ALL = {f.__name__: partial(f, **BOUNDS) for f in (dp_sum, dp_mean, dp_var, dp_quantile)} | {
    "dp_count": dp_count,
    "dp_histogram": partial(dp_histogram, bins=5, **BOUNDS),
    "dp_covariance": lambda x, **kw: dp_covariance(
        x if np.ndim(x) == 2 else x[:, None], **BOUNDS | kw
    ),
}
each = pytest.mark.parametrize("name", ALL)
RELATIONS = ("zero_out", "add_or_remove_one", "replace_one")


@each
@pytest.mark.parametrize("relation", RELATIONS)
def test_each_is_charged_its_epsilon_before_a_value_is_used(name, relation):
    charged = []

    def check(call, mechanism):
        charged.append(ledger.total(0.0))
        return mechanism()

    token = release_hook._hook.set(check)
    try:
        with PrivacyLedger(neighboring_relation=relation) as ledger:
            shown = ALL[name](X, epsilon=0.7, neighboring_relation=relation)
    finally:
        release_hook._hook.reset(token)
    assert charged
    assert charged == pytest.approx([0.7] * len(charged))
    assert [entry.label for entry in ledger.entries] == [name]
    assert shown.privacy_.epsilon == pytest.approx(0.7)
    assert shown.privacy_.epsilon <= 0.7
    assert (shown.privacy_.delta, shown.privacy_.valid) == (0.0, True)
    assert repr(shown).startswith(f"{name}: ")


@each
def test_a_ledger_refuses_what_is_beyond_its_ceiling(name):
    with PrivacyLedger(epsilon=0.7, delta=1e-6), release_hook.record() as tape:
        ALL[name](X, epsilon=0.7)
        n_releases = len(tape)
        with pytest.raises(BudgetExceededError):
            ALL[name](X, epsilon=0.1)
    assert len(tape) == n_releases


def test_a_statement_lists_what_was_declared_and_nothing_of_the_code():
    (given,) = dp_mean(X, **BOUNDS, epsilon=0.5).privacy_.settings
    assert given.startswith("dp_mean: n_samples=400, lower=")
    assert not {"config", "name", "options"} & {part.split("=")[0] for part in given.split(", ")}


def test_parts_of_a_split_are_charged_by_the_maximum():
    split = DisjointSplit(400)
    one = dp_mean(split.take("train", X), **BOUNDS, epsilon=0.5)
    other = dp_mean(split.take("test", X), **BOUNDS, epsilon=0.5)
    again = dp_mean(X, **BOUNDS, epsilon=0.5)
    assert privacy_of(one, other).epsilon == pytest.approx(0.5, rel=1e-4)
    assert privacy_of(one, other, again).epsilon == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("name", ["dp_sum", "dp_mean", "dp_var", "dp_covariance"])
def test_a_number_of_values_that_is_taken_as_public_is_said(name):
    for missing in (False, True):
        shown = ALL[name](X, epsilon=1.0, missing=missing)
        assert ("number of values" in str(shown.privacy_.assumptions)) != missing


@each
def test_a_seed_repeats_the_release_and_voids_the_guarantee(name):
    shown = []
    for _ in range(2):
        with pytest.warns(match="random_state"), PrivacyLedger() as ledger:
            shown.append(ALL[name](X, epsilon=1.0, random_state=3))
        assert not ledger.valid
    assert not shown[0].privacy_.valid
    assert "NOT a guarantee" in repr(shown[0])
    np.testing.assert_array_equal(shown[0].value, shown[1].value)
    # Another data set has other noise.
    with pytest.warns(match="random_state"):
        other = ALL[name](np.where(X > 60, 61.0, X), epsilon=1.0, random_state=3)
    if name in ("dp_count", "dp_mean", "dp_sum"):
        assert not np.array_equal(shown[0].value, other.value)


EXACT = {
    "dp_count": lambda x: len(x),
    "dp_sum": np.sum,
    "dp_mean": np.mean,
    "dp_var": np.var,
    "dp_quantile": lambda x: np.quantile(x, 0.5, method="inverted_cdf"),
    "dp_histogram": lambda x: np.histogram(x, 5, (0, 100))[0],
    "dp_covariance": np.var,
}


@each
@pytest.mark.parametrize("relation", RELATIONS)
def test_with_a_large_budget_the_statistic_is_that_of_the_values_there_are(name, relation):
    x = np.random.default_rng(1).uniform(20, 70, 20_000)
    for rows in (x, np.where(x < 30, np.nan, x)):
        kw = {"missing": True} if name not in ("dp_count", "dp_quantile", "dp_histogram") else {}
        shown = ALL[name](rows, epsilon=50.0, neighboring_relation=relation, **kw)
        exact = np.ravel(EXACT[name](rows[~np.isnan(rows)]))
        np.testing.assert_allclose(np.ravel(shown.value), exact, rtol=0.01, atol=2)
        assert (np.ravel(shown.low) <= np.ravel(shown.value)).all()
        assert (np.ravel(shown.value) <= np.ravel(shown.high)).all()


@each
def test_columns_have_statistics_of_their_own_and_share_epsilon(name):
    shown = ALL[name](np.tile(X, (50, 1)), epsilon=50.0)
    if name == "dp_covariance":
        np.testing.assert_allclose(shown.value, np.cov(X.T, ddof=0), atol=1)
        return
    for j in range(2):
        exact = np.ravel(EXACT[name](np.tile(X[:, j], 50)))
        np.testing.assert_allclose(np.ravel(shown.value[..., j]), exact, rtol=0.01, atol=2)
    assert shown.privacy_.epsilon == pytest.approx(50.0)


@each
def test_persons_are_protected_with_all_of_their_rows(name):
    groups = np.repeat(np.arange(200), 2)
    kw = {"unit": Persons(max_rows=2), "groups": groups}
    with PrivacyLedger(unit="group") as ledger:
        shown = ALL[name](X, epsilon=1.0, **kw)
    assert ledger.total(0.0) == pytest.approx(1.0)
    assert shown.privacy_.unit == "group"
    with pytest.raises(ValueError, match="groups"):
        ALL[name](X, epsilon=1.0, unit=Persons(max_rows=2))
    if name != "dp_quantile":
        with pytest.raises(ValueError, match="max_rows=None"):
            ALL[name](X, epsilon=1.0, unit=Persons(), groups=groups)


BAD = [
    ({"epsilon": 0}, "epsilon=0"),
    ({"epsilon": -1.0}, "epsilon=-1"),
    ({"epsilon": math.nan}, "epsilon=nan"),
    ({"epsilon": math.inf}, "epsilon=inf"),
    ({"epsilon": "1"}, "epsilon='1'"),
    ({"level": 1.0}, "level=1"),
    ({"neighboring_relation": "zeroed"}, "neighboring_relation='zeroed'"),
    ({"unit": "person"}, "unit='person'"),
    ({"unit": "group"}, "unit='group'.*Persons"),
    ({"unit": Persons(2), "groups": range(len(X))}, "Persons with max_rows alone"),
    ({"random_state": "s"}, "random_state='s'"),
]
BAD_BOUNDS = [
    ({"lower": 100.0, "upper": 0.0}, "lower=100"),
    ({"lower": 1.0, "upper": 1.0}, "lower=1"),
    ({"upper": math.inf}, "upper=inf"),
    ({"lower": "0"}, "lower='0'"),
    ({"upper": 1e200}, "upper=1e"),
]


@each
def test_wrong_parameters_are_named_before_the_charge(name):
    bad = BAD if name == "dp_count" else BAD + BAD_BOUNDS
    with PrivacyLedger() as ledger:
        for given, match in bad:
            with pytest.raises(ValueError, match=match):
                ALL[name](X, **{"epsilon": 1.0} | given)
    assert not ledger.entries


def test_quantiles_outside_0_1_and_edges_that_are_none_are_refused():
    for q in (-0.1, 1.1, math.nan, "0.5", [0.5, 2.0], [], True):
        with pytest.raises(ValueError, match="quantile="):
            dp_quantile(X, q, **BOUNDS, epsilon=1.0)
    for bins in (0, 1.5, [1.0], [2.0, 1.0], [0.0, math.inf], "auto"):
        with pytest.raises(ValueError, match="bins="):
            dp_histogram(X, bins, epsilon=1.0, **({} if isinstance(bins, list) else BOUNDS))


@each
@pytest.mark.parametrize(
    "values",
    [[["secret7"]], [["3.25"], ["4.5"]], np.zeros((2, 2, 2)), [[{"a": 7.125}]], [[1], [2, 3]]],
    ids=str,
)
def test_messages_about_values_hold_none_of_them(name, values):
    function = getattr(statistics, name)
    bounds = {} if name == "dp_count" else BOUNDS
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="Expected values") as error:
        function(values, epsilon=1.0, **bounds)
    assert not ledger.entries
    for secret in ("secret7", "3.25", "7.125"):
        assert secret not in str(error.value)


@pytest.mark.parametrize("name", ["dp_sum", "dp_mean", "dp_var", "dp_covariance"])
def test_missing_values_under_a_public_number_are_refused_with_the_remedy(name):
    with pytest.raises(ValueError, match="missing=True"):
        ALL[name](np.where(X > 60, np.nan, X), epsilon=1.0)


@each
def test_no_rows_are_rows_too_where_their_number_is_private(name):
    """An error would tell that the last row is gone."""
    kw = {"neighboring_relation": "add_or_remove_one", "epsilon": 1.0}
    shown = ALL[name](np.zeros((0, 2)), **kw)
    assert np.isfinite(shown.value).all()
    if name != "dp_covariance":
        assert np.isfinite(ALL[name]([], **kw).value).all()


def test_infinities_are_clipped_and_masked_and_none_are_missing():
    x = np.ma.masked_array([1.0, 50.0, 3.0], mask=[False, True, False])
    assert dp_count(x, epsilon=50.0).value == 2
    assert dp_count([1.0, None, 3], epsilon=50.0).value == 2
    assert dp_count([True, False, None], epsilon=50.0).value == 1
    values = [np.inf, -np.inf] * 1000
    assert dp_mean(values, **BOUNDS, epsilon=50.0).value == pytest.approx(50, abs=0.1)


# --- intervals ------------------------------------------------------------------------------------

RUNS = 300
SLACK = 4 * (0.1 * 0.9 / RUNS) ** 0.5


def coverage(release, exact):
    held = []
    for _ in range(RUNS):
        shown = release()
        held.append((np.asarray(shown.low) <= exact) & (exact <= np.asarray(shown.high)))
    return np.mean(held, axis=0)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("relation", "n", "epsilon"),
    [("add_or_remove_one", 50, 0.2), *((relation, 1000, 0.5) for relation in RELATIONS)],
)
@pytest.mark.parametrize("name", ["dp_count", "dp_sum", "dp_mean", "dp_var"])
def test_intervals_hold_as_often_as_they_say_for_the_data(name, n, epsilon, relation):
    x = np.random.default_rng(n).exponential(20.0, n).clip(0, 100)
    exact = EXACT[name](x)
    kw = {"epsilon": epsilon, "neighboring_relation": relation}
    found = coverage(lambda: ALL[name](x, **kw), exact)
    assert found > 0.9 - SLACK
    if n == 1000 and name != "dp_var":  # and no oftener: counts alone are coarse
        assert found < 0.9 + SLACK + (0.05 if name == "dp_count" else 0)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("relation", "delta"), [("zero_out", 0.0), ("replace_one", 1e-5), ("add_or_remove_one", 1e-5)]
)
def test_intervals_of_covariances_hold(relation, delta):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 100, (500, 3)) @ [[1, 0.5, 0], [0, 0.5, 0], [0, 0, 1]]
    kw = {"epsilon": 1.0, "delta": delta, "neighboring_relation": relation, **BOUNDS}
    found = coverage(lambda: dp_covariance(x, **kw), np.cov(x.T, ddof=0))
    assert found.min() > 0.9 - SLACK


@pytest.mark.thorough
@pytest.mark.parametrize("of", ["data", "population"])
def test_intervals_of_means_and_quantiles_hold_for_whom_they_say(of):
    rng = np.random.default_rng(0)
    rows = rng.exponential(20.0, 400)
    mean, median = 20.0 - 20.0 * math.exp(-5.0), 20.0 * math.log(2)  # of values cut at 100
    if of == "data":
        mean, median = rows.clip(0, 100).mean(), EXACT["dp_quantile"](rows)

    def fresh():
        return rows if of == "data" else rng.exponential(20.0, 400)

    kw = {"epsilon": 2.0, "interval_of": of, **BOUNDS}
    assert coverage(lambda: dp_mean(fresh(), **kw), mean) > 0.9 - SLACK
    kw |= {"neighboring_relation": "add_or_remove_one"}
    assert coverage(lambda: dp_mean(fresh(), **kw), mean) > 0.9 - SLACK
    shown = dp_quantile(fresh(), interval_share=0.5, **kw)
    assert shown.low > 0 or shown.high < 100
    assert coverage(lambda: dp_quantile(fresh(), interval_share=0.5, **kw), median) > 0.9 - SLACK


def test_an_interval_for_the_data_misses_the_population_when_noise_is_small():
    """The claim of whose interval it is can fail: with little noise it says nothing of sampling."""
    rng = np.random.default_rng(0)
    found = coverage(lambda: dp_mean(rng.exponential(20.0, 400), **BOUNDS, epsilon=50.0), 19.87)
    assert found < 0.3


@pytest.mark.parametrize(("times", "inside"), [(1.1, True), (0.6, False)])
@pytest.mark.parametrize("q", [0.25, 0.5, 0.75])
def test_a_quantile_gets_an_end_inside_the_range_at_the_documented_budget(q, times, inside):
    values = np.random.default_rng(0).normal(14.0, 3.5, 1000)
    epsilon = times * 150 / min(q, 1 - q) / (0.5 * 1000)
    kw = {"lower": 0.0, "upper": 50.0, "epsilon": epsilon, "interval_share": 0.5}
    with pytest.warns(match="random_state"):
        shown = dp_quantile(values, q, random_state=0, **kw)
    end, bound = (shown.low, 0.0) if q <= 0.5 else (shown.high, 50.0)
    assert (end != bound) == inside


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("relation", "moved"), [("zero_out", 1), ("replace_one", 2)])
def test_histograms_have_geometric_noise_of_the_stated_scale(relation, moved):
    x, edges = np.repeat(np.arange(200) + 0.5, 1000), np.arange(201.0)
    kw = {"epsilon": 1.0, "neighboring_relation": relation}
    noise = np.concatenate([dp_histogram(x, edges, **kw).value - 1000 for _ in range(20)])
    p = math.exp(-1.0 / moved)
    for k in (0, 1, 2):
        share, n = 2 * p ** (k + 1) / (1 + p), len(noise)
        sd = math.sqrt(share * (1 - share) / n)
        found = (np.abs(noise) > k).mean()
        assert abs(found - share) < 4.5 * sd
        for wrong in (2 / 3, 3 / 2):
            q = p ** (1 / wrong)
            assert abs(found - 2 * q ** (k + 1) / (1 + q)) > 4.5 * sd


def test_a_share_is_the_posterior_median_under_a_uniform_prior():
    grid = (np.arange(200_000) + 0.5) / 200_000
    for up, scale, most in [(-300, 200.0, 1.0), (400, 300.0, 0.25), (900, 900.0, 1.0), (500, 1, 1)]:
        weights = np.exp(-np.abs(most * grid - up / 1000) * 1000 / scale)
        median = most * grid[np.searchsorted(weights.cumsum(), weights.sum() / 2)]
        found = Share(up, 1000 - up, scale, 10, 100).value(most)
        assert found == pytest.approx(median, abs=1e-5)


def test_the_interval_of_a_variance_allows_for_a_mean_off_its_place():
    """The mean is 3 scales off the released one: within its wide interval, not within its place."""
    n = 4000
    config = VarConfig(
        lower=(0.0,), upper=(1.0,), epsilon=50.0, delta=0.0, n=n, level=0.9,
        neighboring_relation=Relation.ZERO_OUT, most_rows=1, of_population=False,
    )  # fmt: skip
    all_of_them, noise = n * config.grid, SecureStream(bytes(16))
    up, down = round(0.55 * all_of_them), round(0.45 * all_of_them)
    place = Share(up, down, all_of_them / 60, n, config.grid)
    sums_of = config.sums_of(np.full((n, 1), 0.5), np.ones((1, 1), int))
    ((value, low, high),) = config.variances(sums_of, [place], 50.0, 0.1, noise)
    assert value == pytest.approx((0.05 - 2 / 60) ** 2, rel=0.1)
    assert low == 0.0 < high


@pytest.mark.parametrize(
    ("delta", "relation", "more", "warned"),
    [
        (0.01, "zero_out", {}, True),
        (0.01, "replace_one", {}, True),
        (0.001, "zero_out", {}, False),
        # What is private is not held against delta.
        (0.01, "add_or_remove_one", {}, False),
        (0.01, "zero_out", {"unit": Persons(max_rows=1), "groups": range(400)}, False),
    ],
)
def test_a_delta_of_one_over_n_is_named_as_by_every_fit(delta, relation, more, warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dp_covariance(X, epsilon=1.0, delta=delta, neighboring_relation=relation, **more, **BOUNDS)
    found = [w for w in caught if issubclass(w.category, PrivacyWarning)]
    said = [w for w in found if "dp_covariance has delta=0.01 for 400 rows" in str(w.message)]
    assert len(said) == warned


@pytest.mark.thorough
def test_statistics_import_no_torch():
    code = "import sys, skdp.statistics; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- bounds that cut nearly all values ----------------------------------------------------------

SPREAD = np.random.default_rng(3).normal(50.0, 12.0, (3000, 2))


def doubts(function, values, *args, **how):
    """What a statistic says against its bounds: the same as warnings and as diagnostics."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        found = function(values, *args, epsilon=2.0, **how)
    assert found.diagnostics_ == tuple(str(w.message) for w in caught)
    return " ".join(found.diagnostics_)


@pytest.mark.parametrize("function", [dp_mean, dp_var, dp_quantile, dp_sum])
@pytest.mark.parametrize("relation", RELATIONS)
def test_bounds_that_cut_nearly_all_values_are_said(function, relation):
    if function is dp_sum and relation == "add_or_remove_one":
        return  # a sum alone does not tell of its number of values
    how = {"neighboring_relation": relation}
    # Noise is at most a twentieth of the bounds here, but for less than e^-100.
    for values in (SPREAD[:, 0], SPREAD):
        # An interval of level .9 of noise alone leaves out the bound in one of twenty releases.
        said = [doubts(function, values, lower=-10, upper=0, **how) for _ in range(12)]
        assert any("cut" in sentence for sentence in said)
        assert ("column 0, column 1" in " ".join(said)) == (values.ndim == 2)
        assert "upper" in " ".join(said) or function is dp_var
        assert not any(doubts(function, values, lower=0, upper=100, **how) for _ in range(5))
    said = [doubts(function, SPREAD[:, 0], lower=1000, upper=2000, **how) for _ in range(12)]
    assert any("lower bound" in sentence or function is dp_var for sentence in said if sentence)


def test_a_variance_as_large_as_the_bounds_allow_is_said():
    values = np.where(np.arange(4000) % 2, -1e3, 1e3)
    said = [doubts(dp_var, values, lower=-1, upper=1) for _ in range(8)]
    assert any("as large as the bounds allow" in sentence for sentence in said)


def test_rare_and_even_events_and_many_zeros_are_not_doubted():
    rare, even, zeros = np.zeros(4000), np.arange(4000) % 2, np.zeros(4000)
    zeros[:1500] = SPREAD[:1500, 0]
    for _ in range(8):
        assert not doubts(dp_mean, rare, lower=0, upper=1)
        assert not doubts(dp_var, rare, lower=0, upper=1)
        assert not doubts(dp_var, even, lower=0, upper=1)
        assert not doubts(dp_quantile, zeros, 0.5, lower=0, upper=100)
        assert not doubts(dp_mean, zeros, lower=0, upper=100)
    # The largest value may well be at the bound; an interval as wide as the bounds tells nothing.
    assert not doubts(dp_quantile, np.minimum(SPREAD[:, 0], 70), 1.0, lower=0, upper=70)
    assert not doubts(dp_mean, SPREAD[:4, 0], lower=-10, upper=0)


# --- weights ------------------------------------------------------------------------------------

W = 5.0
weighed = pytest.mark.parametrize("name", sorted(ALL))


def slow(name, x, w):
    """Each statistic from its definition, row by row."""
    rows = sorted((a, b) for a, b in zip(x.tolist(), w.tolist(), strict=True) if a == a)
    total = math.fsum(b for _, b in rows)
    mean = math.fsum(a * b for a, b in rows) / total
    if name == "dp_quantile":
        up_to = itertools.accumulate(b for _, b in rows)
        return next(a for (a, _), b in zip(rows, up_to, strict=True) if b >= total / 2)
    variance = math.fsum(b * (a - mean) ** 2 for a, b in rows) / total
    return {
        "dp_count": total,
        "dp_sum": mean * total,
        "dp_mean": mean,
        "dp_var": variance,
        "dp_covariance": [[variance]],
        "dp_histogram": [math.fsum(b for a, b in rows if k <= a // 20 < k + 1) for k in range(5)],
    }[name]


@weighed
@pytest.mark.parametrize("relation", RELATIONS)
def test_with_a_large_budget_weighted_statistics_are_their_definition(name, relation):
    rng = np.random.default_rng(1)
    x, w = rng.uniform(0, 100, 3000), rng.choice([0.0, 0.3, 1.0, W], 3000)
    w[x > 60] *= 0.2  # so that they matter
    x[rng.random(3000) < 0.2] = np.nan
    how = {"epsilon": 50.0, "neighboring_relation": relation, "max_sample_weight": W}
    shown, exact = ALL[name](x, sample_weight=w, **how), slow(name, x, w)
    np.testing.assert_allclose(shown.value, exact, rtol=0.003, atol=1)
    assert np.abs(np.subtract(exact, slow(name, x, 1.0 + 0 * w))).max() > 5
    if name == "dp_quantile":
        shown = ALL[name](x, sample_weight=w, interval_share=0.5, **how)
        assert shown.low > 0 or shown.high < 100
    if name != "dp_quantile":  # where the values of a person have the mean of their weights
        persons = {"unit": Persons(max_rows=2), "groups": np.arange(3000) // 2}
        shown = ALL[name](x, sample_weight=w, **how, **persons)
        np.testing.assert_allclose(shown.value, exact, rtol=0.003, atol=1)


@weighed
def test_a_statement_says_which_bound_of_weights_was_declared(name):
    how = {"sample_weight": np.ones(400), "max_sample_weight": W}
    shown = ALL[name](X, epsilon=1.0, **how)
    assert f"max_sample_weight={W}" in shown.privacy_.settings[0]
    assert not shown.privacy_.assumptions  # nothing is divided by a public number
    assert shown.privacy_.epsilon == pytest.approx(1.0)
    assert "weight" not in ALL[name](X, epsilon=1.0).privacy_.settings[0]


@weighed
@pytest.mark.parametrize("relation", RELATIONS)
def test_weights_are_refused_by_name_before_the_charge(name, relation):
    how = {"epsilon": 1.0, "neighboring_relation": relation}
    secret = 3.0625
    weights = [
        [secret] * 399, np.full(400, -secret), np.full(400, W + secret), np.full(400, np.nan),
        np.full((400, 2), secret), [str(secret) + "x"] * 400, "weights",
    ]  # fmt: skip
    with PrivacyLedger() as ledger:
        for wrong in weights:
            with pytest.raises(ValueError, match=r"sample_weight .* \[0, 5\] per row") as error:
                ALL[name](X, sample_weight=wrong, max_sample_weight=W, **how)
            assert "3.06" not in str(error.value)
        for wrong in (0, -1.0, math.nan, math.inf, "5", None, True):
            with pytest.raises(ValueError, match=f"max_sample_weight={wrong!r}"):
                ALL[name](X, sample_weight=np.ones(400), max_sample_weight=wrong, **how)
        with pytest.raises(ValueError, match=r"max_sample_weight=5.*give sample_weight"):
            ALL[name](X, max_sample_weight=5, **how)
        if name == "dp_quantile":
            how |= {"interval_of": "population", "sample_weight": np.ones(400)}
            with pytest.raises(ValueError, match=r"interval_of='population'.*'data' with sample_w"):
                dp_quantile(X, **BOUNDS, **how)
    assert not ledger.entries


@weighed
def test_weighted_statistics_of_columns_and_of_no_rows(name):
    w = np.random.default_rng(0).uniform(0, W, 4000)
    x = np.random.default_rng(1).uniform(0, 100, (4000, 2))
    shown = ALL[name](x, epsilon=50.0, sample_weight=w, max_sample_weight=W)
    found, exact = shown.value, [slow(name, x[:, j], w) for j in range(2)]
    if name == "dp_covariance":
        covariance = np.cov(x.T, aweights=w, ddof=0)
        np.testing.assert_allclose(found, covariance, rtol=0.005, atol=1)
        found, exact = np.diag(found), np.ravel(exact)
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), exact, rtol=0.005, atol=1)
    how = {"neighboring_relation": "add_or_remove_one", "max_sample_weight": W}
    none = np.empty(0)
    assert np.isfinite(ALL[name](none, epsilon=1.0, sample_weight=none, **how).value).all()


@pytest.mark.quick(2)
@pytest.mark.parametrize("of", ["data", "population"])
@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_intervals_of_weighted_means_hold_for_whom_they_say(of, epsilon):
    """Values are drawn with weights that depend on them: the population's mean is E(wx)/E(w)."""
    rng = np.random.default_rng(0)

    def fresh(n=500):
        x = rng.uniform(0, 100, n)
        return x, W * (0.2 + 0.8 * rng.random(n) * x / 100)

    x, w = fresh()
    exact = np.average(x, weights=w) if of == "data" else (0.2 * 50 + 0.4 * 100 / 3) / 0.4

    def release():
        values, weights = (x, w) if of == "data" else fresh()
        how = {"epsilon": epsilon, "interval_of": of, "max_sample_weight": W}
        return dp_mean(values, sample_weight=weights, **BOUNDS, **how)

    assert coverage(release, exact) > 0.9 - SLACK


@pytest.mark.parametrize("name", ["dp_count", "dp_sum", "dp_var", "dp_quantile"])
def test_intervals_of_weighted_statistics_hold_for_the_data(name):
    rng = np.random.default_rng(0)
    x, w = rng.exponential(20.0, 800).clip(0, 100), rng.uniform(0, W, 800)
    how = {"sample_weight": w, "max_sample_weight": W, "epsilon": 2.0}
    how |= {"interval_share": 0.6} if name == "dp_quantile" else {}
    assert coverage(lambda: ALL[name](x, **how), slow(name, x, w)) > 0.9 - SLACK
