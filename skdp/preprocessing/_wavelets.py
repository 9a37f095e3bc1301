"""Filters of images: Gabor filters of edges, and the wavelets of scattering with their moduli."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_SLANT = 4.0  # over the number of directions: how much longer than wide a wavelet is
_FREQUENCY, _WIDTH = 0.75 * math.pi, 0.8  # of the finest wavelets: radians a pixel, and pixels


@lru_cache(maxsize=8)
def edges(size: int, scale: float, frequency: float, n_directions: int) -> Tensor:
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


def n_places(size: int, J: int) -> int:
    """Number of local means along a side."""
    return max(1, size // 2**J)


def padded(size: int, J: int) -> int:
    """Length of a padded side: whole cells of 2^J pixels, one and a half more or so."""
    return ((size + 2**J) // 2**J + 1) * 2**J


def reflected(images: Tensor, J: int) -> Tensor:
    """Continue images (N, h, w) as in a mirror."""
    for axis in (1, 2):
        size = images.shape[axis]
        before = (padded(size, J) - size) // 2
        period = max(1, 2 * (size - 1))
        places = (torch.arange(padded(size, J)) - before) % period
        mirrored = torch.minimum(places, period - places).clamp(max=size - 1)
        images = images.index_select(axis, mirrored)
    return images


class _Bank(NamedTuple):
    """Filters on a grid, at each resolution r, of each 2^r-th pixel, at which they are asked for.

    ``low[r]`` (k, m) and (k, n): matrices A and B, for which A u Bᵀ are the local means of u.
    ``wavelets[j][r]`` (L, m, n): Fourier transforms of those of 2^j pixels.
    """

    low: list[tuple[Tensor, Tensor]]
    wavelets: list[list[Tensor]]


@lru_cache(maxsize=8)
def bank(height: int, width: int, J: int, L: int) -> _Bank:
    """Return the filters of J scales and L directions for padded images."""
    wavelets = []
    for j in range(J):
        angles = [(int(L - L / 2 - 1) - k) * math.pi / L for k in range(L)]
        of_scale = [_morlet(height, width, j, angle, L) for angle in angles]
        wavelets.append([_coarser(np.stack(of_scale), r) for r in range(j + 1)])
    low = [(_means(height, J, r), _means(width, J, r)) for r in range(J)]
    return _Bank(low, wavelets)


def _means(size: int, J: int, r: int) -> Tensor:
    """Matrix of local means (n_places, size / 2^r) along a padded side: by a normal density."""
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


def scattered(images: Tensor, bank: _Bank, order: int) -> Iterator[Tensor]:
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
    """Moduli (..., L, m, n) of the wavelets' parts of signals (..., M, N), of each 2^r-th pixel."""
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
