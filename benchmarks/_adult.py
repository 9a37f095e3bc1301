"""The Adult census table: from the folder named by SKDP_DATA, else from OpenML."""

import os
from pathlib import Path

import pandas as pd

# What the census bureau's code book says, before anyone looks at the rows.
BOUNDS = {
    "age": (0, 100),
    "education_num": (1, 16),
    "capital_gain": (0, 100_000),
    "capital_loss": (0, 5_000),
    "hours_per_week": (0, 100),
}
CATEGORIES = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov "
    "Without-pay Never-worked",
    "education": "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college "
    "Assoc-voc Assoc-acdm Bachelors Masters Prof-school Doctorate",
    "marital_status": "Married-civ-spouse Divorced Never-married Separated Widowed "
    "Married-spouse-absent Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native_country": "United-States Cambodia England Puerto-Rico Canada Germany "
    "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras Philippines "
    "Italy Poland Jamaica Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador "
    "Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
    "Trinadad&Tobago Peru Hong Holand-Netherlands",
}
CATEGORIES = {column: names.split() for column, names in CATEGORIES.items()}
N_TRAIN = 32_561


def adult():
    """Return (training table, test table) with the label in the column ``income``.

    From ``adult/adult_train.csv.gz`` and ``adult/adult_test.csv.gz`` in the folder that the
    environment variable ``SKDP_DATA`` names, else from OpenML.
    """
    folder = Path(os.environ.get("SKDP_DATA", "")) / "adult"
    if "SKDP_DATA" in os.environ and folder.is_dir():
        files = (folder / f"adult_{part}.csv.gz" for part in ("train", "test"))
        return tuple(pd.read_csv(file, na_values="?") for file in files)
    from sklearn.datasets import fetch_openml

    try:
        table = fetch_openml("adult", version=2, as_frame=True).frame
    except OSError as error:
        raise SystemExit(
            "The Adult table is neither in a folder nor to be had from OpenML: put "
            "adult/adult_train.csv.gz and adult/adult_test.csv.gz into a folder and name it in the "
            "environment variable SKDP_DATA."
        ) from error
    table = table.rename(columns=lambda name: name.replace("-", "_").replace("class", "income"))
    table = table.rename(columns={"workincome": "workclass"})
    text = table.select_dtypes(["category", "object"]).columns
    table[text] = table[text].astype(object)
    return table.iloc[:N_TRAIN], table.iloc[N_TRAIN:]
