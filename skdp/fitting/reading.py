"""The private rows of a fit, as they were read: at once, or a chunk at a time."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdp.fitting import charge
from skdp.fitting.input import without_data
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.validate import expected, in_range, integer, is_real
from skdp.fitting.warnings import FitWarning, PrivacyWarning
from skdp.relations import GROUP, ROW
from skdp.rows.chunk_tasks import Chunk
from skdp.rows.chunks import ArrayInChunks, ChunkedRows, first_look
from skdp.rows.persons import Persons, PersonUnit, persons_of, rows_of_persons
from skdp.rows.records import copied
from skdp.rows.sparse import SparseRows


class Records(NamedTuple):
    """The private rows of a fit, checked, with their targets where there are any.

    Where persons are the records, the rows of each lie together.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Rows.
    targets : ndarray of shape (n, ...)
        Targets in the form that a run reads; of any shape for a run that reads none.
    starts : ndarray of shape (n_persons + 1,) or None, default=None
        Where each person's rows begin, and where all end; None where a row is a record.
    weights : ndarray of shape (n,) or None, default=None
        Weights of rows, of which a bound is declared; None where all are 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.base import Records
    >>> len(Records(np.zeros((5, 2)), np.zeros(5)).X)
    5
    """

    X: np.ndarray
    targets: np.ndarray
    starts: np.ndarray | None = None
    weights: np.ndarray | None = None

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that there is; of rows in chunks, their fingerprints."""
        if isinstance(self.X, ArrayInChunks):
            return (self.X.fingerprints,)
        arrays = tuple(array for array in self if array is not None)
        if isinstance(self.X, SparseRows):
            matrix = self.X.matrix
            return matrix.data, matrix.indices, matrix.indptr, *arrays[1:]
        return arrays


def read(
    estimator: Any, X: Any, y: Any, groups: Any = None, *, checkpoint: Any = None, **how: Any
) -> tuple[Records, PublicFacts]:
    """Look at the caller's rows once; return them as records, and what is public about them.

    What the estimator does not take is refused. ``how`` is what else its ``_read`` takes, and
    ``sample_weight``.
    """
    if not isinstance(X, ChunkedRows):
        check_groups(estimator, groups)
    elif y is not None or groups is not None:
        raise ValueError(
            "Expected nothing beside rows in chunks: a chunk is X, (X, y) or (X, y, groups)."
        )
    records, facts = looked_at(estimator, X, y, checkpoint=checkpoint, **how)
    if estimator._declared_by:
        charge.warn_if_undeclared(estimator, X, facts)
    if facts.persons is not None:
        records = by_person(estimator, records, groups, facts.persons, checkpoint=checkpoint)
    return records, facts


def looked_at(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    checkpoint: Any = None,
    **how: Any,
) -> tuple[Records, PublicFacts]:
    """Read rows as they stand, at once or a chunk at a time, and count them."""
    if isinstance(X, ChunkedRows):
        records, facts = _first_look(estimator, X, sample_weight, checkpoint, **how)
    else:
        records, facts = estimator._read(X, y, **how)
        if estimator._takes_weights:
            records = records._replace(weights=weights_of(estimator, records, sample_weight))
    n, is_public, persons = len(records.X), estimator._relation.n_is_public, facts.persons
    if n > estimator._max_rows:
        raise too_many_rows(estimator._max_rows)
    if hasattr(estimator, "n_samples"):
        declared = (persons and persons.n_rows) or estimator.n_samples
        n_samples = public_n_rows(declared, n, is_public=is_public)
        facts = replace(facts, n_samples=n_samples)
    told = n if is_public else facts.n_samples
    if told := told if persons is None else persons.n_groups:
        warn_of_delta(estimator, told, facts.label)
    return records, facts


def weights_of(estimator: Any, records: Records, sample_weight: Any) -> np.ndarray | None:
    """Check weights of rows, times those of their classes; None where all are 1."""
    bound = in_range(1e-10, 1e10, max_sample_weight=estimator.max_sample_weight)
    weights = None
    if sample_weight is not None:
        weights = _bounded(sample_weight, bound, len(records.X))
    elif bound != 1.0:
        what, remedy = "1 without sample_weight", estimator._WEIGHTS_REMEDY
        raise expected(what, remedy, max_sample_weight=estimator.max_sample_weight)
    given = getattr(estimator, "class_weight", None)
    by_class = None if given is None else estimator._class_weights()
    if not by_class:
        return weights
    if estimator._several:
        raise ValueError("Expected class_weight=None where labels do not exclude each other.")
    classes = estimator.classes_.tolist()
    if not by_class.keys() <= set(classes):
        raise expected("a dict whose keys are classes", class_weight=estimator.class_weight)
    of_class = np.array([float(by_class.get(label, 1.0)) for label in classes])
    return of_class[estimator._codes_of(records)] * (1.0 if weights is None else weights)


def _bounded(sample_weight: Any, bound: float, n_rows: int) -> np.ndarray:
    wrong = (
        f"Expected sample_weight to hold one number in [0, {bound:g}] per row; divide them by "
        "a public bound, or declare a larger max_sample_weight."
    )
    with without_data(wrong):
        weights = np.asarray(column_or_1d(sample_weight), dtype=np.float64)
        if len(weights) != n_rows or not ((weights >= 0.0) & (weights <= bound)).all():
            raise ValueError(wrong)
    return weights


def _first_look(
    estimator: Any, rows: ChunkedRows, sample_weight: Any, checkpoint: Any, **how: Any
) -> tuple[Records, PublicFacts]:
    """Look at each chunk, and take on what is learned from their columns."""
    if sample_weight is not None:
        raise expected("None for rows in chunks", sample_weight="given")
    key = charge.fingerprint_key(estimator, checkpoint)
    if persons_of(estimator.unit, estimator._no_unit) is not None:
        rows = rows.by_person(key)
    subset = charge.initial_seed(estimator, checkpoint).to_bytes(4, "little")
    # Chunks are to agree on what is learned from them, not on what a former fit has left.
    if not how.get("goes_on", False):
        vars(estimator).pop("feature_names_in_", None)
        state = estimator.get_params(deep=False)
    else:
        state = vars(estimator)
    # Noise is drawn here: those who read need no seed.
    read = partial(_read_chunk, _with_state(estimator, state | {"random_state": None}), how, subset)
    n_is_public = estimator._relation.n_is_public
    arrays, (facts, learned, has_groups) = first_look(rows, read, key, n_is_public=n_is_public)
    check_groups(estimator, "given" if has_groups else None)
    vars(estimator).update(learned)
    return Records(*arrays), facts


def _with_state(estimator: Any, state: dict[str, Any]) -> Any:
    """Another of the class with these very attributes: pickling and copying may make others."""
    other = object.__new__(type(estimator))
    vars(other).update(state)
    return other


def _read_chunk(
    estimator: Any, how: dict[str, Any], subset: bytes, chunk: Chunk
) -> tuple[Records, tuple[PublicFacts, dict[str, Any], bool]]:
    """Read a chunk as rows in memory are read; return what is public, and learned, beside them."""
    reader, before = _with_state(estimator, vars(estimator)), vars(estimator)
    records, facts = reader._read(chunk.X, chunk.y, **how)
    if reader._takes_weights:
        records = records._replace(weights=weights_of(reader, records, None))
    if facts.persons is not None:
        records = by_person(reader, records, chunk.groups, facts.persons, subset)
    learned = {k: v for k, v in vars(reader).items() if k not in before or before[k] is not v}
    return records, (facts, learned, chunk.groups is not None)


def check_groups(estimator: Any, groups: Any) -> None:
    """Refuse labels of persons that no one would look at, and their absence."""
    protects = persons_of(estimator.unit, estimator._no_unit) is not None
    if groups is not None and not protects:
        remedy = "it is for unit=Persons(...), which protects a person with all of its rows"
        raise expected("None with unit='row'", remedy, groups="given")
    if groups is None and protects:
        raise expected(
            "one label per row with unit=Persons(...)",
            "pipelines and searches pass them on by metadata routing alone: "
            "sklearn.set_config(enable_metadata_routing=True), and then "
            "set_fit_request(groups=True) on this estimator",
            groups=None,
        )


def by_person(
    estimator: Any,
    records: Records,
    groups: Any,
    persons: PersonUnit,
    key: bytes | None = None,
    checkpoint: Any = None,
) -> Records:
    """Bring the rows of each person together; rows in chunks are so already."""
    if isinstance(records.X, ArrayInChunks):
        return records
    if key is None:
        key = charge.initial_seed(estimator, checkpoint).to_bytes(4, "little")
    rows, starts = rows_of_persons(groups, len(records.X), persons.most_rows, key)
    X, targets = copied(records.X, rows), copied(records.targets, rows)
    weights = None if records.weights is None else records.weights[rows]
    return records._replace(X=X, targets=targets, starts=starts, weights=weights)


# A declared n may be that of a whole of which folds are fitted, or of last year's table.
_TOO_FEW, _TOO_MANY, _FAR_FROM = 2, 3, 2.1  # of two folds each is half of what was declared

_MORE_THAN = 1.5  # of what was declared, which no fold is


def public_n_rows(declared: int | None, n: int, *, is_public: bool) -> int:
    """Return the number of rows that defaults may depend on: never n, that of X, unless public.

    Where n is public, a number that was declared is held against it.
    """
    if declared is None and not is_public:
        raise expected(
            "a public number of rows",
            "under add_or_remove_one the number of rows is private, and rates and step sizes "
            "must not depend on it: give a public estimate, e.g. n_samples=10_000",
            n_samples=None,
        )
    found = n if declared is None else integer(1, n_samples=declared)
    if is_public and not n <= _TOO_FEW * found <= _TOO_FEW * _TOO_MANY * n:
        raise expected(
            f"near the number of rows, {n}",
            "steps and noise are planned for it; n_samples=None takes it from X and says so in the "
            "report, as learning curves and halving searches need",
            n_samples=declared,
        )
    if is_public and not n <= _MORE_THAN * found <= _MORE_THAN * _FAR_FROM * n:
        which = "for rows that are not there" if found > n else "without many that are there"
        warnings.warn(
            f"n_samples={found} is {found / n:.2g} times the number of rows, {n}: steps, noise and "
            f"posterior are planned {which}. Declare a number nearby.",
            FitWarning,
            stacklevel=6,
        )
    return found


def warn_of_delta(estimator: Any, n: int, name: str = "") -> None:
    """Warn where δ allows one of n records, rows or persons, to be shown."""
    delta, epsilon = estimator.delta, estimator.epsilon
    if is_real(delta) and 1.0 <= delta * n < n and not (is_real(epsilon) and np.isinf(epsilon)):
        one, all_of_them = ("a row", "rows") if estimator.unit == ROW else ("a person", "persons")
        warnings.warn(
            f"{name or type(estimator).__name__} has delta={delta:g} for {n} {all_of_them}: a "
            f"delta of 1/n or more allows a fit that publishes {one} at random. Choose one well "
            "below 1/n.",
            PrivacyWarning,
            stacklevel=6,
        )


def too_many_rows(most: float) -> ValueError:
    """Return the error of more rows than the rounding bound of a sum covers."""
    return ValueError(
        f"Expected X to have at most {most} rows: beyond, the rounding of a sum is not covered "
        "by the declared sensitivity. Fit on a random subset."
    )


_MANY_MINUTES = 10.0


def check_in_chunks(estimator: Any, plan: FitPlan, X: ArrayInChunks) -> None:
    """Refuse rows in chunks where a run needs more of them than sums; say how long passes take."""
    config, name = plan.config, plan.facts.label
    if not getattr(config, "asks_sums", False):
        instead = getattr(config, "instead_of_all_rows", "")
        raise ValueError(
            f"Expected arrays: {name} with these parameters needs all rows at once, and takes none "
            "in chunks." + f" Or use {instead}." * bool(instead)
        )
    n_passes = getattr(config, "n_passes", config.n_releases)
    minutes, told = 0.0, f"{name} reads all chunks {n_passes} times at most."
    if estimator._relation.n_is_public:  # or else the time would tell of it
        minutes = n_passes * X.reading.seconds / 60.0
        told += (
            f" The first look at them took {X.reading.seconds:.2g} s: that makes "
            f"{minutes:.2g} minutes, or about."
        )
    if getattr(estimator, "verbose", 0):
        print(told)
    elif minutes > _MANY_MINUTES:
        warnings.warn(told, FitWarning, stacklevel=5)


# Parameters of 0.2, and the fields of `Persons` that they are now.
_THEN = "n_groups", "rows_per_group", "group_clip", "max_rows_per_group"
IN_0_2 = dict(zip(_THEN, Persons.__dataclass_fields__, strict=True))


class _Of02:
    """What 0.2 said of persons: refused in words where it is written, read where it was pickled."""

    def __new__(cls, *args: Any, **given: Any) -> Self:
        cls._refuse(given)
        return super().__new__(cls)

    @classmethod
    def _refuse(cls, given: dict[str, Any]) -> None:
        if gone := [f"{IN_0_2[name]}={given[name]!r}" for name in IN_0_2 if name in given]:
            raise TypeError(
                f"{cls.__name__}() takes what is public about persons as one value: "
                f"unit=skdp.Persons({', '.join(gone)})"
            )

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, as scikit-learn's estimators do."""
        self._refuse(params)
        return super().set_params(**params)  # type: ignore[misc]  # of `PrivateEstimator`

    def __setstate__(self, state: dict[str, Any]) -> None:
        now = {name: value for name, value in state.items() if name not in IN_0_2}
        if state.get("unit") == GROUP:
            now["unit"] = Persons(**{IN_0_2[k]: v for k, v in state.items() if k in IN_0_2})
        super().__setstate__(now)  # type: ignore[misc]  # of `PrivateEstimator`


@dataclass(eq=False, repr=False)
class ProtectedUnit(_Of02):
    """The privacy unit, of estimators that can protect persons.

    Parameters
    ----------
    unit : "row" or Persons, default="row"
        The privacy unit: a row, or a person with all of its rows, given to `fit` as ``groups``;
        see `skdp.Persons`.

    Examples
    --------
    >>> from skdp import DPStandardScaler, Persons
    >>> scaler = DPStandardScaler(unit=Persons(rows_per_group=3), epsilon=float("inf"))
    >>> scaler.fit([[1.0], [0.5], [-1.0]], groups=["ann", "bo", "ann"]).n_features_in_
    1
    """

    _: KW_ONLY
    unit: str | Persons = ROW
