"""Scalers and linear models in ONNX: a fitted pipeline that predicts without Python.

`to_onnx` teaches skl2onnx these classes, and has it convert the rest of a pipeline. What is
computed is what ``transform``, ``predict_proba`` and ``predict`` compute, in double precision:
class probabilities are averaged over the posterior, by other nodes than in Python, and agree
within 1e-7. Install ``skdp[onnx]``.

An ONNX file holds no privacy statement. `to_onnx` writes it into the metadata of the model, under
``privacy``, as JSON.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, is_classifier

from skdp._validate import expected
from skdp.estimators import (
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    OPSPosteriorSampler,
    OPSRegressor,
)
from skdp.models.likelihoods import HERMITE
from skdp.preprocessing import (
    DPPCA,
    BoundedScaler,
    DPQuantileScaler,
    DPStandardScaler,
    NormClipper,
)
from skdp.preprocessing.bounded_scaler import middle_and_half
from skdp.privacy import privacy_of

__all__ = ["to_onnx"]


def to_onnx(fitted: Any, X: Any, **options: Any) -> Any:
    """Convert a fitted estimator or pipeline to ONNX, its privacy statement in the metadata.

    Parameters
    ----------
    fitted : estimator
        A scaler, a linear model of classes, numbers or counts, or a pipeline of these and of what
        skl2onnx knows.
    X : array-like of shape (n, n_features)
        Rows that show the types of the columns; their values are not looked at. In double
        precision the model predicts as Python does.
    **options : object
        For ``skl2onnx.to_onnx``.

    Returns
    -------
    onnx.ModelProto
        Outputs are labels and probabilities, or means. Write it with ``SerializeToString()``.

    Raises
    ------
    ValueError
        If `DPVariationalLogisticRegression` has more than two classes: their probabilities take an
        eigendecomposition per row, which ONNX does not have. `OPSPosteriorSampler` has no such
        limit.
    ImportError
        If skl2onnx is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import BoundedScaler
    >>> from skdp.onnx import to_onnx
    >>> model = to_onnx(BoundedScaler(0, 10).fit([[1.0]]), np.zeros((1, 1)))  # doctest: +SKIP
    """
    skl2onnx: Any = import_module("skl2onnx")
    _register(skl2onnx)
    if is_classifier(fitted):
        options.setdefault("options", {"zipmap": False})
    model = skl2onnx.to_onnx(fitted, X, **options)
    entry = model.metadata_props.add()
    entry.key, entry.value = "privacy", privacy_of(fitted).to_json()
    return model


class _Graph:
    """A converter at work: operations on the input of one step, in double precision."""

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self._kinds: Any = import_module("skl2onnx.algebra.onnx_ops")
        self._write, self._opset = (scope, container), container.target_opset
        self._outputs, self.step = operator.outputs, operator.raw_operator
        self._double = type(operator.inputs[0].type).__name__ == "DoubleTensorType"
        self.X = self("Cast", operator.inputs[0], to=_DOUBLE)

    def __call__(self, operation: str, *inputs: Any, **attributes: Any) -> Any:
        """Add one operation; a float is a constant."""
        given = [np.array([x]) if isinstance(x, float) else x for x in inputs]
        return getattr(self._kinds, f"Onnx{operation}")(
            *given, op_version=self._opset, **attributes
        )

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
        norm, bounds = self.step.data_norm_, getattr(self.step, "bounds_", None)
        rows = self.X if norm == np.inf else self.clipped(norm)
        if bounds is not None:
            rows = self("Min", self("Max", rows, bounds[:, 0]), bounds[:, 1])
        if n_columns == self.step.n_features_in_:
            return rows
        one = self("Add", self("Mul", self.total(rows), 0.0), 1.0)
        return self("Concat", rows, one, axis=1)

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


def _clipper(g: _Graph) -> None:
    g.numbers(0, g.clipped(g.step.output_norm_))


def _pca(g: _Graph) -> None:
    g.numbers(0, g("MatMul", g.clipped(g.step.data_norm_), g.step.components_.T))


def _logistic(g: _Graph) -> None:
    if len(g.step.classes_) > 2:
        raise expected("two, for ONNX", "OPSPosteriorSampler takes more", classes=g.step.classes_)
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


def _linear(g: _Graph) -> None:
    _line(g, g.step._posterior.mean[0, :-1])


def _sampled_line(g: _Graph) -> None:
    _line(g, g.step._samples.mean(axis=0)[0])


def _sampled_classes(g: _Graph) -> None:
    m, K, D = g.step._samples.shape
    logits = g("MatMul", g.rows(D), g.step._samples.reshape(m * K, D).T)
    if K > 1:
        each = g("Softmax", g("Reshape", logits, np.array([-1, m, K])), axis=2)
        return g.classes(g("ReduceMean", each, np.array([1]), keepdims=0))
    share = np.full((m, 1), 1 / m)
    sides = [g("MatMul", g("Sigmoid", z), share) for z in (g("Neg", logits), logits)]
    return g.classes(g("Concat", *sides, axis=1))


_DOUBLE, _FLOAT = 11, 1  # numbers of types in ONNX
_CONVERTERS = {
    BoundedScaler: _bounded,
    DPStandardScaler: _standard,
    DPQuantileScaler: _quantiles,
    NormClipper: _clipper,
    DPPCA: _pca,
    DPVariationalLogisticRegression: _logistic,
    DPVariationalLinearRegression: _linear,
    DPVariationalPoissonRegression: _poisson,
    OPSPosteriorSampler: _sampled_classes,
    OPSRegressor: _sampled_line,
}


def _columns_out(operator: Any) -> None:
    """Say how many columns a transformer has, or a regressor."""
    types: Any = import_module("skl2onnx.common.data_types")
    given, step = operator.inputs[0].type, operator.raw_operator
    double = isinstance(given, types.DoubleTensorType)
    kind = types.DoubleTensorType if double else types.FloatTensorType
    n = len(step.get_feature_names_out()) if hasattr(step, "transform") else 1
    operator.outputs[0].type = kind([given.shape[0], n])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    _CONVERTERS[type(operator.raw_operator)](_Graph(scope, operator, container))


def _register(skl2onnx: Any) -> None:
    """Teach skl2onnx these classes."""
    known: Any = import_module("skl2onnx.common.shape_calculator")
    for kind in _CONVERTERS:
        shapes, options = _columns_out, None
        if issubclass(kind, ClassifierMixin):
            shapes = known.calculate_linear_classifier_output_shapes
            options = {"zipmap": [True, False], "nocl": [True, False]}
        name = f"Skdp{kind.__name__}"
        skl2onnx.update_registered_converter(
            kind, name, shapes, _convert, overwrite=True, options=options
        )
