"""
Patients, not admissions
========================

A hospital's table has a row per admission, and a patient may have forty of them. A guarantee per
row protects each admission and not the patient. With ``unit="group"`` the patient is what is
protected, with all admissions together, and ``groups=`` says whose each row is.

    python examples/plot_persons.py [folder]

reads 101 766 admissions of 71 518 diabetic patients from the folder that ``SKDP_DATA`` names, else
from OpenML; predicts readmission within 30 days; prints statements and figures, and writes the
picture to the folder (default ``persons_output``). It takes about a quarter of a minute.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import sklearn
from _tables import HOSPITAL_BOUNDS, HOSPITAL_CATEGORIES, admissions
from scipy.stats import norm
from sklearn.compose import ColumnTransformer
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import BoundedScaler, DPVariationalLogisticRegression
from skdp.preprocessing import NormClipper
from skdp.privacy import epsilon_to_gdp, gdp_to_epsilon

mpl.use("Agg")
import matplotlib.pyplot as plt

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "persons_output")
folder.mkdir(parents=True, exist_ok=True)
EPSILON, DELTA = 1.0, 1e-6
table = admissions()
y, patients = (table.pop("readmitted") == "<30").to_numpy(), table.pop("patient_nbr").to_numpy()
split = GroupShuffleSplit(1, test_size=0.25, random_state=0)
train, test = next(split.split(table, y, patients))

# %%
# Bounds and levels are declared. The numbers of patients and of admissions are private where
# persons are protected; the hospital declares about how many there are.

N_PATIENTS, ADMISSIONS_EACH = 54_000, 1.4
low, high = np.transpose(list(HOSPITAL_BOUNDS.values()))
encoder = OneHotEncoder(
    categories=list(HOSPITAL_CATEGORIES.values()), handle_unknown="ignore", sparse_output=False
)
columns = ColumnTransformer(
    [
        ("numbers", BoundedScaler(low, high), list(HOSPITAL_BOUNDS)),
        ("words", encoder, list(HOSPITAL_CATEGORIES)),
    ]
)
row_norm = (len(HOSPITAL_BOUNDS) + len(HOSPITAL_CATEGORIES)) ** 0.5


def model(epsilon, **facts):
    """A pipeline with public steps before one private one."""
    classifier = DPVariationalLogisticRegression(epsilon, DELTA, classes=[False, True], **facts)
    if "unit" in facts:
        classifier.set_fit_request(groups=True)
    return make_pipeline(columns, NormClipper(row_norm), classifier)


# %%
# The groups reach the private step by metadata routing. Its statement speaks of groups.

sklearn.set_config(enable_metadata_routing=True)
protected = model(EPSILON, unit="group", n_groups=N_PATIENTS, rows_per_group=ADMISSIONS_EACH)
protected.fit(table.iloc[train], y[train], groups=patients[train])
print(protected[-1].privacy_)

# %%
# What one had to do before: keep the first admission of each patient, or at most three and pay for
# three. And what one must not do, because it protects admissions and not patients.

number = table.iloc[train].groupby(patients[train]).cumcount().to_numpy()
of_three = gdp_to_epsilon(epsilon_to_gdp(EPSILON, DELTA) / 3, DELTA)
models = {"patients": protected}
for name, most, epsilon in (
    ("first admission only", 1, EPSILON),
    ("at most three, by hand", 3, of_three),
    ("admissions (patients are not protected)", np.inf, EPSILON),
    ("without privacy", np.inf, np.inf),
):
    kept = train[number < most]
    models[name] = model(epsilon, n_samples=len(kept)).fit(table.iloc[kept], y[kept])
scores = {}
for name, fitted in models.items():
    p = fitted.predict_proba(table.iloc[test])[:, 1]
    scores[name] = roc_auc_score(y[test], p), log_loss(y[test], p)
    print(f"{name}: AUC {scores[name][0]:.4f}, log-loss {scores[name][1]:.4f}")

# %%
# Intervals of a few effects. Those of the fit by patient know that a patient's admissions are
# alike; those of the fit by admission count each of them as if it were news.

effects = {
    "numbers__number_inpatient": "inpatient visits the year before",
    "numbers__num_medications": "number of medications",
    "words__diabetesMed_Yes": "takes diabetes medication",
    "words__discharge_disposition_id_22": "discharged to rehabilitation",
    "words__discharge_disposition_id_1": "discharged home",
}
names = protected[0].get_feature_names_out().tolist()
at = [names.index(name) for name in effects]
half = norm.ppf(0.95)
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
axes[0].plot([auc for auc, _ in scores.values()], list(scores), "o")
axes[0].set(xlabel="AUC, all admissions of other patients")
axes[0].grid(axis="x", alpha=0.4)
unprotected = "admissions (patients are not protected)"
for shift, name, label in ((-0.15, "patients", "patients"), (0.15, unprotected, "admissions")):
    fitted = models[name][-1]
    deviation = np.sqrt(np.diag(fitted.covariance_))[at]
    places = np.arange(len(at)) + shift
    error = half * deviation
    axes[1].errorbar(fitted.coef_[0, at], places, xerr=error, fmt="o", label=f"ε of {label}")
axes[1].set(
    xlabel="log-odds over the range, 90 % intervals", yticks=range(len(at)), xlim=(-0.5, 2.0)
)
axes[1].set_yticklabels(list(effects.values()))
axes[1].axvline(0, color="0.7", zorder=0)
axes[1].legend(frameon=False, loc="lower right")
for axis in axes:
    axis.invert_yaxis()
figure.savefig(folder / "persons.png", dpi=120)
