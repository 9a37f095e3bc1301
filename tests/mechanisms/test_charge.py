"""A mechanism under an open ledger: charged once, before the values are used, or refused."""

from unittest import mock

import numpy as np
import pytest

from skdp import DPPCA, DPQuantileScaler, DPStandardScaler
from skdp.engine import release_hook
from skdp.fitting.streams import Streams
from skdp.mechanisms import (
    GaussianMechanism,
    GeometricMechanism,
    LaplaceMechanism,
    NoisyMaxMechanism,
    QuantileMechanism,
)
from skdp.privacy import BudgetExceededError, PrivacyLedger
from skdp.relations import RELATIONS

VALUES = np.arange(-3, 3)
MECHANISMS = [
    GaussianMechanism(record_norm=1.0, scale=2.0),
    LaplaceMechanism(record_norm=1.0, scale=2.0),
    QuantileMechanism(quantile=0.5, lower=-1.0, upper=1.0, epsilon=0.5),
    GeometricMechanism(record_norm=1, epsilon=0.5),
    NoisyMaxMechanism(record_range=1, epsilon=0.5),
]
each = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)


@each
def test_a_release_is_charged_once_before_the_values_are_used(mechanism):
    seen = []

    def outputs(ledger):
        seen.append(len(ledger.entries))
        yield np.zeros(())

    with PrivacyLedger() as ledger, release_hook.replay(outputs(ledger)):
        mechanism.release(VALUES)
    assert seen == [1]
    (entry,) = ledger.entries
    assert (entry.label, entry.event) == (type(mechanism).__name__, mechanism.event())
    assert ledger.valid


@each
def test_each_release_is_charged_and_none_without_a_ledger(mechanism):
    mechanism.release(VALUES)
    with PrivacyLedger() as ledger:
        for _ in range(3):
            mechanism.release(VALUES)
    assert len(ledger.entries) == 3


@each
def test_a_release_that_is_part_of_a_larger_one_is_not_charged_again(mechanism):
    with PrivacyLedger(epsilon=1e-6, delta=1e-5) as ledger:
        mechanism.release(VALUES, charged=True)
    assert ledger.entries == ()


@each
def test_a_refused_release_draws_nothing(mechanism):
    stream = Streams(b"a seed")("noise")
    with (
        PrivacyLedger(epsilon=1e-6, delta=1e-5) as ledger,
        release_hook.record() as tape,
        mock.patch("skdp.mechanisms._release.Streams", side_effect=AssertionError),
    ):
        for given in (None, stream):
            with pytest.raises(BudgetExceededError, match="no data was used"):
                mechanism.release(VALUES, given)
    assert (ledger.entries, tape) == ((), [])
    assert stream.normal(1) == Streams(b"a seed")("noise").normal(1)


@each
def test_a_release_under_a_ledger_of_another_relation_is_refused(mechanism):
    with (
        PrivacyLedger(neighboring_relation="replace_one") as ledger,
        release_hook.record() as tape,
        pytest.raises(ValueError, match="neighboring_relation"),
    ):
        mechanism.release(VALUES)
    assert (ledger.entries, tape) == ((), [])


@each
@pytest.mark.parametrize("values", [["a"], [None], np.nan * np.ones((2, 2))])
def test_values_that_are_refused_are_not_charged(mechanism, values):
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="Expected values"):
        mechanism.release(values)
    assert ledger.entries == ()


@each
def test_a_stream_of_the_caller_s_is_charged_as_nominal(mechanism):
    with PrivacyLedger() as ledger:
        mechanism.release(VALUES, Streams(b"a seed")("noise"))
    assert [entry.nominal for entry in ledger.entries] == [True]
    assert not ledger.valid


@pytest.mark.parametrize(
    "transformer", [DPStandardScaler(-1, 1), DPQuantileScaler(-1, 1), DPPCA(1)], ids=repr
)
def test_a_transformer_is_charged_as_a_whole_and_not_by_its_mechanisms(transformer):
    with PrivacyLedger() as ledger, release_hook.record() as tape:
        transformer.fit(VALUES.reshape(3, 2) / 6)
    assert [entry.label for entry in ledger.entries] == [type(transformer).__name__]
    assert ledger.entries[0].event == transformer.privacy_.event
    assert tape


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_a_quantile_mechanism_from_a_budget_costs_the_budget(epsilon, relation):
    mechanism = QuantileMechanism.from_budget(
        epsilon=epsilon, quantile=0.9, lower=-1.0, upper=1.0, neighboring_relation=relation
    )
    direct = QuantileMechanism(0.9, -1.0, 1.0, epsilon, relation)
    assert mechanism == direct
    with PrivacyLedger(neighboring_relation=relation) as ledger:
        assert -1.0 <= mechanism.release(VALUES) <= 1.0
    assert ledger.total(0.0) == pytest.approx(epsilon)
    assert ledger.total(0.0) >= epsilon
