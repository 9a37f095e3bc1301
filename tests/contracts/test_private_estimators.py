"""Every estimator of the registry × every check of `skdp.testing`, and that the checks can fail."""

import sys
import types
from unittest import mock

import pytest
import sklearn.base
from contracts.subjects import CLASSES, REPEATED, VARIANTS

import skdp
import skdp.conformal
from skdp import DPStandardScaler, preprocessing
from skdp.testing import check_private_estimator, private_estimator_checks
from skdp.testing._checks import check_grid

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")

# In files of their own; what a class refuses is the same in all of its ways.
APART = ("check_bad_input", "check_scikit_learn")
OF_A_CLASS = ("check_bad_parameters", "check_docstring")
OF_ALL = ("check_ledger", "check_grid")


def checks_of(name):
    """Checks by name; of networks that share their code, some are for the slow tests."""
    for what, check in private_estimator_checks(VARIANTS[name]):
        if what not in APART and not ("," in name and what in OF_A_CLASS):
            yield what, check


@pytest.mark.parametrize("name", VARIANTS)
def test_a_private_estimator_keeps_its_promises(name):
    for what, check in checks_of(name):
        if name not in REPEATED or what in OF_ALL:
            check()


@pytest.mark.slow
@pytest.mark.parametrize("name", REPEATED)
def test_networks_that_share_their_code_keep_them_too(name):
    for what, check in checks_of(name):
        if what not in OF_ALL:
            check()


def test_every_public_estimator_is_in_the_registry():
    public = {
        name
        for module in (skdp, preprocessing, skdp.calibration, skdp.conformal)
        for name in {*dir(module), *getattr(module, "__all__", ())}  # some come when asked for
        if not name.startswith("_")
        and isinstance(kind := getattr(module, name), type)
        and issubclass(kind, sklearn.base.BaseEstimator)
        and kind.__module__.startswith("skdp")
    }
    assert public - {"PrivateEstimator"} == set(CLASSES)
    assert {type(estimator).__name__ for estimator in VARIANTS.values()} == set(CLASSES)


# --- the checks of a third party, and that they can fail ------------------------------------------

THIRD_PARTY = '''
import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from skdp import NormClipper, PrivacyReport
from skdp.mechanisms import GaussianMechanism
from skdp.testing import check_private_estimator


class DPCentre(TransformerMixin, BaseEstimator):
    """Clip rows to norm 1 and subtract their private mean.

    Parameters
    ----------
    epsilon : float
        Privacy budget.
    delta : float
        Its failure probability.
    """

    def __init__(self, epsilon=1.0, delta=1e-5):
        self.epsilon = epsilon
        self.delta = delta

    def fit(self, X, y=None):
        before = dict(vars(self))
        try:
            if issparse(X):
                raise ValueError("Expected dense rows, got a sparse X.")
            clipper = NormClipper(1.0).fit(X)
            rows = np.asarray(clipper.transform(X))
            mechanism = GaussianMechanism.from_budget(
                epsilon=self.epsilon, delta=self.delta, record_norm=1.0
            )
            # MORE
            total = mechanism.release(rows.sum(axis=0))
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        self.privacy_ = PrivacyReport.of(
            mechanism.event(), delta=self.delta, sampling="full batch, 1 release"
        )
        self.clipper_ = clipper
        self.n_features_in_ = clipper.n_features_in_
        if hasattr(clipper, "feature_names_in_"):
            self.feature_names_in_ = clipper.feature_names_in_
        self.mean_ = total / max(len(rows), 1)
        return self

    def transform(self, X):
        check_is_fitted(self)
        return np.asarray(self.clipper_.transform(X)) - self.mean_
'''
# What a class of your own may get wrong: (text, what stands in its place, who finds it).
CHARGED = "mechanism.release(rows.sum(axis=0)"
MISTAKES = {
    "a parameter is not documented": ("    delta : float\n", "\n", "check_docstring"),
    "its pickle forgets a digit": (
        "    def transform",
        "    def __getstate__(self):\n"
        "        state = dict(super().__getstate__())\n"
        "        return state | {'mean_': np.round(state.get('mean_', 0.0))}\n\n"
        "    def transform",
        "check_clone_and_pickle",
    ),
    "a bad epsilon is taken": (
        "epsilon=self.epsilon,",
        "epsilon=self.epsilon if isinstance(self.epsilon, float) and self.epsilon > 0 else 1.0,",
        "check_bad_parameters",
    ),
    "an error quotes the rows": (
        "            # MORE",
        "            if np.max(X) > 100:\n                raise ValueError(f'X holds {np.max(X)}')",
        "check_bad_input",
    ),
    "rows are read without a check": (
        "clipper = NormClipper(1.0).fit(X)",
        "clipper = NormClipper(1.0).fit(np.zeros((1, len(X[0]))))",
        "check_bad_input",
    ),
    "what is refused leaves its number of rows": (
        "        before = dict(vars(self))\n",
        "        self.n_rows_ = len(X)\n        before = dict(vars(self))\n",
        "check_refused_fit",
    ),
    "a ledger hears of it afterwards": (CHARGED, CHARGED + ", charged=True", "check_ledger"),
    "the report states less": (
        "            mechanism.event(), delta",
        "            GaussianMechanism(1.0, 99.0).event(), delta",
        "check_ledger",
    ),
    "the range of the rows is kept": (
        "            # MORE", "            self.range_ = np.ptp(np.asarray(X))", "check_replay"
    ),
    "large rows are warned of": (
        "            # MORE",
        "            if np.max(X) > 1e300:\n                import warnings\n"
        "                warnings.warn('large')",
        "check_replay",
    ),
    "a plan states less": (
        "    def transform",
        "    def plan(self, n_samples=None, n_features=None, classes=None):\n"
        "        from types import SimpleNamespace\n"
        "        return SimpleNamespace(event=GaussianMechanism(1.0, 99.0).event())\n\n"
        "    def transform",
        "check_plan",
    ),
    "it takes any number of columns": (
        "np.asarray(self.clipper_.transform(X))",
        "np.clip(np.asarray(X, dtype=float), -1, 1).sum()",
        "check_scikit_learn",
    ),
}  # fmt: skip


PASSED = set()


def third_party(*change):
    source = THIRD_PARTY.replace(*change) if change else THIRD_PARTY
    assert (source != THIRD_PARTY) == bool(change)
    module = types.ModuleType("third_party")
    exec(source, vars(module))
    return module


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_check_finds(mistake, monkeypatch):
    text, instead, finder = MISTAKES[mistake]

    def check(*change):
        module = third_party(*change)
        monkeypatch.setitem(sys.modules, "third_party", module)  # for pickles
        dict(private_estimator_checks(module.DPCentre(epsilon=0.5)))[finder]()

    if finder not in PASSED:
        check()  # without the mistake nothing is found
        PASSED.add(finder)
    with (
        pytest.raises(AssertionError)
        if finder != "check_scikit_learn"
        else pytest.raises((AssertionError, AttributeError))
    ):
        check(text, instead)


def test_what_is_off_the_grid_is_found():
    with (
        mock.patch("skdp.engine.release_hook.on_grid", lambda values, width: values),
        pytest.raises(AssertionError, match="off the grid"),
    ):
        check_grid(VARIANTS["DPStandardScaler"])


def test_the_first_failure_names_its_check():
    class Undocumented(DPStandardScaler):
        pass

    Undocumented.__doc__ = "Without a word on what it does."
    with pytest.raises(AssertionError, match="check_docstring of Undocumented"):
        check_private_estimator(Undocumented())
