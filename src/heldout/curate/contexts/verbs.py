"""The verbs about images in context: what a request asks, done with the modules of this room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from msgspec import structs

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, EXIT_FAILED_IMAGES, NotApplicable
from heldout.core.records import Count, counts
from heldout.core.workspace import slug
from heldout.curate.build import build_recipe, build_result
from heldout.curate.contexts.describe import (
    SubsetDescription,
    read_statistics,
    unique_subsets,
)
from heldout.curate.contexts.distance import (
    chosen_classes,
    make_profiles,
    profile_distance,
)
from heldout.curate.contexts.distance import distance as measure_distance
from heldout.curate.contexts.domain_splits import (
    Domain,
    domain_split,
    nearest_training,
    split_distances,
)
from heldout.curate.contexts.graph import MINIMUM, THRESHOLD, MetaGraph, meta_graph
from heldout.curate.contexts.recipe import COMMUNITY, class_of, recipe
from heldout.curate.contexts.requests import (
    BuildContextsRequest,
    DistanceBetweenRequest,
    DomainSplitRequest,
    FoldersSplitRequest,
    GraphRequest,
    GroupsSplitRequest,
    MatchLabelsRequest,
    PlacesSplitRequest,
    ScoreContextsRequest,
    SharesSplitRequest,
    SplitRequest,
    SubpopulationSplitRequest,
)
from heldout.curate.contexts.split import (
    Split,
    part_as_testset,
    place_split,
    place_subsets,
    save_split,
)
from heldout.curate.contexts.subpopulation import (
    Groups,
    merged_groups,
    place_groups,
    read_groups,
    read_scheme,
    shares_split,
    subpopulation_split,
)
from heldout.curate.contexts.subsets import COLUMN, Subsets, names_in, read_subsets
from heldout.curate.contexts.vocabulary import (
    SubsetNames,
    read_subset_names,
    rules_in,
)
from heldout.data.importing import read_classes
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.labels import LabelSpace
from heldout.data.labels.word_matching import (
    SubsetMatches,
    match_subsets,
    match_words,
    matching_tables,
    read_class_tree,
    read_overrides,
    read_vocabulary,
    words_of,
)
from heldout.data.labels.wordnet import WordNetNouns
from heldout.data.published.metashift import split_subset_name
from heldout.data.testset import TestSet, find_pool, find_testset
from heldout.data.testset.exporters.owned_folder import write_documents
from heldout.data.testset.testset import save
from heldout.measure.evaluation.flow import label_map_argument
from heldout.measure.score.estimate import IntervalOptions, scores
from heldout.measure.score.estimate import counts as score_counts
from heldout.measure.score.measure import Measured, measure
from heldout.measure.score.memberships import SliceNumber, membership_records, property_records
from heldout.measure.score.slices import cluster_codes, cluster_column
from heldout.models.predictions.ledger import stored_predictions

_PUBLISHED = {
    "threshold": THRESHOLD,
    "measure": "overlap",
    "minimum": MINIMUM,
    "communities": "greedy",
}


def _as_built(testset: TestSet, request: Any, *names: str) -> dict[str, Any]:
    """Options that were given; the others as the set was built, or as published."""
    built = {**_PUBLISHED, **(testset.card.recipe.get("parameters") or {})}
    given = {name: getattr(request, name) for name in names}
    return {name: built[name] if value is None else value for name, value in given.items()}


def build(request: BuildContextsRequest, context: Context) -> Result:
    """Make a test set of subsets from a pool, or from the files of a source."""
    place = context.workspace
    pool = _pool(request, context)
    asked = structs.replace(
        request,
        hierarchy=rules_in(request.hierarchy, "<"),
        synonyms=rules_in(request.synonyms, "="),
    )
    if request.plan:
        return Result(records=_candidates(recipe.plan({"pool": pool}, asked).counts))
    folder = request.out or place.testsets / (request.name or f"{pool.name}-contexts")
    testset, found = build_recipe(
        recipe,
        pool,
        folder=folder,
        runs=place.runs,
        parameters=asked,
        seed=request.seed,
        name=request.name or slug(folder.resolve().name),
        replace=request.replace,
    )
    return build_result(testset, folder, _candidates(found, testset.name), context)


def _pool(request: BuildContextsRequest, context: Context) -> TestSet:
    if request.source is None:
        return context.find(request.paths[0], find_pool)
    with context.downloads() as progress:
        files = [Path(path) for path in request.paths]
        pool = read_metadata(request.source, files, progress=progress)
    for problem in report_of(pool).problems:
        context.note(problem.line)
    return pool


def _candidates(found: Mapping[str, int], testset: str | None = None) -> list[Count]:
    """The counts of subsets; images before ambiguous ones go are in the card alone."""
    told = {name: value for name, value in found.items() if name != "candidate_images"}
    return counts(told, testset=testset)


class DrawnGraph(NamedTuple):
    """What the page of a graph draws."""

    testset: TestSet
    graph: MetaGraph
    subsets: Subsets
    described: tuple[SubsetDescription, ...]
    measured: Measured | None


def graph(request: GraphRequest, context: Context) -> Result:
    """The graph over the subsets of a class, or the statistics of all."""
    testset = context.find(request.testset, find_testset)
    if request.subject is None:
        told = read_statistics(testset)
        return Result(
            records=[told.totals, *told.classes, *_candidates(told.counts, testset.name)],
            brief=[told.totals, *told.classes],
            value=told,
            drawn=told,
        )
    asked = _as_built(testset, request, *_PUBLISHED)
    whole = read_subsets(testset)
    made = meta_graph(whole, request.subject, **asked, seed=request.seed)
    subsets = whole.of(request.subject).at_least(asked["minimum"])
    described = unique_subsets(
        subsets, made.communities, threshold=made.threshold, measure=made.measure
    )
    measured = None
    if request.colour_by:
        (measured,) = _measured(testset, request.colour_by, request.label_map, context)
        measured = _of_classes(measured, [request.subject])
    sizes = {f"community_{k}": len(members) for k, members in enumerate(made.communities, 1)}
    numbers = {
        "nodes": len(made),
        "edges": len(made.edges),
        "components": len(made.components),
        "communities": len(made.communities),
        **sizes,
    }
    parts = numbers["components"]
    line = (
        f"{made.subject}: {len(made)} subsets, {len(made.edges)} edges at {made.threshold:g}, "
        f"{parts} component{'s' * (parts > 1)}, {len(made.communities)} communities "
        f"({made.method}: {', '.join(map(str, sizes.values()))})"
    )
    named = {f"{made.subject}_{name}": value for name, value in numbers.items()}
    return Result(
        records=[*counts(named, testset=testset.name), made, *described],
        brief=sorted(described, key=lambda one: (one.community, -one.images, one.name)),
        lines=[line],
        value=made,
        drawn=DrawnGraph(testset, made, subsets, described, measured),
    )


def distance(request: DistanceBetweenRequest, context: Context) -> Result:
    """How far two collections of subsets lie apart."""
    testset = context.find(request.testset, find_testset)
    subsets = read_subsets(testset)
    nodes = {name: names_in(text, subsets.names) for name, text in request.nodes.items()}
    known = {*subsets.names, *nodes}
    found = measure_distance(
        subsets,
        names_in(request.a, known),
        names_in(request.b, known),
        mode=request.mode,
        **_as_built(testset, request, "threshold", "measure", "minimum"),
        replicates=request.replicates,
        level=request.level,
        seed=request.seed,
        nodes=nodes or None,
    )
    for text in found.notes:
        context.note(text)
    found = replace(found, testset=testset.name, testset_hash=testset.card.content_hash)
    return Result(records=[found], value=found)


def score(request: ScoreContextsRequest, context: Context) -> Result:
    """Scores over subsets, communities and classes, and against distance."""
    testset = context.find(request.testset, find_testset)
    columns = [name for name in (COLUMN, COMMUNITY) if name in testset.card.columns]
    by = [*columns, *(["class"] if len(request.classes) != 1 else [])]
    measured = [
        _of_classes(each, request.classes)
        for each in _measured(
            testset,
            request.models,
            request.label_map,
            context,
            truth=request.truth,
            metrics=request.metrics or ("top1",),
        )
    ]
    records: list[Any] = []
    numbers: dict[str, SliceNumber] = {}
    if request.train:
        numbers, trained = _distances(testset, request)
        left = [_without(each, trained) for each in measured]
        n = len(measured[0].rows) - len(left[0].rows)
        records.append(Count(name="n_left_out_train", value=n, testset=testset.name))
        measured = left
    cluster = cluster_column(testset, None)
    options = IntervalOptions(seed=request.seed, level=request.level)
    for each in measured:
        clusters = None if cluster is None else cluster_codes(each, cluster)
        records += scores(
            each,
            by=by,
            cluster=cluster,
            minimum_n=request.minimum_n,
            level=request.level,
            seed=request.seed,
        )
        for column in columns:
            records += membership_records(
                each, column, clusters=clusters, worst_n=request.minimum_n, options=options
            )
        if numbers:
            records += property_records(
                each, COLUMN, numbers, clusters=clusters, level=request.level
            )
    records += score_counts(measured)
    return Result(records=records, drawn=testset)


def _measured(
    testset: TestSet,
    models: Sequence[str],
    label_map: str | None,
    context: Context,
    *,
    truth: str | None = None,
    metrics: Sequence[str] = ("top1",),
) -> list[Measured]:
    """Stored predictions on a set, measured by each metric."""
    place = context.workspace
    name = str(testset.folder or testset.name)
    return measure(
        testset,
        stored_predictions(testset, models, workspace=place),
        metrics=metrics,
        truth=truth,
        label_map=label_map_argument(label_map, [name], models, workspace=place),
    )


def _of_classes(measured: Measured, names: Sequence[str]) -> Measured:
    """The rows of some classes, by id or name as in :mod:`.recipe`; all without names."""
    space = measured.space
    places = [space.index(class_of(space, name)) for name in names]
    if not places:
        return measured
    return measured.select(np.flatnonzero(np.isin(measured.groups, places)))


def _distances(
    testset: TestSet, request: ScoreContextsRequest
) -> tuple[dict[str, SliceNumber], set[str]]:
    """How far each subset is from what was trained on, and the images of that."""
    subsets = read_subsets(testset)
    names = [n for text in request.train for n in Domain.parse(text, subsets.names).subsets]
    mine = chosen_classes(subsets, names, 1)
    for subject in request.classes:
        if subject in subsets.subjects and subject not in mine.subjects:
            raise NotApplicable(
                f"{'+'.join(names)} trains no {subject}", fix=f"name subsets of {subject}"
            )
    profiles = make_profiles(mine)
    trained = profiles.collection(names)
    numbers = {}
    for name in mine.names:
        far = profile_distance(
            profiles.collection(name),
            trained,
            replicates=request.replicates,
            level=request.level,
            seed=request.seed,
        )
        numbers[name] = SliceNumber(value=far.value, low=far.low, high=far.high)
    return numbers, set(mine.image_ids[trained.images].tolist())


def _without(measured: Measured, images: set[str]) -> Measured:
    """The rows of all other images."""
    ids = measured.testset.image_ids.to_pylist()
    kept = [row for row, image in enumerate(measured.rows) if ids[image] not in images]
    if not kept:
        raise NotApplicable(
            "every image is in the training collection", fix="train on fewer subsets"
        )
    return measured.select(np.array(kept))


# Splits.


def split(request: SplitRequest, context: Context) -> Result:
    """A split, of the kind that is asked for."""
    return _SPLITS[type(request)](request, context)


def _split_domain(request: DomainSplitRequest, context: Context) -> Result:
    source = context.find(request.testset, find_testset)
    subsets, least = read_subsets(source), _as_built(source, request, "minimum")["minimum"]
    far = request.distance
    tests, trains = (
        [Domain.parse(text, subsets.names) for text in texts]
        for texts in (request.test, request.train)
    )
    if far is not None:
        images = request.sizes.get("train", least)
        trains = nearest_training(subsets, tests, distance=far, images=images, minimum=least)
    apart = split_distances(subsets, trains, tests, minimum=least, seed=request.seed)
    for label, found in apart.items():
        train, test = (
            ", ".join(item.name for item in items if item.label == label)
            for items in (trains, tests)
        )
        context.say(f"{label}: {train} to {test}, distance {found.text}")
        if far is not None and abs(found.value - far) > 0.1:
            context.note(
                f"no training contexts of {label} come nearer to {far:g} than {found.value:.2f}"
            )
        for text in found.notes:
            context.note(text)
    made = domain_split(
        subsets,
        train=trains,
        test=tests,
        sizes=request.sizes,
        seed=request.seed,
        distances={label: found.value for label, found in apart.items()},
    )
    result = _saved(made, request, context)
    if request.test_set is not None:
        folder = context.workspace.testsets / request.test_set
        part = part_as_testset(source, made, name=request.test_set)
        saved = save(part, folder, replace=request.replace)
        context.say(f"{folder}: test set of {len(saved):,} images")
    return result


def _split_subpopulation(request: SubpopulationSplitRequest, context: Context) -> Result:
    made = subpopulation_split(
        read_groups(request.groups),
        [name for text in request.minority for name in names_in(text)],
        minority_count=request.minority_count,
        sizes=request.sizes,
        seed=request.seed,
    )
    return _saved(made, request, context)


def _split_shares(request: SharesSplitRequest, context: Context) -> Result:
    return _saved(shares_split(read_groups(request.groups), seed=request.seed), request, context)


def _split_groups(request: GroupsSplitRequest, context: Context) -> Result:
    subsets = read_subsets(context.find(request.testset, find_testset))
    scheme = read_scheme(request.scheme)
    return _saved_groups(merged_groups(subsets, scheme), {"scheme": scheme}, request, context)


def _split_places(request: PlacesSplitRequest, context: Context) -> Result:
    table = context.find(request.pool, find_pool).memberships
    rows = table.filter(pc.equal(table["column"], "object"))
    pairs = zip(rows["image_id"].to_pylist(), rows["value"].to_pylist(), strict=True)
    groups = place_groups(pairs, request.classes)
    return _saved_groups(groups, {"classes": list(request.classes)}, request, context)


def _split_folders(request: FoldersSplitRequest, context: Context) -> Result:
    how: dict[str, Any] = {
        "images": None if request.images is None else Path(request.images),
        "mode": request.folders,
        "allow_licence": request.allow_licence,
        "overwrite": request.replace,
    }
    folder = Path(request.source)
    if (folder / "split.json").is_file():
        placed = place_split(folder, request.out, **how)
    else:
        placed = place_subsets(context.find(request.source, find_testset), request.out, **how)
    for text in placed.notes:
        context.note(text)
    for failure in placed.failures:
        context.note(f"left out {failure.image_id}: {failure.reason}")
    found = {"placed": placed.made, "kept": placed.kept, "removed": placed.removed}
    context.say(f"{request.out}: {', '.join(f'{n:,} {word}' for word, n in found.items())}")
    return Result(
        records=counts({**found, "without_file": len(placed.failures)}),
        code=EXIT_FAILED_IMAGES if placed.failures else EXIT_DONE,
    )


_SPLITS: Mapping[type[SplitRequest], Callable[[Any, Context], Result]] = {
    DomainSplitRequest: _split_domain,
    SubpopulationSplitRequest: _split_subpopulation,
    SharesSplitRequest: _split_shares,
    GroupsSplitRequest: _split_groups,
    PlacesSplitRequest: _split_places,
    FoldersSplitRequest: _split_folders,
}


def _saved(
    made: Split,
    request: DomainSplitRequest | SubpopulationSplitRequest | SharesSplitRequest,
    context: Context,
) -> Result:
    """Write a split; its counts."""
    for text in made.notes:
        context.note(text)
    changed = save_split(made, request.out, replace=request.replace)
    found = made.counts()
    sizes = ", ".join(f"{found[part]:,} {part}" for part in made.parts)
    context.say(f"{request.out}: {sizes}, {'written' if changed else 'unchanged'}")
    return Result(records=counts(found, testset=request.out.name))


def _saved_groups(
    groups: Groups,
    about: Mapping[str, Any],
    request: GroupsSplitRequest | PlacesSplitRequest,
    context: Context,
) -> Result:
    for text in groups.notes:
        context.note(text)
    changed = write_documents(
        request.out,
        {"groups.csv": groups.table()},
        kind="groups",
        about=about,
        replace=request.replace,
    )
    found = {name: len(ids) for name, ids in groups.images.items()}
    state = "written" if changed else "unchanged"
    context.say(f"{request.out}: {len(found)} groups, {state}")
    return Result(records=counts(found))


# Words matched to classes.


def match_labels(request: MatchLabelsRequest, context: Context) -> Result:
    """Match the words of subsets to the nodes of a tree of classes."""
    target = None
    if request.subset_names is not None:
        names = read_subset_names(request.subset_names)
    else:
        testset = context.find(str(request.testset), find_testset)
        target = testset.label_space
        names = SubsetNames({one: split_subset_name(one) for one in read_subsets(testset).names})
    tree = read_class_tree(request.tree)
    vocabulary = (
        words_of(names.subsets.values())
        if request.parents is None
        else read_vocabulary(request.parents)
    )
    for text in (*names.notes, *tree.notes, *vocabulary.notes):
        context.note(text)
    overrides = {} if request.overrides is None else read_overrides(request.overrides)
    for word in overrides:
        if word not in vocabulary.parents:
            context.note(f"the override of {word!r} has no effect: the vocabulary lacks it")
    words = match_words(vocabulary, tree, WordNetNouns.built_in(), overrides=overrides)
    found = match_subsets(names.subsets, words)
    if request.out is not None:
        space = read_classes(request.classes)
        reason = _no_map(found, space, target)
        if reason:
            context.note(f"no label map: {reason}")
        changed = write_documents(
            request.out,
            matching_tables(found, source=None if reason else space, target=target),
            kind="matching",
            about={"tree": tree.name, "overrides": overrides},
            replace=request.replace,
        )
        context.say(f"{request.out}: {'written' if changed else 'unchanged'}")
    numbers = {
        "subsets": len(names.subsets),
        "words": len(vocabulary.parents),
        "words_matched": len(words.matches),
        "words_suspicious": len(words.suspicious),
        "subsets_selected": len(found.selected),
        "classes_selected": len(found.classes),
        "leaves_covered": len(found.covered),
        "leaves": len(tree.leaves),
    }
    return Result(records=counts(numbers), value=found)


def _no_map(found: SubsetMatches, source: LabelSpace, target: LabelSpace | None) -> str:
    """Why there can be no label map, or an empty text."""
    tree = found.words.tree
    if not all(leaf in source for leaf in tree.leaves):
        return f"leaves of {tree.name} are not classes of {source.name}; see --classes"
    missing = [word for word in (target.ids if target else ()) if word not in found.words.matches]
    if missing:
        return (
            f"{len(missing)} classes of the set match no node, such as {missing[0]!r}: build it "
            "without them, or give overrides"
        )
    return "" if target or found.classes else "no class is selected"
