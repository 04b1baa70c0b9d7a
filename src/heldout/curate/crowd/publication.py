"""Grids go out: images under their tokens, tasks created once, and a record of each grid.

A crowd has a folder in the workspace, ``crowd/NAME``, which is all that must be kept to read its answers:

``grids/GRID.json``    what was published: the grid in ImageNetV2's form with its task, and its sets
``answers/GRID.json``  the assignments as they were fetched, see :mod:`heldout.curate.crowd.answers`
``images/TOKEN.jpg``   small copies of the images, unless they are put elsewhere

``crowd/key`` holds the key of all tokens. A grid's record is written after its task was created, so a run
that was killed between the two finds the task by the grid's name when it is run again.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import msgspec

from heldout.core import schema
from heldout.core.errors import MismatchError, UserError
from heldout.core.files import is_temporary, write_bytes
from heldout.core.progress import Progress, Tick, no_progress
from heldout.core.workspace import Workspace
from heldout.curate.crowd.backend import Crowd, GridTask, PublishedTask, Secrets
from heldout.data.images import (
    BadImage,
    ObjectStoreSource,
    bytes_of,
    decode,
    open_source,
    probe,
)
from heldout.data.labels.label_space import Class
from heldout.data.published.imagenetv2_grids import PublishedGrid
from heldout.data.testset import TestSet
from heldout.models.predictions.pixels import ImageFiles, image_files

SIDE, QUALITY = 500, 90
"""Longer side and JPEG quality of published images: ImageNetV2's."""
_THREADS = 8


class KeptGrid(schema.Document, frozen=True, kw_only=True):
    """The record of a grid that was published.

    ``task``      its name at the crowd
    ``pool``      the pool that its candidates are from; ``controls`` the set of its controls, if another
    """

    schema_version: int = 1
    task: str
    pool: str
    controls: str | None = None
    grid: PublishedGrid

    def slots(self) -> Iterator[tuple[str, str, str]]:
        """What is shown, in order: the image, its role, and the set that it is from."""
        return slots_of(self.grid, self.pool, self.controls)


def slots_of(
    grid: PublishedGrid, pool: str, controls: str | None
) -> Iterator[tuple[str, str, str]]:
    """The images of a grid in order, each with its role and the name of its set."""
    role = dict.fromkeys(grid.images_to_label, "candidate")
    role |= dict.fromkeys(grid.images_pos_control, "positive")
    role |= dict.fromkeys(grid.images_neg_control, "negative")
    for image in grid.images_all:
        yield image, role[image], pool if role[image] == "candidate" else controls or pool


@dataclass(frozen=True)
class CrowdFolder:
    """The folder of one crowd."""

    path: Path

    @classmethod
    def of(cls, workspace: Workspace, name: str) -> CrowdFolder:
        """The folder of the crowd of this name."""
        return cls(workspace.root / "crowd" / name)

    @property
    def secrets(self) -> Secrets:
        """The key of the workspace."""
        return Secrets.of(self.path.parent / "key")

    def grids(self) -> dict[str, KeptGrid]:
        """The grids that were published, by name."""
        found = {}
        for path in sorted((self.path / "grids").glob("*.json")):
            if not is_temporary(path):
                kept = schema.read(path, KeptGrid, fix="restore the file")
                found[kept.grid.uuid] = kept
        return found

    def keep(self, kept: KeptGrid) -> None:
        """Write the record of a grid."""
        schema.write(self.path / "grids" / f"{kept.grid.uuid}.json", kept, seal=True)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Where the images of grids are read: a pool, and the set of the controls if that is another."""

    pool: TestSet
    controls: TestSet | None = None

    def check(self, grids: Sequence[PublishedGrid]) -> None:
        """Refuse grids that cannot be shown: unknown images or classes, an image or a grid twice."""
        held = {name: set(each.image_ids.to_pylist()) for name, each in self._sets.items()}
        names: set[str] = set()
        for grid in grids:
            if grid.uuid in names or len(set(grid.images_all)) < len(grid.images_all):
                what = "is listed twice" if grid.uuid in names else "shows an image twice"
                raise UserError(f"grid {grid.uuid} {what}", fix="compose the grids again")
            names.add(grid.uuid)
            self.asked(grid)
            for image, role, home in self.slots(grid):
                if image not in held[home]:
                    hint = " with --controls" if role != "candidate" else ""
                    raise MismatchError(
                        f"{role} {image!r} of grid {grid.uuid} is not in {home}",
                        fix=f"name the set that it is from{hint}",
                    )

    def slots(self, grid: PublishedGrid) -> Iterator[tuple[str, str, str]]:
        """As :func:`slots_of`, with the names of these sets."""
        return slots_of(grid, self.pool.name, self.controls.name if self.controls else None)

    def asked(self, grid: PublishedGrid) -> Class:
        """The class that a grid asks about."""
        space = self.pool.label_space
        if grid.wnid not in space:
            raise MismatchError(
                f"{grid.wnid!r} of grid {grid.uuid} is not a class of {space.name}",
                fix="name the pool that the grids were composed of",
            )
        return space.get(grid.wnid)

    def task(
        self,
        grid: PublishedGrid,
        secrets: Secrets,
        *,
        assignments: int,
        rates: Callable[[str, str, str], float] | None = None,
    ) -> GridTask:
        """A grid as a crowd gets it; ``rates`` as for :class:`Publication`."""
        slots = list(self.slots(grid))
        return GridTask(
            grid=grid.uuid,
            asked=self.asked(grid),
            tokens=[secrets.token(grid.uuid, image) for image, _, _ in slots],
            assignments=assignments,
            rates=[rates(grid.wnid, image, role) for image, role, _ in slots] if rates else (),
        )

    @cached_property
    def _sets(self) -> dict[str, TestSet]:
        return {each.name: each for each in (self.controls, self.pool) if each is not None}

    @cached_property
    def _files(self) -> dict[str, tuple[ImageFiles, dict[str, int]]]:
        return {
            name: (image_files(each), {k: n for n, k in enumerate(each.image_ids.to_pylist())})
            for name, each in self._sets.items()
        }

    def copy(self, image: str, home: str) -> bytes:
        """The small copy of an image of a set."""
        files, rows = self._files[home]
        made = small_copy(bytes_of(files.source, files.names[rows[image]]))
        if isinstance(made, BadImage):
            raise UserError(
                f"image {image!r} cannot be shown ({made})",
                fix="blacklist it, and compose the grids again",
            )
        return made


def small_copy(data: bytes | BadImage) -> bytes | BadImage:
    """An image as it is published: upright, longer side 500, a JPEG that says nothing else.

    Larger and smaller images come out alike, and nothing of the file is left (EXIF, profiles,
    comments): candidates and controls cannot be told apart by them.
    """
    from PIL import Image

    image = data if isinstance(data, BadImage) else decode(data, exif=True)
    if isinstance(image, BadImage):
        return image
    scale = SIDE / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    small.info = {}  # Pillow writes a comment that it has read
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


class ImagePlace:
    """Where published images are put: a folder, or an object store such as ``s3://bucket/prefix``."""

    def __init__(self, where: str) -> None:
        self._to: ObjectStoreSource | Path
        if "://" in where:
            self._to = ObjectStoreSource(where)
            self._names = set(self._to.stored())
        else:
            self._to = Path(where)
            found = self._to.iterdir() if self._to.is_dir() else ()
            self._names = {path.name for path in found if not is_temporary(path)}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def put(self, name: str, data: bytes) -> None:
        """Write one image, whole or not at all."""
        if isinstance(self._to, Path):
            write_bytes(self._to / name, data)
        else:
            self._to.put(name, data)
        self._names.add(name)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """How grids are published.

    ``place``   where images are put; None for a crowd that does not look at them
    ``served``  the public address of the place, at which one image of each new grid is looked at
    ``rates``   for simulated people: how often an image is selected, by class, image and role
    """

    crowd: Crowd
    folder: CrowdFolder
    shown: Shown
    assignments: int
    place: ImagePlace | None = None
    served: str | None = None
    rates: Callable[[str, str, str], float] | None = None

    def publish(
        self, grids: Sequence[PublishedGrid], *, progress: Progress = no_progress
    ) -> dict[str, int]:
        """Publish the grids that are not there yet; counts of what was done.

        Of those that are there, images that are gone from their place are put there again.
        """
        kept, secrets = self.folder.grids(), self.folder.secrets
        new = any(grid.uuid not in kept for grid in grids)
        there = {one.grid: one for one in self.crowd.tasks()} if new else {}
        tally = dict.fromkeys(
            ("published_before", "images_put_again", "found_at_the_crowd", "created", "images_put"),
            0,
        )
        began = time.monotonic()
        with ThreadPoolExecutor(_THREADS) as threads:
            copy = lru_cache(maxsize=512)(self.shown.copy)  # controls recur within a class
            for number, grid in enumerate(grids, 1):
                task = self.shown.task(
                    grid, secrets, assignments=self.assignments, rates=self.rates
                )
                put = self._put(grid, task, copy, threads)
                if grid.uuid in kept:
                    tally["published_before"] += 1
                    tally["images_put_again"] += put
                else:
                    tally["images_put"] += put
                    if self.served is not None:
                        self._look(f"{min(task.tokens)}.jpg")
                    found: PublishedTask | None = there.get(grid.uuid)
                    tally["found_at_the_crowd" if found else "created"] += 1
                    name = found.task if found else self.crowd.create(task)
                    self.folder.keep(self._record(grid, name))
                progress(
                    Tick(number, tally["published_before"], 0, len(grids), time.monotonic() - began)
                )
        return tally

    def _record(self, grid: PublishedGrid, task: str) -> KeptGrid:
        return KeptGrid(
            task=task,
            pool=self.shown.pool.name,
            controls=self.shown.controls.name if self.shown.controls else None,
            grid=msgspec.structs.replace(grid, submitted=True, hit_id=task),
        )

    def _put(
        self,
        grid: PublishedGrid,
        task: GridTask,
        copy: Callable[[str, str], bytes],
        threads: ThreadPoolExecutor,
    ) -> int:
        """Put the images of a grid that are not there; how many. All are there before it is created."""
        place = self.place
        if place is None:
            return 0
        wanted = {
            f"{token}.jpg": (image, home)
            for token, (image, _, home) in zip(task.tokens, self.shown.slots(grid), strict=True)
        }
        missing = [name for name in wanted if name not in place]
        list(threads.map(lambda name: place.put(name, copy(*wanted[name])), missing))
        return len(missing)

    def _look(self, name: str) -> None:
        """See that people will see an image."""
        seen = bytes_of(open_source(str(self.served), ids=[name]), name)
        if isinstance(seen, BadImage) or isinstance(probe(seen), BadImage):
            raise UserError(
                f"image {name} is not at {self.served}",
                fix="make the images public there, and run the same command again",
            )


def rates_of(
    known: Mapping[tuple[str, str], float], drawn: Callable[[str, str], float]
) -> Callable[[str, str, str], float]:
    """True frequencies for simulated people, by class, image and role.

    Those that are known; else 0.95 of positive controls, 0.03 of negative ones, ``drawn`` of candidates.
    """
    usual = {"positive": 0.95, "negative": 0.03}

    def rate(label: str, image: str, role: str) -> float:
        found = known.get((image, label), usual.get(role))
        return drawn(image, label) if found is None else found

    return rate
