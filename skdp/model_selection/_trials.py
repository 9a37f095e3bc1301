"""Trials of a private search: what each does, what it leaves, and which is the best."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from skdp.fitting.streams import Streams, seed_material
from skdp.fitting.types import Estimator, Params
from skdp.model_selection import _candidates, _scores
from skdp.model_selection._base import alone, silence
from skdp.model_selection._candidates import Candidate, TrialPlan
from skdp.model_selection.budgets import private_parts, relation_of
from skdp.model_selection.trial_law import TrialLaw
from skdp.privacy import privacy_of
from skdp.privacy.cover import Cover, covered
from skdp.privacy.workflow import stating_parts

Score = _scores.MeanRowScore | _scores.PublicScore


@dataclass(frozen=True)
class SearchPlan:
    """What a search will do; of the number of candidates nothing may be told."""

    law: TrialLaw
    trial: TrialPlan
    n_records: int | None  # rows or persons
    candidates: tuple[Candidate, ...] = field(repr=False)


class Outcome(NamedTuple):
    """What a trial leaves: its score, the fitted model, and the parts of it that were charged.

    A failure ranks above every score, and the graver one above the other.
    """

    score: float = _scores.WORST
    model: Any = None
    parts: tuple[Estimator, ...] = ()
    failure: int = 0


Tried = tuple[Params, Outcome]
_FAILED, _UNPLANNED = Outcome(failure=1), Outcome(failure=2)
_FAILURES = {
    # To go on without it would let rows choose the winner by what they make fail.
    1: "A fit or a score of the search failed. The cause is withheld, because it may depend on the "
    "rows, and the search stays charged. Fit and score the candidates on synthetic rows to find "
    "it, and clean the rows by rules that look at one row at a time.",
    2: "A trial made a private release that the search had not planned, or more of one, so nothing "
    "of the search is released; it stays charged. Make whatever is fitted on private rows a step "
    "of the pipeline with an epsilon of its own, which the search then pays for, or fit it "
    "beforehand.",
}


def trial(
    candidate: Candidate,
    plan: TrialPlan,
    score: Score,
    rows: _scores.PrivateRows,
    seed: int | None,
    key: np.ndarray,
    parent: int,
) -> Outcome:
    """Fit and score a candidate; no model where that fails, whatever it failed of."""
    fitted: Any = clone(candidate.estimator)
    streams = Streams()
    if seed is not None:
        streams = Streams(seed_material(seed, "score", {}, key))
        for position, part in enumerate(private_parts(fitted).values()):
            part.set_params(random_state=seed + position)
    cover = Cover(candidate.events, _candidates.covers_part, relation_of(fitted))
    # A worker process is silenced by itself; filters of this one are set for all of its threads.
    with covered(cover), alone(), silence(os.getpid() != parent):
        try:
            fitted.fit(rows.X, rows.y, **rows.whose)
            charged = stating_parts(fitted) <= {id(owner) for owner in cover.owners}
            covered_by_plan = charged and plan.covers(privacy_of(fitted).event)
            value = score.of_trial(fitted, rows) if covered_by_plan else 0.0
            if covered_by_plan and plan.mechanism is not None:
                value = float(plan.mechanism.release(value, streams("noise"), charged=True))
        except Exception:  # the search will say that, and no more
            return _UNPLANNED if cover.refused else _FAILED
    if cover.refused or not covered_by_plan:
        return _UNPLANNED
    return Outcome(value, fitted, tuple(cover.owners))


def best(trials: list[Tried], law: TrialLaw) -> Tried:
    """Return the best trial; of equals the first, which is any: trials come in random order."""
    if not trials:
        raise RuntimeError(
            f"No trial was drawn: the number of trials is {law}, and may be 0. The search is "
            "charged all the same. Use a finite shape, whose laws begin at 1."
        )
    failure = max(outcome.failure for _, outcome in trials)
    if failure:
        raise RuntimeError(_FAILURES[failure])
    found = max(trials, key=lambda trial: trial[1].score)
    if found[1].score == _scores.WORST:
        raise RuntimeError("No trial of the search had a finite score on the public rows.")
    return found
