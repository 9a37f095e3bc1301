"""The law of Langevin dynamics with a step of finite length, on a normal target, in closed form."""

import numpy as np


def langevin_moments(precision, linear, temperature, step, n_samples):
    """Return the stationary law of a chain and how many independent draws its samples stand for.

    The target is ∝ exp((−½ θᵀPθ + cᵀθ)/T), and the chain θ ← θ + h(c − Pθ) + N(0, 2Th I). With
    θ' = θ − mean it is the autoregression θ' ← (I − hP)θ' + noise, whose stationary covariance Σ_h
    solves Σ = (I − hP)Σ(I − hP) + 2Th I, so Σ_h = T P⁻¹ (I − hP/2)⁻¹.

    Parameters
    ----------
    precision, linear : ndarray of shape (d, d) and (d,)
        P and c.
    temperature, step : float
        T and h.
    n_samples : int
        Length of the chain.

    Returns
    -------
    mean, covariance, step_covariance, n_effective
        P⁻¹c, TP⁻¹ of the target, Σ_h of the chain, and the length over the longest of the
        autocorrelation times (1 + ρ)/(1 − ρ).
    """
    mean = np.linalg.solve(precision, linear)
    covariance = temperature * np.linalg.inv(precision)
    step_covariance = covariance @ np.linalg.inv(np.eye(len(mean)) - step * precision / 2)
    rho = 1 - step * np.linalg.eigvalsh(precision)
    return mean, covariance, step_covariance, n_samples * np.min((1 - rho) / (1 + rho))
