import math

import numpy as np
import pytest
from bundles import bundled
from hypothesis import given
from hypothesis import strategies as st

from skdp.algorithms.quantiles import QuantilesConfig
from skdp.engine import release_hook
from skdp.preprocessing import DPQuantileScaler
from skdp.privacy import epsilon_of_event
from skdp.privacy.events import (
    PosteriorSamplesDpEvent,
    PosteriorTerm,
    SelfComposedDpEvent,
    terms_of,
)
from skdp.privacy.posterior_samples import posterior_samples_epsilon
from skdp.relations import RELATIONS

INF = float("inf")


def miss(values, quantile, answer):
    """By how many records an answer misses the rank, as in `QuantileMechanism`."""
    rank = quantile * len(values)
    return max((values < answer).sum() - rank, rank - (values <= answer).sum(), 0.0)


def longest_miss(values, quantile, rate, length, probability=1e-6):
    """Miss that the exponential mechanism exceeds with at most this probability.

    P(d ≥ k) ≤ e^(-rate (k - a)) · length/length(d ≤ a), for the best a.
    """
    t, rank = np.sort(values), quantile * len(values)
    found = []
    for a in range(1, int(min(rank, len(t) - rank)) - 1):
        stretch = t[math.floor(rank + a) - 1] - t[math.ceil(rank - a)]
        found.append(a + math.log(length / max(stretch, 1e-300) / probability) / rate)
    return min(found)


class TestAccount:
    @bundled("relation", RELATIONS)
    @bundled(
        ("epsilon", "delta", "d"), [(0.1, 1e-5, 1), (0.5, 1e-5, 10), (3.0, 1e-6, 40), (1.0, 0, 5)]
    )
    def test_the_report_says_the_epsilon_that_was_asked(self, epsilon, delta, d, relation):
        X = np.zeros((3, d))
        scaler = DPQuantileScaler(epsilon=epsilon, delta=delta, neighboring_relation=relation)
        with release_hook.record() as tape:
            report = scaler.fit(X).privacy_
        assert 0.998 * epsilon <= report.epsilon <= epsilon
        assert report.delta == delta
        assert report.valid
        assert terms_of(report.event) == (PosteriorTerm(scaler.quantile_epsilon_, 1, 2 * d),)
        # Each mechanism ran at the ε that is accounted: its scale is R/ε.
        found = [release.call.sensitivity / release.call.scale for release in tape]
        np.testing.assert_allclose(found, scaler.quantile_epsilon_, rtol=1e-14)
        assert len(found) == 2 * d

    def test_pure_privacy_shares_epsilon_and_approximate_privacy_gives_more(self):
        X = np.zeros((3, 10))
        pure = DPQuantileScaler(epsilon=1.0, delta=0.0).fit(X)
        assert pure.quantile_epsilon_ == pytest.approx(1 / 20, rel=1e-12)
        assert pure.privacy_.accountant == "pure"
        assert DPQuantileScaler(epsilon=1.0).fit(X).quantile_epsilon_ > 2 / 20

    def test_the_account_is_no_bolder_than_twenty_draws_of_one_posterior(self):
        # The exact price of the same mechanism 20 times, which bounds no other composition.
        η = DPQuantileScaler(epsilon=1.0).fit(np.zeros((3, 10))).quantile_epsilon_
        least = posterior_samples_epsilon(eta=η, n_samples=20, delta=1e-5)
        assert 0.85 < least <= 1.0

    def test_a_given_quantile_epsilon_is_accounted(self):
        scaler = DPQuantileScaler(epsilon=None, quantile_epsilon=0.2).fit(np.zeros((3, 4)))
        assert scaler.quantile_epsilon_ == 0.2
        expected = epsilon_of_event(SelfComposedDpEvent(PosteriorSamplesDpEvent(0.2), 8), 1e-5)
        assert scaler.privacy_.epsilon == expected < 1.6

    def test_mechanisms_know_the_relation(self):
        X = np.zeros((3, 1))
        for relation in RELATIONS:
            with release_hook.record() as tape:
                DPQuantileScaler(neighboring_relation=relation).fit(X)
            found = [release.call.sensitivity for release in tape]
            assert found == pytest.approx([2.0, 2.0] if relation == "replace_one" else [1.9, 1.9])


class TestQuantiles:
    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_ranks_of_a_heavy_tailed_feature_are_off_by_no_more_than_the_bound(self, scale):
        n, rng = 20_000, np.random.default_rng(0)
        X = scale * np.column_stack([rng.standard_cauchy(n), 50 + 3 * rng.standard_cauchy(n)])
        scaler = DPQuantileScaler(epsilon=0.5).fit(X)
        rate = scaler.quantile_epsilon_ / 1.9
        length = 2 * np.arcsinh(1e9 / 1e-6)
        for j in range(2):
            t = np.arcsinh(np.clip(X[:, j], -1e9, 1e9) / 1e-6)
            for q, answer in ((0.05, scaler.lower_[j]), (0.95, scaler.upper_[j])):
                most = longest_miss(t, q, rate, length)
                assert most < 0.02 * n  # the bound says something
                assert miss(X[:, j], q, answer) <= most
                assert miss(X[:, j], q, np.median(X[:, j])) > most

    def test_without_noise_they_are_ordinary_percentiles(self):
        X = np.random.default_rng(0).standard_t(2, (500, 3))
        X[::7, 1] = np.nan
        scaler = DPQuantileScaler(epsilon=INF, quantile_range=(10, 80)).fit(X)
        low, high = np.nanpercentile(X, (10, 80), axis=0)
        np.testing.assert_allclose(scaler.lower_, low)
        np.testing.assert_allclose(scaler.upper_, high)
        assert not scaler.privacy_.valid
        assert scaler.privacy_.epsilon == INF

    def test_at_a_large_epsilon_they_are_percentiles_within_one_record(self):
        X = np.random.default_rng(0).standard_t(2, (501, 2))
        scaler = DPQuantileScaler(epsilon=1e6, quantile_range=(25, 75)).fit(X)
        for j in range(2):
            assert miss(X[:, j], 0.25, scaler.lower_[j]) <= 1
            assert miss(X[:, j], 0.75, scaler.upper_[j]) <= 1

    def test_the_unit_of_measurement_hardly_matters(self):
        X = np.random.default_rng(0).normal(1.0, 0.2, (20_000, 1))
        for scale in (1e-4, 1.0, 1e7):
            out = DPQuantileScaler(epsilon=1.0).fit_transform(X * scale)
            assert 0.07 < (np.abs(out) == 1).mean() < 0.13  # 10 % lie beyond the quantiles

    def test_bounds_that_differ_by_feature(self):
        X = np.random.default_rng(0).uniform(0, 1, (5000, 2)) * [1, 1000]
        scaler = DPQuantileScaler([0, -5], [2, 5000], epsilon=2.0).fit(X)
        np.testing.assert_allclose(scaler.lower_, [0.05, 50], rtol=0.3)
        np.testing.assert_allclose(scaler.upper_, [0.95, 950], rtol=0.05)


class TestDegenerate:
    @pytest.mark.parametrize("value", [0.0, 1.0, -3e-7, 1e9, -1e9, 123456.789])
    def test_a_constant_feature_maps_to_the_middle_and_all_else_to_the_ends(self, value):
        X = np.full((20_000, 1), value)
        scaler = DPQuantileScaler(epsilon=5.0).fit(X)
        assert scaler.lower_[0] < scaler.upper_[0]
        assert np.abs(scaler.transform(X)).max() <= 0.5
        others = np.array([[value - 1.0 - abs(value)], [value + 1.0 + abs(value)]])
        np.testing.assert_array_equal(scaler.transform(others), [[-1.0], [1.0]])

    @pytest.mark.parametrize("epsilon", [0.01, INF])
    def test_a_feature_without_values_gets_some_range(self, epsilon):
        X = np.full((100, 2), np.nan)
        scaler = DPQuantileScaler(-5.0, 5.0, epsilon=epsilon).fit(X)
        assert (scaler.lower_ < scaler.upper_).all()
        assert (scaler.transform(X) == 0).all()

    @given(
        st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=2),
        st.sampled_from([1e-99, 1e-6, 1.0, 1e99]),
    )
    def test_whatever_is_released_the_bounds_are_apart(self, pair, unit):
        config = QuantilesConfig(lower=(-1e9,), upper=(1e9,), shares=(0.1, 0.9), unit=unit)
        low, high = config.apart(np.array(pair[:1]), np.array(pair[1:]))
        assert low[0] < high[0]
        assert low[0] <= min(pair)
        assert high[0] >= max(pair)

    def test_quantiles_in_the_wrong_order_are_put_right(self):
        fits = []
        for numbers in ([6e8, 7e8], [7e8, 6e8]):
            with release_hook.replay(numbers):
                fits.append(DPQuantileScaler(resolution=1.0).fit([[0.0]]))
        right, wrong = fits
        assert right.lower_ < right.upper_
        assert (wrong.lower_, wrong.upper_) == (right.lower_, right.upper_)

    def test_a_narrow_declared_range_far_from_zero(self):
        X = 1e6 + np.random.default_rng(0).uniform(0, 1e-3, (2000, 1))
        scaler = DPQuantileScaler(1e6, 1e6 + 1e-3, epsilon=3.0).fit(X)
        assert 1e6 <= scaler.lower_[0] < scaler.upper_[0] <= 1e6 + 1e-3

    def test_a_declared_range_that_rounding_closes_is_named(self):
        with pytest.raises(ValueError, match="Expected lower="):
            DPQuantileScaler(1e9, np.nextafter(1e9, 2e9), resolution=1e-99).fit([[1e9]])


@given(
    st.lists(
        st.one_of(st.floats(allow_infinity=False), st.sampled_from([1e300, 5e-324, np.nan])),
        min_size=2,
        max_size=2,
    )
)
def test_outputs_lie_within_one_and_missing_ones_are_the_middle(row):
    scaler = DPQuantileScaler(epsilon=INF).fit([[-1.0, 3.0], [2.0, 4.0], [0.5, 9.0]])
    out = scaler.transform([row])
    assert out.row_norm == scaler.output_norm_ == 2**0.5
    assert (np.abs(out) <= 1).all()
    assert (out[0][np.isnan(row)] == 0).all()
