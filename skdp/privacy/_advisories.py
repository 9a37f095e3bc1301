"""Reports of released versions that are known to be wrong, or may be: docs/advisories.md.

`PrivacyReport.from_json` asks here. What a report does not record, such as the precision of a
module, is stated as a condition in a warning.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from skdp.fitting.warnings import PrivacyWarning
from skdp.privacy.events import SelectionTerm, terms_of
from skdp.relations import check_relation
from skdp.verify import OLD

if TYPE_CHECKING:
    from skdp.privacy.report import PrivacyReport

_SECOND = re.compile(r"v?0\.2(\.0)?(?!\.?\d)")
_REJECTION = (
    "advisory 1 (docs/advisories.md): the posterior samples of the rejection sampler of skdp 0.1.0 "
    "reveal single records; fit again with skdp >= 0.2"
)


def as_known_today(report: PrivacyReport) -> PrivacyReport:
    """Return the report, not valid where an advisory disproves it; warn where one may apply."""
    doubts = list(_doubts(report)) if math.isfinite(report.epsilon) else []
    report = not_disproved(report)
    if _REJECTION in report.unaccounted:
        warnings.warn(f"This report is no guarantee: {_REJECTION}.", PrivacyWarning, stacklevel=3)
    if doubts:
        warnings.warn(
            f"This report of skdp {report.skdp_version} may be affected, see docs/advisories.md: "
            f"{'; '.join(doubts)}.",
            PrivacyWarning,
            stacklevel=3,
        )
    return report


def not_disproved(report: PrivacyReport) -> PrivacyReport:
    """Return the report, not valid where an advisory disproves it."""
    disproved = OLD.match(report.skdp_version) and "by the rejection sampler" in report.sampling
    if not (disproved and math.isfinite(report.epsilon)):
        return report
    unaccounted = tuple(dict.fromkeys((*report.unaccounted, _REJECTION)))
    return replace(report, valid=False, unaccounted=unaccounted)


def _doubts(report: PrivacyReport) -> Iterator[str]:
    if _SECOND.match(report.skdp_version) and ", of part " in report.sampling:
        yield (
            "advisory 8, if rows or targets were changed in place after DisjointSplit.take, were "
            "not those of one part, had a row twice, or were split by other labels than persons'"
        )
    if not OLD.match(report.skdp_version):
        return
    if _is_sgld(report):
        yield "advisory 2, if this is DP-SGLD with a module in double precision"
    inferred = "classes" in report.inferred_public_facts
    if inferred and re.search(r"step '(\w+__)?estimator' ", report.sampling):
        yield "advisory 3, if this is OneVsRestClassifier on indicator (multilabel) targets"
    if any(isinstance(term, SelectionTerm) for term in terms_of(report.event)):
        yield "advisory 4, if a trial of this search fitted private estimators of its own"
    if inferred and not check_relation(report.neighboring_relation).n_is_public:
        yield "advisory 6, if there were more than half as many classes as rows"


def _is_sgld(report: PrivacyReport) -> bool:
    """Whether the noise grows from step to step, or is a schedule that happens to be constant.

    A noise-aware fit has two levels of noise; of several fits, each may have two.
    """
    event = report.event
    if not isinstance(event, dp_event.ComposedDpEvent):
        return False
    several = "; then " in report.sampling or " times " in report.sampling
    longest = length = 1
    for before, after in pairwise(map(_noise_multiplier, event.events)):
        length = length + 1 if before < after else 1
        longest = max(longest, length)
    return longest >= (6 if several else 3) or (len(event.events) == 1 and not several)


def _noise_multiplier(event: DpEvent) -> float:
    """σ of a run of Gaussian mechanisms; NaN, which is less than nothing, of anything else."""
    while isinstance(event, dp_event.SelfComposedDpEvent | dp_event.PoissonSampledDpEvent):
        event = event.event
    return event.noise_multiplier if isinstance(event, dp_event.GaussianDpEvent) else math.nan
