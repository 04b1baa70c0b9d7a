"""The released lists of CLIP-GeoYFCC: rows of a data frame, class after class, without their classes.

An index file holds positions in the frame, concatenated in the order of the class list. A class that
was capped has exactly ``cap`` positions in the order in which they were drawn; any other class has all
its positions, rising. So classes can be told apart: from where a class begins, either the positions
rise for a long way (20 or more), and it ends where they fall, or it has ``cap`` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.arrays import load_array
from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, sha256_file
from heldout.core.tables import read_parquet, read_table_file, require_column
from heldout.data.labels.wordnet import load_built_in
from heldout.data.published.clip_geoyfcc_exclusions import EXCLUDED_45
from heldout.data.testset.card import Card
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, make_testset

CITATION = "CLIP-GeoYFCC (arXiv 2312.00364); lists of lilyjiayi/CLIP-GeoYFCC, MIT"
LONG = 20
"""Positions in a row that rise by chance with a probability of 1 in 20 factorial."""
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Released:
    """A released list with its classes recovered.

    ``positions``  int64 (n,) rows of the frame, in the order of the file
    ``classes``    class ids in the order of the list
    ``sizes``      images of each
    ``cap``        what classes were capped at
    ``files``      name and SHA-256 of what was read
    """

    positions: Positions
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    cap: int
    files: tuple[tuple[str, str], ...]

    @property
    def counts(self) -> dict[str, int]:
        """The numbers that tell whether this is the released list."""
        below = [size for size in self.sizes if size < self.cap]
        largest = self.classes[: 45 + len(EXCLUDED_45)]
        return {
            "rows": len(self.positions),
            "classes": len(self.classes),
            "at_cap": sum(size == self.cap for size in self.sizes),
            "smallest_class": min(self.sizes),
            "largest_class_below_cap": max(below, default=0),
            "rows_below_cap": sum(below),
            "lowest_position": int(self.positions.min()),
            "highest_position": int(self.positions.max()),
            "largest_without_exclusions": sum(name not in EXCLUDED_45 for name in largest),
        }


def read_released(indices: Path, classes: Path, *, cap: int) -> Released:
    """Read an index file (``.npy``) and its class list (a CSV of WordNet ids)."""
    found = load_array(indices)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found) or found.min() < 0:
        raise BadFile(
            indices, f"holds {found.dtype} of shape {found.shape}", fix="give a list of positions"
        )
    positions = found.astype(np.int64)
    repeated = len(positions) - len(np.unique(positions))
    if repeated:
        raise BadFile(indices, f"has {repeated} positions twice", fix="fetch it again")
    names = read_class_list(classes)
    sizes = recover_sizes(positions, len(names), cap=cap)
    if sizes is None:
        raise BadFile(
            indices,
            f"cannot be cut into {len(names)} classes of at most {cap:,} positions",
            fix="check that the two files belong together, and --cap",
        )
    return Released(
        positions,
        names,
        sizes,
        cap,
        tuple((path.name, sha256_file(path)) for path in (indices, classes)),
    )


def read_class_list(path: Path) -> tuple[str, ...]:
    """Class ids of a CSV: its column ``wnid`` or ``class_id``."""
    table = read_table_file(path)
    column = "class_id" if "class_id" in table.column_names else "wnid"
    names: list[str] = require_column(table, column, path, "classes").to_pylist()
    space = load_built_in("imagenet-21k")
    foreign = [name for name in names if name not in space]
    if foreign:
        raise BadFile(
            path,
            f"has the class {foreign[0]!r}, which ImageNet-21k does not",
            fix="give a list of WordNet ids",
        )
    if len(set(names)) < len(names):
        raise BadFile(path, "names a class twice", fix="fetch it again")
    return tuple(names)


def recover_sizes(positions: Positions, classes: int, *, cap: int) -> tuple[int, ...] | None:
    """How many positions each class has; None where no cut gives that many classes."""
    falls = np.append(np.flatnonzero(np.diff(positions) < 0) + 1, len(positions))
    sizes: list[int] = []
    start = 0
    while start < len(positions) and len(sizes) < classes:
        rise = int(falls[np.searchsorted(falls, start, side="right")]) - start
        sizes.append(min(rise, cap) if rise >= LONG else cap)
        start += sizes[-1]
    return tuple(sizes) if start == len(positions) and len(sizes) == classes else None


def released_testset(
    released: Released, *, name: str, frame: Any = None, columns: Sequence[str] = ()
) -> TestSet:
    """The list as a test set; ids are positions, or those of ``frame``, an Arrow table.

    ``frame``    the rows that positions count, with a column ``image_id``
    ``columns``  further columns of it to keep
    """
    import pyarrow as pa

    labels = [c for c, n in zip(released.classes, released.sizes, strict=True) for _ in range(n)]
    images: dict[str, Any] = {}
    if frame is None:
        images["image_id"] = [str(position) for position in released.positions]
    else:
        if released.positions.max() >= len(frame):
            raise UserError(
                f"position {released.positions.max():,} of a frame of {len(frame):,} rows",
                fix="give the frame that the lists were made from",
            )
        rows = frame.take(pa.array(released.positions))
        images |= {column: rows[column] for column in ("image_id", *columns)}
    images["position"] = pa.array(released.positions)
    table = image_table(images)
    card = Card(
        name=name,
        label_space="imagenet-21k",
        recipe={
            "name": "import",
            "parameters": {"format": "clip-geoyfcc", "cap": released.cap},
            "seed": 0,
        },
        parents=tuple({"name": file, "sha256": digest} for file, digest in released.files),
        counts={**released.counts, "images": len(table)},
        columns={"position": ColumnType(kind="text")},
        truths={"original": {"kind": "single", "source": "released lists, classes recovered"}},
        citation=CITATION,
        notes=("labels are those of CLIP ViT-bigG-14, not of people",),
    )
    return make_testset(
        card,
        images=table,
        truths={"original": truth_table(table["image_id"].to_pylist(), labels)},
        label_space=load_built_in("imagenet-21k"),
    )


def read_frame(path: Path, id_column: str, columns: Sequence[str]) -> Any:
    """The data frame that positions count, a Parquet file: ``image_id`` and ``columns``."""
    import pyarrow as pa

    names = list(dict.fromkeys([id_column, *columns]))
    ids = pa.schema([(id_column, pa.string())])
    frame = read_parquet(existing_file(path, "data frame"), columns=names, schema=ids)
    found = {name: require_column(frame, name, path, "the frame") for name in columns}
    return pa.table({"image_id": frame[id_column]} | found)
