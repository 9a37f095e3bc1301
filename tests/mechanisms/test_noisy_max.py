"""`NoisyMaxMechanism`: its law and its ε by exact sums, ties, its charge."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from skdp import PrivacyLedger
from skdp.engine import release_hook
from skdp.engine.discrete_laplace import geometric_integers
from skdp.fitting.streams import SecureStream
from skdp.mechanisms import NoisyMaxMechanism
from skdp.privacy.events import PureDpEvent

MOST = 300  # noise beyond has next to no probability here


def law(values: list[int], scale: float) -> np.ndarray:
    """Probability of each place, by summing over the noise of the one that wins."""
    k = np.arange(MOST)
    p = -math.expm1(-1 / scale) * np.exp(-k / scale)
    found = []
    for i, own in enumerate(values):
        wins = p.copy()
        for j, other in enumerate(values):
            if j != i:  # another's noise is below what it would win with; of equals the first wins
                room = own + k - other + (j > i)
                wins *= -np.expm1(-np.maximum(room, 0) / scale)
        found.append(wins.sum())
    return np.array(found)


def test_geometric_noise_has_its_law() -> None:
    for scale in (Fraction(1, 3), Fraction(7, 2)):
        x = geometric_integers(scale, 100_000, SecureStream(b"law of integers!"))
        for k in range(1, 2 + 2 * round(scale)):
            p = math.exp(-k / float(scale))
            assert abs((x >= k).mean() - p) < 5 * (p / 100_000) ** 0.5
        assert x.min() == 0


@pytest.mark.thorough
def test_the_place_has_its_law() -> None:
    values, mechanism = [3, 5, 4, 5], NoisyMaxMechanism(1, 0.7)
    drawn = [mechanism.release(values, charged=True) for _ in range(6000)]
    expected = law(values, 1 / 0.7)
    assert expected.sum() == pytest.approx(1.0)
    found = np.bincount(drawn, minlength=4) / 6000
    np.testing.assert_allclose(found, expected, atol=5 * 0.5 / 6000**0.5)
    # One who chooses by the exponential mechanism is right less often.
    weights = np.exp(0.7 * np.array(values))
    assert expected[[1, 3]].sum() > weights[[1, 3]].sum() / weights.sum()


@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1), ("replace_one", 2)])
def test_no_record_moves_the_law_by_more_than_epsilon(relation: str, factor: int) -> None:
    rng, epsilon, worst = np.random.default_rng(0), 0.8, 0.0
    scale = float(NoisyMaxMechanism(2, epsilon, relation)._noise.scale)
    for _ in range(300):
        values = rng.integers(0, 12, size=3)
        moved = rng.integers(-factor * 2, 1, size=3)
        moved -= moved.min()  # no farther apart than the sensitivity
        ratio = law(list(values), scale) / law(list(values + moved), scale)
        worst = max(worst, abs(np.log(ratio)).max())
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-9)


def test_it_is_charged_and_on_record() -> None:
    mechanism = NoisyMaxMechanism(1, 0.5, "replace_one")
    with PrivacyLedger(neighboring_relation="replace_one") as ledger, release_hook.record() as tape:
        place = mechanism.release([0, 1000])
    assert place == 1
    assert [entry.event for entry in ledger.entries] == [PureDpEvent(0.5)]
    assert (tape[0].call.kind, tape[0].call.sensitivity, tape[0].output) == ("selection", 2, 1.0)


@pytest.mark.parametrize("values", [[], [[1]], [0.5], ["a"], 3])
def test_bad_values(values) -> None:
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="integers"):
        NoisyMaxMechanism(1, 1.0).release(values)
    assert not ledger.entries


@pytest.mark.parametrize("wrong", [{"record_range": 0}, {"epsilon": 0.0}, {"epsilon": 51.0}])
def test_bad_parameters(wrong) -> None:
    with pytest.raises(ValueError, match=r"epsilon|record_norm"):
        NoisyMaxMechanism(**({"record_range": 1, "epsilon": 1.0} | wrong))
