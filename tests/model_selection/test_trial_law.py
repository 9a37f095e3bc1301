import math

import numpy as np
import pytest
from bundles import bundled
from scipy.stats import chi2, geom, nbinom, poisson

from skdp.fitting.streams import Streams
from skdp.model_selection.trial_law import TrialLaw

N_DRAWS = 20_000
LAWS = [(1.5, 0.0), (10, 0.0), (10, 0.01), (3, 0.5), (10, 1.0), (10, 4.0), (10, math.inf)]


def drawn(law, seed=b"trials"):
    generator = Streams(seed)("number of trials").generator
    return np.array([law.draw(generator) for _ in range(N_DRAWS)])


def rejects(sample, pmf):
    """Chi-square test at 1e-6, on cells that expect at least 10."""
    k = np.arange(sample.max() + 2)
    expected = len(sample) * np.append(pmf(k), max(0.0, 1.0 - pmf(k).sum()))
    observed = np.append(np.bincount(sample, minlength=len(k)), 0.0)
    cell = np.minimum((np.cumsum(expected) / 10).astype(int), int(len(sample) / 10) - 1)
    e, o = np.bincount(cell, expected), np.bincount(cell, observed)
    o, e = o[e > 0], e[e > 0]
    statistic = ((o - e) ** 2 / e).sum()
    return bool(observed[np.append(pmf(k) == 0, False)].any()) or statistic > chi2.isf(
        1e-6, len(e) - 1
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize(("mean", "shape"), LAWS)
def test_numbers_of_trials_have_the_law_that_is_accounted(mean, shape):
    law = TrialLaw(mean, shape)
    assert not rejects(drawn(law), law.pmf)


@pytest.mark.thorough
def test_wrong_laws_are_told_from_right_ones():
    logarithmic, geometric = TrialLaw(10, 0.0), TrialLaw(10, 1.0)
    assert rejects(drawn(logarithmic), geometric.pmf)
    assert rejects(drawn(geometric), logarithmic.pmf)
    # without truncation: the plain negative binomial law, which begins at 0
    half = TrialLaw(3, 0.5)
    untruncated = nbinom(0.5, half.gamma)
    assert rejects(untruncated.rvs(N_DRAWS, random_state=0), half.pmf)
    assert rejects(drawn(half), untruncated.pmf)
    # a cap on the number
    assert rejects(np.minimum(drawn(logarithmic), 40), logarithmic.pmf)
    assert rejects(drawn(TrialLaw(10, math.inf)), geometric.pmf)


@bundled(("mean", "shape"), [*LAWS, (1.0, 0.0), (1.0, 1.0), (1.001, 0.01)])
def test_the_mass_function_sums_to_one_and_has_the_mean(mean, shape):
    law = TrialLaw(mean, shape)
    k = np.arange(50_000)
    assert law.pmf(k).sum() == pytest.approx(1.0, abs=1e-9)
    assert (k * law.pmf(k)).sum() == pytest.approx(mean, rel=1e-9)
    assert law.pmf(-1) == 0.0
    assert (law.pmf(0) > 0) == (shape == math.inf)


def test_known_laws_are_special_cases():
    k = np.arange(1, 60)
    np.testing.assert_allclose(TrialLaw(10, 1.0).pmf(k), geom.pmf(k, 0.1), rtol=1e-9)
    np.testing.assert_allclose(TrialLaw(10, math.inf).pmf(k), poisson.pmf(k, 10), rtol=1e-9)
    near = TrialLaw(10, 0.01).pmf(k)
    np.testing.assert_allclose(near, TrialLaw(10, 0.0).pmf(k), rtol=0.1)  # η → 0


def test_the_mean_is_never_above_what_is_accounted():
    # a larger γ has fewer trials; the accountant prices the mean that was declared
    for mean, shape in LAWS[:-1]:
        gamma = TrialLaw(mean, shape).gamma
        exact = (
            (1 / gamma - 1) / -math.log(gamma)
            if shape == 0
            else shape * (1 / gamma - 1) / (1 - gamma**shape)
        )
        assert exact <= mean * (1 + 1e-14)


@bundled("bad", [float("nan"), 0.5, 0, -1, math.inf, "10", None, 1.0005, True])
def test_a_mean_that_no_law_has_is_refused(bad):
    with pytest.raises(ValueError, match="Expected mean_trials="):
        TrialLaw(bad, 0.0)


@pytest.mark.parametrize("bad", [float("nan"), -0.5, 1e-3, 1e4, "0", None])
def test_a_shape_that_has_no_law_here_is_refused(bad):
    with pytest.raises(ValueError, match="Expected shape="):
        TrialLaw(10, bad)
