"""Classes that are left out, each with the reason: from flags or files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import BadFile, UserError


def read_exclusions(texts: Sequence[str]) -> list[str]:
    """``CLASS=REASON`` texts as they are; a CSV with ``class_id`` and ``reason`` as such texts."""
    found: list[str] = []
    for text in texts:
        if Path(text).suffix == ".csv" and "=" not in text:
            found += _read_file(Path(text))
        elif "=" in text:
            found.append(text)
        else:
            raise UserError(
                f"exclusion {text!r} has no reason", fix="write CLASS=REASON, or name a CSV file"
            )
    return found


def _read_file(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"no file {path}", fix="check the path")
    found: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = csv.DictReader(handle)
            if not {"class_id", "reason"} <= set(rows.fieldnames or ()):
                raise BadFile(path, "lacks the columns class_id and reason", fix="add a first line")
            for row in rows:
                if not row["class_id"] or not row["reason"]:
                    raise BadFile(
                        path,
                        f"line {rows.line_num} lacks a class or its reason",
                        fix="write class_id,reason in every line",
                    )
                found.append(f"{row['class_id']}={row['reason']}")
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadFile(path, f"is not valid CSV ({error})", fix="save it as CSV in UTF-8") from None
    return found
