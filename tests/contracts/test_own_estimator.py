"""The page on estimators of your own: its code, as a module, passes the check that it shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "own_estimator.md"
# In a process of its own that has no test framework.
CHECK = """
import sys
sys.modules["pytest"] = None  # an import of it fails
from own_estimator import DPGaussianNB
from skdp.testing import check_private_estimator
check_private_estimator(DPGaussianNB(epsilon=100.0))
"""


@pytest.mark.thorough
def test_the_estimator_of_the_page_passes_and_uses_public_names_alone(tmp_path):
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
    assert not re.search(r"skdp\._|import _", code)
    (tmp_path / "own_estimator.py").write_text(code, "utf-8")
    command = [sys.executable, "-c", CHECK]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
