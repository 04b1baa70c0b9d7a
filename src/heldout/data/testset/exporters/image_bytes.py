"""Where an export's image bytes come from: a folder, or any source of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heldout.core.errors import NotFound, UserError
from heldout.data.images import FolderSource, ImageSource, read_image, sha256_bytes
from heldout.data.testset.exporters.export import Failure
from heldout.data.testset.exporters.rows import Row
from heldout.data.testset.testset import TestSet

_MAGIC = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\x00", ".tiff"),
    (b"MM\x00*", ".tiff"),
)

Images = Path | ImageSource
Reader = Callable[[Row], bytes | Failure]


def image_reader(testset: TestSet, images: Images | None) -> Reader:
    """A function from a row to its image's bytes, or to why there are none.

    ``images`` is a folder, in which an image lies at its ``path`` (or at its id, where the set has
    no path); or a source, which knows it by its id (or by its path). Without it the set's own
    folder is read. Bytes that are not those the set recorded count as a failure: an export never
    passes on a changed image.
    """
    if images is None:
        images = testset.source or testset.images_folder()
    if isinstance(images, Path):
        source: ImageSource = FolderSource(images)
        return lambda row: _read(row, source, [row.path or row.image_id])
    source = images
    return lambda row: _read(row, source, [row.image_id, row.path or row.image_id])


def _read(row: Row, source: ImageSource, names: list[str]) -> bytes | Failure:
    reason = ""
    for name in dict.fromkeys(names):
        try:
            data = read_image(source, name)
        except NotFound as error:
            reason = reason or error.message
            continue
        except (OSError, UserError) as error:
            return Failure(image_id=row.image_id, reason=" ".join(str(error).split()))
        if row.sha256 is not None and sha256_bytes(data) != row.sha256:
            reason = "its bytes are not those that were recorded"
            return Failure(image_id=row.image_id, reason=reason)
        return data
    return Failure(image_id=row.image_id, reason=reason)


def image_suffix(data: bytes) -> str:
    """The file ending that fits an image's first bytes, or an empty text."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for magic, suffix in _MAGIC if data.startswith(magic)), "")
