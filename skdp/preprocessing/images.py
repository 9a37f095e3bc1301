"""Fixed features of images: wavelets that no data has taught, each image by itself, free of ε.

A linear model of pixels reads little, a network pays for every weight in noise, and a network that
others have trained may not be there, or not be public. Wavelets lie between: what they make of an
image is known before there are images, and is nearly linear in what tells classes apart (Tramèr &
Boneh, *Differentially Private Learning Needs Better Features*, ICLR 2021).

References
----------
J. Bruna, S. Mallat, *Invariant Scattering Convolution Networks*, IEEE TPAMI 2013.
M. Andreux et al., *Kymatio: Scattering Transforms in Python*, JMLR 2020: the filters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional as F

from skdp._bounded_rows import declares_norm
from skdp._input import check_features
from skdp._named_methods import name_methods
from skdp._validate import expected, in_range, integer
from skdp.preprocessing._base import float_tags

_AT_ONCE = 32  # images; always so many, so that no image changes the rounding of others
_SLANT = 4.0  # over the number of directions: how much longer than wide a wavelet is
_FREQUENCY, _WIDTH = 0.75 * math.pi, 0.8  # of the finest wavelets: radians a pixel, and pixels


class ImageTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
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
        """Check the parameters against the number of pixels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_pixels)
            Images, one per row; only the number of columns is used.
        y : None
            Ignored.

        Returns
        -------
        Self
            The fitted transformer.
        """
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
        """Filter each image by itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_pixels)
            Images, one per row, with finite pixels, preferably scaled to [0, 1].

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            In float32, or in float64 if X is. An image whose features are not finite, because its
            pixels are beyond 1e15 or so, has zeros.
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
    if len(sizes) not in (2, 3) or not all(
        isinstance(s, int | np.integer) and s > 0 for s in sizes
    ):
        raise expected("'auto' or two or three integers > 0", remedy, image_shape=image_shape)
    if math.prod(sizes) != n_pixels:
        raise expected(f"a shape of {n_pixels} numbers, the columns of X", image_shape=image_shape)
    height, width, *channels = map(int, sizes)
    return height, width, channels[0] if channels else 1


@declares_norm
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

    def __init__(
        self,
        image_shape: Any = "auto",
        *,
        n_scales: int = 2,
        n_directions: int = 8,
        order: int = 2,
        n_groups: int | None = None,
    ) -> None:
        self.image_shape = image_shape
        self.n_scales = n_scales
        self.n_directions = n_directions
        self.order = order
        self.n_groups = n_groups

    def _output_shape(self) -> tuple[int, int, int]:
        J, L = integer(1, n_scales=self.n_scales), integer(1, n_directions=self.n_directions)
        in_range(1, 2, order=integer(1, order=self.order), closed="both")
        height, width, channels = self.image_shape_
        if max(2, math.log2(max(height, width))) < J:
            raise expected(f"small beside images of {height} x {width} pixels", n_scales=J)
        of_each = 1 + J * L + (self.order == 2) * L * L * J * (J - 1) // 2
        return channels * of_each, _n_places(height, J), _n_places(width, J)

    def _filtered(self, images: Tensor) -> Tensor:
        J, (height, width, _) = self.n_scales, self.image_shape_
        bank = _bank(*(_padded(size, J) for size in (height, width)), J, self.n_directions)
        padded = _reflected(images.flatten(0, 1), J)
        found = torch.cat(list(_scattered(padded, bank, self.order)), dim=1)
        return found.reshape(len(images), -1, *found.shape[2:])


@declares_norm
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

    def __init__(
        self,
        image_shape: Any = "auto",
        *,
        n_directions: int = 8,
        pool: int = 4,
        n_groups: int | None = None,
    ) -> None:
        self.image_shape = image_shape
        self.n_directions = n_directions
        self.pool = pool
        self.n_groups = n_groups

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
            filters = _edges(size, scale, frequency, self.n_directions)
            parts = F.conv2d(single, filters, padding=size // 2).unflatten(1, (2, -1))
            found.append((parts.square().sum(1) + 1e-6).sqrt())
        pooled = F.avg_pool2d(torch.cat([*found, single], 1), self._pools)
        return pooled.reshape(len(images), -1, *pooled.shape[2:])


@lru_cache(maxsize=8)
def _edges(size: int, scale: float, frequency: float, n_directions: int) -> Tensor:
    """Even and then odd Gabor filters of mean 0 and norm 1, (2 n_directions, 1, size, size)."""
    r = np.arange(size) - (size - 1) / 2
    y, x = np.meshgrid(r, r, indexing="ij")
    envelope = np.exp(-(x**2 + y**2) / (2 * scale**2))
    waves = []
    for part in (np.cos, np.sin):
        for k in range(n_directions):
            angle = math.pi * k / n_directions
            wave = part(frequency * (x * math.cos(angle) + y * math.sin(angle))) * envelope
            wave -= envelope * wave.sum() / envelope.sum()
            waves.append(wave / np.linalg.norm(wave))
    return torch.from_numpy(np.stack(waves)[:, None]).float()


def _n_places(size: int, J: int) -> int:
    """Number of local means along a side."""
    return max(1, size // 2**J)


def _padded(size: int, J: int) -> int:
    """Length of a padded side: whole cells of 2^J pixels, one and a half more or so."""
    return ((size + 2**J) // 2**J + 1) * 2**J


def _reflected(images: Tensor, J: int) -> Tensor:
    """Continue images (N, h, w) as in a mirror."""
    for axis in (1, 2):
        size = images.shape[axis]
        before = (_padded(size, J) - size) // 2
        period = max(1, 2 * (size - 1))
        places = (torch.arange(_padded(size, J)) - before) % period
        images = images.index_select(
            axis, torch.minimum(places, period - places).clamp(max=size - 1)
        )
    return images


class _Bank(NamedTuple):
    """Filters on a grid, at each resolution r, of each 2^r-th pixel, at which they are asked for.

    ``low[r]`` (k, m) and (k, n): matrices A and B, for which A u Bᵀ are the local means of u.
    ``wavelets[j][r]`` (L, m, n): Fourier transforms of those of 2^j pixels.
    """

    low: list[tuple[Tensor, Tensor]]
    wavelets: list[list[Tensor]]


@lru_cache(maxsize=8)
def _bank(height: int, width: int, J: int, L: int) -> _Bank:
    """Return the filters of J scales and L directions for padded images."""
    wavelets = []
    for j in range(J):
        angles = [(int(L - L / 2 - 1) - k) * math.pi / L for k in range(L)]
        of_scale = [_morlet(height, width, j, angle, L) for angle in angles]
        wavelets.append([_coarser(np.stack(of_scale), r) for r in range(j + 1)])
    low = [(_means(height, J, r), _means(width, J, r)) for r in range(J)]
    return _Bank(low, wavelets)


def _means(size: int, J: int, r: int) -> Tensor:
    """Matrix of local means, (n_places, size / 2^r), along a padded side at resolution r.

    By a normal density in the plane, which is a product of one along each side.
    """
    x, scale = np.arange(-2 * size, 3 * size), _WIDTH * 2 ** (J - 1)
    density = np.exp(-((x / scale) ** 2) / 2) / (math.sqrt(2.0 * math.pi) * scale)
    spectrum = _coarser(density.reshape(5, size, 1).sum(0), r)[:, 0].double()
    response = torch.fft.ifft(spectrum).real  # column 0 of a circulant matrix
    n = len(spectrum)
    places = torch.arange(1, max(2, n * 2**r // 2**J - 1)) * 2 ** (J - r)
    return response[(places[:, None] - torch.arange(n)) % n].float()


def _morlet(height: int, width: int, j: int, angle: float, L: int) -> np.ndarray:
    """A wave in an envelope, minus as much of the envelope as gives it mean 0."""
    shape = (height, width, _WIDTH * 2**j, angle)
    wave = _gabor(*shape, _FREQUENCY / 2**j, _SLANT / L)
    envelope = _gabor(*shape, 0.0, _SLANT / L)
    return wave - wave.sum() / envelope.sum() * envelope


def _gabor(
    height: int, width: int, scale: float, angle: float, frequency: float, slant: float
) -> np.ndarray:
    """A wave in a normal envelope of mass 1, around the origin of a torus."""
    total = np.zeros((height, width), complex)
    cos, sin = math.cos(angle), math.sin(angle)
    for down in range(-2, 3):
        for right in range(-2, 3):
            x, y = np.mgrid[
                down * height : (down + 1) * height, right * width : (right + 1) * width
            ]
            along, across = cos * x + sin * y, -sin * x + cos * y
            square = along**2 + (slant * across) ** 2
            total += np.exp(-square / (2 * scale**2) + 1j * frequency * along)
    return total * (slant / (2 * math.pi * scale**2))


def _coarser(filters: np.ndarray, r: int) -> Tensor:
    """Fourier transforms of filters (..., m, n) for signals of which each 2^r-th pixel is left."""
    spectra = np.fft.fft2(filters).real
    for axis in (-2, -1):
        size = spectra.shape[axis]
        if size == 1:
            continue
        kept = np.ones(size)
        kept[size >> (r + 1) : (size >> (r + 1)) + size - (size >> r)] = 0.0
        kept = kept[:, None] if axis == -2 else kept
        spectra = np.sum(np.split(spectra * kept, 2**r, axis=axis), axis=0)
    return torch.from_numpy(spectra).float()


def _scattered(images: Tensor, bank: _Bank, order: int) -> Iterator[Tensor]:
    """Yield the channels (N, k, m, n) of padded images: of no modulus, of one, of two."""
    J = len(bank.wavelets)

    def means(u: Tensor, r: int) -> Tensor:
        A, B = bank.low[r]
        return (A @ u @ B.T).flatten(1, -3)

    yield means(images[:, None], 0)
    spectra = torch.fft.fft2(images)
    later = []
    for j in range(J):
        once = _moduli(spectra, bank.wavelets[j][0], j)  # (N, L, m, n)
        yield means(once, j)
        if order == 2 and j + 1 < J:
            of_once = torch.fft.fft2(once)
            twice = (_moduli(of_once, bank.wavelets[k][j], k - j) for k in range(j + 1, J))
            found = [(A @ u @ B.T) for u, (A, B) in zip(twice, bank.low[j + 1 :], strict=True)]
            later.append(torch.cat(found, dim=2).flatten(1, 2))
    yield from later


def _moduli(spectra: Tensor, wavelets: Tensor, r: int) -> Tensor:
    """Moduli (..., L, m, n) of the wavelets' parts of signals (..., M, N), of each 2^r-th pixel.

    The blocks of the products are added up without them in memory: at each frequency that is left,
    4^r numbers of a signal times (4^r, L) of the wavelets.
    """
    *first, M, N = spectra.shape
    L, b, m, n = len(wavelets), 2**r, M >> r, N >> r
    if r == 0:
        return torch.fft.ifft2(spectra[..., None, :, :] * wavelets).abs()
    signal = torch.view_as_real(spectra).reshape(-1, b, m, b, n, 2)
    signal = signal.permute(2, 4, 0, 5, 1, 3).reshape(m * n, -1, b * b)
    filters = wavelets.reshape(L, b, m, b, n).permute(2, 4, 1, 3, 0).reshape(m * n, b * b, L)
    products = (signal @ (filters / b**2)).reshape(m, n, -1, 2, L).permute(2, 4, 0, 1, 3)
    found = torch.fft.ifft2(torch.view_as_complex(products.contiguous())).abs()
    return found.reshape(*first, L, m, n)
