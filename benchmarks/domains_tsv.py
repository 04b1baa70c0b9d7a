"""Reading YFCC100M's tables: heldout against pandas doing the same work.

A file is drawn in the shape of the archive: 25 columns, form-encoded texts (a third of them with
escapes), tags with escaped commas, half of the rows with coordinates, some videos, and one row in a
thousand malformed: fields missing or too many, bytes that are no UTF-8, a key that does not fit.

The work: part the columns; put malformed rows aside with their line numbers; make the key of every
photo from its address and compare it with the stated one; decode texts; split tags and decode each;
numbers as numbers, empty texts as missing. pandas gets its fast parser, plain loops over objects in
place of row-wise ``apply``, a table of hexadecimal bytes, and decodes only what has something to
decode. Both must agree on every value and on every line put aside.

Every job is a process of its own; rounds are interleaved. Time does not include imports.

    python benchmarks/domains_tsv.py [--rows 200000] [--rounds 5] [--file FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote_plus

TEXTS = ("uid", "nickname", "device", "title", "description")
COMPARED = ("image_id", "uri", *TEXTS, "tags", "machine_tags", "longitude", "latitude", "licence")
Result = tuple[Callable[[], dict[str, list[Any]]], list[int]]
"""The columns as lists, made outside the time that is measured; and the lines put aside."""


def make_file(path: Path, rows: int) -> None:
    """Draw the file."""
    import numpy as np

    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(3000)] + [
        "café",
        "Zürich",
        "東京",
        "rock & roll",
        "a,b",
        "50%",
    ]
    licences = ["Attribution License", "Attribution-NonCommercial License"]
    devices = ["Canon EOS 5D Mark II", "NIKON D90", "Apple iPhone 4", ""]

    def text(low: int, high: int) -> str:
        count = int(rng.integers(low, high))
        return " ".join(words[i] for i in rng.integers(0, len(words), count))

    with path.open("wb") as out:
        for number in range(rows):
            geotagged, video = rng.random() < 0.48, rng.random() < 0.008
            photo = 2_000_000_000 + 7 * number
            user = int(rng.integers(0, 500_000))
            url = f"http://farm{number % 9 + 1}.staticflickr.com/{number % 8000}/{photo}_{user:010x}.jpg"
            key = "".join(f"{byte:x}" for byte in hashlib.md5(url.encode()).digest())
            tags = [quote_plus(text(1, 3)) for _ in range(int(rng.integers(0, 12)))]
            fields = [
                str(number), str(photo), key, f"{user}@N00", quote_plus(text(1, 3)),
                "2012-02-16 09:56:37.0", str(1_300_000_000 + number),
                quote_plus(devices[number % 4]), quote_plus(text(1, 6)), quote_plus(text(0, 40)),
                ",".join(tags), "upload:app=x%2Cy" if number % 20 == 0 else "",
                f"{rng.uniform(-180, 180):.6f}" if geotagged else "",
                f"{rng.uniform(-90, 90):.6f}" if geotagged else "", "16" if geotagged else "",
                f"http://www.flickr.com/photos/{user}@N00/{photo}/", url, licences[number % 2],
                "http://creativecommons.org/licenses/by/2.0/", "7205", "8", f"{user:010x}",
                f"{user + 1:010x}", "jpg", str(int(video)),
            ]  # fmt: skip
            kind = rng.integers(0, 4000)
            if kind == 0 and number:
                del fields[9]
            elif kind == 1 and number:
                fields.append("more")
            elif kind == 3 and number:
                fields[2] = "0" * 31
            line = "\t".join(fields).encode()
            out.write((line.replace(b"word", b"\xff", 1) if kind == 2 and number else line) + b"\n")


def ours(path: Path) -> Result:
    """The rows that heldout reads."""
    import pyarrow as pa

    from heldout.data.published.pool_builder import Problems
    from heldout.data.published.yfcc import Quarantine, metadata_lines, photo_table

    class Kept(Quarantine):
        lines: list[int] = []  # noqa: RUF012  # one to a process

        def add(self, path: Path, line: int, reason: str, text: bytes) -> None:
            self.lines.append(line)
            super().add(path, line, reason, text)

    problems = Problems()
    aside = Kept(problems)
    tables = [photo_table(lines, problems) for lines in metadata_lines([path], aside)]
    table = pa.concat_tables(tables)
    return lambda: {name: table[name].to_pylist() for name in COMPARED}, aside.lines


def with_pandas(path: Path) -> Result:
    """The same rows by pandas."""
    import pandas as pd

    width = 25
    frame = pd.read_csv(
        path, sep="\t", header=None, names=list(range(width + 2)), dtype=object, quoting=3,
        keep_default_na=False, na_values=[], encoding_errors="surrogateescape",
        skip_blank_lines=False, low_memory=False,
    )  # fmt: skip
    good = frame[width].fillna("").eq("") & frame[width - 1].isin(["0", "1"])
    good &= frame[1].str.isdigit().fillna(False).astype(bool)
    for column in range(width):
        texts = frame[column].fillna("").tolist()
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            good &= pd.Series([_encodes(text) for text in texts])
    rows = frame[good]
    table = [f"{byte:x}" for byte in range(256)]
    md5 = hashlib.md5
    keys = pd.Series(
        [
            "".join([table[byte] for byte in md5(url.encode()).digest()])
            for url in rows[16].tolist()
        ],
        index=rows.index,
        dtype=object,
    )
    fits = keys == rows[2]
    rows, keys = rows[fits], keys[fits]
    aside = sorted(set(range(1, len(frame) + 1)) - {number + 1 for number in rows.index.tolist()})
    made = pd.DataFrame({"image_id": keys, "uri": rows[16], "licence": rows[17]})
    for name, column in zip(TEXTS, (3, 4, 7, 8, 9), strict=True):
        made[name] = pd.Series([_text(text) for text in rows[column].tolist()], rows.index, object)
    for name, column in (("tags", 10), ("machine_tags", 11)):
        made[name] = pd.Series([_list(text) for text in rows[column].tolist()], rows.index, object)
    for name, column in (("longitude", 12), ("latitude", 13), ("accuracy", 14), ("uploaded", 6)):
        made[name] = pd.to_numeric(rows[column].replace("", None))
    made["row_id"] = rows[0].astype("int64")

    def lists() -> dict[str, list[Any]]:
        clean = made.astype(object).where(made.notna(), None)
        return {name: clean[name].tolist() for name in COMPARED}

    return lists, aside


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(text: str) -> str | None:
    return (unquote_plus(text) if "%" in text else text.replace("+", " ")) or None


def _list(text: str) -> list[str]:
    if not text:
        return []
    if "%" not in text:
        return text.replace("+", " ").split(",")
    return [unquote_plus(tag) for tag in text.split(",")]


JOBS: dict[str, Callable[[Path], Result]] = {"ours": ours, "pandas": with_pandas}


def child(job: str, path: Path) -> None:
    """Do one job and print what it took."""
    import numpy  # noqa: F401  # imports are not part of the time
    import pyarrow.csv  # noqa: F401

    if job == "pandas":
        import pandas  # noqa: F401
    else:
        import heldout.data.published.yfcc  # noqa: F401
    begin, cpu = time.perf_counter(), time.process_time()
    columns, aside = JOBS[job](path)
    wall, spent = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = columns()
    digest = hashlib.sha256()
    for name in COMPARED:
        digest.update(json.dumps(found[name]).encode())
    digest.update(json.dumps(sorted(aside)).encode())
    print(
        json.dumps(
            {
                "wall": wall,
                "cpu": spent,
                "peak": peak,
                "rows": len(found["image_id"]),
                "aside": len(aside),
                "digest": digest.hexdigest(),
            }
        )
    )


def measure(path: Path, rounds: int) -> str:
    """Both jobs, interleaved; the table and the ratio as text."""
    found: dict[str, list[dict[str, Any]]] = {job: [] for job in JOBS}
    for number in range(rounds):
        for job in sorted(found, reverse=bool(number % 2)):
            done = subprocess.run(
                [sys.executable, __file__, "--job", job, "--file", str(path)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            found[job].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"  {job} {found[job][-1]['wall']:.2f} s", file=sys.stderr, flush=True)
    size = path.stat().st_size / 1e6
    first = found["ours"][0]
    lines = [
        f"## Reading {size:,.0f} MB of YFCC100M's tables, against pandas, {rounds} rounds\n",
        "| | wall s | processor s | peak MB | MB/s |\n|---|---|---|---|---|",
    ]
    for job, runs in found.items():
        wall = statistics.median(one["wall"] for one in runs)
        cpu = statistics.median(one["cpu"] for one in runs)
        peak = max(one["peak"] for one in runs)
        name = "heldout" if job == "ours" else "pandas"
        lines.append(f"| {name} | {wall:.2f} | {cpu:.2f} | {peak:,.0f} | {size / wall:,.0f} |")
    pairs = list(zip(found["ours"], found["pandas"], strict=True))
    by_wall = statistics.median(theirs["wall"] / mine["wall"] for mine, theirs in pairs)
    by_cpu = statistics.median(theirs["cpu"] / mine["cpu"] for mine, theirs in pairs)
    same = len({one["digest"] for runs in found.values() for one in runs}) == 1
    lines.append(
        f"\n{first['rows']:,} rows, {first['aside']:,} put aside. pandas takes {by_wall:.2f} times as "
        f"long ({by_cpu:.2f} times the processor time); rows, values and lines put aside are "
        f"{'the same' if same else 'NOT the same'}."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--job", choices=sorted(JOBS))
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    if arguments.job:
        child(arguments.job, arguments.file)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = arguments.file or Path(scratch) / "yfcc100m_dataset"
        if not path.is_file():
            make_file(path, arguments.rows)
        print(measure(path, arguments.rounds))


if __name__ == "__main__":
    main()
