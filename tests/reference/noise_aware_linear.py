"""Slow posteriors of private linear regression: full matrices, no eigenbases, no fixed points.

`exact` has the data themselves, and a dense grid over ln σ and ln τ. `chain` has what a run has
released, and walks over (θ, A, ln σ, ln τ) by Metropolis' rule under the likelihood of
docs/derivations.md with v_t at θ itself; rows have norm ≤ 1, and every positive A is as likely.
"""

import math

import numpy as np
from scipy.stats import multivariate_normal, norm


def log_prior(log_sigma, log_tau, hyper_scale):
    """ln σ ~ N(ln 0.2, 1), and τ is half-normal; ln τ is what is integrated over."""
    of_tau = log_tau - 0.5 * (math.exp(log_tau) / hyper_scale) ** 2
    return norm.logpdf(log_sigma, math.log(0.2), 1.0) + of_tau


def exact(X, y, hyper_scale, sigmas, taus):
    """Return mean and covariance of θ, and the median of τ, given rows and targets."""
    n, d = X.shape
    weights, means, seconds = [], [], []
    for sigma in sigmas:
        for tau in taus:
            covariance = np.linalg.inv(X.T @ X / sigma**2 + np.eye(d) / tau**2)
            mean = covariance @ X.T @ y / sigma**2
            _, log_det = np.linalg.slogdet(covariance)
            fit = -0.5 * (y @ y / sigma**2 - mean @ np.linalg.solve(covariance, mean))
            evidence = -n * math.log(sigma) + fit + 0.5 * log_det - d * math.log(tau)
            weights.append(evidence + log_prior(math.log(sigma), math.log(tau), hyper_scale))
            means.append(mean)
            seconds.append(covariance + np.outer(mean, mean))
    weights = np.exp(np.array(weights) - np.max(weights))
    weights /= weights.sum()
    mean = np.einsum("i,ij->j", weights, means)
    covariance = np.einsum("i,ijk->jk", weights, seconds) - np.outer(mean, mean)
    of_tau = weights.reshape(len(sigmas), len(taus)).sum(axis=0)
    return mean, covariance, taus[np.searchsorted(np.cumsum(of_tau), 0.5)]


def psi_moments(clip, v):
    """κ, E ψ² and E ψ⁴ of a normal residual, by sums over a fine grid."""
    r = math.sqrt(v) * Z
    psi = np.clip(r / clip, -1.0, 1.0)
    return MASS[np.abs(r) < clip].sum(), MASS @ psi**2, MASS @ psi**4


Z = np.linspace(-8.0, 8.0, 801)
MASS = norm.pdf(Z) / norm.pdf(Z).sum()


def log_likelihood(theta, A, sigma, released):
    """Log density of all releases, those of residuals as one vector."""
    n, nu, a, b = released["n"], released["noise"], *released["weights"]
    sums, queries, clips = released["sums"], released["queries"], released["clips"]
    T, d = queries.shape
    total = -0.5 * np.sum((released["gram"] - A) ** 2) / released["gram_noise"] ** 2
    total -= 0.5 * np.sum((sums[:, -1] - b * (np.trace(A) - n / 2)) ** 2) / nu**2
    h, q, mean, scale_mean, scale_data = [], [], [], [], []
    for t in range(T):
        off = theta - queries[t]
        v = sigma**2 + off @ A @ off / n
        inside, second, fourth = psi_moments(clips[t], v)
        h.append(inside / clips[t])
        q.append(math.sqrt(max(second - h[-1] ** 2 * v, 0.0)))
        mean.append(h[-1] * A @ off)
        scale_mean.append(n * a * (second - 0.5))
        scale_data.append(a * math.sqrt(n * (fourth - second**2)) * sigma**2 / v)
    Q = sigma**2 * np.outer(h, h) + np.outer(q, q)
    covariance = np.kron(Q, A) + nu**2 * np.eye(T * d)
    total += multivariate_normal.logpdf(sums[:, :d].ravel(), np.ravel(mean), covariance)
    covariance = np.outer(scale_data, scale_data) + nu**2 * np.eye(T)
    return total + multivariate_normal.logpdf(sums[:, d], scale_mean, covariance)


def chain(released, hyper_scale, start, scales, n_steps, rng):
    """Return draws (n_steps/2, d + 1) of θ and ln τ from a start (θ, A, ln σ, ln τ), flat."""
    d = released["queries"].shape[1]
    upper = np.triu_indices(d)

    def log_density(point):
        theta, entries, log_sigma, log_tau = np.split(point, [d, -2, -1])
        A = np.zeros((d, d))
        A[upper] = entries
        A = A + np.triu(A, 1).T
        if np.linalg.eigvalsh(A)[0] <= 0.0:
            return -np.inf
        tau = math.exp(log_tau[0])
        prior = norm.logpdf(theta, 0.0, tau).sum()
        prior += log_prior(log_sigma[0], log_tau[0], hyper_scale)
        return prior + log_likelihood(theta, A, math.exp(log_sigma[0]), released)

    point, density, kept = np.array(start), log_density(np.array(start)), []
    for step in range(n_steps):
        proposal = point + scales * rng.standard_normal(len(point))
        proposed = log_density(proposal)
        if math.log(rng.random()) < proposed - density:
            point, density = proposal, proposed
        if step >= n_steps // 2:
            kept.append(np.append(point[:d], point[-1]))
    return np.array(kept)
