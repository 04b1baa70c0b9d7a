"""Tables of outputs: every layout gives the same outputs; bad ones are one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from heldout.core.errors import BadFile, NotFound
from heldout.data.labels import Class, LabelSpace
from heldout.models.predictions.import_tables import read_prediction_table
from heldout.models.predictions.predictions import top_k

SPACE = LabelSpace(
    "toys",
    (
        Class("t0", ("tench", "Tinca tinca")),
        Class("t1", ("jack-o'-lantern",)),
        Class("t2", ("crane", "wading bird")),
        Class("t3", ("crane",)),
        Class("t4", ("maillot", "tank suit")),
        Class("t5", ("maillot",)),
    ),
)
CLEAR = LabelSpace(
    "clear",
    (*SPACE.classes[:3], Class("t3", ("derrick",)), SPACE.classes[4], Class("t5", ("suit",))),
)
N_CLASSES = len(SPACE)
IDS = ["b.jpg", "a.jpg", "n01/c.jpg"]
TOPK = np.array([[5, 0, 1], [2, 3, 4], [0, 5, 2]])
PROBS = np.array([[0.6, 0.3, 0.05], [0.5, 0.4, 0.1], [0.7, 0.2, 0.05]])
LOGITS = np.random.default_rng(0).normal(size=(3, N_CLASSES)).astype(np.float32)
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def read(path: Path) -> tuple[list[str], Any]:
    return read_prediction_table(path, label_space=SPACE)


def rows_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])
    return path


def timm_frame(
    *,
    topk: int,
    separate: bool,
    index: bool,
    label: str | None,
    kind: str,
    space: LabelSpace = SPACE,
) -> pd.DataFrame:
    """The data frame that timm's inference script builds."""
    frame: dict[str, Any] = {"filename": IDS}
    if topk:
        order = TOPK[:, :topk]
        outputs = PROBS[:, :topk].astype(np.float32)
    else:
        order, outputs = np.zeros((3, 0), int), SOFTMAX if kind == "prob" else LOGITS
    described = {
        "name": [c.id for c in space],
        "description": [", ".join(c.names) for c in space],
    }
    texts = None if label is None or not topk else np.array(described[label], dtype=object)[order]
    for stem, values in (
        ("index", order if index and topk else None),
        ("label", texts),
        (kind, outputs),
    ):
        if values is None:
            continue
        if separate and outputs.shape[1] > 1:
            frame |= {f"{stem}_{i}": values[:, i] for i in range(values.shape[1])}
        else:
            frame[stem] = list(values[:, 0] if values.shape[1] == 1 else values)
    return pd.DataFrame(frame)


def timm_write(frame: pd.DataFrame, folder: Path, form: str) -> Path:
    """The file that it writes, in each of its formats."""
    if form == "parquet":
        path = folder / "m.parquet"
        frame.set_index("filename").to_parquet(path)
    elif form == "csv":
        path = folder / "m.csv"
        with np.printoptions(threshold=2**31):
            frame.to_csv(path, index=False)
    else:
        path = folder / "m.jsonl"
        frame.to_json(path, lines=True, orient="records")
    return path


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("topk", [1, 3])
@pytest.mark.parametrize(("index", "label"), [(True, None), (True, "description"), (False, "name")])
def test_timm_top_k(
    tmp_path: Path, form: str, separate: bool, topk: int, index: bool, label: str | None
) -> None:
    frame = timm_frame(topk=topk, separate=separate, index=index, label=label, kind="prob")
    ids, outputs = read(timm_write(frame, tmp_path, form))
    assert ids == IDS
    assert outputs.topk.tolist() == TOPK[:, :topk].tolist() and outputs.topk.dtype == np.int32
    assert outputs.logits is None


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_timm_descriptions_are_class_names(tmp_path: Path, form: str) -> None:
    for separate in (False, True):
        options: dict[str, Any] = {"topk": 3, "separate": separate, "index": False, "kind": "prob"}
        frame = timm_frame(label="description", space=CLEAR, **options)
        path = timm_write(frame, tmp_path, form)
        if form == "csv" and not separate:
            with pytest.raises(BadFile, match=r"no class named .*--include-index"):
                read_prediction_table(path, label_space=CLEAR)
            continue
        ids, outputs = read_prediction_table(path, label_space=CLEAR)
        assert ids == IDS and outputs.topk.tolist() == TOPK.tolist()
        path = timm_write(timm_frame(label="description", **options), tmp_path, form)
        with pytest.raises(BadFile, match=r"'maillot' fits 2 classes of toys.*--include-index"):
            read(path)


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["prob", "logit"])
def test_timm_full_outputs(tmp_path: Path, form: str, separate: bool, kind: str) -> None:
    frame = timm_frame(topk=0, separate=separate, index=False, label=None, kind=kind)
    ids, outputs = read(timm_write(frame, tmp_path, form))
    assert ids == IDS
    assert outputs.topk.tolist() == top_k(LOGITS).tolist()
    found = np.exp(outputs.logits) / np.exp(outputs.logits).sum(axis=1, keepdims=True)
    assert np.allclose(found, SOFTMAX, atol=2e-6)
    assert outputs.logits.dtype == np.float32


@pytest.mark.parametrize("names", [list(SPACE.ids), [f"logit_{c}" for c in SPACE.ids]])
def test_a_column_a_class_in_any_order(tmp_path: Path, names: list[str]) -> None:
    order = [3, 1, 5, 0, 2, 4]
    header = ["image_id", *(names[c] for c in order)]
    rows = [[i, *row[order].tolist()] for i, row in zip(IDS, LOGITS, strict=True)]
    ids, outputs = read(rows_csv(tmp_path / "m.csv", header, rows))
    assert ids == IDS and np.array_equal(outputs.logits, LOGITS)


def test_all_classes_with_values_are_full_outputs(tmp_path: Path) -> None:
    order = np.argsort(-LOGITS, axis=1)
    values = np.take_along_axis(LOGITS, order, axis=1)
    rows = [
        {"image_id": i, "index": o.tolist(), "logit": v.tolist()}
        for i, o, v in zip(IDS, order, values, strict=True)
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _, outputs = read(tmp_path / "m.jsonl")
    assert np.array_equal(outputs.logits, LOGITS)


@pytest.mark.parametrize(
    "cells",
    [
        ["5 0 1", "2 3 4", "0 5 2"],
        ["[5, 0, 1]", "[2, 3, 4]", "[0, 5, 2]"],
        ["5;0;1", "2;3;4", "0;5;2"],
        ["t5|t0|t1", "t2|t3|t4", "t0|t5|t2"],
        ["['t5', 't0', 't1']", "['t2' 't3' 't4']", '["t0", "t5", "t2"]'],
    ],
)
def test_lists_in_cells(tmp_path: Path, cells: list[str]) -> None:
    path = rows_csv(tmp_path / "m.csv", ["id", "topk"], list(zip(IDS, cells, strict=True)))
    ids, outputs = read(path)
    assert ids == IDS and outputs.topk.tolist() == TOPK.tolist()


def test_top_columns(tmp_path: Path) -> None:
    rows = [[i, *row] for i, row in zip(IDS, TOPK.tolist(), strict=True)]
    path = rows_csv(tmp_path / "m.csv", ["image", "top1", "top2", "top3"], rows)
    assert read(path)[1].topk.tolist() == TOPK.tolist()


def test_worst_first_with_values_is_sorted(tmp_path: Path) -> None:
    rows = [
        [i, " ".join(map(str, t[::-1])), " ".join(map(str, p[::-1]))]
        for i, t, p in zip(IDS, TOPK.tolist(), PROBS.tolist(), strict=True)
    ]
    path = rows_csv(tmp_path / "m.csv", ["filename", "index", "prob"], rows)
    assert read(path)[1].topk.tolist() == TOPK.tolist()


def test_short_rows_and_images_without_a_prediction(tmp_path: Path) -> None:
    table = pa.table({"image_id": IDS, "index": [[1, 2], [], None]})
    pq.write_table(table, tmp_path / "m.parquet")
    assert read(tmp_path / "m.parquet")[1].topk.tolist() == [[1, 2], [-1, -1], [-1, -1]]
    frame = pd.DataFrame({"image_id": IDS, "index_0": [1, 2, None], "index_1": [3.0, None, None]})
    frame.to_csv(tmp_path / "m.csv", index=False)  # pandas turns whole numbers with gaps into 1.0
    with pytest.raises(BadFile, match=r"'1\.0'"):
        read(tmp_path / "m.csv")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "f.parquet")
    assert read(tmp_path / "f.parquet")[1].topk.tolist() == [[1, 3], [2, -1], [-1, -1]]
    pq.write_table(pa.table({"image_id": IDS, "index": [None] * 3}), tmp_path / "none.parquet")
    with pytest.raises(BadFile, match="has no class in any row"):
        read(tmp_path / "none.parquet")


def test_numbers_that_are_ids_and_indices_are_refused_where_they_disagree(tmp_path: Path) -> None:
    path = rows_csv(tmp_path / "m.csv", ["image_id", "index"], [["a", "10"], ["b", "2"]])
    as_text = LabelSpace.from_ids("digits", sorted(str(n) for n in range(11)))
    with pytest.raises(BadFile, match="both ids and indices"):
        read_prediction_table(path, label_space=as_text)
    numbered = LabelSpace.from_ids("digits", [str(n) for n in range(11)])
    assert read_prediction_table(path, label_space=numbered)[1].topk.tolist() == [[10], [2]]


@pytest.mark.parametrize(
    ("header", "row", "pattern"),
    [
        (["image_id", "index"], ["a", "6"], "class index 6 is outside 0..5"),
        (["image_id", "index"], ["a", "-1"], "-1"),
        (["image_id", "index"], ["a", "1 1"], "names a class twice in 1 rows"),
        (["image_id", "index"], ["a", "[1 2 ... 3]"], "shortened when it was printed"),
        (["image_id", "index"], ["a", "[1 2"], "cut short"),
        (["image_id", "label"], ["a", "zebra"], "no class named 'zebra'"),
        (["image_id", "label"], ["a", "['tench, Tinca tinca']"], "--include-index"),
        (["image_id", "label"], ["a", "t0|t9"], "'t9' is not a class of toys"),
        (["image_id", "index"], ["", "1"], "row 2 has no image id"),
        (["image_id", "index"], ["start", "1"], "'start' in rows 1 and 2"),
        (["image_id", "index", "prob"], ["a", "1 2", "0.5"], "2 classes and 1 values"),
        (
            ["image_id", "index", "prob"],
            ["a", "1", "nan"],
            "missing, NaN or infinite value for image 'a'",
        ),
        (["image_id", "index", "prob"], ["a", "1", "high"], "no list of numbers for image 'a'"),
        (["image_id", "logit"], ["a", "0 0 0 0 0"], "has 5 values for image 'a'"),
        (["image_id", "logit"], ["a", "0 0 0 0 0 nan"], "missing, NaN or infinite"),
        (["image_id", "logit"], ["a", "0 0 0 0 0 inf"], "missing, NaN or infinite"),
        (["image_id", "logit"], ["a", "0 0 0 0 0 1e300"], "NaN or infinite"),
        (["image_id", "logit"], ["a", ""], "has 0 values for image 'a'"),
        (
            ["image_id", "prob"],
            ["a", "1 1 0 0 0 0"],
            "not probabilities, such as that of image 'a'",
        ),
        (["image_id", "prob"], ["a", "2 -1 0 0 0 0"], "not probabilities"),
        (["name", "index"], ["a", "1"], "has no column of image ids"),
        (["image_id", "score"], ["a", "1"], "has neither classes nor logits"),
        (["image_id", "logit_0", "logit_1"], ["a", "x", "1"], "cannot be read as CSV"),
        (["image_id", "logit_0", "logit_1"], ["a", "2", "1"], "has 2 values for image"),
    ],
)
def test_hostile_tables(tmp_path: Path, header: list[str], row: list[str], pattern: str) -> None:
    good = {"index": "1", "label": "t0", "prob": "0 1 0 0 0 0", "logit": "0 0 0 0 0 1"}
    first = ["start", *(good.get(name, "0") for name in header[1:])]
    if header == ["image_id", "index", "prob"]:
        first = ["start", "1", "0.5"]
    if header == ["image_id", "label"]:
        first = ["start", "t0" if "t9" in row[1] else "tench"]
    path = rows_csv(tmp_path / "m.csv", header, [first, row])
    with pytest.raises(BadFile, match=pattern) as caught:
        read(path)
    assert "\n" not in caught.value.line and "m.csv" in caught.value.line and caught.value.fix


@pytest.mark.parametrize(
    ("name", "data", "pattern"),
    [
        ("m.csv", b"", "column without a name|is empty"),
        ("m.csv", b"image_id,index\n", "has no rows"),
        ("m.jsonl", b'{"image_id": "a", "index": 1}\n{"ima', "line 2 is not valid JSON"),
        ("m.jsonl", b'{"image": "a.jpg", "index": [[1]]}', "a list holds lists"),
        ("m.jsonl", b'{"image": "a.jpg", "index": {"x": 1}}', "it is an object"),
        ("m.jsonl", b'{"image": "a.jpg", "index": true}', "no class named 'True'"),
        ("m.jsonl", b'{"image": "a.jpg", "index": 1.5}', "1.5"),
        ("m.json", b"[]", "has the ending '.json'"),
        ("m.parquet", b"PAR1", "cannot be read as Parquet"),
        ("m.txt", b"x", "has the ending '.txt'"),
    ],
)
def test_hostile_files(tmp_path: Path, name: str, data: bytes, pattern: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadFile, match=pattern) as caught:
        read(tmp_path / name)
    assert "\n" not in caught.value.line


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl", "m.parquet"])
def test_missing_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        read(tmp_path / name)


@settings(max_examples=40, deadline=None)
@given(
    logits=arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.just(N_CLASSES)),
        elements=st.floats(-50, 50, width=32),
    ),
    form=st.sampled_from(["csv", "jsonl", "parquet"]),
)
def test_logits_survive_every_format(
    logits: np.ndarray, form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tables") / f"m.{form}"
    ids = [f"image {n}" for n in range(len(logits))]
    if form == "csv":
        header = ["image_id", *(f"logit_{n}" for n in range(N_CLASSES))]
        rows_csv(
            path,
            header,
            [[i, *map(repr, row.tolist())] for i, row in zip(ids, logits, strict=True)],
        )
    elif form == "jsonl":
        rows = ({"image_id": i, "logits": row.tolist()} for i, row in zip(ids, logits, strict=True))
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.table({"image_id": ids, "logits": list(logits)}), path)
    found, outputs = read(path)
    assert found == ids
    assert np.array_equal(outputs.logits, logits)
    assert np.array_equal(outputs.topk, top_k(logits))
