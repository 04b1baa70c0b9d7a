"""The verbs about test sets: what a request asks, done with the rooms of this wing."""

from __future__ import annotations

from pathlib import Path

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, EXIT_FAULT, NotFound
from heldout.core.workspace import Workspace
from heldout.data.importing.audit import (
    Audit,
    audit,
    read_blacklist,
    read_image_ids,
    read_near_duplicates,
)
from heldout.data.requests import Cite, Diff, Verify
from heldout.data.testset import TestSet, find_testset, list_pools, list_testsets
from heldout.data.testset.catalogue import cite as citations
from heldout.data.testset.catalogue import find_folder
from heldout.data.testset.diff import diff as compare
from heldout.data.testset.verify import verify as verify_folder


def verify(request: Verify, context: Context) -> Result:
    """Check sets against their cards and, where asked, their content."""
    place = context.workspace
    folders = [_folder(place, name) for name in request.testsets] or [
        entry.folder for entry in (*list_testsets(place), *list_pools(place))
    ]
    if not folders:
        raise NotFound(
            f"no test sets in {place.testsets} and no pools in {place.pools}",
            fix="import or collect one first",
        )
    found = [
        verify_folder(folder, images=request.images, decode=request.decode) for folder in folders
    ]
    lines = [
        f"  {problem.severity}: {problem.file}: {problem.message}: {problem.fix}"
        for item in found
        for problem in item.findings
    ]
    audits = [_audit(request, name, context) for name in request.testsets if request.audits]
    return Result(
        records=[*found, *audits],
        lines=[*lines, *(line for item in audits for line in item.lines)],
        code=EXIT_DONE if all(item.ok for item in found) else EXIT_FAULT,
    )


def _audit(request: Verify, name: str, context: Context) -> Audit:
    others: dict[str, TestSet | tuple[str, ...]] = {}
    for other in request.other:
        path = Path(other)
        if path.is_file():
            others[other if path.stem in others else path.stem] = read_image_ids(path)
        else:
            others[other] = context.find(other, find_testset)
    blacklist, pairs = request.blacklist, request.near_duplicates
    return audit(
        context.find(name, find_testset),
        truth=request.truth,
        blacklist=None if blacklist is None else read_blacklist(blacklist),
        near_duplicates=None if pairs is None else read_near_duplicates(pairs),
        others=others or None,
        target_per_class=request.per_class,
    )


def _folder(place: Workspace, name: str) -> Path:
    """The folder that an argument means: a test set's, or a pool's.

    One among the workspace's pools is a pool even if its ``pool.json`` is gone.
    """
    try:
        return find_folder(place, name)
    except NotFound:
        for folder in (place.pools / name, Path(name)):
            if folder.is_dir() and (
                folder.parent == place.pools or (folder / "pool.json").is_file()
            ):
                return folder
        raise


def cite(request: Cite, context: Context) -> Result:
    """The citations of a set and of its parents."""
    found = citations(context.workspace, request.testset)
    for name in found.absent:
        context.note(f"{name} is a parent that is not in this workspace")
    return Result(records=[found], lines=[found.bibtex if request.bibtex else found.text])


def diff(request: Diff, context: Context) -> Result:
    """What differs between two sets."""
    found = compare(context.find(request.a, find_testset), context.find(request.b, find_testset))
    lines = [f"{found.a} ({found.images_a:,} images) -> {found.b} ({found.images_b:,} images)"]
    if found.same_content:
        lines.append("the content is the same")
    else:
        lines += [
            f"  {len(found.only_in_a):,} images only in {found.a}, "
            f"{len(found.only_in_b):,} only in {found.b}",
            f"  {found.in_both:,} images in both, {len(found.changed):,} of them changed",
            f"  {len(found.classes):,} classes have other images",
        ]
    for what, names in (("column", found.only_columns), ("truth", found.only_truths)):
        lines += [
            f"  {what} {name} only in {found.a if side == 'a' else found.b}"
            for name, side in names.items()
        ]
    lines += [
        f"  card: {change.field}: {_short(change.before)} -> {_short(change.after)}"
        for change in found.card
        if not change.field.startswith("tables")
    ]
    return Result(records=[found], lines=lines)


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 48 else text[:47] + "…"
