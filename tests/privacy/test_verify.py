"""skdp-verify: what it proves, what it refuses, and that it needs nothing."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
import verifier
from dp_accounting import dp_event
from mpmath import erfc, mp, mpf
from privacy.doctored import WAYS

from skdp import intervals, policy, verify
from skdp.intervals import I, normal
from skdp.privacy import PrivacyReport, epsilon_of_event
from skdp.privacy.discrete import DiscreteGaussianDpEvent
from skdp.privacy.events import (
    PartDpEvent,
    PosteriorSamplesDpEvent,
    PureDpEvent,
    dp_sgd_event,
    event_to_dict,
)

ROOT = Path(__file__).resolve().parents[2]
Composed, Times = dp_event.ComposedDpEvent, dp_event.SelfComposedDpEvent
Gaussian = dp_event.GaussianDpEvent
EVENT = Composed([Times(Gaussian(4.0), 16), Gaussian(5.0)])


@pytest.fixture(autouse=True)
def _quick(request, monkeypatch):
    """On a coarse grid bounds are looser, and are bounds all the same."""
    if "tight" not in request.fixturenames:
        monkeypatch.setattr(intervals, "FINE", intervals.COARSE)
        monkeypatch.setattr(verify, "ORDERS", verify.ORDERS[::3])


@pytest.fixture
def tight():
    """Use the grid as it is."""


def proved(event, delta=1e-5, relation="zero_out"):
    return float(verify.epsilon_of(event_to_dict(event), relation, Fraction(delta)))


def report(event=EVENT, **changes):
    made = PrivacyReport.of(event, delta=1e-5, sampling="any", **changes)
    return made.to_json()


TRUE = report()


def verdict(text):
    return verify.verdict(verify.read_text(text))


# --- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "z", [-30.0, -8.1, -3.0, -2.9, -0.3, 0.0, 1e-30, 0.7, 2.99, 3.0, 6.5, 25.0]
)
def test_the_normal_law_is_enclosed_tightly(z):
    mp.dps = 60
    exact = erfc(-mpf(z) / mp.sqrt(2)) / 2
    for found, value in zip(normal(I(z)), (exact, erfc(mpf(z) / mp.sqrt(2)) / 2), strict=True):
        low, high = mpf(str(found.lo)), mpf(str(found.hi))
        assert low <= value <= high
        assert high - low <= value * mpf(10) ** -20


@pytest.mark.parametrize("width", ["0", "1e-38", "1e-21", "1e-3", "2"])
def test_functions_of_intervals_hold_the_functions_of_all_in_them(width):
    mp.dps = 60
    rng, width = random.Random(1), Decimal(width)
    for _ in range(100):
        low = Decimal(rng.randint(1, 10**9)).scaleb(-rng.randint(7, 9))
        x = I(low, intervals.EXACT.add(low, intervals.EXACT.multiply(low, width)))
        for found, exact in (
            (x.exp(), mp.exp),
            ((-x).exp(), lambda z: mp.exp(-z)),
            (x.ln(), mp.ln),
            (x.root(), mp.sqrt),
        ):
            ends = sorted(exact(mpf(str(end))) for end in (x.lo, x.hi))
            lo, hi = mpf(str(found.lo)), mpf(str(found.hi))
            assert lo <= ends[0] <= ends[1] <= hi
            # and no more than that
            assert ends[0] - lo + hi - ends[1] <= mpf(10) ** -33 * (1 + abs(ends[1]))


@pytest.mark.parametrize("power", [3_000_000, -3_000_000])
def test_functions_of_numbers_beyond_the_usual_exponents(power):
    mp.dps = 60
    number = I(Decimal(f"1e{power}"))
    for found in (number.ln(), (number * number).ln() / 2, number.root().ln() * 2):
        assert mpf(str(found.lo)) <= power * mp.ln(10) <= mpf(str(found.hi))
        assert found.hi - found.lo < Decimal("1e-30")
    assert number.ln().exp().lo <= number.lo <= number.ln().exp().hi


def test_intervals_hold_what_they_name():
    rng = random.Random(0)
    for _ in range(300):
        x, y = (Fraction(rng.randint(-(10**9), 10**9), rng.randint(1, 10**9)) for _ in range(2))
        for found, exact in (
            (I(x) + y, x + y),
            (I(x) - y, x - y),
            (I(x) * y, x * y),
            (I(x) / I(y), x / y if y else 0),
            (2 - I(x), 2 - x),
        ):
            assert Fraction(found.lo) <= exact <= Fraction(found.hi)
            assert found.lo < found.hi or Fraction(found.lo) == exact
    third = I(1) / 3
    assert third.exp().lo < third.exp().hi
    assert abs(third.exp().ln().hi - third.hi) < Decimal("1e-38")
    with pytest.raises(ArithmeticError):
        I(1) / I(-1, 1)


def test_losses_add_to_no_less_than_they_do():
    """Of two coins, a loss of 1 or −1 each, by hand."""
    grid = intervals.Grid(Fraction(1), 20)
    top = I(1).exp()

    def curve(y):
        a, b = (top - y) / (1 + top), 1 - y
        return I(max(a.lo, b.lo, 0), max(a.hi, b.hi, 0))

    coin = grid.losses(curve, {-1, 0, 1})
    p = math.e / (1 + math.e)
    assert [m / 1e20 for m in coin.masses] == pytest.approx([1 - p, 0.0, p], abs=1e-15)
    assert coin.masses[0] + coin.masses[2] >= 10**20
    both = coin.plus(coin, 0)
    assert both.lowest == -2
    assert [m / 1e20 for m in both.masses] == pytest.approx(
        [(1 - p) ** 2, 0, 2 * p * (1 - p), 0, p * p], abs=1e-15
    )
    exact = [0] * 5
    for i, j in product(range(3), repeat=2):
        exact[i + j] += coin.masses[i] * coin.masses[j]
    assert all(m * 10**20 >= e for m, e in zip(both.masses, exact, strict=True))
    assert all(m * 10**20 <= e + 10**20 for m, e in zip(both.masses, exact, strict=True))
    cut = coin.plus(coin, int(0.1 * 10**20))  # the lowest is raised, nothing is lost
    assert sum(cut.masses) + cut.infinite >= sum(both.masses)
    assert cut.lowest == 0


def test_what_is_cut_off_is_a_larger_loss():
    grid, one = intervals.Grid(Fraction(1), 6), 10**6
    losses = intervals.Losses(grid, 0, [one // 20, one * 9 // 10, one // 20], 7)
    cut = losses.plus(intervals.Losses(grid, 0, [one], 0), one // 10)
    assert cut.lowest == 1
    assert cut.masses == pytest.approx([one * 19 // 20], abs=3)
    assert cut.infinite == pytest.approx(one // 20 + 7, abs=2)
    assert cut.infinite >= one // 20 + 7


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Gaussian(1.0), 4.377178096),
        (dp_sgd_event([2.0] * 4, 1.0), 4.377178096),
        (Composed([Gaussian(2.0)] * 4), 4.377178096),
        (Gaussian(0.01), 5425.509845816),  # μ²/2 and 4.26 μ more
        (PosteriorSamplesDpEvent(0.5, 10), 3.212509761),
        (PosteriorSamplesDpEvent(0.1, 100), 1.988632769),
        (Times(PureDpEvent(0.1), 50), 2.844667152),  # the binomial sum, by mpmath
        (dp_event.NoOpDpEvent(), 0.0),
        (dp_event.NonPrivateDpEvent(), math.inf),
    ],
)
def test_anchors(event, expected, tight):
    found = proved(event)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found >= expected * (1 - 1e-9)


def test_the_poisson_anchor(tight):
    event = dp_sgd_event(1.0, 0.01, 1000)
    assert 1.8275 < proved(event) <= epsilon_of_event(event, 1e-5)


def test_replacing_a_record_of_a_poisson_batch_costs_more():
    event = dp_sgd_event(1.0, 0.05, 100)
    theirs = epsilon_of_event(event, 1e-5, "replace_one")
    assert 0.98 * theirs < proved(event, relation="replace_one") < 1.03 * theirs


@pytest.mark.parametrize("q", [0.3, 0.9])
def test_the_worse_order_of_neighbours_counts(q):
    """One step: δ(ε) of removing a record, q δ_G(ln(1 + (e^ε − 1)/q)), is the worse of the two."""
    term = verify.Term("gauss", Fraction(1), Fraction(q))
    remove, add = verify.curves(term, 1)
    for e in (0.1, 0.5, 1.0):
        y = I(e).exp()
        assert remove(y).lo > add(y).hi
    found = proved(dp_event.PoissonSampledDpEvent(q, Gaussian(1.0)))
    inside = math.log1p(math.expm1(found) / q)
    delta = q * _delta(1.0, inside)
    assert delta == pytest.approx(1e-5, rel=1e-9)


def _delta(mu, e):
    phi = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
    return phi(mu / 2 - e / mu) - math.exp(e) * phi(-mu / 2 - e / mu)


@pytest.mark.parametrize("kind", [k for k in verifier.MIX if "Poisson" not in k])
def test_random_events_are_near_skdp_and_not_below_what_is_true(kind):
    rng = random.Random(7)
    for _ in range(1 + (kind != "private selection")):
        _, event, relation, delta = verifier.random_case(rng, kind)
        found = verifier.proved(event, relation, delta)
        ratio = float(found) / epsilon_of_event(event, delta, relation)
        assert ratio <= 1.01 + verifier.MIX[kind][2], (event, relation)  # the grid is coarse
        assert mpf(str(found)) >= verifier.lower_bound(event, relation, delta)[0], (event, relation)


@pytest.mark.thorough
def test_short_poisson_plans_and_schedules_are_near_skdp():
    for event in (
        Composed([PureDpEvent(0.2), dp_sgd_event(2.0, 0.1, 50)]),
        dp_sgd_event([1.5 + 0.05 * i for i in range(16)], 0.05),
    ):
        ratio = proved(event) / epsilon_of_event(event, 1e-5)
        assert 0.9 < ratio < 1.1


def test_every_mechanism_costs():
    rng = random.Random(1)
    parts = [PureDpEvent(0.2), dp_event.LaplaceDpEvent(4.0), Gaussian(2.0)]
    parts += [PosteriorSamplesDpEvent(0.3, 4)]
    whole = proved(Composed(parts))
    for part in parts[:3]:
        rest = [other for other in parts if other is not part]
        rng.shuffle(rest)
        assert proved(Composed(rest)) < whole
    assert proved(Composed([Times(parts[0], 2)])) > proved(parts[0])


def test_disjoint_parts_cost_the_most_expensive_with_what_all_pay():
    fit = PartDpEvent(Gaussian(1.0), "7f3a", "train")
    test = PartDpEvent(Gaussian(0.8), "7f3a", "test")
    of_all = Gaussian(2.0)
    assert proved(Composed([fit, test])) == pytest.approx(proved(Gaussian(0.8)))
    both = Composed([Gaussian(0.8), of_all])
    assert proved(Composed([fit, test, of_all])) == pytest.approx(proved(both))
    other = PartDpEvent(Gaussian(0.8), "other", "test")
    assert proved(Composed([fit, other])) == pytest.approx(
        proved(Composed([Gaussian(1.0), Gaussian(0.8)]))
    )
    again = Times(Composed([fit, test]), 3)
    assert proved(again) == pytest.approx(proved(Times(Gaussian(0.8), 3)))


@pytest.mark.parametrize("relation", verify.RELATIONS)
def test_parts_of_persons_pay_both_where_one_is_replaced(relation):
    """A row keeps its place, and so its part; a person who comes may be of another."""
    one = Gaussian(5.0)
    both = Composed([PartDpEvent(one, "7f3a", part) for part in ("fit", "test")])
    assert proved(both, relation=relation) == proved(one, relation=relation)
    persons = f"{relation}_group"
    expected = Times(one, 2) if relation == "replace_one" else one
    assert proved(both, relation=persons) == pytest.approx(proved(expected, relation=persons))
    assert proved(both, relation=persons) <= 2.289


def test_coarse_noise_costs_what_it_is_coarser_by():
    fine = proved(DiscreteGaussianDpEvent(1.0, 2**29, 100))
    coarse = proved(DiscreteGaussianDpEvent(1.0, 1, 1))
    assert fine == pytest.approx(4.377178096, rel=1e-8)
    assert 4.43 < coarse < 4.8  # the exact law has 4.430
    with pytest.raises(ValueError, match="Rényi"):
        proved(dp_event.PoissonSampledDpEvent(0.1, DiscreteGaussianDpEvent(1.0, 1, 1)))


@pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
def test_a_selection_costs_more_than_a_run(shape):
    run = Times(Gaussian(4.0), 4)
    best = dp_event.RepeatAndSelectDpEvent(run, 5.0, shape)
    assert proved(run) < proved(best) < 1.05 * epsilon_of_event(best, 1e-5)
    least, _ = verifier.lower_bound(best, "zero_out", 1e-5)
    assert proved(best) >= least
    doubled = dp_event.RepeatAndSelectDpEvent(run, 20.0, shape)
    assert proved(best) < proved(doubled)


def test_sampled_selections_under_replace_one_are_refused_by_name():
    best = dp_event.RepeatAndSelectDpEvent(dp_sgd_event(2.0, 0.1, 10), 5.0, 1.0)
    nested = dp_event.RepeatAndSelectDpEvent(best, 5.0, 1.0)
    for event in (best, nested):
        with pytest.raises(ValueError, match="no Rényi bound"):
            proved(event, relation="replace_one")


# --- reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(1.0),
        PosteriorSamplesDpEvent(0.5, 10),
        PureDpEvent(1.0),
        dp_event.LaplaceDpEvent(2.0),
        dp_sgd_event(1.0, 0.05, 30),
        EVENT,
    ],
)
def test_what_skdp_says_is_proved(event, tight):
    holds, found, why = verdict(report(event))
    assert holds, (found, why)


def test_a_person_is_a_unit_too():
    text = report(neighboring_relation="replace_one_group")
    holds, found, _ = verdict(text)
    assert holds
    assert float(found) == pytest.approx(proved(EVENT, relation="replace_one"))


@pytest.mark.parametrize("way", WAYS)
def test_a_doctored_report_is_never_a_yes(way, tmp_path, capsys):
    path = tmp_path / "report.json"
    text = WAYS[way](TRUE)
    assert text != TRUE
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert verify.main([str(path)]) in (1, 2)
    said = capsys.readouterr().out
    assert not said.startswith(f"{path}: yes")
    assert len(said.splitlines()[0]) > len(f"{path}: no:") + 10, said  # it says why


def test_there_are_forty_ways():
    assert len(WAYS) >= 40


def test_a_statement_that_says_it_is_none_is_not_made_one():
    for text in (report(seeded=True), report(dp_event.NonPrivateDpEvent())):
        holds, _, why = verdict(text)
        assert not holds
        assert "no guarantee" in why


def test_the_claim_is_looked_at_after_the_proof():
    """Whatever a report claims, the same ε is proved."""
    found = {verdict(json.dumps(json.loads(TRUE) | {"epsilon": e}))[1] for e in (0.1, 4.8, 1e6)}
    assert len(found) == 1


def test_reports_of_older_versions_are_read():
    old = json.loads(TRUE)
    del old["schema"], old["unit"], old["assumptions"]
    old["skdp_version"] = "0.1.0"
    assert verdict(json.dumps(old))[0]
    assert PrivacyReport.from_json(json.dumps(old)).event == EVENT
    old["sampling"] = "3 samples by the rejection sampler"
    for version in ("0.1.0", "0.1.0.dev0", "0.1.0+local", "0.1.0rc1", "0.1"):
        holds, _, why = verdict(json.dumps(old | {"skdp_version": version}))
        assert not holds
        assert "advisory 1" in why
    for version in ("0.10.0", "0.1.1", "0.2.0.dev0"):
        assert verdict(json.dumps(old | {"skdp_version": version}))[0]


def test_the_delta_is_said(tmp_path, capsys):
    path = tmp_path / "report.json"
    path.write_text(TRUE)
    assert verify.main([str(path)]) == 0
    assert " at δ = 1e-05 is proved" in capsys.readouterr().out
    path.write_text(json.dumps(json.loads(TRUE) | {"epsilon": 0.1}))
    assert verify.main([str(path)]) == 1
    assert " at δ = 1e-05 is proved" in capsys.readouterr().out


def test_a_pipe_has_the_limit_of_a_file(capsys, monkeypatch):
    """A pipe is of size 0 to who asks for it."""
    monkeypatch.setattr(verify, "LARGEST", len(TRUE.encode()))
    for more, status in ((b"", 0), (b" ", 2)):
        reading, writing = os.pipe()
        os.write(writing, TRUE.encode() + more)
        os.close(writing)
        assert verify.main([f"/dev/fd/{reading}"]) == status
        os.close(reading)
    assert "larger than" in capsys.readouterr().out


@pytest.mark.parametrize("within", [math.inf, math.nan, -0.01, 0.3, 6.5, True])
def test_a_claim_may_be_near_and_no_more(within):
    claimed = verify.read_text(TRUE)
    with pytest.raises(ValueError, match="within="):
        verify.verdict(claimed, within)
    low = claimed | {"epsilon": claimed["epsilon"] / 1.05}
    assert not verify.verdict(low, 0.04)[0]
    assert verify.verdict(low, 0.06)[0]


def test_a_newer_schema_is_refused_by_skdp_too():
    with pytest.raises(ValueError, match="schema=3"):
        PrivacyReport.from_json(json.dumps(json.loads(TRUE) | {"schema": 3}))


def test_the_published_schema_is_that_of_the_reports():
    schema = json.loads((ROOT / "docs" / "_static" / "report.schema.json").read_text())
    written = json.loads(TRUE)
    assert set(schema["properties"]) == set(schema["required"]) == set(written)
    assert schema["properties"]["schema"] == {"const": verify.SCHEMA}
    assert set(written) == {*verify.TYPES, "epsilon", "delta"}
    events = {one["properties"]["type"]["const"]: one for one in schema["$defs"]["event"]["oneOf"]}
    assert set(events) == set(verify.EVENTS)
    for kind, one in events.items():
        assert set(one["required"]) == {"type", *verify.EVENTS[kind]}
        assert set(one["properties"]) == set(one["required"])
        assert one["additionalProperties"] is False


def test_it_runs_alone_in_an_empty_environment(tmp_path):
    """Two copied files, an interpreter without site-packages: no numpy, no torch, no skdp."""
    for module in (verify, intervals, policy):
        shutil.copy(module.__file__, tmp_path)
    (tmp_path / "report.json").write_text(TRUE)
    for script in ("verify.py", "policy.py"):
        done = subprocess.run(
            [sys.executable, "-S", "-E", script, "report.json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "yes" in done.stdout
        assert verify.CAVEAT in done.stdout


def test_importing_it_imports_no_heavy_package():
    heavy = {"numpy", "scipy", "torch", "sklearn", "dp_accounting", "attrs"}
    code = f"import sys, skdp.policy; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_it_is_short_enough_to_be_read():
    assert len(Path(verify.__file__).read_text("utf-8").splitlines()) <= 300
