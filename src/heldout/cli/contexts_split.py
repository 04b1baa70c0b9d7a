"""``heldout contexts split``: train, validation and test parts with a chosen shift."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli import contexts_domains
from heldout.cli.console import emit, note, say
from heldout.cli.contexts_saving import (
    AllowLicenceOption,
    FoldersOption,
    ImageFilesOption,
    OutOption,
    TestsetArgument,
    find_subsets,
    finish,
    group_names,
    save_and_count,
)
from heldout.cli.options import JsonOption, ReplaceOption, SeedOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.curate.contexts.subpopulation import Ambiguous

app = typer.Typer(
    help="Split images in context: train, validation and test with a chosen shift.",
    no_args_is_help=True,
)
app.command("domain")(contexts_domains.domain)
app.command("search")(contexts_domains.search)

GroupsOption = Annotated[
    Path,
    typer.Option(
        "--groups", help="Table with the columns image and group; group is class(context)."
    ),
]
AmbiguousOption = Annotated[
    str,
    typer.Option(
        help="Images in two groups: refuse; drop; or published, which drops those of two classes and "
        "leaves others in the group named first."
    ),
]
SubpopbenchOption = Annotated[
    str | None,
    typer.Option(
        help="Also write subpopbench.csv with file names of this form, such as 'images/{image}.jpg'."
    ),
]


@app.callback()
def _split() -> None:
    pass


@app.command("subpopulation")
def subpopulation(
    groups: GroupsOption,
    minority_groups: Annotated[
        str,
        typer.Option(help="The rare group of each class, such as 'cat(outdoor),dog(indoor)'."),
    ],
    minority_count: Annotated[
        int, typer.Option(help="Images of its minority group that a class trains on.")
    ],
    test_size: Annotated[int, typer.Option(help="Images of each group in the test.")],
    to: OutOption,
    majority_groups: Annotated[
        str | None,
        typer.Option(help="The usual group of each class; its only other group by default."),
    ] = None,
    minority_size: Annotated[
        int | None,
        typer.Option(help="Images kept of each minority group; as the smallest has by default."),
    ] = None,
    majority_size: Annotated[
        int | None,
        typer.Option(help="Images kept of each majority group; as the smallest has by default."),
    ] = None,
    validation_size: Annotated[
        int | None,
        typer.Option(
            help="Images of each group for validation; half the test or what is left by default, none "
            "with --legacy-seed."
        ),
    ] = None,
    legacy_seed: Annotated[
        int | None,
        typer.Option(help="Draw as MetaShift's script did, with this seed (42 as published)."),
    ] = None,
    seed: SeedOption = 0,
    ambiguous: AmbiguousOption = "refuse",
    subpopbench: SubpopbenchOption = None,
    folders: FoldersOption = None,
    images: ImageFilesOption = None,
    allow_licence: AllowLicenceOption = False,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rare contexts in training, all contexts alike in the test: the size stays, the mix changes."""
    from heldout.curate.contexts.subpopulation import (
        Sizes,
        published_split,
        read_groups,
        subpopulation_split,
    )

    sizes = Sizes(
        minority_count=minority_count,
        test=test_size,
        minority=minority_size,
        majority=majority_size,
        validation=validation_size,
    )
    read = read_groups(groups)
    rare = group_names(minority_groups)
    usual = None if majority_groups is None else group_names(majority_groups)
    policy = _policy(ambiguous)
    if legacy_seed is None:
        split = subpopulation_split(read, rare, sizes, majority=usual, seed=seed, ambiguous=policy)
    else:
        split = published_split(
            read, rare, sizes, majority=usual, seed=legacy_seed, ambiguous=policy
        )
    records = save_and_count(
        split,
        to,
        subpopbench=subpopbench,
        folders=folders,
        images=images,
        allow_licence=allow_licence,
        replace=replace,
    )
    finish(records, as_json=as_json)


@app.command("shares")
def shares(
    groups: GroupsOption,
    to: OutOption,
    order: Annotated[
        str | None,
        typer.Option(help="Groups to use, in this order; all of them, sorted, by default."),
    ] = None,
    test_share: Annotated[float, typer.Option(help="Share of all images in the test.")] = 0.25,
    validation_share: Annotated[float, typer.Option(help="Share of all that validate.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the draw; SubpopBench's by default.")] = 42,
    ambiguous: AmbiguousOption = "refuse",
    subpopbench: SubpopbenchOption = "{image}",
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
) -> None:
    """SubpopBench's split: shares of all images at random, whatever their group, and its CSV."""
    from heldout.curate.contexts.subpopulation import read_groups, shares_split

    read = read_groups(groups)
    split = shares_split(
        read,
        sorted(read.images) if order is None else group_names(order),
        test=test_share,
        validation=validation_share,
        seed=seed,
        ambiguous=_policy(ambiguous),
    )
    finish(save_and_count(split, to, subpopbench=subpopbench, replace=replace), as_json=as_json)


@app.command("groups")
def groups(
    testset: TestsetArgument,
    scheme: Annotated[
        Path,
        typer.Option(help='TOML file: "cat(outdoor)" = ["cat(car)", "cat(fence)"], and so on.'),
    ],
    to: OutOption,
    ambiguous: AmbiguousOption = "published",
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Merge subsets into groups: groups.csv for split subpopulation, an image in one group only."""
    from heldout.curate.contexts.subpopulation import (
        Groups,
        merged_groups,
        read_scheme,
        without_ambiguous,
    )
    from heldout.data.testset.exporters import write_documents
    from heldout.measure.score.records import Count

    _, subsets, _ = find_subsets(testset, workspace, 1)
    named = read_scheme(scheme)
    wanted = {name for names in named.values() for name in names}
    images = {
        name: [str(image) for image in subsets.image_ids[subsets.members(name)]]
        for name in subsets.names
        if name in wanted
    }
    merged = merged_groups(images, named)
    kept, notes = without_ambiguous(merged, list(named), policy=_policy(ambiguous))
    for text in notes:
        note(text)
    changed = write_documents(
        to,
        {"groups.csv": Groups(kept).table()},
        kind="groups",
        about={"scheme": named, "ambiguous": ambiguous},
        replace=replace,
    )
    say(f"{to}: {len(kept)} groups, {'written' if changed else 'unchanged'}")
    emit([Count(name=name, value=len(ids)) for name, ids in kept.items()], as_json=as_json)


@app.command("places")
def places(
    pool: Annotated[
        str, typer.Argument(help="A pool with objects, as heldout collect writes it: name or path.")
    ],
    label: Annotated[
        list[str], typer.Option("--class", "-c", help="Class, such as cat; repeatable.")
    ],
    to: OutOption,
    objects: Annotated[str, typer.Option(help="Membership with the objects' names.")] = "object",
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Indoor and outdoor groups of classes by the COCO objects beside them: groups.csv."""
    import pyarrow.compute as pc

    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.subpopulation import place_groups
    from heldout.data.testset.exporters import write_documents
    from heldout.data.testset.pool import find_pool
    from heldout.measure.score.records import Count

    table = find_pool(Workspace.find(workspace), pool).memberships
    rows = table.filter(pc.equal(table["column"], objects))
    pairs = zip(rows["image_id"].to_pylist(), rows["value"].to_pylist(), strict=True)
    found = place_groups(pairs, label)
    for text in found.notes:
        note(text)
    changed = write_documents(
        to,
        {"groups.csv": found.table()},
        kind="groups",
        about={"classes": label, "objects": objects},
        replace=replace,
    )
    say(f"{to}: {len(found.images)} groups, {'written' if changed else 'unchanged'}")
    emit([Count(name=n, value=len(ids)) for n, ids in found.images.items()], as_json=as_json)


def _policy(text: str) -> Ambiguous:
    from heldout.core.errors import UserError
    from heldout.curate.contexts.subpopulation import AMBIGUOUS

    for policy in AMBIGUOUS:
        if policy == text:
            return policy
    raise UserError(f"no policy {text!r}", fix=f"use {', '.join(AMBIGUOUS)}")
