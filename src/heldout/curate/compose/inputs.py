"""What a set is composed of: cut-outs and backgrounds, opened and checked before any work.

A cut-out is an image with alpha (``<class>/<file>``), a background any image. Both are brought to
one form whatever their mode is: cut-outs to RGBA, backgrounds to RGB, turned as their EXIF says.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.curate.compose.scene import Pixels, mask_sum
from heldout.data.images import BadImage, decode
from heldout.data.images.decode import MAX_PIXELS, Refused, with_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

    from heldout.data.testset.pool import Pool

MEMORY = 512 << 20
"""Bytes of decoded inputs that are kept; what does not fit is decoded again when it is needed."""
_ORIENTATION = 0x0112
_NO_ALPHA = "has no alpha"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutout:
    """A cut-out object, checked.

    ``id``           as its pool has it, such as ``bagel/bagel1.png``
    ``class_name``   the folder it lies in; ``class_index`` its place among the sorted names
    ``instance``     its place among the files of its class, sorted by name
    ``class_id``     its class in the label space; ``correct`` all that are right
    ``size``         (width, height) of the file as used, after EXIF; ``mode`` as stored
    ``mask_pixels``  the mask in pixels; a pixel of alpha a counts a/255
    """

    id: str
    class_name: str
    class_index: int
    instance: int
    class_id: str
    correct: tuple[str, ...]
    name: str
    path: Path
    sha256: str
    size: tuple[int, int]
    mode: str
    mask_pixels: float
    licence: str | None = None
    attribution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A background, checked; ``size`` and ``mode`` as those of a :class:`Cutout`.

    ``class_name``  the class of the photograph that it comes from, where its pool says so
    """

    id: str
    name: str
    path: Path
    sha256: str
    size: tuple[int, int]
    mode: str
    class_name: str | None = None
    licence: str | None = None
    attribution: str | None = None


@dataclass(eq=False)
class Inputs:
    """All cut-outs, by class and name, and all backgrounds, by name, with their pixels on demand.

    Pixels are kept in memory up to :data:`MEMORY` bytes; they do not travel to other processes.
    """

    cutouts: tuple[Cutout, ...]
    backgrounds: tuple[Background, ...]
    exif: bool = True
    _kept: _Kept = field(default_factory=lambda: _Kept(), repr=False)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of classes, sorted; ``Cutout.class_index`` counts in it."""
        return tuple(sorted({cutout.class_name for cutout in self.cutouts}))

    @property
    def key(self) -> str:
        """A hash of all that pixels depend on."""
        return sha256_text(
            canonical_json(
                {
                    "cutouts": [[c.id, c.sha256] for c in self.cutouts],
                    "backgrounds": [[b.id, b.sha256] for b in self.backgrounds],
                    "exif": self.exif,
                }
            )
        )

    def cutout_image(self, index: int) -> Image:
        """A cut-out as RGBA; not to be changed."""
        cutout = self.cutouts[index]
        return self._kept.get(
            ("cutout", cutout.sha256), partial(read_cutout, cutout.path, exif=self.exif)
        )

    def background_image(self, index: int, size: tuple[int, int]) -> Image:
        """A background as RGB of ``size``: its upper left square, resized; not to be changed.

        The square is anchored at the corner and not centred, and an image that is not square
        distorts it, as the original does.
        """
        return self._kept.get(
            ("background", self.backgrounds[index].sha256, size),
            partial(self._prepared, index, size),
        )

    @property
    def cutout_classes(self) -> tuple[str, ...]:
        """The class name of each cut-out."""
        return tuple(cutout.class_name for cutout in self.cutouts)

    @property
    def background_classes(self) -> tuple[str | None, ...]:
        """The class of the photograph that each background comes from, where it is known."""
        return tuple(background.class_name for background in self.backgrounds)

    def cutout(self, index: int) -> Pixels:
        """A cut-out as (h, w, 4), straight alpha."""
        return np.asarray(self.cutout_image(index))

    def background(self, index: int, width: int, height: int) -> Pixels:
        """A background as images of this size have it, (height, width, 3)."""
        return np.asarray(self.background_image(index, (width, height)))

    def _prepared(self, index: int, size: tuple[int, int]) -> Image:
        from PIL.Image import Resampling

        background = self.backgrounds[index]
        whole = self._kept.take(("whole", background.sha256))
        if whole is None:
            whole = read_background(background.path, exif=self.exif)
        side = min(whole.size)
        return whole.crop((0, 0, side, side)).resize(size, Resampling.BILINEAR)

    def __getstate__(self) -> dict[str, Any]:
        return {"cutouts": self.cutouts, "backgrounds": self.backgrounds, "exif": self.exif}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def inputs_of(foregrounds: Pool, backgrounds: Pool, *, exif: bool = True) -> Inputs:
    """Cut-outs and backgrounds of two pools, every file opened, decoded and checked.

    A file that cannot be used is a user's error that names it.
    """
    for pool, what in ((foregrounds, "cut-outs"), (backgrounds, "backgrounds")):
        if not len(pool):
            raise UserError(f"{pool.name} has no {what}", fix="name a folder with image files")
        if pool.images_root is None:
            raise UserError(f"pool {pool.name} has no image files", fix="give one with its images")
    inputs = Inputs((), (), exif)
    inputs.cutouts = _cutouts(foregrounds, inputs)
    inputs.backgrounds = _backgrounds(backgrounds, inputs)
    return inputs


def _cutouts(pool: Pool, inputs: Inputs) -> tuple[Cutout, ...]:
    truth = {row["image_id"]: row for row in pool.truth().to_pylist()}
    rows = []
    for row in pool.images.to_pylist():
        if row["image_id"] not in truth:
            raise UserError(
                f"{row['image_id']} of {pool.name} has no class", fix="give every cut-out one"
            )
        labels = truth[row["image_id"]]
        name = row.get("class_name") or labels["class_id"]
        rows.append((name, Path(row["path"]).name, row, labels))
    rows.sort(key=lambda item: item[:2])
    names = sorted({item[0] for item in rows})
    seen: dict[str, int] = {}
    made = []
    for class_name, name, row, labels in rows:
        path = _path(pool, row)
        image, mode = _read(path, partial(_as_cutout, exif=inputs.exif))
        alpha = np.asarray(image.getchannel("A"))
        if not alpha.any():
            raise BadFile(path, "is transparent everywhere", fix="cut the object out again")
        inputs._kept.put(("cutout", row["sha256"]), image)
        instance = seen[class_name] = seen.get(class_name, -1) + 1
        made.append(
            Cutout(
                id=row["image_id"],
                class_name=class_name,
                class_index=names.index(class_name),
                instance=instance,
                class_id=labels["class_id"],
                correct=tuple(labels["correct"]),
                name=name,
                path=path,
                sha256=row["sha256"],
                size=image.size,
                mode=mode,
                mask_pixels=mask_sum(alpha),
                licence=row["licence"],
                attribution=row["attribution"],
            )
        )
    return tuple(made)


def _backgrounds(pool: Pool, inputs: Inputs) -> tuple[Background, ...]:
    made = []
    for row in sorted(
        pool.images.to_pylist(), key=lambda row: (Path(row["path"]).name, row["path"])
    ):
        path = _path(pool, row)
        image, mode = _read(path, partial(_as_background, exif=inputs.exif))
        inputs._kept.put(("whole", row["sha256"]), image)
        made.append(
            Background(
                id=row["image_id"],
                name=Path(row["path"]).name,
                path=path,
                sha256=row["sha256"],
                size=image.size,
                mode=mode,
                class_name=row.get("class_name"),
                licence=row["licence"],
                attribution=row["attribution"],
            )
        )
    return tuple(made)


def _path(pool: Pool, row: dict[str, Any]) -> Path:
    if row["path"] is None or row["sha256"] is None or pool.images_root is None:
        raise UserError(
            f"{row['image_id']} of {pool.name} has no file with a hash", fix="give all files"
        )
    return Path(pool.images_root) / str(row["path"])


def read_cutout(path: Path, *, exif: bool = True) -> Image:
    """A cut-out's file as RGBA; one without alpha is a user's error."""
    return _read(path, partial(_as_cutout, exif=exif))[0]


def read_background(path: Path, *, exif: bool = True) -> Image:
    """A background's file as RGB."""
    return _read(path, partial(_as_background, exif=exif))[0]


Reader = Callable[[bytes], "tuple[Image, str] | BadImage"]


def _read(path: Path, reader: Reader) -> tuple[Image, str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror})", fix="check the file") from None
    found = reader(data)
    if isinstance(found, BadImage):
        lacks = found.reason.startswith(_NO_ALPHA)
        fix = "cut the object out with heldout cutout" if lacks else "replace or remove it"
        raise BadFile(path, found.reason, fix=fix)
    return found


def _as_background(data: bytes, *, exif: bool) -> tuple[Image, str] | BadImage:
    mode = with_image(data, lambda image: str(image.mode), max_pixels=None)
    if isinstance(mode, BadImage):
        return mode
    image = decode(data, exif=exif)
    return image if isinstance(image, BadImage) else (image, mode)


def _as_cutout(data: bytes, *, exif: bool) -> tuple[Image, str] | BadImage:
    return with_image(data, partial(_rgba, exif=exif), max_pixels=MAX_PIXELS)


def _rgba(image: ImageFile, *, exif: bool) -> tuple[Image, str]:
    """RGBA of an image with alpha of any kind: a band, or transparent palette entries or colours."""
    from PIL import ImageOps

    mode = str(image.mode)
    if not image.has_transparency_data:
        raise Refused("unsupported", f"{_NO_ALPHA} ({mode}), so nothing says what its object is")
    image.load()
    turned: Image = image
    if exif and image.getexif().get(_ORIENTATION, 1) != 1:
        turned = ImageOps.exif_transpose(image)
    made = turned if turned.mode == "RGBA" else turned.convert("RGBA")
    # A plain copy: nothing of the file (its handle, its metadata) stays behind.
    return made.copy() if made is image else made, mode


class _Kept:
    """Images by key, the least recently used dropped first. Safe to share between threads."""

    def __init__(self, limit: int = MEMORY) -> None:
        self.limit = limit
        self._bytes = 0
        self._images: OrderedDict[tuple[Any, ...], Image] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...], make: Callable[[], Image]) -> Image:
        with self._lock:
            if key in self._images:
                self._images.move_to_end(key)
                return self._images[key]
        image = make()
        self.put(key, image)
        return image

    def take(self, key: tuple[Any, ...]) -> Image | None:
        """The image of a key, no longer kept here."""
        with self._lock:
            image = self._images.pop(key, None)
            if image is not None:
                self._bytes -= _bytes(image)
            return image

    def put(self, key: tuple[Any, ...], image: Image) -> None:
        with self._lock:
            if key in self._images:
                return
            self._images[key] = image
            self._bytes += _bytes(image)
            while self._bytes > self.limit and len(self._images) > 1:
                _, dropped = self._images.popitem(last=False)
                self._bytes -= _bytes(dropped)


def _bytes(image: Image) -> int:
    return 4 * image.width * image.height
