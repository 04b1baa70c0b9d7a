"""``crowd grids``: a pool or a list of candidates in, grids out; what cannot be composed is one line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from heldout.core.workspace import Workspace
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.published.imagenetv2_grids import read_candidates, read_grids, write_candidates
from heldout.data.testset import Card, make_testset, save
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import make_pool
from heldout.front import find
from heldout.verbs import crowd_grids
from tests.cli.conftest import Run, write
from tests.cli.test_bad_input import refused

TENCH, GOLDFISH, SHARK = "n01440764", "n01443537", "n01484850"
SMALL = ("--grid", "candidates=5", "--grid", "positive=2", "--grid", "negative=1")
LISTED = ("candidates.json", "--classes-of", "classes.json")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A pool of 23 fish, an original set of ten images per class, and lists of the candidates."""
    space = LabelSpace.load("imagenet-1k")
    classes = {f"{n:02}": (TENCH, TENCH, SHARK)[n % 3] for n in range(23)}
    originals = {f"val-{n:02}": (TENCH, GOLDFISH, SHARK)[n % 3] for n in range(30)}
    images = {name: image_table({"image_id": list(rows)})
              for name, rows in (("fish", classes), ("val", originals))}  # fmt: skip
    truths = {name: {"original": truth_table(list(rows), list(rows.values()))}
              for name, rows in (("fish", classes), ("val", originals))}  # fmt: skip
    pool = make_pool("fish", images=images["fish"], truths=truths["fish"], label_space=space)
    card = Card(name="val", label_space="")
    val = make_testset(card, images=images["val"], truths=truths["val"], label_space=space)
    save(pool, tmp_path / "pools/fish")
    save(val, tmp_path / "testsets/val")
    write_candidates(tmp_path / "candidates.json", reversed(classes))
    write(tmp_path / "classes.json", classes)
    return tmp_path


def vote(place: Path, image: str, label: str, count: int) -> None:
    with JudgementStore(Workspace(place).judgements) as store:
        store.add(
            Judgement(
                question="vote",
                subject={"image_id": image, "class_id": label},
                answer="selected",
                who=f"w{n}",
                testset="fish",
            )
            for n in range(count)
        )


def counted(records: list[dict[str, Any]]) -> dict[str, int]:
    return {r["name"]: r["value"] for r in records if r["record"] == "count"}


def test_grids_of_a_pool(run: Run, place: Path) -> None:
    vote(place, "00", TENCH, 3)
    vote(place, "01", TENCH, 2)
    with JudgementStore(Workspace(place).judgements) as store:
        about = {"question": "review", "answer": "blacklisted", "who": "ann"}
        store.add([Judgement(subject={"image_id": "02"}, **about)])  # type: ignore[arg-type]
    asked = ("crowd", "grids", "fish", "--controls", "val", "--votes", 3, *SMALL)
    ran = run(*asked, "--json", "-o", "grids.json")
    assert ran.code == 0, ran.err
    grids = [r for r in ran.json if r["record"] == "grid"]
    assert counted(ran.json) == {
        "candidates": 23,
        "left_out_enough_votes": 1,
        "left_out_blacklisted": 1,
        "asked_about": 21,
        "grids": 5,
        "topped_up": 4,
        "positive_controls": 10,
        "negative_controls": 5,
    }
    assert [(g["class_id"], g["number"]) for g in grids] == [
        (TENCH, 1), (TENCH, 2), (TENCH, 3), (SHARK, 1), (SHARK, 2)
    ]  # fmt: skip
    similar = {TENCH: GOLDFISH}
    originals = dict(
        zip((f"val-{n:02}" for n in range(30)), (TENCH, GOLDFISH, SHARK) * 10, strict=True)
    )
    for grid in grids:
        roles = Counter(slot["role"] for slot in grid["slots"])
        assert roles == {"candidate": 5, "positive": 2, "negative": 1}
        for slot in grid["slots"]:
            if slot["role"] == "positive":
                assert originals[slot["image_id"]] == slot["class_id"] == grid["class_id"]
            if slot["role"] == "negative":
                assert originals[slot["image_id"]] == slot["class_id"] != grid["class_id"]
                assert slot["class_id"] == similar.get(grid["class_id"], slot["class_id"])
    written = read_grids(Path("grids.json"))
    assert [g.uuid for g in written] == [g["grid"] for g in grids]
    assert [g.images_all for g in written] == [[s["image_id"] for s in g["slots"]] for g in grids]
    assert not any(g.submitted or g.time or g.user for g in written)
    assert run(*asked, "--json").json == ran.json
    shown = run(*asked)
    assert "asked_about" in shown.out and TENCH not in shown.out
    assert TENCH in run(*asked, "--full").out


def test_what_is_settled_is_asked_about_no_more(run: Run, place: Path) -> None:
    for image, label, count in (("00", TENCH, 3), ("01", TENCH, 2), ("02", SHARK, 2)):
        vote(place, image, label, count)
    asked = ("crowd", "grids", "fish", "--controls", "none", "--votes", 5, "--json")
    write(place / "rules.json", {TENCH: "2/2,3/3", SHARK: "no=2"})
    found = counted(run(*asked, "--stop", "rules.json").json)
    assert (found["left_out_settled"], found["votes_saved"], found["asked_about"]) == (2, 5, 21)
    found = counted(run(*asked, "--stop", "threshold=0.7").json)
    assert (found["votes_saved"], found["asked_about"]) == (0, 23)
    assert "votes_saved" not in counted(run(*asked).json)


def test_a_list_of_candidates_is_as_good_as_the_pool(run: Run, place: Path) -> None:
    of_pool = run("crowd", "grids", "fish", "--controls", "val", *SMALL, "--json").json
    ran = run("crowd", "grids", *LISTED, "--controls", "val", *SMALL, "--json")
    assert [r for r in ran.json if r["record"] == "grid"] == of_pool[: len(of_pool) - 6]
    write(place / "order.json", {TENCH: [f"val-{n:02}" for n in range(0, 30, 3)]})
    known = run("crowd", "grids", *LISTED, "--controls", "order.json", *SMALL, "--json")
    assert "class and index" in known.err
    slots = [s for r in known.json if r["record"] == "grid" for s in r["slots"]]
    named = {s["class_id"] for s in slots if s["role"] != "candidate" and s["image_id"]}
    assert named == {TENCH}  # what the file does not have is named by its index among fifty
    assert {s["class_id"] for s in slots if s["role"] == "negative"} >= {GOLDFISH}
    assert max(s["index"] for s in slots if s["index"] is not None and not s["image_id"]) > 9


def test_in_the_published_order(run: Run, place: Path) -> None:
    ran = run("crowd", "grids", *LISTED, "--legacy", *SMALL, "-o", "grids.json")
    assert ran.code == 0 and "class and index" in ran.err
    written = read_grids(Path("grids.json"))
    listed = read_candidates(Path("candidates.json"))
    classes = json.loads((place / "classes.json").read_text())
    assert written[0].wnid == classes[listed[0]]
    assert written[0].images_to_label == [i for i in listed if classes[i] == written[0].wnid][:5]
    assert all("#" in name for g in written for name in g.images_pos_control)


def test_marked_controls_classes_left_out_and_no_controls(run: Run, place: Path) -> None:
    (place / "marks.csv").write_text(
        f"image_id,class_id,control\n00,{TENCH},positive\n03,{TENCH},positive\nx,{TENCH},negative\n"
    )
    asked = ("crowd", "grids", "fish", "--controls", "marks.csv", *SMALL, "--json")
    ran = run(*asked, "--exclude-class", f"{SHARK}=no marks")
    assert ran.code == 0, ran.err
    assert counted(ran.json)["left_out_controls"] == 2
    assert counted(ran.json)["left_out_excluded_class: no marks"] == 7
    assert run(*asked, "--first-classes", 1).json[:3] == ran.json[:3]
    everything = ("--exclude-class", f"{SHARK}=no marks", "--exclude-class", f"{TENCH}=later")
    empty = run(*asked, *everything)
    assert "nothing is left to ask about" in empty.err and counted(empty.json)["grids"] == 0
    refused(run(*asked), "0 positive controls of class n01484850")
    refused(run(*asked, "--similar-classes", "classes.json"), "--similar-classes has no use")
    none = run("crowd", "grids", "fish", "--controls", "none", "--grid", "candidates=5", "--json")
    assert counted(none.json)["positive_controls"] == 0
    assert counted(none.json)["grids"] == 6


def test_special_grids_name_the_classes_below(run: Run, place: Path) -> None:
    for n in range(0, 12, 3):
        vote(place, f"val-{n:02}", TENCH, 3)
    asked = ("crowd", "grids", "fish", "--controls", "val", "--votes", 3, *SMALL, "--special")
    ran = run(*asked, 4, "--json")
    assert f"1 classes have fewer than 4 annotated originals: {SHARK}" in ran.err
    grids = [r for r in ran.json if r["record"] == "grid"]
    assert counted(ran.json)["classes_below"] == 1
    assert [g["class_id"] for g in grids] == [SHARK, SHARK]  # two new originals each
    assert len({s["image_id"] for g in grids for s in g["slots"] if s["role"] == "positive"}) == 4
    more = run(*asked, 5, "--exclude-class", f"{SHARK}=later", "--json")
    assert {r["class_id"] for r in more.json if r["record"] == "grid"} == {TENCH}


def test_classes_without_wordnet_name_their_similar_ones(place: Path, run: Run) -> None:
    space = LabelSpace("pets", (Class("cat"), Class("dog")))
    table = image_table({"image_id": ["a", "b", "c", "d"]})
    truth = {"original": truth_table(list("abcd"), ["cat", "dog"] * 2)}
    save(make_pool("pets", images=table, truths=truth, label_space=space), place / "pools/pets")
    originals = write(place / "originals.json", {"cat": ["x", "y", "z"], "dog": ["u", "v", "w"]})
    asked = ("crowd", "grids", "pets", "--controls", originals, "--grid", "candidates=2")
    refused(run(*asked), "its images cannot be read", "--similar-classes")
    similar = write(place / "similar.json", {"cat": ["dog"], "dog": ["dog", "cat"]})
    ran = run(*asked, "--similar-classes", similar, "--json")
    assert ran.code == 0, ran.err
    assert counted(ran.json)["negative_controls"] == 6
    write(place / "similar.json", {"cat": ["dog"]})
    refused(run(*asked, "--similar-classes", similar), "similar.json", "no class 'dog'")


def test_from_python(place: Path) -> None:
    grids = crowd_grids(
        "fish", controls="val", grid={"candidates": 5, "positive": 2, "negative": 1}
    )
    assert [grid.class_id for grid in grids] == [TENCH] * 4 + [SHARK] * 2
    verb = find("crowd grids")
    assert verb is not None and verb.group == "build"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fish",), ("--controls is missing",)),
        (("zzz", "--controls", "none"), ("zzz",)),
        (("fish", "--controls", "zzz"), ("no test set 'zzz'",)),
        (("fish", "--controls", "none", "--classes-of", "classes.json"), ("--classes-of",)),
        (("candidates.json",), ("--classes-of is missing",)),
        (("nowhere.json", "--classes-of", "classes.json"), ("nowhere.json",)),
        ((*LISTED, "--votes", 3), ("--votes has no use",)),
        (("classes.json", "--classes-of", "classes.json"), ("classes.json", "list of candidate ids")),
        (("fish", "--controls", "none", "--similar-classes", "s.json"), ("--similar-classes has no use",)),
        (("fish", "--controls", "none", "--special", 20), ("--special needs the original images",)),
        ((*LISTED, "--special", 20), ("--controls is missing",)),
        (("fish", "--controls", "val", "--special", 0), ("--special is '0'",)),
        (("fish", "--controls", "none", "--grid", "positive=1"), ("no use without controls",)),
        (("fish", "--controls", "none", "--grid", "size=1"), ("--grid",)),
        (("fish", "--controls", "val", "--special", 9, "--first-classes", 2), ("--first-classes",)),
        (("fish", "--controls", "val", "--special", 9, "--stop", "no=2"), ("--stop has no use",)),
        (("fish", "--controls", "none", "--stop", "2"), ("--stop is '2'", "no=2")),
        ((*LISTED, "--stop", "no=2"), ("--stop has no use",)),
        (("fish", "--controls", "val", "--exclude-class", TENCH), ("write CLASS=REASON",)),
        (("fish", "--controls", "val", "--legacy", "--seed", 2**32), ("--seed is 4294967296",)),
        (("fish", "--controls", "val", "--grid", "positive=11"), ("10 positive controls", "--grid")),
        (("fish", "--controls", "val", "--grid", "candidates=0"), ("--grid of candidates is 0",)),
        (("fish", "--controls", "bad.csv"), ("bad.csv", "no column control")),
        (("fish", "--controls", "gap.csv"), ("gap.csv", "empty cell")),
        (("fish", "--controls", "bad.json"), ("bad.json", "class -> its images")),
        (("few.json", "--classes-of", "few-classes.json"), ("'zzz' is not a class", "--similar-classes")),
        (("more.json", "--classes-of", "classes.json"), ("no class for 'x' and 1 more",)),
        (("fish", "--special", 9, "--controls", "val", "--grid", "candidates=1", "--grid", "positive=0",
          "--grid", "negative=0"), ("no room for three roles",)),
    ],
)  # fmt: skip
def test_what_cannot_be_composed_is_one_line(
    run: Run, place: Path, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    (place / "bad.csv").write_text("image_id,class_id\na,b\n")
    (place / "gap.csv").write_text(f"image_id,class_id,control\na,{TENCH},\n")
    write(place / "bad.json", [TENCH])
    write(place / "few.json", ["a"])
    write(place / "few-classes.json", {"a": "zzz"})
    write(place / "more.json", ["00", "x", "y"])
    refused(run("crowd", "grids", *arguments, "-o", "out.json"), *words)
    assert not (place / "out.json").exists()


@pytest.mark.shared
def test_the_documented_command_gives_the_real_hits(
    run: Run, shared_data: Path, tmp_path: Path
) -> None:
    """With the order of the controls, learned from the HITs of all files, everything is equal."""
    folder = shared_data / "imagenetv2"
    files = {path: read_grids(path) for path in sorted((folder / "hits").glob("*.json"))}
    lists = {
        path: set(read_candidates(path)) for path in (folder / "hit_candidates").glob("*.json")
    }
    order: dict[str, list[str | None]] = {}
    commands = {}
    for path, hits in files.items():
        classes = {image: hit.wnid for hit in hits for image in hit.images_to_label}
        write(tmp_path / f"{path.stem}-classes.json", classes)
        listed = next(p for p, ids in lists.items() if ids == set(classes))
        commands[path] = (
            "crowd",
            "grids",
            listed,
            "--legacy",
            "--classes-of",
            f"{path.stem}-classes.json",
        )
        grids = [r for r in run(*commands[path], "--json").json if r["record"] == "grid"]
        for grid, hit in zip(grids, hits, strict=True):
            for slot, image in zip(grid["slots"], hit.images_all, strict=True):
                if slot["role"] == "candidate":
                    assert slot["image_id"] == image
                else:
                    order.setdefault(slot["class_id"], [None] * 50)[slot["index"]] = image
    write(tmp_path / "order.json", order)
    for path, hits in files.items():
        ran = run(*commands[path], "--controls", "order.json", "-o", "made.json")
        assert ran.code == 0 and "class and index" not in ran.err
        fields = (
            "wnid",
            "images_to_label",
            "images_pos_control",
            "images_neg_control",
            "images_all",
        )
        made = read_grids(Path("made.json"))
        assert [[getattr(g, f) for f in fields] for g in made] == [
            [getattr(g, f) for f in fields] for g in hits
        ]


def test_classes_are_similar_by_name_or_by_their_pictures(place: Path, run: Run) -> None:
    """Red and dark red pictures are alike, blue ones are not; what a class says comes first."""
    colours = {"blue": (20, 30, 220), "crimson": (200, 10, 20), "red": (230, 20, 20)}
    for label, colour in colours.items():
        for number in range(3):
            path = place / f"own/{label}/{label}-{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 30), (*colour[:2], colour[2] + number)).save(path)
    ids = [f"c{n}" for n in range(6)]

    def negative(*similar: str) -> dict[str, str]:
        """The class of the negative control in each class's grid; red ones name similar classes."""
        space = LabelSpace(
            "colours", (Class("blue"), Class("crimson"), Class("red", similar=similar))
        )
        space.write(place / "colours.json")
        truth = truth_table(ids, [space.ids[n % 3] for n in range(6)])
        pool = make_pool(
            "asked",
            images=image_table({"image_id": ids}),
            truths={"original": truth},
            label_space=space,
        )
        save(pool, place / "pools/asked", replace=True)
        assert run("import", "testset", "own", "--classes", "colours.json", "--replace").code == 0
        sizes = [
            word
            for role in ("candidates=2", "positive=1", "negative=1")
            for word in ("--grid", role)
        ]
        ran = run("crowd", "grids", "asked", "--controls", "own", *sizes, "--json")
        assert ran.code == 0, ran.err
        return {
            grid["class_id"]: slot["class_id"]
            for grid in ran.json
            if grid["record"] == "grid"
            for slot in grid["slots"]
            if slot["role"] == "negative"
        }

    by_features = negative()
    assert by_features["red"] == "crimson" and by_features["crimson"] == "red"
    assert negative("blue") == {**by_features, "red": "blue"}
