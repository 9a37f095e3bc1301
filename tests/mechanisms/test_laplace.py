import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from skdp.mechanisms import LaplaceMechanism
from skdp.relations import RELATIONS, sensitivity_factor


@pytest.mark.parametrize("relation", RELATIONS)
@given(st.floats(-9, 9), st.floats(-6, 6))
def test_calibration_spends_epsilon_and_no_more(relation, log_epsilon, log_norm):
    epsilon = 10**log_epsilon
    mechanism = LaplaceMechanism.from_budget(
        epsilon=epsilon, record_norm=10**log_norm, neighboring_relation=relation
    )
    assert epsilon * (1 - 1e-15) <= mechanism.epsilon <= epsilon
    # The event is noise over one record's bound; the relation's factor is the accountant's.
    factor = sensitivity_factor(relation)
    assert factor / mechanism.event().noise_multiplier == pytest.approx(epsilon, rel=1e-15)


def test_the_density_changes_by_epsilon_at_most_over_the_sensitivity():
    mechanism = LaplaceMechanism.from_budget(epsilon=0.7, record_norm=2.0)
    x = np.linspace(-30, 30, 2001)
    law = stats.laplace(scale=mechanism.scale)
    ratio = law.logpdf(x) - law.logpdf(x - mechanism.sensitivity)
    assert np.abs(ratio).max() == pytest.approx(0.7, abs=1e-12)


@pytest.mark.parametrize("parts", [[0.5, 0.5], [0.1, 0.9], [0.2, 0.3, 0.5]])
def test_the_event_of_one_coordinate_bounds_a_move_spread_over_several(parts):
    def law(shift, pessimistic):
        return pld.from_laplace_mechanism(1 / shift, pessimistic_estimate=pessimistic)

    one = law(1.0, True)
    several = law(parts[0], False)
    for part in parts[1:]:
        several = several.compose(law(part, False))
    for epsilon in np.linspace(0, 1, 11):
        assert several.get_delta_for_epsilon(epsilon) <= one.get_delta_for_epsilon(epsilon) + 1e-12
