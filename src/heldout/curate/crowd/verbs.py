"""The verb ``crowd grids``: candidates and controls of a request, composed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from heldout.core import schema
from heldout.core.context import Context, Result
from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.records import counts
from heldout.core.request import RequestError, unused
from heldout.core.tables import SUFFIXES, read_table_file
from heldout.curate.crowd.grids import (
    PUBLISHED_ORIGINALS,
    Controls,
    GridSizes,
    compose,
    compose_special,
)
from heldout.curate.crowd.requests import GridsRequest
from heldout.curate.crowd.selection import (
    NOTHING_SAID,
    Candidate,
    PoolJudgements,
    candidates_of,
    select,
    vote_counts,
)
from heldout.curate.pool_images import find_images
from heldout.data.judgements.for_testset import votes_about
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import SpaceDistances
from heldout.data.published.imagenetv2_grids import read_candidates, write_grids
from heldout.data.testset import TestSet, find_testset

_MARKS = ("image_id", "class_id", "control")
_NAMED = 6


def grids(request: GridsRequest, context: Context) -> Result:
    """Compose the grids of a pool or of a list of candidates."""
    pool = None if request.is_list else _pool(request, context)
    candidates = _listed(request) if pool is None else candidates_of(pool)
    originals = _original_set(request, context)
    controls = _controls(request, candidates, pool, originals)
    standing = NOTHING_SAID if pool is None else PoolJudgements.of(pool, context.workspace)
    if request.special:  # any candidate may stand between their controls, as published
        standing = PoolJudgements(blacklisted=standing.blacklisted, duplicates=standing.duplicates)
    excluded = {label: why for label, _, why in (text.partition("=") for text in request.exclude)}
    asked = select(
        candidates,
        standing,
        votes=request.votes,
        stopping=request.stopping(request.votes),
        excluded=excluded,
        classes=request.first_classes,
        controls=controls.images if controls else (),
    )
    tally = {"candidates": len(candidates)}
    tally |= {f"left_out_{reason}": n for reason, n in sorted(asked.left_out.items())}
    tally["asked_about"] = len(asked.candidates)
    if request.stop is not None:
        tally["votes_saved"] = asked.votes_saved
    sizes = GridSizes(**{str(role): n for role, n in request.grid.items()})
    if request.special is not None and controls is not None:
        sets = [each for each in (pool, originals) if each is not None]
        named = [c.name for known in controls.positive.values() for c in known]
        votes = vote_counts(votes_about(sets, context.workspace.judgements, listed=named))
        annotated = {
            label: [c.name for c in known if votes.get((c.name, label), (0, 0))[1] >= request.votes]
            for label, known in controls.positive.items()
            if label not in excluded
        }
        below = sorted(k for k, known in annotated.items() if len(known) < request.special)
        tally["classes_below"] = len(below)
        if below:
            more = f" and {len(below) - _NAMED:,} more" if len(below) > _NAMED else ""
            context.note(
                f"{len(below):,} classes have fewer than {request.special} annotated originals: "
                f"{', '.join(below[:_NAMED])}{more}"
            )
        made = compose_special(
            asked.candidates,
            controls,
            annotated,
            originals=request.special,
            sizes=sizes,
            seed=request.seed,
            legacy=request.legacy,
        )
    else:
        made = compose(
            asked.candidates, controls, sizes=sizes, seed=request.seed, legacy=request.legacy
        )
    if not made:
        context.note("nothing is left to ask about")
    if request.out is not None:
        write_grids(request.out, (grid.published() for grid in made))
        context.say(f"wrote {request.out}")
    if any(c.image_id is None for grid in made for c in (*grid.positive, *grid.negative)):
        context.note("controls are named by class and index: name their images with --controls")
    tally |= {
        "grids": len(made),
        "topped_up": sum(grid.topped_up for grid in made),
        "positive_controls": sum(len(grid.positive) for grid in made),
        "negative_controls": sum(len(grid.negative) for grid in made),
    }
    counted = counts(tally, testset=pool.name if pool else None)
    return Result(records=[*made, *counted], brief=counted, value=made)


def _pool(request: GridsRequest, context: Context) -> TestSet:
    found = find_images(context, request.pool).pool
    if found is None or not found.truths:
        raise UserError(
            f"the images of {request.pool} have no classes to ask about",
            fix="give them a truth with heldout import truth, or name another pool",
        )
    return found


def _listed(request: GridsRequest) -> list[Candidate]:
    """The candidates of a list with their classes, which another file has."""
    path, place = Path(request.pool), Path(str(request.classes_of))
    classes = schema.read(place, dict[str, str], fix="give a JSON object of candidate -> class")
    listed = read_candidates(path)
    if missing := [image for image in listed if image not in classes]:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise BadFile(place, f"has no class for {missing[0]!r}{more}", fix=f"add those of {path}")
    return [Candidate(image, classes[image]) for image in listed]


def _is_file(controls: str) -> bool:
    return Path(controls).suffix.lower() in (".json", *SUFFIXES)


def _original_set(request: GridsRequest, context: Context) -> TestSet | None:
    """The test set that controls are drawn from, if it is one."""
    name = request.controls
    if name in (None, "none") or _is_file(str(name)):
        return None
    return context.find(str(name), find_testset)


def _controls(
    request: GridsRequest,
    candidates: Sequence[Candidate],
    pool: TestSet | None,
    originals: TestSet | None,
) -> Controls | None:
    """The controls that a request names, for the classes that they are needed for."""
    named = request.controls
    if named == "none":
        return None
    if named is not None and _is_file(named) and not named.endswith(".json"):
        unused(request, "controls that are marked by hand", "similar")
        return Controls.of_marks(_marks(Path(named)))
    classes = list(dict.fromkeys(candidate.class_id for candidate in candidates))
    nearest = _nearest(request, pool)
    lists: dict[str, list[str | None]] = {}
    if originals is not None:
        for image, label in candidates_of(originals):
            lists.setdefault(label, []).append(image)
    elif named is not None:
        fix = "give a JSON object of class -> its images in order"
        lists |= schema.read(Path(named), dict[str, list[str | None]], fix=fix)
    if request.special:
        classes = [label for label in lists if label in set(classes)]
    elif pool is None and originals is None:  # what the file does not have is named by its index
        unknown: list[str | None] = [None] * PUBLISHED_ORIGINALS
        similar = (next((c for c in nearest(k) if c != k), k) for k in classes)
        lists = {**dict.fromkeys([*classes, *similar], unknown), **lists}
    return Controls.of_originals(lists, classes, nearest)


def _marks(path: Path) -> Iterator[tuple[str, str, str]]:
    table = read_table_file(path)
    if missing := [name for name in _MARKS if name not in table.column_names]:
        raise BadFile(path, f"has no column {missing[0]}", fix=f"give it {', '.join(_MARKS)}")
    images, labels, answers = (table[name].to_pylist() for name in _MARKS)
    for row in zip(images, labels, answers, strict=True):
        if not all(row):
            raise BadFile(path, f"has a row with an empty cell: {row}", fix="fill it in")
        yield row


def _nearest(request: GridsRequest, pool: TestSet | None) -> Callable[[str], Sequence[str]]:
    """A class -> classes by similarity, the most similar first."""
    if request.similar is not None:
        path = request.similar
        known = schema.read(
            path, dict[str, list[str]], fix="give a JSON object of class -> classes"
        )

        def listed(label: str) -> Sequence[str]:
            if label not in known:
                raise BadFile(path, f"has no class {label!r}", fix="add its most similar classes")
            return known[label]

        return listed
    if request.grid.get("negative") == 0 and not (request.special or request.legacy):
        return lambda label: ()
    space = LabelSpace.load("imagenet-1k") if pool is None else pool.label_space
    fix = "name similar classes with {similar}"
    try:
        distances = SpaceDistances(space)
    except LabelError as error:
        what = f"{error.message}, so WordNet does not know its most similar class"
        raise RequestError(what, fix=fix) from None

    def by_wordnet(label: str) -> Sequence[str]:
        if label not in space:
            raise RequestError(
                f"{label!r} is not a class of {space.name}", fix=f"correct it, or {fix}"
            )
        return distances.most_similar(label, len(space))

    return by_wordnet
