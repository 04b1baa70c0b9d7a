"""Small ONNX graphs for tests, and folders with a graph and its sidecar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels import LabelSpace
from heldout.models.adapters.onnx_file import GraphWriter, Value

SIDE = 6
CLASSES = 5


def small_graph(
    *,
    batch: int | str = "n",
    side: int | str = SIDE,
    classes: int = CLASSES,
    layout: str = "NCHW",
    ending: str = "",
    dtype: str = "float32",
    seed: int = 0,
) -> bytes:
    """Mean over places, then a matrix: (batch, 3, side, side) -> logits and features.

    ``ending``: ``softmax``; ``crosstalk`` (divides by the largest value of the whole batch);
    ``nan``; ``log`` (NaN for dark images only).
    """
    rng = np.random.default_rng(seed)
    graph = GraphWriter("small")
    x = "images"
    if dtype != "float32":
        x = graph.node("Cast", x, output="cast", to=1)
    if layout == "NHWC":
        x = graph.node("Transpose", x, output="turned", perm=(0, 3, 1, 2))
    if ending == "crosstalk":
        x = graph.node("Div", x, graph.node("ReduceMax", x, output="most"), output="scaled")
    pooled = graph.node("GlobalAveragePool", x, output="pooled")
    features = graph.node("Flatten", pooled, output="features", axis=1)
    matrix = graph.constant("matrix", rng.standard_normal((classes, 3)).astype(np.float32))
    bias = graph.constant("bias", rng.standard_normal(classes).astype(np.float32))
    last = {"softmax": "raw", "nan": "raw", "log": "raw"}.get(ending, "logits")
    made = graph.node("Gemm", features, matrix, bias, output=last, transB=1)
    if ending == "softmax":
        graph.node("Softmax", made, output="logits", axis=1)
    elif ending == "nan":
        graph.node("Sqrt", graph.constant("negative", np.float32([-1])), output="none")
        graph.node("Add", made, "none", output="logits")
    elif ending == "log":
        total = graph.node("ReduceMin", features, output="least", axes=(1,), keepdims=1)
        level = graph.constant("level", np.float32([0.05]))
        gap = graph.node("Sub", total, level, output="gap")
        graph.node("Add", made, graph.node("Sqrt", gap, output="root"), output="logits")
    shape: tuple[int | str, ...] = (
        (batch, 3, side, side) if layout == "NCHW" else (batch, side, side, 3)
    )
    return graph.model(
        [Value("images", shape, dtype)],
        [Value("logits", (batch, classes)), Value("features", (batch, 3))],
    )


def preprocessing(**changes: Any) -> dict[str, Any]:
    geometry = Geometry(resize_height=8, resize_width=8, crop_height=SIDE, crop_width=SIDE)
    return {**Preprocessing(geometry=geometry).to_dict(), **changes}


def write_model(
    folder: Path,
    graph: bytes,
    *,
    name: str = "small",
    drop: Sequence[str] = (),
    classes: int = CLASSES,
    **changes: Any,
) -> Path:
    """``<name>.onnx`` with ``<name>.json`` and ``classes.json``; ``changes`` are fields of the sidecar."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    path.write_bytes(graph)
    LabelSpace.from_ids("letters", [chr(97 + i) for i in range(classes)]).write(
        folder / "classes.json"
    )
    sidecar = {
        "schema_version": 1,
        "label_space": "classes.json",
        "preprocessing": preprocessing(),
        **changes,
    }
    stated = {k: v for k, v in sidecar.items() if k not in drop}
    (folder / f"{name}.json").write_text(json.dumps(stated))
    return path


def pixels(rows: int, *, seed: int = 0, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, side, side, 3), dtype=np.uint8)
