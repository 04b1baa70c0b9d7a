"""Options that several verbs share, declared once so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        envvar="HELDOUT_WORKSPACE",
        help="Workspace folder; the current folder by default.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON array of records.")]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", help="Model name or glob; repeatable; all models by default."),
]
TestsetOption = Annotated[
    list[str],
    typer.Option(
        "--testset", "-t", help="Test set: name, alias, path, or compose:FILE.toml; repeatable."
    ),
]
TruthOption = Annotated[
    str | None, typer.Option(help="Which truth to score by; the set's default otherwise.")
]
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="top1, top5, mean_per_class, mla, real, …; repeatable; fits the truth by default.",
    ),
]
ByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        help="Slice by a column or a conjunction such as x&y; repeatable; the factors that the test set "
        "declares by default.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        help="Column whose images belong together, such as object: intervals are clustered by it. The "
        "test set's own by default; none for no clusters."
    ),
]
BalanceOption = Annotated[
    str | None,
    typer.Option(
        help="What is repeated at every value, such as object&background, for balanced curves and flip "
        "rates; the test set's own by default."
    ),
]
CurveOption = Annotated[
    bool | None,
    typer.Option(
        "--curve/--no-curve",
        help="Sum slices up as curves: area, critical and worst value, flip rate, balanced support. By "
        "default for the factors that the test set declares.",
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", help="Leave out models that match this glob; repeatable."),
]
LabelMapOption = Annotated[
    str | None,
    typer.Option(
        "--label-map",
        help="How other label spaces are judged: subset:restricted, subset:full, the same with "
        "hierarchy (classes under the set's in WordNet), a built-in such as imagenet-a:restricted, "
        "or a CSV/JSON file such as map.csv:full.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")]
LevelOption = Annotated[float, typer.Option(help="Level of intervals.")]
ReplicatesOption = Annotated[int, typer.Option(min=2, help="Bootstrap replicates.")]
SaveOption = Annotated[
    Path | None, typer.Option("--save", help="Also write the records to this JSON file.")
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Replace something different of this name.")
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--classes", help="Label space: a built-in name, a JSON file, or a class_info.json."
    ),
]
RunModelOption = Annotated[
    list[str],
    typer.Option(
        "--model",
        "-m",
        help="Model: lite0, onnx:FILE, timm:NAME, torchvision:NAME, open_clip:ARCH/TAG, file.py:object, "
        "predictions:FILE; a glob, all, or @list-file; repeatable.",
    ),
]
ModelArgsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model-args", help="Argument of the models: key=value, value as JSON; repeatable."
    ),
]
ImagesOption = Annotated[
    str | None, typer.Option("--images", help="Folder of the image files, if not the set's own.")
]
KeepOption = Annotated[
    str, typer.Option("--keep", help="What is stored of the outputs: logits (float16) or topk.")
]
FastOption = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="On GPUs: do not run near ties again exactly; stored apart, and said in the record.",
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", help="Only a fixed sample of this many images; smaller ones are parts of larger."
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", help="Worker threads; all cores by default.")
]
ShardOption = Annotated[
    str | None,
    typer.Option("--shard", help="Do only share i of n of the images: i/n, counted from 1."),
]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", help="Run stored models again on images that failed.")
]
OnErrorOption = Annotated[
    str, typer.Option("--on-error", help="Images without an output count as wrong, or drop them.")
]
