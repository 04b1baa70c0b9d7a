"""Any local U²-Net or ISNet as an ONNX file. Nothing is ever downloaded.

U²-Net (Qin et al. 2020; also U²-Netp and Silueta) takes 320 × 320 pixels divided by the largest
value, then ImageNet's mean and standard deviation. ISNet (Qin et al. 2022) takes 1,024 × 1,024
pixels as ``x / 255 − 0.5``. What a file is, is told by the size that it takes; a sidecar
``<name>.json`` beside it says otherwise::

    {"schema_version": 1, "size": 320, "scale": "max", "mean": [0.485, 0.456, 0.406],
     "std": [0.229, 0.224, 0.225], "output": "1959", "values": "stretch"}

``scale`` is what pixels are divided by: a number, or "max" for each photograph's largest value;
``values`` says how outputs become a matte: "stretch" (smallest to 0, largest to 1), "unit" (they
are in [0, 1]) or "logits" (a sigmoid).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, read_versioned_json
from heldout.curate.cutouts.cutout import Box, Matte
from heldout.curate.cutouts.segmenter import Inner, in_box
from heldout.models.adapters.onnx import Port, Session, weights_hash

SCHEMA_VERSION = 1
PADDINGS = (0.0, 0.15)
"""Shares of the sides by which a photograph is padded with its own edge, one view each; the mean
of the views counts. An object that fills its photograph is found better with some room, others
without."""

Values = Literal["stretch", "unit", "logits"]


@dataclass(frozen=True)
class Family:
    """What a network takes and gives; see the top of this module."""

    name: str
    size: int
    scale: float | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    values: Values = "stretch"
    output: str | None = None


U2NET = Family("u2net", 320, None, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
ISNET = Family("isnet", 1024, 255.0, (0.5, 0.5, 0.5), (1.0, 1.0, 1.0))
_EXAMPLE = (
    '{"schema_version": 1, "size": 320, "scale": "max", '
    '"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}'
)
_FIELDS = ("schema_version", "size", "scale", "mean", "std", "values", "output")


class OnnxSegmenter:
    """A network of an ONNX file; safe to call from several threads."""

    def __init__(
        self, path: Path, *, sidecar: Path | None = None, paddings: tuple[float, ...] = PADDINGS
    ) -> None:
        self.path = existing_file(path, "ONNX file")
        self.paddings = paddings
        self._sidecar = sidecar
        self._sha256 = weights_hash(path)
        self._session = Session(path, purpose="cutting out with a network")
        self._lock = threading.Lock()
        self._input, self._layout = _input(path, self._session)
        self.family = _family(path, sidecar, self._input, self._layout)
        self._output = _output(path, self._session, self.family.output)
        self._try()

    def __reduce__(self) -> Any:
        """Sent to another process as its file's path, and opened again there."""
        return _opened, (self.path, self._sidecar, self.paddings)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The hash of the weights, and what is done around them."""
        family = asdict(self.family) | {"output": self._output}
        return {
            "segmenter": "onnx",
            "weights": self._sha256,
            "family": {k: list(v) if isinstance(v, tuple) else v for k, v in family.items()},
            "paddings": list(self.paddings),
        }

    @property
    def runtime(self) -> Mapping[str, str]:
        """The version of ONNX Runtime."""
        return {"onnxruntime": self._session.version}

    def __call__(self, pixels: np.ndarray, box: Box | None = None) -> Matte:
        """The mean of the views' mattes."""
        return in_box(pixels, box, self._views)

    def _views(self, pixels: np.ndarray, inner: Inner | None) -> Matte:
        # In a box there is room around the object already.
        paddings = self.paddings if inner is None else (0.0,)
        total = sum(self._view(pixels, padding) for padding in paddings)
        return np.asarray(np.clip(np.asarray(total, np.float32) / len(paddings), 0, 1))

    def _view(self, pixels: np.ndarray, padding: float) -> Matte:
        from PIL import Image

        height, width = pixels.shape[:2]
        dy, dx = round(height * padding), round(width * padding)
        padded = np.pad(pixels, ((dy, dy), (dx, dx), (0, 0)), mode="edge")
        side = (self.family.size, self.family.size)
        reduced = np.asarray(Image.fromarray(padded).resize(side, Image.Resampling.BILINEAR))
        found = _matte(self._run(_values(reduced, self.family)), self.family.values)
        # Cut the padding off and go back to the photograph's size in one step.
        x, y = self.family.size / padded.shape[1], self.family.size / padded.shape[0]
        inner = (dx * x, dy * y, (dx + width) * x, (dy + height) * y)
        whole = Image.fromarray(found).resize((width, height), Image.Resampling.BILINEAR, box=inner)
        return np.asarray(whole)

    def _run(self, values: np.ndarray) -> np.ndarray:
        batch = values[None] if self._layout == "NHWC" else values.transpose(2, 0, 1)[None]
        batch = np.ascontiguousarray(batch, self._input.dtype)
        (found,) = self._session.run({self._input.name: batch}, [self._output])
        return np.asarray(found, np.float32)

    def _try(self) -> None:
        """One run on made-up pixels, so that what cannot work is said before anything starts."""
        size = self.family.size
        noise = np.random.default_rng(0).integers(0, 256, (size, size, 3)).astype(np.uint8)
        try:
            found = self._run(_values(noise, self.family))
        except Exception as error:  # the runtime has classes of its own for what a layer refuses
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{self.path} cannot run on {size} × {size} pixels ({reason})",
                fix="state its size in a sidecar, or export it again",
            ) from None
        if found.size < 4 or found.ndim < 2 or found.size != found.shape[-1] * found.shape[-2]:
            raise UserError(
                f"{self.path}: output {self._output} has shape {found.shape}, not one map of pixels",
                fix='name the right one in its sidecar, such as "output": "d0"',
            )
        if not np.isfinite(found).all():
            raise UserError(f"{self.path} gives NaN or infinity", fix="check its preprocessing")


def _opened(path: Path, sidecar: Path | None, paddings: tuple[float, ...]) -> OnnxSegmenter:
    return OnnxSegmenter(path, sidecar=sidecar, paddings=paddings)


def _values(pixels: np.ndarray, family: Family) -> np.ndarray:
    values = pixels.astype(np.float32)
    values /= np.float32(family.scale or max(float(values.max()), 1.0))
    values -= np.asarray(family.mean, np.float32)
    values /= np.asarray(family.std, np.float32)
    return values


def _matte(found: np.ndarray, values: Values) -> Matte:
    flat = found.reshape(found.shape[-2:])
    if values == "logits":
        return np.asarray(1 / (1 + np.exp(-np.clip(flat, -60, 60))), np.float32)
    if values == "unit":
        return np.asarray(np.clip(flat, 0, 1))
    low, high = float(flat.min()), float(flat.max())
    if high - low < 1e-6:
        return np.zeros_like(flat)  # a flat answer has found nothing
    return np.asarray((flat - low) / (high - low), np.float32)


def _input(path: Path, session: Session) -> tuple[Port, str]:
    ports = session.inputs
    port = ports[0] if len(ports) == 1 else None
    if port is not None and port.dtype in ("float32", "float16") and len(port.shape) == 4:
        if port.shape[0] in (None, 1) and port.shape[1] in (None, 3):
            return port, "NCHW"
        if port.shape[0] in (None, 1) and port.shape[3] == 3:
            return port, "NHWC"
    raise UserError(
        f"{path} takes {', '.join(map(str, ports)) or 'nothing'}",
        fix="give a network that takes one photo: float32 (1, 3, size, size)",
    )


def _output(path: Path, session: Session, name: str | None) -> str:
    names = [port.name for port in session.outputs]
    if name is not None:
        if name not in names:
            raise UserError(f"{path} has no output {name!r}", fix=f"it has {', '.join(names)}")
        return name
    if "output" in names:
        return "output"
    if len(session.outputs[0].shape) not in (0, 2, 3, 4):
        raise UserError(
            f"{path} gives {session.outputs[0]}", fix='name a map of pixels: "output": "d0"'
        )
    return names[0]  # U²-Net and ISNet give the final map first, then those of their levels


def _family(path: Path, sidecar: Path | None, port: Port, layout: str) -> Family:
    sides = port.shape[2:] if layout == "NCHW" else port.shape[1:3]
    beside = path.with_suffix(".json")
    stated = sidecar or (beside if beside.is_file() else None)
    if stated is not None:
        family = _read_sidecar(stated)
    else:
        known = {(U2NET.size,) * 2: U2NET, (ISNET.size,) * 2: ISNET}
        if sides not in known:
            raise UserError(
                f"{path} takes {port}, which is neither U²-Net (320) nor ISNet (1024)",
                fix=f"write {beside.name} beside it, such as {_EXAMPLE}",
            )
        family = known[sides]
    if any(side not in (None, family.size) for side in sides):
        raise UserError(
            f"{path} takes {port}, its sidecar states size {family.size}", fix="correct the size"
        )
    return family


def _read_sidecar(path: Path) -> Family:
    value = read_versioned_json(path, version=SCHEMA_VERSION)
    unknown = sorted(set(value) - set(_FIELDS))
    if unknown:
        raise BadFile(
            path, f"has the unknown field {unknown[0]!r}", fix=f"known: {', '.join(_FIELDS)}"
        )
    missing = [key for key in ("size", "scale", "mean", "std") if key not in value]
    if missing:
        raise BadFile(path, f"states no {missing[0]}", fix=f"write {_EXAMPLE}")
    size, scale, values = value["size"], value["scale"], value.get("values", "stretch")
    if isinstance(size, bool) or not isinstance(size, int) or not 8 <= size <= 8192:
        raise BadFile(path, f"size {size!r}", fix="give the side in pixels, 8 to 8192")
    if scale != "max" and not (_number(scale) and scale > 0):
        raise BadFile(path, f"scale {scale!r}", fix='give 255 or "max"')
    if values not in ("stretch", "unit", "logits"):
        raise BadFile(path, f"values {values!r}", fix="use stretch, unit or logits")
    if not isinstance(value.get("output", ""), str):
        raise BadFile(path, "output is not a text", fix="name an output of the graph")
    mean, std = _triple(path, value, "mean"), _triple(path, value, "std")
    if min(std) <= 0:
        raise BadFile(path, "std holds 0 or less", fix="correct it")
    made = None if scale == "max" else float(scale)
    return Family("sidecar", size, made, mean, std, values, value.get("output"))


def _triple(path: Path, value: Mapping[str, Any], key: str) -> tuple[float, float, float]:
    given = value[key]
    if not (isinstance(given, list) and len(given) == 3 and all(map(_number, given))):
        raise BadFile(path, f"{key} is not three numbers", fix="write one a colour")
    red, green, blue = map(float, given)
    return red, green, blue


def _number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
    )
