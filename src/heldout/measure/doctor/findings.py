"""Findings: what is wrong, how sure that is, what to do about it, and findings of many models merged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from heldout.core.records import Table

Severity = Literal["error", "warning", "note"]
Evidence = dict[str, int | float | str]

CODES: dict[str, tuple[Severity, str]] = {
    "reversed-topk": ("error", "top-k columns are stored worst first"),
    "off-by-one": ("error", "class ids are one too high or one too low"),
    "text-sorted-classes": ("error", "classes were counted in the order 0, 1, 10, 100, …"),
    "name-sorted-classes": ("error", "classes were counted in the alphabetical order of names"),
    "id-sorted-classes": ("error", "classes were counted in the order of their ids"),
    "permuted-labels": ("error", "class ids mean other classes, in no order that is known"),
    "swapped-classes": ("error", "some classes are in each other's place"),
    "wrong-label-space": ("error", "class ids count within another list of classes"),
    "label-space-differs": ("warning", "model and test set have different label spaces"),
    "subset-of-classes": ("note", "the test set has only some of the model's classes"),
    "ids-out-of-range": ("error", "class ids that the label space does not have"),
    "wrong-preprocessing": ("error", "another preprocessing fits the model better"),
    "rows-in-other-order": ("error", "rows belong to the images in another order"),
    "at-chance": ("error", "no better than guessing"),
    "constant-predictions": ("error", "one class is predicted for every image"),
    "swallowing-class": ("warning", "one class is predicted far too often"),
    "perfect-score": ("warning", "every image is right"),
    "same-outputs": ("warning", "two models have the same outputs"),
    "text-sorted-folders": ("error", "class folders were counted in the order 0, 1, 10, 100, …"),
    "folders-disagree": ("error", "images lie in folders of other classes than theirs"),
    "absent-classes": ("warning", "classes without images"),
    "duplicate-images": ("warning", "one file is there several times"),
    "conflicting-duplicates": ("error", "one file has several classes"),
}
"""Every code with its severity and its meaning.

``error``    numbers from these data are wrong, or the data cannot be what they are taken for
``warning``  something that is seldom meant
``note``     nothing is wrong, but the number has two readings
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Repair:
    """What turns outputs into what they should have been. Steps are applied in this order.

    ``order``    image ids in the order in which the rows really are
    ``reverse``  whether the columns are turned round
    ``relabel``  int64 (positions,): the test set's class index that each stored class id means,
                 -1 for none
    """

    order: tuple[str, ...] | None = None
    reverse: bool = False
    relabel: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that is wrong.

    ``code``      one of :data:`CODES`
    ``message``   one sentence with the numbers that matter most
    ``evidence``  numbers (accuracies are fractions) and names behind the message
    ``fix``       what to do, as a command where there is one
    ``testset``, ``model``  what it was found on; no model where the test set alone shows it
    ``repair``    what repairs the outputs in memory, where something does
    """

    record: ClassVar[str] = "finding"
    table: ClassVar[Table] = Table("{testset}", ("severity", "model", "code", "message", "fix"))
    code: str
    message: str
    evidence: Evidence
    fix: str
    testset: str
    model: str = ""
    repair: Repair | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is: ``error``, ``warning`` or ``note``."""
        return CODES[self.code][0]

    @property
    def relabel(self) -> np.ndarray | None:
        """What class ids mean after the repair, where it changes that."""
        return None if self.repair is None else self.repair.relabel

    @property
    def line(self) -> str:
        """What was found and what to do, on one line."""
        what = f"{self.model} on {self.testset}" if self.model else self.testset
        return f"{what}: {self.message.rstrip('.')} [{self.code}]: {self.fix}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, without the repair's arrays."""
        return {
            "code": self.code,
            "severity": self.severity,
            "testset": self.testset,
            "model": self.model,
            "message": self.message,
            "evidence": self.evidence,
            "fix": self.fix,
            "repairable": self.repair is not None,
        }


def percent(fraction: float) -> str:
    """A fraction as a person reads it; never rounded to 0 or 100 % unless it is that.

    >>> percent(0.76132), percent(0.00004), percent(0.0)
    ('76.13 %', '0.004 %', '0 %')
    """
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}".replace("%", " %")
    digits = 2 if 0.0005 <= fraction <= 0.9995 else 3
    return f"{100 * fraction:.{digits}f} %"


_NAMED = 4
"""Models and values up to this many are listed, more are counted."""
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:[.,]\d+)*")  # a digit of a name is not a number


def merged_lines(findings: Iterable[Finding]) -> list[str]:
    """One line for each thing that was found, in the order found.

    Findings of one code and one fix on one test set whose sentences differ only in numbers become
    one line: models are named together, and where numbers differ all of them are given, or their
    range if they are many. An error says that it is one.
    """
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for finding in findings:
        shape = _NUMBER.sub("0", finding.message)
        groups.setdefault((finding.code, finding.testset, finding.fix, shape), []).append(finding)
    return list(dict.fromkeys(_line(group) for group in groups.values()))


def _line(group: Sequence[Finding]) -> str:
    first = group[0]
    if len(group) > 1:
        models = [finding.model for finding in group]
        who = ", ".join(models) if len(models) <= _NAMED else f"{len(models)} models"
        message = _merged([finding.message for finding in group])
        first = replace(first, model=who, message=message)
    return f"error: {first.line}" if first.severity == "error" else first.line


def _merged(messages: Sequence[str]) -> str:
    """Sentences that differ only in numbers as one sentence with all of the numbers."""
    columns = zip(*(_NUMBER.findall(message) for message in messages), strict=True)
    numbers = iter([_numbers(column) for column in columns])
    return _NUMBER.sub(lambda _: next(numbers), messages[0])


def _numbers(values: Sequence[str]) -> str:
    if len(set(values)) == 1:
        return values[0]
    if len(values) <= _NAMED:
        return " / ".join(values)
    ordered = sorted(values, key=lambda text: float(text.replace(",", "")))
    return f"{ordered[0]} to {ordered[-1]}"
