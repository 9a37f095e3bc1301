"""The privacy unit of a fit: a row, or a person with all of its rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from skdp.fitting.validate import expected, integer, one_of
from skdp.relations import ROW, UNITS
from skdp.rows.persons import PersonUnit

if TYPE_CHECKING:
    pass

OF_GROUPS = "it is for unit='group', which protects a person with all of its rows"


@dataclass(eq=False, repr=False)
class ProtectedUnit:
    """Parameters of the privacy unit, of estimators that can protect persons.

    Parameters
    ----------
    unit : {"row", "group"}, default="row"
        Whose presence is protected: a row's, or that of a person with all of its rows together.
        With ``"group"``, `fit` takes ``groups``: one label per row.
    n_groups : int or None, default=None
        Public number of persons; needed with ``unit="group"`` where a fit depends on it.
    rows_per_group : float or None, default=None
        Public mean number ≥ 1 of rows of a person. None is ``n_samples / n_groups`` where both are
        declared, else 5.
    group_clip : float or "auto", default="auto"
        What the scores of a person are clipped to together, over the bound on those of one row.
        ``"auto"`` is √((3 rows_per_group + 1)/4).
    max_rows_per_group : int or None, default=None
        Rows of a person that take part, at most: a random subset, by a hash of the person's label
        and number of rows. A larger ``rows_per_group`` counts as this number.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> scaler = DPStandardScaler(unit="group", rows_per_group=3, epsilon=float("inf"))
    >>> scaler.fit([[1.0], [0.5], [-1.0]], groups=["ann", "bo", "ann"]).n_features_in_
    1
    """

    _: KW_ONLY
    unit: str = ROW
    n_groups: int | None = None
    rows_per_group: float | None = None
    group_clip: float | str = "auto"
    max_rows_per_group: int | None = None

    def _persons(self) -> PersonUnit | None:
        """Public facts about persons, where these are the records."""
        if one_of(UNITS, unit=self.unit) == ROW:
            for name in ("n_groups", "rows_per_group", "max_rows_per_group"):
                if getattr(self, name) is not None:
                    raise expected("None with unit='row'", OF_GROUPS, **{name: getattr(self, name)})
            if not isinstance(self.group_clip, str) or self.group_clip != "auto":
                raise expected("'auto' with unit='row'", OF_GROUPS, group_clip=self.group_clip)
            return None
        n_groups = self.n_groups
        if n_groups is None and hasattr(self, "n_samples"):
            remedy = "persons cannot be counted privately: declare about how many there are"
            raise expected("a public number of persons", remedy, n_groups=None)
        if n_groups is not None:
            n_groups = integer(1, n_groups=n_groups)
        return PersonUnit.of(
            n_groups,
            self.rows_per_group,
            self.group_clip,
            self.max_rows_per_group,
            getattr(self, "n_samples", None),
        )
