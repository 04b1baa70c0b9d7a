"""Runs the commands of every world and writes what they gave: ``python -m tests.golden.record``."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import sys
import tempfile
import time
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from tests.golden.capture import EXACT, Capture, kind_of
from tests.golden.data import HOOKS, WORLDS, shared

HERE = Path(__file__).parent
NUMBERS, WORDS = HERE / "numbers.json", HERE / "words.json"
CLOSE = 2e-6


def steps(script: Path) -> list[tuple[str, int, int]]:
    """Lines of a script: the command, its exit code, and how many digits of its floats are kept.

    ``2 score -t nothing``       must end with exit code 2
    ``~6 mistakes propose ...``  6 digits, and no hash that rests on them: processors differ
    ``+ score -t val``           runs with ``--json`` and then without
    ``@fill q.csv a.csv ann``    is no command but a hand between two
    """
    found = []
    for line in script.read_text().replace("\\\n", " ").splitlines():
        rest, code, digits, twice = line.strip(), 0, EXACT, False
        if not rest or rest.startswith("#"):
            continue
        while (mark := rest.split()[0]) == "+" or mark.isdigit() or mark[0] == "~":
            twice |= mark == "+"
            code = int(mark) if mark.isdigit() else code
            digits = int(mark[1:]) if mark[0] == "~" else digits
            rest = rest[len(mark) :].strip()
        found.append((f"{rest} --json" if twice else rest, code, digits))
        if twice:
            found.append((rest, code, digits))
    return found


def play(
    world: str, root: Path, *, refuse: bool = False, whole: bool = False, slow: float = 0.0
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All commands of one world in a new folder: numbers and words, one entry a command.

    ``refuse``  exit codes other than those that the script states: nothing is recorded then
    """
    if (HERE / "inputs" / world).is_dir():
        shutil.copytree(HERE / "inputs" / world, root, dirs_exist_ok=True)
    {**WORLDS, "shared": shared}[world](root)
    before, environment = Path.cwd(), dict(os.environ)
    os.chdir(root)
    numbers, words, wrong = [], [], []
    try:
        os.environ["COLUMNS"] = "100"
        for name in ("HELDOUT_WORKSPACE", "HELDOUT_JUDGEMENTS"):
            os.environ.pop(name, None)
        capture = Capture(root, whole=whole)
        for command, code, digits in steps(HERE / f"{world}.txt"):
            if command.startswith("@"):
                name, *arguments = command[1:].split()
                HOOKS[name](*arguments)
                capture.forget()
                continue
            start = time.process_time()
            number, word = capture.run(shlex.split(command), digits=digits)
            took = time.process_time() - start
            if slow and took > slow:
                print(f"{took:6.2f} s  {world}: {command}", file=sys.stderr)
            if number["code"] != code:
                said = "\n".join(word.get("err", word.get("out", [])))
                wrong.append(f"{world}: {command}: exit code {number['code']}, not {code}\n{said}")
            numbers.append(number)
            words.append(word)
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)
    if wrong and refuse:
        raise AssertionError("\n".join(wrong))
    return numbers, words


def dump(value: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """JSON with a line for each part of a step, so that a diff of the file can be read."""
    path.write_text(_text(value, 4) + "\n", encoding="utf-8")


def _text(value: Any, depth: int, indent: str = "") -> str:
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    inner = f"\n{indent} "
    if isinstance(value, dict):
        rows = (f"{json.dumps(k)}: {_text(v, depth - 1, indent + ' ')}" for k, v in value.items())
        return "{" + inner + f",{inner}".join(rows) + f"\n{indent}}}"
    items = (_text(item, depth - 1, indent + " ") for item in value)
    return "[" + inner + f",{inner}".join(items) + f"\n{indent}]"


def differences(old: list[Any], new: list[Any]) -> list[str]:
    """One line for each value that changed: the command, the place, before and after.

    Steps are matched by their commands, so that a step that was added does not move the others; one
    whose command was reworded is compared with what stood in its place.
    """
    found: list[str] = []
    new = json.loads(json.dumps(new))
    commands = [[step["run"] for step in steps] for steps in (old, new)]
    for kind, a, b, c, d in SequenceMatcher(
        a=commands[0], b=commands[1], autojunk=False
    ).get_opcodes():
        if kind == "equal" or (kind == "replace" and b - a == d - c):
            for before, after in zip(old[a:b], new[c:d], strict=True):
                found += compare(before, after, f"{after['run']} |")
        else:
            found += [f"{step['run']} | is gone" for step in old[a:b]]
            found += [f"{step['run']} | is new" for step in new[c:d]]
    return found


def compare(old: Any, new: Any, where: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in dict.fromkeys([*old, *new]):
            if key not in new or key not in old:
                gone = key not in new
                text = shown(old[key] if gone else new[key])
                found.append(f"{where} {key}: {'is gone' if gone else 'is new'}: {text}")
            else:
                found += compare(old[key], new[key], f"{where} {key}")
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line
            for place, (before, after) in enumerate(zip(old, new, strict=True))
            for line in compare(before, after, f"{where} [{f'{place} {kind_of(before)}'.strip()}]")
        ]
    if isinstance(old, float) and isinstance(new, float):
        same = math.isclose(old, new, rel_tol=CLOSE, abs_tol=1e-9)
    else:
        same = old == new
    return [] if same else [f"{where}: {shown(old)} -> {shown(new)}"]


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


def read(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*", help="only these; the others stay as they are")
    parser.add_argument("--to", type=Path, default=HERE, help="folder for the two files")
    parser.add_argument(
        "--whole", action="store_true", help="long lists whole, to compare two runs"
    )
    parser.add_argument("--slow", type=float, default=0.0, help="name commands that take longer")
    parser.add_argument("--check", action="store_true", help="write nothing, show what differs")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    for world in given.worlds or WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            played = play(world, root, refuse=not given.check, whole=given.whole, slow=given.slow)
        # Of the published data only numbers are kept: what is said there is said elsewhere too.
        names = ["shared_numbers.json"] if world == "shared" else [NUMBERS.name, WORDS.name]
        for name, new in zip(names, played, strict=False):
            kept = read(given.to / name)
            if given.check:
                found += differences(kept.get(world, []), new)
            else:
                dump({**kept, world: new}, given.to / name)
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
