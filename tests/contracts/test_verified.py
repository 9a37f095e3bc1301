"""What each way of each public estimator states is proved again by skdp-verify."""

import pytest
from contracts.subjects import RELEASING, REPEATED, good_rows, targets, with_facts

from skdp import intervals, verify

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")


@pytest.mark.parametrize("name", [name for name in RELEASING if name not in REPEATED])
def test_the_report_of_a_fit_is_proved(name, monkeypatch):
    # Coarse, to be quick: what is exact stays so.
    monkeypatch.setattr(intervals, "FINE", intervals.COARSE)
    monkeypatch.setattr(verify, "ORDERS", verify.ORDERS[::3])
    estimator = with_facts(name)
    estimator.fit(good_rows(), targets(name))
    report = getattr(estimator, "temperature_privacy_", None) or estimator.privacy_
    holds, proved, why = verify.verdict(verify.read_text(report.to_json()), 0.05)
    if report.valid:
        assert holds, (proved, why)
    else:
        assert "no guarantee" in why
