"""Findings: what is wrong, how sure that is, what to do about it, and findings of many models merged."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from heldout.core.records import Table

Severity = Literal["error", "warning", "note"]
Evidence = dict[str, int | float | str]

CODES: dict[str, Severity] = {
    "reversed-topk": "error",
    "off-by-one": "error",
    "text-sorted-classes": "error",
    "name-sorted-classes": "error",
    "id-sorted-classes": "error",
    "permuted-labels": "error",
    "swapped-classes": "error",
    "wrong-label-space": "error",
    "label-space-differs": "warning",
    "subset-of-classes": "note",
    "ids-out-of-range": "error",
    "wrong-preprocessing": "error",
    "rows-in-other-order": "error",
    "at-chance": "error",
    "probabilities": "error",
    "constant-predictions": "error",
    "perfect-score": "warning",
    "same-outputs": "warning",
    "text-sorted-folders": "error",
    "folders-disagree": "error",
}
"""Every code with its severity; docs/doctor.md says what each means.

``error``    numbers from these data are wrong, or the data cannot be what they are taken for
``warning``  something that is seldom meant
``note``     nothing is wrong, but the number has two readings
"""


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that is wrong.

    ``code``      one of :data:`CODES`
    ``message``   one sentence with the numbers that matter most
    ``evidence``  numbers (accuracies are fractions) and names behind the message
    ``fix``       what to do, as a command where there is one
    ``testset``, ``model``  what it was found on; no model where the test set alone shows it
    """

    record: ClassVar[str] = "finding"
    table: ClassVar[Table] = Table("{testset}", ("severity", "model", "code", "message", "fix"))
    code: str
    message: str
    evidence: Evidence
    fix: str
    testset: str
    model: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is: ``error``, ``warning`` or ``note``."""
        return CODES[self.code]

    @property
    def found(self) -> str:
        """What was found, on one line."""
        what = f"{self.model} on {self.testset}" if self.model else self.testset
        return f"{what}: {self.message.rstrip('.')} [{self.code}]"

    @property
    def line(self) -> str:
        """What was found and what to do, on one line."""
        return f"{self.found}: {self.fix}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "code": self.code,
            "severity": self.severity,
            "testset": self.testset,
            "model": self.model,
            "message": self.message,
            "evidence": self.evidence,
            "fix": self.fix,
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


def merged_lines(findings: Iterable[Finding], told: set[str] | None = None) -> list[str]:
    """One line for each thing that was found, in the order found.

    Findings of one code and one fix on one test set whose sentences differ only in numbers become
    one line: models are named together, and where numbers differ all of them are given, or their
    range if they are many. An error says that it is one.

    ``told``  what was said before to do, which is not said again; what is said now is added to it
    """
    groups: defaultdict[tuple[str, str, str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        shape = _NUMBER.sub("0", finding.message)
        groups[finding.code, finding.testset, finding.fix, shape].append(finding)
    lines = []
    for merged in map(_merged, groups.values()):
        known = told is not None and merged.fix in told
        error = "error: " if merged.severity == "error" else ""
        lines.append(error + (merged.found if known else merged.line))
        if told is not None:
            told.add(merged.fix)
    return list(dict.fromkeys(lines))


def _merged(group: Sequence[Finding]) -> Finding:
    """Findings whose sentences differ only in numbers as one sentence with all of the numbers."""
    models = [finding.model for finding in group]
    who = ", ".join(models) if len(models) <= _NAMED else f"{len(models)} models"
    columns = zip(*(_NUMBER.findall(finding.message) for finding in group), strict=True)
    numbers = map(_numbers, columns)
    message = _NUMBER.sub(lambda _: next(numbers), group[0].message)
    return replace(group[0], model=who, message=message)


def _numbers(values: Sequence[str]) -> str:
    if len(set(values)) == 1:
        return values[0]
    if len(values) <= _NAMED:
        return " / ".join(values)
    ordered = sorted(values, key=lambda text: float(text.replace(",", "")))
    return f"{ordered[0]} to {ordered[-1]}"
