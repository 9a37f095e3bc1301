"""The package as a whole: its layers, its tools, its imports."""

import subprocess
import sys
from pathlib import Path

import pytest

import skdp

ROOT = Path(__file__).resolve().parents[1]


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def tool(name):
    return str(Path(sys.executable).with_name(name))


@pytest.mark.parametrize(
    "command",
    [
        (tool("ruff"), "check", "."),
        (tool("ruff"), "format", "--check", "."),
        (tool("lint-imports"),),
    ],
    ids=["ruff check", "ruff format", "import-linter"],
)
def test_tools_find_nothing(command):
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_skdp_imports_neither_torch_nor_scikit_learn():
    code = (
        "import sys, skdp; print(sorted({'torch', 'sklearn', 'dp_accounting'} & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


LINEAR = """
import sys
import numpy as np
from skdp import (
    BoundedScaler, DPStandardScaler, DPVariationalLinearRegression, DPVariationalLogisticRegression,
    OPSPosteriorSampler,
)
from skdp.statistics import dp_mean

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
model = DPVariationalLogisticRegression(epsilon=1.0, data_norm=1.5, classes=[0, 1])
model.fit(X, X[:, 0] > 0).predict_proba(X)
dp_mean(X[:, 0], epsilon=1.0, lower=-1.0, upper=1.0)
print("torch" in sys.modules)
from skdp import DPSGDClassifier
print("torch" in sys.modules)
"""


def test_linear_models_and_statistics_import_no_torch_and_networks_do():
    done = run(sys.executable, "-W", "ignore", "-c", LINEAR)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_accountants_are_imported_by_the_first_fit():
    code = """
import sys
import numpy as np
from skdp import BoundedScaler, DPVariationalLogisticRegression
print({"dp_accounting", "scipy.signal", "torch"} & set(sys.modules))
model = DPVariationalLogisticRegression(epsilon=1.0, data_norm=1.5, classes=[0, 1])
X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
model.fit(X, X[:, 0] > 0)
print("dp_accounting" in sys.modules)
"""
    done = run(sys.executable, "-W", "ignore", "-c", code)
    assert done.stdout.splitlines() == ["set()", "True"], done.stderr


def test_rows_with_a_declared_norm_import_no_frames():
    code = "import sys, skdp.rows.bounds; print({'pandas', 'polars'} & set(sys.modules))"
    assert run(sys.executable, "-c", code).stdout.strip() == "set()"


def test_the_citation_is_of_this_version():
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {skdp.__version__}" in lines
    assert {"cff-version: 1.2.0", "authors:", "type: software"} <= set(lines)


def test_every_public_name_is_there():
    for name in skdp.__all__:
        assert getattr(skdp, name) is not None
    assert set(skdp.__all__) <= set(dir(skdp))
    with pytest.raises(AttributeError, match="nonsense"):
        skdp.nonsense  # noqa: B018


def test_files_name_the_version_of_the_package():
    lines = {
        "pyproject.toml": f'version = "{skdp.__version__}"',
        "CITATION.cff": f"version: {skdp.__version__}",
        "CHANGELOG.md": f"## {skdp.__version__.partition('.dev')[0]} (",
        "README.md": f"  skdp version            {skdp.__version__}",
    }
    for name, line in lines.items():
        assert line in (ROOT / name).read_text(encoding="utf-8"), name
