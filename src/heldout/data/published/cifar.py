"""CIFAR-10.1 and arrays of its shape: images and labels as two NumPy files.

Recht, Roelofs, Schmidt, Shankar: Do CIFAR-10 Classifiers Generalize to CIFAR-10? 2018.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from pathlib import Path

import numpy as np

from heldout.core.arrays import load_array
from heldout.core.errors import BadFile, MismatchError, NotFound
from heldout.core.files import sha256_file, write_bytes
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.tables import truth_table
from heldout.data.testset.testset import TestSet, imported

CITATION = (
    "Recht, Roelofs, Schmidt, Shankar: Do CIFAR-10 Classifiers Generalize to CIFAR-10? 2018; "
    "Torralba, Fergus, Freeman: 80 Million Tiny Images, TPAMI 2008"
)
_DATA = re.compile(r"(?<=.)[_-]data\Z")


def labels_beside(data: Path) -> Path:
    """The labels file that belongs to a data file: ``…_data.npy`` -> ``…_labels.npy``."""
    if not _DATA.search(data.stem):
        raise NotFound(
            f"{data}: its name does not end in _data.npy, so its labels are not known",
            fix="call the files …_data.npy and …_labels.npy",
        )
    return data.with_name(f"{data.stem.removesuffix('data')}labels{data.suffix}")


def read_cifar(
    data: Path,
    *,
    name: str | None = None,
    label_space: LabelSpace | None = None,
    images: bool = False,
) -> TestSet:
    """A test set from images uint8 (n, height, width, 3) and labels int (n,).

    Labels are beside ``data``: ``cifar10.1_v4_labels.npy`` beside ``cifar10.1_v4_data.npy``. Image
    ids are ``cifar10.1_v4/00000`` and so on, by row. ``sha256`` is that of the PNG file that
    :func:`write_images` writes; its bytes follow from the pixels alone, so the hash is there whether
    or not the file is. With ``images`` the set says that these files lie in its ``images/``: call
    :func:`write_images` after saving it.
    """
    labels = labels_beside(data)
    pixels = read_pixels(data)
    space = label_space or LabelSpace.load("cifar-10")
    indices = _read_labels(labels, space)
    if len(indices) != len(pixels):
        raise MismatchError(
            f"{labels}: {len(indices)} labels for the {len(pixels)} images of {data.name}",
            fix="give the labels of these images",
        )
    stem = array_stem(data)
    ids = image_ids(stem, len(pixels))
    classes = [space.ids[index] for index in indices.tolist()]
    digest = sha256_file(labels)
    return imported(
        name or slug(stem.replace("_", "-")),
        label_space=space,
        images={
            "image_id": ids,
            "path": [f"{image}.png" if images else None for image in ids],
            "sha256": [hashlib.sha256(png_bytes(image)).hexdigest() for image in pixels],
            "width": [pixels.shape[2]] * len(ids),
            "height": [pixels.shape[1]] * len(ids),
        },
        truth=truth_table(ids, classes),
        source=labels.name,
        sha256=digest,
        provenance={"version": (re.findall(r"v\d+\Z", stem) or ["unknown"])[0]},
        aliases=() if name or stem == slug(stem.replace("_", "-")) else (slug(stem),),
        recipe={"name": "import/cifar", "parameters": {}, "seed": None},
        parents=(
            {"file": data.name, "sha256": sha256_file(data)},
            {"file": labels.name, "sha256": digest},
        ),
        citation=CITATION,
        notes=("sha256 is that of each image as an uncompressed PNG file",),
        images_root="images" if images else None,
    )


def array_stem(data: Path) -> str:
    """The name of the set in a data file's name: ``cifar10.1_v4_data.npy`` -> ``cifar10.1_v4``."""
    return _DATA.sub("", data.stem)


def image_ids(stem: str, n: int) -> list[str]:
    """The ids of ``n`` rows: ``cifar10.1_v4/00000``, ``cifar10.1_v4/00001``, …"""
    return [f"{stem}/{row:05d}" for row in range(n)]


def read_pixels(path: Path) -> np.ndarray:
    """Images uint8 (n, height, width, 3) from a NumPy file."""
    pixels = load_array(path)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3 or 0 in pixels.shape:
        raise BadFile(
            path,
            f"has type {pixels.dtype} and shape {pixels.shape}",
            fix="images must be uint8 of shape (n, height, width, 3), colours last",
        )
    return pixels


def _read_labels(path: Path, space: LabelSpace) -> np.ndarray:
    indices = load_array(path)
    if not np.issubdtype(indices.dtype, np.integer) or indices.ndim != 1:
        raise BadFile(
            path,
            f"has type {indices.dtype} and shape {indices.shape}",
            fix="labels must be whole numbers, (n,)",
        )
    outside = (indices < 0) | (indices >= len(space))
    if outside.any():
        row = int(outside.argmax())
        raise BadFile(
            path,
            f"has {int(outside.sum())} labels outside 0..{len(space) - 1}, such as "
            f"{int(indices[row])} in row {row}",
            fix="name the right label space with --classes",
        )
    return indices


def write_images(data: Path, folder: Path) -> int:
    """Write every image of a data file as ``folder/<image id>.png``; how many were written."""
    pixels = read_pixels(data)
    for image, array in zip(image_ids(array_stem(data), len(pixels)), pixels, strict=True):
        write_bytes(folder / f"{image}.png", png_bytes(array))
    return len(pixels)


def png_bytes(image: np.ndarray) -> bytes:
    """An uncompressed PNG file of an image uint8 (height, width, 3).

    Written out here because a library's bytes change with its compressor, and the hash must not:
    rows are stored unfiltered in plain deflate blocks.
    """
    height, width = image.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # each row starts with filter type 0
    rows[:, 1:] = image.reshape(height, 3 * width)
    raw = rows.tobytes()
    blocks = [raw[start : start + 0xFFFF] for start in range(0, len(raw), 0xFFFF)]
    stored = b"".join(
        struct.pack("<BHH", number == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )
    packed = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(raw))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
