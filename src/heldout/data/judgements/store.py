"""The store of judgements: append-only, idempotent, safe with several processes writing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from heldout.core.errors import BadFile, ExistsError, MismatchError, UserError
from heldout.core.files import canonical_json, sealed, unsealed
from heldout.data.judgements.consensus import Panel, current_answers, panel_of
from heldout.data.judgements.files import read_judgements, write_judgements
from heldout.data.judgements.judgement import (
    FIELDS,
    QUESTIONS,
    WITHDRAWN,
    Judgement,
    Question,
    from_texts,
    to_texts,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select

_BATCH = 5_000
_LOOKUP = 500


@dataclass(frozen=True)
class Added:
    """What an addition did: ``added`` new judgements; ``known`` were there already."""

    added: int
    known: int


class Filters(TypedDict, total=False):
    """Which judgements: ``subject`` asks for exactly this subject; ``image_id`` for every subject
    with this image; None asks for nothing."""

    question: str | None
    subject: Mapping[str, str] | None
    who: str | None
    testset: str | None
    image_id: str | None


class JudgementStore:
    """The one table of human answers, in SQLite or PostgreSQL.

    ``address`` is an SQLAlchemy address, or the path of an SQLite file; see
    :attr:`heldout.core.workspace.Workspace.judgements`.
    Rows are never changed or removed. Reading never waits for writing; writers wait for each other.
    """

    def __init__(self, address: str | Path) -> None:
        from heldout.data.judgements import schema

        self._schema = schema
        self._engine = schema.open_engine(address)

    def __enter__(self) -> JudgementStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    # questions

    def questions(self) -> dict[str, Question]:
        """The kinds that may be asked here: the built-in ones and those defined here."""
        with self._engine.connect() as connection:
            return self._questions(connection)

    def define(self, question: Question) -> None:
        """Allow a further kind of question; defining the same one again changes nothing."""
        import sqlalchemy as sa

        table = self._schema.question_table
        with self._schema.begin_write(self._engine) as connection:
            known = self._questions(connection).get(question.kind)
            if known is not None and known != question:
                raise ExistsError(
                    f"the question {question.kind} is defined differently already",
                    fix="use another kind, or the definition that is there",
                )
            if known is None:
                definition = canonical_json(sealed(msgspec.to_builtins(question)))
                connection.execute(
                    sa.insert(table).values(kind=question.kind, definition=definition)
                )

    def _questions(self, connection: Connection) -> dict[str, Question]:
        import sqlalchemy as sa

        table = self._schema.question_table
        rows = connection.execute(sa.select(table.c.definition).order_by(table.c.kind))
        defined = (self._question(text) for (text,) in rows)
        return {**QUESTIONS, **{question.kind: question for question in defined}}

    def _question(self, text: str) -> Question:
        try:
            return msgspec.convert(unsealed(json.loads(text), self._place), Question)
        except (ValueError, AttributeError, msgspec.ValidationError):
            raise self._damaged("a question") from None

    @property
    def _place(self) -> Path:
        return Path(str(self._engine.url.database))

    def _damaged(self, what: str) -> BadFile:
        return BadFile(
            self._place, f"{what} is not as it was written", fix="restore it from an export"
        )

    # writing

    def add(self, judgements: Iterable[Judgement]) -> Added:
        """Add judgements, all or none of them; those that are there already are left alone.

        Streams: an iterator of any length is written in batches inside one transaction, and is not
        asked for anything before it has begun: what it reads of this table meanwhile, to refuse
        what contradicts it, stands until its own judgements are there. A judgement of an unknown
        kind, or with an answer its question does not have, refuses the whole call.
        """
        source = iter(judgements)
        added = seen = 0
        with self._schema.begin_write(self._engine) as connection:
            questions = self._questions(connection)
            replaced: dict[str, Judgement] = {}
            while batch := list(islice(source, _BATCH)):
                for judgement in batch:
                    _check(judgement, questions)
                    if judgement.supersedes is not None:
                        replaced[judgement.supersedes] = judgement
                added += self._insert(connection, batch)
                seen += len(batch)
            self._check_replaced(connection, replaced)
        return Added(added, seen - added)

    def _insert(self, connection: Connection, batch: list[Judgement]) -> int:
        from sqlalchemy.dialects import postgresql, sqlite

        dialect = sqlite if self._engine.dialect.name == "sqlite" else postgresql
        statement = dialect.insert(self._schema.table).on_conflict_do_nothing()
        rows = [
            {
                **to_texts(judgement),
                "image_id": judgement.subject.get("image_id"),
                "other_id": judgement.subject.get("other_id"),
            }
            for judgement in batch
        ]
        result = connection.execute(statement, rows, execution_options={"preserve_rowcount": True})
        return result.rowcount

    def _check_replaced(self, connection: Connection, replaced: dict[str, Judgement]) -> None:
        column, ids = self._schema.table.c.judgement_id, list(replaced)
        for start in range(0, len(ids), _LOOKUP):
            query = self._select().where(column.in_(ids[start : start + _LOOKUP]))
            for old in map(from_texts, connection.execute(query).mappings()):
                new = replaced[old.judgement_id]
                if old.key != new.key:
                    raise MismatchError(
                        f"judgement {new.judgement_id} supersedes {old.judgement_id}, which is "
                        "another person's, question's or subject's",
                        fix="supersede only the same person's answer to the same question",
                    )

    # reading

    def stream(self, **filters: Unpack[Filters]) -> Iterator[Judgement]:
        """Every judgement that fits, history and all, in one fixed order, without loading them all.

        The order is by question, subject, person, time, id, whatever the order of arrival.
        """
        import sqlalchemy as sa

        column = self._schema.table.c
        order = (
            *(column.question, column.subject, column.who, sa.func.coalesce(column.when, "")),
            *(sa.case((column.answer == WITHDRAWN, 1), else_=0), column.judgement_id),
        )
        wanted = filters.get("testset")
        for given in self._rows(self._select().where(*self._where(**filters)).order_by(*order)):
            # Not asked of the database: a damaged row would be left out before its id is checked.
            if wanted in (None, given.testset):
                yield given

    def current(self, **filters: Unpack[Filters]) -> Iterator[Judgement]:
        """The answers that stand: of each person, question and subject the latest one.

        Left out are answers that the same person superseded, older ones by time, and those taken
        back (``withdrawn``). Filters choose among answers, then the latest of those is taken.
        """
        for _, group in groupby(self.stream(**filters), key=lambda judgement: judgement.key):
            yield from current_answers(group)

    def panel(self, question: str, *, part: str | None = None, testset: str | None = None) -> Panel:
        """The answers that stand to one question, coded for consensus."""
        standing = self.current(question=question, testset=testset)
        return panel_of(standing, self.questions(), part=part)

    def history(
        self, question: str, subject: Mapping[str, str], *, who: str | None = None
    ) -> list[Judgement]:
        """Everything that was ever answered to one question about one subject, oldest first."""
        found = self.stream(question=question, subject=subject, who=who)
        return sorted(found, key=lambda judgement: judgement.recency)

    def alike(self, judgements: Iterable[Judgement]) -> Iterator[Judgement]:
        """Everything that was ever answered to the questions of some judgements about their subjects.

        Whoever answered, history and all, in no order.
        """
        subjects: dict[str, dict[str, None]] = {}
        for judgement in judgements:
            subjects.setdefault(judgement.question, {})[judgement.subject_key] = None
        column = self._schema.table.c
        for question, texts in subjects.items():
            listed = list(texts)
            for start in range(0, len(listed), _LOOKUP):
                some = column.subject.in_(listed[start : start + _LOOKUP])
                yield from self._rows(self._select().where(column.question == question, some))

    def count(self, **filters: Unpack[Filters]) -> int:
        """How many judgements fit, history included."""
        import sqlalchemy as sa

        if filters.get("testset") is not None:
            return sum(1 for _ in self.stream(**filters))
        where = self._where(**filters)
        query = sa.select(sa.func.count()).select_from(self._schema.table).where(*where)
        with self._schema.whole(self._engine), self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def _where(self, **filters: Unpack[Filters]) -> list[ColumnElement[bool]]:
        import sqlalchemy as sa

        column = self._schema.table.c
        where: list[ColumnElement[bool]] = []
        for name, value in filters.items():
            if name == "subject" and value is not None:
                where.append(column.subject == canonical_json(value))
            elif name == "image_id" and value is not None:
                where.append(sa.or_(column.image_id == value, column.other_id == value))
            elif name != "testset" and value is not None:
                where.append(column[name] == value)
        return where

    def _select(self) -> Select[Any]:
        import sqlalchemy as sa

        return sa.select(*(self._schema.table.c[name] for name in FIELDS))

    def _rows(self, query: Select[Any]) -> Iterator[Judgement]:
        with self._schema.whole(self._engine), self._engine.connect() as connection:
            streamed = connection.execution_options(yield_per=_BATCH).execute(query)
            for row in streamed.mappings():
                try:
                    given = from_texts(row)
                except UserError:
                    raise self._damaged("a judgement") from None
                yield given

    # files

    def export(self, path: Path, **filters: Unpack[Filters]) -> int:
        """Write the judgements that fit to a JSONL, CSV or Parquet file; how many."""
        return write_judgements(path, self.stream(**filters))

    def import_file(self, path: Path, *, question: str | None = None) -> Added:
        """Add the judgements of a JSONL, CSV or Parquet file, all or none of them."""
        return self.add(read_judgements(path, question=question))


def _check(judgement: Judgement, questions: Mapping[str, Question]) -> None:
    question = questions.get(judgement.question)
    if question is None:
        raise UserError(
            f"no question is called {judgement.question!r}",
            fix=f"use one of {', '.join(sorted(questions))}, or define it in the store first",
        )
    question.check(judgement)
