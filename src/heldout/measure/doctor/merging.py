"""Findings for a person: models that show the same thing share one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from heldout.measure.doctor.finding import Finding

_NAMED = 4
"""Models and values up to this many are listed, more are counted."""
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:[.,]\d+)*")  # a digit of a name is no number


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
