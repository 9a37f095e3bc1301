"""Many small cases of one test in one item: to collect and to report an item takes milliseconds."""

import functools
import inspect


def bundled(names, cases):
    """As `pytest.mark.parametrize`, but the cases follow each other within one item.

    Fixtures are set up once for all of them. A failure notes its case, and is the last.
    """
    one = isinstance(names, str)
    names, cases = (names,) if one else tuple(names), list(cases)
    assert cases

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **fixtures):
            for case in cases:
                given = dict(zip(names, (case,) if one else case, strict=True))
                try:
                    test(*args, **fixtures, **given)
                except BaseException as error:
                    error.add_note(f"the case: {given!r}")
                    raise

        signature = inspect.signature(test)
        left = [p for p in signature.parameters.values() if p.name not in names]
        run.__signature__ = signature.replace(parameters=left)
        return run

    return decorate
