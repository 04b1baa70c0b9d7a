"""``heldout build``: make a test set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, emit_json, note, out, print_table, say
from heldout.cli.options import (
    JsonOption,
    ReplaceOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace
    from heldout.curate.compose.build import BuildEstimate
    from heldout.curate.contexts.parameters import ContextsParameters
    from heldout.data.testset import TestSet


COUNTS = (
    "subsets",
    "subjects",
    "contexts",
    "images",
    "subsets_at_minimum",
    "subjects_at_minimum",
    "images_at_minimum",
    "classes_above_minimum",
    "subsets_kept",
    "images_kept",
)
"""The count records, in order; docs say what each counts."""


def contexts(
    paths: Annotated[
        list[Path], typer.Argument(help="Files of the source; without --source, one pool.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            help="gqa, visual-genome, coco, coco-captions, metashift or table; "
            "without it, PATHS is a pool that heldout collect wrote."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; in the workspace by default."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the set; from the folder or source by default.")
    ] = None,
    cooccurrence: Annotated[
        bool,
        typer.Option("--cooccurrence", help="Only contexts that are objects in the same image."),
    ] = False,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="Contexts, by commas: object, stated (attributes, published subsets), general; "
            "all by default, stated alone for metashift."
        ),
    ] = None,
    objects: Annotated[
        list[str] | None,
        typer.Option(help="Membership of names that images show; repeatable; object by default."),
    ] = None,
    stated: Annotated[
        list[str] | None,
        typer.Option(
            help="Membership written subject(context), such as relation; repeatable; attribute and "
            "subset by default."
        ),
    ] = None,
    general: Annotated[
        list[str] | None,
        typer.Option(help="Membership or column of places, weather, …; repeatable."),
    ] = None,
    both_ways: Annotated[
        bool,
        typer.Option("--both-ways", help="General and stated contexts are subjects too."),
    ] = False,
    minimum: Annotated[int, typer.Option(help="Images that a subset must have.")] = 25,
    more_than: Annotated[
        int, typer.Option(help="A class must have more than this many subsets.")
    ] = 5,
    subject: Annotated[
        list[str] | None,
        typer.Option(help="Only this subject: a word, glob or @group; repeatable."),
    ] = None,
    context: Annotated[
        list[str] | None, typer.Option(help="Only this context; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="No such subsets: 'cat(dog)', '*(@body part)'; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="These contexts with these subjects only: '@person(@clothing)'."),
    ] = None,
    ambiguity: Annotated[
        str | None, typer.Option(help="Images of two classes: keep (the default) or drop.")
    ] = None,
    ambiguous: Annotated[
        list[str] | None,
        typer.Option(help="Classes that exclude each other, cat+dog; repeatable."),
    ] = None,
    hierarchy: Annotated[
        Path | None,
        typer.Option(help="JSON of parent -> children, for @groups and --roll-up."),
    ] = None,
    roll_up: Annotated[
        str | None,
        typer.Option(help="Words also count as their parents (add), or as these only (replace)."),
    ] = None,
    synonyms: Annotated[
        Path | None, typer.Option(help="JSON of word -> its synonyms, or word -> kept word.")
    ] = None,
    plurals: Annotated[
        bool, typer.Option("--plurals", help="Plurals count as singulars that are there.")
    ] = False,
    min_box_area: Annotated[
        float, typer.Option(help="Least share of the image that an object's box covers, 0 to 1.")
    ] = 0.0,
    id_column: Annotated[
        str | None, typer.Option(help="Tables: the column with image ids; image_id by default.")
    ] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(help="Tables: a column of tags, COLUMN or COLUMN=MEMBERSHIP; repeatable."),
    ] = None,
    separator: Annotated[
        str | None, typer.Option(help="Tables: what stands between the tags of one cell.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Label space that subjects are classes of; own by default.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Overlaps below it are not edges of the graph.")
    ] = 0.2,
    communities: Annotated[str, typer.Option(help="greedy (as published) or louvain.")] = "greedy",
    seed: Annotated[int, typer.Option(help="Seed of louvain communities.")] = 0,
    replace: ReplaceOption = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only count; write nothing.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Subsets subject(context) from metadata (MetaShift and past it).

    Readers have more options in heldout collect, which writes a pool to build from.
    """
    from heldout.core.workspace import Workspace, check_slug, slug
    from heldout.curate.build import build_recipe
    from heldout.curate.contexts.recipe import recipe
    from heldout.curate.contexts.vocabulary import hierarchy_rules, synonym_rules
    from heldout.curate.parameters import from_dict

    if name is not None:
        check_slug(name, "a test set")
    given: dict[str, Any] = {
        "kinds": _kinds(source, kinds, cooccurrence=cooccurrence),
        "objects": objects or [text.rpartition("=")[2] for text in tags or []] or None,
        "stated": stated or None,
        "general": general or None,
        "both_ways": both_ways,
        "minimum": minimum,
        "more_than": more_than,
        "subjects": subject or None,
        "contexts": context or None,
        "exclude": exclude or None,
        "only": only or None,
        "ambiguity": ambiguity or ("pairs" if ambiguous else None),
        "pairs": ambiguous or None,
        "hierarchy": None if hierarchy is None else list(hierarchy_rules(hierarchy)),
        "roll_up": roll_up,
        "synonyms": None if synonyms is None else list(synonym_rules(synonyms)),
        "plurals": plurals,
        "classes": classes,
        "threshold": threshold,
        "communities": communities,
    }
    parameters: ContextsParameters = from_dict(
        recipe.parameters, {key: value for key, value in given.items() if value is not None}
    )
    place = Workspace.find(workspace)
    options = {
        "min_box_area": min_box_area,
        "id_column": id_column,
        "tags": tuple(tags or ()),
        "separators": {text.partition("=")[0]: separator for text in tags or () if separator},
    }
    pool = _pool(source, paths, place, {key: value for key, value in options.items() if value})
    if plan:
        _count(recipe.plan({"pool": pool}, parameters).counts, as_json=as_json)
        return
    folder = to or place.testsets / (name or f"{pool.name}-contexts")
    testset, counts = build_recipe(
        recipe,
        pool,
        folder=folder,
        runs=place.runs,
        parameters=parameters,
        seed=seed,
        name=name or slug(folder.resolve().name),
        replace=replace,
    )
    for text in testset.card.notes:
        note(text)
    _count(counts, as_json=as_json, testset=testset.name)
    say(
        f"{folder}: {len(testset):,} images of {testset.card.counts['classes']} classes, "
        f"{testset.card.content_hash[:12]}"
    )


def _kinds(source: str | None, kinds: str | None, *, cooccurrence: bool) -> list[str] | None:
    from heldout.core.errors import UserError

    if cooccurrence and kinds is not None:
        raise UserError("--cooccurrence and --kinds", fix="give one of them")
    if cooccurrence:
        return ["object"]
    if kinds is not None:
        return [part.strip() for part in kinds.split(",") if part.strip()]
    return ["stated"] if source == "metashift" else None


def _pool(
    source: str | None, paths: list[Path], place: Workspace, options: dict[str, Any]
) -> TestSet:
    from heldout.core.errors import UserError

    if source is None:
        from heldout.data.testset import find_pool

        if len(paths) > 1 or options:
            raise UserError(
                "several files, or options of a reader, without --source",
                fix="name the source: gqa, coco, table, …",
            )
        return find_pool(place, str(paths[0]))
    from heldout.core.progress import byte_progress
    from heldout.data.importing.pools import read_metadata, report_of

    with byte_progress() as progress:
        found = read_metadata(source, paths, progress=progress, **options)
    for problem in report_of(found).problems:
        note(problem.line)
    return found


def _count(counts: Mapping[str, int], *, as_json: bool, testset: str | None = None) -> None:
    from heldout.core.records import Count

    emit([Count(name=n, value=counts[n], testset=testset) for n in COUNTS], as_json=as_json)


app = typer.Typer(help="Make a test set.", no_args_is_help=True)


@app.callback()
def _build() -> None:
    pass


app.command("contexts")(contexts)


@app.command("compose")
def compose(
    config: Annotated[
        Path | None,
        typer.Argument(help="TOML file: keys equal flags, factors in [factors]; flags win."),
    ] = None,
    foregrounds: Annotated[
        Path | None, typer.Option(help="Folder of cut-outs with alpha: CLASS/FILE.")
    ] = None,
    backgrounds: Annotated[Path | None, typer.Option(help="Folder of backgrounds.")] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; in the workspace by default."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="size, rotation, location, demo: SI-SCORE's grids; or custom."),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            "-f",
            help="KEY=VALUES, such as size=0.1,0.2, x=0:1:0.05 or blur=0,2; repeatable; x, y, "
            "size, rotation and every registered factor.",
        ),
    ] = None,
    backgrounds_per_object: Annotated[
        int | None, typer.Option(help="Backgrounds that each object is put on; 2 by default.")
    ] = None,
    min_inside: Annotated[
        float | None,
        typer.Option(
            help="Drop images with less of the object's box inside, 0 to 1; "
            "0.95 by default, 0 for location."
        ),
    ] = None,
    keep_empty: Annotated[
        bool | None, typer.Option("--keep-empty", help="Keep images without any of the object.")
    ] = None,
    resolution: Annotated[
        list[str] | None,
        typer.Option(help="Size of images, 512 or 640x480; repeatable; 512, 500 for location."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the pairs and of all chance; 0 by default.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="What folders stand for: siscore (its 112 names, then ids and names of --classes), "
            "folders (classes of their own), or a TOML, JSON or CSV file of name and class ids."
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Label space of the classes; imagenet-1k by default.")
    ] = None,
    renderer: Annotated[
        str | None, typer.Option(help="exact: the original's pixels; fast: close to them.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="plain, or siscore: the original's folders and CSV files.")
    ] = None,
    image_format: Annotated[
        str | None, typer.Option("--format", help="jpeg, png or webp; jpeg by default.")
    ] = None,
    quality: Annotated[
        int | None, typer.Option(help="Of JPEG and WebP, 1 to 100; 75 by default.")
    ] = None,
    exif: Annotated[
        bool | None, typer.Option("--exif/--no-exif", help="Turn inputs as their EXIF says.")
    ] = None,
    foregrounds_licence: Annotated[
        str | None, typer.Option(help="Licence of cut-outs without one in their attributions.")
    ] = None,
    backgrounds_licence: Annotated[
        str | None, typer.Option(help="Licence of backgrounds without one in their attributions.")
    ] = None,
    foregrounds_attributions: Annotated[
        Path | None,
        typer.Option(
            help="CSV, JSON or TOML: file, licence, attribution, source; "
            "attributions.* in the folder by default."
        ),
    ] = None,
    backgrounds_attributions: Annotated[
        Path | None, typer.Option(help="The same for backgrounds.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; all cores by default.")
    ] = None,
    replace: ReplaceOption = False,
    dry_run: Annotated[
        bool, typer.Option("--plan", help="Only count, and say how long and how large.")
    ] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Objects on backgrounds, every factor controlled (SI-SCORE and past it)."""
    from heldout.core.progress import image_progress
    from heldout.core.workspace import Workspace, slug
    from heldout.curate.compose.build import build_compose, estimate
    from heldout.curate.compose.request import make_request, read_config, with_factors

    flags: dict[str, Any] = {
        "foregrounds": foregrounds,
        "backgrounds": backgrounds,
        "preset": preset,
        "backgrounds_per_object": backgrounds_per_object,
        "min_inside": min_inside,
        "keep_empty": keep_empty,
        "resolution": resolution or None,
        "seed": seed,
        "labels": labels,
        "classes": classes,
        "renderer": renderer,
        "layout": layout,
        "format": image_format,
        "quality": quality,
        "exif": exif,
        "foregrounds_licence": foregrounds_licence,
        "backgrounds_licence": backgrounds_licence,
        "foregrounds_attributions": foregrounds_attributions,
        "backgrounds_attributions": backgrounds_attributions,
    }
    values = {} if config is None else read_config(config)
    values |= {key: value for key, value in flags.items() if value is not None}
    values = with_factors(values, _factors(factor or []))
    if config is not None:
        values.setdefault("name", config.stem)
    request = make_request(values, where="" if config is None else str(config))
    if dry_run:
        _show_estimate(estimate(request), as_json=as_json)
        return
    place = Workspace.find(workspace)
    folder = to or place.testsets / slug(request.title)
    with image_progress(folder.name) as progress:
        made = build_compose(
            request, folder, runs=place.runs, workers=workers, progress=progress, replace=replace
        )
    for text in made.notes:
        note(text)
    card = made.testset.card
    if as_json:
        emit_json([{"record": "count", "name": n, "value": v} for n, v in card.counts.items()])
    state = "unchanged" if made.unchanged else "written"
    say(
        f"{folder}: {len(made.testset):,} images of {card.counts['classes']} classes, "
        f"{card.counts['candidates']:,} candidates, {state}"
    )


def _factors(texts: list[str]) -> dict[str, Any]:
    from heldout.core.errors import UserError
    from heldout.curate.compose.request import read_values

    found: dict[str, Any] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UserError(f"{text!r} is no factor", fix="write KEY=VALUES, such as size=0.1,0.2")
        if key in found:
            raise UserError(f"factor {key} is given twice", fix="give it once")
        found[key] = read_values(rest, f"factor {key}")
    return found


def _show_estimate(found: BuildEstimate, *, as_json: bool) -> None:
    from heldout.core.progress import format_seconds

    for text in found.notes:
        note(text)
    if as_json:
        rows: dict[str, float] = dict(found.counts)
        for key, counts in (("class", found.classes), *found.values.items()):
            rows |= {f"images {key}={value}": n for value, n in counts.items()}
        rows |= {"bytes": found.bytes, "seconds": found.seconds}
        emit_json([{"record": "count", "name": n, "value": v} for n, v in rows.items()])
        return
    print_table("", ("count", "n"), [(name, f"{n:,}") for name, n in found.counts.items()])
    for key, counts in (("class", found.classes), *found.values.items()):
        _show_values(key, counts)
    out(
        f"about {found.bytes / 1e6:,.1f} MB and {format_seconds(found.seconds)} of one processor "
        f"({found.counts['images'] / max(found.seconds, 1e-9):,.0f} images a second)"
    )


def _show_values(key: str, counts: Mapping[str, int]) -> None:
    """Images by value; of many values, runs of equal counts together."""
    rows: list[tuple[str, str, int, int]] = []
    for value, n in counts.items():
        if rows and rows[-1][2] == n and len(counts) > 12:
            rows[-1] = (rows[-1][0], value, n, rows[-1][3] + 1)
        else:
            rows.append((value, value, n, 1))
    shown = [
        (f"{first} … {last} ({many} values)" if many > 1 else first, f"{n:,}")
        for first, last, n, many in rows
    ]
    print_table("", (key, "images"), shown)
