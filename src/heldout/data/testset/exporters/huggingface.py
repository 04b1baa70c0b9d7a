"""Hugging Face image folder: labels written down for each file, never inferred from folder names."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import UserError
from heldout.core.files import write_text
from heldout.data.testset.exporters.images import (
    FileNames,
    ImageExport,
    Row,
    image_suffix,
    unique_names,
)
from heldout.data.testset.tables import column_names
from heldout.data.testset.testset import TestSet

FIXED = ("file_name", "label", "class_id", "image_id")
SPLIT = "test"
PER_FOLDER = 1000
"""Files per folder: the hub takes at most 10,000."""


def write_huggingface(run: ImageExport, folder: Path) -> int:
    """Write ``README.md``, ``test/metadata.jsonl`` and ``test/<part>/<file>``.

    Each line of the metadata has file_name, label (the class's index), class_id, image_id and the
    set's own columns; the card's YAML gives the class names in order. Names that two classes share
    are distinguished, because a ``ClassLabel`` refuses repeated ones.
    """
    testset = run.testset
    if not run.copy:
        run.notes.append("without the images: lay each file where file_name says")
    columns = _columns(testset)
    left = {*column_names(testset.images), *testset.memberships["column"].to_pylist()} - {*columns}
    if left:
        run.notes.append(
            f"left out, as it is no text or number or has several: {', '.join(sorted(left))}"
        )
    names = FileNames()
    lines: list[str] = []
    for row, data in run.read():
        part = f"{len(lines) // PER_FOLDER:04d}"
        name = f"{part}/{names.take(part, row, image_suffix(data))}"
        if run.copy:
            (folder / SPLIT / part).mkdir(parents=True, exist_ok=True)
            (folder / SPLIT / name).write_bytes(data)
        line = {"file_name": name, "label": row.index}
        line |= {"class_id": row.class_id, "image_id": row.image_id}
        line |= {key: values[row.image_id] for key, (_, values) in columns.items()}
        lines.append(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(folder / SPLIT / "metadata.jsonl", "".join(lines))
    types = {key: kind for key, (kind, _) in columns.items()}
    write_text(folder / "README.md", _readme(testset, run.kept, types))
    return len(lines)


def _columns(testset: TestSet) -> dict[str, tuple[str, dict[str, Any]]]:
    """Column -> its type there and image -> value; columns of other types are left out."""
    import pyarrow as pa

    ids = testset.image_ids.to_pylist()
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in column_names(testset.images):
        column = testset.images[name]
        tests = {
            "string": pa.types.is_string,
            "int64": pa.types.is_integer,
            "float64": pa.types.is_floating,
            "bool": pa.types.is_boolean,
        }
        kind = next((kind for kind, test in tests.items() if test(column.type)), None)
        if kind is None or column.null_count == len(column):
            continue
        if name in (*FIXED, "image"):
            raise UserError(
                f"column {name!r} of {testset.name} has a name that the format needs",
                fix="rename the column",
            )
        values = column.to_pylist()
        if kind == "float64":  # JSON has no other floats
            values = [v if v is None or math.isfinite(v) else None for v in values]
        found[name] = kind, dict(zip(ids, values, strict=True))
    return found


def _quoted(text: str) -> str:
    """A text as a YAML scalar: every JSON string is one."""
    return json.dumps(text, ensure_ascii=False)


def _readme(testset: TestSet, rows: Sequence[Row], types: dict[str, str]) -> str:
    yaml = [
        "---",
        f"pretty_name: {_quoted(testset.name)}",
        "task_categories:",
        "- image-classification",
        "license: other",
        "configs:",
        "- config_name: default",
        "  drop_labels: true",
        "  data_files:",
        f"  - split: {SPLIT}",
        f"    path: {_quoted(SPLIT + '/**')}",
        "dataset_info:",
        "  features:",
        "  - name: image",
        "    dtype: image",
        "  - name: label",
        "    dtype:",
        "      class_label:",
        "        names:",
    ]
    names = unique_names(testset.label_space)
    yaml += [f"          '{index}': {_quoted(name)}" for index, name in enumerate(names)]
    for name, kind in {"class_id": "string", "image_id": "string", **types}.items():
        yaml += [f"  - name: {_quoted(name)}", f"    dtype: {kind}"]
    licences = ", ".join(f"{name} ({count})" for name, count in testset.card.licences.items())
    body = [
        "---",
        "",
        f"# {testset.name}",
        "",
        f"{len(rows)} images of {len({row.index for row in rows})} classes, labelled in "
        f"label space {testset.label_space.name}. `label` is the class's index and "
        "`class_id` its id, both written down for each file.",
        "",
        f"- Content hash: `{testset.card.content_hash}`",
        f"- Licences: {licences or 'unknown'}; see attributions.csv",
    ]
    if testset.card.citation:
        body.append(f"- Citation: {testset.card.citation}")
    return "\n".join([*yaml, *body]) + "\n"
