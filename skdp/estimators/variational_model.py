"""`DPVariationalModel`: private variational inference for a model that the user writes."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import dp_vi_model
from skdp.base import Records, check_features
from skdp.estimators._documented import documented
from skdp.estimators._posteriors import GaussianDraws
from skdp.estimators._user_model import ModelEstimator
from skdp.fitting.scores import mean_of_blocks
from skdp.fitting.validate import expected, integer, is_dask
from skdp.models.user_models import Simulator
from skdp.models.user_priors import Prior

_N_PREDICTIVE_DRAWS = 200


@documented
@dataclass(eq=False, repr=False)
class DPVariationalModel(GaussianDraws, ModelEstimator):
    """Bayesian inference for any log-likelihood, by differentially private variational inference.

    Approximates the posterior of the parameters of a model by a Gaussian, from noisy sums of
    clipped per-record gradients that torch takes of the user's function (DPVI with aligned
    gradients). The prior's gradient is exact and never clipped.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    the posterior, every posterior sample and every score of public rows together. The ``unit`` is a
    row, or a person with all of its rows. The guarantee covers one fit; each further fit on the
    same rows is a further release. It is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, on ``log_likelihood`` being a function of its arguments
    alone that keeps nothing, is *not* one for a seeded fit, and treats floating-point Gaussian
    noise as exact.

    Attributes
    ----------
    mean_ : ndarray of shape (n_parameters,)
        Posterior mean.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance.
    n_iter_ : int
        Number of noisy releases.
    noise_multiplier_ : float
        Standard deviation of the noise over the clipping norm.
    clip_norm_, learning_rate_, sampling_rate_ : float
        The values used; a clip that was learned is the last one.
    clipped_share_ : float
        Noisy share of records whose gradient at the posterior mean is longer than ``clip_norm_``;
        it may be below 0. NaN without privacy.
    clipped_share_noise_ : float
        Standard deviation of its noise.
    posterior_steps_ : ndarray of shape (n_kept,)
        Numbers of releases after which means were kept: at most about 200, evenly spaced.
    posterior_means_ : ndarray of shape (n_kept, n_parameters)
        Means along the run, for `skdp.displays.TraceDisplay`; they are functions of what was
        released.
    burn_in_ : int
        Releases before those that the posterior is made of.
    diagnostics_ : tuple of str
        What the released values tell against the fit; each is given as a `FitWarning`, too.

    See Also
    --------
    DPVariationalLogisticRegression : Faster and sharper for classes.

    Notes
    -----
    A record at which the function fails, or whose gradient is not finite, contributes nothing.

    With ``unit=Persons(...)`` a person contributes the sum of its rows' gradients, clipped to the
    ``clip`` of `Persons` times ``clip_norm``, and it is persons who are sampled; a person's share
    of the curvature is at most that of ``rows_per_group`` rows. Rows of a person vary together: a
    few releases measure by how much the sum of gradients varies more than it would if they did not,
    and the noise-aware posterior is wider by that, by the same factor in all directions.

    At the maximum of the likelihood gradients sum to 0; clipped ones miss what the long ones have
    beyond the clip, and where these point one way, as those of a scale do, the posterior is off by
    the curvature's inverse times that, at any epsilon. So the last releases count the records with
    gradients longer than the clip: where they are many, ``diagnostics_`` and a `FitWarning` say so
    and which clip to give. Where noise hides the curvature in some directions of theta while others
    are well known, they say that intervals of weakly identified parameters may be too narrow.

    References
    ----------
    J. Jälkö, A. Honkela, O. Dikmen, *Differentially Private Variational Inference for
    Non-conjugate Models*, UAI 2017. J. Jälkö, L. Prediger, A. Honkela, S. Kaski, *DPVIm:
    Differentially Private Variational Inference Improved*, TMLR 2023.

    Examples
    --------
    Robust regression, with Student's t in place of the normal:

    >>> import numpy as np
    >>> import torch
    >>> from torch.distributions import StudentT
    >>> from skdp import DPVariationalModel
    >>> def log_likelihood(theta, x, y):
    ...     return StudentT(3.0, x @ theta[:2], theta[2].exp()).log_prob(y)
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> y = X @ [1.0, -1.0] + 0.5 * rng.standard_t(3, 2000)
    >>> model = DPVariationalModel(log_likelihood, 3, prior=3.0, n_samples=2000).fit(X, y)
    >>> bool(np.abs(model.mean_ - [1.0, -1.0, np.log(0.5)]).max() < 0.5)
    True
    >>> model.sample_posterior(100).shape
    (100, 3)
    """

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw targets of rows from the posterior predictive, by ``simulate``.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws ≥ 1, each at parameters of its own.

        Returns
        -------
        ndarray of shape (n_samples, n)
            Of public rows they cost no privacy; of private rows they are themselves private: do
            not release them.

        Raises
        ------
        ValueError
            If there is no ``simulate``, or it fails.
        """
        check_is_fitted(self)
        simulator = self._needed_simulator()
        integer(1, n_samples=n_samples)
        X = check_features(self, X, reset=False)
        generator = check_random_state(random_state)
        draws = self._posterior.sample(n_samples, generator)
        return self._simulated(simulator, draws, X, generator)

    def sample_prior_predictive(
        self, X, n_samples: int = 1, random_state: Any = None
    ) -> np.ndarray:
        """Draw targets of rows from the prior predictive, by ``simulate``; before or after `fit`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        n_samples : int, default=1
            Number of draws ≥ 1, each at parameters of its own.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n)
            A function of X and of no other data.

        Raises
        ------
        ValueError
            If there is no ``simulate``, it fails, or the prior cannot be drawn from.
        """
        simulator = self._needed_simulator()
        integer(1, n_samples=n_samples)
        unfitted = copy.copy(self)  # whose number of features is not known
        X = check_features(unfitted, X, reset=True)
        generator = check_random_state(random_state)
        prior = Prior.of(self.prior, integer(1, n_parameters=self.n_parameters))
        draws = prior.sample(n_samples, _torch_generator(generator))
        if draws is None:
            raise expected("scales or a torch distribution", "draws need one", prior=self.prior)
        return self._simulated(simulator, draws.numpy(), X, generator)

    def _needed_simulator(self) -> Simulator:
        simulator = self._simulator()
        if simulator is None:
            kind = "a function of (theta, x, generator)"
            raise expected(kind, "it draws the targets", simulate=None)
        return simulator

    def _simulated(
        self,
        simulator: Simulator,
        draws: np.ndarray,
        X: np.ndarray,
        random_state: np.random.RandomState,
    ) -> np.ndarray:
        x = torch.tensor(dp_vi_model.bounded(X, self.data_norm), dtype=torch.float64)
        generator = _torch_generator(random_state)
        thetas = torch.from_numpy(draws)
        return np.array([simulator.targets(theta, x, generator).numpy() for theta in thetas])

    def to_arviz(
        self, n_samples: int | None = None, random_state: Any = None, X_public=None, y_public=None
    ) -> Any:
        """Posterior draws in the form that ArviZ plots, checks and summarises; at no privacy cost.

        Parameters
        ----------
        X_public : array-like of shape (n, n_features) or None, default=None
            PUBLIC rows, on which the posterior is to be checked. What is stored of them is a
            function of the rows themselves: never give private ones.
        y_public : array-like of shape (n,) or None, default=None
            Their targets, as public.

        Returns
        -------
        arviz.InferenceData
            Its group ``posterior`` holds ``theta`` with the coordinate ``parameter``, in four
            chains of independent draws where n_samples allows. With public rows there are also
            ``posterior_predictive`` (where there is a ``simulate``), and with their targets
            ``observed_data`` and ``log_likelihood``, each with the variable ``y``: n_samples times
            n numbers. So ``az.plot_ppc`` and ``az.loo`` run.

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        ValueError
            If y_public is given without X_public, or y is needed and missing.
        """
        if X_public is None and y_public is not None:
            raise ValueError("Expected X_public with y_public: a target is that of a row.")
        generator = check_random_state(random_state)
        draws = self.sample_posterior(1000 if n_samples is None else n_samples, generator)
        if X_public is None:
            return self._inference_data(draws)
        groups = self._checked_against(draws, X_public, y_public, generator)
        return self._inference_data(draws, **groups)

    def _checked_against(
        self, draws: np.ndarray, X: Any, y: Any, generator: np.random.RandomState
    ) -> dict[str, np.ndarray]:
        """Predictive draws and log-likelihoods of public rows, (n_draws, n) each."""
        groups = {}
        if self.simulate is not None:
            X = check_features(self, X, reset=False)
            groups["posterior_predictive"] = self._simulated(
                self._needed_simulator(), draws, X, generator
            )
        if y is not None or not self._model.supervised:
            records = self._public_records(X, y)
            groups["log_likelihood"] = self._log_likelihoods(draws, records)
            if self._model.supervised:
                groups["observed_data"] = records.targets
        return groups

    def _public_records(self, X: Any, y: Any) -> Records:
        if self._model.supervised and y is None:
            raise ValueError("Expected y, because fit was given one; pass the targets of the rows.")
        return self._records(X, y if self._model.supervised else None, reset=False)

    def _log_likelihoods(self, draws: np.ndarray, records: Records) -> np.ndarray:
        """Log-likelihood of each record at each draw, (n_draws, n)."""
        X = dp_vi_model.bounded(records.X, self.data_norm)
        x, y = torch.tensor(X, dtype=torch.float64), torch.from_numpy(records.targets)
        with torch.no_grad():
            found = [self._model.values(theta, x, y).numpy() for theta in torch.from_numpy(draws)]
        return np.nan_to_num(np.array(found), nan=-np.inf, neginf=-np.inf)

    def score_samples(self, X, y=None) -> np.ndarray:
        """Log of the likelihood of each row, averaged over the posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        y : array-like of shape (n,) or None, default=None
            Targets, if `fit` had any.

        Returns
        -------
        ndarray of shape (n,)
            Over 200 fixed posterior draws. Of private rows it is itself private: do not release it.
        """
        check_is_fitted(self)
        records = self._public_records(X, y)
        draws = self._posterior.sample(_N_PREDICTIVE_DRAWS, check_random_state(0))
        values = self._log_likelihoods(draws, records)
        return logsumexp(values, axis=0) - np.log(len(draws))

    def score(self, X, y=None) -> float:
        """Mean of `score_samples`."""
        if is_dask(X):
            return mean_of_blocks(self.score, X, y)
        return float(np.mean(self.score_samples(X, y)))


def _torch_generator(random_state: np.random.RandomState) -> torch.Generator:
    return torch.Generator().manual_seed(int(random_state.randint(2**31 - 1)))
