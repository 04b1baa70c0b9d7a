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
from heldout.core.tables import read_parquet
from heldout.data.images import BadImage, check, check_id, sha256_bytes
from heldout.data.images.sources import read_image_file
from heldout.data.testset.card import DECLARED, Card, card_file, checksums
from heldout.data.testset.hashing import combine
from heldout.data.testset.testset import load_space, make_testset, schemas_of

_KNOWN = {"label_space.json", "truth", "images"}
_AGAIN = "import or fetch the test set again"
_IMAGE_AGAIN = "fetch the image again"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is not as the card says, or not as it was written.

    ``check``     card, table, rows, image, document, extra or leftover; else what is damaged:
                  predictions, embeddings, judgements or records
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
    """What was looked at and what was found, in the order of files.

    ``tables``     of a set; else how many runs, arrays of vectors, judgements or records
    ``unchecked``  what was written before there were checksums: only its form is known to be right
    """

    record: ClassVar[str] = "verification"
    table: ClassVar[Table] = Table(
        "",
        (
            "folder",
            "as recorded=ok",
            "tables or files=tables:,",
            "image files=images:,",
            "without_checksums:,",
        ),
    )
    folder: str
    name: str
    tables: int
    images: int
    findings: tuple[Problem, ...]
    unchecked: int = 0

    @property
    def without_checksums(self) -> int | None:
        """``unchecked`` where there are any."""
        return self.unchecked or None

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
    card, tables, checked = None, dict[str, Any](), 0
    with found.refused("card", card_file(folder).name):
        card = Card.of(folder)
    if card is not None:
        for name, schema in schemas_of(card).items():
            with found.refused("table", f"{name}.parquet"):
                tables[name] = read_parquet(folder / f"{name}.parquet", schema=schema)
        if not found:
            _content(folder, card, tables, found)
        if "images" in tables and images and card.images_root is not None:
            checked = _images(folder, card, tables["images"], found)
        _files(folder, card, tables.get("images"), found)
    _leftovers(folder, found)
    return Verification(
        folder=folder.name,
        name=card.name if card else "",
        tables=len(tables),
        images=checked,
        findings=tuple(found),
        unchecked=0 if card is None or checksums(folder) else 1,
    )


def _content(folder: Path, card: Card, tables: dict[str, Any], found: _Problems) -> None:
    """Build the set again from its tables: the rules of rows, and hashes that are not the card's."""
    made = card
    with found.refused("rows", card.file):
        space = load_space(folder, card)
        truths = {name: tables[f"truth/{name}"] for name in card.truths}
        members = tables.get("memberships")
        made = make_testset(
            card, images=tables["images"], truths=truths, label_space=space, memberships=members
        ).card
    for name in sorted(made.tables.keys() | card.tables.keys()):
        if name == DECLARED and name not in card.tables:
            message = "was written before column types, factors and clusters were part of its hash"
            found.warn("card", card.file, message, "import or build it again")
        elif made.tables.get(name) != card.tables.get(name):
            message = "its rows are not those that the card was written for"
            found.error("table", f"{name}.parquet", message)
    for field in ("images_hash", "label_space"):
        if getattr(card, field) not in ("", getattr(made, field)):  # a pool may state neither
            found.error("card", card.file, f"its {field} is not that of its tables")
    if combine(card.tables) != card.content_hash:
        found.error("card", card.file, "its content_hash does not follow from its tables")
    called = folder.resolve().name
    if called != card.name:
        message = f"the folder is called {called}, the card says {card.name}"
        found.warn("card", card.file, message, "rename the folder")


def _images(folder: Path, card: Card, table: Any, found: _Problems) -> int:
    """Look at every image that has a file; how many there are."""
    columns = [table[name].to_pylist() for name in ("path", "sha256", "width", "height")]
    rows = [row for row in zip(*columns, strict=True) if row[0] is not None]
    root = folder / str(card.images_root)

    def look(row: tuple[str, str | None, int | None, int | None]) -> tuple[str, str] | None:
        """What is wrong with an image, and what to do; None where nothing is."""
        path, sha256, width, height = row
        try:
            check_id(path)
        except UserError:
            return "its path leads out of the images folder", "import it again"
        try:
            data = read_image_file(root / path)
        except UserError as error:
            return f"cannot be read ({error.message.rpartition(': ')[2]})", _IMAGE_AGAIN
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
