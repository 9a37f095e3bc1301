"""The budget of the house: how much code there is, and how it hangs together.

    python -m tests.house

prints today's figures beside the limits, which `tests/test_house.py` holds, and the goals. A figure
may fall; one that rises needs something taken away elsewhere, or a decision that the design page
explains.
"""

import ast
import io
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "skdp"
LONG_MODULE = 400
NOISE_AWARE = ("algorithms/noise_aware", "algorithms/parts")

# figure: (limit, goal)
BUDGET = {
    "lines of code": (30_900, 21_000),
    "lines of docstrings": (13_500, 13_500),
    "lines of tests": (51_350, 42_000),
    "lines of code, noise-aware": (2_920, 1_700),
    "modules of more than 400 lines": (0, 0),
    "lines of the longest function": (42, 42),
    "files directly under skdp": (7, 7),
    "import circles": (0, 0),
}
SLACK = 0.03  # over which a limit has to follow its figure down


@cache
def tree(file):
    """Syntax tree of a file."""
    return ast.parse(file.read_text())


def files(folder=PACKAGE):
    """Python files of a folder."""
    return sorted(file for file in folder.rglob("*.py") if "__pycache__" not in file.parts)


def docstring(node):
    """The statement that documents a module, class or function, or None."""
    first = node.body[0] if getattr(node, "body", None) else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first if is_text and isinstance(first.value.value, str) else None


def docstring_lines(file):
    """Numbers of the lines that docstrings take."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    found = [docstring(node) for node in ast.walk(tree(file)) if isinstance(node, kinds)]
    return {i for one in found if one for i in range(one.lineno, one.end_lineno + 1)}


def code_lines(file):
    """Numbers of the lines that hold code: neither docstring nor comment, nor empty."""
    beside = tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type not in (*beside, tokenize.ENDMARKER):
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(file)


def longest_function():
    """Physical lines of the longest body of a function, without its docstring."""
    longest = 0
    for file in files():
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1:] if docstring(node) else node.body
                if first:
                    longest = max(longest, node.end_lineno - first[0].lineno + 1)
    return longest


def module_of(file):
    """Dotted name of a file."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(file, modules):
    """Modules of the package that a file imports when it is imported."""
    pending, found = list(tree(file).body), set()
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(inner & modules or {node.module})
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return found & modules


def circles():
    """Groups of modules that import each other, also inside functions."""
    modules = {module_of(file) for file in files()}
    edges = {module_of(file): imported(file, modules) | late(file, modules) for file in files()}
    reached = {module: reach(module, edges) for module in modules}
    groups = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in modules
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def late(file, modules):
    """Modules that functions of a file import when they are called."""
    functions = [n for n in ast.walk(tree(file)) if isinstance(n, ast.FunctionDef)]
    named = [n for f in functions for n in ast.walk(f) if isinstance(n, ast.ImportFrom)]
    return {n.module for n in named if n.module and not n.level} & modules


def reach(module, edges):
    """All modules that one leads to."""
    found, pending = set(), [module]
    while pending:
        for other in edges[pending.pop()] - found:
            found.add(other)
            pending.append(other)
    return found


def is_noise_aware(file):
    """Whether a file is of the inference that knows of the noise."""
    path = file.relative_to(PACKAGE).as_posix()
    if path.endswith(("network_models.py", "training.py", "gaussian_families.py")):
        return False
    return path.startswith((*NOISE_AWARE, "algorithms/noise_aware_"))


def figures():
    """Today's figures, by name."""
    own = files()
    physical = [len(file.read_text().splitlines()) for file in own]
    return {
        "lines of code": sum(len(code_lines(file)) for file in own),
        "lines of docstrings": sum(len(docstring_lines(file)) for file in own),
        "lines of tests": sum(len(file.read_text().splitlines()) for file in files(ROOT / "tests")),
        "lines of code, noise-aware": sum(
            len(code_lines(file)) for file in own if is_noise_aware(file)
        ),
        "modules of more than 400 lines": sum(n > LONG_MODULE for n in physical),
        "lines of the longest function": longest_function(),
        "files directly under skdp": len([file for file in own if file.parent == PACKAGE]),
        "import circles": len(circles()),
    }


def main():
    """Print the table."""
    print(f"{'':32}{'today':>8}{'limit':>8}{'goal':>8}")
    for name, today in figures().items():
        limit, goal = BUDGET[name]
        print(f"{name:32}{today:8}{limit:8}{goal:8}" + "  over" * (today > limit))
    for circle in circles():
        print("circle:", ", ".join(circle))


if __name__ == "__main__":
    main()
