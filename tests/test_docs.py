"""The documentation: its examples run, its links lead somewhere, its docstrings are whole."""

import importlib
import inspect
import json
import re
import warnings
from collections import Counter
from pathlib import Path

import figures
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpydoc.docscrape import ClassDoc
from numpydoc.validate import validate

import skdp

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BUILT = {"_build", "auto_examples", "api"}
PAGES = sorted(
    [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
    + [page for page in DOCS.rglob("*.md") if not BUILT & set(page.relative_to(DOCS).parts)]
)
BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def name_of(page):
    return page.relative_to(ROOT).as_posix()


# --- every block of Python runs, a page in one namespace ------------------------------------------


def blocks(page):
    """Yield the number of the first line and the code of each block that is to run."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        if found[2].strip() == "python":
            yield text.count("\n", 0, found.start(3)) + 1, found[3]


def workflow_in_hand():
    """Return what docs/workflows.md speaks of and does not write down: a pipeline, and rows."""
    from scipy.stats import loguniform
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    from skdp import DPStandardScaler, DPVariationalLogisticRegression

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    model = DPVariationalLogisticRegression(epsilon=0.5, classes=[0, 1], n_samples=300)
    pipeline = Pipeline(
        [
            ("embedding", FunctionTransformer()),
            ("scaler", DPStandardScaler([-1, -1], [1, 1], epsilon=0.5)),
            ("model", model),
        ]
    )
    y = (X[:, 0] > 0).astype(int)
    return {
        "X": X,
        "y": y,
        "model": model,
        "pipeline": pipeline.fit(X, y),
        "search": GridSearchCV(model, {"epsilon": [0.3, 0.5]}, cv=2),
        "loguniform": loguniform,
        "cross_val_score": cross_val_score,
    }


IN_HAND = {"docs/workflows.md": workflow_in_hand}


@pytest.mark.quick(8)
@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=name_of)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)  # what an example writes is gone afterwards
    namespace = {"__name__": "__main__"}
    namespace.update(IN_HAND.get(name_of(page), dict)())
    for line, code in blocks(page):
        # Tracebacks and warnings then name the line of the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
    plt.close("all")


def test_blocks_that_do_not_run_are_few():
    """A block of Python that is not to run says so, and why."""
    exempt = [
        (name_of(page), found[2].strip())
        for page in PAGES
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if found[2].split()[:1] == ["python"] and found[2].strip() != "python"
    ]
    assert all(re.fullmatch(r"python no-run: \w.+", info) for _, info in exempt), exempt
    assert len(exempt) <= 8, exempt


# --- links ----------------------------------------------------------------------------------------


def text_of(page):
    """Return the text of a page without its code, in which brackets are no links."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]*`", lambda code: "x" * len(code[0]), text)


def anchors(page):
    """Anchors of the headings of a page, as GitHub and the site make them."""
    found = Counter()
    for heading in re.findall(r"^#+ +(.*)$", BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        yield f"{slug}-{found[slug]}" if found[slug] else slug
        found[slug] += 1


def links(page):
    """Yield where the links of a page lead, as far as it is within the documentation."""
    for target in re.findall(r"\]\(([^()\s]+)\)", text_of(page)):
        if not re.match(r"[a-z]+:", target):
            yield target
    for target in re.findall(r"^:link: (.*#.*)$", text_of(page), re.MULTILINE):
        assert target.strip('"') == target[1:-1], f"quote {target}: # begins a comment"
        yield target[1:-1]


@pytest.mark.parametrize("page", [page for page in PAGES if any(links(page))], ids=name_of)
def test_links_lead_somewhere(page):
    for target in sorted(set(links(page))):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), target


# --- the reference --------------------------------------------------------------------------------

ROOMS = (
    "audit", "base", "displays", "evaluation", "mechanisms", "metrics", "model_selection",
    "preprocessing", "privacy", "statistics", "testing",
)  # fmt: skip
MODULES = {f"skdp.{room}": importlib.import_module(f"skdp.{room}").__all__ for room in ROOMS} | {
    "skdp": skdp.__all__,
    "skdp.calibration": ["DPTemperatureScaler"],
    "skdp.inspection": ["CoefficientTable", "summary"],
    "skdp.mlflow": ["log_model"],
    "skdp.onnx": ["to_onnx"],
    "skdp.conformal": ["DPConformalClassifier", "DPConformalRegressor"],
}

# What the house does otherwise.
IGNORED = {
    "GL01": "summaries start on the first line",
    "GL02": "the closing quotes stand where ruff puts them",
    "GL03": "the same for blank lines",
    "ES01": "a summary that says all needs no extension",
    "SA01": "See Also stands where there is something to see",
    "SS02": "a summary may begin with ε or μ",
    "SS05": "'Class probabilities' is no verb in the third person",
    "PR03": "parameters by keyword are in the order that explains them",
    "PR04": "several parameters that another docstring explains share a line",
    "PR08": "descriptions may begin with a symbol, a literal or a lower-case range",
    "RT03": "a return value may be said by its type",
    "RT04": "as PR08",
}
# A method of a line is one that scikit-learn's users know; a record lists its fields as attributes.
IN_A_LINE = {"PR01", "RT01", "EX01"}
RECORD = {"PR01"}


def public_objects():
    seen = {}
    for module, names in sorted(MODULES.items()):
        for name in names:
            found = getattr(importlib.import_module(module), name)
            if name not in ("__version__", "trusted_types"):  # a text, and a list of them
                seen[f"{found.__module__}.{found.__qualname__}"] = found
    return seen


def methods(owner, path):
    for name in dir(owner):
        found = inspect.getattr_static(owner, name)
        function = found.fget if isinstance(found, property) else getattr(owner, name)
        ours = str(getattr(function, "__module__", "")).startswith("skdp")
        if not name.startswith("_") and ours and callable(function):
            yield f"{path}.{name}"


def findings(path, ignored):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpydoc, about its own parsing
        found = validate(path)["errors"]
    return [f"{path}: {code} {said}" for code, said in found if code not in ignored]


@pytest.mark.thorough
def test_docstrings_of_public_names_are_whole():
    """Every public class and function has all sections, and an example."""
    found = []
    for path, thing in public_objects().items():
        record = hasattr(thing, "__dataclass_fields__") or getattr(thing, "_is_protocol", False)
        found += findings(path, set(IGNORED) | (RECORD if record else set()))
        if inspect.isclass(thing):
            for method in methods(thing, path):
                doc = inspect.getdoc(getattr(thing, method.rpartition(".")[2])) or ""
                short = IN_A_LINE if "\n\n" not in doc else {"EX01"}
                found += findings(method, set(IGNORED) | short)
    assert not found, "\n".join(found)


def parameters(name):
    return {p.name: (p.type, p.desc) for p in ClassDoc(getattr(skdp, name))["Parameters"]}


# Siblings, and the parameters that mean something else to each.
OF_A_REGRESSION = {
    "clip_norm", "max_iter", "noise_multiplier", "prior_blocks", "prior_scale", "robust", "secure",
}  # fmt: skip
OF_COUNTS = {"clip_norm", "prior_scale", "prior_blocks", "robust"}
OF_A_CHAIN = {"accountant", "epsilon", "learning_rate"}
SIBLINGS = [
    ("DPVariationalLogisticRegression", "DPVariationalPoissonRegression", OF_COUNTS),
    ("DPVariationalLogisticRegression", "DPVariationalLinearRegression", OF_A_REGRESSION),
    ("DPAdditiveClassifier", "DPAdditivePoissonRegressor", {"robust"}),
    ("DPAdditiveClassifier", "DPAdditiveRegressor", {"noise_multiplier", "robust", "secure"}),
    ("DPSGDClassifier", "DPSGDRegressor", {"loss"}),
    ("DPSGLDClassifier", "DPSGLDRegressor", {"loss"}),
    ("OPSPosteriorSampler", "OPSRegressor", set()),
    ("DPSGDClassifier", "DPSGLDClassifier", OF_A_CHAIN),
    ("DPSGDRegressor", "DPSGLDRegressor", OF_A_CHAIN),
]


@pytest.mark.parametrize(("one", "other", "own"), SIBLINGS)
def test_siblings_say_the_same_of_what_they_share(one, other, own):
    first, second = parameters(one), parameters(other)
    shared = first.keys() & second.keys()
    assert {"epsilon", "delta", "neighboring_relation"} <= shared
    assert {name for name in shared if first[name] != second[name]} == own


@pytest.mark.parametrize("name", ["OPSPosteriorSampler", "OPSRegressor"])
def test_a_posterior_sampler_says_for_which_data_sets_its_guarantee_is(name):
    said = " ".join(parameters(name)["n_samples"][1])
    assert (
        'Under ``"add_or_remove_one"`` the guarantee of the Langevin sampler is for data sets of '
        "at most so many rows." in said
    )


def test_every_public_name_is_in_the_reference():
    listed = set(re.findall(r"^ {3}(?:\w+\.)*(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    public = {n for names in MODULES.values() for n in names} - {"__version__", "trusted_types"}
    assert not public - listed


def test_the_readme_is_short_and_the_landing_page_shows_its_example_and_output(capsys):
    pages = [page.read_text("utf-8") for page in (ROOT / "README.md", DOCS / "index.md")]
    assert len(pages[0].split()) <= 900
    shown = [re.findall(r"```(?:python|text)\n(.*?)```", text, re.S)[:2] for text in pages]
    assert shown[0] == shown[1]
    exec(shown[0][0], {})
    assert without_chance(capsys.readouterr().out) == without_chance(shown[0][1])


def without_chance(text):
    """Return a summary without numbers and what may be said of them, and a report as it is."""
    table, report = text.split("PrivacyReport")
    return re.sub(r"(?m)^The releases say.*|[-\d][\d.e+-]*", "", table).split(), report


def test_the_method_lists_every_constant():
    page, found = (DOCS / "method.md").read_text("utf-8"), {}
    for file in [*ROOT.glob("skdp/*/noise_aware/*.py"), ROOT / "skdp/estimators/_bounds.py"]:
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        names = re.findall(r"^(_?[A-Z][A-Z_, ]*) = ", file.read_text("utf-8"), re.MULTILINE)
        for name in ", ".join(names).split(", "):
            value = getattr(module, name, None)
            if isinstance(value, np.ndarray) and value.ndim == 1:  # a grid
                value = (len(value), value[0], value[-1])
            if type(value) in (int, float, tuple, dict):
                numbers = list(value.values()) if isinstance(value, dict) else value
                found[file.stem, name] = [f"{number:.4g}" for number in np.ravel(numbers)]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert {(file, name): re.findall(r"-?[\d.]+(?:e.\d+)?", v) for file, name, v in rows} == found


def test_what_the_map_of_the_house_names_is_there():
    text = (DOCS / "design.md").read_text()
    code = "\n".join(path.read_text() for path in (ROOT / "skdp").rglob("*.py"))
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("*/**/*.py")]
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert any(f"/{file}".endswith(f"/{name}") for file in files), name
    for owner, member in re.findall(r"`([A-Z][a-z]\w+)\.(\w+)`", text):
        assert re.search(rf"^class {owner}\b", code, re.M), owner
        assert re.search(rf"^    def {member}\b", code, re.M), member


# Written from results, or of constants and of what old versions did.
NOT_HELD = {"evidence", "method", "derivations", "privacy", "advisories", "CHANGELOG"}


def test_figures_of_the_pages_are_those_that_were_measured():
    texts = {page: " ".join(page.read_text("utf-8").split()) for page in PAGES}
    for name, sentence in figures.said(*(json.loads(f.read_text("utf-8")) for f in figures.FILES)):
        page = (DOCS / name).resolve()
        assert sentence in texts[page], f"{name} does not say: {sentence}"
        texts[page] = texts[page].replace(sentence, "")
    for page, text in texts.items():  # shares, written without the 0, are of an entry or a setting
        prose = re.sub(r"```.*?```|`[^`]*`|\$[^$]*\$", "", text)
        found = re.findall(r".{30}(?<!= )(?<![\w.])\.\d+", prose)
        assert page.stem in NOT_HELD or not found, (name_of(page), found)


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"/(work|tmp|home|root)/|\.\./shared", page.read_text("utf-8")), page
