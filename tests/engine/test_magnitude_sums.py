"""Counts of targets and of exposures by binary exponent."""

import numpy as np
import pytest

from skdp.engine.magnitude_sums import MAGNITUDES, MagnitudeSum, told_of_counts, unit_of
from skdp.relations import RELATIONS
from skdp.rows.records import LinearRows


def terms(targets, **kind):
    targets = np.asarray(targets, dtype=float)
    rows = LinearRows(np.zeros((len(targets), 1)), targets, data_norm=1.0, fit_intercept=False)
    return MagnitudeSum(**kind).records(np.zeros((1, 1)), rows.take(slice(None)))


def counted(targets, **kind):
    found = terms(targets, **kind).sum(axis=0)
    return {MAGNITUDES[j]: n for j, n in enumerate(found) if n}


def test_a_target_counts_at_its_exponent_and_zero_nowhere():
    assert counted([[0.0], [1.0], [-1.5], [3.0], [0.0]]) == {1: 2.0, 2: 1.0}


def test_what_is_far_off_counts_at_the_ends():
    assert counted([[1e300], [5e-324], [np.inf]]) == {MAGNITUDES[0]: 1.0, MAGNITUDES[-1]: 2.0}


def test_an_exposure_is_told_by_its_logarithm():
    assert counted([[7.0, np.log(3.0)], [0.0, np.log(0.3)]], of_offset=True) == {2: 1.0, -1: 1.0}


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_record_moves_a_count_by_more_than_its_bound(relation):
    values = [0.0, -1.0, 3.0, 1e-300, 1e300, np.nan, np.inf, -np.inf, 5e-324]
    found = terms(np.array(values)[:, None])
    others = found if relation == "replace_one" else found[:1]  # the null record is in no cell
    moved = max(np.linalg.norm(a - b) for a in found for b in others)
    declared = MagnitudeSum().sensitivity(relation)
    assert 0.99 * declared < moved <= declared


# --- the unit that they tell ----------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-9, 1.0, 3.0, 1e6])
def test_they_tell_the_power_of_two_above_the_targets(scale):
    y = scale * np.random.default_rng(0).normal(5.0, 1.0, 2000)
    counts, largest = terms(y[:, None]).sum(axis=0), np.quantile(y, 0.95)
    for noise in (0.0, 20.0):
        noisy = counts + noise * np.random.default_rng(1).normal(size=len(counts))
        assert largest <= unit_of(noisy, noise) <= 4 * largest


def test_a_few_targets_that_are_far_larger_do_not_set_the_unit():
    y = np.append(np.random.default_rng(0).normal(5.0, 1.0, 2000), np.full(80, 1e6))
    assert unit_of(terms(y[:, None]).sum(axis=0), 3.0) <= 16.0


def test_noise_alone_tells_no_unit():
    rng = np.random.default_rng(0)
    found = [unit_of(7.0 * rng.normal(size=len(MAGNITUDES)), 7.0) for _ in range(200)]
    assert sum(unit is not None for unit in found) <= 10


def test_mean_and_cut_of_counts_are_told_by_their_magnitudes():
    """The cut trades what it hides against noise, and counts that cannot be are noise."""
    counts = np.zeros(len(MAGNITUDES))
    for exponent, number in ((1, 400.0), (3, 300.0), (6, 40.0)):
        counts[MAGNITUDES.index(exponent)] = number
    of, size = (lambda noise: told_of_counts(counts, 5.0, 1000.0, noise, 100.0)), [2.0, 8.0, 64.0]
    mean = 0.75 * np.array([400.0, 300.0, 40.0]) @ size / 1000.0
    quiet, usual, loud = of(1e-3), of(30.0), of(1e3)
    assert [quiet[0], usual[0], loud[0]] == pytest.approx([mean] * 3)
    assert quiet[1:] == pytest.approx((100.0 / 2**0.5, 0.0))  # the least that hides none
    assert loud[1] < usual[1] < quiet[1]
    assert usual[2] == pytest.approx((40.0 * (64.0 - mean - usual[1]) / usual[1]) ** 2, rel=1e-3)
    counts[MAGNITUDES.index(40)] = 50.0
    assert of(30.0) == usual
    assert told_of_counts(counts, 1e3, 1000.0, 1.0, 100.0) is None
