"""The whole recipe as SQL, the hash of ids included: an oracle that shares no code with it.

DuckDB runs it. Every rule is a view over the one before, so that rows in and out of each can be
counted; ``row_hash`` is the frozen hash of :mod:`heldout.data.testset.hashing`, written anew in whole
numbers of 128 bits.
"""

from __future__ import annotations

from typing import Any

from heldout.curate.domains.requests import DomainsParameters

_TWO_64 = 1 << 64
_G = 0x9E3779B97F4A7C15
_MACROS = f"""
CREATE MACRO low64(v) AS (v % {_TWO_64}::UHUGEINT)::UBIGINT;
CREATE MACRO plus64(a, b) AS low64(a::UHUGEINT + b::UHUGEINT);
CREATE MACRO times64(a, b) AS low64(a::UHUGEINT * b::UHUGEINT);
CREATE MACRO mix_1(v) AS times64(xor(v, v >> 30), {0xBF58476D1CE4E5B9}::UBIGINT);
CREATE MACRO mix_2(v) AS times64(xor(v, v >> 27), {0x94D049BB133111EB}::UBIGINT);
CREATE MACRO mix_3(v) AS xor(v, v >> 31);
CREATE MACRO mix(v) AS mix_3(mix_2(mix_1(v)));
CREATE MACRO word(bytes, place) AS (
    '0x' || list_aggregate(
        list_reverse(regexp_extract_all(rpad(substr(bytes, 16 * place + 1, 16), 16, '0'), '..')),
        'string_agg', ''
    )
)::UBIGINT;
CREATE MACRO words(bytes) AS list_transform(
    range((length(bytes) + 15) // 16), lambda place: word(bytes, place)
);
CREATE MACRO row_hash(id, seed) AS list_reduce(
    list_concat(
        [mix(plus64(seed::UBIGINT, {_G}::UBIGINT))],
        words(hex(encode(id))),
        [(length(hex(encode(id))) // 2)::UBIGINT]
    ),
    lambda state, next: mix(xor(plus64(state, {_G}::UBIGINT), next))
);
"""


def connect() -> Any:
    """A database in memory that knows ``row_hash``."""
    import duckdb

    database = duckdb.connect()
    database.execute("SET threads TO 2")
    database.execute(_MACROS)
    return database


def rules(p: DomainsParameters, seed: int) -> list[tuple[str, str]]:
    """The rules as (name, SELECT over ``given``), in their order; columns id, class, place, near."""
    made = [
        (
            "complete",
            "SELECT * FROM given WHERE id IS NOT NULL AND class IS NOT NULL AND place IS NOT NULL"
            " AND near IS NOT NULL AND NOT isnan(near)",
        )
    ]
    if p.top is not None:
        made.append(("top", f"SELECT * FROM given ORDER BY near DESC, id LIMIT {p.top}"))
    made.append(
        (
            "domain_minimum",
            "SELECT * FROM given WHERE place IN (SELECT place FROM given GROUP BY place HAVING "
            f"count(*) >= {p.min_domain} AND count(*) >= {p.min_domain_share!r}::DECIMAL(18, 9) * "
            "(SELECT count(*) FROM given))",
        )
    )
    if p.domain_cap is not None:
        own = f"(SELECT row_hash('domain cap', {seed}))"
        made.append(("domain_cap", _first(f"row_hash(id::VARCHAR, {own})", "place", p.domain_cap)))
    if p.reasons:
        made.append(("exclusions", f"SELECT * FROM given WHERE class NOT IN ({_texts(p.reasons)})"))
    if p.min_class_domains > 1:
        made.append(("class_domains", _classes(f"count(DISTINCT place) >= {p.min_class_domains}")))
    if p.min_class > 1:
        made.append(("class_minimum", _classes(f"count(*) >= {p.min_class}")))
    if p.classes is not None:
        made.append(
            (
                "largest_classes",
                "SELECT * FROM given WHERE class IN (SELECT class FROM given GROUP BY class "
                f"ORDER BY count(*) DESC, class LIMIT {p.classes})",
            )
        )
    last = "SELECT * FROM given"
    if p.cap is not None:
        last = _first(f"row_hash(id::VARCHAR, {seed})", "class", p.cap)
    return [*made, ("cap", last)]


def sql_select(
    table: Any, p: DomainsParameters, *, seed: int
) -> tuple[list[str], list[tuple[str, int, int]]]:
    """The ids that are chosen, sorted, and (rule, rows in, rows out), as DuckDB has them."""
    database = connect()
    database.register("candidates", table)
    database.execute(
        f'CREATE TABLE step_0 AS SELECT image_id AS id, "{p.class_column}" AS class, '
        f'"{p.domain}" AS place, "{p.similarity}" AS near FROM candidates'
    )
    steps = []
    before = len(table)
    for number, (name, select) in enumerate(rules(p, seed)):
        view = f"WITH given AS (SELECT * FROM step_{number}) {select}"
        database.execute(f"CREATE TABLE step_{number + 1} AS {view}")
        after = database.execute(f"SELECT count(*) FROM step_{number + 1}").fetchone()[0]
        steps.append((name, before, after))
        before = after
    found = database.execute(f"SELECT id::VARCHAR FROM step_{len(steps)} ORDER BY 1").fetchall()
    return [row[0] for row in found], steps


def _first(number: str, group: str, count: int) -> str:
    """Rows of the smallest numbers in each group, ties by id as text."""
    return (
        f"SELECT * FROM given QUALIFY row_number() OVER (PARTITION BY {group} "
        f"ORDER BY {number}, id::VARCHAR) <= {count}"
    )


def _classes(condition: str) -> str:
    return (
        "SELECT * FROM given WHERE class IN "
        f"(SELECT class FROM given GROUP BY class HAVING {condition})"
    )


def _texts(values: Any) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)
