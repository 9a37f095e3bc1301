"""What leaves a fit of a network or a user's model does not tell a person, however many its rows.

Pairs in which all rows of one person change, vanish or become many.
"""

import copy
import pickle

import numpy as np
import pytest
import torch
from replay.test_sgd import public_state as network_state
from replay.test_sgd import with_dropout

from skdp import (
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPVariationalModel,
    PrivacyLedger,
    _release_hook,
)
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N, N_GROUPS = 40, 10
X = np.random.default_rng(0).uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.random.default_rng(1).permutation(np.repeat(np.arange(N_GROUPS), 4))
PERSON = 3
VALUES = [0.0, -1e300, 1e154, 5e-324, 3e38, 0.3]
PUBLIC = {"unit": "group", "n_groups": N_GROUPS, "rows_per_group": 4}
SHORT = {"max_iter": 3, "hidden_layer_sizes": (5,)}
LINEAR = {"max_iter": 3, "hidden_layer_sizes": ()}


def log_likelihood(theta, x, y):
    # Not finite at some rows, and beyond any range at others.
    z = x @ theta[:3] + theta[3] * torch.log(x[:, 0] + 1.5)
    return y * z - torch.nn.functional.softplus(z)


def model(**settings):
    return DPVariationalModel(log_likelihood, 4, example_rows=np.zeros((3, 3)), **settings)


LABELS, BOUNDS = {"classes": [0, 1]}, {"target_bounds": (0, 1)}
CASES = [
    (DPSGDClassifier, LABELS | SHORT),
    (DPSGDClassifier, LABELS | LINEAR | {"neighboring_relation": "add_or_remove_one"}),
    (DPSGDClassifier, LABELS | SHORT | {"sampling_rate": 0.3, "clipping": "automatic"}),
    (DPSGDClassifier, LABELS | SHORT | {"neighboring_relation": "replace_one"}),
    (DPSGDClassifier, LABELS | SHORT | {"physical_batch_size": 3, "max_rows_per_group": 6}),
    (DPSGDClassifier, LABELS | {"max_iter": 3, "module": with_dropout}),
    (DPSGDRegressor, BOUNDS | SHORT | {"group_clip": 1.0}),
    (DPSGLDClassifier, LABELS | SHORT | {"sampling_rate": 0.3}),
    (DPSGLDClassifier, LABELS | LINEAR | {"prenoise_scale": 0.5, "burn_in": 0}),
    (DPSGLDRegressor, BOUNDS | LINEAR),
    (DPSGDClassifier, LABELS | LINEAR | {"secure": True}),
    (DPSGDRegressor, BOUNDS | SHORT | {"sampling_rate": 0.3, "secure": True}),
    (DPSGLDClassifier, LABELS | SHORT | {"neighboring_relation": "replace_one", "secure": True}),
    (model, {"max_iter": 5}),
    (model, {"max_iter": 25, "epsilon": None, "noise_multiplier": 0.5}),
    (model, {"max_iter": 25, "covariance": "diag", "neighboring_relation": "replace_one"}),
    (model, {"max_iter": 5, "sampling_rate": 0.3, "neighboring_relation": "add_or_remove_one"}),
    (model, {"max_iter": 5, "inference": "dpvi", "data_norm": 1.0}),
]


def public_state(estimator):
    if isinstance(estimator, DPVariationalModel):
        return pickle.dumps(vars(estimator)), repr(estimator.privacy_), estimator.diagnostics_
    return network_state(estimator)


def persons_changed(relation):
    """Yield tables in which one person has other rows, none, or half of all rows."""
    own = PERSON == GROUPS
    if relation != "replace_one":
        yield X[~own], Y[~own], GROUPS[~own]
    for i, value in enumerate(VALUES):
        n = [4, 1, N][i % 3]
        yield (
            np.vstack([X[~own], np.full((n, 3), value)]),
            np.append(Y[~own], np.resize([0, 1, 1], n)),
            np.append(GROUPS[~own], np.full(n, PERSON)),
        )


@pytest.mark.quick(5)
@pytest.mark.parametrize(("kind", "plan"), CASES)
def test_with_the_releases_frozen_nothing_depends_on_a_person(kind, plan):
    estimator = kind(**PUBLIC, **plan)
    with fixed_streams(b"replay"):
        with _release_hook.record() as tape:
            first = public_state(copy.copy(estimator).fit(X, Y, groups=GROUPS))
        for rows, labels, groups in persons_changed(plan.get("neighboring_relation")):
            with _release_hook.replay([release.output for release in tape]) as again:
                second = public_state(copy.copy(estimator).fit(rows, labels, groups=groups))
            assert [r.call for r in again] == [r.call for r in tape]
            assert second == first


@pytest.mark.parametrize(("kind", "plan"), CASES)
def test_the_event_in_the_ledger_is_the_trace(kind, plan):
    relation = plan.get("neighboring_relation", "zero_out")
    unit = PrivacyLedger(neighboring_relation=f"{relation}_group")
    with unit as ledger, _release_hook.record() as tape:
        estimator = kind(**PUBLIC, **plan).fit(X, Y, groups=GROUPS)
    (entry,) = ledger.entries
    assert entry.event == estimator.privacy_.event
    charged = sorted(
        (term.noise_multiplier, term.sampling_rate)
        for term in terms_of(entry.event)
        for _ in range(term.count)
    )
    factor = sensitivity_factor(relation)
    done = sorted((r.call.scale / r.call.sensitivity * factor, r.call.rate) for r in tape)
    np.testing.assert_allclose(done, charged, rtol=1e-9 if plan.get("secure") else 1e-13)


@pytest.mark.quick(11)
@pytest.mark.parametrize(("kind", "plan"), CASES)
def test_one_row_a_person_is_the_row_unit_bit_for_bit(kind, plan):
    plan = {name: value for name, value in plan.items() if name not in ("group_clip",)}
    one = {"unit": "group", "n_groups": N, "rows_per_group": 1}
    with fixed_streams(b"replay"):
        by_person = kind(**one, **plan).fit(X, Y, groups=np.arange(N))
        plan.pop("max_rows_per_group", None)
        by_row = kind(n_samples=N, **plan).fit(X, Y)
    if kind is model:
        for name in ("mean_", "posterior_means_", "clip_norm_", "noise_multiplier_"):
            np.testing.assert_array_equal(getattr(by_person, name), getattr(by_row, name))
        draws = [fitted.sample_posterior(5, random_state=0) for fitted in (by_person, by_row)]
        np.testing.assert_array_equal(*draws)
        return
    if plan.get("secure"):  # a person's gradient is rounded as one vector, a row's by its factors
        draws = [fitted.sample_posterior(5, random_state=0) for fitted in (by_person, by_row)]
        np.testing.assert_allclose(*draws, atol=2e-3)
        return
    states = [network_state(fitted)[1] for fitted in (by_person, by_row)]
    assert states[0] == states[1]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGLDClassifier])
def test_steps_and_noise_follow_declared_numbers_of_rows(kind):
    """Twice as many rows as declared leave the plan as it was; the noise is that of a person."""
    plan = LABELS | SHORT | {"sampling_rate": 0.5}
    with _release_hook.record() as tape:
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
    with _release_hook.record():
        fitted = DPSGDClassifier(**PUBLIC, **LABELS, **SHORT, batch_size=20)
        fitted.fit(X, Y, groups=GROUPS)
    seen.append(fitted.sampling_rate_)
    own = PERSON == GROUPS
    seen.append(fitted.fit(X[~own], Y[~own], groups=GROUPS[~own]).sampling_rate_)
    assert seen == [0.5, 0.5]


def test_training_goes_on_with_persons_and_with_nobody_else():
    classifier = DPSGDClassifier(**PUBLIC, **LABELS, **SHORT, warm_start=True)
    classifier.fit(X, Y, groups=GROUPS).partial_fit(X, Y, groups=GROUPS)
    assert classifier.privacy_.neighboring_relation == "zero_out_group"
    assert classifier.n_iter_ == 4
    as_rows = {"unit": "row", "n_groups": None, "rows_per_group": None}
    with pytest.raises(ValueError, match="to be 'group' as in the fit"):
        classifier.set_params(**as_rows).partial_fit(X, Y)
    classifier.set_params(**PUBLIC, neighboring_relation="replace_one")
    with pytest.raises(ValueError, match="to be 'zero_out' as in the fit"):
        classifier.partial_fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="one label per row"):
        DPSGDClassifier(**PUBLIC, **LABELS).fit(X, Y)
    with pytest.raises(ValueError, match="groups"):
        DPSGDClassifier(**LABELS).fit(X, Y, groups=GROUPS)


def test_a_wide_linear_layer_keeps_no_gradients_of_rows():
    """A closed form in doubles for few weights; for many, book-keeping."""
    rows = np.random.default_rng(0).uniform(-1, 1, (N, 600))
    few = DPSGDClassifier(**PUBLIC, **LABELS, **LINEAR)
    for width, dtype in [(3, torch.float64), (600, torch.float32)]:
        with _release_hook.record() as tape:
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
            unit="group",
            n_groups=400,
            rows_per_group=5,
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
