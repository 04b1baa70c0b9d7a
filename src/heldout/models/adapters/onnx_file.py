"""Writing ONNX files: the few messages of the format that a classifier needs, by hand.

ONNX is a protocol buffer. A message is a list of (field number, value); a value is a varint, four
bytes, or a length and that many bytes. The field numbers below are those of the published schema
``onnx.proto``. See docs/decisions/0004-lite.md for why the ``onnx`` package is not used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

IR_VERSION = 8
OPSET = 17
_TYPES: dict[str, int] = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10}
_VARINT, _BYTES, _FOUR = 0, 2, 5
_FLOAT, _INT, _STRING, _INTS = 1, 2, 3, 7  # AttributeProto.type

Attribute = int | float | str | Sequence[int]


@dataclass(frozen=True)
class Value:
    """An input or output of a graph; a dimension is a number, or a name where it may vary."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"


@dataclass
class GraphWriter:
    """A graph under construction: nodes in the order in which they run, and constants.

    >>> graph = GraphWriter("double")
    >>> two = graph.constant("two", np.float32([2]))
    >>> doubled = graph.node("Mul", "x", two, output="y")
    >>> data = graph.model([Value("x", ("n", 3))], [Value(doubled, ("n", 3))])
    >>> data[:2]
    b'\\x08\\x08'
    """

    name: str
    _nodes: list[bytes] = field(default_factory=list)
    _constants: list[bytes] = field(default_factory=list)

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant (an initializer); its name, to be used as an input."""
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        shape = b"".join(_number(1, n) for n in value.shape)
        kind = _number(2, _TYPES[value.dtype.name])
        self._constants.append(shape + kind + _text(8, name) + _bytes(9, little.tobytes()))
        return name

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Attribute) -> str:
        """Add a node with one output; the output's name, made up if none is given."""
        output = output or f"{operator}_{len(self._nodes)}"
        before = b"".join(_text(1, name) for name in inputs)
        after = b"".join(_bytes(5, _attribute(k, v)) for k, v in attributes.items())
        self._nodes.append(
            before + _text(2, output) + _text(3, output) + _text(4, operator) + after
        )
        return output

    def model(self, inputs: Iterable[Value], outputs: Iterable[Value]) -> bytes:
        """The bytes of the ONNX file."""
        graph = b"".join(
            [
                *(_bytes(1, node) for node in self._nodes),
                _text(2, self.name),
                *(_bytes(5, constant) for constant in self._constants),
                *(_bytes(11, _value_info(value)) for value in inputs),
                *(_bytes(12, _value_info(value)) for value in outputs),
            ]
        )
        opset = _text(1, "") + _number(2, OPSET)
        return _number(1, IR_VERSION) + _text(2, "heldout") + _bytes(7, graph) + _bytes(8, opset)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are written as 64 bits of two's complement
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3 | _VARINT) + _varint(value)


def _bytes(tag: int, value: bytes) -> bytes:
    return _varint(tag << 3 | _BYTES) + _varint(len(value)) + value


def _text(tag: int, value: str) -> bytes:
    return _bytes(tag, value.encode("utf-8"))


def _attribute(name: str, value: Attribute) -> bytes:
    head = _text(1, name)
    if isinstance(value, str):
        return head + _text(4, value) + _number(20, _STRING)
    if isinstance(value, int):
        return head + _number(3, value) + _number(20, _INT)
    if isinstance(value, float):
        return head + _varint(2 << 3 | _FOUR) + struct.pack("<f", value) + _number(20, _FLOAT)
    return head + b"".join(_number(8, item) for item in value) + _number(20, _INTS)


def _value_info(value: Value) -> bytes:
    dims = b"".join(
        _bytes(1, _number(1, n) if isinstance(n, int) else _text(2, n)) for n in value.shape
    )
    tensor = _number(1, _TYPES[value.dtype]) + _bytes(2, dims)
    return _text(1, value.name) + _bytes(2, _bytes(1, tensor))
