"""The peers' side of `single_statistics.py`: diffprivlib and OpenDP, in an environment of theirs.

    python _statistics_peers.py IN.npz OUT.npz

Every answer is of one column of numbers in [0, 100] under pure ε; replaced by its error, as
`single_statistics.py` measures it.
"""

import sys
import warnings

import numpy as np

BOUNDS = LOWER, UPPER = 0.0, 100.0
BINS = 10
QUANTILES = {"median": 0.5, "0.9 quantile": 0.9}


def error_of(statistic, x, answer):
    """How far an answer is from the data's statistic."""
    if statistic == "histogram":
        exact = np.histogram(x, BINS, BOUNDS)[0]
        return np.abs(np.asarray(answer)[:BINS] - exact).mean()
    if statistic in QUANTILES:
        at = QUANTILES[statistic]
        return abs(answer - np.quantile(x, at, method="inverted_cdf"))
    return abs(answer - {"mean": np.mean, "variance": np.var}[statistic](x))


def diffprivlib_answers(statistic, x, epsilon):
    """Return a function that answers once."""
    from diffprivlib import tools

    if statistic == "histogram":
        return lambda: tools.histogram(x, epsilon=epsilon, bins=BINS, range=BOUNDS)[0]
    if statistic in QUANTILES:
        at = QUANTILES[statistic]
        return lambda: tools.quantile(x, at, epsilon=epsilon, bounds=BOUNDS)
    tool = {"mean": tools.mean, "variance": tools.var}[statistic]
    return lambda: tool(x, epsilon=epsilon, bounds=BOUNDS)


def opendp_answers(statistic, x, epsilon):
    """Return the same of OpenDP; rows that are replaced are two of its symmetric distance."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    rows = x.tolist()
    if statistic == "histogram":
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
        edges = np.linspace(*BOUNDS, BINS + 1)[1:-1].tolist()
        binned = space >> dp.t.then_find_bin(edges=edges)
        counts = binned >> dp.t.then_count_by_categories(
            categories=list(range(BINS)), null_category=False
        )
        measure = dp.binary_search_chain(lambda s: counts >> dp.m.then_laplace(s), 1, epsilon)
        return lambda: measure(rows)
    if statistic in QUANTILES:
        space = (
            dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(x)),
            dp.symmetric_distance(),
        )
        candidates = np.linspace(*BOUNDS, 20_001).tolist()  # coarser ones hit or miss by luck
        measure = dp.binary_search_chain(
            lambda s: (
                space
                >> dp.m.then_private_quantile(
                    dp.max_divergence(), candidates, QUANTILES[statistic], s
                )
            ),
            2,
            epsilon,
        )
        return lambda: measure(rows)
    domain = dp.vector_domain(dp.atom_domain(bounds=BOUNDS, nan=False), size=len(x))
    space = domain, dp.symmetric_distance()
    if statistic == "mean":
        exact = space >> dp.t.then_mean()
    else:
        exact = space >> dp.t.then_variance(ddof=0)
    measure = dp.binary_search_chain(lambda s: exact >> dp.m.then_laplace(s), 2, epsilon)
    return lambda: measure(rows)


PEERS = {"diffprivlib": diffprivlib_answers, "OpenDP": opendp_answers}


def main(given, wanted):
    """Write the errors of all peers."""
    cells = np.load(given, allow_pickle=False)
    found = {}
    for name in cells.files:
        if name == "runs":
            continue
        statistic, epsilon, *_ = name.split("|")
        x = cells[name]
        for peer, answers in PEERS.items():
            answer = answers(statistic, x, float(epsilon))
            errors = [error_of(statistic, x, answer()) for _ in range(int(cells["runs"]))]
            found[f"{peer}|{name}"] = np.array(errors)
    np.savez(wanted, **found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
