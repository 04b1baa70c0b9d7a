"""Count the code by wing: the working tree, any commit, or the difference of two.

    python tools/size.py [COMMIT [COMMIT]]

``.`` stands for the working tree, which is also what is counted without arguments. Mass is counted
in code tokens: Python tokens without comments, line ends and indentation, where a string is one
token however long it is, a docstring or an f-string too. The rows of ``src/heldout`` are its first
folders; its own files are the row ``front``.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PACKAGE = "src/heldout"
BESIDE = ("tests", "benchmarks", "tools", "examples")
COLUMNS = ("tokens", "lines", "statements", "files", "functions", "docstring lines", "comments")
LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def read_files(commit: str) -> Iterator[tuple[str, bytes]]:
    """Path and content of every file of a commit, or of the working tree without what git ignores."""
    if commit == ".":
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for path in filter(None, listed.decode().split("\0")):
            if Path(path).is_file():
                yield path, Path(path).read_bytes()
        return
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                yield member.name, content.read()


def _git(*arguments: str) -> bytes:
    # check=True would show a traceback; git's own line says what is wrong
    done = subprocess.run(["git", *arguments], stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(2)
    return done.stdout


def count(source: bytes) -> Counter[str]:
    """The counts of one Python file."""
    found: Counter[str] = Counter(files=1, lines=len(source.splitlines()))
    depth = 0  # Python 3.12 cuts an f-string into its parts, 3.11 does not: count it as one
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        name = tokenize.tok_name[token.type]
        found["tokens"] += depth == 0 and token.type not in LAYOUT | {tokenize.COMMENT}
        found["comments"] += token.type == tokenize.COMMENT
        depth += name.endswith("STRING_START")
        depth -= name.endswith("STRING_END")
    for node in ast.walk(ast.parse(source)):
        found["statements"] += isinstance(node, ast.stmt)
        found["functions"] += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            text = node.body[0]
            found["docstring lines"] += (text.end_lineno or text.lineno) - text.lineno + 1
    return found


def row_of(path: str) -> str | None:
    """The row that a Python file is counted in."""
    parts = PurePosixPath(path).parts
    if path.startswith(f"{PACKAGE}/"):
        return f"  {parts[2]}" if len(parts) > 3 else "  front"
    return parts[0] if parts[0] in BESIDE else None


def sizes(commit: str) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """The counts by row, with the sums, and the bytes of other files under src by kind."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    other: Counter[str] = Counter()
    for path, content in read_files(commit):
        row = row_of(path)
        if path.endswith(".py") and row is not None:
            found = count(content)
            for name in (row, PACKAGE, "together") if row.startswith(" ") else (row, "together"):
                rows[name].update(found)
        elif path.startswith("src/") and not path.endswith(".py"):
            kind = PurePosixPath(path.removesuffix(".j2")).suffix or PurePosixPath(path).name
            other[kind] += len(content)
            other["together, without .gz"] += len(content) * (kind != ".gz")
    return dict(rows), other


def table(rows: dict[str, Counter[str]], form: str) -> str:
    """The counts as text: wings by mass, then the package and what lies beside it."""
    wings = [name for name in rows if name.startswith(" ")]
    order = [
        *sorted(wings, key=lambda name: (-abs(rows[name]["tokens"]), name)),
        *(name for name in (PACKAGE, *BESIDE, "together") if name in rows),
    ]
    lines = [f"{'':<14}" + "".join(f"{column:>17}" for column in COLUMNS)]
    for name in order:
        cells = (f"{format(rows[name][column], form):>17}" for column in COLUMNS)
        lines.append(f"{name:<14}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="at most two")
    commits = parser.parse_args().commits or ["."]
    if len(commits) > 2:
        parser.error("at most two commits")
    os.chdir(_git("rev-parse", "--show-toplevel").decode().rstrip("\n"))
    rows, other = sizes(commits[-1])
    form = ","
    if len(commits) == 2:
        form = "+,"
        before, other_before = sizes(commits[0])
        for name in {*rows, *before}:
            rows[name] = Counter(rows.get(name, Counter()))
            rows[name].subtract(before.get(name, Counter()))
        other.subtract(other_before)
    print(table(rows, form))
    print("\nother files under src, bytes")
    for kind, size in sorted(other.items(), key=lambda pair: (pair[0].startswith("to"), pair[0])):
        print(f"{kind:<25}{format(size, form):>13}")


if __name__ == "__main__":
    main()
