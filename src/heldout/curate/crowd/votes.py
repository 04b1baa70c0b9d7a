"""What a crowd has selected: frequencies, agreement, and how good and how fast people are.

All of it is computed from ``vote`` judgements: their evidence says in which grid and assignment a vote
was given, in which role its image was shown, and when the grid was published and accepted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import ClassVar

from heldout.core.errors import NotApplicable
from heldout.core.records import Table
from heldout.core.workspace import slug
from heldout.data.judgements.consensus import standing_answers
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.workers import COUNTED, selection_frequency
from heldout.data.testset import ColumnType, TestSet, make_testset

_GOLD = {"positive": "selected", "negative": "not-selected"}


@dataclass(frozen=True, kw_only=True)
class ImageFrequency:
    """How often one image was selected for one class, pooled over all grids or in one ``grid``.

    ``low`` and ``high`` are Wilson's interval of ``frequency``, which is ``selected`` of ``n`` votes.
    """

    record: ClassVar[str] = "selection_frequency"
    table: ClassVar[Table] = Table(
        "selection frequencies",
        ("image=image_id", "class=class_id", "grid", "selected:,", "n:,", "frequency:.2f[]"),
    )
    image_id: str
    class_id: str
    grid: str | None = None
    selected: int
    n: int
    frequency: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CrowdWorker:
    """One person: how many answers, and how many controls they got right.

    ``accuracy``             controls that they were right about, with Wilson's interval; None without
    ``positive``, ``negative``  the same of images of the class, and of another class
    ``seconds``              median time from accepting to submitting a grid
    ``counts``               whether their votes are counted: not below ``--min-accuracy``
    """

    record: ClassVar[str] = "crowd_worker"
    table: ClassVar[Table] = Table(
        "people",
        (
            *("who", "assignments:,", "controls:,", "accuracy:.2f[]", "positive:.2f"),
            *("negative:.2f", "selected:.2f", "seconds:.0f", "counts"),
        ),
    )
    who: str
    assignments: int
    controls: int
    accuracy: float | None
    low: float | None
    high: float | None
    positive: float | None
    negative: float | None
    selected: float
    seconds: float | None
    counts: bool


@dataclass(frozen=True, kw_only=True)
class CrowdAssignment:
    """One answer to one grid, and all that was selected.

    ``seconds``  from accepting to submitting; ``delay`` the seconds from publishing to accepting
    """

    record: ClassVar[str] = "crowd_assignment"
    table: ClassVar[Table] = Table(
        "answers",
        (
            *("assignment", "grid", "who", "status", "positive:.2f", "negative:.2f"),
            *("share=selected_share:.2f", "seconds:.0f", "delay:.0f"),
        ),
    )
    assignment: str
    grid: str
    class_id: str
    who: str
    status: str
    images: int
    positive: float | None
    negative: float | None
    accuracy: float | None
    seconds: float | None
    delay: float | None
    selected: tuple[str, ...]

    @property
    def selected_share(self) -> float:
        """Share of its images that were selected."""
        return len(self.selected) / self.images


@dataclass(frozen=True, kw_only=True)
class CrowdGrid:
    """One grid: answers, agreement, and times in seconds.

    ``accuracy``  mean share of controls that its people were right about
    ``kappa``     Fleiss's kappa of its answers; None where it has fewer than two
    """

    record: ClassVar[str] = "crowd_grid"
    table: ClassVar[Table] = Table(
        "grids answered",
        (
            *("class=class_id", "answers:,", "left_out:,", "accuracy:.2f", "kappa:.2f"),
            *("least_seconds:.0f", "median_seconds:.0f", "most_seconds:.0f"),
            *("median_delay:.0f", "grid"),
        ),
    )
    grid: str
    class_id: str
    answers: int
    left_out: int
    accuracy: float | None
    kappa: float | None
    least_seconds: float | None
    mean_seconds: float | None
    median_seconds: float | None
    most_seconds: float | None
    median_delay: float | None


@dataclass(frozen=True, kw_only=True)
class CrowdSummary:
    """All grids together.

    ``kappa``  Fleiss's kappa within grids of one number of answers, its mean weighted by their votes
    """

    record: ClassVar[str] = "crowd_summary"
    table: ClassVar[Table] = Table(
        "the crowd",
        (
            *("grids:,", "answers:,", "left_out:,", "people:,", "images:,", "votes:,"),
            *("kappa:.2f", "accuracy:.2f", "median_seconds:.0f", "median_delay:.0f"),
        ),
    )
    grids: int
    answers: int
    left_out: int
    people: int
    images: int
    votes: int
    kappa: float | None
    accuracy: float | None
    median_seconds: float | None
    median_delay: float | None


@dataclass(frozen=True)
class CrowdVotes:
    """What :func:`crowd_votes` found. ``images`` are pooled over grids, ``in_grids`` are not."""

    summary: CrowdSummary
    workers: Sequence[CrowdWorker]
    grids: Sequence[CrowdGrid]
    assignments: Sequence[CrowdAssignment]
    images: Sequence[ImageFrequency]
    in_grids: Sequence[ImageFrequency]


def crowd_votes(
    votes: Iterable[Judgement],
    *,
    min_accuracy: float | None = None,
    level: float = 0.95,
) -> CrowdVotes:
    """What votes say, those of rejected and ignored assignments left out.

    ``min_accuracy``  people with a smaller share of right controls are left out; those who saw no
                      controls stay
    """
    standing = standing_answers(votes)
    if not standing:
        raise NotApplicable("there are no votes on these images", fix="fetch them: crowd answers")
    by_assignment: dict[tuple[str, str, str], list[Judgement]] = defaultdict(list)
    for vote in standing:
        said = vote.evidence
        grid, name = str(said.get("grid", "")), str(said.get("assignment", ""))
        by_assignment[grid, name, vote.who].append(vote)
    assignments = {key: _assignment(*key, given) for key, given in sorted(by_assignment.items())}
    counted = {key for key, one in assignments.items() if one.status in COUNTED}
    workers = _workers(by_assignment, assignments, counted, min_accuracy, level)
    poor = {worker.who for worker in workers if not worker.counts}
    counted = {key for key in counted if key[2] not in poor}
    of_grid: dict[str | None, list[Judgement]] = defaultdict(list)
    for key in sorted(counted):
        of_grid[key[0] or None] += by_assignment[key]
    kept = [vote for given in of_grid.values() for vote in given]
    grids, disagreement = _grids(assignments, counted, by_assignment)
    listed = [assignments[key] for key in sorted(counted)]
    pairs = {(vote.subject["image_id"], vote.subject["class_id"]) for vote in kept}
    summary = CrowdSummary(
        grids=len({one.grid for one in listed}),
        answers=len(listed),
        left_out=len(assignments) - len(listed),
        people=len({one.who for one in listed}),
        images=len(pairs),
        votes=len(kept),
        kappa=disagreement,
        accuracy=_mean([one.accuracy for one in listed]),
        median_seconds=_median([one.seconds for one in listed]),
        median_delay=_median([one.delay for one in listed]),
    )
    return CrowdVotes(
        summary,
        workers,
        grids,
        list(assignments.values()),
        _frequencies(kept, level=level),
        sorted(
            (
                one
                for name in of_grid
                for one in _frequencies(of_grid[name], level=level, grid=name)
            ),
            key=lambda one: (one.class_id, one.image_id, one.grid or ""),
        ),
    )


def with_frequencies(testset: TestSet, found: Iterable[ImageFrequency], folder: Path) -> TestSet:
    """A set to be saved in ``folder``, with the frequencies for the class of each image as columns.

    They are those of this moment (``frequency``, ``votes``, ``frequency_low``, ``frequency_high``),
    to be looked at: whatever draws by frequency counts the votes on the set itself.
    """
    import pyarrow as pa

    known = {(one.image_id, one.class_id): one for one in found}
    classes = testset.class_of_images()
    said = [known.get((image, classes.get(image, ""))) for image in testset.image_ids.to_pylist()]
    made = {
        "frequency": pa.array([one and one.frequency for one in said], pa.float64()),
        "votes": pa.array([one.n if one else 0 for one in said], pa.int64()),
        "frequency_low": pa.array([one and one.low for one in said], pa.float64()),
        "frequency_high": pa.array([one and one.high for one in said], pa.float64()),
    }
    images = testset.images
    images = images.drop_columns([name for name in made if name in images.column_names])
    for name, column in made.items():
        images = images.append_column(name, column)
    parent = {"name": testset.name, "content_hash": testset.content_hash, "relation": "pool"}
    # A pool's card has no parents: its facts say where it came from.
    card, root = testset.card, testset.images_root
    pool = card.stage == "pool"
    card = card.updated(
        name=slug(folder.name),
        images_root=None if root is None else root.resolve().as_posix(),
        columns={**card.columns, **dict.fromkeys(made, ColumnType(kind="ordered"))},
        facts={**card.facts, "parents": [parent]} if pool else card.facts,
        parents=() if pool else (*card.parents, parent),
    )
    return make_testset(
        card,
        images=images,
        truths=testset.truths,
        label_space=testset.space,
        memberships=testset.memberships,
    )


def _assignment(grid: str, name: str, who: str, votes: Sequence[Judgement]) -> CrowdAssignment:
    said = votes[0].evidence
    accepted, published = said.get("accepted"), said.get("published")
    right = {role: _share(_right(votes, role)) for role in _GOLD}
    return CrowdAssignment(
        assignment=name,
        grid=grid,
        class_id=votes[0].subject["class_id"],
        who=who,
        status=str(said.get("status", COUNTED[0])),
        images=len(votes),
        positive=right["positive"],
        negative=right["negative"],
        accuracy=_share([hit for role in _GOLD for hit in _right(votes, role)]),
        seconds=_seconds(accepted, votes[0].when),
        delay=_seconds(published, accepted),
        selected=tuple(sorted(v.subject["image_id"] for v in votes if v.answer == "selected")),
    )


def _workers(
    votes: dict[tuple[str, str, str], list[Judgement]],
    assignments: dict[tuple[str, str, str], CrowdAssignment],
    counted: Collection[tuple[str, str, str]],
    least: float | None,
    level: float,
) -> list[CrowdWorker]:
    """People whose answers count, the worst first."""
    from heldout.stats.intervals import wilson

    of_person: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for key in counted:
        of_person[key[2]].append(key)
    found = []
    for who, keys in of_person.items():
        given = [vote for key in keys for vote in votes[key]]
        by_role = {role: _right(given, role) for role in _GOLD}
        hits = [hit for each in by_role.values() for hit in each]
        interval = wilson(sum(hits), len(hits), level=level) if hits else None
        accuracy = _share(hits)
        found.append(
            CrowdWorker(
                who=who,
                assignments=len(keys),
                controls=len(hits),
                accuracy=accuracy,
                low=float(interval.low) if interval else None,
                high=float(interval.high) if interval else None,
                positive=_share(by_role["positive"]),
                negative=_share(by_role["negative"]),
                selected=sum(vote.answer == "selected" for vote in given) / len(given),
                seconds=_median([assignments[key].seconds for key in keys]),
                counts=least is None or accuracy is None or accuracy >= least,
            )
        )
    return sorted(found, key=lambda one: (2.0 if one.accuracy is None else one.accuracy, one.who))


def _grids(
    assignments: dict[tuple[str, str, str], CrowdAssignment],
    counted: Collection[tuple[str, str, str]],
    votes: dict[tuple[str, str, str], list[Judgement]],
) -> tuple[list[CrowdGrid], float | None]:
    """Each grid, and the agreement of all of them."""
    of_grid: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for key in assignments:
        of_grid[key[0]].append(key)
    found = []
    tables: dict[int, list[list[int]]] = defaultdict(list)
    for grid, keys in sorted(of_grid.items()):
        listed = [assignments[key] for key in keys if key in counted]
        by_image: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for key in keys:
            for vote in votes[key] if key in counted else ():
                by_image[vote.subject["image_id"]][vote.answer != "selected"] += 1
        rows = list(by_image.values())
        for row in rows:
            tables[sum(row)].append(row)
        seconds = [one.seconds for one in listed]
        times = [value for value in seconds if value is not None]
        found.append(
            CrowdGrid(
                grid=grid,
                class_id=assignments[keys[0]].class_id,
                answers=len(listed),
                left_out=len(keys) - len(listed),
                accuracy=_mean([one.accuracy for one in listed]),
                kappa=_kappa(rows),
                least_seconds=min(times, default=None),
                mean_seconds=_mean(seconds),
                median_seconds=_median(seconds),
                most_seconds=max(times, default=None),
                median_delay=_median([one.delay for one in listed]),
            )
        )
    known = [(_kappa(rows), n * len(rows)) for n, rows in sorted(tables.items())]
    weighed = [(kappa, weight) for kappa, weight in known if kappa is not None]
    total = sum(weight for _, weight in weighed)
    return found, sum(k * weight for k, weight in weighed) / total if total else None


def _kappa(rows: list[list[int]]) -> float | None:
    """Fleiss's kappa; None where chance explains that all answers are the same, or none can differ."""
    from heldout.stats.agreement import fleiss_kappa

    answers = {sum(row) for row in rows}
    if len(answers) != 1 or answers == {1} or not all(map(sum, zip(*rows, strict=True))):
        return None
    return fleiss_kappa(rows)


def _frequencies(
    votes: Iterable[Judgement], *, level: float, grid: str | None = None
) -> list[ImageFrequency]:
    return [
        ImageFrequency(grid=grid, **asdict(one)) for one in selection_frequency(votes, level=level)
    ]


def _right(votes: Iterable[Judgement], role: str) -> list[bool]:
    """Of each control of a role whether it was answered as it should be."""
    return [v.answer == _GOLD[role] for v in votes if v.evidence.get("role") == role]


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def _seconds(start: object, end: object) -> float | None:
    """The seconds between two moments; None where one is not known."""
    if not (isinstance(start, str) and isinstance(end, str)):
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
