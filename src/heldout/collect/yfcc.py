"""YFCC100M into rows of a pool: metadata, places and machine tags, countries, classes by keyword."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.collect.documents import Progress
from heldout.collect.options import ReaderOptions
from heldout.collect.places import Pack, PackKind, autotags_in, pack_kind
from heldout.collect.places_countries import Locating
from heldout.collect.report import Problems
from heldout.collect.rows import Found, Rows
from heldout.collect.yfcc_keys import object_path
from heldout.collect.yfcc_lists import lists_of
from heldout.collect.yfcc_quarantine import Quarantine, quarantine
from heldout.collect.yfcc_rows import Raw, decoded_rows, raw_rows
from heldout.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa


def read_yfcc(
    paths: Sequence[Path], problems: Problems, options: ReaderOptions, progress: Progress
) -> Rows:
    """The rows of YFCC100M files; packs are told from metadata by their lines.

    Several files of one kind follow one another, as the published parts do; packs stand beside all
    of them, line by line.
    """
    if options.partial and len(paths) > 1:
        raise UserError(
            "--partial is for one file alone, as lines of several must stand side by side",
            fix="read the broken file by itself",
        )
    files: dict[str, list[Path]] = {"core": [], "places": [], "autotags": []}
    for path in paths:
        files[pack_kind(path) or "core"].append(path)
    if not files["core"]:
        raise UserError("no file of metadata is given", fix="name yfcc100m_dataset too")
    found = Found(images_root=options.images)
    return Rows(_tables(files, problems, options, progress, found), found)


def _tables(
    files: dict[str, list[Path]],
    problems: Problems,
    options: ReaderOptions,
    progress: Progress,
    found: Found,
) -> Iterator[pa.Table]:
    kinds: tuple[PackKind, ...] = ("places", "autotags")
    packs = [Pack(kind, files[kind], progress=progress) for kind in kinds if files[kind]]
    locating = Locating(options.countries, options.coordinates, problems)
    counts = Counter({"rows": 0, "videos": 0, "without_keyword": 0})
    with ExitStack() as stack:
        aside = stack.enter_context(quarantine(problems, options.quarantine))
        told: list[str] = []
        broken = told.append if options.partial else None
        for raw in raw_rows(files["core"], aside, progress=progress, broken=broken):
            yield from _block(raw, packs, locating, options, problems, aside, counts)
        for where in told:
            problems.add("file that breaks off, the rest left out", where, image_lost=True)
        for pack in packs:
            pack.finish(files["core"][-1])
    located = locating.report()
    if options.keywords is None:
        del counts["without_keyword"]
    else:
        found.space = options.keywords.space
    found.counts = {**counts, "quarantined": aside.count, **located}
    found.facts = {**aside.facts, **locating.facts}


def _block(
    raw: Raw,
    packs: Sequence[Pack],
    locating: Locating,
    options: ReaderOptions,
    problems: Problems,
    aside: Quarantine,
    counts: Counter[str],
) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.compute as pc

    block = raw.block
    further: dict[str, Any] = {}
    for pack in packs:
        further[pack.kind] = pack.beside(
            raw.column("photoid"), raw.lines, len(block), block.path, block.first, aside
        )
    counts["rows"] += len(raw)
    video = pc.equal(raw.column("marker"), b"1").to_numpy(zero_copy_only=False)
    counts["videos"] += int(video.sum())
    raw, further = _kept(raw, further, ~video)
    if options.keywords is not None:
        classes = options.keywords.classes_of(lists_of(raw.column("usertags"), decode=True))
        has = np.diff(classes.offsets.to_numpy()) > 0
        counts["without_keyword"] += int((~has).sum())
        raw, further = _kept(raw, further | {"class_ids": classes}, has)
    if not len(raw):
        return
    table, fits = decoded_rows(raw, aside, problems)
    further = {name: values.filter(pa.array(fits)) for name, values in further.items()}
    places = further.pop("places", None)
    for name, column in locating.columns(table, places, f"{block.path.name}").items():
        table = table.append_column(name, column)
    if "autotags" in further:
        tags = autotags_in(further["autotags"], min_score=options.min_score)
        table = table.append_column("autotags", tags)
    if "class_ids" in further:
        table = table.append_column("class_ids", further["class_ids"])
    if options.images is not None:
        files = [object_path(key) for key in table["image_id"].to_pylist()]
        table = table.append_column("path", pa.array(files, pa.string()))
    yield table


def _kept(raw: Raw, further: dict[str, Any], keep: Any) -> tuple[Raw, dict[str, Any]]:
    import pyarrow as pa

    if keep.all():
        return raw, further
    mask = pa.array(keep)
    return raw.where(keep), {name: values.filter(mask) for name, values in further.items()}
