"""Findings: what is wrong, how sure that is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Severity = Literal["error", "warning", "note"]
Evidence = dict[str, int | float | str]

CODES: dict[str, tuple[Severity, str]] = {
    "reversed-topk": ("error", "top-k columns are stored worst first"),
    "off-by-one": ("error", "class ids are one too high or one too low"),
    "text-sorted-classes": ("error", "classes were counted in the order 0, 1, 10, 100, …"),
    "name-sorted-classes": ("error", "classes were counted in the alphabetical order of names"),
    "id-sorted-classes": ("error", "classes were counted in the order of their ids"),
    "permuted-labels": ("error", "class ids mean other classes, in no order that is known"),
    "swapped-classes": ("error", "some classes stand in each other's place"),
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """One thing that is wrong.

    ``code``      one of :data:`CODES`
    ``message``   one sentence with the numbers that matter most
    ``evidence``  numbers (accuracies are fractions) and names behind the message
    ``fix``       what to do, as a command where there is one
    ``testset``, ``model``  what it was found on; no model where the test set alone shows it
    ``repair``    what mends the outputs in memory, where something does
    """

    code: str
    message: str
    evidence: Evidence = field(default_factory=dict)
    fix: str
    testset: str
    model: str = ""
    repair: Repair | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is: ``error``, ``warning`` or ``note``."""
        return CODES[self.code][0]

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
