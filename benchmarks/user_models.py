"""Whether 90 % intervals of `DPVariationalModel` hold at its defaults, and which fits warn.

    python benchmarks/user_models.py [--models ...] [--repetitions 50] [--clip 0] [--simulate]

Seven models that users write, n = 5000 at (1, 1e-5), new data per fit. For each parameter: the
share of intervals that hold it, over all fits and over those that did not warn, and the mean
posterior deviation. ``--clip`` is in units of √n_parameters; 0 is the default of the class.
"""

import argparse
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch.distributions import NegativeBinomial, Normal, Poisson, StudentT

from skdp import DPVariationalModel, FitWarning, PrivacyWarning

N_GROUPS = 10


class Model(NamedTuple):
    """A model with a law of its true parameters, rows, targets and log-likelihood."""

    names: list[str]
    truth: Callable  # generator -> theta
    rows: Callable  # generator, n -> X
    simulate: Callable
    log_likelihood: Callable
    integers: bool = False


def uniform_rows(rng, n):
    """Three features in [-1, 1]."""
    return rng.uniform(-1, 1, (n, 3))


def fixed(*theta):
    """The same truth for each fit."""
    return lambda rng: np.array(theta)


def linear(theta, x):
    """Slopes and an intercept."""
    return x @ theta[:3] + theta[3]


def t_log_likelihood(theta, x, y):
    """Student's t with 4 degrees of freedom around a line."""
    return StudentT(4.0, linear(theta, x), theta[4].exp()).log_prob(y)


def t_simulate(theta, x, generator):
    """As `t_log_likelihood`: a normal over the root of a mean of four squares."""
    z = torch.randn((len(x), 5), generator=generator, dtype=x.dtype)
    return linear(theta, x) + theta[4].exp() * z[:, 0] / z[:, 1:].square().mean(1).sqrt()


def normal_log_likelihood(theta, x, y):
    """Normal around a line."""
    return Normal(linear(theta, x), theta[4].exp()).log_prob(y)


def normal_simulate(theta, x, generator):
    """As `normal_log_likelihood`."""
    z = torch.randn(len(x), generator=generator, dtype=x.dtype)
    return linear(theta, x) + theta[4].exp() * z


def logistic_log_likelihood(theta, x, y):
    """Bernoulli with a linear logit."""
    z = linear(theta, x)
    return y * z - torch.nn.functional.softplus(z)


def logistic_simulate(theta, x, generator):
    """As `logistic_log_likelihood`."""
    return torch.bernoulli(torch.sigmoid(linear(theta, x)), generator=generator)


def poisson_log_likelihood(theta, x, y):
    """Poisson with a linear log rate."""
    return Poisson(linear(theta, x).exp()).log_prob(y)


def poisson_simulate(theta, x, generator):
    """As `poisson_log_likelihood`."""
    return torch.poisson(linear(theta, x).exp().clamp(max=1e6), generator=generator)


def negative_binomial_log_likelihood(theta, x, y):
    """Mean exp of a line, size exp(theta[4])."""
    logits = linear(theta, x) - theta[4]
    return NegativeBinomial(theta[4].exp(), logits=logits).log_prob(y)


def negative_binomial_simulate(theta, x, generator):
    """As `negative_binomial_log_likelihood`: a Poisson number of a gamma rate."""
    size = theta[4].exp().clamp(1e-3, 1e3).expand(len(x)).contiguous()
    gamma = torch._standard_gamma(size, generator=generator) / size
    return torch.poisson((gamma * linear(theta, x).exp()).clamp(max=1e6), generator=generator)


def zip_log_likelihood(theta, x, y):
    """Zero with probability sigmoid(theta[4]), else Poisson with a linear log rate."""
    counts = Poisson(linear(theta, x).exp()).log_prob(y)
    some = counts + torch.nn.functional.logsigmoid(-theta[4])
    none = torch.where(y == 0, torch.nn.functional.logsigmoid(theta[4]), -torch.inf)
    return torch.where(y == 0, torch.logaddexp(some, none), some)


def zip_simulate(theta, x, generator):
    """As `zip_log_likelihood`."""
    counts = poisson_simulate(theta, x, generator)
    return torch.where(torch.rand(len(x), generator=generator) < torch.sigmoid(theta[4]), 0, counts)


def group_mean(theta, x):
    """Return mu + tau z_g + slope x; theta is (mu, log tau, slope, log sigma, z_1, ..., z_G)."""
    z = theta[4:][x[:, 0].to(torch.int64)]
    return theta[0] + theta[1].exp() * z + theta[2] * x[:, 1]


def hierarchical_log_likelihood(theta, x, y):
    """Normal around the mean of a row's group."""
    return Normal(group_mean(theta, x), theta[3].exp()).log_prob(y)


def hierarchical_simulate(theta, x, generator):
    """As `hierarchical_log_likelihood`."""
    z = torch.randn(len(x), generator=generator, dtype=x.dtype)
    return group_mean(theta, x) + theta[3].exp() * z


def hierarchical_truth(rng):
    """Effects are drawn: intervals of a hierarchy hold on average over them."""
    return np.r_[0.3, math.log(0.5), 0.8, math.log(0.5), rng.standard_normal(N_GROUPS)]


def grouped_rows(rng, n):
    """A group and a feature."""
    return np.column_stack([rng.integers(0, N_GROUPS, n), rng.uniform(-1, 1, n)])


LINE = ["x0", "x1", "x2", "intercept"]
T_TRUTH, COUNTS = (1.0, -0.5, 0.0, 0.3), (0.8, -0.4, 0.0, 0.5)
MODELS = {
    "student": Model(
        [*LINE, "log sigma"],
        fixed(*T_TRUTH, math.log(0.3)),
        uniform_rows,
        t_simulate,
        t_log_likelihood,
    ),
    "negative binomial": Model(
        [*LINE, "log size"],
        fixed(*COUNTS, math.log(2.0)),
        uniform_rows,
        negative_binomial_simulate,
        negative_binomial_log_likelihood,
        integers=True,
    ),
    "zero-inflated": Model(
        [*LINE, "logit zero"],
        fixed(*COUNTS, -1.0),
        uniform_rows,
        zip_simulate,
        zip_log_likelihood,
        integers=True,
    ),
    "hierarchical": Model(
        ["mu", "log tau", "slope", "log sigma", *[f"z{g}" for g in range(N_GROUPS)]],
        hierarchical_truth,
        grouped_rows,
        hierarchical_simulate,
        hierarchical_log_likelihood,
    ),
    "logistic": Model(
        LINE,
        fixed(1.0, -0.5, 0.0, 0.3),
        uniform_rows,
        logistic_simulate,
        logistic_log_likelihood,
        integers=True,
    ),
    "normal": Model(
        [*LINE, "log sigma"],
        fixed(*T_TRUTH, 0.0),
        uniform_rows,
        normal_simulate,
        normal_log_likelihood,
    ),
    "poisson": Model(
        LINE,
        fixed(0.8, -0.4, 0.0, 0.2),
        uniform_rows,
        poisson_simulate,
        poisson_log_likelihood,
        integers=True,
    ),
}


def data(model, seed, n):
    """A truth, and rows and targets that follow it."""
    rng = np.random.default_rng(seed)
    theta = model.truth(rng)
    X = model.rows(rng, n)
    generator = torch.Generator().manual_seed(seed)
    y = model.simulate(torch.from_numpy(theta), torch.from_numpy(X), generator).numpy()
    return theta, X, y.astype(np.int64) if model.integers else y


def estimator(model, n, epsilon=1.0, **parameters):
    """The class at its defaults, with synthetic rows of the kind that the model is meant for."""
    rows = model.rows(np.random.default_rng(10**6), 64)
    kwargs = {"n_samples": n, "parameter_names": model.names, "example_rows": rows}
    return DPVariationalModel(
        model.log_likelihood, len(model.names), epsilon=epsilon, **(kwargs | parameters)
    )


def study(model, repetitions, n, epsilon, **parameters):
    """Whether each interval held, errors, deviations, clips, and which fits warned."""
    held, deviations, errors, clips, warned = [], [], [], [], []
    for seed in range(repetitions):
        theta, X, y = data(model, seed, n)
        fitted = estimator(model, n, epsilon, **parameters).fit(X, y)
        deviation = np.sqrt(np.diag(fitted.covariance_))
        held.append(np.abs(fitted.mean_ - theta) < stats.norm.ppf(0.95) * deviation)
        errors.append((fitted.mean_ - theta) / deviation)
        deviations.append(deviation)
        clips.append(fitted.clip_norm_)
        warned.append(bool(fitted.diagnostics_))
    return tuple(map(np.array, (held, errors, deviations, clips, warned)))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--simulate", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", PrivacyWarning)
    warnings.simplefilter("ignore", FitWarning)
    for name in arguments.models:
        model, parameters = MODELS[name], {}
        if arguments.clip:
            parameters["clip_norm"] = arguments.clip * math.sqrt(len(model.names))
        if arguments.simulate:
            parameters["simulate"] = model.simulate
        held, errors, deviations, clips, warned = study(
            model, arguments.repetitions, arguments.n, arguments.epsilon, **parameters
        )
        low, middle, high = np.quantile(clips, [0.0, 0.5, 1.0])
        print(
            f"{name}: {np.sum(warned)} of {len(warned)} fits warned; "
            f"clip {middle:.1f} ({low:.1f} to {high:.1f})"
        )
        for i, parameter in enumerate(model.names):
            quiet = held[~warned, i]
            of_quiet = f"{100 * quiet.mean():5.0f}" if len(quiet) else "    -"
            print(
                f"  {parameter:<12}{100 * held[:, i].mean():5.0f} % held,{of_quiet} % without a "
                f"warning; error {errors[:, i].mean():5.1f} of sd {deviations[:, i].mean():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
