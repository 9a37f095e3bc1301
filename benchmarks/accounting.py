"""Cold calibration of Poisson plans beside dp-accounting's own search, in one process.

    python benchmarks/accounting.py [--plans 40]

Prints seconds at the 10th, 50th, 90th and 100th percentile for both, the median ratio, and how far
the two noise multipliers are apart. Both use privacy loss distributions.
"""

import argparse
import time

import dp_accounting as dp
import numpy as np

from skdp.privacy import calibrate_noise_multiplier, epsilon


def plans(n):
    """Draw (ε, q, T) over the ranges that models are trained in; δ = 1e-5."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        yield (
            float(np.exp(rng.uniform(np.log(0.1), np.log(10)))),
            float(np.exp(rng.uniform(np.log(1e-3), np.log(0.5)))),
            int(np.exp(rng.uniform(np.log(10), np.log(5000)))),
        )


def timed(function):
    """Return the result and the seconds it took."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def peer(target, q, n_steps):
    """dp-accounting's search."""
    return dp.calibrate_dp_mechanism(
        dp.pld.PLDAccountant,
        lambda sigma: dp.SelfComposedDpEvent(
            dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma)), n_steps
        ),
        target,
        1e-5,
    )


def main():
    """Run both on the same plans, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=40)
    arguments = parser.parse_args()
    epsilon(noise_multiplier=1.0, sampling_rate=0.1, delta=1e-5)  # imports
    rows = []
    for target, q, n_steps in plans(arguments.plans):
        plan = {"delta": 1e-5, "sampling_rate": q, "n_steps": n_steps}
        ours, seconds = timed(lambda t=target, p=plan: calibrate_noise_multiplier(epsilon=t, **p))
        theirs, peer_seconds = timed(lambda a=(target, q, n_steps): peer(*a))
        rows.append((seconds, peer_seconds, ours / theirs))
        assert epsilon(noise_multiplier=ours, **plan) <= target
    seconds, peer_seconds, ratio = np.array(rows).T
    levels = [0.1, 0.5, 0.9, 1.0]
    print(f"skdp           {np.quantile(seconds, levels).round(3)} s")
    print(f"dp-accounting  {np.quantile(peer_seconds, levels).round(3)} s")
    print(f"time ratio dp-accounting/skdp, median {np.median(peer_seconds / seconds):.1f}")
    print(f"noise ratio skdp/dp-accounting, {ratio.min():.4f} to {ratio.max():.4f}")


if __name__ == "__main__":
    main()
