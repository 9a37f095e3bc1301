"""The clipped sum as Algorithm 1 of Abadi et al. (2016) writes it: one record at a time."""

import math

import numpy as np


def clipped_sum_one_by_one(residual, theta, rows, targets, clip_norm):
    """Add up per-record gradients, each clipped to a norm, in exact summation (math.fsum)."""
    clipped = []
    for row, target in zip(rows, targets, strict=True):
        with np.errstate(all="ignore"):
            r = residual((row @ theta.T)[None, :], target[None, :])[0]
            gradient = np.outer(r, row)
            norm = np.linalg.norm(gradient)
        if not np.isfinite(norm):
            continue
        clipped.append(gradient if norm <= clip_norm else gradient * (clip_norm / norm))
    if not clipped:
        return np.zeros(theta.shape)
    stacked = np.array(clipped)
    total = [math.fsum(column) for column in stacked.reshape(len(stacked), -1).T]
    return np.array(total).reshape(theta.shape)
