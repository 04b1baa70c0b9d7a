"""``surface.csv`` is what users may rely on: verbs, options, public names, entry-point groups.

One row for each, ``kept``, ``renamed`` or ``removed``, so that nothing of it appears or goes unseen.
A flag is a row of its own (``-m`` beside ``--model``), an argument is in capitals. Public names are
those of ``heldout.__all__`` and those that the documentation or an example imports or mentions.
"""

from __future__ import annotations

import csv
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

import heldout
from heldout.cli.app import FRONT, Group, VerbCommand

ROOT = Path(__file__).parents[2]
KINDS = ("verb", "option", "name", "entry points")
_IMPORT = re.compile(r"^ *from (heldout[\w.]*) import (?:\(([^)]*)\)|([\w, ]+))", re.MULTILINE)
_MENTION = re.compile(r"`(heldout(?:\.\w+)+)(?!\.?\w)")
_GROUP = re.compile(r'plugins\((?:"([\w.]+)"|(\w+)),')


class Row(NamedTuple):
    """One line of the file."""

    kind: str
    name: str
    status: str
    becomes: str
    reason: str


def rows() -> list[Row]:
    with (ROOT / "surface.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        assert tuple(next(lines)) == Row._fields
        return [Row(*line) for line in lines]


@cache
def program() -> frozenset[tuple[str, str]]:
    """Kind and name of all that the program offers and the documentation names."""
    groups = {("entry points", name) for name in _entry_point_groups()}
    names = {("name", name) for name in _documented() if ("entry points", name) not in groups}
    front = {("name", f"heldout.{name}") for name in heldout.__all__}
    return frozenset({*_commands(Group(), ""), *groups, *names, *front})


def _commands(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Verbs and their options; those of the front are listed once, those of a kind with its verb."""
    if path:
        yield "verb", path
    params = [*command.params, *(FRONT if not path else ())]
    if isinstance(command, VerbCommand) and not command.kind:
        for kind in command.verb.type.kinds:
            params += VerbCommand(command.name or "", command.verb, kind).params
    fronts = {flag for parameter in FRONT for flag in parameter.opts} | {"--help-all"}
    for parameter in params:
        argument = parameter.param_type_name == "argument"
        flags = (*parameter.opts, *parameter.secondary_opts)
        for flag in [parameter.name.upper()] if argument else flags:
            if not path or flag not in fronts:
                yield "option", f"{path} {flag}".strip()
    if isinstance(command, Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            yield from _commands(below, f"{path} {name}".strip())


def _entry_point_groups() -> Iterator[str]:
    for path in ROOT.glob("src/heldout/**/*.py"):
        source = path.read_text(encoding="utf-8")
        for literal, constant in _GROUP.findall(source):
            value = re.search(rf'^{constant} = "([\w.]+)"$', source, re.MULTILINE)
            if literal or value:
                yield literal or value[1]  # type: ignore[index]


def _documented() -> Iterator[str]:
    for path in (*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("examples/*.py")):
        text = path.read_text(encoding="utf-8")
        for module, *names in _IMPORT.findall(text):
            yield from (f"{module}.{name}" for name in re.findall(r"\w+", "".join(names)))
        yield from (name for name in _MENTION.findall(text) if not name.endswith(".toml"))


def exists(kind: str, name: str) -> bool:
    if kind != "name":
        return (kind, name) in program()
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_the_file_is_in_order() -> None:
    found = rows()
    order = [(KINDS.index(row.kind), row.name) for row in found]
    assert order == sorted(set(order)), "each row once, by kind, then by name"
    for row in found:
        assert row.status in ("kept", "renamed", "removed"), row
        assert (row.status == "renamed") == bool(row.becomes), row
        assert row.status == "kept" or row.reason, row


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_exists_and_what_is_not_is_gone(kind: str) -> None:
    for row in rows():
        if row.kind == kind:
            assert exists(kind, row.name) == (row.status == "kept"), row
            assert row.status != "renamed" or exists(kind, row.becomes), row


def test_all_that_the_program_offers_is_in_the_file() -> None:
    listed = {(row.kind, row.becomes or row.name) for row in rows() if row.status != "removed"}
    missing = sorted(",".join((*found, "kept,,")) for found in program() - listed)
    assert not missing, "rows to add to surface.csv:\n" + "\n".join(missing)
