"""One run of a mechanism: what is wrong is found, and what is right is not."""

import numpy as np
import pytest
from bundles import bundled
from scipy.stats import binom

from skdp.audit import audit_mechanism
from skdp.engine.linear_sums import LinearClippedSum
from skdp.engine.loop import ReleasePlan, run
from skdp.engine.sampling import sampling
from skdp.fitting.streams import Streams
from skdp.mechanisms import GaussianMechanism, LaplaceMechanism
from skdp.rows.records import LinearRows

SETTINGS = [(1.0, 1, 1.0), (1.0, 8, 3.0), (0.1, 10, 0.15), (0.1, 10, 0.5)]
CLIP, BLOCKS = 3.0, 4


def clipped(values, bound):
    norms = np.linalg.norm(values, axis=-1, keepdims=True)
    return values * (bound / np.maximum(norms, bound))


def joint(batch):
    return clipped(batch, CLIP)


def none(batch):
    return batch


def per_tensor(batch):
    return clipped(batch.reshape(len(batch), BLOCKS, -1), CLIP).reshape(batch.shape)


def release(q, n_steps, scale, rng, clip=joint):
    """Noisy sums of Poisson batches, in numpy."""

    def sums(values):
        return np.array(
            [
                clip(values[rng.random(len(values)) < q]).sum(axis=0)
                + scale * rng.standard_normal(values.shape[1])
                for _ in range(n_steps)
            ]
        )

    return sums


def audit(mechanism, setting, seed, **options):
    q, n_steps, sigma = setting
    claim = {"noise_multiplier": sigma, "sampling_rate": q, "n_steps": n_steps}
    return audit_mechanism(mechanism, **claim, clip_norm=CLIP, random_state=seed, **options)


WRONG = {
    "no clipping": lambda q, t, sigma, rng: release(q, t, sigma * CLIP, rng, none),
    "per tensor": lambda q, t, sigma, rng: release(q, t, sigma * CLIP, rng, per_tensor),
    "noise not times C": lambda q, t, sigma, rng: release(q, t, sigma, rng),
    "noise of one step": lambda q, t, sigma, rng: release(q, t, sigma * CLIP / t**0.5, rng),
    "twice the rate": lambda q, t, sigma, rng: release(2 * q, t, sigma * CLIP, rng),
    "noise 3/4": lambda q, t, sigma, rng: release(q, t, 0.75 * sigma * CLIP, rng),
}


# A run of one step has the noise of one step, and a full batch no rate to double.
FAULTS = [
    (wrong, setting)
    for wrong in WRONG
    for setting in SETTINGS
    if not (wrong == "noise of one step" and setting[1] == 1)
    if not (wrong == "twice the rate" and setting[0] == 1.0)
]


@pytest.mark.quick(7)
@pytest.mark.parametrize(("wrong", "setting"), FAULTS, ids=str)
def test_finds_each_wrong_mechanism_at_99_percent_confidence(wrong, setting, figure):
    q, n_steps, sigma = setting
    rng = np.random.default_rng(1)
    report = audit(WRONG[wrong](q, n_steps, sigma, rng), setting, seed=2, confidence=0.99)
    assert report.violation, report
    figure("wrong mechanisms found")


@pytest.mark.quick(1)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_finds_nothing_wrong_with_what_is_right(setting, figure):
    q, n_steps, sigma = setting
    rng = np.random.default_rng(1)
    right = release(q, n_steps, sigma * CLIP, rng)
    one = audit(right, setting, seed=rng, confidence=0.999)
    figure(
        f"(q, T, σ) = {setting}: proved {one.epsilon_lower_bound:.2f} of {one.epsilon:.2f}"
        " at 99.9 %"
    )
    found = sum(audit(right, setting, seed=rng, confidence=0.9).violation for _ in range(6))
    assert found <= binom.ppf(1 - 1e-6, 6, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_false_alarms_are_no_more_frequent_than_stated(setting, figure):
    q, n_steps, sigma = setting
    rng = np.random.default_rng(1)
    right = release(q, n_steps, sigma * CLIP, rng)
    options = {"n_canaries": 300, "n_blocks": 1}
    found = sum(audit(right, setting, seed=rng, **options).violation for _ in range(400))
    figure(f"one-run audits, (q, T, σ) = {setting}: {found} false alarms of 400, 20 stated")
    assert found <= binom.ppf(1 - 1e-6, 400, 0.05)


def test_too_much_noise_is_no_violation():
    rng = np.random.default_rng(1)
    for setting in SETTINGS:
        q, n_steps, sigma = setting
        assert not audit(release(q, n_steps, 2 * sigma * CLIP, rng), setting, seed=3).violation


def engine(q, n_steps, sigma):
    """skdp's own loop: the gradient of a record in its own coordinates is the record."""

    def sums(values):
        clipped_sum = LinearClippedSum(lambda logits, targets: targets, CLIP)
        plan = ReleasePlan(sampling(q, n_steps), clipped_sum, sigma, "zero_out")
        rows = LinearRows(values, np.ones((len(values), 1)), data_norm=1e9, fit_intercept=False)
        seen = []

        def keep(state, noisy, step):
            seen.append(noisy.ravel())
            return state

        start = np.zeros((1, values.shape[1]))
        for _ in run(plan, rows, start, lambda state: state, keep, Streams()):
            pass
        return np.array(seen)

    return sums


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_engine_is_what_it_claims_to_be(setting):
    options = {"n_canaries": 400, "n_blocks": 2, "confidence": 0.9999}
    assert not audit(engine(*setting), setting, seed=0, **options).violation


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_a_mechanism_brings_its_own_claim(relation):
    budget = {"epsilon": 3.0, "delta": 1e-5, "record_norm": 2.0}
    mechanism = GaussianMechanism.from_budget(**budget, neighboring_relation=relation)
    report = audit_mechanism(mechanism, confidence=0.9999, random_state=0)
    assert report.epsilon == pytest.approx(3.0)
    assert report.neighboring_relation == relation
    assert not report.violation


def test_sensitivity_of_one_record_under_replace_one_is_found():
    right = GaussianMechanism.from_budget(
        epsilon=3.0, delta=1e-5, record_norm=2.0, neighboring_relation="replace_one"
    )
    claim = {"noise_multiplier": right.scale / 2.0, "clip_norm": 2.0}
    options = {"neighboring_relation": "replace_one", "confidence": 0.99, "random_state": 0}

    def wrong(values):  # half of the noise: C where it should be 2C
        return clipped(values, 2.0).sum(axis=0) + 0.5 * right.scale * np.random.default_rng(
            1
        ).standard_normal(values.shape[1])

    assert audit_mechanism(wrong, **claim, **options).violation


@bundled(
    ("wrong", "text"),
    [
        ({"noise_multiplier": None}, "noise_multiplier=None"),
        ({"noise_multiplier": 0.0}, "noise_multiplier=0.0"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"n_canaries": 3}, "n_canaries=3"),
        ({"n_blocks": 0}, "n_blocks=0"),
        ({"clip_norm": -1}, "clip_norm=-1"),
        ({"delta": 0}, "delta=0"),
        ({"confidence": 2}, "confidence=2"),
        ({"neighboring_relation": "next door"}, "next door"),
    ],
)
def test_parameters_out_of_range_are_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        audit_mechanism(lambda values: values.sum(axis=0), **({"noise_multiplier": 1.0} | wrong))


def test_other_mechanisms_and_shapes_are_refused():
    with pytest.raises(ValueError, match="a Gaussian mechanism"):
        audit_mechanism(LaplaceMechanism(record_norm=1.0, scale=1.0))
    with pytest.raises(ValueError, match="a release of shape"):
        audit_mechanism(lambda values: np.zeros(7), noise_multiplier=1.0)
    with pytest.raises(ValueError, match="a function, or a mechanism"):
        audit_mechanism(3.0, noise_multiplier=1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_release_that_is_not_finite_is_refused(value):
    def broken(values):
        return np.append(np.random.default_rng(0).normal(size=values.shape[1] - 1), value)

    with pytest.raises(ValueError, match="finite numbers"):
        audit_mechanism(broken, noise_multiplier=1.0)


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_of_persons_a_row_of_values_is_what_a_person_adds(relation):
    """The canaries are those of rows, and the claim is named as it is."""
    seen = []

    def release(values):
        seen.append(values)
        clipped = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1.0)
        return clipped.sum(axis=0) + np.random.default_rng(0).normal(size=values.shape[1])

    options = {"noise_multiplier": 1.0, "random_state": 1, "n_canaries": 200}
    rows = audit_mechanism(release, neighboring_relation=relation, **options)
    persons = audit_mechanism(release, neighboring_relation=f"{relation}_group", **options)
    np.testing.assert_array_equal(*seen)
    assert (rows.unit, persons.unit) == ("row", "group")
    same = ("epsilon", "misses", "alarms", "threshold", "epsilon_lower_bound", "departure")
    assert [getattr(rows, name) for name in same] == [getattr(persons, name) for name in same]
