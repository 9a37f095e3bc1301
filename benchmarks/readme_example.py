"""How often intervals of the first example of README.md hold the estimate without privacy.

    python benchmarks/readme_example.py [--fits FITS]

Prints that estimate, and the share of the fits whose 90 % interval holds it, by
column. Fits have no seed.
"""

import argparse
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

README = Path(__file__).resolve().parents[1] / "README.md"


def main():
    """Run the example, and its fit as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=300)
    fits = parser.parse_args().fits
    example = {}
    with redirect_stdout(StringIO()):
        exec(re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)[0], example)
    data, model = (example["X"], example["y"]), example["clf"]
    truth = LogisticRegression(C=np.inf, max_iter=10_000, tol=1e-8).fit(*data).coef_[0]
    held = []
    for _ in range(fits):
        fit = clone(model).fit(*data)
        deviation = np.sqrt(np.diag(fit.covariance_))[: len(truth)]
        held.append(np.abs(np.ravel(fit.coef_) - truth) <= 1.645 * deviation)
    for name, value, share in zip(data[0], truth, np.mean(held, axis=0), strict=True):
        print(f"{name}: {value:.2f}, held by {100 * share:.1f} % of {fits} fits")


if __name__ == "__main__":
    main()
