"""Images in a folder, at any depth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_folder
from heldout.data.images.source import check_id, is_image_name, no_image


class FolderSource:
    """The images below a folder; an id is the path from there, with forward slashes.

    Files with a known ending count, whatever its case; hidden files and folders do not. Links to
    files are followed, links to folders are not. The folder is listed when ids are first asked
    for, and only then.
    """

    def __init__(self, root: Path) -> None:
        self.root = existing_folder(root, "folder of images")
        self._ids: tuple[str, ...] | None = None

    def ids(self) -> Sequence[str]:
        """All ids, sorted as text; the order of the file system plays no part."""
        if self._ids is None:
            self._ids = tuple(sorted(self._walk()))
        return self._ids

    def open(self, image_id: str) -> BinaryIO:
        """The image file of this id."""
        path = self.root / check_id(image_id)
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise no_image(image_id, self.root) from None

    def _walk(self) -> list[str]:
        found = []
        for folder, inner, files in os.walk(self.root, onerror=_raise):
            inner[:] = [name for name in inner if not name.startswith(".")]
            base = Path(folder).relative_to(self.root)
            for name in files:
                image_id = (base / name).as_posix()
                if is_image_name(image_id):
                    try:
                        found.append(check_id(image_id))
                    except UserError:
                        raise BadFile(
                            ascii(image_id),
                            f"in {self.root} has a name that cannot be an image id",
                            fix="rename it, in plain UTF-8",
                        ) from None
        return found


def _raise(error: OSError) -> None:
    raise error  # os.walk would pass over a folder that cannot be read
