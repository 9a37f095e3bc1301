"""Whatever an event, a ledger file or a report holds: an error, or at least a cheap lower bound.

The lower bounds are one-line likelihood-ratio tests, written down again here and shared with no
accountant: a set S with P(S) under one data set and Q(S) under a neighbour gives
ε ≥ log((P(S) - δ)/Q(S)).
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

from fuzz.choices import Choices
from scipy.special import log_ndtr, ndtr

from skdp.privacy import (
    PrivacyLedger,
    PrivacyReport,
    PrivacyWarning,
    accountants,
    calibrate_noise_multiplier,
    delta_of_event,
    epsilon,
    epsilon_of_event,
    epsilon_to_gdp,
    gdp_to_epsilon,
    langevin_mu,
    last_iterate_mu,
    posterior_samples_epsilon,
)
from skdp.privacy.accounting import _BOUNDS
from skdp.privacy.events import dp_sgd_event, event_from_dict, event_to_dict, terms_of
from skdp.relations import RELATIONS

# An accountant that fails says nothing wrong; a number must never come out of a failure.
FAILED = (ValueError, TypeError, ArithmeticError)
ALLOWED = (ValueError, TypeError)


def quick_pld(terms: Any, relation: str, **options: Any) -> Any:
    """Privacy losses of many compositions take minutes and gigabytes, and no path of their own."""
    count = sum(getattr(term, "count", 0) * getattr(term, "n_samples", 1) for term in terms)
    quiet = any(getattr(term, "noise_multiplier", 1.0) < 0.3 for term in terms)
    if count > 200 or len(terms) > 2 or quiet or any(getattr(t, "eta", 0.0) > 3 for t in terms):
        raise accountants.NoBoundError("too much work here")
    return accountants.pld(terms, relation, **options)


LARGEST_COUNT = 12  # privacy losses of very many compositions take the memory, and no new path
FACTOR = {"zero_out": 1.0, "add_or_remove_one": 1.0, "replace_one": 2.0}
FIELDS = {
    "GaussianDpEvent": ["noise_multiplier"],
    "LaplaceDpEvent": ["noise_multiplier"],
    "PoissonSampledDpEvent": ["sampling_probability", "event"],
    "SelfComposedDpEvent": ["event", "count"],
    "ComposedDpEvent": ["events"],
    "PosteriorSamplesDpEvent": ["eta", "n_samples"],
    "RepeatAndSelectDpEvent": ["event", "mean", "shape"],
    "NoOpDpEvent": [],
    "NonPrivateDpEvent": [],
    "ZCDpEvent": ["rho", "xi"],
    "UnsupportedDpEvent": [],
    "SampledWithReplacementDpEvent": ["source_dataset_size", "sample_size", "event"],
    "DpEvent": [],
    "Any": [],
}


def event_values(choices: Choices, depth: int = 3) -> Any:
    """An event as JSON would hold it, mostly well-formed."""
    if choices.chance(24):
        return choices.value()
    name = choices.pick(list(FIELDS))
    values: dict[str, Any] = {"type": choices.text() if choices.chance(40) else name}
    for field in FIELDS[name]:
        if choices.chance(40):
            continue
        values[field] = field_value(choices, field, depth)
    if choices.chance(40):
        values[choices.text()] = choices.value()
    return values


def field_value(choices: Choices, field: str, depth: int) -> Any:
    if choices.chance(24):
        return choices.value()
    if field == "event":
        return event_values(choices, depth - 1) if depth else {"type": "NoOpDpEvent"}
    if field == "events":
        count = choices.below(4) if depth else 0
        return [event_values(choices, depth - 1) for _ in range(count)]
    if field == "n_samples":  # the exact curve takes time and memory by the draw
        return choices.below(512)
    if field == "count":
        return choices.below(64) if choices.below(4) else choices.below(2**LARGEST_COUNT)
    if field in ("sampling_probability", "mean", "shape"):
        value = choices.number() / (100.0 if field == "sampling_probability" else 1.0)
        return "inf" if value == math.inf else value
    return choices.number()


def sampled_gaussian_floor(sigma: float, q: float, delta: float) -> float:
    """One noisy step, seen through the best of a few thresholds, both ways round."""
    found = 0.0
    for t in (-6.0, -3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        x = t * sigma
        for tail in (1.0, -1.0):
            absent = float(ndtr(-tail * x / sigma))
            present = (1 - q) * absent + q * float(ndtr(-tail * (x - 1.0) / sigma))
            for p, r in ((absent, present), (present, absent)):
                if p > delta and r > 0.0:
                    found = max(found, math.log(p - delta) - math.log(r))
    return found


def gaussian_delta(mu: float, eps: float) -> float:
    low = math.exp(min(eps + float(log_ndtr(-eps / mu - mu / 2)), 0.0))
    return float(ndtr(-eps / mu + mu / 2)) - low


def full_batch_floor(mu: float, delta: float) -> float:
    """The exact ε of a Gaussian mechanism by bisection from below, for μ that doubles resolve."""
    if not 1e-6 < mu < 1e6 or delta < 1e-200:
        return 0.0
    low, high = 0.0, mu * mu / 2 + 40 * mu
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return low


def floor(terms: Any, delta: float, relation: str) -> float:
    """A lower bound on ε that no sound accountant may pass under; 0 where 1 - δ has few digits."""
    factor, squares, best = FACTOR[relation], 0.0, 0.0
    for term in terms if delta < 1.0 - 1e-6 else ():
        kind = type(term).__name__
        if kind == "GaussianTerm":
            if term.noise_multiplier == 0.0:
                return math.inf
            sigma = term.noise_multiplier / factor
            if term.sampling_rate == 1.0:
                squares += min(term.count, 1e100) / min(max(sigma, 1e-90), 1e90) ** 2
            elif 1e-3 < sigma < 1e3:
                # Under replace-one both neighbours hold a record: no doubling of the mixture here.
                best = max(best, sampled_gaussian_floor(sigma * factor, term.sampling_rate, delta))
        elif kind == "LaplaceTerm":
            if term.noise_multiplier == 0.0:
                return math.inf
            best = max(best, factor / term.noise_multiplier + 2 * math.log1p(-delta))
        elif kind == "PosteriorTerm":
            p = 1 / (1 + math.exp(-min(term.eta, 600.0) / 2))
            if p > delta:
                best = max(best, math.log(p - delta) + math.log1p(math.exp(min(term.eta, 600) / 2)))
        elif kind == "SelectionTerm":
            # A score without information gives out what one run gives out, if there is a run.
            some = -math.expm1(-term.mean) if term.shape == math.inf else 1.0
            if delta < some:
                best = max(best, floor(term.inner, delta / some, relation))
    return max(best, full_batch_floor(math.sqrt(min(squares, 1e300)), delta))


def holds_nan(values: Any) -> bool:
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list | tuple):
        return any(map(holds_nan, values))
    return isinstance(values, float) and math.isnan(values)


def check_event(choices: Choices) -> None:
    values = event_values(choices)
    relation = choices.pick(RELATIONS)
    delta = choices.number() if choices.chance(3) else 10.0 ** -(1 + choices.below(11))
    accountant = "auto" if choices.chance(12) else choices.pick(["rdp", "gdp", "gdp", "rdp"])
    try:
        event = event_from_dict(values)
        terms = terms_of(event)
    except (*ALLOWED, AttributeError):  # no mapping
        return
    assert not holds_nan([value for term in terms for value in vars(term).values()])
    assert terms_of(event_from_dict(json.loads(json.dumps(event_to_dict(event))))) == terms
    check_epsilon(event, terms, delta, relation, accountant)


def check_epsilon(event: Any, terms: Any, delta: float, relation: str, accountant: str) -> None:
    try:
        found = epsilon_of_event(event, delta, relation, accountant)
    except FAILED:
        return
    assert found >= 0.0, f"NaN or negative: {found}"
    least = floor(terms, delta, relation)
    assert found >= least * (1 - 1e-9) - 1e-9, f"epsilon {found} is below {least}: {terms} {delta}"
    if math.isfinite(found) and accountant != "auto":
        try:
            back = delta_of_event(event, found, relation, accountant)
        except FAILED:
            return
        assert 0.0 <= back <= 1.0


def check_calls(choices: Choices) -> None:
    """Every public function of numbers, with a value of any type for each of them."""

    def some() -> Any:
        kind = choices.below(8)
        return choices.odd_value() if kind == 0 else choices.value() if kind == 1 else tame()

    def tame() -> Any:
        return choices.number()

    def count() -> Any:
        return some() if choices.chance(6) else choices.below(40)

    kind = choices.below(7)
    try:
        match kind:
            case 0:
                dp_sgd_event(some(), some(), count())
                return
            case 1:
                sigma = some()
                found = epsilon(
                    noise_multiplier=sigma, delta=some(), n_steps=count(), accountant="gdp"
                )
            case 2:
                found = gdp_to_epsilon(some(), some())
            case 3:
                found = epsilon_to_gdp(some(), some())
            case 4:
                found = posterior_samples_epsilon(
                    eta=some(), n_samples=count(), delta=choices.pick([0, 1e-5, 0.5, some()])
                )
            case 5:
                eps, delta = some(), choices.pick([1e-5, 1e-3, some()])
                found = calibrate_noise_multiplier(
                    epsilon=eps, delta=delta, n_steps=count(), accountant="gdp"
                )
                if found > 0:
                    event = dp_sgd_event(found, 1.0, 1)
                    # One step is the least that was asked for.
                    assert epsilon_of_event(event, delta) <= eps * (1 + 1e-6)
            case _:
                name = choices.pick([last_iterate_mu, langevin_mu])
                found = name(**{field: some() for field in parameters(name)})
    except ALLOWED:
        return
    assert found >= 0.0, f"NaN or negative: {found}"


def parameters(function: Any) -> list[str]:
    return [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]


_SPENT = [(4.0, 1.0, 16), (2.0, 1.0, 1)]


@functools.cache
def valid_ledger() -> tuple[Path, bytes, float]:
    """A folder to work in, a ledger file of two entries, and what it costs."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-ledger-"))
    ledger = PrivacyLedger(path=folder / "valid")
    for i, spent in enumerate(_SPENT):
        ledger.spend(dp_sgd_event(*spent), label=f"fit {i}")
    return folder, (folder / "valid").read_bytes(), ledger.total(1e-5)


def check_ledger_file(choices: Choices) -> None:
    """Bytes added anywhere to a ledger never make it cheaper, and never crash it."""
    folder, whole, cost = valid_ledger()
    path = folder / "ledger"
    kind = choices.below(5)
    if kind == 0:  # nothing of a ledger is left
        content, least = choices.rest(), 0.0
    elif kind == 1:  # something comes after
        content, least = whole + choices.rest(), cost
    elif kind == 2:  # something comes between
        at = choices.below(len(whole))
        content, least = whole[:at] + choices.rest()[:64] + whole[at:], 0.0
    elif kind == 3:  # an entry that somebody made up
        line = {"label": choices.value(), "neighboring_relation": "zero_out"}
        line["event"] = event_values(choices)
        if choices.chance(4):
            line["nominal"] = choices.value()
        content, least = whole + json.dumps(line).encode() + b"\n", cost
    else:  # the file breaks off inside an entry
        at = choices.below(len(whole))
        content, least = whole[:at], 0.0
    path.write_bytes(content)
    try:
        ledger = PrivacyLedger(path=path)
        entries = ledger.entries
    except ALLOWED:
        return
    try:
        total = ledger.total(1e-5)
    except FAILED:
        return
    assert total >= least * (1 - 1e-9)
    complete = sum(1 for line in content.split(b"\n")[:-1])
    assert len(entries) in (complete, complete + 1)
    ledger.spend(dp_sgd_event(4.0, 1.0, 1), label="next")
    again = PrivacyLedger(path=path)
    assert len(again.entries) == len(entries) + 1
    assert again.total(1e-5) >= total * (1 - 1e-9)
    if os.path.getsize(path) > 2**20:
        path.unlink()


REPORTS = [
    PrivacyReport.of(dp_sgd_event(4.0, 1.0, 16), delta=1e-5, sampling="full batch"),
    PrivacyReport.of(dp_sgd_event(0.0, 1.0, 1), delta=1e-5, sampling="full batch"),
    PrivacyReport.of(dp_sgd_event(1.0, 1.0, 2), delta=1e-5, sampling="x", seeded=True),
]


def check_report(choices: Choices) -> None:
    """A changed report is refused, or claims no less than its event costs."""
    values = json.loads(choices.pick(REPORTS).to_json())
    for _ in range(choices.below(4)):
        field = choices.pick([*values, "event", "epsilon", "unknown"])
        change = choices.below(4)
        if change == 0:
            values.pop(field, None)
        elif field == "event":
            values["event"] = event_values(choices)
        elif field in ("epsilon", "delta") and change > 1:
            values[field] = choices.number()
        else:
            values[field] = choices.value()
    text = json.dumps(values)
    if choices.chance(8):
        at = choices.below(len(text))
        text = text[:at] + choices.text() + text[at + choices.below(8) :]
    try:
        report = PrivacyReport.from_json(text)
    except FAILED:
        return
    if report.accountant != "gdp_clt":
        least = floor(terms_of(report.event), report.delta, report.neighboring_relation)
        assert report.epsilon >= 0.998 * least
    if report.valid:
        assert math.isfinite(report.epsilon)
        assert not report.seeded
    shown = repr(report) + report._repr_html_()
    assert report.valid or "-DP\n" not in shown
    PrivacyReport.from_json(report.to_json())


CHECKS = [check_event, check_event, check_event, check_calls, check_ledger_file, check_report]


def check(data: bytes) -> None:
    """Run one input."""
    choices = Choices(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers that overflow inside accountants
        with mock.patch.dict(_BOUNDS, pld=quick_pld), accountants._quiet_absl():
            choices.pick(CHECKS)(choices)
