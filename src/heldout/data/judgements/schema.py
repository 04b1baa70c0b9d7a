"""The judgements table in a database: columns, indexes, connections.

Only :mod:`heldout.data.judgements.store` imports this module, and only when a store is opened, because
SQLAlchemy is slow to import.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.pool import NullPool

from heldout.core.errors import BadFile, UserError
from heldout.core.extras import require

SCHEMA_VERSION = 1
BUSY_SECONDS = 120
_WRITE = "heldout_write"
_LOCK = 7_318_443_002  # any number, the same in every process

# Byte order everywhere, so that a stream has one order whatever the database's locale.
_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

metadata = sa.MetaData()
version_table = sa.Table(
    "judgement_schema",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
)
question_table = sa.Table(
    "judgement_questions",
    metadata,
    sa.Column("kind", _Text, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
)
table = sa.Table(
    "judgements",
    metadata,
    sa.Column("judgement_id", _Text, primary_key=True),
    sa.Column("question", _Text, nullable=False),
    sa.Column("subject", _Text, nullable=False),
    sa.Column("answer", _Text, nullable=False),
    sa.Column("who", _Text, nullable=False),
    sa.Column("when", _Text),
    sa.Column("evidence", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("testset", _Text),
    sa.Column("supersedes", _Text),
    # Copies of ids inside the subject, so that all answers about an image are found by index.
    sa.Column("image_id", _Text),
    sa.Column("other_id", _Text),
)
sa.Index("judgements_key", table.c.question, table.c.subject, table.c.who)
for _column in (table.c.image_id, table.c.other_id, table.c.supersedes):
    sa.Index(
        f"judgements_{_column.name}",
        _column,
        sqlite_where=_column.is_not(None),
        postgresql_where=_column.is_not(None),
    )


def open_engine(address: str) -> Engine:
    """An engine for ``address``; tables are made on first use, a newer schema is refused."""
    url = _checked_url(address)
    if url.get_backend_name() == "sqlite":
        engine = _sqlite_engine(url)
    else:
        require("psycopg", extra="postgres", purpose="a judgements table in PostgreSQL")
        engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    try:
        _prepare(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def begin_write(engine: Engine) -> Iterator[Connection]:
    """A transaction that holds the right to write from its start.

    Writers wait for one another before they begin, so none fails or deadlocks half way.
    """
    with engine.execution_options(**{_WRITE: True}).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        yield connection


def _checked_url(address: str) -> URL:
    try:
        url = make_url(address)
    except sa.exc.ArgumentError:
        raise UserError(
            "the address of the judgements table cannot be read",
            fix="use sqlite:///judgements.db or postgresql://host/database",
        ) from None
    backend = url.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise UserError(
            f"judgements cannot be kept in {backend}", fix="use a sqlite or postgresql address"
        )
    if backend == "sqlite" and url.database in (None, "", ":memory:"):
        raise UserError(
            "a judgements table in memory would be lost and cannot be shared",
            fix="use a file, such as sqlite:///judgements.db",
        )
    return url


def _sqlite_engine(url: URL) -> Engine:
    path = Path(str(url.database))
    if path.is_dir():
        raise BadFile(path, "is a folder", fix="name a file for the judgements table")
    path.parent.mkdir(parents=True, exist_ok=True)
    # No pool: a connection belongs to one call, so threads and forked workers never share one.
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        cursor = connection.cursor()
        # An answer a person gave is on the disk when add() returns, power cut or not.
        cursor.execute("PRAGMA synchronous=FULL")
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            _become_wal(cursor)
        cursor.close()

    @sa.event.listens_for(engine, "handle_error")
    def _refuse(context: Any) -> None:
        """What is wrong with the file or its disk, whichever statement met it, on one line."""
        error, name = context.original_exception, str(path)
        text = getattr(error, "sqlite_errorname", "") or str(error)
        if any(word in text for word in ("NOTADB", "CORRUPT", "decode", "no such")):
            raise BadFile(
                name,
                f"is not a judgements table, or is damaged ({error})",
                fix="name another file, or restore it from an export",
            ) from None
        if any(word in text for word in ("FULL", "IOERR", "READONLY", "CANTOPEN", "BUSY", "PERM")):
            raise UserError(
                f"the judgements table at {name} cannot be read or written ({error})",
                fix="check that there is room, and that you may write there",
            ) from None

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _become_wal(cursor: Any) -> None:
    # SQLite does not wait for other processes here as it does elsewhere, so we do.
    import sqlite3

    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _prepare(engine: Engine) -> None:
    where = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            if sa.inspect(connection).has_table(version_table.name):
                _check_version(connection, where)
                return
        with begin_write(engine) as connection:
            metadata.create_all(connection)
            if connection.execute(sa.select(version_table.c.version)).first() is None:
                connection.execute(sa.insert(version_table).values(id=1, version=SCHEMA_VERSION))
            _check_version(connection, where)
    except sa.exc.OperationalError as error:  # of PostgreSQL, which has no server there
        raise UserError(
            f"the judgements table at {where} cannot be opened ({error.orig})",
            fix="check the address and that you may write there",
        ) from None


def _check_version(connection: Connection, where: str) -> None:
    version = connection.execute(sa.select(version_table.c.version)).scalar()
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise UserError(
            f"the judgements table at {where} has schema {version}, this heldout knows up to "
            f"{SCHEMA_VERSION}",
            fix="upgrade heldout",
        )
