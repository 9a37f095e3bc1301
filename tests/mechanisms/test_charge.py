"""A mechanism charges its release to open ledgers: once, and before it uses the values."""

import numpy as np
import pytest

from skdp import _trace
from skdp._random import Streams
from skdp.mechanisms import GaussianMechanism, LaplaceMechanism, QuantileMechanism
from skdp.preprocessing import DPPCA, DPQuantileScaler, DPStandardScaler
from skdp.privacy import BudgetExceededError, PrivacyLedger
from skdp.relations import RELATIONS

ROWS = np.random.default_rng(0).uniform(-1, 1, (50, 2))


def mechanisms(relation="zero_out"):
    return [
        GaussianMechanism(1.0, 3.0, relation),
        LaplaceMechanism(1.0, 3.0, relation),
        QuantileMechanism(0.5, 0.0, 1.0, 0.3, relation),
    ]


each = pytest.mark.parametrize("kind", range(3), ids=["gaussian", "laplace", "quantile"])


@each
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_release_is_one_entry(kind, relation):
    mechanism = mechanisms(relation)[kind]
    with PrivacyLedger(neighboring_relation=relation) as ledger:
        mechanism.release([0.5])
        mechanism.release([0.5])
    assert [entry.event for entry in ledger.entries] == [mechanism.event()] * 2
    assert {entry.label for entry in ledger.entries} == {type(mechanism).__name__}
    assert ledger.valid


@each
def test_a_stream_of_the_caller_s_makes_the_entry_nominal(kind):
    with PrivacyLedger() as ledger:
        mechanisms()[kind].release([0.5], Streams(b"known")("noise"))
    (entry,) = ledger.entries
    assert entry.nominal
    assert not ledger.valid


@each
def test_what_has_been_charged_is_not_charged_again(kind):
    with PrivacyLedger() as ledger:
        mechanisms()[kind].release([0.5], charged=True)
    assert ledger.entries == ()


@each
def test_beyond_the_ceiling_nothing_is_released(kind):
    with (
        PrivacyLedger(epsilon=1e-3, delta=1e-9) as ledger,
        _trace.record() as tape,
        pytest.raises(BudgetExceededError),
    ):
        mechanisms()[kind].release([0.5])
    assert (ledger.entries, tape) == ((), [])


@pytest.mark.parametrize("kind", [DPStandardScaler, DPQuantileScaler, DPPCA])
def test_a_transformer_charges_its_releases_once_and_as_a_whole(kind):
    with PrivacyLedger() as ledger:
        fitted = kind().fit(ROWS)
    (entry,) = ledger.entries
    assert entry.event == fitted.privacy_.event
