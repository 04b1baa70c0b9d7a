"""The judgements table in a database: columns, indexes, connections.

Only :mod:`heldout.data.judgements.store` imports this module, and only when a store is opened, because
SQLAlchemy is slow to import.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.pool import NullPool, StaticPool

from heldout.core.errors import BadFile, UserError
from heldout.core.extras import require
from heldout.core.files import atomic_path, sweep

SCHEMA_VERSION = 1
BUSY_SECONDS = 120
_WRITE = "heldout_write"
_DAMAGE = re.compile(
    "not a database|malformed|no such (table|column)|decode|corrupt|unsupported file"
)
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


def open_engine(address: str | Path) -> Engine:
    """An engine for an address or an SQLite file; tables are made on first use, a newer schema is
    refused."""
    url = _checked_url(address)
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database))
        if path.is_dir():
            raise BadFile(path, "is a folder", fix="name a file for the judgements table")
        if path.exists():
            sweep(path.parent)  # whoever made the table may have been killed just then
        else:
            _create(path)
        if not path.stat().st_size:
            raise _lost(path, "is empty")
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


def _create(path: Path) -> None:
    """Make an empty table in one step: so a file without content is one that has lost it."""
    with suppress(FileExistsError), atomic_path(path) as temporary:
        # In memory: who writes a temporary file holds a lock on it, and SQLite wants its own.
        engine = sa.create_engine("sqlite://", poolclass=StaticPool)
        _prepare(engine)
        with engine.connect() as connection:
            made: Any = connection.connection.driver_connection
            temporary.write_bytes(made.serialize())
        engine.dispose()
        try:
            path.hardlink_to(temporary)  # unlike renaming, not over what another process has made
        except FileExistsError:
            raise
        except OSError:  # no links here
            return


@contextmanager
def begin_write(engine: Engine) -> Iterator[Connection]:
    """A transaction that holds the right to write from its start.

    Writers wait for one another before they begin, so none fails or deadlocks half way.
    """
    with whole(engine), engine.execution_options(**{_WRITE: True}).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        yield connection


def _checked_url(address: str | Path) -> URL:
    if isinstance(address, Path):  # not through text, where ? and % mean something
        return URL.create("sqlite", database=str(address.absolute()))
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
    with whole(engine):
        with engine.connect() as connection:
            if sa.inspect(connection).has_table(version_table.name):
                _check_version(connection, where)
                if engine.dialect.name == "sqlite":
                    _check_pages(connection)
                return
        with begin_write(engine) as connection:
            metadata.create_all(connection)
            if connection.execute(sa.select(version_table.c.version)).first() is None:
                connection.execute(sa.insert(version_table).values(id=1, version=SCHEMA_VERSION))
            _check_version(connection, where)


def _check_pages(connection: Connection) -> None:
    """Refuse a file whose rows and indexes do not fit together: some rows would not be found.

    What rows say is covered by their ids.
    """
    said = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
    encoding = connection.exec_driver_sql("PRAGMA encoding").scalar()
    if said != "ok" or encoding != "UTF-8":
        raise _lost(str(connection.engine.url.database), f"is damaged ({said}, {encoding})")


def _lost(path: str | Path, what: str) -> BadFile:
    return BadFile(path, what, fix="restore it from an export, or move it away to begin anew")


@contextmanager
def whole(engine: Engine) -> Iterator[None]:
    """Turn what a database says of its file, its disk or its server in the block into a user error."""
    where = engine.url.render_as_string(hide_password=True)
    try:
        yield
    except (sa.exc.DatabaseError, UnicodeDecodeError) as error:
        if engine.dialect.name == "sqlite" and _DAMAGE.search(str(error)):
            path, what = str(engine.url.database), "is not a judgements table, or is damaged"
            raise _lost(path, what) from None
        if isinstance(error, sa.exc.OperationalError):
            raise UserError(
                f"the judgements table at {where} cannot be read or written ({error.orig})",
                fix="check the address, that there is room, and that you may write there",
            ) from None
        raise


def _check_version(connection: Connection, where: str) -> None:
    version = connection.execute(sa.select(version_table.c.version)).scalar()
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise UserError(
            f"the judgements table at {where} has schema {version}, this heldout knows up to "
            f"{SCHEMA_VERSION}",
            fix="upgrade heldout",
        )
