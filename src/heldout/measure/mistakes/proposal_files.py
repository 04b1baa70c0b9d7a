"""Files of proposals: a line each as JSON, or a table for a spreadsheet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import BadFile, UserError
from heldout.core.files import csv_text, existing_file, write_text
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.mistakes.categories import PROPOSABLE, Proposal
from heldout.measure.mistakes.mistake import Mistake

SCHEMA_VERSION = 1
COLUMNS = (
    "image_id",
    "prediction",
    "prediction_name",
    "acceptable",
    "acceptable_names",
    "models",
    "category",
    "severity",
    "severity_probability",
    "severity_low",
    "severity_high",
    "basis",
    *(f"score: {name}" for name in PROPOSABLE),
    "evidence",
)
"""Columns of the table; lists are joined by ``; ``."""


def write_proposals(
    path: Path,
    proposals: Sequence[Proposal],
    *,
    mistakes: Sequence[Mistake],
    label_space: LabelSpace,
) -> None:
    """Write proposals beside their mistakes: ``.jsonl`` holds everything, ``.csv`` is for reading."""
    if path.suffix == ".jsonl":
        lines = [
            json.dumps({"schema_version": SCHEMA_VERSION, **proposal.to_dict()}, ensure_ascii=False)
            for proposal in proposals
        ]
        write_text(path, "".join(f"{line}\n" for line in lines))
        return
    if path.suffix != ".csv":
        raise UserError(f"{path.name} is neither .csv nor .jsonl", fix="name such a file")
    rows = []
    for proposal, mistake in zip(proposals, mistakes, strict=True):
        numbers = (
            proposal.severity_probability,
            proposal.severity_low,
            proposal.severity_high,
        )
        rows.append(
            [
                proposal.image_id,
                proposal.prediction,
                label_space.get(proposal.prediction).name,
                "; ".join(mistake.acceptable),
                "; ".join(label_space.get(label).name for label in mistake.acceptable),
                "; ".join(mistake.models),
                proposal.category,
                proposal.severity or "",
                *("" if number is None else f"{number:.4f}" for number in numbers),
                proposal.basis,
                *(f"{proposal.scores.get(name, 0.0):.4f}" for name in PROPOSABLE),
                "; ".join(item.text for item in proposal.evidence),
            ]
        )
    write_text(path, csv_text(COLUMNS, rows))


def read_proposals(path: Path) -> tuple[Proposal, ...]:
    """The proposals of a ``.jsonl`` file that :func:`write_proposals` wrote."""
    existing_file(path, "file of proposals")
    found = []
    # By newlines alone: ids may hold other characters that end a line in Unicode.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if value.pop("schema_version") > SCHEMA_VERSION:
                raise BadFile(path, "was written by a newer heldout", fix="upgrade heldout")
            found.append(Proposal.from_dict(value))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadFile(
                path, f"line {number} is no proposal", fix="write it with heldout mistakes propose"
            ) from None
    return tuple(found)
