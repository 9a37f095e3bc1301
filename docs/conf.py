"""Configuration of the documentation: ``python -m sphinx -W --keep-going docs docs/_build/html``.

Nothing is fetched at build. ``-D plot_gallery=0`` builds without running the examples.
"""

import re
import warnings
from importlib import import_module
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import skdp

# --- the project ----------------------------------------------------------------------------------

project = "skdp"
copyright = "The skdp developers, Apache-2.0"
author = "The skdp developers"
version = release = skdp.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "myst_parser",
    "numpydoc",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "auto_examples/**/*.ipynb", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "py:obj"
smartquotes = False  # {"auto", "full"} is meant to the letter
toc_object_entries_show_parents = "hide"

# --- pages ----------------------------------------------------------------------------------------

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# --- the reference --------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc says it in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


def as_restructured_text(app, what, name, obj, options, lines):
    """Escape what docstrings say in plain letters, |x| and shape (n_features_in_,)."""
    for i, line in enumerate(lines):
        line = re.sub(r":ref:`([^<`]*[^<` ]) *<[^>]*>`", r"\1", line)  # to pages of scikit-learn
        if not line.lstrip().startswith((">>>", "...")):
            words = re.split("(`+[^`]*`+)", line)
            words[::2] = [re.sub(r"\||(?<=\w)_(?=[,) ])", r"\\\g<0>", word) for word in words[::2]]
            line = "".join(words)
        lines[i] = line


# --- the gallery ----------------------------------------------------------------------------------


# From a first pipeline to special cases; what is not named comes last.
ORDER = """
    quickstart private_pipeline credible_intervals additive calibration evaluation persons
    private_search privacy_utility custom_module frozen_body multilabel sequences dp_sgld_mnist
    dp_sgld_pneumonia posterior_sampling dp_mixture dpvi_article parquet long_run audit
    from_diffprivlib from_opacus
"""
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": ExplicitOrder([*(f"plot_{name}.py" for name in ORDER.split()), "*"]),
    "backreferences_dir": "api/generated/backreferences",
    "doc_module": ("skdp",),
    "capture_repr": ("_repr_html_",),
    "remove_config_comments": True,
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1,
}

# --- the site -------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = f"skdp {release}"
html_static_path = ["_static"]
html_css_files = ["skdp.css"]
html_js_files = ["filter.js"]
html_logo = "_static/logo.svg"
html_favicon = "_static/favicon.svg"
html_sidebars = {"index": [], "api": [], "getting_started": []}
html_theme_options = {
    "logo": {"text": "skdp", "alt_text": "skdp"},
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

# --- links ----------------------------------------------------------------------------------------


def to_the_site(app, docname, source):
    """Let links to an example, right in the repository, lead to the gallery; link public names."""
    if not app.env.doc2path(docname).endswith(".md"):
        return
    text = re.sub(r"\((?:\.\./)+examples/(\w+)\.py\)", r"(/auto_examples/\1.rst)", source[0])
    text = re.sub(r"\((?:\.\./)+examples/\)", r"(/auto_examples/index.rst)", text)
    names = {name for name in app.env.skdp_aliases if "." not in name} - {"epsilon", "delta"}
    name = rf"(?<![\[`}}])`({'|'.join(sorted(names))})`(?![\]`])"
    parts = re.split(r"(^ *```.*?^ *```)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(name, r"{py:obj}`\1`", part) for part in parts[::2]]
    source[0] = "".join(parts)


def aliases():
    """Return the page's name of every other way to say a public name."""
    homes = {}
    for module in sorted({"skdp.calibration", *_modules()}, key=len):
        for name in _public(module):
            homes.setdefault(name, f"{module}.{name}")
            yield f"{module}.{name}", homes[name]
            yield name, homes[name]


def _modules():
    rooms = (path.parent.name for path in Path(skdp.__file__).parent.glob("*/__init__.py"))
    yield "skdp"
    yield from (f"skdp.{room}" for room in rooms)


def _public(module):
    found = import_module(module)
    return getattr(found, "__all__", None) or ["DPTemperatureScaler"] * ("calibration" in module)


def by_another_name(app, env, node, contnode):
    """Resolve a reference to a public name that is not the name that its page has."""
    target = env.skdp_aliases.get(node.get("reftarget")) if node.get("refdomain") == "py" else None
    if target is None:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, contnode)


def setup(app):
    """Connect the two."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # then numpydoc
    app.connect("source-read", to_the_site)
    app.connect(
        "env-before-read-docs",
        lambda app, env, docnames: setattr(env, "skdp_aliases", dict(aliases())),
    )
    app.connect("missing-reference", by_another_name)
