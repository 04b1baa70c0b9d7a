from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mlcroissant
import pytest

from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.data.testset.exporters.formats import export

# what mlcroissant calls of rdflib and pandas is on its way out there; that is not our concern
pytestmark = [
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated"),
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame"),
]


def validated(folder: Path) -> Any:
    """The dataset as mlcroissant reads it; it raises when its validation finds an error."""
    dataset = mlcroissant.Dataset(jsonld=folder / "croissant.json")
    issues = dataset.metadata.ctx.issues
    assert not issues.errors
    return dataset


def described(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    return value


def test_passes_validation_and_gives_the_records(tmp_path: Path, pets: TestSet) -> None:
    out = tmp_path / "out"
    assert export(pets, out, form="croissant").rows == 6
    dataset = validated(out)
    records = list(dataset.records("images"))
    assert [r["images/image_id"].decode() for r in records] == pets.image_ids.to_pylist()
    assert [r["images/class_id"].decode() for r in records] == (
        pets.truth()["class_id"].to_pylist()
    )
    assert [r["images/level"] for r in records] == [1, 2, 3, 4, 5, 6]
    classes = list(dataset.records("classes"))
    assert [(c["classes/index"], c["classes/class_id"], c["classes/name"]) for c in classes] == [
        (n, item.id, item.name) for n, item in enumerate(pets.label_space)
    ]


def test_no_recommended_field_is_missing_that_we_can_know(tmp_path: Path, pets: TestSet) -> None:
    export(pets, tmp_path / "out", form="croissant")
    warnings = list(validated(tmp_path / "out").metadata.ctx.issues.warnings)
    assert len(warnings) == 1 and "datePublished" in warnings[0]


def test_licences_are_those_of_the_images(tmp_path: Path, pets: TestSet) -> None:
    bare = make_testset(
        Card(name="bare", label_space="pets"),
        images=image_table({"image_id": ["i1"]}),
        truths={"original": truth_table(["i1"], ["cat"])},
        label_space=pets.label_space,
    )
    for testset, licences in ((pets, {"CC0", "CC-BY-4.0", "CC-BY-NC-2.0"}), (bare, {"unknown"})):
        export(testset, tmp_path / testset.name, form="croissant")
        assert set(described(tmp_path / testset.name)["license"]) == licences


def test_files_have_their_hashes(tmp_path: Path, photos: TestSet) -> None:
    out = tmp_path / "out"
    export(photos, out, form="croissant")
    for item in described(out)["distribution"]:
        data = (out / item["contentUrl"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == item["sha256"]
        assert item["contentSize"] == f"{len(data)} B"


def test_label_space_is_an_enumeration_that_images_refer_to(tmp_path: Path, pets: TestSet) -> None:
    export(pets, tmp_path / "out", form="croissant")
    classes, images = described(tmp_path / "out")["recordSet"]
    assert classes["dataType"] == "sc:Enumeration"
    assert classes["key"] == {"@id": "classes/class_id"}
    fields = {field["name"]: field for field in images["field"]}
    assert fields["class_id"]["references"] == {"field": {"@id": "classes/class_id"}}
    assert fields["context"]["repeated"] is True
    assert {name: field["dataType"] for name, field in fields.items()} == {
        "image_id": "sc:Text",
        "class_id": "sc:Text",
        "source": "sc:Text",
        "licence": "sc:Text",
        "attribution": "sc:Text",
        "domain": "sc:Text",
        "size": "sc:Float",
        "level": "sc:Integer",
        "context": "sc:Text",
    }


@pytest.mark.shared
def test_imagenetv2_passes_validation(tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "imagenetv2"
    made = read_imagenetv2(
        folder / "datasets" / "imagenetv2-b-33.json",
        review=folder / "reviews" / "imagenetv2-b-33_review.json",
    )
    export(made, tmp_path / "out", form="croissant")
    records = list(validated(tmp_path / "out").records("images"))
    assert len(records) == 10_000
    assert len(described(tmp_path / "out")["recordSet"][0]["data"]) == 1000
