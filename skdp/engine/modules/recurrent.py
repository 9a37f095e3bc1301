"""Recurrent layers whose per-record gradients can be taken: equals of ``nn.RNN, nn.GRU, nn.LSTM``.

The layers of torch are one operation over all of time, which shows neither gates nor their
gradients. `Recurrent` computes the same from the same parameters, a step at a time. All weights of
a layer act in two linear maps that all steps share, u_t = W x_t + b and v_t = U h_{t-1} + d, so its
gradients are Σ_t ∂u_t x_tᵀ and Σ_t ∂v_t h_{t-1}ᵀ: for book-keeping it is two ``nn.Linear`` over
positions. ∂u_t and ∂v_t come from back-propagation through time, written out in `_Steps`; where
no one keeps books (vmap, and the loop that book-keeping is held against) autograd does it.

GRU: r, z = σ(u + v), n = tanh(u_n + r v_n), h' = n + z (h − n).
LSTM: i, f, o = σ(u + v), g = tanh(u_g + v_g), c' = f c + i g, h' = o tanh(c').
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

# Names of a linear map's parameters in the layer, its input (B, T, p) and its output (B, T, r).
Note = Callable[[dict[str, str], Tensor, Tensor], None]


class Recurrent(nn.RNNBase):
    """What a recurrent layer of torch becomes in the copy of a module that is trained.

    ``note`` gives what gets the two linear maps of each direction of each layer, or None.
    """

    note: Callable[[], Note | None] = staticmethod(lambda: None)

    def forward(self, x: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """Return what the layer of torch returns."""
        if not isinstance(x, Tensor) or x.ndim != 3:
            raise ValueError(
                "Expected a batch of sequences of one length for a recurrent layer, (n, time, "
                "width); pad them, and pick or mask positions after it."
            )
        x = x if self.batch_first else x.transpose(0, 1)
        directions = 2 if self.bidirectional else 1
        if hx is None:
            hx = x.new_zeros(self.num_layers * directions, len(x), self.hidden_size)
            hx = (hx, hx) if self.mode == "LSTM" else hx
        starts: Any = hx if self.mode == "LSTM" else (hx, None)
        ends: list[tuple[Tensor, Any]] = []
        for layer in range(self.num_layers):
            outputs = []
            for way in ("", "_reverse")[:directions]:
                h, c = (None if s is None else s[len(ends)] for s in starts)
                turned = x.flip(1) if way else x
                hs, c = self._direction(turned, f"_l{layer}{way}", h, c)
                ends.append((hs[:, -1], c))
                outputs.append(hs.flip(1) if way else hs)
            x = torch.cat(outputs, 2)
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        h, c = (None if s[0] is None else torch.stack(s) for s in zip(*ends, strict=True))
        return x if self.batch_first else x.transpose(0, 1), (h, c) if self.mode == "LSTM" else h

    def _direction(self, x: Tensor, suffix: str, h: Any, c: Any) -> tuple[Tensor, Tensor | None]:
        """Return the states (B, T, H), and the last cell of an LSTM."""
        of_x, of_h = (
            {
                short: f"{short}_{kind}{suffix}"
                for short in ("weight", "bias")[: 2 if self.bias else 1]
            }
            for kind in ("ih", "hh")
        )
        W, U = getattr(self, of_x["weight"]), getattr(self, of_h["weight"])
        b, d = (getattr(self, of["bias"]) if self.bias else None for of in (of_x, of_h))
        u, note = F.linear(x, W, b), self.note()
        if note is None:
            hs = []
            for u_t in u.unbind(1):
                h, c = _step(self.mode, u_t, F.linear(h, U, d), h, c)
                hs.append(h)
            return torch.stack(hs, 1), c
        if not u.requires_grad:
            u.requires_grad_()
        note(of_x, x, u)
        v = u.new_zeros(()).expand(u.shape).requires_grad_()  # its gradient is that of v_t
        hs, c = _Steps.apply(u, v, U, d, h, c, self.mode)
        note(of_h, torch.cat([h[:, None], hs[:, :-1]], 1), v)
        return hs, c


class Cell(nn.RNNCellBase):
    """What a cell of torch becomes, which changes in place what `torch.func.vmap` may not."""

    def forward(self, x: Tensor, hx: Any = None) -> Any:
        """Return what the cell of torch returns."""
        n_maps = len(self.weight_hh) // self.hidden_size
        mode = {3: "GRU", 4: "LSTM"}.get(n_maps) or f"RNN_{self.nonlinearity}".upper()
        if hx is None:
            hx = x.new_zeros(len(x), self.hidden_size)
            hx = (hx, hx) if mode == "LSTM" else hx
        h, c = hx if mode == "LSTM" else (hx, None)
        u = F.linear(x, self.weight_ih, self.bias_ih)
        h, c = _step(mode, u, F.linear(h, self.weight_hh, self.bias_hh), h, c)
        return (h, c) if mode == "LSTM" else h


# What each becomes, which is of its kind still: a module may ask what its layers are.
EQUALS: dict[type, Any] = {
    kind: type(kind.__name__, (Recurrent if issubclass(kind, nn.RNNBase) else Cell, kind), {})
    for kind in (nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell)
}


def _step(mode: str, u: Tensor, v: Tensor, h: Tensor, c: Any) -> tuple[Tensor, Any]:
    """One step: from u_t, v_t (B, r) and the states before it to those after it."""
    if mode == "GRU":
        (r, z), n = torch.sigmoid((u + v)[:, : -h.shape[1]]).chunk(2, 1), u[:, -h.shape[1] :]
        n = torch.tanh(n + r * v[:, -h.shape[1] :])
        return n + z * (h - n), None
    if mode == "LSTM":
        i, f, g, o = (u + v).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    return (torch.tanh if mode == "RNN_TANH" else torch.relu)(u + v), None


def _forward(
    u: Tensor, U: Tensor, d: Tensor | None, h: Tensor, c: Any, mode: str
) -> tuple[list[Tensor], list[Tensor], list[Any]]:
    """Return states and cells from the first on, and what back-propagation needs of each step."""
    H, states, cells, kept = h.shape[1], [h], [c], []
    for u_t in u.unbind(1):
        g = h @ U.T if d is None else torch.addmm(d, h, U.T)
        if mode == "GRU":
            rz = torch.sigmoid(u_t[:, : 2 * H] + g[:, : 2 * H])
            n = torch.tanh(torch.addcmul(u_t[:, 2 * H :], rz[:, :H], g[:, 2 * H :]))
            h = torch.lerp(n, h, rz[:, H:])
            kept.append(torch.cat([rz, n, g[:, 2 * H :]], 1))
        elif mode == "LSTM":
            g = g.add_(u_t)
            gates = torch.sigmoid(g)
            gates[:, 2 * H : 3 * H] = torch.tanh(g[:, 2 * H : 3 * H])
            i, f, a, o = gates.chunk(4, 1)
            c = torch.addcmul(f * c, i, a)
            t = torch.tanh(c)
            h = o * t
            kept.append(torch.cat([gates, t], 1))
            cells.append(c)
        else:
            h = _step(mode, u_t, g, h, None)[0]
        states.append(h)
    return states, kept, cells


class _Steps(torch.autograd.Function):
    """All steps, and back-propagation through them: two products and few operations a step."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, v: Tensor, U: Tensor, d: Tensor | None, h: Tensor, c: Any, mode: str
    ) -> tuple[Tensor, Tensor | None]:
        ctx.mode, ctx.U, ctx.dtype = mode, U, u.dtype
        with torch.autocast(u.device.type, enabled=False):  # rounding would add up over time
            c = None if c is None else c.to(U)
            ctx.states, ctx.kept, ctx.cells = _forward(u.to(U), U, d, h.to(U), c, mode)
        return torch.stack(ctx.states[1:], 1), ctx.cells[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dhs: Tensor, dc: Any) -> tuple[Any, ...]:  # type: ignore
        U, H, mode = ctx.U, ctx.states[0].shape[1], ctx.mode
        before, after = torch.stack(ctx.states[:-1]), torch.stack(ctx.states[1:])
        dh = torch.zeros_like(before[0])
        dvs = before.new_empty(*before.shape[:2], len(U))
        if mode == "GRU":
            r, z, n, v_n = torch.stack(ctx.kept).chunk(4, 2)
            a = (1 - z) * (1 - n * n)  # ∂h'/∂ (u_n + r v_n)
            slopes = torch.stack([a * v_n * r * (1 - r), (before - n) * z * (1 - z), a * r], 2)
            totals = []
            for t in reversed(range(len(before))):
                dh = dh + dhs[:, t]
                totals.append(dh)
                dv = torch.mul(dh[:, None], slopes[t], out=dvs[t].view(-1, 3, H)).flatten(1)
                dh = torch.addmm(dh * z[t], dv, U)
            du = torch.cat([dvs[..., : 2 * H], torch.stack(totals[::-1]) * a], 2)
        elif mode == "LSTM":
            i, f, g, o, tanh = torch.stack(ctx.kept).chunk(5, 2)
            cells = torch.stack(ctx.cells[:-1])
            of_c = torch.stack([g * i * (1 - i), cells * f * (1 - f), i * (1 - g * g)], 2)
            of_o, into_c = tanh * o * (1 - o), o * (1 - tanh * tanh)
            for t in reversed(range(len(before))):
                dh = dh + dhs[:, t]
                dc = torch.addcmul(dc, dh, into_c[t])
                torch.mul(dc[:, None], of_c[t], out=dvs[t, :, : 3 * H].view(-1, 3, H))
                torch.mul(dh, of_o[t], out=dvs[t, :, 3 * H :])
                dh, dc = dvs[t] @ U, dc * f[t]
            du = dvs
        else:
            slopes = 1 - after * after if mode == "RNN_TANH" else (after > 0).to(after)
            for t in reversed(range(len(before))):
                dh = torch.mul(dh + dhs[:, t], slopes[t], out=dvs[t]) @ U
            du = dvs
        du, dv = (of.transpose(0, 1).to(ctx.dtype) for of in (du, dvs))
        return du, dv, None, None, dh, dc if mode == "LSTM" else None, None
