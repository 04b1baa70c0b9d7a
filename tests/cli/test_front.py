"""Every verb is one declaration: the same request from the command line, a run file and Python."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest

import heldout
from heldout.cli.app import first_line, parse
from heldout.cli.runfile import execute, find_step, read_runfile, step_values
from heldout.core.context import Context
from heldout.core.errors import UserError
from heldout.core.request import Field, Request, fields, make, schema, to_plain
from heldout.core.workspace import Workspace
from heldout.front import VERBS, Verb, request_from

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heldout"


def kinds() -> Iterator[tuple[Verb, str, type[Request]]]:
    for verb in VERBS:
        for kind, request in (verb.type.kinds or {"": verb.type}).items():
            yield verb, kind, request


CASES = [pytest.param(*case, id=f"{case[0].name} {case[1]}".strip()) for case in kinds()]


def value_of(field: Field) -> Any:
    """Some value that a field takes, not its default."""
    kind = field.base
    if kind is Literal:
        return next(value for value in reversed(field.choices) if value != field.default)
    if kind is bool:
        return field.default is not True
    if kind is int:
        return 3
    if kind is float:
        return 0.25
    if kind is tuple:
        inner = get_args(field.type)[0]
        return ["3"] if inner is int else ["0.5"] if inner is float else ["one", "two"]
    if isinstance(kind, type) and issubclass(kind, Mapping):
        names, values = get_args(field.type)
        name = get_args(names)[0] if get_origin(names) is Literal else "test"
        return {name: "0.5" if values in (float, Any) else "3" if values is int else "v"}
    return "text"


def words(field: Field, value: Any) -> list[str]:
    """How the command line writes a value."""
    flag = f"--{field.flag}"
    if field.argument:
        return list(value) if isinstance(value, list) else [str(value)]
    if isinstance(value, bool):
        return [flag if value else f"--no-{field.flag}"]
    if isinstance(value, Mapping):
        return [part for name, item in value.items() for part in (flag, f"{name}={item}")]
    items = value if isinstance(value, list) else [value]
    return [part for item in items for part in (flag, str(item))]


def outcome(build: Any) -> Any:
    """The request as plain values, or that it was refused: each way spells fields in its own words."""
    try:
        made = build()
    except UserError:
        return "refused"
    return to_plain(made)


def three_ways(verb: Verb, kind: str, given: dict[str, Any]) -> list[Any]:
    request = verb.type.kinds[kind] if kind else verb.type
    by_name = {field.name: field for field in fields(request)}
    tag = verb.type.tag
    if kind and not by_name[tag].argument:
        given = {**given, tag: kind}
    line = [*verb.name.split(), *([kind] if kind and by_name[tag].argument else [])]
    places = sorted(given.items(), key=lambda item: not by_name[item[0]].argument)
    for name, value in places:
        line += words(by_name[name], value)
    step = {"verb": verb.name, **given}
    if kind:
        step[tag] = kind
    python = {**given, **({tag: kind} if kind else {})}

    def from_file() -> Request:
        (values,) = step_values(step, {})
        return make(find_step(step["verb"])[0].type, values)

    return [
        outcome(lambda: parse(line)[1]),
        outcome(from_file),
        outcome(lambda: request_from(verb, python)[0]),
    ]


@pytest.mark.parametrize(("verb", "kind", "request_type"), CASES)
def test_one_request_three_ways(verb: Verb, kind: str, request_type: type[Request]) -> None:
    known = [field for field in fields(request_type) if field.name != verb.type.tag]
    needed = {field.name: value_of(field) for field in known if field.required}
    for field in (None, *known):
        given = dict(needed)
        if field is not None:
            given[field.name] = value_of(field)
        line, step, python = three_ways(verb, kind, given)
        assert line == step == python, field and field.name


@pytest.mark.parametrize(("verb", "kind", "request_type"), CASES)
def test_what_is_unknown_is_refused_three_ways(
    verb: Verb, kind: str, request_type: type[Request]
) -> None:
    tag = {verb.type.tag: kind} if kind else {}
    option = next((f for f in fields(request_type) if not f.argument and f.name not in tag), None)
    misspelt = f"{option.flag}zz" if option else "nothing"
    with pytest.raises(UserError, match="no option"):
        make(verb.type, {**tag, misspelt.replace("-", "_"): "1"})
    with pytest.raises(UserError, match="no option"):
        request_from(verb, {**tag, misspelt.replace("-", "_"): "1"})
    positional = kind and next(f for f in fields(request_type) if f.name in tag).argument
    line = [*verb.name.split(), *([kind] if positional else [])]
    line += [] if positional or not kind else [f"--{verb.type.tag}", kind]
    with pytest.raises(UserError, match="option"):
        parse([*line, f"--{misspelt}", "1"])
    other = {
        f.name
        for each in verb.type.kinds.values()
        for f in fields(each)
        if f.name not in {own.name for own in fields(request_type)}
    }
    for name in sorted(other):
        with pytest.raises(UserError, match="is for"):
            make(verb.type, {**tag, name: "1"})


def test_every_request_has_a_schema_and_a_first_line() -> None:
    for verb in VERBS:
        text = msgspec.json.encode(schema(verb.type))
        assert b"description" in text
        line = first_line(verb.type)
        longest = max(len(other.name) for other in VERBS if other.group == verb.group)
        assert line.endswith(".") and len(line) <= 74 - longest, (verb.name, line)  # of 80 columns
        for request in (verb.type, *verb.type.kinds.values()):
            for field in fields(request):
                assert field.help.endswith("."), (verb.name, field.name)


def test_a_flag_has_one_meaning() -> None:
    """The same flag says the same in every verb, of one value or of several."""
    meanings: dict[str, set[tuple[str, str]]] = defaultdict(set)
    short: dict[str, set[str]] = defaultdict(set)
    for _, _, request in kinds():
        for field in fields(request):
            if field.argument:
                continue
            inner = get_args(field.type)[0] if field.many else field.type
            kind = "choice" if get_origin(inner) is Literal else str(inner)
            said = field.help.partition(";")[0].rstrip(".")
            meanings[field.flag].add((said, kind))
            if field.short:
                short[field.short].add(field.flag)
    assert {flag: found for flag, found in meanings.items() if len(found) > 1} == {}
    assert {flag: found for flag, found in short.items() if len(found) > 1} == {}


def test_the_surface_is_small() -> None:
    names = {field.flag for _, _, request in kinds() for field in fields(request)}
    assert len(VERBS) <= 53
    assert len(names) <= 272, len(names)
    for verb, kind, request in kinds():
        plain = [field for field in fields(request) if not field.rare and not field.argument]
        assert len(plain) <= 15, (verb.name, kind, len(plain))


def test_rooms_know_no_command_line_and_no_pages() -> None:
    for path in SOURCE.rglob("*.py"):
        wing = path.relative_to(SOURCE).parts[0]
        if wing == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                assert name.partition(".")[0] not in ("click", "typer"), path
                if wing not in ("show", "testing"):
                    assert not name.startswith("heldout.show"), path


def test_names_of_before_are_answered_with_those_of_now(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no option --to: it is --out now"):
        parse(["report", "a.json", "--to", "x.html"])
    with pytest.raises(UserError, match="takes models without a flag: write them as MODELS"):
        parse(["compare", "-t", "val", "-m", "oak"])
    context = Context(Workspace(tmp_path))
    for verb, message in (
        ("report", "no option 'to': it is out now"),
        ("mistakes consensus", "it is now heldout mistakes shared"),
    ):
        path = tmp_path / "old.toml"
        path.write_text(f'[[step]]\nverb = "{verb}"\nargs = ["x.json"]\nto = "y.html"\n')
        path.write_text("schema_version = 1\nname = 'old'\n" + path.read_text())
        with pytest.raises(UserError, match=message):
            execute(read_runfile(path), {}, context)


def test_every_public_name_has_an_example_that_runs() -> None:
    """docs/python.md is run by the tests of the documentation."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    used = set(re.findall(r"heldout\.(\w+)", code))
    assert set(heldout.__all__) - used == set()
    assert len(heldout.__all__) <= 30


def test_no_two_classes_share_a_name() -> None:
    found = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, n in found.items() if n > 1} == set()
