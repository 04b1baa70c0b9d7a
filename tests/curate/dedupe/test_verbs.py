"""The verb, from folders to decisions: what is found, asked, answered, left out and written."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.cli.app import invoke
from heldout.core.errors import EXIT_FAILED_IMAGES, ExistsError, UserError
from heldout.core.workspace import Workspace
from heldout.curate.dedupe.verbs import Duplicates
from heldout.data.judgements.neighbours import saved_searches
from heldout.data.judgements.resolution import near_duplicates
from heldout.data.testset import load_testset
from heldout.data.testset.catalogue import find_pool
from heldout.verbs import dedupe, import_judgements
from tests.curate.dedupe.conftest import picture

L2 = {"l2": 1e7}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures, two of them recompressed beside them; four of them are in ``train``."""
    for name in ("ours", "train"):
        (tmp_path / name).mkdir()
    for n in range(12):
        picture(n, (320, 240)).save(tmp_path / f"ours/{n:02}.png")
    for n in (0, 1):
        picture(n, (320, 240)).save(tmp_path / f"ours/copy-{n:02}.jpg", quality=80)
    for n in (1, 5, 6, 7, 20, 21):
        picture(n, (320, 240)).save(tmp_path / f"train/t{n:02}.jpg", quality=80)
    picture(7, (320, 240)).save(tmp_path / "train/same.png")
    return tmp_path


def find(photos: Path, **options: Any) -> Duplicates:
    options = {
        "measures": ["l2"],
        "thresholds": L2,
        "references": [f"{photos / 'train'}/"],
    } | options
    found: Duplicates = dedupe(f"{photos / 'ours'}/", workspace=photos / "work", **options)
    return found


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def said(found: Duplicates) -> dict[tuple[str, str], str]:
    return {(pair.image_id, pair.other): pair.decision for pair in found.pairs}


WITHIN = {("00.png", "copy-00.jpg"), ("01.png", "copy-01.jpg")}
LEAKED = {("05.png", "train:t05.jpg"), ("06.png", "train:t06.jpg"), ("07.png", "train:t07.jpg"),
          ("01.png", "train:t01.jpg"), ("copy-01.jpg", "train:t01.jpg")}  # fmt: skip
SAME = ("07.png", "train:same.png")


def test_found_asked_answered_and_left_out(photos: Path) -> None:
    first = find(photos, out=photos / "page.html")
    assert said(first) == dict.fromkeys(WITHIN | LEAKED, "unresolved") | {
        SAME: "duplicate",
        ("copy-01.jpg", "train:t01.jpg"): "duplicate",  # the same bytes
    }
    assert first.leaked == {"train": {"07.png", "copy-01.jpg"}}
    assert first.kept == sorted(set(first.testset.image_ids.to_pylist()) - first.leaked["train"])
    questions = photos / "page-questions.csv"
    asked = rows(questions)
    assert len(asked) == 6 and all(row["answer"] == "" for row in asked)
    # Ann answers all but one; Bob is of another opinion about one.
    answers = {
        "00.png": "duplicate",
        "05.png": "duplicate",
        "06.png": "different",
        "01.png": "duplicate",
    }
    for row in asked:
        row["answer"] = answers.get(row["image_id"], "")
        row["who"] = "ann" if row["answer"] else ""
    write(questions, asked)
    import_judgements(questions, workspace=photos / "work")
    second = find(photos, out=photos / "page.html", name="clean")
    assert said(second) == {
        ("00.png", "copy-00.jpg"): "duplicate",
        ("01.png", "copy-01.jpg"): "duplicate",
        ("01.png", "train:t01.jpg"): "duplicate",
        ("copy-01.jpg", "train:t01.jpg"): "duplicate",
        ("05.png", "train:t05.jpg"): "duplicate",
        ("06.png", "train:t06.jpg"): "different",
        ("07.png", "train:t07.jpg"): "unresolved",
        SAME: "duplicate",
    }
    assert [p.by for p in second.of("00.png")] == ["ann"]
    gone = {"copy-00.jpg", "01.png", "copy-01.jpg", "05.png", "07.png"}
    assert set(second.testset.image_ids.to_pylist()) - set(second.kept) == gone
    assert (
        find(photos, out=photos / "page.html", name="clean").kept == second.kept
    )  # nothing changes
    clean = find_pool(Workspace(photos / "work"), "clean")
    assert set(clean.image_ids.to_pylist()) == set(second.kept)
    assert clean.card.facts["source"] == "dedupe"
    assert clean.card.facts["parents"][0]["content_hash"] == second.testset.content_hash
    listed = {row["image_id"]: row for row in rows(photos / "page-images.csv")}
    assert {name for name, row in listed.items() if row["decision"] == "remove"} == gone
    assert listed["05.png"]["reason"] == "reference" and "t05.jpg" in listed["05.png"]["why"]
    assert listed["copy-00.jpg"]["stays"] == "00.png"
    pairs = {(row["image_id"], row["other_id"]): row for row in rows(photos / "page-pairs.csv")}
    assert pairs["06.png", "t06.jpg"]["decision"] == "different"
    assert pairs["07.png", "same.png"]["by"] == "same file"
    assert float(pairs["07.png", "same.png"]["l2"]) == 0.0


def write(path: Path, found: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(found[0]))
        writer.writeheader()
        writer.writerows(found)


def test_accepting_is_a_judgement_that_a_person_overrules(photos: Path) -> None:
    accepted = find(photos, accept=True)
    assert {pair.decision for pair in accepted.pairs} == {"duplicate"}
    assert {pair.by for pair in accepted.of("05.png")} == {"threshold"}
    table = photos / "bob.csv"
    subject = json.dumps({"image_id": "05.png", "other_id": "train:t05.jpg"})
    write(
        table, [{"question": "duplicate", "subject": subject, "answer": "different", "who": "bob"}]
    )
    import_judgements(table, workspace=photos / "work")
    assert {pair.by: pair.decision for pair in find(photos).of("05.png")} == {"bob": "different"}


def test_hashes_alone_are_never_accepted(photos: Path) -> None:
    found = find(photos, measures=["hash"], thresholds={"hash": 40}, accept=True)
    assert {pair.by for pair in found.pairs} == {"", "same file"}
    # Another measure keeps their distance, and does not find them.
    far = find(photos, measures=["hash", "l2"], thresholds={"hash": 120, "l2": 1e7}, accept=True)
    only = [pair for pair in far.pairs if pair.found_by == ("hash",)]
    assert only and all("l2" in pair.distances and pair.by == "" for pair in only)


def test_what_cannot_be_compared_is_listed(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photos / "ours"
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing")
    Image.new("RGB", (1, 1), "red").save(folder / "dot.png")
    Image.new("LA", (40, 30)).save(folder / "grey-alpha.png")
    Image.new("CMYK", (40, 30), (9, 9, 9, 9)).save(folder / "print.jpg")
    Image.fromarray(np.full((30, 40), 30_000, np.uint16)).save(folder / "deep.png")
    frames = [picture(n, (64, 48)).convert("P") for n in (30, 31)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    line = [
        "dedupe", f"{folder}/", "--compare-by", "l2", "--compare-by", "hash", "--up-to", "l2=1e7",
        "--workspace", str(photos / "work"), "-o", str(photos / "page.html"),
    ]  # fmt: skip
    assert invoke(line) == EXIT_FAILED_IMAGES
    listed = {row["image_id"]: row for row in rows(photos / "page-images.csv")}
    assert len(listed) == 20  # every image is there
    out = {name: row["why"] for name, row in listed.items() if row["reason"] == "not compared"}
    assert list(out) == ["broken.jpg"] and out["broken.jpg"].startswith("truncated")
    assert listed["broken.jpg"]["decision"] == "keep"
    assert "broken.jpg" in capsys.readouterr().err


def test_a_set_without_its_duplicates_has_its_parents(photos: Path) -> None:
    for n in range(12):
        place = photos / f"labelled/{'ab'[n % 2]}"
        place.mkdir(parents=True, exist_ok=True)
        picture(n % 10, (320, 240)).save(place / f"{n:02}.png")
    work = ["--workspace", str(photos / "work")]
    assert (
        invoke(["import", "testset", str(photos / "labelled"), "--classes", "folders", *work]) == 0
    )
    line = ["dedupe", "labelled", "--reference", f"{photos / 'train'}/", "--compare-by", "l2",
            "--up-to", "l2=1e7", "--accept", "--name", "clean", *work]  # fmt: skip
    assert invoke(line) == 0
    clean = load_testset(str(photos / "work/testsets/clean"))
    parent = load_testset(str(photos / "work/testsets/labelled"))
    assert [p["name"] for p in clean.card.parents] == ["labelled", "train"]
    assert clean.card.parents[0]["content_hash"] == parent.content_hash
    assert clean.card.recipe["name"] == "dedupe"
    assert len(clean) == 12 - 6  # 10 and 11 are 0 and 1 again; 1, 5, 6 and 7 are in train
    assert len(clean.truth()) == len(clean)
    assert invoke(line) == 0  # the same command changes nothing
    assert load_testset(str(photos / "work/testsets/clean")).content_hash == clean.content_hash


def test_a_plan_says_what_would_be_compared(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["dedupe", f"{photos / 'ours'}/", "--reference", f"{photos / 'train'}/", "--compare-by", "l2",
            "--plan", "--json", "--workspace", str(photos / "work")]  # fmt: skip
    assert invoke(line) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [(p["reference"], p["comparisons"]) for p in planned] == [
        ("itself", 14 * 13),
        ("train", 98),
    ]
    assert not (photos / "work/embeddings").exists() and not (photos / "work/duplicates").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresholds": {"features": 0.1}}, "names features, which is not compared by"),
        ({"features": "lite1"}, "features has no use"),
        ({"replace": True}, "replace needs name"),
        ({"frequency": "votes"}, "has no column 'votes'"),
        ({"photo": "flickr"}, "has no column 'flickr'"),
        ({"references": ["nowhere"]}, "no pool, test set, folder or vectors 'nowhere'"),
        ({"thresholds": {"l2": float("nan")}}, "l2=nan is not a distance"),
        ({"thresholds": {"l2": -1.0}}, "l2=-1.0 is not a distance"),
        ({"near_classes": 2}, "ours has no classes"),
        ({"name": "ours"}, "ours is the set itself"),
    ],
)
def test_what_cannot_work_is_one_line(photos: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        find(photos, **options)


def test_answers_hold_for_the_pictures_that_were_seen(photos: Path) -> None:
    """Other pictures under the same names are not what somebody judged."""
    accepted = find(photos, accept=True)
    assert {pair.by for pair in accepted.of("05.png")} == {"threshold"}
    other = photos / "other/train"
    other.mkdir(parents=True)
    for n in (1, 5, 6):
        picture(50 + n, (320, 240)).save(other / f"t{n:02}.jpg")
    found = find(photos, references=[f"{other}/"])
    assert found.leaked == {} and all(not pair.reference for pair in found.pairs)
    picture(77, (320, 240)).save(photos / "ours/00.png")
    changed = find(photos)
    assert ("00.png", "copy-00.jpg") not in said(changed)
    assert {pair.decision for pair in changed.of("05.png")} == {"duplicate"}


def test_what_hangs_together_with_a_leak_has_leaked(photos: Path) -> None:
    found = find(photos, accept=True)
    table = photos / "ann.csv"
    subject = json.dumps({"image_id": "01.png", "other_id": "train:t01.jpg"})
    row = {"question": "duplicate", "subject": subject, "answer": "different", "who": "ann"}
    write(table, [row])
    import_judgements(table, workspace=photos / "work")
    again = find(photos)
    assert again.leaked == found.leaked  # 01.png is copy-01.jpg, which is t01.jpg
    assert set(again.leaked["train"]) == {
        "01.png", "copy-01.jpg", "05.png", "06.png", "07.png",
    }  # fmt: skip


def test_a_run_shows_what_it_compared(photos: Path) -> None:
    find(
        photos,
        references=[f"{photos / 'ours'}/".replace("ours", "train"), "twin=" + str(photos / "ours")],
    )
    found = find(photos, measures=["hash"], thresholds={"hash": 20})
    assert {search.label for search in found.searches} == {"hash"}
    assert {pair.reference for pair in found.pairs} == {"", "train"}
    workspace = Workspace(photos / "work")
    assert {s.reference for s in saved_searches(workspace, "ours")} == {"", "train", "twin"}
    find(photos, forget=["twin"])
    assert {s.reference for s in saved_searches(workspace, "ours")} == {"", "train"}
    # A reference that has changed: what another measure found there does not hold any more.
    (photos / "train/t05.jpg").unlink()
    find(photos)
    kept = {(s.label, s.reference) for s in saved_searches(workspace, "ours")}
    assert kept == {("l2", ""), ("l2", "train"), ("hash", "")}
    find(photos, measures=["hash"], thresholds={"hash": 20})
    assert {s.label for s in saved_searches(workspace, "ours") if s.reference} == {"l2", "hash"}


def test_features_of_two_models_are_two_measures(photos: Path) -> None:
    for model in ("lite0", "lite1"):
        found = find(photos, measures=["features"], features=model, thresholds={"features": 0.3})
    assert {search.label for search in found.searches} == {"features lite1"}
    known = near_duplicates(found.testset, Workspace(photos / "work"))
    both = {name for pair in known.pairs for name in pair.distances}
    assert both == {"features", "features lite1"}


def test_nothing_is_said_where_the_set_cannot_be_written(photos: Path) -> None:
    find(photos, accept=True, name="clean")
    find(photos, references=[], accept=True, name="more")
    with pytest.raises(ExistsError, match="holds"):
        find(photos, references=[], thresholds={"l2": 1e9}, accept=True, name="clean")
    said_so = near_duplicates(find(photos).testset, Workspace(photos / "work")).verdicts
    assert len(said_so) == 6


def test_answers_that_were_read_do_not_stop_a_run(photos: Path) -> None:
    find(photos, out=photos / "page.html")
    questions = photos / "page-questions.csv"
    asked = rows(questions)
    asked[0] |= {"answer": "duplicate", "who": "ann"}
    write(questions, asked)
    with pytest.raises(ExistsError, match="holds 1 answers that were not read"):
        find(photos, out=photos / "page.html")
    import_judgements(questions, workspace=photos / "work")
    find(photos, out=photos / "page.html")
    assert len(rows(questions)) == len(asked) - 1


def test_a_set_is_not_its_own_reference(photos: Path) -> None:
    with pytest.raises(UserError, match="two sets are called ours"):
        find(photos, references=[f"{photos / 'ours'}/"])


_CHILD = """
import sys
from pathlib import Path
from heldout.cli.app import invoke
from heldout.testing.recipe_child import Moments
kill = int(sys.argv[1])
moments = Moments(Path(sys.argv[2]), kill or None)
sys.addaudithook(moments)
code = invoke(sys.argv[3:])
print("writes", moments.count)
sys.exit(code)
"""


def test_killed_and_resumed_gives_the_same_bytes(photos: Path) -> None:
    """Three places here; ``benchmarks/kills.py --only dedupe`` draws twenty."""

    def run(place: Path, kill: int) -> tuple[int, int]:
        line = [
            "dedupe", f"{photos / 'ours'}/", "--reference", f"{photos / 'train'}/", "--compare-by", "l2",
            "--compare-by", "hash", "--up-to", "l2=1e7", "--memory", "0.004", "--name", "clean",
            "--workspace", str(place),
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(kill), str(place), *line],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode, int(done.stdout.rpartition("writes ")[2] or 0)

    def state(place: Path) -> dict[str, bytes]:
        parts = [
            path
            for name in ("duplicates", "embeddings", "pools")
            for path in (place / name).rglob("*")
        ]
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in parts if p.is_file()}

    whole = photos / "whole"
    code, writes = run(whole, 0)
    assert code == 0 and writes > 40
    wanted = state(whole)
    assert any("rows.npy" in name for name in wanted)
    for share in (0.25, 0.5, 0.75):
        place = photos / f"killed-{share}"
        assert run(place, round(share * writes))[0] == -signal.SIGKILL
        assert run(place, 0)[0] == 0
        assert state(place) == wanted
        assert not list(place.rglob(".tmp-*")) and not list((place / "runs").glob("dedupe-*"))
