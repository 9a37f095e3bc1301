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

from skdp import _checkpoint, _fitting
from skdp._chunked_rows import in_chunks
from skdp._fitting import ProtectedUnit, Records, with_callbacks
from skdp._input import (
    AccuracyMixin,
    R2Mixin,
    check_features,
    check_features_and_labels,
    check_features_and_targets,
    least_rows,
)
from skdp._plan import FitPlan, PublicFacts
from skdp._validate import (
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
from skdp._warnings import FitWarning
from skdp.algorithms import dp_sgd
from skdp.algorithms.parts.network_models import (
    LinearModel,
    ModuleTrial,
    NetworkModel,
    PerceptronModel,
)
from skdp.algorithms.parts.training import (
    NetworkRun,
    Posterior,
    Trained,
    Watch,
    perceptron_size,
)
from skdp.estimators import _doubts
from skdp.estimators._datasets import DatasetRows, from_dataset
from skdp.estimators._parts import WithParts
from skdp.estimators._weights import WeightedClasses, WeightedRows
from skdp.models import perceptron as networks
from skdp.models.tasks import Classification, GivenLoss, Labelling, Regression, Task
from skdp.relations import ROW, Relation, check_relation

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
    """Training of a network, whatever the algorithm and the task.

    Parameters
    ----------
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    unit : {"row", "group"}, default="row"
        The privacy unit: a row, or a person with all of its rows, given to `fit` as ``groups``;
        see the guide page on rows and people.
    n_groups : int or None, default=None
        Public number ≥ 1 of persons; needed with ``unit="group"``.
    rows_per_group : float or None, default=None
        Public mean number ≥ 1 of rows of a person. None is ``n_samples / n_groups``, else 5.
    group_clip : float or "auto", default="auto"
        Bound > 0 on a person's clipped share over that on one row's. ``"auto"`` is
        √((3 rows_per_group + 1)/4).
    max_rows_per_group : int or None, default=None
        Rows ≥ 1 of a person that take part, at most; which ones does not depend on other rows.
        None is all.
    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, class, callable or None, default=None
        A network instead of the perceptron, or a class or a function that makes one: it gets
        n_features, which is ``X.shape[1]``, and n_outputs, a class only if it asks for them, and
        what is given as ``module__`` parameters, e.g. ``module__hidden=32``. Records reach it as
        they are, (n, n_features) or images (n, channels, height, width) or sequences
        (n, time, width), as floating-point numbers; integers as 64-bit integers where it takes
        nothing else, as an `Embedding` does. It returns logits
        (n, n_classes) without softmax, or predictions (n, n_targets). Its initial weights must not
        have been learned from the private rows. A module is copied, and each `fit` starts from its
        weights; parameters with ``requires_grad=False`` stay as they are. A record on which it
        fails contributes nothing.

        It must treat each record by itself, in training too, and keep no state: the guarantee is
        conditional on that, as ``privacy_.assumptions`` says. A module that is seen to mix is
        refused before anything is spent: in a trial on batches of 1 to 33 synthetic records of
        scale .1 to 10, in training and in evaluation. The trial cannot see a branch on
        other values, on other batch sizes, on the weights, on a rare random event, on the time
        or on global state.
    max_iter : int or "auto", default="auto"
        Number of noisy steps.
    epochs : float or None, default=None
        Instead of ``max_iter``: expected number of times that a row takes part, > 0.
    batch_size : int or "auto", default="auto"
        Expected number of rows in a Poisson batch.
    sampling_rate : float or None, default=None
        Poisson sampling rate in (0, 1], instead of ``batch_size``; 1 is the full batch.
    clip_norm : float or "auto", default="auto"
        Norm > 0 to which each record's gradient, over all parameters jointly, is clipped; 1 if
        ``"auto"``, and none without privacy.
    clipping : {"flat", "automatic"}, default="flat"
        Factor of a record's gradient g: min(1, C/‖g‖), or C/(‖g‖ + .01) (Bu et al. 2023).
    physical_batch_size : int or None, default=None
        Records that are worked on at once, for memory; None is 1024, fewer on the CPU where layers
        keep much of each. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
    max_sample_weight : float, default=1.0
        Public bound > 0 of ``sample_weight``; the noise is for rows of this weight.
    secure : bool, default=False
        Of the perceptron, with the default loss: integers in place of the rounding of floats in
        gradients, sums and noise, which is discrete. The guarantee then no longer treats
        floating-point arithmetic as exact. Up to three times slower (with persons eight), and as
        accurate. Not with ``device``, ``module`` or ``mixed_precision``, nor for more than 100,000
        parameters (with persons 10,000). See docs/privacy.md, section 8.
    checkpoint : str, path-like or None, default=None
        File from which a fit that was killed goes on when it is called again with the same rows and
        parameters, as the same release at no further charge. The key file beside it (``.key``) is
        as secret as the rows; both are deleted when the fit ends. Each fit needs a path of its
        own, and calls that go on from an earlier one take none. See the guide page on long runs.
    every : int, default=50
        Number ≥ 1 of steps from one checkpoint to the next.
    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report. Where it is public, below half and above three times that of X
        are refused.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they get the steps and no data.

    Attributes
    ----------
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy steps taken, in all releases that ``privacy_`` states.
    privacy_ : PrivacyReport
        The privacy statement.
    diagnostics_ : tuple of str
        Doubts about the fit that released values raise; each was a `FitWarning`.
    public_scores_ : list of (int, float)
        Steps and scores on ``X_public``; empty without it. Scores on training rows are never kept:
        they are not private.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    Notes
    -----
    With ``unit="group"`` each row's gradient is clipped as ever, and a person contributes the sum
    over its rows, clipped to ``group_clip`` times ``clip_norm``; it is persons who are sampled.
    Batches, ``n_samples`` and step sizes count rows: ``n_groups`` times ``rows_per_group``.
    """

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
    every: int = _checkpoint.EVERY
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
        with _fitting.attempt(self), chunks as (X, y, groups):
            if (one_epoch or self.warm_start) and self.checkpoint is not None:
                remedy = "a run that is resumed begins from its own state alone"
                raise expected(
                    "None with partial_fit or warm_start", remedy, checkpoint=self.checkpoint
                )
            goes_on = (one_epoch or self.warm_start) and hasattr(self, "module_")
            before, n_before = (self.privacy_, self.n_iter_) if goes_on else (None, 0)
            if before is not None:
                self._check_same_neighbours(check_relation(before.neighboring_relation))
            self._check_beside(X, groups)
            given = (X, y, sample_weight)
            X, y = from_dataset(X, y)
            self._by_index = isinstance(X, DatasetRows)
            how = {"goes_on": goes_on, "classes": classes, "sample_weight": sample_weight}
            records, facts = self._taken_in(X, y, **how)
            if self.module is None:  # which would know of units
                self._warn_if_undeclared(given[0], facts)
            records = self._by_person(records, groups)
            plan = self._plan(OneEpoch(**vars(facts)) if one_epoch else facts)
            _fitting.check_in_chunks(self, plan, records)
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
            _fitting.check_n_rows(records.X, model.max_rows)
            if self._calls_foreign_code() or self.checkpoint is not None:
                plan.config.rehearse(model)
            watch = self._watch(public)
            if watch is not None:
                watch(0, plan.config.start(model))  # a trial of the public rows
            arrays = (*records.arrays, *networks.weights(self.module_))
            _fitting.begun(self, plan, *arrays, beside=public)
            steps = _fitting.progress(self, plan.n_steps)
            self.privacy_ = _fitting.charged(self, plan, given, before, groups=groups)
            self.public_scores_ = _checkpoint.notes()
            streams = _fitting.streams(self, *arrays)
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
        rate = _fitting.sampling_rate(
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
        seed = _fitting.initial_seed(self)
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
    """Declared or found classes, or labels that do not exclude each other.

    Parameters
    ----------
    loss : {"cross_entropy", "focal", "ranked_probability"}, class or callable, \
            default="cross_entropy"
        What is clipped and summed is its gradient. ``"cross_entropy"`` takes
        ``loss__label_smoothing``, ``"focal"`` ``loss__gamma`` (2); ``"ranked_probability"`` is for
        classes whose sorted order means something. Or a loss of torch, of each record whatever its
        ``reduction``, or a function of outputs and targets (class numbers) that returns one number
        per record: a record's must not depend on others, which is tried and assumed as for
        ``module``. With y (n, n_labels) of 0 and 1 each label has a loss of its own, and they are
        added up.
    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
    class_weight : dict or None, default=None
        Public weights ≥ 0 of classes, 1 for those that are not named; each clipped gradient is
        multiplied by its own. The noise is for the largest, so it gives balance at the cost of
        noise. ``"balanced"`` is refused: the shares of classes are private.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    """

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
        return _fitting.n_classes(self, classes)

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
        self.classes_, codes = _fitting.encode_labels(y, known, type(self).__name__)
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
    """Targets scaled by their public bounds.

    Parameters
    ----------
    loss : {"squared_error", "absolute_error", "huber"}, class or callable, default="squared_error"
        What is clipped and summed is its gradient, on the scale that the network works on;
        ``"huber"`` takes ``loss__delta`` (1). Or a loss of torch, of each record
        whatever its ``reduction``, or a function of outputs and targets (n, n_targets) that returns
        one number per record: a record's must not depend on others, which is tried and assumed as
        for ``module``.
    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped; the network then works on [-1, 1].
        None takes targets as they are, which should then be of the order of 1.
    """

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
        low, high = _fitting.target_bounds(self.target_bounds)
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
