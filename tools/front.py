"""Writes what follows from the requests of the verbs: docs/commands.md and src/heldout/verbs.pyi.

The manual keeps its own words up to the line ``<!-- verbs -->``. A test compares both files.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

from heldout.core.context import Result
from heldout.core.request import Field, Request, fields
from heldout.front import GROUPS, VERBS, Verb, order, python_name

ROOT = Path(__file__).parent.parent
MANUAL, STUB = ROOT / "docs" / "commands.md", ROOT / "src" / "heldout" / "verbs.pyi"
MARK = "<!-- verbs -->\n"
# Fields that name something: an object may stand in their place.
OBJECTS = {"models", "testset", "testsets", "pool", "encoder", "images", "results", "against"}

_STUB_HEAD = '''"""Types of the verbs, made by tools/front.py from their requests."""

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal

from heldout.core.context import Result
from heldout.core.workspace import Workspace
'''


def typed(field: Field) -> str:
    """The type that a Python caller gives."""
    if field.name in OBJECTS:
        return "Any"
    if field.mapping:
        return "Mapping[str, Any]"
    inner = get_args(field.type)[0] if field.many else field.type
    while get_origin(inner) is Annotated:
        inner = get_args(inner)[0]
    one = {bool: "bool", int: "int", float: "float", Path: "str | PathLike[str]"}.get(inner, "str")
    if get_origin(inner) is Literal:
        one = f"Literal[{', '.join(map(repr, get_args(inner)))}]"
    return f"{one} | Iterable[{one}]" if field.many else one


def signature(verb: Verb) -> str:
    """A verb's function in the stub."""
    lines, by_place = [], True
    for field in order(verb.type):
        if by_place and not (field.argument or field.required):
            lines.append("    *,")
            by_place = False
        given = "" if field.required else " | None = None" if field.default is None else " = ..."
        if by_place and not given and any("=" in line for line in lines):
            given = " = ..."  # it may come from what the argument before it names
        lines.append(f"    {field.name}: {typed(field)}{given},")
    if by_place:
        lines.append("    *,")
    lines.append("    workspace: Workspace | str | PathLike[str] | None = None,")
    head, body = f"def {python_name(verb)}(", "\n".join(lines)
    return f"{head}\n{body}\n) -> {gives(verb)[0]}: ...\n"


def gives(verb: Verb) -> tuple[str, str]:
    """What a Python caller gets, and the module that has it: stated as ``Annotated[Result, Made]``."""
    hint = inspect.signature(verb.call, eval_str=True).return_annotation
    made = get_args(hint)[1] if get_origin(hint) is Annotated else hint
    return made.__name__, made.__module__


def stub() -> str:
    """The whole stub."""
    needed = sorted({gives(verb) for verb in VERBS} - {(Result.__name__, Result.__module__)})
    imports = "".join(f"from {module} import {name}\n" for name, module in needed)
    return "\n".join([_STUB_HEAD + imports, *map(signature, VERBS)])


def shown_default(field: Field) -> str:
    """A default, where a reader learns something from it."""
    if field.required:
        return "required"
    if field.default in (None, "", (), False) or field.mapping:
        return ""
    plain = field.default if not field.many else ", ".join(map(str, field.default))
    return f"`{'yes' if plain is True else plain}`"


def rows(request: type[Request], skip: str = "") -> list[str]:
    """The fields of a request as a table."""
    listed = [field for field in fields(request) if field.name != skip]
    if not listed:
        return []
    listed.sort(key=lambda field: (not field.argument, not field.required, field.rare))
    found = ["| option | meaning | default |", "|---|---|---|"]
    for field in listed:
        flag = field.name.upper() if field.argument else f"--{field.flag}"
        name = f"`{field.short}` `{flag}`" if field.short else f"`{flag}`"
        choices = f" One of {', '.join(field.choices)}." if field.choices else ""
        text = (field.help + choices).replace("|", "\\|")
        found.append(f"| {name} | {text} | {shown_default(field)} |")
    return [*found, ""]


def section(verb: Verb) -> list[str]:
    """One verb: what it does, and its options; of a verb with kinds those of each."""
    request = verb.type
    found = [f"### {verb.name}", "", inspect.cleandoc(request.__doc__ or ""), ""]
    if not request.kinds:
        return [*found, *rows(request)]
    for kind, each in request.kinds.items():
        found += [f"**{request.tag} {kind}.** {inspect.cleandoc(each.__doc__ or '')}", ""]
        found += rows(each, skip=request.tag)
    return found


def manual() -> str:
    """The manual: its own words, a list of the verbs, then each."""
    own = MANUAL.read_text(encoding="utf-8").partition(MARK)[0]
    listed, each = [], []
    for group, title in GROUPS.items():
        listed += [f"**{title}**", "", "| verb | |", "|---|---|"]
        each += [f"## {title}", ""]
        for verb in VERBS:
            if verb.group == group:
                anchor = verb.name.replace(" ", "-")
                line = (verb.type.__doc__ or "").partition("\n")[0]
                listed.append(f"| [`{verb.name}`](#{anchor}) | {line} |")
                each += section(verb)
        listed.append("")
    return own + MARK + "\n" + "\n".join([*listed, *each]).rstrip() + "\n"


if __name__ == "__main__":
    for path, text in ((MANUAL, manual()), (STUB, stub())):
        if sys.argv[1:] == ["--check"]:
            if path.read_text(encoding="utf-8") != text:
                sys.exit(f"{path.relative_to(ROOT)} is old: run tools/front.py")
        else:
            path.write_text(text, encoding="utf-8")
