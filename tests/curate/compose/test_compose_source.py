"""A configuration as a test set: the same images, tables and predictions as a build's."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from heldout import evaluate
from heldout.core.errors import NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.curate.compose import streamed_testset
from heldout.curate.compose.build import build_compose, gather, plan_set
from heldout.curate.compose.requests import load_request
from heldout.curate.compose.streamed_testset import ComposeSource
from heldout.data.images import read_image
from heldout.data.testset import TestSet, find_testset
from heldout.data.testset.catalogue import opener_of
from heldout.data.testset.exporters.formats import export
from heldout.models.predictions import PredictionStore
from heldout.models.predictions.run_models import predict
from heldout.testing.model import FakeModel
from tests.curate.compose import compose_examples as examples

CONFIG = """foregrounds = "f"
backgrounds = "b"
resolution = 48
min-inside = 0.3
[factors]
x = [0.1, 0.5]
size = [0.1, 0.5]
"""


@pytest.fixture
def config(folder: Path) -> Path:
    path = folder / "set.toml"
    path.write_text(CONFIG)
    return path


def built(config: Path) -> TestSet:
    place, runs = config.parent / "set", config.parent / "runs"
    return build_compose(load_request(config), place, runs=runs, workers=1).testset


def test_a_configuration_is_the_set_that_a_build_writes(config: Path) -> None:
    workspace = Workspace(config.parent / "w")
    streamed = find_testset(workspace, f"compose:{config}")
    filed = built(config)
    assert streamed.card.images_hash == filed.card.images_hash
    assert streamed.card.content_hash == filed.card.content_hash
    assert streamed.card.columns == filed.card.columns
    assert streamed.card.factors == filed.card.factors == ("x", "size")
    assert streamed.source is not None and streamed.folder is None
    for row in filed.images.to_pylist():
        data = (config.parent / "set" / "images" / row["path"]).read_bytes()
        assert read_image(streamed.source, row["image_id"]) == data
    assert list(streamed.source.ids()) == filed.image_ids.to_pylist()
    assert not list(workspace.root.rglob("*.jpg"))


def test_images_that_were_not_kept_are_rendered_again(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = load_request(config)
    sources, _ = gather(request)
    plan = plan_set(sources, request, seed=0)
    kept = ComposeSource(plan)
    kept.facts(config.parent / "runs")
    monkeypatch.setattr(streamed_testset, "MEMORY", 0)
    fresh = pickle.loads(pickle.dumps(ComposeSource(plan)))
    for name in reversed(kept.ids()):
        assert read_image(fresh, name) == read_image(kept, name)
    with pytest.raises(NotFound):
        fresh.open("bagel/999999")


def test_streamed_and_filed_predictions_are_identical(config: Path) -> None:
    model = FakeModel("fake")
    filed = built(config)
    outputs = []
    for name, testset in (
        ("streamed", find_testset(Workspace(config.parent / "w"), f"compose:{config}")),
        ("filed", filed),
    ):
        place = Workspace(config.parent / name)
        (run,) = predict(testset, [model], workspace=place)
        outputs.append(PredictionStore(place.predictions).read(run))
    first, second = outputs
    assert first.image_ids.to_pylist() == second.image_ids.to_pylist()
    assert not first.failures and not second.failures
    assert np.array_equal(first.topk, second.topk)
    assert np.array_equal(first.logits, second.logits)


def test_png_is_recorded_and_gives_other_images(config: Path) -> None:
    lossy = find_testset(Workspace(config.parent), f"compose:{config}")
    config.write_text('format = "png"\n' + CONFIG)
    exact = find_testset(Workspace(config.parent), f"compose:{config}")
    assert exact.card.images_hash != lossy.card.images_hash
    assert exact.card.recipe["parameters"]["format"] == "png"
    assert exact.source is not None
    assert read_image(exact.source, exact.source.ids()[0]).startswith(b"\x89PNG")


def test_a_changed_file_or_input_is_another_set(config: Path) -> None:
    workspace = Workspace(config.parent)
    first = find_testset(workspace, f"compose:{config}")
    assert find_testset(workspace, f"compose:{config}") is first
    examples.save(examples.cutout(50, 40, 99), config.parent / "f" / "bagel" / "b2.png")
    second = find_testset(workspace, f"compose:{config}")
    assert second.card.images_hash != first.card.images_hash


def test_a_streamed_set_can_be_exported(config: Path) -> None:
    streamed = find_testset(Workspace(config.parent), f"compose:{config}")
    made = export(streamed, config.parent / "out", form="folders", allow_licence=True)
    assert made.copied == len(streamed) and not made.failures


def test_specs() -> None:
    assert opener_of("compose:x.toml") is not None
    for name in ("compose", "compose:", "other:x", "imagenetv2-b-33", "C:/sets/a"):
        assert opener_of(name) is None
    with pytest.raises(UserError, match=r"no file at nowhere\.toml"):
        find_testset(Workspace(Path()), "compose:nowhere.toml")


@pytest.mark.shared
def test_small_objects_are_harder_for_a_real_model(tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "siscore"
    config = tmp_path / "size.toml"
    config.write_text(
        f'foregrounds = "{folder}/foreground_samples"\n'
        f'backgrounds = "{folder}/background_samples"\n'
        'preset = "size"\nfactors.size = [0.01, 0.03, 0.05, 0.5]\n'
    )
    results = evaluate(
        "lite0",
        f"compose:{config}",
        metrics=["top1"],
        replicates=100,
        workspace=tmp_path,
    )
    found = {score.slice: score for score in results.scores}
    small = [found[f"size={area}"].value for area in ("0.01", "0.03", "0.05")]
    assert max(small) < found["size=0.5"].value
