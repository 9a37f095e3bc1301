"""Slow posteriors of one logit at two parameters: dense grids, quadrature over rows, no chains.

Rows have norm ≤ 1 in units of their bound, and scores have no weights (C = 1). Then every noisy
gradient is g̃_t = s + M(θ) − M(θ_t) + ν z_t with M(θ) = n E σ(θ·x) x, and s is normal with mean 0
and covariance V(θ) = n E σ'(θ·x) x xᵀ: all of them together say what their mean says,

    mean_t(g̃_t + M(θ_t)) | θ ~ N(M(θ), V(θ) + ν² I/T).

`exact` has the data, `private` the releases: rows are normal with second moments A, which is drawn
from what the noise in Ã leaves possible, every positive A as likely.
"""

import numpy as np
from scipy.special import expit


def log_prior(theta, blocks, scale, known=False):
    """Ln ∫ Π_b N(θ_b; 0, τ_b²) p(τ_b) dτ_b for half-normal τ_b, (n,), by a sum over ln τ_b."""
    if known:
        return -0.5 * np.sum(theta**2, axis=1) / scale**2
    log_tau = np.log(scale) + np.linspace(-8.0, 2.0, 500)
    total = np.zeros(len(theta))
    for block in set(blocks):
        part = theta[:, np.equal(blocks, block)]
        squares = np.sum(part**2, axis=1)[:, None]
        density = (1 - part.shape[1]) * log_tau - 0.5 * squares * np.exp(-2 * log_tau)
        density = density - 0.5 * np.exp(2 * log_tau) / scale**2
        total += np.log(np.sum(np.exp(density - density.max()), axis=1)) + density.max()
    return total


def summary(theta, log_density):
    """Mean and deviations, (2,) each, of a density on a grid (n, 2)."""
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ theta
    return mean, np.sqrt(weights @ (theta - mean) ** 2)


def grid(centre, deviations, n_points=41):
    """Points (n_points², 2) within six deviations of a centre."""
    axes = [
        c + s * np.linspace(-6.0, 6.0, n_points) for c, s in zip(centre, deviations, strict=True)
    ]
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)


def exact(rows, targets, theta, prior):
    """Mean and deviations of the ordinary logistic posterior, given rows (n, 2)."""
    log_likelihood = np.zeros(len(theta))
    for x, y in zip(rows, targets, strict=True):
        log_likelihood -= np.logaddexp(0.0, (1.0 - 2.0 * y) * (theta @ x))
    return summary(theta, log_likelihood + prior)


def normal_rows(moments, intercept):
    """Nodes (q, 2) and weights (q,) of rows with second moments E x xᵀ, the last one constant."""
    t, w = np.polynomial.hermite_e.hermegauss(20)
    w = w / w.sum()
    if intercept is None:
        first, second = np.meshgrid(t, t)
        z = np.column_stack([first.ravel(), second.ravel()])
        return z @ np.linalg.cholesky(moments).T, np.outer(w, w).ravel()
    mean = moments[0, 1] / intercept
    spread = np.sqrt(moments[0, 0] - mean**2)
    return np.column_stack([mean + spread * t, np.full(len(t), intercept)]), w


def drawn_moments(gram, scale, n, intercept, rng):
    """A/n given Ã, whose noise has deviation s, beside the diagonal s/√2: positive ones."""
    while True:
        noise = scale * rng.standard_normal((2, 2))
        noise[0, 1] = noise[1, 0] = noise[0, 1] / np.sqrt(2.0)
        moments = (gram + noise) / n
        centred = moments
        if intercept is not None:
            mean = moments[0, 1] / intercept
            centred = np.array([[moments[0, 0] - mean**2]])
        if np.linalg.eigvalsh(centred)[0] > 0.0:
            return moments


def private(released, theta, prior, n_draws, rng):
    """Mean and deviations given releases: a dict of arrays in units of the bound of the rows.

    ``gram`` (2, 2) and ``gram_noise``, ``gradients`` and ``queries`` (T, 2), ``noise`` ν, ``n``,
    and ``intercept``, the constant last entry of a row or None.
    """
    n, T = released["n"], len(released["gradients"])
    total = np.full(len(theta), -np.inf)
    for _ in range(n_draws):
        moments = drawn_moments(
            released["gram"], released["gram_noise"], n, released["intercept"], rng
        )
        X, w = normal_rows(moments, released["intercept"])

        def mean_score(theta, X=X, w=w):
            return n * (expit(theta @ X.T) * w) @ X

        statistic = np.mean(released["gradients"] + mean_score(released["queries"]), axis=0)
        p = expit(theta @ X.T)
        V = n * np.einsum("nq,qi,qj->nij", p * (1 - p) * w, X, X)
        V = V + released["noise"] ** 2 / T * np.eye(2)
        off = statistic - mean_score(theta)
        fit = -0.5 * np.einsum("ni,ni->n", off, np.linalg.solve(V, off[..., None])[..., 0])
        total = np.logaddexp(total, fit - 0.5 * np.linalg.slogdet(V)[1])
    return summary(theta, total + prior)
