"""The arithmetic in which private sums are computed, whatever the caller has set.

>>> import torch
>>> from skdp.engine.precision import strict
>>> torch.set_float32_matmul_precision("medium")  # products in bfloat16
>>> with strict():
...     torch.get_float32_matmul_precision()
'highest'
>>> torch.get_float32_matmul_precision()
'medium'
>>> torch.set_float32_matmul_precision("highest")

The norm by which a record is clipped and the sum that it enters are different products. In TF32 or
bfloat16 each is off by up to 2⁻¹¹ or 2⁻⁸ of its factors, so that a record is beyond its bound by
more than `skdp.engine.modules.network_sum.ROUNDING` covers (docs/privacy.md, §8).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from threading import Lock, local
from typing import Any, NamedTuple

import numpy as np

from skdp.fitting.validate import expected

_DEVICES = ("cpu", "cuda", "mps", "xpu")
_TINY = 5e-324  # the smallest double, which is 0 where such numbers are flushed
_FROM_OUTSIDE = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")


class _Knob(NamedTuple):
    """A setting of the whole process: how it is read and set, and its values in full precision."""

    read: Callable[[], Any]
    set: Callable[[Any], Any]
    full: tuple[Any, ...]


def _attribute(holder: Any, name: str, *full: Any) -> _Knob:
    return _Knob(lambda: getattr(holder, name), lambda value: setattr(holder, name, value), full)


def _reduction(matmul: Any, name: str) -> _Knob:
    """Reductions of products in half precision, which newer versions split by a second flag."""
    if not hasattr(matmul, split := f"{name}_split_k"):
        return _attribute(matmul, name, False)
    return _Knob(
        lambda: (getattr(matmul, name), getattr(matmul, split)),
        lambda value: setattr(matmul, name, value),
        ((False, True), (False, False)),
    )


@cache
def _knobs(torch: Any) -> list[_Knob]:
    """Settings of torch: the older names, then the newer ones, a whole before its parts."""
    backends, matmul = torch.backends, torch.backends.cuda.matmul
    newer = [backends, backends.cudnn, matmul]  # that of mkldnn sets the first in some versions
    for holder in (backends.cudnn, backends.mkldnn):
        newer += [getattr(holder, part, None) for part in ("matmul", "conv", "rnn")]
    return [
        _Knob(torch.get_default_dtype, torch.set_default_dtype, (torch.float32, torch.float64)),
        _Knob(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, ("highest",)),
        _attribute(backends.cudnn, "allow_tf32", False),
        _attribute(backends.mkldnn, "allow_tf32", False, None),
        _reduction(matmul, "allow_fp16_reduced_precision_reduction"),
        _reduction(matmul, "allow_bf16_reduced_precision_reduction"),
        _attribute(matmul, "allow_fp16_accumulation", False),
        # Weights that a caller's `cached()` keeps would be those of the first step in all of them.
        _attribute(torch.nn.utils.parametrize, "_cache_enabled", 0),
        *(_attribute(one, "fp32_precision", "ieee", "none") for one in newer),
    ]


_lock, _users, _before = Lock(), 0, []
_own = local()  # what a thread holds of this


def _read(knob: _Knob) -> Any:
    """Return what is set; ``full[0]`` where this version has no such setting, or cannot tell."""
    try:
        return knob.read()
    except (AttributeError, RuntimeError):  # older and newer names may contradict each other
        return knob.full[0]


@contextmanager
def _full_precision(torch: Any) -> Iterator[None]:
    """Set the whole process to full precision; the last of several blocks puts it back."""
    global _users
    with _lock:
        if not _users:
            _before[:] = [(knob, _read(knob)) for knob in _knobs(torch)]
            for knob, _ in _before:
                if _read(knob) not in knob.full:
                    knob.set(knob.full[0])
        _users += 1
    _own.is_full = True
    try:
        yield
    finally:
        _own.is_full = False
        with _lock:
            _users -= 1
            for knob, value in () if _users else _before:
                if _read(knob) != value:
                    knob.set(value)


@contextmanager
def _small_numbers(torch: Any) -> Iterator[None]:
    """Flush none of this thread to 0."""
    told = torch.set_flush_denormal(False)
    try:
        yield
    finally:
        if told:
            torch.set_flush_denormal(True)


@cache
def _autocast_devices(torch: Any) -> list[str]:
    """Devices that this version knows."""
    found = []
    for device in _DEVICES:
        with suppress(RuntimeError):
            torch.is_autocast_enabled(device)
            found.append(device)
    return found


def _missing() -> list[AbstractContextManager[Any]]:
    """Blocks that this thread still needs: none inside of one, unless something was changed."""
    found: list[AbstractContextManager[Any]] = []
    # An error, or a warning, would tell of the value of one record, and after the charge.
    if {*np.geterr().values()} != {"ignore"}:
        found.append(np.errstate(all="ignore"))
    special: Any = sys.modules.get("scipy.special")
    if hasattr(special, "errstate") and {*special.geterr().values()} != {"ignore"}:
        found.append(special.errstate(all="ignore"))
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "backends"):  # not imported, or not yet as a whole
        return found
    if not getattr(_own, "is_full", False):
        found.append(_full_precision(torch))
    if torch.is_inference_mode_enabled():  # makes tensors that no gradient can be had of
        found.append(torch.inference_mode(False))
    if not torch.is_grad_enabled():
        found.append(torch.enable_grad())
    if torch.empty(0).device.type != "cpu":
        found.append(torch.device("cpu"))
    devices = filter(torch.is_autocast_enabled, _autocast_devices(torch))
    found += [torch.autocast(device, enabled=False) for device in devices]
    if _TINY * 1.0 == 0.0:
        found.append(_small_numbers(torch))
    return found


@contextmanager
def strict() -> Iterator[None]:
    """Compute in IEEE arithmetic of at least single precision; put back what was set before.

    TF32, bfloat16 and half precision inside products, reductions in half precision, the caller's
    autocast, a default type of less than single precision, a default device, small numbers flushed
    to 0, a mode without gradients, and NumPy's or SciPy's errors in place of numbers: none of these
    is left. Settings of the process are so for other threads too, until the last block ends.
    """
    with ExitStack() as stack:
        for block in _missing():
            stack.enter_context(block)
        yield


def strictly(clipped_sum: Callable[[Any, Any], Any], theta: Any, batch: Any) -> Any:
    """Return a sum at θ over a batch, wherever that is, in full precision."""
    with strict() if _missing() else nullcontext():
        return clipped_sum(theta, batch)


def check_environment() -> None:
    """Refuse what no public function of torch undoes: less precision, and hooks of the caller."""
    torch: Any = sys.modules["torch"]
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks(""):
            pass
    except RuntimeError:
        text = "Expected a fit outside of torch.autograd.graph's hooks on saved tensors: end them."
        raise ValueError(text) from None
    for name in _FROM_OUTSIDE:
        if os.environ.get(name, "STRICT").upper() not in ("STRICT", ""):
            remedy = "the environment variable lets sums of records be computed in less precision"
            raise expected("unset, or STRICT", remedy, **{name: os.environ[name]})
