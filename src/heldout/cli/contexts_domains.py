"""``heldout contexts split domain`` and ``search``: train on some contexts, test on others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit_json, note, print_table, say
from heldout.cli.contexts_saving import (
    AllowLicenceOption,
    FoldersOption,
    ImageFilesOption,
    MinimumOption,
    OutOption,
    TestsetArgument,
    TestSetNameOption,
    check_test_set,
    find_subsets,
    finish,
    group_names,
    save_and_count,
    save_test_part,
)
from heldout.cli.options import JsonOption, ReplaceOption, SeedOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.curate.contexts.distance import Distance
    from heldout.curate.contexts.domain_splits import Domain
    from heldout.measure.score.records import Count


def domain(
    testset: TestsetArgument,
    to: OutOption,
    test: Annotated[
        list[str],
        typer.Option(
            help="Subsets to test on, 'dog(shelf),dog(desk)' or 'NAME=dog(shelf),dog(desk)'; repeatable."
        ),
    ],
    train: Annotated[
        list[str] | None,
        typer.Option(help="Subsets to train on, written likewise; repeatable."),
    ] = None,
    distance: Annotated[
        list[float] | None,
        typer.Option(
            help="Instead of --train: take the domain of each class nearest to this distance from its "
            "test, 0 to 1; repeatable, one split each."
        ),
    ] = None,
    train_size: Annotated[
        int | None, typer.Option(help="Training images of each class; all by default.")
    ] = None,
    test_size: Annotated[
        int | None, typer.Option(help="Test images of each class; all by default.")
    ] = None,
    validation_share: Annotated[
        float, typer.Option(help="Share of the training images that validate instead.")
    ] = 0.1,
    minimum: MinimumOption = None,
    seed: SeedOption = 0,
    test_set: TestSetNameOption = None,
    folders: FoldersOption = None,
    images: ImageFilesOption = None,
    allow_licence: AllowLicenceOption = False,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Train on some contexts, test on others at a known distance; no image is in both."""
    from heldout.core.errors import UserError
    from heldout.curate.contexts.domain_splits import (
        DomainSizes,
        domain_split,
        nearest_training,
        split_distances,
    )

    check_test_set(test_set)
    if bool(train) == bool(distance):
        raise UserError(
            "a domain split needs its training contexts", fix="give --train or --distance"
        )
    source, subsets, least = find_subsets(testset, workspace, minimum)
    tests = [_domain(text) for text in test]
    sizes = DomainSizes(train=train_size, test=test_size, validation=validation_share)
    wanted: dict[str, list[Domain]] = {}
    if train:
        wanted[""] = [_domain(text) for text in train]
    for value in distance or []:
        wanted[f"{value:g}"] = nearest_training(
            subsets, tests, distance=value, images=train_size or least, minimum=least
        )
    records: list[Count] = []
    for name, trains in wanted.items():
        found = split_distances(subsets, trains, tests, minimum=least, seed=seed)
        for label, apart in found.items():
            say(
                f"{label}: {', '.join(d.name for d in trains if d.label == label)} to "
                f"{', '.join(d.name for d in tests if d.label == label)}, distance {_shown(apart)}"
            )
            if name and abs(apart.value - float(name)) > 0.1:
                note(
                    f"no training contexts of {label} come nearer to {name} than {apart.value:.2f}"
                )
            for text in apart.notes:
                note(text)
        split = domain_split(
            subsets,
            train=trains,
            test=tests,
            sizes=sizes,
            seed=seed,
            distances={label: value.value for label, value in found.items()},
        )
        folder = to / f"distance-{name}" if name and len(wanted) > 1 else to
        records += save_and_count(
            split,
            folder,
            folders=folders,
            images=images,
            allow_licence=allow_licence,
            replace=replace,
        )
    if test_set is not None:
        save_test_part(source, split, test_set, workspace=workspace, replace=replace)
    finish(records, as_json=as_json)


def search(
    testset: TestsetArgument,
    label: Annotated[
        list[str], typer.Option("--class", "-c", help="Class to split; repeatable: A against B.")
    ],
    distance: Annotated[
        float, typer.Option(help="Wanted distance from train to test of each class, 0 to 1.")
    ],
    images: Annotated[
        int, typer.Option("--at-least", help="Images of each class to train and to test.")
    ] = 100,
    minimum: MinimumOption = None,
    limit: Annotated[int, typer.Option(help="At most so many splits.")] = 10,
    seed: SeedOption = 0,
    to: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write the best split to.")
    ] = None,
    validation_share: Annotated[
        float, typer.Option(help="Share of the training images that validate instead.")
    ] = 0.1,
    test_set: TestSetNameOption = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Find train and test contexts of classes about a given distance apart, with enough images."""
    from heldout.curate.contexts.domain_splits import DomainSizes, domain_split, search_splits

    check_test_set(test_set)
    source, subsets, least = find_subsets(testset, workspace, minimum)
    found = search_splits(
        subsets, label, distance=distance, images=images, minimum=least, limit=limit, seed=seed
    )
    if found[0].off > 0.1:
        note(f"no split comes nearer than {found[0].off:.2f} to {distance:g} with {images} images")
    if as_json:
        emit_json([{"record": "split", "place": n, **s.to_dict()} for n, s in enumerate(found, 1)])
    else:
        print_table(
            f"splits of {' against '.join(label)}, distance about {distance:g}",
            ["", "class", "train", "test", "distance", "train images", "test images"],
            [
                [
                    str(place) if item is split.classes[0] else "",
                    item.label,
                    ", ".join(domain.name for domain in item.train),
                    item.test.name,
                    _shown(item.distance),
                    f"{item.train_images:,}",
                    f"{item.test_images:,}",
                ]
                for place, split in enumerate(found, 1)
                for item in split.classes
            ],
            left=4,
        )
    if to is not None:
        best = found[0].classes
        split = domain_split(
            subsets,
            train=[domain for item in best for domain in item.train],
            test=[item.test for item in best],
            sizes=DomainSizes(validation=validation_share),
            seed=seed,
            distances={item.label: item.distance.value for item in best},
        )
        save_and_count(split, to, replace=replace)
        if test_set is not None:
            save_test_part(source, split, test_set, workspace=workspace, replace=replace)


def _domain(text: str) -> Domain:
    """A domain as it is written on the command line; without a name it has its first subset's."""
    from heldout.curate.contexts.domain_splits import Domain
    from heldout.data.published.metashift import join_subset_name, split_subset_name

    name, equals, rest = text.partition("=")
    names = tuple(group_names(rest if equals else text))
    if not equals:
        words = [split_subset_name(item).context for item in names]
        label = split_subset_name(names[0]).subject if names else ""
        name = (
            names[0]
            if len(names) == 1
            else join_subset_name(label, "+".join(words))
            if names
            else text
        )
    return Domain(name=name.strip(), subsets=names)


def _shown(value: Distance) -> str:
    if value.low is None or value.high is None:
        return f"{value.value:.3f}"
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"
