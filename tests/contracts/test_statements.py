"""What the report of each estimator says: of seeds, of facts that were read, of no privacy."""

import warnings

import pandas as pd
import pytest
from contracts.subjects import ESTIMATORS, RELEASING, REPEATED, VARIANTS, build
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skdp import PrivacyLedger, PrivacyWarning
from skdp.privacy import privacy_of
from skdp.testing._checks import declared, described, good_data

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning", "ignore::skdp.FitWarning")
NAMES = [name for name in RELEASING if name not in REPEATED]
NOISY = [name for name in ESTIMATORS if name in RELEASING]
INSTEAD = ("noise_multiplier", "temperature", "likelihood_power", "quantile_epsilon")


@pytest.mark.quick(15)
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_repeats_the_fit_and_voids_the_guarantee(name):
    seeded = declared(VARIANTS[name])
    seeds = [key for key in seeded.get_params() if key.rpartition("__")[2] == "random_state"]
    if getattr(seeded, "sets_inner_budgets", False):  # a search seeds its trials itself
        seeds = ["random_state"]
    seeded.set_params(**dict.fromkeys(seeds, 3))
    data = good_data(seeded)
    with pytest.warns(PrivacyWarning, match="random_state"):
        one, two = (clone(seeded).fit(*data) for _ in range(2))
    state = [
        {k: described(v) for k, v in vars(m).items() if not k.startswith("_")} for m in (one, two)
    ]
    assert state[0] == state[1]
    report = privacy_of(one)
    assert report.seeded
    assert not report.valid


# A power of the likelihood has a finite ε whatever the budget.
@pytest.mark.parametrize(
    "name", [n for n in NOISY if "likelihood_power" not in build(n).get_params()]
)
def test_without_privacy_the_report_says_so(name):
    free = declared(build(name))
    known = free.get_params()
    free.set_params(**{key: None for key in INSTEAD if key in known})
    report = free.set_params(epsilon=float("inf")).fit(*good_data(free)).privacy_
    assert report.epsilon == float("inf")
    assert not report.valid
    assert "not private" in repr(report)


@pytest.mark.parametrize("name", NOISY)
def test_facts_that_were_read_are_listed_and_declared_ones_are_not(name):
    X, y = good_data(VARIANTS[name])
    read, told = build(name), declared(build(name))
    facts = {f for f in ("classes", "n_samples") if f in read.get_params(deep=False)}
    assert facts <= set(read.fit(X, y).privacy_.inferred_public_facts)
    assert told.fit(X, y).privacy_.inferred_public_facts == ()


@pytest.mark.parametrize("name", [n for n in NOISY if "verbose" in VARIANTS[n].get_params()])
def test_progress_is_shown_on_request_alone(name, capsys):
    estimator = declared(build(name))
    estimator.fit(*good_data(estimator))
    assert not "".join(capsys.readouterr())
    estimator.set_params(verbose=1).fit(*good_data(estimator))
    assert "".join(capsys.readouterr())


@pytest.mark.parametrize("name", NOISY)
def test_before_a_fit_there_is_no_answer(name):
    estimator = build(name)
    asked = {"sample_posterior": (), **dict.fromkeys(("predict", "sample_predictive"), ([[0.0]],))}
    for method, arguments in asked.items():
        if hasattr(estimator, method):
            with pytest.raises(NotFittedError):
                getattr(estimator, method)(*arguments)


@pytest.mark.parametrize("name", NOISY)
def test_names_of_columns_are_those_of_the_frame(name):
    estimator = declared(build(name))
    X, y = good_data(estimator)
    fitted = estimator.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]


def test_what_was_read_is_warned_about_once(two_blobs):
    from skdp.fitting import charge

    charge.SAID.clear()
    model = build("DPVariationalLogisticRegression")
    with pytest.warns(PrivacyWarning, match="classes, n_samples"):
        model.fit(*two_blobs)
    with warnings.catch_warnings(record=True) as said, PrivacyLedger():
        warnings.simplefilter("always")
        model.fit(*two_blobs)
    assert not [one for one in said if "conditional" in str(one.message)]
