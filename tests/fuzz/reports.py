"""Reports changed at random: what `skdp-verify` says yes to must hold by skdp's own accounting too.

    PYTHONPATH=. python tests/fuzz/reports.py SECONDS [SEED]

No coverage guides it; a change is made to the text, to a number, or to the tree.
"""

import json
import random
import sys
import time
import warnings
from collections import Counter
from copy import deepcopy

from dp_accounting import dp_event

from skdp import verify
from skdp.privacy import PrivacyReport, epsilon_of_event
from skdp.privacy.discrete import DiscreteGaussianDpEvent
from skdp.privacy.events import PartDpEvent, PosteriorSamplesDpEvent, PureDpEvent, dp_sgd_event

EVENTS = {
    "gaussian": dp_sgd_event([4.0, 5.0], 1.0),
    "discrete": DiscreteGaussianDpEvent(4.0, 2**30, 10),
    "draws": PosteriorSamplesDpEvent(0.3, 5),
    "pure": dp_event.ComposedDpEvent([PureDpEvent(0.3)]),
    "poisson": dp_sgd_event(2.0, 0.1, 20),
    "parts": dp_event.ComposedDpEvent(
        [
            PartDpEvent(dp_event.GaussianDpEvent(2.0), "s", "train"),
            PartDpEvent(dp_event.GaussianDpEvent(3.0), "s", "test"),
        ]
    ),
    "selection": dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(3.0), 3.0, 1.0),
}
VALUES = [0, 1, -1, 2, 0.5, 1e-9, 1e9, 1e300, -0.0, True, False, None, "", "inf", "x", [], {}, [[]]]
NUMBER = ["0.1e7", "1e400", "NaN", "Infinity", "-Infinity", "00", "1_000", "0x10", "1."]


def texts():
    """A true report of each kind."""
    return {
        kind: PrivacyReport.of(event, delta=1e-5, sampling="any").to_json()
        for kind, event in EVENTS.items()
    }


def places(tree, path=()):
    """Every place of a tree, as (container, key)."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield tree, key
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(text, rng):
    """The text with one to three changes."""
    for _ in range(rng.randint(1, 3)):
        way = rng.choice((0, 1, 2, 3, 3, 3, 4, 5, 6))
        if way == 0:  # a character
            i = rng.randrange(len(text))
            text = (
                text[:i]
                + rng.choice('{}[]",:0123456789.eE-tfn \\x00é')
                + text[i + rng.randint(0, 1) :]
            )
        elif way == 1:  # a piece is lost, or stands twice
            i = rng.randrange(len(text))
            j = i + rng.randrange(40)
            text = text[:i] + rng.choice(("", 2 * text[i:j])) + text[j:]
        else:
            try:
                tree = json.loads(text)
                found = list(places(tree))
                numbers = [(c, k) for c, k in found if isinstance(c[k], int | float)]
                container, key = rng.choice(numbers if way == 3 else found)
            except (ValueError, IndexError, TypeError, AttributeError):
                continue
            value = container[key]
            if way == 2:
                container[key] = rng.choice(VALUES)
            elif way == 3:
                container[key] = value * rng.choice((0.5, 0.999, 1.001, 2, 10, -1))
            elif way == 4:
                del container[key]
            elif way == 5:
                container[key] = deepcopy(rng.choice([c[k] for c, k in places(tree)]))
            elif isinstance(container, dict):
                container[rng.choice((key, "type", "unit", "extra"))] = value
            text = json.dumps(tree)
            if way == 6 and (digits := [i for i, c in enumerate(text) if c.isdigit()]):
                i = rng.choice(digits)
                text = text[:i] + rng.choice(NUMBER) + text[i + 1 :]
    return text


def check(text):
    """Verdict, after a yes has been compared with skdp's own accounting."""
    try:
        holds, proved, _ = verify.verdict(verify.read_text(text))
    except Exception:
        return None
    if holds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                report = PrivacyReport.from_json(text)
            except ValueError as error:  # skdp reads no event that costs nothing; it is no lie
                if "changed" in str(error):
                    raise AssertionError(text) from error
                return holds
        least = epsilon_of_event(report.event, report.delta, report.neighboring_relation)
        # skdp's bound for repeated pure mechanisms is a few per cent above the exact value.
        assert report.valid, text
        assert report.epsilon >= 0.9 * least, text
        assert float(proved) <= report.epsilon * (1 + 1e-8), text
    return holds


def main(seconds, seed):
    """Fuzz for so many seconds; print how often each verdict came."""
    rng, known, seen = random.Random(seed), list(texts().values()), Counter()
    end, longest = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        text, start = changed(rng.choice(known), rng), time.monotonic()
        try:
            seen[str(check(text))] += 1
        except BaseException:
            print(text)
            raise
        longest = max(longest, time.monotonic() - start)
    print(dict(seen), f"longest {longest:.1f} s")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
