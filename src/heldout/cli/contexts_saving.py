"""What the commands of ``heldout contexts split`` share: options, names of groups, saving."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, note, say

if TYPE_CHECKING:
    from heldout.curate.contexts.split import Split
    from heldout.curate.contexts.subsets import Subsets
    from heldout.data.testset import TestSet
    from heldout.measure.score.records import Count

TestsetArgument = Annotated[
    str, typer.Argument(help="A test set with the membership subset, as build contexts makes it.")
]
TestSetNameOption = Annotated[
    str | None,
    typer.Option(
        "--test-set", help="Also save the test part as a test set of this name in the workspace."
    ),
]
MinimumOption = Annotated[
    int | None, typer.Option(help="Smaller subsets are left out; the set's own by default.")
]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")]
FoldersOption = Annotated[
    str | None,
    typer.Option(
        "--folders", help="Also lay the image files out in folders: link, hardlink or copy."
    ),
]
ImageFilesOption = Annotated[
    Path | None, typer.Option("--images", help="Folder of the image files, for --folders.")
]
AllowLicenceOption = Annotated[
    bool,
    typer.Option(
        "--allow-licence", help="Copy images although their licence forbids it or is unknown."
    ),
]


def find_subsets(
    testset: str, workspace: Path | None, minimum: int | None
) -> tuple[TestSet, Subsets, int]:
    """A test set, its subsets, and the least images that one must have to be used."""
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.graph import MINIMUM
    from heldout.curate.contexts.subsets import read_subsets
    from heldout.data.testset import find_testset

    found = find_testset(Workspace.find(workspace), testset)
    if minimum is None:
        minimum = int((found.card.recipe.get("parameters") or {}).get("minimum", MINIMUM))
    return found, read_subsets(found), minimum


def check_test_set(name: str | None) -> None:
    """Refuse what cannot be the name of a test set before anything is written."""
    from heldout.core.workspace import check_slug

    if name is not None:
        check_slug(name, "a test set")


def group_names(text: str) -> list[str]:
    """Names joined by commas or plus signs; those inside parentheses belong to a name."""
    found, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character in ",+" and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [name.strip() for name in found if name.strip()]


def save_and_count(
    split: Split,
    to: Path,
    *,
    subpopbench: str | None = None,
    folders: str | None = None,
    images: Path | None = None,
    allow_licence: bool = False,
    replace: bool,
) -> list[Count]:
    """Write a split with what was asked for beside it; its counts."""
    from heldout.core.errors import UserError
    from heldout.curate.contexts.split import (
        image_mode,
        place_split,
        save_split,
        subpopbench_document,
    )
    from heldout.measure.score.records import Count

    if folders is not None and images is None:
        raise UserError("--folders needs the image files", fix="name their folder with --images")
    if folders is not None:
        image_mode(folders)
    documents: dict[str, str] = {}
    if subpopbench is not None:
        documents["subpopbench.csv"] = subpopbench_document(split, filename=subpopbench)
    for text in split.notes:
        note(text)
    changed = save_split(split, to, further=documents, replace=replace)
    counts = split.counts()
    sizes = ", ".join(f"{counts[part]:,} {part}" for part in split.parts)
    say(f"{to}: {sizes}, {'written' if changed else 'unchanged'}")
    if folders is not None and images is not None:
        beside = to.with_name(f"{to.name}-images")
        placed = place_split(
            split, beside, images=images, mode=folders, allow_licence=allow_licence, replace=replace
        )
        for text in placed.notes:
            note(text)
        for failure in placed.failures:
            note(f"left out {failure.image_id}: {failure.reason}")
        say(f"{beside}: {placed.made:,} placed, {placed.kept:,} kept, {placed.removed:,} removed")
        counts |= {"placed": placed.made + placed.kept, "without_file": len(placed.failures)}
    return [Count(name=name, value=value, testset=to.name) for name, value in counts.items()]


def save_test_part(
    testset: TestSet, split: Split, name: str, *, workspace: Path | None, replace: bool
) -> None:
    """Save the test part of a split as a test set of the workspace, with its parent by hash."""
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.split import part_as_testset
    from heldout.data.testset.testset import save

    folder = Workspace.find(workspace).testsets / name
    made = save(part_as_testset(testset, split, name=name), folder, replace=replace)
    say(f"{folder}: test set of {len(made):,} images")


def finish(records: list[Count], *, as_json: bool) -> None:
    """Hand over the counts; images without a file end with an exit code of their own."""
    from heldout.core.errors import EXIT_FAILED_IMAGES

    emit(records, as_json=as_json)
    if any(record.name == "without_file" and record.value for record in records):
        raise typer.Exit(EXIT_FAILED_IMAGES)
