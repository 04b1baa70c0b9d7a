"""The verbs of the crowd: grids are composed and published, answers fetched, votes looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from heldout.core import schema
from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_GATE, BadFile, UserError
from heldout.core.files import held, write_text
from heldout.core.records import Table, counts
from heldout.core.request import unused
from heldout.core.tables import SUFFIXES, read_table_file
from heldout.curate.crowd.answers import Answers
from heldout.curate.crowd.backend import Crowd, Secrets
from heldout.curate.crowd.grids import (
    PUBLISHED_ORIGINALS,
    Controls,
    GridSizes,
    compose,
    compose_special,
)
from heldout.curate.crowd.local import LocalCrowd
from heldout.curate.crowd.publication import (
    CrowdFolder,
    ImagePlace,
    Publication,
    Shown,
    rates_of,
)
from heldout.curate.crowd.requests import (
    AnswersRequest,
    GridsRequest,
    MTurkAnswersRequest,
    MTurkPublishRequest,
    PublishRequest,
    SimulatedPublishRequest,
    VotesRequest,
)
from heldout.curate.crowd.selection import (
    NOTHING_SAID,
    Candidate,
    PoolJudgements,
    candidates_of,
    select,
    vote_counts,
)
from heldout.curate.crowd.similar_classes import Nearest, similar_classes
from heldout.curate.crowd.simulated import SimulatedCrowd, drawn_frequency, drawn_people
from heldout.curate.crowd.votes import CrowdVotes, crowd_votes, with_frequencies
from heldout.curate.pool_images import find_images
from heldout.data.judgements.for_testset import votes_about
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.imagenetv2_grids import (
    PublishedGrid,
    read_candidates,
    read_grids,
    write_grids,
)
from heldout.data.testset import TestSet, find_testset, save

_MARKS = ("image_id", "class_id", "control")
_NAMED = 6


def grids(request: GridsRequest, context: Context) -> Result:
    """Compose the grids of a pool or of a list of candidates."""
    pool = None if request.is_list else _pool(request, context)
    candidates = _listed(request) if pool is None else candidates_of(pool)
    originals = _original_set(request, context)
    controls = _controls(request, candidates, pool, originals, context)
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


def _pool(request: GridsRequest | PublishRequest, context: Context) -> TestSet:
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
    context: Context,
) -> Controls | None:
    """The controls that a request names, for the classes that they are needed for."""
    named = request.controls
    if named == "none":
        return None
    if named is not None and _is_file(named) and not named.endswith(".json"):
        unused(request, "controls that are marked by hand", "similar")
        return Controls.of_marks((i, k, role) for i, k, role in _rows(Path(named), _MARKS))
    classes = list(dict.fromkeys(candidate.class_id for candidate in candidates))
    nearest = _nearest(request, pool, originals, context)
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


def _rows(path: Path, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The rows of a table file in some columns, no cell empty."""
    table = read_table_file(path)
    if missing := [name for name in names if name not in table.column_names]:
        raise BadFile(path, f"has no column {missing[0]}", fix=f"give it {', '.join(names)}")
    for row in zip(*(table[name].to_pylist() for name in names), strict=True):
        if any(cell in (None, "") for cell in row):
            raise BadFile(path, f"has a row with an empty cell: {row}", fix="fill it in")
        yield row


def _nearest(
    request: GridsRequest, pool: TestSet | None, originals: TestSet | None, context: Context
) -> Nearest:
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
    return similar_classes(space, originals or pool, context)


@dataclass(frozen=True, kw_only=True)
class CrowdCost:
    """What grids cost on MTurk in dollars; ``fee`` is a share of the reward."""

    record: ClassVar[str] = "crowd_cost"
    table: ClassVar[Table] = Table(
        "cost on MTurk in dollars",
        ("grids:,", "assignments:,", "reward:.2f", "fee:%0", "total:,.2f", "paid"),
    )
    grids: int
    assignments: int
    reward: float
    fee: float
    total: float
    paid: bool


def publish(request: PublishRequest, context: Context) -> Result:
    """Publish the grids that were not published before."""
    listed = read_grids(request.grids)
    controls = request.controls and context.find(request.controls, find_testset)
    shown = Shown(pool=_pool(request, context), controls=controls or None)
    shown.check(listed)
    folder = CrowdFolder.of(context.workspace, _name(request))
    kept = folder.grids()
    new = [grid for grid in listed if grid.uuid not in kept]
    if listed and not new:
        context.note("all grids were published before: another round is composed with another seed")
    costs = _costs(request, len(new))
    for cost in costs:
        paid = "" if cost.paid else ", if this were not the sandbox"
        context.say(f"{cost.grids:,} grids cost ${cost.total:,.2f} with fees{paid}")
    if request.plan:
        if isinstance(request, MTurkPublishRequest) and request.out is not None:
            _preview(request.out, listed, shown, folder, context)
        found = counts({"grids": len(listed), "published_before": len(listed) - len(new)})
        return Result(records=[*found, *costs])
    with held(folder.path), context.progress("published", what="grids") as progress:
        done = _publication(request, shown, folder).publish(listed, progress=progress)
    context.say(f"kept in {folder.path}; its answers: heldout crowd answers {request.crowd}")
    return Result(records=[*counts({"grids": len(listed), **done}), *costs])


def _name(request: PublishRequest | AnswersRequest) -> str:
    """The folder of a crowd: the sandbox and the live service are two."""
    if isinstance(request, MTurkPublishRequest | MTurkAnswersRequest):
        return "mturk-live" if request.live else "mturk-sandbox"
    return request.crowd


def _costs(request: PublishRequest, grids: int) -> list[CrowdCost]:
    if not isinstance(request, MTurkPublishRequest):
        return []
    from heldout.curate.crowd.mturk import Terms, cost, fee_share

    reward = request.offer.get("reward", Terms.reward)
    fee = request.offer.get("fee", fee_share(request.assignments))
    return [
        CrowdCost(
            grids=grids,
            assignments=request.assignments,
            reward=reward,
            fee=fee,
            total=round(cost(grids, request.assignments, reward, fee), 2),
            paid=bool(request.live),
        )
    ]


def _publication(request: PublishRequest, shown: Shown, folder: CrowdFolder) -> Publication:
    """A request as what publishes."""
    secrets = folder.secrets
    place: ImagePlace | None = ImagePlace(str(folder.path / "images"))
    rates = served = None
    crowd: Crowd = LocalCrowd(folder.path / "crowd.db", secrets)
    if isinstance(request, SimulatedPublishRequest):
        place, seed = None, request.seed
        skill = {"hits": 0.95, "false-alarms": 0.02, **request.skill}
        people = drawn_people(request.crowd_size, skill["hits"], skill["false-alarms"], seed)
        crowd = SimulatedCrowd.of(folder.path, secrets, people)
        known = {} if request.frequencies is None else _frequencies(request.frequencies)
        rates = rates_of(known, lambda image, label: drawn_frequency(image, label, seed))
    elif isinstance(request, MTurkPublishRequest):
        if request.images_to is not None:
            place = ImagePlace(request.images_to)
        served = str(request.images_at)
        crowd = _mturk(request, secrets)
    return Publication(
        crowd=crowd,
        folder=folder,
        shown=shown,
        assignments=request.assignments,
        place=place,
        served=served,
        rates=rates,
    )


def _mturk(request: MTurkPublishRequest | MTurkAnswersRequest, secrets: Secrets) -> Crowd:
    from heldout.curate.crowd.mturk import MTurkCrowd, Terms

    if isinstance(request, MTurkAnswersRequest):
        return MTurkCrowd(secrets, live=bool(request.live))
    given, day = request.offer, 86_400
    terms = Terms(
        reward=given.get("reward", Terms.reward),
        duration=round(given.get("minutes", Terms.duration / 60) * 60),
        lifetime=round(given.get("days", Terms.lifetime / day) * day),
        approval=round(given.get("approval-days", Terms.approval / day) * day),
        qualifications={str(name): value for name, value in request.qualifications.items()},
    )
    at = str(request.images_at)
    return MTurkCrowd(secrets, images=at, terms=terms, live=bool(request.live))


def _preview(
    path: Path, grids: Sequence[PublishedGrid], shown: Shown, folder: CrowdFolder, context: Context
) -> None:
    """The page of the first grid, with its images inside."""
    import base64

    from heldout.curate.crowd.page import grid_page

    if not grids:
        raise UserError("there are no grids to look at", fix="compose some with crowd grids")
    slots = shown.slots(grids[0])
    images = [base64.b64encode(shown.copy(image, home)).decode() for image, _, home in slots]
    addresses = [f"data:image/jpeg;base64,{text}" for text in images]
    task = shown.task(grids[0], folder.secrets, assignments=1)
    write_text(path, grid_page(task, addresses, action="#"))
    context.say(f"wrote {path}")


def _frequencies(path: Path) -> dict[tuple[str, str], float]:
    """True frequencies of simulated people's images, by image and class."""
    names = ("image_id", "class_id", "frequency")
    found: dict[tuple[str, str], float] = {}
    for image, label, text in _rows(path, names):
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= 1.0:
            raise BadFile(path, f"frequency {text!r} of {image!r}", fix="give shares from 0 to 1")
        found[image, label] = value
    return found


def answers(request: AnswersRequest, context: Context) -> Result:
    """Fetch answers, settle them, and add their votes to the judgements."""
    folder = CrowdFolder.of(context.workspace, _name(request))
    if not (folder.path / "grids").is_dir():
        raise UserError(
            f"no grids were published to {folder.path.name}", fix="publish some: crowd publish"
        )
    with held(folder.path):
        kept = Answers.of(folder)
        differences = []
        if not request.stored:
            crowd = _asked_crowd(request, folder)
            listed = list(crowd.tasks())
            differences = kept.differences(listed)
            with context.progress("asked", what="grids") as progress:
                kept.fetch(crowd, listed, progress=progress)
            if request.plan:
                refused = kept.weigh()
                done = counts(kept.counts())
                return Result(records=[*done, *kept.progress(), *refused, *differences])
            if request.approve or request.reject:
                kept.weigh()
                kept.write()  # before it is settled: what is rejected next has counted until now
                kept.settle(crowd, approve=request.approve, rejected=request.reject)
        kept.ignored.update(request.ignore)
        refused = kept.weigh()
        kept.write()
        changed = kept.hashes() if request.stored else kept.changed()
        with JudgementStore(context.workspace.judgements) as store:
            added = store.add(kept.votes(changed, source=f"crowd {folder.path.name}"))
        kept.ingested()
    wrong = [one for one in differences if one.level == "error"]
    for one in wrong:
        context.note(f"grid {one.grid} {one.problem}")
    tally = {**kept.counts(), "votes_added": added.added, "votes_known": added.known}
    return Result(
        records=[*counts(tally), *kept.progress(), *refused, *differences],
        code=EXIT_GATE if wrong else 0,
    )


def _asked_crowd(request: AnswersRequest, folder: CrowdFolder) -> Crowd:
    if isinstance(request, MTurkAnswersRequest):
        return _mturk(request, folder.secrets)
    if request.crowd == "simulated":
        return SimulatedCrowd.of(folder.path, folder.secrets)
    return LocalCrowd(folder.path / "crowd.db", folder.secrets)


def votes(request: VotesRequest, context: Context) -> Result:
    """What the crowd has selected of the images of some sets."""
    sets = [_set(name, context) for name in request.sets]
    found: CrowdVotes = crowd_votes(
        votes_about(sets, context.workspace.judgements),
        min_accuracy=request.min_accuracy,
        level=request.level,
    )
    people = [worker for worker in found.workers if not worker.counts]
    if people:
        context.note(f"{len(people):,} people are left out: they missed too many controls")
    if request.out is not None:
        save(
            with_frequencies(sets[0], found.images, request.out),
            request.out,
            replace=request.replace,
        )
        context.say(f"wrote {request.out}")
    brief = [found.summary, *found.grids, *found.workers]
    rest = [*found.assignments, *found.images, *found.in_grids]
    return Result(records=[*brief, *rest], brief=brief)


def _set(name: str, context: Context) -> TestSet:
    found = find_images(context, name).pool
    if found is None:
        raise UserError(f"{name} has vectors, not images", fix="name a pool or a test set")
    return found
