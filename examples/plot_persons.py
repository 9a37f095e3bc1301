"""
Patients, not admissions
========================

A hospital's table has a row per admission, and a patient may have forty of them. A guarantee per
row protects each admission and not the patient. With ``unit=Persons(...)`` the patient is what is
protected, with all admissions together, and ``groups=`` says whose each row is.

Here are 101 766 admissions of 71 518 diabetic patients, and the question is who will be back within
30 days. It takes about a quarter of a minute.

Bounds and levels are declared; a value beyond a bound counts as the bound, and a level that is not
listed as none. The numbers of patients and of admissions are private where persons are protected;
the hospital declares about how many there are.
"""

EPSILON, DELTA = 1.0, 1e-6
N_PATIENTS, ADMISSIONS_EACH = 54_000, 1.4
BOUNDS = {
    "time_in_hospital": (0, 14),
    "num_lab_procedures": (0, 100),
    "num_procedures": (0, 6),
    "num_medications": (0, 40),
    "number_outpatient": (0, 5),
    "number_emergency": (0, 5),
    "number_inpatient": (0, 8),
    "number_diagnoses": (0, 16),
}
WORDS = {
    "race": "Caucasian AfricanAmerican Hispanic Asian Other",
    "gender": "Female Male",
    "age": " ".join(f"[{age}-{age + 10})" for age in range(0, 100, 10)),
    "admission_type_id": "1 2 3",
    "discharge_disposition_id": "1 3 6 2 22 5",
    "admission_source_id": "7 1 17 4",
    "max_glu_serum": ">200 >300 Norm",
    "A1Cresult": ">7 >8 Norm",
    "insulin": "No Steady Up Down",
    "change": "Ch",
    "diabetesMed": "Yes",
}

# %%
# From ``diabetes130/`` in the folder that ``SKDP_DATA`` names, if you have it there, else from
# OpenML.

import os
from pathlib import Path

import pandas as pd
from sklearn.datasets import fetch_openml

file = Path(os.environ.get("SKDP_DATA", ""), "diabetes130", "diabetes130.csv.gz")
if file.is_file():
    table = pd.read_csv(file, keep_default_na=False, dtype=str)
else:
    try:
        table = fetch_openml(data_id=4541).frame.astype(str)
    except OSError as error:
        raise RuntimeError(
            "The admissions are missing: OpenML cannot be reached, and SKDP_DATA names no folder "
            "with diabetes130/diabetes130.csv.gz."
        ) from error
table = table.astype(dict.fromkeys(BOUNDS, float))

# %%
# The patients of a quarter of the admissions are kept for the test.

from sklearn.model_selection import GroupShuffleSplit

y, patients = (table.pop("readmitted") == "<30").to_numpy(), table.pop("patient_nbr").to_numpy()
split = GroupShuffleSplit(1, test_size=0.25, random_state=0)
train, test = next(split.split(table, y, patients))

# %%
# Public steps, then a private one.

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import BoundedScaler, DPVariationalLogisticRegression, Persons
from skdp.preprocessing import NormClipper

low, high = np.transpose(list(BOUNDS.values()))
encoder = OneHotEncoder(
    categories=[levels.split() for levels in WORDS.values()],
    handle_unknown="ignore",
    sparse_output=False,
)
columns = ColumnTransformer(
    [("numbers", BoundedScaler(low, high), list(BOUNDS)), ("words", encoder, list(WORDS))]
)
row_norm = (len(BOUNDS) + len(WORDS)) ** 0.5


def model(epsilon, **facts):
    """A pipeline with public steps before one private one."""
    classifier = DPVariationalLogisticRegression(epsilon, DELTA, classes=[False, True], **facts)
    if "unit" in facts:
        classifier.set_fit_request(groups=True)
    return make_pipeline(columns, NormClipper(row_norm), classifier)


# %%
# The groups reach the private step by metadata routing. Its statement speaks of groups.

import sklearn

sklearn.set_config(enable_metadata_routing=True)
protected = model(EPSILON, unit=Persons(N_PATIENTS, rows_per_group=ADMISSIONS_EACH))
protected.fit(table.iloc[train], y[train], groups=patients[train])
print(protected[-1].privacy_)

# %%
# What one had to do before: keep the first admission of each patient, or at most three and pay for
# three. And what one must not do, because it protects admissions and not patients.

from sklearn.metrics import log_loss, roc_auc_score

from skdp.privacy import epsilon_to_gdp, gdp_to_epsilon

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
# How well each ranks the admissions of other patients.

import matplotlib.pyplot as plt

_, axis = plt.subplots(layout="constrained")
axis.plot([auc for auc, _ in scores.values()], [name.replace(" (", "\n(") for name in scores], "o")
axis.set(xlabel="AUC, all admissions of other patients")
axis.grid(axis="x", alpha=0.4)
axis.invert_yaxis()

# %%
# Intervals of a few effects. Those of the fit by patient account for the likeness of a patient's
# admissions; those of the fit by admission treat all of them as independent.

from scipy.stats import norm

effects = {
    "numbers__number_inpatient": "inpatient visits\nthe year before",
    "numbers__num_medications": "number of\nmedications",
    "words__diabetesMed_Yes": "takes diabetes\nmedication",
    "words__discharge_disposition_id_22": "discharged to\nrehabilitation",
    "words__discharge_disposition_id_1": "discharged home",
}
names = protected[0].get_feature_names_out().tolist()
at = [names.index(name) for name in effects]
half = norm.ppf(0.95)
_, axis = plt.subplots(layout="constrained")
unprotected = "admissions (patients are not protected)"
for shift, name, label in ((-0.15, "patients", "patients"), (0.15, unprotected, "admissions")):
    fitted = models[name][-1]
    deviation = np.sqrt(np.diag(fitted.covariance_))[at]
    places = np.arange(len(at)) + shift
    error = half * deviation
    axis.errorbar(fitted.coef_[0, at], places, xerr=error, fmt="o", label=f"ε of {label}")
axis.set(xlabel="log-odds over the range, 90 % intervals", xlim=(-0.5, 2.0))
axis.set_yticks(range(len(at)), list(effects.values()))
axis.axvline(0, color="0.7", zorder=0)
axis.legend(frameon=False, loc="lower right")
axis.invert_yaxis()
plt.show()
