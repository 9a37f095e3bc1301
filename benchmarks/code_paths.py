"""How much of skdp a fit walks through: files, functions, and changes of file before it releases.

A reader follows a fit as the interpreter does. This counts the code objects (file and qualified
name) of the package that a second fit of a process enters, so that what is cached is not walked
again, and how often the walk changes its file up to the first release. It reads nothing but public
classes, and so runs on any version: give the folder that holds the package.

    python benchmarks/code_paths.py [folder of another version]
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np


class Walk:
    """Own functions that were entered, in order, and where among them the first release was."""

    def __init__(self, package: Path) -> None:
        self._package = str(package)
        self.entered: list[tuple[str, str]] = []
        self.first_release: int | None = None

    def __call__(self, frame: FrameType, kind: str, argument: Any) -> None:
        """Note a call; the form that `sys.setprofile` asks for."""
        code = frame.f_code
        if kind != "call" or not code.co_filename.startswith(self._package):
            return
        name = code.co_qualname  # type: ignore[attr-defined]
        self.entered.append((code.co_filename, name))
        if self.first_release is None and name in ("release", "release_on_grid"):
            self.first_release = len(self.entered)

    def figures(self) -> tuple[int, int, int, int]:
        """Files, functions; changes of file before the first release; calls until then."""
        distinct = set(self.entered)
        before = self.entered[: self.first_release]
        changes = sum(a[0] != b[0] for a, b in itertools.pairwise(before))
        return len({file for file, _ in distinct}), len(distinct), changes, len(before)


def walk(fit: Any, package: Path) -> Walk:
    """Fit twice and follow the second fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
        followed = Walk(package)
        threading.setprofile(followed)
        sys.setprofile(followed)
        try:
            fit()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return followed


def main() -> None:
    """Print a row per class."""
    if len(sys.argv) > 1:
        sys.path.insert(0, sys.argv[1])
    import skdp

    package = Path(skdp.__file__).parent
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 3))
    y = (X[:, 0] > 0).astype(int)
    known = {"classes": [0, 1], "n_samples": 400}
    subjects = {
        "DPVariationalLogisticRegression": known,
        "DPVariationalLinearRegression": {"n_samples": 400},
        "DPVariationalPoissonRegression": {"n_samples": 400},
        "DPSGDClassifier": known,
        "DPSGLDClassifier": known,
        "OPSPosteriorSampler": known,
        "DPStandardScaler": {},
        "DPPCA": {},
        "DPQuantileScaler": {},
    }
    print(f"{'class':34} files functions changes calls-before-release")
    for name, parameters in subjects.items():
        kind = getattr(skdp, name, None) or getattr(skdp.preprocessing, name)
        followed = walk(lambda: kind(**parameters).fit(X, y), package)  # noqa: B023
        print(f"{name:34} {' '.join(f'{n:7d}' for n in followed.figures())}")


if __name__ == "__main__":
    main()
