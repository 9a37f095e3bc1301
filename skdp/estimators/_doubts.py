"""What released values and public facts tell against a fit; every function here is of these alone.

Thresholds are wide: benchmarks/wrong_facts.py shows what they find, and that they leave fits alone
whose public facts are right.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.user_model.defaults import TAIL_RATE
from skdp.algorithms.user_model.lengths import CHECK_EDGES
from skdp.fitting.plan import FitPlan
from skdp.relations import check_relation

if TYPE_CHECKING:
    from skdp.algorithms import langevin, ops
    from skdp.algorithms.dp_vi_model import Clipping, ModelConfig, ModelPosterior

CHANCE = 0.01  # that coefficients which are 0 look as if they were not
CHANCE_OF_SAMPLES = 0.02  # the same of samples, which are that much noisier than a posterior
TOLD = 2.5  # end over end of the interval of a prior's scale; above 3.3 where coefficients are 0
LOUD = 4.0  # standard deviations of noise beyond which a number of rows is another, or more than 0
MANY_ROWS, MANY_TARGETS = 0.2, 0.01  # shares that were cut, from which on a fit says so
TOO_FEW, TOO_MANY = 1.5, 3.0  # times the declared number of rows, and of them that there are
NOISE_OF_LINES = 0.5  # the same of linear models; at .3 most are right, at 1 as many as by chance
MOSTLY_NOISE = 5.0  # noise over sums; at 4 digits are a quarter right, at 8 as many as by chance
PUSH = 0.5  # of what all gradients together could come to, from which on a run has not arrived
AT_BOUNDS = 0.95  # root mean square of outputs that the bounds hold to [-1, 1]
DROWNED = 0.35  # deviation of outputs between rows over that between draws
EVEN_ODDS = 0.5  # deviation of log-odds between rows: above .7 of right labels, by 1 or more
N_BLOCKS, WANDERED = 5, 8.0  # of a chain; R² is below .2 up to that ratio, and above .7 at 12
EVEN = 3.0  # mean square of a feature at its bound over that of one spread evenly
PULLED = 0.5  # share of the largest pull of all records
N_ROWS, N_DRAWS = 256, 30  # public rows, and draws of the parameters, for which outputs are seen

_MANY_CLIPPED = 0.03  # of the records; a posterior without them is off by about its deviation
_CLEARLY = 3.5  # standard deviations of the noise
# Of what steps of one sign come to in the later half of a run, and deviations of the posterior that
# its mean is off the run's: .04 and 1 by default, .5 and more or 8 with a fifth of steps or rate.
_ONE_WAY, _FAR_OFF = 0.5, 5.0
_MUCH_WIDER = 1.2  # posterior deviation over that of the prior, from which on a fit says so
_AS_WIDE = 0.65  # the same of all parameters, where their mean is not off that of the prior either
_MANY_HIDDEN = 0.25  # of the directions of theta

# What a fit asks for, to a table whose numbers may lie anywhere.
BOUNDS_GIVEN = "Give bounds=, a pair for all columns or by column name."
SCALED_BEFORE = "Put BoundedScaler(lower, upper) before, by column name."

_LOST = (
    "At this budget no coefficient is distinguishable from 0: predictions may be hardly better "
    "than a constant, which a private report tells, or worse where its level is uncertain too. "
    "More rows, a larger epsilon, or tighter bounds may show more."
)

_BEYOND = (
    "Predictions lie at the bounds of the targets or beyond: most targets are outside "
    "target_bounds, or the bounds are far too wide, or noise dominates. Declare bounds that hold "
    "nearly all targets, and no more."
)


def of_posterior(plan: FitPlan, q: GaussianPosterior, prior_scale: float) -> tuple[str, ...]:
    """Say if a noise-aware posterior found nothing, or another number of rows.

    The standard deviation of the prior of each coefficient is in the unit of the posterior.
    """
    n, relation = plan.config.n_rows, check_relation(plan.config.neighboring_relation)
    if q.n_found is not None and not relation.n_is_public:
        found, noise = q.n_found
        if found - LOUD * noise > TOO_FEW * n or found + LOUD * noise < n / TOO_MANY:
            declared, remedy = f"n_samples={n} is", "a number nearby"
            if plan.facts.persons is not None:
                declared = f"n_groups times rows_per_group, {n}, is"
                remedy = "numbers whose product is nearby"
            return (
                f"About {_rounded(found)} rows took part, by a noisy count, and {declared} "
                f"declared: steps, noise and posterior are planned for it. Declare {remedy}.",
            )
    return () if found_any(q, plan.config.n_features, prior_scale) else (_LOST,)


def cut_records(
    plan: FitPlan, released: GaussianPosterior, of_targets: str, *, of_rows: bool = True
) -> tuple[str, ...]:
    """Say which share of features or targets was cut, and if rows are far below a declared norm."""
    outside = released.outside
    if outside is None:
        return ()
    config, declared = plan.config, plan.facts.declared_norm
    n = (released.n_counted or config.n_rows) * config.sampling.rate
    loud, shares = outside >= LOUD * config.count_noise, np.minimum(outside / n, 1.0)
    messages = []
    is_norm = declared and declared <= config.data_norm
    if of_rows and loud[0] and shares[0] >= MANY_ROWS and not is_norm:
        messages.append(
            f"About {shares[0]:.0%} of the rows are longer than data_norm={config.data_norm:.3g} "
            "and were scaled down to it, so that their features no longer mean what they did: "
            "scale them before, e.g. by BoundedScaler with public bounds, or give a larger "
            "data_norm."
        )
    if of_rows and released.short_rows is not None:
        messages.append(
            f"Rows are far shorter than data_norm={config.data_norm:.3g}, of norm "
            f"{released.short_rows:.2g} or so, or fewer took part than n_samples: noise and prior "
            "follow both, so that little may be learned. Scale the features to [-1, 1], or declare "
            "a smaller data_norm or n_samples."
        )
    if len(shares) > 1 and loud[1] and shares[1] >= MANY_TARGETS:
        messages.append(f"About {shares[1]:.0%} of the {of_targets}.")
    return tuple(messages)


def _rounded(number: float) -> int:
    """Two digits of a number of rows."""
    return 0 if number < 1.0 else round(float(f"{number:.1e}"))


def found_any(q: GaussianPosterior, d: int, prior_scale: float) -> bool:
    """Whether the coefficients of features, taken together, are told from 0.

    With S the posterior covariance and τ the prior's deviation, a mean m that noise alone has made
    has E mᵀS⁻¹m = tr(I − S/τ²), the number of parameters that data speak of. Large coefficients
    whose scale is learned vary together with it, and S is wide along m: then its interval tells.
    """
    if q.prior_scales is not None and q.of_logits is None:  # of normal effects
        lowest, _, highest = q.prior_scales
        if np.any((lowest < highest) & (highest < TOLD * lowest)):
            return True
    features = np.arange(q.mean.size).reshape(q.mean.shape)[:, :d].ravel()
    m = q.mean.ravel()[features]
    seen = q.seen  # as predictions have it: intervals are wide where a column's spread is hidden
    if seen.ndim == 1:
        variances = seen[features] ** 2
        statistic, spoken_of = m**2 / variances, 1.0 - variances / prior_scale**2
    else:
        values, vectors = np.linalg.eigh(seen[np.ix_(features, features)])
        values = np.maximum(values, 1e-12 * values.max())
        statistic, spoken_of = (vectors.T @ m) ** 2 / values, 1.0 - values / prior_scale**2
    freedom = max(1.0, float(np.clip(spoken_of, 0.0, 1.0).sum()))
    return bool(statistic.sum() > chi2.isf(CHANCE, freedom))


def of_samples(
    config: langevin.LangevinConfig | ops.ExactConfig, draws: np.ndarray
) -> tuple[str, ...]:
    """Say if the slopes of samples (k, K, D) are no larger than such a posterior is wide."""
    p = config.posterior
    even = p.row_bound**2 / (EVEN * p.shape[1])  # mean square of a feature
    of_rows = config.n_rows * p.likelihood.curvature_bound * even
    width = 1.0 / (config.likelihood_power * of_rows + p.prior_precision)
    slopes = draws.mean(axis=0)[:, : p.n_features]
    # What rows drawn at random move the mode by, and what the samples are off it.
    statistic = float(np.sum(slopes**2)) / (1.0 / of_rows + width / len(draws))
    return () if statistic > chi2.isf(CHANCE_OF_SAMPLES, slopes.size) else (_LOST,)


def of_level(
    config: langevin.LangevinConfig | ops.ExactConfig, intercepts: np.ndarray, *, bounded: bool
) -> tuple[str, ...]:
    """Say if the level of sampled regressions is at the bounds of targets, or held far from it."""
    level = float(np.abs(intercepts).max())
    if bounded:
        return (_BEYOND,) if level > AT_BOUNDS else ()
    most = config.likelihood_power * config.n_rows * config.posterior.likelihood.residual_bound
    if level * config.posterior.prior_precision < PULLED * most:
        return ()
    return (
        "Most targets are beyond the reach of the prior and of residual_bound, so that the samples "
        "are held far from them: declare target_bounds.",
    )


def of_noise(share: float, remedy: str, most: float = MOSTLY_NOISE) -> tuple[str, ...]:
    """Say if noise exceeds all that records could say, by its share of what their sums could be."""
    if share <= most:
        return ()
    return (
        f"The noise is {share:.2g} times as large as the sums of all clipped gradients could be, "
        f"so that the weights are mostly noise. More rows, a larger epsilon, or {remedy} may learn "
        "something.",
    )


def of_training(push: float, remedy: str, noise_share: float) -> tuple[str, ...]:
    """Say if a run is mostly noise, or its released sums still point one way in its later half.

    ``push`` is the norm of the mean of these over what all records together could give it.
    """
    if doubts := of_noise(noise_share, "a smaller network"):
        return doubts
    if push <= PUSH:
        return ()
    return (
        f"In the later half of the run the clipped gradients still point one way ({push:.0%} of "
        f"what they could come to), so that the fit has not converged. {remedy}",
    )


def synthetic_rows(n_features: int) -> np.ndarray:
    """Rows from a fixed stream, evenly over [-1, 1]: public."""
    return np.random.RandomState(0).uniform(-1.0, 1.0, (N_ROWS, n_features))


def of_odds(log_odds: np.ndarray) -> tuple[str, ...]:
    """Say if predicted log-odds (n_samples, n, n_classes) hardly differ between public rows."""
    if float(log_odds.mean(axis=0).std(axis=0).max()) >= EVEN_ODDS:
        return ()
    return (
        "Predicted odds hardly differ between rows in [-1, 1], as of labels that have nothing to "
        "do with their rows, of features that are not of the order of 1, or of far too few or too "
        "small steps.",
    )


def of_outputs(
    draws: np.ndarray, *, bounded: bool, chain: np.ndarray | None = None
) -> tuple[str, ...]:
    """Say if the outputs of a regression lie at their bounds, or are dominated by noise.

    Outputs (n_draws, n, n_targets) for public rows are of draws of the parameters; ``chain`` are
    those of its samples, in their order. Targets that are ``bounded`` lie in [-1, 1].
    """
    mean, spread = draws.mean(axis=0), draws.std(axis=0)
    if bounded and math.sqrt(float(np.mean(mean**2))) > AT_BOUNDS:
        return (_BEYOND,)
    if chain is None or len(chain) < N_BLOCKS:
        if float(mean.std(axis=0).max()) > DROWNED * float(spread.mean()):
            return ()
    elif between_rows(chain) > WANDERED:
        return ()
    return (
        "Predictions vary less between rows in [-1, 1] than the noise of the fit moves each of "
        "them: target_bounds are far too wide, features are not of the order of 1, or the budget "
        "is too small for so many parameters.",
    )


def between_rows(chain: np.ndarray) -> float:
    """Variance between rows of a chain's mean output, over that of this mean by its blocks.

    Samples that follow each other are alike, so that means of blocks tell what their mean is off
    by. It is 1 to 6 or so where outputs say nothing of the targets, as blocks are alike too.
    """
    outputs = chain - chain.mean(axis=1, keepdims=True)
    blocks = np.array([part.mean(axis=0) for part in np.array_split(outputs, N_BLOCKS)])
    off = blocks.var(axis=0, ddof=1).mean(axis=0) / N_BLOCKS
    return float(np.max(outputs.mean(axis=0).var(axis=0) / np.maximum(off, 1e-300)))


def of_model(config: ModelConfig, released: ModelPosterior) -> tuple[str, ...]:
    """Say what the run of a user's model tells against it."""
    found = [_clipped(released.clipping), _hidden(config, released.n_hidden)]
    found += [_widened(config, released), _underway(config, released)]
    return tuple(message for message in found if message)


def _hidden(config: ModelConfig, n_hidden: int) -> str:
    if n_hidden < _MANY_HIDDEN * config.n_parameters:
        return ""
    return (
        f"Noise hides the curvature of the log-likelihood in {n_hidden} of "
        f"{config.n_parameters} directions of theta, while others are well known: some "
        "combinations of parameters are weakly identified, and intervals that depend on them "
        "may be too narrow. Use fewer parameters, more rows or a larger epsilon."
    )


def _widened(config: ModelConfig, released: ModelPosterior) -> str:
    covariance, start = config.prior.covariance, config.prior.start.numpy()
    if covariance is None:
        return ""
    prior = np.sqrt(np.diagonal(covariance.numpy()))
    width = np.sqrt(np.diagonal(released.covariance)) / prior
    moved = replace(released, mean=np.reshape(released.mean - start, (1, -1)))
    if width.min() > _AS_WIDE and not found_any(moved, len(prior), float(prior.max())):
        told = "every parameter is about"
    elif width.max() >= _MUCH_WIDER:
        told = f"a parameter is {width.max():.1f} times"
    else:
        return ""
    return (
        f"The posterior of {told} as wide as its prior: noise hides what the records say, or x, y "
        "and theta are not of the order of 1. Scale them, or use more rows or a larger epsilon."
    )


def _underway(config: ModelConfig, released: ModelPosterior) -> str:
    far, prior = config.learning_rate * config.n_walk, config.prior.covariance
    if prior is not None and far < min(1.0, float(prior.diagonal().max()) ** 0.5):
        return (
            f"The run is too short: all of its steps together move a parameter by {far:.2g} at "
            "most, and the prior lets it be farther away. Use the defaults of max_iter and "
            "learning_rate, or more and longer steps."
        )
    (steps, means, _), half = released.path, len(released.path.steps) // 2
    off = np.abs(released.mean.ravel() - means[half:].mean(axis=0))
    deviations = np.sqrt(np.diagonal(released.covariance))
    reach = TAIL_RATE * config.learning_rate * max(1, steps[-1] - steps[half])
    one_way = float(np.abs(means[-1] - means[half]).max()) / reach
    if one_way < _ONE_WAY and (off < _FAR_OFF * deviations).all():
        return ""
    return (
        "The run has not converged: in its later half the mean of a parameter still moved one "
        "way, or gradients there pointed far from it. Use the defaults of max_iter and "
        "learning_rate, or more and longer steps, or give an initial_mean that is nearer."
    )


def _clipped(clipping: Clipping) -> str:
    if not clipping.share > max(_MANY_CLIPPED, _CLEARLY * clipping.noise):
        return ""
    remedy = f"give clip_norm={clipping.advised:.2g}"
    if clipping.advised == math.inf:
        most = f"some are more than {CHECK_EDGES[-1]:g} times as long"
        remedy = f"{most}: scale x, y and theta so that they are of the order of 1"
    return (
        f"About {100 * clipping.share:.0f} % of the records (± {100 * clipping.noise:.1f} of "
        f"noise) have gradients longer than the clip {clipping.clip_norm:.3g} at the posterior "
        "mean. Clipping so many biases the posterior, and its intervals do not account for "
        f"that; {remedy}."
    )
