"""What a plan declares: how far neighbours move a sum, and how much noise that takes."""

import numpy as np
import pytest
import torch
from bundles import bundled

from skdp import DPVariationalModel
from skdp.algorithms.dp_vi_model import CURVATURE_CLIP
from skdp.algorithms.noise_aware.families import Cut
from skdp.algorithms.noise_aware.numbers import InsideGram, WeightedResiduals
from skdp.algorithms.user_model.sums import GRADIENT, OUTER, SQUARES, LengthCounts, ModelClippedSum
from skdp.engine import release_hook
from skdp.engine.grid import GridSum, lattice_bound
from skdp.engine.linear_sums import GramSum, LinearClippedSum, ScoreGramSum
from skdp.engine.loop import ReleasePlan
from skdp.engine.sampling import sampling
from skdp.models.likelihoods import Bernoulli
from skdp.relations import RELATIONS, sensitivity_factor
from skdp.rows.bounded_sum import ROUNDING
from skdp.rows.records import LinearRows

ZERO, CLIP = np.zeros((1, 2)), np.array([[0.0, 0.0, 0.1]])
UP, ACROSS, NONE = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
# For each sum: where it is asked for, and two records that move it as far as any.
LINEAR = {
    "score": (LinearClippedSum(Bernoulli().residual, 0.3), ZERO, (UP, 0.0), (UP, 1.0)),
    "moments": (GramSum(0.7), ZERO, (UP, 0.0), (ACROSS, 0.0)),
    "trace": (GramSum(0.7, trace_only=True), ZERO, (UP, 0.0), (NONE, 0.0)),
    "products": (
        ScoreGramSum(LinearClippedSum(Bernoulli().residual, 0.3)), ZERO, (UP, 0.0), (ACROSS, 1.0),
    ),
    "slope of residuals": (
        InsideGram(0.4, cut=Cut(0.5, 0.8)), CLIP, (UP, 0.0), (ACROSS, 0.0),
    ),
}  # fmt: skip
SIGMAS = [0.05, 1.0, 3.7, 400.0]


class Identity:
    """A model whose gradients are the rows."""

    def gradients(self, theta, x, y):
        return x.clone()


MODEL = {kind: ModelClippedSum(Identity(), kind, 0.6) for kind in (GRADIENT, OUTER, SQUARES)}
MODEL["lengths"] = LengthCounts(Identity(), (0.5, 1.5))
RESIDUALS = WeightedResiduals(Cut(0.3, 1.0))  # of which opposite ones have equal squares
EVERY = {name: case[0] for name, case in LINEAR.items()} | MODEL
EVERY |= {"residuals": RESIDUALS, "residual products": ScoreGramSum(RESIDUALS)}


def batch(*records):
    rows, targets = np.array([r for r, _ in records]), np.array([[t] for _, t in records])
    made = LinearRows(rows, targets, data_norm=1.0, fit_intercept=False, alone=True)
    return made.take(slice(None))


def plan(clipped_sum, sigma, relation, rate=1.0, secure=False):
    return ReleasePlan(sampling(rate, 3), clipped_sum, sigma, relation, secure)


@pytest.mark.parametrize("name", LINEAR)
def test_replacing_a_record_moves_a_sum_as_far_as_is_declared(name):
    clipped_sum, at, one, other = LINEAR[name]
    moved = np.linalg.norm(clipped_sum(at, batch(one)) - clipped_sum(at, batch(other)))
    declared = clipped_sum.sensitivity("replace_one")
    assert 0.99 * declared <= moved <= declared


@bundled("relation", ["replace_one", "add_or_remove_one"])
@bundled("sigma", SIGMAS)
@bundled("name", LINEAR)
def test_on_the_grid_it_moves_as_many_units_as_the_noise_pays_for(name, sigma, relation):
    clipped_sum, at, one, other = LINEAR[name]
    on_grid = GridSum(clipped_sum, sigma, relation)
    difference = on_grid(at, batch(one))
    if relation == "replace_one":
        difference = difference - on_grid(at, batch(other))
    squares = sum(int(v) ** 2 for v in difference.ravel())
    most = int(sensitivity_factor(relation)) * lattice_bound(sigma)
    assert (99 * most) ** 2 <= 10**4 * squares
    assert squares <= most**2


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (GRADIENT, UP, [-1.0, 0.0]),
        (OUTER, UP, ACROSS),
        (SQUARES, UP, ACROSS),
        ("lengths", UP, [2.0, 0.0]),
    ],
)
def test_the_sums_of_a_model_move_as_far_as_is_declared_and_no_farther(kind, one, other):
    rng, clipped_sum = np.random.default_rng(0), MODEL[kind]
    declared = clipped_sum.sensitivity("replace_one")

    def moved(*pair):
        rows = (torch.tensor([row], dtype=torch.float64) for row in pair)
        terms = (clipped_sum._sum(row, torch.linalg.vector_norm(row, dim=1)) for row in rows)
        first, second = ((t + t.mT) / 2 if kind == OUTER else t for t in terms)
        return float((first - second).norm())

    assert 0.99 * declared <= moved(one, other) <= declared
    for pair in rng.normal(0, 2, (200, 2, 2)).tolist():
        assert moved(*pair) <= declared


@bundled("relation", RELATIONS)
@bundled("sigma", SIGMAS)
@bundled("name", EVERY)
def test_on_full_batches_the_noise_is_what_the_event_says_of_the_sensitivity(name, sigma, relation):
    # An event of noise multiplier σ is accounted as μ = factor/σ.
    call = plan(EVERY[name], sigma, relation).step((3,) if name in MODEL else (1, 3), 0)[1]
    mu = sensitivity_factor(relation) / sigma
    assert call.sensitivity / call.scale == pytest.approx(mu, rel=1e-14)
    if name in LINEAR:
        call = plan(EVERY[name], sigma, relation, secure=True).step((1, 3), 0)[1]
        assert mu * (1 - 1e-9) <= call.sensitivity / call.scale <= mu * (1 + 1e-14)


@bundled("relation", RELATIONS)
@bundled("name", EVERY)
def test_on_random_batches_the_noise_is_that_of_one_record_alone(name, relation):
    """A batch may hold one of two records that are exchanged, and not the other.

    The accountant's pair for a rate q is (1 − q) N(0, σ²) + q N(±1, σ²) in units of one record's
    bound: with probability q the record is there, and nothing is in its place in the other batch.
    Terms that cannot be opposite do not make that shift smaller.
    """
    clipped_sum = EVERY[name]
    scale = plan(clipped_sum, 2.0, relation, rate=0.5).noise_scale(0)
    assert scale == pytest.approx(2.0 * clipped_sum.record_bound * (1 + ROUNDING), rel=1e-14)


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_curvature_of_random_batches_is_released_with_the_noise_of_one_record(covariance):
    model = DPVariationalModel(
        lambda theta, x: -0.5 * ((x - theta) ** 2).sum(dim=1),
        2,
        n_samples=40,
        max_iter=4,
        sampling_rate=0.5,
        clip_norm=0.2,
        covariance=covariance,
        neighboring_relation="replace_one",
    )
    with release_hook.record() as tape:
        fitted = model.fit(np.random.default_rng(0).normal(size=(40, 2)))
    bounds = sorted({r.call.scale / fitted.noise_multiplier_ for r in tape})
    # In units of the clip.
    curvature = CURVATURE_CLIP**2 * (1 + ROUNDING)
    assert bounds == pytest.approx([curvature, 1 + ROUNDING], rel=1e-14)


def test_without_noise_there_is_no_scale():
    unbounded = LinearClippedSum(Bernoulli().residual, np.inf)
    for rate in (0.5, 1.0):
        assert plan(unbounded, 0.0, "replace_one", rate).noise_scale(0) == 0.0
