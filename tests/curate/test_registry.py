"""Tests of :mod:`heldout.curate.registry`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import heldout
import heldout.core.plugins
from heldout.core.errors import NotFound, UserError
from heldout.curate import registry
from heldout.curate.registry import get_recipe, load_recipe, recipe_names

# Reading results knows column types, never a recipe: score and report may not name one.


ROOT = Path(heldout.__file__).parent
ROOMS = ("measure/score", "show")
NAMES = {"replicate", "contexts", "domains", "compose", "hard", *recipe_names()}


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Identifiers and whole strings (docstrings aside) of a module, with their lines."""
    tree = ast.parse(source)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            yield line, node.id
        elif isinstance(node, ast.Attribute):
            yield line, node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield line, node.name
        elif isinstance(node, ast.arg) or (isinstance(node, ast.keyword) and node.arg):
            yield line, node.arg
        elif isinstance(node, ast.alias):
            yield line, node.name
        elif id(node) in documentation:
            continue
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield line, node.value


def offences(source: str, names: set[str] = NAMES) -> list[tuple[int, str]]:
    """Where a module names a recipe, or imports their room."""
    found = []
    for line, text in names_in(source):
        parts = set(text.replace(":", ".").replace("/", ".").split("."))
        if parts & names or {"heldout", "curate"} <= parts:
            found.append((line, text))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heldout.curate"):
            found.append((node.lineno, node.module or ""))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_no_recipe_is_named(room: str) -> None:
    # These pages draw results of their own; all else goes by column type.
    drawn = ("contexts", "graph", "duplicates", "telltales")
    pages = {ROOT / f"show/{page}.py" for page in drawn}
    files = sorted(set((ROOT / room).rglob("*.py")) - pages)
    assert files
    found = {
        file.relative_to(ROOT).as_posix(): offences(file.read_text(encoding="utf-8"))
        for file in files
    }
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_no_template_or_script_names_a_recipe(room: str) -> None:
    import re

    own = [
        file
        for ending in ("*.j2", "*.toml", "report.js", "report.css")
        for file in (ROOT / room).rglob(ending)
    ]
    pattern = re.compile(rf"""["'`]({"|".join(sorted(NAMES))})["'`:]""")
    for file in own:
        assert not pattern.search(file.read_text(encoding="utf-8")), file


@pytest.mark.parametrize(
    "source",
    [
        'if card.recipe["name"] == "compose": pass',
        "from heldout.curate import compose",
        "import heldout.curate.build",
        "def draw(contexts): pass",
        "x.hard",
        'open("replicate:FILE.toml")',
        "f(domains=1)",
        "class compose: pass",
    ],
)
def test_the_check_would_find_it(source: str) -> None:
    assert offences(source)


def test_prose_may_use_the_words() -> None:
    assert not offences(
        '"""Curves of a compose set."""\n\ndef f():\n    """hard"""\n    return "a hard set"'
    )


# recipe registry


def _install(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def found(*, group: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group]

    monkeypatch.setattr(heldout.core.plugins, "entry_points", found)


def test_a_plug_in_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(
        monkeypatch,
        EntryPoint("drawn", "heldout.testing.sample_recipe:recipe", registry.GROUP),
        EntryPoint("other", "nowhere:thing", "another.group"),
    )
    assert recipe_names() == tuple(sorted({*registry.BUILT_IN, "drawn"}))
    assert get_recipe("drawn").name == "sample"


def test_two_plug_ins_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(
        monkeypatch,
        EntryPoint("drawn", "heldout.testing.sample_recipe:recipe", registry.GROUP),
        EntryPoint("drawn", "recipe_examples:chooser", registry.GROUP),
    )
    with pytest.raises(UserError, match="two plug-ins"):
        get_recipe("drawn")


def test_names_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch)
    with pytest.raises(NotFound, match="no recipe 'x'"):
        get_recipe("x")
    for path, message in (
        ("no_such_module:recipe", "no module"),
        ("heldout.testing.sample_recipe:nothing", "has no 'nothing'"),
        ("heldout.testing.sample_recipe", "write package.module:object"),
    ):
        with pytest.raises(UserError, match=message):
            load_recipe(path)
    with pytest.raises(UserError, match="it lacks version"):
        load_recipe("recipe_examples:not_a_recipe")


def test_a_module_that_lacks_something_itself_is_a_fault(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_recipe.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load_recipe("half_recipe:recipe")


def test_built_in_names_lead_to_recipes() -> None:
    for name, path in registry.BUILT_IN.items():
        assert load_recipe(path).name == name
