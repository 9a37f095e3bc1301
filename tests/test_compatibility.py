"""What 0.1.0 stored is read by this version, and what it named is there or says what to use.

`data/fitted_0.1.0.json` holds one pickle per class, its predictions on three rows, and its report,
as 0.1.0 wrote them; `data/names_0.1.0.json` its public names, their methods and parameters.
"""

import base64
import importlib
import inspect
import json
import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest
from bundles import bundled

from skdp import DPQuantileScaler, OPSPosteriorSampler
from skdp.privacy import PrivacyReport

DATA = Path(__file__).parent / "data"
STORED = json.loads((DATA / "fitted_0.1.0.json").read_text())
NAMES = json.loads((DATA / "names_0.1.0.json").read_text())
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


def of_name(name):
    module, _, attribute = f"skdp.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@bundled("name", NAMES)
def test_a_public_name_of_0_1_0_has_its_methods_and_parameters(name):
    here = of_name(name)
    for member, parameters in NAMES[name].items():
        found = getattr(here, member) if member else here
        if parameters:
            assert set(parameters) <= set(inspect.signature(found).parameters), member


CHANGED = {  # what 0.1.0 took and this version does not, and what the message says to use
    "unit": (DPQuantileScaler(unit=0.5), "resolution"),
    "proximal": (OPSPosteriorSampler(delta=0, sampler="proximal", classes=[0, 1]), "rejection"),
}


@bundled("name", CHANGED)
def test_what_0_1_0_took_and_this_version_refuses_names_what_to_use(name):
    estimator, remedy = CHANGED[name]
    with pytest.raises(ValueError, match=remedy):
        estimator.fit(np.zeros((20, 2)), np.arange(20) % 2)
