"""`QuantileMechanism`: one quantile of a column, by the exponential mechanism on a declared range.

A sample quantile is one of the records, and it can move over the whole range when one record
changes, so noise would dominate it. Smith (*Privacy-preserving Statistical Estimation with Optimal
Convergence Rates*, STOC 2011) instead draws the answer, by the exponential mechanism (McSherry &
Talwar, *Mechanism Design via Differential Privacy*, FOCS 2007): a point t of the declared range has
weight e^(-rate · d(t)), with d(t) the number of records by which t misses the rank q m. A record
moves d by one or less, so the law of the answer hardly moves; records near the quantile never show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import DpEvent, LaplaceDpEvent

from skdp.engine import release_hook
from skdp.engine.coins import Integers
from skdp.engine.release_hook import MechanismCall
from skdp.fitting.streams import SecureStream
from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import expected, in_range, integer
from skdp.mechanisms._release import EPSILONS, SIZES, Mechanism, charged_stream, numbers
from skdp.mechanisms._segments import MANTISSA_BITS, Segments, attempt, integer_weights, levels
from skdp.relations import GROUP, ZERO_OUT, check_relation
from skdp.rows.bounded_sum import MAX_ROWS

# The answer is one of GRID + 1 equally spaced points, or of fewer. Finer costs utility: a point
# that many records share must outweigh, with e^(rate · d), all others together.
GRID = 2**30
# The quantile is a multiple of this, so that misses of ranks are integers.
RANK = 2**-30
# Weights e^(-x) below e^-200, some 1e-78 of all together, are raised to it.
MOST_EXPONENT = 200.0
_HALF = 2**15  # of 1/RANK, the root: in two parts 64 bits hold misses of weights below 2⁴⁸
# Relative error of a weight in doubles: assumed. Eight roundings of 200 make 2e-13, this is 9e-13.
WEIGHT_ERROR = 2.0**-40


@dataclass(frozen=True)
class QuantileMechanism(Mechanism[float]):
    """Release one quantile of a column of numbers.

    **Privacy.** The release is ε-DP for neighbours under ``neighboring_relation``. Every field is a
    public fact; the number of records is never used as one.

    Parameters
    ----------
    quantile : float
        q in [0, 1]; 0.5 is the median.
    lower, upper : float
        Declared range of the values, -1e150 ≤ lower < upper ≤ 1e150: values beyond are clipped to
        it. It must not be computed from the data.
    epsilon : float
        Pure ε in [1e-9, 1e9].
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.
    n_points : int or None, default=None
        Number of points of the public grid, from 2 to 2³⁰ + 1; None is the largest. A coarse one
        has fewer answers that may be drawn instead of the right one.

    Raises
    ------
    ValueError
        If a parameter is out of range or not a number, or lower is not below upper.

    Notes
    -----
    *Law.* Records are clipped to the range and rounded to a public grid of n_points, each by
    itself, and P(t) ∝ e^(-ε d(t)/R) over the grid, up to what *Arithmetic* says. With m records,
    the ranks of a point t are [#{x < t}, #{x ≤ t}], and d(t) is the distance from q m to them,

        d(t) = max(Σ_i (1{x_i < t} - q), Σ_i (q - 1{x_i ≤ t}), 0).

    *Sensitivity.* For neighbours D, D' let R bound the *range* over t of d_D(t) - d_D'(t), largest
    minus least. Then the log-ratio of the two laws, -(ε/R)(d_D - d_D') less the logarithm of the
    ratio of the normalising constants, which lies between the extremes of the first term, is at
    most ε in absolute value, and its own range is at most ε.

    - ``add_or_remove_one``: d is made of sums over records, so m, which is private here, is not
      read apart from them. A record moves each sum by 1 - q, q, or the negative of one of them, so
      d by at most max(q, 1 - q) up or down: R = 2 max(q, 1 - q).
    - ``zero_out``: a null record adds nothing to either sum, so it *is* a removed record, and R is
      the same. The rank must count the records that are not null: with the public n in place of m,
      a record would move d over a range of 2 for every q.
    - ``replace_one``: each sum moves by at most 1, since the q cancels: R = 2, less than twice the
      above.

    *Persons.* Under a relation of persons, ``zero_out_group`` for instance, the values of a person
    have weights w_i ≥ 0 that add up to 1, and m is the number of persons who have a value:

        d(t) = max(Σ_i w_i (1{x_i < t} - q), Σ_i w_i (q - 1{x_i ≤ t}), 0).

    All that a person adds to the first sum is in [-q, 1 - q], to the second in [q - 1, q], as what
    one record adds, so that R is the same; without a value it adds 0, and is a null record. Weights
    are integers of units of 2⁻¹⁰, ⌊2¹⁰(j + 1)/k⌋ - ⌊2¹⁰j/k⌋ for the j-th of the k values, which
    add up to 2¹⁰ exactly, and depend on the person's own values alone. d is an integer then too.

    *Weights.* A record with a weight w_i in [0, 1], its own and as private, has d made of

        d(t) = max(Σ_i w_i (1{x_i < t} - q), Σ_i w_i (q - 1{x_i ≤ t}), 0),

    and the rank is q times the sum of the weights, which is not read apart either. What a record
    adds to a sum is w_i times what it adds without weights, a number between 0 and that, so that a
    record that comes, goes or is zeroed out moves d by at most max(q, 1 - q) still. One that is
    replaced moves the first sum by w(a - q) - w'(a' - q), a and a' in {0, 1}, where q need not
    cancel; but both terms are in [-q, 1 - q], and differ by at most 1. So is it with the second: R
    is 2. In the units of weights up to W the sensitivity is W R. The values of a person have w_i/k
    each, of its k values, which add up to at most 1. Weights are rounded to multiples of 2⁻²⁰, each
    by itself; those of a person's values are the steps of their sum over k, rounded down, as above.
    d is an integer number of 2⁻⁵⁰.

    *Ties.* A grid point that a share of the records has in common has d = 0 where its ranks hold
    q m, and so is found; without records, d = 0 everywhere and the answer is uniform on the range.

    *Arithmetic.* Given ideal random bits, the law of what is *implemented* is ε-DP, and not only
    that of a theorem on real numbers. The answer is a point of a public grid; q is rounded to a
    multiple of 2⁻³⁰, and R is that of the rounded q, so that d is an integer number of 2⁻³⁰. The
    exponent x = r d, r the rate, is cut at 200, which R covers as well: the differences of d
    between neighbours lie in an interval of length R that contains 0, and min(·, 200) moves any
    two numbers apart by no more than they are, and never past each other, so the differences of x
    lie in an interval of length r R. The weight of a point is a double with 53 bits, k 2^(-53-e),
    and with these weights the draw is exact: a level e by integers of as many bits as it takes, a
    point of the level uniformly, kept if a uniform integer of 53 bits is below k, and else all over
    again. If each weight is within a factor e^±ξ of e^-x, log-weights of neighbours differ by at
    most 2ξ more, in both directions, which widens their range to r R + 4ξ; the log-ratio of the
    laws has the same range, and it contains 0. So r = (ε - 4ξ)/R, with ξ = 2⁻⁴⁰, above what the
    handful of roundings of a number below 200 can do.

    The running time grows with the number of records, and shows it, and so does the number of
    attempts: pure ε holds where neither is observed.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.mechanisms import QuantileMechanism
    >>> ages = np.repeat(np.arange(20, 80), 50)
    >>> median = QuantileMechanism(quantile=0.5, lower=0, upper=120, epsilon=1.0)
    >>> bool(48 < median.release(ages) < 52)
    True
    """

    quantile: float
    lower: float
    upper: float
    epsilon: float
    neighboring_relation: str = ZERO_OUT
    n_points: int | None = None

    def __post_init__(self) -> None:
        ends = -SIZES[1], SIZES[1]
        self._settle(quantile=(0.0, 1.0), lower=ends, upper=ends, epsilon=EPSILONS)
        if self.n_points is not None:
            in_range(2, GRID + 1, closed="both", n_points=integer(2, n_points=self.n_points))
        if not self.lower < self.upper:
            raise expected("below upper", "swap or widen the range", lower=self.lower)

    @classmethod
    def from_budget(
        cls,
        *,
        epsilon: float,
        quantile: float,
        lower: float,
        upper: float,
        neighboring_relation: str = ZERO_OUT,
    ) -> QuantileMechanism:
        """Build the mechanism that spends a budget, as the other mechanisms are built.

        Parameters
        ----------
        epsilon, quantile, lower, upper, neighboring_relation
            As in the class.

        Returns
        -------
        QuantileMechanism
            A mechanism that is ε-DP for one release.
        """
        return cls(quantile, lower, upper, epsilon, neighboring_relation)

    @property
    def sensitivity(self) -> float:
        """R: range over all points of the change of d between neighbours (see Notes)."""
        if not check_relation(self.neighboring_relation).null_record:
            return 2.0
        share = self._share * RANK
        return 2 * max(share, 1 - share)

    @property
    def _grid(self) -> int:
        """Number of the last point; the first is 0."""
        return GRID if self.n_points is None else self.n_points - 1

    @property
    def _share(self) -> int:
        """Quantile in units of `RANK`."""
        return round(self.quantile / RANK)

    def event(self) -> DpEvent:
        """A Laplace event of noise multiplier 1/ε, or 2/ε under replace_one: an upper bound.

        Returns
        -------
        DpEvent
            At a δ > 0 the mechanism is a little more private than Laplace noise of the same ε.

        Notes
        -----
        dp-accounting 0.6 has no event for the exponential mechanism. Laplace noise does *not* bound
        every ε-DP mechanism (randomised response is worse), but it does bound those whose log-ratio
        has a range of at most ε, as here. For these (Dong, Durfee & Rogers, ICML 2020), with x =
        (ε-e)/2,

            δ(e) ≤ (1 - exp(-x))²/(1 - exp(-ε)) ≤ 1 - exp(-x) = δ of Laplace noise, 0 ≤ e ≤ ε,

        because x ≤ ε; negative e follow by exchanging the neighbours. Being below in δ(e)
        everywhere survives composition.
        """
        return LaplaceDpEvent(check_relation(self.neighboring_relation).factor / self.epsilon)

    def release(
        self,
        values: ArrayLike,
        stream: SecureStream | None = None,
        *,
        charged: bool = False,
        starts: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> float:
        """Draw the answer.

        Parameters
        ----------
        values : array-like of shape (n_records,)
            One number per record. NaN stands for a null record, which counts nowhere: an error for
            it would reveal that it is there. Infinities are clipped to the range. May be empty.
        stream, charged
            As in `GaussianMechanism.release`.
        starts : ndarray of int of shape (n_persons + 1,) or None, default=None
            Under a relation of persons: where the values of each begin, which lie together, and
            where all end. None is a value each.
        weights : ndarray of shape (n_records,) or None, default=None
            Of the values, in [0, 1]: beyond, they are cut. None is 1 each.

        Returns
        -------
        float
            A point of the grid over [lower, upper].

        Raises
        ------
        ValueError
            If the values are not a one-dimensional array of numbers, or there are persons whom the
            relation does not speak of, or not one weight for each value; the message holds none.
        BudgetExceededError
            If an open ledger refuses the release; the values have not been used then.
        """
        values = numbers(values)
        if values.ndim != 1:
            raise ValueError("Expected values to be one-dimensional, one number per record.")
        if starts is not None and check_relation(self.neighboring_relation).unit != GROUP:
            remedy = "it is for relations of persons, such as 'zero_out_group'"
            raise expected("None", remedy, starts=starts)
        if weights is not None:
            weights = np.clip(np.nan_to_num(numbers(weights)), 0.0, 1.0)
            if weights.shape != values.shape or len(values) > MAX_ROWS:
                raise ValueError(f"Expected weights, one for each of at most {MAX_ROWS} values.")
        stream = charged_stream(self, stream, charged)
        scale, width = self.sensitivity / self.epsilon, 1.0
        call = MechanismCall("quantile", self.sensitivity, scale, 1.0, (), 0, width)
        # What is released is the number of a grid point; the point is a function of it.
        number = release_hook.release(
            call, lambda: self._draw(values, starts, stream.generator.integers, weights=weights)
        )
        return min(self.lower + (self.upper - self.lower) * (number / self._grid), self.upper)

    def _draw(
        self,
        values: np.ndarray,
        starts: np.ndarray | None,
        random: Integers,
        inside: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> float:
        segments = self._segments(values, starts, inside, weights)
        level = levels(segments)
        while (number := attempt(segments, level, random)) is None:
            pass
        return float(number)

    def _segments(
        self,
        values: np.ndarray,
        starts: np.ndarray | None = None,
        inside: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> Segments:
        there = ~np.isnan(values)
        counted = there if inside is None else there & inside
        values = np.clip(values[counted], self.lower, self.upper)
        share = (values - self.lower) / (self.upper - self.lower)
        # Integers from here on: what floating point did above, it did to each record by itself.
        records = np.rint(share * self._grid).astype(np.int64)
        if starts is None and weights is None:
            records, shares = np.sort(records), 1
            weight = np.arange(len(records) + 1)  # of so many of the least
        else:
            order = np.argsort(records)
            records = records[order]
            each, shares = integer_weights(there, starts, weights)
            weight = np.concatenate([[0], np.cumsum(each[counted[there]][order])])
        # Ranks change at each value and at the next point, which may be the next value.
        ends = np.flatnonzero(np.diff(records, append=-1)) + 1
        begins, found = ends - np.diff(ends, prepend=0), records[ends - 1]
        apart = np.diff(found, append=self._grid + 1) > 1
        new = np.stack([np.full(len(found), True), apart], axis=1)
        lead = np.zeros(int(not np.any(found[:1] == 0)), dtype=np.int64)
        first, low, high = (
            np.concatenate([lead, np.stack(pair, axis=1)[new]])
            for pair in ((found, found + 1), (begins, ends), (ends, ends))
        )
        below, up_to = weight[low], weight[high]
        # Misses in units of RANK / shares, in two parts of which 64 bits hold each.
        whole, rest = divmod(self._share * int(weight[-1]), _HALF)
        over, under = ((x * _HALF - whole) * float(_HALF) - rest for x in (below, up_to))
        d = np.maximum(np.maximum(over, -under), 0.0)
        size = np.diff(first, append=self._grid + 1)
        return Segments(first, size, *self._weights(d, RANK / shares))

    def _weights(self, d: np.ndarray, unit: float = RANK) -> tuple[np.ndarray, np.ndarray]:
        """Mantissas and halvings of e^(-rate d), d in a unit."""
        rate = (self.epsilon - 4 * WEIGHT_ERROR) / self.sensitivity
        x = np.minimum(rate * unit * d, MOST_EXPONENT)
        halvings = np.floor(x / math.log(2))
        fraction = np.exp(np.minimum(halvings * math.log(2) - x, 0.0))
        return (fraction * 2.0**MANTISSA_BITS).astype(np.int64), halvings.astype(np.int64)
