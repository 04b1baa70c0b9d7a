"""Which files hold the weights of an ONNX graph, and their hash.

A large graph may keep its weights in other files beside it ("external data"). A hash of the
``.onnx`` file alone would then be the same for two checkpoints. So the file's messages are walked
for references to such files, and their bytes are hashed too.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from heldout.errors import BadFile, NotFound
from heldout.files import canonical_json, sha256_file, sha256_text

# Fields that lead to tensors, by message of the published schema; only these are entered.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_DEEPEST = 64


def weights_hash(path: Path) -> str:
    """SHA-256 of the graph's file, or over the hashes of it and of all files that it refers to."""
    own = sha256_file(path)
    others = external_files(path)
    if not others:
        return own
    hashes = [[name, sha256_file(path.parent / name)] for name in others]
    return sha256_text(canonical_json([own, *hashes]))


def external_files(path: Path) -> tuple[str, ...]:
    """Names of the files with external data, relative to the graph's folder, sorted."""
    if path.stat().st_size == 0:
        raise BadFile(path, "is empty", fix="export the model again")
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            found = sorted(set(_locations(view, "model", 0)))
        except (IndexError, ValueError):
            raise BadFile(path, "is no ONNX file", fix="export the model again") from None
        finally:
            view.release()
    for name in found:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or "\\" in name:
            raise BadFile(path, f"refers to {name!r}", fix="keep its weights in its own folder")
        if not (path.parent / name).is_file():
            raise NotFound(f"{path} keeps weights in {name!r}, which is not there", fix="add it")
    return tuple(found)


def _locations(view: memoryview, message: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    inside = _INSIDE[message]
    for number, start, stop in _fields(view):
        kind = inside.get(number)
        if kind == "entry":
            entry = {n: bytes(view[start:stop][a:b]) for n, a, b in _fields(view[start:stop])}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode("utf-8")
        elif kind is not None:
            with view[start:stop] as part:
                yield from _locations(part, kind, depth + 1)


def _fields(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """(field number, start, stop) of every field of a message that has a length."""
    place, end = 0, len(view)
    while place < end:
        key, place = _varint(view, place)
        wire = key & 7
        if wire == 0:
            _, place = _varint(view, place)
        elif wire == 1:
            place += 8
        elif wire == 5:
            place += 4
        elif wire == 2:
            length, place = _varint(view, place)
            if place + length > end:
                raise ValueError("cut short")
            yield key >> 3, place, place + length
            place += length
        else:
            raise ValueError("unknown kind of field")
    if place != end:
        raise ValueError("cut short")


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("number too long")
