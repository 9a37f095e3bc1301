"""Bounds of the columns of a linear model, and columns that are standardised inside its fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from skdp.algorithms.noise_aware import columns, glm
from skdp.algorithms.noise_aware.counts import Counts
from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.families import Logit, Softmax
from skdp.algorithms.noise_aware.numbers import Line
from skdp.algorithms.noise_aware.standardised import InUnits, StandardisedConfig
from skdp.base import FitPlan, PublicFacts
from skdp.fitting.declared import unit_of_targets
from skdp.fitting.validate import expected, flag, integer_or_auto, near_auto, number_or_auto, one_of

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

PRIVATE = "private"
NOISE_AWARE, DPVI = "noise_aware", "dpvi"
MOST_PARAMETERS = 3000  # beyond which a fit with a full covariance takes minutes
MANY_ROWS, LOUD = 0.05, 4.0  # share of rows, and deviations of noise, from which a fit says so

_PAIR = "a lower and a larger upper bound, finite: a pair for all columns, one for each, or a dict"


def declared_bounds(estimator: Any, n_features: int) -> np.ndarray:
    """Bounds (n_features, 2) as they were declared, in the order of the columns."""
    given = estimator.bounds
    if hasattr(given, "items"):
        given = _by_name(given, estimator, n_features)
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise expected(_PAIR, "e.g. bounds={'age': (0, 120)}", bounds=estimator.bounds) from None
    if found.shape == (2,):
        found = np.tile(found, (n_features, 1))
    if found.shape != (n_features, 2):
        remedy = f"X has {n_features} columns"
        raise expected(_PAIR, remedy, bounds=estimator.bounds)
    wide = found[:, 1] / 2 - found[:, 0] / 2
    if not (np.isfinite(found).all() and (wide > 1e-150).all() and (wide < 1e150).all()):
        raise expected(_PAIR, "neither the same nor beyond 1e150", bounds=estimator.bounds)
    return found


def _by_name(given: Any, estimator: Any, n_features: int) -> list[Any]:
    of_columns, names = dict(given.items()), getattr(estimator, "feature_names_in_", None)
    if (
        names is None
        and len(of_columns) == n_features
        and set(of_columns) == set(range(n_features))
    ):
        return [of_columns[i] for i in range(n_features)]
    if names is None and not hasattr(estimator, "n_features_in_"):
        return list(of_columns.values())  # a plan before there is a frame
    if names is None:  # in the order of the dict they would be those of other columns
        remedy = "X has no names: set_output(transform='pandas') in the step before keeps them"
        raise expected("bounds of each column of X by its name", remedy, bounds=given)
    missing = [str(name) for name in names if name not in of_columns]
    unknown = [str(name) for name in of_columns if name not in set(names)]
    if missing or unknown:
        said = [f"missing: {', '.join(missing)}"] * bool(missing)
        said += [f"not in X: {', '.join(unknown)}"] * bool(unknown)
        raise expected("bounds of each column of X by its name", "; ".join(said), bounds=given)
    return [of_columns[name] for name in names]


def in_bounds(
    estimator: Any,
    facts: PublicFacts,
    budget: Budget,
    configure: Callable[[PublicFacts, Budget], Any],
) -> StandardisedConfig:
    """Plan a fit on columns that are standardised inside; ``configure`` plans one without."""
    found = declared_bounds(estimator, facts.features)
    if facts.sparse:
        raise expected(
            "None for sparse rows", "centring fills them: use X.toarray()", bounds="given"
        )
    private = estimator.standardize
    if private is not False:
        one_of((PRIVATE,), "or False, where columns have been standardised", standardize=private)
    if private and estimator.inference == DPVI:
        remedy = "its steps take columns as their bounds scale them"
        raise expected("False with inference='dpvi'", remedy, standardize=private)
    private = private and budget.private  # without, nothing is gained by it
    norm = None
    if not isinstance(estimator.data_norm, str) or facts.declared_norm is not None:
        norm = number_or_auto(facts.auto_norm, data_norm=estimator.data_norm)
    of_columns = columns.ColumnsConfig(
        n_rows=facts.rows,
        lower=tuple(found[:, 0].tolist()),
        upper=tuple(found[:, 1].tolist()),
        data_norm=norm,
        centred=bool(estimator.fit_intercept),
        neighboring_relation=estimator._relation,
        secure=bool(estimator.secure),
        persons=facts.persons,
        weight_bound=estimator._weight_bound(facts),
    )
    if private:
        of_columns = of_columns.shared(_mu(estimator, facts, budget))
        fit: Any = glm_of(estimator, facts, budget, share=of_columns.share)
    else:
        norm = of_columns.norm
        of_fit = replace(facts, declared_norm=norm, norm_lost=False, standardised=True)
        fit = configure(of_fit, budget)
    config = StandardisedConfig(columns=of_columns, fit=fit, released=bool(private))
    return config.calibrated(budget)


def _mu(estimator: Any, facts: PublicFacts, budget: Budget) -> float:
    """Of the budget, for a row of weight 1."""
    n_steps = integer_or_auto(estimator._STEPS, max_iter=estimator.max_iter)
    mu = budget.mu if budget.given is None else n_steps**0.5 / budget.given
    return mu / estimator._weight_bound(facts)


def _family(estimator: Any, facts: PublicFacts) -> Logit | Softmax | Counts | Line:
    """What scores are of."""
    if not hasattr(estimator, "_likelihood_of"):
        return Line(estimator.target_bounds is not None)
    likelihood = estimator._likelihood_of(facts)
    if likelihood.n_outputs > 1:
        return Softmax(likelihood)
    return Logit(likelihood) if likelihood.largest_target == math.inf else Counts(likelihood)


def glm_of(
    estimator: Any,
    facts: PublicFacts,
    budget: Budget,
    *,
    share: float = 0.0,
    design: Design | None = None,
) -> glm.GLMConfig:
    """Plan a run on the rows of a design; None plans one on standardised columns.

    Standardising the columns has taken a ``share`` of the squared GDP budget.
    """
    family, intercept = _family(estimator, facts), bool(estimator.fit_intercept)
    design = design or Design.of_standardised(facts.features, intercept)
    mu = _mu(estimator, facts, budget) * math.sqrt(1.0 - share)
    outputs = 1 if isinstance(family, Line) else family.likelihood.n_outputs
    n_parameters = outputs * (facts.features + intercept)
    if n_parameters > MOST_PARAMETERS:
        raise ValueError(
            f"Expected at most {MOST_PARAMETERS} parameters, got {n_parameters}: the full "
            "covariance of a noise-aware posterior would take minutes and more. Use "
            "fewer features, or for classes and counts inference='dpvi'."
        )
    config = glm.GLMConfig(
        **estimator._public(facts),
        family=family,
        clip_norm=1.0,
        design=design,
        n_steps=integer_or_auto(estimator._STEPS, max_iter=estimator.max_iter),
        prior_scale=near_auto(0.0, 1.0, prior_scale=estimator.prior_scale) or None,
        prior_blocks=blocks_of_labels(estimator, facts, outputs),
        exposed=facts.exposed,
        robust=is_robust(estimator, outputs, by_default=isinstance(family, Counts)),
        covariance="diag" if getattr(estimator, "covariance", "") == "diag" else "full",
        secure=bool(estimator.secure),
    )
    if isinstance(family, Line):
        unit = unit_of_targets(estimator.target_bounds)[1]
        around = unit if family.bounded else None
        clip = near_auto(0.0, around, clip_norm=estimator.clip_norm) / unit
        config = replace(config, residual_clip=clip or None)
    auto = config.default_clip(mu / config.of_person)
    given = "auto" if isinstance(family, Line) else estimator.clip_norm
    unit = design.unit
    clip_norm = near_auto(auto * unit, clip_norm=given) / unit
    scale = config.prior_scale and config.prior_scale * unit
    return replace(config, clip_norm=clip_norm, prior_scale=scale).calibrated(budget)


def is_robust(estimator: Any, n_outputs: int, *, by_default: bool = False) -> bool:
    """Whether scores tell how much they scatter, whatever the model says."""
    given = estimator.robust
    if isinstance(given, str) and given == "auto":
        return by_default and n_outputs == 1
    if flag("or 'auto'", robust=given) and n_outputs > 1:
        raise expected(
            "False for more than two classes",
            "robust widths are of one logit. Only binary classification is supported by them: "
            "use OneVsRestClassifier",
            robust=True,
        )
    return bool(given)


def blocks_of_labels(
    estimator: Any, facts: PublicFacts, n_outputs: int = 1
) -> tuple[int, ...] | None:
    """Number of the block of each feature, in the order in which ``prior_blocks`` names them."""
    given = estimator.prior_blocks
    if given is None:
        return None
    labels = np.asarray(given)
    if labels.shape != (facts.features,):
        raise expected(
            f"one label for each of the {facts.features} features",
            "give features that share a prior scale the same label",
            prior_blocks=given,
        )
    if n_outputs > 1 or estimator.prior_scale != "auto":
        raise expected(
            "None for more than two classes or with a given prior_scale",
            "blocks are for scales that are inferred: use prior_scale='auto'",
            prior_blocks=given,
        )
    order = dict.fromkeys(labels.tolist())
    return tuple(list(order).index(label) for label in labels.tolist())


def check_sparse(facts: PublicFacts, secure: bool) -> None:
    """Refuse what sparse rows are not taken with."""
    if facts.sparse and (facts.persons is not None or secure):
        raise ValueError(
            "Expected dense rows with persons or secure=True, got a sparse X: use X.toarray()."
        )


def norm_of(estimator: Any, facts: PublicFacts) -> float:
    """Norm to which the rows that the fit sees are clipped."""
    if facts.standardised:
        return facts.auto_norm
    return number_or_auto(facts.auto_norm, data_norm=estimator.data_norm)


def unwrapped(estimator: Any, plan: FitPlan, released: Any) -> tuple[FitPlan, Any]:
    """Plan and posterior in the units of the columns as given; keep what was released of these."""
    for name in ("bounds_", "column_scale_"):
        vars(estimator).pop(name, None)
    if not isinstance(released, InUnits):
        estimator.data_norm_ = plan.config.data_norm
        return plan, released
    config: StandardisedConfig = plan.config
    of_columns = config.columns
    estimator.data_norm_ = math.inf if of_columns.data_norm is None else of_columns.data_norm
    estimator.bounds_ = np.array([of_columns.lower, of_columns.upper]).T
    _, half = of_columns.middle_and_half
    scale = half if released.columns is None else half * released.columns.scale
    estimator.column_scale_ = scale
    return replace(plan, config=config.fit), released.posterior


def beyond_bounds(plan: FitPlan, released: InUnits) -> tuple[str, ...]:
    """Say which share of the rows held values beyond their bounds, by a noisy count."""
    found = released.columns
    if found is None:
        return ()
    n = found.n_found[0] if found.counted else plan.config.n_rows
    share = min(found.outside / max(n, 1.0), 1.0)
    if found.outside < LOUD * found.outside_noise or share < MANY_ROWS:
        return ()
    return (
        f"About {share:.0%} of the rows hold values beyond bounds, or are longer than data_norm, "
        "and were cut: what they would say of the coefficients is lost. Declare wider bounds.",
    )
