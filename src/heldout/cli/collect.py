"""``heldout collect``: metadata about images into a pool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import JsonOption, ReplaceOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.data.published.pool_builder import Report
    from heldout.data.published.tag_tables import Keywords


def collect(
    source: Annotated[
        str,
        typer.Argument(
            help="gqa, visual-genome, coco, coco-captions, metashift, table, yfcc, geoyfcc or "
            "domainnet."
        ),
    ],
    paths: Annotated[
        list[Path], typer.Argument(help="Its files; .zip and .gz are read too, for yfcc .bz2.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the pool; from the source by default.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder to write; in the workspace by default. yfcc, geoyfcc, domainnet: or a "
            ".parquet file of rows.",
        ),
    ] = None,
    min_box_area: Annotated[
        float, typer.Option(help="Least share of the image that an object's box covers, 0 to 1.")
    ] = 0.0,
    min_score: Annotated[
        float, typer.Option(help="Detections, autotags: least score that counts, 0 to 1.")
    ] = 0.0,
    ontology: Annotated[
        Path | None,
        typer.Option(help="Attributes to keep, with categories: JSON, or CSV attribute,category."),
    ] = None,
    places: Annotated[
        Path | None,
        typer.Option(help="Objects that are places, and so general contexts too: one a line."),
    ] = None,
    relations: Annotated[
        bool, typer.Option("--relations", help="Also gather subject(predicate object).")
    ] = False,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Captions: only these words and phrases, one a line.")
    ] = None,
    fold_plurals: Annotated[
        bool, typer.Option("--fold-plurals", help="Captions: plurals count as their singulars.")
    ] = False,
    contexts: Annotated[
        str, typer.Option(help="MetaShift: contexts are attribute or object names; auto tells.")
    ] = "auto",
    id_column: Annotated[str, typer.Option(help="Tables: the column with image ids.")] = "image_id",
    tags: Annotated[
        list[str] | None,
        typer.Option(help="Tables: a column of tags, COLUMN or COLUMN=MEMBERSHIP; repeatable."),
    ] = None,
    flags: Annotated[
        list[str] | None,
        typer.Option(help="Tables: a column of true and false, or a pattern; repeatable."),
    ] = None,
    words: Annotated[
        list[str] | None, typer.Option(help="Tables: a column of sentences; repeatable.")
    ] = None,
    separator: Annotated[
        str | None, typer.Option(help="Tables: what stands between the tags of one cell.")
    ] = None,
    keywords: Annotated[
        str | None,
        typer.Option(
            help="yfcc: only photos with a tag that names a class: a label space, in5k_map.json, "
            "{class: [words]} or CSV class_id,keyword."
        ),
    ] = None,
    without: Annotated[
        str | None, typer.Option(help="With --keywords: a label space whose classes do not count.")
    ] = None,
    countries: Annotated[
        Path | None,
        typer.Option(help="yfcc, geoyfcc: CSV country,continent put over the built-in table."),
    ] = None,
    coordinates: Annotated[
        str,
        typer.Option(
            help="yfcc: coordinates tell the country where places do not (fallback), are compared "
            "with places too (check), or are off."
        ),
    ] = "fallback",
    quarantine: Annotated[
        Path | None, typer.Option(help="yfcc: write malformed rows to this file of JSON lines.")
    ] = None,
    pickle: Annotated[
        bool,
        typer.Option("--pickle", help="geoyfcc: read a pickle, without running anything in it."),
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option(help="yfcc, geoyfcc, domainnet: the folder with the image files."),
    ] = None,
    subsets: Annotated[
        Path | None,
        typer.Option(help="Also write {subject(context): ids} to this JSON file."),
    ] = None,
    structured: Annotated[
        bool,
        typer.Option(
            "--structured", help="With --subsets: nested as category, subject, attribute."
        ),
    ] = False,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Read metadata about images into a pool: objects, attributes, places, words, tags."""
    from heldout.core.errors import EXIT_FAILED_IMAGES
    from heldout.core.progress import byte_progress
    from heldout.core.workspace import Workspace
    from heldout.data.importing.pools import collect as read
    from heldout.data.importing.pools import collect_table
    from heldout.data.published.countries import read_countries
    from heldout.data.published.metashift import write_subsets
    from heldout.data.published.options import ReaderOptions, read_ontology, read_words
    from heldout.data.testset.testset import save

    options = ReaderOptions(
        min_box_area=min_box_area,
        min_score=min_score,
        ontology=None if ontology is None else read_ontology(ontology),
        places=frozenset() if places is None else read_words(places),
        relations=relations,
        vocabulary=None if vocabulary is None else read_words(vocabulary),
        fold_plurals=fold_plurals,
        contexts=contexts,  # type: ignore[arg-type]  # checked by the options themselves
        id_column=id_column,
        tags=tuple(tags or ()),
        flags=tuple(flags or ()),
        words=tuple(words or ()),
        separator=separator,
        keywords=_keywords(keywords, without),
        countries=None if countries is None else read_countries(countries),
        coordinates=coordinates,  # type: ignore[arg-type]  # checked by the options themselves
        quarantine=quarantine,
        pickle=pickle,
        images=images,
    )
    if to is not None and to.suffix == ".parquet":
        with byte_progress() as progress:
            report = collect_table(
                source, paths, to, options=options, progress=progress, replace=replace
            )
        _tell(report, as_json=as_json)
        say(f"{to}: {report.counts['images']:,} rows")
        if report.lost_images:
            raise typer.Exit(EXIT_FAILED_IMAGES)
        return
    with byte_progress() as progress:
        found = read(source, paths, name=name, options=options, progress=progress)
    folder = to or Workspace.find(workspace).pools / found.pool.name
    pool = save(found.pool, folder, replace=replace)
    if subsets is not None:
        write_subsets(pool, subsets, structured=structured)
    _tell(found.report, as_json=as_json)
    say(f"{pool.name}: {len(pool):,} images, {folder}, {pool.content_hash[:12]}")
    if found.report.lost_images:
        raise typer.Exit(EXIT_FAILED_IMAGES)


def _tell(report: Report, *, as_json: bool) -> None:
    from heldout.core.records import Count

    for problem in report.problems:
        note(problem.line)
    emit([Count(name=key, value=value) for key, value in report.counts.items()], as_json=as_json)


def _keywords(argument: str | None, without: str | None) -> Keywords | None:
    from heldout.core.errors import UserError
    from heldout.data.published.tag_tables import read_keywords

    if argument is None:
        if without is not None:
            raise UserError("--without has no meaning without --keywords", fix="leave it out")
        return None
    return read_keywords(argument, without=without)
