"""Categories of mistakes, and what a proposal of one is: the tool proposes, people decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heldout.data.judgements.questions import CATEGORIES
from heldout.data.judgements.questions import NO_MISTAKE as NO_MISTAKE

FINE_GRAINED = "Fine-grained error"
OUT_OF_VOCABULARY = "Fine-grained error with OOV"
NON_PROTOTYPICAL = "Non-prototypical"
SPURIOUS = "Spurious Correlation"
OTHER = "Other"

PROPOSABLE: tuple[str, ...] = (NO_MISTAKE, *CATEGORIES)
"""What a proposal may say: that it is no mistake, or a category that people may answer."""

EXPLAINED: tuple[str, ...] = tuple(name for name in CATEGORIES if name != OTHER)
"""Categories that name a reason; ``Other`` is a failure that nothing explains."""


@dataclass(frozen=True)
class Evidence:
    """One thing that is known about a mistake.

    ``kind``   which one, such as ``affinity`` (the table in docs/mistake-categories.md)
    ``text``   for a person, in a sentence
    ``value``  the number behind it
    """

    kind: str
    text: str
    value: float

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"kind": self.kind, "text": self.text, "value": self.value}


@dataclass(frozen=True)
class Proposal:
    """What kind of mistake a wrong (image, prediction) pair may be, and why.

    ``category``              one of :data:`PROPOSABLE`
    ``severity``              ``Major`` or ``Minor`` where the interval of its probability lies on one
                              side of a half; None where it does not, or nothing was learned
    ``severity_probability``  of ``Major``, with its interval ``severity_low`` to ``severity_high``
    ``evidence``              what speaks for the category, strongest first; where nothing does, what
                              is known
    ``scores``                a number in 0 … 1 for each category. From rules it is the strength of the
                              evidence, a half where the rule just holds; from judged mistakes it is a
                              probability
    ``basis``                 ``rules`` or ``learned``
    """

    image_id: str
    prediction: str
    category: str
    severity: str | None = None
    severity_probability: float | None = None
    severity_low: float | None = None
    severity_high: float | None = None
    evidence: tuple[Evidence, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    basis: str = "rules"

    @property
    def key(self) -> tuple[str, str]:
        """What a judgement of it is keyed by."""
        return self.image_id, self.prediction

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "image_id": self.image_id,
            "prediction": self.prediction,
            "category": self.category,
            "severity": self.severity,
            "severity_probability": self.severity_probability,
            "severity_low": self.severity_low,
            "severity_high": self.severity_high,
            "basis": self.basis,
            "scores": dict(self.scores),
            "evidence": [item.to_dict() for item in self.evidence],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Proposal:
        """The proposal that :meth:`to_dict` wrote."""
        fields = {name: value[name] for name in value if name not in ("record", "evidence")}
        return cls(**fields, evidence=tuple(Evidence(**item) for item in value["evidence"]))
