"""Lists such as DomainNet's: ``clipart/aircraft_carrier/clipart_001_000001.jpg 0``, one image a line.

A file is one domain and one split, ``<domain>_<split>.txt``; the path's first folder is the domain
too, and the folder of the file names the class. Image ids are the paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.data.images import check_id
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.published.json_stream import Progress
from heldout.data.published.options import ReaderOptions
from heldout.data.published.pool_builder import Found, Problems, Rows

if TYPE_CHECKING:
    import pyarrow as pa

_SPLITS = ("train", "test", "val", "valid", "validation", "labeled", "unlabeled")


def read_domainnet(
    paths: Sequence[Path], problems: Problems, options: ReaderOptions, progress: Progress
) -> Rows:
    """The rows of lists: path, class, domain, split.

    Numbers of classes must mean one folder each, in all lists; else classes are named by number.
    """
    entries = [entry for path in paths for entry in _entries(path, problems)]
    if not entries:
        raise BadFile(paths[0], "lists no image", fix="write 'folder/file.jpg 0' on each line")
    numbers = sorted({number for _, number, _, _ in entries})
    names: dict[int, set[str]] = {}
    for name, number, _, _ in entries:
        names.setdefault(number, set()).add(_folder(name))
    clear = [next(iter(listed)) for listed in names.values() if len(listed) == 1]
    one_to_one = len(clear) == len(names) == len(set(clear)) and "" not in clear
    if not one_to_one:
        unclear = next((n for n in numbers if len(names[n]) > 1), numbers[0])
        problems.add(
            "lists whose class numbers are not one folder each; classes are named by number",
            f"class {unclear}: {', '.join(sorted(names[unclear])[:3])}",
        )
    ids = {n: next(iter(names[n])) if one_to_one else str(n) for n in numbers}
    try:
        space = LabelSpace(
            "listed-classes",
            tuple(
                Class(ids[n], (ids[n].replace("_", " "),) if one_to_one else ()) for n in numbers
            ),
        )
    except LabelError as error:
        raise BadFile(paths[0], error.message, fix=error.fix) from None
    found = Found(
        space=space,
        truth="original",
        images_root=options.images,
        facts={"class_numbers": {ids[n]: n for n in numbers}},
    )
    return Rows(_tables(entries, ids, found), found)


def _tables(
    entries: list[tuple[str, int, str, str]], ids: dict[int, str], found: Found
) -> Iterator[pa.Table]:
    import pyarrow as pa

    text = pa.string()
    columns: dict[str, Any] = {
        "image_id": pa.array([name for name, *_ in entries], text),
        "path": pa.array([name for name, *_ in entries], text),
        "domain": pa.array([domain for _, _, domain, _ in entries], text),
        "split": pa.array([split or None for *_, split in entries], text),
        "class_index": pa.array([number for _, number, _, _ in entries], pa.int64()),
        "class_ids": pa.array([[ids[number]] for _, number, _, _ in entries], pa.list_(text)),
    }
    if found.images_root is None:
        del columns["path"]
    found.counts = {
        "domains": len(set(columns["domain"].to_pylist())),
        "classes": len(ids),
    }
    yield pa.table(columns)


def _entries(path: Path, problems: Problems) -> Iterator[tuple[str, int, str, str]]:
    from heldout.core.files import existing_file

    try:
        text = existing_file(path, "list of images").read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not text in UTF-8", fix="save it as UTF-8") from None
    domain, split = _of_file(path.stem)
    for line, entry in enumerate(text.split("\n"), start=1):
        entry = entry.strip()
        if not entry or entry.startswith("#"):
            continue
        name, _, number = entry.rpartition(" ")
        name = name.strip()
        where = f"{path.name} line {line}"
        if not number.isdecimal() or len(number) > 9 or not _usable(name):
            problems.add("line that is no path and class number, left out", where, image_lost=True)
            continue
        inside = name.split("/")[0] if name.count("/") >= 2 else domain
        if domain and inside != domain and domain in name:
            inside = domain
        yield name, int(number), inside or domain, split


def _of_file(stem: str) -> tuple[str, str]:
    """Domain and split of a list's name.

    >>> _of_file("clipart_train"), _of_file("real")
    (('clipart', 'train'), ('real', ''))
    """
    for split in _SPLITS:
        for mark in ("_", "-", "."):
            if stem.lower().endswith(f"{mark}{split}"):
                return stem[: -len(split) - 1], split
    return stem, ""


def _folder(name: str) -> str:
    parts = name.split("/")
    return parts[-2] if len(parts) > 1 else ""


def _usable(name: str) -> bool:
    try:
        check_id(name)
    except UserError:
        return False
    return True
