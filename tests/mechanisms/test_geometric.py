"""`GeometricMechanism`: its ε in fractions, its scale."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdp.engine import release_hook
from skdp.mechanisms import GeometricMechanism, LaplaceMechanism
from skdp.privacy import delta_of_event, epsilon_of_event
from skdp.privacy.events import PureDpEvent
from skdp.relations import RELATIONS


@given(st.floats(1e-6, 50.0), st.integers(1, 2**34), st.sampled_from(RELATIONS))
def test_the_log_ratio_is_at_most_epsilon(epsilon: float, norm: int, relation: str) -> None:
    mechanism = GeometricMechanism(norm, epsilon, relation)
    factor = 2 if relation == "replace_one" else 1
    ratio = factor * norm / mechanism.scale  # of the law at two integers Δ apart, in fractions
    assert ratio <= Fraction(epsilon)
    assert float(ratio) > epsilon * (1 - 1e-6)


def test_less_noise_than_laplace() -> None:
    for epsilon, ratio in ((0.1, 1.0), (1.0, 0.96), (3.0, 0.75)):
        geometric = GeometricMechanism(1, epsilon)
        laplace = LaplaceMechanism.from_budget(epsilon=epsilon, record_norm=1.0)
        assert geometric.standard_deviation < ratio * math.sqrt(2) * laplace.scale


def test_standard_deviation_is_that_of_the_noise() -> None:
    mechanism = GeometricMechanism(3, 1.5)
    noise = mechanism.release(np.zeros(40_000, dtype=int))
    assert noise.std() == pytest.approx(mechanism.standard_deviation, rel=0.05)
    assert abs(noise.mean()) < 5 * mechanism.standard_deviation / 200


def test_what_is_released_is_the_value_with_noise() -> None:
    exact = np.arange(6, dtype=np.uint8).reshape(2, 3)
    with release_hook.record() as tape:
        noisy = GeometricMechanism(1, 50.0).release(exact)
    np.testing.assert_array_equal(noisy, exact)
    assert noisy.dtype == np.int64
    (call,) = (release.call for release in tape)
    assert (call.kind, call.sensitivity, call.shape) == ("geometric", 1, (2, 3))


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_it_is_accounted_as_any_mechanism_of_its_epsilon(relation: str) -> None:
    event = GeometricMechanism(2, 0.8, relation).event()
    assert event == PureDpEvent(0.8)
    assert epsilon_of_event(event, 0.0, relation) == pytest.approx(0.8)
    # Of two integers one apart: P(x ≤ 0) against P(x ≤ -1) is the worst event.
    a = math.exp(-0.8)
    exact = (1 / (1 + a)) - math.exp(0.3) * a / (1 + a)
    assert delta_of_event(event, 0.3, relation) >= exact - 1e-12
    laplace = LaplaceMechanism(1.0, 1 / 0.8).event()
    assert delta_of_event(laplace, 0.3) < exact  # which is why it is not accounted as that


@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp"])
def test_many_compose_below_the_sum(accountant: str) -> None:
    from dp_accounting.dp_event import SelfComposedDpEvent

    many = SelfComposedDpEvent(PureDpEvent(0.1), 100)
    found = epsilon_of_event(many, 1e-5, "zero_out", accountant)
    assert 4.0 < found < 6.0 < epsilon_of_event(many, 0.0)


@pytest.mark.parametrize("values", [[1.0], ["a"], [2**62], [-(2**62)], [True], [None]])
def test_bad_values(values) -> None:
    with pytest.raises(ValueError, match=r"Expected values to be integers between -2\*\*61"):
        GeometricMechanism(1, 1.0).release(values)


WRONG = [
    {"record_norm": 0}, {"record_norm": 1.5}, {"record_norm": 2**35}, {"epsilon": 0.0},
    {"epsilon": 51.0}, {"epsilon": 1e-9, "record_norm": 2**34}, {"neighboring_relation": "other"},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_bad_parameters(wrong) -> None:
    with pytest.raises(ValueError, match=f"Expected {next(iter(wrong))}="):
        GeometricMechanism(**({"record_norm": 1, "epsilon": 1.0} | wrong))
