import math

import mpmath
import numpy as np
import pytest
from bundles import bundled
from scipy.optimize import nnls
from scipy.special import ndtr

from skdp.privacy.gdp import gdp_delta, gdp_to_epsilon
from skdp.privacy.hidden_state import cyclic_batch_mu, full_batch_mu, langevin_mu, last_iterate_mu

# --- the hull against an optimiser that knows nothing of hulls -----------------------------------


def mu_by_quadratic_program(c, s, Δ):
    """min ‖x‖ over x_k = a_k/s_k ≥ 0 with b_k ≥ 0 and b_t = 0, by Lawson & Hanson's LDP.

    The least distance problem min ‖x‖ s.t. Gx ≥ h is a non-negative least squares problem, which
    an active-set method solves to rounding; b is built by its recursion, in no scaled units.
    """
    t = len(c)
    B, constant = np.zeros((t, t)), np.zeros(t)  # b = constant − B x
    row, offset = np.zeros(t), 0.0
    for k in range(t):
        row, offset = c[k] * row, c[k] * offset + Δ[k]
        row[k] += s[k]
        B[k], constant[k] = row, offset
    G = np.vstack([-B, B[-1:], np.eye(t)])
    h = np.concatenate([-constant, constant[-1:], np.zeros(t)])
    size = np.linalg.norm(np.column_stack([G, h]), axis=1)
    G, h = G / size[:, None], h / size
    E = np.vstack([G.T, h])
    f = np.zeros(t + 1)
    f[-1] = 1.0
    u, _ = nnls(E, f, maxiter=100 * t)
    active = u > 0
    # At the solution x is the point of least norm where the active constraints are equalities.
    x = np.linalg.lstsq(G[active], h[active], rcond=None)[0]
    assert np.all(G @ x >= h - 1e-9)
    return float(np.linalg.norm(x))


def random_chain(seed):
    rng = np.random.default_rng(seed)
    t = int(rng.integers(1, 13))
    c = rng.uniform(0.3, 1.5, t) if seed % 2 else rng.uniform(0.0, 1.0, t)
    if seed % 5 == 0:
        c[rng.integers(t)] = 0.0
    s = np.exp(rng.uniform(-1, 1, t))
    Δ = np.exp(rng.uniform(-1.5, 1.5, t))
    if seed % 3 == 0:
        Δ *= rng.random(t) < 0.5
    return c, s, Δ


@pytest.mark.parametrize("block", range(10))
def test_hull_is_the_optimum_on_300_random_chains(block):
    for seed in range(30 * block, 30 * block + 30):
        c, s, Δ = random_chain(seed)
        if np.any(Δ > 0) and last_iterate_mu(c, s, Δ) > 0:
            assert last_iterate_mu(c, s, Δ) == pytest.approx(mu_by_quadratic_program(c, s, Δ), 1e-9)
        else:
            assert last_iterate_mu(c, s, Δ) == 0.0


def mu_in_4000_digits(c, s, Δ):
    """The hull of the points as they are, for C_k² that differ by up to 3500 digits."""
    with mpmath.workdps(4000):
        C = [mpmath.mpf(1)]
        for factor in reversed(c[1:]):
            C.append(C[-1] * mpmath.mpf(float(factor)))
        C.reverse()
        points = [(mpmath.mpf(0), mpmath.mpf(0))]
        for C_k, s_k, Δ_k in zip(C, s, Δ, strict=True):
            V, S = points[-1]
            points.append((V + (C_k * float(s_k)) ** 2, S + C_k * float(Δ_k)))
        μ2, at = mpmath.mpf(0), 0
        while at < len(points) - 1:  # gift wrapping: the flattest way on
            V, S = points[at]
            slopes = [((p[1] - S) / (p[0] - V), -j) for j, p in enumerate(points) if j > at]
            slope, last = min(slopes)
            μ2 += slope**2 * (points[-last][0] - V)
            at = -last
        return mpmath.sqrt(μ2)


@bundled("seed", range(12))
def test_hull_survives_products_beyond_the_range_of_doubles(seed):
    rng = np.random.default_rng(1000 + seed)
    t = 60
    c = np.exp(np.repeat(rng.normal(0, 40, t // 6), 6))  # Π c_k may reach e^±2000
    s = np.exp(rng.normal(0, 20, t))
    Δ = s * np.exp(rng.normal(0, 5, t)) * (rng.random(t) < 0.8)
    mu, exact = last_iterate_mu(c, s, Δ), mu_in_4000_digits(c, s, Δ)
    assert exact <= mu <= exact * (1 + 1e-12)


def test_a_hundred_thousand_steps_neither_overflow_nor_lose_digits():
    t = 10**5  # 2^t, and 0.5^t, are far beyond the range of doubles
    ones = np.ones(t)
    shift_once = np.zeros(t)
    shift_once[0] = 1.0
    halving = full_batch_mu(contraction=0.5, n_steps=t, noise_scale=1.0, sensitivity=0.1)
    assert last_iterate_mu(ones / 2, ones, ones / 10) == pytest.approx(halving, rel=2e-9)
    assert last_iterate_mu(2 * ones, ones, ones / 10) == pytest.approx(math.sqrt(t) / 10, rel=2e-9)
    # Expansion after the only shift: μ² = 4^(t−1)/Σ 4^j = 3/4.
    assert last_iterate_mu(2 * ones, ones, shift_once) == pytest.approx(0.75**0.5, rel=2e-9)


@bundled("seed", range(40))
def test_hull_is_at_most_composition_and_falls_with_noise_and_contraction(seed):
    c, s, Δ = random_chain(seed)
    mu = last_iterate_mu(c, s, Δ)
    loose = 1 + 1e-12
    assert mu <= math.sqrt(np.sum((Δ / s) ** 2)) * loose
    assert mu <= last_iterate_mu(c + 0.1, s, Δ) * loose
    assert mu <= last_iterate_mu(c, s, Δ + 0.1) * loose
    assert last_iterate_mu(c, s * 1.1, Δ) <= mu * loose
    # One more step that does not touch the record is post-processing.
    assert last_iterate_mu([*c, 0.9], [*s, 0.5], [*Δ, 0.0]) <= mu * loose
    assert last_iterate_mu([*c, 1.7], [*s, 0.5], [*Δ, 0.0]) <= mu * loose
    # What comes before a map that forgets does not count.
    assert last_iterate_mu([*c, 0.0], [*s, 0.5], [*Δ, 0.2]) == pytest.approx(0.4, rel=1e-12)
    # Nor does the Lipschitz constant of the first map, whose argument is the common start.
    assert last_iterate_mu([9.0, *c[1:]], s, Δ) == pytest.approx(mu, rel=1e-12)


def test_small_cases_by_hand():
    assert last_iterate_mu([], [], []) == 0.0
    assert last_iterate_mu([7.0], [2.0], [3.0]) == pytest.approx(1.5, rel=1e-14)
    assert last_iterate_mu([0.0, 0.0], [1.0, 1.0], [1.0, 0.0]) == 0.0
    # Shift first, then c = 1 without one: both noises hide it.
    assert last_iterate_mu([1, 1], [3.0, 4.0], [5, 0]) == pytest.approx(1.0, rel=1e-14)
    # Shift last: only its own noise does.
    assert last_iterate_mu([1, 1], [3.0, 4.0], [0, 4]) == pytest.approx(1.0, rel=1e-14)


# --- closed forms --------------------------------------------------------------------------------


@bundled("c", [0.0, 1e-3, 0.3, 0.9, 0.999, 1 - 1e-7, 1 - 1e-12, 1.0])
@bundled("t", [0, 1, 2, 3, 17, 400])
def test_full_batch_form_is_the_hull(c, t):
    mu = full_batch_mu(contraction=c, n_steps=t, noise_scale=0.7, sensitivity=0.3)
    assert mu == pytest.approx(last_iterate_mu([c] * t, [0.7] * t, [0.3] * t), rel=1e-11)


def test_full_batch_form_is_rounded_up():
    for c in (0.1, 0.5, 0.99, 1 - 1e-9):
        for t in (1, 2, 10, 1000):
            with mpmath.workdps(50):
                x = mpmath.mpf(c)
                exact = mpmath.sqrt((1 + x) / (1 - x) * (1 - x**t) / (1 + x**t))
            mu = full_batch_mu(contraction=c, n_steps=t, noise_scale=1.0, sensitivity=1.0)
            assert exact <= mu <= exact * (1 + 2e-14)


@bundled("c", [0.0, 0.2, 0.9, 0.999, 1 - 1e-9, 1.0])
@bundled("n_batches", [1, 2, 3, 10])
@bundled("n_epochs", [0, 1, 2, 7])
def test_cyclic_form_is_the_hull_at_the_last_and_worst_position(c, n_batches, n_epochs):
    b, σ, L, η = 5, 0.2, 1.3, 0.1
    mu = cyclic_batch_mu(
        contraction=c,
        n_batches=n_batches,
        n_epochs=n_epochs,
        batch_size=b,
        noise_scale=σ,
        sensitivity=L,
    )
    t = n_batches * n_epochs
    at = []
    for position in range(n_batches):
        Δ = np.where(np.arange(t) % n_batches == position, η * L / b, 0.0)
        at.append(last_iterate_mu([c] * t, [η * σ] * t, Δ))
    assert mu == pytest.approx(at[-1], rel=1e-11)
    assert max(at) <= mu * (1 + 1e-12)


def test_langevin_form_is_the_formula_and_the_hull():
    rng = np.random.default_rng(5)
    for _ in range(50):
        λ, T, norm = np.exp(rng.normal(size=3))
        n, classes = int(rng.integers(1, 1000)), int(rng.integers(2, 5))
        intercept, relation = bool(rng.integers(2)), rng.choice(["zero_out", "replace_one"])
        R2 = norm**2 + intercept
        longest = 2 / (2 * λ + n * R2 / (4 if classes == 2 else 2))
        h, K = longest * rng.choice([1.0, rng.random()]), int(rng.integers(1, 200))
        Δ = math.sqrt(R2) * (1 if classes == 2 else math.sqrt(2))
        Δ *= 2 if relation == "replace_one" else 1
        mu = langevin_mu(
            step_size=h, n_steps=K, prior_precision=λ, temperature=T, data_norm=norm, n_samples=n,
            n_classes=classes, fit_intercept=intercept, neighboring_relation=str(relation),
        )  # fmt: skip
        c = 1 - h * λ
        formula = Δ * math.sqrt((1 - h * λ / 2) * (1 - c**K) / (1 + c**K) / (λ * T))
        # At the longest step, c comes from the other end of the spectrum: 1 − c to a rounding.
        tolerance = 1e-11 + 1e-14 / (h * λ)
        assert mu == pytest.approx(formula, rel=tolerance)
        hull = last_iterate_mu([c] * K, [math.sqrt(2 * h * T)] * K, [h * Δ] * K)
        assert mu == pytest.approx(hull, rel=tolerance)
        assert mu < Δ / math.sqrt(λ * T)


def langevin_with_unit_price(hλ, K):
    h = hλ / 1.0
    public = {"prior_precision": 1.0, "temperature": 1.0, "data_norm": 1.0, "n_samples": 100}
    return langevin_mu(step_size=h, n_steps=K, **public, fit_intercept=False)


def test_published_anchors_of_langevin():
    # PRIVACY §5, δ = 1e-5 and Δ²/(λT) = 1
    assert langevin_with_unit_price(0.01, 1000) == pytest.approx(0.997, abs=5e-4)
    assert gdp_to_epsilon(langevin_with_unit_price(0.01, 1000), 1e-5) == pytest.approx(
        4.364, abs=5e-4
    )
    assert gdp_to_epsilon(langevin_with_unit_price(0.01, 100), 1e-5) == pytest.approx(
        2.814, abs=5e-4
    )
    composition = math.sqrt(1000) * 0.01 / math.sqrt(2 * 0.01)
    assert gdp_to_epsilon(composition, 1e-5) == pytest.approx(11.48, abs=5e-3)


def test_the_average_of_all_states_is_no_last_state():
    # PRIVACY §5: for the linear chain the average has μ = 2.18, exactly computable.
    c, K, s = 0.99, 1000, math.sqrt(0.02)
    weights = (1 - c ** np.arange(K, 0, -1)) / (1 - c) / K  # of step j's shift and noise
    average = 0.01 * weights.sum() / (s * math.sqrt(np.sum(weights**2)))
    assert average == pytest.approx(2.18, abs=5e-3)
    assert average > 2 * langevin_with_unit_price(0.01, K)


def test_mu_rises_with_steps_to_a_finite_limit():
    mus = [langevin_with_unit_price(0.01, K) for K in (0, 1, 10, 100, 1000, 10**6)]
    assert mus == sorted(mus)
    assert mus[0] == 0.0
    assert mus[-1] == pytest.approx(math.sqrt(1 - 0.005), rel=1e-12)


# --- exact densities of one-dimensional chains ---------------------------------------------------


class Chain:
    """Law of X_k = Π(φ_k(X_{k−1}) + N(0, s_k²)) in one dimension, by quadrature.

    Between the ends of the interval the density is analytic, so Gauss-Legendre converges faster
    than any power of the number of nodes; what a projection puts on the ends is kept apart.
    """

    N_NODES = 300

    def __init__(self, start, low, high, project):
        nodes, weights = np.polynomial.legendre.leggauss(self.N_NODES)
        self.low, self.high, self.project = low, high, project
        self.nodes = (low + high) / 2 + (high - low) / 2 * nodes
        self.weights = (high - low) / 2 * weights
        self.points, self.masses = np.array([float(start)]), np.array([1.0])

    def step(self, φ, s):
        centres = φ(self.points)
        self.centres, self.s, self.mixture = centres, s, self.masses
        z = (self.nodes[:, None] - centres) / s
        density = np.exp(-z * z / 2) @ self.masses / (s * math.sqrt(2 * math.pi))
        points, masses = self.nodes, density * self.weights
        if self.project:
            below = ndtr((self.low - centres) / s) @ self.masses
            above = ndtr((centres - self.high) / s) @ self.masses
            points = np.concatenate([points, [self.low, self.high]])
            masses = np.concatenate([masses, [below, above]])
        self.points, self.masses = points, masses
        # The derived error of the audit: the quadrature conserves mass to rounding.
        assert abs(masses.sum() - 1) < 1e-12

    def cells(self, edges):
        """Probability of each cell, from the normal CDF: the last state is a mixture of normals."""
        z = (edges[:, None] - self.centres) / self.s
        left = np.where(z <= 0, ndtr(z), 0.0)
        right = np.where(z > 0, ndtr(-z), 0.0)
        # Differences of the smaller tail keep the digits of either.
        probability = np.where(z[1:] <= 0, left[1:] - left[:-1], right[:-1] - right[1:])
        across = (z[:-1] <= 0) & (z[1:] > 0)
        probability = np.where(across, 1 - left[:-1] - right[1:], probability)
        return probability @ self.mixture


def audit(pair_of_maps, noise, reach, interval=None, n_cells=1000):
    """Exact δ(ε) of the binned last states of the two chains from 0, the worse of both directions.

    A cell is a set of outputs, so binning can only lower δ, never raise it. Without a projection,
    states beyond ±reach have a probability that the check of mass finds to be nil.
    """
    low, high = interval or (-reach, reach)
    chains = [Chain(0.0, low, high, interval is not None) for _ in range(2)]
    for maps, s in zip(pair_of_maps, noise, strict=True):
        for chain, φ in zip(chains, maps, strict=True):
            chain.step(φ, s)
    inner = np.linspace(low, high, n_cells)
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    p, q = (chain.cells(edges) for chain in chains)
    return lambda ε: max(
        np.maximum(p - math.exp(ε) * q, 0).sum(), np.maximum(q - math.exp(ε) * p, 0).sum()
    )


def linear_reach(c, t, shift, s):
    """Nine standard deviations beyond the largest mean."""
    steps = c ** np.arange(t)
    return shift * steps.sum() + 9 * s * math.sqrt(np.sum(steps**2))


AUDIT_ERROR = 1e-10  # mass is conserved to 1e-12 a step, times e^ε ≤ 50


def worst_ratio(delta, μ):
    """max δ_exact/δ_certificate over a grid of ε where the certificate is well above the error."""
    ratios = []
    for ε in np.linspace(0.0, min(3.9, 4 * μ + μ * μ / 2), 25):
        certificate = gdp_delta(μ, ε)
        if certificate > 1e-6:
            exact = delta(ε)
            assert exact <= certificate * (1 + 1e-9) + AUDIT_ERROR
            ratios.append(exact / certificate)
    return max(ratios)


def linear(c, shift):
    return lambda x: c * x, lambda x: c * x + shift


LINEAR = [(c, t, size) for c in (0.0, 0.5, 0.9, 1.0) for t in (1, 2, 5, 12) for size in (0.2, 0.4)]


@pytest.mark.parametrize(("c", "t", "size"), LINEAR)
def test_audit_linear_full_batch_meets_its_certificate(c, t, size, figure):
    s = 0.5
    delta = audit([linear(c, size)] * t, [s] * t, linear_reach(c, t, size, s))
    μ = full_batch_mu(contraction=c, n_steps=t, noise_scale=s, sensitivity=size)
    attained = worst_ratio(delta, μ)
    figure(f"exact δ of the last iterate over its certificate: {attained:.4f}")
    assert attained > 0.999
    with pytest.raises(AssertionError):  # and a tenth less is found out
        worst_ratio(delta, 0.9 * μ)


@pytest.mark.thorough
@bundled("size", [0.3, 0.6])
@bundled(
    ("c", "n_batches", "position"),
    [(c, n, p) for c in (0.5, 0.9, 1.0) for n, p in ((2, 0), (2, 1), (3, 0), (3, 2))],
)
def test_audit_linear_cyclic_batches(c, n_batches, position, size):
    s, epochs = 0.5, 3
    steps = [
        linear(c, size if k % n_batches == position else 0.0) for k in range(epochs * n_batches)
    ]
    delta = audit(steps, [s] * len(steps), linear_reach(c, len(steps), size, s))
    μ = cyclic_batch_mu(
        contraction=c,
        n_batches=n_batches,
        n_epochs=epochs,
        batch_size=1,
        noise_scale=s,
        sensitivity=size,
    )
    assert 0.1 < worst_ratio(delta, μ) <= 1 + 1e-9


def logistic_gradient(x, y):
    return lambda θ: -y * x / (1 + np.exp(y * x * θ))


LOGISTIC = [
    (hλ, n, t, relation, interval)
    for hλ in (0.05, 0.3)
    for n in (1, 4)
    for t in (2, 8)
    for relation in ("zero_out", "replace_one")
    for interval in (None, (-0.8, 1.2))
]


@pytest.mark.thorough
@bundled(("hλ", "n", "t", "relation", "interval"), LOGISTIC)
def test_audit_langevin_of_logistic_regression(hλ, n, t, relation, interval):
    λ, T, R = 1.0, 1.5, 1.0
    h = hλ / λ
    others = [logistic_gradient(R * (-1) ** i, 1) for i in range(n - 1)]
    mine = logistic_gradient(R, 1)
    other_me = logistic_gradient(R, -1) if relation == "replace_one" else (lambda θ: 0 * θ)

    def step(record):
        return lambda θ: θ - h * (λ * θ + record(θ) + sum(g(θ) for g in others))

    s = math.sqrt(2 * h * T)
    reach = linear_reach(1 - hλ, t, h * n * R, s)
    delta = audit([(step(mine), step(other_me))] * t, [s] * t, reach, interval)
    μ = langevin_mu(
        step_size=h, n_steps=t, prior_precision=λ, temperature=T, data_norm=R, n_samples=n,
        fit_intercept=False, neighboring_relation=relation,
    )  # fmt: skip
    assert 0.05 < worst_ratio(delta, μ) <= 1 + 1e-9


# A wave, contractive or expansive, and shifts that are uneven or depend on the state.
WAVES = [
    (c, t, size, interval)
    for c in (0.6, 0.95, 1.15)
    for t in (2, 6)
    for size in (0.25, 0.5)
    for interval in (None, (-1.0, 1.0))
]


@pytest.mark.thorough
@bundled(("c", "t", "size", "interval"), WAVES)
def test_audit_nonlinear_maps_with_uneven_steps(c, t, size, interval):
    noise = [0.4 + 0.1 * (k % 3) for k in range(t)]
    shifts = [size * (1 + k % 2) for k in range(t)]
    reach = c + 2 * size + 9 * max(noise)

    def pair(shift):
        return (lambda x: c * np.sin(x)), (lambda x: c * np.sin(x) + shift / np.cosh(x - c / 2))

    # The second map is Lipschitz with c + shift·max|sech'| = c + shift/2.
    μ = last_iterate_mu([c + Δ / 2 for Δ in shifts], noise, shifts)
    delta = audit([pair(Δ) for Δ in shifts], noise, reach, interval)
    assert 0.001 < worst_ratio(delta, μ) <= 1 + 1e-9
    # A shift that is the same everywhere leaves both maps c-Lipschitz.
    μ = last_iterate_mu([c] * t, noise, shifts)
    delta = audit(
        [((lambda x: c * np.sin(x)), (lambda x, Δ=Δ: c * np.sin(x) + Δ)) for Δ in shifts],
        noise,
        reach,
        interval,
    )
    assert 0.001 < worst_ratio(delta, μ) <= 1 + 1e-9


def test_audit_sees_a_forgotten_factor_two():
    s, c, t, C = 0.5, 0.9, 8, 0.15
    delta = audit([linear(c, 2 * C)] * t, [s] * t, linear_reach(c, t, 2 * C, s))  # replace-one
    μ = full_batch_mu(contraction=c, n_steps=t, noise_scale=s, sensitivity=C)
    with pytest.raises(AssertionError):
        worst_ratio(delta, μ)


# --- garbage -------------------------------------------------------------------------------------

BAD = [float("nan"), float("inf"), -1.0, "1", None, True]


@bundled("bad", BAD)
@bundled("name", ["contractions", "noise_scales", "sensitivities"])
def test_bad_sequences_are_refused_by_name(name, bad):
    good = {"contractions": [0.5] * 2, "noise_scales": [1.0] * 2, "sensitivities": [1.0] * 2}
    for sequence in ([1.0, bad], bad, [[1.0, 1.0]], {1.0, 2.0}):
        with pytest.raises(ValueError, match=f"{name}="):
            last_iterate_mu(**{**good, name: sequence})


def test_unequal_lengths_and_zero_noise_are_refused():
    with pytest.raises(ValueError, match="lengths="):
        last_iterate_mu([0.5], [1.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="noise_scales="):
        last_iterate_mu([0.5], [0.0], [1.0])
    with pytest.raises(ValueError, match="sensitivities="):
        last_iterate_mu([0.5], [1.0], np.array([True]))


FULL = {"contraction": 0.5, "n_steps": 3, "noise_scale": 1.0, "sensitivity": 1.0}
CYCLIC = {
    "contraction": 0.5,
    "n_batches": 2,
    "n_epochs": 3,
    "batch_size": 4,
    "noise_scale": 1.0,
    "sensitivity": 1.0,
}
LANGEVIN = {
    "step_size": 0.01, "n_steps": 10, "prior_precision": 1.0, "temperature": 1.0,
    "data_norm": 1.0, "n_samples": 10, "n_classes": 2,
}  # fmt: skip


@bundled("bad", BAD)
@bundled(
    ("function", "good"),
    [(full_batch_mu, FULL), (cyclic_batch_mu, CYCLIC), (langevin_mu, LANGEVIN)],
)
def test_bad_numbers_are_refused_by_name(function, good, bad):
    for name in good:
        with pytest.raises(ValueError, match=f"{name}="):
            function(**{**good, name: bad})


def test_what_the_theorem_does_not_cover_is_refused():
    with pytest.raises(ValueError, match="contraction="):
        full_batch_mu(**{**FULL, "contraction": 1.1})
    with pytest.raises(ValueError, match="add_or_remove_one"):
        cyclic_batch_mu(**CYCLIC, neighboring_relation="add_or_remove_one")
    with pytest.raises(ValueError, match="neighboring_relation="):
        cyclic_batch_mu(**CYCLIC, neighboring_relation="neighbour")
    with pytest.raises(ValueError, match="neighboring_relation="):
        langevin_mu(**LANGEVIN, neighboring_relation="neighbour")
    with pytest.raises(ValueError, match="fit_intercept="):
        langevin_mu(**LANGEVIN, fit_intercept=1)


@pytest.mark.parametrize(("classes", "divisor"), [(2, 4), (3, 2)])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_step_that_need_not_contract_is_refused(classes, divisor, intercept):
    longest = 2 / (2 * 1.0 + 10 * (1 + intercept) / divisor)
    public = {**LANGEVIN, "n_classes": classes, "fit_intercept": intercept}
    assert langevin_mu(**{**public, "step_size": longest}) > 0
    with pytest.raises(ValueError, match="step_size="):
        langevin_mu(**{**public, "step_size": longest * 1.0001})
