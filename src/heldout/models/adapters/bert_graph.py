"""A BERT sentence encoder as an ONNX graph, made from a checkpoint's arrays without torch.

Token, position and segment embeddings, then layers of attention and of two dense maps, each with
its sum and layer normalisation (Devlin et al. 2019); the mean over tokens is the text's vector
(Reimers and Gurevych 2019). There is no mask: texts of one length go in together, so that no vector
depends on how far another text was padded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.models.adapters.onnx_file import GraphWriter, Value

INPUT, OUTPUT = "tokens", "means"


@dataclass(frozen=True)
class BertConfig:
    """A BERT: widths and depth as in its published configuration."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    positions: int = 512
    segments: int = 2
    epsilon: float = 1e-12


def bert_graph(weights: Mapping[str, np.ndarray], config: BertConfig) -> bytes:
    """The bytes of an ONNX file: ``tokens`` int64 (n, t) to ``means`` float32 (n, width).

    ``weights`` are named as in the checkpoints of Hugging Face's BERT. Missing or misshaped arrays
    are refused; what only training or other uses need (the pooler) is left out.
    """
    maker = _Maker(weights, config)
    graph = maker.graph
    words = graph.node(
        "Gather",
        maker.array("embeddings.word_embeddings.weight", (config.vocabulary, config.width)),
        INPUT,
        output="words",
    )
    places = graph.node(
        "Slice",
        maker.places(),
        graph.constant("first", np.array([0], np.int64)),
        graph.node("Shape", INPUT, output="length", start=1),
        graph.constant("axis", np.array([0], np.int64)),
        output="places",
    )
    value = graph.node("Add", words, places, output="embedded")
    value = maker.normalised(value, "embeddings.LayerNorm")
    for number in range(config.layers):
        value = _layer(maker, value, f"encoder.layer.{number}")
    graph.node("ReduceMean", value, output=OUTPUT, axes=(1,), keepdims=0)
    return graph.model(
        [Value(INPUT, ("n", "t"), "int64")], [Value(OUTPUT, ("n", config.width), "float32")]
    )


def _layer(maker: _Maker, value: str, name: str) -> str:
    config, graph = maker.config, maker.graph
    width, inner = config.width, config.inner
    own = f"{name}.attention.self"
    # The scores' division by the root of a head's width is folded into the query.
    shrink = 1 / math.sqrt(width / config.heads)
    query = maker.heads(value, f"{own}.query", (0, 2, 1, 3), factor=shrink)
    key = maker.heads(value, f"{own}.key", (0, 2, 3, 1))
    content = maker.heads(value, f"{own}.value", (0, 2, 1, 3))
    scores = graph.node("MatMul", query, key, output=f"{own}.scores")
    shares = graph.node("Softmax", scores, output=f"{own}.shares", axis=-1)
    mixed = graph.node("MatMul", shares, content, output=f"{own}.mixed")
    mixed = graph.node("Transpose", mixed, output=f"{own}.turned", perm=(0, 2, 1, 3))
    mixed = graph.node("Reshape", mixed, maker.joined, output=f"{own}.joined")
    mixed = maker.dense(mixed, f"{name}.attention.output.dense", (width, width))
    value = graph.node("Add", mixed, value, output=f"{name}.attention.sum")
    value = maker.normalised(value, f"{name}.attention.output.LayerNorm")
    grown = maker.gelu(maker.dense(value, f"{name}.intermediate.dense", (inner, width)))
    shrunk = maker.dense(grown, f"{name}.output.dense", (width, inner))
    value = graph.node("Add", shrunk, value, output=f"{name}.sum")
    return maker.normalised(value, f"{name}.output.LayerNorm")


class _Maker:
    """Takes arrays out of a checkpoint and adds the layers that they belong to."""

    def __init__(self, weights: Mapping[str, np.ndarray], config: BertConfig) -> None:
        self._weights = weights
        self.config = config
        self.graph = GraphWriter("bert")
        head = config.width // config.heads
        self._split = self.graph.constant("split", np.array([0, 0, config.heads, head], np.int64))
        self.joined = self.graph.constant("joined", np.array([0, 0, config.width], np.int64))
        numbers = {"half": 0.5, "one": 1.0, "root": math.sqrt(0.5)}
        self._numbers = {
            name: self.graph.constant(name, np.array(value, np.float32))
            for name, value in numbers.items()
        }

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        array = self._weights.get(name)
        if array is None or array.shape != shape or array.dtype.kind != "f":
            found = "missing" if array is None else f"{array.dtype} {array.shape}"
            raise UserError(
                f"{name!r} of the weights is {found} instead of {shape}",
                fix="they are of another architecture",
            )
        return array.astype(np.float64)

    def array(self, name: str, shape: tuple[int, ...]) -> str:
        return self.graph.constant(name, self.take(name, shape).astype(np.float32))

    def places(self) -> str:
        """Embeddings of positions, with that of the first segment added: there is no second."""
        config = self.config
        places = self.take(
            "embeddings.position_embeddings.weight", (config.positions, config.width)
        )
        segments = self.take(
            "embeddings.token_type_embeddings.weight", (config.segments, config.width)
        )
        return self.graph.constant("positions", (places + segments[0]).astype(np.float32))

    def dense(self, value: str, name: str, shape: tuple[int, int], *, factor: float = 1.0) -> str:
        matrix = (self.take(f"{name}.weight", shape).T * factor).astype(np.float32)
        bias = (self.take(f"{name}.bias", shape[:1]) * factor).astype(np.float32)
        made = self.graph.node(
            "MatMul", value, self.graph.constant(f"{name}.matrix", matrix), output=f"{name}.product"
        )
        return self.graph.node(
            "Add", made, self.graph.constant(f"{name}.offset", bias), output=name
        )

    def heads(
        self, value: str, name: str, order: tuple[int, int, int, int], *, factor: float = 1.0
    ) -> str:
        shape = (self.config.width, self.config.width)
        made = self.dense(value, name, shape, factor=factor)
        made = self.graph.node("Reshape", made, self._split, output=f"{name}.heads")
        return self.graph.node("Transpose", made, output=f"{name}.turned", perm=order)

    def normalised(self, value: str, name: str) -> str:
        shape = (self.config.width,)
        return self.graph.node(
            "LayerNormalization",
            value,
            self.array(f"{name}.weight", shape),
            self.array(f"{name}.bias", shape),
            output=name,
            axis=-1,
            epsilon=self.config.epsilon,
        )

    def gelu(self, value: str) -> str:
        """``x · (1 + erf(x / √2)) / 2``."""
        numbers, graph = self._numbers, self.graph
        made = graph.node("Mul", value, numbers["root"], output=f"{value}.scaled")
        made = graph.node("Erf", made, output=f"{value}.erf")
        made = graph.node("Add", made, numbers["one"], output=f"{value}.raised")
        made = graph.node("Mul", value, made, output=f"{value}.doubled")
        return graph.node("Mul", made, numbers["half"], output=f"{value}.gelu")
