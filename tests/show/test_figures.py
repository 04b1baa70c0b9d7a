from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

import heldout.measure.score
import heldout.show
from heldout.core.errors import MissingExtra, UserError
from heldout.show.charts import VL_VERSION, Figure, slug, with_unique_names
from heldout.show.exports import figures, write_figures
from heldout.show.view import ReportData

from .records import everything, hostile, score


@pytest.mark.parametrize("make", [everything, hostile])
def test_every_specification_compiles(make) -> None:
    import vl_convert

    specs = figures(make())
    assert len(specs) > 8
    for spec in specs.values():
        assert vl_convert.vegalite_to_vega(spec, vl_version=VL_VERSION)["marks"]


def test_every_figure_is_described() -> None:
    for name, spec in figures(everything()).items():
        assert len(spec["description"]) > 40, name


def test_text_of_the_data_is_in_no_expression() -> None:
    """Names may appear as data, titles and domains; an expression must never contain one."""

    def expressions(value: object, key: str = "") -> list[str]:
        if isinstance(value, dict):
            return [text for k, v in value.items() for text in expressions(v, k)]
        if isinstance(value, list):
            return [text for v in value for text in expressions(v, key)]
        named = key in {"expr", "labelExpr", "calculate", "filter", "test", "signal", "update"}
        return [value] if named and isinstance(value, str) else []

    def compiled(specs: dict) -> set[str]:
        import vl_convert

        found = set()
        for spec in specs.values():
            found |= set(expressions(vl_convert.vegalite_to_vega(spec, vl_version=VL_VERSION)))
        return found

    for text in compiled(figures(hostile())):
        assert "window.hit" not in text and "__proto__" not in text and "xxxx" not in text


def test_files_are_written_in_each_format(tmp_path: Path) -> None:
    records = [score(m, t, 50 + k, 100) for k, m in enumerate("ab") for t in ("old", "new")]
    data = ReportData(title="t", records=records, baseline="old")
    written = write_figures(data, tmp_path / "figs", ("svg", "png", "pdf", "json"))
    assert {p.name for p in (tmp_path / "figs").iterdir()} == {p.name for p in written}
    start = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "json": b"{"}
    for path in written:
        assert path.read_bytes().startswith(start[path.suffix[1:]])
    spec = json.loads((tmp_path / "figs" / "changes.json").read_bytes())
    assert spec == figures(data)["changes"]


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="svg, png, pdf, json"):
        write_figures(everything(), tmp_path / "figs", ("svg", "gif"))
    assert not (tmp_path / "figs").exists()


def test_without_the_extra_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=r"pip install 'heldout\[figures\]'"):
        write_figures(everything(), tmp_path, ("svg",))


def test_names_are_unique_and_safe() -> None:
    same = Figure(name="a", section="s", title="", caption="", spec={})
    assert [f.name for f in with_unique_names([same, same, same])] == ["a", "a-2", "a-3"]
    assert slug("../../etc", "A b/c") == "etc-a-b-c"
    assert slug("..", "///") == "figure"
    records = [score(m, t, 5, 10) for m in "ab" for t in ("old", "New 1", "new-1")]
    names = list(figures(ReportData(title="", records=records, baseline="old")))
    assert {"accuracy-new-1-linear", "accuracy-new-1-linear-2"} <= set(names)


def test_no_recipe_is_named() -> None:
    """How results are read depends on column types alone."""
    recipes = {"replicate", "contexts", "domains", "compose", "hard"}
    folders = [Path(room.__file__).parent for room in (heldout.show, heldout.measure.score)]
    files = sorted(file for folder in folders for file in folder.glob("*.py"))
    assert len(files) > 15
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in recipes, f"{path.name} names the recipe {node.value}"
