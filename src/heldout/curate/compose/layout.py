"""The original's files: ``metadata.csv`` and the three lists beside it, byte for byte."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from heldout.core.errors import UserError
from heldout.curate.compose.scene import Shot
from heldout.data.labels.label_space import LabelSpace

if TYPE_CHECKING:
    from heldout.curate.compose.inputs import Inputs

METADATA = (
    "image_id",
    "x_coord",
    "y_coord",
    "area",
    "rotation",
    "foreground_class",
    "foreground_instance",
    "background",
    "bg_resolution_width",
    "bg_resolution_height",
    "pct_inside_image",
)
_TAKEN = ("truth", "images", "label_space.json", "card.json")


def siscore_documents(
    inputs: Inputs, shots: Sequence[Shot], label_space: LabelSpace
) -> dict[str, bytes]:
    """The four CSV files by name, with the line ends that Python's ``csv`` writes.

    Numbers are not rounded but for ``pct_inside_image``; classes, instances and backgrounds are
    places in sorted lists; ``foreground_classes.csv`` has places in the label space, for
    ImageNet-1k its usual index.
    """
    names = inputs.class_names
    class_ids = {cutout.class_name: cutout.class_id for cutout in inputs.cutouts}
    return {
        "metadata.csv": csv_bytes(METADATA, (_row(inputs, shot) for shot in shots)),
        "backgrounds.csv": csv_bytes(
            ("int", "label"), ((i, b.name) for i, b in enumerate(inputs.backgrounds))
        ),
        "foreground_classes.csv": csv_bytes(
            ("int", "label"), ((label_space.index(class_ids[name]), name) for name in names)
        ),
        "foreground_classes_metadata_indices.csv": csv_bytes(("int", "label"), enumerate(names)),
    }


def _row(inputs: Inputs, shot: Shot) -> tuple[Any, ...]:
    cutout = inputs.cutouts[shot.foreground]
    return (
        shot.number,
        shot.x,
        shot.y,
        shot.area,
        shot.rotation,
        cutout.class_index,
        cutout.instance,
        shot.background,
        shot.width,
        shot.height,
        round(shot.inside, 4),
    )


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """CSV with a header, lines ended by CR LF."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue().encode("utf-8")


def check_class_names(inputs: Inputs) -> None:
    """Refuse names of classes that are names of a test set's own files."""
    for name in inputs.class_names:
        if name in _TAKEN:
            raise UserError(
                f"a class named {name!r} cannot lie beside a test set's own files",
                fix="rename its folder, or use --layout plain",
            )
