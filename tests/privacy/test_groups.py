"""Several rows of one person, and the worst pair of a Poisson step (PRIVACY §2)."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from scipy.stats import binom, norm

from skdp.privacy import delta, epsilon, epsilon_to_gdp, gdp_to_epsilon, posterior_samples_epsilon

PAGE = Path(__file__).resolve().parents[2] / "docs" / "choosing_epsilon.md"
SIZES = (1, 2, 3, 5, 10)
MU = epsilon_to_gdp(1.0, 1e-5)


def row_of_table(label):
    """Figures of a line of the page's table, as printed."""
    line = re.search(rf"^\| {re.escape(label)}.*", PAGE.read_text("utf-8"), re.MULTILINE)[0]
    return [float(cell) for cell in line.split("|")[2:-1]]


def mixture_epsilon(k, width):
    """ε of 1000 Poisson steps for k rows of a person, on a grid: an upper bound."""
    step = from_mixture_gaussian_mechanism(
        1.0, range(k + 1), binom.pmf(range(k + 1), k, 0.01), value_discretization_interval=width
    )
    return step.self_compose(1000).get_epsilon_for_delta(1e-5)


# --- what the page says of k rows -----------------------------------------------------------------


def test_rows_in_one_full_batch_multiply_mu():
    shown = row_of_table("in one fit, full batch")
    assert shown == [round(gdp_to_epsilon(k * MU, 1e-5), 2) for k in SIZES]
    assert shown != [round(gdp_to_epsilon(math.sqrt(k) * MU, 1e-5), 2) for k in SIZES]


def test_rows_in_separate_fits_multiply_mu_by_the_root():
    shown = row_of_table("each row in a fit of its own")
    assert shown == [round(gdp_to_epsilon(math.sqrt(k) * MU, 1e-5), 2) for k in SIZES]


def test_rows_under_pure_epsilon_multiply_it():
    assert row_of_table("in one fit with pure") == list(SIZES)
    # The range of a posterior sample grows as fast, and one sample is as private as its range.
    of_five = posterior_samples_epsilon(eta=5 * 0.2, n_samples=1, delta=1e-12)
    assert of_five == pytest.approx(1.0, rel=1e-5)


# An upper bound on a grid five times as rough is at most 1 % above the figure.
@pytest.mark.quick(1)
@pytest.mark.parametrize("k", [1, 2, pytest.param(5, marks=pytest.mark.slow)])
def test_rows_in_poisson_batches_are_a_mixture(k):
    shown = row_of_table("in one fit, Poisson batches")[SIZES.index(k)]
    assert 0.99 * mixture_epsilon(k, 5e-3) <= shown <= mixture_epsilon(k, 5e-3)


@pytest.mark.slow
def test_the_figures_of_poisson_batches_to_the_last_digit():
    shown = row_of_table("in one fit, Poisson batches")
    assert shown == [round(mixture_epsilon(k, 1e-3), 2) for k in SIZES]


def test_a_person_with_one_row_is_the_ordinary_case():
    shown = row_of_table("in one fit, Poisson batches")[0]
    assert shown == round(
        epsilon(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1000, delta=1e-5), 2
    )


@pytest.mark.parametrize(("k", "shown"), [(5, "8.6e-4"), (10, "0.13")])
def test_delta_of_a_group_by_the_general_rule(k, shown):
    assert f"({k}, {shown})" in PAGE.read_text("utf-8")
    assert 1e-5 * math.expm1(k) / math.expm1(1.0) == pytest.approx(float(shown), rel=0.02)


# --- which replacement of a record is the worst ---------------------------------------------------

RATE, ALPHAS = 0.3, np.exp(np.linspace(-1.0, 2.0, 7))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_opposite_gradients_are_the_worst_of_1681_pairs_on_a_line(alpha):
    places, x = np.linspace(-1.0, 1.0, 41), np.arange(-8.0, 8.0, 0.01)
    laws = (1 - RATE) * norm.pdf(x) + RATE * norm.pdf(x - places[:, None])
    found = np.array([np.maximum(law - alpha * laws, 0.0).sum(axis=1) * 0.01 for law in laws])
    worst = found[-1, 0]
    assert found[0, -1] == pytest.approx(worst, rel=1e-9)
    found[-1, 0] = found[0, -1] = 0.0
    assert found.max() < (1 - 1e-4) * worst  # no other pair is as bad
    if alpha >= 1.0:  # the accountant's pair is this one
        stated = delta(
            epsilon=math.log(alpha), noise_multiplier=1.0, sampling_rate=RATE, n_steps=1,
            neighboring_relation="replace_one",
        )  # fmt: skip
        assert worst <= stated * (1 + 1e-4)  # a sum for an integral
        assert stated == pytest.approx(worst, rel=0.02)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_opposite_gradients_are_the_worst_of_7_angles_in_a_plane(alpha):
    x, y = np.meshgrid(np.arange(-7.0, 7.0, 0.05), np.arange(-7.0, 7.0, 0.05))

    def law(angle):
        moved = norm.pdf(x - math.cos(angle)) * norm.pdf(y - math.sin(angle))
        return (1 - RATE) * norm.pdf(x) * norm.pdf(y) + RATE * moved

    angles = np.linspace(0.0, math.pi, 7)
    found = [np.maximum(law(0.0) - alpha * law(a), 0.0).sum() * 0.05**2 for a in angles]
    assert np.all(np.diff(found) > 0.0)
    assert found[-2] < (1 - 1e-4) * found[-1]
