"""The price of the best of a random number of runs, against the theorems and against exact laws."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from bundles import bundled
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from scipy.optimize import brentq
from scipy.stats import norm

from skdp.privacy import PrivacyLedger, PrivacyReport, delta_of_event, epsilon_of_event
from skdp.privacy.events import (
    SelectionTerm,
    dp_sgd_event,
    event_from_dict,
    event_to_dict,
    gaussian_mu,
    gdp_event,
    terms_of,
)

ORDERS = np.array(DEFAULT_RDP_ORDERS)
GAUSSIAN = dp.GaussianDpEvent(4.0)
LAWS = [(10, 0.0), (10, 0.5), (10, 1.0), (3, 2.0), (10, math.inf), (2, math.inf)]


@pytest.mark.parametrize(("shape", "anchor"), [(0, 3.52), (1, 4.10), (math.inf, 4.33)])
def test_anchors_of_the_design_sheet(shape, anchor):
    base = dp_sgd_event(1.0, 0.01, 1000)
    found = epsilon_of_event(RepeatAndSelectDpEvent(base, 10, shape), 1e-5)
    assert found == pytest.approx(anchor, abs=5e-3)  # the anchors have two decimals


def gamma_of(mean, shape):
    """γ from Definition 1 of the paper, by its mean."""

    def mean_of(gamma):
        if shape == 0:
            return (1 / gamma - 1) / math.log(1 / gamma)
        return shape * (1 - gamma) / (gamma * (1 - gamma**shape))

    return brentq(lambda log_g: mean_of(math.exp(log_g)) - mean, -20, -1e-9, xtol=1e-14)


def selected(rdp, mean, shape):
    """Theorem 6 (Poisson) or Theorem 2 (the others) of arXiv:2110.03620, on a grid of orders."""
    price = math.log(mean) / (ORDERS - 1)
    if math.isinf(shape):
        epsilon_hat = np.log1p(1 / (ORDERS - 1))
        delta_hat = np.array([delta_from(rdp, e) for e in epsilon_hat])
        return rdp + mean * delta_hat + price
    log_inverse_gamma = -gamma_of(mean, shape)
    constant = np.min((1 - 1 / ORDERS) * rdp + log_inverse_gamma / ORDERS)
    return rdp + (1 + shape) * constant + price


def delta_from(rdp, epsilon):
    """Canonne, Kamath & Steinke (2020), Proposition 12; or Pinsker's kin, √(1 - e^-KL)."""
    logs = (ORDERS - 1) * (rdp - epsilon + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    return min(1.0, math.exp(logs.min()), math.sqrt(-math.expm1(-rdp[0])))


def epsilon_from(rdp, delta):
    return np.min(rdp + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1))


@pytest.mark.parametrize(("mean", "shape"), LAWS)
def test_the_bound_is_that_of_the_theorems(mean, shape):
    rdp = ORDERS / (2 * 4.0**2)
    once, twice = selected(rdp, mean, shape), 2 * selected(rdp, mean, shape)
    best = RepeatAndSelectDpEvent(GAUSSIAN, mean, shape)
    # dp-accounting inverts the mean to 1e-9, and takes a larger order's divergence for a smaller's.
    same = {"rel": 1e-6}
    assert epsilon_of_event(best, 1e-5) == pytest.approx(epsilon_from(once, 1e-5), **same)
    two = dp.SelfComposedDpEvent(best, 2)
    assert epsilon_of_event(two, 1e-5) == pytest.approx(epsilon_from(twice, 1e-5), **same)
    for order in (1, -1):  # what is composed before or after is not selected from
        both = dp.ComposedDpEvent([GAUSSIAN, best][::order])
        assert epsilon_of_event(both, 1e-5) == pytest.approx(epsilon_from(once + rdp, 1e-5), **same)


def generating_function(mean, shape):
    """E[s^K]."""
    if math.isinf(shape):
        return lambda s: np.exp(mean * (s - 1))
    gamma = math.exp(gamma_of(mean, shape))
    if shape == 0:
        return lambda s: np.log1p(-(1 - gamma) * s) / math.log(gamma)
    return lambda s: ((1 - (1 - gamma) * s) ** -shape - 1) / (gamma**-shape - 1)


def delta_of_the_best(mu, mean, shape, epsilon):
    """δ at ε of the largest of K draws of N(0, 1) against N(μ, 1), from their exact laws.

    On cells of a grid, which can only lower it.
    """
    G = generating_function(mean, shape)
    edges = np.concatenate([[-np.inf], np.linspace(-9, 14, 40_001), [np.inf]])
    p, q = (np.diff(G(norm.cdf(edges - m))) for m in (0.0, mu))
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


@pytest.mark.thorough
@bundled("mu", [0.3, 1.0, 3.0])
@bundled(("mean", "shape"), LAWS)
def test_the_exact_best_of_many_is_within_the_bound_and_beyond_one_run(mean, shape, mu):
    best = RepeatAndSelectDpEvent(gdp_event(mu), mean, shape)
    for delta in (1e-2, 1e-4):
        claimed, of_one = epsilon_of_event(best, delta), epsilon_of_event(gdp_event(mu), delta)
        assert delta_of_the_best(mu, mean, shape, claimed) <= delta
        assert delta_of_the_best(mu, mean, shape, of_one) > delta  # stating one run is a lie
        assert delta_of_event(best, claimed) <= delta * (1 + 1e-6)


def test_replace_one_doubles_the_inner_sensitivity_once():
    half = RepeatAndSelectDpEvent(dp.GaussianDpEvent(2.0), 10, 0)
    whole = RepeatAndSelectDpEvent(GAUSSIAN, 10, 0)
    found = epsilon_of_event(whole, 1e-5, "replace_one")
    assert found == epsilon_of_event(half, 1e-5, "zero_out")
    sampled = RepeatAndSelectDpEvent(dp_sgd_event(1.0, 0.01, 10), 10, 0)
    with pytest.raises(ValueError, match="replace_one"):
        epsilon_of_event(sampled, 1e-5, "replace_one")


def test_more_trials_and_larger_shapes_cost_more():
    def cost(mean, shape):
        return epsilon_of_event(RepeatAndSelectDpEvent(GAUSSIAN, mean, shape), 1e-5)

    alone = epsilon_of_event(GAUSSIAN, 1e-5, accountant="rdp")
    assert alone <= cost(1, 0) <= cost(3, 0) <= cost(10, 0) <= cost(10, 0.5) <= cost(10, 1)
    assert cost(3, math.inf) <= cost(10, math.inf)


@bundled("bad", [float("nan"), 0.0, 0.99, -1.0, math.inf, "10", None, True])
def test_a_mean_below_one_or_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="Expected mean="):
        epsilon_of_event(RepeatAndSelectDpEvent(GAUSSIAN, bad, 0), 1e-5)


@pytest.mark.parametrize("bad", [float("nan"), -1e-300, -0.5, "0", None])
def test_a_negative_shape_or_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="Expected shape="):
        epsilon_of_event(RepeatAndSelectDpEvent(GAUSSIAN, 10, bad), 1e-5)


@pytest.mark.parametrize("bad", [float("nan"), -1.0, math.inf, "1"])
def test_garbage_inside_a_selection_is_refused(bad):
    with pytest.raises(ValueError, match="noise_multiplier"):
        epsilon_of_event(RepeatAndSelectDpEvent(dp.GaussianDpEvent(bad), 10, 0), 1e-5)


@pytest.mark.parametrize("accountant", ["gdp", "pld", "gdp_clt"])
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_only_the_renyi_accountant_has_a_bound(accountant):
    best = RepeatAndSelectDpEvent(GAUSSIAN, 10, 0)
    with pytest.raises(ValueError, match="No accountant has a valid bound"):
        epsilon_of_event(best, 1e-5, accountant=accountant)
    assert PrivacyReport.of(best, delta=1e-5, sampling="").accountant == "rdp"
    with pytest.raises(ValueError, match="No accountant"):
        epsilon_of_event(best, 0.0)
    with pytest.raises(ValueError, match="No accountant"):
        epsilon_of_event(RepeatAndSelectDpEvent(dp.LaplaceDpEvent(1e9), 10, math.inf), 1e-5)


def test_no_noise_inside_is_no_privacy_and_nothing_inside_is_free():
    for naked in (dp.NonPrivateDpEvent(), dp.GaussianDpEvent(0.0)):
        best = RepeatAndSelectDpEvent(naked, 10, 0)
        assert epsilon_of_event(best, 1e-5) == math.inf
        assert epsilon_of_event(RepeatAndSelectDpEvent(best, 10, 0), 1e-5) == math.inf
    assert epsilon_of_event(RepeatAndSelectDpEvent(dp.NoOpDpEvent(), 10, 0), 1e-5) == 0.0


def test_a_selection_is_a_term_of_its_own():
    best = RepeatAndSelectDpEvent(GAUSSIAN, 10, 0)
    (term,) = terms_of(dp.ComposedDpEvent([best, best]))
    assert term == SelectionTerm(terms_of(GAUSSIAN), 10.0, 0.0, 2)
    assert gaussian_mu(best) is None
    nested = RepeatAndSelectDpEvent(best, 3, 1)
    assert epsilon_of_event(nested, 1e-5) > epsilon_of_event(best, 1e-5)


def test_a_noise_schedule_inside_is_bounded_from_above():
    sigmas = np.geomspace(20, 60, 200)
    mu = math.sqrt((1 / sigmas**2).sum())
    best = RepeatAndSelectDpEvent(dp_sgd_event(sigmas, 1.0), 10, 0)
    exact = epsilon_of_event(RepeatAndSelectDpEvent(gdp_event(mu), 10, 0), 1e-5)
    assert exact <= epsilon_of_event(best, 1e-5) <= 1.02 * exact  # levels are about 1 % apart


@pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
def test_reports_and_ledger_files_keep_a_selection(shape, tmp_path):
    best = RepeatAndSelectDpEvent(dp_sgd_event(1.0, 0.01, 10), 10.0, shape)
    assert event_from_dict(event_to_dict(best)) == best
    report = PrivacyReport.of(best, delta=1e-5, sampling="trials")
    assert PrivacyReport.from_json(report.to_json()) == report
    PrivacyLedger(path=tmp_path / "ledger").spend(best, label="a search")
    assert PrivacyLedger(path=tmp_path / "ledger").entries[0].event == best
