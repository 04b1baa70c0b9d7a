"""From a pool and votes to replicated sets, their revisions and their inspection, at the command line."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.data.judgements.neighbours import Neighbours, search_folder, write_neighbours
from heldout.data.testset import Card, TestSet, load, make_testset, save
from tests.cli.conftest import Ran, Run, write
from tests.cli.test_bad_input import refused
from tests.curate.replicate.replicate_examples import SPACE, make_images, search_within

PEOPLE = 6
Votes = dict[tuple[str, str], tuple[int, int]]


@pytest.fixture
def votes(tmp_path: Path, run: Run) -> Votes:
    """A pool and an original set in the workspace, and votes on their images.

    Gives (image, class) -> (selected, votes), as a plain loop counts them.
    """
    rng = np.random.default_rng(8)
    pool = make_images("pool", 150, "p")
    original = make_images("val", 60, "v")
    save(pool, tmp_path / "pools" / "pool")
    testset = make_testset(
        Card(name="val", label_space="letters"),
        images=original.images,
        truths=original.truths,
        label_space=SPACE,
    )
    save(testset, tmp_path / "testsets" / "val")
    counted: Votes = {}
    with Path("votes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["question", "image_id", "class_id", "answer", "who", "testset", "evidence"]
        )
        for name, images in (("pool", pool), ("val", original)):
            for place, image in enumerate(images.image_ids.to_pylist()):
                label, chance = SPACE.ids[place % 3], rng.beta(3, 1)
                # Original images are controls of the pool's grids.
                people = 0 if place == 149 else PEOPLE - (place % 50 == 49)
                for person in range(people):
                    status = "Rejected" if rng.random() < 0.02 else "Approved"
                    chosen = bool(rng.random() < chance)
                    writer.writerow(
                        ["vote", image, label, "selected" if chosen else "not-selected",
                         f"w{person}", "pool" if name == "val" else name,
                         json.dumps({"grid": f"g{place // 48}", "status": status})]
                    )  # fmt: skip
                    if status == "Approved":
                        selected, n = counted.get((image, label), (0, 0))
                        counted[image, label] = selected + chosen, n + 1
    assert run("import", "judgements", "votes.csv").code == 0
    return counted


def classes(testset: TestSet) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in testset.truth().to_pylist():
        found.setdefault(row["class_id"], []).append(row["image_id"])
    return found


def count(ran: Ran) -> dict[str, int]:
    return {r["name"]: r["value"] for r in ran.json if r["record"] == "count"}


def test_three_sets_of_one_pool(run: Run, votes: Votes, tmp_path: Path) -> None:
    build = ("build", "replicate", "pool", "--votes", 5, "--seed", 2, "--json")
    share = {key: selected / n for key, (selected, n) in votes.items()}
    enough = {key for key, (_, n) in votes.items() if n >= 5}

    plan = run(*build, "--plan")
    ran = run(*build)
    assert ran.code == 0, ran.err
    for name in ("eligible", "images", "classes", "with_votes"):
        assert count(plan)[name] == count(ran)[name]
    found = classes(load(tmp_path / "testsets" / "pool-threshold"))
    assert {label: len(images) for label, images in found.items()} == dict.fromkeys("abc", 10)
    assert all(share[i, c] >= 0.7 for c, images in found.items() for i in images)

    ran = run(*build, "--sampler", "matched", "--like", "val")
    assert ran.code == 0, ran.err
    bins = [r for r in ran.json if r["record"] == "bin draw"]
    found = classes(load(tmp_path / "testsets" / "pool-matched"))
    for label, images in found.items():
        like = [share[i, c] for i, c in enough if c == label and i.startswith("v")]
        mine = [r for r in bins if r["class_id"] == label]
        for place, one in enumerate(mine):
            inside = [low_high(place, f) for f in like]
            assert one["originals"] == sum(inside)
            drawn = sum(low_high(place, share[i, label]) for i in images)
            assert drawn == one["images"] <= one["target"]
        assert sum(one["target"] for one in mine) == 10

    ran = run(*build, "--sampler", "top", "--per-class", 7)
    assert ran.code == 0, ran.err
    found = classes(load(tmp_path / "testsets" / "pool-top"))
    for label, images in found.items():
        merit = {
            i: (share[i, c], votes[i, c][1], i) for i, c in enough if c == label and i[0] == "p"
        }
        assert set(images) == set(sorted(merit, key=merit.__getitem__)[-7:])

    for name in ("threshold", "matched", "top"):
        assert run("verify", f"pool-{name}").code == 0
        again = json.loads((tmp_path / f"testsets/pool-{name}/revision.json").read_text())
        assert Counter(c for _, c in again["image_filenames"]).keys() == set("abc")
    assert run("import", "testset", "testsets/pool-top/revision.json", "--classes",
               "testsets/pool-top/label_space.json", "--name", "listed").code == 0  # fmt: skip
    changed = run("diff", "pool-top", "listed", "--json").json[0]
    assert changed["counts"]["in_both"] == 21 and changed["classes"] == []


def test_settled_images_do_not_have_too_few_votes(run: Run, votes: Votes, tmp_path: Path) -> None:
    write(Path("rules.json"), {"a": "threshold=0.7", "b": "threshold=0.7", "c": "no=9"})
    ran = run("build", "replicate", "pool", "--per-class", 99, "--stop", "rules.json", "--json")
    assert ran.code == 0, ran.err
    # Six people: five selections are enough, and two people who do not select an image.
    decided = {
        (image, label)
        for (image, label), (selected, n) in votes.items()
        if image[0] == "p" and (n >= 6 or (label != "c" and (selected >= 5 or n - selected >= 2)))
    }
    assert any(votes[row][1] < 6 for row in decided)
    assert count(ran)["with_votes"] == len(decided)
    made = load(tmp_path / "testsets" / "pool-threshold")
    drawn = {(image, label) for label, images in classes(made).items() for image in images}
    assert drawn == {row for row in decided if votes[row][0] / votes[row][1] >= 0.7}
    assert json.loads(made.card.recipe["parameters"]["stop"])["c"] == "no=9"


def low_high(place: int, frequency: float) -> bool:
    low, high = ((0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 2))[place]
    return low <= frequency < high


def test_the_next_revision_and_its_reviews(run: Run, votes: Votes, tmp_path: Path) -> None:
    build = ("build", "replicate", "pool", "--votes", 5)
    assert run(*build, "--name", "new-0").code == 0
    first = classes(load(tmp_path / "testsets" / "new-0"))
    reviews = {
        "a": {"reviewed": True, "problematic": False},
        "b": {"reviewed": True, "problematic": False},
        "c": {"reviewed": True, "problematic": True},
    }
    assert run("import", "judgements", write(Path("new-0_review.json"), reviews)).code == 0
    refused_image = first["b"][0]
    write(Path("blacklist.json"), {refused_image: "a drawing"})
    assert run("import", "judgements", "blacklist.json").code == 0
    ran = run(*build, "--previous", "new-0", "--name", "new-1", "--seed", 9)
    assert ran.code == 0 and "29 of 30 images of new-0.json stay" in ran.err
    second = classes(load(tmp_path / "testsets" / "new-1"))
    assert second["a"] == first["a"] and second["c"] == first["c"]
    assert set(first["b"]) - set(second["b"]) == {refused_image} and len(second["b"]) == 10
    marks = json.loads((tmp_path / "testsets/new-1/review.json").read_text())
    assert {label: mark["reviewed"] for label, mark in marks.items()} == {
        "a": True,
        "b": False,
        "c": False,
    }
    ran = run("diff", "new-0", "new-1", "--json")
    assert ran.code == 0
    assert {k: ran.json[1][k] for k in ("carried", "problematic", "changed", "lost")} == {
        "carried": 1,
        "problematic": 1,
        "changed": 1,
        "lost": [],
    }
    assert [c["class_id"] for c in ran.json[0]["classes"]] == ["b"]
    refused(run("diff", "new-0", "new-1", "--reviews", "."), "--reviews has no use")
    # A published file of the same images does as well, without its reviews.
    file = tmp_path / "testsets" / "new-0" / "revision.json"
    ran = run(*build, "--previous", file, "--name", "new-2", "--seed", 9)
    assert ran.code == 0, ran.err
    assert classes(load(tmp_path / "testsets" / "new-2")) == second
    audited = run("verify", "new-0", "--audit", "--json").json[1]
    assert [row["image_id"] for row in audited["blacklisted"]] == [refused_image]
    assert (audited["reviewed_classes"], audited["problematic_classes"]) == (3, ["c"])
    assert audited["provenance"]["seed"] == 0
    later = run("verify", "new-1", "--audit", "--json").json[1]
    assert later["blacklisted"] == [] and later["provenance"]["starting_from"] == "new-0"


def inspection(testset: TestSet, votes: Votes, special: set[str]) -> dict[str, Any]:
    """What ImageNetV2's inspection prints of votes, as plainly as possible."""
    rows = [(image, label) for label, images in classes(testset).items() for image in images]
    given = {row: votes[row] for row in rows if row in votes}
    shares = {row: selected / n for row, (selected, n) in given.items()}
    return {
        "min_votes": min(given[row][1] if row in given else 0 for row in rows),
        "min_frequency": min(shares.values()),
        "min_frequency_elsewhere": min(f for (_, c), f in shares.items() if c not in special),
        "mean_frequency": pytest.approx(sum(shares.values()) / len(shares)),
        "without_votes": sum(row not in given for row in rows),
    }


def test_inspection_of_a_set(run: Run, votes: Votes, tmp_path: Path) -> None:
    pool = load(tmp_path / "pools" / "pool")
    near = {
        "p000": [("p003", 0.5), ("p006", 3.0)],
        "p003": [("p000", 0.5)],
        "p009": [("p012", 2.5)],
    }
    search: Neighbours = search_within(pool, near, threshold=1.0)
    write_neighbours(search_folder(Workspace(tmp_path), search.search), search)
    build = (
        "build",
        "replicate",
        "pool",
        "--votes",
        5,
        "--min-frequency-of",
        "a=0.4",
        "--per-class",
        12,
    )
    ran = run(*build, "--name", "new")
    assert ran.code == 0 and "near duplicates were searched for by l2 (down to 1)" in ran.err
    new = load(tmp_path / "testsets" / "new")
    ids = set(new.image_ids.to_pylist())
    assert not ids & {"p000", "p003"}, "nobody has decided about them"
    ran = run("verify", "new", "--audit", "--json")
    found = ran.json[1]
    expected = inspection(new, votes, {"a"})
    assert {name: found[name] for name in expected} == expected
    assert found["special"] == ["a"] and found["min_frequency_elsewhere"] >= 0.7
    assert found["near_duplicates"] == [] and found["sizes"] == {"12": 3}
    assert found["provenance"]["sampler"] == "threshold"
    assert "expected_classes" in found["checked"] and found["class_mismatches"] == []
    nearest = [d for image, others in near.items() if image in ids for _, d in others]
    assert found["reviewed_down_to"] == {"l2": min(nearest, default=1e100)}
    lines = run("verify", "new", "--audit").out
    for text in (
        "votes of an image: ",
        "without classes that have",
        "neighbours reviewed down to: l2",
    ):
        assert text in lines

    # A set of everything holds what the others leave out.
    everything = ("--sampler", "random", "--per-class", 60, "--name", "all")
    assert run("build", "replicate", "pool", *everything).code == 0
    whole = load(tmp_path / "testsets" / "all")
    assert len(whole) == 148, "p000 and p003 wait for a decision"
    found = run("verify", "all", "--audit", "--json").json[1]
    expected = inspection(whole, votes, set())
    assert {name: found[name] for name in expected} == expected
    assert (found["min_votes"], found["without_votes"]) == (0, 1)
    assert found["reviewed_down_to"] == {"l2": 2.5}
    said = {"question": "duplicate", "subject": {"image_id": "p009", "other_id": "p012"},
            "answer": "duplicate", "who": "ann"}  # fmt: skip
    Path("pair.jsonl").write_text(json.dumps(said) + "\n")
    assert run("import", "judgements", "pair.jsonl").code == 0
    found = run("verify", "all", "--audit", "--json").json[1]
    assert found["duplicate_pairs"] == [["p009", "p012"]]
    assert len(found["near_duplicates"]) == 1 and found["reviewed_down_to"] == {"l2": 1e100}


def test_inspection_without_the_votes_reads_the_columns(
    run: Run, votes: Votes, tmp_path: Path
) -> None:
    assert run("build", "replicate", "pool", "--votes", 5, "--name", "new").code == 0
    with_votes = run("verify", "new", "--audit", "--json").json[1]
    (tmp_path / "judgements.db").unlink()
    without = run("verify", "new", "--audit", "--json").json[1]
    for name in ("min_votes", "min_frequency", "mean_frequency", "without_votes"):
        assert without[name] == with_votes[name]


def test_inspection_where_all_votes_were_rejected(run: Run, votes: Votes, tmp_path: Path) -> None:
    assert run("build", "replicate", "pool", "--votes", 5, "--name", "new").code == 0
    text = (tmp_path / "votes.csv").read_text()
    (tmp_path / "votes.csv").write_text(text.replace("Approved", "Rejected"))
    (tmp_path / "judgements.db").unlink()
    assert run("import", "judgements", "votes.csv").code == 0
    ran = run("verify", "new", "--audit", "--json")
    assert ran.json[1]["testset"] == "new", ran.err


def test_refused(run: Run, votes: Votes) -> None:
    for options, text in (
        (["--sampler", "matched"], "--like"),
        (["--sampler", "top", "--upward"], "--upward has no use with --sampler top"),
        (["--sampler", "random", "--votes", 3], "--votes has no use"),
        (["--votes", 7], "6 people voted"),
        (["--previous", "nothing"], "no test set 'nothing'"),
        (["--min-frequency-of", "a=2"], "give a frequency, 0 to 1"),
        (["--min-frequency-of", "z=0.5"], "no candidate is of class 'z'"),
        (["--photo", "flash"], "no column 'flash'"),
    ):
        refused(run("build", "replicate", "pool", *options), text)
    Path("judgements.db").unlink()
    refused(run("build", "replicate", "val"), "nobody has voted")


def test_the_demonstration_ends_in_three_sets_and_a_report(tmp_path: Path, run: Run) -> None:
    ran = run("demo", "replicate", "-w", "shown")
    assert ran.code == 0, ran.err
    sets = {
        name: load(Path("shown/testsets") / f"demo-{name}")
        for name in ("matched", "threshold", "top")
    }
    assert {len(each) for each in sets.values()} == {40}
    mean = {name: np.mean(each.images["frequency"].to_pylist()) for name, each in sets.items()}
    assert (
        mean["top"] > mean["matched"]
        and min(sets["threshold"].images["frequency"].to_pylist()) >= 0.7
    )
    assert "with controls of demo-original" in " ".join(sets["matched"].card.notes)
    records = json.loads(Path("shown/runs/demo-replicate/adjusted.json").read_text())
    found = {r["estimator"]: r for r in records if r["record"] == "adjusted score"}
    assert set(found) == {"polynomial", "naive", "jackknife", "beta_binomial"}
    assert all(0 <= r["low"] <= r["value"] <= r["high"] <= 1 for r in found.values())
    page = Path("shown/runs/demo-replicate/report.html").read_text()
    assert "at the true selection frequencies of demo-original" in page
    hashes = {name: each.content_hash for name, each in sets.items()}
    assert run("demo", "replicate", "-w", "shown").code == 0  # what is there is left alone
    again = {name: load(Path("shown/testsets") / f"demo-{name}").content_hash for name in sets}
    assert again == hashes
