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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from skdp._types import Opaque
from skdp.privacy.report import PrivacyReport
from skdp.relations import check_relation

Reports = Sequence[PrivacyReport]
Parts = Iterable[tuple[str, Opaque]]


def _always(fitted: Opaque, reports: Reports) -> bool:
    return True


def _nothing(fitted: Opaque) -> tuple[()]:
    return ()


class Objection(NamedTuple):
    """What is in no event, what to use instead, and for which fitted objects this is so.

    ``applies`` is given the fitted object and the reports of its parts.
    """

    reads: str
    instead: str
    applies: Callable[[Opaque, Reports], bool] = _always


@dataclass(frozen=True)
class Rule:
    """Verdict on a class: what speaks against it, its parts, and what it takes to be public."""

    verdict: str
    objections: tuple[Objection, ...] = ()
    only_if: str = ""
    parts: Callable[[Opaque], Parts] = _nothing
    facts: Callable[[Opaque], tuple[str, ...]] = _nothing
    needs_fit: bool = True

    @property
    def always_leaks(self) -> bool:
        """Whether the verdict is the same for every fitted object."""
        return any(objection.applies is _always for objection in self.objections)

    def of_subclass(self, base: str) -> Rule:
        """Verdict on a subclass: its fit may be another, so nothing is free, and leaks stay."""
        if self.always_leaks:
            return self
        unknown = Objection(
            f"is a subclass of {base}, and skdp does not know what its own fit reads", DECLARE
        )
        return self.also(unknown)

    def also(self, objection: Objection, **changed: Any) -> Rule:
        """Add an objection."""
        return replace(self, objections=(*self.objections, objection), **changed)


def _leaks(reads: str, instead: str, parts: Callable[[Opaque], Parts] = _nothing) -> Rule:
    return Rule("leaks", (Objection(reads, instead),), parts=parts)


def _learned(what: str, instead: str) -> Rule:
    return _leaks(f"learned {what} from the rows", f"use {instead}")


def _passes_if(
    only_if: str,
    holds: Callable[[Opaque], bool],
    reads: str,
    instead: str = "",
    *,
    needs_fit: bool = True,
) -> Rule:
    objection = Objection(reads, instead or f"use {only_if}", lambda step, _: not holds(step))
    return Rule("passes", (objection,), only_if, needs_fit=needs_fit)


def _composes(
    parts: Callable[[Opaque], Parts],
    *objections: Objection,
    only_if: str = "",
    facts: Callable[[Opaque], tuple[str, ...]] = _nothing,
) -> Rule:
    return Rule("composes", objections, only_if, parts, facts)


# Conditions.


def _is_elementwise(function: Any) -> bool:
    """Whether a function is None or maps numbers one by one: a user's may look across rows."""
    if function is None:
        return True
    is_ufunc = isinstance(function, np.ufunc) and (function.nin, function.nout) == (1, 1)
    return is_ufunc and any(
        getattr(module, function.__name__, None) is function for module in (np, special)
    )


def _is_elementwise_transformer(step: Opaque) -> bool:
    functions = (step.func, step.inverse_func)
    return all(map(_is_elementwise, functions)) and not (step.kw_args or step.inv_kw_args)


def _checks_its_inverse(step: Opaque, _: Reports) -> bool:
    return step.check_inverse and step.func is not None and step.inverse_func is not None


def _checks_its_transformer(fitted: Opaque, _: Reports) -> bool:
    # Functions are checked by the FunctionTransformer that is made of them, which is a part.
    return fitted.check_inverse and fitted.transformer is not None


def _has_declared_categories(step: Opaque) -> bool:
    rare = (step.min_frequency, step.max_categories)
    return not isinstance(step.categories, str) and rare == (None, None)


def _warns_of_unknown_categories(step: Opaque, _: Reports) -> bool:
    return step.handle_unknown not in ("error", "ignore") or (
        step.handle_unknown == "ignore" and step.drop is not None
    )


def _fills_with_a_constant(step: Opaque) -> bool:
    # Without keep_empty_features a column is dropped if no row has it, and the indicator's columns
    # are those that lack in some row.
    return step.strategy == "constant" and step.keep_empty_features and not step.add_indicator


def _splits_text_itself(step: Opaque) -> bool:
    return not any(map(callable, (step.analyzer, step.tokenizer, step.preprocessor)))


def _has_a_vocabulary(step: Opaque) -> bool:
    return step.vocabulary is not None and _splits_text_itself(step)


def _may_skip_labels(fitted: Opaque, _: Reports) -> bool:
    """Whether targets are indicators, of labels that a single row may have, or one was skipped."""
    skipped = any(type(part).__name__ == _CONSTANT for part in fitted.estimators_)
    return skipped or fitted.multilabel_


def _ran_folds_unless_prefit(fitted: Opaque, _: Reports) -> bool:
    return not (isinstance(fitted.cv, str) and fitted.cv == "prefit")


def _repeats_rows(fitted: Opaque, _: Reports) -> bool:
    # Weights make some rows likelier to be drawn than an event states, and are kept, row by row.
    return fitted.bootstrap or getattr(fitted, "_sample_weight", None) is not None


def _n_rows_is_private(_: Opaque, reports: Reports) -> bool:
    return any(not check_relation(report.neighboring_relation).n_is_public for report in reports)


def _n_rows_is_read(_: Opaque, reports: Reports) -> bool:
    """Whether a fit takes its number of rows to be public: a declared one is held against it."""
    return any(check_relation(report.neighboring_relation).n_is_public for report in reports)


def _selector(columns: Any) -> bool:
    kind = type(columns)
    return (kind.__module__.partition(".")[0], kind.__name__) == ("sklearn", "make_column_selector")


def _asks_a_function_for_columns(fitted: Opaque, _: Reports) -> bool:
    return any(callable(columns) and not _selector(columns) for *_, columns in fitted.transformers)


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
    parts = (part for _, part in _columns(fitted))
    return fitted.sparse_threshold > 0 and (
        getattr(fitted, "sparse_output_", False) or any(map(_may_be_sparse, parts))
    )


# Parts of a fitted object: (name as in get_params, fitted part).


def _one(attribute: str, name: str = "estimator") -> Callable[[Opaque], Parts]:
    def parts(fitted: Opaque) -> Parts:
        part = getattr(fitted, attribute, None)
        return [] if part is None else [(name, part)]

    return parts


# Stands in where a label, or a bit of a class's code, has one value in all rows.
_CONSTANT = "_ConstantPredictor"


def _each(fitted: Opaque) -> Iterator[tuple[str, Opaque]]:
    for part in getattr(fitted, "estimators_", ()):
        if type(part).__name__ != _CONSTANT:
            yield "estimator", part


def _named(attribute: str) -> Callable[[Opaque], Parts]:
    def parts(fitted: Opaque) -> Iterator[tuple[str, Opaque]]:
        for name, part in getattr(fitted, attribute, ()):
            if part is not None and not isinstance(part, str):  # "passthrough" or "drop"
                yield name, part

    return parts


def _columns(fitted: Opaque) -> Iterator[tuple[str, Opaque]]:
    for name, part, columns in getattr(fitted, "transformers_", ()):
        # Without a column a step is kept as it came, unfitted.
        chosen = np.asarray(columns) if isinstance(columns, list | tuple | np.ndarray) else None
        empty = chosen is not None and (
            chosen.size == 0 or (chosen.dtype == bool and not chosen.any())
        )
        if not isinstance(part, str) and not empty:
            yield name, part


def _votes(fitted: Opaque) -> Parts:
    names = [name for name, part in fitted.estimators if not isinstance(part, str)]
    return zip(names, getattr(fitted, "estimators_", ()), strict=False)


def _stack(fitted: Opaque) -> Parts:
    return [*_votes(fitted), *_one("final_estimator_", "final_estimator")(fitted)]


def _target(fitted: Opaque) -> Parts:
    return [*_one("transformer_", "transformer")(fitted), *_one("regressor_", "regressor")(fitted)]


def _calibrated(fitted: Opaque) -> Parts:
    return [
        ("estimator", pair.estimator) for pair in getattr(fitted, "calibrated_classifiers_", ())
    ]


# Facts that are read from the data and taken to be public.


def _facts(*names: str) -> Callable[[Opaque], tuple[str, ...]]:
    return lambda fitted: names


def _column_types(fitted: Opaque) -> tuple[str, ...]:
    return ("column types",) if any(_selector(entry[2]) for entry in fitted.transformers) else ()


# The table.

DECLARE = "name it in public_steps if it read no private rows and maps each row by itself"

UNKNOWN = Rule("unknown", (Objection("skdp does not know what its fit reads", DECLARE),))

PREDICTOR = _leaks("was fitted without accounting", "use an estimator of skdp")

_PASSES = Rule("passes")

_FOLDS = "the fits of its folds are in no event"
_INVERSE = "checks the inverse on some rows, and warns by the outcome"
_DIRECTIONS = "DPPCA or GaussianRandomProjection(n_components=...)"
_CONSTANT_FILL = "SimpleImputer(strategy='constant', ...)"
_FEATURES = "RBFSampler(gamma=...)"
_EARLIER_FITS = "chose rows by earlier fits, which are in no event"
_LISTED = "categories=[[...], ...] without min_frequency and max_categories"
_SEEN = "handle_unknown='error', or 'ignore' without drop"

_ENCODES = _passes_if(
    _LISTED,
    _has_declared_categories,
    "learned the categories, or how frequent they are, from the rows",
)
_CHAIN = _composes(
    _each,
    Objection(_FOLDS, "use cv=None", lambda fitted, _: fitted.cv is not None),
    only_if="cv=None",
)
_BAGGING = _composes(
    _each,
    Objection(
        "repeats or weights rows, which is not what the event of a fit states",
        "use bootstrap=False without sample_weight",
        _repeats_rows,
    ),
    Objection(
        "keeps the number of rows, which is private under add_or_remove_one",
        "use neighboring_relation='zero_out' or 'replace_one'",
        _n_rows_is_private,
    ),
    only_if="bootstrap=False; it seeds its parts, though, and no seeded fit is a guarantee",
    facts=_facts("classes", "n_samples"),
)
_STACKING = _composes(
    _stack,
    Objection(_FOLDS, "use cv='prefit', or VotingClassifier", _ran_folds_unless_prefit),
    only_if="cv='prefit'",
)

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
    "SparseCoder": _passes_if(
        "transform_algorithm='threshold'",
        lambda step: step.transform_algorithm == "threshold",
        "warns of rows for which its solver stops early",
        needs_fit=False,
    ),
    "OneHotEncoder": _ENCODES.also(
        Objection(
            "warns of columns where a row has an unknown category",
            f"use {_SEEN}",
            _warns_of_unknown_categories,
        ),
        only_if=f"{_LISTED}; {_SEEN}",
    ),
    "OrdinalEncoder": _ENCODES,
    "SimpleImputer": _passes_if(
        "strategy='constant', keep_empty_features=True, add_indicator=False",
        _fills_with_a_constant,
        "learned from the rows what to fill in, or which columns lack values",
    ),
    "MissingIndicator": _passes_if(
        "features='all'",
        lambda step: step.features == "all",
        "learned from the rows which columns lack values",
    ),
    "FunctionTransformer": _passes_if(
        "no function, or one of NumPy or SciPy that maps numbers one by one, whose own warnings "
        "are the caller's to silence; check_inverse=False, or no inverse_func",
        _is_elementwise_transformer,
        "applies a function that may compute across rows",
        DECLARE,
    ).also(Objection(_INVERSE, "use check_inverse=False", _checks_its_inverse)),
    "RBFSampler": _passes_if(
        "a number for gamma",
        lambda step: not isinstance(step.gamma, str),
        "learned gamma from the variance of the rows",
    ),
    "GaussianRandomProjection SparseRandomProjection": _passes_if(
        "a number for n_components",
        lambda step: not isinstance(step.n_components, str),
        "took the number of components from the number of rows",
    ),
    "SplineTransformer": _passes_if(
        "an array of knots",
        lambda step: not isinstance(step.knots, str),
        "learned the knots from the rows",
    ),
    "HashingVectorizer": _passes_if(
        "no function of the caller's",
        _splits_text_itself,
        "calls a function on texts",
        DECLARE,
        needs_fit=False,
    ),
    "CountVectorizer": _passes_if(
        "vocabulary=[...], and no function of the caller's",
        _has_a_vocabulary,
        "learned the vocabulary from the rows, or calls a function on them",
    ),
    "TfidfVectorizer": _passes_if(
        "vocabulary=[...], use_idf=False, and no function of the caller's",
        lambda step: _has_a_vocabulary(step) and not step.use_idf,
        "learned the vocabulary or the frequencies of words from the rows",
    ),
    "TfidfTransformer": _passes_if(
        "use_idf=False",
        lambda step: not step.use_idf,
        "learned the frequencies of words from the rows",
    ),
    "MultiLabelBinarizer": _passes_if(
        "classes=[...] with every label, since it warns of others",
        lambda step: step.classes is not None,
        "learned the labels from the rows",
        "use classes=[...]",
    ),
    # Steps that hand rows on.
    "Pipeline": _composes(_named("steps")),
    "FeatureUnion": _composes(_named("transformer_list")),
    "ColumnTransformer": _composes(
        _columns,
        Objection(
            "asked a function of the rows for columns",
            "name the columns, or use make_column_selector",
            _asks_a_function_for_columns,
        ),
        Objection(
            "chose a sparse or a dense output by the zeros among the rows",
            "use sparse_threshold=0",
            _counts_zeros,
        ),
        only_if="columns named or of make_column_selector; sparse_threshold=0 where a part is "
        "sparse",
        facts=_column_types,
    ),
    "TransformedTargetRegressor": _composes(
        _target,
        Objection(_INVERSE, "use check_inverse=False", _checks_its_transformer),
        only_if="check_inverse=False, or neither func nor transformer",
    ),
    "FrozenEstimator": _composes(_one("estimator")),
    "FixedThresholdClassifier": _composes(_one("estimator_")),
    "MultiOutputClassifier MultiOutputRegressor": _composes(_each),
    "OneVsRestClassifier": _composes(
        _each,
        Objection(
            "fits no model of a label that no row has, or every row, and one row decides",
            "use MultiOutputClassifier for indicators, or else the estimator alone",
            _may_skip_labels,
        ),
        only_if="targets are labels, and not indicators",
        facts=_facts("classes"),
    ),
    "OutputCodeClassifier": _composes(_each, facts=_facts("classes")),
    "OneVsOneClassifier": _composes(
        _each,
        Objection(
            "the fit of a pair sees the rows of two classes, and so how many there are",
            "use neighboring_relation='add_or_remove_one', with n_samples of a pair",
            _n_rows_is_read,
        ),
        only_if="neighboring_relation='add_or_remove_one'",
        facts=_facts("classes"),
    ),
    "VotingClassifier": _composes(_votes, facts=_facts("classes")),
    "VotingRegressor": _composes(_votes),
    "SelectFromModel": _composes(
        _one("estimator_"),
        Objection(
            "asked a function of the rows for max_features",
            "use a number",
            lambda step, _: callable(step.max_features),
        ),
        only_if="max_features is no function",
    ),
    "ClassifierChain RegressorChain": _CHAIN,
    "BaggingClassifier": _BAGGING,
    "BaggingRegressor": replace(_BAGGING, facts=_facts("n_samples")),
    "StackingClassifier": _STACKING.also(
        Objection(
            "read from the rows which labels some row has",
            "use targets that are labels, and not indicators",
            lambda fitted, _: isinstance(fitted.classes_, list),
        ),
        only_if="cv='prefit', and targets are labels, and not indicators",
        facts=_facts("classes"),
    ),
    "StackingRegressor": _STACKING,
    # Steps that hand rows on and read them as well.
    "GridSearchCV RandomizedSearchCV HalvingGridSearchCV HalvingRandomSearchCV": _leaks(
        f"its scores are exact functions of the rows, and {_FOLDS}",
        "use DPRandomizedSearch",
        _one("best_estimator_"),
    ),
    "CalibratedClassifierCV": _leaks(
        "fitted its calibrators without accounting",
        "use skdp.calibration.DPTemperatureScaler",
        _calibrated,
    ),
    "TunedThresholdClassifierCV": _leaks(
        f"chose its threshold by scores of the rows, and {_FOLDS}",
        "use FixedThresholdClassifier",
        _one("estimator_"),
    ),
    "AdaBoostClassifier AdaBoostRegressor": _leaks(
        "weights rows by the errors made on them", "use VotingClassifier or VotingRegressor", _each
    ),
    "SelfTrainingClassifier": _leaks(
        _EARLIER_FITS, "fit the labelled rows alone", _one("estimator_")
    ),
    "RANSACRegressor": _leaks(
        _EARLIER_FITS, "fit a DP estimator, which clips outliers", _one("estimator_")
    ),
    "RFE RFECV SequentialFeatureSelector": _leaks(
        "chose features by fits or scores that are in no event",
        "use SelectFromModel(a DP estimator)",
        _one("estimator_"),
    ),
    # Steps that leak.
    "StandardScaler": _learned("mean and scale", "DPStandardScaler or BoundedScaler"),
    "MinMaxScaler MaxAbsScaler": _learned("ranges", "DPQuantileScaler or BoundedScaler"),
    "RobustScaler QuantileTransformer": _learned("quantiles", "DPQuantileScaler or BoundedScaler"),
    "PowerTransformer": _learned("exponents", "FunctionTransformer(numpy.log1p) and BoundedScaler"),
    "KBinsDiscretizer": _learned("the edges of its bins", "SplineTransformer(knots=[...])"),
    "KNNImputer": _leaks("keeps rows", f"use {_CONSTANT_FILL}"),
    "IterativeImputer": _leaks("fitted models of the columns to the rows", f"use {_CONSTANT_FILL}"),
    "TargetEncoder": _leaks(
        "learned the mean target of each category", "use OneHotEncoder(categories=[[...], ...])"
    ),
    "LabelEncoder LabelBinarizer": _leaks(
        "learned the labels from the rows", "declare classes=[...] in the estimator"
    ),
    "DictVectorizer": _learned("the names of features", "FeatureHasher"),
    _DECOMPOSES: _learned("components", _DIRECTIONS),
    _DISCRIMINATES: _leaks("learned directions from rows and targets", f"use {_DIRECTIONS}"),
    "Isomap LocallyLinearEmbedding SpectralEmbedding TSNE MDS ClassicalMDS": _learned(
        "an embedding", _DIRECTIONS
    ),
    "Nystroem": _leaks("keeps rows", f"use {_FEATURES}"),
    "KernelCenterer": _learned("a mean", _FEATURES),
    _KEEPS_ROWS: _leaks("keeps rows", f"use a step that passes, such as {_FEATURES}"),
    _CLUSTERS: _learned("clusters", "a step that passes"),
    _COVARIANCES: _learned("a covariance", "a step that passes"),
    "RandomTreesEmbedding": _learned("trees", _FEATURES),
    _CHOOSES_FEATURES: _leaks(
        "chose features by the rows",
        "choose them without the rows, or SelectFromModel(a DP estimator)",
    ),
    "PatchExtractor": _leaks(
        "makes many rows of one, which is not what later events state", "cut beforehand"
    ),
}

RULES: dict[tuple[str, str], Rule] = {
    ("skdp", "AdditiveFeatures"): _PASSES,
    ("skdp", "BoundedScaler"): _PASSES,
    ("skdp", "NormClipper"): _PASSES,
    ("skdp", "GaborTransformer"): _PASSES,
    ("skdp", "ScatteringTransformer"): _PASSES,
    ("skdp", "RowWise"): _composes(_one("transformer_", "transformer")),
    # Its fit is that of scikit-learn's; samplers among its steps are unknown, as they must be.
    ("imblearn", "Pipeline"): _composes(_named("steps")),
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


def as_markdown() -> str:
    """Write the table of verdicts, one class per line."""
    lines = ["| class | verdict | if, or use instead |", "|---|---|---|"]
    for (package, name), rule in RULES.items():
        said = f"leaks: {rule.objections[0].reads}" if rule.always_leaks else rule.verdict
        instead = rule.objections[0].instead if rule.always_leaks else rule.only_if
        prefix = "" if package == "sklearn" else f"{package}: "
        condition = instead if rule.always_leaks or not instead else f"if {instead}"
        lines.append(f"| {prefix}`{name}` | {said} | {condition} |")
    reads, instead = PREDICTOR.objections[0][:2]
    lines.append(f"| any other predictor of scikit-learn | leaks: {reads} | {instead} |")
    reads, instead = UNKNOWN.objections[0][:2]
    lines.append(f"| any other class | unknown: {reads} | {instead} |")
    return "\n".join(lines) + "\n"
