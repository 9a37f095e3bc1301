"""The posterior of softmax coefficients given noisy scores, by weighting draws. Slow and obvious.

    g_t | θ ~ N(Σ_i w_i(θ_t) (softmax(θ x_i) − softmax(θ_t x_i)) x_iᵀ, common noise + ν² I),

θ ~ N(0, τ² I): the noise that all g_t have in common is that of the labels, with a covariance that
is given. The density of the mean of all g_t is written down as it stands, and draws from a normal
distribution that is wider than the posterior are weighted by it.
"""

import numpy as np


def probabilities(rows, theta):
    """Class probabilities, (..., n, K), for θ of shape (..., K, D)."""
    logits = np.einsum("nd,...kd->...nk", rows, theta)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def weights(rows, theta, bound):
    """min(1, C / (‖x‖ max_y ‖e_y − p‖)), (n,)."""
    p = probabilities(rows, theta)
    labels = np.eye(p.shape[1])
    largest = np.max([np.linalg.norm(e - p, axis=1) for e in labels], axis=0)
    return np.minimum(1.0, bound / (np.linalg.norm(rows, axis=1) * largest))


def expected_gradient(rows, n, theta, query, bound):
    """Mean of a gradient at a query where θ is true, (..., K, D); rows stand for n."""
    w = weights(rows, query, bound) * n / len(rows)
    differences = probabilities(rows, theta) - probabilities(rows, query)
    return np.einsum("n,...nk,nd->...kd", w, differences, rows)


def covariance_of_labels(rows, n, theta, queries, bound):
    """Covariance of the mean gradient by the labels, (KD, KD)."""
    p = probabilities(rows, theta)
    w = np.mean([weights(rows, query, bound) for query in queries], axis=0)
    of_label = p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])
    K, D = theta.shape
    V = np.einsum("n,nkl,nd,ne->kdle", w**2 * n / len(rows), of_label, rows, rows)
    return V.reshape(K * D, K * D)


def posterior(rows, n, gradients, queries, bound, noise, prior_scale, proposal, n_draws, rng):
    """Return the posterior's mean and covariance, and the effective number of draws.

    Parameters
    ----------
    proposal : (mean, covariance)
        Normal distribution that is drawn from, (KD,) and (KD, KD).
    """
    K, D = queries[0].shape
    center, spread = proposal
    theta = rng.multivariate_normal(center, spread, size=n_draws)
    V = covariance_of_labels(rows, n, center.reshape(K, D), queries, bound)
    precision = np.linalg.inv(V + noise**2 / len(queries) * np.eye(K * D))
    off = np.empty((n_draws, K * D))
    for start in range(0, n_draws, 500):
        chunk = theta[start : start + 500].reshape(-1, K, D)
        means = [expected_gradient(rows, n, chunk, query, bound) for query in queries]
        off[start : start + 500] = (np.mean(gradients, axis=0) - np.mean(means, axis=0)).reshape(
            len(chunk), -1
        )
    log_density = -0.5 * np.einsum("si,ij,sj->s", off, precision, off)
    log_density -= 0.5 * np.sum(theta**2, axis=1) / prior_scale**2
    away = theta - center
    log_density += 0.5 * np.einsum("si,ij,sj->s", away, np.linalg.inv(spread), away)
    w = np.exp(log_density - log_density.max())
    w /= w.sum()
    mean = w @ theta
    return mean, (theta - mean).T @ ((theta - mean) * w[:, None]), 1.0 / (w @ w)
