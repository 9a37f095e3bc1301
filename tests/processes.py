"""Functions in forked children, which have no interpreter to start and no package to import."""

import multiprocessing
import warnings

FORK = multiprocessing.get_context("fork")


def started(function, *arguments):
    """Start `function(pipe, *arguments)` in a child; return the child and our end of the pipe."""
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=function, args=(theirs, *arguments), daemon=True)
    with warnings.catch_warnings():
        # Of threads, which a child does not have: those of libraries wait for work meanwhile.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs.close()
    return child, ours


def in_child(function, *arguments):
    """Run it to its end; return the exit code, and what it sent (None if nothing)."""
    child, pipe = started(function, *arguments)
    try:
        sent = pipe.recv()
    except EOFError:
        sent = None
    child.join()
    return child.exitcode, sent
