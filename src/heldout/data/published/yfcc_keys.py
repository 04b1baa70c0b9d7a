"""Keys of YFCC100M's files: what a photo's address makes of its name on the public store."""

from __future__ import annotations

import hashlib

_SIXTEEN = "%x" * 16


def photo_key(url: str) -> str:
    """The key of a download address: its MD5, every byte in hexadecimal *without* a leading zero.

    So almost two keys of three are shorter than 32 characters.

    >>> photo_key("http://farm1.staticflickr.com/8/7088065_65c9d45e09.jpg")
    'fe4f6abc6b66599d9db946ca15cb466b'
    """
    digest = hashlib.md5(url.encode("utf-8"), usedforsecurity=False).digest()
    return _SIXTEEN % tuple(digest)


def object_path(key: str, *, video: bool = False) -> str:
    """Where the public store keeps the file of a key.

    >>> object_path("fe4f6abc6b66599d9db946ca15cb466b")
    'data/images/fe4/f6a/fe4f6abc6b66599d9db946ca15cb466b.jpg'
    """
    folder, ending = ("videos/mp4", "mp4") if video else ("images", "jpg")
    return f"data/{folder}/{key[:3]}/{key[3:6]}/{key}.{ending}"
