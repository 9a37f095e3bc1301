"""`PrivacyLedgerCallback`: a ledger that opens when a search is fitted, and closes when it is done.

For scikit-learn 1.9 and newer, whose searches and pipelines take callbacks. Before, and for
`cross_val_score`, which has nothing to set a callback on, the ledger itself does the same::

    with PrivacyLedger(epsilon=3.0, delta=1e-5) as ledger:
        search.fit(X, y)
"""

from __future__ import annotations

import os
from typing import Any

from skdp.fitting.types import Estimator
from skdp.privacy import PrivacyLedger
from skdp.privacy.ledger import LedgerEntry, lock


class PrivacyLedgerCallback:
    """Count every private fit of whatever it is set on, and stop before a ceiling is broken.

    While the estimator that it is set on is being fitted, a `PrivacyLedger` is open: every fit in
    the process and in the processes below it is written down before it touches a row, those of
    pipelines, folds, meta-estimators and workers (``n_jobs``) included. A fit that would break the
    ceiling gets a `BudgetExceededError` instead; scikit-learn's searches count that as a failed
    fit, score it ``error_score``, and go on, to be refused again.

    **What the total says.** It is the sequential composition of all fits, by the accountant. Folds
    with disjoint test parts still share training rows: of k folds, a row is in the training part of
    k - 1, so composing all k overstates a little. It does *not* cover the scores: those of a plain
    search are exact functions of the test rows, and the parameters it picks with them are no
    private release; see `DPRandomizedSearch`.

    Parameters
    ----------
    epsilon, delta, neighboring_relation, unit, path : optional
        As of `PrivacyLedger`.

    Attributes
    ----------
    records : tuple of LedgerEntry
        What has been charged, one entry per fit: ``label`` and ``event``. Further fits add to it.

    Examples
    --------
    >>> from skdp.model_selection import PrivacyLedgerCallback
    >>> PrivacyLedgerCallback(epsilon=1.0, delta=1e-5)
    PrivacyLedgerCallback(0 entries, ceiling epsilon=1 at delta=1e-05, zero_out)
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        neighboring_relation: str = "zero_out",
        unit: str = "row",
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._ledger = PrivacyLedger(
            epsilon, delta, neighboring_relation=neighboring_relation, unit=unit, path=path
        )
        self._depth = 0

    @property
    def records(self) -> tuple[LedgerEntry, ...]:
        """What has been charged, one entry per fit."""
        return self._ledger.entries

    @property
    def valid(self) -> bool:
        """Whether the total is a guarantee: false once a seeded fit has been charged."""
        return self._ledger.valid

    def total(self, delta: float) -> float:
        """ε of all fits together, composed by the accountant, at the given δ."""
        return self._ledger.total(delta)

    def setup(self, estimator: Estimator, context: Any) -> None:
        """Open the ledger; called by scikit-learn at the start of a fit."""
        self.__enter__()

    def teardown(self, estimator: Estimator, context: Any) -> None:
        """Close the ledger; called by scikit-learn at the end of a fit, whatever its end."""
        self.__exit__()

    def on_fit_task_begin(self, estimator: Estimator, context: Any) -> None:
        """Do nothing: the fits themselves write to the ledger."""

    def on_fit_task_end(self, estimator: Estimator, context: Any) -> None:
        """Do nothing."""

    def __enter__(self) -> PrivacyLedgerCallback:
        with lock():  # clones share a callback, and may be fitted in several threads
            if self._depth == 0:
                self._ledger.__enter__()
            self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        with lock():
            if self._depth == 0:  # scikit-learn also tears down what it could not set up
                return
            self._depth -= 1
            if self._depth == 0:
                self._ledger.__exit__()

    def __getstate__(self) -> dict[str, PrivacyLedger]:
        return {"_ledger": self._ledger}

    def __setstate__(self, state: dict[str, PrivacyLedger]) -> None:
        self.__dict__.update(state)
        self._depth = 0

    def __repr__(self) -> str:
        return repr(self._ledger).replace("PrivacyLedger", type(self).__name__, 1)
