"""The table as a file: JSONL, CSV and Parquet, each of which gives back exactly what it was given.

JSONL holds subject, answer and evidence as JSON values. CSV and Parquet hold them as JSON text.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, UserError
from heldout.core.files import atomic_path, csv_cells, csv_text_of, existing_file
from heldout.core.tables import parquet_batches, read_parquet
from heldout.data.judgements.judgement import (
    FIELDS,
    QUESTIONS,
    Judgement,
    from_texts,
    json_text,
    pair_subject,
    to_texts,
)

SCHEMA_VERSION = 1
_BATCH = 50_000
_VERSION_KEY = b"heldout_schema_version"


def write_judgements(path: Path, judgements: Iterable[Judgement]) -> int:
    """Write judgements to ``path``, as its ending says (.jsonl, .csv, .parquet); how many."""
    write = _by_ending(
        path, {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
    )
    with atomic_path(path) as temporary:
        count: int = write(temporary, judgements)
    return count


def read_judgements(
    path: Path, *, question: str | None = None, unanswered: list[str] | None = None
) -> Iterator[Judgement]:
    """Read judgements from ``path``, one at a time; its ending says how.

    Files made by hand may leave columns out: ``judgement_id`` is then made from the content,
    ``source`` is the file's name, ``question`` the argument, and without a ``subject`` every
    column that the table does not know is one of the subject's ids (``image_id``, ``class_id``);
    two images of a pair may stand in either order.
    Rows that nobody has answered are refused, or passed over where their places are collected in
    ``unanswered``.
    """
    for where, row in rows_of_file(path):
        if unanswered is not None and not row.get("answer") and not row.get("who"):
            unanswered.append(where)
            continue
        try:
            judgement = _judgement(row, question=question, source=path.name)
            if judgement.question in QUESTIONS:
                QUESTIONS[judgement.question].check(judgement)
        except UserError as error:
            raise BadFile(path, f"{where}: {error.message}", fix=error.fix) from None
        yield judgement


def rows_of_file(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a .jsonl, .csv or .parquet file as they stand, each with its place in words."""
    read = _by_ending(path, {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet})
    existing_file(path, "file of judgements")
    yield from read(path)


def _by_ending(path: Path, choices: Mapping[str, Any]) -> Callable[..., Any]:
    found: Callable[..., Any] | None = choices.get(path.suffix.lower())
    if found is None:
        raise UserError(
            f"{path}: judgements are not kept in this kind of file",
            fix=f"use a name that ends in {', '.join(choices)}",
        )
    return found


def _judgement(row: Mapping[str, Any], *, question: str | None, source: str) -> Judgement:
    fields = {name: row.get(name) for name in FIELDS}
    if not fields["subject"]:
        subject = {
            name: value
            for name, value in row.items()
            if name not in FIELDS and name != "schema_version" and value not in (None, "")
        }
        if set(subject) == {"image_id", "other_id"}:
            subject = pair_subject(str(subject["image_id"]), str(subject["other_id"]))
        fields["subject"] = json_text(subject, "subject")
    fields["question"] = fields["question"] or question
    if "source" not in row:
        fields["source"] = source
    for name in ("subject", "answer", "evidence"):
        if isinstance(fields[name], dict):
            fields[name] = json_text(fields[name], name)
    for name, value in fields.items():
        if value is not None and not isinstance(value, str):
            raise UserError(f"{name} is {value!r}", fix="write it as text")
    return from_texts(fields)


# JSONL


def _write_jsonl(path: Path, judgements: Iterable[Judgement]) -> int:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        count = 0
        for judgement in judgements:
            count += 1
            row: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **to_texts(judgement)}
            row.update(
                subject=judgement.subject, answer=judgement.answer, evidence=judgement.evidence
            )
            handle.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    return count


def _read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            where = f"line {number}"
            try:
                row = json.loads(line)  # evidence may hold integers of any size
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise BadFile(
                    path, f"{where} is not a JSON object", fix="write one object per line"
                )
            _check_version(path, row.get("schema_version", SCHEMA_VERSION))
            yield where, row


def _check_version(path: Path, version: object) -> None:
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise BadFile(
            path,
            f"has schema_version {version}, this heldout reads up to {SCHEMA_VERSION}",
            fix="upgrade heldout",
        )


# CSV


def _write_csv(path: Path, judgements: Iterable[Judgement]) -> int:
    with path.open("w", encoding="utf-8", newline="") as handle:
        # RFC 4180 line ends; with "\n" Python 3.11 would leave a lone "\r" in a cell unquoted.
        writer = csv.writer(handle, lineterminator="\r\n")
        writer.writerow(FIELDS)
        count = 0
        for judgement in judgements:
            writer.writerow(csv_cells(to_texts(judgement).values()))
            count += 1
    return count


def _read_csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.reader(handle, strict=True)
        try:
            header = next(reader, [])
            if not header or len(set(header)) != len(header):
                problem = "names a column twice" if header else "is empty"
                raise BadFile(path, problem, fix="name each column once, in the first line")
            for cells in filter(None, reader):
                where = f"line {reader.line_num}"
                if len(cells) != len(header):
                    raise BadFile(
                        path,
                        f"{where} has {len(cells)} cells, the header {len(header)}",
                        fix="quote cells that hold commas",
                    )
                yield where, dict(zip(header, map(csv_text_of, cells), strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadFile(
                path, f"is not valid CSV ({error})", fix="save it as CSV in UTF-8"
            ) from None


# Parquet


def _write_parquet(path: Path, judgements: Iterable[Judgement]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [pa.field(name, pa.string()) for name in FIELDS],
        metadata={_VERSION_KEY: str(SCHEMA_VERSION).encode()},
    )
    count = 0
    source = iter(judgements)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := [to_texts(judgement) for judgement in islice(source, _BATCH)]:
            columns = [pa.array([row[name] for row in batch], pa.string()) for name in FIELDS]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(batch)
    return count


def _read_parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    metadata = read_parquet(path, columns=[]).schema.metadata or {}
    stated = metadata.get(_VERSION_KEY, b"%d" % SCHEMA_VERSION)
    _check_version(path, int(stated) if stated.isdigit() else stated)
    number = 0
    for batch in parquet_batches(path, size=_BATCH):
        for row in batch.to_pylist():
            number += 1
            yield f"row {number}", row
