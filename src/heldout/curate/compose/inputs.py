"""What a set is composed of: folders of cut-outs and backgrounds as pools, checked, with pixels.

A cut-out is an image with alpha (``<class>/<file>``), a background any image. Both are brought to
one form whatever their mode is: cut-outs to RGBA, backgrounds to RGB, turned as their EXIF says.
"""

from __future__ import annotations

import difflib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import canonical_json, existing_file, existing_folder, sha256_text
from heldout.core.schema import read_plain
from heldout.core.tables import read_table_file
from heldout.core.workspace import slug
from heldout.data.images import BadImage, check_id, decode
from heldout.data.images.decode import MAX_PIXELS, Refused, with_image
from heldout.data.images.sources import is_image_name, read_image_file
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.siscore import siscore_names
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

Pixels = NDArray[np.uint8]
SISCORE, FOLDERS = "siscore", "folders"
MEMORY = 512 << 20
"""Bytes of decoded inputs that are kept; what does not fit is decoded again when it is needed."""
ATTRIBUTIONS = "attributions.csv"
"""The file of terms that may be in a folder of inputs."""
_FIELDS = {
    "file": ("file", "image", "image_id", "path", "name"),
    "licence": ("licence", "license"),
    "attribution": ("attribution", "author", "by"),
    "source": ("source", "url", "uri"),
}
_FORBIDDEN = '\\:*?"<>|'
_ORIENTATION = 0x0112


def mask_sum(alpha: NDArray[Any]) -> float:
    """The mask of a sprite in pixels: a pixel of alpha a counts a/255."""
    return float(alpha.sum(dtype=np.int64)) / 255.0


class MemoryCache:
    """Values by key, up to ``limit`` bytes; the least recently used goes first.

    A value is an image of Pillow, or anything with ``nbytes``. Threads may share a cache. Two that
    want a missing value at once may both make it; they are equal, and the first one stays.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of ``key``, made by ``make`` where it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            if key in self._values:
                return self._values[key]
            self._values[key] = made
            self.nbytes += _nbytes(made)
            while self.nbytes > self.limit and len(self._values) > 1:
                self.nbytes -= _nbytes(self._values.popitem(last=False)[1])
        return made

    def __len__(self) -> int:
        return len(self._values)


def _nbytes(value: Any) -> int:
    return int(value.nbytes) if hasattr(value, "nbytes") else 4 * value.width * value.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A background, checked.

    ``id``          as its pool has it; ``name`` of its file
    ``size``        (width, height) of the file as used, after EXIF; ``mode`` as stored
    ``class_name``  the class of the photo that it comes from, where its pool says so
    """

    id: str
    name: str
    path: Path
    sha256: str
    size: tuple[int, int]
    mode: str
    class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutout(Background):
    """A cut-out object, checked.

    ``class_name``   the folder it is in; ``class_index`` its place among the sorted names
    ``instance``     its place among the files of its class, sorted by name
    ``class_id``     its class in the label space; ``correct`` all that are right
    ``mask_pixels``  the mask in pixels; a pixel of alpha a counts a/255
    """

    class_name: str
    class_index: int
    instance: int
    class_id: str
    correct: tuple[str, ...]
    mask_pixels: float


@dataclass(eq=False)
class Inputs:
    """All cut-outs, by class and name, and all backgrounds, by name, with their pixels on demand.

    Pixels are kept in memory up to :data:`MEMORY` bytes; they do not travel to other processes.
    """

    cutouts: tuple[Cutout, ...]
    backgrounds: tuple[Background, ...]
    exif: bool = True
    _cache: MemoryCache = field(default_factory=partial(MemoryCache, MEMORY), repr=False)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of classes, sorted; ``Cutout.class_index`` counts in it."""
        return tuple(sorted(set(self.cutout_classes)))

    @property
    def cutout_classes(self) -> tuple[str, ...]:
        """The class name of each cut-out."""
        return tuple(cutout.class_name for cutout in self.cutouts)

    @property
    def background_classes(self) -> tuple[str | None, ...]:
        """The class of the photo that each background comes from, where it is known."""
        return tuple(background.class_name for background in self.backgrounds)

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
        read = partial(_read, cutout.path, alpha=True, exif=self.exif)
        return self._cache.get(("cutout", cutout.sha256), lambda: read()[0])  # type: ignore[no-any-return]

    def background_image(self, index: int, size: tuple[int, int]) -> Image:
        """A background as RGB of ``size``: its upper left square, resized; not to be changed.

        The square is anchored at the corner and not centred, and an image that is not square
        distorts it, as the original does.
        """
        background = self.backgrounds[index]

        def make() -> Image:
            from PIL.Image import Resampling

            read = partial(_read, background.path, alpha=False, exif=self.exif)
            whole = self._cache.get(("whole", background.sha256), lambda: read()[0])
            side = min(whole.size)
            square: Image = whole.crop((0, 0, side, side))
            return square.resize(size, Resampling.BILINEAR)

        return self._cache.get(("background", background.sha256, size), make)  # type: ignore[no-any-return]

    def cutout(self, index: int) -> Pixels:
        """A cut-out as (h, w, 4), straight alpha."""
        return np.asarray(self.cutout_image(index))

    def background(self, index: int, width: int, height: int) -> Pixels:
        """A background as images of this size have it, (height, width, 3)."""
        return np.asarray(self.background_image(index, (width, height)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Inputs, (self.cutouts, self.backgrounds, self.exif)


def inputs_of(foregrounds: TestSet, backgrounds: TestSet, *, exif: bool = True) -> Inputs:
    """Cut-outs and backgrounds of two pools, every file opened, decoded and checked.

    A file that cannot be used is a user error that names it.
    """
    for pool, what in ((foregrounds, "cut-outs"), (backgrounds, "backgrounds")):
        if not len(pool):
            raise UserError(f"{pool.name} has no {what}", fix="name a folder with image files")
        if pool.images_root is None:
            raise UserError(f"pool {pool.name} has no image files", fix="give one with its images")
    cache = MemoryCache(MEMORY)
    cutouts = _cutouts(foregrounds, exif, cache)
    made = []
    for row in _rows(backgrounds):
        image, facts = _checked_file(backgrounds, row, exif, alpha=False)
        cache.get(("whole", row["sha256"]), partial(_same, image))
        made.append(Background(**facts, class_name=row.get("class_name")))
    return Inputs(cutouts, tuple(made), exif, cache)


def _cutouts(pool: TestSet, exif: bool, cache: MemoryCache) -> tuple[Cutout, ...]:
    truth = {row["image_id"]: row for row in pool.truth().to_pylist()}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(pool):
        if row["image_id"] not in truth:
            raise UserError(
                f"{row['image_id']} of {pool.name} has no class", fix="give every cut-out one"
            )
        name = row.get("class_name") or truth[row["image_id"]]["class_id"]
        rows.setdefault(name, []).append(row)
    made = []
    for class_index, class_name in enumerate(sorted(rows)):
        for instance, row in enumerate(rows[class_name]):
            image, facts = _checked_file(pool, row, exif, alpha=True)
            alpha = np.asarray(image.getchannel("A"))
            if not alpha.any():
                raise BadFile(
                    facts["path"], "is transparent everywhere", fix="cut the object out again"
                )
            cache.get(("cutout", row["sha256"]), partial(_same, image))
            labels = truth[row["image_id"]]
            made.append(
                Cutout(
                    **facts,
                    class_name=class_name,
                    class_index=class_index,
                    instance=instance,
                    class_id=labels["class_id"],
                    correct=tuple(labels["correct"]),
                    mask_pixels=mask_sum(alpha),
                )
            )
    return tuple(made)


def _same(image: Image) -> Image:
    return image


def _rows(pool: TestSet) -> list[dict[str, Any]]:
    """The images of a pool by the names of their files."""
    rows: list[dict[str, Any]] = pool.images.to_pylist()
    for row in rows:
        if row["path"] is None or row["sha256"] is None:
            raise UserError(
                f"{row['image_id']} of {pool.name} has no file with a hash", fix="give all files"
            )
    return sorted(rows, key=lambda row: (Path(row["path"]).name, row["path"]))


def _checked_file(
    pool: TestSet, row: dict[str, Any], exif: bool, *, alpha: bool
) -> tuple[Image, dict[str, Any]]:
    """An image, decoded, and the fields of a :class:`Background`."""
    path = Path(str(pool.images_root)) / row["path"]
    image, mode = _read(path, alpha=alpha, exif=exif)
    facts = {"id": row["image_id"], "name": path.name, "path": path, "sha256": row["sha256"]}
    return image, {**facts, "size": image.size, "mode": mode}


def _read(path: Path, *, alpha: bool, exif: bool) -> tuple[Image, str]:
    """A file as RGBA, or as RGB without ``alpha``, and the mode that it is stored in."""
    try:
        data = read_image_file(path)
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror})", fix="check the file") from None
    mode = with_image(data, lambda image: str(image.mode), max_pixels=None)
    found = (
        with_image(data, partial(_rgba, exif=exif), max_pixels=MAX_PIXELS)
        if alpha
        else decode(data, exif=exif)
    )
    for answer in (mode, found):
        if isinstance(answer, BadImage):
            lacks = answer.reason.startswith("has no alpha")
            fix = "cut the object out with heldout cutout" if lacks else "replace or remove it"
            raise BadFile(path, answer.reason, fix=fix)
    return found, mode  # type: ignore[return-value]


def _rgba(image: ImageFile, *, exif: bool) -> Image:
    """RGBA of an image with alpha of any kind: a band, or transparent palette entries or colours."""
    from PIL import ImageOps

    if not image.has_transparency_data:
        raise Refused("unsupported", f"has no alpha ({image.mode}), which says what its object is")
    image.load()
    turned: Image = image
    if exif and image.getexif().get(_ORIENTATION, 1) != 1:
        turned = ImageOps.exif_transpose(image)
    made = turned if turned.mode == "RGBA" else turned.convert("RGBA")
    # A plain copy: nothing of the file (its handle, its metadata) stays behind.
    return made.copy() if made is image else made


def gather_foregrounds(
    folder: Path,
    *,
    labels: str = SISCORE,
    classes: str = "imagenet-1k",
    licence: str | None = None,
) -> tuple[TestSet, list[str]]:
    """A pool of the cut-outs ``<class>/<file>`` below a folder, and notes about what was skipped.

    Classes are as :func:`folder_classes` says. Every file with a known ending must be an image;
    others are taken if they are images, and skipped with a note if not. Hidden files and folders
    are skipped.
    """
    root = existing_folder(folder, "folder of cut-outs")
    notes: list[str] = []
    files: list[_File] = []
    for entry in _entries(root):
        # Files that ``heldout cutout`` writes beside its cut-outs.
        sheet = entry.name.startswith("sheet-") and entry.suffix in (".html", ".png")
        if sheet or entry.name in ("manifest.json", "review.csv"):
            continue
        if not entry.is_dir():
            notes.append(f"{entry.name} in {root} is not a folder of a class and was skipped")
            continue
        found = _images(entry, entry.name, notes)
        name = entry.name
        if not found:
            notes.append(f"{name} in {root} has no images and was skipped")
        elif any(c in name for c in _FORBIDDEN) or not name.isprintable() or name != name.strip():
            raise BadFile(entry, "has a name that cannot be a folder of the set", fix="rename it")
        files += found
    if not files:
        raise UserError(
            f"{root} has no cut-outs", fix="put them in one folder per class: CLASS/FILE.png"
        )
    names = [str(file.class_name) for file in files]
    space, meaning = folder_classes(sorted(set(names)), labels=labels, classes=classes)
    truth = truth_table(
        [file.path for file in files],
        [meaning[name][0] for name in names],
        correct=[list(meaning[name]) for name in names],
    )
    made = {"truths": {"original": truth}, "label_space": space}
    return _pool(root, files, notes, licence, **made), notes


def gather_backgrounds(folder: Path, *, licence: str | None = None) -> tuple[TestSet, list[str]]:
    """A pool of the backgrounds in a folder, as :func:`gather_foregrounds` takes files.

    They are right in it, or ``<class>/<file>`` where they were photographed with an object of a
    class; some factors choose among them by that.
    """
    root = existing_folder(folder, "folder of backgrounds")
    notes: list[str] = []
    files = _images(root, None, notes)
    for entry in _entries(root):
        if entry.is_dir():
            files += _images(entry, entry.name, notes)
    if not files:
        raise UserError(
            f"{root} has no images", fix="put backgrounds right in it, or in one folder per class"
        )
    return _pool(root, files, notes, licence), notes


@dataclass(frozen=True)
class _File:
    path: str
    class_name: str | None
    sha256: str
    width: int
    height: int


def _entries(folder: Path) -> list[Path]:
    """What is right in a folder, by name, without hidden files and attributions."""
    found = sorted(folder.iterdir(), key=lambda path: path.name)
    return [p for p in found if not p.name.startswith(".") and p.name != ATTRIBUTIONS]


def _images(folder: Path, class_name: str | None, notes: list[str]) -> list[_File]:
    """The image files right in a folder, by name; only one without a class may hold folders."""
    found = []
    for path in _entries(folder):
        if path.is_dir():
            if class_name is not None:
                notes.append(f"{path} is a folder inside {folder.name} and was skipped")
            continue
        name = path.name if class_name is None else f"{class_name}/{path.name}"
        data = read_image_file(path)
        size = with_image(data, lambda image: image.size, max_pixels=None)
        if isinstance(size, BadImage):
            if is_image_name(path.name):
                raise BadFile(path, size.reason, fix="replace or remove it")
            notes.append(f"{path} is not an image ({size.reason}) and was skipped")
            continue
        try:
            check_id(name)
        except UserError:
            raise BadFile(path, "has a name that cannot be an image id", fix="rename it") from None
        found.append(_File(name, class_name, hashlib.sha256(data).hexdigest(), *size))
    return found


def _pool(
    root: Path,
    files: Sequence[_File],
    notes: list[str],
    licence: str | None,
    **truth: Any,
) -> TestSet:
    """The pool of files, with the terms of each; ``notes`` names terms of files that are not there."""
    ids = [file.path for file in files]
    beside = root / ATTRIBUTIONS
    terms = read_attributions(beside) if beside.is_file() else {}
    unused = set(terms) - {name for path in ids for name in _names(path)}
    notes += [f"attributions name {name}, which is not in {root}" for name in sorted(unused)]
    known = [next((terms[n] for n in _names(path) if n in terms), {}) for path in ids]
    columns: dict[str, list[Any]] = {
        "image_id": ids,
        "path": ids,
        "sha256": [file.sha256 for file in files],
        "width": [file.width for file in files],
        "height": [file.height for file in files],
        "source": [entry.get("source") for entry in known],
        "licence": [entry.get("licence") or licence for entry in known],
        "attribution": [entry.get("attribution") for entry in known],
    }
    if any(file.class_name for file in files):
        columns["class_name"] = [file.class_name for file in files]
    name = slug(root.resolve().name)
    return make_pool(name, images=image_table(columns), images_root=root.resolve(), **truth)


def _names(path: str) -> tuple[str, str, str]:
    """What a table of attributions may call a file."""
    plain = PurePosixPath(path)
    return path, plain.name, plain.stem


def read_attributions(path: Path) -> dict[str, dict[str, str | None]]:
    """Licence, attribution and source by file, from a CSV table of files::

        file,licence,attribution,source
        field1.jpg,CC-BY-2.0,Okko Pyykkö,https://…

    A file is named by its path below the folder, its name, or its name without ending.
    """
    found: dict[str, dict[str, str | None]] = {}
    for number, row in enumerate(read_table_file(path).to_pylist(), 1):
        texts = {
            str(key).strip().lower(): " ".join(str(value or "").split())
            for key, value in row.items()
        }
        fields = {
            name: next((texts[k] for k in keys if texts.get(k)), None)
            for name, keys in _FIELDS.items()
        }
        file = fields.pop("file")
        if file is None:
            raise BadFile(path, f"row {number} names no file", fix="give a column file")
        if file in found:
            raise BadFile(path, f"names {file} twice", fix="keep one row")
        found[file] = fields
    return found


Classes = dict[str, tuple[str, ...]]
"""The class ids of each folder, the first its class."""


def folder_classes(
    folders: Sequence[str], *, labels: str = SISCORE, classes: str = "imagenet-1k"
) -> tuple[LabelSpace, Classes]:
    """A label space and the classes of folders; unknown ones are named in a user error.

    ``labels``   ``siscore``: SI-SCORE's names, then ids and names of ``classes``; ``folders``: each
                 folder is a class of its own label space; a TOML or JSON file that maps
                 names to class ids (or to lists of them, the first of which is the class)
    ``classes``  the label space that ids are of: a built-in name, or a JSON file
    """
    if labels == FOLDERS:
        space = LabelSpace(FOLDERS, tuple(Class(name, (name,)) for name in sorted(folders)))
        return space, {name: (name,) for name in folders}
    space = LabelSpace.load(classes)
    known: Classes
    if labels == SISCORE:
        # The 112 names are those of ImageNet-1k's classes, which another label space may lack.
        ids = LabelSpace.load("imagenet-1k").ids
        names = siscore_names().items()
        known = {name: (ids[e.index],) for name, e in names if ids[e.index] in space}
        known |= {f: _of_space(f, space) for f in folders if f not in known}
    else:
        known = read_map(Path(labels), space)
    unknown = [name for name in sorted(folders) if not known.get(name)]
    if unknown:
        fix = f"add it to {labels}"
        if labels == SISCORE:
            fix = (
                "rename the folder, give --labels FILE, or --labels folders for a space of its own"
            )
        raise LabelError(_unknown(unknown, sorted(k for k in known if known[k]), labels), fix=fix)
    return space, {name: known[name] for name in folders}


def _of_space(name: str, space: LabelSpace) -> tuple[str, ...]:
    """The class that a label space itself knows by this id, WordNet id or unique name."""
    if name in space:
        return (name,)
    try:
        return (space.by_name(name).id,)
    except LabelError:
        return ()


def _unknown(unknown: Sequence[str], known: Sequence[str], labels: str) -> str:
    shown = []
    for name in unknown[:5]:
        near = difflib.get_close_matches(name, known, 3)
        shown.append(f"{name!r}" + (f" (near: {', '.join(near)})" if near else ""))
    more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    what = "folder has a name" if len(unknown) == 1 else "folders have names"
    return f"{len(unknown)} {what} that {labels} does not know: {', '.join(shown)}{more}"


def read_map(path: Path, space: LabelSpace) -> Classes:
    """A user's map of names to classes of ``space``: TOML or JSON, name -> id or list of ids. A
    number is a place in the label space, as in logits."""
    value: Any = read_plain(existing_file(path, "label map"))
    if isinstance(value, dict):
        value.pop("schema_version", None)
        value = value["classes"] if isinstance(value.get("classes"), dict) else value
    if not isinstance(value, dict):
        raise BadFile(path, "maps no names to classes", fix='write "name": "class id"')
    found: Classes = {}
    for name, given in value.items():
        listed = given if isinstance(given, list) else [given]
        ids = [_class_id(item, name, space, path) for item in listed]
        if not ids:
            raise BadFile(path, f"{name!r} has no class", fix="give one")
        found[name] = tuple(dict.fromkeys(ids))
    return found


def _class_id(item: Any, name: str, space: LabelSpace, path: Path) -> str:
    if isinstance(item, bool) or not isinstance(item, int | str):
        raise BadFile(path, f"{name!r} has the class {item!r}", fix="give an id")
    if isinstance(item, str) and item in space:
        return item
    if isinstance(item, int) or item.isdecimal():
        if 0 <= int(item) < len(space):
            return space.ids[int(item)]
    elif named := _of_space(item, space):
        return named[0]
    raise BadFile(
        path,
        f"{name!r} has the class {item!r}, which {space.name} does not have",
        fix="give an id, a place or a name of that label space (--classes)",
    )
