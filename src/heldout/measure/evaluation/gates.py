"""Gates: a metric that must not fall under a value, for use in a build."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heldout.core.errors import UserError
from heldout.measure.score.records import Record, Score
from heldout.measure.score.slices import ALL

_GATE = re.compile(r"(?P<metric>[A-Za-z][\w]*)=(?P<value>\d+(\.\d*)?|\.\d+)\Z")


@dataclass(frozen=True)
class Gate:
    """A metric and the least value it may have."""

    metric: str
    value: float


@dataclass(frozen=True)
class Miss:
    """A score that a gate does not let through."""

    gate: Gate
    score: Score

    @property
    def line(self) -> str:
        """What was missed, for a person."""
        s = self.score
        interval = "" if s.low is None else f"interval {s.low:.4f} to {s.high:.4f}, "
        return (
            f"{s.model} on {s.testset}: {s.metric} {s.value:.4f} is under {self.gate.value:g} "
            f"({interval}n = {s.n:,})"
        )


def parse_gate(text: str) -> Gate:
    """A gate written ``metric=value``.

    >>> parse_gate("top1=0.75")
    Gate(metric='top1', value=0.75)
    """
    match = _GATE.match(text)
    if not match:
        raise UserError(f"--fail-under {text!r}", fix="write metric=value, such as top1=0.75")
    value = float(match["value"])
    if value > 1:
        raise UserError(
            f"--fail-under {text!r} is above 1", fix="values are fractions, such as 0.75"
        )
    return Gate(match["metric"], value)


def misses(records: Sequence[Record], gates: Sequence[Gate]) -> list[Miss]:
    """Scores on whole sets that lie under a gate; a gate on a metric that was not scored is refused."""
    scores = [r for r in records if isinstance(r, Score) and r.slice == ALL]
    known = {score.metric for score in scores}
    for gate in gates:
        if gate.metric not in known:
            raise UserError(
                f"--fail-under {gate.metric}: that metric was not scored",
                fix=f"add --metric {gate.metric}, or use {', '.join(sorted(known))}",
            )
    return [
        Miss(gate, score)
        for gate in gates
        for score in scores
        if score.metric == gate.metric and score.value < gate.value
    ]
