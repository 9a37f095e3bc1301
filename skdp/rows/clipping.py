"""Rows scaled down to a norm, their norms and products: every bit a function of its own row."""

from __future__ import annotations

from typing import Any

import numpy as np

NEARLY = 1e-3  # relative: a row that is cut by less is none to be told of, whatever its precision

ON_BOUND = 1e-9  # relative: rounding makes a row of one-hot columns longer than its norm


class ImplicitRows:
    """A finite matrix (m, D) that is not an array: its length, slices and products are its own.

    It has ``clipped(norm, fit_intercept)``, as `clipped` below, ``norms()`` and ``gram(weights)``.
    """

    __array_ufunc__ = None  # arrays leave products to its own; all else is an error


def by_column_of(array: Any) -> bool:
    """Whether the values of a column lie together."""
    return type(array) is np.ndarray and array.ndim == 2 and array.strides[0] < array.strides[1]


def row_bound(data_norm: float, fit_intercept: bool) -> float:
    """Norm bound of a row with its intercept: √(data_norm² + 1), or data_norm without one."""
    return float(np.hypot(data_norm, 1.0)) if fit_intercept else float(data_norm)


def clipped_rows(
    X: np.ndarray, norm: float, *, fit_intercept: bool, alone: bool = False, by_column: bool = False
) -> np.ndarray:
    """Copy rows, scale them down to a norm where they exceed it, append the intercept's 1.

    A row with a value that is not finite becomes zero before the 1 is appended, one within the norm
    comes out bit for bit. ``alone`` as in `LinearRows`; ``by_column`` lays out columns in turn.

    In doubles no row of D features exceeds a norm in [1e-100, 1e100] by more than a relative
    (D/2 + 6) 2⁻⁵³: a sum of D squares errs by D 2⁻⁵³ (what underflows is nothing beside 1e-200), so
    its root by half of that, and root, quotient and product by one rounding each; where squares
    overflow, one more quotient brings the row to a largest value of 1 first.
    `skdp.rows.bounded_sum` covers it for up to ten million features.
    """
    return clipped(X, norm, fit_intercept, alone, by_column)[0]


def clipped(
    X: Any, norm: float, fit_intercept: bool, alone: bool, by_column: bool = False
) -> tuple[Any, np.ndarray]:
    """Return the clipped rows, and which of them were longer than the norm."""
    if isinstance(X, ImplicitRows):
        return X.clipped(norm, fit_intercept)  # type: ignore[attr-defined]
    rows = np.empty((len(X), X.shape[1] + fit_intercept), order="F" if by_column else "C")
    rows[:, X.shape[1] :] = 1.0
    features = rows[:, : X.shape[1]]
    features[...] = X
    with np.errstate(over="ignore", invalid="ignore"):
        norms = norms_of(features, alone)
    longer = norms > norm * (1 + NEARLY)
    extreme = np.flatnonzero(np.logical_not(np.isfinite(norms)))
    if extreme.size:
        features[extreme] = _tamed(features[extreme], norm, alone)
        norms[extreme] = norm
        longer[extreme] = features[extreme].any(axis=1)  # not what is not finite
    if (norms > norm).any():  # else the factors are all 1
        features *= (norm / np.maximum(norms, norm))[:, None]
    return rows, longer


def row_sums(terms: np.ndarray) -> np.ndarray:
    """Sum (m, D) over D by halving: elementwise additions, whose rounding knows no position.

    A matrix product, `einsum` and `sum` may add in another order at another place in the array.
    """
    while terms.shape[1] > 1:
        half, odd = divmod(terms.shape[1], 2)
        folded = terms[:, :half] + terms[:, half : 2 * half]
        if odd:
            folded[:, 0] += terms[:, -1]
        terms = folded
    return terms[:, 0] if terms.shape[1] else np.zeros(len(terms))


def row_products(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute rows (m, D) times weights (D, K), each row's result a function of that row alone."""
    return np.stack([row_sums(rows * column) for column in weights.T], axis=1)


def norms_of(rows: Any, alone: bool = False) -> np.ndarray:
    """Euclidean norms (m,); ``alone`` as in `LinearRows`."""
    if isinstance(rows, ImplicitRows):
        return rows.norms()  # type: ignore[attr-defined]
    if alone:
        return np.sqrt(row_sums(rows * rows))
    several = not_alone(rows)
    return np.sqrt(np.einsum("ij,ij->i", several, several)[: len(rows)])


def not_alone(rows: np.ndarray) -> np.ndarray:
    """Rows, twice if there is but one: of a single one `einsum` adds many columns in pieces."""
    return np.concatenate([rows, rows]) if len(rows) == 1 else rows


def gram(rows: Any, weights: np.ndarray) -> np.ndarray:
    """Sum of w x xᵀ over rows x, (D, D)."""
    if isinstance(rows, ImplicitRows):
        return rows.gram(weights)  # type: ignore[attr-defined]
    return rows.T @ (weights[:, None] * rows)


def _tamed(rows: np.ndarray, norm: float, alone: bool) -> np.ndarray:
    """Rows whose squares overflow, scaled to the norm; rows that are not finite, as zeros."""
    rows[~np.logical_and.reduce(np.isfinite(rows), axis=1)] = 0.0
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0)
    return rows * (norm / np.maximum(norms_of(rows, alone), 1.0))[:, None]
