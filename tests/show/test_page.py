from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from heldout.core.records import to_dict
from heldout.data.testset.columns import ColumnType
from heldout.measure.score.records import Comparison, Score, from_dict
from heldout.show.embed import compact, script_hash, script_json
from heldout.show.exports import figures
from heldout.show.page import render_report, write_report
from heldout.show.view import ReportData

from .records import HOSTILE, everything, hostile, score, scores, slice_scores


class Page(HTMLParser):
    """Elements with their attributes, and the texts of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._in: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = None

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        else:
            self.texts.append(data)

    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.elements if "id" in attrs]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_bytes_do_not_depend_on_the_hash_seed(seed: str) -> None:
    code = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.show.records import everything\n"
        "from heldout.show.page import render_report\n"
        "print(hashlib.sha256(render_report(everything()).encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parents[2])],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    import hashlib

    ours = hashlib.sha256(render_report(everything()).encode()).hexdigest()
    assert done.stdout.strip() == ours


def test_nothing_is_loaded_from_outside() -> None:
    page = Page(render_report(everything()))
    for tag, attrs in page.elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img", "audio", "video"}
        for name in ("src", "srcset", "data", "action", "poster", "background"):
            assert name not in attrs, (tag, attrs)
        assert (attrs.get("href") or "#").startswith("#")
    style = render_report(everything()).split("<style>")[1].split("</style>")[0]
    assert "url(" not in style and "@import" not in style
    assert not any("sourceMappingURL" in script for script in page.scripts)


def test_the_policy_allows_our_scripts_and_no_others() -> None:
    html = render_report(hostile())
    page = Page(html)
    (policy,) = [
        attrs["content"]
        for tag, attrs in page.elements
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    kinds = [attrs.get("type") for tag, attrs in page.elements if tag == "script"]
    runs = [text for kind, text in zip(kinds, page.scripts, strict=True) if kind is None]
    assert len(runs) == 5
    allowed = set(policy.split("script-src ")[1].split(";")[0].split())
    assert {script_hash(text) for text in runs} == allowed
    assert "unsafe-eval" not in policy


def test_hostile_text_stays_text() -> None:
    html = render_report(hostile())
    page = Page(html)
    for tag, attrs in page.elements:  # the only images are ours, and they hold no scripts
        if tag == "img":
            assert attrs.keys() <= {"src", "alt", "title", "loading"}
            assert attrs["src"].startswith("data:image/")
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert HOSTILE[0] in page.texts  # the title, read back as the very text
    assert "{{ 7 * 7 }}" in html and "49" not in page.texts
    data = [text for text in page.scripts if text.startswith("{")]
    assert data and all(isinstance(json.loads(text), dict) for text in data)


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "\u2028", "&lt;", "é", '"\\'])
def test_embedded_json_is_inert_and_exact(text: str) -> None:
    embedded = str(script_json({"k": text}))
    assert not re.search("[<>&\u2028\u2029]", embedded)
    assert json.loads(embedded) == {"k": text}


def unpack(packed: dict[str, Any]) -> list[Any]:
    """The records again, as the page's script reads them."""
    found = []
    for kind, table in packed.items():
        columns = []
        for stored in table["columns"]:
            if isinstance(stored, list):
                columns.append(stored)
            elif isinstance(stored["codes"], list):
                columns.append([stored["values"][code] for code in stored["codes"]])
            else:
                columns.append(stored["values"] * table["rows"])
        for row in zip(*columns, strict=True):
            found.append(
                from_dict({"record": kind, **dict(zip(table["fields"], row, strict=True))})
            )
    return found


@pytest.mark.parametrize("make", [everything, hostile])
def test_the_page_carries_the_very_records(make) -> None:
    data = make()
    packed = json.loads(json.dumps(compact(data.records)))
    key = str
    assert sorted(map(key, map(to_dict, unpack(packed)))) == sorted(
        map(key, map(to_dict, data.records))
    )


def test_sections_follow_the_records() -> None:
    data = everything()

    def sections(records: list) -> set[str]:
        chosen = dataclasses.replace(
            data, records=records, provenance=(), settings={}, warnings=(), notes=(), baseline=None
        )
        ids = set(Page(render_report(chosen)).ids())
        return ids & {
            "accuracy", "models", "changes", "slices", "comparisons", "fits", "counts", "scores",
            "provenance", "warnings-title", "mistakes", "learning",
        }  # fmt: skip

    whole = [r for r in data.records if isinstance(r, Score) and r.slice == "all"]
    assert sections([]) == set()
    assert sections(whole) == {"accuracy", "models", "scores"}
    assert sections(list(data.records)) == {
        "accuracy", "models", "changes", "slices", "comparisons", "fits", "counts", "scores",
        "mistakes",
    }  # fmt: skip
    assert {"provenance", "warnings-title"} <= set(Page(render_report(data)).ids())


def test_ids_are_unique_and_links_lead_somewhere() -> None:
    page = Page(render_report(everything()))
    ids = page.ids()
    assert len(ids) == len(set(ids))
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert links and {str(link)[1:] for link in links} <= set(ids)


def test_provenance_is_shown_in_full() -> None:
    texts = Page(render_report(everything())).texts
    assert "0123456789abcdef" * 4 in texts
    assert '{"a":2.5,"b":1}' in texts
    place = {text: texts.index(text) for text in ("Test sets (2)", "recipe", "Predictions (1)")}
    assert place["Test sets (2)"] < place["recipe"] < place["Predictions (1)"]
    assert texts.index("predictions hash") > place["Predictions (1)"]
    assert "heldout report" in texts


def test_a_large_report_stays_under_five_megabytes(tmp_path: Path) -> None:
    models = [f"vit_base_patch{k}_224.some_long_tag_ft_in1k" for k in range(67)]
    testsets = [f"imagenet-shifted-{k}-revision-{k}" for k in range(5)]
    records = scores(models, testsets, metrics=("top1", "top5", "mean_per_class"))
    slices: list[dict[str, object]] = [
        *({"region": f"region {k}"} for k in range(7)),
        *({"size": k} for k in range(10)),
        *({"angle": 30 * k} for k in range(12)),
    ]
    for testset in testsets:
        records += slice_scores(models, testset, slices)
    kinds = {
        "region": ColumnType(kind="categorical"),
        "size": ColumnType(kind="ordered"),
        "angle": ColumnType(kind="circular", period=360),
    }
    data = ReportData(
        title="large",
        records=records,
        columns=dict.fromkeys(testsets, kinds),
        provenance=[{"model": m, "testset": t, "h": "0" * 64} for m in models for t in testsets],
        baseline=testsets[0],
    )
    assert len(records) > 10000
    write_report(data, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 5_000_000


def test_a_difference_of_a_loss_is_shown_as_it_is() -> None:
    pair = {"model": "a", "other": "b", "testset": "s", "truth": "original", "n": 100}
    records = [
        score("a", "s", 5, 10),
        Comparison(metric="top1", difference=0.0123, low=-0.01, high=0.03, p=0.2, **pair),
        Comparison(metric="nll", difference=-0.0123, low=-0.02, high=-0.01, p=0.01, **pair),
        Comparison(metric="error_consistency", difference=0.45, **pair),
    ]
    html = render_report(ReportData(title="", records=records))
    assert "+1.23<small>−1.00 to +3.00</small>" in html
    assert "−0.012<small>−0.020 to −0.010</small>" in html
    assert ">+0.450<" in html and "error consistency is the kappa of the two" in html
    names = figures(ReportData(title="", records=records))
    assert [name for name in names if name.startswith("comparisons")] == ["comparisons-s-top1"]
