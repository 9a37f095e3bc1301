"""`skdp-verify` against skdp: random events of all classes.

    python benchmarks/verifier.py [--events 2000] [--seed 0]

Events of every class that skdp's estimators write, in a fixed mix. The verifier's ε is compared
with skdp's own, and with a bound that it may not fall below: 40 digits of mpmath for what has a
closed form, an optimistic privacy loss distribution elsewhere, the Rényi accountant at the same
orders for selections.
"""

import argparse
import json
import math
import random
import signal
import sys
import time
from fractions import Fraction
from functools import reduce

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from mpmath import binomial, erfc, exp, fsum, mp, mpf, sqrt

from skdp import verify
from skdp.privacy import epsilon_of_event
from skdp.privacy.discrete import DiscreteGaussianDpEvent, DiscreteGaussianTerm
from skdp.privacy.events import (
    PartDpEvent,
    PosteriorSamplesDpEvent,
    PureDpEvent,
    dp_sgd_event,
    event_to_dict,
    terms_of,
)
from skdp.privacy.parts import paid_together
from skdp.privacy.terms import GaussianTerm, LaplaceTerm, PosteriorTerm, PureTerm
from skdp.relations import check_relation

Composed, Times = dp_event.ComposedDpEvent, dp_event.SelfComposedDpEvent


def _between(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _gaussians(rng):
    sigmas = [_between(rng, 0.7, 300) for _ in range(rng.randint(1, 6))]
    return Composed([Times(dp_event.GaussianDpEvent(s), rng.randint(1, 50)) for s in sigmas])


def _pure(rng):
    kinds = (PureDpEvent, lambda e: dp_event.LaplaceDpEvent(1 / e))
    return Composed([rng.choice(kinds)(_between(rng, 0.01, 1)) for _ in range(rng.randint(1, 4))])


def _posterior(rng):
    return PosteriorSamplesDpEvent(_between(rng, 0.02, 2), rng.choice((1, 1, 2, 5, 20, 100, 200)))


def _discrete(rng):
    scale = 2.0 ** rng.randint(26, 40)
    steps = [
        DiscreteGaussianDpEvent(_between(rng, 1, 100), scale, rng.randint(1, 2000))
        for _ in range(rng.randint(1, 4))
    ]
    return Composed(steps)


def _edges(rng):
    """Quantiles, then Gaussian releases: private edges of bins, and scalers."""
    draws = Times(PosteriorSamplesDpEvent(_between(rng, 0.02, 0.3)), rng.randint(1, 100))
    return Composed([draws, Times(dp_event.GaussianDpEvent(_between(rng, 3, 50)), 21)])


def _poisson(rng):
    return dp_sgd_event(_between(rng, 0.6, 5), _between(rng, 0.001, 0.3), rng.randint(20, 3000))


def _mixed(rng):
    """DP-SGD behind a private scaler."""
    first = rng.choice(
        (PureDpEvent(0.2), dp_event.LaplaceDpEvent(5.0), dp_event.GaussianDpEvent(8))
    )
    return Composed([first, _poisson(rng)])


def _schedule(rng):
    n, slope = rng.randint(40, 600), rng.uniform(0.1, 0.5)
    sigmas = _between(rng, 0.8, 3) * (1 + np.arange(n) / rng.randint(20, 200)) ** slope
    return dp_sgd_event(list(sigmas), _between(rng, 0.002, 0.1))


def _selection(rng):
    base = rng.choice((_gaussians, _poisson, _pure))(rng)
    return dp_event.RepeatAndSelectDpEvent(
        base, rng.choice((1.5, 3.0, 10.0, 30.0)), rng.choice((0.0, 0.5, 1.0, math.inf))
    )


def _parts(rng):
    names = ("train", "test", "calibration")
    made = [PartDpEvent(rng.choice((_gaussians, _pure))(rng), "7f3a", n) for n in names]
    return Composed([*made, *([dp_event.GaussianDpEvent(20.0)] if rng.random() < 0.5 else [])])


# Class, how many in 1000, how far above skdp's ε it may be.
MIX = {
    "Gaussian compositions": (_gaussians, 285, 0.01),
    "pure and Laplace": (_pure, 120, 0.01),
    "posterior samples": (_posterior, 150, 0.01),
    "discrete Gaussian": (_discrete, 140, 0.01),
    "quantiles and Gaussian": (_edges, 80, 0.01),
    "one Poisson plan": (_poisson, 40, 0.05),
    "Poisson plan behind another": (_mixed, 15, 0.05),
    "Poisson schedule": (_schedule, 10, 0.2),
    "private selection": (_selection, 110, 0.2),
    "disjoint parts": (_parts, 50, 0.01),
}


def random_case(rng, kind=None):
    """(class, event, relation, δ)."""
    kind = kind or rng.choices(list(MIX), [share for _, share, _ in MIX.values()])[0]
    relation = rng.choice(("zero_out", "add_or_remove_one", "replace_one", "zero_out_group"))
    event = MIX[kind][0](rng)
    if kind == "private selection" and any(t.sampled for t in terms_of(event)):
        relation = "zero_out"  # there is no Rényi bound of Poisson sampling for replacing a record
    return kind, event, relation, rng.choice((1e-5, 1e-6, 1e-8))


def proved(event, relation, delta):
    """What the verifier says of the event as a report has it."""
    plain = json.loads(json.dumps(event_to_dict(event)))
    return verify.epsilon_of(plain, relation, Fraction(delta))


def lower_bound(event, relation, delta):
    """An ε that no correct bound can be below, and what it is."""
    relation = check_relation(relation)
    terms = terms_of(event)
    if isinstance(event, dp_event.RepeatAndSelectDpEvent):
        if any(isinstance(t, LaplaceTerm | PureTerm) or t.sampled for t in terms[0].inner):
            # dp-accounting's Rényi bound is loose, or leaves out the orders near 1. If scores are
            # equal, a run is what is released.
            runs = 1 - math.exp(-event.mean) if event.shape == math.inf else 1
            return lower_bound(event.event, relation, delta / runs)
        accountant = RdpAccountant(orders=list(map(float, verify.ORDERS)))
        accountant.compose(terms[0].rdp(relation, True))
        return (1 - 1e-6) * float(accountant.get_epsilon(delta)), "Rényi at the same orders"
    together = paid_together(event, relation)
    if len(together) > 1:
        return max(lower_bound(part, relation, delta) for part in together)
    if all(isinstance(t, GaussianTerm | DiscreteGaussianTerm) and not t.sampled for t in terms):
        square = sum(t.count * (relation.factor / mpf(t.noise_multiplier)) ** 2 for t in terms)
        return _least(lambda e: _gaussian(sqrt(square), e), delta), "40 digits"
    if all(isinstance(t, PosteriorTerm) for t in terms) and sum(t.count for t in terms) == 1:
        eta, k = mpf(terms[0].eta), terms[0].n_samples
        at = mpf(epsilon_of_event(event, delta))
        best = max(range(0, k, 1 + k // 25), key=lambda m: _draws(eta, k, m, at))
        return _least(lambda e: _draws(eta, k, best, e), delta), "40 digits"
    terms = [t for t in terms if not isinstance(t, PosteriorTerm)]  # draws have no one pair of laws
    width = min(1e-3, 0.5 / sum(t.count for t in terms))  # each loss is rounded down by as much
    if len(terms) > 8:  # of a schedule, the steps with least noise
        terms = sorted(terms, key=lambda t: t.noise_multiplier)[: len(terms) // 4 : 4]
    losses = [_optimistic(t, relation, width).self_compose(t.count) for t in terms]
    total = reduce(lambda a, b: a.compose(b), losses)
    return float(total.get_epsilon_for_delta(delta + 1e-13)), "optimistic losses"


def _optimistic(term, relation, width):
    options = {
        "value_discretization_interval": width,
        "pessimistic_estimate": False,
        "use_connect_dots": False,
    }
    if isinstance(term, GaussianTerm):
        kinds = NeighboringRelation.REPLACE_ONE, NeighboringRelation.ADD_OR_REMOVE_ONE
        return privacy_loss_distribution.from_gaussian_mechanism(
            term.noise_multiplier,
            sampling_prob=term.sampling_rate,
            neighboring_relation=kinds[relation.null_record],
            **options,
        )
    if isinstance(term, LaplaceTerm):
        scale = term.noise_multiplier / relation.factor
        return privacy_loss_distribution.from_laplace_mechanism(scale, **options)
    flips = 2 / (1 + math.exp(term.epsilon))
    replace = NeighboringRelation.REPLACE_ONE
    return privacy_loss_distribution.from_randomized_response(
        flips, 2, False, width, neighboring_relation=replace
    )


def _phi(x):
    return erfc(-x / sqrt(mpf(2))) / 2


def _gaussian(mu, e):
    return _phi(mu / 2 - e / mu) - exp(e) * _phi(-mu / 2 - e / mu)


def _draws(eta, k, m, e):
    """A lower bound on δ of draws of a bounded range, the largest at the best m (PRIVACY §4)."""
    t = (e + (m + 1) * eta) / (k + 1)
    if t >= eta:
        return mpf(0)
    p = (exp(-t) - exp(-eta)) / (1 - exp(-eta))
    return fsum(
        binomial(k, i) * p ** (k - i) * (1 - p) ** i * (exp(k * t - i * eta) - exp(e))
        for i in range(m + 1)
    )


def _least(curve, delta):
    """Return the largest ε at which a decreasing δ(ε) exceeds δ, to 30 digits, or 0."""
    low, high, delta = mpf(0), mpf(1), mpf(delta)
    if curve(low) <= delta:
        return low
    while curve(high) > delta:
        high *= 2
    while high - low > high * mpf(10) ** -14:
        middle = (low + high) / 2
        low, high = (middle, high) if curve(middle) > delta else (low, middle)
    return low


def compare(n_events, seed):
    """Print what was found, class by class; return how many comparisons fail."""
    rng, rows, failed, done = random.Random(seed), {}, 0, 0
    mp.dps = 40
    signal.signal(signal.SIGINT, lambda *_: stop.append(True))
    stop = []
    while done < n_events and not stop:  # interrupted, it shows what it has
        done += 1
        if done % 100 == 0:
            print(f"{done} of {n_events}", file=sys.stderr, flush=True)
        kind, event, relation, delta = random_case(rng)
        started = time.perf_counter()
        mine = proved(event, relation, delta)
        seconds = time.perf_counter() - started
        theirs = epsilon_of_event(event, delta, relation)
        least, _ = lower_bound(event, relation, delta)
        ratio = float(mine) / theirs if theirs else 1.0 + float(mine)
        below = mpf(str(mine)) < least
        if below or ratio > 1 + MIX[kind][2]:
            failed += 1
            print(f"FAILED {kind}: {event} {relation} {delta}: {mine} {theirs} {least}")
        rows.setdefault(kind, []).append((ratio, seconds))
    seconds = sorted(second for row in rows.values() for _, second in row)
    print(f"{'class':30s} events   ε over skdp's: least, median, largest   yes as it is")
    for kind, row in rows.items():
        ratios = sorted(ratio for ratio, _ in row)
        strict = sum(ratio <= 1 + 1e-9 for ratio in ratios)
        print(
            f"{kind:30s} {len(row):6d}   {ratios[0]:.6f} {ratios[len(row) // 2]:.6f} "
            f"{ratios[-1]:.6f}   {strict} of {len(row)}"
        )
    at = [seconds[int(share * (len(seconds) - 1))] for share in (0.5, 0.95, 1.0)]
    print("seconds: median {:.2f}, 95th percentile {:.2f}, longest {:.2f}".format(*at))
    print(f"{failed} of {done} comparisons fail")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.exit(compare(options.events, options.seed) > 0)
