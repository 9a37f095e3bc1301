"""How much of a claimed ε audits prove: skdp's estimators, and the peers'.

    python benchmarks/audit.py [names ...] [--fits 5000] [--jobs 2] [--json FILE]
    python benchmarks/audit.py --peers [--fits 5000]

With a file, each report is kept there as it comes, and a run with a file goes on from what it holds
(which has to be of the same code and number of fits).

Every line: the claim, the lower bound at 95 % confidence, their ratio, and the time. Data and
settings are the worst that are known for each estimator: a gradient that is clipped in every step,
a prior or a step size that leaves the parameters where they start, and a result in which all noisy
sums count alike. Then the result of T steps is as telling as all T releases, which an audit of one
number can see. A line that says "releases" could not get so far from outside; it looks at the
releases themselves, through skdp's record of them. Lines "release: ..." are of one kind of release
of the noise-aware inference each, made by itself (`_releases.py`): with the null record, another
record, a person with 50 rows, a row of weight 5, and by integers.

Of twenty right estimators one may be accused at 95 %. What is accused is audited again, afresh, at
99.9 %, and both lines are shown.

Of the peers, Opacus is audited here. diffprivlib needs an older scikit-learn than skdp, so it is
fitted in an environment of its own, where this script needs numpy alone, and judged here:

    python benchmarks/audit.py --sample-diffprivlib FILE [--fits 5000]      there
    python benchmarks/audit.py --judge FILE                                 here
"""

import argparse
import json
import math
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

EPSILON, DELTA = 4.377178, 1e-5  # μ = 1
BUDGET = {"epsilon": EPSILON, "delta": DELTA}
N_ROWS = 10
DECLARED = {"classes": [0, 1], "n_samples": N_ROWS}
ROWS = 50  # of a canary that is a person
LARGEST_WEIGHT = 5.0
WIDE = 64  # features: random initial weights of a network are small where there are many


def zeros(width, n_rows=N_ROWS - 1):
    """Rows of zeros, to which the canary comes as the last."""
    return np.zeros((n_rows, width))


def last(width, value=1.0):
    """(0, …, 0, value)."""
    return np.append(np.zeros(width - 1), value)


# --- skdp -----------------------------------------------------------------------------------------


def last_coefficient(fitted):
    """The coefficient of the only feature that is not zero."""
    return np.ravel(fitted.coef_)[-1]


def last_layer(fitted):
    """How much more a linear head says 1 than 0 of the last feature, biases included."""
    weights, biases = (p.detach().numpy() for p in fitted.module_.parameters())
    return weights[1, -1] - weights[0, -1] + biases[1] - biases[0]


def variational():
    """Variational estimators. Where the prior is narrow, θ stays at 0 and so do residuals."""
    from skdp import (
        DPAdditiveClassifier,
        DPVariationalLinearRegression,
        DPVariationalLogisticRegression,
        DPVariationalModel,
        DPVariationalPoissonRegression,
    )

    class NarrowAdditive(DPAdditiveClassifier):
        prior_scale = 1e-3

    plain = BUDGET | DECLARED | {"fit_intercept": False, "inference": "dpvi", "clip_norm": 0.01}
    logistic = DPVariationalLogisticRegression
    # Too long: the count of rows that are cut, half of the budget of one step, shows it too.
    long = {"canary": (last(2, 1e3), 1), "statistic": "trace"}
    yield "logistic, dpvi, 1 step, releases", logistic(**plain, max_iter=1), long
    yield (
        "logistic, dpvi, 20 steps, releases",
        logistic(**plain, max_iter=20),
        {"statistic": "trace"},
    )
    yield (
        "logistic, dpvi, 1 step, secure, releases",
        logistic(**plain, max_iter=1, secure=True),
        long | {"frame": "gdp"},  # Gaussian but for 1e-16 of δ
    )
    mean = DPVariationalModel(
        **BUDGET, log_likelihood=at_the_mean, n_parameters=1, n_samples=N_ROWS, clip_norm=1e-3,
        max_iter=2,
    )  # fmt: skip
    far = {"X": np.full((N_ROWS - 1, 1), 1e3), "canary": ([1e3], 0)}  # all gradients are cut
    yield "a model of your own, 2 steps, releases", mean, far | {"statistic": "trace"}
    narrow = BUDGET | {"fit_intercept": False, "prior_scale": 1e-3, "data_norm": 1.0}
    # Beyond 40 parameters the posterior is found without random chains.
    result = {"X": zeros(41), "statistic": last_coefficient}
    yield "logistic, noise-aware", logistic(**narrow, **DECLARED), result
    counts = {"y": np.zeros(N_ROWS - 1), "canary": (last(2), 10)}
    targets = {"y": np.zeros(N_ROWS - 1)}
    for name, kind, options, steps, audit in (
        ("logistic", logistic, DECLARED, 1, {}),
        ("logistic", logistic, DECLARED, 20, {}),
        # Of a release of the unit before, all later ones are functions that are not linear.
        ("linear", DPVariationalLinearRegression, {"target_bounds": (-1, 1)}, 1, targets),
        ("Poisson", DPVariationalPoissonRegression, {"largest_count": 10}, 1, counts),
    ):
        options = {"n_samples": N_ROWS} | options
        estimator = releases_of(kind(**narrow, **options, max_iter=steps))
        case = f"{name}, noise-aware, {steps} step{'s' * (steps > 1)}, releases"
        yield case, estimator, audit | {"statistic": "trace"}
    gone = {"X": np.full((N_ROWS - 1, 2), np.nan), "canary": ([1.0, 1.0], 1), "statistic": "trace"}
    additive = NarrowAdditive(**BUDGET, **DECLARED, bounds=[(-1, 1)] * 2)
    yield "additive, noise-aware, 40 steps, releases", releases_of(additive), gone


def at_the_mean(theta, x):
    """Log density of N(θ, 1), up to a constant."""
    return -0.5 * ((x - theta) ** 2).sum(dim=1)


def releases_of(estimator):
    """The same estimator, without what it makes of its releases after the last of them.

    That takes nearly all of the time of a fit on ten rows, and an audit that looks at the releases
    never sees it.
    """
    from sklearn.base import BaseEstimator

    from skdp.algorithms.gaussian_posterior import GaussianPosterior, RegressionPosterior
    from skdp.algorithms.noise_aware.steps import Update

    class Releases(BaseEstimator):
        def __init__(self, estimator):
            self.estimator = estimator

        def fit(self, X, y, groups=None):
            with mock.patch.object(Update, "posterior", nothing):
                self.privacy_ = self.estimator.fit(X, y, groups=groups).privacy_
            return self

    def nothing(update, state):
        numbers = update.config.family.extra  # the scale of residuals follows
        mean = np.hstack([state.theta, np.zeros((len(state.theta), numbers))])
        kind = RegressionPosterior if numbers else GaussianPosterior
        told = {"n_found": update.n_found, "prior_scales": np.ones((3, 1))}
        return kind(mean, np.eye(mean.size), **told)

    return Releases(estimator)


def releases():
    """Each release of the noise-aware inference by itself."""
    import _releases

    yield from _releases.releases(EPSILON, DELTA)


def networks():
    """Linear heads on all rows. Gradients are so long that they never stop being cut."""
    import torch
    from sklearn.base import clone

    from skdp import DPSGDClassifier, DPSGLDClassifier

    head = BUDGET | DECLARED | {"hidden_layer_sizes": (), "sampling_rate": 1.0, "clip_norm": 1e-5}
    audit = {"X": zeros(WIDE), "canary": (last(WIDE), 1), "statistic": last_layer}
    for steps in (1, 20):
        sgd = DPSGDClassifier(
            **head,
            optimizer=torch.optim.SGD,
            learning_rate=N_ROWS / steps * 1e5,
            averaging=0.0,
            max_iter=steps,
        )
        yield f"DP-SGD, {steps} step{'s' * (steps > 1)}", sgd, audit
    poisson = DPSGDClassifier(
        **(head | {"sampling_rate": 0.5}),
        optimizer=torch.optim.SGD,
        learning_rate=N_ROWS * 1e5,
        averaging=0.0,
        max_iter=1,
    )
    yield "DP-SGD, Poisson batch, 1 step", poisson, audit
    # The canary has the largest weight, 5, and all others have 1.
    weighted = DPSGDClassifier(
        **head,
        optimizer=torch.optim.SGD,
        learning_rate=N_ROWS / 4 / LARGEST_WEIGHT * 1e5,
        averaging=0.0,
        max_iter=4,
    )
    of_class = clone(weighted).set_params(class_weight={1: LARGEST_WEIGHT})
    yield "DP-SGD, class_weight, 4 steps", of_class, audit | {"y": np.zeros(N_ROWS - 1)}
    of_row = with_weights(weighted.set_params(max_sample_weight=LARGEST_WEIGHT))
    yield "DP-SGD, sample_weight, 4 steps", of_row, audit | {"neighbor": "removed"}
    sgld = DPSGLDClassifier(
        **head, learning_rate=N_ROWS / 20 * 1e5, prior_scale=1e6, max_iter=20, thinning=1
    )
    yield "DP-SGLD, 20 steps", sgld, audit


def with_weights(estimator):
    """The same estimator, which gives rows with a last number above 0 the largest weight."""
    from sklearn.base import BaseEstimator

    class Weighted(BaseEstimator):
        def __init__(self, estimator):
            self.estimator = estimator

        def fit(self, X, y):
            weights = np.where(X[:, -1] > 0, LARGEST_WEIGHT, 1.0)
            self.module_ = self.estimator.fit(X, y, sample_weight=weights).module_
            self.privacy_ = self.estimator.privacy_
            return self

    return Weighted(estimator)


def samplers():
    """One sample of a posterior: loose for classes, where residuals do not stay at 1."""
    from skdp import OPSPosteriorSampler, OPSRegressor

    regressor = OPSRegressor(
        **BUDGET, target_bounds=(-1, 1), residual_bound=0.02, noise_scale=0.05, prior_scale=0.2,
        step_size=0.003, max_iter=30, data_norm=1.0, fit_intercept=False, n_samples=2,
    )  # fmt: skip
    yield "OPS regressor, one sample", regressor, {"X": zeros(1, 1), "canary": ([1.0], 1.0)}
    classifier = OPSPosteriorSampler(
        **BUDGET, data_norm=1.0, fit_intercept=False, classes=[0, 1], n_samples=10,
        prior_scale=20.0, step_size=10.0, max_iter=60,
    )  # fmt: skip
    others = {"X": np.ones((9, 1)), "y": np.zeros(9, dtype=int), "canary": ([1.0], 1)}
    yield "OPS classifier, one sample", classifier, others
    exact = OPSPosteriorSampler(
        2.0, 0, sampler="rejection", data_norm=1.0, theta_norm=3.0, prior_scale=3.0,
        fit_intercept=False, classes=[0, 1], n_samples=4,
    )  # fmt: skip
    rows = {"X": np.ones((3, 1)), "y": np.zeros(3, dtype=int), "canary": ([1.0], 1)}
    yield "OPS classifier, exact sample", exact, rows


def others():
    """Scaler, temperature, mechanism."""
    from sklearn.frozen import FrozenEstimator

    from skdp.calibration import DPTemperatureScaler
    from skdp.mechanisms import GaussianMechanism
    from skdp.preprocessing import DPPCA, DPStandardScaler

    # A mean of -1/2 and a mean square of 1/2: then mean and variance show all of the release.
    half = np.repeat([[-1.0], [0.0]], 1000, axis=0)
    yield (
        "standard scaler",
        DPStandardScaler(**BUDGET),
        {
            "X": half,
            "canary": ([1.0], 0),
            "neighbor": "removed",
            "statistic": lambda scaler: np.append(scaler.mean_, scaler.var_),
        },
    )
    seen = {"canary": (last(2), 0), "statistic": "trace", "neighbor": "removed"}
    yield "PCA, releases", DPPCA(1, **BUDGET, data_norm=1.0), seen
    yield (
        "temperature, 1 step",
        DPTemperatureScaler(FrozenEstimator(sure()), **BUDGET, max_iter=1, n_samples=1),
        {
            "X": np.ones((1, 1)),
            "y": [1],
            "canary": ([1.0], 0),
            "statistic": lambda fitted: math.log(fitted.temperature_),
        },
    )
    mechanism = GaussianMechanism.from_budget(**BUDGET, record_norm=1.0)

    def gaussian(X, y):
        return mechanism.release(X.sum(axis=0))

    claim = BUDGET | {"frame": "gdp"}
    yield "GaussianMechanism", gaussian, {"X": zeros(2), "canary": (last(2), 1), **claim}


def persons():
    """Neighbours differ in a person with 50 rows alike, whose scores are clipped together.

    Fits are told of 10 persons with 4 rows each, so that a person counts for 1.8 rows or for 4.
    Steps leave θ where it starts.
    """
    from skdp import (
        DPVariationalLinearRegression,
        DPVariationalLogisticRegression,
        DPVariationalPoissonRegression,
        Persons,
    )
    from skdp.preprocessing import DPPCA, DPStandardScaler

    unit = {"unit": Persons(N_ROWS, rows_per_group=4)}
    classes = {"classes": [0, 1]}
    rows = np.tile(last(2, 1e3), (ROWS, 1))  # too long, which is released too
    canary = {"canary": (rows, 1), "statistic": "trace"}
    logistic = DPVariationalLogisticRegression
    plain = BUDGET | unit | classes | {"fit_intercept": False, "inference": "dpvi"}
    dpvi = logistic(**plain, clip_norm=0.01, max_iter=4)
    yield "persons: logistic, dpvi, 4 steps, releases", dpvi, canary
    narrow = BUDGET | unit | {"fit_intercept": False, "prior_scale": 1e-3, "data_norm": 1.0}
    for name, kind, options, target in (
        ("logistic", logistic, classes, 1),
        ("softmax", logistic, {"classes": [0, 1, 2]}, 1),
        ("linear", DPVariationalLinearRegression, {"target_bounds": (-1, 1)}, 2),
        ("Poisson", DPVariationalPoissonRegression, {"largest_count": 10}, 20),
    ):
        estimator = releases_of(kind(**narrow, **options, max_iter=4))
        targets = {} if "classes" in options else {"y": np.zeros(N_ROWS - 1)}
        audit = canary | targets | {"canary": (rows, target)}
        yield f"persons: {name}, noise-aware, 4 steps, releases", estimator, audit
    yield from networks_of_persons(unit | classes)
    unit = {"unit": Persons(rows_per_group=4)}
    ones = {"X": zeros(1), "canary": (np.ones((ROWS, 1)), 0), "statistic": "trace"}
    yield "persons: standard scaler, releases", DPStandardScaler(**BUDGET, **unit), ones
    yield "persons: PCA, releases", DPPCA(1, **BUDGET, **unit, data_norm=1.0), canary
    yield quantiles_of_persons(unit)


def networks_of_persons(declared):
    """Linear heads on all rows, whose gradients never stop being cut."""
    import torch

    from skdp import DPSGDClassifier, DPSGLDClassifier

    head = BUDGET | declared | {"hidden_layer_sizes": (), "sampling_rate": 1.0, "clip_norm": 1e-5}
    audit = {
        "X": zeros(WIDE),
        "canary": (np.tile(last(WIDE), (ROWS, 1)), 1),
        "statistic": last_layer,
    }
    steps, rate = 4, 4 * N_ROWS / 4 * 5e4
    sgd = DPSGDClassifier(
        **head, optimizer=torch.optim.SGD, learning_rate=rate, averaging=0.0, max_iter=steps
    )
    yield "persons: DP-SGD, 4 steps", sgd, audit
    sgld = DPSGLDClassifier(
        **head, learning_rate=rate, prior_scale=1e6, max_iter=steps, thinning=1, burn_in=0
    )
    yield "persons: DP-SGLD, 4 steps", sgld, audit


def quantiles_of_persons(unit):
    """Two medians of one person at .6, and one at 0 who moves all points above and below .6 apart.

    Nobody moves the number of records by which a point misses a median over a larger range.
    """
    from skdp.preprocessing import DPQuantileScaler

    scaler = DPQuantileScaler(
        0.0,
        1.0,
        epsilon=BUDGET["epsilon"],
        delta=0.0,
        quantile_range=(49.9, 50.1),
        resolution=1e3,
        **unit,
    )

    def above(fitted):
        return float(fitted.lower_[0] > 0.6) + float(fitted.upper_[0] > 0.6)

    audit = {"X": [[0.6]], "canary": (np.zeros((ROWS, 1)), 0), "statistic": above}
    return "persons: quantile scaler", scaler, audit


def workflows():
    """A private search and a pipeline, each against the claim of the whole."""
    from sklearn.pipeline import make_pipeline

    from skdp import DPVariationalLogisticRegression
    from skdp.model_selection import DPRandomizedSearch, split_budget
    from skdp.preprocessing import DPStandardScaler

    n_rows = 201
    plain = {"fit_intercept": False, "inference": "dpvi", "clip_norm": 0.01, "max_iter": 1}
    logistic = DPVariationalLogisticRegression(**plain, classes=[0, 1], n_samples=n_rows)
    # As for the scaler alone. Rows come to -1 and 1, so that whatever the scaler released their
    # gradients are cut to the clip, and cancel.
    half = np.repeat([[-1.0], [0.0]], n_rows // 2, axis=0)
    sizes = {"n_samples": n_rows, "n_features": 1}
    pipeline = split_budget(make_pipeline(DPStandardScaler(), logistic), **BUDGET, **sizes)
    rows = {"X": half, "y": np.ones(n_rows - 1, dtype=int), "canary": ([1.0], 1)}

    def scaler_and_coefficient(fitted):
        scaler, model = fitted.workflow_
        return np.concatenate([scaler.mean_, scaler.var_, np.ravel(model.coef_)])

    audit = {"neighbor": "removed", "statistic": scaler_and_coefficient}
    yield "pipeline of scaler and logistic", whole(pipeline), rows | audit
    # The winner is the trial that looks most as if the canary were there.
    search = DPRandomizedSearch(
        DPVariationalLogisticRegression(**plain, **DECLARED), {"prior_scale": [1.0]}, **BUDGET,
        mean_trials=5, n_samples=N_ROWS, scoring=scored_by_coefficient,
    )  # fmt: skip
    public = {"X_public": zeros(2, 1), "y_public": np.zeros(1)}
    audit = {
        "neighbor": "removed",
        "statistic": lambda f: last_coefficient(f.workflow_.best_estimator_),
    }
    rows = {"X": zeros(2), "canary": (last(2, 1e3), 1)}
    yield "search, 5 trials on average", whole(search, **public), rows | audit


def parts():
    """A fit and a report of it on two parts of a split, against the ε of one: privacy_of(both)."""
    from sklearn.base import BaseEstimator

    from skdp import DisjointSplit, DPVariationalLogisticRegression, privacy_of
    from skdp.evaluation import DPEvaluator

    n_rows, relation = 2 * N_ROWS, "replace_one"

    class FitAndReport(BaseEstimator):
        def __init__(self, side="train"):
            self.side = side

        def fit(self, X, y):
            # Whatever the split, one ε; so look at those that bring the canary, the last row, here.
            rng = np.random.default_rng()
            while True:
                seed = int(rng.integers(2**31))
                split = DisjointSplit(n_rows, test_size=0.5, random_state=seed)
                if n_rows - 1 in split.indices(self.side):
                    break
            public = {"neighboring_relation": relation, "n_samples": N_ROWS}
            self.model_ = DPVariationalLogisticRegression(
                **BUDGET, **public, classes=[0, 1], fit_intercept=False, inference="dpvi",
                clip_norm=0.01, max_iter=1,
            ).fit(*split.take("train", X, y))  # fmt: skip
            evaluator = DPEvaluator(self.model_, epsilon=BUDGET["epsilon"], **public)
            self.report_ = evaluator.report(*split.take("test", X, y))
            self.privacy_ = privacy_of(self.model_, self.report_)
            return self

    def more_of_one(fitted):
        # The likelihood ratio: both counts of the bin into which the model puts the canary.
        probabilities = fitted.model_.predict_proba([canary, 0.0 * canary])[:, 1]
        place, others = np.searchsorted(fitted.report_.edges_[1:-1], probabilities, side="right")
        counts = fitted.report_.counts_[:, place] - [(N_ROWS - 1) * (place == others), 0]
        return np.clip(counts[1], 0, 1) - np.clip(counts[0], 0, 1)

    canary = last(2, 1e3)
    rows = {"X": zeros(2, n_rows - 1), "y": np.zeros(n_rows - 1, dtype=int), "canary": (canary, 1)}
    rows["neighboring_relation"] = relation
    audit = {"neighbor": (-canary, 1), "statistic": lambda f: last_coefficient(f.model_)}
    audit["frame"] = "gdp"  # this number has seen Gaussian noise alone
    yield "fit + report, canary in the fit", FitAndReport("train"), rows | audit
    audit = {"neighbor": (canary, 0), "statistic": more_of_one}
    yield "fit + report, canary in the report", FitAndReport("test"), rows | audit


def scored_by_coefficient(fitted, X, y):
    """Score a model by the coefficient that the canary moves; of X and y nothing."""
    return last_coefficient(fitted)


def whole(workflow, **public):
    """A workflow as one estimator, which states what `privacy_of` says of all of it."""
    from sklearn.base import BaseEstimator, clone

    from skdp.privacy import privacy_of

    class Whole(BaseEstimator):
        def __init__(self, workflow):
            self.workflow = workflow

        def fit(self, X, y):
            self.workflow_ = clone(self.workflow).fit(X, y, **public)
            self.privacy_ = privacy_of(self.workflow_)
            return self

    return Whole(workflow)


def sure():
    """A classifier that always says 1, made without data."""
    from dp_accounting.dp_event import NoOpDpEvent
    from sklearn.base import BaseEstimator, ClassifierMixin

    from skdp.privacy import PrivacyReport

    class Sure(ClassifierMixin, BaseEstimator):
        def fit(self, X=None, y=None):
            self.classes_ = np.array([0, 1])
            self.privacy_ = PrivacyReport.of(NoOpDpEvent(), delta=DELTA, sampling="none")
            return self

        def predict_proba(self, X):
            return np.repeat([[0.0, 1.0]], len(X), axis=0)

    return Sure().fit()


def table(groups, wanted, n_fits, n_jobs, found):
    """Audit each case whose name holds one of the words, without those already found."""
    from skdp import FitWarning
    from skdp.audit import audit_estimator

    warnings.simplefilter("ignore", FitWarning)  # thousands of them, of fits on ten rows
    for group in groups:
        for name, estimator, options in group():
            if wanted and not any(word in name for word in wanted):
                continue
            for case, confidence in ((name, 0.95), (f"{name}, again", 0.999)):
                if case in found:
                    violation = found[case]["violation"]
                else:
                    report = audit_estimator(
                        estimator, n_fits=n_fits, n_jobs=n_jobs, confidence=confidence, **options
                    )
                    violation = report.violation
                    yield case, report
                if not violation:
                    break


# --- peers ----------------------------------------------------------------------------------------


def opacus():
    """Opacus as its users run it, on a linear layer without bias: the noise from torch's generator.

    The neighbour is a row of zeros, whose gradient is zero. The step size leaves the weights where
    they start, so that each gradient of the canary is cut and their sum says all.
    """
    import _opacus
    import torch

    from skdp.privacy import epsilon

    if _opacus.VERSION is None:
        print(_opacus.MISSING)
        return

    def trainer(poisson, batch_size, n_steps, sigma):
        def fit(X, y):
            network = torch.nn.Linear(X.shape[1], 2, bias=False)
            torch.nn.init.zeros_(network.weight)
            step, loader = _opacus.private(
                network,
                torch.optim.SGD(network.parameters(), lr=1e-6),
                torch.tensor(X, dtype=torch.float32),
                torch.tensor(y),
                batch_size=batch_size,
                noise_multiplier=sigma,
                mode="hooks",
                poisson=poisson,
            )
            done = 0
            while done < n_steps:
                for x, target in loader:
                    step(x, target)
                    done += 1
                    if done == n_steps:
                        break
            return network.weight.detach().numpy()[:, -1] * 1e6

        return fit

    for poisson, batch_size, n_steps in ((False, 10, 1), (False, 10, 20), (True, 5, 1)):
        sigma = 0.5 if poisson else math.sqrt(n_steps)
        rate = batch_size / N_ROWS
        claim = epsilon(noise_multiplier=sigma, sampling_rate=rate, n_steps=n_steps, delta=DELTA)
        yield (
            f"Opacus, {'Poisson' if poisson else 'full'} batch, {n_steps} step(s)",
            trainer(poisson, batch_size, n_steps, sigma),
            {
                "epsilon": claim,
                "delta": DELTA,
                "frame": "dp" if poisson else "gdp",
                "neighbor": ("null", (np.zeros(2), 1)),  # its gradient is zero: there is no bias
            },
        )


def diffprivlib():
    """Name, maker of an estimator, data with the canary and with another record, what is seen.

    All claim ε = 1, δ = 0 between data sets that differ in one record, at declared bounds.
    """
    from diffprivlib import models

    X, y = np.zeros((N_ROWS, 1)), np.arange(N_ROWS) % 2
    high, low = X.copy(), X.copy()
    high[-1], low[-1] = 1.0, -1.0
    bounds = {"bounds": (-1, 1)}
    line = np.linspace(-1, 1, N_ROWS)[:, None]
    half = np.repeat([[-1.0], [0.0]], N_ROWS // 2, axis=0)
    other = half.copy()
    other[-1] = 1.0
    up, down = np.zeros(N_ROWS), np.zeros(N_ROWS)
    up[-1], down[-1] = 1.0, -1.0
    yield (
        "LogisticRegression",
        lambda: models.LogisticRegression(epsilon=1.0, data_norm=1.0, fit_intercept=False),
        (high, y),
        (low, y),
        lambda m: m.coef_,
    )
    # Longer rows: what the curvature of the objective gives away grows with the square of the norm.
    pair = np.array([1, 0])
    yield (
        "LogisticRegression, norm 100",
        lambda: models.LogisticRegression(
            epsilon=1.0, data_norm=100.0, fit_intercept=False, tol=1e-10, max_iter=1000
        ),
        (np.array([[100.0], [0.0]]), pair),
        (np.zeros((2, 1)), pair),
        lambda m: -np.abs(m.coef_),
    )
    yield (
        "GaussianNB",
        lambda: models.GaussianNB(epsilon=1.0, **bounds),
        (high, y),
        (low, y),
        lambda m: [m.theta_, m.var_],
    )
    yield (
        "GaussianNB, another class",
        lambda: models.GaussianNB(epsilon=1.0, **bounds),
        (X, y),
        (X, np.append(y[:-1], 0)),
        lambda m: m.class_count_,
    )
    yield (
        "StandardScaler",
        lambda: models.StandardScaler(epsilon=1.0, **bounds),
        (other, None),
        (half, None),
        lambda m: [m.mean_, m.var_],
    )
    # Without bounds it takes them from the data, says so in a warning, and claims no less.
    outlier = line.copy()
    outlier[-1] = 1000.0
    yield (
        "StandardScaler, no bounds",
        lambda: models.StandardScaler(epsilon=1.0),
        (outlier, None),
        (line, None),
        lambda m: [m.mean_, m.var_],
    )
    regression = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
    yield (
        "LinearRegression",
        lambda: models.LinearRegression(epsilon=1.0, fit_intercept=False, **regression),
        (line, up),
        (line, down),
        lambda m: m.coef_,
    )


def sample(path, n_fits):
    """Fit diffprivlib's models on both data sets; write what they return to a file."""
    results = {}
    for name, make, present, absent, see in diffprivlib():
        for arm, data in (("with", present), ("without", absent)):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                seen = [see(make().fit(*data)) for _ in range(n_fits)]
            results[f"{name}/{arm}"] = np.array([np.concatenate([np.ravel(v)]) for v in seen])
            for text in sorted({str(warning.message)[:90] for warning in said}):
                print(f"{name}, {arm}: warns: {text}")
        print(name, "done", flush=True)
    np.savez(path, **results)


def judge(path):
    """Audit what `sample` wrote."""
    from skdp.audit import audit_samples

    results = np.load(path)
    for name in dict.fromkeys(key.split("/")[0] for key in results.files):
        arms = results[f"{name}/with"], results[f"{name}/without"]
        claim = {"epsilon": 1.0, "delta": 0.0, "neighboring_relation": "replace_one"}
        yield f"diffprivlib {name}", audit_samples(*arms, **claim)


# --- output ---------------------------------------------------------------------------------------

HEAD = f"{'':<38} {'claim':>7} {'proved':>7} {'ratio':>6} {'frame':>5} {'s':>7}"


def line(name, report):
    """Format a row of the table."""
    return (
        f"{name:<38} {report.epsilon:7.3f} {report.epsilon_lower_bound:7.3f} "
        f"{report.tightness:6.2f} {report.frame:>5} {report.seconds:7.1f}  {report.verdict}"
    )


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose name holds one of these words")
    parser.add_argument("--fits", type=int, default=5000)
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="of each fit")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", type=Path, help="file for the reports, and to go on from")
    parser.add_argument("--peers", action="store_true", help="Opacus instead of skdp")
    parser.add_argument("--sample-diffprivlib", metavar="FILE", help="fit diffprivlib's models")
    parser.add_argument("--judge", metavar="FILE", help="audit what they returned")
    options = parser.parse_args()
    BUDGET["epsilon"] = options.epsilon
    if options.sample_diffprivlib:
        return sample(options.sample_diffprivlib, options.fits)
    ours = (variational, releases, networks, samplers, others, persons, workflows, parts)
    groups = (opacus,) if options.peers else ours
    found = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    rows = table(groups, options.names, options.fits, options.jobs, found)
    print(HEAD)
    for name, report in judge(options.judge) if options.judge else rows:
        found[name] = report.to_dict()
        print(line(name, report), flush=True)
        if options.json:  # a run that is killed meanwhile leaves the old file whole
            new = options.json.with_suffix(".new")
            new.write_text(json.dumps(found, indent=2))
            new.replace(options.json)
    return None


if __name__ == "__main__":
    main()
