"""The charge of a fit: ledgers have it before any row is used."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from skdp.fitting import checkpoint as checkpoints
from skdp.fitting.plan import FitPlan
from skdp.fitting.validate import expected
from skdp.fitting.warnings import PrivacyWarning
from skdp.relations import GROUP, check_relation
from skdp.rows.parts import part_read

if TYPE_CHECKING:
    from skdp.privacy.report import PrivacyReport
from skdp.fitting.seeds import streams

SAID: set[tuple[str, ...]] = set()


def warn_if_inferred(name: str, facts: tuple[str, ...]) -> None:
    """Say once in a process which facts an estimator's ε takes to be public."""
    if facts and (name, *facts) not in SAID:
        SAID.add((name, *facts))
        warnings.warn(
            f"The privacy statement of {name} is conditional on facts that were read from the data "
            f"being public: {', '.join(facts)}. Declare them ({', '.join(facts)}=...) if they are. "
            "This warning comes once; every report lists them.",
            PrivacyWarning,
            stacklevel=5,
        )


def begun(estimator: Any, plan: FitPlan, *arrays: np.ndarray, beside: Any = None) -> None:
    """Begin a run with a checkpoint, or hold one that is resumed against the rows and the plan."""
    checkpoint = checkpoints.current()
    if checkpoint is None:
        return
    from skdp.privacy.ledger import is_covered

    if is_covered():
        remedy = "what a trial leaves on the disk is a release that no selection accounts for"
        raise expected("None inside a search or an audit", remedy, checkpoint=estimator.checkpoint)
    about = plan.facts, plan.privacy.event, _own(estimator), beside
    checkpoint.begin(about, arrays, streams(estimator, *arrays))


def _own(estimator: Any) -> tuple[type, dict[str, Any]]:
    """Return the class of an estimator, and methods that it has instead of those of its class."""
    kind = type(estimator)
    held = {k: v for k, v in vars(estimator).items() if callable(getattr(kind, k, None))}
    return kind, held


def charged(
    estimator: BaseEstimator,
    plan: FitPlan,
    rows: tuple[Any, ...],
    before: PrivacyReport | None = None,
    *,
    groups: Any = None,
) -> PrivacyReport:
    """Write what a plan costs to the open ledgers, and return the report. Before any row is used.

    The report is of this plan, on the part of a split that the ``rows`` as given, X, targets and
    whatever else there is of each row, are of, and of what was spent ``before``.
    """
    from skdp.privacy.ledger import charge

    name, n = plan.facts.label, plan.facts.n_samples
    of_persons = check_relation(plan.privacy.neighboring_relation).unit == GROUP
    mark = part_read(*rows, groups=groups, of_persons=of_persons)
    report = plan.privacy.of_part(mark).of_release(estimator, name, n)
    total = report if before is None else before + report
    warn_if_inferred(name, report.inferred_public_facts)
    if report.seeded:
        warnings.warn(
            f"{name} was given a random_state: epsilon is nominal only, because whoever knows or "
            "guesses the seed can recompute the noise. Use random_state=None for anything that is "
            "released.",
            PrivacyWarning,
            stacklevel=5,
        )
    checkpoint = checkpoints.current()
    charge(
        report.event,
        run="" if checkpoint is None else checkpoint.name,
        label=name,
        neighboring_relation=report.neighboring_relation,
        nominal=report.seeded,
        inferred=report.inferred_public_facts,
        owner=estimator,
    )
    if checkpoint is not None:
        checkpoint.charged = True
    return total
