import math
import subprocess
import sys

import dp_accounting as dp
import numpy as np
import pytest
from bundles import bundled
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp import DPAdditiveClassifier, DPSGDClassifier
from skdp.fitting import plan
from skdp.privacy import (
    accountants,
    accounting,
    calibrate_noise_multiplier,
    epsilon,
    epsilon_of_event,
    gdp_to_epsilon,
    noise_calibration,
)
from skdp.privacy.events import PosteriorSamplesDpEvent, dp_sgd_event
from skdp.privacy.noise_calibration import calibrate_schedule
from skdp.privacy.terms import GaussianTerm
from skdp.relations import ZERO_OUT

SAMPLED = {"noise_multiplier": 1.0, "sampling_rate": 0.01, "n_steps": 1000, "delta": 1e-5}


@pytest.mark.parametrize(
    ("accountant", "relation", "anchor"),
    [
        ("pld", "zero_out", 1.828),
        ("pld", "add_or_remove_one", 1.828),
        ("rdp", "zero_out", 2.101),
        ("pld", "replace_one", 2.843),
    ],
)
def test_poisson_anchors_of_the_design_sheet(accountant, relation, anchor):
    found = epsilon(**SAMPLED, neighboring_relation=relation, accountant=accountant)
    assert found == pytest.approx(anchor, abs=1e-3)  # the anchors have three decimals


def test_replace_one_full_batch_is_doubled_once():
    # 10 × Gaussian(1): dp-accounting's RDP says 19.05 for replace-one, its PLD 46.21
    ten = {"noise_multiplier": 1.0, "n_steps": 10, "delta": 1e-5}
    exact = gdp_to_epsilon(2 * math.sqrt(10), 1e-5)
    assert exact == pytest.approx(46.21, abs=5e-3)
    for accountant in ("auto", "gdp"):
        found = epsilon(**ten, neighboring_relation="replace_one", accountant=accountant)
        assert found == pytest.approx(exact, rel=1e-12)
    pld = epsilon(**ten, neighboring_relation="replace_one", accountant="pld")
    assert exact <= pld <= exact * 1.001  # the grid of the numerical accountant
    assert epsilon(**ten, neighboring_relation="replace_one", accountant="rdp") > exact


@bundled("relation", ["zero_out", "add_or_remove_one", "replace_one"])
@bundled(("sigma", "steps"), [(0.7, 1), (3.0, 1), (10.0, 50), (40.0, 1000)])
def test_pld_of_the_full_batch_is_the_analytic_value(sigma, steps, relation):
    full = {"noise_multiplier": sigma, "n_steps": steps, "delta": 1e-5}
    exact = epsilon(**full, neighboring_relation=relation)
    pld = epsilon(**full, neighboring_relation=relation, accountant="pld")
    assert exact <= pld * (1 + 1e-9)
    assert pld == pytest.approx(exact, rel=2e-3)  # one grid error a step, see _discretisation


def test_auto_is_the_least_valid_bound():
    values = {a: epsilon(**SAMPLED, accountant=a) for a in ("pld", "rdp", "auto")}
    assert values["auto"] == min(values.values())


@pytest.mark.thorough
@settings(max_examples=3)
@given(
    st.floats(0.6, 20), st.floats(1e-3, 1), st.integers(1, 300), st.floats(-9, -2), st.floats(1, 3)
)
def test_more_of_anything_costs_more(sigma, q, steps, log10_delta, factor):
    base = {"sampling_rate": q, "n_steps": steps, "delta": 10**log10_delta}
    # Two numerical upper bounds may each be off by their grid: .5 % covers it (_discretisation).
    slack = 1.005
    value = epsilon(noise_multiplier=sigma, **base)
    assert epsilon(noise_multiplier=sigma * factor, **base) <= value * slack
    more_steps = {**base, "n_steps": math.ceil(steps * factor)}
    assert epsilon(noise_multiplier=sigma, **more_steps) * slack >= value
    rate = {**base, "sampling_rate": min(1.0, q * factor)}
    assert epsilon(noise_multiplier=sigma, **rate) * slack >= value
    more_delta = {**base, "delta": min(0.5, base["delta"] * factor)}
    assert epsilon(noise_multiplier=sigma, **more_delta) <= value * slack


GARBAGE = [float("nan"), -1.0, -1e-300, "1", None, True, [1.0], 1j, np.array([1.0, 2.0])]


@bundled("bad", GARBAGE)
@bundled("name", ["noise_multiplier", "sampling_rate", "n_steps", "delta"])
def test_garbage_never_gives_a_number(name, bad):
    arguments = {**SAMPLED, name: bad}
    if name == "n_steps" and bad is None:
        pytest.skip("means one step")
    if name == "noise_multiplier" and np.ndim(bad):
        # A sequence is a noise schedule; a sequence of sequences is not.
        arguments |= {"noise_multiplier": [bad], "n_steps": None}
    with pytest.raises(ValueError, match=f"Expected {name}="):
        epsilon(**arguments)


BEYOND = {
    "noise_multiplier": [math.inf], "sampling_rate": [1.0000001, math.inf],
    "n_steps": [1.5, math.inf], "delta": [0.0, 1.0, math.inf],
    "neighboring_relation": ["replace", None], "accountant": ["best", None],
}  # fmt: skip


@bundled(("name", "bad"), [(name, bad) for name, values in BEYOND.items() for bad in values])
def test_out_of_range_is_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        epsilon(**{**SAMPLED, name: bad})


@bundled("bad", [float("nan"), -1.0, math.inf])
@bundled(
    "make",
    [
        lambda x: dp.GaussianDpEvent(x),
        lambda x: dp.SelfComposedDpEvent(dp.GaussianDpEvent(x), 3),
        lambda x: dp.ComposedDpEvent([dp.GaussianDpEvent(2.0), dp.GaussianDpEvent(x)]),
        lambda x: dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(x)),
        lambda x: dp.PoissonSampledDpEvent(x, dp.GaussianDpEvent(1.0)),
        lambda x: dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), x),
    ],
)
def test_garbage_inside_an_event_is_refused(make, bad):
    # dp-accounting 0.6.0's RDP answers ε = 0 to a NaN
    with pytest.raises(ValueError, match="Expected"):
        epsilon_of_event(make(bad), 1e-5)


def test_an_unknown_event_is_refused_not_ignored():
    with pytest.raises(ValueError, match="event"):
        epsilon_of_event(dp.dp_event.DiscreteLaplaceDpEvent(1.0, 1), 1e-5)
    with pytest.raises(ValueError, match="event"):
        epsilon_of_event("nothing", 1e-5)


def test_no_noise_is_infinite_and_no_release_is_zero():
    assert epsilon(**{**SAMPLED, "noise_multiplier": 0.0}) == math.inf
    assert epsilon_of_event(dp.NonPrivateDpEvent(), 1e-5) == math.inf
    assert epsilon(**{**SAMPLED, "n_steps": 0}) == 0.0
    assert epsilon(**{**SAMPLED, "sampling_rate": 0.0}) == 0.0
    mixed = dp.ComposedDpEvent([dp.GaussianDpEvent(5.0), dp.NonPrivateDpEvent()])
    assert epsilon_of_event(mixed, 1e-5) == math.inf


@pytest.mark.parametrize(
    ("accountant", "changes", "said"),
    [
        ("gdp", {}, "gdp"),
        ("rdp", {"neighboring_relation": "replace_one"}, "rdp"),
        ("pld", {"delta": 1e-13}, "needs delta"),
        ("pld", {"noise_multiplier": 0.01}, r"0\.05"),
        ("rdp", {"noise_multiplier": 1e8, "sampling_rate": 0.5, "n_steps": 4 * 10**16}, "rdp"),
        ("rdp", {"noise_multiplier": 1e6, "sampling_rate": 1e-3, "n_steps": 10**18}, "rdp"),
    ],
)
def test_an_accountant_without_a_valid_bound_says_so(accountant, changes, said):
    """The last two losses are swallowed by rounding, and are not zero."""
    with pytest.raises(ValueError, match=said):
        epsilon(**SAMPLED | changes, accountant=accountant)


def test_a_composed_event_equals_its_flat_form():
    nested = dp.ComposedDpEvent(
        [dp_sgd_event(2.0, 0.1, 10), dp.SelfComposedDpEvent(dp_sgd_event(2.0, 0.1, 5), 2)]
    )
    assert epsilon_of_event(nested, 1e-5) == epsilon_of_event(dp_sgd_event(2.0, 0.1, 20), 1e-5)


@pytest.mark.parametrize("n", [100, 999, 10_007])
def test_stages_of_very_many_releases_are_one_composition(n, monkeypatch):
    step = GaussianTerm(1.0, 0.01, 1).pld(ZERO_OUT, 1e-3, math.log(1e-14))
    at_once = step.self_compose(n)
    monkeypatch.setattr(accountants, "_PLD_AT_ONCE", 50)
    in_stages = accountants.self_compose(step, n)
    for delta in (1e-2, 1e-6):
        bound = at_once.get_epsilon_for_delta(delta)
        # Both have rounding of about 1e-15 n in δ, which the bounds allow for.
        assert in_stages.get_epsilon_for_delta(delta) == pytest.approx(bound, rel=1e-6)


@pytest.mark.thorough
@settings(max_examples=5)
@given(
    st.floats(0.05, 20),
    st.floats(-9, -2),
    st.one_of(st.just(1.0), st.floats(1e-3, 0.5)),
    st.integers(1, 400),
    st.sampled_from(["zero_out", "add_or_remove_one", "replace_one"]),
)
def test_calibrated_noise_affords_the_target_and_little_more(
    target, log10_delta, q, steps, relation
):
    plan = {"delta": 10**log10_delta, "sampling_rate": q, "n_steps": steps}
    plan["neighboring_relation"] = relation
    sigma = calibrate_noise_multiplier(epsilon=target, **plan)
    assert epsilon(noise_multiplier=sigma, **plan) <= target
    if sigma > 0.051:  # the floor of the numerical accountant may afford more than asked
        assert epsilon(noise_multiplier=sigma / 1.005, **plan) > target


def test_calibration_is_cached_and_infinite_budget_asks_for_no_noise():
    plan = {"epsilon": 1.25, "delta": 1e-6, "sampling_rate": 0.02, "n_steps": 200}
    first = calibrate_noise_multiplier(**plan)
    hits = noise_calibration._calibrate.cache_info().hits
    assert calibrate_noise_multiplier(**plan) == first
    assert noise_calibration._calibrate.cache_info().hits == hits + 1
    assert calibrate_noise_multiplier(**{**plan, "epsilon": math.inf}) == 0.0


# --- memory of what was computed ----------------------------------------------------------------

_TRANSFORMS = """
import os, sys
import numpy as np
from scipy import fft
from skdp.privacy import accountants

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def transforms():
    for i in range(4):
        n = fft.next_fast_len(3_000_000 + 100_000 * i)
        fft.irfft(fft.rfft(np.zeros(n)), n), fft.ifft(fft.fft(np.zeros(n)))

before = resident()
transforms()
kept = resident() - before
accountants.forget_transforms()
print(kept, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_tables_of_large_fourier_transforms_are_not_kept():
    """30 bytes a point of each length: 16 lengths of 10⁷ points are 5 GB."""
    run = subprocess.run(
        [sys.executable, "-c", _TRANSFORMS], capture_output=True, text=True, check=True
    )
    kept, left = map(float, run.stdout.split())
    assert kept > 200  # MB: another SciPy may keep nothing, and need nothing of this
    assert left < kept / 3


def test_a_privacy_loss_forgets_its_transforms(monkeypatch):
    lengths = []
    monkeypatch.setattr(accountants.fft, "rfft", lambda x: lengths.append(len(x)))
    epsilon(noise_multiplier=1.7, delta=1e-6, sampling_rate=0.03, n_steps=77, accountant="pld")
    assert len(set(lengths)) == accountants._TRANSFORMS_KEPT


def test_few_schedules_of_many_levels_are_kept():
    """Their keys hold every level; 4096 of them would be gigabytes."""
    caches = accounting._bound, noise_calibration._calibrate
    for cache in caches:
        cache.cache_clear()
    for target in (1.0, 2.0):
        calibrate_schedule(np.linspace(1.0, 2.0, 40), epsilon=target, delta=1e-6)
    assert [cache.cache_info().currsize for cache in caches] == [0, 0]
    of_many = accounting._bound_of_many, noise_calibration._calibrate_many
    assert all(0 < c.cache_info().currsize <= c.cache_info().maxsize <= 32 for c in of_many)


def test_plans_of_very_many_columns_are_not_kept():
    before = len(plan.PLANS)
    DPAdditiveClassifier(classes=[0, 1], n_samples=5000).plan(n_features=1001)
    DPSGDClassifier(classes=range(1001), n_samples=5000, max_iter=3).plan(n_features=3)
    assert len(plan.PLANS) == before


def test_an_unaffordable_target_is_an_error():
    with pytest.raises(ValueError, match="epsilon=1e-12"):
        calibrate_noise_multiplier(epsilon=1e-12, delta=1e-12, sampling_rate=0.5, n_steps=10**6)


def test_terms_of_different_kinds_are_never_mistaken_for_each_other():
    # As tuples, (15.0, 1.0, 1) and (15.0, 1, 1) would be equal, and share a cached ε.
    gaussian = dp.GaussianDpEvent(15.0)
    posterior = PosteriorSamplesDpEvent(15.0, 1)
    epsilon(noise_multiplier=15.0, delta=1e-5, accountant="rdp")
    assert epsilon_of_event(posterior, 1e-5) > 14.9
    for events in ([gaussian, posterior], [posterior, gaussian]):
        assert epsilon_of_event(dp.ComposedDpEvent(events), 1e-5) > 14.9


@bundled("log10_delta", [-12, -11, -10, -8])
@bundled("steps", [1000, 100_000])
def test_pld_at_small_delta_never_falls_below_the_exact_value(steps, log10_delta):
    full = {"noise_multiplier": 105.4 * (steps / 1e5) ** 0.5, "n_steps": steps}
    full["delta"] = 10.0**log10_delta
    try:
        found = epsilon(**full, accountant="pld")
    except ValueError as refusal:
        assert "use 'rdp'" in str(refusal)  # noqa: PT017 - a refusal is the other right answer
        return
    assert found >= epsilon(**full)
