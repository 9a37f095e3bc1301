"""What 0.1.0 stored is read by this version: fitted estimators and reports.

`data/fitted_0.1.0.json` holds one pickle per class, its predictions on three rows, and its report,
as 0.1.0 wrote them.
"""

import base64
import json
import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest
from bundles import bundled

from skdp.privacy import PrivacyReport

STORED = json.loads((Path(__file__).parent / "data" / "fitted_0.1.0.json").read_text())
ROWS = np.array(STORED["rows"])

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:Trying to unpickle:sklearn.exceptions.InconsistentVersionWarning"
    ),
    pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning"),
]


def output(fitted):
    for name in ("transform", "predict_proba"):
        if hasattr(fitted, name):
            return np.asarray(getattr(fitted, name)(ROWS))
    return np.asarray(fitted.predict(ROWS))


@bundled("name", STORED["fitted"])
def test_a_pickle_of_0_1_0_predicts_as_it_did(name):
    fitted = pickle.loads(zlib.decompress(base64.b64decode(STORED["fitted"][name]["pickle"])))
    np.testing.assert_allclose(output(fitted), STORED["fitted"][name]["output"], rtol=1e-7)
    assert name.startswith(type(fitted).__name__)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(output(again), output(fitted))


@bundled("name", [n for n, stored in STORED["fitted"].items() if stored["report"]])
def test_a_report_of_0_1_0_states_the_same(name):
    stored = STORED["fitted"][name]["report"]
    report = PrivacyReport.from_json(json.dumps(stored))
    assert report.epsilon == pytest.approx(stored["epsilon"])
    assert report.to_dict()["event"] == stored["event"]
    assert report.skdp_version == "0.1.0"
