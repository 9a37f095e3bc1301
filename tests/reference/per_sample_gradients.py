"""Gradients of single records the slow and obvious way: one plain backward pass a record."""

import copy

import numpy as np
import torch


def per_sample_gradients(module, loss, x, y):
    """Return the (B, P) gradients in the trained parameters, taken in double precision."""
    module = copy.deepcopy(module).double().train()
    trained = [p for p in module.parameters() if p.requires_grad]
    x = x.double() if x.is_floating_point() else x
    rows = np.zeros((len(x), sum(p.numel() for p in trained)))
    for i in range(len(x)):
        for p in trained:
            p.grad = None
        loss(module(x[i : i + 1]), y[i : i + 1]).sum().backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        rows[i] = torch.cat([g.flatten() for g in found]).numpy()
    return rows


def clipped(gradients, clip_norm, clipping="flat"):
    """Scale every row: by min(1, C/‖g‖), or by C/(‖g‖ + .01)."""
    norms = np.linalg.norm(gradients, axis=1)
    if clipping == "automatic":
        return gradients * (clip_norm / (norms + 0.01))[:, None]
    too_long = norms > clip_norm
    out = gradients.copy()
    out[too_long] *= (clip_norm / norms[too_long])[:, None]
    return out
