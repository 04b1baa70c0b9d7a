"""From folders of domains and classes to a report by domain, class and similarity, on PACS."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.data.labels import LabelSpace
from heldout.data.labels.wordnet import Hierarchy
from heldout.data.testset import load
from heldout.models.predictions import PredictionStore
from tests.cli.conftest import Run

NODES = {
    "dog": "n02084071",
    "elephant": "n02503517",
    "giraffe": "n02439033",
    "guitar": "n03467517",
    "horse": "n02374451",
    "house": "n03544360",
    "person": "n00007846",
}
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
EACH = 3
MODELS = ("lite0", "lite1", "lite2")
BY = "domain&class&similarity_cosine@0.45,0.6"
pytestmark = pytest.mark.shared


@pytest.fixture
def place(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few images of each class and domain, and a label space that knows their WordNet nodes."""
    for domain in DOMAINS:
        for name in NODES:
            folder = tmp_path / "pacs" / domain / name
            folder.mkdir(parents=True)
            for file in sorted((shared_data / "pacs" / domain / name).iterdir())[:EACH]:
                shutil.copy(file, folder)
    classes = [{"id": name, "wnid": node, "names": [name]} for name, node in NODES.items()]
    space = {"schema_version": 1, "kind": "label_space", "name": "pacs", "classes": classes}
    (tmp_path / "pacs.json").write_text(json.dumps(space))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def records(run: Run, *words: object) -> list[dict[str, Any]]:
    ran = run(*words, "--json")
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = ran.json
    return found


def test_predictions_by_domain_class_and_similarity(run: Run, place: Path) -> None:
    read = ("import", "testset", "pacs", "--classes", "pacs.json", "--folder-column", "domain")
    assert run(*read, "--name", "folders").code == 0
    records(run, "annotate", "folders", "-e", "conse", "--classes", "own", "-o", "near")
    asked: list[object] = ["build", "domains", "near", "--class-column", "truth:original"]
    asked += ["--similarity-column", "similarity_cosine", "--top", 80, "--min-domain-share", 0.1]
    asked += ["--min-class", 4, "--class-cap", 11, "--label-space", "chosen", "-o", "six"]

    whole = records(run, *asked, "--name", "seven", "-o", "seven")
    assert {r["name"]: r["value"] for r in whole if r["record"] == "count"}["classes"] == 7
    by_node: tuple[str, ...] = ("--label-map", "hierarchy:restricted")
    refused = run("eval", "-m", "lite0", "-t", "seven", *by_node)
    assert refused.code == 2
    assert "no class of imagenet-1k is accepted for giraffe" in refused.err

    reason = "giraffe=no class of ImageNet-1k is a giraffe"
    ran = run(*asked, "--exclude-class", reason, "--json")
    assert ran.code == 0, ran.err
    testset = load(place / "six")
    assert testset.label_space.ids == tuple(name for name in NODES if name != "giraffe")
    assert "pool_class_id" in testset.card.columns  # what the encoder says is kept beside the truth

    models = [word for model in MODELS for word in ("-m", model)]
    found = records(
        run, "eval", *models, "-t", "six", *by_node, "--by", "domain", "--by", BY, "-o", "r.html"
    )
    cells = {
        (r["model"], r["slice"]): (r["n"], r["value"])
        for r in found
        if r["record"] == "score" and (r["metric"], r["statistic"]) == ("top1", "value")
    }
    assert cells == expected(place)
    assert not any(r["record"] == "note" for r in found)
    page = (place / "r.html").read_text()
    assert "similarity_cosine" in page
    assert "no better than guessing" not in page


def expected(place: Path) -> dict[tuple[str, str], tuple[int, float]]:
    """Accuracies of all slices from stored logits, the slow way."""
    testset = load(place / "six")
    imagenet, tree = LabelSpace.load("imagenet-1k"), Hierarchy.wordnet()
    below = {name: tree.distances_down(NODES[name]) for name in testset.label_space.ids}
    target = {
        place: next((name for name in below if item.node in below[name]), None)
        for place, item in enumerate(imagenet)
    }
    truth = dict(
        zip(
            testset.truth()["image_id"].to_pylist(),
            testset.truth()["class_id"].to_pylist(),
            strict=True,
        )
    )
    rows = {row["image_id"]: row for row in testset.images.to_pylist()}
    hits: dict[tuple[str, str], list[bool]] = defaultdict(list)
    store = PredictionStore(Workspace.find(place).predictions)
    for stored in store.runs(testset.card.images_hash):
        read = store.read(stored)
        assert read.logits is not None
        for image, logits in zip(read.image_ids.to_pylist(), read.logits, strict=True):
            best = next(
                target[index] for index in np.argsort(-logits, kind="stable") if target[index]
            )
            row = rows[image]
            near = row["similarity_cosine"]
            bin_ = ":0.45" if near < 0.45 else "0.45:0.6" if near < 0.6 else "0.6:"
            names = (
                "all",
                f"domain={row['domain']}",
                f"class={truth[image]}&domain={row['domain']}&similarity_cosine={bin_}",
            )
            for name in names:
                hits[read.model, name].append(best == truth[image])
    return {key: (len(found), sum(found) / len(found)) for key, found in hits.items()}
