"""Arrays and parameters made of bytes: refused in clear words and for nothing, or a valid release.

Values that must stay secret are among the cells: no message may hold them.
"""

from __future__ import annotations

import io
import logging
import pickle
import re
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import pandas as pd
from fuzz.choices import SECRET, SPECIAL, Choices
from scipy import sparse

from skdp import (
    DPPCA,
    BoundedScaler,
    DPBins,
    DPQuantileScaler,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    NormClipper,
    OPSPosteriorSampler,
    PrivacyLedger,
)
from skdp.fitting import declared
from skdp.mechanisms import GaussianMechanism, LaplaceMechanism, QuantileMechanism
from skdp.relations import RELATIONS
from skdp.rows.bounds import BoundedRows

ALLOWED = (ValueError, TypeError)
LINEAR = {"epsilon": None, "noise_multiplier": 9.0, "max_iter": 1}
KINDS: list[tuple[Any, dict[str, Any], int]] = [
    (BoundedScaler, {}, 0),
    (NormClipper, {}, 0),
    (DPStandardScaler, {"epsilon": None, "noise_multiplier": 9.0}, 1),
    (DPQuantileScaler, {"epsilon": 1.0}, 1),
    (DPBins, {"epsilon": 1.0}, 1),
    (DPPCA, {"epsilon": None, "noise_multiplier": 9.0, "n_components": 1}, 1),
    (DPVariationalLogisticRegression, LINEAR, 1),
    (DPVariationalLogisticRegression, {**LINEAR, "classes": [0, 1]}, 1),
    (DPVariationalLinearRegression, LINEAR, 1),
    (DPVariationalLinearRegression, {**LINEAR, "target_bounds": (0, 1)}, 1),
    (DPVariationalPoissonRegression, LINEAR, 1),
    (OPSPosteriorSampler, {"epsilon": 1.0, "delta": 0, "theta_norm": 1.0}, 1),
]
# A number of steps that takes hours is nobody's mistake to find here.
COSTLY = ("max_iter", "n_posterior_samples", "verbose")
DTYPES = [
    "f8", "f4", "f2", "i1", "i8", "u8", "?", "c16", "U20", "S20", "O", "M8[s]", "m8[s]", ">f8",
    ">i4", "g", "V8",
]  # fmt: skip
SECRETS = [float(SECRET), float(SECRET) + 0.125, int(SECRET), SECRET, f"patient {SECRET}"]


def cells(choices: Choices, size: int) -> list[Any]:
    kind = choices.below(4)
    if kind == 0:
        return [choices.number() for _ in range(size)]
    if kind == 1:
        return [choices.pick(SECRETS[:2]) for _ in range(size)]
    if kind == 2:
        return [choices.pick(SPECIAL) for _ in range(size)]
    return [choices.pick([*SECRETS, None, 1, 0, choices.value(1)]) for _ in range(size)]


def as_array(choices: Choices, shape: tuple[int, ...]) -> Any:
    """An array-like of any type; whatever numpy itself will not make, as nested lists."""
    values = cells(choices, int(np.prod(shape)))
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    objects = objects.reshape(shape)
    dtype = choices.pick(["f8", "f8", "f8", *DTYPES])
    try:
        with np.errstate(all="ignore"):
            array = objects.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        array = objects
    wrap = choices.below(12)
    if wrap == 1:
        return array.tolist()
    if wrap == 2 and array.ndim == 2:
        return pd.DataFrame(array)
    if wrap == 3:
        return np.asfortranarray(array)
    if wrap == 4 and array.ndim:
        return array[::-1]
    if wrap == 5 and array.ndim == 2 and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return BoundedRows(array.astype(float), choices.number())
    if wrap == 6:
        array = array.copy()
        array.flags.writeable = False
    if wrap == 7:
        return np.ma.masked_array(array, mask=False)
    if wrap == 8 and array.ndim == 2 and array.dtype.str in ("<f8", "<f4", "<i8"):
        return sparse.csr_array(array)
    return array


def assert_secret(text: str) -> None:
    shown = re.sub(r"0x[0-9a-f]+", "", text)
    assert SECRET not in shown, f"quotes the data: {shown[:300]}"
    assert "8.675309" not in shown, f"quotes the data: {shown[:300]}"


def assert_refused(error: Exception, ledger: PrivacyLedger) -> None:
    assert_secret(f"{error!r}")
    assert ledger.entries == (), f"charged, then refused: {error!r}"


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=0)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def make(choices: Choices) -> tuple[Any, int]:
    kind, parameters, charged = choices.pick(KINDS)
    estimator = kind(**parameters)
    names = [name for name in estimator.get_params() if name not in COSTLY]
    for _ in range(max(0, choices.below(6) - 3)):
        odd = choices.odd_value() if choices.chance(4) else choices.value()
        setattr(estimator, choices.pick(names), odd)
    return estimator, charged


def check_fit(choices: Choices) -> None:
    estimator, charged = make(choices)
    n, d = choices.below(6), choices.below(5)
    shape = choices.pick([(n, d), (n, d), (n, d), (n, d), (n,), (), (n, d, 1)])
    X = as_array(choices, shape)
    y = as_array(choices, choices.pick([(n,), (n,), (n,), (n,), (n, 1), (n, 2), (), (n + 1,)]))
    if choices.below(3):
        y = np.arange(max(n, 1)) % 2
    relation = getattr(estimator, "neighboring_relation", None)
    if not isinstance(relation, str) or relation not in RELATIONS:
        relation = "zero_out"
    with PrivacyLedger(neighboring_relation=relation) as ledger:
        try:
            estimator.fit(X, y)
        except ALLOWED as error:
            assert_refused(error, ledger)
            return
        assert len(ledger.entries) == charged
    if charged:
        assert estimator.privacy_.epsilon >= 0
        assert_secret(repr(estimator.privacy_))
    labels = getattr(estimator, "classes_", ())  # public: declared, or stated to have been read
    private = not charged or np.isfinite(estimator.privacy_.epsilon)
    if private and float(SECRET) not in list(labels):
        assert np.float64(SECRET).tobytes() not in pickle.dumps(estimator)
    assert_answers(choices, estimator)


def assert_answers(choices: Choices, estimator: Any) -> None:
    X = as_array(choices, (2, estimator.n_features_in_))
    for method in ("predict", "predict_proba", "transform"):
        if hasattr(estimator, method):
            try:
                found = np.asarray(getattr(estimator, method)(X))
            except ALLOWED as error:
                assert_secret(f"{error!r}")
                continue
            if found.dtype.kind == "f" and method != "transform":
                assert not np.isnan(found).any()
    if isinstance(estimator, BoundedScaler):
        found = estimator.transform(np.full((1, estimator.n_features_in_), 1e300))
        assert (np.abs(found) <= 1).all()
    if isinstance(estimator, NormClipper):
        found = estimator.transform(np.full((2, estimator.n_features_in_), 1e300))
        lengths = np.linalg.norm(found, axis=1)
        assert (lengths <= estimator.output_norm_ * (1 + 1e-12)).all()


def check_pieces(choices: Choices) -> None:
    """The small functions that every fit rests on."""
    kind = choices.below(5)
    try:
        if kind == 0:
            low, high = declared.target_bounds(choices.value())
            assert low < high
        elif kind == 1:
            classes, codes = declared.encode_labels(
                np.asarray(cells(choices, 4), dtype=object), choices.value(), "estimator"
            )
            assert len(classes) >= 2
            assert codes.max() < len(classes)
        elif kind == 2:
            values = [choices.value() for _ in range(3)]
            mechanism = choices.pick([GaussianMechanism, LaplaceMechanism])(
                values[0], values[1], choices.pick(["zero_out", "replace_one", values[2]])
            )
            assert 0 < mechanism.sensitivity < np.inf
            found = mechanism.release(as_array(choices, (3,)))
            assert np.isfinite(found).all()
        elif kind == 3:
            quantile = QuantileMechanism(
                choices.value(), choices.number(), choices.number(), choices.value()
            )
            found = quantile.release(as_array(choices, (3,)))
            assert quantile.lower <= found <= quantile.upper
        else:
            rows = BoundedRows(np.ones((2, 2)), choices.number())
            assert type(rows[:1]) is np.ndarray
            assert type(rows * 2) is np.ndarray
            assert type(pickle.loads(pickle.dumps(rows))) is BoundedRows
    except ALLOWED as error:
        if kind != 1:  # what is given there is public
            assert_secret(f"{error!r}")


CHECKS = [check_fit, check_fit, check_fit, check_pieces]


def check(data: bytes) -> None:
    """Run one input."""
    choices = Choices(data)
    printed = io.StringIO()
    said, root = Said(), logging.getLogger()
    root.addHandler(said)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            choices.pick(CHECKS)(choices)
    finally:
        root.removeHandler(said)
    for text in [printed.getvalue(), *said.texts, *(str(w.message) for w in caught)]:
        assert_secret(text)
