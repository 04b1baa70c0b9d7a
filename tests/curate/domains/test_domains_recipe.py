"""The recipe through its protocol: sets, cards, documents, pools and files as sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heldout.core.errors import LabelError, NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.curate.build import run_recipe
from heldout.curate.domains.recipe import (
    PoolFile,
    find_candidates,
    recipe,
)
from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.recipe import RecipeInput
from heldout.curate.registry import get_recipe
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.tables import membership_table, truth_table
from heldout.data.testset.testset import TestSet, load, make_pool, save
from heldout.data.testset.verify import verify
from heldout.testing.recipe_conformance import check_recipe
from tests.curate.domains.domains_examples import make_rows, pool_from, slow_select, write_rows

SMALL: dict[str, Any] = {
    "similarity": "similarity",
    "top": 300,
    "min_domain_share": 0.05,
    "min_class": 4,
    "classes": 6,
    "cap": 12,
}


def build(tmp_path: Path, source: Any, *, seed: int = 0, name: str = "set", **more: Any) -> TestSet:
    return run_recipe(
        recipe,
        source,
        folder=tmp_path / name,
        runs=tmp_path / "runs",
        parameters=DomainsParameters(**{**SMALL, **more}),
        seed=seed,
    )


@pytest.mark.parametrize(
    "parameters",
    [
        SMALL,
        {
            **SMALL,
            "domain_cap": 90,
            "exclude": ["class-1=a reason"],
            "min_class_domains": 2,
            "split": "group:uid",
            "parts": ["train=0.5", "val=0.2", "test=0.3"],
            "clusters": "uid",
        },
    ],
)
def test_the_recipe_conforms(parameters: dict[str, Any], tmp_path: Path) -> None:
    check_recipe(
        "heldout.curate.domains.recipe:recipe",
        "tests.curate.domains.domains_examples:make_sources",
        parameters=parameters,
        scratch=tmp_path / "builds",
    )


def test_it_is_known_by_name() -> None:
    assert get_recipe("domains") is recipe


def test_files_a_pool_on_disk_and_one_in_memory_give_the_same_images(tmp_path: Path) -> None:
    rows = make_rows(1, 400)
    parameters = DomainsParameters(**SMALL)
    expected, expected_steps = slow_select(rows, parameters, seed=0)
    pool = pool_from(rows)
    save(pool, tmp_path / "pools" / "candidates")
    files = write_rows(rows, tmp_path / "shards", files=3)
    place = Workspace.find(tmp_path)
    sources = {
        "memory": pool,
        "disk": find_candidates(place, "candidates", parameters),
        "files": find_candidates(place, str(files), parameters),
    }
    assert isinstance(sources["disk"], PoolFile)
    made = {name: build(tmp_path, source, name=name) for name, source in sources.items()}
    for testset in made.values():
        assert testset.image_ids.to_pylist() == expected
        told = json.loads(((testset.folder or Path()) / "selection.json").read_text())
        assert [
            (step["name"], step["rows_in"], step["rows_out"]) for step in told["steps"]
        ] == expected_steps
        assert verify(testset.folder or Path()).findings == ()
    assert made["memory"].card.content_hash == made["disk"].card.content_hash
    assert made["memory"].card.parents == made["disk"].card.parents
    kinds = {name: testset.card.columns for name, testset in made.items()}
    assert kinds["files"]["domain"].kind == "categorical"
    assert kinds["files"]["similarity"].kind == "ordered"


def test_licences_memberships_and_image_folders_come_along(tmp_path: Path) -> None:
    rows = make_rows(1, 300)
    (tmp_path / "photos").mkdir()
    plain = pool_from(rows)
    ids = plain.image_ids.to_pylist()
    pool = make_pool(
        "candidates",
        images=plain.images,
        memberships=membership_table([(image, "tag", "sea") for image in ids]),
        images_root=tmp_path / "photos",
        citation="the archive",
    )
    save(pool, tmp_path / "pools" / "candidates")
    parameters = DomainsParameters(**{**SMALL, "top": 250})
    source = find_candidates(Workspace.find(tmp_path), "candidates", parameters)
    testset = build(tmp_path, source, top=250)
    theirs = {row["image_id"]: row for row in pool.images.to_pylist()}
    for row in testset.images.to_pylist():
        for column in ("licence", "attribution", "source", "country", "uid"):
            assert row[column] == theirs[row["image_id"]][column]
    assert testset.memberships["image_id"].to_pylist() == testset.image_ids.to_pylist()
    assert testset.images_folder().resolve() == (tmp_path / "photos").resolve()
    assert testset.card.citation == "the archive"


def test_the_hash_of_files_is_that_of_their_rows_in_any_order(tmp_path: Path) -> None:
    rows = make_rows(1, 200)
    parameters = DomainsParameters(**{**SMALL, "top": 100})
    place = Workspace.find(tmp_path)
    hashes = set()
    for number, order in enumerate((rows, rows[::-1])):
        path = write_rows(order, tmp_path / f"{number}.parquet", group=11 + number)
        source = find_candidates(place, str(path), parameters)
        testset = build(tmp_path, source, top=100, name=f"set-{number}")
        before = source.content_hash
        fresh = find_candidates(place, str(path), parameters)
        build(tmp_path, fresh, top=100, name=f"set-{number}")
        assert testset.card.parents[0]["content_hash"] == before == fresh.content_hash
        hashes.add(before)
    assert len(hashes) == 1
    path = write_rows([*rows[:-1], {**rows[-1], "similarity": 9.0}], tmp_path / "2.parquet")
    changed = find_candidates(place, str(path), parameters)
    build(tmp_path, changed, top=100, name="changed")
    assert changed.content_hash not in hashes


def test_classes_may_come_from_a_truth(tmp_path: Path) -> None:
    rows = make_rows(3, 200)
    plain = pool_from(rows)
    ids, classes = plain.image_ids.to_pylist(), plain.images["class_id"].to_pylist()
    pool = make_pool(
        "labelled",
        images=plain.images.drop_columns(["class_id"]),
        truths={"original": truth_table(ids, classes)},
        label_space=LabelSpace.from_ids("some", sorted(set(classes))),
    )
    save(pool, tmp_path / "pools" / "labelled")
    parameters = DomainsParameters(cap=5)
    expected, _ = slow_select(rows, parameters, seed=0)
    for number, source in enumerate(
        (pool, find_candidates(Workspace.find(tmp_path), "labelled", parameters))
    ):
        testset = run_recipe(
            recipe,
            source,
            folder=tmp_path / f"{number}",
            runs=tmp_path / "runs",
            parameters=parameters,
        )
        assert testset.image_ids.to_pylist() == expected
        assert testset.label_space.name == "some"


def test_a_test_set_is_a_pool_too(tmp_path: Path) -> None:
    first = build(tmp_path, pool_from(make_rows(1, 400)))
    parameters = DomainsParameters(cap=3)
    source = find_candidates(Workspace.find(tmp_path), str(tmp_path / "set"), parameters)
    second = run_recipe(
        recipe, source, folder=tmp_path / "less", runs=tmp_path / "runs", parameters=parameters
    )
    assert set(second.image_ids.to_pylist()) < set(first.image_ids.to_pylist())
    assert second.card.parents[0]["content_hash"] == first.card.content_hash


def test_label_spaces(tmp_path: Path) -> None:
    rows = make_rows(1, 200)
    names = sorted({row["class_id"] for row in rows})
    wnids = ["n02084071", "n02121808", "n01503061", "n02512053", "n02958343", "n04490091"]
    known = dict(zip(names, [*wnids, "n02834778", "n04105893", "n03790512"], strict=False))
    words = [{**row, "class_id": known[row["class_id"]]} for row in rows]
    common: dict[str, Any] = {"top": 150, "min_domain_share": 0.0}
    assert build(tmp_path, pool_from(words), **common).label_space.name == "imagenet-21k"
    own = build(tmp_path, pool_from(rows), name="own", **common)
    assert own.label_space.name == "candidates-classes"
    assert set(own.label_space.ids) == set(own.truth()["class_id"].to_pylist())
    with pytest.raises(LabelError, match="is not in label space cifar-10"):
        build(tmp_path, pool_from(rows), name="other", label_space="cifar-10", **common)


def test_columns_that_are_kept(tmp_path: Path) -> None:
    rows = make_rows(1, 300)
    path = write_rows(rows, tmp_path / "rows.parquet")
    parameters = DomainsParameters(keep=("country",), split="flag:is_train", cap=4)
    source = find_candidates(Workspace.find(tmp_path), str(path), parameters)
    testset = run_recipe(
        recipe, source, folder=tmp_path / "s", runs=tmp_path / "runs", parameters=parameters
    )
    kept = set(testset.images.column_names) & {"country", "uid", "is_train", "similarity", "split"}
    assert kept == {"country", "is_train", "split"}
    flags = {row["image_id"]: row["is_train"] for row in rows}
    for row in testset.images.to_pylist():
        assert row["split"] == ("train" if flags[row["image_id"]] else "test")
    with pytest.raises(NotFound, match="no column 'colour'"):
        find_candidates(Workspace.find(tmp_path), str(path), DomainsParameters(keep=("colour",)))


def test_documents_say_what_was_done(tmp_path: Path) -> None:
    testset = build(tmp_path, pool_from(make_rows(1, 400)), exclude=("class-0=too common",))
    folder = testset.folder or Path()
    told = json.loads((folder / "selection.json").read_text())
    assert told["excluded"] == {"class-0": "too common"}
    assert [step["name"] for step in told["steps"]] == [
        "complete",
        "top",
        "domain_minimum",
        "exclusions",
        "class_minimum",
        "largest_classes",
        "cap",
    ]
    assert "class-0" not in told["classes"]
    leak = json.loads((folder / "leakage.json").read_text())
    assert leak["n"] == sum(leak["domains"].values()) == len(testset)
    (folder / "leakage.json").write_text("{}")
    assert [finding.file for finding in verify(folder).findings] == ["leakage.json"]


def test_what_is_no_pool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a pool"):
        build(tmp_path, {"pool": RecipeInput("words", "0" * 64, "text")})
    with pytest.raises(NotFound, match="no pool"):
        find_candidates(Workspace.find(tmp_path), "nowhere.parquet", DomainsParameters())
    with pytest.raises(NotFound, match="no pool 'nowhere'"):
        find_candidates(Workspace.find(tmp_path), "nowhere", DomainsParameters())


def test_repeated_ids_are_refused(tmp_path: Path) -> None:
    rows = make_rows(1, 60)
    path = write_rows([*rows, rows[0]], tmp_path / "rows.parquet")
    source = find_candidates(Workspace.find(tmp_path), str(path), DomainsParameters())
    with pytest.raises(UserError, match="repeated image ids"):
        run_recipe(
            recipe,
            source,
            folder=tmp_path / "s",
            runs=tmp_path / "runs",
            parameters=DomainsParameters(),
        )


def test_presets_ask_for_what_was_published(tmp_path: Path) -> None:
    from heldout.core.request import make
    from heldout.curate.domains.requests import PRESETS, DomainsRequest
    from heldout.data.labels.wordnet import load_built_in
    from heldout.data.published.clip_geoyfcc_exclusions import EXCLUDED_45

    for name in PRESETS:
        asked = make(DomainsRequest, {"pool": "p", "preset": name, "similarity": "s"})
        given = msgspec.structs.asdict(asked)
        assert {key: given[key] for key in PRESETS[name]} == {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in PRESETS[name].items()
        }
    space = load_built_in("imagenet-21k")
    assert all(
        reason.partition(":")[0] in space.get(class_id).names
        for class_id, reason in EXCLUDED_45.items()
    )
    with pytest.raises(UserError, match="no preset 'geo'"):
        make(DomainsRequest, {"pool": "p", "preset": "geo"})


def test_a_set_loads(tmp_path: Path) -> None:
    testset = build(tmp_path, pool_from(make_rows(1, 400)))
    assert load(tmp_path / "set").card.content_hash == testset.card.content_hash
