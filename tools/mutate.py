"""Do the tests notice? Change the source in one place at a time and run the tests that reach it.

    PYTHONPATH=src python tools/mutate.py src/heldout/stats --tests tests/stats --count 200 --results FILE

A sample of all possible changes (mutants) is drawn by the seed. Each is applied to a copy of ``src``
and counts as killed if a test fails, as a timeout if the tests take far longer than before. With
pytest-cov a first run finds out which tests reach which line; without it, or with ``--recheck`` for
those that survived, all given tests run. The same command again continues where it stopped. After
tests were added, ``--again FILE`` with the earlier results tries what survived there with them.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

# Loaded once before forking: most of the time of a short test run is spent importing these.
PRELOAD = ("pytest", "numpy", "scipy.stats", "pyarrow.parquet", "sqlalchemy")
PRELOAD += ("PIL.Image", "click", "msgspec", "jinja2")
NOTICED = ("killed", "timeout")
MEMORY = 6 << 30  # a mutant that asks for more has run away
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SRC = Path(__file__).resolve().parents[1] / "src"
_DURATION = re.compile(r"^([\d.]+)s (?:setup|call|teardown) +(\S+)", re.MULTILINE)
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLS = {"min": "max", "any": "all", "minimum": "maximum", "argmin": "argmax", "floor": "ceil"}
CALLS |= {new: old for old, new in CALLS.items()}


@dataclass(frozen=True)
class Mutant:
    """One change: the text from ``start`` to ``end`` (bytes of the file) becomes ``new``."""

    file: str
    line: int
    last: int
    start: int
    end: int
    old: str
    new: str
    in_function: bool  # else it acts when the module is imported, whatever test does that first
    id: str = field(init=False)

    def __post_init__(self) -> None:
        where = f"{self.file}:{self.start}:{self.end}:{self.new}"
        object.__setattr__(self, "id", hashlib.sha256(where.encode()).hexdigest()[:12])


def changes(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What may be changed at this node: an expression, and the text that replaces it."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in COMPARISONS[type(op)]:
                yield node, ast.unparse(ast.Compare(left, [other()], [right]))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (left, right)):
                yield node, ast.unparse(ast.BinOp(left, ARITHMETIC[type(op)](), right))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, ast.unparse(ast.BoolOp(other, values))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, ast.unparse(operand)
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, repr(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.comprehension(ifs=[test, *_]):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, "None"
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield lower, f"{ast.unparse(lower)} + 1"
            if upper is not None:
                yield upper, f"{ast.unparse(upper)} - 1"
        case ast.Call(func=func, args=arguments):
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if name in CALLS:
                place = f"{ast.unparse(func.value)}." if isinstance(func, ast.Attribute) else ""
                yield func, place + CALLS[name]
            elif len(arguments) > 1 and not any(isinstance(a, ast.Starred) for a in arguments[:2]):
                swapped = [arguments[1], arguments[0], *arguments[2:]]
                if name not in ("isinstance", "cast", "getattr"):
                    yield node, ast.unparse(ast.Call(func, swapped, node.keywords))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, in_function: bool) -> Iterator[Mutant]:
        for target, new in changes(node):
            last = target.end_lineno or target.lineno
            start = starts[target.lineno - 1] + target.col_offset
            end = starts[last - 1] + (target.end_col_offset or 0)
            old, name = source[start:end].decode(), path.relative_to(SRC).as_posix()
            yield Mutant(name, target.lineno, last, start, end, old, f"({new})", in_function)
        for name, value in ast.iter_fields(node):
            # Annotations and decorators are not what the code computes; strict=True guards against
            # what cannot happen; positions inside an f-string are wrong before Python 3.12.
            skipped = name in ("annotation", "returns", "decorator_list")
            guard = isinstance(node, ast.keyword) and node.arg == "strict"
            if skipped or guard or isinstance(node, ast.JoinedStr):
                continue
            inside = in_function or (name == "body" and isinstance(node, FUNCTIONS))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, inside)

    yield from walk(ast.parse(source), False)


class Reach:
    """Which tests reach a line, and how long each takes, from one run of all given tests."""

    def __init__(self, tests: list[str], keep: Path, src: Path) -> None:
        self.tests = tests
        self.seconds: Counter[str] = Counter()
        self.data: Any = None
        log = keep.with_suffix(".log")
        if not log.exists():
            self._run(keep, log, src)
        for seconds, test in _DURATION.findall(log.read_text(encoding="utf-8")):
            self.seconds[test.partition("[")[0]] += float(seconds)
        if keep.exists():
            from coverage import CoverageData

            self.data = CoverageData(str(keep))
            self.data.read()
            self.files = {file.rpartition("/src/")[2]: file for file in self.data.measured_files()}

    def _run(self, keep: Path, log: Path, src: Path) -> None:
        # In a copy and a forked process as the mutants are: a test that cannot bear this is found here
        print("running the tests once without a change", flush=True)
        flags = ["-vv", "--durations=0", "--durations-min=0.001"]
        if importlib.util.find_spec("pytest_cov"):
            flags += ["-p", "pytest_cov", f"--cov={src}", "--cov-context=test", "--cov-report="]
        unfinished = log.with_suffix(".tmp")
        os.environ["COVERAGE_FILE"] = str(keep)
        process = _fork_tests(src, [*flags, *self.tests], unfinished, keep_bytecode=True)
        _, status = os.waitpid(process, 0)
        if status:
            sys.exit(f"the tests fail without a change: see {unfinished}")
        unfinished.rename(log)

    def select(self, mutant: Mutant) -> list[str]:
        """The tests to run, those of the module and the quickest first; none reach some lines."""
        if self.data is None:
            return self.tests
        by_line = self.data.contexts_by_lineno(self.files.get(mutant.file, ""))
        lines = range(mutant.line, mutant.last + 1) if mutant.in_function else by_line
        found = set()
        for context in {context for line in lines for context in by_line.get(line, ()) if context}:
            test, _, phase = context.rpartition("|")
            # What a fixture does may serve every test of its file
            found.add(test.partition("::" if phase == "setup" else "[")[0])
        module = Path(mutant.file).stem

        def order(test: str) -> tuple[bool, float, str]:
            own = module in Path(test.partition("::")[0]).stem
            return not own, self._expected(test), test

        return sorted(found, key=order)

    def _expected(self, test: str) -> float:
        inside = (s for name, s in self.seconds.items() if name.startswith(f"{test}::"))
        return self.seconds[test] or sum(inside)

    def timeout(self, tests: list[str]) -> float:
        """Far longer than the tests take when nothing is changed, on a busy machine too."""
        return 60 + 5 * (sum(map(self._expected, tests)) or self.seconds.total())


class Slot:
    """A copy of the source in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.src = folder
        shutil.copytree(SRC, folder, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder, quiet=2)

    def start(self, mutant: Mutant, tests: list[str], timeout: float) -> None:
        """Apply the mutant and start its tests in a process of their own."""
        self.mutant, self.began, self.timeout = mutant, time.monotonic(), timeout
        path = self.src / mutant.file
        path.write_bytes(_changed(path.read_bytes(), mutant))
        # Bytecode is checked by size and second, which a mutant may share with the original
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        self.process = _fork_tests(self.src, ["-x", "-q", *tests], Path(os.devnull))

    def result(self) -> str | None:
        """How it ended, or None while it runs."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            outcome = {0: "survived", 5: "no tests"}.get(code, "killed")
        elif time.monotonic() - self.began > self.timeout:
            outcome = "timeout"
        elif _resident(self.process) > MEMORY:
            outcome = "killed"
        else:
            return None
        with contextlib.suppress(ProcessLookupError):  # also what its tests have started
            os.killpg(self.process, signal.SIGKILL)
        if not ended:
            os.waitpid(self.process, 0)
        shutil.copyfile(SRC / self.mutant.file, self.src / self.mutant.file)
        return outcome


def _fork_tests(
    src: Path, arguments: list[str], output: Path, *, keep_bytecode: bool = False
) -> int:
    """Start the tests in a copy of this process, which has loaded what takes long to load.

    ``keep_bytecode``  tests are compiled once: not where a mutant's bytecode would stay
    """
    import pytest

    process = os.fork()
    if process:
        return process
    code = 3
    try:
        os.setsid()
        stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(stream, number)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(src), os.environ.get("PYTHONPATH", "")])
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = not keep_bytecode
        sys.path.insert(0, str(src))
        # A folder of its own: sessions that clean up a shared one at the same time can fail
        flags = ["-p", "no:cacheprovider", f"--basetemp={src.parent / 'tmp'}"]
        code = int(pytest.main([*flags, *arguments]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _resident(process: int) -> int:
    statm = Path(f"/proc/{process}/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if statm.exists() else 0


def _changed(source: bytes, mutant: Mutant) -> bytes:
    return source[: mutant.start] + mutant.new.encode() + source[mutant.end :]


def _valid(mutant: Mutant) -> bool:
    try:
        ast.parse(_changed((SRC / mutant.file).read_bytes(), mutant))
    except SyntaxError:
        return False
    return True


def sample(paths: list[Path], count: int, seed: int) -> list[Mutant]:
    """Mutants drawn by the seed from all of these files."""
    files = {f for path in paths for f in (path.rglob("*.py") if path.is_dir() else [path])}
    found = [mutant for file in sorted(files) for mutant in mutants(file.resolve())]
    random.Random(seed).shuffle(found)
    kept = []
    for mutant in found:
        if len(kept) == count:
            break
        if _valid(mutant):
            kept.append(mutant)
    print(f"{len(kept)} of {len(found)} mutants in {len(files)} files", flush=True)
    return kept


def run(todo: list[Mutant], reach: Reach, slots: list[Slot], results: Path, recheck: bool) -> None:
    """Try each mutant and append its result to the file."""
    idle, busy, waiting = list(slots), [], todo[::-1]
    with results.open("a", encoding="utf-8") as out:
        while waiting or busy:
            while waiting and idle:
                mutant = waiting.pop()
                tests = reach.tests if recheck else reach.select(mutant)
                if tests:
                    busy.append(idle.pop())
                    busy[-1].start(mutant, tests, reach.timeout(tests))
                else:
                    _write(out, mutant, "not reached", 0.0, recheck)
            time.sleep(0.05)
            for slot in list(busy):
                outcome = slot.result()
                if outcome is not None:
                    seconds = time.monotonic() - slot.began
                    _write(out, slot.mutant, outcome, seconds, recheck)
                    busy.remove(slot)
                    idle.append(slot)


def _write(out: TextIO, mutant: Mutant, outcome: str, seconds: float, recheck: bool) -> None:
    row = {**asdict(mutant), "outcome": outcome, "seconds": round(seconds, 1), "all": recheck}
    out.write(json.dumps(row) + "\n")
    out.flush()
    print(f"{outcome:<12}{seconds:6.1f} s  {mutant.file}:{mutant.line}", flush=True)


def report(rows: list[dict[str, Any]]) -> None:
    """How many of each outcome, by file, and every mutant that no test noticed."""
    outcomes = sorted({row["outcome"] for row in rows})
    by_file: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_file[row["file"]][row["outcome"]] += 1
        by_file["together"][row["outcome"]] += 1
    print(f"\n{'':<52}" + "".join(f"{outcome:>13}" for outcome in outcomes))
    for file in [*sorted(by_file.keys() - {"together"}), "together"]:
        print(f"{file:<52}" + "".join(f"{by_file[file][outcome]:>13}" for outcome in outcomes))
    noticed = sum(by_file["together"][outcome] for outcome in NOTICED)
    print(f"\nnoticed: {noticed} of {len(rows)}, {noticed / max(len(rows), 1):.1%}\n")
    for row in sorted(rows, key=lambda row: (row["file"], row["line"])):
        if row["outcome"] not in NOTICED:
            old = " ".join(row["old"].split())
            print(f"{row['file']}:{row['line']}  {row['outcome']}\n  - {old}\n  + {row['new']}")


def _rows(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def _known(results: Path) -> dict[str, dict[str, Any]]:
    """The last result of each mutant."""
    return {row["id"]: row for row in _rows(results)[1:]}


def _digest(tests: list[str]) -> str:
    digest = hashlib.sha256()
    for root in (SRC, *map(Path, tests)):
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="source files or folders under src")
    parser.add_argument("--tests", nargs="+", required=True, help="test files or folders")
    parser.add_argument(
        "--results", type=Path, required=True, help="JSON lines; kept and continued"
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--recheck", action="store_true", help="run all tests on the survivors")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="results of the same sources: keep what it killed",
    )
    given = parser.parse_args()
    head = {"source": _digest([]), "digest": _digest(given.tests), "tests": given.tests}
    noticed: dict[str, dict[str, Any]] = {}
    if given.again:
        if _rows(given.again)[0].get("source") != head["source"]:
            sys.exit(f"{given.again} is of other sources")
        earlier = _known(given.again).items()
        noticed = {name: row for name, row in earlier if row["outcome"] in NOTICED}
    if not given.results.exists():
        for suffix in (".coverage", ".log"):
            given.results.with_suffix(suffix).unlink(missing_ok=True)
        given.results.write_text(json.dumps(head) + "\n", encoding="utf-8")
    if _rows(given.results)[0] != head:
        sys.exit(f"{given.results} is of other sources or tests: give another --results")
    chosen = sample(given.paths, given.count, given.seed)
    for name in PRELOAD:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        slots = [Slot(Path(folder) / str(job) / "src") for job in range(given.jobs)]
        keep = given.results.with_suffix(".coverage").resolve()
        reach = Reach(given.tests, keep, slots[0].src)
        known = noticed | _known(given.results)
        todo = [mutant for mutant in chosen if mutant.id not in known]
        run(todo, reach, slots, given.results, recheck=False)
        known = noticed | _known(given.results)
        if given.recheck:
            doubtful = (m for m in chosen if known[m.id]["outcome"] not in NOTICED)
            again = [mutant for mutant in doubtful if not known[mutant.id]["all"]]
            run(again, reach, slots, given.results, recheck=True)
    known = noticed | _known(given.results)
    report([known[mutant.id] for mutant in chosen])


if __name__ == "__main__":
    main()
