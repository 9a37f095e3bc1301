"""Fuzz events, accountants, ledger files and reports, guided by coverage (needs atheris).

python tests/fuzz/fuzz_accounting.py corpus/ -max_total_time=900 -max_len=512
"""

import sys
from pathlib import Path


def main() -> None:
    """Run until the time is over or an invariant breaks; the input is then left in a file."""
    import atheris

    sys.path.insert(0, str(Path(__file__).parents[1]))
    with atheris.instrument_imports(include=["skdp", "fuzz"]):
        from fuzz import accounting
    atheris.Setup(sys.argv, accounting.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
