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

A `Relation` is a string, and answers the questions that code has about it.

>>> from skdp.relations import check_relation
>>> check_relation("replace_one").factor
2.0

References
----------
P. Kairouz et al., *Practical and Private (Deep) Learning without Sampling or Shuffling*,
ICML 2021 (zero-out).
"""

from __future__ import annotations

from enum import StrEnum

from skdp._validate import expected, one_of


class Relation(StrEnum):
    """A row of the table above, shown as the string that it is."""

    ZERO_OUT = "zero_out"
    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"

    @property
    def n_is_public(self) -> bool:
        """Whether neighbours have equally many records."""
        return self is not Relation.ADD_OR_REMOVE_ONE

    @property
    def null_record(self) -> bool:
        """Whether nothing, or what adds 0 to every sum, stands in for the record that differs."""
        return self is not Relation.REPLACE_ONE

    @property
    def factor(self) -> float:
        """How many times the bound on one record a sum over records can move."""
        return 2.0 if self is Relation.REPLACE_ONE else 1.0

    __repr__ = str.__repr__


RELATIONS = ZERO_OUT, ADD_OR_REMOVE_ONE, REPLACE_ONE = tuple(Relation)


def check_relation(neighboring_relation: str) -> Relation:
    """Return the relation, or raise a ``ValueError`` that lists the known ones."""
    try:
        return Relation(neighboring_relation)
    except ValueError:
        one_of(RELATIONS, neighboring_relation=neighboring_relation)  # says which there are
        raise


def other_relation(what: str, neighboring_relation: str | list[str]) -> ValueError:
    """Return the error of statements that are not about the same neighbours."""
    remedy = "statements about different neighbours do not add up"
    return expected(what, remedy, neighboring_relation=neighboring_relation)


def sensitivity_factor(neighboring_relation: str) -> float:
    """How many times the bound on one record a sum over records can move: 1, 1 or 2."""
    return check_relation(neighboring_relation).factor
