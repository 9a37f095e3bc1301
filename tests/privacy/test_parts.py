"""Releases of disjoint parts: accounting against a slow version, and what must not be believed."""

from __future__ import annotations

from itertools import product

import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
)
from hypothesis import given
from hypothesis import strategies as st

from skdp.privacy import PrivacyLedger, PrivacyReport, delta_of_event, epsilon_of_event
from skdp.privacy.events import PureDpEvent, event_from_dict, event_to_dict
from skdp.privacy.parts import MOST_CHOICES, PartDpEvent, paid_together

DELTA = 1e-5
SPLITS = {"s": "ab", "t": "xyz"}


def gaussian(noise: float) -> GaussianDpEvent:
    return GaussianDpEvent(noise)


def of(part: str, noise: float, split: str = "s") -> PartDpEvent:
    return PartDpEvent(gaussian(noise), split, part)


releases = st.lists(
    st.tuples(
        st.floats(0.5, 20.0),
        st.sampled_from([None, *SPLITS["s"]]),
        st.sampled_from([None, *SPLITS["t"]]),
    ),
    min_size=1,
    max_size=8,
)


@given(releases)
def test_a_record_pays_for_its_parts_and_for_all_rows(releases) -> None:
    event = ComposedDpEvent(
        [marked(noise, dict(zip(SPLITS, parts, strict=True))) for noise, *parts in releases]
    )
    slow = 0.0
    for record in product(*SPLITS.values()):  # every kind of record that there can be
        paid = [
            gaussian(noise)
            for noise, *parts in releases
            if all(part in (None, own) for part, own in zip(parts, record, strict=True))
        ]
        slow = max(slow, epsilon_of_event(ComposedDpEvent(paid), DELTA))
    assert epsilon_of_event(event, DELTA) == pytest.approx(slow, rel=1e-9)


def marked(noise: float, parts: dict[str, str | None]):
    event = gaussian(noise)
    for split, part in parts.items():
        if part is not None:
            event = PartDpEvent(event, split, part)
    return event


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_epsilon_and_delta_are_the_larger_of_two_parts(relation: str) -> None:
    both = ComposedDpEvent([of("a", 1.0), of("b", 2.0)])
    assert epsilon_of_event(both, DELTA, relation) == epsilon_of_event(
        gaussian(1.0), DELTA, relation
    )
    assert delta_of_event(both, 1.0, relation) == delta_of_event(gaussian(1.0), 1.0, relation)


def test_both_parts_pay_where_another_person_takes_the_place_of_one() -> None:
    """Theirs may be another part: docs/privacy.md §9."""
    relation, both = "replace_one_group", ComposedDpEvent([of("a", 5.0), of("b", 5.0)])
    twice = SelfComposedDpEvent(gaussian(5.0), 2)
    assert epsilon_of_event(both, DELTA, relation) == epsilon_of_event(twice, DELTA, relation)
    assert delta_of_event(both, 1.0, relation) == delta_of_event(twice, 1.0, relation)
    assert epsilon_of_event(both, DELTA, relation) == pytest.approx(2.288, abs=1e-3)
    stated, composed = (
        PrivacyReport.of(event, delta=DELTA, sampling="", neighboring_relation=relation)
        for event in (both, twice)
    )
    assert stated.epsilon == stated.epsilon_at(DELTA) == composed.epsilon
    assert stated.tpr_at_fpr() == composed.tpr_at_fpr()


def test_what_is_no_other_part_of_the_same_split_adds_up() -> None:
    two = epsilon_of_event(ComposedDpEvent([gaussian(1.0)] * 2), DELTA)
    for other in (gaussian(1.0), of("a", 1.0), of("b", 1.0, "t"), of("a", 1.0, "t")):
        assert epsilon_of_event(ComposedDpEvent([of("a", 1.0), other]), DELTA) == two


def test_counts_of_compositions_are_kept() -> None:
    twice = SelfComposedDpEvent(ComposedDpEvent([of("a", 1.0), of("b", 3.0)]), 2)
    paid = [gaussian(1.0)] * 2
    assert epsilon_of_event(twice, DELTA) == epsilon_of_event(ComposedDpEvent(paid), DELTA)


def test_parts_inside_of_a_selection_count_as_all_rows() -> None:
    laplace = LaplaceDpEvent(4.0)
    best = RepeatAndSelectDpEvent(PartDpEvent(laplace, "s", "a"), 3.0, 1.0)
    both = ComposedDpEvent([best, of("b", 2.0)])
    plain = ComposedDpEvent([RepeatAndSelectDpEvent(laplace, 3.0, 1.0), gaussian(2.0)])
    assert epsilon_of_event(both, DELTA) == epsilon_of_event(plain, DELTA)


def test_a_part_in_another_part_of_its_own_split_is_not_free() -> None:
    absurd = PartDpEvent(of("b", 1.0), "s", "a")
    for other in ("a", "b"):
        event = ComposedDpEvent([absurd, of(other, 5.0)])
        assert epsilon_of_event(event, DELTA) >= epsilon_of_event(gaussian(1.0), DELTA)


def test_too_many_choices_are_composed() -> None:
    few = [of("a", 30.0, f"split {i}") for i in range(9)]
    event = ComposedDpEvent([*few, *(of("b", 30.0, f"split {i}") for i in range(9))])
    assert MOST_CHOICES < 2**9
    assert paid_together(event) == [event]
    assert epsilon_of_event(event, DELTA) == epsilon_of_event(
        SelfComposedDpEvent(gaussian(30.0), 18), DELTA
    )


def test_nothing_and_no_privacy() -> None:
    nothing = ComposedDpEvent([PartDpEvent(NoOpDpEvent(), "s", "a"), of("b", 1.0)])
    assert epsilon_of_event(nothing, DELTA) == epsilon_of_event(gaussian(1.0), DELTA)
    assert epsilon_of_event(ComposedDpEvent([of("a", 0.0), of("b", 1.0)]), DELTA) == float("inf")


def test_ledgers_reports_and_files_know_parts(tmp_path) -> None:
    fit, report = of("a", 1.0), PartDpEvent(PureDpEvent(1.0), "s", "b")
    path = tmp_path / "ledger"
    ledger = PrivacyLedger(epsilon=4.4, delta=DELTA, path=path)
    ledger.spend(fit, label="fit")
    ledger.spend(report, label="report")
    assert PrivacyLedger(path=path).total(DELTA) == epsilon_of_event(gaussian(1.0), DELTA)
    reports = [PrivacyReport.of(event, delta=DELTA, sampling="") for event in (fit, report)]
    total = PrivacyReport.compose(reports)
    assert total.epsilon == reports[0].epsilon
    assert PrivacyReport.from_json(total.to_json()).event == total.event


@pytest.mark.parametrize("name", [None, 3, ["a"]])
def test_names_are_text(name) -> None:
    with pytest.raises(TypeError):
        PartDpEvent(gaussian(1.0), "s", name)
    values = event_to_dict(of("a", 1.0)) | {"split": name}
    with pytest.raises(TypeError):
        event_from_dict(values)


def test_an_unknown_event_in_a_part_is_refused() -> None:
    inner = PoissonSampledDpEvent(0.5, LaplaceDpEvent(1.0))
    with pytest.raises(ValueError, match="to be an event made of"):
        epsilon_of_event(ComposedDpEvent([PartDpEvent(inner, "s", "a"), of("b", 1.0)]), DELTA)
