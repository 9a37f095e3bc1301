"""Every class of scikit-learn that `privacy_of` lets through, on neighbours with extreme records.

With the releases held fixed, all that is left of a fit has to be the same: statement, ledger,
warnings, and attributes of the workflow and its parts. A fit that is refused has released nothing.
"""

import sys
import warnings
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn import (
    compose,
    decomposition,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    kernel_approximation,
    model_selection,
    multiclass,
    multioutput,
    preprocessing,
    random_projection,
)
from sklearn.base import clone
from sklearn.feature_extraction import text
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline

from skdp import (
    AdditiveFeatures,
    BoundedScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    FitWarning,
    PrivacyLedger,
    PrivacyWarning,
)
from skdp.data import RowWise
from skdp.engine import release_hook
from skdp.preprocessing import GaborTransformer, NormClipper, ScatteringTransformer
from skdp.privacy import privacy_of
from skdp.privacy._scikit_learn import RULES, rule_of
from skdp.testing import fixed_streams
from skdp.testing._checks import described

N = 60
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (N, 4))
Y = (X[:, 0] > 0.5).astype(int)
THIRDS = np.arange(N) % 3
# No record has the last label, nor the last of the declared classes.
INDICATORS = np.column_stack([Y, 1 - Y, np.zeros(N, int)])
NUMBERS = np.linspace(-1, 1, N)
CODES = RNG.choice([0.5, 1.0], (N, 4))
TEXTS = np.array(["one fish two fish", "red fish", "blue fish"] * (N // 3), dtype=object)


def texts(records):
    return pd.DataFrame({"text": records})


def words(records):
    return pd.DataFrame({"text": pd.Series([record.split() for record in records])})


ONE_STEP = {"n_samples": N, "max_iter": 1}


# --- workflows ----------------------------------------------------------------------------------


def classifier(relation, classes=(0, 1, 2)):
    return DPVariationalLogisticRegression(
        classes=list(classes), neighboring_relation=relation, inference="dpvi", **ONE_STEP
    )


def regressor(relation):
    return DPVariationalLinearRegression(
        target_bounds=(-3, 3), neighboring_relation=relation, **ONE_STEP
    )


def before(*steps):
    return lambda relation: make_pipeline(*steps, classifier(relation))


def on_text(step):
    """Its output is sparse: made dense by a column transformer."""
    columns = compose.ColumnTransformer([("text", step, "text")], sparse_threshold=0)
    return lambda relation: make_pipeline(columns, classifier(relation))


def dense(step):
    columns = compose.ColumnTransformer([("all", step, [0, 1, 2, 3])], sparse_threshold=0)
    return lambda relation: make_pipeline(columns, classifier(relation))


def around(wrapper, private=classifier, **parameters):
    return lambda relation: wrapper(private(relation), **parameters)


def of_two(wrapper, private=classifier):
    return lambda relation: wrapper([("a", private(relation)), ("b", private(relation))])


def frozen(relation, private=classifier, y=Y):
    return FrozenEstimator(private(relation).fit(X, y))


def stack(wrapper, private=classifier, y=Y):
    return lambda relation: wrapper(
        [("a", frozen(relation, private, y))], private(relation), cv="prefit"
    )


KNOTS = np.linspace([0.0] * 4, [1.0] * 4, 4)
VOCABULARY = {"vocabulary": ["fish", "sky", "red"]}
CATEGORIES = {"categories": [[0.5, 1.0]] * 4}
DENSE = {**CATEGORIES, "sparse_output": False}
BAGS = {"n_estimators": 2, "bootstrap": False, "random_state": 0}
FILLED = {"strategy": "constant", "keep_empty_features": True}
ImbalancedPipeline = type("Pipeline", (Pipeline,), {"__module__": "imblearn.pipeline"})
# A class is of the package in which it is found: this stands in for what is not installed.
sys.modules.setdefault("imblearn.pipeline", SimpleNamespace(Pipeline=ImbalancedPipeline))

# class: steps before a classifier, or (workflow of a relation, rows, targets), that pass.
binary, signed = (partial(classifier, classes=pair) for pair in ((0, 1), (-1, 1)))
PROJECTED = {"random_state": 0}
OTHERS = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
UNDO = {"func": np.tanh, "inverse_func": np.arctanh}
UNCHECKED = {**UNDO, "check_inverse": False}
PAIRS_OF_NUMBERS = np.c_[NUMBERS, -NUMBERS]
WORKFLOWS = {
    "skdp AdditiveFeatures": [AdditiveFeatures(encode=e) for e in ("waves", "splines", "onehot")],
    "skdp BoundedScaler": [BoundedScaler(0, 0.1)],
    "skdp NormClipper": [NormClipper()],
    "skdp GaborTransformer": [GaborTransformer()],
    "skdp ScatteringTransformer": [
        ScatteringTransformer(n_directions=2, n_groups=n) for n in (None, 1)
    ],
    "skdp RowWise": [RowWise(preprocessing.PolynomialFeatures(2))],
    "imblearn Pipeline": [
        (lambda r: ImbalancedPipeline([("a", BoundedScaler()), ("b", classifier(r))]), X, Y)
    ],
    "AdditiveChi2Sampler": [kernel_approximation.AdditiveChi2Sampler()],
    "Binarizer": [preprocessing.Binarizer()],
    "Normalizer": [preprocessing.Normalizer(norm) for norm in ("l1", "l2", "max")],
    "PolynomialCountSketch": [
        kernel_approximation.PolynomialCountSketch(n_components=4, **PROJECTED)
    ],
    "PolynomialFeatures": [
        preprocessing.PolynomialFeatures(2),
        preprocessing.PolynomialFeatures(3, interaction_only=True),
    ],
    "SkewedChi2Sampler": [kernel_approximation.SkewedChi2Sampler(n_components=3, **PROJECTED)],
    "FeatureHasher": [
        (on_text(feature_extraction.FeatureHasher(8, input_type="string")), words(TEXTS), Y)
    ],
    "SparseCoder": [
        decomposition.SparseCoder(
            KNOTS + np.eye(4), transform_algorithm="threshold", transform_alpha=0.1
        )
    ],
    "OneHotEncoder": [
        (before(preprocessing.OneHotEncoder(**DENSE, handle_unknown=unknown, drop=drop)), CODES, Y)
        for unknown, drop in (("error", None), ("error", "first"), ("ignore", None))
    ],
    "OrdinalEncoder": [
        (before(preprocessing.OrdinalEncoder(**CATEGORIES, **more)), CODES, Y)
        for more in ({}, OTHERS)
    ],
    "SimpleImputer": [impute.SimpleImputer(**FILLED)],
    "MissingIndicator": [impute.MissingIndicator(features="all")],
    "FunctionTransformer": [
        preprocessing.FunctionTransformer(),
        preprocessing.FunctionTransformer(np.tanh),
        preprocessing.FunctionTransformer(**UNCHECKED),
    ],
    "RBFSampler": [kernel_approximation.RBFSampler(n_components=3, **PROJECTED)],
    "GaussianRandomProjection": [random_projection.GaussianRandomProjection(2, **PROJECTED)],
    "SparseRandomProjection": [random_projection.SparseRandomProjection(2, **PROJECTED)],
    "SplineTransformer": [
        preprocessing.SplineTransformer(knots=KNOTS, extrapolation=how)
        for how in ("error", "constant", "linear", "continue", "periodic")
    ],
    "HashingVectorizer": [(on_text(text.HashingVectorizer(n_features=8)), texts(TEXTS), Y)],
    "CountVectorizer": [(on_text(text.CountVectorizer(**VOCABULARY)), texts(TEXTS), Y)],
    "TfidfVectorizer": [
        (on_text(text.TfidfVectorizer(**VOCABULARY, use_idf=False)), texts(TEXTS), Y)
    ],
    "TfidfTransformer": [
        (dense(text.TfidfTransformer(use_idf=False, **more)), CODES, Y)
        for more in ({}, {"norm": None, "sublinear_tf": True})
    ],
    "MultiLabelBinarizer": [
        (lambda r: preprocessing.MultiLabelBinarizer(classes=["fish", "sky"]), words(TEXTS), None)
    ],
    "Pipeline": [(before(BoundedScaler(), "passthrough", preprocessing.Normalizer()), X, Y)],
    "FeatureUnion": [FeatureUnion([("a", BoundedScaler()), ("b", NormClipper())])],
    "ColumnTransformer": [
        (
            before(
                compose.ColumnTransformer(
                    [("a", preprocessing.OrdinalEncoder(categories=[[0.5, 1.0]]), [0])],
                    remainder=BoundedScaler(),
                    sparse_threshold=0,
                )
            ),
            CODES,
            Y,
        )
    ],
    "TransformedTargetRegressor": [
        (around(compose.TransformedTargetRegressor, regressor, **more), X, NUMBERS)
        for more in ({}, UNCHECKED)
    ],
    "FrozenEstimator": [(frozen, X, Y)],
    "FixedThresholdClassifier": [
        (
            around(
                model_selection.FixedThresholdClassifier,
                partial(classifier, classes=(0, 1)),
                threshold=0.4,
            ),
            X,
            Y,
        )
    ],
    "MultiOutputClassifier": [(around(multioutput.MultiOutputClassifier), X, INDICATORS)],
    "MultiOutputRegressor": [
        (around(multioutput.MultiOutputRegressor, regressor), X, PAIRS_OF_NUMBERS)
    ],
    "OneVsRestClassifier": [(around(multiclass.OneVsRestClassifier), X, THIRDS)],
    "OutputCodeClassifier": [
        (
            around(
                multiclass.OutputCodeClassifier,
                partial(classifier, classes=(-1, 1)),
                random_state=3,
                code_size=2,
            ),
            X,
            THIRDS,
        )
    ],
    "OneVsOneClassifier": [(around(multiclass.OneVsOneClassifier), X, THIRDS)],
    "VotingClassifier": [(of_two(ensemble.VotingClassifier), X, Y)],
    "VotingRegressor": [(of_two(ensemble.VotingRegressor, regressor), X, NUMBERS)],
    "SelectFromModel": [
        (lambda r: before(feature_selection.SelectFromModel(classifier(r)))(r), X, Y)
    ],
    "ClassifierChain": [(around(multioutput.ClassifierChain), X, INDICATORS)],
    "RegressorChain": [(around(multioutput.RegressorChain, regressor), X, PAIRS_OF_NUMBERS)],
    "BaggingClassifier": [(around(ensemble.BaggingClassifier, **BAGS), X, Y)],
    "BaggingRegressor": [(around(ensemble.BaggingRegressor, regressor, **BAGS), X, NUMBERS)],
    "StackingClassifier": [(stack(ensemble.StackingClassifier), X, Y)],
    "StackingRegressor": [(stack(ensemble.StackingRegressor, regressor, NUMBERS), X, NUMBERS)],
}

CASES = [
    pytest.param(
        name, *(case if type(case) is tuple else (before(case), X, Y)), id=f"{name}-{number}"
    )
    for name, cases in WORKFLOWS.items()
    for number, case in enumerate(cases)
]


# --- neighbours ---------------------------------------------------------------------------------

RECORD = 6  # one of those that the check of a target's inverse looks at
SINGLE = [1e308, -1e308, 5e-324, 0.0, np.nan, np.inf]
RECORDS = [
    *([value, 0.5, 0.5, 0.5] for value in SINGLE),
    *([value] * 4 for value in SINGLE[:4]),
    [1e308, 1e308, -1e308, -1e308],  # sums of these are infinite on the way, and then undefined
]


def replaced(values, record):
    values = values.copy()
    if isinstance(values, pd.DataFrame):
        values.at[RECORD, "text"] = record
    else:
        values[RECORD] = record
    return values


def odd_rows(rows):
    if isinstance(rows, pd.DataFrame):
        as_words = isinstance(rows["text"][0], list)
        records = ["", "zebra", "FISH " * 999]
        return [replaced(rows, record.split() if as_words else record) for record in records]
    return [replaced(rows, record) for record in RECORDS]


def odd_targets(y, reads_classes):
    if y is None:
        return []
    if y.dtype.kind == "f":
        return [replaced(y, value) for value in (*SINGLE, 40.0)]
    if y.ndim == 2:
        return [replaced(y, record) for record in ([0, 0, 1], [1, 1, 1], [0, 0, 0])]
    labels = {0, 1} if reads_classes else {0, 1, 2, 3}
    return [replaced(y, label) for label in labels - {y[RECORD]}]


def one_more_or_less(rows, y):
    for indices in (np.delete(np.arange(N), RECORD), np.append(np.arange(N), RECORD)):
        taken = rows.iloc[indices] if isinstance(rows, pd.DataFrame) else rows[indices]
        if isinstance(taken, np.ndarray) and len(taken) > N:
            taken[-1] = RECORDS[-1]
        yield taken, None if y is None else y[indices]


# --- what is seen of a fit ----------------------------------------------------------------------


def seen(workflow, rows, y, relation):
    """Fit, and return what docs/promises.md lets an adversary see."""
    ledger = PrivacyLedger(neighboring_relation=relation)
    with warnings.catch_warnings(record=True) as said, ledger:
        warnings.simplefilter("always")
        fitted = workflow.fit(rows) if y is None else workflow.fit(rows, y)
    return SimpleNamespace(
        warnings=[(warning.category, str(warning.message)) for warning in said],
        ledger=ledger.entries,
        statement=privacy_of(fitted),
        attributes=described(fitted),
    )


def compare(workflow, relation, pair, others):
    """Fit on a data set and on its neighbours, with the same releases; return how many did fit."""
    with fixed_streams():
        with release_hook.record() as tape:
            first = seen(clone(workflow), *pair, relation)
        assert not first.statement.unaccounted
        assert all(category in (FitWarning, PrivacyWarning) for category, _ in first.warnings)
        n_fitted = 0
        for other in others:
            with release_hook.replay([release.output for release in tape]) as again:
                try:
                    second = seen(clone(workflow), *other, relation)
                except ValueError:  # validation of input tells, but it has released nothing
                    assert not again
                    continue
            assert [release.call for release in again] == [release.call for release in tape]
            assert second == first
            n_fitted += 1
    return n_fitted


def silenced(name):
    """What docs/workflows.md asks of the caller where rows are not bounded beforehand."""
    return nullcontext() if name.startswith("skdp") else np.errstate(all="ignore")


# What leaks under a relation by the table.
PRIVATE_SIZES, PUBLIC_SIZES = ("Bagging",), ("OneVsOne",)


def replacements(workflow, rows, y):
    reads_classes = "classes" in rule_of(type(workflow)).facts(workflow)
    yield from ((other, y) for other in odd_rows(rows))
    yield from ((rows, other) for other in odd_targets(y, reads_classes))


cases = pytest.mark.parametrize(("name", "make", "rows", "y"), CASES)


@pytest.mark.quick(7)
@cases
def test_a_replaced_record_does_not_show(name, make, rows, y):
    if name.startswith(PUBLIC_SIZES):
        pytest.skip("leaks under replace_one, by the table")
    workflow = make("replace_one")
    with silenced(name):
        assert compare(workflow, "replace_one", (rows, y), replacements(workflow, rows, y))


@cases
def test_one_record_more_or_less_does_not_show(name, make, rows, y):
    if name.startswith(PRIVATE_SIZES):
        pytest.skip("leaks under add_or_remove_one, by the table")
    others = one_more_or_less(rows, y)
    with silenced(name):
        assert compare(make("add_or_remove_one"), "add_or_remove_one", (rows, y), others)


@pytest.mark.parametrize(
    ("name", "make", "rows", "y"),
    [case for case in CASES if isinstance(case.values[2], np.ndarray)],
)
def test_behind_a_bounded_scaler_numpy_does_not_warn(name, make, rows, y):
    if name.startswith(PUBLIC_SIZES):
        pytest.skip("leaks under replace_one, by the table")
    workflow = make("replace_one")
    # Behind the bounds many records are the same: some have each kind of number.
    others = list(replacements(workflow, rows, y))[::4]
    compare(make_pipeline(BoundedScaler(), workflow), "replace_one", (rows, y), others)


def test_every_class_that_passes_or_composes_is_here():
    let_through = {
        name if package == "sklearn" else f"{package} {name}"
        for (package, name), rule in RULES.items()
        if rule.verdict != "leaks"
    }
    assert set(WORKFLOWS) == let_through


# --- what the conditions are for ----------------------------------------------------------------

# (workflow, rows, targets, neighbouring rows, targets): the record shows in warnings or releases.
REVEALING = {
    "functions that are undone": (
        before(preprocessing.FunctionTransformer(**UNDO)), X, Y, replaced(X, 800.0), Y
    ),
    "targets that are undone": (
        around(compose.TransformedTargetRegressor, regressor, **UNDO),
        X, NUMBERS, X, replaced(NUMBERS, 40.0),
    ),
    "targets that a transformer undoes": (
        around(
            compose.TransformedTargetRegressor, regressor,
            transformer=preprocessing.FunctionTransformer(**UNCHECKED),
        ),
        X, NUMBERS, X, replaced(NUMBERS, 40.0),
    ),
    "unknown categories": (
        before(preprocessing.OneHotEncoder(**DENSE, handle_unknown="ignore", drop="first")),
        CODES, Y, replaced(CODES, 3.0), Y,
    ),
    "infrequent categories": (
        before(preprocessing.OneHotEncoder(**DENSE, handle_unknown="warn")),
        CODES, Y, replaced(CODES, 3.0), Y,
    ),
    "a solver that stops": (
        before(decomposition.SparseCoder(np.eye(4))), X, Y, replaced(X, 0.0), Y
    ),
    "a label that one record has": (
        around(multiclass.OneVsRestClassifier), X, INDICATORS, X, replaced(INDICATORS, [1, 0, 1])
    ),
    "a label that one record has, in a column": (
        around(multioutput.MultiOutputClassifier, around(multiclass.OneVsRestClassifier)),
        X, INDICATORS, X, replaced(INDICATORS, [1, 0, 1]),
    ),
    "how many rows a pair of classes has": (
        lambda relation: multiclass.OneVsOneClassifier(
            classifier(relation).set_params(delta=1 / (2 * N / 3 + 0.5))
        ),
        X, THIRDS, X, replaced(THIRDS, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REVEALING)
def test_what_shows_a_record_is_unaccounted(name):
    make, rows, y, other_rows, other_y = REVEALING[name]
    workflow = make("replace_one")
    first = seen(clone(workflow), rows, y, "replace_one")
    second = seen(clone(workflow), other_rows, other_y, "replace_one")
    assert (first.warnings, first.ledger) != (second.warnings, second.ledger)
    assert first.statement.unaccounted
    assert not first.statement.valid


def test_a_stack_of_indicators_is_unaccounted():
    outputs = around(multioutput.MultiOutputClassifier)
    workflow = stack(ensemble.StackingClassifier, outputs, INDICATORS)("zero_out")
    first = clone(workflow).fit(X, INDICATORS)
    second = clone(workflow).fit(X, replaced(INDICATORS, [1, 0, 1]))
    assert [len(labels) for labels in first.classes_] == [2, 2, 1]
    assert [len(labels) for labels in second.classes_] == [2, 2, 2]
    for fitted in (first, second):
        (line,) = privacy_of(fitted).unaccounted
        assert "not indicators" in line
