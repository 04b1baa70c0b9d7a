"""``heldout import clip-geoyfcc``: the released lists, with the class of every row recovered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import JsonOption, ReplaceOption, WorkspaceOption


def import_clip_geoyfcc(
    indices: Annotated[Path, typer.Option(help="Released .npy of positions in the data frame.")],
    classes: Annotated[Path, typer.Option(help="Released .csv of WordNet ids, in that order.")],
    cap: Annotated[int, typer.Option(help="What classes were capped at.")] = 2000,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write a test set to; without it, only report."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the set; the folder's.")] = None,
    frame: Annotated[
        Path | None,
        typer.Option(help="Parquet file of the data frame, rows in its order: ids and columns."),
    ] = None,
    id_column: Annotated[
        str, typer.Option("--id", help="Column of the frame with image ids.")
    ] = "file_name",
    keep: Annotated[
        list[str] | None, typer.Option(help="Column of the frame that the set keeps; repeatable.")
    ] = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Released lists of CLIP-GeoYFCC: recover classes, count, and make a test set with -o."""
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace
    from heldout.curate.domains.parameters import EXCLUDED_45
    from heldout.curate.domains.released_lists import read_released, released_testset
    from heldout.data.testset import save
    from heldout.measure.score.records import Count

    Workspace.find(workspace)
    if to is None and frame is not None:
        raise UserError("--frame without --out", fix="name the folder of the set with -o")
    released = read_released(indices, classes, cap=cap)
    counts = dict(released.counts)
    largest = released.classes[: 45 + len(EXCLUDED_45)]
    counts["largest_without_exclusions"] = sum(name not in EXCLUDED_45 for name in largest)
    testset = name or (to.name if to is not None else indices.stem.replace("_", "-"))
    if to is not None:
        made = released_testset(
            released,
            name=testset,
            frame=None if frame is None else _read_frame(frame, id_column, keep or []),
            columns=keep or [],
        )
        saved = save(made, to, replace=replace)
        for text in saved.card.notes:
            note(text)
        say(f"{to}: {len(saved):,} images of {len(released.classes)} classes")
    emit([Count(name=n, value=v, testset=testset) for n, v in counts.items()], as_json=as_json)


def _read_frame(path: Path, id_column: str, keep: list[str]) -> Any:
    import pyarrow as pa

    from heldout.core.errors import NotFound
    from heldout.curate.domains.parquet_scan import open_rows
    from heldout.curate.domains.selection import id_texts

    rows = open_rows(path)
    missing = [name for name in (id_column, *keep) if name not in rows.schema.names]
    if missing:
        raise NotFound(
            f"{path} has no column {missing[0]!r}", fix=f"it has {', '.join(rows.schema.names)}"
        )

    def read(batch: Any, start: int) -> Any:
        columns = {"image_id": id_texts(batch.column(id_column))}
        return pa.table(columns | {name: batch.column(name) for name in keep})

    wanted = list(dict.fromkeys([id_column, *keep]))
    return pa.concat_tables(list(rows.scan(wanted, read)))
