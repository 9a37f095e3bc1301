"""Scalers, linear and additive models in ONNX: a fitted pipeline that predicts without Python.

`to_onnx` teaches skl2onnx (``skdp[onnx]``) these classes, and has it convert the rest of a
pipeline. The model computes what ``transform``, ``predict_proba`` and ``predict`` do, in double
precision: class probabilities are averaged over the posterior by other nodes, and agree within
1e-7. An ONNX file holds no privacy statement, so `to_onnx` writes it into the model's metadata,
under ``privacy``, as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.utils.validation import check_is_fitted

from skdp import estimators
from skdp import preprocessing as steps
from skdp.fitting.validate import expected
from skdp.models.additive import Additive, Category, Number
from skdp.models.likelihoods import HERMITE
from skdp.preprocessing.bounded_scaler import middle_and_half
from skdp.privacy import privacy_of

__all__ = ["to_onnx"]


def to_onnx(fitted: Any, X: Any, **options: Any) -> Any:
    """Convert a fitted estimator or pipeline to ONNX, its privacy statement in the metadata.

    Parameters
    ----------
    fitted : estimator
        A scaler, bins, a linear or additive model of classes, numbers or counts, or a pipeline of
        these and of what skl2onnx knows.
    X : array-like of shape (n, n_features)
        Rows that show the types of the columns; their values are not looked at. In double
        precision the model predicts as Python does. Of a frame each column is an input.
    **options : object
        For ``skl2onnx.to_onnx``.

    Returns
    -------
    onnx.ModelProto
        Outputs are labels and probabilities, or means. Write it with ``SerializeToString()``.

    Raises
    ------
    ValueError
        If a part is of a class of skdp that is not converted, which the message names; or if
        `DPVariationalLogisticRegression` or `DPAdditiveClassifier` has more than two classes: their
        probabilities take an eigendecomposition per row, which ONNX does not have.
        `OPSPosteriorSampler` has no such limit.
    NotFittedError
        If it is not fitted.
    ImportError
        If skl2onnx is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import BoundedScaler
    >>> from skdp.onnx import to_onnx
    >>> model = to_onnx(BoundedScaler(0, 10).fit([[1.0]]), np.zeros((1, 1)))  # doctest: +SKIP
    """
    for part in (fitted, *getattr(fitted, "get_params", dict)().values()):
        _refuse(part)
    check_is_fitted(fitted)
    if hasattr(X, "columns") and hasattr(fitted, "feature_names_in_"):
        X = X[list(fitted.feature_names_in_)]  # inputs are told apart by their order
    skl2onnx: Any = import_module("skl2onnx")
    _register(skl2onnx)
    if is_classifier(fitted):
        options.setdefault("options", {"zipmap": False})
    model = skl2onnx.to_onnx(fitted, X, **options)
    entry = model.metadata_props.add()
    entry.key, entry.value = "privacy", privacy_of(fitted).to_json()
    return model


def _refuse(part: Any) -> None:
    """Refuse an estimator of this package that is not converted, by its class."""
    ours = type(part).__module__.startswith("skdp.") and isinstance(part, BaseEstimator)
    if ours and type(part) not in _CONVERTERS:
        remedy = f"these are: {', '.join(sorted(kind.__name__ for kind in _CONVERTERS))}"
        if hasattr(part, "module_"):
            remedy = "export its network by torch.onnx.export(fitted.module_, ...), or " + remedy
        raise expected("of a class that is converted to ONNX", remedy, fitted=part)


class _Graph:
    """A converter at work: operations on the input of one step, in double precision."""

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self._kinds: Any = import_module("skl2onnx.algebra.onnx_ops")
        self._write, self._opset = (scope, container), container.target_opset
        self._inputs, self._outputs = operator.inputs, operator.outputs
        self.step, self._double = operator.raw_operator, _is_double(operator)

    @cached_property
    def X(self) -> Any:
        """All columns, as numbers."""
        columns = [self("Cast", given, to=_DOUBLE) for given in self._inputs]
        return self("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]

    def __call__(self, operation: str, *inputs: Any, **attributes: Any) -> Any:
        """Add one operation; a float is a constant."""
        given = [np.array([x]) if isinstance(x, float) else x for x in inputs]
        attributes.setdefault("op_version", self._opset)
        return getattr(self._kinds, f"Onnx{operation}")(*given, **attributes)

    def numbers(self, place: int, value: Any) -> None:
        """Make numbers an output, of the precision of the input."""
        to, outputs = _DOUBLE if self._double else _FLOAT, self._outputs[place : place + 1]
        self("Cast", value, to=to, output_names=outputs).add_to(*self._write)

    def classes(self, probabilities: Any) -> None:
        """Make the most probable class and all probabilities the outputs."""
        at = self("ArgMax", probabilities, axis=1, keepdims=0)
        labels = self.step.classes_
        labels = labels.astype(np.int64) if labels.dtype.kind in "iub" else labels.astype(str)
        label = self("ArrayFeatureExtractor", labels, at)
        flat = self("Reshape", label, np.array([-1]), output_names=self._outputs[:1])
        flat.add_to(*self._write)
        self.numbers(1, probabilities)

    def clipped(self, norm: float) -> Any:
        """Rows scaled down to a norm, and without an end."""
        norms = self("Sqrt", self.total(self("Mul", self.X, self.X)))
        return self("Mul", self.X, self("Div", float(norm), self("Max", norms, float(norm))))

    def total(self, X: Any) -> Any:
        """Sums over the columns."""
        return self("ReduceSum", X, np.array([1]), keepdims=1)

    def rows(self, n_columns: int) -> Any:
        """Rows of a linear model, with the intercept's 1 if it has one."""
        model: Additive | None = getattr(self.step, "_model", None)
        if model is not None:
            n_own, rows = model.size, self.features(model)
        else:
            norm, bounds = self.step.data_norm_, getattr(self.step, "bounds_", None)
            n_own, rows = self.step.n_features_in_, self.X if norm == np.inf else self.clipped(norm)
            if bounds is not None:
                rows = self("Min", self("Max", rows, bounds[:, 0]), bounds[:, 1])
        if n_columns == n_own:
            return rows
        one = self("Add", self("Mul", self.total(rows), 0.0), 1.0)
        return self("Concat", rows, one, axis=1)

    def features(self, model: Additive) -> Any:
        """Rows of an additive model."""
        codes = self.codes(model.columns, self.step._keys)
        for pair in model.pairs:
            a, b = (codes[place] for place in pair.places)
            codes.append(self("Add", self("Mul", a, np.array([pair.shape[1] + 1])), b))
        return self.looked_up([part.table for part in model.parts], codes)

    def looked_up(self, tables: list[np.ndarray], codes: list[Any]) -> Any:
        """Rows of tables, side by side."""
        pairs = zip(tables, codes, strict=True)
        return self("Concat", *(self("Gather", t, c) for t, c in pairs if t.shape[1]), axis=1)

    def codes(self, columns: Sequence[Number | Category], keys: Iterable[Any]) -> list[Any]:
        """Bins or levels (n,) of columns, by name or position; what is missing comes last."""
        names = list(getattr(self.step, "feature_names_in_", ()))
        places = (names.index(key) if key in names else int(key) for key in keys)
        return [self.code(c, place) for c, place in zip(columns, places, strict=True)]

    def code(self, column: Number | Category, place: int) -> Any:
        """Those of one column; of text the level, of numbers by comparisons as doubles."""
        single = len(self._inputs) == 1
        values: Any = self._inputs[0 if single else place]
        text = type(values.type).__name__ == "StringTensorType"
        values = self("Gather", values, np.array([place]), axis=1) if single else values
        last = len(column.table) - 1
        if isinstance(column, Category) and text:
            codes = {level: i for i, level in enumerate(column.levels) if isinstance(level, str)}
            keys = {"keys_strings": list(codes), "values_int64s": list(codes.values())}
            found = self("LabelEncoder", values, default_int64=last, op_version=2, **keys)
        elif isinstance(column, Category):
            levels = [math.nan if isinstance(x, str) else float(x) for x in column.levels]
            equal = self("Equal", self("Cast", values, to=_DOUBLE), np.array([levels]))
            at = np.arange(-last, 0.0)[:, None]
            from_last = self("MatMul", self("Cast", equal, to=_DOUBLE), at)
            found = self("Add", from_last, float(last))
        else:
            values = self("Cast", values, to=_DOUBLE)
            inner = np.array([[*column.edges[1:-1], math.nan]])  # which nothing is above
            above = self("Cast", self("GreaterOrEqual", values, inner), to=_DOUBLE)
            found = self("Where", self("IsNaN", values), float(last), self.total(above))
        return self("Reshape", self("Cast", found, to=_INTEGER), np.array([-1]))

    def logits_at_nodes(self) -> tuple[Any, np.ndarray]:
        """Logits of a normal posterior at the nodes of a quadrature, (n, 32), and its weights."""
        posterior = self.step._posterior
        rows = self.rows(posterior.mean.shape[1])
        mean = self("MatMul", rows, posterior.mean.T)
        seen = np.diag(posterior.seen**2) if posterior.seen.ndim == 1 else posterior.seen
        variance = self.total(self("Mul", self("MatMul", rows, seen), rows))
        deviation = self("Sqrt", self("Max", variance, 0.0))
        nodes, weights = (np.array([column]) for column in zip(*HERMITE, strict=True))
        return self("Add", mean, self("Mul", deviation, nodes)), weights.T


def _bounded(g: _Graph) -> None:
    middle, half = middle_and_half(g.step.lower_, g.step.upper_)
    g.numbers(0, g("Clip", g("Div", g("Sub", g.X, middle), half), np.array(-1.0), np.array(1.0)))


def _quantiles(g: _Graph) -> None:
    g.X = g("Where", g("IsNaN", g.X), middle_and_half(g.step.lower_, g.step.upper_)[0], g.X)
    _bounded(g)


def _standard(g: _Graph) -> None:
    within = g("Min", g("Max", g.X, g.step.lower_), g.step.upper_)
    rows = g("Div", g("Sub", within, g.step.mean_), g.step.scale_)
    g.X = g("Where", g("IsNaN", g.X), 0.0, rows)
    g.numbers(0, g.clipped(g.step.output_norm_))


def _bins(g: _Graph) -> None:
    columns = g.step._columns(range(len(g.step.bin_edges_)))
    tables = [np.eye(len(column.table)) for column in columns]
    if g.step._encode != "onehot":
        tables = [np.arange(len(column.table), dtype=np.float64)[:, None] for column in columns]
    g.numbers(0, g.looked_up(tables, g.codes(columns, range(len(columns)))))


def _logistic(g: _Graph) -> None:
    if len(g.step.classes_) > 2:
        must = f"two, for {type(g.step).__name__} in ONNX"
        raise expected(must, "OPSPosteriorSampler takes more", classes=g.step.classes_)
    logits, weights = g.logits_at_nodes()
    sides = [g("MatMul", g("Sigmoid", z), weights) for z in (g("Neg", logits), logits)]
    g.classes(g("Concat", *sides, axis=1))


def _poisson(g: _Graph) -> None:
    logits, weights = g.logits_at_nodes()
    largest = math.log(g.step._likelihood.largest_count)
    g.numbers(0, g("MatMul", g("Exp", g("Min", logits, largest)), weights))


def _line(g: _Graph, theta: np.ndarray) -> None:
    line = g("MatMul", g.rows(len(theta)), theta[:, None])
    g.numbers(0, g("Add", g("Mul", line, float(g.step._half_width)), float(g.step._center)))


def _sampled_classes(g: _Graph) -> None:
    m, K, D = g.step._samples.shape
    logits = g("MatMul", g.rows(D), g.step._samples.reshape(m * K, D).T)
    if K > 1:
        each = g("Softmax", g("Reshape", logits, np.array([-1, m, K])), axis=2)
        return g.classes(g("ReduceMean", each, np.array([1]), keepdims=0))
    share = np.full((m, 1), 1 / m)
    sides = [g("MatMul", g("Sigmoid", z), share) for z in (g("Neg", logits), logits)]
    return g.classes(g("Concat", *sides, axis=1))


_DOUBLE, _FLOAT, _INTEGER = 11, 1, 7  # numbers of types in ONNX

_CONVERTERS = {
    steps.BoundedScaler: _bounded,
    steps.DPStandardScaler: _standard,
    steps.DPQuantileScaler: _quantiles,
    steps.NormClipper: lambda g: g.numbers(0, g.clipped(g.step.output_norm_)),
    steps.DPPCA: lambda g: g.numbers(
        0, g("MatMul", g.clipped(g.step.data_norm_), g.step.components_.T)
    ),
    steps.DPBins: _bins,
    steps.AdditiveFeatures: lambda g: g.numbers(
        0, g.looked_up(g.step._tables, g.codes(g.step._model.columns, g.step._keys))
    ),
    estimators.DPAdditiveClassifier: _logistic,
    estimators.DPAdditiveRegressor: lambda g: _line(g, g.step._posterior.mean[0, :-1]),
    estimators.DPAdditivePoissonRegressor: _poisson,
    estimators.DPVariationalLogisticRegression: _logistic,
    estimators.DPVariationalLinearRegression: lambda g: _line(g, g.step._posterior.mean[0, :-1]),
    estimators.DPVariationalPoissonRegression: _poisson,
    estimators.OPSPosteriorSampler: _sampled_classes,
    estimators.OPSRegressor: lambda g: _line(g, g.step._samples.mean(axis=0)[0]),
}


def _is_double(operator: Any) -> bool:
    """Whether outputs are doubles: where a column is, or text."""
    kinds = {type(given.type).__name__ for given in operator.inputs}
    return not kinds.isdisjoint({"DoubleTensorType", "StringTensorType"})


def _types_out(operator: Any) -> None:
    """Say what the outputs are, and how many columns they have."""
    types: Any = import_module("skl2onnx.common.data_types")
    step, rows = operator.raw_operator, operator.inputs[0].type.shape[0]
    kind = types.DoubleTensorType if _is_double(operator) else types.FloatTensorType
    n = len(step.get_feature_names_out()) if hasattr(step, "transform") else 1
    if is_classifier(step):
        whole, n = step.classes_.dtype.kind in "iub", len(step.classes_)
        label = types.Int64TensorType if whole else types.StringTensorType
        operator.outputs[0].type = label([rows])
    operator.outputs[-1].type = kind([rows, n])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    _CONVERTERS[type(operator.raw_operator)](_Graph(scope, operator, container))


def _register(skl2onnx: Any) -> None:
    """Teach skl2onnx these classes."""
    of_classes = {"zipmap": [True, False], "nocl": [True, False]}
    for kind in _CONVERTERS:
        options = of_classes if issubclass(kind, ClassifierMixin) else None
        skl2onnx.update_registered_converter(
            kind, f"Skdp{kind.__name__}", _types_out, _convert, overwrite=True, options=options
        )
