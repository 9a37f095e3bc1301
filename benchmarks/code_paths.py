"""How much code a fit enters: files, functions, and changes of file before the first release.

    python benchmarks/code_paths.py

Of the second fit of each class in a process: plans are known then, modules are loaded, and what is
said once has been said. Functions are those of skdp that are called at least once, lambdas and
comprehensions aside; a change of file is a call into another file than that of the call before.
Last is the time of such a fit, the least of several, without the tracer.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

import skdp
from skdp import (
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    OPSPosteriorSampler,
)

N, D = 2000, 10
PACKAGE = str(Path(skdp.__file__).parent)
# files, functions and changes of file: what a reader should have to follow at most
GOALS = {
    "DPVariationalLogisticRegression": (20, 120, 40),
    "DPSGDClassifier": (22, 140, 70),
    "DPStandardScaler": (14, 60, 25),
    "OPSPosteriorSampler": (20, 120, None),
}


def estimators() -> dict[str, Any]:
    """Make an estimator of each class, with its public facts declared."""
    known: dict[str, Any] = {"classes": [0, 1], "n_samples": N}
    return {
        "DPVariationalLogisticRegression": DPVariationalLogisticRegression(**known),
        "DPSGDClassifier": DPSGDClassifier(**known, max_iter=20),
        "DPStandardScaler": DPStandardScaler(),
        "OPSPosteriorSampler": OPSPosteriorSampler(**known),
    }


class Path_(NamedTuple):
    """What a call entered."""

    files: list[str]
    functions: list[str]
    changes: int | None


def path_of(call: Callable[[], Any]) -> Path_:
    """Trace a call."""
    codes: set[CodeType] = set()
    last, changes, released = "", 0, False

    def entered(frame: FrameType | None) -> None:
        nonlocal last, changes
        while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        file = "" if frame is None else frame.f_code.co_filename
        if file and not released:
            changes += bool(last) and file != last
            last = file

    def traced(frame: FrameType, event: str, _: Any) -> None:
        nonlocal released
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or event not in ("call", "return"):
            return
        if event == "call":
            if not code.co_name.startswith("<"):
                codes.add(code)
            released |= code.co_filename.endswith("release_hook.py") and code.co_name == "release"
            entered(frame)

    sys.setprofile(traced)
    try:
        call()
    finally:
        sys.setprofile(None)
    names = [f"{Path(c.co_filename).relative_to(PACKAGE)}: {c.co_qualname}" for c in codes]
    files = {c.co_filename for c in codes}
    return Path_(sorted(files), sorted(names), changes if released else None)


def main() -> None:
    """Print the table; with an argument, also the functions of the classes whose name has it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, D))
    y = (X @ rng.normal(size=D) > 0).astype(int)
    warnings.simplefilter("ignore")
    print(f"{'second fit':34}{'files':>12}{'functions':>14}{'changes':>12}{'ms':>8}")
    for name, model in estimators().items():
        model.fit(X, y)
        found = path_of(lambda model=model: model.fit(X, y))
        times = []
        for _ in range(5):
            start = time.perf_counter()
            model.fit(X, y)
            times.append(time.perf_counter() - start)
        figures = (len(found.files), len(found.functions), found.changes)
        shown = [f"{n} ({goal})" for n, goal in zip(figures, GOALS[name], strict=True)]
        print(f"{name:34}{shown[0]:>12}{shown[1]:>14}{shown[2]:>12}{1e3 * min(times):8.1f}")
        if sys.argv[1:] and sys.argv[1] in name:
            print("\n".join(f"  {one}" for one in found.functions))


if __name__ == "__main__":
    main()
