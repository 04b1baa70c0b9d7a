"""``onnx-pair:FOLDER``: an image encoder and a text encoder as two ONNX files of one folder.

::

    FOLDER/
      image.onnx       float pixels in, vectors (n, d) out
      text.onnx        token ids (n, context_length) in, and a mask where it takes one; (n, d) out
      tokenizer.json   of the Hugging Face library ``tokenizers``
      encoder.json     schema_version, preprocessing, scale, context_length, pad_id; optionally name,
                       and image_input, image_output, text_input, mask_input, text_output where a
                       graph has several
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, MismatchError, NotFound, UserError
from heldout.core.files import existing_folder, read_versioned_json, sha256_file
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.adapters.micro_batch import MICRO_BATCH, in_micro_batches
from heldout.models.adapters.minilm import load_tokenizer
from heldout.models.adapters.onnx_session import Port, Session, chosen
from heldout.models.adapters.onnx_weights import weights_hash
from heldout.models.adapters.sidecar import stated_preprocessing
from heldout.models.adapters.unit_vectors import unit_rows
from heldout.models.adapters.values import model_input

SCHEMA_VERSION = 1
FILES = ("image.onnx", "text.onnx", "tokenizer.json")
_NAMES = ("image_input", "image_output", "text_input", "mask_input", "text_output")
_FIELDS = (
    "schema_version",
    "name",
    "preprocessing",
    "scale",
    "context_length",
    "pad_id",
    *_NAMES,
)


@dataclass(frozen=True)
class PairSidecar:
    """What ``encoder.json`` states of a pair."""

    preprocessing: Preprocessing
    scale: float
    context_length: int
    pad_id: int
    name: str | None
    ports: Mapping[str, str | None]


class OnnxPair:
    """Two ONNX graphs as an :class:`~heldout.models.adapters.Encoder`; safe to call from several threads.

    Both run in micro-batches of one size, and every text is padded to the one context length, so a
    vector is the same to the bit whatever came with it.
    """

    def __init__(self, folder: Path) -> None:
        existing_folder(folder, "encoder pair")
        for file in FILES:
            if not (folder / file).is_file():
                raise NotFound(f"{folder} has no {file}", fix=f"a pair has {', '.join(FILES)}")
        stated = read_pair_sidecar(folder / "encoder.json")
        self.name = stated.name or f"onnx-pair:{folder.name}"
        self.preprocessing: Preprocessing = stated.preprocessing
        self.scale = stated.scale
        self._stated = stated
        self._image = Session(folder / "image.onnx", purpose="a pair of ONNX encoders")
        self._text = Session(folder / "text.onnx", purpose="a pair of ONNX encoders")
        self._tokenizer = load_tokenizer(folder / "tokenizer.json", extra="onnx")
        self._tokenizer.enable_truncation(stated.context_length)
        self._tokenizer.enable_padding(length=stated.context_length, pad_id=stated.pad_id)
        self._ports = self._chosen(folder)
        self.identity: Mapping[str, Any] = {
            "adapter": "onnx-pair",
            "image": weights_hash(folder / "image.onnx"),
            "text": weights_hash(folder / "text.onnx"),
            "tokenizer": sha256_file(folder / "tokenizer.json"),
            "context_length": stated.context_length,
            "pad_id": stated.pad_id,
            "ports": {role: port.name for role, port in sorted(self._ports.items())},
        }
        self.dimension = self._tried(folder)

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Images as unit vectors, float32 (b, d)."""
        port = self._ports["image_input"]
        values = model_input(pixels, self.preprocessing).astype(port.dtype, copy=False)
        output = [self._ports["image_output"].name]

        def run(inputs: np.ndarray) -> list[np.ndarray]:
            return self._image.run(inputs, input=port.name, outputs=output)

        return _vectors(in_micro_batches(run, values, port.shape[0] or MICRO_BATCH)[0])

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as unit vectors, float32 (texts, d)."""
        found = self._tokenizer.encode_batch(list(texts))
        # Ids and mask side by side, so that both are cut into the same micro-batches.
        both = np.array([[each.ids, each.attention_mask] for each in found], np.int64)
        both = both.reshape(len(found), 2, self._stated.context_length)
        port, mask = self._ports["text_input"], self._ports.get("mask_input")
        output = [self._ports["text_output"].name]

        def run(inputs: np.ndarray) -> list[np.ndarray]:
            feeds = {port.name: np.ascontiguousarray(inputs[:, 0]).astype(port.dtype)}
            if mask is not None:
                feeds[mask.name] = np.ascontiguousarray(inputs[:, 1]).astype(mask.dtype)
            return self._text.feed(feeds, outputs=output)

        return _vectors(in_micro_batches(run, both, port.shape[0] or MICRO_BATCH)[0])

    def _chosen(self, folder: Path) -> dict[str, Port]:
        stated = self._stated.ports
        image, text = str(folder / "image.onnx"), str(folder / "text.onnx")
        sides = {
            "image_input": (self._image.inputs, "pixel_values", image),
            "image_output": (self._image.outputs, "image_embeds", image),
            "text_input": (self._text.inputs, "input_ids", text),
            "text_output": (self._text.outputs, "text_embeds", text),
        }
        if stated["mask_input"] is not None or len(self._text.inputs) > 1:
            sides["mask_input"] = (self._text.inputs, "attention_mask", text)
        ports = {
            role: chosen(given, stated[role], usual=usual, role=role, where=where)
            for role, (given, usual, where) in sides.items()
        }
        if len(self._text.inputs) > len({"text_input", "mask_input"} & set(ports)):
            raise UserError(
                f"{text} needs {len(self._text.inputs)} inputs",
                fix="export it for token ids and a mask",
            )
        if ports["image_input"].dtype not in ("float32", "float16"):
            raise UserError(f"{image} takes {ports['image_input']}", fix="export it for floats")
        for role in ("text_input", "mask_input"):
            if role in ports and ports[role].dtype not in ("int64", "int32"):
                raise UserError(f"{text} takes {ports[role]}", fix="export it for int64 tokens")
        return ports

    def _tried(self, folder: Path) -> int:
        """One run of each graph, so that what cannot work is said before anything starts."""
        geometry = self.preprocessing.geometry
        pixels = np.full((1, geometry.crop_height, geometry.crop_width, 3), 128, np.uint8)
        try:
            image, text = self.encode_images(pixels), self.encode_texts(["a photo of a dog."])
        except UserError:
            raise
        except Exception as error:  # the runtime has classes of its own for what a layer refuses
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"the pair in {folder} cannot run ({reason})",
                fix="check preprocessing and context_length in encoder.json",
            ) from None
        if image.shape[1] != text.shape[1]:
            raise MismatchError(
                f"{folder}: images have {image.shape[1]} numbers, texts {text.shape[1]}",
                fix="both graphs must end in the shared space (after the projection)",
            )
        return int(image.shape[1])


def _vectors(output: np.ndarray) -> np.ndarray:
    if output.ndim != 2:
        raise UserError(
            f"an encoder gives {output.shape} for a batch",
            fix="name the output with one vector each",
        )
    return unit_rows(output)


def read_pair_sidecar(path: Path) -> PairSidecar:
    """Read and check ``encoder.json``; a missing one is an error that shows how to write it."""
    if not path.is_file():
        raise NotFound(
            f"{path.parent} has no encoder.json that states its preprocessing",
            fix=f"write one with the values that it was trained with, such as {example_pair()}",
        )
    value = read_versioned_json(path, version=SCHEMA_VERSION)
    unknown = sorted(set(value) - set(_FIELDS))
    if unknown:
        raise BadFile(
            path, f"has the unknown field {unknown[0]!r}", fix=f"known: {', '.join(_FIELDS)}"
        )
    for key in ("preprocessing", "scale", "context_length"):
        if key not in value:
            raise BadFile(path, f"states no {key}", fix=f"add it: {example_pair()}")
    for key in ("name", *_NAMES):
        if not isinstance(value.get(key, ""), str):
            raise BadFile(path, f"{key} is not a text", fix="correct it")
    numbers = (value["scale"], value["context_length"], value.get("pad_id", 0))
    wrong = any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers)
    if wrong or not numbers[0] > 0 or int(numbers[1]) != numbers[1] or numbers[1] < 1:
        raise BadFile(
            path,
            "scale, context_length or pad_id is no proper number",
            fix=f"such as {example_pair()}",
        )
    return PairSidecar(
        preprocessing=stated_preprocessing(path, value["preprocessing"]),
        scale=float(numbers[0]),
        context_length=int(numbers[1]),
        pad_id=int(numbers[2]),
        name=value.get("name"),
        ports={key: value.get(key) for key in _NAMES},
    )


def example_pair() -> str:
    """A complete ``encoder.json`` on one line, that of OpenAI's CLIP at 224 pixels.

    >>> json.loads(example_pair())["context_length"]
    77
    """
    geometry = Geometry(
        resize="shorter",
        resize_height=224,
        resize_width=224,
        interpolation="bicubic",
        crop_height=224,
        crop_width=224,
    )
    preprocessing = Preprocessing(
        geometry=geometry,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
    )
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "preprocessing": preprocessing.to_dict(),
            "scale": 100.0,
            "context_length": 77,
            "pad_id": 0,
        }
    )


def load(folder: str) -> OnnxPair:
    """The pair of a folder."""
    return OnnxPair(Path(folder))
