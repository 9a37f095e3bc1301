"""Forty ways to doctor a report, each a change of the text of a true one."""

import json


def _set(**values):
    return lambda text: json.dumps(json.loads(text) | values)


def _without(name):
    return lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != name})


def _tree(change):
    def doctored(text):
        report = json.loads(text)
        change(report)
        return json.dumps(report)

    return doctored


def _event(*path, **values):
    """Set numbers of the event at a path of keys."""

    def change(report):
        event = report["event"]
        for key in path:
            event = event[key]
        event.update(values)

    return _tree(change)


def _drop(report):
    del report["event"]["events"][0]


def _raw(old, new):
    def doctored(text):
        assert old in text
        return text.replace(old, new, 1)

    return doctored


_GAUSS = {"type": "GaussianDpEvent", "noise_multiplier": 5.0}

# The report is of GaussianDpEvent(4.0) 16 times, then GaussianDpEvent(5.0): see test_verify.
WAYS = {
    "epsilon halved": _set(epsilon=2.3),
    "epsilon a percent less": _tree(lambda r: r.update(epsilon=0.99 * r["epsilon"])),
    "epsilon a millionth less": _tree(lambda r: r.update(epsilon=(1 - 1e-6) * r["epsilon"])),
    "epsilon of 0": _set(epsilon=0.0),
    "epsilon negative": _set(epsilon=-1.0),
    "epsilon a text": _set(epsilon="4.7"),
    "epsilon true": _set(epsilon=True),
    "epsilon null": _set(epsilon=None),
    "epsilon infinite, and still valid": _set(epsilon="inf"),
    "epsilon NaN": _raw('"epsilon": ', '"epsilon": NaN, "was": '),
    "epsilon twice, the true one last": _raw('"epsilon": ', '"epsilon": 0.1, "epsilon": '),
    "delta smaller": _set(delta=1e-9),
    "delta of 0": _set(delta=0),
    "delta above 1": _set(delta=2.0),
    "delta of 1, and epsilon of 0": _set(delta=1.0, epsilon=0.0),
    "delta Infinity": _raw('"delta": 1e-05', '"delta": Infinity'),
    "a term dropped, and epsilon too": _tree(lambda r: (_drop(r), r.update(epsilon=0.15))),
    "all terms dropped, epsilon negative": _tree(
        lambda r: (r["event"].update(events=[]), r.update(epsilon=-0.1))
    ),
    "more noise in the event than its epsilon": _event(
        "events", 0, "event", noise_multiplier=3.0
    ),
    "more steps than its epsilon": _event("events", 0, count=17),
    "a count of one half": _event("events", 0, count=0.5),
    "a count below 0": _event("events", 0, count=-16),
    "a count that is true": _event("events", 0, count=True),
    "noise below 0": _event("events", 0, "event", noise_multiplier=-4.0),
    "noise of 0": _event("events", 0, "event", noise_multiplier=0.0),
    "noise that is a text": _event("events", 0, "event", noise_multiplier="4.0"),
    "noise infinite": _event("events", 0, "event", noise_multiplier="inf"),
    "a second noise in the event": _event("events", 0, "event", noise=9.0),
    "an event of an unknown kind": _event("events", 1, type="FreeDpEvent"),
    "an event that is a text": _set(event="GaussianDpEvent"),
    "events that are no list": _event(events={"0": {"type": "NoOpDpEvent"}}),
    "a composition is sampled": _tree(
        lambda r: r["event"]["events"].__setitem__(
            0,
            {
                "type": "PoissonSampledDpEvent",
                "sampling_probability": 0.1,
                "event": r["event"]["events"][0],
            },
        )
    ),
    "relation that moves sums by twice as much": _set(neighboring_relation="replace_one"),
    "relation unknown": _set(neighboring_relation="zero_out_half"),
    "unit swapped": _set(unit="group"),
    "relation of a group, unit of a row": _set(neighboring_relation="zero_out_group"),
    "both parts of a split, of which a person replaced is in one": _set(
        neighboring_relation="replace_one_group",
        unit="group",
        epsilon=1.5549818,
        event={
            "type": "ComposedDpEvent",
            "events": [
                {"type": "PartDpEvent", "split": "s", "part": part, "event": _GAUSS}
                for part in "ab"
            ],
        },
    ),
    "seeded, and still valid": _set(seeded=True),
    "valid is a number": _set(valid=1),
    "unaccounted, and still valid": _set(unaccounted=["a scaler"]),
    "a newer schema": _set(schema=3),
    "schema of a half": _set(schema=1.5),
    "version 1 of the schema, with fields of no version": _set(schema=1, notes="approved"),
    "the event is missing": _without("event"),
    "valid is missing": _without("valid"),
    "an unknown field": _set(proved=True),
    "a list of reports": lambda text: f"[{text}]",
    "broken off": lambda text: text[:-3],
    "followed by another": lambda text: text + text,
    "10^5 nested brackets": lambda text: "[" * 10**5 + "]" * 10**5,
    "10^5 nested events": _raw('"event": {', '"event": ' + '{"event": ' * 10**5 + "{"),
    "61 compositions in each other": _tree(
        lambda r: [
            r.update(event={"type": "ComposedDpEvent", "events": [r["event"]]}) for _ in range(61)
        ]
    ),
    "100 MB": lambda text: text + " " * 10**8,
    "empty": lambda text: "",
    "no Unicode": lambda text: b"\xff\xfe" + text.encode(),
}  # fmt: skip
