"""Contexts at the command line: drawn, scored, conflicts drawn, and the published run."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from heldout.core.workspace import Workspace
from heldout.curate.contexts.distance import distance
from heldout.curate.contexts.subsets import read_subsets
from heldout.curate.contexts.training_conflicts import conflict_matrix, read_training_log
from heldout.data.testset import TestSet, load
from heldout.models.predictions import Predictions, PredictionStore
from heldout.show.exports import write_figure
from heldout.show.score_figures import matrix_figure
from tests.cli.conftest import Run

CONTEXTS = ("bed", "sofa", "rug", "grass", "tree", "beach", "car")
HOMES = {"bed": 0, "sofa": 0, "rug": 0, "grass": 1, "tree": 1, "beach": 1, "car": 2}


def candidates(n: int = 420, seed: int = 1) -> dict[str, set[str]]:
    """Subsets of cats and dogs, at home, outdoors and in cars."""
    rng = np.random.default_rng(seed)
    found: dict[str, set[str]] = defaultdict(set)
    for i in range(n):
        home = int(rng.integers(3))
        for subject in ("cat", "dog")[i % 2 : i % 2 + 1] if i % 9 else ("cat", "dog"):
            own = [c for c in CONTEXTS if rng.random() < (0.75 if HOMES[c] == home else 0.05)]
            for context in own or ["car"]:
                found[f"{subject}({context})"].add(str(1000 + i))
                found[f"{context}(seen)"].add(str(1000 + i))  # so that the object is there too
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with (folder / "attributes-candidate-subsets.pkl").open("wb") as file:
        pickle.dump(candidates(), file)
    return folder


@pytest.fixture
def pets(run: Run, data: Path, tmp_path: Path) -> TestSet:
    """A set in the workspace w, with predictions of two models that fail far from home."""
    folder = tmp_path / "w/testsets/pets"
    source = data / "attributes-candidate-subsets.pkl"
    ran = run("build", "contexts", "--source", "metashift", source, "-o", folder, "-w", "w")
    assert ran.code == 0, ran.err
    testset = load(folder)
    ids, space = testset.image_ids.to_pylist(), testset.label_space
    truth = testset.truth("original")
    own = dict(zip(truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True))
    members = testset.memberships.to_pylist()
    indoors = {
        row["image_id"]
        for row in members
        if row["column"] == "subset" and HOMES[row["value"].split("(")[1][:-1]] == 0
    }
    for model, far in (("near", 0.35), ("wide", 0.9)):
        rng = np.random.default_rng(5)
        right = [rng.random() < (0.95 if i in indoors else far) for i in ids]
        said = [
            own[i] if hit else ("cat" if own[i] == "dog" else "dog")
            for i, hit in zip(ids, right, strict=True)
        ]
        PredictionStore(Workspace.find(tmp_path / "w").predictions).write(
            Predictions(
                model=model,
                image_ids=pa.array(ids, pa.string()),
                topk=np.array([[space.ids.index(one)] for one in said], dtype=np.int32),
                label_space=space,
            ),
            images_hash=testset.card.images_hash,
        )
    return testset


def test_scores_by_subset_community_class_and_distance(
    run: Run, pets: TestSet, tmp_path: Path
) -> None:
    ran = run(
        "contexts", "score", "pets", "--class", "cat", "--train", "cat(bed)+cat(sofa)", "-o",
        "r.html", "--replicates", "50", "--json", "-w", "w",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    slices = {r["slice"] for r in ran.json if r["record"] == "score" and r["metric"] == "top1"}
    assert {"subset=cat(grass)", "subset=cat(car)"} <= slices
    assert not any("dog(" in name for name in slices)  # the dog rows of shared images stay out
    assert any(name.startswith("community=cat(%231") for name in slices)
    found = {(r["model"], r["columns"], r["name"]): r for r in ran.json if r["record"] == "summary"}
    for model in ("near", "wide"):
        for name in ("image_mean", "group_mean", "worst_value", "slope"):
            assert (model, "subset", name) in found
    slopes = {model: found[model, "subset", "slope"]["value"] for model in ("near", "wide")}
    assert slopes["near"] < min(-0.2, slopes["wide"])
    (left_out,) = [r["value"] for r in ran.json if r.get("name") == "n_left_out_train"]
    trained = {
        row["image_id"]
        for row in pets.memberships.to_pylist()
        if row["value"] in ("cat(bed)", "cat(sofa)")
    }
    assert left_out == len(trained)
    assert found["near", "subset", "image_mean"]["n"] + left_out == len(
        {row["image_id"] for row in pets.memberships.to_pylist() if row["value"].startswith("cat(")}
    )
    assert "against-distance" in (tmp_path / "r.html").read_text(encoding="utf-8")
    whole = run("contexts", "score", "pets", "--json", "-w", "w")
    names = {r["slice"] for r in whole.json if r["record"] == "score"}
    assert {"class=cat", "class=dog", "subset=dog(car)"} <= names
    assert any(r.get("name") == "class_mean" for r in whole.json)


def test_statistics_of_a_set_and_their_page(run: Run, pets: TestSet, tmp_path: Path) -> None:
    ran = run("contexts", "graph", "pets", "-o", "s.html", "-w", "w", "--json")
    assert ran.code == 0, ran.err
    members: dict[str, set[str]] = defaultdict(set)
    for row in pets.memberships.to_pylist():
        if row["column"] == "subset":
            members[row["value"]].add(row["image_id"])
    sizes = sorted(map(len, members.values()))
    (totals,) = [r for r in ran.json if r["record"] == "contexts"]
    assert (totals["subsets"], totals["images"]) == (len(members), len(pets))
    assert totals["images_per_subset"] == pytest.approx(sum(sizes) / len(sizes))
    assert (totals["least"], totals["most"], totals["memberships"]) == (
        sizes[0],
        sizes[-1],
        sum(sizes),
    )
    classes = {r["subject"]: r for r in ran.json if r["record"] == "class in context"}
    assert totals["classes"] == len(classes)
    assert totals["subsets_per_class"] == pytest.approx(len(members) / len(classes))
    named: dict[str, set[str]] = defaultdict(set)  # candidates: all that a class was seen with
    for name, ids in candidates().items():
        named[name.split("(")[0]] |= ids
    for name, row in classes.items():
        own = {subset: ids for subset, ids in members.items() if subset.startswith(f"{name}(")}
        images = set().union(*own.values())
        assert (row["subsets"], row["images"]) == (len(own), len(images))
        assert row["median_images"] == np.median([len(ids) for ids in own.values()])
        assert len(own[row["largest"]]) == row["largest_images"] == max(map(len, own.values()))
        assert row["coverage"] == pytest.approx(len(images) / len(named[name]))
    counted = {r["name"]: r["value"] for r in ran.json if r["record"] == "count"}
    assert counted["subsets_kept"] == len(members)
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert "pets: images in context" in page
    for row in classes.values():
        assert f'<td>{row["largest"]}</td><td class="number">{row["largest_images"]}</td>' in page
    ran = run("contexts", "graph", "pets", "-w", "w")
    assert "subsets of a class" in ran.out
    for more, said in (
        (("-o", "s.svg"), "statistics of a set are a page"),
        (("--threshold", "0.3"), "--threshold has no use with statistics"),
    ):
        ran = run("contexts", "graph", "pets", *more, "-w", "w")
        assert ran.code == 2 and said in ran.err
    (tmp_path / "w/testsets/pets/statistics.json").unlink()
    ran = run("contexts", "graph", "pets", "-w", "w")
    assert ran.code == 2 and "pets has no statistics.json: name a set" in ran.err


def test_a_class_that_is_not_there_is_refused_and_not_scored_as_all(
    run: Run, pets: TestSet
) -> None:
    base = ("contexts", "score", "pets", "-w", "w", "--json")
    ran = run(*base, "--class", "cta")
    assert ran.code == 2 and ran.out == "" and "no class named 'cta': ids look like cat" in ran.err
    ran = run(*base, "--class", "cat", "--train", "dog(bed)")
    assert ran.code == 2 and "dog(bed) trains no cat" in ran.err


def test_a_graph_is_drawn_in_three_forms(run: Run, pets: TestSet, tmp_path: Path) -> None:
    ran = run(
        "contexts", "graph", "pets", "cat", "-o", "g.html", "-o", "g.svg", "-o", "g.png",
        "--colour-by", "near", "--colour-by", "wide", "-w", "w",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    page = (tmp_path / "g.html").read_text(encoding="utf-8")
    said = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert {node["name"] for node in said["nodes"]} == {f"cat({c})" for c in CONTEXTS}
    assert [model["name"] for model in said["models"]] == ["near", "wide"]
    assert all(set(node["scores"]) == {"near", "wide"} for node in said["nodes"])
    assert "cat(" in (tmp_path / "g.svg").read_text(encoding="utf-8")
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    ran = run("contexts", "graph", "pets", "cat", "-o", "g.pdf", "-w", "w")
    assert ran.code == 2 and "--out is 'g.pdf': end it with .html" in ran.err
    ran = run("contexts", "graph", "pets", "cat", "--colour-by", "near", "-w", "w")
    assert ran.code == 2 and "--colour-by needs --out" in ran.err


@pytest.mark.browser
def test_the_page_and_the_command_agree_on_distance(
    run: Run, pets: TestSet, tmp_path: Path, browser: Any
) -> None:
    assert run("contexts", "graph", "pets", "cat", "-o", "g.html", "-w", "w").code == 0
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    try:
        page.goto((tmp_path / "g.html").as_uri())
        page.wait_for_selector("[data-ready]")
        names = page.evaluate(
            "JSON.parse(document.querySelector('#data').textContent).nodes.map((n) => n.name)"
        )
        for train, test in (
            (("bed",), ("grass",)),
            (("bed", "sofa"), ("car", "tree")),
            (("rug",), ("sofa",)),
        ):
            for words, key in ((train, "t"), (test, "e")):
                for word in words:
                    page.focus(f'.node[data-node="{names.index(f"cat({word})")}"]')
                    page.keyboard.press(key)
            shown = float(page.get_attribute("[data-split]", "data-distance"))
            ours = distance(
                read_subsets(pets),
                [f"cat({w})" for w in train],
                [f"cat({w})" for w in test],
                replicates=0,
            )
            assert shown == pytest.approx(ours.value, abs=1e-9)
            numbers = page.locator(".numbers dd").all_inner_texts()
            assert numbers[1:] == [str(ours.images_a), str(ours.images_b), str(ours.shared)]
            for words, key in ((train, "t"), (test, "e")):
                for word in words:
                    page.focus(f'.node[data-node="{names.index(f"cat({word})")}"]')
                    page.keyboard.press(key)
    finally:
        page.close()


def test_conflicts_are_drawn(tmp_path: Path) -> None:
    rows = ["step,subset,trained,score"]
    rng = np.random.default_rng(0)
    level = {"cat(bed)": 0.5, "cat(car)": 0.5}
    for step in range(9):
        seen = {name: int(rng.integers(1, 9)) if step else 0 for name in level}
        level["cat(bed)"] += 0.01 * seen["cat(bed)"] - 0.005 * seen["cat(car)"]
        level["cat(car)"] += 0.01 * seen["cat(car)"]
        rows += [f"{step},{name},{seen[name]},{level[name]}" for name in level]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    found = conflict_matrix(read_training_log(tmp_path / "log.csv"))
    figure = matrix_figure(
        found.contribution,
        found.trained,
        found.evaluated,
        title="Contribution",
        row_title="trained on",
        column_title="evaluated on",
        value_title="contribution",
    )
    write_figure(figure, tmp_path / "c.svg")
    assert "cat(bed)" in (tmp_path / "c.svg").read_text(encoding="utf-8")


def test_the_published_run_ends_in_records_and_pictures(
    run: Run, data: Path, tmp_path: Path
) -> None:
    ran = run("run", "metashift", "--set", f"data={data}", "--json", "-w", "p")
    assert ran.code == 0, ran.err
    counts = {(r["testset"], r["name"]): r["value"] for r in ran.json if r["record"] == "count"}
    sets = candidates()
    assert counts["metashift-attributes", "subsets"] == len(sets)
    assert counts["metashift-attributes", "images"] == len(set().union(*sets.values()))
    assert counts["metashift-attributes", "dog_nodes"] == 7
    drawn = {path.name for path in (tmp_path / "p/runs/reproduce-metashift").iterdir()}
    assert {"attributes-cat.svg", "attributes-cat.html", "objects-dog.json"} <= drawn
    again = run("run", "metashift", "--set", f"data={data}", "--json", "-w", "p")
    assert again.out == ran.out


@pytest.mark.shared
def test_every_published_count_is_equal(run: Run, shared_data: Path) -> None:
    ran = run("run", "metashift", "--set", f"data={shared_data / 'metashift'}", "-w", "p")
    assert ran.code == 0, ran.err
    table = ran.out.split("ours beside the published value")[1]
    rows = [line for line in table.splitlines() if "metashift-" in line]
    assert len(rows) == 36 and all(line.rstrip().endswith("yes") for line in rows)
