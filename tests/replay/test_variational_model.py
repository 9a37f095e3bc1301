"""The releases of a user's model are bounded, and what is warned of is in them."""

from unittest import mock

import numpy as np
import pytest
from replay.test_estimators import N, X, Y, log_likelihood

from skdp import FitWarning
from skdp.algorithms.dp_vi_model import CURVATURE_CLIP
from skdp.engine import release_hook
from skdp.estimators.variational_model import DPVariationalModel
from skdp.fitting.streams import Streams


def make(plan):
    return DPVariationalModel(
        log_likelihood, 4, **{"n_samples": N, "example_rows": np.zeros((3, 3)), **plan}
    )


def test_a_fit_that_clips_most_records_warns_from_its_releases():
    with pytest.warns(FitWarning, match="longer than the clip 0.01"):
        make({"epsilon": None, "noise_multiplier": 0.1, "max_iter": 6, "clip_norm": 0.01}).fit(X, Y)


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_no_record_moves_a_sum_beyond_its_sensitivity(covariance):
    values = {}
    for name, rows, labels in [("all", X, Y), ("fewer", X[1:], Y[1:])]:
        parameters = {"covariance": covariance, "clip_norm": 0.2, "epsilon": None, "max_iter": 6}
        model = make({**parameters, "noise_multiplier": 1e-9})
        streams = mock.patch("skdp.fitting.charge.streams", return_value=Streams(b"x"))
        with streams, release_hook.record() as tape:
            model.fit(rows, labels)
        values[name] = tape
    # The first sums are at the same θ; noise is 1e-9 of the bound.
    first, second = values["all"][0], values["fewer"][0]
    assert float((first.output - second.output).norm()) <= first.call.sensitivity * (1 + 1e-6)
    # In units of the clip: curvatures of shorter gradients; gradients and counts.
    sensitivities = sorted({r.call.sensitivity for r in values["all"]})
    assert sensitivities == pytest.approx([CURVATURE_CLIP**2, 1.0], rel=1e-3)
