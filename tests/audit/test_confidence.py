"""The bound holds with the probability it states: by exact enumeration, and in null audits."""

import math
from functools import lru_cache

import numpy as np
import pytest
from bundles import bundled
from scipy.stats import binom, norm

from skdp.audit import audit_samples
from skdp.audit.confidence import DPFrame, GDPFrame, frame_of, limits, lower_bound, upper_limit

FRAMES = [DPFrame(0.0), DPFrame(0.05), GDPFrame(1e-5)]


@lru_cache
def all_bounds(frame, n_with, n_without, confidence):
    """The bound of every pair of counts, (n_with + 1, n_without + 1)."""
    return np.array(
        [
            [
                lower_bound(
                    frame,
                    misses=b,
                    n_with=n_with,
                    alarms=a,
                    n_without=n_without,
                    confidence=confidence,
                )
                for a in range(n_without + 1)
            ]
            for b in range(n_with + 1)
        ]
    )


@pytest.mark.parametrize("frame", FRAMES, ids=str)
@pytest.mark.parametrize("sizes", [(12, 12), (8, 15)])
@pytest.mark.parametrize("strength", [0.0, 0.5, 1.5])
def test_the_bound_exceeds_the_truth_with_probability_5_percent_at_most(frame, sizes, strength):
    """Exact: all counts, at 400 tests of a mechanism on the very curve, no simulation."""
    bounds = all_bounds(frame, *sizes, 0.95)
    worst = 0.0
    for alpha in np.linspace(0.0, 1.0, 401):
        beta = float(frame.tradeoff(strength, np.array([alpha]))[0])
        wrong = bounds > strength + 1e-12
        b = binom.pmf(np.arange(sizes[0] + 1), sizes[0], beta)
        a = binom.pmf(np.arange(sizes[1] + 1), sizes[1], alpha)
        worst = max(worst, float(b @ wrong @ a))
    assert worst <= 0.05
    assert worst > 0.005  # and it is not valid by saying nothing


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_more_errors_never_prove_more(frame):
    bounds = all_bounds(frame, 12, 12, 0.95)
    assert (np.diff(bounds, axis=0) <= 1e-3).all()
    assert (np.diff(bounds, axis=1) <= 1e-3).all()


@pytest.mark.parametrize("frame", FRAMES, ids=str)
@pytest.mark.parametrize(
    "counts", [(0, 0), (100, 100), (0, 900), (900, 0), (308, 308), (1000, 0), (700, 700)]
)
def test_at_least_as_much_as_two_clopper_pearson_limits(frame, counts):
    misses, alarms = counts
    n = 1000
    plain = frame.strength(upper_limit(alarms, n, 0.025), upper_limit(misses, n, 0.025))
    found = lower_bound(frame, misses=misses, n_with=n, alarms=alarms, n_without=n)
    assert found >= max(0.0, float(plain)) - 1e-9


def test_limits_are_those_of_clopper_and_pearson():
    # "Rule of three", exactly 1 − .05^(1/n); and the defining equation.
    assert upper_limit(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert binom.cdf(7, 50, upper_limit(7, 50, 0.025)) == pytest.approx(0.025)
    assert upper_limit(50, 50, 0.025) == 1.0
    low, high = limits(7, 50, 0.05)
    assert binom.sf(6, 50, low) == pytest.approx(0.025)
    assert binom.cdf(7, 50, high) == pytest.approx(0.025)


@pytest.mark.parametrize("name", ["dp", "gdp"])
def test_strength_inverts_the_curve(name):
    frame = frame_of(name, 1e-5)
    for strength in (0.3, 1.0, 3.0):
        alpha = np.array([0.01, 0.1, 0.2])
        beta = frame.tradeoff(strength, alpha)
        np.testing.assert_allclose(frame.strength(alpha, beta), strength, rtol=1e-9)
        assert frame.of_epsilon(frame.epsilon(strength)) == pytest.approx(strength, rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"misses": 101}, "misses=101"),
        ({"alarms": -1}, "alarms=-1"),
        ({"n_with": 0}, "n_with=0"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"confidence": math.nan}, "confidence=nan"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong, text):
    counts = {"misses": 5, "n_with": 100, "alarms": 5, "n_without": 100}
    with pytest.raises(ValueError, match=text):
        lower_bound(DPFrame(1e-5), **(counts | wrong))


# --- null audits: the whole way from samples to the verdict ---------------------------------------


def false_alarms(draw, n_audits, n, **claim):
    """Number of audits that call a claim wrong which holds."""
    rng = np.random.default_rng(0)
    return sum(audit_samples(*draw(rng, n), **claim).violation for _ in range(n_audits))


def equal(rng, n):
    return rng.normal(size=(2, n))


def gaussian(rng, n):
    """Exactly μ = 1."""
    return rng.normal(size=(2, n)) + np.array([[1.0], [0.0]])


def laplace(rng, n):
    """Exactly ε = 1, δ = 0."""
    return rng.laplace(size=(2, n)) + np.array([[1.0], [0.0]])


def response(rng, n):
    """Randomised response: exactly ε = 1, and the worst case of all of them."""
    truth = rng.random((2, n)) < math.e / (1 + math.e)
    return np.where([[1], [0]], truth, ~truth).astype(float)


def vectors(rng, n):
    """μ = 1 in a direction that has to be found."""
    arms = rng.normal(size=(2, n, 5))
    arms[0] += 1 / math.sqrt(5)
    return arms


def spoilt(rng, n):
    """One law of vectors; some numbers are huge, infinite or none."""
    arms = rng.normal(size=(2, n, 5))
    for value in (1.7e308, -1.7e308, 1e160, np.inf, -np.inf, np.nan):
        arms[rng.random(arms.shape) < 0.02] = value
    return arms


NULLS = [
    (equal, {"epsilon": 0.0, "delta": 0.0, "frame": "dp"}),
    (equal, {"epsilon": 0.0, "delta": 1e-5, "frame": "gdp"}),
    (gaussian, {"epsilon": 4.377178096, "delta": 1e-5, "frame": "gdp"}),
    (gaussian, {"epsilon": 1.0, "delta": 0.1269367, "frame": "dp"}),
    (laplace, {"epsilon": 1.0, "delta": 0.0, "frame": "dp"}),
    (response, {"epsilon": 1.0, "delta": 0.0, "frame": "dp"}),
    (vectors, {"epsilon": 4.377178096, "delta": 1e-5, "frame": "gdp"}),
    (spoilt, {"epsilon": 0.0, "delta": 1e-5, "frame": "gdp"}),
]
IDS = [f"{draw.__name__}-{claim['frame']}" for draw, claim in NULLS]


@pytest.mark.parametrize(("draw", "claim"), NULLS, ids=IDS)
def test_null_audits_alarm_no_more_often_than_stated(draw, claim):
    alarms = false_alarms(draw, 60, 100, **claim)
    assert alarms <= binom.ppf(1 - 1e-6, 60, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "claim"), NULLS, ids=IDS)
def test_10_000_null_audits_alarm_at_most_1_2_times_as_often_as_stated(draw, claim, figure):
    alarms = false_alarms(draw, 10_000, 200, **claim)
    figure(f"{draw.__name__} ({claim['frame']}): {alarms} false alarms of 10 000, 500 stated")
    assert alarms <= 1.2 * 0.05 * 10_000


def test_an_auditor_that_picks_its_threshold_afterwards_would_fail_here():
    """The same null audits tell a wrong auditor: the best of 200 thresholds on what is counted."""

    one_sided = upper_limit(np.arange(201), 200, 0.05)

    def cheat(rng):
        present, absent = np.sort(equal(rng, 200))
        thresholds = np.quantile(present, np.linspace(0.005, 0.995, 200))
        misses = np.searchsorted(present, thresholds, side="right")
        alarms = 200 - np.searchsorted(absent, thresholds, side="right")
        return DPFrame(0.0).strength(one_sided[alarms], one_sided[misses]).max() > 0

    rng = np.random.default_rng(0)
    assert sum(cheat(rng) for _ in range(1000)) > binom.ppf(1 - 1e-6, 1000, 0.05)


# --- how much is proved ---------------------------------------------------------------------------


@pytest.mark.thorough
def test_5000_results_an_arm_prove_90_percent_of_a_gaussian_claim():
    rng = np.random.default_rng(0)
    claim = {"epsilon": 4.377178, "delta": 1e-5, "frame": "gdp"}
    found = [audit_samples(*gaussian(rng, 5000), **claim).tightness for _ in range(5)]
    assert 0.9 < np.mean(found) < 1.0
    # The plain frame proves next to nothing of the same samples.
    plain = audit_samples(*gaussian(rng, 5000), epsilon=4.377178, delta=1e-5, frame="dp")
    assert plain.tightness < 0.4


@pytest.mark.thorough
def test_90_percent_of_the_noise_is_found_out():
    rng = np.random.default_rng(0)
    draws = gaussian(rng, 40_000) * np.array([[0.9], [0.9]]) + [[0.1], [0.0]]
    assert audit_samples(*draws, epsilon=4.377178, delta=1e-5, frame="gdp").violation


def test_results_that_are_not_finite_are_results():
    rng = np.random.default_rng(0)
    present, absent = equal(rng, 400)
    present[rng.random(400) < 0.9] = np.nan
    assert audit_samples(present, absent, epsilon=1.0, delta=1e-5).violation
    assert audit_samples(absent, present, epsilon=1.0, delta=1e-5).violation


@pytest.mark.thorough
@bundled("shape", [(1000,), (1000, 2), (1000, 3)])
@bundled("value", [1.7e308, -1.7e308, 1e160, 5e-324, np.inf, -np.inf, np.nan])
def test_extreme_results_accuse_nobody(shape, value):
    """One law, of which two results are extreme: errors must be counted as often as they are."""
    rng = np.random.default_rng(0)
    claim = {"epsilon": 1.0, "delta": 1e-5, "confidence": 1 - 1e-6}
    for places in ([0], [0, 1], [0, 1, -1], range(1000)):
        arms = rng.normal(size=(2, *shape))
        for place in places:
            arms[0][place].flat[:1] = value
            if shape == (1000,):
                arms[0][place] = value
            if len(places) == 1000:
                arms[1][place] = arms[0][place]
        if shape == (1000,) and len(places) == 1000 and not np.isfinite(value):
            with pytest.raises(ValueError, match="nothing to look at"):
                audit_samples(*arms, **claim)
            continue
        assert not audit_samples(*arms, **claim).violation
        assert not audit_samples(*arms[::-1], **claim).violation


@bundled("value", [1e3, 1e160, 1.7e308, np.inf, np.nan])
@bundled("column", [0, 1])
def test_extreme_results_hide_nothing(value, column):
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(2, 1000, 2))
    arms[0, :, 0] += 5.0
    arms[0, [0, 1, 500], column] = value
    arms[1, [2, 3, 600], column] = -value
    report = audit_samples(*arms, epsilon=1.0, delta=1e-5)
    assert sum(report.rates) < 0.05
    assert report.violation


def test_what_has_no_score_is_no_alarm_in_either_arm():
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(2, 1000))
    arms[:, 100:] = np.nan  # but none of those that choose
    report = audit_samples(*arms, epsilon=0.0, delta=0.0)
    assert (report.misses, report.alarms) == (900, 0)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_an_output_that_never_is_finite_hides_nothing(odd):
    rng = np.random.default_rng(0)
    present, absent = rng.normal(size=(2, 1000, 3))
    present[:, 1] += 6.0
    present[:, 0] = absent[:, 0] = odd
    assert audit_samples(present, absent, epsilon=1.0, delta=1e-5).violation
    # One that is not finite now and then is looked at when it is, and when it is not.
    present[:, 0], absent[:, 0] = rng.normal(size=(2, 1000))
    sometimes = present.copy(), absent.copy()
    for arm in sometimes:
        arm[rng.random(1000) < 0.5, 1] = odd
    assert sum(audit_samples(*sometimes, epsilon=1.0, delta=1e-5).rates) < 0.7
    absent[:, 1] = odd
    assert audit_samples(present, absent, epsilon=3.0, delta=1e-5).violation


def test_nothing_to_look_at_is_said():
    nothing = np.full((100, 2), np.nan)
    with pytest.raises(ValueError, match="nothing to look at"):
        audit_samples(nothing, nothing, epsilon=1.0, delta=1e-5)
    report = audit_samples(nothing, np.full((100, 2), np.inf), epsilon=1.0, delta=1e-5)
    assert report.rates == (0.0, 0.0)


def test_a_result_that_never_varies_and_differs_tells_all():
    report = audit_samples(np.ones(400), np.zeros(400), epsilon=4.0, delta=1e-5)
    assert (report.misses, report.alarms, report.violation) == (0, 0, True)
    same = audit_samples(np.ones(400), np.ones(400), epsilon=0.0, delta=1e-5)
    assert same.epsilon_lower_bound == 0.0


def test_the_gdp_frame_is_exact_about_mu():
    counts = {"misses": 1543, "n_with": 5000, "alarms": 1543, "n_without": 5000}
    found = lower_bound(GDPFrame(1e-5), **counts)
    # A normal approximation of the joint test, to its own accuracy.
    spread = math.sqrt(2 * 0.3086 * 0.6914 / 5000) / norm.pdf(0.5)
    assert found == pytest.approx(1.0 - norm.ppf(0.95) * spread, abs=0.004)
