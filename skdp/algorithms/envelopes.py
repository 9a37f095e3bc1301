"""Sheared discrete Gaussians that lie above a log-concave posterior everywhere in the ball.

Let F = 2^−m Û without roundings, ν ≥ 0, F_ν(θ) = F(θ) + (ν/2)‖θ‖² and a any point, v = θ − a. In
the ball F ≥ F_ν − (ν/2)D², which pulls proposals into a ball that the posterior presses against.
With H = ∇²F_ν(a) and r = √(vᵀHv), each record's logits move by at most r‖x_i‖ in the norm of H⁻¹,
so that its loss bends by at least A_i(r) between a and θ (`LogConcave.least_curvature`), and

    F_ν(θ) ≥ F_ν(a) + ⟨∇F_ν(a), v⟩ + ½ vᵀM(r)v,     M(r) = (λ + ν)I + ρ Σ_i A_i(r) ⊗ x_i x_iᵀ.

M(r) falls as r grows, and one M for the whole ball may be far from H. Then ℤᵖ is cut into shells
r_{j−1} < r ≤ r_j, each with a proposal of its own. In shell j vᵀM_jv ≥ s², where
s² = r²_{j−1} λ_min(H⁻¹M_j), so that for any c ≤ 1

    ½ vᵀM_jv ≥ ½ vᵀ(cM_j)v + ½(1 − c)s²,

and the mass of the Gaussian on the right, ∝ c^(−p/2) exp(−½(1 − c)s²) det M_j^(−½), is least for
c = p/s²: it lies where the shell begins, and its mass falls as that of a tail. A shell j is chosen
with a probability in proportion to its proposal's mass, a point is drawn from it, thrown away if it
is not of that shell or not in the ball, and else accepted with probability exp(−x),

    x = 2^−m (Û(g) − Û(g_a)) − Q_j(v) − β_j ≥ 0,

so that the mass of a point of shell j is in proportion to exp(−Q_j − β_j − x) = exp(−2^−m Û): of
an envelope nothing but x ≥ 0 *at every point* matters. v is counted from the lattice's point next
to a, where Û is taken too. β_j takes off the bound above: the slope that is left at a, over the
shell; the rise of F_ν from a to that point, and their distance d; roundings of Û; and those of
coordinates. For any α > 0 ‖v + d‖² ≥ ‖v‖²/(1 + α) − ‖d‖²/α in any norm, and with z_i = r_i + e_i,
|e_i| ≤ ½, z_i² ≤ (1 + α) r_i² + (1 + 1/α)/4, both ways.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property

import numpy as np
from scipy.optimize import minimize, root_scalar

from skdp.algorithms.lattice_posterior import LatticePotential
from skdp.engine.coins import Choice, Integers
from skdp.engine.lattice_gaussian import (
    BITS,
    ShearedGaussian,
    block_widths,
    gaussian_integers,
    relative_eigenvalues,
)

# Ends of shells over √p, by the logarithm of the trials that one shell for all would take.
_RADII = (
    (1.0, ()),
    (4.0, (1.15, 1.5, 2.2, 5.0)),
    (math.inf, (1.05, 1.15, 1.25, 1.35, 1.5, 1.7, 2.0, 2.5, 4.0, 8.0, 16.0)),
)
_PULLS, _NEAR = 8, 0.05  # rounds of looking for ν, and how near is near enough
_SAFE = 1e-6  # covers the doubles in which bounds are found
_SLOPES = 2.0**-40  # relative error of a sum of gradients, at most


@dataclass(frozen=True)
class Shell:
    """A proposal: the law of v, 2⁵⁰ β, and the largest energy that belongs to the shell.

    Energies are those under the first shape.
    """

    law: ShearedGaussian
    offset: int
    end: float

    @property
    def weight(self) -> Decimal:
        """Mass of exp(−Q − β), up to a constant that all shells share."""
        with localcontext(prec=60):
            root = math.prod(self.law.precisions.tolist())
            return (Decimal(-self.offset) / 2**BITS).exp() / Decimal(root).sqrt()


class Envelope:
    """Proposals in shells, from the inner to the outer, around the lattice's point next to a."""

    def __init__(self, potential: LatticePotential) -> None:
        self._potential, lattice = potential, potential.lattice
        self._alpha = 2.0 ** -(lattice.grid_bits + 1)
        self._largest = 2 * math.isqrt(lattice.square) + 2
        self._anchor, self._pull = _minimum(potential)
        self.center = _inside(self._anchor, lattice.square)
        self._logits = potential.logits(self._anchor)
        ridge = (lattice.width / lattice.posterior.prior_scale) ** 2 + self._pull
        self._ridge = ridge * np.eye(len(self.center))
        at_anchor = potential.curvature(self._logits, np.zeros(len(potential.rows)))
        self.shape = ShearedGaussian.within(at_anchor + self._ridge, self._largest)
        self.shells = self._shells()
        self._choice = Choice.of([shell.weight for shell in self.shells])
        self._precisions = np.array([shell.law.precisions for shell in self.shells])
        self._widths = block_widths(self._precisions).reshape(self._precisions.shape)
        self._ends = np.array([shell.end for shell in self.shells])
        self._at_center = int(potential.energies(self.center[None])[0])

    def _shells(self) -> list[Shell]:
        potential, form, α = self._potential, self.shape.form, self._alpha
        p, d = len(form), self.center - self._anchor
        moves, apart = potential.moves(np.linalg.inv(form)), math.sqrt(d @ form @ d)
        reach = math.sqrt(potential.lattice.square) + float(np.linalg.norm(self._anchor))
        farthest = reach * math.sqrt(float(np.linalg.eigvalsh(form)[-1]))
        everywhere = potential.curvature(self._logits, farthest * moves) + self._ridge
        lost = 0.5 * (np.linalg.slogdet(form)[1] - np.linalg.slogdet(everywhere)[1])
        radii = next(radii for most, radii in _RADII if lost <= most)
        ends = [0.5 * p * f**2 for f in radii if math.sqrt(p) * f < farthest] + [math.inf]
        rounded = (1 + 1 / α) / 4 * self.shape.trace
        shells, begin = [], 0.0
        for end in ends:
            r = min(farthest, math.sqrt(2 * ((1 + α) * end + rounded)) + apart) * (1 + _SAFE)
            least = math.sqrt(2 * max(begin - rounded, 0.0) / (1 + α)) * (1 - _SAFE) - apart
            shells.append(self._shell(end, r, max(least, 0.0), r * moves))
            begin = end
        return shells

    def _shell(self, end: float, r: float, least: float, moves: np.ndarray) -> Shell:
        """Shell of points that are from ``least`` to r away from a."""
        form, α, d = self.shape.form, self._alpha, self.center - self._anchor
        bend = self._potential.curvature(self._logits, moves) + self._ridge
        s2 = least**2 * max(float(relative_eigenvalues(bend, form)[0]), 0.0)
        c = len(d) / s2 if s2 > len(d) else 1.0
        law = ShearedGaussian.within(c / (1 + α) ** 2 * bend, self._largest)
        β = 0.5 * (1 - c) * s2 * (1 - _SAFE) - 0.5 * c * (d @ bend @ d) / α
        β -= (1 + 1 / α) / 4 * law.trace + self._slope * r + self._slack
        return Shell(law, math.floor(math.ldexp(β, BITS)), end)

    @cached_property
    def _slope(self) -> float:
        """‖∇F_ν(a)‖ in the norm of H⁻¹."""
        slope = self._potential.smooth(self._anchor)[1] + self._ridge @ self._anchor
        return math.sqrt(slope @ np.linalg.solve(self.shape.form, slope))

    @cached_property
    def _slack(self) -> float:
        """What pulling in, the rise to the center, roundings and doubles take off the bound."""
        potential, lattice = self._potential, self._potential.lattice

        def value(g: np.ndarray) -> float:
            return potential.smooth(g)[0] + 0.5 * float(g @ self._ridge @ g)

        slopes = lattice.power * len(potential.rows) * potential.likelihood.residual_bound
        return (
            self._pull / 2 * (lattice.square + 1 - int(self.center @ self.center))
            + max(value(self.center.astype(np.float64)) - value(self._anchor), 0.0)
            + 2 * potential.rounding
            + _SLOPES * slopes * potential.reach
            + _SAFE
        )

    def propose(self, size: int, random: Integers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Try to draw points of the ball that are of their shells; most trials may miss.

        Returns points (m, p), their coordinates under the law of the shell, and its number.
        """
        shells = self._choice.draw(size, random)
        z = gaussian_integers(self._precisions[shells], self._widths[shells], random)
        v, here = np.empty_like(z), np.empty(size, dtype=bool)
        for j in np.unique(shells):
            at = shells == j
            v[at], here[at] = self.shells[j].law.points(z[at])
        g, square = self.center + v, self._potential.lattice.square
        here &= (np.abs(g) <= math.isqrt(square)).all(axis=1)
        g[~here] = 0  # whose square could leave 64 bits
        here &= np.einsum("ij,ij->i", g, g) <= square
        here[here] = self.shell_of(v[here]) == shells[here]
        # In the order of the trials: the first that is accepted would else be of an inner shell.
        return g[here], z[here], shells[here]

    def shell_of(self, v: np.ndarray) -> np.ndarray:
        """Number of the shell of each v within the ball, (m,): a function of v to the last bit."""
        z = self.shape.coordinates(v).astype(np.float64)
        energy = np.zeros(len(v))
        for column, J in zip(z.T, self.shape.precisions.tolist(), strict=True):
            energy += math.ldexp(J, -BITS) * (column * column)
        return np.searchsorted(self._ends, energy)

    def exponents(self, g: np.ndarray, z: np.ndarray, shells: np.ndarray) -> list[int]:
        """2⁵⁰ x of points g with their coordinates and shells, (m,)."""
        shift = BITS - self._potential.lattice.bits
        found = []
        energies = (self._potential.energies(g) - self._at_center).tolist()
        for energy, at, j in zip(energies, z, shells.tolist(), strict=True):
            shell = self.shells[j]
            x = (energy << shift) - int(shell.law.energy(at[None])[0]) - shell.offset
            if x < 0:  # never: the bound holds, and to cut here would be another law
                raise RuntimeError("A posterior is above its envelope: please report it.")
            found.append(x)
        return found


def _inside(minimum: np.ndarray, square: int) -> np.ndarray:
    """Point of the ball and of the lattice at or near a point."""
    near = np.rint(minimum).astype(np.int64)
    if int(near @ near) > square:
        shrunk = minimum * min(1.0, math.sqrt(square) / float(np.linalg.norm(minimum)))
        near = np.trunc(shrunk * (1 - _SAFE)).astype(np.int64)
    return near


def _minimum(potential: LatticePotential) -> tuple[np.ndarray, float]:
    """Minimum of F_ν in units of h, and ν h² for which the ball holds most of such a Gaussian.

    That is, ‖a‖² and the trace of the covariance add up to (D/h)² or less. Any ν is right; this one
    is looked for by the slope at the wall, and from inside by a quadratic model of F around the
    last minimum, in which the next one has the coordinates (η_i + ν) a_i/(η_i + ν') along the axes
    of the Hessian, of eigenvalues η_i. Whatever the search ends with, λ + ν ≥ 1/D², so that no
    proposal is wider than the ball along an axis, and than the integers of a lattice hold.
    """
    lattice = potential.lattice
    square, p = float(lattice.square), lattice.posterior.n_parameters
    ridge = (lattice.width / lattice.posterior.prior_scale) ** 2
    least = max(1.0 / square - ridge, 0.0)
    pull, found, still = least, np.zeros(p), np.zeros(len(potential.rows))
    for _ in range(_PULLS):
        found = _least(potential, ridge + pull, found)
        outside = float(found @ found) / square
        if outside > 1.0:  # as much as holds it at the wall
            wall = found / math.sqrt(outside)
            slope = potential.smooth(wall)[1] + (ridge + pull) * wall
            pull += max(-float(slope @ wall), 0.0) / square + p / square
            continue
        hessian = potential.curvature(potential.logits(found), still)
        values, axes = np.linalg.eigh(hessian + ridge * np.eye(p))
        values = np.maximum(values, ridge)
        squares = ((values + pull) * (axes.T @ found)) ** 2

        def excess(ν: float, values: np.ndarray = values, squares: np.ndarray = squares) -> float:
            return float(np.sum(squares / (values + ν) ** 2 + 1 / (values + ν))) / square - 1.0

        if excess(pull) <= 0.0 if pull == least else abs(excess(pull)) < _NEAR:
            break
        if excess(least) <= 0.0:
            pull = least
            continue
        most = (p + math.hypot(p, 2 * math.sqrt(square * float(squares.sum())))) / square
        solved = root_scalar(excess, bracket=(least, most), xtol=1e-6 * most, rtol=_NEAR)
        pull = float(solved.root)
    else:
        found = _least(potential, ridge + pull, found)
    return found, pull


def _least(potential: LatticePotential, ridge: float, start: np.ndarray) -> np.ndarray:
    scale = 2.0**potential.lattice.grid_bits  # steps of the order of 1

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        g = scale * x
        value, gradient = potential.smooth(g)
        return value + ridge / 2 * float(g @ g), scale * (gradient + ridge * g)

    options = {"gtol": 1e-6, "ftol": 0.0, "maxiter": 300}
    solved = minimize(objective, start / scale, jac=True, method="L-BFGS-B", options=options)
    return scale * solved.x
