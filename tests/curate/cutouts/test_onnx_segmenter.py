"""Networks: small generated graphs that take what U²-Net and ISNet take; every wrong file refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.core.errors import NotFound, UserError
from heldout.curate.cutouts.segmenters import OnnxSegmenter
from heldout.models.adapters.onnx_file import GraphWriter, Value
from tests.curate.cutouts.scenes import ellipse, iou, scene
from tests.curate.cutouts.test_grabcut import predicted

RED_LESS_GREEN = np.float32([1, -1, 0]).reshape(1, 3, 1, 1)


def graph(
    path: Path,
    *,
    size: int | str = 320,
    outputs: int = 7,
    ending: str = "Sigmoid",
    dtype: str = "float32",
) -> Path:
    """Red less green of each pixel, through ``ending``, as so many outputs like U²-Net's."""
    writer = GraphWriter("small")
    x = "photo"
    if dtype != "float32":
        x = writer.node("Cast", x, output="cast", to=1)
    writer.constant("weights", RED_LESS_GREEN)
    raw = writer.node("Conv", x, "weights", output="raw", kernel_shape=(1, 1))
    if ending == "nan":
        raw = writer.node("Div", raw, writer.constant("zero", np.float32([0])), output="divided")
        ending = "Identity"
    names = [f"d{n}" for n in range(outputs)]
    for place, name in enumerate(names):
        # Only the first is the final map; the others are turned round, so that a mix-up shows.
        sign = writer.constant(f"sign{place}", np.float32([-1 if place else 1]))
        writer.node(ending, writer.node("Mul", raw, sign, output=f"m{place}"), output=name)
    shape, map_shape = (1, 3, size, size), (1, 1, size, size)
    data = writer.model([Value("photo", shape, dtype)], [Value(name, map_shape) for name in names])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_network_like_u2net(tmp_path: Path) -> None:
    segmenter = OnnxSegmenter(graph(tmp_path / "u2.onnx"))
    assert segmenter.identity["family"]["name"] == "u2net"
    mask = ellipse(200, 150)
    pixels = scene(mask)
    matte = segmenter(pixels)
    assert matte.shape == mask.shape and matte.dtype == np.float32
    assert matte.min() >= 0 and matte.max() <= 1
    assert iou(predicted(pixels, matte), mask) > 0.9


@pytest.fixture
def unpadded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heldout.curate.cutouts.segmenters.PADDINGS", (0.0,))


@pytest.mark.usefixtures("unpadded")
def test_a_network_like_isnet(tmp_path: Path) -> None:
    segmenter = OnnxSegmenter(graph(tmp_path / "is.onnx", size=1024, outputs=1))
    assert segmenter.identity["family"]["name"] == "isnet"
    mask = ellipse(200, 150)
    assert iou(segmenter(scene(mask)) >= 0.5, mask) > 0.9


@pytest.mark.usefixtures("unpadded")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_values_against_arithmetic(dtype: str, tmp_path: Path) -> None:
    path = graph(tmp_path / "n.onnx", dtype=dtype, ending="Identity")
    pixels = scene(ellipse(320, 320)) // 2  # divided by the largest value, not by 255
    scaled = (pixels / pixels.max() - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    raw = scaled[..., 0] - scaled[..., 1]
    expected = (raw - raw.min()) / (raw.max() - raw.min())
    matte = OnnxSegmenter(path)(pixels)
    assert np.allclose(matte, expected, atol=1e-5 if dtype == "float32" else 5e-3)


def test_a_flat_answer_finds_nothing(tmp_path: Path) -> None:
    segmenter = OnnxSegmenter(graph(tmp_path / "u2.onnx"))
    assert segmenter(np.full((50, 60, 3), 128, np.uint8)).max() == 0


def test_padding_is_cut_off_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = ellipse(200, 150)
    pixels = scene(mask)
    monkeypatch.setattr("heldout.curate.cutouts.segmenters.PADDINGS", (0.3,))
    padded = OnnxSegmenter(graph(tmp_path / "u2.onnx"))(pixels)
    assert iou(padded >= 0.5, mask) > 0.9


def test_weights_are_its_identity(tmp_path: Path) -> None:
    one = OnnxSegmenter(graph(tmp_path / "a.onnx"))
    copy = OnnxSegmenter(graph(tmp_path / "b.onnx"))
    other = OnnxSegmenter(graph(tmp_path / "c.onnx", outputs=1))
    assert one.identity == copy.identity != other.identity
    json.dumps(one.identity)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        ({"size": 224}, "takes photo float32"),
        ({"size": "side"}, "takes photo float32"),
        ({"dtype": "uint8"}, "takes photo uint8"),
        ({"ending": "nan"}, "finite numbers"),
    ],
)
def test_networks_that_do_not_fit(make: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says) as raised:
        OnnxSegmenter(graph(tmp_path / "n.onnx", **make))
    assert "\n" not in raised.value.line


def test_a_classifier_is_refused(tmp_path: Path) -> None:
    writer = GraphWriter("classifier")
    writer.node("GlobalAveragePool", "x", output="pooled")
    writer.node("Flatten", "pooled", output="logits", axis=1)
    data = writer.model([Value("x", (1, 3, 320, 320))], [Value("logits", (1, 3))])
    (tmp_path / "c.onnx").write_bytes(data)
    with pytest.raises(UserError, match="not one map"):
        OnnxSegmenter(tmp_path / "c.onnx")


def test_two_inputs_are_refused(tmp_path: Path) -> None:
    writer = GraphWriter("two")
    writer.node("Add", "a", "b", output="sum")
    shape = (1, 3, 320, 320)
    data = writer.model([Value("a", shape), Value("b", shape)], [Value("sum", shape)])
    (tmp_path / "two.onnx").write_bytes(data)
    with pytest.raises(UserError, match="takes a float32"):
        OnnxSegmenter(tmp_path / "two.onnx")


@pytest.mark.parametrize("data", [b"", b"not a graph", b"\x08\x08\x12\x00"])
def test_files_that_are_no_network(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(data)
    with pytest.raises(UserError, match=r"x\.onnx"):
        OnnxSegmenter(tmp_path / "x.onnx")
    with pytest.raises(NotFound):
        OnnxSegmenter(tmp_path / "none.onnx")


if os.environ.get("HELDOUT_U2NETP"):  # never in the repository, never downloaded

    @pytest.mark.shared
    def test_u2netp_on_the_shared_cut_outs(shared_data: Path) -> None:
        segmenter = OnnxSegmenter(Path(os.environ["HELDOUT_U2NETP"]))
        found = []
        for file in sorted((shared_data / "siscore/foreground_samples").glob("*/*.png")):
            rgba = np.asarray(Image.open(file))
            pixels = np.ascontiguousarray(rgba[..., :3])
            found.append(iou(predicted(pixels, segmenter(pixels)), rgba[..., 3] >= 128))
        assert np.mean(found) >= 0.86, found
