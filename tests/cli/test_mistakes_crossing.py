"""Mistakes of sets that recipes built, by their columns and by category, in the ordinary report.

The same commands run on a set of composed images and on one of contexts; nothing that counts or
draws knows which is which.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heldout.data.testset import TestSet, load
from heldout.measure.score.slices import parse_slice
from tests.cli.conftest import Run
from tests.cli.test_crossing import predict, world
from tests.cli.test_eval import composed, on

__all__ = ["composed"]  # a fixture
TOP1 = ("-t", "pets", "--metric", "top1")


def tallies(records: list[dict[str, Any]], **wanted: str) -> list[dict[str, Any]]:
    found = [r for r in records if r["record"] == "tally"]
    return [r for r in found if all(r[key] == value for key, value in wanted.items())]


def check_sums(records: list[dict[str, Any]], testset: str, n: int) -> None:
    """Categories make up all mistakes, and mistakes are what accuracy lacks."""
    for top in (r for r in records if (r.get("metric"), r.get("slice")) == ("top1", "all")):
        if top["testset"] != testset or top.get("statistic") != "value":
            continue
        mine = tallies(records, model=top["model"], testset=testset, slice="all", severity="all")
        total = {r["category"]: r for r in mine if r["basis"] == "all"}
        assert total["all"]["of"] == top["n"] == n
        assert total["all"]["n"] == round((1 - top["value"]) * top["n"])
        assert sum(r["n"] for name, r in total.items() if name != "all") == total["all"]["n"]
        by = {r["statistic"]: r["value"] for r in records if r.get("model") == top["model"]
              and r["record"] == "score" and (r["testset"], r["slice"]) == (testset, "all")}  # fmt: skip
        judged = {r["basis"] for r in mine} <= {"all", "judged"}
        assert ("minor" in by) == ("explained" in by) == judged
        assert top["value"] <= by.get("minor", 1) <= by.get("explained", 1) <= 1


def check_page(html: str, testset: str, columns: str, card: str, forgiven: bool = False) -> None:
    assert '<a href="#mistakes">Mistakes</a>' in html
    assert f'id="figure-mistakes-{testset}-original-categories"' in html
    assert (f'id="figure-mistakes-{testset}-original-forgiven"' in html) == forgiven
    assert ("Proposed from: hierarchy" in html) != forgiven
    drawn = f'id="figure-mistakes-{testset}-original-by-{columns}"' in html
    assert drawn == ("-" not in columns), "two columns are a table"
    assert '<ol class="mistakes">' in html and card in html


def test_composed_images_by_size_and_place(run: Run, composed: list[str]) -> None:
    arguments = ["eval", "-m", "lite0", *on(*composed), "--replicates", 50, "--json"]
    ran = run(*arguments, "-o", "r.html", "--save", "records.json")
    assert ran.code == 0, ran.err
    sizes, places = (load(Path("testsets") / name) for name in composed)
    check_sums(ran.json, "sizes", len(sizes))
    check_sums(ran.json, "places", len(places))
    by_size = tallies(ran.json, testset="sizes", category="all", severity="all", basis="all")
    small = [r for r in by_size if r["slice"].startswith("size=")]
    assert {r["slice"] for r in small} == {"size=0.02", "size=0.4"}
    assert sum(r["n"] for r in small) == next(r["n"] for r in by_size if r["slice"] == "all")
    corners = tallies(ran.json, testset="places", category="all")
    assert {r["slice"] for r in corners if "&" in r["slice"]} == {
        f"x={x}&y={y}" for x in ("0.05", "0.5") for y in ("0.05", "0.5")
    }
    groups = {r["slice"] for r in tallies(ran.json, testset="sizes") if "class_group" in r["slice"]}
    assert groups <= {f"class_group={name}" for name in ("organism", "artifact", "other")}
    html = Path("r.html").read_text(encoding="utf-8")
    check_page(html, "sizes", "size", "size 0.02")
    check_page(html, "places", "x-y", "x 0.05")
    gallery = html[html.index('<ol class="mistakes">') :]
    assert 'src="data:image/jpeg;base64,' in gallery
    again = run("report", "records.json", "-o", "again.html", "--figures", "figures")
    assert again.code == 0, again.err
    second = Path("again.html").read_text(encoding="utf-8")
    check_page(second, "sizes", "size", "size 0.02")
    assert second.count('<li class="mistake">') == html.count('<li class="mistake">')
    assert Path("figures/mistakes-sizes-original-by-size.svg").is_file()
    none = run(*arguments, "--no-mistakes", "-o", "n.html")
    assert not tallies(none.json) and 'id="mistakes"' not in Path("n.html").read_text(
        encoding="utf-8"
    )


@pytest.fixture
def pets(run: Run, tmp_path: Path) -> TestSet:
    """A set of contexts of cats and dogs, with what two models say of it."""
    images, place = world(), tmp_path / "w"
    source = tmp_path / "images.jsonl"
    source.write_text("".join(json.dumps(image) + "\n" for image in images))
    folder = place / "testsets" / "pets"
    built = run(
        "build", "contexts", "--source", "table", source, "-o", folder, "--minimum", "5",
        "--more-than", "3", "--subject", "cat", "--subject", "dog", "-w", place,
    )  # fmt: skip
    assert built.code == 0, built.err
    testset = load(folder)
    truth = {str(i["image_id"]): str(i["tag"][0]) for i in images}  # type: ignore[index]
    predict(testset, truth, place)
    return testset


def test_contexts_by_subset_and_judged_category(run: Run, pets: TestSet, tmp_path: Path) -> None:
    place, judged = tmp_path / "w", tmp_path / "judged.csv"
    first = run("score", *TOP1, "--by", "subset", "--mistakes", "--json", "-w", place)
    assert first.code == 0, first.err
    check_sums(first.json, "pets", 240)
    assert {r["basis"] for r in tallies(first.json)} == {"all", "proposed"}
    wrong = run("mistakes", "propose", "-t", "pets", "--json", "-w", place)
    pairs = [(r["image_id"], r["prediction"]) for r in wrong.json if r["record"] == "proposal"]
    with judged.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["question", "subject", "answer", "who"])
        for i, (image, prediction) in enumerate(pairs):
            category, severity = (("Spurious Correlation", "Major"), ("Other", "Minor"))[i % 2]
            kind = {"category": category, "severity": severity}
            subject = {"image_id": image, "prediction": prediction}
            rows.writerow(["mistake", json.dumps(subject), json.dumps(kind), "ann"])
    assert run("import", "judgements", judged, "-w", place).code == 0
    records, page = tmp_path / "s.json", tmp_path / "r.html"
    ran = run(
        "score", *TOP1, "--by", "subset", "--by", "camera", "--mistakes", "--json", "--save",
        records, "-w", place,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    check_sums(ran.json, "pets", 240)
    assert {r["basis"] for r in tallies(ran.json)} == {"all", "judged"}
    table = Counter(
        {
            (r["category"], r["severity"]): r["n"]
            for r in tallies(ran.json, model="poor", slice="all", basis="judged")
            if "all" not in (r["category"], r["severity"])
        }
    )
    assert set(table) == {("Spurious Correlation", "Major"), ("Other", "Minor")}
    subsets = tallies(ran.json, model="poor", category="Spurious Correlation", severity="all")
    named = {parse_slice(r["slice"]).get("subset") for r in subsets} - {None}
    assert "cat(sofa)" in named and "dog(bed)" in named
    lenient = {r["model"]: r["value"] for r in ran.json if r.get("statistic") == "judged_minor"}
    minor = {
        r["model"]: r
        for r in ran.json
        if (r.get("metric"), r.get("slice"), r.get("statistic")) == ("top1", "all", "value")
    }
    for model, top in minor.items():
        judged_minor = sum(
            r["n"] for r in tallies(ran.json, model=model, slice="all", severity="Minor", basis="judged")
            if r["category"] != "all"
        )  # fmt: skip
        assert lenient[model] == pytest.approx(top["value"] + judged_minor / 240)
    assert run("report", records, "-o", page, "-w", place).code == 0
    html = page.read_text(encoding="utf-8")
    check_page(html, "pets", "subset", "Spurious Correlation", forgiven=True)
    assert 'id="figure-mistakes-pets-original-by-camera"' in html
    assert '<span class="tag severity" data-kind="Major">Major</span>' in html


def test_a_search_for_the_worst_slice_reaches_the_report(
    run: Run, pets: TestSet, tmp_path: Path
) -> None:
    place, records = tmp_path / "w", tmp_path / "s.json"
    common = ["-t", "pets", "-m", "poor", "-w", place]
    ran = run("mistakes", "slices", *common, "--save", records, "--json")
    assert ran.code == 0, ran.err
    assert {r["name"] for r in ran.json} == {
        "searched", "discovered", "discovered_rest", "discovered_p",
    }  # fmt: skip
    shown = run("mistakes", "slices", *common, "--column", "camera")
    assert "can be told from the rest (found on one half, measured on the other)" in shown.out
    scores = tmp_path / "t.json"
    assert run("score", *common, "--metric", "top1", "--save", scores).code == 0
    page = tmp_path / "r.html"
    assert run("report", scores, records, "-o", page, "-w", place).code == 0
    assert "Found by search: poor on pets" in page.read_text(encoding="utf-8")
    for options, words in (
        (["--metric", "mean_per_class"], "plain accuracy"),
        (["--column", "zzz"], "no column 'zzz'"),
        (["--minimum-n", "1000"], "no slice of pets has 500 images"),
    ):
        refused = run("mistakes", "slices", *common, *options)
        assert refused.code == 2 and words in refused.err


def test_the_page_of_two_models(run: Run, pets: TestSet, tmp_path: Path) -> None:
    page = tmp_path / "d.html"
    arguments = ["mistakes", "diff", "poor", "good", "-t", "pets", "-w", tmp_path / "w"]
    ran = run(*arguments, "-o", page, "--json")
    assert ran.code == 0, ran.err
    (found,) = [r for r in ran.json if r["record"] == "changes"]
    html = page.read_text(encoding="utf-8")
    for name in ("fixed", "new", "shared"):
        assert f'<section id="{name}"' in html
        assert f"<dt>{name}</dt><dd" in html
        assert f">{found[name]}</dd>" in html
    assert "<script" not in html and "From poor to good" in html
