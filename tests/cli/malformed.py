"""Files with something wrong in them, and every command that reads them.

The commands are those of the golden worlds: each runs once and the files that it opens are noted, so
a new verb or format is tried without being listed here. A trial copies the folder as it was before
a command, spoils one file that the command reads, and runs the command through the real entry.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import shlex
import shutil
import signal
import struct
import sys
import tomllib
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from heldout.cli.app import invoke
from tests.golden.data import COLOURS, HOOKS, WORLDS, space, write
from tests.golden.record import HERE, steps

SECONDS = 60
"""A trial that takes longer hangs; the commands take a few seconds at most."""
SKIP = frozenset({".py", ".html", ".svg", ".so", ".pyc", ".gz"})
PICTURES = frozenset({".jpg", ".jpeg", ".png"})
_LONG = "x" * 300

_COLOURS = space("colours", COLOURS)
MORE: dict[str, tuple[dict[str, Any], tuple[tuple[str, int], ...]]] = {
    "images": (
        {
            "map.json": {
                "schema_version": 1,
                "kind": "label_map",
                "name": "same",
                "map_kind": "subset",
                "reading": "full",
                "allow_overlap": False,
                "source": _COLOURS,
                "target": _COLOURS,
                "accepted": {name: [name] for name in COLOURS},
            },
            "map.csv": "target,source\n" + "".join(f"{name},{name}\n" for name in COLOURS),
            "groups.json": {"warm": ["red"], "cold": ["green", "blue"]},
            "collapse.toml": 'red = ["green"]\n',
            "templates.txt": "a photo of a {}\na drawing of a {}\n",
        },
        (
            ("score -t colours -m ash --label-map map.json --metric top1", 0),
            ("score -t colours -m ash --label-map map.csv:full --metric top1", 0),
            ("mistakes propose -t colours --superclasses groups.json", 0),
            ("mistakes confusions -t colours --collapse collapse.toml", 0),
            (
                "annotate photos -e encoder.py:colours --classes space.json --templates templates.txt "
                "--name told",
                0,
            ),
        ),
    ),
    "domains": (
        {"keywords.json": {"n02129165": ["lion"], "n09332890": ["lake"]}},
        (("collect yfcc dataset --keywords keywords.json --coordinates off --name keyed", 3),),
    ),
}
"""Files that no command of the golden worlds reads, and commands that read them."""

# One wrong value


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Callable[[Any, random.Random], Any]] = {
    "null": lambda value, rng: None,
    "empty text": lambda value, rng: "",
    "long text": lambda value, rng: _LONG,
    "odd text": lambda value, rng: rng.choice(
        ["../../up", "a\0b", "a\nb", "\ud800", "n", "café", "=1+1", "1999-13-45", "-", "/etc", "*["]
    ),
    "number": lambda value, rng: rng.choice([0, 1, 7, 2.5, 1e308]),
    "negative": lambda value, rng: rng.choice([-1, -0.5, -(2**40)]),
    "huge integer": lambda value, rng: rng.choice([10**12, 2**63, 2**64, 10**30, 10**400]),
    "not finite": lambda value, rng: rng.choice([float("nan"), float("inf"), -float("inf")]),
    "truth value": lambda value, rng: rng.choice([True, False]),
    "empty list": lambda value, rng: [],
    "empty object": lambda value, rng: {},
    "in a list": lambda value, rng: [value],
    "in an object": lambda value, rng: {"a": value},
    "nested": lambda value, rng: _nested(value, 40),
    "as text": lambda value, rng: str(value),
    "list of objects": lambda value, rng: [{"a": 1}, {"a": "b"}],
    "mixed list": lambda value, rng: [1, "a", None, [], {}],
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in itertools.islice(items, 60):
        yield from _places(item, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def spoil_value(value: Any, rng: random.Random) -> tuple[Any, str]:
    """A parsed document with one thing in it changed, and what was done."""
    value = json.loads(json.dumps(value, default=str))
    # Shallow places are few and matter most: a place is drawn by its depth first.
    places = list(_places(value))
    depth = rng.choice(sorted({len(place) for place in places}))
    path = rng.choice([place for place in places if len(place) == depth])
    what = rng.choice(
        [*VALUES, "drop", "unknown key", "rename key", "swap", "schema_version", "twice"]
    )
    shown = "/".join(map(str, path)) or "the whole"
    if what == "schema_version":
        if isinstance(value, dict):
            value["schema_version"] = rng.choice([0, -1, 2, 99, "1", None, 1.5, True, 10**30])
        return value, "schema_version"
    held = _at(value, path)
    if what == "unknown key" and isinstance(held, dict):
        held[rng.choice(["zzz", "", "a.b", _LONG, "name", "a\nb"])] = rng.choice([1, "a", [], None])
        return value, f"{what} in {shown}"
    if what in ("rename key", "drop", "twice", "swap") and isinstance(held, dict | list) and held:
        if isinstance(held, dict):
            key = rng.choice(list(held))
            if what == "rename key":
                held[f"{key}x"] = held.pop(key)
            elif what == "swap":
                other = rng.choice(list(held))
                held[key], held[other] = held[other], held[key]
            else:
                del held[key]
            return value, f"{what} {key} of {shown}"
        row = rng.randrange(len(held))
        if what == "twice":
            held.append(held[row])
        elif what == "swap":
            held[row], held[-1] = held[-1], held[row]
        else:
            del held[row]
        return value, f"{what} {row} of {shown}"
    if what not in VALUES:
        what = rng.choice(list(VALUES))
    made = VALUES[what](held, rng)
    if not path:
        return made, f"{what} for {shown}"
    _at(value, path[:-1])[path[-1]] = made
    return value, f"{what} for {shown}"


def spoil_bytes(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Bytes with damage that does not depend on the format."""
    at = rng.randrange(len(data) + 1)
    what = rng.choice(
        ["cut", "empty", "not UTF-8", "NUL", "junk", "BOM", "UTF-16", "flip", "tail", "blank"]
    )
    made = {
        "cut": data[:at],
        "empty": b"",
        "not UTF-8": data[:at] + b"\xff\xfe\xe9" + data[at:],
        "NUL": data[:at] + b"\0" + data[at:],
        "junk": rng.randbytes(50),
        "BOM": b"\xef\xbb\xbf" + data,
        "UTF-16": data.decode("latin-1").encode("utf-16"),
        "flip": data[:at] + bytes(b ^ 64 for b in data[at : at + 1]) + data[at + 1 :],
        "tail": data + b"}]\n",
        "blank": b" \n\n",
    }[what]
    return made, f"{what} at {at}"


# Formats


def _json(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    kind = rng.randrange(8)
    if kind == 0:
        depth = rng.choice([500, 900, 930, 960, 2_000, 200_000])
        return b"[" * depth + b"]" * depth, "deep nesting"
    value = json.loads(data)
    if kind == 1 and isinstance(value, dict) and value:
        key = rng.choice(list(value))
        return data.rstrip()[:-1] + f",{json.dumps(key)}:{json.dumps(1)}}}".encode(), "key twice"
    if kind == 2:
        return b'{"a":' * 3_000 + b"1" + b"}" * 3_000, "deep objects"
    made, what = spoil_value(value, rng)
    return _utf8(json.dumps(made)), what


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _json_lines(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    lines = data.decode().splitlines()
    row = rng.randrange(len(lines))
    made, what = spoil_value(json.loads(lines[row]), rng)
    lines[row] = json.dumps(made)
    return _utf8("\n".join(lines) + "\n"), f"line {row}: {what}"


def _toml(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    made, what = spoil_value(tomllib.loads(data.decode()), rng)
    if not isinstance(made, dict):
        made = {"zzz": made}
    if rng.random() < 0.05:
        return data + b"\nzzz = " + b"[" * 5000 + b"]" * 5000, "deep nesting"
    return _utf8("".join(f"{_toml_key(k)} = {_toml_value(v)}\n" for k, v in made.items())), what


def _toml_key(key: str) -> str:
    return json.dumps(key, ensure_ascii=True).replace("\\/", "/")


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if value is None:
        return "1979-05-27"  # TOML has no null, but dates, which JSON has not
    if isinstance(value, float):
        return repr(value) if "." in repr(value) or "e" not in repr(value) else f"{value:.1f}"
    return json.dumps(value)


def _delimited(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    import csv

    text = data.decode()
    mark = "\t" if "\t" in text else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=mark))
    row = rng.choice([0, rng.randrange(len(rows))])
    what = rng.choice(
        ["cell", "cell", "cell", "drop", "short", "wide", "twice", "swap", "header only", "long"]
    )
    column = rng.randrange(max(len(rows[row]), 1))
    if what == "cell" and rows[row]:
        made = VALUES[(kind := rng.choice(list(VALUES)))](rows[row][column], rng)
        rows[row][column] = "" if made is None else str(made)
        what = f"{kind} in cell"
    elif what == "drop":
        for each in rows:
            del each[column : column + 1]
    elif what == "short":
        rows[row] = rows[row][:column]
    elif what == "wide":
        rows[row] = [*rows[row], "zzz"]
    elif what == "twice":
        rows.insert(row, rows[row])
    elif what == "swap" and len(rows[row]) > 1:
        rows[row] = rows[row][::-1]
    elif what == "header only":
        rows = rows[:1]
    elif what == "long":
        rows[row] = ["y" * 200_000, *rows[row][1:]]
    out = io.StringIO()
    csv.writer(out, delimiter=mark, lineterminator="\n").writerows(rows)
    return _utf8(out.getvalue()), f"{what} {row}, {column}"


def _text(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    lines = data.decode().splitlines() or [""]
    row = rng.randrange(len(lines))
    what = rng.choice(["twice", "drop", "long", "empty", "odd"])
    if what == "twice":
        lines.insert(row, lines[row])
    elif what == "drop":
        del lines[row]
    else:
        odd = rng.choice(["a\0b", "../..", "n", "=1", "\ud800", "1e999", "-1", str(10**30), "café"])
        lines[row] = {"long": _LONG, "empty": "", "odd": odd}[what]
    return _utf8("\n".join(lines) + "\n"), f"{what} line {row}"


def _npy(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    kind = rng.choice(["rows", "header", "dtype", "values", "shape", "object", "dates"])
    array = np.load(io.BytesIO(data), allow_pickle=True)
    if kind == "rows":
        head = {"descr": array.dtype.str, "fortran_order": False}
        shape = rng.choice(
            [(10**12, *array.shape[1:]), (-1, *array.shape[1:]), (len(array) + 5, *array.shape[1:])]
        )
        return _npy_header({**head, "shape": shape}) + array.tobytes(), f"rows {shape}"
    if kind == "header":
        descr = rng.choice(["<f8", "|O", "<U99999", "zzz", "<c16", "<M8[s]", "|S0", "<V7", 3])
        head = {"descr": descr, "fortran_order": rng.choice([True, 7]), "shape": array.shape}
        return _npy_header(head) + array.tobytes(), f"descr {descr}"
    flat = array.reshape(-1)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "dtype":
            target = rng.choice(["complex64", "U5", "?", "int8", "uint64", "float16", "S3"])
            try:
                array = array.astype(target)
            except (ValueError, OverflowError):
                array = np.zeros(array.shape, target)
        elif kind == "values" and array.dtype.kind in "iuf" and flat.size:
            wrong = [-(2**15), 2**15 - 1] if array.dtype.kind in "iu" else [np.nan, np.inf, -1e30]
            array = array.copy()
            at = slice(None) if rng.random() < 0.3 else rng.randrange(flat.size)
            array.reshape(-1)[at] = np.array(rng.choice(wrong)).astype(array.dtype)
        elif kind == "shape":
            array = rng.choice(
                [array[:0], array[None], array[:, None] if array.ndim else array, flat,
                 array[..., :1] if array.ndim else array, np.float32(1), array[:1], array.T]
            )  # fmt: skip
        elif kind == "object":
            array = np.array([{"a": 1}] * len(array), dtype=object)
        elif kind == "dates":
            array = np.zeros(array.shape, "datetime64[s]")
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue(), kind


def _npy_header(head: dict[str, Any]) -> bytes:
    text = repr(head).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _npz(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    kind = rng.choice(["member", "member", "drop", "encrypted", "method", "empty", "not arrays"])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(held))
    what = ""
    if kind == "member":
        held[name], what = _npy(held[name], rng)
    elif kind == "drop":
        del held[name]
    elif kind == "empty":
        held = {}
    elif kind == "not arrays":
        held[name] = b"no array"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for each, content in held.items():
            archive.writestr(each, content)
    made = bytearray(out.getvalue())
    if kind in ("encrypted", "method") and held:
        offset, value = (6, 1) if kind == "encrypted" else (8, 97)
        made[offset] |= value
        made[made.index(b"PK\x01\x02") + offset + 2] |= value
    return bytes(made), f"{kind} {name} {what}"


def _parquet(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    table = pq.read_table(io.BytesIO(data))
    at = rng.randrange(table.num_columns)
    name = table.column_names[at]
    n = len(table)
    column: Any = table.column(at)
    what = rng.choice(
        ["not UTF-8", "drop", "rename", "nulls", "dates", "numbers", "text", "NaN", "lists",
         "structs", "binary", "no rows", "twice", "row twice", "huge", "negative", "large", "empty"]
    )  # fmt: skip
    made: Any = {
        "nulls": lambda: pa.nulls(n, column.type),
        "dates": lambda: pa.array([rng.choice([0, 2**40, 2**62])] * n, pa.timestamp("us")),
        "numbers": lambda: pa.array(range(n), pa.int64()),
        "text": lambda: pa.array([rng.choice(["a", "1", "\0", "{", "null", _LONG])] * n),
        "NaN": lambda: pa.array([float("nan")] * n),
        "lists": lambda: pa.array([[1, 2]] * n),
        "structs": lambda: pa.array([{"a": 1}] * n),
        "binary": lambda: pa.array([b"\xff\xfe"] * n, pa.binary()),
        "huge": lambda: pa.array([2**63 - 1] * n),
        "negative": lambda: pa.array([-5] * n, pa.int32()),
        "large": lambda: (
            column.cast(pa.large_string()) if pa.types.is_string(column.type) else column
        ).combine_chunks(),
        "not UTF-8": lambda: _not_utf8(n),
        "empty": lambda: pa.array([""] * n),
    }.get(what)
    if made is not None:
        values = made()
        if rng.random() < 0.3 and values.type == column.type and n:
            values = pa.chunked_array([values[:1], *column[1:].chunks])
        table = table.set_column(at, name, values)
    elif what == "drop":
        table = table.remove_column(at)
    elif what == "rename":
        table = table.rename_columns([f"{c}x" if c == name else c for c in table.column_names])
    elif what == "no rows":
        table = table[:0]
    elif what == "twice":
        table = table.append_column(name, column)
    elif what == "row twice":
        table = pa.concat_tables([table, table[:1]])
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue(), f"{what} {name}"


def _not_utf8(n: int) -> Any:
    offsets = np.arange(n + 1, dtype=np.int32) * 2
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfe" * n))


FORMATS: dict[str, Callable[[bytes, random.Random], tuple[bytes, str]]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".toml": _toml,
    ".csv": _delimited,
    ".tsv": _delimited,
    ".txt": _text,
    ".npy": _npy,
    ".npz": _npz,
    ".parquet": _parquet,
}


def spoil(path: Path, rng: random.Random) -> str:
    """Spoil one file in place; says what was done."""
    if path.suffix != ".db" and rng.random() < 0.04:
        path.unlink()
        if rng.random() < 0.5:
            path.mkdir()
            return "a folder in its place"
        return "gone"
    data = path.read_bytes()
    made, what = data, ""
    if path.suffix in FORMATS and rng.random() < 0.85:
        with contextlib.suppress(ValueError, IndexError):  # not what its name says: bytes below
            made, what = FORMATS[path.suffix](data, rng)
    if not what:
        made, what = spoil_bytes(data, rng)
    path.unlink()  # the copy shares its files with the folder it was made of
    path.write_bytes(made)
    return what


# Trials


@dataclass(frozen=True)
class Reading:
    """A command, the folder as it was before it, and a file that it reads."""

    kind: str
    command: str
    before: Path
    file: str


@dataclass(frozen=True)
class Outcome:
    """What one trial gave: ``fault`` is empty for exit 0 to 4 without a traceback."""

    reading: Reading
    seed: int
    what: str
    code: int
    line: str
    fault: str


class _Opened:
    """The files below a folder that this process opens, by an audit hook; these cannot be removed."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.found: dict[str, None] = {}
        sys.addaudithook(self._note)

    def _note(self, event: str, values: tuple[Any, ...]) -> None:
        if self.root is None or event not in ("open", "sqlite3.connect"):
            return
        if event == "open" and isinstance(values[1], str) and set(values[1]) & set("wax+"):
            return
        try:
            path = os.path.abspath(os.fspath(values[0]))  # noqa: PTH100  resolve() opens
        except TypeError:
            return
        if isinstance(path, str) and path.startswith(self.root):
            self.found[path[len(self.root) + 1 :]] = None


_opened: _Opened | None = None


def readings(world: str, root: Path, *, slowest: float = 3.0) -> list[Reading]:
    """Play a world's commands in ``root``; which files each of them reads, with the state before it.

    ``slowest``  commands that take longer are played, not tried
    """
    import time

    global _opened
    _opened = _opened or _Opened()
    now = root / "now"
    if (HERE / "inputs" / world).is_dir():
        shutil.copytree(HERE / "inputs" / world, now)
    WORLDS[world](now)
    files, more = MORE.get(world, ({}, ()))
    for name, value in files.items():
        write(now / name, value)
    commands = [(command, code) for command, code, _ in steps(HERE / f"{world}.txt")]
    found: list[Reading] = []
    kept: Path | None = None
    damaged = [n for n, (command, _) in enumerate(commands) if command.startswith("@overwrite")]
    at = damaged[0] if damaged else len(commands)
    commands[at:at] = more
    for number, (command, code) in enumerate(commands):
        if command.startswith("@"):
            name, *arguments = command[1:].split()
            with contextlib.chdir(now):
                HOOKS[name](*arguments)
            kept = None
            continue
        before = kept if kept is not None else linked(now, root / f"before-{number}")
        stamps = _stamps(now)
        _opened.root, _opened.found = str(now), {}
        start = time.monotonic()
        ran, line, _ = call(command, now)
        took = time.monotonic() - start
        _opened.root = None
        kept = before if _stamps(now) == stamps else None
        if (command, code) in more and ran != code:
            raise AssertionError(f"{command}: exit {ran}, {line}")
        if code == 2 or ran != code or took > slowest:
            continue
        for file in [*_opened.found, *_beside(command, before, list(_opened.found))]:
            if (before / file).is_file() and Path(file).suffix not in SKIP:
                found.append(Reading(kind_of(file), command, before, file))
    return list(dict.fromkeys(found))


def _beside(command: str, root: Path, opened: list[str]) -> Iterator[str]:
    """Files that Arrow opens, which no audit hook sees: tables of stored sets, and what is named."""
    for file in opened:
        if Path(file).name in ("card.json", "run.json", "pool.json"):
            for path in (root / file).parent.rglob("*.parquet"):
                yield path.relative_to(root).as_posix()
    for word in shlex.split(command):
        for place in (word, word.rpartition(":")[2]):
            if (root / place).is_file():
                yield Path(place).as_posix()


def kind_of(file: str) -> str:
    """The format of a file, as far as its name says; each kind is tried equally often."""
    path = Path(file)
    if path.suffix in PICTURES:
        return "picture"
    fixed = {"card.json", "run.json", "pool.json", "embedding.json", "label_space.json",
             "label_map.json", "ids.txt", "vectors.npy", "judgements.db"}  # fmt: skip
    if path.name in fixed:
        return path.name
    if "testsets" in path.parts and path.suffix == ".parquet":
        return "tables of a test set"
    if "pools" in path.parts and path.suffix == ".parquet":
        return "tables of a pool"
    if "predictions" in path.parts and path.suffix == ".parquet":
        return "parts of predictions"
    if "ledger" in path.parts:
        return "ledger"
    if "results" in path.parts:
        return "units of a job"
    return path.name


def linked(folder: Path, to: Path) -> Path:
    """A copy that shares files with the folder; databases, which are written in place, are copied."""

    def link(source: str, target: str) -> None:
        if ".db" in Path(source).name:
            shutil.copy2(source, target)
        else:
            os.link(source, target, follow_symlinks=False)

    shutil.copytree(folder, to, copy_function=link, symlinks=True)
    return to


def _stamps(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        for stat in [path.lstat()]
    }


class _Late(BaseException):
    """A command did not come to an end."""


def call(command: str, root: Path) -> tuple[int, str, str]:
    """Run a command line in ``root`` as its script does: exit code, error line, and its fault."""

    def stop(*_: object) -> None:
        raise _Late

    out, err = io.StringIO(), io.StringIO()
    environment = dict(os.environ)
    for name in ("HELDOUT_WORKSPACE", "HELDOUT_JUDGEMENTS"):
        os.environ.pop(name, None)
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    fault = ""
    try:
        with (
            contextlib.chdir(root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            code = invoke(shlex.split(command))
    except _Late:
        code, fault = 1, f"took more than {SECONDS} s\n{traceback.format_exc()}"
    except Exception:
        code, fault = 1, traceback.format_exc()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        os.environ.clear()
        os.environ.update(environment)
    said = err.getvalue().rstrip()
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    if not fault and code == 2 and (len(errors) != 1 or not said.endswith(errors[0])):
        fault = f"exit 2 and not one last line of error:\n{said}"
    if not fault and "Warning: " in said and "heldout/" in said:
        fault = f"a warning of Python:\n{said}"
    if not fault and "Traceback" in said:
        fault = said
    return int(code), errors[-1] if errors else "", fault


def trial(reading: Reading, seed: int, place: Path) -> Outcome:
    """Spoil the file of a reading and run its command, in a new folder at ``place``."""
    rng = random.Random(f"{seed} {reading.command} {reading.file}")
    linked(reading.before, place)
    try:
        what = spoil(place / reading.file, rng)
        code, line, fault = call(reading.command, place)
        # Exit 1 is a finding of verify and doctor, and a fault of every other verb.
        if code == 1 and not fault and reading.command.split()[0] not in ("verify", "doctor"):
            fault = "exit 1"
        return Outcome(reading, seed, what, code, line, fault)
    finally:
        shutil.rmtree(place)


def trials(found: list[Reading], n: int, *, seed: int, place: Path) -> Iterator[Outcome]:
    """``n`` trials: every kind of file equally often, and of its readings one at random."""
    rng = random.Random(seed)
    kinds: dict[str, list[Reading]] = {}
    for reading in found:
        kinds.setdefault(reading.kind, []).append(reading)
    order = sorted(kinds)
    for number in range(n):
        if number % len(order) == 0:
            rng.shuffle(order)
        reading = rng.choice(kinds[order[number % len(order)]])
        yield trial(reading, number + seed, place / f"trial-{number}")
