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
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from heldout.core import schema
from heldout.core.errors import MismatchError, NotFound, UserError
from heldout.core.files import existing_folder, sha256_file
from heldout.data.images.preprocessing import Preprocessing
from heldout.models.adapters.model import model_input, resize_and_crop, unit_rows
from heldout.models.adapters.onnx import (
    MICRO_BATCH,
    Port,
    Run,
    Session,
    chosen,
    in_micro_batches,
    reason,
    stated_preprocessing,
    weights_hash,
)
from heldout.models.adapters.text_encoders import load_tokenizer

FILES = ("image.onnx", "text.onnx", "tokenizer.json")


class _EncoderFile(schema.Document, frozen=True, kw_only=True):
    """The JSON of ``encoder.json``."""

    schema_version: int = 1
    name: str | None = None
    preprocessing: dict[str, Any]
    scale: Annotated[float, msgspec.Meta(gt=0)]
    context_length: Annotated[int, msgspec.Meta(ge=1)]
    pad_id: int = 0
    image_input: str | None = None
    image_output: str | None = None
    text_input: str | None = None
    mask_input: str | None = None
    text_output: str | None = None


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
        image, text, tokenizer = (folder / file for file in FILES)
        stated_in = folder / "encoder.json"
        if not stated_in.is_file():
            raise NotFound(
                f"{folder} has no encoder.json that states its preprocessing",
                fix=f"write one with the values that it was trained with, such as {example_pair()}",
            )
        stated = schema.read(stated_in, _EncoderFile, fix=f"write it as {example_pair()}")
        self.name = stated.name or f"onnx-pair:{folder.name}"
        self.preprocessing: Preprocessing = stated_preprocessing(stated_in, stated.preprocessing)
        self.scale = float(stated.scale)
        self._length = stated.context_length
        self._image = Session(image, purpose="a pair of ONNX encoders")
        self._text = Session(text, purpose="a pair of ONNX encoders")
        self._tokenizer = load_tokenizer(tokenizer, extra="onnx")
        self._tokenizer.enable_truncation(self._length)
        self._tokenizer.enable_padding(length=self._length, pad_id=stated.pad_id)
        self._ports = self._chosen(stated, image, text)
        self.identity: Mapping[str, Any] = {
            "adapter": "onnx-pair",
            "image": weights_hash(image),
            "text": weights_hash(text),
            "tokenizer": sha256_file(tokenizer),
            "context_length": self._length,
            "pad_id": stated.pad_id,
            "ports": {role: port.name for role, port in sorted(self._ports.items())},
        }
        self.dimension = self._tried(folder)

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Images as unit vectors, float32 (b, d)."""
        port = self._ports["image_input"]
        output = [self._ports["image_output"].name]
        values = model_input(pixels, self.preprocessing).astype(port.dtype, copy=False)
        return _vectors(lambda batch: self._image.run({port.name: batch}, output), values, port)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as unit vectors, float32 (texts, d)."""
        found = self._tokenizer.encode_batch(list(texts))
        # Ids and mask side by side, so that both are cut into the same micro-batches.
        both = np.array([[each.ids, each.attention_mask] for each in found], np.int64)
        both = both.reshape(len(found), 2, self._length)
        inputs = [self._ports[role] for role in ("text_input", "mask_input") if role in self._ports]
        output = [self._ports["text_output"].name]

        def run(batch: np.ndarray) -> list[np.ndarray]:
            feeds = {
                port.name: np.ascontiguousarray(batch[:, place]).astype(port.dtype)
                for place, port in enumerate(inputs)
            }
            return self._text.run(feeds, output)

        return _vectors(run, both, inputs[0])

    def _chosen(self, stated: _EncoderFile, image: Path, text: Path) -> dict[str, Port]:
        sides = {
            "image_input": (self._image.inputs, "pixel_values", image),
            "image_output": (self._image.outputs, "image_embeds", image),
            "text_input": (self._text.inputs, "input_ids", text),
            "text_output": (self._text.outputs, "text_embeds", text),
        }
        if stated.mask_input is not None or len(self._text.inputs) > 1:
            sides["mask_input"] = (self._text.inputs, "attention_mask", text)
        ports = {
            role: chosen(given, getattr(stated, role), usual=usual, role=role, where=str(where))
            for role, (given, usual, where) in sides.items()
        }
        if len(self._text.inputs) > len({"text_input", "mask_input"} & set(ports)):
            raise UserError(
                f"{text} needs {len(self._text.inputs)} inputs",
                fix="export it for token ids and a mask",
            )
        kinds = {
            "image_input": ("float32", "float16"),
            "text_input": ("int64", "int32"),
            "mask_input": ("int64", "int32"),
        }
        for role in kinds.keys() & ports.keys():
            if ports[role].dtype not in kinds[role]:
                raise UserError(
                    f"{sides[role][2]} takes {ports[role]}",
                    fix=f"export it for {' or '.join(kinds[role])}",
                )
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
            raise UserError(
                f"the pair in {folder} cannot run ({reason(error)})",
                fix="check preprocessing and context_length in encoder.json",
            ) from None
        if image.shape[1] != text.shape[1]:
            raise MismatchError(
                f"{folder}: images have {image.shape[1]} numbers, texts {text.shape[1]}",
                fix="both graphs must end in the shared space (after the projection)",
            )
        return int(image.shape[1])


def _vectors(run: Run, inputs: np.ndarray, port: Port) -> np.ndarray:
    output = in_micro_batches(run, inputs, port.shape[0] or MICRO_BATCH)[0]
    if output.ndim != 2:
        raise UserError(
            f"an encoder gives {output.shape} for a batch",
            fix="name the output with one vector each",
        )
    return unit_rows(output)


def example_pair() -> str:
    """A complete ``encoder.json`` on one line, that of OpenAI's CLIP at 224 pixels.

    >>> json.loads(example_pair())["context_length"]
    77
    """
    preprocessing = Preprocessing(
        geometry=resize_and_crop(224, 224, "bicubic"),
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
    )
    return json.dumps(
        {
            "schema_version": 1,
            "preprocessing": preprocessing.to_dict(),
            "scale": 100.0,
            "context_length": 77,
            "pad_id": 0,
        }
    )


def load(folder: str) -> OnnxPair:
    """The pair of a folder."""
    return OnnxPair(Path(folder))
