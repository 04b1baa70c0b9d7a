"""The words of this room: a subject is what is to be cut out, an outline says where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.cutouts.photo import Photo
from heldout.data.images.sources import check_id

_FORBIDDEN = frozenset('/\\:*?"<>|')  # not every system can have them in the name of a folder

_FILES = (".json", ".csv", ".html", ".png")  # lie beside the folders of classes

Matte = np.ndarray
"""How sure it is that a pixel belongs to the object: (h, w) float32 in [0, 1]."""


class Outline(Protocol):
    """Where an object is in its photograph, as somebody has stated it.

    An outline is sent to worker processes, so it must survive pickling.
    """

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the matte depends on beside the photograph, as JSON values."""
        ...

    def matte(self, photo: Photo) -> Matte:
        """The matte, in the upright photograph's pixels; a :class:`UserError` where it cannot be."""
        ...


@dataclass(frozen=True)
class Box:
    """A rectangle of the upright photograph; may reach past its edges.

    In pixels, or with ``relative`` in shares of the photograph's width and height.
    """

    left: float
    top: float
    width: float
    height: float
    relative: bool = False

    def in_pixels(self, width: int, height: int) -> Box:
        """The same rectangle in pixels of a photograph of this size.

        >>> Box(0.5, 0.25, 0.5, 0.5, relative=True).in_pixels(200, 100)
        Box(left=100.0, top=25.0, width=100.0, height=50.0, relative=False)
        """
        if not self.relative:
            return self
        return Box(self.left * width, self.top * height, self.width * width, self.height * height)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One object of one photograph.

    ``photo``        id of the photograph in its source
    ``class_name``   the class, and the folder of the cut-out
    ``name``         file name of the cut-out, without its ending
    ``outline``      where the object is, or None where a segmenter is to find it
    ``box``          for a segmenter: look only here
    ``licence``, ``attribution``, ``source``  of the photograph, empty where not known
    """

    photo: str
    class_name: str
    name: str
    outline: Outline | None = None
    box: Box | None = None
    licence: str = ""
    attribution: str = ""
    source: str = ""

    @property
    def file(self) -> str:
        """Path of the cut-out, relative to the folder of cut-outs."""
        name = "".join("_" if c in _FORBIDDEN else c for c in self.name)
        return f"{self.class_name}/{name}.png"


@dataclass(frozen=True)
class Problem:
    """Something that is left out, and why, in one line: ``photo`` is an id, ``object`` may be empty."""

    photo: str
    object: str
    reason: str


@dataclass(frozen=True)
class Subjects:
    """What is to be cut out, sorted by file; what cannot be; and photographs without an object."""

    subjects: tuple[Subject, ...]
    failures: tuple[Problem, ...] = ()
    skipped: tuple[Problem, ...] = ()


def class_folder(name: str) -> str:
    """``name`` if it can be a folder of cut-outs, else a user's error.

    >>> class_folder("volleyball (ball)")
    'volleyball (ball)'
    """
    try:
        fits = not set(check_id(name)) & _FORBIDDEN and name[0] != "." and name == name.strip()
    except UserError:
        fits = False
    if not fits or name.lower().endswith(_FILES):
        raise UserError(
            f"{name!r} cannot be a class",
            fix='use no slashes, leading dots, spaces around it, :*?"<>|, or the ending of a file',
        )
    return name


def sorted_subjects(
    subjects: list[Subject],
    *,
    failures: list[Problem] | None = None,
    skipped: list[Problem] | None = None,
) -> Subjects:
    """Subjects in the order of their files; two of one file are a user's error."""
    seen: dict[str, Subject] = {}
    for subject in subjects:
        # Some file systems take names that differ in case only for one.
        other = seen.setdefault(subject.file.lower(), subject)
        if other is not subject:
            raise UserError(
                f"{other.photo} and {subject.photo} would both become {subject.file}",
                fix="rename one of the photos",
            )
    return Subjects(
        tuple(sorted(subjects, key=lambda s: s.file)),
        tuple(sorted(failures or [], key=lambda p: (p.photo, p.object, p.reason))),
        tuple(sorted(skipped or [], key=lambda p: (p.photo, p.object, p.reason))),
    )
