"""`DPBins`: bins between private quantiles, about as many rows in each."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skdp.algorithms.quantiles import BinsConfig, QuantilesConfig
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.validate import expected, in_range, integer, one_of
from skdp.models.additive import Number
from skdp.preprocessing._base import QuantileScaler
from skdp.preprocessing.additive_features import features, looked_up
from skdp.privacy.budget import Budget

ENCODINGS, MOST_BINS = ("onehot", "ordinal"), 1024


@dataclass(eq=False, repr=False)
class DPBins(QuantileScaler):
    """Cut each feature at private quantiles into bins that hold about as many rows each.

    For features of unknown distribution, before a linear model or a model of trees. Bounds may be
    absurdly wide: their width costs its logarithm. Missing values (NaN) count nowhere in `fit`, and
    are a bin of their own in `transform`.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all of its attributes together. The ``unit`` is a row, or a person with all of its rows. The
    number of rows is never read. The guarantee covers one fit; each further fit on the same rows is
    a further release. It is *not* one for a seeded fit. `transform` works on each row by itself
    with released numbers; what it returns are rows, as private as those that went in.

    Parameters
    ----------
    lower, upper : float or array-like of shape (n_features,), default=-1e9 and 1e9
        Declared bounds of the features, public, finite, lower < upper. A number holds for every
        feature.
    n_bins : int, default=16
        Bins of each feature, from 2 to 1024. Twice as many cost one level more.
    encode : {"onehot", "ordinal"}, default="onehot"
        One column per bin and one for what is missing, or the number of the bin from 0, with
        ``n_bins`` for what is missing.
    epsilon : float or None, default=0.5
        ε > 0 of all edges together. ``float("inf")`` takes ordinary quantiles, without privacy.
        None with ``quantile_epsilon``.
    delta : float, default=1e-5
        δ in [0, 1); should be well below 1/n. 0 is pure differential privacy.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    unit : "row" or Persons, default="row"
        As of `DPStandardScaler`. A person's values share the weight of one.
    resolution : float, default=1e-6
        As of `DPQuantileScaler`.
    quantile_epsilon : float or None, default=None
        ε > 0 of one level of a feature, instead of ``epsilon`` (pass ``epsilon=None``); the report
        then accounts for what was spent.
    random_state : int, RandomState instance or None, default=None
        As of `DPStandardScaler`.

    Attributes
    ----------
    bin_edges_ : ndarray of shape (n_features, n_bins + 1)
        Edges of the bins, ascending: the declared bounds, and private quantiles between them. A
        value at an edge is in the bin above; between two equal edges is nothing.
    output_norm_ : float
        Largest norm of a row of the output: √n_features of one-hot bins.
    quantile_epsilon_ : float
        ε of one level of a feature; infinite without privacy.
    privacy_, diagnostics_, n_features_in_, feature_names_in_
        As of `DPStandardScaler`.

    See Also
    --------
    AdditiveFeatures : Bins by declared bounds or edges, at no privacy cost.
    DPQuantileScaler : Two quantiles of each feature, and its Notes on the axis and the account.

    Notes
    -----
    *Levels.* The median of a feature comes first, then the medians of both halves, and so on: ⌈log₂
    n_bins⌉ levels, each one release of ``quantile_epsilon_`` (Kaplan, Schnapp & Stemmer 2022),
    where n_bins - 1 edges one after the other would be that many. A record is in one of the cells
    of a level, and a person's values have weights that add up to 1 over all cells, so the answers
    of a level together cost what one costs; where records are replaced, each cell has half of it
    (`skdp.mechanisms.quantile.split` has the proof). Where an edge is found again, many rows share
    its value, and further edges are found among the other rows. Bins are about even where
    quantile_epsilon · n/n_bins is well above 10.

    References
    ----------
    H. Kaplan, S. Schnapp, U. Stemmer, *Differentially Private Approximate Quantiles*, ICML 2022.

    Examples
    --------
    >>> from skdp.preprocessing import DPBins
    >>> X = [[float(x)] for x in range(101)]
    >>> bins = DPBins(0, 100, n_bins=4, epsilon=float("inf")).fit(X)
    >>> bins.bin_edges_
    array([[  0.,  25.,  50.,  75., 100.]])
    >>> bins.transform([[30.0], [1e6], [float("nan")]])
    array([[0., 1., 0., 0., 0.],
           [0., 0., 0., 1., 0.],
           [0., 0., 0., 0., 1.]])
    """

    _: KW_ONLY
    n_bins: int = 16
    encode: str = "onehot"

    def _configure(self, facts: PublicFacts, budget: Budget) -> QuantilesConfig:
        one_of(ENCODINGS, encode=self.encode)
        n_bins = integer(2, n_bins=self.n_bins)
        if n_bins > MOST_BINS:
            raise expected(f"at most {MOST_BINS}", n_bins=n_bins)
        lower, upper = self._range(facts)
        return BinsConfig(
            lower=lower,
            upper=upper,
            shares=tuple(k / n_bins for k in range(1, n_bins)),
            unit=in_range(1e-100, 1e100, resolution=self.resolution),
            neighboring_relation=self._relation,
        ).calibrated(budget)

    def _keep(self, plan: FitPlan, released: np.ndarray) -> None:
        config = plan.config
        self.bin_edges_ = np.vstack([config.lower, np.sort(released, axis=0), config.upper]).T
        self.quantile_epsilon_ = config.epsilon
        n_bins, d = released.shape[0] + 1, len(self.bin_edges_)
        self._encode = self.encode  # of the fit, whatever the parameter is by now
        self.output_norm_ = d**0.5 * (1 if self._encode == "onehot" else n_bins)

    def _columns(self, names: Any) -> list[Number]:
        pairs = zip(names, self.bin_edges_.tolist(), strict=True)
        return [Number(str(name), tuple(edges)) for name, edges in pairs]

    def transform(self, X) -> np.ndarray:
        """Return the bins of each row, one-hot or numbered; NaN is a bin of its own."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        columns = self._columns(range(X.shape[1]))
        codes = np.stack([c.codes(x) for c, x in zip(columns, X.T, strict=True)], axis=1)
        if self._encode == "onehot":
            codes = looked_up([features(column, "onehot", 0)[1] for column in columns], codes)
        return codes.astype(X.dtype, copy=False)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Return the names of the columns of the output."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        if self._encode == "onehot":
            names = [n for c in self._columns(names) for n in features(c, "onehot", 0)[0]]
        return np.asarray(names, dtype=object)
