"""Parameters that every estimator of a network has, what they say of a run, and the network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

from torch import nn

from skdp.algorithms import dp_sgd
from skdp.algorithms.parts.network_models import LinearModel, NetworkModel, PerceptronModel
from skdp.algorithms.parts.training import NetworkRun, perceptron_size
from skdp.base import ProtectedUnit, PublicFacts
from skdp.estimators import _doubts
from skdp.estimators._parameters import Resumable, WeightedRows, WithParts
from skdp.fitting.declared import sampling_rate
from skdp.fitting.validate import (
    expected,
    flag,
    integer,
    integer_or_auto,
    number_or_auto,
    one_of,
    positive,
)
from skdp.models import perceptron as networks
from skdp.models.tasks import GivenLoss, Task
from skdp.relations import ROW

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


@dataclass(eq=False, repr=False)
class NetworkParameters(WithParts, ProtectedUnit, Resumable, WeightedRows):
    """Parameters of the training of a network, whatever the algorithm and the task.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, class, callable or None, default=None
        A network instead of the perceptron, or a class or a function that makes one: it gets
        n_features, which is ``X.shape[1]``, and n_outputs, a class only if it asks for them, and
        what is given as ``module__`` parameters, e.g. ``module__hidden=32``. Records reach it as
        they are, (n, n_features) or images (n, channels, height, width) or sequences (n, time,
        width), as floating-point numbers; integers as 64-bit integers where it takes nothing else,
        as an `Embedding` does. It returns logits (n, n_classes) without softmax, or predictions
        (n, n_targets). Its initial weights must not have been learned from the private rows. A
        module is copied, and each `fit` starts from its weights; parameters with
        ``requires_grad=False`` stay as they are. A record on which it fails contributes nothing.

        It must treat each record by itself, in training too, and keep no state: the guarantee is
        conditional on that, as ``privacy_.assumptions`` says. A module that is seen to mix is
        refused before anything is spent: in a trial on batches of 1 to 33 synthetic records of
        scale .1 to 10, in training and in evaluation. The trial cannot see a branch on other
        values, other batch sizes, the weights, a rare random event, the time or global state.
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
        Records that are worked on at once, for memory; None is 1024, fewer where layers keep much
        of each, and on a device as many as take 4 GiB. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
    secure : bool, default=False
        Of the perceptron, with the default loss: integers in place of the rounding of floats in
        gradients, sums and noise, which is discrete. The guarantee then no longer treats
        floating-point arithmetic as exact. Up to three times slower (with persons eight), and as
        accurate. Not with ``device``, ``module`` or ``mixed_precision``, nor for more than 100,000
        parameters (with persons 10,000). See docs/privacy.md, section 8.

    Attributes
    ----------
    n_iter_ : int
        Number of noisy steps taken, in all releases that ``privacy_`` states.
    public_scores_ : list of (int, float)
        Steps and scores on ``X_public``; empty without it. Scores on training rows are never kept:
        they are not private.

    Notes
    -----
    With ``unit=Persons(...)`` each row's gradient is clipped as ever, and a person contributes the
    sum over its rows, clipped to the ``clip`` of `Persons` times ``clip_norm``; it is persons who
    are sampled. Batches, ``n_samples`` and step sizes count rows: ``n_groups`` times
    ``rows_per_group``.
    """

    _: KW_ONLY
    hidden_layer_sizes: Any = (100,)
    activation: str = "tanh"
    module: Any = None
    max_iter: int | str = "auto"
    epochs: float | None = None
    batch_size: int | str = "auto"
    sampling_rate: float | None = None
    clip_norm: float | str = "auto"
    clipping: str = "flat"
    physical_batch_size: int | None = None
    mixed_precision: bool = False
    device: Any = None

    _PARTS = ("module", "loss", "optimizer", "learning_rate_schedule")
    _looks_up = False  # whether the fit read integer ids; not known to fits of 0.1.0
    _by_index = False  # whether the fit read a dataset
    warm_start = False  # of some algorithms, as the next: no fields here
    prenoise_scale = 0.0
    _declared_by: ClassVar[str] = _doubts.SCALED_BEFORE
    _REMEDY: ClassVar[str] = "Scale the features, or give a larger learning_rate or max_iter."
    score: ClassVar[Callable[..., float]]
    loss: Any = None

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

    def _built(self, n_features: int, n_outputs: int, seed: int) -> nn.Module:
        """Make the network, its weights drawn."""
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
    ) -> LinearModel | NetworkModel | PerceptronModel:
        """Wrap a network for a run; any other than our own perceptron is tried first."""
        task, prenoise = self._task(n_outputs), self.prenoise_scale != 0.0
        own = self.module is None and networks.is_perceptron(module)
        flat = self.clipping == "flat" and self.device is None and not prenoise
        layers = list(module.children())
        if self.secure:
            if not (own and isinstance(module, nn.Sequential)):
                raise expected("a perceptron with secure=True", module_=module)
            return PerceptronModel(module, task, self.neighboring_relation)
        # The gradients of a chunk's rows lie in memory before persons' are summed.
        fits = self._relation.unit == ROW or (shape[0] + 1) * n_outputs <= _MOST_OF_PERSON
        closed = own and flat and fits and task.has_residual and not weighted
        if closed and len(layers) == 1 and isinstance(layers[0], nn.Linear):
            return LinearModel(layers[0], task, self.neighboring_relation)
        model = NetworkModel(
            module,
            task.loss,
            "vmap" if prenoise else "book-keeping",
            device=self.device,
            mixed_precision=bool(self.mixed_precision),
        )
        if not own or isinstance(task.loss, GivenLoss):
            model.try_out(task, shape, every_gradient=prenoise, integers=integers)
        return model


def _layer_sizes(sizes: Any) -> tuple[int, ...]:
    try:
        return tuple(integer(1, hidden_layer_sizes=size) for size in sizes)
    except (TypeError, ValueError):
        raise expected(
            "a tuple of integers >= 1", "() is a linear model", hidden_layer_sizes=sizes
        ) from None
