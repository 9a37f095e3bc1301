"""Budgets as risk: against closed forms, and against what an attacker does find."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.dp_event import ComposedDpEvent
from scipy.stats import norm

from skdp.audit import audit_samples
from skdp.privacy import PrivacyReport, epsilon_to_gdp, gdp_to_epsilon
from skdp.privacy.discrete import DiscreteGaussianDpEvent
from skdp.privacy.events import PosteriorSamplesDpEvent, PureDpEvent, dp_sgd_event
from skdp.privacy.risk import advantage, risk_to_epsilon, risk_to_gdp, tpr_at_fpr


@pytest.mark.parametrize("mu", [0.0, 0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("fpr", [0.0, 1e-6, 0.01, 0.5, 1.0])
def test_a_gaussian_attacker_finds_what_the_closed_form_says(mu, fpr):
    found = tpr_at_fpr(fpr, mu=mu)
    assert found == pytest.approx(norm.sf(norm.isf(fpr) - mu), rel=1e-9, abs=1e-15)
    assert found <= fpr + advantage(mu=mu) + 1e-12
    middle = norm.sf(mu / 2)  # where the shares differ most
    assert advantage(mu=mu) == pytest.approx(tpr_at_fpr(middle, mu=mu) - middle, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_randomised_response_is_the_worst_of_an_epsilon(epsilon, delta):
    """With probability δ the bit is shown; else it is flipped with probability 1/(1 + e^ε)."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    tpr, fpr = delta + (1 - delta) * truth, (1 - delta) * (1 - truth)
    assert tpr_at_fpr(fpr, epsilon=epsilon, delta=delta) == pytest.approx(tpr)
    assert advantage(epsilon=epsilon, delta=delta) == pytest.approx(tpr - fpr)
    assert tpr_at_fpr(0.0, epsilon=epsilon, delta=delta) == pytest.approx(delta)


def test_ceilings_come_back():
    mu = risk_to_gdp(max_advantage=0.1)
    assert advantage(mu=mu) == pytest.approx(0.1)
    assert advantage(mu=mu) <= 0.1
    mu = risk_to_gdp(max_tpr_at_fpr=(0.02, 0.01))
    assert tpr_at_fpr(0.01, mu=mu) == pytest.approx(0.02)
    assert tpr_at_fpr(0.01, mu=mu) <= 0.02
    assert risk_to_gdp(max_advantage=0.5, max_tpr_at_fpr=(0.02, 0.01)) == mu
    epsilon = risk_to_epsilon(max_tpr_at_fpr=(0.02, 0.01), delta=1e-5)
    assert epsilon == gdp_to_epsilon(mu, 1e-5)
    assert epsilon_to_gdp(epsilon, 1e-5) == pytest.approx(mu)


def test_no_guarantee_is_no_guarantee():
    assert tpr_at_fpr(0.01, mu=math.inf) == tpr_at_fpr(0.01, epsilon=math.inf) == 1.0
    assert advantage(mu=math.inf) == advantage(epsilon=math.inf) == 1.0


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: tpr_at_fpr(0.1), "mu"),
        (lambda: tpr_at_fpr(0.1, mu=1.0, epsilon=1.0), "mu"),
        (lambda: tpr_at_fpr(1.1, mu=1.0), "fpr"),
        (lambda: tpr_at_fpr(0.1, mu=math.nan), "mu"),
        (lambda: advantage(epsilon=-1.0), "epsilon"),
        (lambda: advantage(epsilon=1.0, delta=1.0), "delta"),
        (lambda: risk_to_gdp(), "max_advantage"),
        (lambda: risk_to_gdp(max_advantage=1.0), "max_advantage"),
        (lambda: risk_to_gdp(max_tpr_at_fpr=(0.01, 0.02)), "max_tpr_at_fpr"),
        (lambda: risk_to_gdp(max_tpr_at_fpr=0.1), "max_tpr_at_fpr"),
        (lambda: risk_to_epsilon(max_advantage=0.1, delta=0.0), "delta"),
    ],
)
def test_numbers_out_of_range_are_refused(call, what):
    with pytest.raises(ValueError, match=f"Expected {what}="):
        call()


@pytest.mark.thorough
def test_the_best_attack_finds_what_is_said_and_no_more():
    """The audit's best attack on a Gaussian mechanism: the release itself is the score."""
    rng, n, mu = np.random.default_rng(0), 200_000, 0.8
    members, others = rng.normal(mu, 1, n), rng.normal(0, 1, n)
    at = np.quantile(others, 0.99)  # errs on 1 in 100 non-members
    seen, sd = (members > at).mean(), 0.02 / math.sqrt(n * 0.01)
    assert seen == pytest.approx(tpr_at_fpr(0.01, mu=mu), abs=0.004)
    assert seen > tpr_at_fpr(0.01, mu=0.75) + 2 * sd  # and a smaller μ is refuted
    shares = (members > mu / 2).mean() - (others > mu / 2).mean()
    assert shares == pytest.approx(advantage(mu=mu), abs=0.006)
    report = audit_samples(
        members[:20_000], others[:20_000], epsilon=gdp_to_epsilon(mu, 1e-5), delta=1e-5, frame="gdp"
    )
    assert not report.violation
    alarms, misses = report.rates
    assert 1 - misses == pytest.approx(tpr_at_fpr(alarms, mu=mu), abs=0.015)


@pytest.mark.parametrize(
    ("event", "share"),
    [
        (dp_sgd_event(4.0, 1.0, 16), norm.sf(norm.isf(0.01) - 1.0)),
        (DiscreteGaussianDpEvent(1.0, 2**30, 3), norm.sf(norm.isf(0.01) - 1.0)),
        (PureDpEvent(1.0), 0.01 * math.e),
    ],
    ids=["Gaussian", "discrete", "pure"],
)
def test_reports_say_it(event, share):
    report = PrivacyReport.of(event, delta=1e-5, sampling="any")
    assert report.tpr_at_fpr(0.01) == pytest.approx(share, rel=2e-3)
    assert report.tpr_at_fpr(0.01) >= share * (1 - 1e-4)
    said = float(repr(report).split("at most ")[1].split(" in 100 members")[0])
    assert said == pytest.approx(100 * report.tpr_at_fpr(), rel=0.01)
    assert said >= 100 * report.tpr_at_fpr()


@pytest.mark.parametrize("event", [PureDpEvent(4.0), ComposedDpEvent([])])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_report_that_calls_itself_gaussian_is_judged_by_its_event(event, delta):
    honest = PrivacyReport.of(event, delta=delta, sampling="any")
    changed = replace(honest, epsilon=4.4, accountant="gdp").to_json()
    found = PrivacyReport.from_json(changed).tpr_at_fpr()
    assert honest.tpr_at_fpr() <= found <= tpr_at_fpr(0.01, epsilon=4.4, delta=delta)


def test_a_report_that_is_no_guarantee_says_nothing_of_risk():
    report = PrivacyReport.of(PureDpEvent(1.0), delta=1e-5, sampling="any", seeded=True)
    assert report.tpr_at_fpr() == 1.0
    assert "members" not in repr(report)


def test_replacing_a_record_is_told_apart_more_easily():
    shares = [
        PrivacyReport.of(
            dp_sgd_event(4.0, 1.0, 4), delta=1e-5, sampling="any", neighboring_relation=relation
        ).tpr_at_fpr()
        for relation in ("zero_out", "replace_one")
    ]
    assert shares[0] == pytest.approx(tpr_at_fpr(0.01, mu=0.5), rel=1e-6)
    assert shares[1] == pytest.approx(tpr_at_fpr(0.01, mu=1.0), rel=1e-6)


def test_posterior_samples_are_as_their_gaussian_at_worst():
    draws = PrivacyReport.of(PosteriorSamplesDpEvent(0.5, 5), delta=1e-5, sampling="any")
    assert draws.tpr_at_fpr() <= tpr_at_fpr(0.01, epsilon=draws.epsilon, delta=1e-5) + 1e-12
