"""The odds ratio of readmission per earlier visit, under bounds of visits from 25 to 1000.

    SKDP_DATA=... python benchmarks/visits.py [--epsilon 1] [--repetitions 5] [--json FILE]

Encounters of diabetes130, readmission within 30 days, columns with the bounds of a code book; the
unit is a patient with at most 40 encounters (71518 patients; δ = 1e-6). Without privacy the odds
ratio per visit is about 1.30. Printed: each 95 % interval, its width, and whether it holds that.
"""

import argparse
import json
import math
import warnings
from pathlib import Path

import numpy as np
from real_tables import DELTA, LEAST_ROWS, MOST_INFLATION, MOST_LEVELS, estimate, table_of

from skdp import DPVariationalLogisticRegression, Persons

BOUNDS = {
    "time_in_hospital": (1, 14), "num_lab_procedures": (0, 150), "num_procedures": (0, 10),
    "num_medications": (0, 100), "number_outpatient": (0, 50), "number_emergency": (0, 100),
    "number_inpatient": (0, 30), "number_diagnoses": (0, 20),
}  # fmt: skip
CATEGORIES = [
    "race", "gender", "age", "insulin", "change", "diabetesMed", "A1Cresult", "max_glu_serum",
]  # fmt: skip
N_PATIENTS, MOST_ENCOUNTERS, VISITS = 71518, 40, "number_inpatient"


def design():
    """Columns, their names and bounds, targets, and patients."""
    table = table_of("diabetes130")
    X = [table[name].to_numpy(float) for name in BOUNDS]
    names, bounds = list(BOUNDS), list(BOUNDS.values())
    for name in CATEGORIES:
        levels = table[name].astype(str)
        counts = levels.value_counts()
        for level in [k for k in counts.index[1:] if counts[k] >= LEAST_ROWS][:MOST_LEVELS]:
            X.append((levels == level).to_numpy(float))
            names.append(f"{name}={level}")
            bounds.append((0, 1))
    X = np.column_stack(X)
    keep = list(range(X.shape[1]))
    while True:  # columns that the others determine
        inflation = np.diag(np.linalg.pinv(np.corrcoef(X[:, keep].T)))
        if inflation.max() < MOST_INFLATION:
            break
        keep.pop(int(inflation.argmax()))
    y = (table.readmitted == "<30").to_numpy().astype(int)
    bounds = np.array(bounds, dtype=float)[keep]
    return X[:, keep], [names[j] for j in keep], bounds, y, table.patient_nbr.to_numpy()


def persons():
    """Facts about patients."""
    return {"unit": Persons(N_PATIENTS, max_rows=MOST_ENCOUNTERS)}


def main():
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--highest", default="25,100,1000", help="upper bounds of visits")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, names, bounds, y, patients = design()
    at, (whole, errors), found = names.index(VISITS), estimate("logistic", X, y), []
    ends = np.exp(whole[at] + 1.96 * errors[at] * np.array([-1, 1]))
    reference = math.exp(whole[at])
    print(f"without privacy {reference:.3f} [{ends[0]:.3f}, {ends[1]:.3f}], {len(y)} encounters")
    for highest in map(float, options.highest.split(",")):
        bounds[at] = 0, highest
        for _ in range(options.repetitions):
            model = DPVariationalLogisticRegression(
                options.epsilon, DELTA, classes=[0, 1], bounds=bounds, **persons()
            ).fit(X, y, groups=patients)
            deviation = math.sqrt(model.covariance_[at, at])
            middle = float(np.ravel(model.coef_)[at])
            low, high = (math.exp(middle + 1.96 * sign * deviation) for sign in (-1, 1))
            held = bool(low <= reference <= high)
            found.append({"highest": highest, "low": low, "high": high, "held": held})
            print(
                f"0 to {highest:<5g} {math.exp(middle):.3f} [{low:.3f}, {high:.3f}], "
                f"width {high - low:.3f}, {'holds' if held else 'misses'} {reference:.3f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"reference": reference, "found": found}, indent=1))


if __name__ == "__main__":
    main()
