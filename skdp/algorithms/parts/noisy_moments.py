"""Second moments with their noise taken out."""

from __future__ import annotations

import numpy as np


def shrunk(matrix: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take Gaussian-orthogonal-ensemble noise out of a symmetric matrix, eigenvalue by eigenvalue.

    The noise has scale s on the diagonal and s/√2 beside it; its spectrum ends at ±s√(2D).
    Eigenvalues λ within are noise and become 0, those beyond become √(λ² − 2 s² D), which is the
    best in Frobenius norm (Gavish & Donoho, *Optimal shrinkage of singular values*, 2017). Returns
    matrix, eigenvectors and the share of each eigenvalue, in [0, 1], that was kept.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = np.sqrt(
        np.maximum(1.0 - 2.0 * scale**2 * len(values) / np.maximum(values**2, 1e-300), 0.0)
    )
    return (vectors * (kept * values)) @ vectors.T, vectors, kept


def believed(
    block: np.ndarray,
    average: float,
    scale: float,
    generator: np.random.Generator | None,
    doubt: float,
) -> np.ndarray:
    """Take noise out of second moments, and put what is unknown back in where a generator is given.

    Eigenvalues of the block (d, d) below its noise, of the scale of `shrunk`, are believed to have
    the mean that the trace leaves them, up to a share ``doubt``; ``average`` is the mean of all,
    which the trace tells better than any other.
    """
    d = len(block)
    eigenvalues, bulk = np.linalg.eigvalsh(block), average
    for _ in range(3):  # the mean of those below the noise depends on which are
        _, vectors, shares = shrunk(block - bulk * np.eye(d), scale)
        drowned = max(1.0, float(np.sum(1.0 - shares)))
        bulk = max((d * average - float(shares @ eigenvalues)) / drowned, 0.1 * average)
    values = bulk + shares * (eigenvalues - bulk)
    if generator is None:
        return (vectors * values) @ vectors.T
    least = (doubt * float(values.min())) ** 2 / (2 * d)
    roots = np.maximum(shares, least / max(least + scale**2, 1e-300)) ** 0.25
    normals = generator.standard_normal((d, d))
    upper = np.triu(normals, 1) / np.sqrt(2.0)
    wobble = (upper + upper.T + np.diag(np.diag(normals))) * scale * np.outer(roots, roots)
    wobble -= np.trace(wobble) / d * np.eye(d)
    return vectors @ (np.diag(values) + wobble) @ vectors.T


def floored(matrix: np.ndarray, least: float) -> np.ndarray:
    """Raise eigenvalues of a symmetric matrix to a least one."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, least)) @ vectors.T
