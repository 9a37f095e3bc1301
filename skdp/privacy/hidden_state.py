"""Hidden state: what the *last* state of a noisy contractive chain costs, however long it ran.

A noisy gradient method that shows every iterate pays for every step, μ² = Σ (Δ_k/s_k)². Where each
step contracts, the early steps are forgotten: if only the last state leaves, the price stays
bounded as the number of steps grows (Bok, Su & Altschuler, *Shifted Interpolation for Differential
Privacy*, ICML 2024; PRIVACY §5). The chain is

    X_k = Π(φ_k(X_{k−1}) + N(0, s_k² I)),  k = 1..t,

with the same data-independent X_0 for both neighbours, φ_k and φ'_k both c_k-Lipschitz,
sup‖φ_k − φ'_k‖ ≤ Δ_k, and Π a projection onto a fixed convex set (or nothing). Langevin sampling of
an L2-regularised logistic regression is the useful case: with h the step, λ the prior precision, T
the temperature and c = 1 − hλ, any number of steps K costs less than an exact sample,

    μ_K = Δ √[(1/(λT)) (1 − hλ/2) (1 − c^K)/(1 + c^K)]  <  Δ/√(λT).

Every function relies on all of the following, and the caller is the one who can break them:

- the start, step sizes, number of steps, noise scales, λ, T and the partition into batches are
  fixed without looking at the data; feature bounds are public;
- every step uses the full batch or a fixed partition: no Poisson sampling on top, no momentum, no
  Adam, no early stopping, no data-dependent preconditioner; the noise is isotropic;
- the objective is convex (strongly, for c < 1). Gradient clipping keeps it so for the binary
  logistic loss alone, per record, hard and joint over all coordinates; clipped softmax does not;
- one state leaves. An average of iterates, a trace, a diagnostic or a checkpoint is a release of
  its own: for the chain above the last state has μ = .997, the average of all states 2.18.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from skdp.fitting.validate import expected, flag, in_range, integer, is_real, positive
from skdp.relations import check_relation

_UNIT = 2.0**-53  # relative error of one floating-point operation
_ROUND_UP = 1 + 64 * _UNIT  # covers the few dozen operations of a closed form
_HUGE = 1e150  # a Δ_k/s_k beyond which squares overflow: no privacy

# One edge of the hull: V = v 4^e and S = s 2^e in units of its right end, and the gain
# Π c_k = g 2^q that carries the edge on its left to these units.
_Edge = tuple[float, float, int, float, int]


def last_iterate_mu(
    contractions: Sequence[float], noise_scales: Sequence[float], sensitivities: Sequence[float]
) -> float:
    """Least μ known for the last state of a noisy Lipschitz chain, in O(t).

    Parameters
    ----------
    contractions : sequence of float, length t
        Lipschitz constants c_k ≥ 0 of both neighbours' maps φ_k; above 1 the map expands.
    noise_scales : sequence of float, length t
        Standard deviation s_k > 0 of the isotropic noise added to each coordinate of the *state*;
        for gradient descent with step η and noise σ on the gradient, s = ησ.
    sensitivities : sequence of float, length t
        Δ_k ≥ 0 with sup‖φ_k − φ'_k‖ ≤ Δ_k, the factor 2 of replace-one included; in the unit of
        the state, so ηL/n for a mean of n gradients of which one moves by at most L. 0 at a step
        that does not touch the record.

    Returns
    -------
    float
        μ ≥ 0, rounded up (relative 1e-15 t); 0 for an empty chain, infinite where some Δ_k/s_k
        exceeds 1e150.

    Notes
    -----
    Shifting the interpolated process by a_k at step k costs a_k/s_k and leaves a distance
    b_k = c_k b_{k−1} + Δ_k − a_k, so μ² = min Σ (a_k/s_k)² over a_k, b_k ≥ 0 with b_0 = b_t = 0.
    With C_k = Π_{j>k} c_j, V_k = Σ_{j≤k} C_j² s_j² and S_k = Σ_{j≤k} C_j Δ_j, the sums
    A_k = Σ_{j≤k} C_j a_j must stay below S_k and meet it at t, and the price is Σ (dA)²/dV: the
    string pulled taut below the points (V_k, S_k), which is their lower convex hull, and
    μ² = Σ (ΔS)²/ΔV over its edges.

    Examples
    --------
    >>> from skdp.privacy.hidden_state import last_iterate_mu
    >>> round(last_iterate_mu([1.0] * 4, [2.0] * 4, [1.0] * 4), 6)  # no contraction: composition
    1.0
    >>> round(last_iterate_mu([0.5] * 4, [2.0] * 4, [1.0, 0.0, 0.0, 0.0]), 6)  # used once, early
    0.054233
    """
    c = _sequence(0.0, "left", contractions=contractions)
    s = _sequence(0.0, "neither", noise_scales=noise_scales)
    Δ = _sequence(0.0, "left", sensitivities=sensitivities)
    if not len(c) == len(s) == len(Δ):
        lengths = (len(c), len(s), len(Δ))
        remedy = "one contraction, noise and sensitivity a step"
        raise expected("three equal lengths", remedy, lengths=lengths)
    t = len(c)
    if t == 0:
        return 0.0
    with np.errstate(over="ignore"):
        if np.max(Δ / s) > _HUGE:
            return math.inf
    hull: list[_Edge] = []
    for c_k, s_k, Δ_k in zip(c.tolist(), s.tolist(), Δ.tolist(), strict=True):
        if c_k == 0.0:
            hull.clear()  # the step forgets its past: C_j = 0 for all earlier j
        m, e = math.frexp(s_k)
        edge = (m * m, math.ldexp(Δ_k, -e), e, *math.frexp(c_k))
        while hull and not _is_convex(hull[-1], edge):
            edge = _join(hull.pop(), edge)
        hull.append(edge)
    mu = math.sqrt(math.fsum(s * s / v for v, s, *_ in hull))
    # V and S are sums of positive terms that passed through at most t products and t additions.
    return mu * (1 + 8 * (t + 8) * _UNIT)


# C_k over a million steps leaves the range of doubles in either direction, and yet an edge counts
# with (ΔS)²/ΔV, in which its scale cancels. So each edge keeps a binary exponent of its own.


def _carry(left: _Edge, edge: _Edge) -> tuple[float, float, int]:
    """V, S and exponent of the left edge, in units of the right end of its neighbour."""
    v, s, e, _, _ = left
    _, _, _, g, q = edge
    return v * g * g, s * g, e + q


def _is_convex(left: _Edge, edge: _Edge) -> bool:
    """Whether the slope S/V rises from the left edge to this one."""
    v_l, s_l, e_l = _carry(left, edge)
    v, s, e, _, _ = edge
    # Only ever scaled down: an underflow is a term too small to count, an overflow would be none.
    if e_l >= e:
        return math.ldexp(s_l * v, e - e_l) < s * v_l
    return s_l * v < math.ldexp(s * v_l, e_l - e)


def _join(left: _Edge, edge: _Edge) -> _Edge:
    v_l, s_l, e_l = _carry(left, edge)
    v, s, e, g, q = edge
    if e_l >= e:
        v, s, e = v_l + math.ldexp(v, 2 * (e - e_l)), s_l + math.ldexp(s, e - e_l), e_l
    else:
        v, s = v + math.ldexp(v_l, 2 * (e_l - e)), s + math.ldexp(s_l, e_l - e)
    while v < 0.25:
        v, s, e = 4 * v, 2 * s, e - 1
    g, more = math.frexp(g * left[3])
    return v, s, e, g, q + left[4] + more


def _sequence(low: float, closed: str, **kw: Any) -> np.ndarray:
    ((_, values),) = kw.items()
    kind = f"a sequence of finite numbers {'>=' if closed == 'left' else '>'} {low:g}"
    numbers = isinstance(values, np.ndarray) or (
        isinstance(values, Sequence) and all(is_real(value) for value in values)
    )
    array = np.asarray(values) if numbers else np.asarray(None)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise expected(kind, **kw)
    array = array.astype(float)
    inside = array >= low if closed == "left" else array > low
    if not np.all(inside & np.isfinite(array)):
        raise expected(kind, **kw)
    return array


def full_batch_mu(
    *, contraction: float, n_steps: int, noise_scale: float, sensitivity: float
) -> float:
    """μ of the last of t equal full-batch steps: (Δ/s) √[(1+c)/(1−c) · (1−c^t)/(1+c^t)].

    The step is c-Lipschitz, c in [0, 1]: gradient descent with step η on an m-strongly convex,
    M-smooth objective has c = max(|1 − ηm|, |1 − ηM|), for both neighbours. s > 0 is the noise of
    one update, ησ if the noise σ is added to the mean gradient, and Δ ≥ 0 how far neighbours'
    updates differ: ηL/n with L = C, or L = 2C under replace-one. Only Δ/s counts, so (σ, L/n) of
    the mean gradient, or (nσ, L) of the sum, may be given too. Rounded up; equal to composition, √t
    Δ/s, at c = 1, and attained by a linear map.

    At equal steps the hull of `last_iterate_mu` is one edge, μ² = S_t²/V_t: in a = −ln c it reads
    (Δ/s)² tanh(t·a/2)/tanh(a/2), which keeps its digits near 1.

    >>> from skdp.privacy.hidden_state import full_batch_mu
    >>> round(full_batch_mu(contraction=0.9, n_steps=100, noise_scale=1.0, sensitivity=0.1), 4)
    0.4359
    """
    c = _contraction(contraction)
    t = integer(0, n_steps=n_steps)
    s = positive(noise_scale=noise_scale)
    Δ = in_range(0.0, math.inf, closed="left", sensitivity=sensitivity)
    return Δ / s * _forgetting(-math.log(c) if c > 0 else math.inf, t)


def _contraction(contraction: float) -> float:
    remedy = "an expansive chain is for last_iterate_mu"
    return in_range(0.0, 1.0, remedy, closed="both", contraction=contraction)


def _forgetting(a: float, t: int) -> float:
    """√[tanh(t·a/2)/tanh(a/2)]: how many steps' worth (as a root) is remembered, at c = e^−a."""
    composition = math.sqrt(t)
    if a < 1e-300 or t == 0:
        return composition * _ROUND_UP
    return _ROUND_UP * min(composition, math.sqrt(math.tanh(t * a / 2) / math.tanh(a / 2)))


def langevin_mu(
    *,
    step_size: float,
    n_steps: int,
    prior_precision: float,
    temperature: float,
    data_norm: float,
    n_samples: int,
    n_classes: int = 2,
    fit_intercept: bool = True,
    neighboring_relation: str = "zero_out",
) -> float:
    """μ of the last state of Langevin sampling an L2-regularised logistic regression.

    The chain is θ ← θ − h∇U(θ) + √(2hT) ξ with U(θ) = Σ_i ℓ_i(θ) + (λ/2)‖θ‖² from a public θ_0,
    ξ standard normal, for the binary logistic loss (one weight vector) or, from 3 classes on, the
    softmax loss (one weight vector a class). It need not have converged: that is about utility.

    Parameters
    ----------
    step_size : float
        h > 0, at most 2/(2λ + nR²/4), or 2/(2λ + nR²/2) for softmax, so that c = 1 − hλ for every
        data set within the bounds.
    n_steps : int
        K ≥ 0.
    prior_precision : float
        λ > 0, on *every* coordinate, the intercept's too.
    temperature : float
        T > 0; the target is exp(−U/T).
    data_norm : float
        Public bound ≥ 0 on ‖x_i‖, the intercept's 1 not counted: R² = data_norm² + 1 with an
        intercept, R = data_norm without.
    n_samples : int
        Public number of rows n ≥ 1. Under add-or-remove-one an upper bound on the rows of *both*
        neighbours, which restricts the data sets that the guarantee speaks of.
    n_classes : int, default=2
        2 is binary, more is softmax.
    fit_intercept : bool, default=True
        Whether a 1 is appended to every row.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        The gradient sensitivity is R, or 2R under replace-one; √2 R and 2√2 R for softmax. A null
        record contributes no gradient, the intercept's included.

    Returns
    -------
    float
        μ ≥ 0, rounded up.

    Raises
    ------
    ValueError
        If a number is out of range or the step is too long for the contraction to hold.

    Notes
    -----
    Update noise s = √(2hT) and sensitivity hΔ in `full_batch_mu` give (Δ/√(λT)) times
    √[(1 − hλ/2)(1 − c^K)/(1 + c^K)]. The Hessian of U lies between λ and M = λ + nR²/4 (softmax:
    nR²/2), so h ≤ 2/(λ + M) makes max(|1 − hλ|, |1 − hM|) = 1 − hλ.

    Examples
    --------
    >>> from skdp.privacy.hidden_state import langevin_mu
    >>> public = dict(prior_precision=4.0, temperature=0.25, data_norm=1.0, n_samples=1000)
    >>> round(langevin_mu(step_size=0.001, n_steps=1000, **public), 4)
    1.3874
    """
    h = positive(step_size=step_size)
    K = integer(0, n_steps=n_steps)
    λ = positive(prior_precision=prior_precision)
    T = positive(temperature=temperature)
    norm = in_range(0.0, math.inf, closed="left", data_norm=data_norm)
    n = integer(1, n_samples=n_samples)
    softmax = integer(2, n_classes=n_classes) > 2
    R = math.hypot(norm, 1.0) if flag(fit_intercept=fit_intercept) else norm
    Δ = check_relation(neighboring_relation).factor * (math.sqrt(2.0) if softmax else 1.0) * R
    M = λ + n * R * R / (2 if softmax else 4)
    # A step of exactly 2/(λ + M) may exceed it by a rounding: then c is 1 − gap with the gap that
    # the upper end of the spectrum leaves, minus the rounding of hM.
    gap = h * λ if h * (λ + M) <= 2 * (1 - 16 * _UNIT) else min(h * λ, 2 - h * M - 16 * _UNIT)
    if h * (λ + M) > 2 * (1 + 1e-12) or gap <= 0:
        longest = 2 / (λ + M)
        raise expected(f"at most 2/(2λ + nR²/{2 if softmax else 4}) = {longest:g}", step_size=h)
    return _ROUND_UP * Δ * math.sqrt(h / (2 * T)) * _forgetting(-math.log1p(-gap), K)


def cyclic_batch_mu(
    *,
    contraction: float,
    n_batches: int,
    n_epochs: int,
    batch_size: int,
    noise_scale: float,
    sensitivity: float,
    neighboring_relation: str = "zero_out",
) -> float:
    """μ of the last state after whole epochs over a fixed partition, at the worst position.

    For l ≥ 2 batches μ = (L/(bσ)) √[1 + c^(2l−2) (1−c²)/(1−c^l)² · (1−c^(l(E−1)))/(1+c^(l(E−1)))].

    The step on *each* batch's objective is c-Lipschitz, c in [0, 1], of either neighbour; l ≥ 1
    batches of one size are visited in a fixed order that may not depend on the data, E ≥ 0 whole
    epochs; b ≥ 1 divides the sum of a batch's gradients, σ > 0 is the noise on their *mean* (update
    noise ησ), and L ≥ 0 how far the *sum* moves: C, or 2C under replace-one, which the caller puts
    in. Under ``"add_or_remove_one"`` a record more would move the others between batches: refused.

    The last state sees a record in batch p < l through l − p steps that do not touch it, so p = l
    is the worst. There the hull of `last_iterate_mu` has one edge from the record's first step to
    the end of the last step but one, and the last step is an edge of its own, the 1 in the formula.
    """
    c = _contraction(contraction)
    l = integer(1, n_batches=n_batches)  # noqa: E741 (the paper's letter)
    E = integer(0, n_epochs=n_epochs)
    b = integer(1, batch_size=batch_size)
    σ = positive(noise_scale=noise_scale)
    L = in_range(0.0, math.inf, closed="left", sensitivity=sensitivity)
    if not check_relation(neighboring_relation).n_is_public:
        what = "'zero_out' or 'replace_one'"
        remedy = "a fixed partition does not survive adding a record"
        raise expected(what, remedy, neighboring_relation=neighboring_relation)
    if l == 1:
        return full_batch_mu(contraction=c, n_steps=E, noise_scale=b * σ, sensitivity=L)
    if E == 0:
        return 0.0
    if c == 1.0:
        earlier = (E - 1) / l
    elif c == 0.0 or E == 1:
        earlier = 0.0
    else:
        a = -math.log(c)
        earlier = -math.exp(-(2 * l - 2) * a) * math.expm1(-2 * a) / math.expm1(-l * a) ** 2
        # The error of an exponential grows with its argument.
        earlier *= math.tanh(l * (E - 1) * a / 2) * (1 + 4 * l * a * _UNIT)
    return _ROUND_UP * L / (b * σ) * math.sqrt(1 + earlier)
