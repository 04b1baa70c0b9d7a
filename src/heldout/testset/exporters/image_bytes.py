"""Where an export's image bytes come from: a folder, or any source that opens an image by id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from heldout.errors import NotFound, UserError
from heldout.files import existing_folder
from heldout.testset.exporters.export import Failure
from heldout.testset.exporters.rows import Row
from heldout.testset.testset import TestSet
from heldout.testset.verify import is_inside

_MAGIC = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\x00", ".tiff"),
    (b"MM\x00*", ".tiff"),
)


class OpensImages(Protocol):
    """A source of images: opens the bytes of an image by its id."""

    def open(self, image_id: str, /) -> BinaryIO:
        """The image's encoded bytes."""
        ...


Images = Path | OpensImages
Reader = Callable[[Row], bytes | Failure]


def image_reader(testset: TestSet, images: Images | None) -> Reader:
    """A function from a row to its image's bytes, or to why there are none.

    Without ``images`` the set's own folder is read. Bytes that are not those the set recorded
    count as a failure: an export never passes on a changed image.
    """
    if images is None or isinstance(images, Path):
        root = testset.images_folder() if images is None else images
        existing_folder(root, f"folder of images of {testset.name}")
        return lambda row: _checked(row, _from_folder(row, root))
    source = images
    return lambda row: _checked(row, _from_source(row, source))


def _from_folder(row: Row, root: Path) -> bytes | Failure:
    path = row.path if row.path is not None else row.image_id
    if not is_inside(path):
        return Failure(image_id=row.image_id, reason="its path leads out of the images folder")
    try:
        return (root / path).read_bytes()
    except OSError as error:
        reason = f"no file {path}" if isinstance(error, FileNotFoundError) else str(error.strerror)
        return Failure(image_id=row.image_id, reason=reason)


def _from_source(row: Row, source: OpensImages) -> bytes | Failure:
    try:
        with source.open(row.image_id) as handle:
            return handle.read()
    except NotFound as error:
        return Failure(image_id=row.image_id, reason=error.message)
    except UserError as error:
        return Failure(image_id=row.image_id, reason=error.message)
    except (KeyError, OSError) as error:
        return Failure(image_id=row.image_id, reason=f"cannot be opened ({error})")


def _checked(row: Row, data: bytes | Failure) -> bytes | Failure:
    if isinstance(data, Failure) or row.sha256 is None:
        return data
    if hashlib.sha256(data).hexdigest() != row.sha256:
        return Failure(image_id=row.image_id, reason="its bytes are not those that were recorded")
    return data


def image_suffix(data: bytes) -> str:
    """The file ending that fits an image's first bytes, or an empty text."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for magic, suffix in _MAGIC if data.startswith(magic)), "")
