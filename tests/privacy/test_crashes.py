"""A crash anywhere in a fit: the ledger never shows less than was spent."""

from unittest import mock

import pytest
from bundles import bundled

from skdp import DPVariationalLogisticRegression, PrivacyLedger
from skdp.engine.linear_sums import LinearClippedSum

LINEAR = "skdp.estimators._linear"
POINTS = [
    "skdp.fitting.declared.check_budget", f"{LINEAR}.check_features_and_labels",
    f"{LINEAR}.encode_labels", "skdp.privacy.budget.calibrate_schedule",
    "skdp.privacy.report.PrivacyReport.of", "skdp.privacy.ledger.charge",
    "skdp.privacy.ledger.PrivacyLedger._check", "skdp.fitting.charge.streams",
    "skdp.rows.records.LinearRows.of", "skdp.algorithms.parts.gaussian_runs.run",
    "skdp.rows.records.LinearRows.take", "skdp.engine.linear_sums.LinearClippedSum.__call__",
    "skdp.fitting.streams.SecureStream.normal", "skdp.engine.loop.gaussian",
    "skdp.algorithms.noise_aware_logit.NoiseAwareLogit.update",
    "skdp.algorithms.noise_aware_logit.NoiseAwareLogit.posterior",
    f"{LINEAR}.NormalPosterior._keep",
]  # fmt: skip


class CrashError(BaseException):
    """Neither ValueError nor Exception: nothing may swallow it."""


@bundled("calls_before", [0, 2])
@bundled("point", POINTS)
def test_the_ledger_never_shows_less_than_was_spent(point, calls_before, two_blobs):
    touched = []
    plain = LinearClippedSum.__call__

    def noted(self, theta, batch):
        # What the ledger holds at the moment the data is read.
        touched.append(ledger.total(1e-5) if ledger.entries else 0.0)
        return plain(self, theta, batch)

    module, _, name = point.rpartition(".")
    owner = __import__("pkgutil").resolve_name(module)
    original = getattr(owner, name)
    count = 0

    def crashing(*args, **kwargs):
        nonlocal count
        count += 1
        if count > calls_before:
            raise CrashError
        return original(*args, **kwargs)

    classifier = DPVariationalLogisticRegression(classes=[0, 1], n_samples=120, max_iter=5)
    with PrivacyLedger() as ledger:
        patches = [mock.patch.object(LinearClippedSum, "__call__", noted)]
        if point != "skdp.engine.linear_sums.LinearClippedSum.__call__":
            patches.append(mock.patch(point, crashing))
        else:
            original = noted
            patches = [mock.patch.object(LinearClippedSum, "__call__", crashing)]
        unplanned = mock.patch.dict("skdp.fitting.plan.PLANS", clear=True)
        with unplanned, patches[0], patches[-1] if len(patches) > 1 else mock.MagicMock():
            try:
                classifier.fit(*two_blobs)
                crashed = False
            except CrashError:
                crashed = True
    assert crashed or count <= calls_before
    assert all(total == pytest.approx(1.0, rel=1e-3) for total in touched)
    if touched:
        assert ledger.total(1e-5) == pytest.approx(1.0, rel=1e-3)
    if crashed:
        assert "coef_" not in vars(classifier)
        assert "privacy_" not in vars(classifier)
