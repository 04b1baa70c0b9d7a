"""The sidecar: a JSON file beside a model that says what its inputs and outputs mean.

An ONNX file or a Python function does not say which pixels it was trained on or what its outputs
stand for. Guessing costs accuracy without a word, so nothing that matters has a default here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import read_versioned_json
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import BUILT_IN
from heldout.models.adapters.answers import OUTPUTS, Outputs

SCHEMA_VERSION = 1
_FIELDS = (
    "schema_version",
    "name",
    "label_space",
    "preprocessing",
    "input",
    "output",
    "features",
    "outputs",
    "files",
)
_NEEDED = ("resize", "interpolation", "crop_height", "crop_width", "scale", "mean", "std")
_BY_CLASSES = {1000: "imagenet-1k", 21_843: "imagenet-21k"}


@dataclass(frozen=True)
class Sidecar:
    """What a sidecar states.

    ``input``, ``output``, ``features``  names in an ONNX graph, where it has several
    ``outputs``  ``logits`` or ``probabilities``
    ``files``    for a function: the files, relative to the sidecar, that its answers depend on;
                 None where none are stated
    """

    label_space: LabelSpace
    preprocessing: Preprocessing
    name: str | None = None
    input: str | None = None
    output: str | None = None
    features: str | None = None
    outputs: Outputs = "logits"
    files: tuple[str, ...] | None = None


def sidecar_path(model: Path) -> Path | None:
    """The sidecar of a model's file: ``<stem>.json``, else ``model.json`` beside it, else None."""
    for path in (model.with_suffix(".json"), model.parent / "model.json"):
        if path.is_file():
            return path
    return None


def find_sidecar(model: Path, example: str) -> Path:
    """The sidecar of a model's file; a missing one is an error that shows ``example``."""
    path = sidecar_path(model)
    if path is None:
        raise NotFound(
            f"{model} has no sidecar that states its label space and preprocessing",
            fix=f"write {model.with_suffix('.json').name} beside it, with the values that it was "
            f"trained with, such as {example}",
        )
    return path


def example_sidecar(
    *, height: int, width: int, classes: int | None = None, layout: str = "NCHW"
) -> str:
    """A complete sidecar on one line, for a model of this input size, to be corrected by hand.

    >>> json.loads(example_sidecar(height=224, width=224, classes=1000))["label_space"]
    'imagenet-1k'
    """
    side = round(min(height, width) / 0.875)
    geometry = (
        Geometry(resize_height=side, resize_width=side, crop_height=height, crop_width=width)
        if height == width
        else Geometry(
            resize="exact",
            resize_height=height,
            resize_width=width,
            crop_height=height,
            crop_width=width,
        )
    )
    fields = Preprocessing(geometry=geometry).to_dict() | {"layout": layout}
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "label_space": _BY_CLASSES.get(classes or 0, "classes.json"),
            "preprocessing": fields,
        }
    )


def read_sidecar(path: Path) -> Sidecar:
    """Read and check a sidecar; label space files are looked for beside it."""
    value = read_versioned_json(path, version=SCHEMA_VERSION)
    unknown = sorted(set(value) - set(_FIELDS))
    if unknown:
        raise BadFile(
            path, f"has the unknown field {unknown[0]!r}", fix=f"known: {', '.join(_FIELDS)}"
        )
    for key in ("label_space", "preprocessing"):
        if key not in value:
            raise BadFile(path, f"states no {key}", fix=f"add it: {_example()}")
    for key in ("name", "input", "output", "features"):
        if not isinstance(value.get(key, ""), str):
            raise BadFile(path, f"{key} is not a text", fix="correct it")
    outputs = value.get("outputs", "logits")
    if outputs not in OUTPUTS:
        raise BadFile(path, f"outputs {outputs!r}", fix=f"use {' or '.join(OUTPUTS)}")
    files = value.get("files")
    if files is not None and not (
        isinstance(files, list) and all(isinstance(f, str) for f in files)
    ):
        raise BadFile(path, "files is not a list of names", fix="correct it")
    return Sidecar(
        label_space=_label_space(path, value["label_space"]),
        preprocessing=stated_preprocessing(path, value["preprocessing"]),
        name=value.get("name"),
        input=value.get("input"),
        output=value.get("output"),
        features=value.get("features"),
        outputs=outputs,
        files=None if files is None else tuple(files),
    )


def _label_space(path: Path, text: Any) -> LabelSpace:
    if not isinstance(text, str):
        raise BadFile(path, "label_space is not a text", fix="give a name or a JSON file")
    if text in BUILT_IN:
        return LabelSpace.load(text)
    if not text.endswith(".json"):
        raise BadFile(
            path,
            f"no label space named {text!r}",
            fix=f"use a JSON file or one of {', '.join(BUILT_IN)}",
        )
    return LabelSpace.read(path.parent / text)


def stated_preprocessing(path: Path, value: Any) -> Preprocessing:
    """The preprocessing that a sidecar states; all that matters must be stated."""
    if not isinstance(value, dict):
        raise BadFile(path, "preprocessing is not an object", fix=f"write it as {_example()}")
    needed = [*_NEEDED]
    if value.get("resize") in ("shorter", "exact"):
        needed.append("resize_height")
    if value.get("resize") == "exact":
        needed.append("resize_width")
    missing = [key for key in needed if key not in value]
    if missing:
        raise BadFile(
            path,
            f"its preprocessing does not state {', '.join(missing)}",
            fix="add what the model was trained with; a wrong guess costs accuracy silently",
        )
    try:
        return Preprocessing.from_dict(value)
    except UserError as error:
        raise BadFile(path, error.message, fix=error.fix) from None
    except (TypeError, ValueError) as error:
        raise BadFile(
            path, f"its preprocessing cannot be read ({error})", fix="correct it"
        ) from None


def _example() -> str:
    return example_sidecar(height=224, width=224, classes=1000)
