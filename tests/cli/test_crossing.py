"""One set of images, one store of predictions, sliced by a membership and another column at once.

Nothing that scores or reports knows where either column came from: the same commands run on a set
that a recipe built and on one that was put together by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from heldout.core.workspace import Workspace
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    load,
    make_testset,
    membership_table,
    save,
    truth_table,
)
from heldout.measure.score.slices import format_slice
from heldout.models.predictions import Predictions, PredictionStore
from tests.cli.conftest import Run

WORDS = ("sofa", "bed", "grass", "car")
CAMERAS = ("phone", "slr", "film")


def world(seed: int = 3, n: int = 240) -> list[dict[str, object]]:
    """Images with a cat or a dog, some words around it, and the camera that took them."""
    rng = np.random.default_rng(seed)
    found: list[dict[str, object]] = []
    for i in range(n):
        tags = ["cat" if rng.random() < 0.5 else "dog"]
        tags += [word for word in WORDS if rng.random() < 0.4] or ["sofa"]
        camera = None if i % 40 == 39 else CAMERAS[int(rng.integers(3))]
        found.append({"image_id": f"i{i:03d}", "tag": tags, "camera": camera})
    return found


def by_hand(images: list[dict[str, object]], folder: Path) -> TestSet:
    """The same facts, with other names for the columns, and no recipe."""
    space = LabelSpace("pets", (Class("cat"), Class("dog")))
    tags = [list(map(str, image["tag"])) for image in images]  # type: ignore[call-overload]
    ids = [str(image["image_id"]) for image in images]
    made = make_testset(
        Card(
            name="by-hand",
            label_space="pets",
            columns={
                "around": ColumnType(kind="categorical", multi=True),
                "lens": ColumnType(kind="categorical"),
            },
        ),
        images=image_table({"image_id": ids, "lens": [image["camera"] for image in images]}),
        truths={"original": truth_table(ids, [tag[0] for tag in tags])},
        label_space=space,
        memberships=membership_table(
            [(i, "around", word) for i, tag in zip(ids, tags, strict=True) for word in tag[1:]]
        ),
    )
    return save(made, folder)


def predict(testset: TestSet, truth: dict[str, str], place: Path) -> dict[str, dict[str, bool]]:
    """Two models that know cats and dogs unequally well; which images each has right."""
    space = testset.label_space
    ids = testset.image_ids.to_pylist()
    right = {}
    for model, skill in (("good", 0.9), ("poor", 0.6)):
        rng = np.random.default_rng(len(model) + 7)
        hit = {image: bool(rng.random() < skill) for image in sorted(ids)}
        other = {"cat": "dog", "dog": "cat"}
        said = [truth[i] if hit[i] else other[truth[i]] for i in ids]
        PredictionStore(Workspace.find(place).predictions).write(
            Predictions(
                model=model,
                image_ids=pa.array(ids, pa.string()),
                topk=np.array([[space.ids.index(one)] for one in said], dtype=np.int32),
                label_space=space,
            ),
            images_hash=testset.card.images_hash,
        )
        right[model] = hit
    return right


@pytest.mark.parametrize("made", ["recipe", "hand"])
def test_a_context_crossed_with_another_column(run: Run, tmp_path: Path, made: str) -> None:
    images = world()
    place = tmp_path / "w"
    if made == "recipe":
        source = tmp_path / "images.jsonl"
        source.write_text("".join(json.dumps(image) + "\n" for image in images))
        folder = place / "testsets" / "pets"
        built = run(
            "build", "contexts", "--source", "table", source, "-o", folder, "--minimum", "5",
            "--more-than", "3", "--subject", "cat", "--subject", "dog", "-w", place,
        )  # fmt: skip
        assert built.code == 0, built.err
        testset, context, column = load(folder), "subset", "camera"
    else:
        testset = by_hand(images, place / "testsets" / "by-hand")
        context, column = "around", "lens"
    truth = {str(i["image_id"]): str(i["tag"][0]) for i in images}  # type: ignore[index]
    right = predict(testset, truth, place)
    records, page = tmp_path / "s.json", tmp_path / "r.html"
    by = ["--metric", "top1", "--by", f"{context}&{column}", "--by", context, "--by", column]
    ran = run("score", "-t", testset.name, *by, "--save", records, "--json", "-w", place)
    assert ran.code == 0, ran.err
    scores = [r for r in ran.json if r["record"] == "score" and r["metric"] == "top1"]
    crossed = {(r["model"], r["slice"]): r for r in scores if "&" in r["slice"]}
    counted: Counter[str] = Counter()
    hits: Counter[tuple[str, str]] = Counter()
    for image in images:
        image_id, tags = str(image["image_id"]), list(map(str, image["tag"]))  # type: ignore[call-overload]
        for word in tags[1:]:
            value = f"{tags[0]}({word})" if made == "recipe" else word
            if image["camera"] is not None:
                name = format_slice({context: value, column: image["camera"]})
                counted[name] += 1
                for model in right:
                    hits[model, name] += right[model][image_id]
    assert {name for _, name in crossed} == set(counted)
    for (model, name), record in crossed.items():
        assert record["n"] == counted[name]
        assert record["value"] == pytest.approx(hits[model, name] / counted[name])
        assert record["low"] <= record["value"] <= record["high"]
    whole = {r["model"]: r for r in scores if r["slice"] == "all"}
    assert whole["good"]["n"] == len(images)  # every image once
    reported = run("report", records, "-o", page, "--figures", tmp_path / "f", "-w", place)
    assert reported.code == 0, reported.err
    figure = "-".join(sorted((context, column)))
    assert (tmp_path / "f" / f"slices-{testset.name}-{figure}.svg").is_file()
    html = page.read_text(encoding="utf-8")
    assert f'id="figure-slices-{testset.name}-{figure}"' in html
    assert f'id="figure-slices-{testset.name}-{context}"' in html


def test_a_membership_is_read_as_a_whole(run: Run, tmp_path: Path) -> None:
    images = world()
    place = tmp_path / "w"
    testset = by_hand(images, place / "testsets" / "by-hand")
    truth = {str(i["image_id"]): str(i["tag"][0]) for i in images}  # type: ignore[index]
    right = predict(testset, truth, place)
    records, page = tmp_path / "s.json", tmp_path / "r.html"
    ran = run(
        "score", "-t", "by-hand", "--metric", "top1", "--by", "around", "--curve", "--save",
        records, "--json", "-w", place,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    found = {(r["model"], r["name"]): r for r in ran.json if r["record"] == "summary"}
    mean = found["good", "image_mean"]
    assert mean["n"] == 240
    assert mean["value"] == pytest.approx(sum(right["good"].values()) / 240)
    assert {name for _, name in found} == {
        "image_mean", "group_mean", "class_mean", "worst_value",
    } - ({"class_mean"} if ("good", "class_mean") not in found else set())  # fmt: skip
    assert run("report", records, "-o", page, "-w", place).code == 0
    html = page.read_text(encoding="utf-8")
    assert "mean over values" in html
