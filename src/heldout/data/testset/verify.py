"""Verify: does a test set or a pool on disk still hold what its card says? Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from heldout.core.errors import UserError
from heldout.core.files import (
    existing_folder,
    is_set_aside,
    is_temporary,
    is_unfinished,
    sha256_file,
)
from heldout.core.records import Table
from heldout.data.images import BadImage, check, check_id, sha256_bytes
from heldout.data.testset.card import Card, card_file
from heldout.data.testset.hashing import combine, hash_table, images_hash
from heldout.data.testset.tables import (
    check_ids,
    check_truth,
)
from heldout.data.testset.testset import check_classes, load_space, read_parquet, schemas_of

_KNOWN = {"label_space.json", "truth", "images"}
_AGAIN = "import or fetch the test set again"
_IMAGE_AGAIN = "fetch the image again"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is not as the card says.

    ``check``     card, label_space, table, rows, image, document, extra or leftover
    ``severity``  error: content is lost or changed; warning: something is there that need not be
    ``file``      relative to the test set's folder
    """

    check: str
    severity: Literal["error", "warning"]
    file: str
    message: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What :func:`verify` looked at and what it found, in the order of files."""

    record: ClassVar[str] = "verification"
    table: ClassVar[Table] = Table(
        "", ("folder", "as its card says=ok", "tables:,", "image files=images:,")
    )
    folder: str
    name: str
    tables: int
    images: int
    findings: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether all content is as the card says; warnings do not count."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "ok": self.ok}


class _Problems(list[Problem]):
    """What was found so far."""

    def error(self, check: str, file: str, message: str, fix: str = _AGAIN) -> None:
        """Content that is lost or changed."""
        self.append(Problem(check=check, severity="error", file=file, message=message, fix=fix))

    def warn(self, check: str, file: str, message: str, fix: str = "remove it") -> None:
        """Something that is there and need not be."""
        self.append(Problem(check=check, severity="warning", file=file, message=message, fix=fix))

    @contextmanager
    def refused(self, check: str, file: str) -> Iterator[None]:
        """Note a user error of the block as a problem of ``file``."""
        try:
            yield
        except UserError as error:
            self.error(check, file, error.message, error.fix)


def verify(folder: Path, *, images: bool = True) -> Verification:
    """Compare the folder of a test set or a pool with its card.

    Tables are read and hashed again. With ``images`` every image file is decoded whole, and
    compared with its SHA-256, width and height.
    """
    existing_folder(folder, "test set")
    found = _Problems()
    card, tables, checked = None, {}, 0
    with found.refused("card", card_file(folder).name):
        card = Card.of(folder)
    if card is not None:
        tables = _tables(folder, card, found)
        if "images" in tables:
            _rows(folder, card, tables, found)
            if images and card.images_root is not None:
                checked = _images(folder, card, tables["images"], found)
        _files(folder, card, tables.get("images"), found)
    _leftovers(folder, found)
    return Verification(
        folder=folder.name,
        name=card.name if card else "",
        tables=len(tables),
        images=checked,
        findings=tuple(found),
    )


def _tables(folder: Path, card: Card, found: _Problems) -> dict[str, Any]:
    """The tables that could be read, by the names under which the card has their hashes."""
    pool = card.stage == "pool"
    wanted = schemas_of(card)
    tables: dict[str, Any] = {}
    for name, schema in wanted.items():
        file = f"{name}.parquet"
        with found.refused("table", file):
            table = tables[name] = read_parquet(folder / file, schema)
            if name in card.tables:
                if hash_table(table) != card.tables[name]:
                    reason = "its rows are not those that the card was written for"
                    found.error("table", file, reason)
            elif not pool or len(table):  # a pool has its memberships even where there are none
                found.error("table", file, "the card has no hash of it")
    for name in card.tables.keys() - wanted.keys():
        found.error("card", card.file, f"has a hash of {name}, which it does not name")
    if combine(card.tables) != card.content_hash:
        found.error("card", card.file, "its content_hash does not follow from its tables")
    if (
        not pool
        and "images" in tables
        and images_hash(tables["images"], card.images_namespace) != card.images_hash
    ):
        found.error("card", card.file, "its images_hash is not that of its images")
    called = folder.resolve().name
    if called != card.name:
        message = f"the folder is called {called}, the card says {card.name}"
        found.warn("card", card.file, message, "rename the folder")
    return tables


def _rows(folder: Path, card: Card, tables: dict[str, Any], found: _Problems) -> None:
    """Rows that break the rules of the tables: repeated ids, foreign images, unknown classes."""
    import pyarrow.compute as pc

    with found.refused("rows", "images.parquet"):
        check_ids(tables["images"]["image_id"], "the images table")
    space = None
    with found.refused("label_space", "label_space.json"):
        space = load_space(folder, card)
    if space is not None and space.name != card.label_space:
        message = f"is {space.name}, the card says {card.label_space}"
        found.error("label_space", "label_space.json", message, "restore the file")
    known = tables["images"]["image_id"].combine_chunks()
    for name, table in tables.items():
        file = f"{name}.parquet"
        foreign = pc.sum(pc.invert(pc.is_in(table["image_id"], value_set=known))).as_py() or 0
        if foreign:
            message = f"{foreign} rows name images that are not in the set"
            found.error("rows", file, message, "import the test set again")
        if name.startswith("truth/"):
            with found.refused("rows", file):
                check_truth(table)
                if space is not None:
                    check_classes(table, space, name)


def _images(folder: Path, card: Card, table: Any, found: _Problems) -> int:
    """Look at every image that has a file; how many there are."""
    columns = [table[name].to_pylist() for name in ("path", "sha256", "width", "height")]
    rows = [row for row in zip(*columns, strict=True) if row[0] is not None]
    root = folder / str(card.images_root)

    def look(row: tuple[str, str | None, int | None, int | None]) -> tuple[str, str] | None:
        """What is wrong with an image, and what to do; None where nothing is."""
        path, sha256, width, height = row
        try:
            data = (root / check_id(path)).read_bytes()
        except UserError:
            return "its path leads out of the images folder", "import it again"
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return "is missing", _IMAGE_AGAIN
        except OSError as error:
            return f"cannot be read ({error.strerror})", "check the disk"
        if sha256 is not None and sha256_bytes(data) != sha256:
            return "its bytes are not those that were recorded", _IMAGE_AGAIN
        result = check(data)
        if isinstance(result, BadImage):
            # Known bytes without a size: it was not an image when the pool was made.
            known = card.stage == "pool" and sha256 is not None and width is None
            fix = "" if known else _IMAGE_AGAIN
            return f"is {result.trouble} ({result.reason})", fix
        recorded = (width or result.width, height or result.height)
        if recorded == (result.width, result.height):
            return None
        size = f"{result.width}x{result.height} pixels, recorded as {recorded[0]}x{recorded[1]}"
        return f"is {size}", _IMAGE_AGAIN

    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing and decoding leave the interpreter
        for row, problem in zip(rows, pool.map(look, rows), strict=True):
            if problem is None:
                continue
            file, (message, fix) = f"{card.images_root}/{row[0]}", problem
            if fix:
                found.error("image", file, message, fix)
            else:
                found.warn("image", file, message, "nothing: the pool was made with it")
    if card.images_root == "images":
        named = {PurePosixPath(row[0]) for row in rows}
        for path in sorted(root.rglob("*")) if root.is_dir() else []:
            relative = PurePosixPath(path.relative_to(root).as_posix())
            if path.is_file() and relative not in named and not is_temporary(path):
                found.warn("extra", f"images/{relative}", "not an image of the set")
    return len(rows)


def _files(folder: Path, card: Card, images: Any, found: _Problems) -> None:
    """Further files: those that the card names, by their hashes, and those that it does not."""
    for name, digest in card.documents.items():
        path = folder / name
        if not path.is_file():
            found.error("document", name, "is missing", "build the set again")
        elif sha256_file(path) != digest:
            found.error("document", name, "is not what the card says", "build the set again")
    known = _KNOWN | {card.file, *(f"{name}.parquet" for name in schemas_of(card))}
    known |= {name.partition("/")[0] for name in card.documents}
    if card.images_root == "." and images is not None:
        known |= {path.partition("/")[0] for path in images["path"].to_pylist() if path is not None}
    for path in sorted([*folder.iterdir(), *(folder / "truth").glob("*")]):
        relative = path.relative_to(folder).as_posix()
        if relative in known or is_temporary(path):
            continue
        if relative.startswith("truth/"):
            found.warn("extra", relative, "a truth that the card does not name")
        else:
            found.warn("extra", relative, f"not part of a {card.kind}")


def _leftovers(folder: Path, found: _Problems) -> None:
    """What an interrupted write left in the folder, or beside it."""
    for path in sorted(path for path in folder.rglob("*") if is_temporary(path)):
        found.warn("leftover", path.relative_to(folder).as_posix(), "left by an interrupted write")
    here = folder.resolve()
    for path in sorted(here.parent.iterdir()):
        if is_unfinished(path, here) or is_set_aside(path, here):
            found.warn("leftover", f"../{path.name}", "left by an interrupted write")
