"""WebDataset shards in the layout that CLIP_benchmark reads; the same set gives the same bytes."""

from __future__ import annotations

import io
import tarfile
from contextlib import ExitStack
from pathlib import Path

from heldout.core.files import csv_text, write_text
from heldout.data.images import sha256_bytes
from heldout.data.testset.exporters.images import ImageExport, image_suffix, unique_names

SPLIT = "test"
TEMPLATE = "a photo of a {c}."
PER_SHARD = 10_000
READABLE = (".webp", ".png", ".jpg", ".jpeg")
FIELDS = ("key", "shard", "image_id", "class_id", "index", "sha256")


def write_webdataset(run: ImageExport, folder: Path) -> int:
    """Write ``test/0.tar`` and so on, ``test/nshards.txt``, ``classnames.txt``, a template.

    A sample is ``s0000000.jpg`` (or png, webp: the bytes as they are) and ``s0000000.cls``, the
    class's index in digits. ``classnames.txt`` has a name for each index, which stands for ``{c}``
    in the template. ``manifest.csv`` says which image each key is.
    """
    (folder / SPLIT).mkdir()
    manifest: list[tuple[object, ...]] = []
    with ExitStack() as shards:
        for row, data in run.read(problem=_unreadable):
            shard, place = divmod(len(manifest), PER_SHARD)
            if place == 0:
                shards.close()
                path = folder / SPLIT / f"{shard}.tar"
                tar = shards.enter_context(tarfile.open(path, "w", format=tarfile.USTAR_FORMAT))
            key = f"s{len(manifest):07d}"
            _add(tar, f"{key}.cls", str(row.index).encode("ascii"))
            _add(tar, f"{key}{image_suffix(data)}", data)
            digest = row.sha256 or sha256_bytes(data)
            manifest.append((key, shard, row.image_id, row.class_id, row.index, digest))
    names = unique_names(run.testset.label_space)
    write_text(folder / SPLIT / "nshards.txt", f"{-(-len(manifest) // PER_SHARD)}\n")
    write_text(folder / "classnames.txt", "".join(f"{name}\n" for name in names))
    write_text(folder / "zeroshot_classification_templates.txt", f"{TEMPLATE}\n")
    write_text(folder / "dataset_type.txt", "classification\n")
    write_text(folder / "manifest.csv", csv_text(FIELDS, manifest))
    return len(manifest)


def _unreadable(data: bytes) -> str:
    if image_suffix(data) in READABLE:
        return ""
    return "is not a webp, png or jpg, which is all that CLIP_benchmark reads"


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file without time, owner or anything else of this machine."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    tar.addfile(info, io.BytesIO(data))
