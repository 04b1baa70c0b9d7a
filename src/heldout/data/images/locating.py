"""Which source a path or a URL stands for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from heldout.core.errors import UserError
from heldout.data.images.archives import TarSource, ZipSource
from heldout.data.images.folder import FolderSource
from heldout.data.images.object_store import STORES, ObjectStoreSource
from heldout.data.images.source import ImageSource
from heldout.data.images.web import WebSource


def source_of(where: str | Path, *, ids: Sequence[str] | None = None) -> ImageSource:
    """The source behind a folder, a ``.tar`` or ``.zip`` file, or a URL.

    URLs are ``file://``, ``s3://bucket/prefix``, ``gs://``, ``az://``, ``http://``, ``https://``.
    A web server needs ``ids``, as it cannot be listed; for a store they save the listing; files
    on disk list themselves.
    """
    text = str(where)
    if isinstance(where, Path) or "://" not in text:
        return _on_disk(Path(where))
    url = urlsplit(text)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return _on_disk(Path(unquote(url.path)))
    if "@" in url.netloc:
        raise UserError(
            f"a URL on {url.hostname} holds a password", fix="give it in the environment instead"
        )
    if url.netloc and url.scheme in STORES:
        return ObjectStoreSource(text, ids=ids)
    if url.netloc and url.scheme in ("http", "https"):
        return WebSource(text, ids=ids)
    raise UserError(
        f"{text}: no images can be read from there",
        fix="give a path, file:///folder, s3://bucket/prefix, gs://, az:// or https://host/folder",
    )


def _on_disk(path: Path) -> ImageSource:
    ending = path.suffix.lower()
    if ending in (".tar", ".zip") and not path.is_dir():
        return TarSource(path) if ending == ".tar" else ZipSource(path)
    return FolderSource(path)
