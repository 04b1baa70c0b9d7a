"""``heldout build domains``: a balanced test set over domains from ranked candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, note, out, print_table, say
from heldout.cli.options import JsonOption, ReplaceOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.curate.domains.label_leakage import Leakage
    from heldout.curate.domains.selection import Step
    from heldout.measure.score.records import Record

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
        int | None, typer.Option(help="Keep so many rows of the greatest similarity; ties by id.")
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
        int | None, typer.Option(help="Keep so many classes, the largest; ties by id.")
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
    """The best rows, large domains and classes only, at most so many of each (CLIP-GeoYFCC).

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
    from heldout.measure.score.records import Count

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
    from heldout.measure.score.records import Count, Summary
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
