import inspect
import json
import math
import pickle
import re
import sys
import warnings
from dataclasses import replace

import dp_accounting as dp
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent

import skdp
from skdp.privacy import PrivacyReport, PrivacyWarning, epsilon_of_event, gdp_to_epsilon
from skdp.privacy.events import PosteriorSamplesDpEvent, dp_sgd_event

EVENT = dp_sgd_event(4.0, 0.1, 16)


def made(event=EVENT, **facts):
    return PrivacyReport.of(event, **({"delta": 1e-5, "sampling": "any"} | facts))


def test_it_states_the_accounted_epsilon_at_any_delta():
    report = made()
    assert report.epsilon == epsilon_of_event(EVENT, 1e-5)
    assert report.accountant == "pld"
    assert report.epsilon_at(1e-3) == epsilon_of_event(EVENT, 1e-3)
    assert (report.valid, report.seeded) == (True, False)


@pytest.mark.filterwarnings("ignore:accountant='gdp_clt':skdp.PrivacyWarning")
@pytest.mark.parametrize(
    ("event", "facts", "said"),
    [
        (EVENT, {"seeded": True}, "nominal .* NOT a guarantee"),
        (EVENT, {"accountant": "gdp_clt"}, "NOT a bound"),
        (dp.NonPrivateDpEvent(), {}, "not private"),
    ],
)
def test_no_guarantee_is_said_to_be_none(event, facts, said):
    report = made(event, **facts)
    assert (report.valid, report.seeded) == (False, "seeded" in facts)
    assert re.search(said, repr(report))
    assert re.search(said, report._repr_html_())
    assert (json.loads(report.to_json())["epsilon"] == "inf") == (report.epsilon == math.inf)
    assert (report.epsilon == math.inf) == (event is not EVENT)


def test_the_json_holds_the_event_for_any_other_accountant():
    report = made()
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


@pytest.mark.parametrize(
    "event",
    [
        EVENT,
        dp_sgd_event([1.0, 2.0, 2.0], 1.0),
        PosteriorSamplesDpEvent(0.5, 10),
        dp.NonPrivateDpEvent(),
    ],
)
def test_json_round_trip(event):
    report = made(event, inferred_public_facts=("classes",), seeded=True)
    assert PrivacyReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("text", ["{}", "[]", '{"epsilon": 1}', "nonsense", "null"])
def test_json_that_is_no_report_is_refused(text):
    with pytest.raises(ValueError, match=r"JSON|Expecting"):
        PrivacyReport.from_json(text)


def test_a_report_that_claims_too_little_is_refused():
    values = json.loads(made().to_json())
    values["epsilon"] /= 2
    with pytest.raises(ValueError, match="has been changed"):
        PrivacyReport.from_json(json.dumps(values))


def test_the_sum_of_two_reports_is_their_composition():
    first = PrivacyReport.of(dp_sgd_event(4.0, 1.0, 16), delta=1e-5, sampling="first")
    second = PrivacyReport.of(dp_sgd_event(2.0, 1.0, 3), delta=1e-6, sampling="second")
    both = first + second
    assert both.epsilon == pytest.approx(gdp_to_epsilon(math.sqrt(1 + 3 / 4), 1e-5), rel=1e-9)
    assert both.delta == 1e-5
    assert both.epsilon < first.epsilon + second.epsilon
    assert both.valid
    seeded = made(sampling="third", seeded=True)
    assert not (first + seeded).valid
    assert (first + seeded).seeded
    other = made(neighboring_relation="replace_one")
    with pytest.raises(ValueError, match="neighboring_relation"):
        first + other


def test_it_survives_a_pickle_and_cannot_be_edited():
    report = made()
    assert pickle.loads(pickle.dumps(report)) == report
    with pytest.raises(AttributeError):
        report.epsilon = 0.1


def test_facts_read_from_the_data_are_listed():
    report = made(inferred_public_facts=("classes", "n_samples"))
    assert "classes, n_samples" in repr(report)
    assert report.to_dict()["inferred_public_facts"] == ["classes", "n_samples"]


def test_what_is_assumed_is_listed_and_composed():
    assumed = made(assumptions=("by itself",))
    plain = made()
    assert assumed.valid
    assert "  assumed                 by itself\n" in repr(assumed)
    assert "assumed" not in repr(plain)
    assert "by itself" in assumed._repr_html_()
    assert assumed.to_dict()["assumptions"] == ["by itself"]
    assert PrivacyReport.from_json(assumed.to_json()) == assumed
    assert (plain + assumed).assumptions == ("by itself",)
    assert (assumed + assumed).assumptions == ("by itself",)
    assert (plain + plain).assumptions == ()


def test_json_from_before_assumptions_were_listed_is_read():
    report = made()
    values = report.to_dict()
    del values["assumptions"]
    assert PrivacyReport.from_json(json.dumps(values)) == report
    with pytest.raises(ValueError, match="JSON"):
        PrivacyReport.from_json(json.dumps(values | {"assumptions": [1]}))


def test_html_escapes_what_it_shows():
    report = made(sampling="<script>")
    assert "<script>" not in report._repr_html_()


@pytest.mark.thorough
def test_a_sum_of_very_many_reports_is_one_flat_composition():
    one = PrivacyReport.of(dp_sgd_event(100.0, 1.0, 1), delta=1e-5, sampling="full batch, 1 step")
    total, limit = one, sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    try:
        for _ in range(250):  # nested, they would be deeper than the limit
            total = total + one
    finally:
        sys.setrecursionlimit(limit)
    assert total.epsilon == pytest.approx(gdp_to_epsilon(math.sqrt(251) / 100, 1e-5))


# Where nothing is said, warnings are errors here.
# --- reports of 0.1.0 that are known to be wrong, or may be ---------------------------------------

DRAW = PosteriorSamplesDpEvent(1.0, 1)
BY_REJECTION = "all rows, exact draw by the rejection sampler; running time not covered"
BY_ROUNDS = "all rows, exact draw by the proximal sampler; running time not covered"
ON_A_GRID = (
    "all rows, exact draw by the rejection sampler on a public grid; proved of the implemented "
    "law, given ideal random bits; running time not covered"
)
SEARCH = RepeatAndSelectDpEvent(dp.GaussianDpEvent(5.0), 3.0, 0.0)
SGLD = dp_sgd_event([10.0, 11.0, 12.0, 13.0], 0.1)
STEP = dp.GaussianDpEvent(5.0)
STEPS = dp.ComposedDpEvent([dp.GaussianDpEvent(s) for s in (9.0, 4, 5, 6, 7, 8, 9)])
RELEASES = dp.ComposedDpEvent([dp.GaussianDpEvent(s) for s in (3.0, 16.7, 17.1, 20.0)])
SCALED = "step 'scaler' (DPStandardScaler): full batch, 1 release; then "
READ = {"inferred_public_facts": ("classes",)}
ADDED = {"neighboring_relation": "add_or_remove_one"}


def written(event, sampling, version="0.1.0", delta=1e-5, **facts):
    """Return the JSON of a report as a version wrote it."""
    report = made(event, delta=delta, sampling=sampling, **facts)
    return json.dumps(json.loads(report.to_json()) | {"skdp_version": version})


@pytest.mark.parametrize(
    ("event", "sampling", "delta"),
    [
        (DRAW, BY_REJECTION, 0.0),
        (DRAW, BY_REJECTION, 1e-5),
        (dp.ComposedDpEvent([STEP, DRAW]), SCALED + BY_REJECTION, 1e-5),
    ],
)
def test_rejection_samples_of_0_1_0_are_no_guarantee(event, sampling, delta):
    text = written(event, sampling, delta=delta)
    with pytest.warns(PrivacyWarning, match="advisory 1"):
        report = PrivacyReport.from_json(text)
    assert not report.valid
    for same in ("0.1.0.dev0", "0.1.0+local", "0.1.0rc1", "0.1"):
        with pytest.warns(PrivacyWarning, match="advisory 1"):
            assert not PrivacyReport.from_json(written(event, sampling, same, delta)).valid
    assert PrivacyReport.from_json(written(event, sampling, "0.10.0", delta)).valid
    assert "NOT a guarantee" in repr(report)
    assert "advisory 1 (docs/advisories.md)" in repr(report)
    assert not (report + made()).valid
    with pytest.warns(PrivacyWarning, match="advisory 1"):  # as often as it is read
        assert PrivacyReport.from_json(report.to_json()) == report


def test_parts_of_0_2_0_may_not_have_been_parts():
    of_part = "full batch, 1 release, of part 'a' of split-1"
    for version in ("0.2.0", "0.2", "0.2.0.dev0"):
        with pytest.warns(PrivacyWarning, match=f"skdp {version} may be affected.*advisory 8"):
            assert PrivacyReport.from_json(written(EVENT, of_part, version)).valid
    for version, sampling in [("0.3.0", of_part), ("0.20.0", of_part), ("0.2.0", "full batch")]:
        PrivacyReport.from_json(written(EVENT, sampling, version))


@pytest.mark.parametrize(
    ("number", "event", "sampling", "facts"),
    [
        (2, SGLD, "Poisson sampling, rate 0.1, 4 steps", {}),
        (2, dp_sgd_event([10.0] * 4, 1.0), "full batch, 4 steps", {}),
        (2, STEPS, SCALED + "full batch, 6 steps", {}),
        (
            3,
            STEP,
            "3 times step 'model__estimator' (DPVariationalModel): full batch, 1 steps",
            READ,
        ),
        (4, SEARCH, "each trial: full batch, 21 steps; score: on public rows", {}),
        (6, STEP, "full batch, 1 steps", READ | ADDED),
    ],
)
def test_reports_of_0_1_0_that_may_be_wrong_come_with_a_warning(number, event, sampling, facts):
    with pytest.warns(PrivacyWarning, match=f"may be affected.*advisory {number}") as caught:
        report = PrivacyReport.from_json(written(event, sampling, **facts))
    assert len(caught) == 1
    assert report.valid
    assert report.skdp_version == "0.1.0"


@pytest.mark.parametrize(
    ("event", "sampling", "facts"),
    [
        (DRAW, BY_ROUNDS, {}),
        (EVENT, "Poisson sampling, rate 0.1, 16 steps", {}),
        (dp_sgd_event([9.0, 10.0, 10.0, 9.0, 10.0], 1.0), "full batch, 5 steps", {}),
        (RELEASES, SCALED + "step 'b' (Any): full batch", READ),
        (STEP, "full batch, 1 steps", ADDED),
        (dp.NonPrivateDpEvent(), BY_REJECTION, {}),
    ],
)
def test_other_reports_of_0_1_0_load_as_they_are(event, sampling, facts):
    report = PrivacyReport.from_json(written(event, sampling, **facts))
    assert report.valid == math.isfinite(report.epsilon)
    assert report.unaccounted == ()


@pytest.mark.parametrize("event", [DRAW, SGLD, SEARCH])
@pytest.mark.parametrize("sampling", [BY_REJECTION, ON_A_GRID])
def test_reports_of_this_version_are_not_those_of_0_1_0(event, sampling):
    report = made(event, sampling=sampling)
    assert report.skdp_version == skdp.__version__ != "0.1.0"
    assert PrivacyReport.from_json(report.to_json()) == report


def test_exact_draws_of_this_version_are_a_guarantee_and_say_what_it_rests_on():
    X = [[-0.5], [0.5]]
    sampler = skdp.OPSPosteriorSampler(0.1, 0, classes=[0, 1], n_samples=2, data_norm=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", skdp.FitWarning)
        report = sampler.fit(X, [0, 1]).privacy_
    assert report.sampling == ON_A_GRID
    again = PrivacyReport.from_json(report.to_json())
    assert again == report
    assert (again.valid, again.unaccounted) == (True, ())


def test_composing_does_not_make_a_disproved_report_valid():
    old = replace(made(DRAW, sampling=BY_REJECTION), skdp_version="0.1.0")
    new = made()
    for both in (old + new, new + old, PrivacyReport.compose([old])):
        assert not both.valid
        assert any("advisory 1" in part for part in both.unaccounted)
