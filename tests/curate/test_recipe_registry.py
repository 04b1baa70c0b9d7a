from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

import heldout.core.plugins
from heldout.core.errors import NotFound, UserError
from heldout.curate import registry
from heldout.curate.registry import get_recipe, load_recipe, recipe_names


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
