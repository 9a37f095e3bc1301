"""
A network of your own
=====================

`DPSGDClassifier` trains any `torch.nn.Module` that treats each record by itself. This example
writes a small convolutional network for 8 × 8 digits, shows what is checked before a private row is
read and what is refused, and compares it with networks that come for nothing.

It takes about half a minute on one core; a GPU is used where there is one.
"""

# %%
# Pixels are 0 to 16, as the data set's description says: dividing by 16 reads no data. Networks
# work in the precision of X, and single precision is the faster one.

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    np.float32(X / 16), y, test_size=360, random_state=0, stratify=y
)
PUBLIC = {"classes": range(10), "n_samples": len(X_train)}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# %%
# The module gets rows, (n, 64), and returns logits, (n, 10), without softmax. `GroupNorm`
# normalises each image by itself. A class or a function of (n_features, n_outputs) that makes a
# module is better than a module: `fit` then starts from fresh weights, and so does every clone.

from torch import nn

from skdp import DPSGDClassifier


class SmallConvNet(nn.Module):
    """Eight 3 × 3 filters, pooled, and a linear layer."""

    def __init__(self, n_features, n_outputs, norm=None):
        super().__init__()
        self.images = nn.Unflatten(1, (1, 8, 8))
        self.filters = nn.Conv2d(1, 8, 3)
        self.norm = nn.GroupNorm(2, 8) if norm is None else norm
        self.linear = nn.Linear(8 * 3 * 3, n_outputs)
        nn.init.zeros_(self.linear.weight)  # all classes equally likely, until data say otherwise

    def forward(self, x):
        """Return logits, (n, n_outputs)."""
        x = torch.tanh(self.norm(self.filters(self.images(x))))
        return self.linear(nn.functional.avg_pool2d(x, 2).flatten(1))


network = DPSGDClassifier(
    epsilon=3.0, delta=1e-5, module=SmallConvNet, device=DEVICE, **PUBLIC
).fit(X_train, y_train)
print(f"ε = 3 on {DEVICE}: accuracy {network.score(X_test, y_test):.3f} on held-out rows")
print(network.privacy_)

# %%
# What a module must not do. Clipping bounds what one record can change only if each record's
# gradient is its own. Batch normalisation, and anything else that mixes the records of a batch,
# lets one record move all of them. Before a private row is used, the module is tried on made-up
# records: alone and among others, in training and in evaluation, and its gradients against a plain
# loop.


class Centred(nn.Module):
    """Subtracts the mean of the batch, by hand."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.linear = nn.Linear(n_features, n_outputs)

    def forward(self, x):
        """Return logits, (n, n_outputs)."""
        return self.linear(x - x.mean(dim=0))


refused = {
    "batch normalisation": lambda p, k: SmallConvNet(p, k, norm=nn.BatchNorm2d(8)),
    "a mean over the batch": Centred,
    "an LSTM with projections": lambda p, k: nn.Sequential(nn.LSTM(p, 2 * k, proj_size=k)),
    "softmax with a class too few": lambda p, k: nn.Sequential(nn.Linear(p, k - 1), nn.Softmax(1)),
}
for name, module in refused.items():
    try:
        DPSGDClassifier(module=module, **PUBLIC).fit(X_train, y_train)
    except ValueError as refusal:
        print(f"\n{name}: {refusal}")

# %%
# A trial finds what mixes records on the inputs that it tries. It cannot find a module that mixes
# only some inputs, weights that were learned from the private rows, or a softmax before a loss that
# applies its own: those are up to you.
#
# Is a convolution worth it? Not on 1437 images of 8 × 8 pixels: a perceptron is as good and
# faster. Each point is the mean of three fits, on the same public data set; on private rows these
# would be 27 releases, and their choice one more.

import matplotlib.pyplot as plt
from sklearn.metrics import log_loss

from skdp.displays import PrivacyUtilityDisplay

MODELS = {
    "convolution": {"module": SmallConvNet, "device": DEVICE},
    "perceptron of 100": {"hidden_layer_sizes": (100,)},
    "linear": {"hidden_layer_sizes": ()},
}
EPSILONS, REPETITIONS = (0.5, 2.0, 8.0), 3
scores = {name: np.empty((2, len(EPSILONS), REPETITIONS)) for name in MODELS}
for i, epsilon in enumerate(EPSILONS):
    for name, options in MODELS.items():
        for j in range(REPETITIONS):
            model = DPSGDClassifier(epsilon, 1e-5, **options, **PUBLIC).fit(X_train, y_train)
            p = model.predict_proba(X_test)
            scores[name][:, i, j] = np.mean(p.argmax(axis=1) == y_test), log_loss(y_test, p)
print()
for name, (accuracy, loss) in scores.items():
    cells = [
        f"ε={epsilon:g}: {a:.3f}, {b:.3f}"
        for epsilon, a, b in zip(EPSILONS, accuracy.mean(axis=1), loss.mean(axis=1), strict=True)
    ]
    print(f"{name:<20} accuracy, log-loss at", "   ".join(cells))

for row, metric in enumerate(("Accuracy", "Log-loss")):
    _, ax = plt.subplots(layout="constrained")
    for name, values in scores.items():
        PrivacyUtilityDisplay.from_arrays(
            EPSILONS, values[row], name=name, metric=f"{metric} on held-out rows", ax=ax
        )
    title = f"Digits, 1437 training rows: mean ± 1 sd of {REPETITIONS} fits"
    ax.set(xlabel="ε at δ = 1e-5", title=title)

# %%
# The trained module is an ordinary one: `module_`. Its weights are as private as everything else
# that the fit releases, so its filters may be looked at.

filters = network.module_.filters.weight.detach().cpu()[:, 0]
figure, axes = plt.subplots(2, 4, figsize=(6.4, 3.4), layout="constrained")
size = float(filters.abs().max())
for ax, image in zip(axes.flat, filters, strict=True):
    ax.imshow(image, cmap="RdBu", vmin=-size, vmax=size)
    ax.set_axis_off()
figure.suptitle("The eight filters, at ε = 3")
plt.show()
