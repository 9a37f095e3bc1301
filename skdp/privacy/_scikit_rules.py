"""Rules on the classes of scikit-learn: conditions on fitted objects, and the parts they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from skdp.fitting.types import Opaque
from skdp.privacy.report import PrivacyReport
from skdp.relations import check_relation

Reports = Sequence[PrivacyReport]
Parts = Iterable[tuple[str, Opaque]]

DECLARE = "name it in public_steps if it read no private rows and maps each row by itself"


def _always(fitted: Opaque, reports: Reports) -> bool:
    return True


def _nothing(fitted: Opaque) -> tuple[()]:
    return ()


class Objection(NamedTuple):
    """What is in no event, what to use instead, and for which fitted objects this is so.

    ``applies`` is given the fitted object and the reports of its parts.
    """

    reads: str
    instead: str
    applies: Callable[[Opaque, Reports], bool] = _always


@dataclass(frozen=True)
class Rule:
    """Verdict on a class: what speaks against it, its parts, and what it takes to be public."""

    verdict: str
    objections: tuple[Objection, ...] = ()
    only_if: str = ""
    parts: Callable[[Opaque], Parts] = _nothing
    facts: Callable[[Opaque], tuple[str, ...]] = _nothing
    needs_fit: bool = True

    @property
    def always_leaks(self) -> bool:
        """Whether the verdict is the same for every fitted object."""
        return any(objection.applies is _always for objection in self.objections)

    def of_subclass(self, base: str) -> Rule:
        """Verdict on a subclass: its fit may be another, so nothing is free, and leaks stay."""
        if self.always_leaks:
            return self
        reads = f"is a subclass of {base}, and skdp does not know what its own fit reads"
        return self.also(Objection(reads, DECLARE))

    def also(self, objection: Objection, **changed: Any) -> Rule:
        """Add an objection."""
        return replace(self, objections=(*self.objections, objection), **changed)


def leaks(reads: str, instead: str, parts: Callable[[Opaque], Parts] = _nothing) -> Rule:
    """Rule of a class that always reads rows."""
    return Rule("leaks", (Objection(reads, instead),), parts=parts)


def learned(what: str, instead: str) -> Rule:
    """Rule of a class that learns something from rows."""
    return leaks(f"learned {what} from the rows", f"use {instead}")


def passes_if(
    only_if: str, holds: Callable[[Opaque], bool], reads: str, instead: str = "", **more: Any
) -> Rule:
    """Rule of a class that passes under a condition."""
    objection = Objection(reads, instead or f"use {only_if}", lambda step, _: not holds(step))
    return Rule("passes", (objection,), only_if, **more)


def composes(parts: Callable[[Opaque], Parts], *objections: Objection, **more: Any) -> Rule:
    """Rule of a class that hands rows to others."""
    return Rule("composes", objections, parts=parts, **more)


# Conditions.


def has(parameter: str, value: Any) -> Callable[[Opaque], bool]:
    """Return whether a parameter has this value."""
    return lambda step: getattr(step, parameter) == value


def given(parameter: str) -> Callable[[Opaque], bool]:
    """Whether a parameter is a number or an array, and not the name of a way to learn it."""
    return lambda step: not isinstance(getattr(step, parameter), str)


def is_elementwise(function: Any) -> bool:
    """Whether a function is None or maps numbers one by one: a user's may look across rows."""
    if function is None:
        return True
    is_ufunc = isinstance(function, np.ufunc) and (function.nin, function.nout) == (1, 1)
    return is_ufunc and function in [getattr(m, function.__name__, None) for m in (np, special)]


def is_elementwise_transformer(step: Opaque) -> bool:
    """Whether both functions are, and have no arguments."""
    functions = (step.func, step.inverse_func)
    return all(map(is_elementwise, functions)) and not (step.kw_args or step.inv_kw_args)


def checks_its_inverse(step: Opaque, _: Reports) -> bool:
    """Whether it warns by a look at rows."""
    return step.check_inverse and step.func is not None and step.inverse_func is not None


def checks_its_transformer(fitted: Opaque, _: Reports) -> bool:
    """Whether it does so beside its part."""
    # Functions are checked by the FunctionTransformer that is made of them, which is a part.
    return fitted.check_inverse and fitted.transformer is not None


def has_declared_categories(step: Opaque) -> bool:
    """Whether neither categories nor their frequency are learned."""
    rare = (step.min_frequency, step.max_categories)
    return not isinstance(step.categories, str) and rare == (None, None)


def warns_of_unknown_categories(step: Opaque, _: Reports) -> bool:
    """Whether a warning tells of a row."""
    silent = step.handle_unknown == "ignore" and step.drop is None
    return step.handle_unknown != "error" and not silent


def fills_with_a_constant(step: Opaque) -> bool:
    """Whether neither the filling nor columns are learned."""
    # Without keep_empty_features a column is dropped if no row has it, and the indicator's columns
    # are those that lack in some row.
    return step.strategy == "constant" and step.keep_empty_features and not step.add_indicator


def splits_text_itself(step: Opaque) -> bool:
    """Whether no function of the caller's is called."""
    return not any(map(callable, (step.analyzer, step.tokenizer, step.preprocessor)))


def has_a_vocabulary(step: Opaque) -> bool:
    """Whether words are declared."""
    return step.vocabulary is not None and splits_text_itself(step)


def may_skip_labels(fitted: Opaque, _: Reports) -> bool:
    """Whether targets are indicators, of labels that a single row may have, or one was skipped."""
    skipped = any(type(part).__name__ == CONSTANT for part in fitted.estimators_)
    return skipped or fitted.multilabel_


def ran_folds_unless_prefit(fitted: Opaque, _: Reports) -> bool:
    """Whether parts were fitted to folds."""
    return not (isinstance(fitted.cv, str) and fitted.cv == "prefit")


def repeats_rows(fitted: Opaque, _: Reports) -> bool:
    """Whether a row may count several times."""
    # Weights make some rows likelier to be drawn than an event states, and are kept, row by row.
    return fitted.bootstrap or getattr(fitted, "_sample_weight", None) is not None


def n_rows_is_private(_: Opaque, reports: Reports) -> bool:
    """Whether the number of rows is private to a part."""
    return any(not check_relation(report.neighboring_relation).n_is_public for report in reports)


def n_rows_is_read(_: Opaque, reports: Reports) -> bool:
    """Whether a fit takes its number of rows to be public: a declared one is held against it."""
    return any(check_relation(report.neighboring_relation).n_is_public for report in reports)


def selector(columns: Any) -> bool:
    """Whether columns are chosen by make_column_selector."""
    kind = type(columns)
    return (kind.__module__.partition(".")[0], kind.__name__) == ("sklearn", "make_column_selector")


def asks_a_function_for_columns(fitted: Opaque, _: Reports) -> bool:
    """Whether a function of the caller is given the rows."""
    return any(callable(columns) and not selector(columns) for *_, columns in fitted.transformers)


# Parts of a fitted object: (name as in get_params, fitted part).


def one(attribute: str, name: str = "estimator") -> Callable[[Opaque], Parts]:
    """Return what finds the part that is an attribute."""

    def parts(fitted: Opaque) -> Parts:
        part = getattr(fitted, attribute, None)
        return [] if part is None else [(name, part)]

    return parts


# Stands in where a label, or a bit of a class's code, has one value in all rows.
CONSTANT = "_ConstantPredictor"


def each(fitted: Opaque) -> Iterator[tuple[str, Opaque]]:
    """Yield the parts of ``estimators_``."""
    for part in getattr(fitted, "estimators_", ()):
        if type(part).__name__ != CONSTANT:
            yield "estimator", part


def named(attribute: str) -> Callable[[Opaque], Parts]:
    """Return what yields the parts of a list of pairs."""

    def parts(fitted: Opaque) -> Iterator[tuple[str, Opaque]]:
        for name, part in getattr(fitted, attribute, ()):
            if part is not None and not isinstance(part, str):  # "passthrough" or "drop"
                yield name, part

    return parts


def columns(fitted: Opaque) -> Iterator[tuple[str, Opaque]]:
    """Yield the parts of a ColumnTransformer that have columns."""
    for name, part, columns in getattr(fitted, "transformers_", ()):
        # Without a column a step is kept as it came, unfitted.
        chosen = np.asarray(columns) if isinstance(columns, list | tuple | np.ndarray) else None
        none = chosen is not None and not (chosen.any() if chosen.dtype == bool else chosen.size)
        if not isinstance(part, str) and not none:
            yield name, part


def votes(fitted: Opaque) -> Parts:
    """Parts of a VotingClassifier."""
    names = [name for name, part in fitted.estimators if not isinstance(part, str)]
    return zip(names, getattr(fitted, "estimators_", ()), strict=False)


def stack(fitted: Opaque) -> Parts:
    """Parts of a StackingClassifier."""
    return [*votes(fitted), *one("final_estimator_", "final_estimator")(fitted)]


def target(fitted: Opaque) -> Parts:
    """Parts of a TransformedTargetRegressor."""
    return [*one("transformer_", "transformer")(fitted), *one("regressor_", "regressor")(fitted)]


def calibrated(fitted: Opaque) -> Parts:
    """Parts of a CalibratedClassifierCV."""
    pairs = getattr(fitted, "calibrated_classifiers_", ())
    return [("estimator", pair.estimator) for pair in pairs]


# Facts that are read from the data and taken to be public.


def facts(*names: str) -> Callable[[Opaque], tuple[str, ...]]:
    """Return what names them."""
    return lambda fitted: names


def column_types(fitted: Opaque) -> tuple[str, ...]:
    """Name the types of the columns, where these are chosen by them."""
    return ("column types",) if any(selector(entry[2]) for entry in fitted.transformers) else ()
