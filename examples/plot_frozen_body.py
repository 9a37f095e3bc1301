"""
A frozen body and a private head
================================

Private training is expensive where a network is large: the noise hits every weight. Weights that
were learned from public images need none of it. Here a residual network with batch normalisation
learns from public digits without privacy, is frozen, and carries a linear head that learns other
digits by DP-SGD.

It takes about half a minute on one core. In `plot_dp_sgld_pneumonia.py` the body is an EfficientNet
that has learned from photographs, and the private images are X-rays.
"""

# %%
# The digits 0 to 4 stand for public images, 5 to 9 for private ones. Public has to mean that nobody
# in them needs protection from this release. These two halves have writers in common, so this is a
# stand-in for two archives: with real people the public images come from others.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
X = np.float32(X / 16).reshape(-1, 1, 8, 8)
X_public, y_public = X[y < 5], y[y < 5]
X_train, X_test, y_train, y_test = train_test_split(
    X[y >= 5], y[y >= 5], test_size=0.3, random_state=0, stratify=y[y >= 5]
)
PRIVATE = {"classes": range(5, 10), "n_samples": len(X_train)}

# %%
# The body: an input layer and three residual blocks. Its last normalisation gives the features one
# scale, for which a clipping norm of 1 is about right.

from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """x + two normalised convolutions of x, halved in size where channels double."""

    def __init__(self, n_in, n_out, norm):
        super().__init__()
        stride = n_out // n_in
        self.change = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False),
            norm(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            norm(n_out),
        )
        same = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
        self.keep = nn.Identity() if stride == 1 else nn.Sequential(same, norm(n_out))

    def forward(self, x):
        """Return maps (n, n_out, height / stride, width / stride)."""
        return F.relu(self.keep(x) + self.change(x))


class Body(nn.Module):
    """Images (n, 1, 8, 8) to 128 features."""

    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.start = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), norm(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16, 16, norm), Block(16, 32, norm), Block(32, 32, norm))
        self.last = norm(32)

    def forward(self, x):
        """Return features (n, 128)."""
        x = self.last(self.blocks(self.start(x)))
        return F.adaptive_avg_pool2d(x, 2).flatten(1) / 4


# %%
# What a body learns from five digits alone forgets what only the others have. So it learns to tell
# more classes apart: public digits, turned and mirrored in eight ways.

import torch


def eight_ways(X, y):
    """Turn and mirror images, each way a class of its own."""
    turned = [X.rot90(k, (2, 3)) for k in range(4)]
    ways = turned + [images.flip(3) for images in turned]
    return torch.cat(ways), torch.cat([8 * y + way for way in range(8)])


def trained(body, X, y, n_epochs=4):
    """Train a body, and a head that is thrown away, on public rows in the ordinary way."""
    network = nn.Sequential(body, nn.Linear(128, 40))
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    X, y = eight_ways(torch.from_numpy(X), torch.from_numpy(y))
    for _ in range(n_epochs):
        for batch in torch.randperm(len(X)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(X[batch]), y[batch]).backward()
            optimizer.step()
    return body


torch.manual_seed(0)  # of what is public; private fits have no seed
body = trained(Body(), X_public, y_public)

# %%
# As it trains, batch normalisation mixes the records of a batch: no record has a gradient of its
# own, and the fit is refused. Frozen, with the statistics of public images, it is a fixed function
# of each record. ``eval()`` freezes the statistics, ``requires_grad_(False)`` the weights.

from skdp import DPSGDClassifier

try:
    DPSGDClassifier(module=nn.Sequential(body, nn.Linear(128, 5)), **PRIVATE).fit(X_train, y_train)
except ValueError as refusal:
    print(f"refused: {refusal}\n")

body.eval().requires_grad_(False)
network = DPSGDClassifier(1.0, 1e-5, module=nn.Sequential(body, nn.Linear(128, 5)), **PRIVATE)
network.fit(X_train, y_train)
n_private = sum(p.numel() for p in network.module_.parameters() if p.requires_grad)
n_all = sum(p.numel() for p in network.module_.parameters())
print(f"private weights: {n_private} of {n_all}")
print(f"ε = 1: accuracy {network.score(X_test, y_test):.3f} on held-out digits 5 to 9")
print(network.privacy_)

# %%
# A frozen body gives the same features in every step. Worked out once, they make a linear model the
# same private fit in a fraction of the time. So each point below is the mean of ten fits, on
# features of the body and on pixels. (On private rows each of these fits would be a release.) The
# cross is the whole network trained privately, with `GroupNorm`, which treats each image by itself.

from functools import partial

import matplotlib.pyplot as plt

from skdp.displays import PrivacyUtilityDisplay


def features(X):
    """Return what the frozen body makes of images, each by itself."""
    return body(torch.from_numpy(X)).numpy()


ROWS = {
    "frozen body, private head": (features(X_train), features(X_test)),
    "pixels, private linear model": (X_train.reshape(-1, 64), X_test.reshape(-1, 64)),
}
EPSILONS, REPETITIONS = (0.25, 0.5, 1.0, 2.0, 4.0), 10
figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, (train, test) in ROWS.items():
    scores = np.empty((len(EPSILONS), REPETITIONS))
    for i, epsilon in enumerate(EPSILONS):
        model = DPSGDClassifier(epsilon, 1e-5, hidden_layer_sizes=(), **PRIVATE)
        scores[i] = [model.fit(train, y_train).score(test, y_test) for _ in range(REPETITIONS)]
    cells = [f"{mean:.3f} at ε={e:g}" for e, mean in zip(EPSILONS, scores.mean(1), strict=True)]
    print(f"{name:<30}", *cells, sep="  ")
    PrivacyUtilityDisplay.from_arrays(EPSILONS, scores, name=name, metric="Accuracy", ax=ax)

whole = nn.Sequential(Body(norm=partial(nn.GroupNorm, 4)), nn.Linear(128, 5))
whole = DPSGDClassifier(1.0, 1e-5, module=whole, **PRIVATE).fit(X_train, y_train)
score = whole.score(X_test, y_test)
print(f"{'all weights private':<30}  {score:.3f} at ε=1")
ax.plot(1.0, score, "kx", markersize=9, label="all weights private, one fit")
ax.legend(loc="lower right")
ax.set(xlabel="ε at δ = 1e-5", ylabel="Accuracy on held-out rows")
ax.set_title(f"Digits 5 to 9, {len(X_train)} private rows: mean ± 1 sd of {REPETITIONS} fits")
plt.show()
