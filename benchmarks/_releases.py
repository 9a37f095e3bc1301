"""Each release of the noise-aware inference by itself, at records that move it the farthest.

`releases` yields (name, function, options) for `skdp.audit.audit_estimator`. A function makes the
release as the engine does, with noise of μ = 1 for the sum's own sensitivity, and returns where it
lies along the line on which the records move it. Its rows are numbers of records: 1 is the canary,
-1 the record in its place where it is replaced, all others are ordinary ones.
"""

from typing import Any, NamedTuple

import numpy as np

from skdp.algorithms.noise_aware import families
from skdp.algorithms.noise_aware.column_sums import BeyondSum, CellSum, MomentsSum
from skdp.algorithms.noise_aware.counts import Counts
from skdp.algorithms.noise_aware.numbers import Line
from skdp.engine.linear_sums import GramSum, OutsideSum, ScoreGramSum, of_weights
from skdp.engine.loop import ReleasePlan
from skdp.engine.magnitude_sums import MagnitudeSum
from skdp.engine.sampling import FullBatch
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Poisson, classification_likelihood
from skdp.relations import sensitivity_factor
from skdp.rows.persons import PersonUnit
from skdp.rows.records import LinearBatch

C, R, D = 1.0, 2.6, 3  # R = 1.5 √D
ROWS, MEAN_ROWS, CLIP = 50, 4.0, 1.8  # of a person who is the canary, and of a usual one
LARGEST_WEIGHT = 5.0
LARGEST_COUNT = 20.0
ORIGIN = np.zeros((1, D))


class Record(NamedTuple):
    """A row, what is given as its target, and which of both are beyond their bounds."""

    row: Any
    target: Any = (0.0,)
    outside: tuple = (False, False)


class Case(NamedTuple):
    """A sum, where it is asked for, its canary, and another record as far from that as can be."""

    sum: Any
    theta: np.ndarray
    canary: Record
    other: Record


def along(axis, length):
    """A row along an axis."""
    return length * np.eye(D)[axis]


def cases():
    """One for each release: {name: case}."""
    cut = families.Cut(C, R)
    logit = families.Logit(classification_likelihood(2))
    several = families.Softmax(classification_likelihood(3))
    counts, line = Counts(Poisson(LARGEST_COUNT)), Line()
    contrasts = np.linalg.qr(np.eye(3)[:, 1:] - 1 / 3)[0]
    classes, wide = np.zeros((3, D)), np.array([[0.0, 0.0, 0.0, 0.1]])
    one, two = np.eye(3)[:2]
    far, across = along(2, R), along(1, R)
    yes, no = Record(along(2, 2.5), (1.0,)), Record(along(2, 2.5), (0.0,))
    high, low = Record(along(2, 2.5), (1.0,)), Record(along(2, 2.5), (-1.0,))
    # A count of 0 lies as far below the rate as scores are cut, and the largest as far above.
    half_of_it = LARGEST_COUNT / 2.0
    busy = np.array([[0.0, 0.0, np.log(half_of_it) / 1.5, half_of_it]])
    steep = np.linspace(-2, 6, 4001)
    steepest = steep[counts.slope_at(steep).argmax()]
    rate = np.array([[0.0, steepest / (R * R / C), 0.0, counts.widest]])
    middle, half, numbers = (0.0,) * D, (1.0,) * D, (True, True, False)
    ends = np.array([[-1.0] * D, [1.0] * D])
    corner = Record(np.ones(D))
    return {
        "columns, cells": Case(
            CellSum(middle, half, numbers), ends[:, :2], corner, Record(-np.ones(D))
        ),
        "columns, moments": Case(
            MomentsSum(middle, half, numbers, D**0.5), ends, corner, Record(-np.ones(D))
        ),
        "columns, count": Case(
            BeyondSum((-1.0,) * D, (1.0,) * D), ORIGIN, Record([9.0, 0, 0]), Record(np.zeros(D))
        ),
        "offset": Case(
            MagnitudeSum(of_offset=True),
            ORIGIN,
            Record(np.zeros(D), (0.0, 1.0)),
            Record(np.zeros(D), (0.0, 3.0)),
        ),
        "magnitude": Case(
            MagnitudeSum(), ORIGIN, Record(np.zeros(D), (1.0,)), Record(np.zeros(D), (8.0,))
        ),
        "gram": Case(GramSum(R**2), ORIGIN, Record(far), Record(across)),
        "score, two classes": Case(logit.scores(cut), ORIGIN, yes, no),
        "slope, two classes": Case(logit.slope(cut), ORIGIN, Record(far), Record(across)),
        "scatter, two classes": Case(
            ScoreGramSum(logit.scores(cut)), ORIGIN, yes, Record(along(1, 2.5), (1.0,))
        ),
        "score, classes": Case(
            several.scores(cut), classes, Record(along(2, 2.0), one), Record(along(2, -2.0), one)
        ),
        "slope, classes": Case(
            several.slope(cut),
            np.hstack([classes, contrasts]),
            Record(along(2, 3.4), one),
            Record(along(1, 3.4), two),
        ),
        "score, counts": Case(
            counts.scores(cut),
            busy,
            Record(along(2, 1.5), (LARGEST_COUNT,)),
            Record(along(2, 1.5), (0.0,)),
        ),
        "slope, counts": Case(
            counts.slope(cut), rate, Record(along(1, R * R / C)), Record(along(2, R * R / C))
        ),
        "score, numbers": Case(line.scores(cut), wide, high, low),
        "slope, numbers": Case(line.slope(cut), wide, Record(far), Record(across)),
        "scatter, numbers": Case(
            ScoreGramSum(line.scores(cut)), wide, high, Record(along(1, 2.5), (1.0,))
        ),
        "count": Case(
            OutsideSum(targets=True),
            ORIGIN,
            Record(far, (9.0,), (True, True)),
            Record(far, (0.0,)),
        ),
    }


def batch(case, numbers, persons, weighted):
    """The records of these numbers, as a sum takes them."""
    usual = Record(np.full(D, 0.1), case.canary.target)
    of_number = {0: usual, 1: case.canary, -1: case.other}
    records, starts, weights = [], [0], []
    for number in np.ravel(numbers).astype(int):
        n_rows = ROWS if persons and number else 1
        records += [of_number[number]] * n_rows
        weights += [1.0 if number else 0.2] * n_rows
        starts.append(len(records))
    rows, targets, outside = (
        np.array([one[i] for one in records], dtype=(float, float, bool)[i]) for i in range(3)
    )
    return LinearBatch(
        rows,
        np.linalg.norm(rows, axis=1),
        targets,
        outside,
        False,
        np.array(starts) if persons else None,
        np.array(weights) if weighted else None,
    )


class InMemory(NamedTuple):
    """Rows whose sum is that of their only batch."""

    rows: LinearBatch

    def sum(self, term, selection):
        """The sum."""
        return term(self.rows)


def of(case, relation, persons=False, weighted=False, secure=False):
    """The release as a function of records, and what part of its sensitivity they attain."""
    unit = PersonUnit(10, MEAN_ROWS, CLIP) if persons else None
    inner = case.sum
    if weighted and isinstance(inner, ScoreGramSum):
        inner = ScoreGramSum(of_weights(inner.scores, LARGEST_WEIGHT))
    elif weighted:
        inner = of_weights(inner, LARGEST_WEIGHT)
    sigma = float(sensitivity_factor(relation))  # μ = 1
    plan = ReleasePlan(FullBatch(1), inner, sigma, relation, secure, unit)
    plain = inner.of_persons(unit) if persons else inner

    def exact(*numbers):
        return np.ravel(plain(case.theta, batch(case, numbers, persons, weighted)))

    moved = exact(0, 1) - exact(0, *[-1] * (relation == "replace_one"))
    length = np.linalg.norm(moved)
    direction = moved / max(length, 1e-300)

    def release(X, y):
        rows = InMemory(batch(case, X, persons, weighted))
        one, call = plan.step(case.theta.shape, 0)
        value = rows.sum(lambda all_of_them: one(case.theta, all_of_them), slice(None))
        return float(np.ravel(plan.release(lambda: value, call, Streams()("noise"))) @ direction)

    return release, length / plain.moved_by(relation)


KINDS = {
    "zero_out": {},
    "replaced": {"relation": "replace_one"},
    "persons": {"persons": True},
    "weights": {"weighted": True},
    "secure": {"secure": True},
}


def releases(epsilon, delta):
    """Yield a case for each release and each way in which records may differ."""
    for name, case in cases().items():
        for kind, chosen in KINDS.items():
            relation = chosen.get("relation", "zero_out")
            function, _ = of(case, **({"relation": relation} | chosen))
            replaced = relation == "replace_one"
            yield (
                f"release: {name}, {kind}",
                function,
                {
                    "X": np.zeros((1, 1)),
                    "y": [0],
                    "canary": ([1.0], 0),
                    "neighbor": ([-1.0], 0) if replaced else "removed",
                    "neighboring_relation": relation,
                    "epsilon": epsilon,
                    "delta": delta,
                    "frame": "gdp",
                },
            )
