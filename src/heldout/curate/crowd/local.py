"""A crowd of one's own people, without a server: tasks and answers in one SQLite file.

A page serves it with two calls: :meth:`LocalCrowd.next` gives a person a grid,
:meth:`LocalCrowd.submit` takes the answer. Several processes may call them at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.curate.crowd.backend import (
    GRID,
    SELECTED,
    Assignment,
    GridTask,
    PublishedTask,
    Secrets,
    Status,
    chosen,
)
from heldout.data.judgements.judgement import utc_time
from heldout.data.labels.label_space import Class

KEPT = timedelta(hours=1)
"""How long a grid is kept for the person who was given it."""
_TABLES = """
create table if not exists tasks (
    number integer primary key, grid text not null unique, published text not null,
    assignments integer not null, task text not null);
create table if not exists assignments (
    assignment text primary key, grid text not null references tasks (grid), who text not null,
    accepted text not null, submitted text, answer text, status text, reason text,
    unique (grid, who));
"""


class Given(NamedTuple):
    """A grid that a person was given: what to show, and under which name it is answered."""

    assignment: str
    grid: str
    asked: Class
    tokens: Sequence[str]


class LocalCrowd:
    """Tasks and answers in the file ``path``.

    ``secrets``  makes the hashes under which people are stored
    ``clock``    what time it is

    Nobody is given a grid twice, and no grid has more answers than were asked for.
    """

    def __init__(
        self,
        path: Path,
        secrets: Secrets,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._path, self._secrets, self._clock = path, secrets, clock

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction that may write: others wait, and a process that dies leaves nothing of it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        try:
            connection.execute("begin immediate")
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            yield connection
            connection.execute("commit")
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a mistake of ours
        except sqlite3.DatabaseError as error:
            raise BadFile(
                self._path,
                f"cannot be used ({error})",
                fix="make room if the disk is full, else restore crowd/ from a backup",
            ) from None
        finally:
            connection.close()

    # what a page asks

    def next(self, person: str) -> Given | None:
        """A grid that this person has not answered: one not finished yet, else the first with room.

        None where there is none. A person who comes back gets the same grid again.
        """
        who, now = self._secrets.who(person), self._clock()
        late = utc_time(now - KEPT)
        with self._open() as database:
            row = database.execute(
                "select t.grid, t.task from tasks t join assignments a using (grid) "
                "where a.who = ? and a.submitted is null order by t.number limit 1",
                (who,),
            ).fetchone()
            if row is not None and self._has_room(database, row[0], late, but=who):
                database.execute(
                    "update assignments set accepted = ? where grid = ? and who = ? "
                    "and accepted <= ?",
                    (utc_time(now), row[0], who, late),
                )
                return _given(row[0], row[1], who)
            for row in database.execute(
                "select grid, task from tasks where grid not in "
                "(select grid from assignments where who = ?) order by number",
                (who,),
            ):
                if self._has_room(database, row[0], late):
                    return self._give(database, row, who, now)
        return None

    def submit(self, person: str, grid: str, tokens: Iterable[str]) -> None:
        """Take a person's answer: the tokens of the selected images.

        The same answer again changes nothing. Refused are other tokens than the grid's, a second
        answer, and one that comes so late that others have given all that were asked for.
        """
        who, now = self._secrets.who(person), self._clock()
        answer = {GRID: grid, SELECTED: "|".join(sorted(set(tokens)))}
        with self._open() as database:
            row = database.execute(
                "select t.task, a.answer from assignments a join tasks t using (grid) "
                "where grid = ? and who = ?",
                (grid, who),
            ).fetchone()
            if row is None:
                raise NotFound("this person was not given this grid", fix="ask for the next one")
            if isinstance(wrong := chosen(answer, grid, json.loads(row[0])["tokens"]), str):
                raise UserError(f"the answer {wrong}", fix="send the tokens of the grid")
            text = canonical_json(answer)
            if row[1] is not None:
                if row[1] != text:
                    raise UserError("this grid was answered before", fix="ask for the next one")
            elif not self._has_room(database, grid, "9", but=who):
                raise UserError("this grid has all its answers", fix="ask for the next one")
            else:
                database.execute(
                    "update assignments set submitted = ?, answer = ?, status = 'Submitted' "
                    "where grid = ? and who = ?",
                    (utc_time(now), text, grid, who),
                )

    def _has_room(self, database: sqlite3.Connection, grid: str, late: str, but: str = "") -> bool:
        """Whether a grid wants one more: answers count, and grids that were given out after ``late``."""
        taken, wanted = database.execute(
            "select (select count(*) from assignments where grid = ? and who != ? "
            "and (submitted is not null or accepted > ?)), "
            "(select assignments from tasks where grid = ?)",
            (grid, but, late, grid),
        ).fetchone()
        return int(taken) < int(wanted)

    def _give(
        self, database: sqlite3.Connection, row: tuple[str, str], who: str, now: datetime
    ) -> Given:
        given = _given(row[0], row[1], who)
        database.execute(
            "insert into assignments (assignment, grid, who, accepted) values (?, ?, ?, ?)",
            (given.assignment, given.grid, who, utc_time(now)),
        )
        return given

    # the protocol

    def create(self, task: GridTask) -> str:
        """Keep a task."""
        shown = {
            "asked": task.asked.to_dict(),
            "tokens": list(task.tokens),
            "rates": list(task.rates),
        }
        with self._open() as database:
            database.execute(
                "insert or ignore into tasks (grid, published, assignments, task) "
                "values (?, ?, ?, ?)",
                (task.grid, utc_time(self._clock()), task.assignments, canonical_json(shown)),
            )
        return task.grid

    def tasks(self) -> list[PublishedTask]:
        """All tasks in the order in which they came, under the names of their grids."""
        with self._open() as database:
            rows = database.execute(
                "select grid, published, assignments from tasks order by number"
            ).fetchall()
        return [PublishedTask(grid, grid, *rest) for grid, *rest in rows]

    def answers(self, task: str) -> list[Assignment]:
        """What was submitted for a task so far."""
        with self._open() as database:
            rows = database.execute(
                "select assignment, who, status, accepted, submitted, answer from assignments "
                "where grid = ? and submitted is not null order by submitted, assignment",
                (task,),
            ).fetchall()
        return [
            Assignment(
                assignment=name,
                who=who,
                status=status,
                accepted=accepted,
                submitted=submitted,
                answer=json.loads(answer),
            )
            for name, who, status, accepted, submitted, answer in rows
        ]

    def settle(self, assignment: str, *, rejected: str | None) -> None:
        """Approve or reject an assignment. The room of a rejected one is not given out again."""
        status: Status = "Approved" if rejected is None else "Rejected"
        with self._open() as database:
            database.execute(
                "update assignments set status = ?, reason = ? where assignment = ?",
                (status, rejected, assignment),
            )


def _given(grid: str, task: str, who: str) -> Given:
    shown: dict[str, Any] = json.loads(task)
    name = sha256_text(f"{grid} {who}")[:32]
    return Given(name, grid, msgspec.convert(shown["asked"], Class), tuple(shown["tokens"]))
