"""docs/benchmarks.md is what benchmarks/side_by_side.py writes from its figures."""

import copy
import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
spec = importlib.util.spec_from_file_location(
    "side_by_side", ROOT / "benchmarks" / "side_by_side.py"
)
side_by_side = importlib.util.module_from_spec(spec)
spec.loader.exec_module(side_by_side)


@pytest.fixture
def figures():
    return json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))


def text_of(figures):
    return "\n".join(side_by_side.page(figures)).rstrip() + "\n"


def cells_of(figures):
    return {
        (task, epsilon): methods
        for task, found in figures["utility"]["tasks"].items()
        for epsilon, methods in found["cells"].items()
        if epsilon != "inf"
    }


def test_the_page_is_written_from_the_figures(figures):
    assert set(figures) == set(side_by_side.PARTS)
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == text_of(figures)


def test_its_pictures_are_there(figures):
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text_of(figures))
    assert len(pictures) == len(side_by_side.DRAWN)
    for picture in pictures:
        assert (DOCS / picture).is_file()


@pytest.mark.parametrize("metric", side_by_side.METRICS)
def test_a_comparison_is_turned_round_with_its_figures(figures, metric):
    there = side_by_side.verdicts(cells_of(figures), metric, "skdp", ("Opacus, 0.1",))
    back = side_by_side.verdicts(cells_of(figures), metric, "Opacus, 0.1", ("skdp",))
    assert (there["better"], there["worse"]) == (back["worse"], back["better"])
    assert there["undecided"] == back["undecided"]


def test_of_several_peers_the_best_is_met():
    low, high = [0.1, 0.1, 0.11], [0.9, 0.9, 0.91]
    cell = {"ours": [0.5, 0.5, 0.51], "low": low, "high": high}
    cells = {("task", "1"): {name: {"log-loss": v, "accuracy": v} for name, v in cell.items()}}
    for metric in ("log-loss", "accuracy"):
        found = side_by_side.verdicts(cells, metric, "ours", ("low", "high"))
        assert found["worse"] == [("task", "1")]
        words = side_by_side.outcome(cells, metric, "ours", ("low", "high"))
        assert "(task at ε = 1)" in words
        assert f"{'lower' if metric == 'accuracy' else 'higher'} in 1 (" in words


def test_without_peers_the_page_says_so(figures):
    alone = copy.deepcopy(figures)
    for methods in cells_of(alone).values():
        for name in [name for name in methods if not name.startswith("skdp")]:
            del methods[name]
    for found in alone["curves"]["tasks"].values():
        for methods in found.values():
            methods.pop("DP-EBM, defaults", None)
            methods.pop("DP-EBM, best", None)
    for found in alone["images"]["sets"].values():
        for methods in found.values():
            methods.pop("Opacus", None)
    for name in ("Opacus", "diffprivlib"):
        alone["memory"]["peaks"].pop(name, None)
    alone["accounting"].pop("diffprivlib", None)
    for found in alone["time"]["tables"].values():
        found.pop("there", None)
    for found in (alone["time"]["network"]["seconds"], *alone["time"]["steps"].values()):
        for name in [name for name in found if name.startswith("Opacus")]:
            del found[name]
    for part in alone.values():
        for name in ("opacus", "diffprivlib", "its scikit-learn", "interpret-core"):
            part["packages"].pop(name, None)
    text = " ".join(text_of(alone).split())
    assert text.count("Not installed, and left out: Opacus and diffprivlib.") == len(alone) - 3
    assert text.count("Not installed, and left out: DP-EBM.") == 1
    assert "against DP-EBM" not in text
    assert "| DP-EBM" not in text
    assert "| diffprivlib" not in text
    assert "None" not in text
