"""``heldout export``: test sets and judgements to the world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit_json, note, say
from heldout.cli.options import JsonOption, ReplaceOption, TruthOption, WorkspaceOption

app = typer.Typer(
    help="Write test sets and judgements in other tools' formats.", no_args_is_help=True
)


@app.command("testset")
def export_testset(
    testset: Annotated[str, typer.Argument(help="The test set.")],
    to: Annotated[
        Path, typer.Argument(help="Folder to write; for table, a .csv, .jsonl or .parquet file.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="folders, index-folders, huggingface, webdataset, croissant, table, attributions.",
        ),
    ] = "folders",
    truth: TruthOption = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the image files, if not the set's own.")
    ] = None,
    copy_images: Annotated[
        bool | None, typer.Option(help="Copy image files; folders and huggingface do by default.")
    ] = None,
    allow_licence: Annotated[
        bool,
        typer.Option(
            "--allow-licence", help="Copy images although their licence forbids it or is unknown."
        ),
    ] = False,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Export a test set: labels explicit, licences kept, nothing overwritten."""
    from heldout.core.errors import EXIT_FAILED_IMAGES
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.data.testset.exporters.formats import export

    found = export(
        find_testset(Workspace.find(workspace), testset),
        to,
        form=form,
        truth=truth,
        images=images,
        copy_images=copy_images,
        allow_licence=allow_licence,
        replace=replace,
    )
    for text in found.notes:
        note(text)
    for failure in found.failures:
        note(f"left out {failure.image_id}: {failure.reason}")
    if as_json:
        emit_json(found.to_dict())
    else:
        state = "unchanged" if found.unchanged else "written"
        say(
            f"{to}: {found.rows:,} rows, {found.copied:,} images copied, {found.files:,} files, {state}"
        )
    if found.failures:
        raise typer.Exit(EXIT_FAILED_IMAGES)


@app.command("judgements")
def export_judgements(
    to: Annotated[Path, typer.Argument(help="A .jsonl, .csv or .parquet file.")],
    question: Annotated[str | None, typer.Option(help="Only this kind of question.")] = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Write the table of judgements to a file that an import reads back."""
    from heldout.core.workspace import Workspace
    from heldout.data.judgements.files import write_judgements
    from heldout.data.judgements.store import JudgementStore

    with JudgementStore(Workspace.find(workspace).judgements) as store:
        count = write_judgements(to, store.stream(question=question))
    say(f"{to}: {count:,} judgements")
