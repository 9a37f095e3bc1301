"""A seeded bug: one fragment of one function, replaced as syntax.

Fragments are found as nodes of the syntax tree, so neither line breaks nor comments nor the place
of a function in its file matter, and an equal line in another function is not in the way.
"""

import ast
from collections.abc import Iterator
from textwrap import dedent
from typing import NamedTuple

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = FUNCTIONS | ast.ClassDef


class Mutant(NamedTuple):
    """A bug, where it is put, and the tests that should notice."""

    bug: str
    file: str  # below skdp/
    function: str  # qualified name (inner functions after a dot too); "": outside all definitions
    old: str  # an expression, or consecutive statements: exactly once in the function
    new: str
    tests: str


def read(patches: str) -> list[Mutant]:
    """Mutants written as patches, as `catalogue.py` says."""
    found: list[Mutant] = []
    for line in filter(None, patches.replace("\n    ", " ").splitlines()):
        if line.startswith("--- "):
            file, tests = line[4:].split("; ")
        elif line.startswith("@@"):
            function, _, bug = line[2:].partition(": ")
            found.append(Mutant(bug, file, function.strip(), "", "", tests))
        else:
            side, last = "old" if line[0] == "-" else "new", found[-1]
            found[-1] = last._replace(**{side: getattr(last, side) + line[1:] + "\n"})
    return found


def normalised(source: str) -> str:
    """Source as `mutated` writes it, without a mutation."""
    return ast.unparse(ast.parse(source))


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the bug; ``LookupError`` if its place is missing or not unique."""
    tree = ast.parse(source)
    old, new = _fragments(mutant)
    scope = _scope(tree, mutant)
    places = list(_places(scope, old))
    if len(places) != 1:
        raise LookupError(
            f"{mutant.file}, {mutant.function or 'module'}: {len(places)} times {mutant.old!r}"
        )
    parent, field, where = places[0]
    value = getattr(parent, field)
    if isinstance(value, list):
        value[where] = new
    else:
        setattr(parent, field, new[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _fragments(mutant: Mutant) -> list[list[ast.AST]]:
    """Both fragments as nodes: two expressions, or statements."""
    bodies = [ast.parse(dedent(text)).body for text in (mutant.old, mutant.new)]
    if all(len(body) == 1 and isinstance(body[0], ast.Expr) for body in bodies):
        return [[body[0].value] for body in bodies]
    return bodies


def _scope(tree: ast.Module, mutant: Mutant) -> ast.AST:
    scope = tree
    for name in mutant.function.split(".") if mutant.function else ():
        children = (child for node in _walk(scope) for child in ast.iter_child_nodes(node))
        found = [c for c in children if isinstance(c, DEFINITIONS) and c.name == name]
        if len(found) != 1:
            raise LookupError(f"{mutant.file}: {len(found)} definitions of {mutant.function}")
        scope = found[0]
    return scope


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is below it, without the definitions below it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, DEFINITIONS):
            yield from _walk(child)


def _places(scope: ast.AST, old: list[ast.AST]) -> Iterator[tuple[ast.AST, str, slice]]:
    """Where the nodes stand: parent, field, and which entries of it if it is a list.

    All of a function is searched, of a module or class only what is outside its definitions.
    """
    patterns = [ast.dump(node) for node in old]
    for parent in ast.walk(scope) if isinstance(scope, FUNCTIONS) else _walk(scope):
        for field, value in ast.iter_fields(parent):
            nodes = value if isinstance(value, list) else [value]
            for i in range(len(nodes) - len(old) + 1):
                window = nodes[i : i + len(old)]
                if [isinstance(n, ast.AST) and ast.dump(n) for n in window] == patterns:
                    yield parent, field, slice(i, i + len(old))
