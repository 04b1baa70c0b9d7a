from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, image_table, make_testset, membership_table, truth_table
from heldout.data.testset.testset import load, save
from tests.cli.conftest import Run
from tests.curate.contexts.test_split_domain import drifting
from tests.curate.contexts.test_split_subpopulation import cats_and_dogs, published


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.csv"
    path.write_text(cats_and_dogs().table())
    return path


ASKED = (
    "--minority-group", "cat(outdoor)", "--minority-group", "dog(indoor)", "--minority-count", 100,
    "--sizes", "minority=294", "--sizes", "majority=994", "--sizes", "test=144",
)  # fmt: skip


def test_subpopulation_as_published(run: Run, groups: Path, tmp_path: Path) -> None:
    out = tmp_path / "OUT"
    command = ("contexts", "split", "subpopulation", "--groups", groups, *ASKED, "-o", out)
    code, text, said = run(*command, "--json")
    assert code == 0, said
    expected = published()
    for part in ("train", "test"):
        found = rows(out / f"{part}.csv")
        assert list(found[0]) == ["image", "class", "group"]
        assert [tuple(row.values()) for row in found] == list(expected.parts[part])
    assert not (out / "validation.csv").exists()
    counts = {record["name"]: record["value"] for record in json.loads(text)}
    assert (counts["train"], counts["test"], counts["train cat(outdoor)"]) == (1700, 576, 100)
    bench = rows(out / "subpopbench.csv")
    assert bench[0] == {"filename": "1821370", "y": "1", "a": "0", "split": "0"}
    assert [row["split"] for row in bench].count("2") == 576
    again = run(*command, "--seed", 42)
    assert again[0] == 0 and "unchanged" in again[2]
    other = run(*command, "--seed", 0)
    assert other[0] == 2 and "holds another split" in other[2]


def test_a_validation_part_on_request(run: Run, groups: Path, tmp_path: Path) -> None:
    out = tmp_path / "OUT"
    command = ("contexts", "split", "subpopulation", "--groups", groups, *ASKED, "-o", out)
    code, text, _ = run(*command, "--sizes", "validation=50", "--json")
    counts = {record["name"]: record["value"] for record in json.loads(text)}
    assert code == 0 and (counts["train"], counts["validation"]) == (1700, 200)
    assert len(rows(out / "validation.csv")) == 200
    listed = {row["image"]: row for row in rows(out / "images.csv")}
    assert {listed[row["image"]]["part"] for row in rows(out / "validation.csv")} == {"validation"}


def test_subpopulation_errors_are_one_line(run: Run, groups: Path, tmp_path: Path) -> None:
    out = tmp_path / "OUT"
    command = ("contexts", "split", "subpopulation", "--groups", groups, "-o", out)
    sizes = ("--minority-count", 10, "--sizes", "test=144")
    for more, said in (
        (("--minority-group", "cat(outdoor),dog(indoor)", "--sizes", "minority=400"),
         "error: too few images: cat(outdoor) has 300 of 400"),
        (("--minority-group", "cat(roof)"), "error: no group 'cat(roof)'"),
        (("--minority-group", "cat(outdoor)", "--sizes", "majority=0"), "--sizes of majority is 0"),
        (("--minority-group", "cat(outdoor)", "--sizes", "tset=3"),
         "--sizes of 'tset': did you mean test?"),
        (("--minority-group", "cat(outdoor)", "--sizes", "minority=many"), "--sizes is"),
    ):  # fmt: skip
        code, _, error = run(*command, *sizes, *more)
        assert code == 2 and said in error and error.count("\n") == 1, error
    assert not out.exists()


def test_a_split_in_folders(run: Run, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    path = tmp_path / "g.csv"
    lines = ["image,group"]
    for group in ("cat(a)", "cat(b)"):
        for number in range(6):
            name = f"{group[4]}{number}"
            lines.append(f"{name},{group}")
            if name != "a5":
                (images / f"{name}.jpg").write_bytes(name.encode())
    path.write_text("\n".join(lines) + "\n")
    command = (
        "contexts", "split", "subpopulation", "--groups", path, "--minority-group", "cat(a)",
        "--minority-count", 2, "--sizes", "test=2", "-o", tmp_path / "OUT",
        "--sizes", "validation=2",
    )  # fmt: skip
    assert run(*command)[0] == 0
    folders = ("contexts", "split", "folders", tmp_path / "OUT", "-o", tmp_path / "OUT-images")
    code, _, said = run(*folders)
    assert code == 2 and "name their folder with --images" in said
    code, text, said = run(*folders, "--images", images, "--json")
    assert code == 3 and "left out a5: no file of image 'a5'" in said
    counts = {record["name"]: record["value"] for record in json.loads(text)}
    laid = sorted(p.relative_to(tmp_path) for p in (tmp_path / "OUT-images").rglob("*.jpg"))
    assert counts["placed"] == len(laid) and counts["without_file"] == 1
    assert {str(p.parent) for p in laid} == {
        f"OUT-images/{part}/cat" for part in ("train", "validation", "test")
    }
    refused = run(*folders, "--images", images, "--folders", "copy")
    assert refused[0] == 2 and "--allow-licence" in refused[2]


@pytest.fixture
def contexts_set(tmp_path: Path) -> Path:
    """A set with subsets, its images as files."""
    subsets = drifting()
    ids = [str(image) for image in subsets.image_ids]
    folder = tmp_path / "images"
    folder.mkdir()
    for image in ids:
        (folder / f"{image}.jpg").write_bytes(image.encode())
    members = [
        (str(image), "subset", name)
        for name in subsets.names
        for image in subsets.image_ids[subsets.members(name)]
    ]
    made = make_testset(
        Card(name="drift", label_space="drift", images_root=folder.as_posix()),
        images=image_table({"image_id": ids, "path": [f"{image}.jpg" for image in ids]}),
        truths={"original": truth_table(ids, [image.split("-")[0] for image in ids])},
        label_space=LabelSpace.from_ids("drift", ["cat", "dog"]),
        memberships=membership_table(members),
    )
    save(made, tmp_path / "set")
    return tmp_path / "set"


def test_domain_with_named_contexts(run: Run, contexts_set: Path, tmp_path: Path) -> None:
    code, text, said = run(
        "contexts", "split", "domain", contexts_set, "-o", tmp_path / "OUT", "--json",
        "--train", "far=cat(c5)+cat(c6)", "--train", "dog(c0)",
        "--test", "cat(c0),cat(c1)", "--test", "dog(c1)", "--sizes", "test=30",
    )  # fmt: skip
    assert code == 0, said
    assert "cat: far to cat(c0+c1), distance " in said
    record = json.loads((tmp_path / "OUT/split.json").read_text())
    assert record["rule"]["train"]["far"] == ["cat(c5)", "cat(c6)"]
    assert record["rule"]["distances"]["cat"] > record["rule"]["distances"]["dog"]
    counts = {item["name"]: item["value"] for item in json.loads(text)}
    assert counts["test"] == 60


def test_domain_at_chosen_distances(run: Run, contexts_set: Path, tmp_path: Path) -> None:
    apart = []
    for wanted in (0.3, 1):
        out = tmp_path / f"OUT-{wanted}"
        command = ("contexts", "split", "domain", contexts_set, "-o", out, "--test", "cat(c0)")
        code, _, said = run(*command, "--distance", wanted)
        assert code == 0, said
        rule = json.loads((out / "split.json").read_text())["rule"]
        apart.append(rule["distances"]["cat"])
        assert (f"come nearer to {wanted:g} than" in said) == (abs(apart[-1] - wanted) > 0.1)
    assert rows(tmp_path / "OUT-0.3/test.csv") == rows(tmp_path / "OUT-1/test.csv")
    assert apart[0] < apart[1]
    code, _, said = run(*command)
    assert code == 2 and "give --train or --distance" in said


def test_the_test_part_as_a_test_set(run: Run, contexts_set: Path, tmp_path: Path) -> None:
    code, _, said = run(
        "contexts", "split", "domain", contexts_set, "-o", tmp_path / "OUT", "--train", "cat(c5)",
        "--train", "dog(c0)", "--test", "cat(c0)", "--test", "dog(c1)", "--test-set", "drift-test",
    )  # fmt: skip
    assert code == 0, said
    made = load(tmp_path / "testsets/drift-test")
    wanted = rows(tmp_path / "OUT/test.csv")
    assert sorted(made.image_ids.to_pylist()) == sorted(row["image"] for row in wanted)
    truth = made.truth()
    assert set(zip(truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True)) == {
        (row["image"], row["class"]) for row in wanted
    }
    assert made.card.recipe["name"] == "split-domain"
    assert made.card.parents[0]["name"] == "drift"


def test_shares(run: Run, groups: Path, tmp_path: Path) -> None:
    code, text, said = run(
        "contexts", "split", "shares", "--groups", groups, "-o", tmp_path / "OUT", "--json"
    )
    assert code == 0, said
    counts = {record["name"]: record["value"] for record in json.loads(text)}
    assert (counts["train"], counts["validation"], counts["test"]) == (1788, 275, 687)
    assert len(rows(tmp_path / "OUT/subpopbench.csv")) == 2750


def test_groups_from_subsets(run: Run, contexts_set: Path, tmp_path: Path) -> None:
    scheme = tmp_path / "s.toml"
    scheme.write_text('"cat(near)" = ["cat(c0)", "cat(c1)"]\n"cat(far)" = ["cat(c1)", "cat(c5)"]\n')
    code, text, said = run(
        "contexts",
        "split",
        "groups",
        contexts_set,
        "--scheme",
        scheme,
        "-o",
        tmp_path / "G",
        "--json",
    )
    assert code == 0 and "kept in the group named first" in said
    found = rows(tmp_path / "G/groups.csv")
    assert len({row["image"] for row in found}) == len(found)
    counts = {item["name"]: item["value"] for item in json.loads(text)}
    assert sum(counts.values()) == len(found)


def test_folders_of_subsets(run: Run, contexts_set: Path, tmp_path: Path) -> None:
    out = tmp_path / "laid"
    command = ("contexts", "split", "folders", contexts_set, "-o", out, "--json")
    code, text, said = run(*command)
    assert code == 0, said
    counts = {item["name"]: item["value"] for item in json.loads(text)}
    links = list((out / "cat/cat(c0)").iterdir())
    assert len(links) > 60 and all(link.is_symlink() for link in links)
    again = {item["name"]: item["value"] for item in json.loads(run(*command)[1])}
    assert again["kept"] == counts["placed"] == len(list(out.rglob("*.jpg")))
    refused = run(*command, "--folders", "copy")
    assert refused[0] == 2 and "may not be copied by their licence" in refused[2]
    assert "it is now heldout contexts split folders" in run("contexts", "folders")[2]
