"""`DPPCA`: principal directions by one private release of the second moments."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.second_moments import Directions, SecondMomentsConfig
from skdp.fitting.input import check_rows
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.validate import expected, in_range, integer, number_or_auto
from skdp.preprocessing._base import PrivateTransformer
from skdp.privacy.budget import Budget
from skdp.rows.records import clipped_rows


@dataclass(eq=False, repr=False)
class DPPCA(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    """Project rows on the leading directions of their private second moments.

    Rows are not centred: scale or standardise them first.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all of its attributes together. The ``unit`` is a row, or a person with all of its rows. The
    number of rows is never read. The guarantee covers one fit; each further fit on the same rows is
    a further release. It is *not* one for a seeded fit, and treats floating-point Gaussian noise as
    exact. `transform` projects each row by itself; what it returns are rows, as private as those
    that went in.

    Parameters
    ----------
    n_components : int or float, default=2
        Number of directions, from 1 to n_features. Public: not to be chosen by looking at spectra
        that were not released. A number in (0, 1) is a share: the fewest directions that have it
        of the noisy trace, which has been released.
    epsilon : float or None, default=0.5
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    unit : optional
        As of `DPStandardScaler`.
    data_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which rows are clipped, in `fit` and in `transform`. A public bound.
        ``"auto"`` is the norm that rows from a transformer with a declared one carry, else
        √n_features.
    noise_multiplier, random_state : optional
        As of `DPStandardScaler`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Leading eigenvectors of the noisy second moments, orthonormal, in falling order of their
        eigenvalues; the largest entry of each is positive.
    singular_values_ : ndarray of shape (n_components,)
        Square roots of these eigenvalues, 0 for a negative one: estimates of the singular values of
        the clipped rows.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        Shares of the noisy trace: of the mean squared norm of the clipped rows.
    mean_ : ndarray of shape (n_features,)
        Zeros: rows are not centred.
    n_components_ : int
        Number of directions.
    data_norm_, output_norm_ : float
        The norm of the clipped rows; a projection never lengthens a row.
    noise_multiplier_ : float
        As of `DPStandardScaler`.
    privacy_, diagnostics_, n_features_in_, feature_names_in_
        As of `DPStandardScaler`.

    See Also
    --------
    DPStandardScaler : Centres and scales, privately.

    Notes
    -----
    *Release.* Rows x are clipped to norm R = ``data_norm_``. The share of a row is the upper
    triangle of x xᵀ, the entries off the diagonal times √2; its norm is that of the whole matrix,
    ‖x xᵀ‖_F = ‖x‖² ≤ R². *Sensitivity.* A null record has a share of 0, so zeroing a record out,
    adding it or removing it moves the sum by at most R². Replacing x by y moves it by at most
    √2 R²: ‖x xᵀ - y yᵀ‖² = ‖x‖⁴ + ‖y‖⁴ - 2(x·y)². The rounding of the sum is covered too
    (PRIVACY §8). Dwork et al. (2014) put noise of one scale on all entries of the triangle; with
    the √2, as much privacy takes less off the diagonal.

    *How much data.* The noise has a spectral norm of about noise_multiplier · √(2d), against
    eigenvalues of n times the mean of ‖x‖²/R² along a direction.

    References
    ----------
    C. Dwork, K. Talwar, A. Thakurta, L. Zhang, *Analyze Gauss: Optimal Bounds for
    Privacy-Preserving Principal Component Analysis*, STOC 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp.preprocessing import BoundedScaler, DPPCA, NormClipper
    >>> X, _ = load_digits(return_X_y=True)
    >>> reduce = make_pipeline(BoundedScaler(0, 16), NormClipper(6.0), DPPCA(8, epsilon=1.0))
    >>> reduce.fit_transform(X).shape, reduce[-1].output_norm_
    ((1797, 8), 6.0)
    """

    n_components: float = 2
    _: KW_ONLY
    data_norm: float | str = "auto"
    noise_multiplier: float | None = None

    def _configure(self, facts: PublicFacts, budget: Budget) -> SecondMomentsConfig:
        n_components = self.n_components
        if isinstance(n_components, float):
            in_range(0.0, 1.0, "or an integer", n_components=n_components)
        elif integer(1, "or a share in (0, 1)", n_components=n_components) > facts.features:
            raise expected(f"at most n_features={facts.features}", n_components=n_components)
        return SecondMomentsConfig(
            n_features=facts.features,
            n_components=n_components,
            data_norm=number_or_auto(facts.auto_norm, data_norm=self.data_norm),
            neighboring_relation=self._relation,
            persons=facts.persons,
        ).calibrated(budget)

    def _keep(self, plan: FitPlan, released: Directions) -> None:
        config: SecondMomentsConfig = plan.config
        self.components_, self.singular_values_, self.explained_variance_ratio_ = released
        self.n_components_ = len(self.components_)
        self.mean_ = np.zeros(config.n_features)
        self.noise_multiplier_ = config.noise_multiplier
        self.data_norm_ = self.output_norm_ = config.data_norm

    @property
    def _n_features_out(self) -> int:
        """Asked for by scikit-learn, to name the columns of the output."""
        return self.n_components_

    def transform(self, X) -> np.ndarray:
        """Clip to ``data_norm_`` and project; each row by itself."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        rows = clipped_rows(X, self.data_norm_, fit_intercept=False) @ self.components_.T
        return rows.astype(X.dtype, copy=False)

    def inverse_transform(self, X) -> np.ndarray:
        """Return rows of the features whose projections are given; what was cut stays away."""
        check_is_fitted(self)
        with np.errstate(all="ignore"):  # a warning would tell of a value
            return check_rows(X, self.n_components_) @ self.components_

    def _affine(self) -> tuple[np.ndarray, np.ndarray, str]:
        note = "DPPCA: for rows within data_norm."
        return self.components_.T, np.zeros(self.n_components_), note
