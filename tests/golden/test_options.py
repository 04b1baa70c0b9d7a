"""An option that a path does not use is refused: every command, every mode, every option.

The commands of the golden worlds are run, and beside the first of each request the same with every other
mode (a truth value or a choice). What the verb's function reads of its request is written down. An
option that is not read must be refused when it is given. ``--plan`` is no mode: it takes the options of
the command that it plans.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import pytest

from heldout.cli.app import invoke
from heldout.core.context import Context
from heldout.core.errors import UserError
from heldout.core.request import Field, Request, fields, given, make
from heldout.core.workspace import Workspace
from heldout.front import Verb
from tests.golden.data import HOOKS, WORLDS
from tests.golden.record import HERE, steps

FOLDED = frozenset({"preset", "config"})
"""Files of values: they are folded into the other options when a request is made."""
ALWAYS = frozenset({"plan", "replace"})
"""What says how a command is meant: as a plan, and where something is there already."""
SLOW = frozenset({"demo", "run"})
"""Verbs that only run others, which are looked at themselves."""


class Command(NamedTuple):
    """A verb with the options that it is given, and the folder of its workspace."""

    verb: Verb
    kind: type[Request]
    options: dict[str, Any]
    workspace: Path

    def __str__(self) -> str:
        shown = (f"{name}={value}" for name, value in self.options.items())
        return f"{self.verb.name} {' '.join(shown)}"

    @property
    def signature(self) -> tuple[Any, ...]:
        modes = {n: v for n, v in self.options.items() if isinstance(v, bool)}
        return (self.kind, frozenset(self.options), tuple(sorted(modes.items())))


@contextlib.contextmanager
def reading() -> Iterator[set[str]]:
    """The names of all fields of requests that are read inside."""
    names: set[str] = set()
    before = Request.__getattribute__

    def read(self: Request, name: str) -> Any:
        names.add(name)
        return before(self, name)

    Request.__getattribute__ = read  # type: ignore[method-assign, assignment]
    try:
        yield names
    finally:
        Request.__getattribute__ = before  # type: ignore[method-assign]


def execute(command: Command, state: Path) -> tuple[set[str], UserError | None]:
    """Run a command in a copy of a folder: what it reads, and how it is refused."""
    here = Path.cwd()
    shutil.rmtree("../copy", ignore_errors=True)
    shutil.copytree(state, "../copy", symlinks=True)
    os.chdir("../copy")
    quiet = io.StringIO()
    try:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            request = make(command.kind, command.options)
            context = Context(Workspace(Path(command.workspace)))
            with reading() as names:
                command.verb.run(request, context)
            return names, None
    except UserError as error:
        return set(), error
    finally:
        os.chdir(here)


def values(field: Field) -> list[Any]:
    """Values of a field's type other than its default; one of them is within its limits."""
    if field.choices:
        return [choice for choice in field.choices if choice != field.default]
    if field.base is bool:
        return [not field.default]
    if field.base in (int, float):
        return [field.base((field.default or 0) + 1), 0.5, 3]
    if field.mapping:
        names = get_args(get_args(field.type)[0]) or ("zzz",)
        return [{names[0]: 1}, {names[0]: "1"}]
    if field.many:
        inner = get_args(field.type)[0]
        return [[get_args(inner)[-1]]] if get_origin(inner) else [["zzz"]]
    return ["zzz"]


def accepted(command: Command, field: Field) -> Command | None:
    """The command with one option more; None where making the request refuses it."""
    for value in values(field):
        more = command._replace(options={**command.options, field.name: value})
        with contextlib.suppress(UserError):
            make(more.kind, more.options)
            return more
    return None


def ignored(command: Command, read: set[str], state: Path) -> list[str]:
    """Options that a command neither reads nor refuses."""
    found = []
    for field in fields(command.kind):
        if field.name in {*read, *command.options, *FOLDED, *ALWAYS, command.kind.tag}:
            continue
        more = accepted(command, field)
        if more is not None:
            names, error = execute(more, state)
            if field.name not in names and (error is None or field.flag not in error.line):
                found.append(f"{command}: {field.name} is ignored ({error})")
    return found


def modes(command: Command) -> Iterator[Command]:
    """The command with each truth value and each choice that it does not have."""
    for field in fields(command.kind):
        if field.name in {*ALWAYS, command.kind.tag} or not (field.choices or field.base is bool):
            continue
        if field.name not in command.options:
            for value in values(field):
                yield command._replace(options={**command.options, field.name: value})


@pytest.mark.parametrize("world", WORLDS)
def test_an_option_without_a_use_is_refused(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    if (HERE / "inputs" / world).is_dir():
        shutil.copytree(HERE / "inputs" / world, root)
    WORLDS[world](root)
    monkeypatch.chdir(root)
    seen: set[tuple[Any, ...]] = set()
    found: list[str] = []
    run = Verb.run

    def watched(verb: Verb, request: Request, context: Context, **more: Any) -> Any:
        place = context.workspace.root.resolve().relative_to(root.resolve())
        command = Command(verb, type(request), given(request), place)
        new = (
            command.signature not in seen
            and verb.name not in SLOW
            and "plan" not in command.options
        )
        if new:
            seen.add(command.signature)
            shutil.rmtree("../before", ignore_errors=True)
            shutil.copytree(root, "../before", symlinks=True)
        with reading() as names:
            result = run(verb, request, context, **more)
        unused = sorted(command.options.keys() - names - {command.kind.tag} - FOLDED)
        if unused and verb.name not in SLOW and "plan" not in command.options:
            found.append(f"{command}: {unused} is ignored")
        if new:
            monkeypatch.setattr(Verb, "run", run)
            found.extend(ignored(command, names, Path("../before")))
            first = command.kind not in {kind for kind, *_ in seen - {command.signature}}
            for mode in modes(command) if first else ():
                if mode.signature not in seen:
                    seen.add(mode.signature)
                    names, error = execute(mode, Path("../before"))
                    if error is None:
                        found.extend(ignored(mode, names, Path("../before")))
            monkeypatch.setattr(Verb, "run", watched)
        return result

    monkeypatch.setattr(Verb, "run", watched)
    twice = None
    for line, code, _ in steps(HERE / f"{world}.txt"):
        if line.startswith("@"):
            name, *arguments = line[1:].split()
            HOOKS[name](*arguments)
        elif code != 2 and line.removesuffix(" --json") != twice:
            invoke(shlex.split(line))
        twice = line.removesuffix(" --json")
    assert not found, "\n".join(found)
