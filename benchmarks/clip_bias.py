"""How far estimates of real tables move where rows and residuals far out count less, without noise.

    SKDP_DATA=... python benchmarks/clip_bias.py [--kinds logistic,linear,poisson]

The score of each row is weighted by min(1, C/(‖z‖ m)) as in `skdp.algorithms.noise_aware.glm`, C
being f times the usual norm √D, and of numbers residuals are cut at 2.5 √f of their deviations.
Printed for f = 1, 2 and 4 are the root mean square and the largest distance of the coefficients
from those of maximum likelihood, in standard errors, and the first over √n; at last its medians
over the tables of `real_tables.py`. The clip norm of a fit is chosen by the size of the last
(`BIAS` of `noise_aware.families`), of classes by what three in four tables stay below: noise is in
intervals, and this is not.
"""

import argparse

import numpy as np
from real_tables import TARGETS, design, estimate
from scipy.special import expit

FACTORS, USUAL_CUT = (1.0, 2.0, 4.0), 2.5


def weighted(kind, Z, y, start, f):
    """The root of the weighted score, by Newton's method from an estimate."""
    norms, C, w = np.linalg.norm(Z, axis=1), f * np.sqrt(Z.shape[1]), start.copy()
    scale = USUAL_CUT * np.sqrt(f) * (y - Z @ w).std()
    for _ in range(100):
        eta = Z @ w
        if kind == "linear":
            r, slope, most = np.clip(y - eta, -scale, scale), np.abs(y - eta) < scale, 1.0
        elif kind == "logistic":
            p = expit(eta)
            r, slope, most = y - p, p * (1.0 - p), np.maximum(p, 1.0 - p)
        else:
            slope = np.exp(np.minimum(eta, 30.0))
            r, most = y - slope, 1.0
        weight = np.minimum(1.0, C / (norms * most))
        step = np.linalg.solve((Z * (weight * slope)[:, None]).T @ Z, Z.T @ (weight * r))
        w = w + (step if kind == "linear" else step * min(1.0, 2.0 / np.abs(step).max()))
        if np.abs(step).max() < 1e-9 * max(1.0, np.abs(w).max()):
            break
    return w[:-1]


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="logistic,linear,poisson")
    kinds = parser.parse_args().kinds.split(",")
    found = {}
    for kind, name in (cell for cell in TARGETS if cell[0] in kinds):
        of = design(kind, name)
        mean, scale = of.X.mean(axis=0), of.X.std(axis=0)
        Z = np.column_stack([(of.X - mean) / scale, np.ones(len(of.X))])
        whole, errors = estimate(kind, of.X, of.y)
        start = np.append(whole[:-1] * scale, whole[-1] + whole[:-1] @ mean)
        line = f"{kind:8} {name:12} n {len(Z):6}"
        for f in FACTORS:
            off = (weighted(kind, Z, of.y, start, f) - start[:-1]) / (errors * scale)
            typical = float(np.sqrt(np.mean(off**2)))
            found.setdefault((kind, f), []).append(typical / np.sqrt(len(Z)))
            line += f"  f {f:g}: {typical:5.2f} (largest {np.abs(off).max():4.1f}; "
            line += f"{found[kind, f][-1]:.4f} √n)"
        print(line, flush=True)
    for (kind, f), each in found.items():
        print(f"median over √n, {kind}, f {f:g}: {np.median(each):.4f}")


if __name__ == "__main__":
    main()
