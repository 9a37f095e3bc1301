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

With ``_group`` behind it, as in ``zero_out_group``, the same is said of all rows that one person
has together: the person is replaced by one without rows, added or removed, or replaced by another,
with as many rows as that one likes. The number of rows is private then, under each of them.

A `Relation` is a string, and answers the questions that code has about it.

>>> from skdp.relations import check_relation
>>> check_relation("replace_one").factor
2.0
>>> check_relation("zero_out").of_unit("group").unit
'group'

Zero-out is that of Kairouz et al., *Practical and Private (Deep) Learning without Sampling or
Shuffling*, ICML 2021.
"""

from __future__ import annotations

from enum import StrEnum

from skdp.fitting.validate import expected, one_of

ROW, GROUP = UNITS = ("row", "group")
_OF_GROUPS = "_group"
_IN_WORDS = {
    ROW: "row: one row of X, with its target",
    GROUP: "group: a person with all rows that have the same label in groups, however many",
}


class Relation(StrEnum):
    """A row of the table above, of rows or of persons, shown as the string that it is."""

    ZERO_OUT = "zero_out"
    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"
    ZERO_OUT_GROUP = "zero_out_group"
    ADD_OR_REMOVE_ONE_GROUP = "add_or_remove_one_group"
    REPLACE_ONE_GROUP = "replace_one_group"

    unit: str  # what is one record: a "row", or the rows of a person, a "group"
    n_is_public: bool  # whether neighbours have equally many rows
    null_record: bool  # whether nothing, or what adds 0 to every sum, stands in for a record
    factor: float  # how many times the bound on one record a sum over records can move

    def __init__(self, name: str) -> None:
        self.unit = GROUP if name.endswith(_OF_GROUPS) else ROW
        self.n_is_public = name in ("zero_out", "replace_one")
        self.null_record = not name.startswith("replace_one")
        self.factor = 1.0 if self.null_record else 2.0

    @property
    def of_rows(self) -> Relation:
        """The same of rows."""
        return Relation(self.value.removesuffix(_OF_GROUPS))

    def of_unit(self, unit: str) -> Relation:
        """The same of rows or of persons."""
        return Relation(self.value.removesuffix(_OF_GROUPS) + _OF_GROUPS * (unit == GROUP))

    @property
    def in_words(self) -> str:
        """What is protected, for people."""
        return _IN_WORDS[self.unit]

    def __repr__(self) -> str:
        return str.__repr__(self)


RELATIONS = ZERO_OUT, ADD_OR_REMOVE_ONE, REPLACE_ONE = tuple(Relation)[:3]


def check_relation(neighboring_relation: str) -> Relation:
    """Return the relation, or raise a ``ValueError`` that lists the known ones."""
    try:
        return Relation(neighboring_relation)
    except ValueError:
        one_of(RELATIONS, neighboring_relation=neighboring_relation)  # says which there are
        raise


def other_relation(what: str, neighboring_relation: str | list[str], of: str = "") -> ValueError:
    """Return the error of statements, that ``of`` a step say, about other neighbours or units."""
    remedy = "statements about different neighbours, or different units, do not add up"
    what += f" for {of}" * bool(of)
    return expected(what, remedy, neighboring_relation=neighboring_relation)


def sensitivity_factor(neighboring_relation: str) -> float:
    """How many times the bound on one record a sum over records can move: 1, 1 or 2."""
    return check_relation(neighboring_relation).factor
