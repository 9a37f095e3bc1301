"""Persons in more ways than the registry has: what leaves a fit does not tell one (replay).

All rows of one person change, vanish or become many.
"""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from replay.test_estimators import (
    ADDED,
    BOUNDS,
    HIDDEN,
    LABELS,
    LINEAR,
    LOUD,
    MODULE,
    MUCH,
    REPLACED,
    model,
    ways,
)

from skdp import (
    DPPCA,
    DPAdditiveClassifier,
    DPQuantileScaler,
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalModel,
    DPVariationalPoissonRegression,
    OPSPosteriorSampler,
    OPSRegressor,
    Persons,
)
from skdp.calibration import DPTemperatureScaler
from skdp.engine import release_hook
from skdp.testing import _checks, _replayed, _subjects, fixed_streams
from skdp.testing._checks import check_ledger, check_persons_bounded, check_persons_replay

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N, N_GROUPS = 40, 10
X = np.random.default_rng(0).uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.random.default_rng(1).permutation(np.repeat(np.arange(N_GROUPS), 4))
PERSON = 3
PUBLIC = {"unit": Persons(N_GROUPS, rows_per_group=4)}
CLASSES, SHORT = {"classes": [0, 1]}, HIDDEN | {"max_iter": 3}
THREE = Persons(rows_per_group=3)
UNIT = {"unit": THREE}
DPVI = {"inference": "dpvi", "max_iter": 4}
EXACT = {"delta": 0}
SHARPER = DPVariationalLogisticRegression, DPStandardScaler
OF_NUMBERS = DPVariationalLinearRegression, OPSRegressor


def calibrated(unit="row", **settings):
    inner = {**LABELS, **({} if unit == "row" else UNIT)}
    return DPTemperatureScaler(
        DPVariationalLogisticRegression(**inner), unit=unit, max_iter=3, **settings
    )


CASES = [
    *ways(
        DPVariationalLogisticRegression,
        {},
        MUCH,
        REPLACED,
        ADDED,
        {"unit": replace(THREE, max_rows=2, clip=1.0)},
        MUCH | {"robust": False},
        MUCH | {"secure": True},
        MUCH | {"classes": [0, 1, 2]},
        DPVI | {"sampling_rate": 0.3},
        DPVI | {"gradient": "vanilla"},
        **LABELS,
    ),
    *ways(
        DPVariationalLinearRegression,
        {"epsilon": 9999.0},  # the number of rows, private with persons, is told to the row
        {"target_bounds": (-2, 1), "epsilon": 99.0},
        max_iter=3,
    ),
    (DPVariationalPoissonRegression, MUCH | {"max_iter": 3}),
    (DPStandardScaler, {}),
    (DPStandardScaler, REPLACED),
    (DPPCA, {"n_components": 2}),
    *ways(
        DPSGDClassifier,
        HIDDEN,
        LINEAR | ADDED,
        HIDDEN | {"sampling_rate": 0.3, "clipping": "automatic"},
        HIDDEN | REPLACED,
        HIDDEN | {"physical_batch_size": 3, "unit": replace(THREE, max_rows=6)},
        MODULE,
        LINEAR | {"secure": True},
        **LABELS,
    ),
    *ways(
        DPSGDRegressor,
        {"unit": replace(THREE, clip=1.0)},
        {"sampling_rate": 0.3, "secure": True},
        **BOUNDS | HIDDEN,
    ),
    *ways(
        DPSGLDClassifier,
        HIDDEN | {"sampling_rate": 0.3},
        LINEAR | {"prenoise_scale": 0.5, "burn_in": 0},
        HIDDEN | REPLACED | {"secure": True},
        **LABELS,
    ),
    (DPSGLDRegressor, BOUNDS | LINEAR),
    *ways(
        model,
        {},
        LOUD | {"max_iter": 25},
        REPLACED | {"max_iter": 25, "covariance": "diag"},
        ADDED | {"sampling_rate": 0.3},
        {"inference": "dpvi", "data_norm": 1.0},
        max_iter=5,
    ),
    *ways(
        OPSPosteriorSampler,
        {},
        {"unit": replace(THREE, max_rows=2)},
        REPLACED,
        {"classes": [0, 1, 2], "max_iter": 5},
        EXACT | {"n_posterior_samples": 2},
        EXACT | {"unit": replace(THREE, clip=1.5)},
        EXACT | ADDED,
        classes=[0, 1],
    ),
    *ways(OPSRegressor, {}, EXACT | {"unit": replace(THREE, clip=0.5)}, target_bounds=(-1, 1)),
    *ways(
        DPQuantileScaler, {}, EXACT | {"unit": replace(THREE, max_rows=2)}, REPLACED, epsilon=5.0
    ),
    *ways(calibrated, {}, {"target": "log_loss", "unit": replace(THREE, max_rows=2)}),
    (
        DPAdditiveClassifier,
        {"classes": [0, 1], "bounds": [(0, 1e6), (-10, 10), (-1, 1)], "edges": "private"}
        | {"n_bins": 8, "epsilon": 300.0},
    ),
]
IDS = [f"{kind.__name__}{i}" for i, (kind, _) in enumerate(CASES)]
each_case = pytest.mark.parametrize(("kind", "plan"), CASES, ids=IDS)


@pytest.mark.quick(30)
@pytest.mark.parametrize("check", [check_persons_replay, check_persons_bounded, check_ledger])
@each_case
def test_persons_are_protected(kind, plan, check):
    if check is check_persons_bounded and {"module", "prenoise_scale"} & plan.keys():
        pytest.skip("where a row has coins of its own, one row less hands them on to the others")
    estimator = kind(**UNIT | plan)
    y = X[:, 0] if kind in OF_NUMBERS else Y
    given = {"good_data": mock.Mock(return_value=(X[:24], y[:24]))}
    with mock.patch.multiple(_subjects, **given), mock.patch.multiple(_replayed, **given):
        check(estimator)


def kept(fitted):
    """Numbers and weights that a fit leaves."""
    kinds = np.ndarray | float | torch.nn.Module
    return {k: _checks.described(v) for k, v in vars(fitted).items() if isinstance(v, kinds)}


@pytest.mark.quick(20)
@each_case
def test_persons_of_one_row_are_rows(kind, plan):
    plan = {k: v for k, v in plan.items() if k != "unit"}
    if kind in SHARPER and plan.get("neighboring_relation") == "replace_one":
        pytest.skip("who is replaced moves a sum of rows by less than twice the bound")
    of_rows, of_persons = kind(**plan), kind(unit=Persons(), **plan)
    known = of_rows.get_params()
    for estimator in (of_rows, of_persons):
        for name in ("robust", "estimator__robust"):
            if known.get(name) == "auto" and "inference" not in plan:
                estimator.set_params(**{name: False})
    for name in ("", "estimator__"):
        for estimator, counts in (
            (of_rows, {"n_samples": N}),
            (of_persons, {"unit": Persons(N, rows_per_group=1)}),
        ):
            estimator.set_params(**{name + k: v for k, v in counts.items() if name + k in known})
    y = X[:, 0] if kind in OF_NUMBERS else Y
    with fixed_streams(b"replay"):
        with release_hook.record() as tape:
            of_rows.fit(X, y)
        with release_hook.record() as again:
            of_persons.fit(X, y, groups=np.arange(N))
    # Secure: a person's gradient is rounded as one vector, a row's by its factors.
    near = {"atol": 2e-3} if plan.get("secure") else {"rtol": 1e-12}
    # What one logit is asked for follows draws, which differ by more than the sums' rounding.
    drawn = (DPVariationalLogisticRegression, DPVariationalPoissonRegression, calibrated)
    follows = kind in drawn and "inference" not in plan
    near = {"atol": 0.05, "rtol": 0.02} if follows else near
    for one, other in zip(tape, again, strict=True):
        np.testing.assert_allclose(np.asarray(one.output), np.asarray(other.output), **near)
        assert one.call.rate == other.call.rate
    if not plan.get("secure") and not follows:
        assert kept(of_rows) == kept(of_persons)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGLDClassifier])
def test_steps_and_noise_follow_declared_numbers_of_rows(kind):
    """Twice as many rows as declared leave the plan as it was; the noise is that of a person."""
    plan = CLASSES | SHORT | {"sampling_rate": 0.5}
    with release_hook.record() as tape:
        fitted = kind(**PUBLIC, **plan).fit(np.tile(X, (2, 1)), np.tile(Y, 2), groups=[*GROUPS] * 2)
    facts = {"n_features": 3, "n_samples": N}
    of_rows = kind(n_samples=N, **plan).plan(n_features=3).config
    of_persons = kind(**PUBLIC, **plan).plan(**facts).config
    assert of_persons.n_rows == of_rows.n_rows == N
    assert of_persons.batch_size == of_rows.batch_size == 20.0
    clip = fitted.clip_norm_ * 3.25**0.5  # (3 · 4 + 1)/4
    for release in tape:
        assert release.call.sensitivity == pytest.approx(clip, rel=2e-4)
    if kind is DPSGDClassifier:
        variance = (of_persons.noise_multiplier * clip / 20.0) ** 2
        assert of_persons.noise_variance == pytest.approx(variance, rel=1e-12)
        return
    # The noise that reaches θ is that of the chain: 2Tη/N.
    T, eta = of_persons.temperature, np.array(of_persons.learning_rates)
    scales = np.array([release.call.scale for release in tape])
    np.testing.assert_allclose((eta * scales / 20.0) ** 2, 2 * T * eta / N, rtol=1e-9)


def test_a_person_without_rows_takes_part_in_no_number():
    """As many coins are thrown as persons are present, and q is the rate of a person."""
    seen = []
    with release_hook.record():
        fitted = DPSGDClassifier(**PUBLIC, **CLASSES, **SHORT, batch_size=20)
        fitted.fit(X, Y, groups=GROUPS)
    seen.append(fitted.sampling_rate_)
    own = PERSON == GROUPS
    seen.append(fitted.fit(X[~own], Y[~own], groups=GROUPS[~own]).sampling_rate_)
    assert seen == [0.5, 0.5]


def test_training_goes_on_with_persons_and_with_nobody_else():
    classifier = DPSGDClassifier(**PUBLIC, **CLASSES, **SHORT, warm_start=True)
    classifier.fit(X, Y, groups=GROUPS).partial_fit(X, Y, groups=GROUPS)
    assert classifier.privacy_.neighboring_relation == "zero_out_group"
    assert classifier.n_iter_ == 4
    with pytest.raises(ValueError, match=r"to be Persons.* as in the fit"):
        classifier.set_params(unit="row").partial_fit(X, Y)
    classifier.set_params(**PUBLIC, neighboring_relation="replace_one")
    with pytest.raises(ValueError, match="to be 'zero_out' as in the fit"):
        classifier.partial_fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="one label per row"):
        DPSGDClassifier(**PUBLIC, **CLASSES).fit(X, Y)
    with pytest.raises(ValueError, match="groups"):
        DPSGDClassifier(**CLASSES).fit(X, Y, groups=GROUPS)


def test_a_wide_linear_layer_keeps_no_gradients_of_rows():
    """A closed form in doubles for few weights; for many, book-keeping."""
    rows = np.random.default_rng(0).uniform(-1, 1, (N, 600))
    few = DPSGDClassifier(**PUBLIC, **CLASSES, **LINEAR)
    for width, dtype in [(3, torch.float64), (600, torch.float32)]:
        with release_hook.record() as tape:
            few.fit(rows[:, :width], Y, groups=GROUPS)
        assert {len(r.call.shape) for r in tape} == {2 if dtype == torch.float64 else 1}


@pytest.mark.parametrize("max_iter", [3, 60])
def test_the_posterior_of_a_model_is_wider_where_rows_of_persons_are_alike(max_iter):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (400, 2))
    alike = np.repeat(rows, 5, axis=0)

    def fitted(targets):
        regression = DPVariationalModel(
            lambda theta, x, y: -0.5 * (y - x @ theta) ** 2,
            2,
            prior=5.0,
            epsilon=50.0,
            max_iter=max_iter,
            clip_norm=4.0,
            unit=Persons(400, rows_per_group=5),
        )
        return regression.fit(alike, targets, groups=np.repeat(np.arange(400), 5))

    apart = fitted(alike.sum(1) + rng.standard_normal(2000))
    same = fitted(alike.sum(1) + np.repeat(rng.standard_normal(400), 5))
    widths = [m.sample_posterior(4000, random_state=0).std(0).mean() for m in (apart, same)]
    if max_iter == 3:  # too few to release anything of it: all are taken to be alike
        assert max(widths) < 1.3 * min(widths)
        return
    # Five rows alike tell as much as one: √5 times as wide, by one factor for all directions.
    assert 1.6 < widths[1] / widths[0] < 2.6
