"""AdaSSP: adaptive sufficient statistics perturbation (Wang 2018, Algorithm 2), as it is printed.

The textbook of private linear regression: three Gaussian releases of (ε/3, δ/3) each, of the least
eigenvalue of XᵀX, of XᵀX and of Xᵀy, and a ridge that follows the first of them.
Y.-X. Wang, *Revisiting Differentially Private Linear Regression*, UAI 2018, Algorithm 2.
"""

import math

import numpy as np


def adassp(X, y, epsilon, delta, rng, *, row_norm=1.0, target_bound=1.0, failure=0.05):
    """Return coefficients for rows of norm ≤ ``row_norm`` and |y| ≤ ``target_bound``."""
    d = X.shape[1]
    X = X * np.minimum(1.0, row_norm / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]
    y = np.clip(y, -target_bound, target_bound)
    moments, least = X.T @ X, float(np.linalg.eigvalsh(X.T @ X)[0])

    # Lines 1 to 3: scale of a release at (ε/3, δ/3), and a lower bound of the least eigenvalue
    log = math.log(6 / delta)
    unit = math.sqrt(log) / (epsilon / 3)
    noisy_least = (
        least + unit * row_norm**2 * rng.standard_normal() - log / (epsilon / 3) * row_norm**2
    )
    noisy_least = max(noisy_least, 0.0)
    wanted = math.sqrt(d * log * math.log(2 * d**2 / failure)) * row_norm**2 / (epsilon / 3)
    ridge = max(0.0, wanted - noisy_least)

    # Lines 4 and 5: symmetric noise, its upper triangle independent N(0, 1), and noise on Xᵀy
    upper = np.triu(rng.standard_normal((d, d)))
    symmetric = upper + np.triu(upper, 1).T
    noisy_moments = moments + unit * row_norm**2 * symmetric
    noisy_cross = X.T @ y + unit * row_norm * target_bound * rng.standard_normal(d)
    return np.linalg.solve(noisy_moments + ridge * np.eye(d), noisy_cross)
