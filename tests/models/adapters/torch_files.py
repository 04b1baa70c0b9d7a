"""Files as ``torch.save`` writes them, assembled opcode by opcode, in the older layout."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping

import numpy as np

STORAGES = {"float32": "FloatStorage", "int64": "LongStorage"}


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(16, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def tuple_of(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


ORDERED = name("collections", "OrderedDict") + b")R"


def storage(key: str, kind: str, length: int) -> bytes:
    return (
        tuple_of(text("storage"), name("torch", kind), text(key), text("cpu"), number(length), b"N")
        + b"Q"
    )


def tensor(
    held: bytes, shape: tuple[int, ...], strides: tuple[int, ...], *, offset: int = 0
) -> bytes:
    arguments = tuple_of(
        held,
        number(offset),
        tuple_of(*map(number, shape)),
        tuple_of(*map(number, strides)),
        b"\x89",
        ORDERED,
    )
    return name("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def state_dict(entries: Mapping[str, bytes]) -> bytes:
    items = b"".join(text(key) + value for key, value in entries.items())
    return b"\x80\x02" + ORDERED + b"(" + items + b"u."


def plain_entries(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    made = {}
    for place, (key, array) in enumerate(arrays.items()):
        strides = tuple(step // array.itemsize for step in np.array(array, order="C").strides)
        held = storage(str(place), STORAGES[array.dtype.name], array.size)
        made[key] = tensor(held, array.shape, strides)
    return made


def legacy_file(body: bytes, arrays: list[np.ndarray]) -> bytes:
    head = b"".join(
        pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    )
    keys = pickle.dumps([str(place) for place in range(len(arrays))], 2)
    data = b"".join(struct.pack("<q", a.size) + a.tobytes() for a in arrays)
    return head + body + keys + data
