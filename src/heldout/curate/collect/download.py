"""``fetch`` of a pool: its images downloaded, or read from its folder, and stored in three sizes.

::

    pools/<name>/images/
      original/<image>.jpg       RGB, upright, JPEG of quality 90; so are the others
      scaled_500/<image>.jpg     longer side 500, scaled up or down: the pool's images from now on
      scaled_256/<image>.jpg     256 x 256, aspect not kept
      downloads.json             what was downloaded, what was stored of it, and what was left out
      collected/                 the pool as it was before, from which the same command starts again

The sizes are those of ImageNetV2: 500 is what people and models look at, 256 what near duplicates are
searched with. With a destination the three folders are there, and the rest stays with the pool.
"""

from __future__ import annotations

import io
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args
from urllib.parse import urlsplit

import msgspec

from heldout.core.context import Context, Result
from heldout.core.engine import Job, JobResults, Progress, Threads, Unit, no_progress, run, unit_key
from heldout.core.engine.results import UnitFailure, is_worked_on, remove_job
from heldout.core.errors import (
    EXIT_DONE,
    EXIT_FAILED_IMAGES,
    HeldoutError,
    NotFound,
    UserError,
)
from heldout.core.files import is_temporary, sha256_file, sweep, write_bytes
from heldout.core.records import Table
from heldout.core.request import unused
from heldout.core.schema import Document, convert, read, write
from heldout.core.workspace import Workspace
from heldout.data.images import BadImage, ObjectStoreSource, check_id, sha256_bytes
from heldout.data.images.decode import MAX_PIXELS, Refused, orientation_of, rgb, with_image
from heldout.data.images.sources import MAX_IMAGE_BYTES, STORES, read_image_file
from heldout.data.judgements.for_testset import blacklist_about
from heldout.data.requests import FetchRequest
from heldout.data.testset.card import POOL
from heldout.data.testset.catalogue import find_pool
from heldout.data.testset.testset import TestSet, load, make_testset, save
from heldout.data.verbs import fetch as fetch_published

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

    from heldout.core.web import Patience, WebClient

Size = Literal["original", "scaled_500", "scaled_256"]
SIZES: tuple[Size, ...] = get_args(Size)
OWN: Size = "scaled_500"
"""The size that is the pool's image."""
QUALITY = 90
BLACKLISTED = "blacklisted"

_WORK = "fetch-image-1"
_WORKERS = 16
_PER_HOST = 4  # connections to one host at a time
_SILENT = 8  # images in a row that a host gives no answer for: the others are left for another run
_LONGEST = 60.0  # seconds that are waited for a host; one that asks for more is left in peace
_JPEG_SIDE = 65_535
_PLACEHOLDER = 3  # addresses that give the same bytes
_NEWS = ("content_hash", "facts", "images_root")
_PRIVATE = "private address"
_ALLOW = "name the hosts of your own network that you trust with --allow-host"


# --------------------------------------------------------------------------- what is written down


class StoredSize(Document, frozen=True, kw_only=True):
    """One size of an image as it is stored."""

    sha256: str
    bytes: int
    width: int
    height: int


class Download(Document, frozen=True, kw_only=True):
    """One image: what was read (its hash, size, format and EXIF orientation), and what was stored.

    ``key``   the unit of work: image, address and destination
    ``name``  the file's name in the folder of each size
    """

    key: str
    name: str
    sha256: str
    bytes: int
    format: str
    orientation: int
    sizes: dict[Size, StoredSize]


class LeftOut(Document, frozen=True, kw_only=True):
    """An image of a pool that has no file, and why: ``reason`` in a word or two, to be counted."""

    record: ClassVar[str] = "left out"
    table: ClassVar[Table] = Table("left out", ("image=image_id", "reason", "detail", "uri"))
    image_id: str
    reason: str
    detail: str
    uri: str | None


class Downloads(Document, frozen=True, kw_only=True):
    """``images/downloads.json``; ``where`` is the destination, empty for the pool's own folder."""

    schema_version: int = 1
    where: str = ""
    images: Mapping[str, Download] = {}
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FetchedPool:
    """A pool whose images were fetched: how many there are now, and how many were left out by reason."""

    record: ClassVar[str] = "fetched pool"
    table: ClassVar[Table] = Table(
        "", ("pool", "candidates:,", "images:,", "new:,", "left out=n_left_out:,", "in=folder")
    )
    pool: str
    candidates: int
    images: int
    new: int
    left_out: dict[str, int]
    folder: str

    @property
    def n_left_out(self) -> int:
        """How many were left out."""
        return sum(self.left_out.values())


class NotFetched(Exception):
    """Why an image could not be fetched: a reason to be counted, and what exactly was wrong."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")


# --------------------------------------------------------------------------- three sizes


@dataclass(frozen=True, eq=False)
class ThreeSizes:
    """An image in all sizes, as JPEG, with what was known of it before."""

    format: str
    orientation: int
    encoded: Mapping[Size, bytes]
    shapes: Mapping[Size, tuple[int, int]]


def three_sizes(data: bytes) -> ThreeSizes | BadImage:
    """Turn an encoded image upright, bring it to RGB and into all sizes; never raises."""

    def use(image: ImageFile) -> ThreeSizes:
        kind, orientation = image.format or "", orientation_of(image)
        whole = rgb(image, exif=True)
        width, height = whole.size
        if max(width, height) > _JPEG_SIDE:
            raise Refused("too large", f"{width} x {height} pixels, and JPEG has {_JPEG_SIDE:,}")
        scale = 500 / max(width, height)
        shapes: dict[Size, tuple[int, int]] = {
            "original": (width, height),
            "scaled_500": (max(1, round(width * scale)), max(1, round(height * scale))),
            "scaled_256": (256, 256),
        }
        encoded = {name: _jpeg(_resized(whole, shape)) for name, shape in shapes.items()}
        return ThreeSizes(kind, orientation, encoded, shapes)

    return with_image(data, use, max_pixels=MAX_PIXELS)


def _resized(image: Image, shape: tuple[int, int]) -> Image:
    from PIL.Image import Resampling

    return image if image.size == shape else image.resize(shape, Resampling.LANCZOS)


def _jpeg(image: Image) -> bytes:
    """The pixels alone: neither comments nor a place where the photo was taken go with them."""
    plain = image.copy()
    plain.info.clear()
    handle = io.BytesIO()
    plain.save(handle, "JPEG", quality=QUALITY)
    return handle.getvalue()


# --------------------------------------------------------------------------- where they go


class Destination(Protocol):
    """Where images are stored, by names such as ``scaled_500/a.jpg``."""

    def put(self, name: str, data: bytes) -> None:
        """Store one file whole."""
        ...

    def stored(self) -> Mapping[str, int]:
        """The files that are there, with their sizes in bytes."""
        ...


class FolderDestination:
    """A folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, name: str, data: bytes) -> None:
        """Write one file in one step."""
        write_bytes(self.root / name, data)

    def stored(self) -> dict[str, int]:
        """The files in the folders of sizes."""
        return {
            path.relative_to(self.root).as_posix(): path.stat().st_size
            for folder in self._folders()
            for path in folder.iterdir()
            if path.is_file() and not is_temporary(path)
        }

    def sweep(self) -> None:
        """Remove what killed processes left."""
        for folder in self._folders():
            sweep(folder)

    def _folders(self) -> list[Path]:
        return [Path(folder) for size in SIZES for folder, _, _ in os.walk(self.root / size)]


def destination(where: str, folder: Path) -> Destination:
    """What ``where`` means for the pool in ``folder``."""
    if where.partition("://")[0] in STORES:
        return ObjectStoreSource(where)
    return FolderDestination(folder / (where or "images"))


def _where(out: Path | None, folder: Path) -> str | None:
    """A destination as it is written down: a URL, or a path from the pool's folder."""
    if out is None:
        return None
    # A path has lost one of the slashes of s3://bucket/prefix.
    if match := re.match(rf"({'|'.join(STORES)}):/+(.+)", out.as_posix()):
        return f"{match[1]}://{match[2].rstrip('/')}"
    where = Path(os.path.relpath(out.resolve(), folder.resolve())).as_posix()
    if not where.startswith(".."):
        raise UserError(f"{out} is in the folder of the pool", fix="name a folder elsewhere")
    return where


# --------------------------------------------------------------------------- one image


@dataclass(frozen=True)
class ImageAddress:
    """An image to be fetched: a file if ``path`` is known, else an address.

    ``sha256``  what its bytes must have, where that is known
    """

    image_id: str
    name: str
    uri: str | None
    path: str | None
    sha256: str | None


@dataclass
class _Host:
    """What is known of one server, for all threads that ask it."""

    slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_PER_HOST))
    ready: float = 0.0  # not asked before this moment
    silent: int = 0
    closed: str = ""


class Fetcher:
    """The work of one unit: get the bytes of a candidate, make three sizes of them, store these.

    ``keys``   image -> key of its unit
    ``named``  hosts, or ``host:port``, that the user named: they may be on a private network

    A host is asked by at most four threads at once. When it asks for time all of them wait; one that
    wants more than a minute, or answers nothing for eight images in a row, is left for another run.
    """

    def __init__(
        self, to: Destination, keys: Mapping[str, str], named: Collection[str], patience: Patience
    ) -> None:
        self._to, self._keys, self._named, self._patience = to, keys, frozenset(named), patience
        self._hosts: dict[str, _Host] = {}
        self._clients: dict[str, WebClient] = {}
        self._lock = threading.Lock()

    def __call__(self, candidate: ImageAddress) -> bytes:
        """Store a candidate's three sizes; what is to be written down of them, as JSON."""
        data = self._local(candidate) if candidate.path else self._download(candidate.uri or "")
        digest = sha256_bytes(data)
        if candidate.sha256 not in (None, digest):
            raise NotFetched("changed", f"its SHA-256 was {candidate.sha256}, is {digest}")
        made = three_sizes(data)
        if isinstance(made, BadImage):
            raise NotFetched(made.trouble, made.reason)
        sizes: dict[Size, StoredSize] = {}
        for size, encoded in made.encoded.items():
            self._to.put(f"{size}/{candidate.name}", encoded)
            width, height = made.shapes[size]
            sizes[size] = StoredSize(
                sha256=sha256_bytes(encoded), bytes=len(encoded), width=width, height=height
            )
        return msgspec.json.encode(
            Download(
                key=self._keys[candidate.image_id],
                name=candidate.name,
                sha256=digest,
                bytes=len(data),
                format=made.format,
                orientation=made.orientation,
                sizes=sizes,
            )
        )

    def _local(self, candidate: ImageAddress) -> bytes:
        try:
            return read_image_file(Path(str(candidate.path)))
        except (OSError, UserError) as error:
            raise NotFetched("unreadable", getattr(error, "strerror", None) or str(error)) from None

    def _download(self, uri: str) -> bytes:
        """The bytes behind an address."""
        from heldout.core.web import BadAddress, PrivateAddress, TooLong, Unanswered

        try:
            parts = urlsplit(uri)
            scheme, name, port = parts.scheme, parts.hostname, parts.port
        except ValueError:
            scheme, name, port = "", None, None
        if scheme not in ("http", "https") or not name:
            raise NotFetched("bad address", "is not a web address")
        at = f"{name}:{port or (443 if scheme == 'https' else 80)}"
        host, client = self._host(at), self._client(uri, at, named=bool({name, at} & self._named))
        failures = 0
        while not host.closed:
            if (pause := host.ready - time.monotonic()) > 0:
                self._patience.sleep(pause)
            try:
                with host.slots:
                    status, data = client.get(uri)
            except BadAddress as error:
                kinds = {PrivateAddress: _PRIVATE, TooLong: "too large"}
                raise NotFetched(kinds.get(type(error), "bad address"), str(error)) from None
            except Unanswered as error:
                failures += 1
                self._wait(host, error, failures)
                continue
            host.silent = 0
            if status == 200:
                return data
            reason = {404: "not found", 410: "not found", 401: "refused", 403: "refused"}
            raise NotFetched(reason.get(status, "no answer"), f"answers {status}")
        raise NotFetched("no answer", host.closed)

    def _wait(self, host: _Host, error: Any, failures: int) -> None:
        """Wait before the next attempt, all threads as long as the host asked for, or give up."""
        from heldout.core.web import Unanswered

        if error.wait > _LONGEST:
            host.closed = f"{error}, and asks to be left alone for {error.wait:,.0f} seconds"
            return
        host.ready = max(host.ready, time.monotonic() + error.wait)
        try:
            self._patience.rest(failures, error)
        except Unanswered:
            host.silent = 0 if error.answered else host.silent + 1
            if host.silent >= _SILENT:
                host.closed = f"the host did not answer for {_SILENT} images in a row ({error})"
            raise NotFetched("no answer", str(error)) from None

    def _host(self, at: str) -> _Host:
        with self._lock:
            return self._hosts.setdefault(at, _Host())

    def _client(self, uri: str, at: str, *, named: bool) -> WebClient:
        """One client for all hosts, and one for each that was named: it may be a private one."""
        from dataclasses import replace

        from heldout.core.web import WebClient

        with self._lock:
            if (at := at if named else "") not in self._clients:
                once = replace(self._patience, attempts=1)  # attempts are counted here
                self._clients[at] = WebClient(
                    uri if named else "", most=MAX_IMAGE_BYTES, patience=once
                )
            return self._clients[at]

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()


# --------------------------------------------------------------------------- a whole pool


def fetch_pool(
    pool: TestSet,
    *,
    runs: Path,
    out: Path | None = None,
    named: Collection[str] = (),
    blacklist: Mapping[str, str] | None = None,
    patience: Patience | None = None,
    progress: Progress = no_progress,
) -> tuple[TestSet, Downloads, int]:
    """Fetch the images of a saved pool; called again, it goes on where it stopped.

    The pool then has the images that could be fetched, with the hash and size of what is stored; the
    others are listed, and tried again by the next call. Gives the pool, what is written down of its
    images, and how many of them are new.

    ``out``        where the sizes go, if not into the pool's folder: a folder, or a store's URL
    ``named``      hosts, or host:port, that may be on a private network
    ``blacklist``  image -> reason: these are not asked for; those that are there stay
    """
    from heldout.core.web import Patience

    folder = pool.folder
    if folder is None or pool.card.stage != "pool":
        raise UserError(f"{pool.name} is not a saved pool", fix="save it in the workspace first")
    if not len(pool):
        raise UserError(f"{pool.name} has no images", fix="collect some")
    book = folder / "images" / "downloads.json"
    known = read(book, Downloads, fix="remove it: all is fetched again") if book.exists() else None
    where = _where(out, folder)
    if where is None:
        where = known.where if known else ""
    before = known if known and known.where == where else Downloads(where=where)
    to = destination(where, folder)
    source = _put_aside(pool, folder)
    candidates, left_out = _candidates(source)
    keys = {one.image_id: _key(one, where) for one in candidates}
    for place in (folder.parent, folder / "images"):
        sweep(place)  # what killed processes left; below images it would be taken over
    if isinstance(to, FolderDestination):
        to.sweep()
    there = to.stored()

    kept = {
        image: found
        for image, found in before.images.items()
        if keys.get(image) == found.key and _is_stored(found, there)
    }
    asked = []
    for one in candidates:
        if blacklist and one.image_id in blacklist and one.image_id not in kept:
            left_out.append(_left(one, BLACKLISTED, blacklist[one.image_id]))
        elif one.image_id not in kept:
            asked.append(one)
    results = JobResults(runs / f"fetch-{pool.name}")
    if is_worked_on(results.folder):
        raise UserError(
            f"{pool.name} is being fetched by another process", fix="wait for it to end"
        )
    units = [Unit(keys[one.image_id], one) for one in _in_turn(asked, before.left_out)]
    for unit in units:
        if results.has(unit.key) and not _is_stored(_read(results, unit.key), there):
            results.path(unit.key).unlink()  # its files were removed, or are another folder's
    fetcher = Fetcher(to, keys, named, patience or Patience(attempts=4))
    with closing(fetcher):
        # A destination that fails is not the fault of an image.
        job = Job(name=results.folder.name, work=fetcher, fatal=(UserError,))
        run(job, units, runs=runs, executor=Threads(_WORKERS), progress=progress)
    found = dict(kept)
    for one in asked:
        key = keys[one.image_id]
        if results.has(key):
            found[one.image_id] = _read(results, key)
        else:
            left_out.append(_left(one, *_reason(results.failure(key))))
    made = Downloads(
        where=where,
        images={image: found[image] for image in sorted(found)},
        left_out=tuple(sorted(left_out, key=lambda one: one.image_id)),
    )
    if not found:
        first = made.left_out[0]
        raise UserError(
            f"no image of {pool.name} could be fetched ({_listed(_counts(made))}), such as "
            f"{first.image_id} ({first.detail})",
            fix=_ALLOW if first.reason == _PRIVATE else "see whether the addresses are right",
        )
    if made != known:
        write(book, made, seal=True)
    fetched = _with_images(pool, source, made)
    if any(getattr(fetched.card, name) != getattr(pool.card, name) for name in _NEWS):
        pool = save(fetched, folder, replace=True)
    remove_job(results.folder)
    return pool, made, len(found) - len(kept)


def _is_stored(found: Download, there: Mapping[str, int]) -> bool:
    """Whether all sizes of an image are among the files that are there."""
    return all(there.get(f"{size}/{found.name}") == one.bytes for size, one in found.sizes.items())


def as_collected(pool: TestSet) -> TestSet:
    """The pool with all its candidates, as it was before its images were fetched."""
    if pool.folder is None or "fetched" not in pool.card.facts:
        return pool
    return load(pool.folder / "images" / "collected")


def _put_aside(pool: TestSet, folder: Path) -> TestSet:
    """The pool as it was collected, in a folder of its own from when its images are first fetched."""
    aside = folder / "images" / "collected"
    if "fetched" in pool.card.facts:
        return as_collected(pool)
    return save(pool, aside, replace=(aside / POOL).exists())


def _candidates(source: TestSet) -> tuple[list[ImageAddress], list[LeftOut]]:
    """What is to be fetched, and images of which nobody says where they are."""
    columns = ("image_id", "uri", "path", "sha256")
    rows = source.images.select(columns).to_pylist()
    names, root = file_names([row["image_id"] for row in rows]), source.images_root
    found, left_out = [], []
    for row in rows:
        path = None
        if root is not None and row["path"]:
            path = root / check_id(row["path"])
            if row["uri"] and not path.is_file():
                path = None  # a folder may hold some of the images only
        one = ImageAddress(
            image_id=row["image_id"],
            name=names[row["image_id"]],
            uri=row["uri"],
            path=None if path is None else str(path),
            sha256=row["sha256"],
        )
        if one.path is None and not one.uri:
            left_out.append(_left(one, "no address", "the pool names neither address nor file"))
        else:
            found.append(one)
    return found, left_out


def file_names(ids: Sequence[str]) -> dict[str, str]:
    """The name of each image's file: its id, with the ending ``.jpg``; a hash where that cannot be.

    >>> file_names(["4fc86d60", "cat/1.jpeg", "cat/1.png", "http://host/2"])["cat/1.png"]
    'cat/1.png.jpg'
    """
    made = {image: _file_name(image) for image in ids}
    # Some file systems take names that differ in case only for one.
    shared = Counter(name.lower() for name in made.values())
    return {
        image: name if shared[name.lower()] == 1 else f"{_hashed(image)}.jpg"
        for image, name in made.items()
    }


def _file_name(image: str) -> str:
    try:
        plain = check_id(image)
    except UserError:
        return f"{_hashed(image)}.jpg"
    if plain.startswith(".") or "/." in plain or len(plain.encode()) > 150:
        return f"{_hashed(image)}.jpg"
    return plain if plain.lower().endswith((".jpg", ".jpeg")) else f"{plain}.jpg"


def _hashed(image: str) -> str:
    return sha1(image.encode(), usedforsecurity=False).hexdigest()


def _key(one: ImageAddress, where: str) -> str:
    """The key of a candidate's unit; a file counts by its content, whose hash is often known."""
    file = one.path
    if file is not None and (one.sha256 or Path(file).is_file()):
        file = one.sha256 or sha256_file(Path(file))
    return unit_key(
        _WORK, image=one.image_id, name=one.name, uri=one.uri, file=file, to=where, sha=one.sha256
    )


def _in_turn(asked: Sequence[ImageAddress], failed: Sequence[LeftOut]) -> Iterator[ImageAddress]:
    """Candidates of all hosts in turn, so that one that is slow keeps few threads; those that failed
    before come last, so that they do not keep the others from being asked for."""
    late = {one.image_id for one in failed}
    count: Counter[str] = Counter()
    places = []
    for one in asked:
        again = one.image_id in late
        host = f"{again} {'' if one.path else str(one.uri).partition('://')[2].partition('/')[0]}"
        places.append((again, count[host], one.image_id, one))
        count[host] += 1
    for *_, one in sorted(places, key=lambda place: place[:3]):
        yield one


def _read(results: JobResults, key: str) -> Download:
    return convert(msgspec.json.decode(results.read(key)), Download, where=results.path(key))


def _left(one: ImageAddress, reason: str, detail: str) -> LeftOut:
    from heldout.core.web import masked

    uri = None if one.uri is None else masked(one.uri)
    return LeftOut(image_id=one.image_id, reason=reason, detail=detail, uri=uri)


def _reason(failure: UnitFailure) -> tuple[str, str]:
    """Why a unit failed; what is not the image's fault is ours."""
    kind, _, text = failure.reason.partition(": ")
    if kind != NotFetched.__name__:
        raise HeldoutError(f"an image could not be stored: {failure.reason}\n{failure.traceback}")
    reason, _, detail = text.partition(": ")
    return reason, detail


def _counts(made: Downloads) -> dict[str, int]:
    return dict(sorted(Counter(one.reason for one in made.left_out).items()))


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _with_images(pool: TestSet, source: TestSet, made: Downloads) -> TestSet:
    """The pool with the images that are stored, and with the truths that it was given since."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(list(made.images), pa.string())

    def chosen(table: Any) -> Any:
        return table.filter(pc.is_in(table["image_id"], value_set=wanted))

    images = chosen(source.images)
    stored = [made.images[image] for image in images["image_id"].to_pylist()]
    own = [one.sizes[OWN] for one in stored]
    for name, values in (
        ("path", [one.name for one in stored]),
        ("sha256", [one.sha256 for one in own]),
        ("width", [one.width for one in own]),
        ("height", [one.height for one in own]),
    ):
        at = images.schema.get_field_index(name)
        kind = images.schema.field(name).type
        images = images.set_column(at, name, pa.array(values, kind))
    fetched = {"images": len(stored), "left_out": _counts(made), "to": made.where or "images"}
    card = source.card.updated(
        facts={**source.card.facts, "fetched": fetched},
        images_root=None if "://" in made.where else f"{made.where or 'images'}/{OWN}",
    )
    truths = {**source.truths, **{k: v for k, v in pool.truths.items() if k not in source.truths}}
    return make_testset(
        card,
        images=images,
        truths={name: chosen(table) for name, table in truths.items()},
        label_space=source.space or pool.space,
        memberships=chosen(source.memberships),
    )


# --------------------------------------------------------------------------- the verb


def fetch(request: FetchRequest, context: Context) -> Result:
    """The images of a pool; or a published test set, or the list of such sets."""
    pool = _pool(request, context)
    if pool is None:
        if request.allow_hosts:
            unused(request, "a published test set", "allow_hosts")
        return fetch_published(request, context)
    unused(request, "a pool", "local", "mirrors")
    with context.progress(f"fetch {pool.name}") as progress:
        made, downloads, new = fetch_pool(
            pool,
            runs=context.workspace.runs,
            out=request.out,
            named=request.allow_hosts,
            blacklist=blacklist_about(as_collected(pool), context.workspace.judgements),
            progress=progress,
        )
    folder = made.folder or Path()
    where = downloads.where or "images"
    summary = FetchedPool(
        pool=made.name,
        candidates=len(downloads.images) + len(downloads.left_out),
        images=len(downloads.images),
        new=new,
        left_out=_counts(downloads),
        folder=where if "://" in where else os.path.normpath(folder / where),
    )
    for text in _placeholders(made, downloads):
        context.note(text)
    failed = [one for one in downloads.left_out if one.reason != BLACKLISTED]
    lines = []
    if downloads.left_out:
        lines.append(f"left out: {_listed(summary.left_out)}")
    if failed:
        lines.append("run the same command again to ask for these again")
    if _PRIVATE in summary.left_out:
        lines.append(_ALLOW)
    return Result(
        records=[summary, *downloads.left_out],
        lines=lines,
        value=made,
        code=EXIT_FAILED_IMAGES if failed else EXIT_DONE,
    )


def _pool(request: FetchRequest, context: Context) -> TestSet | None:
    """The pool that is meant; a published test set is meant where no pool has the name."""
    if request.testset is None or request.registry is not None:
        return None

    def find(workspace: Workspace, name: str) -> TestSet | None:
        try:
            return find_pool(workspace, name)
        except NotFound:
            return None

    return context.find(request.testset, find)


def _placeholders(pool: TestSet, made: Downloads) -> Iterator[str]:
    """Notes on bytes that several addresses gave: often a picture that says that there is none."""
    columns = (pool.images[name].to_pylist() for name in ("image_id", "uri"))
    addresses: dict[str, dict[str, str]] = {}
    for image, uri in zip(*columns, strict=True):
        if uri is not None:
            addresses.setdefault(made.images[image].sha256, {}).setdefault(uri, image)
    for same in addresses.values():
        if len(same) >= _PLACEHOLDER:
            yield (
                f"{len(same):,} addresses gave the same bytes, such as those of "
                f"{min(same.values())}: look whether it is a picture that stands for a missing one"
            )
