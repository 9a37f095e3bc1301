"""The fuzz targets on random bytes, and on what once broke something; no fuzzer is needed.

`run.py` runs them guided by coverage.
"""

import base64
import random

import pytest
from fuzz import accounting, inputs, reports

# Inputs on which an invariant broke, or that never ended; see TestRegressions in tests/hardening.
FOUND = {
    "calibration divides by a rounded-off zero": (accounting, "M0REREREREREeyJsISI="),
    "draws without end": (accounting, "/wQ9byclMSc9OycLAL8lMw=="),
    "a count beyond a double": (accounting, "e2cibC9SUg0No2FjYA=="),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_once_broke(name):
    target, data = FOUND[name]
    target.check(base64.b64decode(data))


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("target", [accounting, inputs], ids=["accounting", "inputs"])
def test_random_bytes(target, seed):
    rng = random.Random(seed)
    for _ in range(200):
        target.check(rng.randbytes(rng.randrange(4, 300)))


def test_the_harness_would_notice():
    # A floor that is above the true value must be found out.
    event = accounting.dp_sgd_event(1.0, 1.0, 1)
    terms = accounting.terms_of(event)
    exact = accounting.epsilon_of_event(event, 1e-5)
    assert 0.999 * exact < accounting.floor(terms, 1e-5, "zero_out") <= exact
    with pytest.raises(AssertionError, match="quotes"):
        inputs.assert_secret("could not read 8675309.0")


@pytest.mark.thorough
def test_random_changes_of_reports():
    """A minute's worth is enough to break a verifier that forgets a check; hours run by hand."""
    rng, known = random.Random(0), reports.texts()
    cheap = [text for kind, text in known.items() if kind not in ("poisson", "selection")]
    assert all(reports.check(text) for text in cheap)
    seen = {reports.check(reports.changed(rng.choice(cheap), rng)) for _ in range(150)}
    assert seen == {None, True, False}
