"""Images without public images: linear heads on wavelet features, at ε = .5, 1 and 3.

    SKDP_DATA=... python benchmarks/images.py [--sets mnist digits pneumonia] [--epsilons .5 1 3]
                                              [--repetitions 3] [--choose] [--cache FOLDER]

Prints accuracy, expected calibration error (15 bins) and log-loss on test rows, with standard
errors over unseeded fits, and seconds of one fit. δ = 1e-5, one record zeroed, exact accounting of
full batches. MNIST has its official split; digits (scikit-learn's) are split 70/30; PneumoniaMNIST
is trained on its official training and validation parts.

Features cost no privacy, because no data are in them: `ScatteringTransformer` with 27 groups, then
400 principal components of what it makes of 6000 *scribbles*, curves that the program draws at
random. They say which features go together in images of strokes, and that is what a linear head of
few noisy steps needs to know.

- DP-SGD: `DPSGDClassifier` on full batches, average of the later half of the path.
- temperature: the same with 99 % of ε, and `DPTemperatureScaler` with 14 % (quadratures add up).
- SGLD last, SGLD mean: `DPSGLDClassifier`, its last iterate and the average over iterates.
- softmax: `DPVariationalLogisticRegression`, noise-aware, on the first 100 components.
- no privacy: `DPSGDClassifier(inf)` of the same head, for as many steps.

With ``--choose`` the settings below are compared on 10 000 of MNIST's *training* rows, held back;
test rows are not read. `settings` was made from that table; a study that chooses on private rows
pays for it. The other sets have what was chosen for MNIST, scaled by public facts, and at most a
quarter as many components as features; that few rows need smaller steps was seen on digits.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import _images
import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import log_loss

from skdp import DPSGDClassifier, DPSGLDClassifier, DPVariationalLogisticRegression
from skdp.calibration import DPTemperatureScaler
from skdp.metrics import expected_calibration_error
from skdp.preprocessing import ScatteringTransformer
from skdp.privacy import epsilon_to_gdp

DELTA = 1e-5  # of all of skdp, by default
N_SCRIBBLES, N_COMPONENTS, N_FOR_SOFTMAX = 6000, 400, 100
NORM = 10.0  # of features of a scribble, root mean square: the intercept's 1 is small beside it
EPSILONS = (0.5, 1.0, 3.0)
CLIP_NORM = 2.0
CHOICES = [(50, 4.0), (50, 6.0), (50, 8.0), (100, 4.0), (100, 8.0), (200, 8.0)]


def scribbles(side, n=N_SCRIBBLES, seed=0):
    """Draw images of one to three curves of some width, (n, side²), from no data."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, 60)[:, None]
    curve = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    rows, columns = np.mgrid[:side, :side][..., None] * 28 / side
    images = np.zeros((n, side, side), np.float32)
    for image in images:
        width = rng.uniform(0.7, 1.4) * max(1.0, 14 / side)
        for _ in range(rng.integers(1, 4)):
            points = curve @ rng.uniform(5, 23, (4, 2))
            square = (rows - points[:, 0]) ** 2 + (columns - points[:, 1]) ** 2
            np.maximum(image, np.clip(1.6 - np.sqrt(square.min(-1)) / width, 0, 1), out=image)
    return images.reshape(n, -1)


def features(X, Z):
    """Return features of two sets of images; none of them has a part in how they are made."""
    side = int(X.shape[1] ** 0.5)
    drawn = scribbles(side)
    scattering = ScatteringTransformer((side, side), n_groups=27).fit(drawn)
    drawn = scattering.transform(drawn)
    n = min(N_COMPONENTS, drawn.shape[1] // 4)
    pca = PCA(n, svd_solver="randomized", random_state=0).fit(drawn)
    share = pca.explained_variance_ / (pca.explained_variance_ + 1.0)
    scale = NORM / np.sqrt(share.sum() * (pca.explained_variance_ + 1.0))

    def of(images):
        parts = np.array_split(images, max(1, len(images) // 2000))
        return np.vstack([pca.transform(scattering.transform(part)) * scale for part in parts])

    return of(X).astype(np.float32), of(Z).astype(np.float32)


def settings(epsilon, n):
    """Return number of steps, and step size over the clipping norm, from public facts.

    After T steps of size ηC the noise in a weight has deviation ηTC/(nμ), whatever T is. So ηT is
    in proportion to nμ for few rows or a small ε, from MNIST at ε = .5 on to its power .6.
    """
    ratio = n * epsilon_to_gdp(epsilon, DELTA) / 8530
    product = 300 * min(ratio, ratio**0.6)
    steps = 50 if product <= 400 else 100
    return steps, product / steps


def methods(epsilon, n, classes, steps, rate):
    """Return what is compared, by name."""
    common = {
        "hidden_layer_sizes": (),
        "sampling_rate": 1.0,
        "max_iter": steps,
        "classes": classes,
        "n_samples": n,
    }
    clip = {"clip_norm": CLIP_NORM, **common}
    descent = {"optimizer": "sgd", "learning_rate": rate * CLIP_NORM / 20, **clip}
    chain = {
        "learning_rate": rate * CLIP_NORM,
        "decay_exponent": 0.0,
        "burn_in": 7 * steps // 10,
        **clip,
    }
    return {
        "DP-SGD": DPSGDClassifier(epsilon, **descent),
        "temperature": DPTemperatureScaler(
            DPSGDClassifier(0.99 * epsilon, **descent), epsilon=0.14 * epsilon, n_samples=n
        ),
        "SGLD": DPSGLDClassifier(epsilon, **chain),
        "softmax": DPVariationalLogisticRegression(epsilon, classes=classes, n_samples=n),
        "no privacy": DPSGDClassifier(float("inf"), **common),
    }


def figures(z, probabilities, seconds):
    """Return what is printed of one fit."""
    probabilities = np.minimum(probabilities, 1.0)  # from logarithms, an ulp or two above
    accuracy = np.mean(probabilities.argmax(axis=1) == z)
    error = expected_calibration_error(z, probabilities, n_bins=15)
    return accuracy, error, log_loss(z, probabilities), seconds


def fitted(model, name, X, y, Z, z):
    """Fit, and yield name and figures of each prediction."""
    if name == "softmax":
        X, Z = X[:, :N_FOR_SOFTMAX], Z[:, :N_FOR_SOFTMAX]
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    if name != "SGLD":
        yield name, figures(z, model.predict_proba(Z), seconds)
        return
    yield "SGLD last", figures(z, model.path_predictive(Z)[-1], seconds)
    yield "SGLD mean", figures(z, model.predict_proba(Z), seconds)


def choose(X, y, epsilons):
    """Print how settings do on 10 000 rows that are held back from training."""
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    X, Z, y, z = X[10_000:], X[:10_000], y[10_000:], y[:10_000]
    for epsilon in epsilons:
        for steps, rate in CHOICES:
            model = methods(epsilon, len(X), range(10), steps, rate)["SGLD"]
            for name, found in fitted(model, "SGLD", X, y, Z, z):
                show(f"{steps} steps, {rate:g}", epsilon, name, [found])


def show(what, epsilon, name, found):
    """Print one line of the table."""
    mean = np.mean(found, axis=0)
    error = np.std(found, axis=0, ddof=min(1, len(found) - 1)) / np.sqrt(len(found))
    cells = [f"{m:.4f} ± {e:.4f}" for m, e in zip(mean[:3], error, strict=False)]
    cells = "".join(f"{cell:>18}" for cell in cells)
    print(f"{what:<16}{epsilon:>5g}  {name:<12}{cells}{mean[3]:>10.1f}", flush=True)


def load(name, cache):
    """Return features and labels of a set, from the cache if they are there."""
    X, Z, y, z = _images.load(name)
    file = cache / f"{name}.npz"
    if not file.exists():
        X, Z = features(X, Z)
        np.savez(file, X=X, Z=Z)
    with np.load(file) as arrays:
        return arrays["X"], y, arrays["Z"], z


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["mnist", "digits", "pneumonia"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--cache", default=os.path.join(tempfile.gettempdir(), "skdp-images"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    cache = Path(arguments.cache)
    cache.mkdir(parents=True, exist_ok=True)
    columns = "".join(f"{name:>18}" for name in ("accuracy", "ECE", "log-loss"))
    print(f"{'set':<16}{'eps':>5}  {'method':<12}{columns}{'CPU s':>10}")
    for name in _images.available(["mnist"] if arguments.choose else arguments.sets):
        X, y, Z, z = load(name, cache)
        if arguments.choose:
            choose(X, y, arguments.epsilons)
            continue
        for epsilon in arguments.epsilons:
            of = methods(epsilon, len(X), np.unique(y), *settings(epsilon, len(X)))
            for method in arguments.methods or of:
                found = {}
                for _ in range(arguments.repetitions):
                    for shown, values in fitted(of[method], method, X, y, Z, z):
                        found.setdefault(shown, []).append(values)
                for shown, values in found.items():
                    show(name, epsilon, shown, values)


if __name__ == "__main__":
    main()
