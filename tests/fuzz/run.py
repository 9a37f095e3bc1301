"""Fuzz `accounting` (events, ledger files, reports) or `inputs` (estimators, parameters).

python tests/fuzz/run.py TARGET corpus/ -max_total_time=300 -max_len=512

It is guided by coverage (needs atheris), and ends with the time or at an invariant that breaks:
the input is then left in a file.
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    """Run one target; other arguments are libFuzzer's."""
    import atheris

    sys.path.insert(0, str(Path(__file__).parents[1]))
    target = sys.argv.pop(1)
    with atheris.instrument_imports(include=["skdp", "fuzz"]):
        check = importlib.import_module(f"fuzz.{target}").check
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
