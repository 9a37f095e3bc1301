import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from skdp import DPVariationalLogisticRegression, PrivacyLedger, privacy_of
from skdp.engine import release_hook
from skdp.models.additive import Additive, Number
from skdp.preprocessing import AdditiveFeatures
from skdp.rows.bounds import row_norm

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.uniform(0, 100, 300), "ward": RNG.choice(["a", "b"], 300)})
DECLARED = {"bounds": {"age": (0, 100)}, "categories": {"ward": ["a", "b"]}}
ENCODINGS = ["waves", "splines", "onehot"]


@pytest.mark.parametrize("encode", ENCODINGS)
def test_rows_have_the_norm_that_is_published_and_one_is_as_long(encode):
    features = AdditiveFeatures(**DECLARED, encode=encode, n_bins=12).fit(FRAME)
    every = pd.DataFrame({"age": np.repeat(np.append(np.arange(12) * 8.4, np.nan), 3)})
    every["ward"] = ["a", "b", "c"] * 13
    rows = features.transform(every)
    norms = np.linalg.norm(rows, axis=1)
    assert norms.max() == pytest.approx(features.output_norm_, rel=1e-12)
    assert row_norm(rows) == features.output_norm_
    assert rows.shape[1] == len(features.get_feature_names_out())


def test_waves_are_those_of_the_additive_model():
    features = AdditiveFeatures(bounds=[(0, 1)], n_bins=10, n_basis=3).fit([[0.5]])
    x = np.linspace(0, 1, 50)
    column = Number("x0", tuple(np.linspace(0, 1, 11)), 3)
    model = Additive((column,))
    np.testing.assert_array_equal(features.transform(x[:, None]), model.rows(model.codes([x])))
    assert features.output_norm_ == model.norm
    many = AdditiveFeatures(bounds=[(0, 1)], n_bins=4).fit([[0.5]])
    assert many.transform([[0.1]]).shape == (1, 4)  # a trend, two waves and what is missing


def test_splines_are_those_of_scikit_learn_at_the_middles_of_bins():
    features = AdditiveFeatures(bounds=[(0, 1)], n_bins=20, encode="splines", n_basis=7)
    middles = (np.arange(20)[:, None] + 0.5) / 20
    theirs = SplineTransformer(5, knots="uniform").fit([[0.0], [1.0]]).transform(middles)
    np.testing.assert_allclose(features.fit(middles).transform(middles)[:, :-1], theirs)


def test_one_hot_bins_and_a_column_for_what_is_missing():
    features = AdditiveFeatures(edges=[[0, 1, 5]], encode="onehot").fit([[0.0]])
    rows = features.transform([[0.5], [1.0], [99.0], [-9.0], [np.nan]])
    assert rows.argmax(axis=1).tolist() == [0, 1, 1, 0, 2]
    assert (rows.sum(axis=1) == 1).all()


@pytest.mark.parametrize("encode", ["splines", "onehot"])
def test_levels_are_one_hot_but_with_waves(encode):
    rows = pd.DataFrame({"age": 50.0, "ward": ["a", "b", "c", None]})
    found = AdditiveFeatures(**DECLARED, encode=encode).fit(FRAME).transform(rows)
    np.testing.assert_array_equal(found[:, -3:], np.eye(3)[[0, 1, 2, 2]])
    centred = AdditiveFeatures(**DECLARED).fit(FRAME).transform(rows)
    np.testing.assert_array_equal(centred[:2, -3:], [[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0]])


@pytest.mark.parametrize("encode", ENCODINGS)
def test_nothing_is_learned_from_rows(encode):
    features = AdditiveFeatures(**DECLARED, encode=encode)
    with PrivacyLedger() as ledger, release_hook.record() as tape:
        one = features.fit(FRAME).transform(FRAME[:5])
        other = features.fit(FRAME[:1].assign(age=np.nan, ward="z")).transform(FRAME[:5])
    np.testing.assert_array_equal(one, other)
    assert ledger.entries == ()
    assert not tape


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_frames_have_the_names(container):
    features = AdditiveFeatures(**DECLARED, encode="onehot", n_bins=2)
    out = features.set_output(transform=container).fit_transform(FRAME)
    assert list(out.columns) == [
        "age: bin 1", "age: bin 2", "age: missing", "ward=a", "ward=b", "ward: other",
    ]  # fmt: skip
    assert row_norm(out) == features.output_norm_


def test_a_private_model_takes_its_norm_and_the_workflow_is_private():
    y = (FRAME["age"] > 50).to_numpy().astype(int)
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=300)
    fitted = make_pipeline(AdditiveFeatures(**DECLARED), model).fit(FRAME, y)
    assert fitted[-1].data_norm_ == fitted[0].output_norm_
    assert 0.99 < privacy_of(fitted).epsilon <= 1.0
    assert make_pipeline(AdditiveFeatures(**DECLARED), LogisticRegression()).fit(
        FRAME, y
    ).score(FRAME, y) > 0.95  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"encode": "bins"}, "Expected encode="),
        ({"n_basis": 0}, "Expected n_basis="),
        ({"n_basis": 3, "encode": "splines"}, "Expected n_basis="),
        ({"n_bins": 1}, "Expected n_bins="),
        ({"bounds": {"age": (1, 1)}}, "Expected bounds="),
        ({"categories": {"ward": []}}, "Expected categories="),
        ({"bounds": None}, "declared of every column"),
    ],
)
def test_bad_parameters_are_named(parameters, said):
    with pytest.raises(ValueError, match=said):
        AdditiveFeatures(**(DECLARED | parameters)).fit(FRAME)


def test_a_fit_is_not_changed_by_its_parameters_afterwards():
    features = AdditiveFeatures(**DECLARED).fit(FRAME)
    before = features.transform(FRAME)
    features.set_params(encode="onehot", n_bins=3, bounds={"age": (5, 6)})
    np.testing.assert_array_equal(features.transform(FRAME), before)


def test_an_entry_that_is_no_number_is_refused_without_quoting_it():
    for entry, error in (("secret", ValueError), ({"secret": 1}, TypeError)):
        rows = np.array([[0.5], [entry]], dtype=object)
        with pytest.raises(error, match="Expected numbers in x0") as refused:
            AdditiveFeatures().fit(rows)
        assert "secret" not in str(refused.value)
