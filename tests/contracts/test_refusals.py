"""Whoever is refused has released nothing: every estimator and meta-estimator × every way.

The tape of releases is empty, the ledger has no entry, the error quotes no value of the data, and
the estimator is as it was.
"""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from contracts.subjects import CLASSES as CLASSES_OF_ALL
from contracts.subjects import RELEASING, VARIANTS, WITHOUT_TARGETS, with_facts
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags

from skdp import (
    DPPCA,
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    split_budget,
)
from skdp.calibration import DPTemperatureScaler
from skdp.mechanisms import GaussianMechanism
from skdp.model_selection import DPRandomizedSearch
from skdp.privacy import BudgetExceededError, PrivacyLedger
from skdp.testing import record_releases
from skdp.testing._inputs import LABELS as CLASSES
from skdp.testing._inputs import D, N
from skdp.testing._refusals import assert_quotes_nothing

# Each cell shows 8675 in its decimals, as `assert_quotes_nothing` knows a secret.
X = np.where(np.random.default_rng(0).random((N, D)) < 0.5, -1.0, 1.0) * 0.8675309
CLASSIFIER = "dpvariationallogisticregression"


def classifier(**settings):
    settings = {"classes": [0, 1], "n_samples": N, "max_iter": 2, **settings}
    return DPVariationalLogisticRegression(**settings)


def pipeline():
    return make_pipeline(DPStandardScaler(-1, 1), classifier())


def search(estimator, parameter):
    return DPRandomizedSearch(estimator, {parameter: [1.0]}, epsilon=2.0, mean_trials=2)


def grid_search(**settings):
    grid = {"prior_scale": [1.0, 2.0]}
    return GridSearchCV(classifier(), grid, cv=KFold(2), error_score="raise", **settings)


class Subject(NamedTuple):
    """What is refused, and where bad parameters go: the prefix of the part that they are for.

    A search sets the budgets inside it, so a bad one is its own.
    """

    make: Callable[[], Any]
    y: Any
    inner: str = ""
    sets_budgets: bool = False


SUBJECTS = {
    variant: Subject(
        lambda variant=variant: with_facts(variant),
        None
        if variant in WITHOUT_TARGETS
        else CLASSES / (1 if is_classifier(VARIANTS[variant]) else 2),
    )
    for variant in RELEASING
    if variant in CLASSES_OF_ALL and variant != "DPRandomizedSearch"
} | {
    "pipeline": Subject(pipeline, CLASSES, "dpstandardscaler__"),
    "split_budget": Subject(
        lambda: split_budget(pipeline(), epsilon=1.0, delta=1e-5), CLASSES, "dpstandardscaler__"
    ),
    "search": Subject(lambda: search(classifier(), "prior_scale"), CLASSES, "estimator__", True),
    "search of a pipeline": Subject(
        lambda: search(pipeline(), f"{CLASSIFIER}__prior_scale"),
        CLASSES,
        f"estimator__{CLASSIFIER}__",
        True,
    ),
    "search of a temperature": Subject(
        lambda: search(DPTemperatureScaler(classifier(), n_samples=N), "estimator__prior_scale"),
        CLASSES,
        "estimator__estimator__",
        True,
    ),
    "search of a pipeline with a temperature": Subject(
        lambda: search(
            Pipeline([("t", DPTemperatureScaler(classifier(), n_samples=N))]),
            "t__estimator__prior_scale",
        ),
        CLASSES,
        "estimator__t__estimator__",
        True,
    ),
    "temperature of a frozen classifier": Subject(
        lambda: DPTemperatureScaler(FrozenEstimator(classifier().fit(X, CLASSES)), n_samples=N),
        CLASSES,
    ),
    "grid search": Subject(grid_search, CLASSES, "estimator__"),
}
ALTERNATIVES = ("noise_multiplier", "temperature", "quantile_epsilon", "likelihood_power")


class Refused(NamedTuple):
    """A fit that must be refused, with what it is refused by."""

    estimator: Any
    X: Any
    y: Any
    error: Any
    match: str


def as_it_is(subject, error, match):
    return Refused(subject.make(), X, subject.y, error, match)


def bad_parameter(name, value):
    def way(subject):
        estimator, inner = subject.make(), subject.inner
        if subject.sets_budgets and name in ("epsilon", "delta"):
            inner = ""
        known = estimator.get_params()
        if inner + name not in known or (subject.sets_budgets and name == "noise_multiplier"):
            return None
        changes = {inner + name: value}
        if name == "epsilon":
            others = {inner + other: None for other in ALTERNATIVES}
            changes |= {key: none for key, none in others.items() if key in known}
        if name == "noise_multiplier":
            changes[inner + "epsilon"] = None
        return Refused(clone(estimator).set_params(**changes), X, subject.y, ValueError, name)

    return way


def bad_cells(value):
    def way(subject):
        estimator, rows = subject.make(), X.copy()
        first = getattr(getattr(estimator, "estimator", estimator), "steps", [("", estimator)])
        if np.isnan(value) and get_tags(first[0][1]).input_tags.allow_nan:
            return None
        rows[[3, 20], 1] = value
        return Refused(estimator, rows, subject.y, ValueError, "NaN|infinity|finite")

    return way


def undeclared_class(subject):
    estimator = subject.make()
    if subject.y is None or not any("classes" in key for key in estimator.get_params()):
        return None
    y = subject.y.copy()
    y[[3, 20]] = 8675
    return Refused(estimator, X, y, ValueError, "declared|classes")


def bad_target(subject):
    estimator = subject.make()
    if subject.y is None or subject.y.dtype.kind != "f":
        return None
    y = subject.y.copy()
    y[3] = np.nan
    return Refused(estimator, X, y, ValueError, "NaN|finite")


def wrong_number_of_rows(subject):
    if subject.y is None:
        return Refused(subject.make(), X[:0], None, ValueError, "sample")
    return Refused(subject.make(), X, subject.y[:-1], ValueError, "inconsistent numbers of samples")


WAYS = {
    "a ceiling too low": lambda s: as_it_is(s, BudgetExceededError, "above the ceiling"),
    "a ledger of another relation": lambda s: as_it_is(s, ValueError, "neighboring_relation"),
    "a ledger that cannot be written": lambda s: as_it_is(s, OSError, "directory"),
    "epsilon below 0": bad_parameter("epsilon", -1),
    "delta above 1": bad_parameter("delta", 2),
    "a NaN": bad_cells(np.nan),
    "an infinity": bad_cells(np.inf),
    "an undeclared class": undeclared_class,
    "a target that is NaN": bad_target,
    "a wrong number of rows": wrong_number_of_rows,
    **{
        f"{name} too small": bad_parameter(name, 1e-300)
        for name in ("clip_norm", "noise_multiplier", "data_norm", "output_norm")
    },
}

# What a later step refuses is seen when the steps before have released: a pipeline of scikit-learn
# fits one after the other. What they released has been charged.
SEEN_LATE = {
    ("pipeline", "an undeclared class"): ["DPStandardScaler"],
    ("pipeline", "a wrong number of rows"): ["DPStandardScaler"],
    ("split_budget", "an undeclared class"): ["DPStandardScaler"],
    ("split_budget", "a wrong number of rows"): ["DPStandardScaler"],
    ("search of a pipeline", "an undeclared class"): ["DPRandomizedSearch"],
}


@contextmanager
def refusing_ledger(way, estimator, tmp_path):
    """The ledger that the way of being refused needs, open."""
    relations = [v for k, v in estimator.get_params().items() if k.endswith("ing_relation")]
    relation, other = "zero_out", "replace_one"
    if other in relations:
        relation, other = other, relation
    if way == "a ceiling too low":
        ledger = PrivacyLedger(1e-6, 1e-5, neighboring_relation=relation)
    elif way == "a ledger of another relation":
        ledger = PrivacyLedger(neighboring_relation=other)
    elif way == "a ledger that cannot be written":
        path = tmp_path / "ledger"
        with PrivacyLedger(path=path) as ledger:
            path.unlink()
            path.mkdir()
            yield ledger
        path.rmdir()
        return
    else:
        ledger = PrivacyLedger()
    with ledger:
        yield ledger


def attributes(estimator):
    """Names of what an estimator and its parts hold."""
    parts = {"": estimator, **estimator.get_params()}
    # What a search of scikit-learn's notes before its first fit.
    of_scikit_learn = {"scorer_", "multimetric_", "n_splits_", "_checked_cv_orig"}
    return {
        name: set(vars(part)) - of_scikit_learn
        for name, part in parts.items()
        if isinstance(part, BaseEstimator)
    }


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_refused_fit_has_released_nothing(subject, tmp_path):
    refused = 0
    for way, make in WAYS.items():
        case = make(SUBJECTS[subject])
        if case is not None:
            refused += 1
            try:
                assert_nothing_released(case, way, SEEN_LATE.get((subject, way), []), tmp_path)
            except BaseException as error:
                error.add_note(f"the way: {way}")
                raise
    assert refused >= 3


def assert_nothing_released(case, way, late, tmp_path):
    """Fit what must be refused; `late` are the entries of what was fitted before."""
    estimator, rows, y, error, match = case
    before = attributes(estimator)
    if late == ["DPRandomizedSearch"]:
        error, match = RuntimeError, "The cause is withheld"
    with (
        refusing_ledger(way, estimator, tmp_path) as ledger,
        record_releases() as tape,
        pytest.raises(error, match=match) as refusal,
    ):
        estimator.fit(rows, y)
    assert [entry.label for entry in ledger.entries] == late
    if late:
        return
    assert tape == []
    assert_quotes_nothing(refusal.value)
    assert attributes(estimator) == before


def test_every_way_refuses_some_estimator():
    for way, make in WAYS.items():
        assert any(make(subject) for subject in SUBJECTS.values()), way


# --- releases that nobody planned ---------------------------------------------------------------


class OwnPCA(TransformerMixin, BaseEstimator):
    """A step of the caller's that fits a private transformer of its own, or tries to."""

    def __init__(self, catches=False):
        self.catches = catches

    def fit(self, X, y=None):
        try:
            self.inner_ = DPPCA(2, epsilon=5.0).fit(X)
        except BudgetExceededError:
            if not self.catches:
                raise
        return self

    def transform(self, X):
        return X


class OwnMean(OwnPCA):
    """The same with a mechanism."""

    def fit(self, X, y=None):
        self.mean_ = GaussianMechanism(record_norm=1.0, scale=1.0).release(np.mean(X, axis=0))
        return self


def network_with_private_pca():
    """A classifier whose network starts from a private fit of the very rows."""

    def module(n_features, n_outputs):
        DPPCA(2, epsilon=5.0).fit(X)
        return torch.nn.Linear(n_features, n_outputs)

    return DPSGDClassifier(
        module=module, classes=[0, 1], n_samples=N, max_iter=2, sampling_rate=1.0
    )


def with_step(step):
    return search(make_pipeline(step, classifier()), f"{CLASSIFIER}__prior_scale")


BESIDE = {
    "a step": lambda: with_step(OwnPCA()),
    "a step that catches": lambda: with_step(OwnPCA(catches=True)),
    "a mechanism": lambda: with_step(OwnMean()),
    "a module": lambda: search(network_with_private_pca(), "learning_rate"),
    "a module in a pipeline": lambda: search(
        make_pipeline(DPStandardScaler(-1, 1), network_with_private_pca()),
        "dpsgdclassifier__learning_rate",
    ),
}


@pytest.mark.parametrize("what", BESIDE)
def test_what_releases_beside_the_plan_ends_the_search(what):
    beside, early = BESIDE[what](), what == "a module"  # which is tried beforehand
    with (
        PrivacyLedger(epsilon=2.0, delta=1e-5) as ledger,
        record_releases() as tape,
        pytest.raises(RuntimeError, match="is not in the plan" if early else "had not planned"),
    ):
        beside.set_params(mean_trials=3, shape=1.0).fit(X, CLASSES)
    charged = [] if early else ["DPRandomizedSearch"]
    assert [entry.label for entry in ledger.entries] == charged
    assert not any(release.call.shape == (D * (D + 1) // 2,) for release in tape)
    assert not {"best_estimator_", "privacy_"} & vars(beside).keys()


def test_a_plan_calls_no_module():
    net = network_with_private_pca()
    with PrivacyLedger() as ledger, record_releases() as tape:
        net.plan(n_features=D)
        split_budget(
            make_pipeline(DPStandardScaler(-1, 1), net),
            epsilon=1.0,
            delta=1e-5,
            n_samples=N,
            n_features=D,
        )
    assert (ledger.entries, tape) == ((), [])


class Refers(TransformerMixin, BaseEstimator):
    """A step that keeps an object of the caller's, as it is."""

    def __init__(self, reference=None):
        self.reference = reference

    def __sklearn_clone__(self):
        return Refers(self.reference)

    def get_params(self, deep=True):
        return {} if deep else {"reference": self.reference}

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return X


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_what_was_fitted_before_keeps_its_statement(epsilon):
    before = classifier(epsilon=epsilon).fit(X, CLASSES)
    stated = before.privacy_
    piped = make_pipeline(Refers(before), classifier())
    found = search(piped, f"{CLASSIFIER}__prior_scale").fit(X, CLASSES)
    assert found.best_estimator_[0].reference is before
    assert before.privacy_ is stated
    assert stated.epsilon == pytest.approx(epsilon)
    assert found.best_estimator_[-1].privacy_ is found.privacy_


# --- a ledger that is full half way -------------------------------------------------------------


def ceiling_of(n_fits):
    """What that many fits of `classifier` cost."""
    with PrivacyLedger() as ledger:
        for _ in range(n_fits):
            classifier().fit(X, CLASSES)
    return ledger.total(1e-5)


HALF_WAY = {
    "grid search": lambda: grid_search(refit=True).fit(X, CLASSES),
    "cross-validation": lambda: cross_val_score(
        classifier(), X, CLASSES, cv=KFold(4), error_score="raise"
    ),
    # Fits that fail are scored NaN by default; the refit is refused too, and that is raised.
    "grid search, default error_score": lambda: (
        clone(grid_search()).set_params(error_score=np.nan).fit(X, CLASSES)
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
@pytest.mark.parametrize("workflow", HALF_WAY)
def test_a_ledger_that_is_full_half_way_ends_the_search_and_keeps_what_was_charged(workflow):
    with (
        PrivacyLedger(ceiling_of(2), 1e-5) as ledger,
        record_releases() as tape,
        pytest.raises(BudgetExceededError, match="The 2 entries charged before stay") as refusal,
    ):
        HALF_WAY[workflow]()
    assert len(ledger.entries) == 2
    assert len(tape) == 2 * len(tape_of_one_fit())
    assert_quotes_nothing(refusal.value)


def tape_of_one_fit():
    with record_releases() as tape:
        classifier().fit(X, CLASSES)
    return tape
