"""Section 10 of docs/method.md: the figures of `real_tables.py` and `method_peers.py`.

    python benchmarks/method_page.py [--documented FILE] [--wider FILE]

Takes what is printed from results of ``real_tables.py --json`` (of documented bounds; of
``--bounds doc,x3,x10,x100``), keeps it in docs/method.json, and writes the section between its two
comments anew from there. Every sentence that counts or names cells is computed from the figures.
"""

import argparse
import json
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "docs" / "method.json", ROOT / "docs" / "method.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
LEAST, FARTHEST = 0.87, 5.0  # coverage, less two of its errors, and |z|, that are failures beyond
KEPT = (
    "kind", "table", "epsilon", "wider", "rows", "columns", "coverage", "error", "worst",
    "worst at", "wrong signs", "width", "log-loss", "log-loss, not private", "log-loss, shares",
    "above documented",
)  # fmt: skip
NAMES = {
    "logistic": "two classes", "linear": "numbers", "poisson": "counts",
    "softmax": "several classes",
}  # fmt: skip


# --- figures ------------------------------------------------------------------------------------


def rounded(value):
    """Figures with four digits."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return value if isinstance(value, str | int) else float(f"{value:.4g}")


def taken(file):
    """What is printed of results of `real_tables.py`; their own log-losses tell how many fits."""
    cells = json.loads(Path(file).read_text(encoding="utf-8"))
    fits = next(len(c["log-losses"]) for c in cells if "log-losses" in c)
    wide, no = [c for c in cells if c["wider"] > 1], {"rows", "worst at"}
    kept = [k for k in KEPT if not wide or (k not in no and "log" not in k)]
    return {
        "repetitions": fits,
        "cells": [{k: c[k] for k in kept if k in c} for c in wide or cells],
    }


def keep(file, parts):
    """Add parts to the figures, a line for each cell."""
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    lines = []
    for name, part in sorted((found | rounded(parts)).items()):
        part = dict(part)
        cells = [json.dumps(c, ensure_ascii=False) for c in part.pop("cells")]
        head = json.dumps(part, ensure_ascii=False)[1:-1]
        lines.append(f'"{name}": {{{head}, "cells": [\n' + ",\n".join(cells) + "\n]}")
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


# --- words --------------------------------------------------------------------------------------


def fails(cell):
    """Whether coverage is too low, and whether an interval is too far off."""
    return cell["coverage"] + 2 * cell["error"] < LEAST, cell["worst"] > FARTHEST


def marked(text, bad):
    """Bold, where it is a failure."""
    return f"**{text}**" if bad else text


def cell_name(cell, with_bounds=False):
    """Kind, table, ε, and how wide the bounds are."""
    name = f"{cell['table']} ({NAMES[cell['kind']]}) at ε = {cell['epsilon']:g}"
    return f"{name}, ×{cell['wider']:g}" if with_bounds else name


def listed(names, most=12):
    """Names, or the first of them."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def counted(cells, number=lambda cell: 1):
    """Tables with how often something is there, the most frequent first."""
    counts = Counter()
    for c in cells:
        counts[f"{c['table']} ({NAMES[c['kind']]})"] += number(c)
    return listed(f"{name} {n}" for name, n in counts.most_common() if n)


def outcome(cells, repetitions):
    """How many cells fail, which, and how many signs are wrong."""
    low, far = ([c for c in cells if fails(c)[i]] for i in (0, 1))
    held = [c["coverage"] for c in cells]
    text = f"Of {len(cells)} cells {sum(h >= 0.9 for h in held)} have a coverage of .9 or more, "
    text += f"and the mean is {sum(held) / len(held):.3f}."
    factors = dict.fromkeys(c["wider"] for c in cells)
    for found, what in (
        (low, f"a coverage that is two errors below {LEAST:g}"),
        (far, f"an estimate more than {FARTHEST:g} deviations away"),
    ):
        text += f" {len(found) or 'None'} {'has' if len(found) == 1 else 'have'} {what}"
        if len(factors) > 1:
            of = Counter(c["wider"] for c in found)
            text += f" ({', '.join(f'{of[k]} at ×{k:g}' for k in factors)})"
        if found:
            names = counted(found) if len(factors) > 1 else listed(map(cell_name, found))
            text += f": {names}"
        text += "."
    wrong = sum(c["wrong signs"] for c in cells)
    text += f" Signs are wrong in {wrong} of {repetitions * sum(c['columns'] for c in cells)} "
    return text + f"intervals{': ' if wrong else ''}{counted(cells, lambda c: c['wrong signs'])}."


def paragraph(text):
    """Lines of a paragraph, and an empty one."""
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def table(head, rows):
    """Lines of a table, and an empty one."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)] + [""]


def loss(value):
    """Four places, or none."""
    return "" if value is None else f"{value:.4f}"


def documented(part):
    """Lines of coverage under documented bounds."""
    rows, before = [], None
    for c in part["cells"]:
        low, far = fails(c)
        of = (NAMES[c["kind"]], c["table"], str(c["rows"]), str(c["columns"]))
        rows.append([
            *(of if of != before else [""] * 4), f"{c['epsilon']:g}",
            marked(f"{c['coverage']:.3f} ± {c['error']:.3f}", low),
            marked(f"{c['worst']:.1f}", far) + f" (`{c['worst at'].replace('|', ' ')}`)",
            str(c["wrong signs"]), f"{c['width']:.3g}",
            *(loss(c.get(k)) for k in KEPT[-4:-1]),
        ])  # fmt: skip
        before = of
    head = ["kind", "table", "rows", "coefficients", "ε", "coverage", "worst \\|z\\|", "signs"]
    head += ["width", "log-loss", "not private", "shares"]
    n = part["repetitions"]
    return [
        "### 10.1 Documented bounds", "",
        *paragraph(
            f"{n} fits a cell, on two thirds of the rows, δ = 1e-6, `zero_out`. *Coverage*: share "
            "of coefficients whose 90 % interval holds the estimate without privacy on the same "
            "rows, and its standard error over fits. *Worst |z|*: the farthest estimate, in "
            "deviations of the posterior, and the column. *Signs*: intervals that leave out 0 on "
            "the other side than the 90 % interval without privacy. *Width*: median deviation of "
            "the posterior over the standard error without privacy. *Log-loss* on the other third "
            "of the rows, beside that of the estimate without privacy and of the shares of the "
            f"classes. In bold: coverage + 2 errors below {LEAST:g}, and |z| above {FARTHEST:g}."
        ),
        *table(head, rows), *paragraph(outcome(part["cells"], n)),
    ]  # fmt: skip


def wider(part):
    """Lines of wider bounds."""
    cells = {(c["kind"], c["table"], c["epsilon"], c["wider"]): c for c in part["cells"]}
    factors, rows, before = sorted({key[3] for key in cells}), [], None
    for kind, name, epsilon in dict.fromkeys(key[:3] for key in cells):
        of = [cells[kind, name, epsilon, factor] for factor in factors]
        row = [NAMES[kind], name] if before != (kind, name) else ["", ""]
        above = [c.get("above documented") for c in of]
        rows.append([
            *row, f"{epsilon:g}",
            " / ".join(marked(f"{c['coverage']:.2f}", fails(c)[0]) for c in of),
            " / ".join(marked(f"{c['worst']:.1f}", fails(c)[1]) for c in of),
            " / ".join(str(c["wrong signs"]) for c in of),
            " / ".join(f"{c['width']:.3g}" for c in of),
            "" if None in above else " / ".join(f"{round(a, 4) + 0.0:+.4f}" for a in above),
        ])  # fmt: skip
        before = kind, name
    wide = part["cells"]
    losses = [c["above documented"] for c in wide if "above documented" in c]
    worst = max((c for c in wide if "above documented" in c), key=lambda c: c["above documented"])
    head = ["kind", "table", "ε", "coverage", "worst \\|z\\|", "signs", "width"]
    return [
        "### 10.2 Bounds that are too wide", "",
        *paragraph(
            f"Numbers have bounds {', '.join(f'{f:g}' for f in factors)} times as wide about the "
            f"same middle, {part['repetitions']} fits a cell, in this order in each column. "
            "*Log-loss*: above that of documented bounds in the same run. Errors over so few fits "
            "are themselves rough."
        ),
        *table([*head, "log-loss"], rows),
        *paragraph(
            outcome(wide, part["repetitions"])
            + f" Log-loss rises by {sum(losses) / len(losses):.4f} on average, and by "
            f"{worst['above documented']:.4f} at most ({cell_name(worst, True)})."
        ),
    ]  # fmt: skip


def behind(cells, methods):
    """Where another method is better than skdp, and by how much."""
    found = []
    for c in cells:
        best = min((m for m in methods if m in c and m != "skdp"), key=lambda m: c[m]["loss"])
        gap = c["skdp"]["loss"] - c[best]["loss"]
        if gap > 0:
            sure = gap > 2 * (c["skdp"]["error"] ** 2 + c[best]["error"] ** 2) ** 0.5
            unit = c["not private"] if c["kind"] == "linear" else 1.0
            found.append((c, best, gap / unit, sure))
    sure = sum(f[3] for f in found)
    text = f"in {len(found)} of {len(cells)} cells"
    if found:
        each = (
            f"{c['table']} at ε = {c['epsilon']:g}: {m}, by {gap:.3g}{'*' * bool(far)}"
            for c, m, gap, far in found
        )
        text += (
            f" ({listed(each)}), {sure} of them, starred, by more than two errors of the difference"
        )
    return text


def methods_of(cells, key):
    """Methods of which a figure is known."""
    return [m for m, found in cells[0].items() if isinstance(found, dict) and key in found]


def losses_of(kind, cells):
    """Lines of the errors on held-out rows."""
    methods, rows = methods_of(cells, "loss"), []
    for c in cells:
        unit = c["not private"] if kind == "linear" else 1.0
        best = min(c[m]["loss"] for m in methods)
        shown = [marked(loss(c[m]["loss"] / unit), c[m]["loss"] == best) for m in methods]
        free = [loss(c[k] / unit) for k in ("not private", "shares")]
        rows.append([c["table"], f"{c['epsilon']:g}", *shown, *free])
    what, constant = {
        "logistic": ("Log-loss", "shares of the classes"),
        "linear": ("Root mean squared error over that without privacy", "mean of the rows fitted"),
    }[kind]
    return [
        *paragraph(f"{what}, on held-out rows, the least in bold. *Constant* is the {constant}."),
        *table(["table", "ε", *methods, "not private", "constant"], rows),
        *paragraph(f"Another method is better than skdp {behind(cells, methods)}."),
    ]


def intervals_of(cells):
    """Lines of the intervals of classes."""
    methods, rows, told = methods_of(cells, "coverage"), [], []
    for c in cells:
        for m in methods:
            of, first = c[m], m == methods[0]
            rows.append([
                c["table"] * first, f"{c['epsilon']:g}" * first, m, f"{of['coverage']:.3f}",
                f"{of['worst']:.1f}", str(of["wrong signs"]), f"{of['width']:.3g}",
            ])  # fmt: skip
    for m in methods:
        held, worst, wrong, width = (
            [c[m][k] for c in cells] for k in ("coverage", "worst", "wrong signs", "width")
        )
        told.append(
            f"{m} from {min(held):.2f} to {max(held):.2f}, with |z| up to {max(worst):.1f}, "
            f"{sum(wrong)} signs wrong and widths from {min(width):.2g} to {max(width):.2g}"
        )
    ratios = [c["noisy Newton"]["width"] / c["skdp"]["width"] for c in cells]
    head = ["table", "ε", "method", "coverage", "worst \\|z\\|", "signs", "width"]
    return [
        *paragraph("Intervals of 90 % for the estimate without privacy, measured as in 10.1:"),
        *table(head, rows),
        *paragraph(
            f"Coverage is of {'; of '.join(told)}. Intervals of noisy Newton are "
            f"{min(ratios):.2g} to {max(ratios):.2g} times as wide as those of skdp."
        ),
    ]


def peers(part):
    """Lines of other methods."""
    packages = ", ".join(f"{k} {v}" for k, v in part["packages"].items())
    lines = paragraph(
        f"The same columns, bounds, rows and held-out rows, δ = 1e-6, {part['repetitions']} fits a "
        f"cell, {part['minutes']:.0f} minutes ({packages}). skdp, DPVI (behind a private scaler "
        "with the same bounds that shares its budget), AdaSSP and noisy Newton are under "
        "`zero_out`; diffprivlib has pure ε and a row that is replaced, DP-EBM rows that are added "
        "or removed. AdaSSP and noisy Newton were written anew from their papers, with less noise "
        "than these ask for: what is theirs and what is not is said in "
        "`benchmarks/method_peers.py`. Of DPVI (its default number of steps, or 400), diffprivlib "
        "(C = 1 or 100) and DP-EBM (300 rounds at .01, or 50 at .2) the setting that is better on "
        "the held-out rows is shown. DP-EBM is "
        "additive and the others are linear; the additive model of skdp is beside it in "
        "[benchmarks](benchmarks.md). AdaSSP, diffprivlib and DP-EBM have no intervals."
    )
    kinds = {k: [c for c in part["cells"] if c["kind"] == k] for k in ("logistic", "linear")}
    for kind, cells in kinds.items():
        lines += losses_of(kind, cells)
    return ["### 10.3 Other methods", "", *lines, *intervals_of(kinds["logistic"])]


def section(figures):
    """The section, from its first comment to its last."""
    lines = [BEGIN, "", "## 10. Figures", "", *paragraph(
        "This section is written by `benchmarks/method_page.py` from docs/method.json, and what it "
        "says of the figures is computed from them. The commands of the figures:"
    )]  # fmt: skip
    lines += [
        "```text",
        "python benchmarks/real_tables.py --json DOCUMENTED",
        "python benchmarks/real_tables.py --repetitions 3 --bounds doc,x3,x10,x100 --json WIDER",
        "python benchmarks/method_page.py --documented DOCUMENTED --wider WIDER",
        "python benchmarks/method_peers.py",
        "```", "",
    ]  # fmt: skip
    for name, lines_of in (("documented", documented), ("wider", wider), ("peers", peers)):
        if name in figures:
            lines += lines_of(figures[name])
    return "\n".join([*lines, END])


def written(page, figures):
    """The page with its section anew."""
    before, rest = page.split(BEGIN)
    return before + section(figures) + rest.split(END)[1]


def main():
    """Keep what is given, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documented")
    parser.add_argument("--wider")
    given = {k: v for k, v in vars(parser.parse_args()).items() if v}
    keep(FIGURES, {name: taken(file) for name, file in given.items()})
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
