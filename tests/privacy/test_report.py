import json
import math
import pickle

import dp_accounting as dp
import pytest

from skdp.privacy import PrivacyReport, epsilon_of_event
from skdp.privacy.events import dp_sgd_event

EVENT = dp_sgd_event(4.0, 0.1, 16)


def test_it_states_the_accounted_epsilon_at_any_delta():
    report = PrivacyReport.of(EVENT, delta=1e-5, sampling="Poisson")
    assert report.epsilon == epsilon_of_event(EVENT, 1e-5)
    assert report.accountant == "pld"
    assert report.epsilon_at(1e-3) == epsilon_of_event(EVENT, 1e-3)
    assert report.valid
    assert not report.seeded


def test_a_seeded_fit_is_no_guarantee():
    report = PrivacyReport.of(EVENT, delta=1e-5, sampling="Poisson", seeded=True)
    assert report.seeded
    assert not report.valid
    assert "NOT a guarantee" in repr(report)
    assert "nominal" in report._repr_html_()


def test_infinite_epsilon_reads_not_private():
    report = PrivacyReport.of(dp.NonPrivateDpEvent(), delta=1e-5, sampling="full batch")
    assert report.epsilon == math.inf
    assert not report.valid
    assert "not private" in repr(report)
    assert json.loads(report.to_json())["epsilon"] == "inf"


def test_the_json_holds_the_event_for_any_other_accountant():
    report = PrivacyReport.of(EVENT, delta=1e-5, sampling="Poisson")
    event = json.loads(report.to_json())["event"]
    assert event == {
        "type": "SelfComposedDpEvent",
        "event": {
            "type": "PoissonSampledDpEvent",
            "sampling_probability": 0.1,
            "event": {"type": "GaussianDpEvent", "noise_multiplier": 4.0},
        },
        "count": 16,
    }


def test_it_survives_a_pickle_and_cannot_be_edited():
    report = PrivacyReport.of(EVENT, delta=1e-5, sampling="Poisson")
    assert pickle.loads(pickle.dumps(report)) == report
    with pytest.raises(AttributeError):
        report.epsilon = 0.1


def test_facts_read_from_the_data_are_listed():
    report = PrivacyReport.of(
        EVENT, delta=1e-5, sampling="Poisson", inferred_public_facts=("classes", "n_samples")
    )
    assert "classes, n_samples" in repr(report)
    assert report.to_dict()["inferred_public_facts"] == ["classes", "n_samples"]


def test_html_escapes_what_it_shows():
    report = PrivacyReport.of(EVENT, delta=1e-5, sampling="<script>")
    assert "<script>" not in report._repr_html_()
