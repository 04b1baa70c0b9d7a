"""``build domains``, and the lists of CLIP-GeoYFCC, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heldout.curate.domains.requests import DomainsParameters
from heldout.data.testset import load
from tests.cli.conftest import Ran, Run
from tests.curate.domains.domains_examples import make_rows, slow_select, write_rows

SIZES = {"n04334599": 700, "n04157320": 500, "n09217230": 300, "n04407435": 120, "n03451798": 40}
"""Images of each class among the best; known counts of every step follow from these."""


def known_table(seed: int) -> pa.Table:
    """2,000 rows: 1,660 with similarities above 0.5, and 340 that ``--top`` cuts.

    Every class has 2 % of its best images in Oceania, which is too little to stay.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, str, str, float]] = []
    for wnid, size in SIZES.items():
        for number in range(size):
            far = number < size // 50
            place = "Oceania" if far else ("Africa", "Asia", "Europe")[number % 3]
            similarity = 0.5 + 0.4 * rng.random()
            rows.append((f"{wnid}-{number}", wnid, place, similarity))
    rows += [(f"cut-{n}", "n04334599", "Asia", 0.4 * rng.random()) for n in range(340)]
    order = rng.permutation(len(rows))
    columns = list(zip(*(rows[place] for place in order), strict=True))
    return pa.table(
        dict(zip(("image_id", "class_id", "continent", "similarity"), columns, strict=True))
    )


def counts(ran: Ran) -> dict[str, int]:
    assert ran.code == 0, ran.err
    return {r["name"]: r["value"] for r in ran.json if r["record"] == "count"}


ASKED: list[Any] = ["--similarity-column", "similarity", "--domain", "continent", "--top", 1660]
ASKED += [
    "--min-domain-share",
    0.04,
    "--min-class",
    100,
    "--max-classes",
    3,
    "--class-cap",
    400,
    "--seed",
    0,
]


def test_every_step_has_the_counts_that_are_known(run: Run, tmp_path: Path) -> None:
    pq.write_table(known_table(0), tmp_path / "rows.parquet")
    ran = run("build", "domains", "rows.parquet", *ASKED, "-o", "out", "--json")
    found = counts(ran)
    here = {wnid: size - size // 50 for wnid, size in SIZES.items()}
    large = {wnid: size for wnid, size in here.items() if size >= 100}
    three = sorted(large.values(), reverse=True)[:3]
    expected = {
        "rows": 2000,
        "images": 1094,
        "classes": 3,
        "domains": 3,
        "smallest_class": 294,
        "largest_class": 686,
    }
    assert {name: found[name] for name in expected} == expected
    steps = {r["name"]: r for r in ran.json if r["record"] == "step"}
    left = ("rows_out", "classes_out", "domains_out")
    assert {name: tuple(step[what] for what in left) for name, step in steps.items()} == {
        "complete": (2000, None, None),
        "top": (1660, 5, 4),
        "domain_minimum": (sum(here.values()), 5, 3),
        "class_minimum": (sum(large.values()), 4, 3),
        "largest_classes": (sum(three), 3, 3),
        "cap": (400 + 400 + 294, 3, 3),
    }
    assert steps["cap"]["details"]["at_cap"] == 2
    testset = load(tmp_path / "out")
    assert len(testset) == 1094
    assert testset.card.counts["top"] == 1660
    assert testset.label_space.name == "imagenet-21k"
    assert "domains under 67 rows are left out: Oceania (32)" in ran.err


def test_shards_and_order_give_the_same_rows_and_smaller_requests_subsets(
    run: Run, tmp_path: Path
) -> None:
    table = known_table(0)
    pq.write_table(table, tmp_path / "rows.parquet")
    shuffled = table.take(np.random.default_rng(5).permutation(len(table)))
    (tmp_path / "cut").mkdir()
    for number in range(4):
        pq.write_table(
            shuffled.slice(500 * number, 500),
            tmp_path / "cut" / f"{number}.parquet",
            row_group_size=99,
        )
    images = {}
    for pool, name, more in (
        ("rows.parquet", "whole", []),
        ("cut", "shards", ["--workers", 3]),
        ("cut", "less", ["--class-cap", 50]),
        ("cut", "fewer", ["--max-classes", 2]),
    ):
        ran = run("build", "domains", pool, *ASKED, *more, "-o", name, "--json")
        assert ran.code == 0, ran.err
        images[name] = load(tmp_path / name)
    ids = {name: set(testset.image_ids.to_pylist()) for name, testset in images.items()}
    assert images["whole"].images.equals(images["shards"].images)
    assert images["whole"].card.content_hash == images["shards"].card.content_hash
    parents = [images[name].card.parents[0]["content_hash"] for name in ("whole", "shards")]
    assert parents[0] == parents[1]
    assert ids["less"] < ids["whole"]
    assert ids["fewer"] < ids["whole"]
    again = run("build", "domains", "cut", *ASKED, "-o", "whole", "--json")
    assert again.code == 0
    other = run("build", "domains", "cut", *ASKED, "--class-cap", 7, "-o", "whole")
    assert other.code == 2
    assert "holds another test set" in other.err


def test_a_plan_counts_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    pq.write_table(known_table(0), tmp_path / "rows.parquet")
    planned = run("build", "domains", "rows.parquet", *ASKED, "--plan", "--json")
    assert counts(planned)["images"] == 1094
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet"]
    shown = run("build", "domains", "rows.parquet", *ASKED, "--plan")
    assert "largest classes" in shown.out
    assert "1,094" in shown.out


def test_flags_win_over_presets_and_reasons_are_kept(run: Run, tmp_path: Path) -> None:
    pq.write_table(known_table(0), tmp_path / "rows.parquet")
    ran = run(
        *("build", "domains", "rows.parquet", "--preset", "clip-geoyfcc-45"),
        *("--similarity-column", "similarity", "--top", 1660, "--min-class", 20, "--class-cap", 30),
        *(
            "--exclude-class",
            "n04334599=streets are everywhere",
            "--exclude-class",
            "n04157320=art",
            "-o",
            "set",
            "--json",
        ),
    )
    assert counts(ran)["classes"] == 3
    assert "3 classes are left of 45 asked for" in ran.err
    told = json.loads((tmp_path / "set" / "selection.json").read_text())
    assert told["excluded"] == {"n04157320": "art", "n04334599": "streets are everywhere"}


def test_all_options_at_once_equal_the_oracle(run: Run, tmp_path: Path) -> None:
    rows = make_rows(2, 500, missing=0.02)
    write_rows(rows, tmp_path / "rows", files=3)
    parameters = DomainsParameters(
        similarity="similarity",
        top=350,
        min_domain=20,
        domain_cap=100,
        exclude=("class-1=why",),
        min_class_domains=2,
        min_class=5,
        classes=6,
        cap=9,
    )
    expected, _ = slow_select(rows, parameters, seed=4)
    ran = run(
        *("build", "domains", "rows", "--similarity-column", "similarity", "--top", 350),
        *("--min-domain", 20, "--domain-cap", 100, "--exclude-class", "class-1=why"),
        *("--min-class-domains", 2, "--min-class", 5),
        *("--max-classes", 6, "--class-cap", 9, "--seed", 4, "--split-by", "group:uid"),
        *("--part", "a=0.5", "--part", "b=0.5", "--cluster-column", "uid", "--name", "mine"),
    )
    assert ran.code == 0, ran.err
    testset = load(tmp_path / "testsets" / "mine")
    assert testset.image_ids.to_pylist() == expected
    assert testset.card.clusters == "uid"
    assert set(testset.images["split"].to_pylist()) == {"a", "b"}
    assert "bits of the domain" in ran.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--top", 9999], "--top 9,999 of 2,000 rows"),
        (["--similarity-column", "score"], "has no column 'score'"),
        (["--domain", "country"], "has no column 'country'"),
        (["--class-column", "label"], "has no column 'label'"),
        (["--min-domain-share", 0.9], "no domain has 1,494 of 1,660 rows"),
        (["--min-class", 5000], "no class is left after the rule 'class_minimum'"),
        (["--class-cap", 0], "--class-cap is '0': give a whole number >= 1"),
        (["--min-domain-share", 4], "--min-domain-share is '4': give a number <= 1"),
        (["--exclude-class", "n04334599"], "has no reason"),
        (["--preset", "nothing"], "no preset 'nothing'"),
        (["--split-by", "group:owner"], "no column 'owner' to split by"),
        (["--part", "train=1"], "--part needs --split-by"),
        (["--cluster-column", "owner"], "no column 'owner' of clusters"),
        (["--label-space", "cifar-10"], "is not in label space cifar-10"),
    ],
)
def test_errors_are_one_line_with_the_fix(
    run: Run, tmp_path: Path, more: list[object], message: str
) -> None:
    pq.write_table(known_table(0), tmp_path / "rows.parquet")
    ran = run("build", "domains", "rows.parquet", *ASKED, "-o", "out", *more)
    assert ran.code == 2
    assert message in ran.err
    assert not (tmp_path / "out").exists()


def test_a_pool_that_is_not_there(run: Run) -> None:
    ran = run("build", "domains", "nowhere.parquet", *ASKED)
    assert ran.code == 2 and "no pool nowhere.parquet" in ran.err


@pytest.mark.shared
def test_released_lists_are_counted(run: Run, shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "geoyfcc"
    asked = ["import", "testset", folder / "350_sample_indices.npy", folder / "350_label_wnids.csv"]
    found = counts(run(*asked, "--format", "clip-geoyfcc", "--cap", 2000, "--plan", "--json"))
    assert found["rows"] == 338_730
    assert found["classes"] == 350
    assert found["at_cap"] == 37
    assert found["smallest_class"] == 476
    assert not list(tmp_path.iterdir())


@pytest.mark.shared
def test_reproduce_prints_ours_beside_the_published(run: Run, shared_data: Path) -> None:
    ran = run("run", "clip-geoyfcc", "--set", f"data={shared_data / 'geoyfcc'}")
    assert ran.code == 0, ran.err
    lines = [line for line in ran.out.splitlines() if line.rstrip().endswith(("yes", "no"))]
    assert len(lines) == 8
    assert all(line.rstrip().endswith("yes") for line in lines)


def test_a_small_list_becomes_a_set_with_ids_of_the_frame(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    drawn, rising = rng.permutation(100)[:50], np.sort(rng.permutation(100)[:30] + 100)
    np.save(tmp_path / "i.npy", np.concatenate([drawn, rising]))
    (tmp_path / "c.csv").write_text("wnid\nn04334599\nn04157320\n")
    frame = pa.table({"file_name": [f"k{i}" for i in range(200)], "country": ["a", "b"] * 100})
    pq.write_table(frame, tmp_path / "frame.parquet")
    asked = ["import", "testset", "i.npy", "c.csv", "--format", "clip-geoyfcc", "--cap", 50]
    ran = run(*asked, "--frame", "frame.parquet", "--keep-column", "country", "--name", "s")
    assert ran.code == 0, ran.err
    testset = load(tmp_path / "testsets" / "s")
    assert set(testset.image_ids.to_pylist()) == {f"k{i}" for i in (*drawn, *rising)}
    assert set(testset.images["country"].to_pylist()) == {"a", "b"}
    missing = run(*asked, "--frame", "frame.parquet", "--id-column", "x", "--name", "t")
    assert missing.code == 2
    assert "has no column 'x'" in missing.err
    for more, told in (
        (["--keep-column", "country"], "--keep-column needs --frame"),
        (["--several"], "--several has no use with --format clip-geoyfcc"),
    ):
        refused = run(*asked, *more)
        assert refused.code == 2 and told in refused.err
    assert run("import", "testset", "i.npy", "--format", "clip-geoyfcc").code == 2


def test_results_are_read_by_domain_class_and_similarity(run: Run, tmp_path: Path) -> None:
    """Columns of the set cross in ordinary scores and the ordinary report."""
    pq.write_table(known_table(0), tmp_path / "rows.parquet")
    flags = ["--similarity-column", "similarity", "--domain", "continent", "--class-cap", 60]
    flags += ["--label-space", "space.json", "--name", "places"]
    space = {
        "schema_version": 1,
        "name": "things",
        "classes": [{"id": wnid, "names": [wnid]} for wnid in SIZES],
    }
    (tmp_path / "space.json").write_text(json.dumps(space))
    assert run("build", "domains", "rows.parquet", *flags).code == 0
    testset = load(tmp_path / "testsets" / "places")
    rng = np.random.default_rng(0)
    truth = np.array([list(SIZES).index(c) for c in testset.truth()["class_id"].to_pylist()])
    wrong = rng.random(len(truth)) < 0.3
    top = (truth + np.where(wrong, 1, 0)) % 5
    np.save(tmp_path / "some-model.npy", np.stack([top, (top + 1) % 5], axis=1).astype(np.int16))
    imported = run("import", "predictions", "some-model.npy", "-t", "places")
    assert imported.code == 0, imported.err
    by = "continent&class&similarity@0.5,0.7"
    asked = ["-t", "places", "--metric", "top1", "--by", by]
    ran = run("score", *asked, "--json", "--save", "scores.json")
    assert ran.code == 0, ran.err
    slices = {r["slice"]: r for r in ran.json if r["record"] == "score" and r["slice"] != "all"}
    rows = testset.images.to_pylist()
    label = dict(zip(testset.image_ids.to_pylist(), truth.tolist(), strict=True))
    right = dict(zip(testset.image_ids.to_pylist(), (~wrong).tolist(), strict=True))
    for wnid in SIZES:
        for place in ("Africa", "Asia", "Europe"):
            mine = [
                right[row["image_id"]]
                for row in rows
                if row["continent"] == place
                and list(SIZES)[label[row["image_id"]]] == wnid
                and 0.5 <= row["similarity"] < 0.7
            ]
            record = slices[f"class={wnid}&continent={place}&similarity=0.5:0.7"]
            assert record["n"] == len(mine)
            assert record["value"] == pytest.approx(sum(mine) / len(mine))
    assert run("report", "scores.json", "-o", "report.html").code == 0
    assert "continent" in (tmp_path / "report.html").read_text()
