"""WebDataset shards in the layout that CLIP_benchmark reads; the same set gives the same bytes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from heldout.core.files import csv_text, write_text
from heldout.data.images import sha256_bytes
from heldout.data.testset.exporters.images import ImageExport, image_suffix, unique_names

SPLIT = "test"
TEMPLATE = "a photo of a {c}."
READABLE = (".webp", ".png", ".jpg", ".jpeg")
FIELDS = ("key", "shard", "image_id", "class_id", "index", "sha256")


def write_webdataset(run: ImageExport, folder: Path) -> int:
    """Write ``test/0.tar`` and so on, ``test/nshards.txt``, ``classnames.txt``, a template.

    A sample is ``s0000000.jpg`` (or png, webp: the bytes as they are) and ``s0000000.cls``, the
    class's index in digits. ``classnames.txt`` has a name for each index, which stands for ``{c}``
    in the template. ``manifest.csv`` says which image each key is.
    """
    shards = Shards(folder / SPLIT)
    manifest: list[tuple[object, ...]] = []
    try:
        for row, data in run.read(problem=_unreadable):
            key = f"s{len(manifest):07d}"
            shard = shards.add(key, image_suffix(data), data, row.index)
            digest = row.sha256 or sha256_bytes(data)
            manifest.append((key, shard, row.image_id, row.class_id, row.index, digest))
    finally:
        shards.close()
    names = unique_names(run.testset.label_space)
    write_text(folder / SPLIT / "nshards.txt", f"{shards.count}\n")
    write_text(folder / "classnames.txt", "".join(f"{name}\n" for name in names))
    write_text(folder / "zeroshot_classification_templates.txt", f"{TEMPLATE}\n")
    write_text(folder / "dataset_type.txt", "classification\n")
    write_text(folder / "manifest.csv", csv_text(FIELDS, manifest))
    return len(manifest)


def _unreadable(data: bytes) -> str:
    if image_suffix(data) in READABLE:
        return ""
    return "is not a webp, png or jpg, which is all that CLIP_benchmark reads"


class Shards:
    """Tar files 0.tar, 1.tar and so on, one open at a time.

    A shard is closed at ``max_count`` samples or before it would exceed ``max_bytes`` of images.
    """

    def __init__(
        self, folder: Path, *, max_count: int = 10_000, max_bytes: int = 1_000_000_000
    ) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._tar: tarfile.TarFile | None = None
        self._samples = self._bytes = 0
        self.count = 0

    def add(self, key: str, suffix: str, data: bytes, index: int) -> int:
        """Add one sample; the number of the shard it went to."""
        full = self._samples >= self._max_count or self._bytes + len(data) > self._max_bytes
        if self._tar is None or (full and self._samples):
            self.close()
            path = self._folder / f"{self.count}.tar"
            self._tar = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
            self._samples = self._bytes = 0
            self.count += 1
        _member(self._tar, f"{key}.cls", str(index).encode("ascii"))
        _member(self._tar, f"{key}{suffix}", data)
        self._samples += 1
        self._bytes += len(data)
        return self.count - 1

    def close(self) -> None:
        """Close the open shard."""
        if self._tar is not None:
            self._tar.close()
            self._tar = None


def _member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file without time, owner or anything else of this machine."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    tar.addfile(info, io.BytesIO(data))
