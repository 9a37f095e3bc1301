"""docs/benchmarks.md and figures in docs/method.md are what benchmarks/ write from results."""

import json
import re
from pathlib import Path

import method_page
import pytest
import side_by_side

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture
def figures():
    return json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))


def text_of(figures):
    return "\n".join(side_by_side.page(figures)).rstrip() + "\n"


def cells_of(figures):
    tasks = figures["utility"]["tasks"].items()
    return {(t, e): found for t, of in tasks for e, found in of["cells"].items() if e != "inf"}


def test_the_page_is_written_from_the_figures(figures):
    assert set(figures) == set(side_by_side.PARTS)
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == text_of(figures)


def test_figures_of_the_method_are_written_from_results_and_failures_are_named():
    figures, page = json.loads(method_page.FIGURES.read_text("utf-8")), method_page.PAGE
    assert set(figures) == {"documented", "wider", "peers"}
    assert page.read_text("utf-8") == method_page.written(page.read_text("utf-8"), figures)
    found = figures["documented"]["cells"][3] | {"coverage": 0.8, "error": 0.01, "worst": 9.1}
    assert method_page.outcome([found], 10).count(method_page.cell_name(found)) == 2


def test_its_pictures_are_there(figures):
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text_of(figures))
    assert len(pictures) == len(side_by_side.DRAWN)
    assert all((DOCS / picture).is_file() for picture in pictures)


@pytest.mark.parametrize("metric", side_by_side.METRICS)
def test_a_comparison_is_turned_round_with_its_figures(figures, metric):
    there = side_by_side.verdicts(cells_of(figures), metric, "skdp", ("Opacus, 0.1",))
    back = side_by_side.verdicts(cells_of(figures), metric, "Opacus, 0.1", ("skdp",))
    assert (there["better"], there["worse"]) == (back["worse"], back["better"])
    assert there["undecided"] == back["undecided"]


def test_of_several_peers_the_best_is_met():
    cell = {"ours": [0.5, 0.5, 0.51], "low": [0.1, 0.1, 0.11], "high": [0.9, 0.9, 0.91]}
    cells = {("task", "1"): {name: {"log-loss": v, "accuracy": v} for name, v in cell.items()}}
    for metric in ("log-loss", "accuracy"):
        ours = cells, metric, "ours", ("low", "high")
        assert side_by_side.verdicts(*ours)["worse"] == [("task", "1")]
        words = side_by_side.outcome(*ours)
        assert "(task at ε = 1)" in words
        assert f"{'lower' if metric == 'accuracy' else 'higher'} in 1 (" in words


def without_peers(found):
    """Return figures without those of others, at any depth."""
    if not isinstance(found, dict):
        return found
    others = re.compile("(?i)(opacus|diffprivlib|its scikit-learn|dp-ebm|interpret-core|there$)")
    return {name: without_peers(v) for name, v in found.items() if not others.match(name)}


def test_without_peers_the_page_says_so(figures):
    alone = without_peers(figures)
    text = " ".join(text_of(alone).split())
    assert text.count("Not installed, and left out: Opacus and diffprivlib.") == len(alone) - 3
    assert text.count("Not installed, and left out: DP-EBM.") == 1
    assert not re.search(r"against DP-EBM|\| DP-EBM|\| diffprivlib|None", text)
