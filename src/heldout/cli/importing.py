"""``heldout import``: test sets, truths, predictions and judgements from the world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import ClassesOption, JsonOption, ReplaceOption, WorkspaceOption


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
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.curate.domains.parameters import EXCLUDED_45
    from heldout.curate.domains.released_lists import read_released, released_testset
    from heldout.data.testset import save

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


app = typer.Typer(
    help="Bring in test sets, truths, predictions and judgements.", no_args_is_help=True
)


app.command("clip-geoyfcc")(import_clip_geoyfcc)


@app.command("testset")
def import_testset(
    paths: Annotated[
        list[Path], typer.Argument(help="Dataset files or image folders, one test set each.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the test set; from the file by default.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="imagenetv2, folders, cifar, table, imagenet-m, siscore; by the file's shape "
            "by default.",
        ),
    ] = "auto",
    classes: ClassesOption = None,
    reviews: Annotated[
        Path | None,
        typer.Option(help="ImageNetV2: folder with <name>_review.json files, or one file."),
    ] = None,
    blacklist: Annotated[
        Path | None, typer.Option(help="ImageNetV2: candidate_blacklist.json.")
    ] = None,
    class_names: Annotated[
        str,
        typer.Option(
            help="Folders and tables: classes are named by id, wnid, index or name; auto tells."
        ),
    ] = "auto",
    parent: Annotated[
        str | None,
        typer.Option(help="Lists of images (ImageNet-M): the test set that they are part of."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            help="SI-SCORE: its metadata.csv if not in the folder; or size, rotation, location: the "
            "published set whose ids tell what was varied."
        ),
    ] = None,
    folder_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Folders: column told by the folders that name no class, outermost first, such as "
            "domain for sketch/dog/1.png; repeatable."
        ),
    ] = None,
    id_column: Annotated[str, typer.Option(help="Tables: the column with image ids.")] = "image_id",
    class_column: Annotated[
        str, typer.Option(help="Tables: the column with classes.")
    ] = "class_id",
    several: Annotated[
        bool,
        typer.Option("--several", help="Tables: an image may have a row for each of its classes."),
    ] = False,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Tables: an image may have no class.")
    ] = False,
    separator: Annotated[
        list[str] | None,
        typer.Option(
            help="Tables: COLUMN=TEXT, a column of texts with several values in a cell and what "
            "stands between them, such as context=|; repeatable."
        ),
    ] = None,
    replace: ReplaceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Import test sets; no images are needed where a published list is enough.

    --classes folders and --classes table take the classes from the folders or the table itself.
    """
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace
    from heldout.data.importing import read_testset
    from heldout.data.testset import find_testset, save

    if name and len(paths) > 1:
        raise UserError(
            "--name is for one test set, several files are given", fix="leave out --name"
        )
    place = Workspace.find(workspace)
    for path in paths:
        testset = read_testset(
            path,
            name=name,
            form=form,
            classes=classes,
            reviews=reviews,
            blacklist=blacklist,
            class_names=class_names,
            id_column=id_column,
            class_column=class_column,
            parent=None if parent is None else find_testset(place, parent),
            metadata=metadata,
            folder_columns=folder_column or (),
            several=several,
            unlabelled=unlabelled,
            separators=dict(_separator(text) for text in separator or ()),
        )
        for text in testset.card.notes:
            note(f"{testset.name}: {text}")
        saved = save(testset, place.testsets / testset.name, replace=replace)
        say(
            f"{saved.name}: {len(saved):,} images of {saved.card.label_space}, "
            f"{saved.card.content_hash[:12]}"
        )


def _separator(text: str) -> tuple[str, str]:
    from heldout.core.errors import UserError

    column, _, between = text.partition("=")
    if not column or not between:
        raise UserError(f"{text!r} is no separator", fix="write COLUMN=TEXT, such as context=|")
    return column, between


@app.command("truth")
def import_truth(
    path: Annotated[
        Path,
        typer.Argument(help="multilabel.csv, human_accuracy JSON, real.json or scores.npz."),
    ],
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="The test set that gets the truth.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the truth; by its kind by default.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="multilabel, real, real-scores; by the file's shape by default."
        ),
    ] = "auto",
    cut: Annotated[float, typer.Option(help="ReaL scores: the cut at which a label counts.")] = 0.8,
    workspace: WorkspaceOption = None,
) -> None:
    """Add a truth to a test set; truths are only ever added, and no model runs again."""
    from heldout.core.workspace import Workspace
    from heldout.data.importing import read_truth
    from heldout.data.testset import add_truth, find_testset

    target = find_testset(Workspace.find(workspace), testset)
    imported = read_truth(path, target, form=form, cut=cut)
    chosen = name or imported.name
    grown = add_truth(target, chosen, imported.table, provenance=imported.provenance)
    for text in imported.notes:
        note(f"{path.name}: {text}")
    say(
        f"{grown.name}: truth {chosen} for {len(imported.table):,} images, now {grown.card.content_hash[:12]}"
    )


@app.command("predictions")
def import_predictions(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files of one test set (with -t), or one folder <set>/<model>.npy for many."
        ),
    ],
    testset: Annotated[
        str | None, typer.Option("--testset", "-t", help="The test set they are for.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name; the file's name by default.")
    ] = None,
    order: Annotated[
        str,
        typer.Option(help="Rows of NumPy files: testset, name, class, or a dataset file or list."),
    ] = "testset",
    classes: ClassesOption = None,
    array: Annotated[str | None, typer.Option(help="Which array of an .npz file.")] = None,
    repair: Annotated[
        bool, typer.Option(help="Turn columns stored worst first round, with a note.")
    ] = True,
    replace: ReplaceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Import outputs of models: top-k or logits, checked and filed under image ids."""
    from heldout.core.workspace import Workspace
    from heldout.models.predictions.import_predictions import import_files

    summary = import_files(
        paths,
        workspace=Workspace.find(workspace),
        testset=testset,
        model=model,
        order=order,
        classes=classes,
        array=array,
        repair=repair,
        replace=replace,
    )
    for text in summary.notes:
        note(text)
    for where, count in summary.counts.items():
        say(f"{where}: predictions of {count} models")


@app.command("judgements")
def import_judgements(
    path: Annotated[
        Path,
        typer.Argument(
            help="JSONL, CSV or Parquet of judgements, a queue that was filled in, or a published file."
        ),
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="table, queue, class-reviews, blacklist, near-duplicates, label-errors, mistakes; by "
            "the file's name and columns by default.",
        ),
    ] = "auto",
    testset: Annotated[
        str | None,
        typer.Option(
            "--testset",
            "-t",
            help="Refuse images and classes that this test set does not have; a queue names its own.",
        ),
    ] = None,
    who: Annotated[
        str | None, typer.Option(help="Queue: the reviewer, where the column who is empty.")
    ] = None,
    revise: Annotated[
        bool,
        typer.Option("--revise", help="Queue: answers replace what the same reviewer said before."),
    ] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Add people's answers to the one table of judgements."""
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.data.importing.judgements import import_judgement_file
    from heldout.data.testset import find_testset

    place = Workspace.find(workspace)
    found = import_judgement_file(
        path,
        place,
        form=form,
        testset=None if testset is None else find_testset(place, testset),
        who=who,
        revise=revise,
    )
    told = f"{path.name}: {found.added:,} judgements added, {found.known:,} known already"
    if found.empty:
        told += f", {found.empty:,} rows without an answer skipped"
    if found.replaced:
        told += f", {found.replaced:,} earlier answers replaced"
    say(told)
    if as_json:
        counts = {
            "n_added": found.added,
            "n_known": found.known,
            "n_empty": found.empty,
            "n_replaced": found.replaced,
        }
        emit([Count(name=name, value=value) for name, value in counts.items()], as_json=True)
