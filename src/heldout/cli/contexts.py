"""``heldout contexts``: the graph over the subsets of a class, and distances between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, emit_json, note, print_table, say
from heldout.cli.options import (
    JsonOption,
    LabelMapOption,
    LevelOption,
    ReplaceOption,
    SaveOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.core.records import Count
    from heldout.curate.contexts.describe import SubsetDescription
    from heldout.curate.contexts.distance import Distance
    from heldout.curate.contexts.domain_splits import Domain
    from heldout.curate.contexts.graph import MetaGraph
    from heldout.curate.contexts.split import Split
    from heldout.curate.contexts.subpopulation import Ambiguous
    from heldout.curate.contexts.subsets import Subsets
    from heldout.data.testset import TestSet
    from heldout.measure.score.measure import Measured
    from heldout.measure.score.memberships import SliceNumber
    from heldout.measure.score.records import Record
    from heldout.show.graph import GraphData, Node, NodeScore


def named_parts(text: str, known: set[str]) -> list[str]:
    """``A+B`` as names; a name that itself holds a plus is taken whole where it is known."""
    if text in known:
        return [text]
    parts: list[str] = []
    for piece in text.split("+"):
        joined = f"{parts[-1]}+{piece}" if parts else ""
        if parts and parts[-1] not in known and (joined in known or not parts[-1].endswith(")")):
            parts[-1] = joined
        else:
            parts.append(piece)
    return [part.strip() for part in parts]


def conflicts(
    log: Annotated[
        Path,
        typer.Argument(
            help="CSV, JSON lines or Parquet: step, subset, trained (images since the step before), score."
        ),
    ],
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write the matrix to this CSV file.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the matrix: FILE.svg, .png or .json (Vega-Lite).")
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=1, help="Resamples of the intervals, for the agreement of signs.")
    ] = 200,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """The training-conflict matrix of a log: contributions from -1 (hurts most) to 1 (helps most)."""
    from heldout.core.files import write_text
    from heldout.curate.contexts.training_conflicts import conflict_matrix, read_training_log

    found = conflict_matrix(read_training_log(log), resamples=resamples, seed=seed)
    for text in found.notes:
        note(text)
    if save is not None:
        write_text(save, found.table())
        say(f"{save}: {len(found.trained)} training by {len(found.evaluated)} evaluation subsets")
    if figure is not None:
        from heldout.show.exports import write_figure
        from heldout.show.score_figures import matrix_figure

        drawn = matrix_figure(
            found.contribution,
            found.trained,
            found.evaluated,
            title="Contribution of training to evaluation subsets",
            row_title="trained on",
            column_title="evaluated on",
            value_title="contribution",
        )
        write_figure(drawn, figure)
        say(f"wrote {figure}")
    if as_json:
        emit_json(found.records())
        return
    print_table(
        f"contribution of training (rows) to evaluation subsets, {found.intervals} intervals",
        ["trained on", *found.evaluated],
        [
            [name, *(f"{value:+.2f}" for value in found.contribution[place].tolist())]
            for place, name in enumerate(found.trained)
        ],
    )


TestsetArgument = Annotated[
    str, typer.Argument(help="A test set with the membership subset, as build contexts makes it.")
]
TestSetNameOption = Annotated[
    str | None,
    typer.Option(
        "--test-set", help="Also save the test part as a test set of this name in the workspace."
    ),
]
MinimumOption = Annotated[
    int | None, typer.Option(help="Smaller subsets are left out; the set's own by default.")
]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")]
FoldersOption = Annotated[
    str | None,
    typer.Option(
        "--folders", help="Also lay the image files out in folders: link, hardlink or copy."
    ),
]
ImageFilesOption = Annotated[
    Path | None, typer.Option("--images", help="Folder of the image files, for --folders.")
]
AllowLicenceOption = Annotated[
    bool,
    typer.Option(
        "--allow-licence", help="Copy images although their licence forbids it or is unknown."
    ),
]


def find_subsets(
    testset: str, workspace: Path | None, minimum: int | None
) -> tuple[TestSet, Subsets, int]:
    """A test set, its subsets, and the least images that one must have to be used."""
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.graph import MINIMUM
    from heldout.curate.contexts.subsets import read_subsets
    from heldout.data.testset import find_testset

    found = find_testset(Workspace.find(workspace), testset)
    if minimum is None:
        minimum = int((found.card.recipe.get("parameters") or {}).get("minimum", MINIMUM))
    return found, read_subsets(found), minimum


def check_test_set(name: str | None) -> None:
    """Refuse what cannot be the name of a test set before anything is written."""
    from heldout.core.workspace import check_slug

    if name is not None:
        check_slug(name, "a test set")


def group_names(text: str) -> list[str]:
    """Names joined by commas or plus signs; those inside parentheses belong to a name."""
    found, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character in ",+" and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [name.strip() for name in found if name.strip()]


def save_and_count(
    split: Split,
    to: Path,
    *,
    subpopbench: str | None = None,
    folders: str | None = None,
    images: Path | None = None,
    allow_licence: bool = False,
    replace: bool,
) -> list[Count]:
    """Write a split with what was asked for beside it; its counts."""
    from heldout.core.errors import UserError
    from heldout.core.records import Count
    from heldout.curate.contexts.split import (
        image_mode,
        place_split,
        save_split,
        subpopbench_document,
    )

    if folders is not None and images is None:
        raise UserError("--folders needs the image files", fix="name their folder with --images")
    if folders is not None:
        image_mode(folders)
    documents: dict[str, str] = {}
    if subpopbench is not None:
        documents["subpopbench.csv"] = subpopbench_document(split, filename=subpopbench)
    for text in split.notes:
        note(text)
    changed = save_split(split, to, further=documents, replace=replace)
    counts = split.counts()
    sizes = ", ".join(f"{counts[part]:,} {part}" for part in split.parts)
    say(f"{to}: {sizes}, {'written' if changed else 'unchanged'}")
    if folders is not None and images is not None:
        beside = to.with_name(f"{to.name}-images")
        placed = place_split(
            split, beside, images=images, mode=folders, allow_licence=allow_licence, replace=replace
        )
        for text in placed.notes:
            note(text)
        for failure in placed.failures:
            note(f"left out {failure.image_id}: {failure.reason}")
        say(f"{beside}: {placed.made:,} placed, {placed.kept:,} kept, {placed.removed:,} removed")
        counts |= {"placed": placed.made + placed.kept, "without_file": len(placed.failures)}
    return [Count(name=name, value=value, testset=to.name) for name, value in counts.items()]


def save_test_part(
    testset: TestSet, split: Split, name: str, *, workspace: Path | None, replace: bool
) -> None:
    """Save the test part of a split as a test set of the workspace, with its parent by hash."""
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.split import part_as_testset
    from heldout.data.testset.testset import save

    folder = Workspace.find(workspace).testsets / name
    made = save(part_as_testset(testset, split, name=name), folder, replace=replace)
    say(f"{folder}: test set of {len(made):,} images")


def finish(records: list[Count], *, as_json: bool) -> None:
    """Hand over the counts; images without a file end with an exit code of their own."""
    from heldout.core.errors import EXIT_FAILED_IMAGES

    emit(records, as_json=as_json)
    if any(record.name == "without_file" and record.value for record in records):
        raise typer.Exit(EXIT_FAILED_IMAGES)


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
    limit: Annotated[int, typer.Option(help="At most this many splits.")] = 10,
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


def folders(
    testset: TestsetArgument,
    to: Annotated[Path, typer.Argument(help="Folder to lay the images out in.")],
    mode: Annotated[
        str, typer.Option(help="link (relative symbolic links), hardlink or copy.")
    ] = "link",
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only subsets that match this glob, such as 'cat(*)'; repeatable."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the image files, if not the set's own.")
    ] = None,
    allow_licence: AllowLicenceOption = False,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Lay images out as CLASS/SUBSET/FILE; nothing that was not placed there is ever deleted."""
    from heldout.core.errors import EXIT_FAILED_IMAGES
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.split import place_subsets
    from heldout.data.testset import find_testset

    placed = place_subsets(
        find_testset(Workspace.find(workspace), testset),
        to,
        images=images,
        mode=mode,
        only=only or (),
        allow_licence=allow_licence,
        replace=replace,
    )
    for text in placed.notes:
        note(text)
    for failure in placed.failures:
        note(f"left out {failure.image_id}: {failure.reason}")
    say(f"{to}: {placed.made:,} placed, {placed.kept:,} kept, {placed.removed:,} removed")
    counts = {
        "placed": placed.made,
        "kept": placed.kept,
        "removed": placed.removed,
        "without_file": len(placed.failures),
    }
    emit([Count(name=name, value=value) for name, value in counts.items()], as_json=as_json)
    if placed.failures:
        raise typer.Exit(EXIT_FAILED_IMAGES)


def score(
    testset: Annotated[
        str, typer.Argument(metavar="SET", help="Test set of build contexts: name or path.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Stored predictions; repeatable; all by default."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--class", help="Only this class; all classes by default.")
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            help="What the models trained on, 'cat(sofa)+cat(bed)': accuracy against distance from "
            "it, on images that are not in it."
        ),
    ] = None,
    truth: TruthOption = None,
    metric: Annotated[str, typer.Option(help="A plain accuracy: top1, top5, …")] = "top1",
    label_map: LabelMapOption = None,
    minimum_n: Annotated[
        int, typer.Option(help="Smallest slice that may be called the worst.")
    ] = 20,
    level: LevelOption = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates of each distance.")] = 200,
    seed: SeedOption = 0,
    report: Annotated[Path | None, typer.Option(help="Also write a report (HTML) here.")] = None,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Per subset, community and class; average and worst, corrected; accuracy against distance."""
    from heldout.core.records import Count
    from heldout.curate.contexts.recipe import COMMUNITY
    from heldout.curate.contexts.subsets import COLUMN
    from heldout.measure.score.estimate import counts, scores
    from heldout.measure.score.memberships import membership_records, property_records

    measured = measured_class(
        testset, subject, model or [], label_map, workspace, truth=truth, metric=metric
    )
    found = measured.testset
    columns = [name for name in (COLUMN, COMMUNITY) if name in found.card.columns]
    records: list[Record] = []
    numbers: dict[str, SliceNumber] = {}
    if train is not None:
        measured, numbers, left_out = _apart(measured, train, subject, replicates, level, seed)
        records.append(Count(name="n_left_out_train", value=left_out, testset=found.name))
    by = [*columns, *(["class"] if subject is None else [])]
    records += scores(measured, by=by, minimum_n=minimum_n, level=level, seed=seed)
    for column in columns:
        records += membership_records(measured, column, worst_n=minimum_n, level=level)
    if numbers:
        records += property_records(measured, COLUMN, numbers, level=level)
    records += counts([measured])
    if report is not None:
        from heldout.core.workspace import Workspace
        from heldout.show.page import write_report
        from heldout.show.report import report_data

        data = report_data(
            records,
            workspace=Workspace.find(workspace),
            title=f"{found.name}{'' if subject is None else f': {subject}'}",
            sets={found.name: found},
        )
        write_report(data, report)
        say(f"wrote {report}")
    emit(records, as_json=as_json, save=save)


def _apart(
    measured: Measured, train: str, subject: str | None, replicates: int, level: float, seed: int
) -> tuple[Measured, dict[str, SliceNumber], int]:
    """The rows of images outside the training collection, and how far each subset is from it."""
    import numpy as np

    from heldout.core.errors import NotApplicable
    from heldout.curate.contexts.distance import chosen_classes, make_profiles, profile_distance
    from heldout.curate.contexts.subsets import read_subsets
    from heldout.measure.score.memberships import SliceNumber

    subsets = read_subsets(measured.testset)
    names = named_parts(train, set(subsets.names))
    mine = chosen_classes(subsets, names, 1)
    if subject is not None and subject in subsets.subjects and subject not in mine.subjects:
        raise NotApplicable(f"{train} trains no {subject}", fix=f"name subsets of {subject}")
    profiles = make_profiles(mine)
    trained = profiles.collection(names)
    numbers = {}
    for name in mine.names:
        far = profile_distance(
            profiles.collection(name), trained, replicates=replicates, level=level, seed=seed
        )
        numbers[name] = SliceNumber(value=far.value, low=far.low, high=far.high)
    inside = set(mine.image_ids[trained.images].tolist())
    ids = measured.testset.image_ids.to_pylist()
    kept = np.array([ids[row] not in inside for row in measured.rows], dtype=bool)
    if not kept.any():
        raise NotApplicable(
            "every image is in the training collection", fix="train on fewer subsets"
        )
    return measured.select(np.flatnonzero(kept)), numbers, int((~kept).sum())


split_app = typer.Typer(
    help="Split images in context: train, validation and test with a chosen shift.",
    no_args_is_help=True,
)
split_app.command("domain")(domain)
split_app.command("search")(search)

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


@split_app.callback()
def _split() -> None:
    pass


@split_app.command("subpopulation")
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


@split_app.command("shares")
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


@split_app.command("groups")
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
    from heldout.core.records import Count
    from heldout.curate.contexts.subpopulation import (
        Groups,
        merged_groups,
        read_scheme,
        without_ambiguous,
    )
    from heldout.data.testset.exporters.owned_folder import write_documents

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


@split_app.command("places")
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

    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.subpopulation import place_groups
    from heldout.data.testset import find_pool
    from heldout.data.testset.exporters.owned_folder import write_documents

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


HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Draw it as a page to look around in, into this file.")
]
SvgOption = Annotated[Path | None, typer.Option("--svg", help="Draw it as SVG.")]
PngOption = Annotated[Path | None, typer.Option("--png", help="Draw it as PNG.")]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        help="Stored predictions whose accuracy the picture shows; repeatable; SVG and PNG are coloured "
        "by the first.",
    ),
]
_EACH, _MOST = 12, 480


def draw(
    testset: TestSet,
    graph: MetaGraph,
    pictures: Mapping[str, Path | None],
    models: Sequence[str],
    label_map: str | None,
    workspace: Path | None,
) -> None:
    """Draw the graph of a class into files, by format."""
    from heldout.show.graph import write_graph

    measured = None
    if models:
        measured = measured_class(testset, graph.subject, models, label_map, workspace)
    data = drawn_graph(testset, graph, measured=measured)
    for form, path in pictures.items():
        if path is not None:
            first = data.models[0] if data.models else None
            write_graph(data, path, form, model=first)  # type: ignore[arg-type]
            say(f"wrote {path}")


def drawn_graph(
    testset: TestSet,
    graph: MetaGraph,
    *,
    measured: Measured | None = None,
    level: float = 0.95,
    notes: Sequence[str] = (),
) -> GraphData:
    """Everything that the picture of a class's graph shows; ``measured`` adds the models' scores."""
    from heldout.curate.contexts.describe import unique_subsets
    from heldout.curate.contexts.subsets import read_subsets
    from heldout.show.graph import Edge, GraphData
    from heldout.show.thumbnails import spread_over, thumbnails

    whole = read_subsets(testset)
    subsets = whole.take([whole.position(name) for name in graph.subsets])
    images = subsets.image_ids.tolist()
    members = [subsets.members(name).tolist() for name in subsets.names]
    places = {name: place for place, name in enumerate(subsets.names)}
    scores, overall = _scores(measured, graph, level) if measured is not None else ({}, {})
    unique = unique_subsets(
        subsets, graph.communities, threshold=graph.threshold, measure=graph.measure
    )
    shown = spread_over(members, each=_EACH, most=_MOST)
    small = thumbnails(testset, (images[image] for image in shown))
    number = {image: place for place, image in enumerate(images)}
    return GraphData(
        title=f"{graph.subject}: {len(graph)} subsets and what they share",
        nodes=[
            _node(one, places, members[place], scores.get(one.name, {}))
            for place, one in enumerate(unique)
        ],
        edges=[Edge(a=a, b=b, weight=weight) for a, b, weight in graph.edges],
        threshold=graph.threshold,
        weight="overlap" if graph.measure == "overlap" else "Jaccard index",
        images=images,
        thumbnails={number[image_id]: uri for image_id, uri in small.items()},
        overall=overall,
        metric="top1" if measured is None else measured.metric.name,
        distance="jensen-shannon",
        notes=tuple(notes),
    )


def _node(
    one: SubsetDescription,
    places: Mapping[str, int],
    members: Sequence[int],
    scores: Mapping[str, NodeScore],
) -> Node:
    from heldout.show.graph import Node, Trait

    return Node(
        name=one.name,
        label=one.context,
        size=one.images,
        community=one.community,
        scores=scores,
        traits=[
            Trait(label=lift.context, lift=lift.lift, low=lift.low, high=lift.high)
            for lift in one.lifts
        ],
        nearest=[(places[s.name], s.distance) for s in one.nearest],
        farthest=[(places[s.name], s.distance) for s in one.farthest],
        members=members,
    )


def _scores(
    measured: Measured, graph: MetaGraph, level: float
) -> tuple[dict[str, dict[str, NodeScore]], dict[str, NodeScore]]:
    """By subset and model, and by model on all images of the class."""
    from heldout.curate.contexts.subsets import COLUMN
    from heldout.measure.score.estimate import scores
    from heldout.measure.score.slices import parse_slice
    from heldout.show.graph import NodeScore

    wanted = set(graph.subsets)
    found: dict[str, dict[str, NodeScore]] = {}
    overall: dict[str, NodeScore] = {}
    for score in scores(measured, by=[COLUMN], level=level):
        if score.metric != measured.metric.name:
            continue
        value = NodeScore(value=score.value, n=score.n, low=score.low, high=score.high)
        name = parse_slice(score.slice).get(COLUMN)
        if name is None:
            overall[score.model] = value
        elif name in wanted:
            found.setdefault(name, {})[score.model] = value
    return found, overall


def measured_class(
    testset: TestSet | str,
    subject: str | None,
    models: Sequence[str],
    label_map: str | None,
    workspace: Path | None,
    *,
    truth: str | None = None,
    metric: str = "top1",
) -> Measured:
    """Stored predictions on the rows of one class, or of all."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.measure.evaluation.flow import label_map_argument, stored_predictions
    from heldout.measure.score.measure import measure

    place = Workspace.find(workspace)
    found = find_testset(place, testset) if isinstance(testset, str) else testset
    name = testset if isinstance(testset, str) else str(testset.folder or testset.name)
    (measured,) = measure(
        found,
        stored_predictions(found, models, workspace=place),
        metrics=(metric,),
        truth=truth,
        label_map=label_map_argument(label_map, [name], models, workspace=place),
    )
    return measured if subject is None else of_class(measured, subject)


def of_class(measured: Measured, subject: str) -> Measured:
    """The rows of one class, by its id or name; all rows where classes are not the subjects.

    One that is no subject either is refused.
    """
    import numpy as np

    from heldout.curate.contexts.subsets import read_subsets

    classes = measured.space.classes
    there = [
        place for place, one in enumerate(classes) if subject == one.id or subject in one.names
    ]
    exact = [place for place in there if classes[place].id == subject]
    if len(exact or there) != 1:
        read_subsets(measured.testset).of(subject)
        return measured
    return measured.select(np.flatnonzero(measured.groups == (exact or there)[0]))


app = typer.Typer(
    help="Images in context: the graph over subsets, distances, splits.", no_args_is_help=True
)
app.add_typer(split_app, name="split")
app.command("folders")(folders)
app.command("conflicts")(conflicts)
app.command("score")(score)

SetArgument = Annotated[
    str, typer.Argument(metavar="SET", help="Test set of build contexts: name or path.")
]
ThresholdOption = Annotated[
    float | None, typer.Option(help="Overlaps below it are not edges; the set's own by default.")
]
MeasureOption = Annotated[
    str | None, typer.Option(help="overlap (shared / smaller) or jaccard; the set's by default.")
]


@app.callback()
def _contexts() -> None:
    pass


@app.command("graph")
def graph(
    testset: SetArgument,
    subject: Annotated[str, typer.Option("--class", help="The class, such as cat.")],
    threshold: ThresholdOption = None,
    measure: MeasureOption = None,
    minimum: MinimumOption = None,
    communities: Annotated[
        str | None, typer.Option(help="greedy (as published) or louvain; the set's by default.")
    ] = None,
    seed: SeedOption = 0,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write the graph to this JSON file.")
    ] = None,
    html: HtmlOption = None,
    svg: SvgOption = None,
    png: PngOption = None,
    model: ScoresOption = None,
    label_map: LabelMapOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """The subsets of a class, what they share, and their communities."""
    from heldout.core.files import write_json
    from heldout.curate.contexts.describe import unique_subsets
    from heldout.curate.contexts.graph import meta_graph
    from heldout.curate.contexts.subsets import read_subsets

    found = _find(testset, workspace)
    options = _options(found, threshold=threshold, measure=measure, minimum=minimum)
    subsets = read_subsets(found)
    method: Any = communities or _parameter(found, "communities", "greedy")
    made = meta_graph(
        subsets,
        subject,
        **options,
        communities=method,
        seed=seed,
    )
    if save is not None:
        write_json(save, made.to_dict())
    unique = unique_subsets(
        subsets.of(subject).at_least(options["minimum"]),
        made.communities,
        threshold=options["threshold"],
        measure=options["measure"],
    )
    if html or svg or png:
        pictures = {"html": html, "svg": svg, "png": png}
        draw(found, made, pictures, model or [], label_map, workspace)
    if as_json:
        emit_json([*_graph_counts(made), _graph_record(made, unique)])
        return
    from heldout.core.records import Count

    counts = [
        Count(name=f"{subject}_{count['name']}", value=count["value"], testset=found.name)
        for count in _graph_counts(made)
    ]
    emit(counts, as_json=False, show=lambda _: _show_graph(made, unique))


@app.command("distance")
def distance(
    testset: SetArgument,
    a: Annotated[
        str, typer.Argument(metavar="A", help="A subset, or several merged: 'cat(sofa)+cat(bed)'.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The other side.")],
    mode: Annotated[
        str, typer.Option(help="default, or published: MetaShift's spectral distance.")
    ] = "default",
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="published: a node of the graph, 'dog(bed)=dog(bed)+dog(couch)'; repeatable; the "
            "subsets of the class by default."
        ),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="published: eig as the original, or eigh for symmetric matrices.")
    ] = "eig",
    dimensions: Annotated[
        int, typer.Option(help="published: dimensions of the spectral layout.")
    ] = 5,
    threshold: ThresholdOption = None,
    measure: MeasureOption = None,
    minimum: MinimumOption = None,
    replicates: Annotated[
        int, typer.Option(min=0, help="Bootstrap replicates; 0 for no interval.")
    ] = 400,
    level: LevelOption = 0.95,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """How far two subsets, or merged collections of subsets, lie apart."""
    from heldout.curate.contexts.distance import distance as measure_distance
    from heldout.curate.contexts.subsets import read_subsets

    found = _find(testset, workspace)
    subsets = read_subsets(found)
    nodes = _nodes(node or [], subsets.names)
    known = {*subsets.names, *nodes}
    made = measure_distance(
        subsets,
        named_parts(a, known),
        named_parts(b, known),
        mode=mode,  # type: ignore[arg-type]  # an unknown one is refused there
        **_options(found, threshold=threshold, measure=measure, minimum=minimum),
        replicates=replicates,
        level=level,
        seed=seed,
        nodes=nodes or None,
        dimensions=dimensions,
        solver=solver,  # type: ignore[arg-type]
    )
    for text in made.notes:
        say(f"warning: {text}") if mode == "published" else note(text)
    if as_json:
        emit_json([_distance_record(made, found)])
        return
    _show_distance(made)


def _find(testset: str, workspace: Path | None) -> TestSet:
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset

    return find_testset(Workspace.find(workspace), testset)


def _parameter(testset: TestSet, name: str, default: Any) -> Any:
    """What the set was built with, where it says so."""
    return dict(testset.card.recipe.get("parameters") or {}).get(name, default)


def _options(
    testset: TestSet, *, threshold: float | None, measure: str | None, minimum: int | None
) -> dict[str, Any]:
    from heldout.curate.contexts.graph import MINIMUM, THRESHOLD

    given = {"threshold": threshold, "measure": measure, "minimum": minimum}
    defaults = {"threshold": THRESHOLD, "measure": "overlap", "minimum": MINIMUM}
    return {
        name: _parameter(testset, name, defaults[name]) if value is None else value
        for name, value in given.items()
    }


def _nodes(texts: list[str], names: tuple[str, ...]) -> dict[str, list[str]]:
    from heldout.core.errors import UserError

    nodes: dict[str, list[str]] = {}
    for text in texts:
        name, equals, members = text.partition("=")
        if not equals or not name.strip() or not members.strip():
            raise UserError(f"{text!r} is no node", fix="write NAME=SUBSET+SUBSET")
        if name.strip() in nodes:
            raise UserError(f"node {name.strip()!r} is given twice", fix="give it once")
        nodes[name.strip()] = named_parts(members, set(names))
    return nodes


def _graph_counts(graph: MetaGraph) -> list[dict[str, Any]]:
    counts = {
        "nodes": len(graph),
        "edges": len(graph.edges),
        "components": len(graph.components),
        "communities": len(graph.communities),
    }
    counts |= {f"community_{k}": len(c) for k, c in enumerate(graph.communities, 1)}
    return [
        {"record": "count", "name": name, "value": value, "class": graph.subject}
        for name, value in counts.items()
    ]


def _graph_record(graph: MetaGraph, unique: tuple[SubsetDescription, ...]) -> dict[str, Any]:
    return {
        "record": "graph",
        **graph.to_dict(),
        "edges": [
            {"a": graph.subsets[i], "b": graph.subsets[j], "weight": weight}
            for i, j, weight in graph.edges
        ],
        "components": [list(part) for part in graph.components],
        "nodes": [each.to_dict() for each in unique],
    }


def _show_graph(graph: MetaGraph, unique: tuple[SubsetDescription, ...]) -> None:
    parts = len(graph.components)
    print_table(
        f"{graph.subject}: {len(graph)} subsets, {len(graph.edges)} edges at {graph.threshold:g}, "
        f"{parts} component{'s' * (parts > 1)}, {len(graph.communities)} communities "
        f"({graph.method}: {', '.join(str(len(c)) for c in graph.communities)})",
        ("subset", "community", "more often with", "nearest", "farthest", "images"),
        [
            (
                unique[place].name,
                str(unique[place].community),
                ", ".join(f"{x.context} {x.lift:.1f}×" for x in unique[place].lifts[:3]),
                *(
                    f"{x[0].name} {x[0].distance:.2f}" if x else ""
                    for x in (unique[place].nearest, unique[place].farthest)
                ),
                f"{unique[place].images:,}",
            )
            for community in graph.communities
            for place in sorted(community, key=lambda node: (-unique[node].images, node))
        ],
        left=5,
    )


def _distance_record(found: Distance, testset: TestSet) -> dict[str, Any]:
    from dataclasses import asdict

    record: dict[str, Any] = {"record": "distance", "testset": testset.name, **asdict(found)}
    record |= {key: list(record[key]) for key in ("a", "b", "notes")}
    return {**record, "testset_hash": testset.card.content_hash}


def _show_distance(found: Distance) -> None:
    interval = "" if found.low is None else f"[{found.low:.3f}, {found.high:.3f}]"
    print_table(
        "",
        ("a", "b", "mode", "distance", "interval", "images a", "images b", "in both"),
        [
            (
                "+".join(found.a),
                "+".join(found.b),
                found.mode,
                f"{found.value:.3f}",
                interval,
                f"{found.images_a:,}",
                f"{found.images_b:,}",
                f"{found.shared:,}",
            )
        ],
        left=3,
    )
