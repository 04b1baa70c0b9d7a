"""What one command gave, in two parts: numbers (ids, hashes, rows, exit codes) and words.

Nothing of heldout is imported but the function that its console script names: modules may move.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import io
import json
import math
import os
import re
import sys
import tarfile
import tomllib
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

PROSE = frozenset(
    (
        *("advice", "caption", "citation", "description", "evidence", "failure", "fix", "help"),
        *("line", "lines", "message", "note", "notes", "reason", "reasons", "subtitle", "text"),
        *("texts", "title", "titles", "told", "tooltip", "why"),
    )
)
"""Keys and columns that hold sentences: they go to the words."""
NAMED = frozenset({"kind", "rule", "unit"})
"""Keys that mostly hold names; where they hold a sentence, that goes to the words too."""
DROPPED = frozenset({"heldout_version", "library_versions", "versions"})
"""What a release or an installation changes."""
LONG = 2500
"""Lists and texts whose JSON is longer are kept as their length, ends and hash."""
FLOATS = 1000
"""So many floats are kept one by one: processors differ in their last digits, hashes would too."""
MANY = 2000
EXACT = 12
"""Digits of floats; with fewer no hash is kept that rests on them."""
RESTING = frozenset({"content_hash", "documents", "predictions_hash", "tables", "testset_hash"})
CLOCK = re.compile(
    r"\d+(\.\d+)? (ms|s|min|h)\b|\d[\d,]*(\.\d+)? ?(images|rows|files)?/s\b"
    r"|\d[\d,]* images per second|\d+:\d\d of one processor"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?|\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    r"|\b20(2[6-9]|[3-9]\d)-\d\d-\d\d\b"  # today; days of before are of the data
)
PROGRAM = re.compile(r"(?<=Usage: )python -m [\w.]+|(?<=Try ')python -m [\w.]+")
HASH = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,64}\b")
VERSION = re.compile(r"\bheldout \d+\.\d[\w.+]*")
PICTURES = {".jpg", ".jpeg", ".png", ".webp"}


class Capture:
    """Runs commands in ``root``, the current folder, and keeps what is new after each."""

    def __init__(self, root: Path, *, whole: bool = False) -> None:
        self.root = root
        self.whole = whole
        self.names = {str(root.resolve()): "<root>", str(root): "<root>", str(ROOT): "<repo>"}
        if (root / "data").is_symlink():
            self.names[str((root / "data").resolve())] = "<root>/data"
        self.held: dict[str, str] = {}
        self.seen = self._stamps()

    def run(self, arguments: list[str], *, digits: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """One command: its numbers and its words."""
        code, out, err = invoke(arguments)
        called = self._plain(" ".join(arguments))
        numbers: dict[str, Any] = {"run": called, "code": code}
        words: dict[str, Any] = {"run": called}
        prose: dict[str, str] = {}
        self.printed = ""
        if "--json" in arguments and out.strip():
            value = self._numbers(json.loads(out), digits, "", prose)
            self.printed = sha(canonical(value).encode())
            numbers["json"] = self._shorten(value)
        elif out:
            words["out"] = self._lines(out)
        if err:
            words["err"] = self._lines(err)
        if files := self._files(digits, prose):
            numbers["files"] = files
        if prose:
            words["prose"] = self._shorten_words(prose)
        return numbers, words

    def forget(self) -> None:
        """Files that are there now are inputs of the next command, not its outputs."""
        self.seen = self._stamps()

    # What was printed

    def _plain(self, text: str) -> str:
        for name, stand_in in self.names.items():
            text = text.replace(name, stand_in)
        return text

    def _lines(self, text: str) -> list[str]:
        return [self._word(line.rstrip()) for line in text.splitlines() if line.strip()]

    def _word(self, text: str) -> str:
        text = VERSION.sub("heldout <version>", PROGRAM.sub("heldout", self._plain(text)))
        text = HASH.sub("<hash>", CLOCK.sub("<time>", text))
        return re.sub(r" -0\.0(?!\d)", "  0.0", text)  # a sum that is 0 but for its last digit

    def _shorten_words(self, prose: dict[str, str]) -> dict[str, Any]:
        """Every text once, under the first place that has it."""
        found: dict[str, str] = {}
        for place, text in prose.items():
            found.setdefault(self._word(text), place)
        shown: dict[str, Any] = {
            place: text.split("\n") if "\n" in text else text
            for text, place in list(found.items())[: None if self.whole else 20]
        }
        if len(found) > len(shown):
            shown[f"({len(found) - 20} more)"] = sha(canonical(sorted(found)).encode())
        return shown

    # Values

    def _numbers(self, value: Any, digits: int, where: str, prose: dict[str, str]) -> Any:
        """The value with floats rounded, places made relative, and sentences taken out."""
        if isinstance(value, dict):
            kept = {}
            for key, item in value.items():
                inner = f"{where}.{key}" if where else str(key)
                if key in DROPPED or (digits < EXACT and key in RESTING):
                    continue
                if sentence(key, item):
                    if item:
                        prose[inner] = item if isinstance(item, str) else "\n".join(item)
                    continue
                if key == "value" and value.get("name") == "seconds":
                    continue
                kept[self._plain(str(key))] = self._numbers(item, digits, inner, prose)
            return kept
        if isinstance(value, list | tuple):
            return [self._numbers(v, digits, f"{where}[{i}]", prose) for i, v in enumerate(value)]
        if isinstance(value, bool) or value is None or isinstance(value, int):
            return value
        if isinstance(value, float):
            return rounded(value, digits)
        if isinstance(value, bytes):
            return sha(value)
        return CLOCK.sub("<time>", self._plain(str(value)))

    def _shorten(self, value: Any) -> Any:
        if self.whole or len(canonical(value)) <= LONG:
            return value
        if isinstance(value, dict):
            if len(value) > 40:
                rows = [{"": key, "of": item} for key, item in value.items()]
                return self._shorten(
                    [{**r, **(r.pop("of"))} if isinstance(r["of"], dict) else r for r in rows]
                )
            return {key: self._shorten(item) for key, item in value.items()}
        if isinstance(value, list):
            if len(value) <= 8:
                return [self._shorten(item) for item in value]
            groups: dict[str, list[Any]] = {}
            for item in value:
                groups.setdefault(kind_of(item), []).append(item)
            if 1 < len(groups) <= 24:
                return {kind: self._shorten(items) for kind, items in groups.items()}
            first, last = (self._shorten(value[place]) for place in (0, -1))
            return {"n": len(value), "first": first, "last": last, "all": column(value)}
        return f"{value[:200]}… sha256 {sha(value.encode())}"

    # Files

    def _stamps(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder) / name
                stat = path.lstat()
                place = path.relative_to(self.root).as_posix()
                found[place] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return found

    def _files(self, digits: int, prose: dict[str, str]) -> dict[str, Any]:
        """Every file that is new or changed, by what it holds; files that went are named."""
        now = self._stamps()
        changed = [place for place, stamp in now.items() if self.seen.get(place) != stamp]
        gone = sorted(set(self.seen) - set(now))
        self.seen = now
        found: dict[str, Any] = {}
        folders: dict[str, list[list[str]]] = {}
        for place in sorted(changed):
            if internal(place) or (digits < EXACT and "predictions" in Path(place).parts):
                continue
            path = self.root / place
            if path.suffix in PICTURES and not rendered(path):
                link = "link " if path.is_symlink() else ""
                pair = [path.name, link + sha(path.read_bytes())]
                folders.setdefault(path.parent.relative_to(self.root).as_posix(), []).append(pair)
            else:
                held = self._content(path, place, digits, prose)
                text = sha(canonical(held).encode())
                if text == self.printed:
                    found[self._plain(place)] = "as printed"
                elif text == self.held.get(place) and not self.whole:
                    found[self._plain(place)] = "as before"
                else:
                    found[self._plain(place)] = self._shorten(held)
                self.held[place] = text
        for folder, pictures in folders.items():
            found[f"{folder}/"] = self._shorten(pictures)
        if removed := [place for place in gone if not internal(place)]:
            found["(removed)"] = self._shorten(removed)
        return found

    def _content(self, path: Path, place: str, digits: int, prose: dict[str, str]) -> Any:
        """What a file holds, by its kind; not its bytes where these may vary."""
        if path.is_symlink():
            return f"link to {self._plain(str(path.readlink()))}"
        kind, data = path.suffix, path.read_bytes()
        if kind == ".parquet":
            table = pq.read_table(path)
            types = {field.name: str(field.type) for field in table.schema}
            if len(table) > MANY:
                # Hashed as they are: they hold ids and classes, not what was computed.
                hashes = {n: sha(repr(table[n].to_pylist()).encode())[:16] for n in types}
                return {"columns": types, "rows": len(table), "all": hashes}
            held = self._numbers(table.to_pylist(), digits, place, prose)
            return {"columns": types, "rows": held}
        if kind in (".npy", ".npz"):
            loaded = np.load(path, allow_pickle=False)
            arrays = {"": loaded} if kind == ".npy" else {name: loaded[name] for name in loaded}
            return {
                name: [str(a.dtype), list(a.shape), sha(np.ascontiguousarray(a).tobytes())]
                for name, a in arrays.items()
            }
        if kind == ".tar":
            with tarfile.open(path) as archive:
                return {
                    member.name: sha(file.read())
                    for member in archive
                    if (file := archive.extractfile(member)) is not None
                }
        if kind in (".svg", ".db") or rendered(path):
            return "there"
        text = data.decode("utf-8")
        if kind == ".html":
            return self._page(text, place, digits, prose)
        if kind == ".json":
            return self._numbers(unsealed(json.loads(text)), digits, place, prose)
        if kind == ".jsonl":
            return self._numbers(
                [json.loads(line) for line in text.splitlines()], digits, place, prose
            )
        if kind == ".csv":
            rows = list(csv.DictReader(io.StringIO(text)))
            told = rows and PROSE & set(rows[0])
            held = self._numbers(rows, digits, place, prose)
            return (
                held
                if told or digits < EXACT
                else {"sha256": sha(CLOCK.sub("<time>", text).encode()), "rows": held}
            )
        if kind in ("", ".txt"):
            return {"sha256": sha(data), "lines": text.count("\n")}
        prose[place] = text
        return "there"

    def _page(self, text: str, place: str, digits: int, prose: dict[str, str]) -> Any:
        page = Page()
        page.feed(text)
        prose[place] = "\n".join(page.lines)
        found: dict[str, Any] = {}
        for name, held in page.data:
            if name == "records":
                found[name] = {kind: held[kind]["rows"] for kind in held}
            elif name.startswith("figure"):
                parts = {
                    f"{n} {part.get('mark', 'rows')}": part for n, part in enumerate(drawn(held))
                }
                found[name] = self._numbers(parts, digits, f"{place} {name}", prose)
            elif name != "plain":
                found[name] = self._numbers(held, digits, f"{place} {name}", prose)
        return found


class Page(HTMLParser):
    """The text of a page that a person reads, and the JSON inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.data: list[tuple[str, Any]] = []
        self._figure = ""
        self._inside: str | None = None
        self._script = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (given.get("id") or "").startswith("figure"):
            self._figure = given["id"] or ""
        if tag == "script" and given.get("type") == "application/json":
            self._inside = given.get("id") or self._figure
            self._script = ""
        elif tag in ("script", "style", "svg"):
            self._inside = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._inside:
            self.data.append((self._inside, json.loads(self._script)))
        if tag in ("script", "style", "svg"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._script += data
        elif self._inside is None and data.strip():
            self.lines.append(" ".join(data.split()))


def drawn(spec: Any) -> list[Any]:
    """Of a Vega-Lite figure: rows of data, marks, and which field each channel shows."""
    if isinstance(spec, list):
        return [part for item in spec for part in drawn(item)]
    if not isinstance(spec, dict):
        return []
    found: list[Any] = []
    data = spec.get("data")
    if isinstance(data, dict) and "values" in data:
        found.append({"rows": data["values"]})
    for name, rows in (spec.get("datasets") or {}).items():
        found.append({"rows": rows, "name": name})
    mark, channels = spec.get("mark"), spec.get("encoding") or {}
    if mark or channels:
        kind = mark.get("type") if isinstance(mark, dict) else mark
        shown = {name: shows(channel) for name, channel in channels.items()}
        found.append({"mark": kind, "channels": {n: s for n, s in shown.items() if s}})
    for key in ("facet", "repeat"):
        if isinstance(spec.get(key), dict):
            found.append({key: shows(spec[key])})
    for key in ("layer", "hconcat", "vconcat", "concat", "spec"):
        found += drawn(spec.get(key))
    return found


def shows(channel: Any) -> Any:
    """Fields of a channel, and what turns it round; not its colours, titles and sizes."""
    if isinstance(channel, list):
        return [shown for item in channel if (shown := shows(item))]
    if not isinstance(channel, dict):
        return None
    found = {key: channel[key] for key in ("field", "datum", "aggregate", "bin") if key in channel}
    scale = channel.get("scale")
    if isinstance(scale, dict) and scale.get("reverse"):
        found["reverse"] = True
    if found and channel.get("sort") is not None:
        found["sort"] = channel["sort"]
    if isinstance(condition := channel.get("condition"), dict) and (inner := shows(condition)):
        found["condition"] = inner
    return found.get("field") if set(found) == {"field"} else found


def invoke(arguments: list[str]) -> tuple[int, str, str]:
    """Run the console script in this process: exit code, standard output, standard error."""
    module, _, name = PROJECT["scripts"]["heldout"].partition(":")
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["heldout", *arguments]
    code: Any = 0
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            getattr(importlib.import_module(module), name)()
    except SystemExit as stop:
        code = stop.code or 0
    except Exception as error:
        # A fault: what a shell would see as a traceback and exit code 1.
        code = f"{type(error).__name__}"
        err.write(f"{type(error).__name__}: {error}\n")
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def internal(place: str) -> bool:
    """Work in progress, stores with keys of their own, and Python's leavings."""
    parts = Path(place).parts
    return (
        "__pycache__" in parts
        or parts[0] == "embeddings"
        or "ledger" in parts
        or Path(place).name.startswith(("judgements.db", "calls.log"))
        or (len(parts) > 2 and "results" in parts and "runs" in parts)
    )


def rendered(path: Path) -> bool:
    """Pictures of figures and sheets: their looks are no number."""
    return path.suffix == ".png" and any(
        path.with_suffix(ending).exists() for ending in (".svg", ".html")
    )


def sentence(key: str, value: Any) -> bool:
    """Whether a value is told to people: a text or texts under a key that holds sentences."""
    if isinstance(value, str):
        return key in PROSE or (key in NAMED and value.count(" ") > 2)
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return key in PROSE and (texts or value is None)


def kind_of(item: Any) -> str:
    """What a record is about, so that rows of one kind stay together."""
    if not isinstance(item, dict):
        return ""
    parts = (item.get(key) for key in ("record", "metric", "statistic", "columns", "name"))
    return " ".join(part for part in parts if isinstance(part, str))


def column(values: list[Any]) -> Any:
    """All values: of rows each column; floats as they are, to be compared as floats; else a hash."""
    if all(isinstance(value, dict) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: column([value.get(key) for value in values]) for key in keys}
    kinds = {type(value) for value in values}
    if len(values) <= FLOATS and float in kinds and kinds <= {float, int, type(None)}:
        return [rounded(value, 7) if isinstance(value, float) else value for value in values]
    return sha(canonical(values).encode())[:16]


def rounded(value: float, digits: int) -> float | str:
    if not math.isfinite(value) or not digits:
        return str(value) if digits else "float"
    return float(f"{value:.{digits}g}")


def unsealed(value: Any) -> Any:
    """Without checksums: those of Parquet files change with the library that writes them."""
    if isinstance(value, list):
        return [unsealed(item) for item in value]
    if isinstance(value, dict) and "check" in value:
        return {name: item for name, item in value.items() if name not in ("check", "files")}
    return value


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
