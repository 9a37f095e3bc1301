"""Counts of targets and of exposures by binary exponent."""

import numpy as np

from skdp.engine.magnitude_sums import MAGNITUDES, MagnitudeSum
from skdp.rows.records import LinearRows


def counted(targets, **kind):
    targets = np.asarray(targets, dtype=float)
    rows = LinearRows(np.zeros((len(targets), 1)), targets, data_norm=1.0, fit_intercept=False)
    found = MagnitudeSum(**kind).records(np.zeros((1, 1)), rows.take(slice(None)))
    return {MAGNITUDES[j]: n for j, n in enumerate(found.sum(axis=0)) if n}


def test_a_target_counts_at_its_exponent_and_zero_nowhere():
    assert counted([[0.0], [1.0], [-1.5], [3.0], [0.0]]) == {1: 2.0, 2: 1.0}


def test_what_is_far_off_counts_at_the_ends():
    assert counted([[1e300], [5e-324], [np.inf]]) == {MAGNITUDES[0]: 1.0, MAGNITUDES[-1]: 2.0}


def test_an_exposure_is_told_by_its_logarithm():
    assert counted([[7.0, np.log(3.0)], [0.0, np.log(0.3)]], of_offset=True) == {2: 1.0, -1: 1.0}
