"""
Curves that a regulator can read
================================

Who earns more than 50 000 dollars? A linear model says that each year of age adds the same, which
is wrong. An additive one has a curve per column, and says how sure it is of each: its bands know of
sampling and of the privacy noise.

    python examples/plot_additive.py [folder]

reads the Adult census table from the folder that ``SKDP_DATA`` names, else from OpenML; prints the
figures and writes the picture to the folder (default ``additive_output``). It takes about a quarter
of a minute.
"""

import sys
from pathlib import Path

import matplotlib as mpl
from _tables import CATEGORIES, N_TRAIN, adult
from sklearn.metrics import log_loss

from skdp import DPAdditiveClassifier
from skdp.displays import AdditiveDisplay

mpl.use("Agg")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "additive_output")
folder.mkdir(parents=True, exist_ok=True)
train, test = adult()
y_train, y_test = train.pop("income"), test.pop("income")

# %%
# Round edges, which nobody needs to look at the rows for; levels are those of the code book. A
# column of which nothing is declared is refused, so that only these are passed on.

EDGES = {
    "age": range(0, 101, 5),
    "education_num": [0.5 + i for i in range(17)],
    "hours_per_week": range(0, 101, 5),
    "capital_gain": [*range(0, 20_000, 1000), *range(20_000, 100_001, 10_000)],
    "capital_loss": range(0, 5001, 200),
}
columns = [*EDGES, *CATEGORIES]
model = DPAdditiveClassifier(
    epsilon=1.0,
    delta=1e-5,
    edges=EDGES,
    categories=CATEGORIES,
    classes=["<=50K", ">50K"],
    n_samples=N_TRAIN,
).fit(train[columns], y_train)
print(model.privacy_)
p = model.predict_proba(test[columns])[:, 1]
accuracy = ((p > 0.5) == (y_test == ">50K")).mean()
print(f"test accuracy {accuracy:.4f}, log-loss {log_loss(y_test == '>50K', p):.4f}")

# %%
# The table behind the curves, for whoever wants to score by hand.

print(model.to_frame().query("feature == 'age'").round(2).to_string(index=False))

# %%
# Dark is the interval of a bin by itself; light is the band that holds the whole curve.

features = ["age", "education_num", "hours_per_week", "capital_gain", "relationship", "workclass"]
with mpl.rc_context({"font.size": 13}):  # to be read on a telephone too
    display = AdditiveDisplay.from_estimator(model, features=features, max_columns=2)
display.figure_.savefig(folder / "additive.png", dpi=120)
