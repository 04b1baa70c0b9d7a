"""What is asked of a set of hard images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from heldout.core.errors import UserError
from heldout.data.judgements.judgement import SEVERITIES


@dataclass(frozen=True, kw_only=True)
class HardParameters:
    """The rule by which images are chosen."""

    wrong: int | None = field(
        default=None, metadata={"help": "models that must be wrong; all of them by default"}
    )
    major: int | None = field(
        default=None,
        metadata={
            "help": "models whose mistake must be of one of the severities; as many as wrong by default"
        },
    )
    severities: tuple[str, ...] = field(
        default=("Major",), metadata={"help": "severities that count, by the panel's ruling"}
    )
    truth: str | None = field(
        default=None,
        metadata={"help": "truth that says what is right; the pool's first by default"},
    )
    rule: Literal["majority", "plurality", "unanimous", "threshold", "dawid-skene"] = field(
        default="majority", metadata={"help": "how the panel's answers become one"}
    )
    share: float | None = field(
        default=None, metadata={"help": "share of votes, for the rules that take one"}
    )
    people: int = field(default=1, metadata={"help": "people that a ruling needs"})
    every_label: bool = field(
        default=True,
        metadata={"help": "drop images with a prediction of these models that nobody has reviewed"},
    )

    def __post_init__(self) -> None:
        for name in ("wrong", "major"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}", fix="give 1 or more")
        if self.people < 1:
            raise UserError(f"people is {self.people}", fix="give 1 or more")
        unknown = [name for name in self.severities if name not in SEVERITIES]
        if unknown or not self.severities:
            raise UserError(
                f"no severity {unknown[0]!r}" if unknown else "no severity counts",
                fix=f"use some of {', '.join(SEVERITIES)}",
            )
