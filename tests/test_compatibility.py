"""What 0.1.0 and 0.2.0 stored is read by this version, and what they named is there.

`data/fitted_VERSION.json` holds one pickle per class, its predictions on three rows, its report,
and of 0.2.0 its summary, as that version wrote them; `data/names_VERSION.json` its public names,
their methods and parameters.
"""

import base64
import importlib
import inspect
import json
import pickle
import zlib
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pytest
from bundles import bundled
from sklearn.base import clone

from skdp import DPQuantileScaler, DPSGDClassifier, DPStandardScaler, OPSPosteriorSampler, Persons
from skdp.fitting.reading import IN_0_2
from skdp.privacy import PrivacyReport

DATA = Path(__file__).parent / "data"
VERSIONS = ("0.1.0", "0.2.0")
STORED = {v: json.loads((DATA / f"fitted_{v}.json").read_text()) for v in VERSIONS}
NAMES = {v: json.loads((DATA / f"names_{v}.json").read_text()) for v in VERSIONS}
ROWS = np.array(STORED["0.1.0"]["rows"])
FITTED = [(v, name) for v in VERSIONS for name in STORED[v]["fitted"]]

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


def stored(key):
    version, name = key
    return STORED[version]["fitted"][name]


@bundled("key", FITTED)
def test_a_pickle_predicts_as_it_did(key):
    fitted = pickle.loads(zlib.decompress(base64.b64decode(stored(key)["pickle"])))
    np.testing.assert_allclose(output(fitted), stored(key)["output"], rtol=1e-7)
    assert key[1].startswith(type(fitted).__name__)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(output(again), output(fitted))
    if stored(key).get("summary") is not None:
        last = fitted[-1] if hasattr(fitted, "steps") else fitted
        assert str(last.summary()) == stored(key)["summary"]
    if stored(key).get("predict") is not None:
        predicted = np.asarray(fitted.predict(ROWS), dtype=float)
        np.testing.assert_allclose(predicted, stored(key)["predict"], rtol=1e-7)


@bundled("key", [key for key in FITTED if stored(key)["report"]])
def test_a_report_states_the_same(key):
    told = stored(key)["report"]
    report = PrivacyReport.from_json(json.dumps(told))
    assert report.epsilon == pytest.approx(told["epsilon"])
    assert report.to_dict()["event"] == told["event"]
    assert report.skdp_version == key[0]


def of_name(name):
    module, _, attribute = f"skdp.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)


GONE = {"DPVariationalLinearRegression": {"inference"}}  # said in docs/from_0_2.md


@bundled("key", [(v, name) for v in VERSIONS for name in NAMES[v]])
def test_a_public_name_has_its_methods_and_parameters(key):
    version, name = key
    here = of_name(name)
    for member, parameters in NAMES[version][name].items():
        found = getattr(here, member) if member else here
        made = found.__init__ if is_dataclass(found) else found
        here_too = set(inspect.signature(made).parameters) if parameters else set()
        moved = set(IN_0_2) if "unit" in here_too else set()
        moved |= GONE.get(name, set())
        assert set(parameters or ()) - moved <= here_too, member


@bundled("key", [key for key in FITTED if "persons" in key[1]])
def test_persons_of_0_2_are_one_value(key):
    fitted = pickle.loads(zlib.decompress(base64.b64decode(stored(key)["pickle"])))
    for one in {fitted, getattr(fitted, "estimator", fitted)}:
        assert isinstance(one.unit, Persons)
        assert clone(one).unit == one.unit
        assert not IN_0_2.keys() & vars(one).keys()
    if key[1].startswith("DPV"):
        assert fitted.unit == Persons(200, rows_per_group=3, clip=1.5, max_rows=4)


CHANGED = {  # what earlier versions took and this one does not, and what the message says to use
    "unit": (DPQuantileScaler(unit=0.5), "resolution"),
    "proximal": (OPSPosteriorSampler(delta=0, sampler="proximal", classes=[0, 1]), "rejection"),
    "group": (DPStandardScaler(unit="group"), r"Persons\(n_groups=..., rows_per_group=..., clip"),
}


@bundled("name", CHANGED)
def test_what_earlier_versions_took_and_this_one_refuses_names_what_to_use(name):
    estimator, remedy = CHANGED[name]
    with pytest.raises(ValueError, match=remedy):
        estimator.fit(np.zeros((20, 2)), np.arange(20) % 2)


@bundled("name", IN_0_2)
def test_a_parameter_of_0_2_says_what_to_write(name):
    for written in (DPSGDClassifier, DPSGDClassifier().set_params):
        with pytest.raises(TypeError, match=rf"DPSGDC.*=skdp.Persons\({IN_0_2[name]}=3\)"):
            written(**{name: 3})
