"""Privacy bugs that were published, each with its source; `caught` says which test catches it.

"Reported pattern" stands for a mistake found in more than one code base, without one publication to
cite.
"""

from collections.abc import Callable
from typing import Any

DEBUGGING = "Tramèr et al. 2022, Debugging Differential Privacy: A Case Study for Privacy Auditing"
UNDERESTIMATED = (
    "Casacuberta et al. 2022, Widespread Underestimation of Sensitivity in DP Libraries"
)
PRECISION = "Haney et al. 2022, Precision-based Attacks and Interval Refining"
SHUFFLED = (
    "Chua et al. 2024, How Private are DP-SGD Implementations?; Lebeda et al. 2024, Avoiding "
    "Pitfalls for Privacy Accounting of Subsampled Mechanisms; Annamalai et al. 2024"
)
PATTERN = "reported pattern"

BUGS = {
    # what one record adds to a sum
    "clipping after averaging": DEBUGGING,
    "each tensor clipped to the whole bound": PATTERN,
    "microbatches averaged before clipping": (
        "TensorFlow Privacy's num_microbatches; Ponomareva et al. 2023, How to DP-fy ML"
    ),
    "no clipping at all": PATTERN,
    "an infinite gradient divided by its norm": f"{PATTERN}: C/(‖g‖ + 1e-6) gives 0·∞ = NaN",
    "the intercept left out of a row's bound": PATTERN,
    "sums in an order that rounding notices": UNDERESTIMATED,
    "rounding of a floating-point sum": UNDERESTIMATED,
    "integers that wrap around": UNDERESTIMATED,
    "balanced class weights": PATTERN,
    "rows repeated by an oversampler": f"{PATTERN}: imbalanced-learn's samplers before a model",
    "bounds read from the data": "diffprivlib's PrivacyLeakWarning: bounds not specified",
    "batch normalisation": "refused by Opacus's ModuleValidator",
    # noise
    "Laplace noise by the inverse of a floating-point number": (
        "Mironov 2012, On Significance of the Least Significant Bits for Differential Privacy"
    ),
    "noise of less precision than the value": PRECISION,
    "a torch generator that starts from a constant": (
        "torch.Generator() without a seed starts from 67280421310721"
    ),
    "a fork that repeats its parent's noise": "numpy's global generator after os.fork",
    "one seed for two data sets": f"{PATTERN}: random_state=0 in every fold",
    "a key used twice": f"{PATTERN}: a JAX key that is not split",
    "a variance given for a standard deviation": PATTERN,
    "one number of noise for all coordinates": f"{PATTERN}: a shape left out",
    "noise for each physical batch": f"{PATTERN}: gradient accumulation, virtual steps",
    "noise scaled by the realised batch": PATTERN,
    # sampling
    "shuffled batches accounted as Poisson": SHUFFLED,
    "batches of a fixed size accounted as Poisson": SHUFFLED,
    "an empty Poisson batch skipped": f"{PATTERN}: loaders that drop empty batches",
    "the realised batch as divisor": f"{PATTERN}: loss reduction 'mean'",
    "a private number of rows": f"{PATTERN}: δ = 1/n, or a rate of batch/n, under add/remove",
    # accounting
    "an accountant that turns NaN into 0": "dp-accounting 0.6, RdpAccountant",
    "a replaced record accounted as a removed one": "dp-accounting 0.6, RdpAccountant",
    "one step accounted for many": PATTERN,
    "a central limit taken for a bound": (
        "Bu et al. 2020's GDP accountant; Gopi et al. 2021 show that it underestimates"
    ),
    "epsilons added at a fixed delta": PATTERN,
    # around the mechanism
    "an accountant lost in a clone": "diffprivlib's BudgetAccountant in GridSearchCV",
    "a fit that fails for free": f"{PATTERN}: the budget is written down after the work",
    "early stopping on private rows": PATTERN,
    "training rows in the fitted model": f"{PATTERN}: kernel machines, nearest neighbours",
    "a generator's state in the pickle": PATTERN,
    "data in an error message": "scikit-learn's check_array quotes the array",
    "a scaler that learned from private rows": f"{PATTERN}: StandardScaler before a private model",
    "labels of classes taken for public": f"{PATTERN}: np.unique(y)",
}

CAUGHT: dict[str, str] = {}


def caught(name: str) -> Callable[[Any], Any]:
    """Mark the test that re-enacts a bug."""
    assert name in BUGS, name

    def mark(test: Any) -> Any:
        CAUGHT[name] = test.__qualname__
        return test

    return mark
