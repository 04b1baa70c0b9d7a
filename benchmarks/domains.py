"""The recipe ``domains`` at scale: memory and time of 100 million rows, and against pandas.

A table is drawn like a relabelled archive: whole-number ids, similarities with ties, 18,814 classes of
Zipf's shares, 62 countries in six continents, photographers. The request is that of CLIP-GeoYFCC: the
best 87 %, continents with 4 % or more, classes of 450 or more, the 350 largest, at most 2,000 of each.

large    heldout.curate.domains.selection.select on --rows million rows: wall, processor seconds, peak memory
command  heldout build domains on the same file: the set written, hashed, with its card
compare  select, pandas and, where it is installed, DuckDB on --compare million rows, interleaved; the
         rows must be the same. pandas gets categories for its texts and a partition in place of a sort
         for the threshold; DuckDB gets a quantile in place of a sort and one table of counts, with two
         threads; both get our hash
tsv      benchmarks/domains_tsv.py, where it is there: reading the archive's own tables

Every job is a process of its own, so that its peak memory is its own.

    python benchmarks/domains.py [--rows 100] [--compare 8] [--rounds 3] [--folder DIR] [--write]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP, SHARE, LEAST, CLASSES, CAP = 0.875, 0.04, 450, 350, 2000
CONTINENTS = {
    "Africa": 5,
    "Asia": 18,
    "Europe": 25,
    "North America": 7,
    "Oceania": 2,
    "South America": 5,
}
GROUP = 1 << 20
Ids = Callable[[], list[str]]
"""Gives the ids that a job chose, outside the time that is measured."""


def make_table(path: Path, rows: int) -> None:
    """Write the table, a row group at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 18_814
    shares = np.cumsum(1 / np.arange(1, count + 1) ** 0.9)
    classes = pa.array([f"n{i:08d}" for i in range(count)])
    countries = pa.array([f"country {i:02d}" for i in range(62)])
    continent_of = np.repeat(np.arange(6, dtype=np.int32), list(CONTINENTS.values()))
    writer = None
    for start in range(0, rows, GROUP):
        n = min(GROUP, rows - start)
        rng = np.random.default_rng(start)
        country = rng.integers(0, 62, n, dtype=np.int32)
        label = np.searchsorted(shares, rng.random(n) * shares[-1]).astype(np.int32)
        table = pa.table(
            {
                "row_id": np.arange(start, start + n),
                "similarity": np.round(rng.normal(0.28, 0.03, n), 6).astype(np.float32),
                "class_id": pa.DictionaryArray.from_arrays(label, classes),
                "country": pa.DictionaryArray.from_arrays(country, countries),
                "continent": pa.DictionaryArray.from_arrays(
                    continent_of[country], pa.array(list(CONTINENTS))
                ),
                "uid": rng.integers(0, 500_000, n, dtype=np.int32),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def ours(path: Path) -> Ids:
    """The rows that heldout chooses."""
    from heldout.curate.domains.parquet_scan import open_rows
    from heldout.curate.domains.recipe import read_columns
    from heldout.curate.domains.requests import DomainsParameters
    from heldout.curate.domains.selection import select

    rows = open_rows(path, coded=("class_id", "continent", "country"), workers=2)
    parameters = DomainsParameters(
        domain="continent",
        similarity="similarity",
        top=int(TOP * len(rows)),
        min_domain_share=SHARE,
        min_class=LEAST,
        classes=CLASSES,
        cap=CAP,
    )
    found = select(read_columns(rows, parameters, where=path.name), parameters, seed=0)
    return found.rows["image_id"].to_pylist


def with_pandas(path: Path) -> Ids:
    """The same rows by pandas."""
    import numpy as np
    import pandas as pd

    from heldout.data.testset.hashing import row_hash

    frame = pd.read_parquet(path)
    top = int(TOP * len(frame))
    values = frame["similarity"].to_numpy()
    threshold = np.partition(values, len(values) - top)[len(values) - top]
    above = frame[values > threshold]
    tied = frame[values == threshold].sort_values("row_id").head(top - len(above))
    frame = pd.concat([above, tied])
    sizes = frame["continent"].value_counts()
    frame = frame[frame["continent"].isin(sizes.index[sizes >= SHARE * len(frame)])]
    counts = frame["class_id"].value_counts()
    counts = counts[counts >= LEAST]
    ranked = counts.reset_index().sort_values(
        ["count", "class_id"], ascending=[False, True], key=lambda c: c.astype(c.dtype)
    )
    frame = frame[frame["class_id"].isin(ranked["class_id"].head(CLASSES))]
    frame = frame.assign(key=row_hash(frame["row_id"].astype(str).to_list(), seed=0))
    chosen = frame.sort_values("key").groupby("class_id", observed=True).head(CAP)
    return chosen["row_id"].astype(str).to_list


def with_duckdb(path: Path) -> Ids:
    """The same rows by DuckDB: the threshold, a table of counts, then the rows."""
    import duckdb

    from heldout.data.testset.hashing import row_hash

    database = duckdb.connect()
    database.execute("SET threads TO 2")
    file = f"read_parquet('{path}')"
    total = database.execute(f"SELECT count(*) FROM {file}").fetchall()[0][0]
    top = int(TOP * total)
    # The threshold without a sort: the value of that rank, and of its ties those of the first ids.
    last, above = database.execute(
        f"WITH t AS (SELECT quantile_disc(similarity, {1 - top / total!r}) AS near FROM {file}) "
        f"SELECT near, (SELECT count(*) FROM {file} WHERE similarity > near) FROM t"
    ).fetchall()[0]
    tied = database.execute(
        f"SELECT row_id FROM {file} WHERE similarity = ?::FLOAT ORDER BY row_id", [last]
    ).fetchall()
    if not above < top <= above + len(tied):
        raise SystemExit("the rank of the threshold is off")
    final = tied[top - above - 1][0]
    best = f"similarity > {last!r}::FLOAT OR (similarity = {last!r}::FLOAT AND row_id <= {final})"
    database.execute(
        f"CREATE TEMP TABLE cells AS SELECT class_id, continent, count(*) AS n FROM {file} "
        f"WHERE {best} GROUP BY ALL"
    )
    database.execute(
        "CREATE TEMP TABLE places AS SELECT continent FROM cells GROUP BY 1 "
        f"HAVING sum(n) >= {SHARE} * {top}"
    )
    database.execute(
        "CREATE TEMP TABLE largest AS SELECT class_id FROM cells WHERE continent IN (FROM places) "
        f"GROUP BY 1 HAVING sum(n) >= {LEAST} ORDER BY sum(n) DESC, class_id LIMIT {CLASSES}"
    )
    rows = database.execute(
        f"SELECT * FROM {file} WHERE ({best}) AND continent IN (FROM places) "
        "AND class_id IN (FROM largest)"
    ).to_arrow_table()
    keyed = rows.append_column("key", [row_hash(rows["row_id"].cast("string"), seed=0)])
    database.register("keyed", keyed)
    found = database.execute(
        "SELECT * FROM keyed QUALIFY row_number() OVER (PARTITION BY class_id ORDER BY key) "
        f"<= {CAP}"
    ).to_arrow_table()
    return found["row_id"].cast("string").to_pylist


def command(path: Path) -> Ids:
    """The whole command; the ids as the set has them."""
    import pyarrow.parquet as pq

    from heldout.cli.app import invoke

    top = int(TOP * pq.ParquetFile(path).metadata.num_rows)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        flags = f"--similarity-column similarity --domain continent --top {top} --min-domain-share {SHARE} "
        flags += (
            f"--min-class {LEAST} --max-classes {CLASSES} --class-cap {CAP} --seed 0 --workers 2"
        )
        words = ["build", "domains", str(path), *flags.split()]
        code = invoke([*words, "-o", f"{folder}/set", "--workspace", folder])
        if code:
            raise SystemExit(code)
        images = pq.read_table(f"{folder}/set/images.parquet", columns=["image_id"])
    return images["image_id"].to_pylist


JOBS: dict[str, Callable[[Path], Ids]] = {
    "ours": ours,
    "pandas": with_pandas,
    "duckdb": with_duckdb,
    "command": command,
}


def run(job: str, path: Path) -> dict[str, Any]:
    """One job in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--job", job, "--file", str(path)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(job: str, path: Path) -> None:
    """Do one job and print what it took; imports are part of it."""
    start = time.perf_counter()
    chosen = JOBS[job](path)
    wall = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    ids = chosen()
    found = {
        "wall": wall,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss / 1024,
        "rows": len(ids),
        "ids": hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest(),
    }
    print(json.dumps(found))


def compare(path: Path, rounds: int) -> tuple[str, float, bool]:
    """A table of all, medians of interleaved rounds; pandas' ratio, whether the rows are the same."""
    from importlib.util import find_spec

    peers = ["pandas", *(["duckdb"] if find_spec("duckdb") else [])]
    found: dict[str, list[dict[str, Any]]] = {job: [] for job in ("ours", *peers)}
    for number in range(rounds):
        for job in sorted(found, reverse=bool(number % 2)):
            found[job].append(run(job, path))
            print(f"  {job} {found[job][-1]['wall']:.2f} s", file=sys.stderr, flush=True)
    lines = []
    middle = {}
    for job, runs in found.items():
        middle[job] = statistics.median(one["wall"] for one in runs)
        cpu = statistics.median(one["cpu"] for one in runs)
        peak = max(one["peak"] for one in runs)
        name = {"ours": "heldout", "pandas": "pandas", "duckdb": "DuckDB"}[job]
        lines.append(
            f"| {name} | {middle[job]:.2f} | {cpu:.2f} | {peak:,.0f} | {runs[0]['rows']:,} |"
        )
    same = len({one["ids"] for runs in found.values() for one in runs}) == 1
    ratios = [
        theirs["wall"] / mine["wall"]
        for mine, theirs in zip(found["ours"], found["pandas"], strict=True)
    ]
    return "\n".join(lines), statistics.median(ratios), same


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=100, help="million rows of the large table")
    parser.add_argument("--compare", type=float, default=8, help="million rows against pandas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the tables are kept for the next time")
    parser.add_argument("--no-tsv", action="store_true")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/domains.md")
    parser.add_argument("--job", choices=sorted(JOBS))
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    if arguments.job:
        child(arguments.job, arguments.file)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        text = measure(folder, arguments)
    if arguments.write:
        from machine import write_result

        write_result("domains", text)
    else:
        print(text)


def measure(folder: Path, arguments: argparse.Namespace) -> str:
    """All parts, as the text of the result."""
    from machine import describe

    parts = [
        "# Recipe domains\n",
        f"{describe('numpy', 'pyarrow', 'pandas')}, {os.cpu_count()} cores, 2 threads.\n",
    ]
    if arguments.rows:
        path = table_of(folder, arguments.rows)
        size = path.stat().st_size / 1e9
        parts.append(
            f"## {arguments.rows:g} million rows ({size:.2f} GB of Parquet)\n\n"
            "| | wall s | processor s | peak MB | rows chosen |\n|---|---|---|---|---|"
        )
        for job, name in (("ours", "select"), ("command", "build domains, the set written")):
            one = run(job, path)
            parts.append(
                f"| {name} | {one['wall']:.1f} | {one['cpu']:.1f} | {one['peak']:,.0f} | "
                f"{one['rows']:,} |"
            )
    if arguments.compare:
        path = table_of(folder, arguments.compare)
        table, ratio, same = compare(path, arguments.rounds)
        parts.append(
            f"\n## {arguments.compare:g} million rows, against others, {arguments.rounds} rounds\n\n"
            "| | wall s | processor s | peak MB | rows chosen |\n|---|---|---|---|---|\n"
            f"{table}\n\n"
            f"pandas takes {ratio:.2f} times as long; the rows are "
            f"{'the same' if same else 'NOT the same'}."
        )
    tsv = Path(__file__).parent / "domains_tsv.py"
    if tsv.is_file() and not arguments.no_tsv:
        done = subprocess.run(
            [sys.executable, str(tsv)], check=True, stdout=subprocess.PIPE, text=True
        )
        parts.append(f"\n{done.stdout.strip()}")
    return "\n".join(parts) + "\n"


def table_of(folder: Path, millions: float) -> Path:
    """The table of so many rows, drawn where it is not there yet."""
    path = folder / f"domains-{millions:g}m.parquet"
    if not path.is_file():
        half = path.with_suffix(".half")
        # In a process of its own: this one's peak memory is where its children's begins.
        code = f"import domains; domains.make_table(domains.Path({str(half)!r}), {int(millions * 1e6)})"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
        half.rename(path)
    return path


if __name__ == "__main__":
    main()
