"""What the classes of scikit-learn read in `fit`: the verdicts of `privacy_of`, as data.

A step *passes* if its fit learns nothing from the rows but their columns, and if it maps each row
by itself, so that one row more or less moves one row of what the next step sees. A step that
*composes* hands rows to other estimators, and reads none itself. Everything else *leaks*, or does
where its condition fails; in doubt, it leaks.

Classes are known by name, because accounting imports no scikit-learn.

>>> from skdp.privacy._scikit_learn import RULES
>>> RULES["sklearn", "StandardScaler"].objections[0].instead
'use DPStandardScaler or BoundedScaler'
"""

from __future__ import annotations

import sys
from dataclasses import replace

from skdp.fitting.types import Opaque
from skdp.privacy import _scikit_rules as its
from skdp.privacy._scikit_rules import (
    DECLARE,
    Objection,
    Reports,
    Rule,
    composes,
    leaks,
    learned,
    passes_if,
)

_SPARSE = {
    "CountVectorizer", "FeatureHasher", "HashingVectorizer", "TfidfTransformer", "TfidfVectorizer",
}  # fmt: skip


def _may_be_sparse(fitted: Opaque) -> bool:
    asked = getattr(fitted, "sparse_output", False) or getattr(fitted, "sparse", False) is True
    if asked or type(fitted).__name__ in _SPARSE:
        return True
    return any(_may_be_sparse(part) for _, part in rule_of(type(fitted)).parts(fitted))


def _counts_zeros(fitted: Opaque, _: Reports) -> bool:
    """Whether the share of zeros among the rows decided on the type of the output."""
    parts = (part for _, part in its.columns(fitted))
    return fitted.sparse_threshold > 0 and (
        getattr(fitted, "sparse_output_", False) or any(map(_may_be_sparse, parts))
    )


# The table.

UNKNOWN = Rule("unknown", (Objection("skdp does not know what its fit reads", DECLARE),))

PREDICTOR = leaks("was fitted without accounting", "use an estimator of skdp")

_PASSES = Rule("passes")

_FOLDS = "the fits of its folds are in no event"
_INVERSE = "checks the inverse on some rows, and warns by the outcome"
_DIRECTIONS = "DPPCA or GaussianRandomProjection(n_components=...)"
_CONSTANT_FILL = "SimpleImputer(strategy='constant', ...)"
_FEATURES = "RBFSampler(gamma=...)"
_EARLIER_FITS = "chose rows by earlier fits, which are in no event"
_LISTED = "categories=[[...], ...] without min_frequency and max_categories"
_SEEN = "handle_unknown='error', or 'ignore' without drop"

_ENCODED = "learned the categories, or how frequent they are, from the rows"
_ENCODES = passes_if(_LISTED, its.has_declared_categories, _ENCODED)
_NO_CHAIN = Objection(_FOLDS, "use cv=None", lambda fitted, _: fitted.cv is not None)
_REPEATS = Objection(
    "repeats or weights rows, which is not what the event of a fit states",
    "use bootstrap=False without sample_weight",
    its.repeats_rows,
)
_COUNTS = Objection(
    "keeps the number of rows, which is private under add_or_remove_one",
    "use neighboring_relation='zero_out' or 'replace_one'",
    its.n_rows_is_private,
)
_ONLY_BAGS = "bootstrap=False; it seeds its parts, though, and no seeded fit is a guarantee"
_BAGGING = composes(its.each, _REPEATS, _COUNTS, only_if=_ONLY_BAGS)
_NO_STACK = Objection(_FOLDS, "use cv='prefit', or VotingClassifier", its.ran_folds_unless_prefit)
_STACKING = composes(its.stack, _NO_STACK, only_if="cv='prefit'")
_CLASSES = its.facts("classes")

_DECOMPOSES = (
    "PCA IncrementalPCA KernelPCA TruncatedSVD SparsePCA MiniBatchSparsePCA FastICA NMF "
    "MiniBatchNMF FactorAnalysis DictionaryLearning MiniBatchDictionaryLearning "
    "LatentDirichletAllocation BernoulliRBM"
)
_DISCRIMINATES = (
    "LinearDiscriminantAnalysis NeighborhoodComponentsAnalysis PLSRegression PLSCanonical PLSSVD "
    "CCA"
)
_KEEPS_ROWS = (
    "NearestNeighbors KNeighborsTransformer RadiusNeighborsTransformer LocalOutlierFactor "
    "KernelDensity"
)
_CLUSTERS = (
    "KMeans MiniBatchKMeans BisectingKMeans Birch FeatureAgglomeration AgglomerativeClustering "
    "DBSCAN HDBSCAN OPTICS MeanShift AffinityPropagation SpectralClustering SpectralBiclustering "
    "SpectralCoclustering GaussianMixture BayesianGaussianMixture"
)
_COVARIANCES = (
    "EmpiricalCovariance EllipticEnvelope GraphicalLasso GraphicalLassoCV LedoitWolf MinCovDet OAS "
    "ShrunkCovariance"
)
_CHOOSES_FEATURES = (
    "VarianceThreshold SelectKBest SelectPercentile SelectFpr SelectFdr SelectFwe "
    "GenericUnivariateSelect"
)

_TABLE = {
    # Steps that pass.
    "AdditiveChi2Sampler Binarizer Normalizer PolynomialCountSketch": _PASSES,
    "PolynomialFeatures SkewedChi2Sampler": _PASSES,
    "FeatureHasher": replace(_PASSES, needs_fit=False),
    "SparseCoder": passes_if(
        "transform_algorithm='threshold'",
        its.has("transform_algorithm", "threshold"),
        "warns of rows for which its solver stops early",
        needs_fit=False,
    ),
    "OneHotEncoder": _ENCODES.also(
        Objection(
            "warns of columns where a row has an unknown category",
            f"use {_SEEN}",
            its.warns_of_unknown_categories,
        ),
        only_if=f"{_LISTED}; {_SEEN}",
    ),
    "OrdinalEncoder": _ENCODES,
    "SimpleImputer": passes_if(
        "strategy='constant', keep_empty_features=True, add_indicator=False",
        its.fills_with_a_constant,
        "learned from the rows what to fill in, or which columns lack values",
    ),
    "MissingIndicator": passes_if(
        "features='all'",
        its.has("features", "all"),
        "learned from the rows which columns lack values",
    ),
    "FunctionTransformer": passes_if(
        "no function, or one of NumPy or SciPy that maps numbers one by one, whose own warnings "
        "are the caller's to silence; check_inverse=False, or no inverse_func",
        its.is_elementwise_transformer,
        "applies a function that may compute across rows",
        DECLARE,
    ).also(Objection(_INVERSE, "use check_inverse=False", its.checks_its_inverse)),
    "RBFSampler": passes_if(
        "a number for gamma", its.given("gamma"), "learned gamma from the variance of the rows"
    ),
    "GaussianRandomProjection SparseRandomProjection": passes_if(
        "a number for n_components",
        its.given("n_components"),
        "took the number of components from the number of rows",
    ),
    "SplineTransformer": passes_if(
        "an array of knots", its.given("knots"), "learned the knots from the rows"
    ),
    "HashingVectorizer": passes_if(
        "no function of the caller's",
        its.splits_text_itself,
        "calls a function on texts",
        DECLARE,
        needs_fit=False,
    ),
    "CountVectorizer": passes_if(
        "vocabulary=[...], and no function of the caller's",
        its.has_a_vocabulary,
        "learned the vocabulary from the rows, or calls a function on them",
    ),
    "TfidfVectorizer": passes_if(
        "vocabulary=[...], use_idf=False, and no function of the caller's",
        lambda step: its.has_a_vocabulary(step) and not step.use_idf,
        "learned the vocabulary or the frequencies of words from the rows",
    ),
    "TfidfTransformer": passes_if(
        "use_idf=False", its.has("use_idf", False), "learned the frequencies of words from the rows"
    ),
    "MultiLabelBinarizer": passes_if(
        "classes=[...] with every label, since it warns of others",
        lambda step: step.classes is not None,
        "learned the labels from the rows",
        "use classes=[...]",
    ),
    # Steps that hand rows on.
    "Pipeline": composes(its.named("steps")),
    "FeatureUnion": composes(its.named("transformer_list")),
    "ColumnTransformer": composes(
        its.columns,
        Objection(
            "asked a function of the rows for columns",
            "name the columns, or use make_column_selector",
            its.asks_a_function_for_columns,
        ),
        Objection(
            "chose a sparse or a dense output by the zeros among the rows",
            "use sparse_threshold=0",
            _counts_zeros,
        ),
        only_if="columns named or of make_column_selector; sparse_threshold=0 where a part is "
        "sparse",
        facts=its.column_types,
    ),
    "TransformedTargetRegressor": composes(
        its.target,
        Objection(_INVERSE, "use check_inverse=False", its.checks_its_transformer),
        only_if="check_inverse=False, or neither func nor transformer",
    ),
    "FrozenEstimator": composes(its.one("estimator")),
    "FixedThresholdClassifier": composes(its.one("estimator_")),
    "MultiOutputClassifier MultiOutputRegressor": composes(its.each),
    "OneVsRestClassifier": composes(
        its.each,
        Objection(
            "fits no model of a label that no row has, or every row, and one row decides",
            "use MultiOutputClassifier for indicators, or else the estimator alone",
            its.may_skip_labels,
        ),
        only_if="targets are labels, and not indicators",
        facts=_CLASSES,
    ),
    "OutputCodeClassifier": composes(its.each, facts=_CLASSES),
    "OneVsOneClassifier": composes(
        its.each,
        Objection(
            "the fit of a pair sees the rows of two classes, and so how many there are",
            "use neighboring_relation='add_or_remove_one', with n_samples of a pair",
            its.n_rows_is_read,
        ),
        only_if="neighboring_relation='add_or_remove_one'",
        facts=_CLASSES,
    ),
    "VotingClassifier": composes(its.votes, facts=_CLASSES),
    "VotingRegressor": composes(its.votes),
    "SelectFromModel": composes(
        its.one("estimator_"),
        Objection(
            "asked a function of the rows for max_features",
            "use a number",
            lambda step, _: callable(step.max_features),
        ),
        only_if="max_features is no function",
    ),
    "ClassifierChain RegressorChain": composes(its.each, _NO_CHAIN, only_if="cv=None"),
    "BaggingClassifier": replace(_BAGGING, facts=its.facts("classes", "n_samples")),
    "BaggingRegressor": replace(_BAGGING, facts=its.facts("n_samples")),
    "StackingClassifier": _STACKING.also(
        Objection(
            "read from the rows which labels some row has",
            "use targets that are labels, and not indicators",
            lambda fitted, _: isinstance(fitted.classes_, list),
        ),
        only_if="cv='prefit', and targets are labels, and not indicators",
        facts=_CLASSES,
    ),
    "StackingRegressor": _STACKING,
    # Steps that hand rows on and read them as well.
    "GridSearchCV RandomizedSearchCV HalvingGridSearchCV HalvingRandomSearchCV": leaks(
        f"its scores are exact functions of the rows, and {_FOLDS}",
        "use DPRandomizedSearch",
        its.one("best_estimator_"),
    ),
    "CalibratedClassifierCV": leaks(
        "fitted its calibrators without accounting",
        "use skdp.calibration.DPTemperatureScaler",
        its.calibrated,
    ),
    "TunedThresholdClassifierCV": leaks(
        f"chose its threshold by scores of the rows, and {_FOLDS}",
        "use FixedThresholdClassifier",
        its.one("estimator_"),
    ),
    "AdaBoostClassifier AdaBoostRegressor": leaks(
        "weights rows by the errors made on them",
        "use VotingClassifier or VotingRegressor",
        its.each,
    ),
    "SelfTrainingClassifier": leaks(
        _EARLIER_FITS, "fit the labelled rows alone", its.one("estimator_")
    ),
    "RANSACRegressor": leaks(
        _EARLIER_FITS, "fit a DP estimator, which clips outliers", its.one("estimator_")
    ),
    "RFE RFECV SequentialFeatureSelector": leaks(
        "chose features by fits or scores that are in no event",
        "use SelectFromModel(a DP estimator)",
        its.one("estimator_"),
    ),
    # Steps that leak.
    "StandardScaler": learned("mean and scale", "DPStandardScaler or BoundedScaler"),
    "MinMaxScaler MaxAbsScaler": learned("ranges", "DPQuantileScaler or BoundedScaler"),
    "RobustScaler QuantileTransformer": learned("quantiles", "DPQuantileScaler or BoundedScaler"),
    "PowerTransformer": learned("exponents", "FunctionTransformer(numpy.log1p) and BoundedScaler"),
    "KBinsDiscretizer": learned("the edges of its bins", "SplineTransformer(knots=[...])"),
    "KNNImputer": leaks("keeps rows", f"use {_CONSTANT_FILL}"),
    "IterativeImputer": leaks("fitted models of the columns to the rows", f"use {_CONSTANT_FILL}"),
    "TargetEncoder": leaks(
        "learned the mean target of each category", "use OneHotEncoder(categories=[[...], ...])"
    ),
    "LabelEncoder LabelBinarizer": leaks(
        "learned the labels from the rows", "declare classes=[...] in the estimator"
    ),
    "DictVectorizer": learned("the names of features", "FeatureHasher"),
    _DECOMPOSES: learned("components", _DIRECTIONS),
    _DISCRIMINATES: leaks("learned directions from rows and targets", f"use {_DIRECTIONS}"),
    "Isomap LocallyLinearEmbedding SpectralEmbedding TSNE MDS ClassicalMDS": learned(
        "an embedding", _DIRECTIONS
    ),
    "Nystroem": leaks("keeps rows", f"use {_FEATURES}"),
    "KernelCenterer": learned("a mean", _FEATURES),
    _KEEPS_ROWS: leaks("keeps rows", f"use a step that passes, such as {_FEATURES}"),
    _CLUSTERS: learned("clusters", "a step that passes"),
    _COVARIANCES: learned("a covariance", "a step that passes"),
    "RandomTreesEmbedding": learned("trees", _FEATURES),
    _CHOOSES_FEATURES: leaks(
        "chose features by the rows",
        "choose them without the rows, or SelectFromModel(a DP estimator)",
    ),
    "PatchExtractor": leaks(
        "makes many rows of one, which is not what later events state", "cut beforehand"
    ),
}

_OURS = "AdditiveFeatures BoundedScaler NormClipper GaborTransformer ScatteringTransformer"
RULES: dict[tuple[str, str], Rule] = {
    **{("skdp", name): _PASSES for name in _OURS.split()},
    ("skdp", "RowWise"): composes(its.one("transformer_", "transformer")),
    # Its fit is that of scikit-learn's; samplers among its steps are unknown, as they must be.
    ("imblearn", "Pipeline"): composes(its.named("steps")),
    **{("sklearn", name): rule for names, rule in _TABLE.items() for name in names.split()},
}

# Bases that say nothing of what a fit reads.
_NEUTRAL = ("sklearn.base", "sklearn.utils", "sklearn.callback")
_PREDICTS = ("predict", "fit_predict", "score_samples")


def rule_of(kind: type) -> Rule:
    """Find the verdict on a class: its own, or what its nearest known base leaves of one."""
    for base in kind.__mro__:
        package = package_of(base)
        rule = RULES.get((package, base.__name__))
        if rule is not None:
            return rule if base is kind else rule.of_subclass(base.__name__)
        speaks = package == "sklearn" and not base.__module__.startswith(_NEUTRAL)
        if speaks and any(hasattr(base, name) for name in _PREDICTS):
            return PREDICTOR
    return UNKNOWN


def package_of(kind: type) -> str:
    """Package of a class that is found in it; "" of one that only says so."""
    found = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None)
    return kind.__module__.partition(".")[0] if found is kind else ""


def needs_fit(kind: type) -> bool:
    """Whether an object of this class must show that it was fitted: of unknown ones who can say."""
    packages = set(map(package_of, kind.__mro__))
    rule = rule_of(kind)
    return "skdp" in packages if rule is UNKNOWN else rule.needs_fit
