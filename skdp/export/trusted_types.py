"""Names of the types that a fitted object of skdp is made of, for `skops.io.load`.

None of them runs code that a file brings along. A file is still to be read only from where the
model came from: its numbers are not checked.
"""

from skdp import estimators, preprocessing

_EVENTS = (
    "Composed", "Gaussian", "Laplace", "NoOp", "NonPrivate", "PoissonSampled", "RepeatAndSelect",
    "SelfComposed",
)  # fmt: skip

trusted_types = [
    "builtins.range",  # e.g. of classes=range(10)
    *(f"dp_accounting.dp_event.{kind}DpEvent" for kind in _EVENTS),
    *(
        f"{room.__name__}.{home}.{kind}"
        for room in (estimators, preprocessing)
        for home, kinds in room.HOMES.items()
        for kind in kinds
    ),
    "skdp.algorithms.dp_sgd.Kept",
    "skdp.algorithms.dp_sgd.PathPosterior",
    "skdp.algorithms.dp_sgld.KeptIterates",
    "skdp.algorithms.dp_vi_model.Clipping",
    "skdp.algorithms.dp_vi_model.ModelPosterior",
    "skdp.algorithms.dp_vi_model.Path",
    "skdp.algorithms.gaussian_posterior.GaussianPosterior",
    "skdp.algorithms.gaussian_posterior.RegressionPosterior",
    "skdp.algorithms.langevin.LangevinConfig",
    "skdp.algorithms.noise_aware_linear.RegressionPosterior",
    "skdp.algorithms.ops.ExactConfig",
    "skdp.algorithms.tempered.TemperedPosterior",
    "skdp.calibration.DPTemperatureScaler",
    "skdp.conformal.DPConformalClassifier",
    "skdp.conformal.DPConformalRegressor",
    "skdp.engine.adam.NoiseCorrectedAdam",
    "skdp.engine.updates.MomentumSGD",
    "skdp.model_selection._scores.MeanRowScore",
    "skdp.model_selection._scores.accuracy",
    "skdp.model_selection.disjoint_search.DPDisjointSearch",
    "skdp.model_selection.search.DPRandomizedSearch",
    "skdp.models.additive.Additive",
    "skdp.models.additive.Category",
    "skdp.models.additive.Number",
    "skdp.models.additive.Pair",
    "skdp.models.likelihoods.Bernoulli",
    "skdp.models.likelihoods.Categorical",
    "skdp.models.likelihoods.HuberRegression",
    "skdp.models.likelihoods.Poisson",
    "skdp.models.user_models.UserModel",
    "skdp.privacy.discrete.DiscreteGaussianDpEvent",
    "skdp.privacy.events.PosteriorSamplesDpEvent",
    "skdp.privacy.events.PureDpEvent",
    "skdp.privacy.parts.PartDpEvent",
    "skdp.privacy.report.PrivacyReport",
    "skdp.relations.Relation",
    "skdp.rows.persons.Persons",
    "torch.Size",
]
