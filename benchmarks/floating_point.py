"""Refute a neighbour by the low-order bits of a release: floating-point attacks on skdp.

    python benchmarks/floating_point.py [names ...] [--fits 400] [--bits 20 45 50 52 54 60]

Noise in floating point cannot reach every double, and which ones it misses depends on the value
below it (Mironov 2012). The adversary knows both neighbours, D and D', to the bit and asks of each
output: is there a double z, of noise or of a proposal, that gives it from D? From D'? If no
such z exists for D', the release proves D. Printed, per case and grid: the share of the fits on D
and of those on D' that refute D, and the share that refute D'. A data set that was used is never
refuted, or the attack is wrong; one that was not is refuted where doubles leak.

``--bits`` puts rounded releases on a grid of 2^-bits of the scale in place of the library's. At 60
there is in effect no grid, and the attacks must work; bisection for one z does down to about 2^-50.

What the adversary recomputes is what the code computes: a fit on the hypothetical rows runs with
the noise silenced, the releases replaced by those observed, and what each would have been without
noise kept. From there to the output every operation, the rounding to the grid included, is monotone
in z, so that bisection over all doubles z finds one if there is one.

- Rejection draws: the integer potential and the envelope. There is no z to look for, because no
  double is computed from a draw: all that is left to ask is whether the output has positive
  probability, and it has if it is a point of the public grid and ball whose exponent is finite and
  at least 0. The code of the draws itself is asked. Nothing is refuted if grid and ball are public
  and the envelope lies above the posterior; that probabilities are the stated ones is not shown.
- "raw draws", the control, are drawn as by skdp 0.1.0: a draw is fl(c + fl(s z)), with centre and
  deviation of the rows, and is released as it is. Most of them must refute the neighbour.
- Noisy sums: the exact sum. The adversary is given the sums of the trace, more than a user sees.
- "path": only the iterates of DP-SGLD, which users see; z passes through the update as well.
- From 2^13 coordinates on the noise of arrays and tensors is made by the Box-Muller transform of
  pairs (z, z') from uniform
  numbers of 63 bits, so r² = z² + z'² is -2 ln(k/2^63) for an integer k: in the tail such rings
  are far apart, and a pair of cells that none of them crosses is out of reach. With 24 bits, those
  of single precision, this refutes the neighbour on the library's own grid; with 53 bits it does at
  2^-45 nearly always for one release of 2^14 coordinates, and at 2^-20 with a probability of 3e-11
  per pair, which many weights and steps add up. So the library has 63, draws 53 more where
  k < 2^43, and in the tail rings are nowhere wider apart than 2^-44.

References
----------
I. Mironov, *On Significance of the Least Significant Bits for Differential Privacy*, CCS 2012.
"""

import argparse
import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import nn

from skdp import (
    DPSGDClassifier,
    DPSGLDRegressor,
    DPVariationalLogisticRegression,
    OPSPosteriorSampler,
    OPSRegressor,
)
from skdp.algorithms import exact_draws
from skdp.algorithms.dp_sgld import DPSGLDUpdate
from skdp.algorithms.envelopes import Envelope
from skdp.algorithms.parts.gaussian_runs import release_plan_of
from skdp.engine import release_hook
from skdp.fitting import plan, streams
from skdp.fitting.streams import SecureStream, Streams
from skdp.mechanisms import GaussianMechanism, LaplaceMechanism
from skdp.preprocessing import DPPCA, DPStandardScaler
from skdp.rows.records import clipped_rows

RAW = "raw draws"


class Case(NamedTuple):
    """What to attack."""

    fit: Callable[..., Any]  # of the rows
    data: tuple  # arguments of `fit`
    neighbour: tuple
    n_releases: int = 1  # the fit may stop after so many
    path: bool = False  # whether the adversary sees iterates of DP-SGLD and no releases
    rounded: bool = True  # whether it is rounding alone that hides the low-order bits
    control: bool = False  # whether nothing hides them


class Unknown(NamedTuple):
    """An output as a function of z, from hypothetical rows."""

    exact: Any
    scale: float
    width: float
    in_pairs: bool = False  # whether z comes in pairs of the generator
    after: Callable[[Any], Any] = lambda released: released

    def __call__(self, z):
        """Compute what the code computes."""
        if isinstance(self.exact, torch.Tensor):
            noisy = torch.add(self.exact, torch.from_numpy(z), alpha=self.scale)
        else:
            noisy = self.exact + self.scale * z
        return np.asarray(self.after(release_hook.on_grid(noisy, self.width)))

    def refuted(self, output):
        """Whether no z gives the output."""
        return not has_a_z(self, np.asarray(output))


class Draws:
    """The law of exact draws, from hypothetical rows."""

    def __init__(self, potential):
        self._lattice, self._envelope = potential.lattice, Envelope(potential)

    def refuted(self, output):
        """Whether one of the draws has probability 0."""
        g = output.reshape(len(output), -1) / self._lattice.width
        on_grid = (g == np.rint(g)).all(axis=1)
        g = np.rint(g).astype(np.int64)
        in_ball = np.array([sum(c * c for c in point) for point in g.tolist()])
        possible = on_grid & (in_ball <= self._lattice.square)
        return not (possible.all() and all(map(self._has_an_exponent, g)))

    def _has_an_exponent(self, g):
        envelope, v = self._envelope, (g - self._envelope.center)[None]
        shell = envelope.shell_of(v)
        law = envelope.shells[shell[0]].law
        z = law.coordinates(v)
        again, near = law.points(z)
        try:
            (x,) = envelope.exponents(g[None], z, shell)
        except RuntimeError:  # the envelope is below the posterior there
            return False
        return bool(near.all() and (again == v).all()) and x >= 0


# --- fits: real ones, and ones on hypothetical rows -----------------------------------------------


class Enough(Exception):
    """The releases that the attack looks at have been made."""


def observed(case, rows):
    """Fit; return the outputs that the adversary sees."""
    seen = []

    def hook(call, mechanism):
        if len(seen) == case.n_releases:
            raise Enough
        seen.append(mechanism())
        return seen[-1]

    try:
        with release_hook._hooked(hook):
            fitted = case.fit(*rows)
    except Enough:
        return seen
    return list(fitted.posterior_samples_) if case.path else seen


class Captured(Exception):
    """The potential that draws were to be made of."""


def captured(potential, stream):
    """Stand in for the sampler."""
    raise Captured(potential)


class Proposal(Exception):
    """Centre and deviation of a proposal."""

    def __init__(self, center, deviation):
        super().__init__()
        self.center, self.deviation = center, deviation


class Symbol:
    """Stands for the normals in `center + deviation * normals`, and reports the other two."""

    __array_ufunc__ = None

    def __rmul__(self, deviation):
        self.deviation = deviation
        return self

    def __radd__(self, center):
        raise Proposal(center, self.deviation)


def as_supposed(call, mechanism):
    """Return what a release is under hypothetical rows: the law of draws, or a function of z."""
    raw = call.kind == RAW
    drawn = [0]

    def silent(stream, shape):
        drawn.append(np.zeros(shape).size)
        return Symbol() if raw else np.zeros(shape)

    quiet = {
        "normal": silent,
        "scratch_normal": silent,
        "generator": SimpleNamespace(standard_exponential=np.zeros, random=np.zeros),
    }
    with ExitStack() as stack:
        for name, value in quiet.items():
            stack.enter_context(mock.patch.object(SecureStream, name, value))
        stack.enter_context(
            mock.patch.object(release_hook, "on_grid", lambda values, width: values)
        )
        stack.enter_context(mock.patch.object(exact_draws, "rejection", captured))
        try:
            return Unknown(mechanism(), call.scale, call.width, max(drawn) >= streams.MANY)
        except Captured as capture:
            return Draws(*capture.args)
        except Proposal as proposal:
            center = np.broadcast_to(proposal.center, call.shape)
            return Unknown(center, proposal.deviation, call.width)


def unknowns(case, rows, outputs):
    """Fit on hypothetical rows, following the outputs; return what each is a function of z of."""
    found = []
    real_update = DPSGLDUpdate.update

    def hook(call, mechanism):
        if len(found) == case.n_releases:
            raise Enough
        found.append(as_supposed(call, mechanism))
        return found[-1].exact if case.path else outputs[len(found) - 1]

    def update(self, state, noisy, step):
        def theta(released):
            return real_update(self, state, released.to(state.theta.dtype), step).theta

        found[step] = found[step]._replace(after=theta)
        followed = real_update(self, state, noisy, step)
        return followed._replace(theta=torch.from_numpy(outputs[step]))

    with ExitStack() as stack:
        stack.enter_context(release_hook._hooked(hook))
        if case.path:
            stack.enter_context(mock.patch.object(DPSGLDUpdate, "update", update))
        with suppress(Enough):
            case.fit(*rows)
    return found


RADIUS_BITS = 63  # of the uniform numbers from which radii are made

# --- the attack -----------------------------------------------------------------------------------


def doubles(ranks):
    """Doubles by their rank: monotone, 0 is 0.0, and neighbours are neighbours."""
    return np.copysign(np.abs(ranks).view(np.float64), ranks)


def first_rank(holds, shape):
    """Return the lowest rank of a double for which a monotone condition holds."""
    most = np.array(1024.0).view(np.int64)
    low, high = np.full(shape, -most), np.full(shape, most)
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        there = holds(doubles(middle))
        high, low = np.where(there, middle, high), np.where(there, low, middle)
    return high


def has_a_z(unknown, output):
    """Whether a double z, or pairs of them from the generator, give the output."""
    guess = (output - np.asarray(unknown.exact)) / unknown.scale
    if not unknown.in_pairs and (unknown(guess) == output).all():
        return True
    first = first_rank(lambda z: unknown(z) >= output, output.shape)
    if (unknown(doubles(first)) != output).any():
        return False
    if not unknown.in_pairs:
        return True
    last = first_rank(lambda z: unknown(z) > output, output.shape) - 1
    return bool(on_a_ring(doubles(first).ravel(), doubles(last).ravel()).all())


def on_a_ring(low, high):
    """Whether z² + z'² can be -2 ln(k/2^RADIUS_BITS), for pairs (z_2i, z_2i+1) from low to high.

    Below 2^-20 the uniform numbers have more bits, and everything is taken to be in reach.

    Of an odd number of coordinates the last pair is not all seen.
    """
    m = len(low) // 2
    nearest = np.maximum(np.maximum(low, -high), 0.0) ** 2 * (1 - 2e-15)
    farthest = np.maximum(-low, high) ** 2 * (1 + 2e-15)
    nearest, farthest = (a[: 2 * m].reshape(m, 2).sum(axis=1) for a in (nearest, farthest))
    # Room for the rounding of logarithm, root, sine and product there, and of squares and exp here.
    scale = 2.0**RADIUS_BITS
    least = np.ceil(np.exp(-farthest / 2) * scale * (1 - 4e-15))
    most = np.floor(np.exp(-nearest / 2) * scale * (1 + 4e-15))
    return (least <= most) | (least < scale / 2**streams.RARE_BITS)


@contextmanager
def grid_of(bits):
    """Round to 2^-bits of the scale. Plans are kept, and know the grid that they were made with."""

    def forget():
        plan.PLANS.clear()
        release_plan_of.cache_clear()

    forget()
    with mock.patch.object(release_hook, "GRID_BITS", bits):
        yield
    forget()


def attack(case, n_fits):
    """Return shares [[D refuted on D, on D'], [D' refuted on D, on D']]."""
    counts = np.zeros((2, 2))
    kept = {}
    both = list(enumerate((case.data, case.neighbour)))
    for (used, rows), (supposed, hypothesis) in n_fits * list(product(both, both)):
        if supposed == 0:
            outputs = observed(case, rows)
        # The first release depends on no other.
        functions = kept.get(supposed) or unknowns(case, hypothesis, outputs)
        if case.n_releases == 1:
            kept[supposed] = functions
        pairs = zip(functions, outputs, strict=True)
        counts[supposed, used] += any(f.refuted(output) for f, output in pairs)
    return counts / n_fits


# --- cases ----------------------------------------------------------------------------------------


def table(n_rows, n_columns, n_classes=2):
    """Rows and labels, some of them noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n_rows, n_columns))
    score = X[:, 0] + 0.3 * rng.normal(size=n_rows)
    return X, np.digitize(score, np.linspace(-0.5, 0.5, n_classes + 1)[1:-1])


def without_first(*arrays):
    """Leave the first record out, which full batches take for a null record."""
    return tuple(a[1:] for a in arrays)


def with_another_first(X, y):
    """Replace the first record."""
    X, y = X.copy(), y.copy()
    X[0], y[0] = -X[0], 1 - y[0]
    return X, y


def fits(make, n_rows, **parameters):
    """Return a function of rows that makes and fits."""
    return lambda *rows: make(n_samples=n_rows, **parameters).fit(*rows)


def linear(n_inputs, n_outputs, dtype):
    """A linear model that starts where the adversary knows: at zero."""
    module = nn.Linear(n_inputs, n_outputs, dtype=dtype)
    for weights in module.parameters():
        nn.init.zeros_(weights)
    return module


def raw_draw(X, y):
    """Draw from a posterior as skdp 0.1.0 did, and release the double.

    Proposals are normal around the mean c that the data term has with its tangent at the mode in
    its place, and what they are above the posterior is paid back by a coin.
    """
    power, precision, D = 0.1, 0.5, 4.0
    rows = clipped_rows(X, 3.0, fit_intercept=True) * (2.0 * y - 1.0)[:, None]

    def potential(theta):
        logits = rows @ theta
        return power * np.logaddexp(0.0, -logits).sum(), -power * (expit(-logits) @ rows)

    def objective(theta):
        value, gradient = potential(theta)
        return value + precision / 2 * (theta @ theta), gradient + precision * theta

    mode = minimize(objective, np.zeros(rows.shape[1]), jac=True, options={"gtol": 1e-9}).x
    value, gradient = potential(mode)
    center, deviation = -gradient / precision, precision**-0.5
    stream = Streams()("noise")

    def mechanism():
        while True:
            theta = center + deviation * stream.normal(len(center))
            excess = potential(theta)[0] - value - (theta - mode) @ gradient
            if theta @ theta <= D * D and stream.generator.random() <= math.exp(-excess):
                return theta

    call = release_hook.MechanismCall(
        kind=RAW, sensitivity=1.0, scale=1.0, rate=1.0, shape=mode.shape, step=0, width=0.0
    )
    return release_hook.release(call, mechanism)


def cases():
    """Return the cases by name."""
    found = {}

    def draws(name, make, shape, neighbour=without_first, n_classes=2, **parameters):
        X, y = table(*shape, n_classes)
        y = 1.0 * y if make is OPSRegressor else y
        if make is OPSPosteriorSampler:
            parameters["classes"] = list(range(n_classes))
        fit = fits(make, len(X), delta=0, sampler="rejection", **parameters)
        found[name] = Case(fit, (X, y), neighbour(X, y), rounded=False)

    ops = OPSPosteriorSampler
    replace = {"neighbour": with_another_first, "neighboring_relation": "replace_one"}
    draws("rejection", ops, (100, 9), epsilon=1.0)
    draws("rejection, 1000 rows", ops, (1000, 19), epsilon=0.1)
    draws("rejection, replace_one", ops, (100, 9), epsilon=1.0, **replace)
    draws("rejection, 5 draws", ops, (100, 9), epsilon=1.0, n_posterior_samples=5)
    draws("rejection, 3 classes", ops, (100, 4), n_classes=3, epsilon=0.3)
    draws("rejection, Huber", OPSRegressor, (100, 4), epsilon=0.5, target_bounds=(-1, 2))

    X, y = table(100, 9)
    found[RAW] = Case(raw_draw, (X, y), without_first(X, y), rounded=False, control=True)

    X, y = table(100, 5)
    chain = {
        "epsilon": None,
        "temperature": 0.5,
        "sampling_rate": 1.0,
        "max_iter": 4,
        "burn_in": 0,
        "thinning": 1,
        "prior_scale": math.inf,
        "target_bounds": (-1, 1),
    }
    gaussian = {
        "epsilon": None,
        "noise_multiplier": 4.0,
        "sampling_rate": 1.0,
        "classes": [0, 1],
    }
    both = (X, X[:, 0]), without_first(X, X[:, 0])
    double, single = (
        fits(DPSGLDRegressor, 100, module=linear(5, 1, dtype), **chain)
        for dtype in (torch.float64, torch.float32)
    )
    found["DP-SGLD double, path"] = Case(double, *both, n_releases=4, path=True)
    found["DP-SGLD double"] = Case(double, *both, n_releases=4)
    found["DP-SGLD single"] = Case(single, *both, n_releases=4)
    both = (X, y), without_first(X, y)
    module = linear(5, 2, torch.float32)
    adam = fits(DPSGDClassifier, 100, module=module, max_iter=5, optimizer="adam", **gaussian)
    found["DP-SGD, Adam"] = Case(adam, *both, n_releases=5)
    aware = fits(DPVariationalLogisticRegression, 100, classes=[0, 1], epsilon=1.0, delta=1e-5)
    # What is asked for after the second release follows draws that the adversary does not see.
    found["noise-aware logistic"] = Case(aware, *both, n_releases=2)

    wide = np.random.default_rng(1).uniform(-1, 1, (10, 2**13)), np.arange(10) % 2
    module = linear(2**13, 2, torch.float32)
    one_step = fits(DPSGDClassifier, 10, module=module, max_iter=1, **gaussian)
    found["DP-SGD, 2^14 coordinates"] = Case(one_step, wide, without_first(*wide))

    for name, make in (("DPPCA", DPPCA), ("DPStandardScaler", DPStandardScaler)):
        found[name] = Case(lambda rows, make=make: make().fit(rows), (X,), (X[1:],))
    X, _ = table(100, 40)
    sums = X.sum(axis=0), X[1:].sum(axis=0)
    for make in (GaussianMechanism, LaplaceMechanism):
        mechanism = make(record_norm=40.0, scale=40.0)
        found[make.__name__] = Case(mechanism.release, *((value,) for value in sums))
    sums = wide[0].repeat(2, axis=1).sum(axis=0), wide[0][1:].repeat(2, axis=1).sum(axis=0)
    mechanism = GaussianMechanism(record_norm=128.0, scale=128.0)
    found["GaussianMechanism, 2^14"] = Case(mechanism.release, *((value,) for value in sums))
    return found


def main():
    """Attack and print."""
    known = cases()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="all without")
    parser.add_argument("--fits", type=int, default=400, help="on each of D and D'")
    parser.add_argument("--bits", type=int, nargs="+", default=[release_hook.GRID_BITS])
    args = parser.parse_args()
    if unknown := set(args.names) - set(known):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    used = ["D on D", "D on D'", "D' on D'", "D' on D"]
    print(f"{args.fits} fits on each; refuted:".ljust(29), *(f"{u:>9}" for u in ["bits", *used]))
    for name in args.names or known:
        for bits in args.bits:
            with grid_of(bits):
                (first, second), (third, fourth) = attack(known[name], args.fits)
            shares = (f"{share:9.4g}" for share in (first, second, fourth, third))
            print(f"{name:29} {bits:9}", *shares, flush=True)


if __name__ == "__main__":
    main()
