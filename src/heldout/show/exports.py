"""Records and figures as other files: Vega-Lite, SVG, PNG, PDF; timm's and CLIP_benchmark's tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import NotApplicable, UserError
from heldout.core.extras import require
from heldout.core.files import canonical_json, csv_text, write_bytes, write_text
from heldout.show.charts import VL_VERSION, Figure, Spec, slug
from heldout.show.score_figures import all_figures
from heldout.show.view import ReportData, ReportView

FORMATS = ("svg", "png", "pdf", "json")
_TIMM = [
    "model",
    "img_size",
    "top1",
    "top1_err",
    "top5",
    "top5_err",
    "param_count",
    "crop_pct",
    "interpolation",
]
_TIMM_DIFFERENCES = ["top1_diff", "top5_diff", "rank_diff"]
_CLIP_METRICS = {
    "top1": "acc1",
    "top5": "acc5",
    "mean_per_class": "mean_per_class_recall",
    "mean_per_class_recall": "mean_per_class_recall",
}
_CLIP_TASK = "zeroshot_classification"


def figures(data: ReportData) -> dict[str, Spec]:
    """By name: every figure as a Vega-Lite specification that is complete, data included."""
    return {f.name: {"title": f.title, **f.spec} for f in all_figures(ReportView(data))}


def write_figures(
    data: ReportData, folder: Path, formats: Sequence[str] = ("svg", "png")
) -> list[Path]:
    """Write every figure into ``folder`` as ``<name>.<format>``; the paths written.

    ``svg``, ``png`` (two pixels per unit) and ``pdf`` are drawn by vl-convert; ``json`` is the
    Vega-Lite specification itself.
    """
    for form in formats:
        _check_format(form, form)
    written = []
    for name, spec in figures(data).items():
        for form in formats:
            path = folder / f"{name}.{form}"
            _write(spec, path, form)
            written.append(path)
    return written


def write_figure(figure: Figure, path: Path) -> None:
    """Write one figure as SVG, PNG, PDF or its specification, by the ending of ``path``."""
    form = path.suffix.removeprefix(".").lower()
    _check_format(form, path.name)
    _write({"title": figure.title, **figure.spec}, path, form)


def _check_format(form: str, given: str) -> None:
    if form not in FORMATS:
        raise UserError(f"no figure format {given!r}", fix=f"use one of {', '.join(FORMATS)}")


def _write(spec: Spec, path: Path, form: str) -> None:
    if form == "json":
        write_text(path, canonical_json(spec) + "\n")
        return
    vl = require("vl_convert", extra="figures", purpose="drawing figures as files")
    if form == "svg":
        write_text(path, vl.vegalite_to_svg(spec, vl_version=VL_VERSION))
    elif form == "pdf":
        write_bytes(path, vl.vegalite_to_pdf(spec, vl_version=VL_VERSION))
    else:
        write_bytes(path, vl.vegalite_to_png(spec, vl_version=VL_VERSION, scale=2))


# ---- timm ----------------------------------------------------------------------------------------


def write_timm_csv(
    view: ReportView, path: Path, *, testset: str, baseline: str | None = None
) -> None:
    """Write ``top1`` and ``top5`` of one test set in the columns of timm's result tables.

    timm publishes one CSV per test set: accuracies in percent with three decimals, rows sorted by
    top-1, then top-5, then name. With ``baseline`` the differences from that test set follow, and
    the change of rank, where a rank is a row's place among the rows of its own table; they are
    empty for a model without scores on the baseline. So is what records do not know: image size,
    parameters, crop and interpolation, and a missing top-5 accuracy.
    """
    found = _percents(view, testset)
    base = {} if baseline is None else _percents(view, baseline)
    before = list(base)
    rows = []
    for place, (model, (top1, top5)) in enumerate(found.items()):
        row = [model, "", f"{top1:.3f}", f"{100 - top1:.3f}"]
        row += ["", ""] if top5 is None else [f"{top5:.3f}", f"{100 - top5:.3f}"]
        row += ["", "", ""]
        if model in base:
            old1, old5 = base[model]
            gain = before.index(model) - place
            row += [
                f"{top1 - old1:+.3f}",
                "" if top5 is None or old5 is None else f"{top5 - old5:+.3f}",
                f"{gain:+d}" if gain else "0",
            ]
        elif base:
            row += ["", "", ""]
        rows.append(row)
    write_text(path, csv_text(_TIMM + (_TIMM_DIFFERENCES if base else []), rows))


def _percents(view: ReportView, testset: str) -> dict[str, tuple[float, float | None]]:
    """By model: top-1 and top-5 in percent, as timm sorts them, by what is printed."""
    top1, top5 = (view.overall(testset, metric=metric) for metric in ("top1", "top5"))
    if not top1:
        raise NotApplicable(
            f"no top1 score on {testset!r}", fix="score the models with the metric top1 first"
        )
    found = {
        m: (100 * s.value, 100 * top5[m].value if m in top5 else None) for m, s in top1.items()
    }

    def key(model: str) -> tuple[float, float, str]:
        first, fifth = found[model]
        return -round(first, 3), 1.0 if fifth is None else -round(fifth, 3), model

    return {model: found[model] for model in sorted(found, key=key)}


# ---- CLIP_benchmark ------------------------------------------------------------------------------


def write_clip_benchmark_json(view: ReportView, folder: Path) -> list[Path]:
    """Write one file per test set and model in the layout of CLIP_benchmark's results; their paths.

    A model named ``open_clip:ARCHITECTURE/TAG`` is split into ``model`` and ``pretrained`` as
    CLIP_benchmark does; of any other model ``pretrained`` stays empty.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    for testset in view.testsets:
        for metric, name in _CLIP_METRICS.items():
            for model, score in view.overall(testset, metric=metric).items():
                found.setdefault((testset, model), {}).setdefault(name, score.value)
    if not found:
        raise NotApplicable(
            "no score that CLIP_benchmark's files can hold",
            fix=f"score the models with {', '.join(sorted(_CLIP_METRICS))}",
        )
    written: list[Path] = []
    for (testset, model), metrics in found.items():
        tag = ""
        if model.startswith("open_clip:"):
            model, _, tag = model.removeprefix("open_clip:").partition("/")
        result = {
            "dataset": testset,
            "model": model,
            "pretrained": tag,
            "task": _CLIP_TASK,
            "metrics": metrics,
            "language": "en",
        }
        stem = slug(testset, tag or "none", model, "en", _CLIP_TASK)
        path, number = folder / f"{stem}.json", 2
        while path in written:
            path, number = folder / f"{stem}-{number}.json", number + 1
        write_text(path, json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
        written.append(path)
    return written
