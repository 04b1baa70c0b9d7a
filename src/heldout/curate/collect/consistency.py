"""``verify`` of a pool whose images were fetched: what is missing or damaged in the three sizes."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_FAULT, UserError
from heldout.core.records import Table
from heldout.core.schema import read
from heldout.curate.collect.download import (
    OWN,
    SIZES,
    Downloads,
    FolderDestination,
    StoredSize,
    as_collected,
    destination,
)
from heldout.data.images import BadImage, check, sha256_bytes
from heldout.data.requests import VerifyRequest
from heldout.data.testset import list_pools
from heldout.data.testset.card import POOL, Card
from heldout.data.testset.catalogue import find_folder
from heldout.data.testset.testset import load
from heldout.models.verify import verify as verify_stored


@dataclass(frozen=True, kw_only=True)
class ImageConsistency:
    """Whether each candidate of a pool has its three sizes, or a reason why not.

    ``candidates``     images of the pool before any was fetched
    ``complete``       those with all sizes as they were stored
    ``left_out``       reason -> candidates that fetch listed
    ``unexplained``    candidates that are neither stored nor listed
    ``missing``        size -> images that lack it; ``undecodable`` and ``altered`` likewise, where
                       files were read
    """

    record: ClassVar[str] = "image consistency"
    table: ClassVar[Table] = Table(
        "sizes of images",
        (
            *(
                "pool",
                "candidates:,",
                "complete:,",
                "left out=n_left_out:,",
                "unexplained=n_lost:,",
            ),
            *("missing=n_missing:,", "undecodable=n_undecodable:,", "altered=n_altered:,"),
        ),
    )
    pool: str
    candidates: int
    complete: int
    left_out: dict[str, int]
    unexplained: tuple[str, ...]
    missing: dict[str, tuple[str, ...]]
    undecodable: dict[str, tuple[str, ...]]
    altered: dict[str, tuple[str, ...]]

    @property
    def n_left_out(self) -> int:
        """How many were left out."""
        return sum(self.left_out.values())

    @property
    def n_lost(self) -> int:
        """How many are unexplained."""
        return len(self.unexplained)

    @property
    def n_missing(self) -> int:
        """How many files are missing."""
        return sum(map(len, self.missing.values()))

    @property
    def n_undecodable(self) -> int:
        """How many files cannot be decoded."""
        return sum(map(len, self.undecodable.values()))

    @property
    def n_altered(self) -> int:
        """How many files hold other bytes than were stored."""
        return sum(map(len, self.altered.values()))

    @property
    def ok(self) -> bool:
        """Whether every candidate has its sizes, or a reason."""
        return not (self.n_lost or self.n_missing or self.n_undecodable or self.n_altered)


def image_consistency(folder: Path, *, files: bool = True) -> ImageConsistency | None:
    """Look at the sizes of a pool's images; None where they were not fetched.

    With ``files`` each one is read, decoded and compared with its hash, where they are on this machine.
    """
    card = Card.of(folder)
    if "fetched" not in card.facts:
        return None
    images = folder / "images"
    book = read(images / "downloads.json", Downloads, fix=f"heldout fetch {card.name}")
    to = destination(book.where, folder)
    there = to.stored()
    root = to.root if files and isinstance(to, FolderDestination) else None
    rows = [
        (image, size, f"{size}/{stored.name}", stored.sizes[size])
        for image, stored in book.images.items()
        for size in SIZES
    ]

    def look(row: tuple[str, str, str, StoredSize]) -> str:
        _, _, name, stored = row
        if name not in there:
            return "missing"
        if root is None:
            return "" if there[name] == stored.bytes else "altered"
        data = (root / name).read_bytes()
        if isinstance(check(data), BadImage):
            return "undecodable"
        return "" if sha256_bytes(data) == stored.sha256 else "altered"

    found: dict[str, dict[str, list[str]]] = {"missing": {}, "undecodable": {}, "altered": {}}
    bad = set()
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing and decoding leave the interpreter
        for (image, size, _, _), trouble in zip(rows, pool.map(look, rows), strict=True):
            if trouble:
                found[trouble].setdefault(size, []).append(image)
                bad.add(image)
    listed = {one.image_id for one in book.left_out}
    ids = as_collected(load(folder)).image_ids.to_pylist()
    return ImageConsistency(
        pool=card.name,
        candidates=len(ids),
        complete=len(book.images) - len(bad),
        left_out=dict(sorted(Counter(one.reason for one in book.left_out).items())),
        unexplained=tuple(image for image in ids if image not in book.images.keys() | listed),
        **{kind: {size: tuple(one) for size, one in by.items()} for kind, by in found.items()},
    )


def verify(request: VerifyRequest, context: Context) -> Result:
    """What is stored, against its checksums; of pools also the sizes that were fetched."""
    result = verify_stored(request, context)
    reports, lines = [], list(result.lines)
    for folder in _pools(request, context):
        try:
            report = image_consistency(folder, files=request.images)
        except UserError as error:
            if not _is_read(folder):
                continue  # verify has said what is wrong with the pool
            lines.append(f"  error: {error.line}")
            result.code = EXIT_FAULT
            continue
        if report is None:
            continue
        reports.append(report)
        said = {OWN} if request.images else set()  # the images that verify itself looks at
        for kind, by_size in (
            ("is missing", report.missing),
            ("cannot be decoded", report.undecodable),
            ("holds other bytes than were stored", report.altered),
        ):
            for size, images in by_size.items():
                if size not in said:
                    again = "remove it, and run " if kind != "is missing" else ""
                    lines += [
                        f"  error: {report.pool}: {size} of {image} {kind}: {again}heldout fetch "
                        f"{report.pool}"
                        for image in images
                    ]
        lines += [
            f"  error: {report.pool}: {image} is neither stored nor listed: heldout fetch "
            f"{report.pool}"
            for image in report.unexplained
        ]
        if not report.ok:
            result.code = EXIT_FAULT
    result.records, result.lines = [*result.records, *reports], lines
    return result


def _is_read(folder: Path) -> bool:
    try:
        load(folder)
    except UserError:
        return False
    return True


def _pools(request: VerifyRequest, context: Context) -> list[Path]:
    """The folders of the pools that are verified."""
    place = context.workspace
    if not request.testsets:
        return [entry.folder for entry in list_pools(place)]
    named = [name for name in request.testsets if not Path(name).is_file()]
    folders = [find_folder(place, name, pools=True) for name in named]
    return [folder for folder in folders if (folder / POOL).is_file()]
