"""Run docs/from_the_articles.md, and keep the pictures that it draws.

    python benchmarks/from_the_articles.py

writes docs/_static/articles; docs/dp_sgld_mnist.py draws that of the last section.
"""

import os
import re
from pathlib import Path

import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main():
    """Run the blocks of the page in one namespace, in the folder of its pictures."""
    plt.switch_backend("Agg")
    plt.rcParams["svg.hashsalt"] = "skdp"
    page = (DOCS / "from_the_articles.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    folder = DOCS / "_static" / "articles"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    namespace = {"__name__": "__main__"}
    for code in blocks:
        exec(compile(code, "from_the_articles.md", "exec"), namespace)


if __name__ == "__main__":
    main()
