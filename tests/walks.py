"""Exact laws of code that draws integers: each branch of its decision tree, in fractions.

The code runs once for each path through the tree, with a stand-in for numpy's `Generator.integers`
whose integers are not fixed until they are compared or used, and then no further than need be: the
path branches there, and each branch has its exact probability. Paths that become unlikelier than a
cut-off, or draw more often than a limit, are not followed; what they weigh in all is returned, so
that each probability is known to lie between its sum and that sum plus what was lost.
"""

from collections import defaultdict
from fractions import Fraction

import numpy as np


class _LostError(Exception):
    """A path that is not followed."""


class Source:
    """Stand-in for `Generator.integers`; concrete ones are fixed when they are drawn."""

    def __init__(self, concrete=False):
        self.concrete, self._path = concrete, None

    def __call__(self, high, size=None):
        self._path.draws += 1
        if self._path.draws > self._path.limit:
            raise _LostError
        if size is None:
            return _Integer(self, int(high))
        drawn = np.empty(size, dtype=object)
        for i in range(size):
            drawn[i] = _Integer(self, int(high))
        return drawn.astype(np.int64) if self.concrete else drawn

    def decide(self, *weights):
        """Index of the branch that this path takes."""
        return self._path.decide(weights)

    def law(self, run, cutoff=Fraction(0), limit=10**9):
        """Probabilities of what run() returns, and of all that was not followed."""
        outer, found, lost = self._path, defaultdict(Fraction), Fraction(0)
        waiting = [((), Fraction(1))]
        while waiting:
            self._path = _Path(*waiting.pop(), waiting, cutoff, limit)
            try:
                found[run()] += self._path.probability
            except _LostError:
                lost += self._path.probability
        self._path = outer
        return dict(found), lost


class _Path:
    def __init__(self, trail, probability, waiting, cutoff, limit):
        self.trail, self.probability, self.waiting = list(trail), probability, waiting
        self.cutoff, self.limit, self.draws, self.at = cutoff, limit, 0, 0

    def decide(self, weights):
        if self.at == len(self.trail):
            first, *others = (i for i, weight in enumerate(weights) if weight)
            for i in others:
                self.waiting.append(((*self.trail, i), self.probability * weights[i]))
            self.trail.append(first)
            self.probability *= weights[first]
        self.at += 1
        if self.probability < self.cutoff:
            raise _LostError
        return self.trail[self.at - 1]


class _Integer:
    """A uniform integer in [low, high), which branches where a comparison asks for it."""

    def __init__(self, source, high):
        self.path, self.low, self.high = source._path, 0, high
        self.source = source

    def decide(self, *weights):
        assert self.path is self.source._path  # not in a walk within the walk that it belongs to
        return self.source.decide(*weights)

    def __lt__(self, other):
        other = min(max(int(other), self.low), self.high)
        width = self.high - self.low
        below = self.decide(Fraction(other - self.low, width), Fraction(self.high - other, width))
        if below == 0:
            self.high = other
        else:
            self.low = other
        return below == 0

    def __eq__(self, other):
        if not self.low <= int(other) < self.high:
            return False
        return not self < other and self < other + 1

    def __int__(self):
        width = self.high - self.low
        if width > 1:
            self.low += self.decide(*[Fraction(1, width)] * width)
            self.high = self.low + 1
        return self.low

    def __ge__(self, other):
        return not self < other

    def __add__(self, other):
        return int(self) + other

    def __rsub__(self, other):
        return other - int(self)

    def __lshift__(self, bits):
        return int(self) << bits
