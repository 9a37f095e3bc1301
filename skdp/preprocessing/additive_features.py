"""`AdditiveFeatures`: public bins, levels, waves or splines of columns, for any linear model."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import SplineTransformer
from sklearn.utils.validation import check_is_fitted

from skdp.fitting.tables import check_columns
from skdp.fitting.validate import integer, one_of
from skdp.models.additive import Additive, Category, Number
from skdp.rows.columns import DeclaredColumns
from skdp.rows.lazy_rows import RowByRow, is_lazy, learned

ENCODINGS = ("waves", "splines", "onehot")


@dataclass(eq=False, repr=False)
class AdditiveFeatures(DeclaredColumns, RowByRow, TransformerMixin, BaseEstimator):
    """Expand columns into public features of their bins and levels.

    A linear model of these features is an additive model: one curve per column. The features are
    those of `DPAdditiveClassifier`, or B-splines, or one column per bin, and a missing value has a
    feature of its own.

    **Privacy.** No cost: `fit` reads the names and the number of columns, and learns nothing from
    the rows. Bounds, edges and levels are public facts, and must not be computed from the data.

    Parameters
    ----------
    bounds : dict, or pair, or sequence of pairs, or None, default=None
        Public lower and upper bound of columns of numbers, by name or by position, a pair for all
        or one per column. Values beyond count as the bound. Every column of X is in ``bounds``,
        ``edges`` or ``categories``; where all three are None, numbers are in [-1, 1].
    edges : dict, or sequence, or None, default=None
        Public ascending edges of the bins of columns of numbers, instead of bounds.
    categories : dict, or sequence, or None, default=None
        Public levels of columns of categories, one feature each: 1 for the level and 0 for others,
        with ``"waves"`` less 1 over the number of levels. Undeclared levels share one with missing
        values.
    n_bins : int, default=32
        Bins ≥ 2 of equal width between bounds.
    encode : {"waves", "splines", "onehot"}, default="waves"
        Features of a number: a trend and waves, see `skdp.models.additive`; cubic B-splines at
        the middles of bins; or one column per bin.
    n_basis : int, default=8
        Number of waves ≥ 1, of which there are at most two fewer than bins, or of splines ≥ 4. Not
        used with ``"onehot"``.

    Attributes
    ----------
    output_norm_ : float
        Largest norm of a row of the output: no row is longer, and one is as long. Estimators of
        skdp know it; give it to others, as ``data_norm`` for instance.
    n_features_in_, feature_names_in_
        Number of columns, and their names, where X had any.

    See Also
    --------
    DPAdditiveClassifier : Chooses the number of waves by rows and budget, and has bands.
    DPBins : Edges by private quantiles.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.preprocessing import AdditiveFeatures
    >>> features = AdditiveFeatures(edges=[[0, 1, 5]], encode="onehot").fit([[0.5]])
    >>> features.transform([[0.5], [7.0], [np.nan]])
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    >>> features.get_feature_names_out().tolist()
    ['x0: bin 1', 'x0: bin 2', 'x0: missing']
    >>> features.output_norm_
    1.0
    """

    _: KW_ONLY
    bounds: Any = None
    edges: Any = None
    categories: Any = None
    n_bins: int = 32
    encode: str = "waves"
    n_basis: int = 8

    def fit(self, X, y=None) -> AdditiveFeatures:
        """Check what is declared against the columns, which are all that is looked at."""
        if is_lazy(X):
            return learned(self, X)
        one_of(ENCODINGS, encode=self.encode)
        n_basis = integer(4 if self.encode == "splines" else 1, n_basis=self.n_basis)
        columns = check_columns(self, X, reset=True)
        self._keys = list(self._declared(self.n_features_in_))
        declared = [*self._columns(self.n_features_in_)]
        for i, column in enumerate(declared):
            if isinstance(column, Number):
                declared[i] = replace(column, n_waves=min(n_basis, column.waves.shape[1]))
        self._model = Additive(tuple(declared))
        self._codes(columns, self._keys, self._model, fit=True)
        tables = [features(column, self.encode, n_basis) for column in self._model.columns]
        self._names = [name for names, _ in tables for name in names]
        self._tables = [table for _, table in tables]
        return self

    @property
    def output_norm_(self) -> float:
        """Largest norm of a row."""
        check_is_fitted(self)
        return math.hypot(*(np.linalg.norm(table, axis=1).max() for table in self._tables))

    def transform(self, X) -> np.ndarray:
        """Return the features of each row, those of each column in turn."""
        check_is_fitted(self)
        codes = self._codes(check_columns(self, X, reset=False), self._keys, self._model)
        return looked_up(self._tables, codes)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Return the names of the features; those of the input are of the fit."""
        check_is_fitted(self)
        return np.asarray(self._names, dtype=object)


def features(column: Number | Category, encode: str, n_basis: int) -> tuple[list[str], np.ndarray]:
    """Names of the features of a column, and their values for each code."""
    if encode == "waves":
        return list(column.names), column.table
    if isinstance(column, Category):
        return list(column.names), np.eye(len(column.table))
    if encode == "onehot":
        found, kind = np.eye(column.n_bins), "bin"
    else:
        # Knots so that there are as many splines as asked for, of places in [0, 1].
        knots: Any = np.linspace(0.0, 1.0, n_basis - 2)[:, None]
        splines = SplineTransformer(knots=knots)
        places = (np.arange(column.n_bins) + 0.5) / column.n_bins
        found, kind = splines.fit_transform(places[:, None]), "spline"
    table = np.zeros((column.n_bins + 1, found.shape[1] + 1))
    table[:-1, :-1], table[-1, -1] = found, 1.0
    names = [f"{column.name}: {kind} {k}" for k in range(1, found.shape[1] + 1)]
    return [*names, f"{column.name}: missing"], table


def looked_up(tables: list[np.ndarray], codes: np.ndarray) -> np.ndarray:
    """Rows of tables by the codes (n, columns) of each column, side by side."""
    return np.hstack([table[code] for table, code in zip(tables, codes.T, strict=True)])
