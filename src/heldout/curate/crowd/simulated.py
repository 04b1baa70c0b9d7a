"""A simulated crowd: people of known skill, images of known true frequency.

A person who would select every image that shows the class, and no other, selects an image of true
frequency ``p`` with probability ``p``: some see the class in it. A person of hit rate ``h`` and
false-alarm rate ``f`` selects it with probability ``p h + (1 - p) f``. What a person answers to a grid
is drawn from the seed, the person and the grid alone.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from heldout.core import schema
from heldout.core.errors import ExistsError
from heldout.core.files import canonical_json, sha256_text
from heldout.curate.crowd.backend import GRID, SELECTED, Assignment, Secrets
from heldout.curate.crowd.local import LocalCrowd
from heldout.data.judgements.judgement import utc_time

Mood = Literal["twice", "late", "garbage"]
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
"""When simulated grids are published: a simulation has no clock, so that its votes are the same again."""
_SPREAD = 25.0


class Person(NamedTuple):
    """A simulated person: the share of images that show the class, and of others, that they select."""

    name: str
    hit_rate: float
    false_alarms: float


class People(schema.Document, frozen=True, kw_only=True):
    """A simulated crowd as a file."""

    schema_version: int = 1
    seed: int
    people: list[Person]


def drawn_people(count: int, hit_rate: float, false_alarms: float, seed: int) -> People:
    """People whose rates are drawn around these means (a Beta distribution, as of 25 answers)."""
    made = []
    for number in range(count):
        draw = random.Random(f"person {seed} {number}")
        rates = (_around(mean, draw) for mean in (hit_rate, false_alarms))
        made.append(Person(f"person-{number + 1}", *rates))
    return People(seed=seed, people=made)


def _around(mean: float, draw: random.Random) -> float:
    if mean in (0.0, 1.0):
        return mean
    return round(draw.betavariate(mean * _SPREAD, (1.0 - mean) * _SPREAD), 4)


def drawn_frequency(image: str, label: str, seed: int) -> float:
    """A candidate's true frequency where none is known: most images are clear, as on Flickr."""
    return random.Random(f"frequency {seed} {label} {image}").betavariate(0.8, 0.4)


class SimulatedCrowd(LocalCrowd):
    """A local crowd whose people answer when they are asked for their answers.

    ``moods``  how it misbehaves: it answers ``twice``, ``late`` (half of the answers to a grid come only
               when it is asked again), or adds ``garbage``
    """

    def __init__(
        self, path: Path, secrets: Secrets, crowd: People, *, moods: Collection[Mood] = ()
    ) -> None:
        super().__init__(path, secrets, clock=lambda: EPOCH)
        self.crowd, self.moods = crowd, moods
        self._asked: Counter[str] = Counter()

    @classmethod
    def of(cls, folder: Path, secrets: Secrets, crowd: People | None = None) -> SimulatedCrowd:
        """The crowd of a folder; with ``crowd`` it is made, and one of other people is refused."""
        path = folder / "people.json"
        if crowd is not None and not path.exists():
            schema.write(path, crowd, seal=True)
        known = schema.read(path, People, fix="publish grids to the simulated crowd first")
        if crowd not in (None, known):
            raise ExistsError(
                f"{path}: there are other simulated people",
                fix="give the same options, or remove the folder with all they answered",
            )
        return cls(folder / "crowd.db", secrets, known)

    def answers(self, task: str) -> list[Assignment]:
        """The answers of all who are asked, in their moods."""
        given = super().answers(task)
        if not given:
            self._answer()
            given = super().answers(task)
        self._asked[task] += 1
        found = list(given)
        if "late" in self.moods and self._asked[task] == 1:
            found = found[::2]
        if "twice" in self.moods:
            found += [*found, *(_other(one, n) for n, one in enumerate(found))]
        if "garbage" in self.moods:
            found += list(_garbage(given[0]))
        return found

    def _answer(self) -> None:
        """Let everybody answer the grids that have no answers: all of them, or none if it is killed."""
        seed = self.crowd.seed
        with self._open() as database:
            for grid, wanted, text in database.execute(
                "select grid, assignments, task from tasks "
                "where grid not in (select grid from assignments)"
            ).fetchall():
                shown = json.loads(text)
                order = {sha256_text(f"{seed} {grid} {p.name}"): p for p in self.crowd.people}
                for name in sorted(order)[:wanted]:
                    row = self._row(grid, order[name], shown["tokens"], shown["rates"])
                    database.execute(
                        "insert into assignments (assignment, grid, who, accepted, submitted, "
                        "answer, status) values (?, ?, ?, ?, ?, ?, 'Submitted')",
                        row,
                    )

    def _row(
        self, grid: str, person: Person, tokens: Sequence[str], rates: Sequence[float]
    ) -> tuple[str, ...]:
        """What a person answers to a grid, and when, as a row of the file."""
        draw = random.Random(f"answer {self.crowd.seed} {grid} {person.name}")
        accepted = EPOCH + timedelta(seconds=draw.randrange(1, 86_400))
        submitted = accepted + timedelta(seconds=round(draw.lognormvariate(4.8, 0.5)))
        chances = (p * person.hit_rate + (1.0 - p) * person.false_alarms for p in rates)
        # One draw per image, whatever its chance: one image's rate changes no other's answer.
        selected = [t for t, p in zip(tokens, chances, strict=True) if draw.random() < p]
        who = self._secrets.who(person.name)
        name = sha256_text(f"{grid} {who}")[:32]
        answer = canonical_json({GRID: grid, SELECTED: "|".join(selected)})
        return (name, grid, who, utc_time(accepted), utc_time(submitted), answer)


def _other(one: Assignment, number: int) -> Assignment:
    """A second assignment of a person who has answered the grid, later and with another answer."""
    return Assignment(
        assignment=f"{one.assignment[:-4]}-{number:03}",
        who=one.who,
        status="Submitted",
        accepted=one.accepted,
        submitted=utc_time(datetime.fromisoformat(one.submitted) + timedelta(days=2)),
        answer={**one.answer, SELECTED: ""},
    )


def _garbage(one: Assignment) -> Iterator[Assignment]:
    """Answers that are not answers to the grid."""
    grid, first = one.answer[GRID], one.answer[SELECTED].partition("|")[0] or "0" * 32
    bad: list[dict[str, str]] = [
        {},
        {SELECTED: first},
        {GRID: "another grid", SELECTED: first},
        {GRID: grid, SELECTED: f"{first}|{'f' * 32}"},
        {GRID: grid, SELECTED: "<script>"},
        {"unreadable": "<QuestionFormAnswers>"},
    ]
    for number, answer in enumerate(bad):
        name = sha256_text(f"{grid} garbage {number}")[:32]
        yield Assignment(
            assignment=name,
            who=name,
            status="Submitted",
            accepted=one.accepted,
            submitted=one.submitted,
            answer=answer,
        )
