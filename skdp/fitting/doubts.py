"""What tells against a fit before it runs: public facts, and they alone."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from skdp.fitting.charge import SAID
from skdp.fitting.plan import Config, PublicFacts
from skdp.fitting.validate import expected
from skdp.fitting.warnings import FitWarning
from skdp.rows.bounds import row_norm

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

_MOST_NOISE = 1e3  # noise multiplier over the number of rows
_FEW_COLUMNS = 50  # of which a sparse row may well fill most


def warn_if_undeclared(estimator: Any, X: Any, facts: PublicFacts) -> None:
    """Say once in a process if nothing tells where the numbers of a frame lie.

    Arrays have been prepared by whoever made them; a frame is often a table as it was found.
    """
    own = [getattr(estimator, name, None) for name in ("bounds", "edges", "categories")]
    told = not all(given is None or isinstance(given, str) for given in own)
    told |= not isinstance(getattr(estimator, "data_norm", "auto"), str)
    if told or not estimator._declared_by or facts.norm_lost or row_norm(X) is not None:
        return
    dtypes = [str(dtype).lower() for dtype in getattr(X, "dtypes", ())] * hasattr(X, "columns")
    where = (facts.label, "columns")
    if where in SAID or not any(t.startswith(("int", "uint", "float")) for t in dtypes):
        return
    SAID.add(where)
    warnings.warn(
        f"{facts.label} takes the numbers in X as they are, for values in [-1, 1] or so: "
        "nothing says where those of this table lie, and of columns in other units little is "
        f"learned. {estimator._declared_by} This warning comes once.",
        FitWarning,
        stacklevel=5,
    )


def norm_cautions(estimator: Any, facts: PublicFacts) -> tuple[str, ...]:
    """Say if ``data_norm="auto"`` is far above what sparse rows can be expected to have."""
    told = facts.declared_norm is not None or not isinstance(
        getattr(estimator, "data_norm", 0), str
    )
    if told or not facts.sparse or facts.features <= _FEW_COLUMNS:
        return ()
    return (
        f"{facts.label} clips the rows of a sparse X to data_norm='auto', which is "
        f"√{facts.n_features}: noise is in proportion to it, and sparse rows are far shorter. "
        "Give data_norm=, or put a NormClipper(norm=...) right before.",
    )


def norm_diagnosed(estimator: Any, facts: PublicFacts) -> tuple[str, ...]:
    """Say if ``data_norm="auto"`` stands in for a norm that was declared and lost."""
    if not facts.norm_lost or not isinstance(getattr(estimator, "data_norm", None), str):
        return ()
    return (
        f"{facts.label} clips rows to data_norm='auto', which is √{facts.n_features}: a step "
        "before declared a norm, which was lost where its columns were joined with columns "
        "that have none, as in a ColumnTransformer. Give data_norm=, or put a "
        "NormClipper(norm=...) right before.",
    )


def check_noise(estimator: Any, config: Config, budget: Budget) -> None:
    """Refuse noise that dominates any sum over the rows: the budget would buy nothing."""
    sigma, n = getattr(config, "noise_multiplier", 0.0), getattr(config, "n_rows", None)
    if n is None or not isinstance(sigma, float) or sigma <= _MOST_NOISE * n:
        return
    remedy = f"noise would be over {_MOST_NOISE:.0e} times what {n} rows can come to"
    if budget.given is None:
        raise expected("larger", remedy, epsilon=budget.epsilon)
    raise expected("smaller", remedy, noise_multiplier=budget.given)
