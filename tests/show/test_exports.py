from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from heldout.core.errors import NotApplicable
from heldout.measure.score.records import Record, Score
from heldout.show import ReportData
from heldout.show.exports import write_clip_benchmark_json, write_timm_csv
from heldout.show.view import ReportView

from .records import everything, score


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def view(records: Iterable[Record]) -> ReportView:
    return ReportView(ReportData(title="", records=list(records)))


def test_timm_columns_and_unknown_facts(tmp_path: Path) -> None:
    write_timm_csv(ReportView(everything()), tmp_path / "r.csv", testset="old")
    first = (tmp_path / "r.csv").read_text().splitlines()[:2]
    assert first == [
        "model,img_size,top1,top1_err,top5,top5_err,param_count,crop_pct,interpolation",
        "ant,,90.000,10.000,93.000,7.000,,,",
    ]


def test_timm_differences(tmp_path: Path) -> None:
    records = [
        score(model, testset, hits, 1000, metric=metric)
        for testset, table in {
            "old": {"a": (800, 950), "b": (700, 900), "only_old": (750, 910)},
            "new": {"a": (500, 700), "b": (600, 800), "only_new": (550, 720)},
        }.items()
        for model, pair in table.items()
        for metric, hits in zip(("top1", "top5"), pair, strict=True)
    ]
    write_timm_csv(view(records), tmp_path / "r.csv", testset="new", baseline="old")
    rows = {row["model"]: row for row in read(tmp_path / "r.csv")}
    assert list(rows) == ["b", "only_new", "a"]
    assert (rows["b"]["top1_diff"], rows["b"]["top5_diff"], rows["b"]["rank_diff"]) == (
        "-10.000",
        "-10.000",
        "+2",
    )
    assert rows["a"]["rank_diff"] == "-2"
    assert rows["only_new"]["top1_diff"] == ""


def test_timm_needs_top1(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="no top1 score on 'nowhere'"):
        write_timm_csv(ReportView(everything()), tmp_path / "r.csv", testset="nowhere")
    assert not (tmp_path / "r.csv").exists()


def published(path: Path, testset: str) -> list[Score]:
    """timm's own table as records; it lists some models at two image sizes."""
    return [
        Score(
            model=f"{row['model']}@{row['img_size']}",
            testset=testset,
            truth="original",
            metric=metric,
            n=10000,
            value=float(row[metric]) / 100,
        )
        for row in read(path)
        for metric in ("top1", "top5")
    ]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["imagenetv2-matched-frequency", "sketch", "imagenet-real"])
def test_timms_own_tables_come_back(shared_data: Path, tmp_path: Path, name: str) -> None:
    folder = shared_data / "reference" / "timm"
    base = published(folder / "results-imagenet.csv", "imagenet")
    theirs = read(folder / f"results-{name}.csv")
    new = published(folder / f"results-{name}.csv", "new")
    write_timm_csv(view([*base, *new]), tmp_path / "r", testset="new", baseline="imagenet")
    ours = read(tmp_path / "r")
    assert len(ours) == len(theirs) > 1000
    assert list(ours[0]) == list(theirs[0])
    exact = name == "imagenetv2-matched-frequency"  # 10,000 images: three decimals say it all
    # timm joins by name whatever the image size, and takes a neighbour's row where top-1 ties.
    old = {s.model: s.value for s in base if s.metric == "top1"}
    old_ties, new_ties = Counter(old.values()), Counter(row["top1"] for row in theirs)
    names = Counter(row["model"] for row in theirs)
    compared = ranked = 0
    for mine, row in zip(ours, theirs, strict=True):
        assert mine["model"] == f"{row['model']}@{row['img_size']}"
        assert (mine["top1"], mine["top5"]) == (row["top1"], row["top5"])
        alone = names[row["model"]] == old_ties[old[mine["model"]]] == 1
        for key in ("top1_err", "top5_err", *(("top1_diff", "top5_diff") if alone else ())):
            slack = 0 if exact else 0.0011  # theirs were taken before they were rounded
            assert float(mine[key]) == pytest.approx(float(row[key]), abs=slack + 1e-9)
            compared += 1
        if alone and new_ties[row["top1"]] == 1:
            assert mine["rank_diff"] == row["rank_diff"]
            ranked += 1
    assert compared > 2 * len(ours) and ranked > 100


def test_clip_benchmark_layout(tmp_path: Path) -> None:
    records = [
        score("open_clip:ViT-B-32/openai", "wds/imagenetv2", 60, 100),
        score("open_clip:ViT-B-32/openai", "wds/imagenetv2", 80, 100, metric="top5"),
        score("open_clip:ViT-B-32/openai", "wds/imagenetv2", 59, 100, metric="mean_per_class"),
        score("open_clip:ViT-B-32/openai", "wds/imagenetv2", 1, 100, slice="k=v"),
        score("resnet50", "wds/imagenetv2", 50, 100),
    ]
    first, second = write_clip_benchmark_json(view(records), tmp_path)
    assert json.loads(first.read_bytes()) == {
        "dataset": "wds/imagenetv2",
        "model": "ViT-B-32",
        "pretrained": "openai",
        "task": "zeroshot_classification",
        "metrics": {"acc1": 0.6, "acc5": 0.8, "mean_per_class_recall": 0.59},
        "language": "en",
    }
    assert json.loads(second.read_bytes())["pretrained"] == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([first.name, second.name])


def test_clip_benchmark_names_never_collide_or_escape(tmp_path: Path) -> None:
    records = [score(model, "../s", 5, 10) for model in ("a/b", "a b", "A-B")]
    written = write_clip_benchmark_json(view(records), tmp_path / "out")
    assert len({path.resolve() for path in written}) == 3
    assert {path.parent for path in written} == {tmp_path / "out"}


def test_clip_benchmark_needs_an_accuracy(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        write_clip_benchmark_json(view([score("m", "s", 5, 10, metric="ece")]), tmp_path)
