"""Scores in the layout of CLIP_benchmark's result files, so that its tables can be built on ours.

One JSON object a test set and model: ``dataset``, ``model``, ``pretrained``, ``task``,
``metrics`` (``acc1``, ``acc5``, ``mean_per_class_recall`` as fractions) and ``language``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from heldout.core.errors import NotApplicable
from heldout.core.files import write_text
from heldout.measure.score.records import Record, Score
from heldout.measure.score.slices import ALL
from heldout.show.figure import slug

METRICS = {
    "top1": "acc1",
    "top5": "acc5",
    "mean_per_class": "mean_per_class_recall",
    "mean_per_class_recall": "mean_per_class_recall",
}
TASK = "zeroshot_classification"


def write_clip_benchmark_json(
    records: Iterable[Record],
    folder: Path,
    *,
    pretrained: Mapping[str, str] | None = None,
    truth: str | None = None,
    language: str = "en",
) -> list[Path]:
    """Write one file a (test set, model) into ``folder``; the paths, sorted as written.

    A model named ``open_clip:ARCHITECTURE/TAG`` is split into ``model`` and ``pretrained`` as
    CLIP_benchmark does; ``pretrained`` gives the tag of any other model, else it stays empty.
    ``truth`` chooses among several truths; by default the first that a test set's scores use.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for record in records:
        if not isinstance(record, Score) or record.slice != ALL or record.metric not in METRICS:
            continue
        if truth is not None and record.truth != truth:
            continue
        judged = (record.truth, record.label_map)
        if first.setdefault((record.testset, record.metric), judged) != judged:
            continue
        metrics = found.setdefault((record.testset, record.model), {})
        metrics.setdefault(METRICS[record.metric], record.value)
    if not found:
        raise NotApplicable(
            "no score that CLIP_benchmark's files can hold",
            fix=f"score the models with {', '.join(sorted(METRICS))}",
        )
    written: list[Path] = []
    for (testset, name), metrics in found.items():
        model, tag = _split(name, pretrained or {})
        result = {
            "dataset": testset,
            "model": model,
            "pretrained": tag,
            "task": TASK,
            "metrics": {key: metrics[key] for key in METRICS.values() if key in metrics},
            "language": language,
        }
        stem = slug(testset, tag or "none", model, language, TASK)
        path, number = folder / f"{stem}.json", 2
        while path in written:
            path, number = folder / f"{stem}-{number}.json", number + 1
        write_text(path, json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
        written.append(path)
    return written


def _split(name: str, pretrained: Mapping[str, str]) -> tuple[str, str]:
    if name in pretrained:
        return name, pretrained[name]
    if name.startswith("open_clip:"):
        architecture, _, tag = name.removeprefix("open_clip:").partition("/")
        return architecture, tag
    return name, ""
