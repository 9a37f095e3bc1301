"""Sums of records in full precision: whatever was set outside is put back, and does not reach."""

import threading
from contextlib import nullcontext, suppress
from functools import partial

import numpy as np
import pytest
import torch
from engine.networks import seeded
from scipy import special
from sklearn.base import clone
from torch import nn

from skdp import (
    DPSGDClassifier,
    DPSGLDClassifier,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    OPSPosteriorSampler,
    PrivacyLedger,
)
from skdp.engine import precision
from skdp.engine.loop import ReleasePlan, last, run
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum
from skdp.engine.precision import strict, strictly
from skdp.engine.sampling import sampling
from skdp.fitting.streams import Streams
from skdp.testing import fixed_streams

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning", "ignore::skdp.FitWarning")
BACKENDS = torch.backends
NEWER = hasattr(BACKENDS, "fp32_precision")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 5)).astype(np.float32)
Y = np.arange(64) % 2


def of(read, *names):
    """A setting; None where older and newer names contradict each other."""
    try:
        return read(*names)
    except RuntimeError:
        return None


def told():
    """All that the process is set to, and this thread."""
    matmul = BACKENDS.cuda.matmul
    found = {
        "products": of(torch.get_float32_matmul_precision),
        "dtype": torch.get_default_dtype(),
        "cublas": of(getattr, matmul, "allow_tf32"),
        "cudnn": of(getattr, BACKENDS.cudnn, "allow_tf32"),
        "fp16": matmul.allow_fp16_reduced_precision_reduction,
        "bf16": matmul.allow_bf16_reduced_precision_reduction,
        "accumulated": getattr(matmul, "allow_fp16_accumulation", False),
        "autocast": torch.is_autocast_enabled("cpu"),
        "flushed": precision._TINY * 1.0 == 0.0,
    }
    if NEWER:
        wholes = {"all": BACKENDS, "of cudnn": BACKENDS.cudnn, "of cublas": matmul}
        parts = {
            f"{name} {part}": getattr(getattr(BACKENDS, name), part)
            for name, part in [
                ("cudnn", "conv"), ("cudnn", "rnn"), ("mkldnn", "matmul"), ("mkldnn", "conv"),
                ("mkldnn", "rnn"),
            ]
        }  # fmt: skip
        found |= {name: one.fp32_precision for name, one in (wholes | parts).items()}
    return found


FULL = {
    "products": {"highest", None},
    "dtype": {torch.float32, torch.float64},
    **{name: {False, None} for name in ("cublas", "cudnn")},
    **{name: {False} for name in ("fp16", "bf16", "accumulated", "autocast", "flushed")},
}


def less(found):
    return {name for name, value in found.items() if value not in FULL.get(name, {"ieee", "none"})}


def newer(holder, name="fp32_precision"):
    return lambda value: setattr(holder(), name, value)


LOOSE = {
    "bfloat16 in products": (torch.set_float32_matmul_precision, "medium", "highest"),
    "TF32 in products": (torch.set_float32_matmul_precision, "high", "highest"),
    "float16 as default": (torch.set_default_dtype, torch.float16, torch.float32),
    "double as default": (torch.set_default_dtype, torch.float64, torch.float32),
    "TF32 in products, by flag": (newer(lambda: BACKENDS.cuda.matmul, "allow_tf32"), True, False),
    "no TF32 in convolutions": (newer(lambda: BACKENDS.cudnn, "allow_tf32"), False, True),
    "split reductions": (
        newer(lambda: BACKENDS.cuda.matmul, "allow_bf16_reduced_precision_reduction"), False, True,
    ),
    "numbers flushed": (torch.set_flush_denormal, True, False),
}  # fmt: skip
if NEWER:
    LOOSE |= {
        "TF32 in all": (newer(lambda: BACKENDS), "tf32", "none"),
        "bfloat16 in all": (newer(lambda: BACKENDS), "bf16", "none"),
        "bfloat16 in products of the CPU": (newer(lambda: BACKENDS.mkldnn.matmul), "bf16", "none"),
        "bfloat16 in its convolutions": (newer(lambda: BACKENDS.mkldnn.conv), "bf16", "none"),
        "TF32 in products of the GPU": (newer(lambda: BACKENDS.cuda.matmul), "tf32", "none"),
        "IEEE in its convolutions": (newer(lambda: BACKENDS.cudnn.conv), "ieee", "tf32"),
    }


@pytest.fixture(params=LOOSE)
def loose(request):
    """Something is set, and set back by the test, not by what it tests."""
    change, value, back = LOOSE[request.param]
    change(value)
    yield
    change(back)


def test_what_is_set_is_full_inside_and_as_it_was_after(loose):
    before = told()
    with suppress(RuntimeError), strict():
        assert not less(told())
        with strict():
            assert not less(told())
        found = told()
        raise RuntimeError
    assert told() == before
    assert not less(found)
    assert found["dtype"] == (torch.float64 if before["dtype"] == torch.float64 else torch.float32)


@pytest.mark.skipif(not NEWER, reason="this torch has the older names alone")
def test_what_was_inherited_from_the_whole_still_is():
    BACKENDS.mkldnn.matmul.fp32_precision = "none"
    BACKENDS.fp32_precision = "tf32"
    try:
        with strict():
            assert not less(told())
        assert told()["mkldnn matmul"] == "tf32"
    finally:
        BACKENDS.fp32_precision = "none"
    assert told()["mkldnn matmul"] == "none"


def test_the_last_of_two_threads_puts_it_back():
    torch.set_float32_matmul_precision("medium")
    entered, leave, found = threading.Event(), threading.Event(), []

    def other():
        with strict():
            entered.set()
            leave.wait(60)
            found.append(torch.get_float32_matmul_precision())

    try:
        thread = threading.Thread(target=other)
        with strict():
            thread.start()
            assert entered.wait(60)
        assert torch.get_float32_matmul_precision() == "highest"  # of the other's sums
        leave.set()
        thread.join(60)
        assert found == ["highest"]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        leave.set()
        torch.set_float32_matmul_precision("highest")


# --- who is in such a block -----------------------------------------------------------------------

NOTES = []


class Noting(nn.Linear):
    """A layer that notes what its forward pass is computed in."""

    def forward(self, x):
        NOTES.append(told())
        return super().forward(x)


@pytest.fixture
def notes():
    NOTES.clear()
    return NOTES


def test_steps_of_a_run_are_in_full_precision(loose, notes):
    flat = FlatModule(seeded(lambda: Noting(5, 1, dtype=torch.float32)))
    clipped_sum = NetworkClippedSum(flat, lambda z, y: (z[:, 0] - y) ** 2, 1.0, method="vmap")
    plan = ReleasePlan(sampling(1.0, 2), clipped_sum, 1.0, "zero_out")
    rows = NetworkRecords(X, Y.astype(np.float32), flat.flat)
    with torch.autocast("cpu", torch.bfloat16):
        last(run(plan, rows, flat.flat.clone(), lambda t: t, lambda t, g, step: t, Streams()))
    assert len(notes) == 2
    assert not set().union(*map(less, notes))


def test_a_fit_is_in_full_precision_from_the_first_to_the_last(loose, notes):
    before = told()
    model = DPSGDClassifier(
        module=Noting, classes=[0, 1], n_samples=64, max_iter=2, sampling_rate=1.0
    )
    with torch.autocast("cpu", torch.bfloat16):
        model.fit(X, Y)
    n_notes = len(notes)
    assert n_notes > 2
    assert not set().union(*map(less, notes))
    assert told() == before


def test_small_numbers_are_flushed_in_no_sampler(monkeypatch):
    found = []
    monkeypatch.setattr(OPSPosteriorSampler, "_keep", lambda *_: found.append(told()["flushed"]))
    torch.set_flush_denormal(True)
    try:
        OPSPosteriorSampler(classes=[0, 1], n_samples=64, max_iter=2).fit(X, Y)
        assert told()["flushed"]
    finally:
        torch.set_flush_denormal(False)
    assert found == [False]


def test_own_networks_are_in_single_precision_at_least():
    torch.set_default_dtype(torch.float16)
    try:
        for sizes in ((), (3,)):
            model = DPSGDClassifier(
                hidden_layer_sizes=sizes, classes=[0, 1], n_samples=64, max_iter=2
            )
            model.fit(X, Y)
            assert {p.dtype for p in model.module_.parameters()} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", precision._FROM_OUTSIDE)
def test_less_precision_by_the_environment_is_refused_before_the_charge(name, monkeypatch):
    model = DPSGDClassifier(hidden_layer_sizes=(2,), classes=[0, 1], n_samples=64, max_iter=1)
    for value, says in {"BF16": name, "STRICT": None}.items():
        monkeypatch.setenv(name, value)
        with PrivacyLedger() as ledger:
            if says is None:
                model.fit(X, Y)
            else:
                with pytest.raises(ValueError, match=f"{says}='{value}'"):
                    model.fit(X, Y)
        assert len(ledger.entries) == (says is None)


def weight_normed(n_features, n_outputs):
    """A network whose weights a caller's `cached()` would keep from step to step."""
    first = nn.utils.parametrizations.weight_norm(nn.Linear(n_features, 4))
    return nn.Sequential(first, nn.Tanh(), nn.Linear(4, n_outputs))


AMBIENT = {
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "another device": partial(torch.device, "meta"),
    "cached weights": nn.utils.parametrize.cached,
    "errors of numbers": partial(np.errstate, all="raise"),
    "errors of functions": partial(special.errstate, all="raise"),
}


def ambient_fits():
    given = {"classes": [0, 1], "n_samples": 60}
    steps = given | {"max_iter": 3, "hidden_layer_sizes": (4,)}
    yield from (DPSGDClassifier(5.0, **steps), DPSGLDClassifier(5.0, **steps))
    yield DPSGLDClassifier(5.0, **steps, module=weight_normed)
    yield from (DPVariationalLogisticRegression(5.0, **given), DPStandardScaler(epsilon=5.0))


@pytest.mark.parametrize("mode", [mode for mode in AMBIENT if mode != "cached weights"])
def test_what_a_callback_has_changed_reaches_no_sum(mode):
    with strict(), AMBIENT[mode]():
        assert precision._missing()
        assert not strictly(lambda *_: precision._missing(), None, None)


@pytest.mark.parametrize("model", ambient_fits(), ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("mode", AMBIENT)
def test_a_fit_is_the_same_whatever_is_set_around_it(mode, model):
    X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
    y = (X[:, 0] > 0).astype(int)
    X[0, 0] = 1e-310  # whose square is below all doubles
    use = "transform" if hasattr(model, "transform") else "predict_proba"
    with fixed_streams(), np.errstate():
        expected = getattr(clone(model).fit(X, y), use)(X[1:])
    with fixed_streams(), AMBIENT[mode]():
        fitted = clone(model).fit(X, y)
    with nn.utils.parametrize.cached():
        found = getattr(fitted, use)(X[1:])
    np.testing.assert_array_equal(found, expected)
    assert not np.allclose(expected, expected[0])


def on_meta(module):
    module.to("meta")


def on_gradients(module):
    module[0].bias.register_hook(lambda g: 0 * g)


def after_gradients(module):
    module[0].bias.register_post_accumulate_grad_hook(print)


def on_layers(module):
    module[0].register_full_backward_hook(print)


def on_all_layers(_):
    return nn.modules.module.register_module_full_backward_hook(print)


def on_saved_tensors(_):
    return torch.autograd.graph.saved_tensors_hooks(torch.zeros_like, lambda x: x)


LEFT = {on_meta: "meta device", on_gradients: "hooks", after_gradients: "hooks", on_layers: "hooks"}
LEFT |= {on_all_layers: "hooks", on_saved_tensors: "hooks on saved tensors"}


@pytest.mark.parametrize("leave", LEFT)
def test_what_is_left_on_a_module_is_refused_before_the_charge(leave):
    module = nn.Sequential(nn.Linear(5, 2))
    left = leave(module) or nullcontext()
    model = DPSGDClassifier(module=module, classes=[0, 1], n_samples=64, max_iter=1)
    with PrivacyLedger() as ledger, left, pytest.raises(ValueError, match=LEFT[leave]):
        model.fit(X, Y)
    assert not ledger.entries
