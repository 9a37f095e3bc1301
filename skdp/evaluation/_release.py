"""`TableRelease`: tables of counts, checked, charged and released once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skdp.evaluation.binning import n_bins_for
from skdp.fitting.charge import charged, initial_seed, streams
from skdp.fitting.declared import check_budget
from skdp.fitting.estimator import PREDICTED_BY_ROW
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import public_n_rows
from skdp.fitting.types import Given, Params, Seed
from skdp.fitting.validate import expected, in_range, integer_or_auto
from skdp.mechanisms import GeometricMechanism
from skdp.privacy.report import PrivacyReport
from skdp.relations import ROW, Relation, check_relation
from skdp.rows.chunks import rows_of
from skdp.rows.persons import Persons, facts_of, kind_of, persons_of, rows_of_persons

_MOST_BINS = 1000
CellsOf = Callable[..., list[tuple[np.ndarray, int]]]


class Tables(NamedTuple):
    """What was released."""

    counts: list[np.ndarray]  # of each table, (n_subgroups, n_cells); one where none were declared
    variance: float  # of the noise on each count
    n: int | None  # rows, where their number is public
    alike: int  # rows of a person that take part, at most
    privacy: PrivacyReport


@dataclass(eq=False, repr=False)
class TableRelease(BaseEstimator):
    """The parameters that all reports have, and what is done with them.

    As in `skdp.evaluation.private_report`.
    """

    label: str
    epsilon: float
    delta: float
    neighboring_relation: str
    unit: str | Persons
    n_samples: int | None
    n_bins: int | str
    level: float
    random_state: Seed
    n_tables: int = 1

    @property
    def _relation(self) -> Relation:
        return check_relation(self.neighboring_relation).of_unit(kind_of(self.unit))

    @property
    def _most_rows(self) -> int:
        """Rows of one record that take part, at most."""
        persons = persons_of(self.unit, alone="max_rows")
        return 1 if persons is None else facts_of(persons).most_rows or 1

    def mechanism(self) -> GeometricMechanism:
        """Check the parameters, and say what noise is added."""
        check_budget(self, pure=True)
        in_range(0.0, 1.0, level=self.level)
        norm = self.n_tables * self._most_rows
        return GeometricMechanism(norm, self.epsilon, self._relation)

    def bins(self, n_rows: int) -> int:
        """Number of bins: a function of public facts."""
        mechanism, is_public = self.mechanism(), self._relation.n_is_public
        if is_public and not n_rows:
            raise ValueError("Expected at least one row to report on.")
        n = public_n_rows(self.n_samples, n_rows, is_public=is_public)
        auto = n_bins_for(n, float(mechanism.scale) * self._most_rows)
        n_bins = integer_or_auto(auto, 2, n_bins=self.n_bins)
        if n_bins % 2 or n_bins > _MOST_BINS:
            raise expected(f"even and at most {_MOST_BINS}: one edge is ½ or 0", n_bins=self.n_bins)
        return n_bins

    def run(
        self,
        records: Any,
        cells_of: CellsOf,
        n_subgroups: int,
        given: tuple[Any, ...],
        groups: Given,
        inferred: tuple[str, ...],
    ) -> Tables:
        """Charge, count, and release.

        ``cells_of`` takes the records; for each table it returns the cell of each row, and the
        number of cells, subgroup after subgroup. The marks of the rows as they were ``given`` say
        of which part of a split they are.
        """
        mechanism, relation, n = self.mechanism(), self._relation, len(records[0])
        if (groups is None) != (self.unit == ROW):
            if groups is None:
                raise expected("one label per row with unit=Persons(...)", groups=None)
            raise expected("None with unit='row'", "or give unit=Persons(...)", groups="given")
        most = self._most_rows
        if groups is not None:
            # Which rows of a person are kept is decided by a key that need not be secret.
            key = initial_seed(self).to_bytes(4, "little")
            rows, _ = rows_of_persons(groups, n, most, key)
            records = tuple(array[rows] for array in records)
        if self.n_samples is None:
            inferred += ("n_samples",)
        tables = f"{self.n_tables} table{'s' * (self.n_tables > 1)} of counts"
        of_person = f", at most {most} row{'s' * (most > 1)} of a person" * (self.unit != ROW)
        sampling = f"one release of {tables} with geometric noise{of_person}"
        of: Params = {"neighboring_relation": relation, "seeded": self.random_state is not None}
        of |= {"inferred_public_facts": inferred, "assumptions": (PREDICTED_BY_ROW,)}
        report = PrivacyReport.of(mechanism.event(), delta=self.delta, sampling=sampling, **of)
        plan = FitPlan(PublicFacts(self.label, inferred=inferred), mechanism, report, n_steps=1)
        report = charged(self, plan, given, groups=groups)
        counts = rows_of(records, _Records).sum(partial(_counts, cells_of), slice(None))
        of_seed = records if isinstance(records[0], np.ndarray) else (records[0].fingerprints,)
        noise = streams(self, *of_seed)("noise")
        released = mechanism.release(counts, noise, charged=True)
        none = (np.empty((0, *array.shape[1:]), array.dtype) for array in records)
        sizes = [size for _, size in cells_of(*none)]
        parts = np.split(released, np.cumsum(sizes)[:-1])
        found = [part.reshape(n_subgroups, -1) for part in parts]
        n = n if relation.n_is_public else None
        return Tables(found, mechanism.standard_deviation**2, n, most, report)


class _Records:
    """Rows that are counted at once."""

    def __init__(self, arrays: tuple[np.ndarray, ...]) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays[0])

    def sum(self, term: Callable[[Any], Any], selection: Any) -> Any:
        """Count them."""
        return term(self._arrays)


def _counts(cells_of: CellsOf, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """Count the rows in each cell, one table after the other."""
    return np.concatenate([np.bincount(cells, minlength=m) for cells, m in cells_of(*arrays)])
