"""``heldout build contexts``: a test set of images in context."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import JsonOption, ReplaceOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.parameters import ContextsParameters
    from heldout.data.testset.pool import Pool

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
        int, typer.Option(help="A class must have more than so many subsets.")
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
        float, typer.Option(help="Overlaps below it are no edges of the graph.")
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
        "separator": separator,
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


def _pool(source: str | None, paths: list[Path], place: Workspace, options: dict[str, Any]) -> Pool:
    from heldout.core.errors import UserError

    if source is None:
        from heldout.data.testset.pool import find_pool

        if len(paths) > 1 or options:
            raise UserError(
                "several files, or options of a reader, without --source",
                fix="name the source: gqa, coco, table, …",
            )
        return find_pool(place, str(paths[0]))
    from heldout.core.progress import byte_progress
    from heldout.data.importing.pools import collect
    from heldout.data.published.options import ReaderOptions

    with byte_progress() as progress:
        found = collect(source, paths, options=ReaderOptions(**options), progress=progress)
    for problem in found.report.problems:
        note(problem.line)
    return found.pool


def _count(counts: Mapping[str, int], *, as_json: bool, testset: str | None = None) -> None:
    from heldout.measure.score.records import Count

    emit([Count(name=n, value=counts[n], testset=testset) for n in COUNTS], as_json=as_json)
