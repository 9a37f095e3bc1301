"""How far one record can move a sum over records: stated once, for every sum that is released.

>>> from skdp.rows.bounded_sum import BoundedSum, POSITIVE
>>> class Counts(BoundedSum):
...     @property
...     def record_bound(self):
...         return 1.0
...     apart = POSITIVE  # one-hot rows
>>> round(Counts().moved_by("replace_one"), 3), Counts().moved_by("zero_out")
(1.414, 1.0)
"""

from __future__ import annotations

import math

from skdp.relations import check_relation

CHUNK_ROWS = 8192  # a chunk stays in the cache between its two products

MAX_ROWS = 2**26

MAX_PARTS = 2**9  # additions between parts, in a balanced tree of them: of 2²⁵⁵ parts at most


# Floating-point sums are not the real sums. With unit roundoff u, m additions in any order err by
# at most m u Σ|terms| (Higham 2002, §4.2); CHUNK_ROWS inside a chunk, MAX_ROWS/CHUNK_ROWS
# between chunks and MAX_PARTS between parts, n ≤ MAX_ROWS terms of norm ≤ C, on each of two
# neighbours. 3e-4, whatever n is: a bound by the number of rows at hand would itself be private
# under add/remove.
ROUNDING = 2 * MAX_ROWS * (CHUNK_ROWS + MAX_ROWS / CHUNK_ROWS + MAX_PARTS) * 2.0**-53 + 1e-9


# How far apart two terms of norm at most 1 can be: opposite ones; ones with an inner product ≥ 0,
# because ‖s − t‖² = ‖s‖² + ‖t‖² − 2⟨s, t⟩; numbers ≥ 0.
OPPOSITE, POSITIVE, NUMBERS = 2.0, math.sqrt(2.0), 1.0


class BoundedSum:
    """A sum of terms, one per record, each of bounded norm; a null record adds nothing."""

    rounding = ROUNDING  # of the computed sum, relative to a bound, on two neighbours together
    apart = OPPOSITE  # how far apart the terms of two records can be, in units of C: in [1, 2]
    together = OPPOSITE  # the same of sums of several terms, scaled down to a norm: of two persons

    @property
    def record_bound(self) -> float:
        """C: bound on the Euclidean norm of one record's term."""
        raise NotImplementedError

    @property
    def norm_bound(self) -> float:
        """Bound on one record's share of the *computed* sum."""
        return self.record_bound * (1 + self.rounding)

    def moved_by(self, neighboring_relation: str) -> float:
        """How far neighbours can move the sum, in exact arithmetic."""
        null = check_relation(neighboring_relation).null_record
        return self.record_bound * (1.0 if null else self.apart)

    def sensitivity(self, neighboring_relation: str) -> float:
        """How far neighbours can move the *computed* sum; as `moved_by`, which is at least C."""
        return self.moved_by(neighboring_relation) * (1 + self.rounding)
