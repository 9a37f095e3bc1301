import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.preprocessing import StandardScaler

from skdp.algorithms.moments import MomentSum, mean_and_variance
from skdp.engine import release_hook
from skdp.preprocessing import DPStandardScaler
from skdp.relations import RELATIONS
from skdp.rows.bounded_sum import MAX_ROWS, ROUNDING
from skdp.rows.records import PlainBatch

INF = float("inf")
LOWER, UPPER = np.array([-1.0, 0.0, -1e150]), np.array([1.0, 1e-100, 1e150])

VALUES = st.one_of(
    st.sampled_from(
        [*LOWER, *UPPER, 0.0, np.nan, 1e300, -1.7e308, 5e-324, 1e-101, np.inf, -np.inf]
    ),
    st.floats(),
)
ROW = st.lists(VALUES, min_size=3, max_size=3)


SUM = MomentSum(tuple(LOWER), tuple(UPPER))


def moments(X, lower=LOWER, upper=UPPER):
    """The private value of a fit."""
    return MomentSum(tuple(lower), tuple(upper))(np.zeros((1, len(lower))), PlainBatch(X))


def share(row):
    """What one row adds to the sum, before noise."""
    return moments(np.array([row], dtype=float))


def spread_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(1, 0.5, n), rng.uniform(5, 9, n), rng.beta(2, 5, n)])


class TestSensitivity:
    @given(ROW)
    def test_no_row_adds_more_than_the_declared_norm(self, row):
        assert np.linalg.norm(share(row)) <= SUM.record_bound * (1 + 1e-15)

    @given(ROW, ROW, st.lists(ROW, max_size=4), st.sampled_from(RELATIONS))
    def test_neighbours_move_the_sum_by_at_most_the_declared_sensitivity(
        self, row, other, rest, relation
    ):
        second = {"zero_out": [[np.nan] * 3], "add_or_remove_one": [], "replace_one": [other]}
        sums = [
            moments(np.array([*rest, *rows], dtype=float).reshape(-1, 3))
            for rows in ([row], second[relation])
        ]
        assert np.linalg.norm(np.subtract(*np.broadcast_arrays(*sums))) <= SUM.sensitivity(relation)

    def test_the_bound_is_attained_so_no_smaller_one_would_do(self):
        assert np.linalg.norm(share(UPPER)) == pytest.approx(SUM.record_bound, rel=1e-15)
        extreme = np.linalg.norm(share([1e300, -1e300, np.inf]))
        assert extreme == pytest.approx(SUM.record_bound, rel=1e-15)

    def test_a_replaced_record_can_move_the_sum_as_far_as_is_declared(self):
        # At z = 1 and z = -1 only the first moments differ: 2√d, against a share of √(3d/2).
        moved = np.linalg.norm(share(UPPER) - share(LOWER))
        assert moved == pytest.approx(2 * np.sqrt(3), rel=1e-14)
        assert 0.99 * SUM.sensitivity("replace_one") <= moved <= SUM.sensitivity("replace_one")

    @given(st.lists(ROW, min_size=1, max_size=6), st.lists(ROW, min_size=1, max_size=6))
    def test_sums_are_additive(self, A, B):
        both, (one, other) = np.array([*A, *B]), (np.array(A), np.array(B))
        separate = moments(one) + moments(other)
        np.testing.assert_allclose(moments(both), separate, atol=1e-12)

    @pytest.mark.parametrize("chunk", [1, 7, 8192])
    def test_the_size_of_a_chunk_does_not_matter(self, chunk, monkeypatch):
        X = np.random.default_rng(0).uniform(-1, 1, (30, 3)) * [1, 1, 1e150]
        whole = moments(X)
        monkeypatch.setattr("skdp.algorithms.moments.CHUNK_ROWS", chunk)
        np.testing.assert_allclose(moments(X), whole, atol=1e-13)

    def test_a_missing_value_adds_nothing(self):
        np.testing.assert_array_equal(share([np.nan] * 3), 0.0)
        half_missing = share([1.0, np.nan, np.nan]).reshape(3, 3)
        np.testing.assert_array_equal(half_missing[:, 1:], 0.0)

    def test_the_rounding_of_a_sum_is_within_what_is_declared(self):
        z = np.full((8192 * 20, 1), 1 / 3)
        exact = np.array([1 / 3, 1 / 9 - 0.5, 0.5]) * len(z)
        error = np.linalg.norm(moments(z, np.array([-1.0]), np.array([1.0])) - exact)
        assert error < ROUNDING / 2 * np.sqrt(1.5)

    def test_more_rows_than_the_bound_covers_are_refused(self, monkeypatch):
        monkeypatch.setattr(DPStandardScaler, "_max_rows", 3)
        with pytest.raises(ValueError, match="at most 3 rows"):
            DPStandardScaler().fit(np.zeros((4, 2)))
        assert MAX_ROWS == 2**26


class TestNoise:
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_the_release_has_the_declared_noise_and_no_other(self, relation):
        d = 600
        with release_hook.record() as tape:
            scaler = DPStandardScaler(epsilon=1.0, neighboring_relation=relation).fit(
                np.full((5, d), np.nan)
            )
        noise, call = tape[0].output, tape[0].call
        C = np.sqrt(1.5 * d)
        moved, factor = (2 * np.sqrt(d), 2) if relation == "replace_one" else (C, 1)
        scale = scaler.noise_multiplier_ * moved / factor * (1 + ROUNDING)
        assert call.scale == pytest.approx(scale, rel=1e-12)
        assert call.sensitivity == pytest.approx(moved * (1 + ROUNDING))
        assert noise.size == 3 * d
        low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], noise.size)
        for wrong in (2 / 3, 1.0, 3 / 2, 1 / C, 1 / np.sqrt(1.5), np.sqrt(2)):
            accepted = low < (noise**2).sum() / (wrong * scale) ** 2 < high
            assert accepted == (wrong == 1.0)
        for part in noise.reshape(3, d):  # of each moment
            low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], d)
            assert low < (part**2).sum() / scale**2 < high

    def test_replace_one_has_twice_the_noise(self):
        one, two = (
            DPStandardScaler(neighboring_relation=relation).fit(np.zeros((5, 2)))
            for relation in ("zero_out", "replace_one")
        )
        assert two.noise_multiplier_ == pytest.approx(2 * one.noise_multiplier_)

    def test_the_estimates_are_off_by_what_the_notes_say(self):
        n, d, s = 40_000, 50, 30.0 * np.sqrt(1.5 * 50)
        X = np.random.default_rng(0).uniform(-0.4, 0.8, (n, d))  # variance 0.12, mean 0.2
        scaler = DPStandardScaler(epsilon=None, noise_multiplier=30.0).fit(X)
        mean, q = X.mean(axis=0), (X**2).mean(axis=0)
        of_mean = (scaler.mean_ - mean) / (s / n * np.sqrt(1 + 4 * mean**2))
        e = s / n * np.sqrt(1 + 4 * mean**2 + 4 * (2 * mean**2 - q + 0.5) ** 2)
        of_variance = (scaler.var_ - X.var(axis=0)) / e
        low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], d)
        for ratios in (of_mean, of_variance):
            assert low < (ratios**2).sum() < high
            for wrong in (0.4, 2.5):
                assert not low < (ratios**2).sum() / wrong**2 < high


class TestEstimates:
    @pytest.mark.parametrize(("epsilon", "tolerance"), [(INF, 1e-12), (1e4, 1e-3)])
    def test_without_much_noise_it_is_the_ordinary_scaler(self, epsilon, tolerance):
        X = spread_rows(3000)
        scaler = DPStandardScaler([-2, 0, 0], [4, 10, 1], epsilon=epsilon, output_norm=100.0)
        reference = StandardScaler().fit(X)
        scaler.fit(X)
        np.testing.assert_allclose(scaler.mean_, reference.mean_, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(scaler.scale_, reference.scale_, rtol=10 * tolerance)
        np.testing.assert_allclose(scaler.var_, scaler.scale_**2)
        np.testing.assert_allclose(
            scaler.transform(X), reference.transform(X), atol=100 * tolerance
        )

    def test_missing_values_are_left_out_and_then_imputed_with_the_mean(self):
        X = spread_rows(1000)
        X[::3, 0] = np.nan
        scaler = DPStandardScaler([-2, 0, 0], [4, 10, 1], epsilon=INF, output_norm=100.0).fit(X)
        np.testing.assert_allclose(scaler.mean_, np.nanmean(X, axis=0))
        out = np.asarray(scaler.transform(X))
        assert (out[::3, 0] == 0).all()
        kept = np.delete(np.arange(1000), np.arange(0, 1000, 3))
        np.testing.assert_allclose(out[kept], StandardScaler().fit(X).transform(X)[kept])

    def test_values_beyond_the_bounds_are_clipped_in_fit_and_in_transform(self):
        X = np.array([[-5.0], [0.0], [7.0], [1e300]])
        scaler = DPStandardScaler(epsilon=INF, output_norm=9.0).fit(X)
        assert scaler.mean_[0] == pytest.approx(np.mean([-1, 0, 1, 1]))
        out = scaler.transform([[-1e308], [-1.0], [1.0], [3.0]])
        assert out[0] == out[1]
        assert out[2] == out[3]

    def test_with_too_few_values_the_declared_range_is_what_it_says(self):
        X = spread_rows(30)
        scaler = DPStandardScaler([-2, 0, 0], [4, 10, 1], epsilon=0.01).fit(X)
        np.testing.assert_array_equal(scaler.mean_, [1.0, 5.0, 0.5])
        np.testing.assert_array_equal(scaler.scale_, [3.0, 5.0, 0.5])

    @pytest.mark.parametrize("epsilon", [INF, 0.5])
    def test_a_feature_without_values_gets_the_declared_range(self, epsilon):
        X = np.full((500, 1), np.nan)
        scaler = DPStandardScaler(0.0, 10.0, epsilon=epsilon, random_state=0)
        if epsilon == INF:
            scaler.fit(X)
        else:
            with pytest.warns(match="random_state"):
                scaler.fit(X)
        assert scaler.mean_[0] == scaler.scale_[0] == 5.0
        assert (scaler.transform(X) == 0).all()

    @pytest.mark.parametrize("value", [-1.0, 0.2, 1.0])
    def test_the_noise_of_a_constant_feature_is_not_blown_up(self, value):
        # 400 constant features; the mean is off by s/N √(1 + 4 mean²) < 3 s/N in one standard
        # deviation, and the scale is at least √(s/N): 6 of them are 18 √(s/N), or 0.9 here.
        n, d, sigma = 200_000, 400, 20.0
        ratio = np.sqrt(1.5 * d) * sigma / n
        assert 18 * np.sqrt(ratio) < 1
        X = np.full((n // 100, d), value)
        sums = moments(X, np.full(d, -1.0), np.full(d, 1.0)) * 100
        noise = np.random.default_rng(0).normal(0, ratio * n, sums.size)
        mean, variance = mean_and_variance((sums + noise).reshape(3, d), ratio * n)
        assert (np.abs(value - mean) / np.sqrt(variance)).max() < 1
        assert (np.sqrt(variance) >= np.sqrt(ratio)).all()

    def test_a_constant_feature_without_noise_becomes_zero(self):
        X = np.full((1000, 2), 0.3)
        out = DPStandardScaler(epsilon=INF).fit_transform(X)
        assert np.abs(out).max() < 1e-6

    @given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6), st.sampled_from([0.0, 1.0, 1e3]))
    def test_whatever_is_released_the_estimates_are_of_use(self, moments, s):
        mean, variance = mean_and_variance(np.reshape(moments, (3, 2)), s)
        assert (np.abs(mean) <= 1).all()
        assert ((variance > 0) & (variance <= 1)).all()

    def test_rows_are_clipped_to_the_output_norm(self):
        X = spread_rows(2000)
        for norm, value in (("auto", np.sqrt(3)), (0.5, 0.5)):
            scaler = DPStandardScaler([-2, 0, 0], [4, 10, 1], epsilon=INF, output_norm=norm).fit(X)
            out = scaler.transform(X)
            assert scaler.output_norm_ == out.row_norm == pytest.approx(value)
            assert np.linalg.norm(out, axis=1).max() == pytest.approx(value, rel=1e-14)

    def test_extreme_bounds_give_finite_numbers(self):
        X = np.array([[1e150, 0.0], [-1e150, 1e-150], [1e300, -1e300]])
        scaler = DPStandardScaler([-1e150, 0.0], [1e150, 2e-150], epsilon=INF).fit(X)
        for name in ("mean_", "scale_", "var_"):
            assert np.isfinite(getattr(scaler, name)).all()
        assert np.isfinite(scaler.transform(X)).all()


def test_what_was_not_cut_comes_back():
    X = np.random.default_rng(0).uniform(-1, 1, size=(50, 3))
    scaler = DPStandardScaler(epsilon=1.0, output_norm=1e6).fit(X)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, atol=1e-9)
    with pytest.raises(ValueError, match="Expected X with 3 columns, got 1"):
        scaler.inverse_transform(X[:, :1])
