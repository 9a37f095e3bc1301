"""Print what pages should say of what was measured, and do not: `python benchmarks/figures.py`.

Figures that docs/figures.json alone has stand there with their command, its commit and its date.
"""

import json
from pathlib import Path
from statistics import fmean

import method_page
import side_by_side

DOCS = Path(__file__).resolve().parents[1] / "docs"
FILES = [DOCS / f"{name}.json" for name in ("benchmarks", "evidence", "method", "figures")]


def share(*values, places=2):
    """Format the least and the largest value without the 0 before the point."""
    ends = dict.fromkeys(f"{v:.{places}f}" for v in (min(values), max(values)))
    return "–".join(text.removeprefix("0") for text in ends)


def of_json(benchmarks, evidence, method):
    """Yield pages and sentences with figures of three files."""
    guide, cells, widths = "guide/variational.md", method["documented"]["cells"], {}
    for kind, name in method_page.NAMES.items():
        found = [c for c in cells if c["kind"] == kind]
        widths |= {(kind, c["table"]): f"{c['width']:.1f}" for c in found if c["epsilon"] == 1}
        low, mean = min(found, key=lambda c: c["coverage"]), fmean(c["coverage"] for c in found)
        few, far = (sum(method_page.fails(c)[i] for c in found) for i in (0, 1))
        least = f"{share(low['coverage'])} ({low['table']}, ε = {low['epsilon']:g})"
        yield guide, f"| {name} | {len(found)} | {share(mean)} | {least} | {few} | {far} |"
    wide = (f"{widths[kind, 'diabetes130']} ({name})" for kind, name in method_page.NAMES.items())
    yield guide, f"{', '.join(wide)}, and on adult, of 75 columns, {widths['logistic', 'adult']}"
    held = sorted(c["coverage"] for c in cells)
    yield "../CHANGELOG.md", f"{share(*held[1:])} of the coefficients, but {share(held[0])} in one"
    tasks, sets = benchmarks["curves"]["tasks"], benchmarks["conformal"]["sets"]
    duel = {(task, e): of for task, found in tasks.items() for e, of in found.items()}
    text = side_by_side.outcome(duel, "log-loss", "additive", ("DP-EBM, best",))
    yield "comparison.md", f"log-loss of skdp was {text}"
    a, b, c, d = (share(*(s[e][0] for s in sets), places=3) for e in ("0.3", "1", "3", "∞"))
    yield "guide/calibration.md", f"{a} at ε = .3, {b} at 1, {c} at 3, and {d} without privacy"
    steps = [found["skdp"]["ratio"] for found in benchmarks["time"]["steps"].values()]
    yield "guide/dp_sgd.md", f"{share(*steps, places=1)} times"
    broken = evidence["diffprivlib"]["reports"]["diffprivlib LogisticRegression, norm 100"]
    yield "migrating_from_diffprivlib.md", f"ε ≥ {broken['epsilon_lower_bound']:.2f}"


def said(*found):
    """List pages and sentences of all files."""
    recorded = [(entry["page"], line) for entry in found[-1] for line in entry["says"]]
    return [*of_json(*found[:-1]), *recorded]


if __name__ == "__main__":
    for page, sentence in said(*(json.loads(file.read_text("utf-8")) for file in FILES)):
        if sentence not in " ".join((DOCS / page).read_text("utf-8").split()):
            print(f"docs/{page} should say: {sentence}")
