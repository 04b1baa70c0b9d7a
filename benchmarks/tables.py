"""Which table library carries heldout: Polars, DuckDB or pyarrow (with NumPy)?

Four jobs that the package really does, each in a fresh process so that peak memory is its own:

* ``join``    22 models' top-1 answers joined by image id to 50,000 truths, accuracy a class
* ``lists``   write and read 200,000 rows of (id, list<string>, bool): a truth table
* ``logits``  write and read 20,000 x 1,000 logits, float16 where the engine has that type
* ``stream``  keep the 40 best of each of 2,000 classes out of N million Parquet rows, out of core

Run: ``python benchmarks/tables.py --rounds 3 --million 20``; needs polars and duckdb beside the
package's own requirements. Prints a Markdown table; engines are interleaved within a round.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ENGINES = ("pyarrow", "polars", "duckdb")
JOBS = ("import", "join", "lists", "logits", "stream")


def make_inputs(folder: Path, million: int) -> None:
    """Write the shared inputs once, with pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    ids = np.array([f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(50_000)])
    truth = rng.integers(0, 1000, 50_000)
    pq.write_table(pa.table({"image_id": ids, "label": truth}), folder / "truth.parquet")
    for m in range(22):
        order = rng.permutation(50_000)
        guess = np.where(rng.random(50_000) < 0.7, truth, rng.integers(0, 1000, 50_000))
        table = pa.table({"image_id": ids[order], "top1": guess[order]})
        pq.write_table(table, folder / f"model-{m}.parquet")
    writer = None
    for part in range(million):
        n = 1_000_000
        table = pa.table(
            {
                "row": np.arange(part * n, (part + 1) * n),
                "label": rng.integers(0, 2000, n, dtype=np.int32),
                "similarity": rng.random(n, dtype=np.float32),
            }
        )
        writer = writer or pq.ParquetWriter(folder / "stream.parquet", table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def top_by_class_numpy(batches: object, keep: int, classes: int) -> int:
    """Streaming top-k a class: a running threshold a class, candidates compacted when they pile up."""
    floor = np.full(classes, -np.inf, dtype=np.float32)
    rows = np.empty(0, np.int64)
    labels = np.empty(0, np.int32)
    values = np.empty(0, np.float32)
    for row, label, value in batches:  # type: ignore[attr-defined]
        alive = value >= floor[label]
        rows = np.concatenate([rows, row[alive]])
        labels = np.concatenate([labels, label[alive]])
        values = np.concatenate([values, value[alive]])
        order = np.lexsort((rows, -values, labels))
        rows, labels, values = rows[order], labels[order], values[order]
        start = np.r_[0, np.flatnonzero(np.diff(labels)) + 1]
        rank = np.arange(len(labels)) - np.repeat(start, np.diff(np.r_[start, len(labels)]))
        last = rank == keep - 1
        floor[labels[last]] = values[last]
        rows, labels, values = rows[rank < keep], labels[rank < keep], values[rank < keep]
    return int(rows.sum())


def run_pyarrow(job: str, folder: Path) -> object:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if job == "join":
        truth = pq.read_table(folder / "truth.parquet")
        out = []
        for m in range(22):
            model = pq.read_table(folder / f"model-{m}.parquet")
            import pyarrow.compute as pc

            place = pc.index_in(model["image_id"], value_set=truth["image_id"]).to_numpy()
            label = truth["label"].to_numpy()[place]
            hit = model["top1"].to_numpy() == label
            per_class = np.bincount(label, hit, 1000) / np.bincount(label, minlength=1000)
            out.append(round(float(per_class.mean()), 9))
        return out
    if job == "lists":
        ids, lists, flags = list_rows()
        table = pa.table({"image_id": ids, "correct": lists, "problematic": flags})
        pq.write_table(table, folder / "a.parquet")
        back = pq.read_table(folder / "a.parquet")
        return len(back["correct"].combine_chunks().flatten())
    if job == "logits":
        x = np.random.default_rng(0).standard_normal((20_000, 1000)).astype(np.float16)
        array = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 1000)
        pq.write_table(pa.table({"logits": array}), folder / "al.parquet", use_dictionary=False)
        back = pq.read_table(folder / "al.parquet")["logits"].combine_chunks()
        return bool((back.flatten().to_numpy().reshape(-1, 1000) == x).all())
    file = pq.ParquetFile(folder / "stream.parquet")
    batches = (
        tuple(batch.column(i).to_numpy() for i in range(3))
        for batch in file.iter_batches(batch_size=1_000_000)
    )
    return top_by_class_numpy(batches, 40, 2000)


def run_polars(job: str, folder: Path) -> object:
    import polars as pl

    if job == "join":
        truth = pl.read_parquet(folder / "truth.parquet")
        out = []
        for m in range(22):
            both = pl.read_parquet(folder / f"model-{m}.parquet").join(truth, on="image_id")
            per_class = both.group_by("label").agg((pl.col("top1") == pl.col("label")).mean())
            out.append(round(float(per_class["top1"].mean()), 9))  # type: ignore[arg-type]
        return out
    if job == "lists":
        ids, lists, flags = list_rows()
        pl.DataFrame({"image_id": ids, "correct": lists, "problematic": flags}).write_parquet(
            folder / "p.parquet"
        )
        return len(pl.read_parquet(folder / "p.parquet")["correct"].explode())
    if job == "logits":
        x = np.random.default_rng(0).standard_normal((20_000, 1000)).astype(np.float16)
        try:
            frame = pl.DataFrame({"logits": x})
        except Exception:  # this version has no 16-bit floats: the honest fallback is 32
            frame = pl.DataFrame({"logits": x.astype(np.float32)})
        frame.write_parquet(folder / "pl.parquet")
        back = pl.read_parquet(folder / "pl.parquet")["logits"].to_numpy()
        return bool((back == x).all())
    lazy = pl.scan_parquet(folder / "stream.parquet")
    best = (
        lazy.group_by("label")
        .agg(pl.col("row").top_k_by("similarity", 40))
        .collect(engine="streaming")
    )
    return int(best["row"].explode().sum())


def run_duckdb(job: str, folder: Path) -> object:
    import duckdb

    db = duckdb.connect()
    if job == "join":
        db.execute(f"create table truth as from '{folder}/truth.parquet'")
        out = []
        for m in range(22):
            row = db.execute(
                "select avg(a) from (select avg((top1 = label)::double) a from "
                f"'{folder}/model-{m}.parquet' join truth using (image_id) group by label)"
            ).fetchone()
            out.append(round(float(row[0]), 9))  # type: ignore[index]
        return out
    if job == "lists":
        ids, lists, flags = list_rows()
        db.execute("create table t (image_id varchar, correct varchar[], problematic boolean)")
        step = 2000
        for i in range(0, len(ids), step):
            args: list[object] = []
            for row in zip(
                ids[i : i + step], lists[i : i + step], flags[i : i + step], strict=True
            ):
                args += row
            db.execute("insert into t values " + ",".join(["(?,?,?)"] * (len(args) // 3)), args)
        db.execute(f"copy t to '{folder}/d.parquet'")
        return db.execute(f"select sum(len(correct)) from '{folder}/d.parquet'").fetchone()[0]  # type: ignore[index]
    if job == "logits":
        x = np.random.default_rng(0).standard_normal((20_000, 1000)).astype(np.float16)
        wide = x.astype(np.float32).ravel()
        db.execute(
            "create table l as select row, list(v order by i)::float[1000] logits from "
            "(select i // 1000 as row, i, v from (select unnest(range(20000000)) i, unnest($1) v)) "
            "group by row",
            [wide],
        )
        db.execute(f"copy (from l order by row) to '{folder}/dl.parquet'")
        back = db.execute(f"select logits from '{folder}/dl.parquet'").fetchnumpy()["logits"]
        return bool((np.stack(list(back)) == x).all())
    row = db.execute(
        f"select sum(r) from (select unnest(arg_max(row, similarity, 40)) r "
        f"from '{folder}/stream.parquet' group by label)"
    ).fetchone()
    return int(row[0])  # type: ignore[index]


def list_rows() -> tuple[list[str], list[list[str]], list[bool]]:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 4, 200_000)
    names = [f"n{i:08d}" for i in range(1000)]
    picks = rng.integers(0, 1000, counts.sum())
    ends = np.cumsum(counts)
    lists = [[names[j] for j in picks[e - c : e]] for c, e in zip(counts, ends, strict=True)]
    return [f"img{i}" for i in range(200_000)], lists, (counts == 0).tolist()


def one(engine: str, job: str, folder: Path) -> None:
    """Child process: one engine, one job; prints seconds, peak MB and the answer."""
    start = time.perf_counter()
    runner = {"pyarrow": run_pyarrow, "polars": run_polars, "duckdb": run_duckdb}[engine]
    answer: object = None
    if job == "import":
        __import__("pyarrow.parquet" if engine == "pyarrow" else engine)
    else:
        answer = runner(job, folder)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "answer": answer}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--million", type=int, default=20)
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "JOB", "FOLDER"))
    options = parser.parse_args()
    if options.one:
        one(options.one[0], options.one[1], Path(options.one[2]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder, options.million)
        seen: dict[tuple[str, str], list[dict[str, float]]] = {}
        for _ in range(options.rounds):
            for job in JOBS:
                for engine in ENGINES:
                    run = subprocess.run(
                        [sys.executable, __file__, "--one", engine, job, name],
                        capture_output=True,
                        text=True,
                        check=False,
                    )
                    if run.returncode:
                        print(
                            f"<!-- {engine} {job} failed: {run.stderr.strip().splitlines()[-1]} -->"
                        )
                        continue
                    seen.setdefault((engine, job), []).append(json.loads(run.stdout))
        print(
            "| job | engine | seconds (median) | peak MB | answer agrees |\n|---|---|---|---|---|"
        )
        for job in JOBS:
            for engine in ENGINES:
                runs = seen.get((engine, job))
                if not runs:
                    print(f"| {job} | {engine} | failed | | |")
                    continue
                reference = seen[("pyarrow", job)][0]["answer"]
                agrees = all(r["answer"] == reference for r in runs)
                seconds = statistics.median(r["seconds"] for r in runs)
                peak = statistics.median(r["peak_mb"] for r in runs)
                print(
                    f"| {job} | {engine} | {seconds:.2f} | {peak:.0f} | {'yes' if agrees else 'no'} |"
                )


if __name__ == "__main__":
    main()
