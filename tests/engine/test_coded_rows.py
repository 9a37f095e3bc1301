"""Sums by code are those over rows: in value, in what a record moves, and in rounding."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from skdp.algorithms.exact_line import moments
from skdp.algorithms.noise_aware.families import Cut
from skdp.algorithms.noise_aware.numbers import InsideGram, WeightedResiduals
from skdp.engine.linear_sums import GramSum, LinearClippedSum, OutsideSum, ScoreGramSum
from skdp.models.likelihoods import Bernoulli, Categorical
from skdp.relations import RELATIONS
from skdp.rows.bounded_sum import CHUNK_ROWS, MAX_PARTS
from skdp.rows.coded import CodedRows
from skdp.rows.records import LinearRows

RNG = np.random.default_rng(0)
TABLES = [RNG.normal(size=shape) for shape in [(3, 2), (300, 5), (1, 1), (4, 3)]]
SIZES = [len(table) for table in TABLES]
NORM, D, U = 20.0, 12, 2.0**-53
SCORES = Bernoulli().score(0.3)
GRADIENT = LinearClippedSum(SCORES.residual, 0.3 * NORM, SCORES.largest_residual)
SUMS = {  # with the shape of the parameters
    "two classes": (LinearClippedSum(Bernoulli().residual, 2.0), (1, D)),
    "weighted by the largest residual": (GRADIENT, (1, D)),
    "three classes": (LinearClippedSum(Categorical(3).residual, 2.0), (3, D)),
    "residuals": (WeightedResiduals(Cut(0.3 * NORM, NORM)), (1, D + 1)),
    "second moments": (GramSum(NORM**2), (1, D)),
    "weighted second moments": (GramSum(9.0, lambda z, norms: np.exp(z[:, 0]) * norms), (1, D)),
    "trace": (GramSum(9.0, trace_only=True), (1, D)),
    "products of scores": (ScoreGramSum(GRADIENT), (1, D)),
    "slope of residuals": (InsideGram(NORM**2, cut=Cut(0.3 * NORM, NORM)), (1, D + 1)),
    "products of residuals": (ScoreGramSum(WeightedResiduals(Cut(NORM, NORM))), (1, D + 1)),
    "counts": (OutsideSum(targets=True), (1, D)),
    "moments without a bound": (lambda theta, batch: moments(D, batch), (1, D)),
}
BOUNDED = {name: found for name, found in SUMS.items() if name != "moments without a bound"}


def random_codes(n, seed=0):
    return np.random.default_rng(seed).integers(0, SIZES, (n, len(SIZES))).astype(np.int32)


def linear_rows(codes, targets, *, coded, **options):
    rows = CodedRows.of(codes, TABLES)
    X = rows if coded else np.asarray(rows)
    bounds = {"data_norm": NORM, "fit_intercept": True, "target_bounds": (-0.9, 0.9)}
    return LinearRows(X, targets, **bounds | options)


def parameters(shape):
    """θ, with a clip of residuals behind it where the sum wants one."""
    theta = np.random.default_rng(1).normal(size=shape)
    theta[:, D:] = 1.5
    return theta


@pytest.mark.parametrize("n", [0, 1, 7, 500])
def test_products_norms_and_moments_are_those_of_the_array(n):
    rows = CodedRows.of(random_codes(n), TABLES)
    X, rng = np.asarray(rows), np.random.default_rng(2)
    assert X.shape == (n, D - 1)
    for i, codes in enumerate(random_codes(n)):
        np.testing.assert_array_equal(
            X[i], np.concatenate([T[c] for T, c in zip(TABLES, codes, strict=True)])
        )
    close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-11)
    for K in (1, 3):
        weights, scores = rng.normal(size=(D - 1, K)), rng.normal(size=(K, n))
        close(rows @ weights, X @ weights)
        close(scores @ rows, scores @ X)
        close(scores[0] @ rows, scores[0] @ X)
    close(rows.norms(), np.linalg.norm(X, axis=1))
    w = rng.uniform(size=n)
    close(rows.gram(w), X.T @ (w[:, None] * X))
    np.testing.assert_array_equal(np.asarray(rows[2:5]), X[2:5])
    np.testing.assert_array_equal(np.asarray(rows.with_ones()), np.column_stack([X, np.ones(n)]))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("clipped_sum", "shape"), SUMS.values(), ids=SUMS)
def test_every_sum_is_that_over_rows(clipped_sum, shape, kept):
    n = CHUNK_ROWS + 9
    codes = random_codes(n)
    targets = np.random.default_rng(3).uniform(-1, 1, (n, shape[0]))
    term = partial(clipped_sum, parameters(shape))
    found, expected = (
        linear_rows(codes, targets, coded=coded, kept=kept).sum(term, slice(None))
        for coded in (True, False)
    )
    assert np.abs(expected).max() > 10.0
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e5, 1e300, np.inf])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("clipped_sum", "shape"), BOUNDED.values(), ids=BOUNDED)
def test_no_record_moves_a_sum_by_more_than_the_sensitivity(clipped_sum, shape, relation, size):
    theta = parameters(shape)
    theta[:, :D] *= size
    codes, targets = random_codes(20), np.random.default_rng(3).uniform(-1, 1, (20, shape[0]))

    def total(codes, targets):
        rows = linear_rows(codes, targets, coded=True, neighboring_relation=relation)
        return rows.sum(partial(clipped_sum, theta), slice(None))

    without = total(codes, targets)
    totals = [
        total(np.vstack([codes, code]), np.vstack([targets, np.full((1, shape[0]), target)]))
        for code in [*random_codes(5, seed=4), np.array(SIZES) - 1, [0] * len(SIZES)]
        for target in (0.9, -1e300, 5e-324)
    ]
    others = totals if relation == "replace_one" else [without]
    moved = max(np.linalg.norm(a - b) for a in totals for b in others)
    assert np.isfinite(totals).all()
    assert moved <= clipped_sum.sensitivity(relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_record_moves_no_bit_of_the_others_logits_and_norms(relation):
    codes, weights = random_codes(531), np.random.default_rng(5).normal(size=(D, 3))

    def bits(codes):
        rows = linear_rows(
            codes, np.zeros((len(codes), 1)), coded=True, neighboring_relation=relation
        )
        batch = rows.take(slice(None))
        return np.column_stack([batch.logits(weights), batch.norms])

    whole = bits(codes)
    for without in (0, 1, 265, 530):
        np.testing.assert_array_equal(
            bits(np.delete(codes, without, axis=0)), np.delete(whole, without, axis=0)
        )
    np.testing.assert_array_equal(bits(codes[7:8]), whole[7:8])


def test_tables_beyond_the_norm_are_refused_and_codes_beyond_a_table_are_its_last_row():
    rows = linear_rows(random_codes(3), np.zeros((3, 1)), coded=True, data_norm=1.0)
    with pytest.raises(ValueError, match="norm"):
        rows.take(slice(None))
    far = np.full((2, len(SIZES)), 2**30, dtype=np.int32)
    np.testing.assert_array_equal(
        np.asarray(CodedRows.of(far, TABLES)),
        np.asarray(CodedRows.of(np.array([SIZES, SIZES]) - 1, TABLES)),
    )
    assert (CodedRows.of(-far, TABLES).codes == 0).all()


# --- rounding -------------------------------------------------------------------------------------

SMALL = [np.array([[0.1], [0.7], [-1 / 3]]), np.array([[0.3, 1 / 7], [1.1, -0.9]])]


def badly_rounded(m):
    """Numbers of which a sum one after the other keeps the first alone."""
    return np.append(1.0, np.full(m - 1, U))


def exact(w, codes, i, j=None):
    """Sum of w T_i T_jᵀ over rows, and of its absolute values, in fractions."""
    shape = (SMALL[i].shape[1], 1 if j is None else SMALL[j].shape[1])
    total, size = (np.full(shape, Fraction(0)) for _ in range(2))
    for first in range(len(SMALL[i])):
        for second in range(1 if j is None else len(SMALL[j])):
            there = codes[i] == first
            there = there if j is None else there & (codes[j] == second)
            cell = sum(map(Fraction, w[there].tolist()), Fraction(0))
            for a, b in np.ndindex(shape):
                one = Fraction(1) if j is None else Fraction(SMALL[j][second, b])
                term = cell * Fraction(SMALL[i][first, a]) * one
                total[a, b] += term
                size[a, b] += abs(term)
    return total, size


@pytest.mark.parametrize("spread", [False, True])
def test_sums_by_code_err_by_no_more_roundings_than_there_are_rows(spread):
    m = 1000
    codes = np.random.default_rng(0).integers(0, [[3], [2]], (2, m)) if spread else np.ones((2, m))
    rows = CodedRows.of(codes.T.astype(np.int32), SMALL)
    for w in (badly_rounded(m), np.random.default_rng(1).uniform(0.1, 1, m)):
        sums, moments = w @ rows, rows.gram(w)
        for i, place in enumerate(rows.places):
            total, size = exact(w, rows.codes, i)
            for a, value in enumerate(sums[place].tolist()):
                assert abs(Fraction(value) - total[a, 0]) <= m * Fraction(U) * size[a, 0]
            for j, other in enumerate(rows.places):
                total, size = exact(w, rows.codes, i, j)
                for (a, b), value in np.ndenumerate(moments[place, other]):
                    error = abs(Fraction(float(value)) - total[a, b])
                    assert error <= (m + 1) * Fraction(U) * size[a, b]


@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("often", [False, True])
def test_a_sum_over_many_rows_rounds_chunk_by_chunk(often, moments):
    """The worst in one chunk, or in each: what is declared is nearly used up, and is kept."""
    c = 16
    n = c * CHUNK_ROWS
    w = np.tile(badly_rounded(CHUNK_ROWS), c) if often else badly_rounded(n)
    codes = CodedRows.of(np.zeros((n, 1), np.int32), [np.ones((1, 1))])
    targets = np.column_stack([w, w])  # and what is added to logits
    rows = LinearRows(codes, targets, data_norm=1.0, fit_intercept=False)
    gradient = LinearClippedSum(lambda z, targets: targets[:, :1].copy(), np.inf)
    clipped_sum = GramSum(1.0, lambda z, norms: z[:, 0]) if moments else gradient
    found = rows.sum(partial(clipped_sum, np.zeros((1, 1))), slice(None)).item()
    exactly = sum(map(Fraction, w.tolist()))
    error = abs(Fraction(found) - exactly)
    assert error <= (CHUNK_ROWS + c + MAX_PARTS) * Fraction(U) * exactly
    assert error > 0.99 * CHUNK_ROWS * Fraction(U) * exactly
