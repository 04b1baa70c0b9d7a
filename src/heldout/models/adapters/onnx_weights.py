"""Which files hold the weights of an ONNX graph, and their hash.

A large graph may keep its weights in other files beside it ("external data"). A hash of the
``.onnx`` file alone would then be the same for two checkpoints. So the files that it names are
hashed too.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path, PurePosixPath

from heldout.core.errors import BadFile, NotFound
from heldout.core.files import canonical_json, sha256_file, sha256_text

# An entry of a tensor's external data: the key "location", then a value of up to 16,383 bytes.
_LOCATION = re.compile(rb"\n\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])")


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
    found = set()
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for entry in _LOCATION.finditer(data):
            low, high = entry[1][0] & 0x7F, entry[1][-1] if len(entry[1]) > 1 else 0
            found.add(data[entry.end() : entry.end() + low + 128 * high].decode("utf-8", "replace"))
    for name in found:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or "\\" in name:
            raise BadFile(path, f"refers to {name!r}", fix="keep its weights in its own folder")
        if not (path.parent / name).is_file():
            raise NotFound(f"{path} keeps weights in {name!r}, which is not there", fix="add it")
    return tuple(sorted(found))
