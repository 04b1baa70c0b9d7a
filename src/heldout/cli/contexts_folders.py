"""``heldout contexts folders``: the images of subsets in folders, by links or copies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.contexts_saving import AllowLicenceOption, TestsetArgument
from heldout.cli.options import JsonOption, ReplaceOption, WorkspaceOption


def folders(
    testset: TestsetArgument,
    to: Annotated[Path, typer.Argument(help="Folder to lay the images out in.")],
    mode: Annotated[
        str, typer.Option(help="link (relative symbolic links), hardlink or copy.")
    ] = "link",
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only subsets that match this glob, such as 'cat(*)'; repeatable."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the image files, if not the set's own.")
    ] = None,
    allow_licence: AllowLicenceOption = False,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Lay images out as CLASS/SUBSET/FILE; nothing that was not placed there is ever deleted."""
    from heldout.core.errors import EXIT_FAILED_IMAGES
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.split import place_subsets
    from heldout.data.testset import find_testset
    from heldout.measure.score.records import Count

    placed = place_subsets(
        find_testset(Workspace.find(workspace), testset),
        to,
        images=images,
        mode=mode,
        only=only or (),
        allow_licence=allow_licence,
        replace=replace,
    )
    for text in placed.notes:
        note(text)
    for failure in placed.failures:
        note(f"left out {failure.image_id}: {failure.reason}")
    say(f"{to}: {placed.made:,} placed, {placed.kept:,} kept, {placed.removed:,} removed")
    counts = {
        "placed": placed.made,
        "kept": placed.kept,
        "removed": placed.removed,
        "without_file": len(placed.failures),
    }
    emit([Count(name=name, value=value) for name, value in counts.items()], as_json=as_json)
    if placed.failures:
        raise typer.Exit(EXIT_FAILED_IMAGES)
