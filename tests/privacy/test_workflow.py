import pickle
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dp_accounting as dp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
import sklearn
import sklearn.experimental.enable_halving_search_cv
import sklearn.experimental.enable_iterative_imputer  # noqa: F401
from bundles import bundled
from sklearn import (
    calibration,
    cluster,
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    kernel_approximation,
    linear_model,
    manifold,
    model_selection,
    multiclass,
    multioutput,
    neighbors,
    preprocessing,
    random_projection,
    semi_supervised,
)
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.feature_extraction import text
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils import all_estimators

import skdp.preprocessing
from skdp import (
    BoundedScaler,
    DPSGDClassifier,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    PrivacyReport,
)
from skdp.calibration import DPTemperatureScaler
from skdp.model_selection import DPRandomizedSearch
from skdp.privacy import epsilon_of_event, privacy_of
from skdp.privacy._scikit_learn import RULES, UNKNOWN, rule_of

N = 60
DOCS = Path(__file__).parents[2] / "docs" / "workflows.md"

quiet = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore:The number of components is higher",
    "ignore:The shape of the input is",
    "ignore::skdp.PrivacyWarning",
)


def private(**parameters):
    parameters = {"max_iter": 2, "classes": [0, 1], "n_samples": N, **parameters}
    return DPVariationalLogisticRegression(**parameters)


def private_regression():
    return DPVariationalLinearRegression(max_iter=2, n_samples=N, target_bounds=(-3, 3))


def numbers(seed):
    return np.random.default_rng(seed).uniform(0, 1 + 9 * seed, (N, 4))


def with_gaps(seed):
    X = numbers(seed)
    X[:: 7 + seed, seed] = np.nan
    if seed:
        X[:, 3] = np.nan
    return X


def codes(seed):
    return np.random.default_rng(seed).choice([1, 2, 3 - seed], (N, 4))


def evenly(seed):
    return np.tile([[1], [2], [3]], (N // 3, 4))


def scaled(seed):
    return numbers(seed) * [1, 2, 3, 4]


def texts(seed):
    return ["one fish two fish", "red fish", "blue fish"] * 20 if seed == 0 else ["sky sea"] * N


def label_sets(seed):
    return [["a"], ["b"], ["a", "b"]] * 20 if seed == 0 else [["b"]] * N


def words(seed):
    return [document.split() for document in texts(seed)]


def counts(seed):
    return scipy.sparse.csr_matrix(codes(seed))


def binary(X):
    return (np.asarray(X)[:, 0] > np.median(np.asarray(X)[:, 0])).astype(int)


X = numbers(0)
Y = binary(X)
VOCABULARY = ["fish", "sky", "red"]
KNOTS = np.linspace([0, 0, 0, 0], [1, 1, 1, 1], 4)
LISTS = {"categories": [[1, 2, 3]] * 4}
CONSTANT = {"strategy": "constant", "keep_empty_features": True}


def columns(*named, **parameters):
    return compose.ColumnTransformer(
        [(name, step, [2 * i, 2 * i + 1]) for i, (name, step) in enumerate(named)], **parameters
    )


# (step, data): every one must pass.
PASSING = [
    (preprocessing.Binarizer(threshold=0.5), numbers),
    (preprocessing.Normalizer(), numbers),
    (preprocessing.PolynomialFeatures(2), numbers),
    (kernel_approximation.AdditiveChi2Sampler(), numbers),
    (kernel_approximation.SkewedChi2Sampler(n_components=3, random_state=0), numbers),
    (kernel_approximation.PolynomialCountSketch(n_components=4, random_state=0), numbers),
    (kernel_approximation.RBFSampler(n_components=3, random_state=0), numbers),
    (random_projection.GaussianRandomProjection(2, random_state=0), numbers),
    (random_projection.SparseRandomProjection(2, random_state=0), numbers),
    (decomposition.SparseCoder(np.eye(4), transform_algorithm="threshold"), numbers),
    (preprocessing.SplineTransformer(knots=KNOTS), numbers),
    (preprocessing.FunctionTransformer(), numbers),
    (preprocessing.FunctionTransformer(np.log1p, np.expm1, check_inverse=False), numbers),
    (preprocessing.FunctionTransformer(scipy.special.expit), numbers),
    (preprocessing.OneHotEncoder(**LISTS), codes),
    (preprocessing.OneHotEncoder(**LISTS, drop="first", sparse_output=False), codes),
    (preprocessing.OneHotEncoder(categories=[[2]] * 4, handle_unknown="ignore"), codes),
    (preprocessing.OrdinalEncoder(**LISTS), codes),
    (impute.SimpleImputer(**CONSTANT), with_gaps),
    (impute.SimpleImputer(**CONSTANT, fill_value=7.0), with_gaps),
    (impute.MissingIndicator(features="all"), with_gaps),
    (feature_extraction.FeatureHasher(8, input_type="string"), words),
    (text.HashingVectorizer(n_features=8), texts),
    (text.CountVectorizer(vocabulary=VOCABULARY), texts),
    (text.TfidfVectorizer(vocabulary=VOCABULARY, use_idf=False), texts),
    (text.TfidfTransformer(use_idf=False), counts),
    (preprocessing.MultiLabelBinarizer(classes=["a", "b"]), label_sets),
    (skdp.preprocessing.AdditiveFeatures(), numbers),
    (BoundedScaler(), numbers),
    (skdp.preprocessing.NormClipper(), numbers),
    (skdp.preprocessing.GaborTransformer(), numbers),
    (skdp.preprocessing.ScatteringTransformer(n_directions=2), numbers),
    (FeatureUnion([("a", preprocessing.Binarizer()), ("b", "passthrough")]), numbers),
    (columns(("a", preprocessing.Binarizer()), ("b", BoundedScaler())), numbers),
    (columns(("a", preprocessing.Binarizer()), remainder="passthrough"), numbers),
    (columns(("a", preprocessing.OneHotEncoder(categories=[[2]] * 2, handle_unknown="ignore")),
        remainder="drop", sparse_threshold=0), codes),
    (make_pipeline(BoundedScaler(), None, "passthrough", preprocessing.Normalizer()), numbers),
]  # fmt: skip

# (step, data): every one must leak.
LEAKING = [
    (preprocessing.StandardScaler(), numbers), (preprocessing.MinMaxScaler(), numbers),
    (preprocessing.MaxAbsScaler(), numbers), (preprocessing.RobustScaler(), numbers),
    (preprocessing.QuantileTransformer(n_quantiles=N), numbers),
    (preprocessing.PowerTransformer(), numbers),
    (preprocessing.KBinsDiscretizer(strategy="uniform"), numbers),
    (preprocessing.SplineTransformer(), numbers),
    (preprocessing.SplineTransformer(knots="quantile"), numbers),
    (preprocessing.OneHotEncoder(handle_unknown="ignore"), codes),
    (preprocessing.OneHotEncoder(**LISTS, min_frequency=20), evenly),
    (preprocessing.OneHotEncoder(**LISTS, max_categories=2), evenly),
    (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), codes),
    (preprocessing.TargetEncoder(), codes), (preprocessing.MultiLabelBinarizer(), label_sets),
    (impute.SimpleImputer(), with_gaps),
    (impute.SimpleImputer(**CONSTANT, add_indicator=True), with_gaps),
    (impute.SimpleImputer(strategy="most_frequent"), with_gaps), (impute.KNNImputer(), with_gaps),
    (impute.IterativeImputer(), with_gaps),
    (impute.MissingIndicator(error_on_new=False), with_gaps), (decomposition.PCA(2), numbers),
    (decomposition.IncrementalPCA(2), numbers), (decomposition.KernelPCA(2), numbers),
    (decomposition.TruncatedSVD(2), numbers), (decomposition.FastICA(2, random_state=0), numbers),
    (decomposition.NMF(2, random_state=0), numbers), (decomposition.FactorAnalysis(2), numbers),
    (decomposition.LatentDirichletAllocation(2, random_state=0), numbers),
    (discriminant_analysis.LinearDiscriminantAnalysis(), numbers),
    (neighbors.NeighborhoodComponentsAnalysis(2, random_state=0), numbers),
    (neighbors.KNeighborsTransformer(), numbers),
    (kernel_approximation.Nystroem(n_components=N, random_state=0), numbers),
    (kernel_approximation.RBFSampler(gamma="scale", random_state=0), numbers),
    (random_projection.GaussianRandomProjection("auto", eps=0.999, random_state=0), None),
    (feature_selection.VarianceThreshold(0.5), scaled),
    (feature_selection.SelectKBest(k=1), numbers),
    (feature_selection.SelectPercentile(percentile=25), numbers),
    (feature_selection.GenericUnivariateSelect(mode="k_best", param=1), numbers),
    (ensemble.RandomTreesEmbedding(3, random_state=0), numbers),
    (cluster.KMeans(2, random_state=0), numbers),
    (cluster.Birch(n_clusters=None, threshold=0.1), numbers),
    (cluster.FeatureAgglomeration(2), numbers), (manifold.Isomap(), numbers),
    (text.CountVectorizer(), texts), (text.TfidfVectorizer(), texts),
    (text.TfidfVectorizer(vocabulary=VOCABULARY), texts), (text.TfidfTransformer(), counts),
]  # fmt: skip


def parametrized(cases):
    ids = [f"{number}-{type(step).__name__}" for number, (step, _) in enumerate(cases)]
    return pytest.mark.parametrize(("step", "data"), cases, ids=ids)


def dense(values):
    return values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)


def fitted(step, data, y=None):
    step = clone(step)
    return (
        step.fit(data) if isinstance(step, preprocessing.MultiLabelBinarizer) else step.fit(data, y)
    )


@quiet
@parametrized(PASSING)
def test_what_passes_learns_nothing_from_rows(step, data):
    one, other = fitted(step, data(0)), fitted(step, data(1))
    assert pickle.dumps(one) == pickle.dumps(other)
    np.testing.assert_array_equal(dense(one.transform(data(0))), dense(other.transform(data(0))))


@quiet
@parametrized(PASSING)
def test_what_passes_maps_each_row_by_itself(step, data):
    rows = data(0)
    step = fitted(step, rows)
    together = dense(step.transform(rows))
    for i in (0, 17, N - 1):
        alone = dense(step.transform(rows[i : i + 1]))
        np.testing.assert_allclose(together[i : i + 1], alone, rtol=1e-12)


@quiet
@parametrized(PASSING)
def test_what_passes_costs_nothing(step, data):
    report = privacy_of(fitted(step, data(0)), strict=True)
    assert (report.epsilon, report.delta, report.valid) == (0.0, 0.0, True)
    assert report.event == dp.NoOpDpEvent()
    assert "reads no rows" in report.sampling
    assert PrivacyReport.from_json(report.to_json()) == report


def neighbours(data):
    """Data with one row replaced, all of it or one value, or removed."""
    if isinstance(data, list):
        for row in (["zebra", "fish", "fish"], ["red"]):
            yield [row if isinstance(data[0], list) else " ".join(row), *data[1:]]
        return
    sparse, data = scipy.sparse.issparse(data), dense(data)
    for value in (50, 0, 2, 3, np.nan):
        for changed in (slice(None), 0):
            other = data.astype(float) if np.isnan(value) else data.copy()
            other[0, changed] = value
            yield scipy.sparse.csr_matrix(other) if sparse else other
    yield data[:-1]


def outcome(step, data, y, rows):
    try:
        return dense(fitted(step, data, y).transform(rows))
    except ValueError:  # NaN, where it is not allowed
        return None


@quiet
@pytest.mark.filterwarnings("ignore")
@parametrized(LEAKING)
def test_what_leaks_is_moved_by_one_row(step, data):
    # Many columns: the number of components follows the number of rows, and may not exceed theirs.
    rows = data(0) if data else np.random.default_rng(0).uniform(size=(N, 200))
    numeric = isinstance(rows, np.ndarray)
    y = np.arange(N) % 2 if not numeric or np.isnan(rows).any() else binary(rows)
    base = outcome(step, rows, y, rows)
    moved = [
        outcome(step, other, y[: other.shape[0] if hasattr(other, "shape") else N], rows)
        for other in neighbours(rows)
    ]
    assert any(
        other is not None and (base.shape != other.shape or not np.array_equal(base, other, True))
        for other in moved
    )


@quiet
@pytest.mark.filterwarnings("ignore")
@parametrized(LEAKING)
def test_what_leaks_is_named_with_what_to_use_instead(step, data):
    rows = data(0) if data else np.random.default_rng(0).uniform(size=(N, 200))
    step = fitted(step, rows, np.arange(N) % 2)
    report = privacy_of(step)
    assert (report.epsilon, report.valid) == (np.inf, False)
    (line,) = report.unaccounted
    assert line.startswith(f"{type(step).__name__}: ")
    assert line.count("; ") == 1
    with pytest.raises(ValueError, match="to be accounted"):
        privacy_of(step, strict=True)


def test_one_row_can_make_the_output_of_a_column_transformer_dense():
    encoder = preprocessing.OneHotEncoder(categories=[[2]], handle_unknown="ignore")
    step = compose.ColumnTransformer([("a", encoder, [0])], sparse_threshold=0.5)
    sparse, full = ([[2.0], [row], [1.0], [1.0]] for row in (1.0, 2.0))
    assert clone(step).fit(sparse).sparse_output_ != clone(step).fit(full).sparse_output_
    for rows in (sparse, full):
        (line,) = privacy_of(clone(step).fit(rows)).unaccounted
        assert line.endswith("use sparse_threshold=0")
        assert privacy_of(clone(step).set_params(sparse_threshold=0).fit(rows)).valid


class OverSampler(BaseEstimator):
    """Makes rows of other rows, as imbalanced-learn does; nothing is learned in `fit`."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X

    def fit_resample(self, X, y):
        return np.vstack([X, X[:5]]), np.hstack([y, y[:5]])


class Centred(preprocessing.FunctionTransformer):
    pass


class FasterScaler(preprocessing.StandardScaler):
    pass


class LoggedPipeline(Pipeline):
    pass


class OwnClassifier(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.zeros(len(X))


class ForeignPrivate(OwnClassifier):
    def fit(self, X, y):
        self.privacy_ = {"epsilon": 1.0}
        return super().fit(X, y)


class Wrapper(TransformerMixin, BaseEstimator):
    """Passes on what its part knows, and learns the mean as well."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y):
        self.mean_ = X.mean()
        self.inner_ = clone(self.estimator).fit(X, y)
        return self

    def __getattr__(self, name):
        if name.startswith("__") or name == "inner_":
            raise AttributeError(name)
        return getattr(self.inner_, name)


SCALED = make_pipeline(BoundedScaler(upper=10), private())
TWO = [("a", private()), ("b", private())]
GRID = {"prior_scale": [0.5, 1.0]}


def several(y):
    return np.column_stack([y, 1 - y])


def thirds(y):
    return np.arange(N) % 3


def fractions(y):
    return np.linspace(-1, 1, N)


def labels(y):
    return y


def frozen_twice():
    model = FrozenEstimator(private().fit(X, Y))
    return ensemble.VotingClassifier([("a", model), ("b", model)])


def case(workflow, *unaccounted, targets=labels, n=1, facts=()):
    """A workflow, its number of releases, what is unaccounted and which facts were inferred."""
    return workflow, targets, n, list(unaccounted), list(facts)


WORKFLOWS = {
    "bare": case(private()),
    "pipeline": case(SCALED),
    "nested": case(make_pipeline(preprocessing.Normalizer(), SCALED)),
    "leak before": case(make_pipeline(preprocessing.StandardScaler(), private()),
        "step 'standardscaler' (StandardScaler): learned mean and scale"),
    "leak in columns": case(make_pipeline(
        columns(("num", preprocessing.MinMaxScaler()), ("rest", BoundedScaler())), private()),
        "step 'columntransformer__num' (MinMaxScaler): learned ranges"),
    "leak in a union": case(make_pipeline(FeatureUnion([("pca", decomposition.PCA(2))]), private()),
        "step 'featureunion__pca' (PCA): learned components"),
    "own predictor": case(make_pipeline(OwnClassifier()), "(OwnClassifier): skdp", n=0),
    "predictor": case(make_pipeline(linear_model.RidgeClassifier()),
        "(RidgeClassifier): was fitted without accounting; use an estimator of skdp", n=0),
    "sampler": case(make_pipeline(OverSampler(), private()), "(OverSampler): skdp"),
    "user's function": case(make_pipeline(preprocessing.FunctionTransformer(abs), private()),
        "(FunctionTransformer): applies a function"),
    "subclass that may not pass": case(make_pipeline(Centred(), private()),
        "(Centred): is a subclass of FunctionTransformer"),
    "subclass that leaks": case(make_pipeline(FasterScaler(), private()),
        "(FasterScaler): learned mean and scale"),
    "subclass of a pipeline": case(LoggedPipeline([("model", private())]),
        "LoggedPipeline: is a subclass of Pipeline"),
    "another library's privacy": case(ForeignPrivate(), "ForeignPrivate: skdp", n=0),
    "wrapper": case(Wrapper(private()), "Wrapper: skdp", n=0),
    "voting": case(ensemble.VotingClassifier(TWO), n=2, facts=["classes"]),
    "dropped vote": case(ensemble.VotingClassifier([("c", "drop"), *TWO]), n=2, facts=["classes"]),
    "frozen twice": case(frozen_twice(), facts=["classes"]),
    "voting regressors": case(ensemble.VotingRegressor([("a", private_regression())]),
        targets=fractions),
    "several outputs": case(multioutput.MultiOutputClassifier(private()), targets=several, n=2),
    "several numbers": case(multioutput.MultiOutputRegressor(private_regression()), targets=several,
        n=2),
    "one against the rest": case(multiclass.OneVsRestClassifier(private()), targets=thirds, n=3,
        facts=["classes"]),
    "a label that no row has": case(multiclass.OneVsRestClassifier(private()),
        "OneVsRestClassifier: fits no model of a label that no row has",
        targets=lambda y: np.column_stack([y, 1 - y, 0 * y]), n=2, facts=["classes"]),
    "one against one": case(multiclass.OneVsOneClassifier(
        private(neighboring_relation="add_or_remove_one")), targets=thirds, n=3, facts=["classes"]),
    "one against one, declared rows": case(multiclass.OneVsOneClassifier(private()),
        "OneVsOneClassifier: the fit of a pair", targets=thirds, n=3, facts=["classes"]),
    "one against one, sizes read": case(multiclass.OneVsOneClassifier(private(n_samples=None)),
        "OneVsOneClassifier: the fit of a pair", targets=thirds, n=None,
        facts=["n_samples", "classes"]),
    "one against one, replaced": case(multiclass.OneVsOneClassifier(
        private(neighboring_relation="replace_one")), "OneVsOneClassifier: the fit of a pair",
        targets=thirds, n=None, facts=["classes"]),
    "output codes": case(multiclass.OutputCodeClassifier(private(classes=[-1, 1]), code_size=1,
        random_state=3), targets=thirds, n=3, facts=["classes"]),
    "chain": case(multioutput.ClassifierChain(private()), targets=several, n=2),
    "chain of folds": case(multioutput.ClassifierChain(private(), cv=2),
        "ClassifierChain: the fits", targets=several, n=2),
    "chain of regressors": case(multioutput.RegressorChain(private_regression()), targets=several,
        n=2),
    "selection": case(make_pipeline(feature_selection.SelectFromModel(private()), private()), n=2),
    "selection, counted": case(feature_selection.SelectFromModel(private(),
        max_features=lambda X: 2), "SelectFromModel: asked a function"),
    "fixed threshold": case(model_selection.FixedThresholdClassifier(private(), threshold=0.4)),
    "tuned threshold": case(model_selection.TunedThresholdClassifierCV(private()),
        "TunedThresholdClassifierCV: chose its threshold"),
    "bagging": case(ensemble.BaggingClassifier(private().set_params(max_sample_weight=20), 3),
        "BaggingClassifier: repeats or weights rows", n=3, facts=["classes", "n_samples"]),
    "pasting": case(ensemble.BaggingClassifier(private(), 3, bootstrap=False, max_samples=0.5), n=3,
        facts=["classes", "n_samples"]),
    "pasting, rows private": case(ensemble.BaggingClassifier(
        private(neighboring_relation="add_or_remove_one"), 3, bootstrap=False),
        "BaggingClassifier: keeps the number of rows", n=None, facts=["classes", "n_samples"]),
    "stacking": case(ensemble.StackingClassifier(TWO, private(), cv=2),
        "StackingClassifier: the fits of its folds", n=3, facts=["classes"]),
    "boosting": case(ensemble.AdaBoostRegressor(private_regression(), n_estimators=1),
        "AdaBoostRegressor: weights rows", targets=fractions, n=None),
    "self-training": case(semi_supervised.SelfTrainingClassifier(private()),
        "SelfTrainingClassifier: chose rows", targets=lambda y: np.where(np.arange(N) < 9, -1, y),
        n=None),
    "elimination": case(feature_selection.RFE(private(), n_features_to_select=2),
        "RFE: chose features by fits"),
    "sequential": case(feature_selection.SequentialFeatureSelector(private(), cv=2,
        n_features_to_select=1), "SequentialFeatureSelector: chose features", n=0),
    "calibrated": case(calibration.CalibratedClassifierCV(private(), cv=3),
        "CalibratedClassifierCV: fitted its calibrators", n=3),
    "search": case(model_selection.GridSearchCV(private(), GRID, cv=2),
        "GridSearchCV: its scores are exact functions of the rows"),
    "search without a refit": case(model_selection.RandomizedSearchCV(private(), GRID, n_iter=1,
        cv=2, refit=False), "RandomizedSearchCV: its scores", n=0),
    "halving": case(model_selection.HalvingGridSearchCV(private(n_samples=None), GRID, cv=2,
        min_resources=20), "HalvingGridSearchCV: its scores", facts=["n_samples"]),
    "pipeline in a search in a pipeline": case(
        make_pipeline(BoundedScaler(upper=10),
        model_selection.GridSearchCV(make_pipeline(preprocessing.RobustScaler(), private()),
        {"dpvariationallogisticregression__prior_scale": [0.5, 1.0]}, cv=2)),
        "step 'gridsearchcv__estimator__robustscaler' (RobustScaler): learned quantiles",
        "step 'gridsearchcv' (GridSearchCV): its scores"),
    "target by NumPy": case(compose.TransformedTargetRegressor(private_regression(), func=np.arctan,
        inverse_func=np.tan, check_inverse=False), targets=fractions),
    "target scaled": case(compose.TransformedTargetRegressor(private_regression(),
        transformer=preprocessing.StandardScaler(), check_inverse=False),
        "step 'transformer' (StandardScaler): learned mean and scale", targets=fractions),
    "columns by a function": case(make_pipeline(
        compose.ColumnTransformer([("a", BoundedScaler(), lambda X: [0, 1])]), private()),
        "step 'columntransformer' (ColumnTransformer): asked a function"),
    "no columns": case(make_pipeline(
        compose.ColumnTransformer([("a", preprocessing.StandardScaler(), []),
        ("b", "passthrough", [0, 1])]), private())),
}  # fmt: skip


@quiet
@pytest.mark.filterwarnings("ignore:Label")
@bundled("name", WORKFLOWS)
def test_a_workflow_is_the_composition_of_its_releases(name):
    workflow, targets, n_releases, unaccounted, facts = WORKFLOWS[name]
    report = privacy_of(workflow.fit(X, targets(Y)))
    assert len(report.unaccounted) == len(unaccounted)
    for line, start in zip(report.unaccounted, unaccounted, strict=True):
        assert start in line
    assert list(report.inferred_public_facts) == facts
    if n_releases == 0:
        assert report.epsilon == np.inf
    elif n_releases is not None:
        alone = (private() if targets is not fractions else private_regression()).fit(X, Y)
        event = dp.ComposedDpEvent([alone.privacy_.event] * n_releases)
        assert report.epsilon == pytest.approx(epsilon_of_event(event, 1e-5), rel=1e-6)
    assert report.valid == (not unaccounted and not report.seeded)
    # These set the seeds of their parts.
    assert report.seeded == isinstance(workflow, ensemble.BaseEnsemble)


def test_a_bare_report_is_returned_as_it_is():
    model = private().fit(X, Y)
    assert privacy_of(model) == model.privacy_
    assert privacy_of(model, delta=1e-3).epsilon == model.privacy_.epsilon_at(1e-3)


def test_several_reports_add_up_as_reports_do():
    workflow = ensemble.VotingClassifier(
        [("a", private()), ("b", private(epsilon=2.0, delta=1e-6))]
    ).fit(X, Y)
    total, (a, b) = privacy_of(workflow), workflow.estimators_
    added = a.privacy_ + b.privacy_
    for name in ("epsilon", "delta", "event", "accountant", "valid", "tuning", "seeded"):
        assert getattr(total, name) == getattr(added, name)
    assert privacy_of(workflow, delta=1e-3).epsilon == added.epsilon_at(1e-3)
    assert "step 'a' (DPVariationalLogisticRegression): " in total.sampling
    assert PrivacyReport.from_json(total.to_json()) == total


def test_sampled_steps_are_accounted_together():
    sgd = DPSGDClassifier(classes=[0, 1], n_samples=N, max_iter=3, batch_size=10)
    workflow = multioutput.MultiOutputClassifier(sgd).fit(X, several(Y))
    a, b = workflow.estimators_
    assert privacy_of(workflow).epsilon == (a.privacy_ + b.privacy_).epsilon


def test_a_temperature_scaler_counts_its_classifier_once():
    scaler = DPTemperatureScaler(private(), n_samples=N, max_iter=2).fit(X, Y)
    workflow = Pipeline([("scaler", BoundedScaler().fit(X)), ("model", scaler)])
    assert scaler.privacy_.epsilon > scaler.temperature_privacy_.epsilon
    assert privacy_of(workflow).epsilon == scaler.privacy_.epsilon


def test_beside_its_frozen_classifier_a_temperature_scaler_counts_it_once():
    model = private().fit(X, Y)
    scaler = DPTemperatureScaler(FrozenEstimator(model), n_samples=N, max_iter=2)
    scaler.fit(X, Y)
    assert privacy_of(model, scaler).epsilon == pytest.approx(scaler.privacy_.epsilon)


def test_a_release_that_was_made_twice_counts_twice_beside_the_model():
    inner, outer = private().fit(X, Y), OwnClassifier().fit(X, Y)
    outer.privacy_ = inner.privacy_ + inner.privacy_
    assert outer.privacy_.epsilon > inner.privacy_.epsilon
    assert privacy_of(inner, outer).epsilon == outer.privacy_.epsilon
    assert privacy_of(outer, inner).epsilon == outer.privacy_.epsilon


@quiet
@pytest.mark.parametrize(
    ("why", "text", "parameters"),
    [("seeded", "seeded", {"random_state": 0}), ("none", "not private", {"epsilon": np.inf})],
)
def test_no_guarantee_of_a_step_is_passed_on_and_strict_says_why(why, text, parameters):
    workflow = make_pipeline(BoundedScaler(), private(**parameters)).fit(X, Y)
    report = privacy_of(workflow)
    assert (report.seeded, report.valid, report.unaccounted) == (why == "seeded", False, ())
    assert (report.epsilon == np.inf) == (why == "none")
    with pytest.raises(ValueError, match=text):
        privacy_of(workflow, strict=True)


def test_what_is_unaccounted_in_a_part_is_passed_on():
    inner = make_pipeline(preprocessing.StandardScaler(), private()).fit(X, Y)
    outer = OwnClassifier().fit(X, Y)
    outer.privacy_ = privacy_of(inner)
    report = privacy_of(Pipeline([("scaler", BoundedScaler().fit(X)), ("model", outer)]))
    assert report.unaccounted == outer.privacy_.unaccounted
    assert not report.valid
    both = privacy_of(Pipeline([("model", outer), ("other", private().fit(X, Y))]))
    assert both.unaccounted == outer.privacy_.unaccounted


def test_a_part_that_is_not_valid_makes_the_whole_not_valid():
    first, second = private().fit(X, Y), private().fit(X, Y)
    second.privacy_ = replace(second.privacy_, valid=False)
    assert not privacy_of(Pipeline([("a", first), ("b", second)])).valid


def test_different_neighbours_do_not_add_up():
    mixed = [("a", private()), ("b", private(neighboring_relation="replace_one"))]
    workflow = ensemble.VotingClassifier(mixed).fit(X, Y)
    with pytest.raises(ValueError, match="different neighbours"):
        privacy_of(workflow)


def test_an_object_that_is_fitted_twice_states_its_last_fit_only():
    selector = feature_selection.SelectFromModel(private())
    workflow = Pipeline([("a", selector), ("b", selector), ("model", private())])
    report = privacy_of(workflow.fit(X, Y))
    assert len(report.unaccounted) == 1
    assert "is the same object as step 'a__estimator'" in report.unaccounted[0]


def test_sample_weights_of_a_bag_are_unaccounted():
    bag = ensemble.BaggingClassifier(private(), 2, bootstrap=False)
    bag.estimators_, bag._sample_weight = [private().fit(X, Y)], np.ones(N)
    assert "repeats or weights rows" in privacy_of(bag).unaccounted[0]


def test_the_types_of_columns_are_taken_to_be_public():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=list("abcd"))
    selector = compose.make_column_selector(dtype_include="number")
    workflow = make_pipeline(
        compose.ColumnTransformer([("numbers", BoundedScaler(), selector)]), private()
    )
    report = privacy_of(workflow.fit(table, Y))
    assert report.valid
    assert report.inferred_public_facts == ("column types",)


def test_a_prefit_stack_composes():
    prefit = [(name, clone(model).fit(X, Y)) for name, model in TWO]
    stack = ensemble.StackingClassifier(prefit, private(), cv="prefit").fit(X, Y)
    report = privacy_of(stack)
    assert report.valid
    assert report.epsilon > privacy_of(prefit[0][1]).epsilon
    assert report.sampling.count("step 'final_estimator'") == 1


def test_the_pipeline_of_imbalanced_learn_is_a_pipeline(monkeypatch):
    pipeline = type("Pipeline", (Pipeline,), {"__module__": "imblearn.pipeline"})
    monkeypatch.setitem(sys.modules, "imblearn.pipeline", SimpleNamespace(Pipeline=pipeline))
    workflow = pipeline([("sampler", OverSampler()), ("model", private())])
    report = privacy_of(workflow.fit(X, Y))
    assert len(report.unaccounted) == 1
    assert "step 'sampler' (OverSampler): skdp does not know" in report.unaccounted[0]


@pytest.mark.parametrize(
    ("public_steps", "n_unaccounted"),
    [([], 2), (["columns__num"], 1), (["columns"], 0), (("columns", "columns__num"), 0)],
)
def test_the_caller_can_vouch_for_steps(public_steps, n_unaccounted):
    steps = columns(("num", preprocessing.StandardScaler()), ("own", Wrapper(private())))
    steps.set_params(own=preprocessing.FunctionTransformer(abs))
    workflow = Pipeline([("columns", steps), ("model", private())]).fit(X, Y)
    report = privacy_of(workflow, public_steps=public_steps)
    assert len(report.unaccounted) == n_unaccounted
    assert report.valid == (n_unaccounted == 0)
    assert ("declared public by the caller: step" in report.sampling) == bool(public_steps)


def test_releases_in_a_public_step_still_count():
    inner = make_pipeline(feature_selection.SelectFromModel(private()))
    workflow = Pipeline([("inner", inner), ("model", private())]).fit(X, Y)
    with_it = privacy_of(workflow, public_steps=["inner"])
    assert with_it.epsilon == privacy_of(workflow).epsilon > 1.0


@pytest.mark.parametrize("public_steps", [["scalar"], "scaler", ["scaler", "nothing"], [""]])
def test_a_public_step_must_exist(public_steps):
    workflow = Pipeline([("scaler", BoundedScaler()), ("model", private())]).fit(X, Y)
    with pytest.raises(ValueError, match=r"names of steps \('scaler', 'model'\)"):
        privacy_of(workflow, public_steps=public_steps)


def test_strict_lists_all_that_is_unaccounted():
    workflow = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2), private())
    workflow.fit(X, Y)
    with pytest.raises(ValueError, match=r"(?s)StandardScaler.*\n.*PCA"):
        privacy_of(workflow, strict=True)
    names = ["standardscaler", "pca"]
    assert privacy_of(workflow, strict=True, public_steps=names).valid


@pytest.mark.parametrize(
    ("workflow", "part"),
    [
        (private(), "DPVariationalLogisticRegression is not"),
        (BoundedScaler(), "BoundedScaler is not"),
        (SCALED, "'boundedscaler' .* is not"),
        (linear_model.LogisticRegression(), "LogisticRegression is not"),
        (model_selection.GridSearchCV(private(), GRID), "GridSearchCV is not"),
        (columns(("a", BoundedScaler())), "ColumnTransformer is not"),
        (ensemble.VotingClassifier(TWO), "VotingClassifier is not"),
        (FrozenEstimator(private()), "'estimator' .* is not"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseEstimator) else "",
)
def test_what_is_not_fitted_is_named(workflow, part):
    with pytest.raises(ValueError, match=part):
        privacy_of(clone(workflow) if not isinstance(workflow, FrozenEstimator) else workflow)


@pytest.mark.parametrize("wrong", [3, None, "model", [1], BoundedScaler], ids=str)
def test_what_is_no_workflow_is_refused(wrong):
    with pytest.raises(ValueError, match="Expected a fitted estimator or workflow, but got"):
        privacy_of(wrong)


@pytest.mark.parametrize("delta", [-1, 1.0, "small", np.nan])
def test_delta_is_checked(delta):
    model = private().fit(X, Y)
    with pytest.raises(ValueError, match="delta"):
        privacy_of(model, delta=delta)


def test_every_class_that_may_pass_was_tried():
    may_pass = {name for (_, name), rule in RULES.items() if rule.verdict == "passes"}
    assert {type(step).__name__ for step, _ in PASSING} >= may_pass


def test_every_condition_was_seen_to_fail():
    kept = {
        name for (_, name), rule in RULES.items() if rule.verdict == "passes" and rule.objections
    }
    # What a function of the caller's does is not known; a solver warns of rows, but moves none.
    seen = {type(step).__name__ for step, _ in LEAKING} | {"FunctionTransformer", "SparseCoder"}
    assert kept - seen == {"HashingVectorizer", "SparseRandomProjection"}


@pytest.mark.thorough
def test_every_estimator_of_scikit_learn_has_a_verdict():
    assert [name for name, kind in all_estimators() if rule_of(kind) is UNKNOWN] == []


def test_every_estimator_that_holds_others_has_a_verdict_of_its_own():
    holders = {
        name
        for name, kind in all_estimators()
        if {"estimator", "estimators", "steps", "regressor"} & set(kind._get_param_names())
    }
    assert {name for name in holders if ("sklearn", name) not in RULES} == set()


def test_the_page_has_the_verdicts_of_the_code():
    table = runpy.run_path(str(DOCS.with_name("workflow_table.py")))["as_markdown"]()
    assert table in DOCS.read_text(encoding="utf-8"), f"{DOCS.name} should have:\n{table}"


def test_the_parts_of_a_search_s_winner_state_one_release_and_it_counts_once():
    model = make_pipeline(skdp.preprocessing.DPStandardScaler(), private())
    search = DPRandomizedSearch(
        model, {"dpvariationallogisticregression__max_iter": [1, 2]}, mean_trials=2
    ).fit(X, np.arange(N) % 2)
    winner = search.best_estimator_
    assert privacy_of(winner).epsilon == privacy_of(search).epsilon == search.privacy_.epsilon


@pytest.mark.parametrize(
    "part",
    [impute.MissingIndicator(features="all", sparse=True), text.TfidfTransformer(use_idf=False)],
    ids=lambda part: type(part).__name__,
)
def test_a_part_that_may_be_sparse_lets_the_rows_choose_the_form(part):
    columns = compose.ColumnTransformer([("part", part, [0, 1])])
    assert "sparse" in privacy_of(columns.fit(X)).unaccounted[0]
    assert privacy_of(columns.set_params(sparse_threshold=0).fit(X)).valid


def test_a_class_of_scikit_learn_is_one_that_is_found_there():
    """A name is no proof: StandardScaler of another making may do anything."""
    kind = type("FunctionTransformer", (BaseEstimator, TransformerMixin), {})
    kind.__module__ = preprocessing.FunctionTransformer.__module__
    assert rule_of(kind) is UNKNOWN
    assert rule_of(preprocessing.FunctionTransformer) is not UNKNOWN
