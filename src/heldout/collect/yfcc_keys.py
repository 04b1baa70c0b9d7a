"""Keys of YFCC100M's files: what a photo's address makes of its name on the public store."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def photo_key(url: str) -> str:
    """The key of a download address: its MD5, every byte in hexadecimal *without* a leading zero.

    So almost two keys of three are shorter than 32 characters.

    >>> photo_key("http://farm1.staticflickr.com/8/7088065_65c9d45e09.jpg")
    'fe4f6abc6b66599d9db946ca15cb466b'
    """
    digest = hashlib.md5(url.encode("utf-8"), usedforsecurity=False).digest()
    return "".join(f"{byte:x}" for byte in digest)


def photo_keys(urls: Any) -> Any:
    """The keys of an Arrow array of addresses (string or binary), as an Arrow string array."""
    import pyarrow as pa

    if not len(urls):
        return pa.array([], pa.string())
    md5 = hashlib.md5
    listed = urls.cast(pa.binary()).to_pylist()
    digests = b"".join([md5(url, usedforsecurity=False).digest() for url in listed])
    values = np.frombuffer(digests, dtype=np.uint8)
    digits = np.empty((len(values), 2), dtype=np.uint8)
    digits[:, 0], digits[:, 1] = values >> 4, values & 15
    kept = np.ones(digits.shape, dtype=bool)
    kept[:, 0] = digits[:, 0] != 0
    lengths = kept.reshape(len(listed), 32).sum(axis=1, dtype=np.int32)
    offsets = np.zeros(len(listed) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(
        len(listed), pa.py_buffer(offsets), pa.py_buffer(_HEX[digits[kept]])
    )


def object_path(key: str, *, video: bool = False) -> str:
    """Where the public store keeps the file of a key.

    >>> object_path("fe4f6abc6b66599d9db946ca15cb466b")
    'data/images/fe4/f6a/fe4f6abc6b66599d9db946ca15cb466b.jpg'
    """
    folder, ending = ("videos/mp4", "mp4") if video else ("images", "jpg")
    return f"data/{folder}/{key[:3]}/{key[3:6]}/{key}.{ending}"
