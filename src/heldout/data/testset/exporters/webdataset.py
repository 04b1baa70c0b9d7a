"""WebDataset shards in the layout that CLIP_benchmark reads; the same set gives the same bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import UserError
from heldout.core.files import csv_text, write_text
from heldout.core.workspace import check_slug
from heldout.data.images import sha256_bytes
from heldout.data.testset.exporters.images import Images, image_suffix, unique_names
from heldout.data.testset.exporters.owned_folder import Export, ImageExport
from heldout.data.testset.testset import TestSet

TEMPLATES = ("a photo of a {c}.",)
READABLE = (".webp", ".png", ".jpg", ".jpeg")
FIELDS = ("key", "shard", "image_id", "class_id", "index", "sha256")


def export_webdataset(
    testset: TestSet,
    folder: Path,
    *,
    truth: str | None = None,
    split: str = "test",
    templates: Sequence[str] = TEMPLATES,
    class_names: Sequence[str] | None = None,
    max_count: int = 10_000,
    max_bytes: int = 1_000_000_000,
    images: Images | None = None,
    allow_licence: bool = False,
    replace: bool = False,
) -> Export:
    """Write ``<split>/0.tar`` and so on, ``<split>/nshards.txt``, ``classnames.txt``, templates.

    A sample is ``s0000000.jpg`` (or png, webp: the bytes as they are) and ``s0000000.cls``, the
    class's index in digits. ``classnames.txt`` has a name for each index, ``{c}`` in a template
    stands for it. ``manifest.csv`` says which image each key is. A shard is closed at
    ``max_count`` samples or before it would exceed ``max_bytes`` of images.
    """
    check_slug(split, "a split")
    names = unique_names(testset.label_space) if class_names is None else tuple(class_names)
    if len(names) != len(testset.label_space) or any("\n" in name for name in names):
        raise UserError(
            f"{len(names)} class names for {len(testset.label_space)} classes",
            fix="give one name per class, each on one line",
        )
    if not templates or not all("{c}" in template for template in templates):
        raise UserError("a template without {c}", fix="write one such as 'a photo of a {c}.'")
    if max_count < 1 or max_bytes < 1:
        raise UserError("a shard that holds nothing", fix="give max_count and max_bytes from 1")
    run = ImageExport(testset, truth, copy=True, images=images, allow_licence=allow_licence)

    def build(temporary: Path) -> int:
        shards = _Shards(temporary / split, max_count=max_count, max_bytes=max_bytes)
        manifest: list[tuple[object, ...]] = []
        try:
            for row, data in run.copies(problem=_unreadable):
                key = f"s{len(manifest):07d}"
                shard = shards.add(key, image_suffix(data), data, row.index)
                digest = row.sha256 or sha256_bytes(data)
                manifest.append((key, shard, row.image_id, row.class_id, row.index, digest))
        finally:
            shards.close()
        write_text(temporary / split / "nshards.txt", f"{shards.count}\n")
        write_text(temporary / "classnames.txt", "".join(f"{name}\n" for name in names))
        write_text(
            temporary / "zeroshot_classification_templates.txt",
            "".join(f"{template}\n" for template in templates),
        )
        write_text(temporary / "dataset_type.txt", "classification\n")
        write_text(temporary / "manifest.csv", csv_text(FIELDS, manifest))
        return len(manifest)

    options = {
        "split": split,
        "templates": list(templates),
        "class_names": list(class_names or ()),
        "max_count": max_count,
        "max_bytes": max_bytes,
    }
    return run.write(folder, build, form="webdataset", options=options, replace=replace)


def _unreadable(data: bytes) -> str:
    if image_suffix(data) in READABLE:
        return ""
    return "is not a webp, png or jpg, which is all that CLIP_benchmark reads"


class _Shards:
    """Tar files 0.tar, 1.tar and so on, one open at a time."""

    def __init__(self, folder: Path, *, max_count: int, max_bytes: int) -> None:
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
