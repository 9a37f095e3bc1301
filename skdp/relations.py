"""Neighbouring relations: who counts as a neighbour of a data set.

An (ε, δ) statement is about pairs of *neighbouring* data sets, so it means nothing without the
relation. With C a bound on the norm of one record's contribution to a sum:

===================== ============================================== ============ ==============
relation              neighbours differ in                           n            sum moves by
===================== ============================================== ============ ==============
``zero_out``          one record replaced by a null record that      public       C
                      contributes 0 to every sum (or back)
``add_or_remove_one`` one record more or fewer                       private      C
``replace_one``       one record replaced by any other               public       2 C
===================== ============================================== ============ ==============

>>> from skdp.relations import sensitivity_factor
>>> sensitivity_factor("replace_one")
2.0

References
----------
P. Kairouz et al., *Practical and Private (Deep) Learning without Sampling or Shuffling*,
ICML 2021 (zero-out).
"""

from __future__ import annotations

from skdp._validate import one_of

ZERO_OUT = "zero_out"
ADD_OR_REMOVE_ONE = "add_or_remove_one"
REPLACE_ONE = "replace_one"

RELATIONS = (ZERO_OUT, ADD_OR_REMOVE_ONE, REPLACE_ONE)


def check_relation(neighboring_relation: str) -> str:
    """Return the relation, or raise a ``ValueError`` that lists the known ones."""
    return one_of(RELATIONS, neighboring_relation=neighboring_relation)


def sensitivity_factor(neighboring_relation: str) -> float:
    """How many times the bound on one record a sum over records can move: 1, 1 or 2."""
    return 2.0 if check_relation(neighboring_relation) == REPLACE_ONE else 1.0
