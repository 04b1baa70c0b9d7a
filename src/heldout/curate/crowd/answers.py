"""Answers come in: fetched, kept, checked, and turned into votes.

What a crowd gave is kept before anything else is done with it, one file per grid, and votes are made
of these files alone. So a run that was killed loses nothing, the same answers twice add nothing, and a
copy of the folder is a backup: answers that the crowd no longer has stay.

The votes of an assignment are judgements that depend on nothing but the assignment and its grid. Where
they stop counting, because it is rejected or ignored, the same votes are added once more with that
state, and supersede the former ones; and again where they count after all. Approval changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from heldout.core import schema
from heldout.core.errors import UserError
from heldout.core.files import sha256_text
from heldout.core.progress import Progress, Tick, no_progress
from heldout.core.records import Table
from heldout.curate.crowd.backend import Assignment, Crowd, PublishedTask, Secrets, chosen
from heldout.curate.crowd.publication import CrowdFolder, KeptGrid
from heldout.data.judgements.judgement import Judgement

COUNTS, REJECTED, IGNORED = "Submitted", "Rejected", "Ignored"
"""States of votes, as their evidence has them; only those of the first count."""


class KeptAnswers(schema.Document, frozen=True, kw_only=True):
    """The assignments of one grid; ``published`` is when its task was, as the crowd says."""

    schema_version: int = 1
    grid: str
    published: str
    assignments: tuple[Assignment, ...] = ()


class IgnoredNames(schema.Document, frozen=True, kw_only=True):
    """What does not count, and why: by the name of a grid, an assignment or a person."""

    schema_version: int = 1
    reasons: Mapping[str, str]


class Ingested(schema.Document, frozen=True, kw_only=True):
    """Which content of the files of answers is among the judgements: grid -> SHA-256."""

    schema_version: int = 1
    answers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RefusedAssignment:
    """An assignment that gives no votes, and why; reject it to have somebody else answer."""

    record: ClassVar[str] = "refused_assignment"
    table: ClassVar[Table] = Table(
        "assignments without votes", ("assignment", "grid", "who", "status", "problem")
    )
    assignment: str
    grid: str
    who: str
    status: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class Answered:
    """How many grids have a given number of answers that were not rejected."""

    record: ClassVar[str] = "answered_grids"
    table: ClassVar[Table] = Table("grids by answers", ("answers:,", "grids:,"), rows=40)
    answers: int
    grids: int


@dataclass(frozen=True, kw_only=True)
class Inconsistent:
    """A grid that is not the same here and at the crowd; an error unless the crowd only lacks it."""

    record: ClassVar[str] = "inconsistent_grid"
    table: ClassVar[Table] = Table(
        "grids that differ from the crowd's", ("level", "grid", "task", "problem")
    )
    level: str
    grid: str
    task: str
    problem: str


@dataclass(kw_only=True)
class Answers:
    """The answers of one crowd, as its folder has them.

    ``grids``   the grids that were published
    ``given``   grid -> its assignments, in the order of their submission
    """

    folder: CrowdFolder
    grids: Mapping[str, KeptGrid]
    given: dict[str, KeptAnswers]
    ignored: dict[str, str]
    secrets: Secrets
    _read: dict[str, KeptAnswers] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: CrowdFolder) -> Answers:
        """What is kept in a folder."""
        grids = folder.grids()
        given = {}
        for name in grids:
            path = folder.path / "answers" / f"{name}.json"
            if path.exists():
                given[name] = schema.read(path, KeptAnswers, fix="restore the file from a backup")
        names = folder.path / "ignored.json"
        ignored = schema.read(names, IgnoredNames).reasons if names.exists() else {}
        return cls(
            folder=folder,
            grids=grids,
            given=given,
            ignored=dict(ignored),
            secrets=folder.secrets,
            _read=dict(given),
        )

    # what is at the crowd

    def differences(self, listed: Iterable[PublishedTask]) -> list[Inconsistent]:
        """Where the grids that were published and the tasks of the crowd differ."""
        there: dict[str, list[str]] = {}
        for one in listed:
            there.setdefault(one.grid, []).append(one.task)
        found = []
        for grid, tasks in sorted(there.items()):
            kept = self.grids.get(grid)
            for task in tasks:
                if kept is None:
                    problem = "is not known here: restore its record, or publish the grid again"
                elif kept.task != task:
                    problem = f"is another task than the one published here, {kept.task}"
                else:
                    continue
                found.append(Inconsistent(level="error", grid=grid, task=task, problem=problem))
        for grid, kept in sorted(self.grids.items()):
            if kept.task not in there.get(grid, ()):
                problem = "is not at the crowd: it may have dropped it; its answers here stay"
                found.append(
                    Inconsistent(level="warning", grid=grid, task=kept.task, problem=problem)
                )
        return found

    def fetch(
        self, crowd: Crowd, listed: Iterable[PublishedTask], *, progress: Progress = no_progress
    ) -> None:
        """Take in what the crowd has. Grids whose assignments are all approved are not asked about."""
        known = [p for p in listed if p.grid in self.grids and self.grids[p.grid].task == p.task]
        began = time.monotonic()
        for number, one in enumerate(known, 1):
            before = self.given.get(one.grid)
            if before is None or not _finished(before, one):
                kept = before or KeptAnswers(grid=one.grid, published=one.published)
                fetched = list(crowd.answers(one.task))
                self.given[one.grid] = replace(kept, assignments=_merged(kept, fetched))
            progress(Tick(number, 0, 0, len(known), time.monotonic() - began))

    def settle(self, crowd: Crowd, *, approve: bool, rejected: Mapping[str, str]) -> None:
        """Reject assignments for a reason; approve all others that wait and have votes."""
        status = {
            one.assignment: one.status for kept in self.given.values() for one in kept.assignments
        }
        for name in sorted(rejected):
            if name not in status:
                raise UserError(
                    f"no assignment {name!r} was fetched", fix="see crowd votes --json for names"
                )
            if status[name] == "Approved":
                raise UserError(
                    f"assignment {name!r} is approved, which is for ever", fix="ignore its votes"
                )
        for grid, kept in self.given.items():
            problems = self.problems(kept) if approve else {}
            settled = []
            for one in kept.assignments:
                reason = rejected.get(one.assignment)
                good = approve and one.assignment not in problems
                if one.status == "Submitted" and (good or reason is not None):
                    crowd.settle(one.assignment, rejected=reason)
                    one = replace(one, status="Approved" if reason is None else "Rejected")
                settled.append(one)
            self.given[grid] = replace(kept, assignments=tuple(settled))

    # what they are worth

    def problems(self, kept: KeptAnswers) -> dict[str, str]:
        """The assignments of a grid that give no votes, and why."""
        tokens = self._tokens(kept.grid)
        found: dict[str, str] = {}
        first: dict[str, str] = {}
        # Who answers a grid twice has given one answer: the first that came in.
        for one in sorted(kept.assignments, key=lambda one: not one.votes):
            said = chosen(one.answer, kept.grid, tokens)
            if isinstance(said, str):
                found[one.assignment] = said
            elif first.setdefault(one.who, one.assignment) != one.assignment:
                found[one.assignment] = "is of a person who has answered this grid before"
        return found

    def weigh(self) -> list[RefusedAssignment]:
        """Settle which assignments' votes count; those that have none."""
        refused = []
        for grid, kept in self.given.items():
            problems = self.problems(kept)
            weighed = []
            for one in kept.assignments:
                if problem := problems.get(one.assignment):
                    refused.append(
                        RefusedAssignment(
                            assignment=one.assignment,
                            grid=grid,
                            who=one.who,
                            status=one.status,
                            problem=problem,
                        )
                    )
                else:
                    state = self._state(grid, one)
                    if one.votes[-1:] != (state,):
                        one = replace(one, votes=(*one.votes, state))
                weighed.append(one)
            self.given[grid] = replace(kept, assignments=tuple(weighed))
        return refused

    def _state(self, grid: str, one: Assignment) -> str:
        if one.status == "Rejected":
            return REJECTED
        names = {grid, one.assignment, one.who}
        return IGNORED if names & self.ignored.keys() else COUNTS

    def _tokens(self, grid: str) -> list[str]:
        return [self.secrets.token(grid, image) for image in self.grids[grid].grid.images_all]

    def votes(self, grids: Collection[str], *, source: str) -> Iterator[Judgement]:
        """The votes of some grids, former states included."""
        for grid in grids:
            kept, record = self.given[grid], self.grids[grid]
            tokens = self._tokens(grid)
            slots = [
                ({"class_id": record.grid.wnid, "image_id": image}, role, home)
                for image, role, home in record.slots()
            ]
            controls = {home for _, role, home in record.slots() if role != "candidate"}
            for one in kept.assignments:
                selected = chosen(one.answer, grid, tokens) if one.votes else ()
                for place, (subject, role, home) in enumerate(slots if one.votes else ()):
                    before = None
                    for state in one.votes:
                        vote = Judgement(
                            question="vote",
                            subject=subject,
                            answer="selected" if place in selected else "not-selected",
                            who=one.who,
                            when=one.submitted,
                            evidence={
                                "accepted": one.accepted,
                                "assignment": one.assignment,
                                "controls": ", ".join(sorted(controls)) or "none",
                                "grid": grid,
                                "published": kept.published,
                                "role": role,
                                "status": state,
                            },
                            source=source,
                            testset=home,
                            supersedes=before,
                        )
                        before = vote.judgement_id
                        yield vote

    # what is kept

    def write(self) -> None:
        """Write what has changed: answers, and what is ignored."""
        for grid, kept in self.given.items():
            if kept != self._read.get(grid):
                schema.write(self._path(grid), kept, seal=True)
                self._read[grid] = kept
        path = self.folder.path / "ignored.json"
        names = IgnoredNames(reasons=dict(sorted(self.ignored.items())))
        if self.ignored and not (path.exists() and schema.read(path, IgnoredNames) == names):
            schema.write(path, names, seal=True)

    def changed(self) -> dict[str, str]:
        """The grids whose answers are not yet all among the judgements, with their present hash."""
        path = self._ingested
        known = schema.read(path, Ingested).answers if path.exists() else {}
        hashes = self.hashes()
        return {grid: digest for grid, digest in hashes.items() if known.get(grid) != digest}

    def hashes(self) -> dict[str, str]:
        """The hash of each grid's file of answers."""
        return {grid: sha256_text(self._path(grid).read_text()) for grid in sorted(self.given)}

    def ingested(self) -> None:
        """Remember that the votes of all answers are among the judgements."""
        schema.write(self._ingested, Ingested(answers=self.hashes()), seal=True)

    @property
    def _ingested(self) -> Path:
        return self.folder.path / "ingested.json"

    def _path(self, grid: str) -> Path:
        return self.folder.path / "answers" / f"{grid}.json"

    # what a person is told

    def counts(self) -> dict[str, int]:
        """Grids, and assignments by status and by what became of their votes."""
        every = [one for kept in self.given.values() for one in kept.assignments]
        statuses = Counter(one.status for one in every)
        states = Counter(one.votes[-1] if one.votes else "none" for one in every)
        return {
            "grids": len(self.grids),
            "assignments": len(every),
            **{f"assignments_{name.lower()}": n for name, n in sorted(statuses.items())},
            "assignments_that_count": states[COUNTS],
            "assignments_ignored": states[IGNORED],
            "assignments_without_votes": states["none"],
        }

    def progress(self) -> list[Answered]:
        """Grids by the number of their answers that were not rejected."""
        found = Counter(
            sum(one.status != "Rejected" for one in self.given[grid].assignments)
            if grid in self.given
            else 0
            for grid in self.grids
        )
        return [Answered(answers=n, grids=grids) for n, grids in sorted(found.items())]


def _finished(kept: KeptAnswers, listed: PublishedTask) -> bool:
    """Whether nothing can change: all answers are there, and approved, which is for ever."""
    approved = sum(one.status == "Approved" for one in kept.assignments)
    return approved == len(kept.assignments) >= listed.assignments


def _merged(kept: KeptAnswers, fetched: Iterable[Assignment]) -> tuple[Assignment, ...]:
    """Assignments that are kept with those that were fetched: of known ones the status is new alone."""
    found = {one.assignment: one for one in kept.assignments}
    for one in fetched:
        known = found.get(one.assignment)
        found[one.assignment] = (
            replace(known, status=one.status) if known else replace(one, votes=())
        )
    return tuple(sorted(found.values(), key=lambda one: (one.submitted, one.assignment)))
