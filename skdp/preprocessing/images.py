"""Fixed features of images: wavelets that no data has taught, each image by itself, free of ε.

A linear model of pixels reads little, a network pays for every weight in noise. What wavelets make
of an image is known before there are images, and is nearly linear in what tells classes apart
(Tramèr & Boneh, *Differentially Private Learning Needs Better Features*, ICLR 2021). Filters are
those of M. Andreux et al., *Kymatio: Scattering Transforms in Python*, JMLR 2020.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional as F

from skdp.fitting.input import check_features
from skdp.fitting.methods import name_methods
from skdp.fitting.validate import expected, in_range, integer
from skdp.preprocessing._base import float_tags
from skdp.preprocessing._wavelets import bank, edges, n_places, padded, reflected, scattered
from skdp.rows.lazy_rows import RowByRow

_AT_ONCE = 32  # images; always so many, so that no image changes the rounding of others


class ImageTransformer(ClassNamePrefixFeaturesOutMixin, RowByRow, TransformerMixin, BaseEstimator):
    """Features of images by fixed filters, each image by itself."""

    image_shape: Any
    n_groups: int | None
    _eps = 1e-5  # added to the variance of a group of channels

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name_methods(cls)

    def __sklearn_tags__(self) -> Any:
        return float_tags(super().__sklearn_tags__(), allow_nan=False)

    def fit(self, X, y=None) -> Any:
        """Check the parameters against the number of columns of X, which is all that is used."""
        X = check_features(self, X)
        self.image_shape_ = shape_of(self.image_shape, X.shape[1])
        channels, height, width = self._output_shape()
        if self.n_groups is not None and channels % integer(1, "or None", n_groups=self.n_groups):
            raise expected(f"a divisor of the {channels} channels", n_groups=self.n_groups)
        self.output_shape_ = channels, height, width
        return self

    @property
    def output_norm_(self) -> float:
        """Bound on the norm of an image's features: √n_features_out with groups, else none."""
        return math.inf if self.n_groups is None else math.sqrt(self._n_features_out)

    @property
    def _n_features_out(self) -> int:
        """Asked for by scikit-learn, to name the columns of the output."""
        return math.prod(self.output_shape_)

    def transform(self, X) -> np.ndarray:
        """Filter each image by itself, one per row, in float32 or in float64 if X is.

        Pixels are finite, preferably scaled to [0, 1]. An image whose features are not finite,
        because its pixels are beyond 1e15 or so, has zeros.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_pixels)
            Images.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        features = np.empty((len(X), self._n_features_out), X.dtype)
        height, width, channels = self.image_shape_
        with torch.no_grad():
            for start in range(0, len(X), _AT_ONCE):
                rows = X[start : start + _AT_ONCE]
                batch = np.zeros((_AT_ONCE, X.shape[1]), np.float32)
                with np.errstate(over="ignore"):
                    batch[: len(rows)] = rows
                images = torch.from_numpy(batch).view(_AT_ONCE, height, width, channels)
                found = self._filtered(images.permute(0, 3, 1, 2).contiguous())
                if self.n_groups is not None:
                    found = F.group_norm(found, self.n_groups, eps=self._eps)
                found = found.flatten(1)
                found[~torch.isfinite(found.sum(1))] = 0.0
                features[start : start + len(rows)] = found[: len(rows)].numpy()
        return features

    def _output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the features of an image; checks parameters."""
        raise NotImplementedError

    def _filtered(self, images: Tensor) -> Tensor:
        """Features (B, channels, height, width) of images (B, c, h, w)."""
        raise NotImplementedError


def shape_of(image_shape: Any, n_pixels: int) -> tuple[int, int, int]:
    """Height, width and number of channels of images of so many numbers."""
    if isinstance(image_shape, str) and image_shape == "auto":
        side = math.isqrt(n_pixels)
        return (side, side, 1) if side * side == n_pixels else (1, n_pixels, 1)
    remedy = "e.g. (28, 28), or (32, 32, 3) where the numbers of a pixel lie together"
    sizes = tuple(image_shape) if isinstance(image_shape, tuple | list) else ()
    whole = all(isinstance(s, int | np.integer) and s > 0 for s in sizes)
    if len(sizes) not in (2, 3) or not whole:
        raise expected("'auto' or two or three integers > 0", remedy, image_shape=image_shape)
    if math.prod(sizes) != n_pixels:
        raise expected(f"a shape of {n_pixels} numbers, the columns of X", image_shape=image_shape)
    height, width, *channels = map(int, sizes)
    return height, width, channels[0] if channels else 1


@dataclass(eq=False, repr=False)
class ScatteringTransformer(ImageTransformer):
    """Wavelet scattering of images: local means of moduli of moduli of wavelet coefficients.

    The image, its local means after a wavelet of each scale and direction and a modulus, and after
    two of them, the second coarser (Bruna & Mallat 2013): with 2 scales and 8 directions 81
    channels, of 7 × 7 for an image of 28 × 28. A linear model of them reads digits about as well as
    a small convolutional network, and has nothing to learn but its weights.

    **Privacy.** Costs none: the filters are fixed before there are data, `fit` reads the number of
    columns and nothing else of X, and each row is transformed by itself.

    Parameters
    ----------
    image_shape : tuple of int or "auto", default="auto"
        Height and width in pixels, or height, width and number of channels, in the order in which a
        row of X holds them. ``"auto"`` is a square image, or one line if that is not possible.
    n_scales : int, default=2
        J ≥ 1: wavelets of 1, 2, …, 2^(J−1) pixels, and means over 2^J × 2^J of them.
    n_directions : int, default=8
        L ≥ 1: directions of the wavelets over half a turn.
    order : {1, 2}, default=2
        Largest number of moduli.
    n_groups : int or None, default=None
        Number of groups of channels, each of which has mean 0 and variance 1 *in each image*, so
        that no image has features of a norm above √n_features_out. A divisor of the number of
        channels; None leaves the features as they are.

    Attributes
    ----------
    image_shape_ : tuple of int
        Height, width and channels of an image.
    output_shape_ : tuple of int
        Channels, height and width of its features, in the order of the columns.
    output_norm_ : float
        Bound on the norm of an image's features, which `NormClipper` and the estimators follow;
        infinite without groups.
    n_features_in_ : int
        Number of columns of X.

    See Also
    --------
    GaborTransformer : One layer of edges, a fifth of the features.

    Notes
    -----
    Morlet wavelets and padding are those of Kymatio, whose numpy implementation the tests hold it
    against; filtering is by fast Fourier transforms, in single precision.

    References
    ----------
    J. Bruna, S. Mallat, *Invariant Scattering Convolution Networks*, IEEE TPAMI 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.preprocessing import ScatteringTransformer
    >>> images = np.random.default_rng(0).random((10, 784))
    >>> transformer = ScatteringTransformer((28, 28), n_groups=27).fit(images)
    >>> transformer.output_shape_, transformer.transform(images).shape
    ((81, 7, 7), (10, 3969))
    """

    image_shape: Any = "auto"
    _: KW_ONLY
    n_scales: int = 2
    n_directions: int = 8
    order: int = 2
    n_groups: int | None = None

    def _output_shape(self) -> tuple[int, int, int]:
        J, L = integer(1, n_scales=self.n_scales), integer(1, n_directions=self.n_directions)
        in_range(1, 2, order=integer(1, order=self.order), closed="both")
        height, width, channels = self.image_shape_
        if max(2, math.log2(max(height, width))) < J:
            raise expected(f"small beside images of {height} x {width} pixels", n_scales=J)
        of_each = 1 + J * L + (self.order == 2) * L * L * J * (J - 1) // 2
        return channels * of_each, n_places(height, J), n_places(width, J)

    def _filtered(self, images: Tensor) -> Tensor:
        J, (height, width, _) = self.n_scales, self.image_shape_
        filters = bank(padded(height, J), padded(width, J), J, self.n_directions)
        single = reflected(images.flatten(0, 1), J)
        found = torch.cat(list(scattered(single, filters, self.order)), dim=1)
        return found.reshape(len(images), -1, *found.shape[2:])


@dataclass(eq=False, repr=False)
class GaborTransformer(ImageTransformer):
    """Energies of edges: local means of moduli of Gabor filters of two sizes, and of the image.

    With 8 directions 17 channels, of 7 × 7 for an image of 28 × 28: the least that lets a small
    network or a linear model read images without learning what an edge is.

    **Privacy.** Costs none: the filters are fixed before there are data, `fit` reads the number of
    columns and nothing else of X, and each row is transformed by itself.

    Parameters
    ----------
    image_shape : tuple of int or "auto", default="auto"
        As in `ScatteringTransformer`.
    n_directions : int, default=8
        Directions ≥ 1 of the filters over half a turn.
    pool : int, default=4
        Energies are averaged over squares of so many pixels.
    n_groups : int or None, default=None
        As in `ScatteringTransformer`; 17 makes each of 17 channels a group of its own.

    Attributes
    ----------
    image_shape_, output_shape_, output_norm_, n_features_in_
        As in `ScatteringTransformer`.

    See Also
    --------
    ScatteringTransformer : Two layers, five times the features, better for linear models.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.preprocessing import GaborTransformer
    >>> images = np.random.default_rng(0).random((10, 784))
    >>> GaborTransformer((28, 28), n_groups=17).fit(images).output_shape_
    (17, 7, 7)
    """

    _eps = 1e-3  # pixels of an empty margin are no edges

    image_shape: Any = "auto"
    _: KW_ONLY
    n_directions: int = 8
    pool: int = 4
    n_groups: int | None = None

    def _output_shape(self) -> tuple[int, int, int]:
        height, width, channels = self.image_shape_
        of_each = 2 * integer(1, n_directions=self.n_directions) + 1
        down, across = self._pools
        return channels * of_each, height // down, width // across

    @property
    def _pools(self) -> tuple[int, int]:
        """Sides of the squares of pixels, no longer than those of an image."""
        height, width, _ = self.image_shape_
        return min(integer(1, pool=self.pool), height), min(self.pool, width)

    def _filtered(self, images: Tensor) -> Tensor:
        single, found = images.flatten(0, 1)[:, None], []
        for size, scale, frequency in ((7, 1.2, 1.6), (11, 2.4, 0.8)):
            filters = edges(size, scale, frequency, self.n_directions)
            parts = F.conv2d(single, filters, padding=size // 2).unflatten(1, (2, -1))
            found.append((parts.square().sum(1) + 1e-6).sqrt())
        pooled = F.avg_pool2d(torch.cat([*found, single], 1), self._pools)
        return pooled.reshape(len(images), -1, *pooled.shape[2:])
