"""What every estimator of a network shares; algorithm and task come in as values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.parts.network_models import ModuleTrial, NetworkModel
from skdp.algorithms.parts.training import Posterior, Trained, Watch
from skdp.base import FitPlan, PublicFacts, Records, check_features
from skdp.estimators import _doubts
from skdp.estimators._datasets import DatasetRows, from_dataset
from skdp.estimators._network_parameters import NetworkParameters
from skdp.estimators._posteriors import PosteriorDraws
from skdp.fitting import charge
from skdp.fitting.reading import too_many_rows
from skdp.fitting.validate import expected, integer
from skdp.models import perceptron as networks
from skdp.relations import Relation, check_relation
from skdp.rows.persons import IN_WORDS


@dataclass(eq=False, repr=False)
class NetworkEstimator(PosteriorDraws, NetworkParameters):
    """Training of a network, whatever the algorithm and the task."""

    def fit(
        self, X, y=None, groups=None, *, sample_weight=None, X_public=None, y_public=None
    ) -> Self:
        """Train, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, ...) with a module
            Finite numbers of any type; dense. A memory map is read a batch at a time, and so is a
            map-style dataset of torch, whose items are (x, y), or x with y beside it.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or None, default=None
            Class labels, labels 0 and 1, or targets; None where a dataset has them.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of rows in [0, ``max_sample_weight``], by which their clipped gradients are
            multiplied. They are as private as the rows.
        X_public, y_public : array-like or None, default=None
            Rows that are *public*, for a learning curve in ``public_scores_``.
        """
        public = None if X_public is None and y_public is None else (X_public, y_public)
        return self._on(X, y, groups, sample_weight, public=public)

    def _on(self, X: Any, y: Any, groups: Any, sample_weight: Any, **how: Any) -> Self:
        """Fit, or go on with a fit, and compose what it costs with what has been spent."""
        before = None
        if how.get("one_epoch", False) or self.warm_start:
            if self.checkpoint is not None:
                remedy = "a run that is resumed begins from its own state alone"
                what = "None with partial_fit or warm_start"
                raise expected(what, remedy, checkpoint=self.checkpoint)
            if hasattr(self, "module_"):
                before = self.privacy_
                self._check_same_neighbours(check_relation(before.neighboring_relation))
        how |= {"before": before, "goes_on": before is not None}
        return self._fit(X, y, groups=groups, sample_weight=sample_weight, **how)

    def _check_same_neighbours(self, before: Relation) -> None:
        """Refuse to go on from a fit that protects others."""
        now, remedy = self._relation, "statements about different neighbours do not add up"
        if before.unit != now.unit:
            as_before = f"{IN_WORDS[before.unit]} as in the fit that this one goes on from"
            raise expected(as_before, remedy, unit=now.unit)
        if before != now:
            as_before = f"{before.of_rows!r} as in the fit that this one goes on from"
            raise expected(as_before, remedy, neighboring_relation=now.of_rows)

    def _read(
        self,
        X: Any,
        y: Any,
        *,
        goes_on: bool = False,
        classes: Any = None,
        one_epoch: bool = False,
    ) -> tuple[Records, PublicFacts]:
        X, y = from_dataset(X, y)
        self._by_index = isinstance(X, DatasetRows)
        records, facts = self._read_rows(X, y, classes, goes_on=goes_on)
        return records, replace(facts, one_epoch=one_epoch)

    def _read_rows(
        self, X: Any, y: Any, classes: Any, *, goes_on: bool
    ) -> tuple[Records, PublicFacts]:
        """Check the input, which a fit that goes on has seen the like of."""
        raise NotImplementedError

    def _checked(
        self, check: Callable[..., Any], X: Any, y: Any, *, goes_on: bool, **how: Any
    ) -> Any:
        """Check rows and targets, rows of a dataset by the first: it has been read."""
        nd: dict[str, Any] = {"reset": not goes_on, "allow_nd": self.module is not None}
        if not isinstance(X, DatasetRows):
            return check(self, X, y, **nd, **how)
        if not self._relation.n_is_public:
            nd["ensure_min_samples"] = 0
        check_features(self, X[:1], dtype="numeric", **nd)
        other = type(self)(neighboring_relation=self.neighboring_relation, unit=self.unit)
        return X, check(other, np.zeros((len(X), 1)), y, **how)[1]

    def _calls_foreign_code(self) -> bool:
        """Whether a step of the algorithm calls code of the caller's."""
        return False

    def _prepared(
        self, plan: FitPlan, records: Records, around: charge.Around
    ) -> Callable[..., Any]:
        """Make the network, unless the fit goes on with one; what can fail in a run fails here."""
        facts, X, checkpoint = plan.facts, records.X, around.checkpoint
        if around.before is None:
            seed = charge.initial_seed(self, checkpoint)
            self.module_, self.n_iter_ = self._built(facts.features, facts.outputs, seed), 0
        self._shape = X.shape[1:]
        weighted, integers = records.weights is not None, X.dtype.kind in "iu"
        model = self._model(self.module_, self._shape, facts.outputs, integers, weighted)
        if (model.start.device.type == "cpu") != self._on_cpu():
            raise expected("the device on which module makes its parameters", device=None)
        self._looks_up = not getattr(model, "dtype", torch.float32).is_floating_point
        if len(X) > model.max_rows:
            raise too_many_rows(model.max_rows)
        if self._calls_foreign_code() or checkpoint is not None:
            plan.config.rehearse(model)
        self.public_scores_ = [] if checkpoint is None else checkpoint.notes
        watch = self._watch(around.public)
        if watch is not None:
            watch(0, plan.config.start(model))  # a trial of the public rows
        kept = self._kept if facts.one_epoch and around.before is not None else None
        return partial(plan.config.run, model=model, watch=watch, kept=kept)

    @property
    def _start(self) -> tuple[np.ndarray, ...]:  # type: ignore[override]
        return tuple(networks.weights(self.module_))

    def _watch(self, public: tuple | None) -> Watch | None:
        """Return what writes scores on public rows down."""
        if public is None:
            return None
        X, y = public
        if X is None or y is None:
            raise ValueError("Expected both X_public and y_public, or neither.")
        X = self._rows(X)

        def watch(n_steps: int, posterior: Posterior) -> None:
            self._take(posterior)
            score = float(self.score(X, y))
            if n_steps:
                self.public_scores_.append((n_steps, score))

        return watch

    def _take(self, posterior: Posterior) -> None:
        """Be the network that a run leaves."""
        self._posterior = posterior
        self.module_ = networks.with_parameters(self.module_, posterior.point)

    def _keep(self, plan: FitPlan, released: Trained) -> None:
        self._take(released.posterior)
        self.n_iter_ += released.n_steps
        self._kept = released.kept

    def _diagnosed(self, plan: FitPlan, released: Trained) -> tuple[str, ...]:
        said = _doubts.of_training(released.push, self._REMEDY, plan.config.noise_share)
        if said or self.module is not None or self.clip_norm == math.inf:
            return said
        rows = _doubts.synthetic_rows(plan.facts.features)
        # Synthetic rows have no names, which scikit-learn would warn of where the fit's have.
        chain = networks.outputs(self.module_, self._posterior.members, rows, double=False)
        return self._doubted(rows, released, np.concatenate(list(chain), axis=1))

    def _doubted(self, rows: np.ndarray, released: Trained, chain: np.ndarray) -> tuple[str, ...]:
        """What outputs for public rows, under the members of the posterior, tell against a fit."""
        raise NotImplementedError

    def try_module(
        self, n_features: int | tuple[int, ...], n_outputs: int | None = None
    ) -> ModuleTrial:
        """Try the network on synthetic records, as `fit` does before it spends anything.

        Parameters
        ----------
        n_features : int or tuple of int
            Number of features of a record, or its shape.
        n_outputs : int or None, default=None
            Number of classes or targets; None for that of declared classes, or one target.

        Returns
        -------
        ModuleTrial
            ``method`` by which per-record gradients are taken, ``n_parameters`` and about how many
            ``bytes_per_record`` the gradients of one more record at once take.

        Raises
        ------
        ValueError
            If the module cannot be trained privately; the message says why.
        """
        shape = n_features if isinstance(n_features, tuple) else (n_features,)
        for size in shape:
            integer(1, n_features=size)
        n_outputs = self._n_outputs(None) if n_outputs is None else n_outputs
        n_outputs = integer(1, "or declare classes", n_outputs=n_outputs)
        module = self._built(shape[0], n_outputs, charge.initial_seed(self))
        task, every_gradient = self._task(n_outputs), self.prenoise_scale != 0.0
        precision = bool(self.mixed_precision)
        model = NetworkModel(module, task.loss, device=self.device, mixed_precision=precision)
        return model.try_out(task, shape, every_gradient=every_gradient, integers=True)

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`."""
        check_is_fitted(self)
        return networks.parameter_names(self.module_)

    def _outputs(self, X: Any, parameters: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Yield, for blocks of rows, the outputs of all members of the posterior, or of others.

        Each is (k, m, n_outputs) for k of them.
        """
        check_is_fitted(self)
        vectors = self._posterior.members if parameters is None else parameters
        # Our own network runs in double precision, where a prediction does not depend on the
        # other rows; that of a caller may know only its own precision.
        how = {"double": self.module is None, "integers": self._looks_up}
        return networks.outputs(self.module_, vectors, self._rows(X), **how)

    def _targets_of_dataset(self, X: Any) -> Any:
        """Targets of the items of a dataset; None of other rows."""
        return from_dataset(X, None)[1]

    def _rows(self, X: Any) -> Any:
        """Check rows of the kind that the fit saw."""
        shape = getattr(self, "_shape", (self.n_features_in_,))  # fits of 0.1.0 saw rows of numbers
        X, _ = from_dataset(X, None, with_targets=False)
        if not isinstance(X, DatasetRows):
            X = check_features(self, X, reset=False, dtype="numeric", allow_nd=len(shape) > 1)
        if X.shape[1:] != shape:
            raise ValueError(f"Expected X to hold records of shape {shape}, as in the fit.")
        return X

    def _sampled_outputs(self, X: Any, n_samples: int, random_state: Any) -> np.ndarray:
        draws = self.sample_posterior(n_samples, random_state)
        return np.concatenate(list(self._outputs(X, draws)), axis=1)
