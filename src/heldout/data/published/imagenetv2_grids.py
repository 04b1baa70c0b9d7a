"""ImageNetV2's lists of candidates and its grids (HITs), read and written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from heldout.core import schema
from heldout.core.errors import BadFile
from heldout.core.files import write_text


class PublishedGrid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One HIT as ImageNetV2 published it: the images of a grid, and what became of it.

    ``images_to_label``     candidates, those of a short last chunk first, then the repeated ones
    ``images_pos_control``  images of the class; ``images_neg_control`` of the most similar class
    ``images_all``          all of them in the order in which workers saw them
    ``uuid``                names the grid; ``hit_id`` and ``hit_type_id`` are MTurk's names
    ``user``, ``time``      who submitted it when; all of these are empty before that

    A field that is not known is refused: it would be lost when the file is written again.
    """

    wnid: str
    images_to_label: list[str]
    images_pos_control: list[str]
    images_neg_control: list[str]
    images_all: list[str]
    user: str = ""
    uuid: str
    time: str = ""
    submitted: bool = False
    hit_id: str = ""
    hit_type_id: str = ""


def read_candidates(path: Path) -> list[str]:
    """The candidate ids of a ``candidates_for_hit`` file, in its order; each is there once."""
    listed = schema.read(path, list[str], fix="give a JSON list of candidate ids")
    for image, n in Counter(listed).items():
        if n > 1:
            raise BadFile(path, f"lists candidate {image!r} twice", fix="list every id once")
    return listed


def write_candidates(path: Path, candidates: Iterable[str]) -> None:
    """Write candidate ids in the published form."""
    write_text(path, json.dumps(list(candidates), indent=2, ensure_ascii=False))


def read_grids(path: Path) -> list[PublishedGrid]:
    """The grids of a file of HITs; what a grid shows must be what its three lists hold."""
    grids = schema.read(path, list[PublishedGrid], fix="give a file of HITs of ImageNetV2's shape")
    for grid in grids:
        listed = [*grid.images_to_label, *grid.images_pos_control, *grid.images_neg_control]
        if sorted(listed) != sorted(grid.images_all):
            raise BadFile(
                path,
                f"grid {grid.uuid} shows other images than it lists",
                fix="restore images_all, or leave the grid out",
            )
    return grids


def write_grids(path: Path, grids: Iterable[PublishedGrid]) -> None:
    """Write grids in the published form."""
    plain = msgspec.to_builtins(list(grids))
    write_text(path, json.dumps(plain, indent=2, ensure_ascii=False))
