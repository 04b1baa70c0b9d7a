"""Verify: does a test set on disk still hold what its card says? Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from heldout.core.errors import BadFile, UserError
from heldout.core.files import (
    existing_folder,
    is_set_aside,
    is_temporary,
    is_unfinished,
    sha256_file,
)
from heldout.data.images import BadImage, check, check_id, probe, sha256_bytes
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.card import Card
from heldout.data.testset.hashing import combine, hash_table, images_hash
from heldout.data.testset.pool import Pool, verify_pool
from heldout.data.testset.tables import (
    check_ids,
    check_truth,
    image_schema,
    membership_schema,
    truth_schema,
)
from heldout.data.testset.testset import check_classes, read_parquet

Severity = Literal["error", "warning"]
_KNOWN = {"card.json", "images.parquet", "memberships.parquet", "label_space.json"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as the card says.

    ``check``     card, label_space, table, rows, image, extra or leftover
    ``severity``  error: content is lost or changed; warning: something is there that need not be
    ``file``      relative to the test set's folder
    """

    check: str
    severity: Severity
    file: str
    message: str
    fix: str

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What :func:`verify` looked at and what it found, in the order of files."""

    folder: str
    name: str
    tables: int
    images: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether all content is as the card says; warnings do not count."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "findings": [f.to_dict() for f in self.findings], "ok": self.ok}


def verify(folder: Path, *, images: bool = True, decode: bool = True) -> Verification:
    """Compare a test set's folder with its card.

    Tables are read and hashed again. With ``images`` every image file is compared with its
    SHA-256, width and height; with ``decode`` it is decoded whole, else only its header is read.
    """
    existing_folder(folder, "test set")
    leftovers = list(find_leftovers(folder))
    try:
        card = Card.read(folder / "card.json")
    except UserError as error:
        broken = error_at("card", "card.json", error.message, error.fix)
        return Verification(
            folder=folder.name, name="", tables=0, images=0, findings=(broken, *leftovers)
        )
    findings: list[Finding] = []
    tables = _tables(folder, card, findings)
    checked = 0
    if "images" in tables:
        findings += _rows(folder, card, tables)
        if images and card.images_root is not None:
            root = folder / card.images_root
            results = check_images(tables["images"], root, card.images_root, decode=decode)
            checked = len(results)
            findings += [finding for result in results for finding in result]
            if card.images_root == "images":
                findings += _extra_images(tables["images"], root)
    findings += _documents(folder, card)
    own = card.images_root == "." and "images" in tables
    findings += _extra_files(folder, card, _tops(tables["images"]) if own else set())
    findings += leftovers
    return Verification(
        folder=folder.name,
        name=card.name,
        tables=len(tables),
        images=checked,
        findings=tuple(findings),
    )


def error_at(check: str, file: str, message: str, fix: str) -> Finding:
    """Content that is lost or changed."""
    return Finding(check=check, severity="error", file=file, message=message, fix=fix)


def warning_at(check: str, file: str, message: str, fix: str) -> Finding:
    """Something that is there and need not be."""
    return Finding(check=check, severity="warning", file=file, message=message, fix=fix)


def _tables(folder: Path, card: Card, findings: list[Finding]) -> dict[str, Any]:
    """The tables that could be read, by the names under which the card has their hashes."""
    again = "import or fetch the test set again"
    wanted = {"images": image_schema()}
    wanted |= {f"truth/{name}": truth_schema() for name in card.truths}
    if "memberships" in card.tables:
        wanted["memberships"] = membership_schema()
    tables: dict[str, Any] = {}
    for name, schema in wanted.items():
        file = f"{name}.parquet"
        try:
            tables[name] = read_parquet(folder / file, schema)
        except UserError as error:
            findings.append(error_at("table", file, error.message, error.fix))
            continue
        if name not in card.tables:
            findings.append(error_at("table", file, "the card has no hash of it", again))
        elif hash_table(tables[name]) != card.tables[name]:
            findings.append(
                error_at(
                    "table", file, "its rows are not those that the card was written for", again
                )
            )
    for name in card.tables.keys() - wanted.keys():
        findings.append(
            error_at("card", "card.json", f"has a hash of {name}, which it does not name", again)
        )
    if combine(card.tables) != card.content_hash:
        findings.append(
            error_at("card", "card.json", "its content_hash does not follow from its tables", again)
        )
    if (
        "images" in tables
        and images_hash(tables["images"], card.images_namespace) != card.images_hash
    ):
        findings.append(
            error_at("card", "card.json", "its images_hash is not that of its images", again)
        )
    if folder.resolve().name != card.name:
        findings.append(
            warning_at(
                "card",
                "card.json",
                f"the folder is called {folder.resolve().name}, the card says {card.name}",
                "rename the folder",
            )
        )
    return tables


def _rows(folder: Path, card: Card, tables: dict[str, Any]) -> Iterator[Finding]:
    """Rows that break the rules of the tables: repeated ids, foreign images, unknown classes."""
    import pyarrow.compute as pc

    fix = "import the test set again"
    try:
        check_ids(tables["images"]["image_id"], "the images table")
    except UserError as error:
        yield error_at("rows", "images.parquet", error.message, error.fix)
    space: LabelSpace | None = None
    own = (folder / "label_space.json").exists()
    try:
        space = LabelSpace.load(folder / "label_space.json" if own else card.label_space)
    except UserError as error:
        yield error_at("label_space", "label_space.json", error.message, error.fix)
    if space is not None and space.name != card.label_space:
        yield error_at(
            "label_space",
            "label_space.json",
            f"is {space.name}, the card says {card.label_space}",
            "restore the file",
        )
    known = tables["images"]["image_id"].combine_chunks()
    for name, table in tables.items():
        if name == "images":
            continue
        foreign = pc.sum(pc.invert(pc.is_in(table["image_id"], value_set=known))).as_py() or 0
        if foreign:
            yield error_at(
                "rows",
                f"{name}.parquet",
                f"{foreign} rows name images that are not in the set",
                fix,
            )
        if name == "memberships":
            continue
        try:
            check_truth(table)
            if space is not None:
                check_classes(table, space, name)
        except UserError as error:
            yield error_at("rows", f"{name}.parquet", error.message, error.fix)


def check_images(table: Any, root: Path, shown: str, *, decode: bool) -> list[list[Finding]]:
    """What is wrong with each image of a table that has a file below ``root``."""
    columns = [table[name].to_pylist() for name in ("path", "sha256", "width", "height")]
    rows = [row for row in zip(*columns, strict=True) if row[0] is not None]
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing and decoding leave the interpreter
        return list(pool.map(partial(_image, root=root, shown=shown, decode=decode), rows))


def _image(
    row: tuple[str, str | None, int | None, int | None], *, root: Path, shown: str, decode: bool
) -> list[Finding]:
    path, sha256, width, height = row
    file = f"{shown}/{path}"
    again = "fetch the image again"
    try:
        data = (root / check_id(path)).read_bytes()
    except UserError:
        return [
            error_at("image", file, "its path leads out of the images folder", "import it again")
        ]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return [error_at("image", file, "is missing", again)]
    except OSError as error:
        return [error_at("image", file, f"cannot be read ({error.strerror})", "check the disk")]
    if sha256 is not None and sha256_bytes(data) != sha256:
        return [error_at("image", file, "its bytes are not those that were recorded", again)]
    result = check(data) if decode else probe(data)
    if isinstance(result, BadImage):
        return [error_at("image", file, f"is {result.trouble} ({result.reason})", again)]
    recorded = (width or result.width, height or result.height)
    if recorded != (result.width, result.height):
        size = f"{result.width}x{result.height} pixels, recorded as {recorded[0]}x{recorded[1]}"
        return [error_at("image", file, f"is {size}", again)]
    return []


def _extra_images(table: Any, root: Path) -> Iterator[Finding]:
    named = {PurePosixPath(path) for path in table["path"].to_pylist() if path is not None}
    for path in sorted(root.rglob("*")) if root.is_dir() else []:
        relative = PurePosixPath(path.relative_to(root).as_posix())
        if path.is_file() and relative not in named and not is_temporary(path):
            yield warning_at("extra", f"images/{relative}", "no image of the set", "remove it")


def _documents(folder: Path, card: Card) -> Iterator[Finding]:
    """Further files that the card names, by their hashes."""
    for name, digest in card.documents.items():
        path = folder / name
        if not path.is_file():
            yield error_at("document", name, "is missing", "build the set again")
        elif sha256_file(path) != digest:
            yield error_at("document", name, "is not what the card says", "build the set again")


def _tops(table: Any) -> set[str]:
    """The folders, or files, in the set's own folder that its images are in."""
    return {str(path).partition("/")[0] for path in table["path"].to_pylist() if path is not None}


def _extra_files(folder: Path, card: Card, own: set[str]) -> Iterator[Finding]:
    known = _KNOWN | {f"truth/{name}.parquet" for name in card.truths}
    known |= own | {name.partition("/")[0] for name in card.documents}
    for path in sorted([*folder.iterdir(), *(folder / "truth").glob("*")]):
        relative = path.relative_to(folder).as_posix()
        if relative in known or relative in ("truth", "images") or is_temporary(path):
            continue
        if relative.startswith("truth/"):
            yield warning_at("extra", relative, "a truth that the card does not name", "remove it")
        else:
            yield warning_at("extra", relative, "no part of a test set", "remove it")
    if "memberships" not in card.tables and (folder / "memberships.parquet").exists():
        yield error_at(
            "extra", "memberships.parquet", "memberships that the card does not know", "remove it"
        )


def find_leftovers(folder: Path) -> Iterator[Finding]:
    """What an interrupted write left in the folder, or beside it."""
    inside = [path for path in folder.rglob("*") if is_temporary(path)]
    beside = [
        path
        for path in folder.resolve().parent.iterdir()
        if is_unfinished(path, folder.resolve()) or is_set_aside(path, folder.resolve())
    ]
    for path in sorted(inside):
        yield warning_at(
            "leftover", path.relative_to(folder).as_posix(), "left by a broken write", "remove it"
        )
    for path in sorted(beside):
        yield warning_at("leftover", f"../{path.name}", "left by a broken write", "remove it")


_HEAD = "pool.json"
_POOL_FILES = {_HEAD, "images.parquet", "memberships.parquet", "label_space.json", "truth"}


def verify_pool_folder(folder: Path, *, images: bool = True, decode: bool = True) -> Verification:
    """Compare a pool's folder with its ``pool.json``, as ``verify`` does a test set's with its card.

    Tables are read and hashed again; the first that is not what it was ends the look. Image files
    are looked at where the pool says where they are.
    """
    existing_folder(folder, "pool")
    leftovers = list(find_leftovers(folder))
    try:
        pool = verify_pool(folder)
    except UserError as error:
        path = error.path if isinstance(error, BadFile) else folder / _HEAD
        file = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        broken = error_at("pool", file, error.message.removeprefix(f"{path}: "), error.fix)
        return Verification(
            folder=folder.name, name="", tables=0, images=0, findings=(broken, *leftovers)
        )
    findings = list(_extra(folder, pool))
    if folder.resolve().name != pool.name:
        message = f"the folder is called {folder.resolve().name}, {_HEAD} says {pool.name}"
        findings.append(warning_at("pool", _HEAD, message, "rename the folder"))
    checked: list[list[Finding]] = []
    if images and pool.images_root is not None:
        shown = Path(os.path.relpath(pool.images_root.resolve(), folder.resolve())).as_posix()
        checked = check_images(pool.images, pool.images_root, shown, decode=decode)
        bad = {f"{shown}/{path}" for path in _unreadable(pool)}
        findings += [
            replace(finding, severity="warning", fix="nothing: the pool was made with it")
            if finding.file in bad
            and finding.message.startswith("is ")
            and finding.message != "is missing"
            else finding
            for found in checked
            for finding in found
        ]
    return Verification(
        folder=folder.name,
        name=pool.name,
        tables=2 + len(pool.truths),
        images=len(checked),
        findings=(*findings, *leftovers),
    )


def _unreadable(pool: Pool) -> set[str]:
    """Files whose bytes are known and that had no size: no images when the pool was made."""
    columns = [pool.images[name].to_pylist() for name in ("path", "sha256", "width")]
    return {
        path
        for path, digest, width in zip(*columns, strict=True)
        if path is not None and digest is not None and width is None
    }


def _extra(folder: Path, pool: Pool) -> Iterator[Finding]:
    known = _POOL_FILES | {f"truth/{name}.parquet" for name in pool.truths}
    for path in sorted([*folder.iterdir(), *(folder / "truth").glob("*")]):
        relative = path.relative_to(folder).as_posix()
        if relative not in known and not is_temporary(path):
            yield warning_at("extra", relative, "no part of a pool", "remove it")
