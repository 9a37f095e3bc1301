"""What every estimator of a network shares: training, samples, outputs, and the two tasks.

An algorithm comes in as a value, the configuration that `_configure` returns; so does a task.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skdp.algorithms import dp_sgd
from skdp.algorithms.parts.training import (
    LinearModel,
    ModuleTrial,
    NetworkModel,
    NetworkRun,
    PerceptronModel,
    Posterior,
    Trained,
    Watch,
    perceptron_size,
)
from skdp.estimators import _doubts
from skdp.estimators._datasets import DatasetRows, from_dataset
from skdp.estimators._parts import WithParts
from skdp.estimators._weights import WeightedClasses, WeightedRows
from skdp.fitting import charge
from skdp.fitting import checkpoint as checkpoints
from skdp.fitting.charge import attempt, begun, charged, notes, progress, warn_if_undeclared
from skdp.fitting.declared import (
    check_n_rows,
    encode_labels,
    n_classes,
    sampling_rate,
    target_bounds,
)
from skdp.fitting.estimator import with_callbacks
from skdp.fitting.input import (
    check_features,
    check_features_and_labels,
    check_features_and_targets,
    least_rows,
)
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import ProtectedUnit, Records, check_in_chunks, read
from skdp.fitting.scores import AccuracyMixin, R2Mixin
from skdp.fitting.validate import (
    as_array,
    expected,
    flag,
    integer,
    integer_or_auto,
    is_true,
    number_or_auto,
    one_of,
    positive,
)
from skdp.fitting.warnings import FitWarning
from skdp.models import perceptron as networks
from skdp.models.tasks import Classification, GivenLoss, Labelling, Regression, Task
from skdp.relations import ROW, Relation, check_relation
from skdp.rows.lazy_rows import in_chunks

EACH_BY_ITSELF = (
    "module treats each record by itself and keeps no state (tried on synthetic records only)"
)

ITEM_BY_ITSELF = "an item of the dataset is a function of that record alone, whenever it is read"
DEVICE_NOISE = "noise of the device's own generator, which is not cryptographic, is random enough"
LOSS_BY_ITSELF = "loss of a record depends on that record alone (tried on synthetic records only)"

# With ``secure``: what has one value alone, and the most parameters, by docs/guide/secure.md.
_SECURE_ALONE = {"module": None, "device": None, "mixed_precision": False, "prenoise_scale": 0.0}
_MOST_SECURE = {"row": 100_000, "group": 10_000}
_MOST_OF_PERSON = 512  # weights of a lone linear layer, by its closed form


class OneEpoch(PublicFacts):
    """Public facts of a call that trains for one epoch alone."""


@dataclass(eq=False, repr=False)
class NetworkEstimator(WithParts, ProtectedUnit, WeightedRows):
    """Training of a network, whatever the algorithm and the task."""

    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    neighboring_relation: str = "zero_out"
    hidden_layer_sizes: Any = (100,)
    activation: str = "tanh"
    module: Any = None
    max_iter: int | str = "auto"
    epochs: float | None = None
    batch_size: int | str = "auto"
    sampling_rate: float | None = None
    clip_norm: float | str = "auto"
    clipping: str = "flat"
    accountant: str = "auto"
    physical_batch_size: int | None = None
    mixed_precision: bool = False
    device: Any = None
    secure: bool = False
    checkpoint: Any = None
    every: int = checkpoints.EVERY
    n_samples: int | None = None
    random_state: Any = None
    verbose: int = 0

    _PARTS = ("module", "loss", "optimizer", "learning_rate_schedule")
    _looks_up = False  # whether the fit read integer ids; not known to fits of 0.1.0
    _by_index = False  # whether the fit read a dataset
    warm_start = False  # of some algorithms, as the next: no fields here
    prenoise_scale = 0.0
    _declared_by: ClassVar[str] = _doubts.SCALED_BEFORE
    _REMEDY: ClassVar[str] = "Scale the features, or give a larger learning_rate or max_iter."
    score: ClassVar[Callable[..., float]]
    loss: Any = None

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
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit="group"``: the person whose row it is, as any label.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of rows in [0, ``max_sample_weight``], by which their clipped gradients are
            multiplied. They are as private as the rows.
        X_public, y_public : array-like or None, default=None
            Rows that are *public*, for a learning curve in ``public_scores_``.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the fit; no row has been used then.
        """
        public = None if X_public is None and y_public is None else (X_public, y_public)
        return self._fit(X, y, public, groups=groups, sample_weight=sample_weight)

    @with_callbacks
    def _fit(
        self,
        X,
        y,
        public: tuple | None = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        classes: Any = None,
        one_epoch: bool = False,
    ) -> Self:
        """Fit, or go on with a fit, and compose what it costs with what has been spent."""
        told = self.verbose if self._relation.n_is_public else 0
        chunks = in_chunks(X, y, groups, verbose=told)
        with attempt(self), chunks as (X, y, groups):
            if (one_epoch or self.warm_start) and self.checkpoint is not None:
                remedy = "a run that is resumed begins from its own state alone"
                raise expected(
                    "None with partial_fit or warm_start", remedy, checkpoint=self.checkpoint
                )
            goes_on = (one_epoch or self.warm_start) and hasattr(self, "module_")
            before, n_before = (self.privacy_, self.n_iter_) if goes_on else (None, 0)
            if before is not None:
                self._check_same_neighbours(check_relation(before.neighboring_relation))
            given = (X, y, sample_weight)
            X, y = from_dataset(X, y)
            self._by_index = isinstance(X, DatasetRows)
            how = {"goes_on": goes_on, "classes": classes, "sample_weight": sample_weight}
            records, facts = read(self, X, y, groups, **how)
            if self.module is None:  # which would know of units
                warn_if_undeclared(self, given[0], facts)
            plan = self._plan(OneEpoch(**vars(facts)) if one_epoch else facts)
            check_in_chunks(self, plan, records)
            if not goes_on:
                self.module_ = self._built(facts.features, facts.outputs)
            self._shape = records.X.shape[1:]
            integers = records.X.dtype.kind in "iu"
            model, _ = self._model(
                self.module_, self._shape, facts.outputs, integers, records.weights is not None
            )
            if (model.start.device.type == "cpu") != self._on_cpu():
                raise expected("the device on which module makes its parameters", device=None)
            self._looks_up = not getattr(model, "dtype", torch.float32).is_floating_point
            check_n_rows(records.X, model.max_rows)
            if self._calls_foreign_code() or self.checkpoint is not None:
                plan.config.rehearse(model)
            watch = self._watch(public)
            if watch is not None:
                watch(0, plan.config.start(model))  # a trial of the public rows
            arrays = (*records.arrays, *networks.weights(self.module_))
            begun(self, plan, *arrays, beside=public)
            steps = progress(self, plan.n_steps)
            self.privacy_ = charged(self, plan, given, before, groups=groups)
            self.public_scores_ = notes()
            streams = charge.streams(self, *arrays)
            kept = self._kept if one_epoch and goes_on else None
            released = plan.config.run(records, streams, steps, model=model, watch=watch, kept=kept)
            self._keep(plan, released)
            self.n_iter_ += n_before
            self.diagnostics_ = self._diagnosed(plan, released)
            for message in self.diagnostics_:
                warnings.warn(message, FitWarning, stacklevel=4)
        return self

    def _check_same_neighbours(self, before: Relation) -> None:
        """Refuse to go on from a fit that protects others."""
        now, remedy = self._relation, "statements about different neighbours do not add up"
        if before.unit != now.unit:
            as_before = f"{before.unit!r} as in the fit that this one goes on from"
            raise expected(as_before, remedy, unit=now.unit)
        if before != now:
            as_before = f"{before.of_rows!r} as in the fit that this one goes on from"
            raise expected(as_before, remedy, neighboring_relation=now.of_rows)

    def _read(
        self, X: Any, y: Any, *, goes_on: bool = False, classes: Any = None
    ) -> tuple[Records, PublicFacts]:
        """Check the input, which a fit that goes on has seen the like of."""
        raise NotImplementedError

    def _network_run(self, facts: PublicFacts, private: bool, mu: float = math.inf) -> NetworkRun:
        """Check the parameters that all algorithms have, and fill in the defaults."""
        n = facts.rows
        rate = sampling_rate(
            self, facts, lambda n: dp_sgd.default_batch_size(n, mu, private=private) / n
        )
        n_steps = integer_or_auto(
            dp_sgd.default_steps(n, rate * n, private=private), max_iter=self.max_iter
        )
        if self.epochs is not None:
            if self.max_iter != "auto":
                raise expected("'auto' when epochs is given", max_iter=self.max_iter)
            n_steps = max(1, math.ceil(positive("or None", epochs=self.epochs) / rate))
        sizes = None
        if self.module is None:
            one_of(networks.ACTIVATIONS, activation=self.activation)
            hidden = _layer_sizes(self.hidden_layer_sizes)
            if facts.n_features is not None and facts.n_outputs is not None:
                sizes = (facts.n_features, *hidden, facts.n_outputs)
        return NetworkRun(
            n_rows=n,
            n_steps=n_steps,
            sampling_rate=rate,
            clip_norm=number_or_auto(1.0 if private else math.inf, clip_norm=self.clip_norm),
            clipping=self.clipping,
            physical_batch_size=self.physical_batch_size,
            neighboring_relation=self._relation,
            layer_sizes=sizes,
            persons=facts.persons,
            weight_bound=self._weight_bound(facts),
            secure=self._check_secure(private, facts),
        )

    def _check_secure(self, private: bool, facts: PublicFacts) -> bool:
        """Refuse ``secure`` of what has no products of integers, or too much noise to draw."""
        if not flag(secure=self.secure):
            return False
        if not private:
            raise expected("False when epsilon is infinite", "there is no noise then", secure=True)
        for name, default in _SECURE_ALONE.items():
            if (value := getattr(self, name)) is not default and value != default:
                remedy = "only our own perceptron, on the CPU, is a matter of exact integers"
                raise expected(f"{default!r} with secure=True", remedy, **{name: value})
        if not self._task(facts.n_outputs or 2).has_residual:
            what = "the cross-entropy of one class per row, or the squared error, with secure=True"
            raise expected(what, loss=self.loss)
        sizes = (facts.features, *_layer_sizes(self.hidden_layer_sizes), facts.outputs)
        n_parameters, unit = perceptron_size(sizes), self._relation.unit
        if n_parameters > _MOST_SECURE[unit]:
            raise expected(
                f"False beyond {_MOST_SECURE[unit]} parameters (unit={unit!r})",
                f"a step would draw {n_parameters} exact numbers: use fewer hidden_layer_sizes or "
                "features",
                secure=True,
            )
        return True

    def _assumptions(self) -> tuple[str, ...]:
        said = {
            EACH_BY_ITSELF: self.module is not None,
            LOSS_BY_ITSELF: not isinstance(self.loss, str),
            ITEM_BY_ITSELF: self._by_index,
            DEVICE_NOISE: not self._on_cpu(),
        }
        return tuple(words for words, applies in said.items() if applies)

    def _on_cpu(self) -> bool:
        """Whether the CPU is where the parameters say that training is to be."""
        device = self.device
        if device is None and isinstance(self.module, nn.Module):
            device = next((p.device for p in self.module.parameters() if p.requires_grad), None)
        return device is None or str(device).partition(":")[0] == "cpu"

    def _checked(
        self, check: Callable[..., Any], X: Any, y: Any, *, goes_on: bool, **how: Any
    ) -> Any:
        """Check rows and targets, rows of a dataset by the first: it has been read."""
        nd = {"reset": not goes_on, "allow_nd": self.module is not None, **least_rows(self)}
        if not isinstance(X, DatasetRows):
            return check(self, X, y, **nd, **how)
        check_features(self, X[:1], dtype="numeric", **nd)
        other = type(self)(neighboring_relation=self.neighboring_relation, unit=self.unit)
        return X, check(other, np.zeros((len(X), 1)), y, **how)[1]

    def _with_parameters(self, name: str) -> Any:
        """Return a parameter that makes something, with the parameters that it is to be given."""
        make, given = getattr(self, name), self._given(name)
        if given and (isinstance(make, str) or not callable(make)):
            raise expected(
                f"a class or a function, which takes {name}__ parameters", **{name: make}
            )
        return partial(make, **given) if given else make

    def _task(self, n_outputs: int) -> Task:
        """What the network is trained for."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Store a perceptron as arrays: what is read back needs no trust in torch's classes."""
        state: Any = super().__getstate__()
        if "module_" in state:
            return state | {"module_": networks.packed(state["module_"])}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read it back, as of versions that stored the module itself."""
        if "module_" in state:
            state = {**state, "module_": networks.unpacked(state["module_"])}
        super().__setstate__(state)

    def _memory_told_by(self) -> str:
        return "" if self.module is None else "try_module"

    def _calls_foreign_code(self) -> bool:
        """Whether a step of the algorithm calls code of the caller's."""
        return False

    def _built(self, n_features: int, n_outputs: int) -> nn.Module:
        """Make the network, its weights drawn."""
        seed = charge.initial_seed(self)
        if self.module is not None:
            given = self._given("module")
            return networks.build_module(self.module, n_features, n_outputs, seed, given)
        if self._given("module"):
            raise expected("a class or a function, which takes module__ parameters", module=None)
        sizes = _layer_sizes(self.hidden_layer_sizes)
        return networks.build_module(
            lambda p, k: networks.perceptron(p, k, sizes, self.activation),
            n_features,
            n_outputs,
            seed,
        )

    def _model(
        self,
        module: nn.Module,
        shape: tuple[int, ...],
        n_outputs: int,
        integers: bool,
        weighted: bool,
    ) -> tuple[LinearModel | NetworkModel | PerceptronModel, ModuleTrial | None]:
        """Wrap a network for a run; any other than our own perceptron is tried first."""
        task, prenoise = self._task(n_outputs), self.prenoise_scale != 0.0
        own = self.module is None and networks.is_perceptron(module)
        flat = self.clipping == "flat" and self.device is None and not prenoise
        layers = list(module.children())
        if self.secure:
            if not (own and isinstance(module, nn.Sequential)):
                raise expected("a perceptron with secure=True", module_=module)
            return PerceptronModel(module, task, self.neighboring_relation), None
        # The gradients of a chunk's rows lie in memory before persons' are summed.
        fits = self._relation.unit == ROW or (shape[0] + 1) * n_outputs <= _MOST_OF_PERSON
        closed = own and flat and fits and task.has_residual and not weighted
        if closed and len(layers) == 1 and isinstance(layers[0], nn.Linear):
            return LinearModel(layers[0], task, self.neighboring_relation), None
        model = NetworkModel(
            module,
            task.loss,
            "vmap" if prenoise else "book-keeping",
            device=self.device,
            mixed_precision=bool(self.mixed_precision),
        )
        if own and not isinstance(task.loss, GivenLoss):
            return model, None
        return model, model.try_out(task, shape, every_gradient=prenoise, integers=integers)

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
        self.n_iter_, self._kept = released.n_steps, released.kept

    def _diagnosed(self, plan: FitPlan, released: Trained) -> tuple[str, ...]:
        said = _doubts.of_training(released.push, self._REMEDY, plan.config.noise_share)
        if said or self.module is not None or self.clip_norm == math.inf:
            return said
        rows = _doubts.synthetic_rows(plan.facts.features)
        # Synthetic rows have no names, which scikit-learn would warn of where the fit's have.
        chain = networks.outputs(self.module_, self._posterior.members, rows, double=True)
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
        module = self._built(shape[0], n_outputs)
        task, every_gradient = self._task(n_outputs), self.prenoise_scale != 0.0
        precision = bool(self.mixed_precision)
        model = NetworkModel(module, task.loss, device=self.device, mixed_precision=precision)
        return model.try_out(task, shape, every_gradient=every_gradient, integers=True)

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`."""
        check_is_fitted(self)
        return networks.parameter_names(self.module_)

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw parameters from what the run released; this costs no privacy. See the notes.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws. Seeding here is harmless: the path has been released.

        Returns
        -------
        ndarray of shape (n_samples, n_parameters)
            Columns as in ``parameter_names_``.
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        return self._posterior.sample(n_samples, check_random_state(random_state))

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


def _layer_sizes(sizes: Any) -> tuple[int, ...]:
    try:
        return tuple(integer(1, hidden_layer_sizes=size) for size in sizes)
    except (TypeError, ValueError):
        raise expected(
            "a tuple of integers >= 1", "() is a linear model", hidden_layer_sizes=sizes
        ) from None


@dataclass(eq=False, repr=False)
class NetworkClassifier(AccuracyMixin, WeightedClasses, NetworkEstimator):
    """Declared or found classes, or labels that do not exclude each other."""

    _: KW_ONLY
    classes: Any = None
    loss: Any = "cross_entropy"

    _several = False  # labels of a record, of y as the fit saw it

    @property
    def _kind(self) -> type[Classification]:
        return Labelling if self._several else Classification

    def _task(self, n_outputs: int) -> Classification:
        return self._kind.of(n_outputs, self.loss, self._given("loss"))

    def _n_outputs(self, classes: Any) -> int | None:
        return n_classes(self, classes)

    def _read(
        self, X: Any, y: Any, *, goes_on: bool = False, classes: Any = None
    ) -> tuple[Records, PublicFacts]:
        known = self.classes_ if goes_on else self.classes
        known = classes if known is None else known
        shape = y.shape if hasattr(y, "shape") else as_array(y).shape
        several = len(shape) == 2 and shape[1] > 1
        if goes_on and several != self._several:
            raise ValueError("Expected y of as many columns as in the first fit.")
        self._several = several
        if several:
            return self._read_labels(X, y, known, goes_on=goes_on)
        how = {"declared": known is not None, "dtype": "numeric"}
        X, y = self._checked(check_features_and_labels, X, y, goes_on=goes_on, **how)
        self.classes_, codes = encode_labels(y, known, type(self).__name__)
        declared = () if classes is None else ("classes",)
        facts = self._facts_of(X, len(self.classes_), declared=declared)
        return Records(X, codes.astype(np.int64, copy=False)), facts

    def _read_labels(
        self, X: Any, y: Any, classes: Any, *, goes_on: bool
    ) -> tuple[Records, PublicFacts]:
        """Check labels 0 and 1, (n, L), whose number is as public as that of the features."""
        X, y = self._checked(check_features_and_targets, X, y, goes_on=goes_on)
        if not np.isin(y, (0, 1)).all():
            raise ValueError("Expected y of several columns to hold 0 and 1: one label per column.")
        self.classes_ = np.arange(y.shape[1]) if classes is None else np.asarray(classes)
        if self.classes_.shape != (y.shape[1],):
            raise ValueError(f"Expected y to hold {len(self.classes_)} columns, one per class.")
        facts = self._facts_of(X, y.shape[1], declared=("classes",))
        return Records(X, y.astype(np.float32)), facts

    def _doubted(self, rows: np.ndarray, released: Trained, chain: np.ndarray) -> tuple[str, ...]:
        return _doubts.of_odds(chain if self._several else chain - chain.mean(-1, keepdims=True))

    def _probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return self._kind(outputs.shape[-1]).probabilities(outputs)

    def __sklearn_tags__(self) -> Any:
        """Labels may be several per record, but in secure fits."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = not is_true(self.secure)
        return tags

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities of the classes, or of each label, of each row: shape (n, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        of_blocks = (self._kind(z.shape[-1]).log_probabilities(z) for z in self._outputs(X))
        total = np.concatenate([np.logaddexp.reduce(log, axis=0) for log in of_blocks])
        return total - np.log(len(self._posterior.members))

    def predict(self, X) -> np.ndarray:
        """Most probable class of each row, shape (n,); of several labels 0 or 1, (n, n_labels)."""
        log = self.predict_log_proba(X)
        if self._several:
            return (log > -math.log(2)).astype(int)
        return self.classes_[log.argmax(axis=1)]

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Class probabilities under each of several draws of `sample_posterior`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n, n_classes)
        """
        return self._probabilities(self._sampled_outputs(X, n_samples, random_state))


@dataclass(eq=False, repr=False)
class NetworkRegressor(R2Mixin, NetworkEstimator):
    """Targets scaled by their public bounds."""

    _: KW_ONLY
    target_bounds: Any = None
    loss: Any = "squared_error"
    _REMEDY: ClassVar[str] = (
        "Declare target_bounds, scale the features, or give a larger learning_rate or max_iter."
    )

    def _task(self, n_outputs: int) -> Regression:
        return Regression.of(n_outputs, self.loss, self._given("loss"))

    def _read(
        self, X: Any, y: Any, *, goes_on: bool = False, classes: Any = None
    ) -> tuple[Records, PublicFacts]:
        low, high = target_bounds(self.target_bounds)
        X, y = self._checked(check_features_and_targets, X, y, goes_on=goes_on)
        columns = y if y.ndim == 2 else y[:, None]
        if goes_on and (columns.shape[1], y.ndim) != (len(self._center), self._target_ndim):
            raise ValueError(f"Expected y with {len(self._center)} targets, as in the first fit.")
        n_targets = columns.shape[1]
        self._center, self._half_width = np.zeros(n_targets), 1.0
        self._target_ndim = y.ndim
        if self.target_bounds is not None:
            columns = np.clip(columns, low, high)
            self._center += (low + high) / 2
            self._half_width = (high - low) / 2
        scaled = (columns - self._center) / self._half_width
        with np.errstate(over="ignore"):  # a target beyond all bounds is an infinite one
            return Records(X, scaled.astype(np.float32)), self._facts_of(X, n_targets)

    def _doubted(self, rows: np.ndarray, released: Trained, chain: np.ndarray) -> tuple[str, ...]:
        parameters = released.posterior.sample(_doubts.N_DRAWS, np.random.RandomState(0))
        outputs = networks.outputs(self.module_, parameters, rows, double=True)
        draws = np.concatenate(list(outputs), axis=1)
        return _doubts.of_outputs(draws, bounded=self.target_bounds is not None, chain=chain)

    def __sklearn_tags__(self) -> Any:
        """Several targets are allowed; noise dominates on the few rows of scikit-learn's checks."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True
        return tags

    def predict(self, X) -> np.ndarray:
        """Predicted targets, shape (n,) or (n, n_targets)."""
        # Shares, because the sum of the members may be beyond a double.
        return self._targets(np.concatenate([(z / len(z)).sum(axis=0) for z in self._outputs(X)]))

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Predictions under each of several draws of `sample_posterior`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n) or (n_samples, n, n_targets)
        """
        return self._targets(self._sampled_outputs(X, n_samples, random_state))

    def _targets(self, outputs: np.ndarray) -> np.ndarray:
        y = outputs * self._half_width + self._center
        return y if self._target_ndim == 2 else y[..., 0]
