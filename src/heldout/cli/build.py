"""``heldout build``: make a test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, emit_json, note, out, print_table, say
from heldout.cli.options import (
    ExcludeOption,
    JsonOption,
    ModelOption,
    ReplaceOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace
    from heldout.curate.compose.build import BuildEstimate
    from heldout.curate.contexts.parameters import ContextsParameters
    from heldout.curate.domains.label_leakage import Leakage
    from heldout.curate.domains.selection import Step
    from heldout.data.testset import TestSet
    from heldout.measure.score.records import Record


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
    from heldout.data.importing.pools import collect
    from heldout.data.published.options import ReaderOptions

    with byte_progress() as progress:
        found = collect(source, paths, options=ReaderOptions(**options), progress=progress)
    for problem in found.report.problems:
        note(problem.line)
    return found.pool


def _count(counts: Mapping[str, int], *, as_json: bool, testset: str | None = None) -> None:
    from heldout.core.records import Count

    emit([Count(name=n, value=counts[n], testset=testset) for n in COUNTS], as_json=as_json)


SHOWN_CLASSES = 12
"""Classes of the leakage table that a person is shown; the document has all."""


def domains(
    pool: Annotated[
        str,
        typer.Option(
            "--pool", "-p", help="Parquet file, folder of Parquet files, pool or test set."
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; in the workspace by default."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the set; from the folder or pool by default.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="clip-geoyfcc-350, clip-geoyfcc-45 or geoyfcc; flags win."),
    ] = None,
    similarity: Annotated[
        str | None, typer.Option(help="Column that rows are ranked by, greatest first.")
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="Column of domains; domain by default.")
    ] = None,
    class_column: Annotated[
        str | None,
        typer.Option(
            "--class", help="Column of classes, or truth:NAME of a pool; class_id by default."
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id", help="Column of ids; image_id, row_id, yfcc_row_id or id by default."),
    ] = None,
    label_space: Annotated[
        str | None,
        typer.Option(
            help="Label space: a name, a file, or chosen (only classes that are kept); the pool's, "
            "imagenet-21k or one of its own by default."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column that the set keeps; repeatable; all by default."),
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Keep this many rows of the greatest similarity; ties by id.")
    ] = None,
    only_domain: Annotated[
        list[str] | None, typer.Option("--only-domain", help="Only this domain; repeatable.")
    ] = None,
    min_domain_share: Annotated[
        float | None, typer.Option(help="Least share of the rows a domain must have, 0 to 1.")
    ] = None,
    min_domain: Annotated[int | None, typer.Option(help="Rows that a domain must have.")] = None,
    domain_cap: Annotated[
        int | None, typer.Option(help="Rows kept of a domain at most, drawn by the seed.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="Class left out: CLASS=REASON, or a CSV of class_id, reason; repeatable."
        ),
    ] = None,
    min_class_domains: Annotated[
        int | None, typer.Option(help="Domains in which a class must have rows.")
    ] = None,
    max_class_share: Annotated[
        float | None, typer.Option(help="Most that one domain may hold of a class, 0 to 1.")
    ] = None,
    min_class: Annotated[int | None, typer.Option(help="Rows that a class must have.")] = None,
    classes: Annotated[
        int | None, typer.Option(help="Keep this many classes, the largest; ties by id.")
    ] = None,
    cap: Annotated[
        int | None, typer.Option(help="Rows kept of a class at most, drawn by the seed.")
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(help="Column whose images belong together, such as uid: for intervals."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Column split: flag:COLUMN, domain:A,B or values:COLUMN=A,B (held out), rows, "
            "group:COLUMN (such as uid: nobody in two parts), stratified:COLUMN (the same, with "
            "shares met in every class and domain)."
        ),
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="Part of rows and group splits, NAME=SHARE; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the caps and of drawn splits.")] = 0,
    workers: Annotated[
        int | None, typer.Option(help="Threads; all cores, at most eight, by default.")
    ] = None,
    replace: ReplaceOption = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only count; write nothing.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """The best rows, large domains and classes only, each capped (CLIP-GeoYFCC).

    Any number of rows in bounded memory; the same rows whatever their order, files or threads.
    """
    from heldout.core.errors import UserError
    from heldout.core.progress import image_progress
    from heldout.core.workspace import Workspace
    from heldout.curate.build import build_recipe
    from heldout.curate.domains.parameters import DomainsParameters, read_exclusions
    from heldout.curate.domains.parameters import preset as read_preset
    from heldout.curate.domains.recipe import find_candidates, recipe
    from heldout.curate.parameters import from_dict

    given: dict[str, Any] = {
        "id": id_column,
        "class_column": class_column,
        "domain": domain,
        "similarity": similarity,
        "label_space": label_space,
        "keep": keep or None,
        "top": top,
        "domains": only_domain or None,
        "min_domain_share": min_domain_share,
        "min_domain": min_domain,
        "domain_cap": domain_cap,
        "exclude": read_exclusions(exclude or []) or None,
        "min_class_domains": min_class_domains,
        "max_class_share": max_class_share,
        "min_class": min_class,
        "classes": classes,
        "cap": cap,
        "clusters": clusters,
        "split": split,
        "parts": part or None,
    }
    values = {} if preset is None else read_preset(preset)
    values |= {key: value for key, value in given.items() if value is not None}
    parameters = from_dict(DomainsParameters, values)
    if part and parameters.split is None:
        raise UserError(
            "--part without --split", fix="say how rows are split, such as --split rows"
        )
    place = Workspace.find(workspace)
    source = find_candidates(place, pool, parameters, workers=workers)
    if plan:
        with image_progress("domains", what="rows read") as progress:
            found = recipe.plan({"pool": source}, parameters, seed=seed, progress=progress)
        for text in found.notes:
            note(text)
        emit(
            count_records(found.steps, len(source)),
            as_json=as_json,
            show=lambda _: show_steps(found.steps),
        )
        return
    folder = to or place.testsets / (name or f"{source.name}-domains")
    with image_progress("domains", what="rows read") as progress:
        testset, (steps, told) = build_recipe(
            recipe,
            source,
            folder=folder,
            runs=place.runs,
            parameters=parameters,
            seed=seed,
            name=name,
            progress=progress,
            replace=replace,
        )
    for text in testset.card.notes:
        note(text)
    records = [
        *count_records(steps, len(source), testset=testset.name),
        *leakage_records(told, testset.name, parameters.domain),
    ]

    def show(_: Sequence[Record]) -> None:
        show_steps(steps)
        show_leakage(told)

    emit(records, as_json=as_json, show=show)
    say(
        f"{folder}: {len(testset):,} images of {testset.card.counts['classes']} classes in "
        f"{len(told.domains)} domains, {testset.card.content_hash[:12]}"
    )


def count_records(steps: Sequence[Step], rows: int, *, testset: str | None = None) -> list[Record]:
    """Rows before any rule, then rows, classes and domains after each, then sizes of classes."""
    from heldout.core.records import Count

    counts: dict[str, int] = {"rows": rows}
    for step in steps:
        counts[step.name] = step.rows_out
        for what, number in (("classes", step.classes_out), ("domains", step.domains_out)):
            if number is not None:
                counts[f"{step.name}_{what}"] = number
    last = steps[-1]
    counts |= {
        "images": last.rows_out,
        "classes": last.classes_out or 0,
        "domains": last.domains_out or 0,
    }
    for step in steps:
        for key in ("tied", "tied_cut", "at_cap"):
            detail = step.details.get(key)
            if isinstance(detail, int):
                counts[f"{step.name}_{key}"] = detail
    for key in ("smallest", "largest"):
        size = last.details[key]
        if isinstance(size, int):
            counts[f"{key}_class"] = size
    return [Count(name=key, value=value, testset=testset) for key, value in counts.items()]


def leakage_records(told: Leakage, testset: str, domain: str) -> list[Record]:
    """What labels tell about domains, as records."""
    from heldout.core.records import Count
    from heldout.measure.score.records import Summary
    from heldout.stats.intervals import wilson

    def number(name: str, value: float, **more: Any) -> Summary:
        return Summary(
            model=None,
            testset=testset,
            truth="original",
            metric="leakage",
            columns=domain,
            name=name,
            n=told.n,
            value=value,
            **more,
        )

    interval = wilson(round(told.guessed * told.n), told.n)
    return [
        number("domain_entropy", told.domain_entropy),
        number("information", told.information),
        number("explained", told.explained),
        number(
            "guessed_from_label",
            told.guessed,
            low=float(interval.low),
            high=float(interval.high),
            interval=interval.method,
            level=interval.level,
        ),
        number("guessed_without", told.base),
        *(
            Count(name=f"classes_over_{share}_in_one_domain", value=value, testset=testset)
            for share, value in told.concentrated.items()
        ),
        Count(
            name="demonyms",
            value=sum(leak.suspicion.demonym for leak in told.classes),
            testset=testset,
        ),
        Count(
            name="homonyms",
            value=sum(leak.suspicion.homonym for leak in told.classes),
            testset=testset,
        ),
    ]


def show_steps(steps: Sequence[Step]) -> None:
    """The rules as a table."""

    def text(number: int | None) -> str:
        return "" if number is None else f"{number:,}"

    print_table(
        "",
        ("rule", "rows in", "rows out", "classes", "domains", ""),
        [
            (
                step.name.replace("_", " "),
                text(step.rows_in),
                text(step.rows_out),
                text(step.classes_out),
                text(step.domains_out),
                ", ".join(
                    f"{key.replace('_', ' ')} {value:.9g}"
                    for key, value in step.details.items()
                    if isinstance(value, int | float) and not isinstance(value, bool)
                ),
            )
            for step in steps
        ],
    )


def show_leakage(told: Leakage) -> None:
    """What labels tell about domains, for a person."""
    out(
        f"labels tell {told.information:.3f} of {told.domain_entropy:.3f} bits of the domain "
        f"({100 * told.explained:.1f} %); guessed from the label {100 * told.guessed:.1f} % of the "
        f"time, {100 * told.base:.1f} % without"
    )
    print_table(
        "",
        ("class", "name", "images", "in one domain", "share", "lift", "name stands for"),
        [
            (
                leak.class_id,
                leak.name,
                f"{leak.n:,}",
                leak.domain,
                f"{100 * leak.share:.1f} [{100 * leak.low:.1f}, {100 * leak.high:.1f}]",
                f"{leak.lift:.1f}",
                leak.suspicion.text,
            )
            for leak in told.classes[:SHOWN_CLASSES]
        ],
        left=2,
    )


def hard(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set to choose from: name, alias or path.")
    ] = "",
    model: ModelOption = None,
    wrong: Annotated[
        int | None, typer.Option(help="Models that must be wrong; all of them by default.")
    ] = None,
    major: Annotated[
        int | None,
        typer.Option(
            help="Models whose mistake the panel must call Major; as many as --wrong by default."
        ),
    ] = None,
    severity: Annotated[
        list[str] | None,
        typer.Option(help="Severity that counts; repeatable; Major by default."),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(help="Truth that says what is right; the multi-label one by default."),
    ] = None,
    rule: Annotated[
        str, typer.Option(help="majority, plurality, unanimous, threshold or dawid-skene.")
    ] = "majority",
    share: Annotated[
        float | None, typer.Option(help="Share of votes, for threshold and dawid-skene.")
    ] = None,
    people: Annotated[int, typer.Option(min=1, help="People that a ruling needs.")] = 1,
    every_label: Annotated[
        bool,
        typer.Option(
            "--every-label/--some-labels",
            help="Drop images with a prediction of these models that nobody has reviewed.",
        ),
    ] = True,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; in the workspace by default."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the set; TESTSET-hard by default.")
    ] = None,
    exclude: ExcludeOption = None,
    replace: ReplaceOption = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only count; write nothing.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Images that k of n models get wrong, plainly so for a panel, every label reviewed (ImageNet-M).

    Judgements come from the workspace: heldout mistakes queue --aim hard asks for them.
    """
    from heldout.core.errors import UserError
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.curate.build import run_recipe
    from heldout.curate.hard import first_guesses, judged, recipe
    from heldout.curate.parameters import from_dict
    from heldout.curate.recipe import Source
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.data.testset import find_testset
    from heldout.measure.evaluation.flow import stored_predictions

    if not testset:
        raise UserError("no test set is named", fix="name it with -t")
    place = Workspace.find(workspace)
    parent = find_testset(place, testset)
    kinds = [n for n, where in parent.card.truths.items() if where.get("kind") == "multilabel"]
    given: dict[str, Any] = {
        "wrong": wrong,
        "major": major,
        "severities": severity or None,
        "truth": truth or (kinds[0] if kinds else parent.card.default_truth),
        "rule": rule,
        "share": share,
        "people": people,
        "every_label": every_label,
    }
    parameters = from_dict(
        recipe.parameters, {key: value for key, value in given.items() if value is not None}
    )
    chosen = [text for text in model or [] if text != "all"]
    sources: dict[str, Source] = {
        "pool": parent,
        "predictions": first_guesses(
            parent, stored_predictions(parent, chosen, workspace=place, exclude=exclude or ())
        ),
        "judgements": judged(
            judgements_about(parent, place.judgements), parent.image_ids.to_pylist()
        ),
    }
    if plan:
        found = recipe.plan(sources, parameters)
        counts = {"pool": len(parent), **found.counts, "images": len(found.images)}
        counts["waiting"] = len(found.waiting)
        emit(
            [Count(name=stage, value=n, testset=parent.name) for stage, n in counts.items()],
            as_json=as_json,
        )
        return
    folder = to or place.testsets / (name or f"{parent.name}-hard")
    made = run_recipe(
        recipe,
        sources,
        folder=folder,
        runs=place.runs,
        parameters=parameters,
        name=name,
        replace=replace,
    )
    for text in made.card.notes:
        note(text)
    emit(
        [Count(name=n, value=value, testset=made.name) for n, value in made.card.counts.items()],
        as_json=as_json,
    )
    say(
        f"{folder}: {len(made):,} images of {made.card.counts['classes']} classes, "
        f"{made.card.content_hash[:12]}"
    )


app = typer.Typer(help="Make a test set.", no_args_is_help=True)


@app.callback()
def _build() -> None:
    pass


app.command("contexts")(contexts)
app.command("domains")(domains)
app.command("hard")(hard)


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
