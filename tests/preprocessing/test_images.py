"""Fixed filters: Kymatio's numbers, symmetries, and each image by itself."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from skdp import DPVariationalLogisticRegression
from skdp.preprocessing import GaborTransformer, ScatteringTransformer

# Made once by kymatio.numpy.Scattering2D of version 0.3.0, of images divided by 255.
KYMATIO = json.loads((Path(__file__).parents[1] / "data/scattering_kymatio_0.3.0.json").read_text())
ITS_PI = 3.1415  # in the density of its envelopes; a filter of ours has mass π/3.1415 of one of its
IMAGES = np.random.default_rng(0).random((5, 12, 16))
ROWS = IMAGES.reshape(5, -1)
BOTH = {
    "scattering": ScatteringTransformer((12, 16), n_directions=4),
    "groups": ScatteringTransformer((12, 16), n_directions=4, n_groups=5),
    "gabor": GaborTransformer((12, 16)),
    "gabor groups": GaborTransformer((12, 16), n_groups=17),
}


@pytest.mark.parametrize("case", KYMATIO["cases"], ids=lambda case: f"J={case['n_scales']}")
def test_scattering_is_kymatios(case):
    image, (J, L) = np.array(case["image"]) / 255, (case["n_scales"], case["n_directions"])
    transformer = ScatteringTransformer(image.shape, n_scales=J, n_directions=L)
    found = transformer.fit_transform(image.reshape(1, -1))[0].reshape(case["shape"])
    expected = np.reshape(case["features"], case["shape"])
    n_filters = np.repeat([1, 2, 3], [1, J * L, len(expected) - 1 - J * L])[:, None, None]
    np.testing.assert_allclose(found, expected, atol=5e-5)
    np.testing.assert_allclose(found * (math.pi / ITS_PI) ** n_filters, expected, atol=2e-6)
    first = ScatteringTransformer(image.shape, n_scales=J, n_directions=L, order=1)
    first = first.fit_transform(image.reshape(1, -1))[0]
    np.testing.assert_array_equal(first, found[: 1 + J * L].ravel())


def test_a_mirror_in_the_diagonal_turns_the_wavelets():
    """At 4 directions, 45, 0, -45 and -90 degrees: the first and third stay, the others swap."""
    L, image, swapped = 4, np.random.default_rng(1).random((16, 16)), [0, 3, 2, 1]
    transformer = ScatteringTransformer((16, 16), n_directions=L).fit(image.reshape(1, -1))
    C, h, w = transformer.output_shape_
    plain, mirrored = (
        transformer.transform(x.reshape(1, -1)).reshape(C, h, w) for x in (image, image.T)
    )
    back = mirrored.transpose(0, 2, 1)
    np.testing.assert_allclose(back[0], plain[0], atol=1e-6)
    once = back[1 : 1 + 2 * L].reshape(2, L, h, w)[:, swapped]
    np.testing.assert_allclose(once.reshape(2 * L, h, w), plain[1 : 1 + 2 * L], atol=1e-6)
    twice = back[1 + 2 * L :].reshape(L, L, h, w)[swapped][:, swapped]
    np.testing.assert_allclose(twice.reshape(L * L, h, w), plain[1 + 2 * L :], atol=1e-6)


def test_an_even_image_has_no_edges():
    transformer = ScatteringTransformer((12, 16)).fit(ROWS)
    found = transformer.transform(np.full((1, 192), 0.25)).reshape(transformer.output_shape_)
    np.testing.assert_allclose(found[0], 0.25, atol=1e-6)
    np.testing.assert_allclose(found[1:], 0.0, atol=1e-6)


def test_gabor_energies_are_those_of_convolutions_one_by_one():
    transformer = GaborTransformer((12, 16), n_directions=3).fit(ROWS)
    found = transformer.transform(ROWS).reshape(5, *transformer.output_shape_)
    energies = []
    for size, scale, frequency in ((7, 1.2, 1.6), (11, 2.4, 0.8)):
        r = torch.arange(size) - (size - 1) / 2.0
        y, x = r[:, None], r[None, :]
        envelope = torch.exp(-(x**2 + y**2) / (2 * scale**2))
        for k in range(3):
            along, square = x * math.cos(math.pi * k / 3) + y * math.sin(math.pi * k / 3), 1e-6
            for wave in (torch.cos(frequency * along), torch.sin(frequency * along)):
                wave = wave * envelope
                wave = wave - envelope * wave.sum() / envelope.sum()
                kernel = (wave / wave.norm())[None, None]
                images = torch.from_numpy(IMAGES).float()[:, None]
                square = square + F.conv2d(images, kernel, padding=size // 2) ** 2
            energies.append(F.avg_pool2d(square.sqrt(), 4))
    np.testing.assert_allclose(found[:, :6], torch.cat(energies, 1), atol=1e-5)
    means = IMAGES.reshape(5, 3, 4, 4, 4).mean((2, 4))
    np.testing.assert_allclose(found[:, 6], means, atol=1e-6)


@pytest.mark.parametrize("name", BOTH)
def test_an_image_changes_no_bit_of_the_features_of_others(name):
    transformer = BOTH[name].fit(ROWS)
    rows = np.tile(ROWS, (15, 1))  # more than are worked on at once
    found = transformer.transform(rows)
    for value in (0.0, 1e300, 1e18):
        changed = rows.copy()
        changed[40] = value
        other = transformer.transform(changed)
        np.testing.assert_array_equal(np.delete(other, 40, axis=0), np.delete(found, 40, axis=0))
        assert np.isfinite(other).all()
    np.testing.assert_allclose(transformer.transform(rows[::-1])[::-1], found, atol=1e-6)
    np.testing.assert_array_equal(transformer.transform(rows[:33])[:32], found[:32])


@pytest.mark.parametrize("name", ["groups", "gabor groups"])
def test_features_in_groups_have_a_norm_that_models_know(name):
    transformer = BOTH[name].fit(ROWS)
    found = transformer.transform(1e-3 * ROWS)
    D = math.prod(transformer.output_shape_)
    assert transformer.output_norm_ == math.sqrt(D)
    assert (np.linalg.norm(found, axis=1) <= math.sqrt(D) * (1 + 1e-6)).all()
    groups = found.reshape(5, transformer.n_groups, -1)
    np.testing.assert_allclose(groups.mean(2), 0.0, atol=1e-4)
    model = DPVariationalLogisticRegression(inference="dpvi", classes=[0, 1], n_samples=5)
    halved = transformer.transform(ROWS)
    assert model.fit(halved, [0, 1, 0, 1, 0]).data_norm_ == math.sqrt(D)


def test_channels_are_images_of_their_own():
    colours = np.random.default_rng(2).random((4, 12, 16, 3))
    for name in ("scattering", "gabor"):
        single = BOTH[name].fit(ROWS)
        many = BOTH[name].__class__(**{**BOTH[name].get_params(), "image_shape": (12, 16, 3)})
        found = many.fit_transform(colours.reshape(4, -1)).reshape(4, 3, -1)
        for i in range(3):
            expected = single.transform(colours[..., i].reshape(4, -1))
            np.testing.assert_allclose(found[:, i], expected, atol=1e-6)


@pytest.mark.parametrize("name", BOTH)
def test_precision_names_and_shapes(name):
    transformer = BOTH[name].fit(ROWS)
    assert transformer.transform(ROWS.astype(np.float32)).dtype == np.float32
    assert transformer.transform(ROWS).dtype == np.float64
    assert len(transformer.get_feature_names_out()) == transformer.transform(ROWS).shape[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_shape": (28, 28)}, "image_shape=.*192 numbers"),
        ({"image_shape": (12, 16, 1, 1)}, "image_shape"),
        ({"image_shape": "square"}, "image_shape"),
        ({"image_shape": (-12, -16)}, "image_shape"),
        ({"image_shape": (12.0, 16.0)}, "image_shape"),
        ({"n_scales": 0}, "n_scales"),
        ({"n_scales": 9}, "n_scales"),
        ({"n_directions": 0}, "n_directions"),
        ({"order": 3}, "order"),
        ({"n_groups": 7}, "n_groups=7.*divisor of the 81 channels"),
        ({"n_groups": 0}, "n_groups"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        ScatteringTransformer(**{"image_shape": (12, 16), **settings}).fit(ROWS)


@pytest.mark.parametrize("settings", [{"pool": 0}, {"n_directions": 0}, {"n_groups": 2}])
def test_bad_parameters_of_gabor_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        GaborTransformer((12, 16), **settings).fit(ROWS)
