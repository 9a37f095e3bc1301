"""What the discrete Gaussian costs, against its exact law."""

import math

import numpy as np
import pytest
from bundles import bundled
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from skdp.privacy import PrivacyReport, epsilon_of_event
from skdp.privacy.accountants import gdp, nearby
from skdp.privacy.accounting import delta_of_event, least_bound
from skdp.privacy.discrete import (
    DiscreteGaussianDpEvent,
    discrete_gaussian_event,
    rounding_distance,
)
from skdp.privacy.events import event_from_dict, event_to_dict, gaussian_mu, terms_of
from skdp.privacy.noise_calibration import calibrate, calibrate_noise_multiplier
from skdp.privacy.terms import NoBoundError
from skdp.relations import ZERO_OUT

K = np.arange(-4000, 4001)


def discrete(scale, mean=0):
    p = np.exp(-((K - mean) ** 2) / (2 * scale**2))
    return p / p.sum()


def exact_delta(scale, shift, epsilon):
    """δ(ε) of one number, by its sum over integers."""
    p, q = discrete(scale), discrete(scale, shift)
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


# --- the two facts ------------------------------------------------------------------------------


@bundled("scale", [0.2, 0.5, 1.0, 2.0, 3.7, 16.0, 100.0, 500.0])
def test_a_rounded_normal_is_within_the_distance(scale):
    rounded = np.abs(norm.cdf((K + 0.5) / scale) - norm.cdf((K - 0.5) / scale))
    found = 0.5 * np.abs(rounded - discrete(scale)).sum()
    assert found <= rounding_distance(scale)
    if scale >= 1.0:  # and not for want of trying: a tenth of the bound would be wrong
        assert found > 0.1 * rounding_distance(scale)


@bundled("scale", [0.5, 1.0, 4.0])
@bundled("shift", [1, 2, 7])
def test_renyi_divergences_are_at_most_those_of_the_normal(scale, shift):
    # At integer orders both laws' terms are far from underflow on a short range.
    k = np.arange(-200, 201)
    log_p, log_q = (-((k - m) ** 2) / (2 * scale**2) for m in (0, shift))
    log_z = np.logaddexp.reduce(log_p)
    for order in (1.1, 2.0, 5.0, 20.0):
        total = np.logaddexp.reduce(order * log_p + (1 - order) * log_q) - log_z
        assert total / (order - 1) <= order * shift**2 / (2 * scale**2) * (1 + 1e-9) + 1e-12


# --- accounting ---------------------------------------------------------------------------------


@bundled("accountant", ["auto", "gdp", "pld", "rdp"])
@bundled(("scale", "shift"), [(1, 1), (4, 1), (16, 3), (64, 100), (200, 40)])
@bundled("delta", [1e-6, 1e-3, 0.1])
def test_epsilon_is_never_below_the_exact_curve(accountant, scale, shift, delta):
    event = DiscreteGaussianDpEvent(scale / shift, scale, 1)
    try:
        epsilon = epsilon_of_event(event, delta, accountant=accountant)
    except NoBoundError:
        assert accountant in ("gdp", "pld")  # noise too coarse for the distance
        return
    assert exact_delta(scale, shift, epsilon) <= delta * (1 + 1e-9)


@bundled(("scale", "shift"), [(4, 1), (64, 100), (200, 40)])
@bundled("epsilon", [0.0, 0.3, 2.0])
def test_delta_is_never_below_the_exact_curve(scale, shift, epsilon):
    event = DiscreteGaussianDpEvent(scale / shift, scale, 1)
    found = delta_of_event(event, epsilon)
    assert exact_delta(scale, shift, epsilon) <= found * (1 + 1e-9)


def test_to_forget_the_distance_would_be_found_out():
    # At one unit of noise the discrete law's δ is above the normal's at some ε.
    curve = gdp(terms_of(GaussianDpEvent(1.0)), ZERO_OUT)
    grid = np.linspace(0, 3, 200)
    assert any(exact_delta(1, 1, e) > curve.delta(e) for e in grid)
    near = nearby(curve, rounding_distance(1))
    assert all(exact_delta(1, 1, e) <= near.delta(e) for e in grid)


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_on_a_fine_lattice_it_costs_what_the_gaussian_costs(relation):
    fine = discrete_gaussian_event([8.0] * 20 + [9.0], [2.0**33] * 21, [100] * 20 + [6000])
    plain = ComposedDpEvent([SelfComposedDpEvent(GaussianDpEvent(8.0), 20), GaussianDpEvent(9.0)])
    cost, accountant = least_bound(fine, 1e-5, relation)
    assert accountant == "gdp"
    gaussian = epsilon_of_event(plain, 1e-5, relation)
    assert gaussian <= cost <= gaussian * (1 + 1e-9)
    assert epsilon_of_event(fine, 1e-5, relation, "rdp") == epsilon_of_event(
        plain, 1e-5, relation, "rdp"
    )


@given(st.floats(0.3, 30.0), st.integers(4, 60), st.integers(1, 10**4), st.integers(1, 100))
@settings(max_examples=40)
def test_it_is_monotone(sigma, bits, dimension, count):
    def cost(sigma=sigma, bits=bits, dimension=dimension, count=count, delta=1e-6):
        step = DiscreteGaussianDpEvent(sigma, 2.0**bits, dimension)
        return epsilon_of_event(SelfComposedDpEvent(step, count), delta)

    here, slack = cost(), 1 + 1e-6
    assert cost(sigma=1.1 * sigma) <= here * slack
    assert cost(bits=bits + 1) <= here * slack
    assert here <= cost(dimension=2 * dimension) * slack
    assert here <= cost(count=count + 1) * slack
    assert cost(delta=2e-6) <= here * slack
    gaussian = epsilon_of_event(SelfComposedDpEvent(GaussianDpEvent(sigma), count), 1e-6)
    assert here >= gaussian * (1 - 1e-9)


def test_where_the_distance_is_too_much_the_renyi_bound_remains():
    coarse = DiscreteGaussianDpEvent(1.0, 1.0, 1000)
    epsilon, accountant = least_bound(coarse, 1e-5, "zero_out")
    assert accountant == "rdp"
    assert 4.377 < epsilon < 5.0
    with pytest.raises(NoBoundError, match="coarse"):
        epsilon_of_event(coarse, 1e-5, accountant="gdp")
    assert delta_of_event(coarse, 1.0, accountant="gdp") == 1.0


def test_it_composes_with_other_mechanisms():
    fine = DiscreteGaussianDpEvent(3.0, 2.0**30, 50)
    gaussian = GaussianDpEvent(4.0)
    both = epsilon_of_event(ComposedDpEvent([fine, gaussian]), 1e-5)
    exact = epsilon_of_event(ComposedDpEvent([GaussianDpEvent(3.0), gaussian]), 1e-5)
    assert exact <= both <= exact * (1 + 1e-9)
    sampled = PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0))
    mixed, accountant = least_bound(ComposedDpEvent([fine, sampled]), 1e-5, "zero_out")
    assert accountant == "pld"
    assert mixed == pytest.approx(
        epsilon_of_event(ComposedDpEvent([GaussianDpEvent(3.0), sampled]), 1e-5), rel=1e-6
    )
    assert math.isfinite(epsilon_of_event(ComposedDpEvent([fine, LaplaceDpEvent(2.0)]), 1e-5))


def test_a_selection_from_such_runs_has_the_renyi_bound_alone():
    def best(of):
        return RepeatAndSelectDpEvent(SelfComposedDpEvent(of, 3), 10, 1)

    fine = best(DiscreteGaussianDpEvent(8.0, 2.0**30, 50))
    epsilon, accountant = least_bound(fine, 1e-5, "zero_out")
    assert accountant == "rdp"
    assert epsilon == epsilon_of_event(best(GaussianDpEvent(8.0)), 1e-5)
    for other in ("gdp", "pld"):
        with pytest.raises(NoBoundError):
            epsilon_of_event(fine, 1e-5, accountant=other)


def test_it_is_no_gaussian_where_only_a_gaussian_will_do():
    assert gaussian_mu(DiscreteGaussianDpEvent(8.0, 2.0**30, 50)) is None
    sampled = PoissonSampledDpEvent(0.1, DiscreteGaussianDpEvent(8.0, 2.0**30, 50))
    assert gaussian_mu(sampled) is None


def exact_sampled_delta(scale, shift, rate, epsilon):
    """δ(ε) of one number in a Poisson batch, the worse of both directions."""
    p, q = discrete(scale), discrete(scale, shift)
    mixed = (1 - rate) * p + rate * q
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, mixed), (mixed, p)))


@pytest.mark.thorough
@bundled("accountant", ["pld", "rdp"])
@bundled("rate", [0.01, 0.3])
@bundled(("scale", "shift"), [(1, 1), (2, 1), (16, 3), (64, 100), (200, 40)])
@bundled("delta", [1e-4, 0.05])
def test_in_poisson_batches_it_is_never_below_the_exact_curve(
    accountant, rate, scale, shift, delta
):
    event = discrete_gaussian_event([scale / shift], [scale], [1], rate)
    try:
        epsilon = epsilon_of_event(event, delta, accountant=accountant)
    except NoBoundError:
        assert accountant == "rdp" or scale <= 64  # noise too coarse for the distance
        return
    assert exact_sampled_delta(scale, shift, rate, epsilon) <= delta * (1 + 1e-9)


@pytest.mark.thorough
@bundled("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_in_poisson_batches_it_costs_what_the_gaussian_costs(relation):
    def of(event):
        return SelfComposedDpEvent(PoissonSampledDpEvent(0.02, event), 50)

    fine, plain = of(DiscreteGaussianDpEvent(1.5, 2.0**34, 1000)), of(GaussianDpEvent(1.5))
    (term,) = terms_of(fine)
    assert (term.sampling_rate, term.count) == (0.02, 50)
    expected = least_bound(plain, 1e-5, relation)
    cost, accountant = least_bound(fine, 1e-5, relation)
    assert accountant == expected[1]
    assert expected[0] <= cost <= expected[0] * (1 + 1e-6)
    coarse = of(DiscreteGaussianDpEvent(1.5, 2.0**10, 1000))  # η = 0.006
    assert epsilon_of_event(coarse, 0.03, relation) > epsilon_of_event(plain, 0.03, relation)
    for name in ("auto", "rdp"):  # in divergences of mixtures nothing is free
        with pytest.raises(NoBoundError, match=r"coarse|replace_one"):
            epsilon_of_event(coarse, 1e-5, relation, name)


def test_a_selection_from_sampled_ones_has_no_bound():
    step = PoissonSampledDpEvent(0.1, DiscreteGaussianDpEvent(8.0, 2.0**34, 50))
    with pytest.raises(NoBoundError):
        epsilon_of_event(RepeatAndSelectDpEvent(step, 10, 1), 1e-5)


@bundled("bad", [0.0, -1.0, math.nan, math.inf, None, "1", True])
@bundled("field", ["noise_multiplier", "lattice_scale", "dimension"])
def test_garbage_is_refused(field, bad):
    values = {"noise_multiplier": 1.0, "lattice_scale": 2.0**30, "dimension": 5, field: bad}
    with pytest.raises(ValueError, match=field):
        epsilon_of_event(DiscreteGaussianDpEvent(**values), 1e-5)


def test_events_and_reports_survive_being_written():
    event = discrete_gaussian_event([2.0, 3.0, 3.0], [2.0**31] * 3, [10, 4, 4])
    assert event_from_dict(event_to_dict(event)) == event
    report = PrivacyReport.of(event, delta=1e-5, sampling="full batch, 3 steps")
    assert PrivacyReport.from_json(report.to_json()) == report
    assert report.valid
    assert (report + report).epsilon > report.epsilon


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5])
def test_calibration_keeps_the_promise(epsilon, delta):
    def event(sigma):
        return discrete_gaussian_event([sigma] * 10, [sigma * 2.0**33] * 10, [3000] * 10)

    guess = calibrate_noise_multiplier(epsilon=epsilon, delta=delta, n_steps=10)
    sigma = calibrate(event, epsilon=epsilon, delta=delta, guess=guess)
    assert epsilon * (1 - 1e-3) <= epsilon_of_event(event(sigma), delta) <= epsilon
