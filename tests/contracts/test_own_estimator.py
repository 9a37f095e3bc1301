"""The page on estimators of your own: its code, as a module, passes the check that it shows."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from skdp.testing import check_private_estimator

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "own_estimator.md"


@pytest.mark.thorough
def test_the_estimator_of_the_page_passes_and_uses_public_names_alone(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
    assert not re.search(r"skdp\._|import _", code)
    path = tmp_path / "own_estimator.py"
    path.write_text(code, "utf-8")
    spec = importlib.util.spec_from_file_location("own_estimator", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "own_estimator", module)
    spec.loader.exec_module(module)
    check_private_estimator(module.DPGaussianNB(epsilon=100.0))
