"""``heldout mistakes`` at the command line: generated data, bad input, and the published numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from heldout.cli.app import invoke
from tests.cli.conftest import Run, write

SET = "imagenet-validation-original"


def of(ran: Any, record: str) -> list[dict[str, Any]]:
    return [row for row in ran.json if row["record"] == record]


def counts(ran: Any) -> dict[str, int]:
    return {row["name"]: row["value"] for row in of(ran, "count")}


def row(prediction: int, category: str, severity: str) -> dict[str, object]:
    return {
        "top_prediction": prediction,
        "failure category": category,
        "failure severity": severity,
    }


@pytest.fixture
def place(run: Run, published: Path, tmp_path: Path) -> Path:
    """A workspace with a set of 200 images in 5 classes and four models."""
    order = published / f"datasets/{SET}.json"
    assert (
        run("import", "testset", order, "--classes", published / "metadata/class_info.json").code
        == 0
    )
    ran = run("import", "predictions", published / "predictions" / SET, "-t", SET, "--order", order)
    assert ran.code == 0, ran.err
    return tmp_path


def test_consensus_overlap_and_diff(run: Run, place: Path) -> None:
    ran = run("mistakes", "shared", "-t", SET, "--json")
    (row,) = of(ran, "consensus")
    assert row["models"] == 4 and row["n"] == 200 and sum(row["missed_by"]) == 200
    assert row["missed_by"][-1] == row["missed_by_all"] == counts(ran)["missed_by_all_original"]
    assert len(of(ran, "suspect")) == row["missed_by_all"]
    more = of(run("mistakes", "shared", "-t", SET, "--wrong", 2, "--json"), "suspect")
    assert len(more) == sum(row["missed_by"][2:]) > 0
    assert all(s["missed_by"] >= 2 and s["original_name"].startswith("thing") for s in more)

    ran = run("mistakes", "shared", "-t", SET, "--json")
    pairs = {(o["model"], o["other"]): o for o in of(ran, "overlap")}
    assert len(pairs) == 6
    ran = run("mistakes", "diff", "d", "a", "-t", SET, "--json")
    (made,) = of(ran, "changes")
    pair = pairs["a", "d"]
    assert made["shared"] == pair["shared"] and made["same"] == pair["same"]
    assert made["new"] + made["shared"] == pair["wrong"]
    assert made["fixed"] + made["shared"] == pair["other_wrong"]
    assert len(of(ran, "changed")) == made["fixed"] + made["new"] + made["shared"]
    assert counts(ran)["fixed_original"] == made["fixed"]
    compared = run("compare", "d", "a", "-t", SET, "--json").json[0]
    assert (made["difference"], made["p"]) == (compared["difference"], compared["p"])
    assert (made["low"], made["high"]) == (compared["low"], compared["high"])
    assert of(ran, "confusion_change")
    ran = run("mistakes", "shared", "-t", SET, "--of", "b", "--json")
    assert {row["model"] for row in of(ran, "overlap")} == {"b"}


def test_confusions_of_stored_models(run: Run, place: Path) -> None:
    totals = {}
    for model in "abcd":
        ran = run("mistakes", "confusions", "-t", SET, "-m", model, "--directed", "--json")
        (totals[model],) = (row,) = of(ran, "confusions")
        mine = of(ran, "confusion")
        assert {row["model"], *(pair["model"] for pair in mine)} == {model}
        assert row["sum"] == row["errors"] == sum(pair["n"] for pair in mine)
        assert row["pairs"] == len(mine)
        assert all(p["low"] <= p["share"] <= p["high"] and p["of"] == 40 for p in mine)
    together = run("mistakes", "confusions", "-t", SET, "--directed", "--json", "--top", 3)
    (row,) = of(together, "confusions")
    assert row["sum"] == sum(t["sum"] for t in totals.values()) and row["model"] is None
    assert len(of(together, "confusion")) == 3
    assert all(pair["low"] is None for pair in of(together, "confusion"))


def test_files_of_pairs(run: Run, place: Path) -> None:
    ran = run("mistakes", "confusions", "-t", SET, "-m", "a", "-o", "pairs.json", "--json")
    assert ran.code == 0 and "pairs.json" in ran.err
    named = [[p["first_name"], p["second_name"], p["n"]] for p in of(ran, "confusion")]
    write(Path("names.json"), named)
    for form, file in (("ids", "pairs.json"), ("names", "names.json")):
        ran = run("mistakes", "confusions", "-t", SET, "-m", "a", "--against", file, "--json")
        (against,) = of(ran, "against")
        assert against["differences"] == 0 and against["form"] == form
    rows = json.loads(Path("pairs.json").read_text())
    rows[-1][2] += 1
    write(Path("pairs.json"), rows)
    ran = run("mistakes", "confusions", "-t", SET, "-m", "a", "--against", "pairs.json", "--json")
    (difference,) = of(ran, "difference")
    assert difference["theirs"] == difference["ours"] + 1
    assert run("mistakes", "confusions", "-t", SET, "-o", "x.csv").code == 0
    assert run("mistakes", "confusions", "-t", SET, "-o", "x.txt").code == 2


def test_collapse_makes_mistakes_right(run: Run, place: Path) -> None:
    before = of(run("mistakes", "confusions", "-t", SET, "--json"), "confusions")[0]
    things = [f"thing {n}" for n in range(5)]
    write(place / "all.json", dict.fromkeys(things, things))
    after = run("mistakes", "confusions", "-t", SET, "--collapse", place / "all.json", "--json")
    assert before["errors"] > 0 and of(after, "confusions")[0]["errors"] == 0
    ran = run("mistakes", "confusions", "-t", SET, "--collapse", "imagenet-1k")
    assert ran.code == 2 and "about no class" in ran.err


def test_a_queue_about_labels(run: Run, place: Path) -> None:
    asked = ["mistakes", "shared", "-t", SET, "--wrong", 2, "-o", "queue.csv"]
    ran = run(*asked, "--json")
    missed = sum(of(ran, "consensus")[0]["missed_by"][2:])
    with Path("queue.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    # Two questions an image: what most models say, and its own label.
    assert len(rows) == 2 * missed > 0
    assert all(row["answer"] == row["who"] == "" and row["aim"] == "labels" for row in rows)
    first, second = rows[0], rows[1]
    assert first["image_id"] == second["image_id"] and second["prediction"] == second["labels"]
    assert "models miss the image" in first["evidence"]
    assert len(first["models"].split("; ")) == int(first["evidence"].split("; ")[1].split()[0])
    rows[0] |= {"answer": "correct", "who": "ann"}
    rows[1] |= {"answer": "wrong", "who": "ann"}
    with Path("filled.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    ran = run("import", "judgements", "filled.csv")
    assert ran.code == 0 and "2 judgements added" in ran.out, ran.err
    # What is judged is not asked again.
    assert "2 are judged already" in run(*asked).err
    with Path("queue.csv").open(newline="") as handle:
        assert len(list(csv.DictReader(handle))) == 2 * missed - 2


def test_summary_of_files(run: Run, tmp_path: Path) -> None:
    one = write(
        tmp_path / "one_mistakes.json",
        {
            "a": row(1, "Fine-grained with OOV", "Borderline"),
            "b": row(2, "Fine-grained error with OOV", "Major"),
        },
    )
    two = write(
        tmp_path / "two_mistakes.json", {"a": row(1, "Fine-grained error with OOV", "Minor")}
    )
    ran = run("mistakes", "summary", one, two, "--json")
    table = {(r["model"], r["category"], r["severity"]): r["n"] for r in of(ran, "category")}
    assert table["one", "Fine-grained error with OOV", "Borderline"] == 1
    assert table["one", "all", "all"] == 2 and table["two", "all", "Minor"] == 1
    (agreement,) = of(ran, "agreement")
    assert agreement["shared"] == agreement["same_category"] == 1 and agreement["same"] == 0
    folded = run("mistakes", "summary", one, "--fold", "--json")
    severities = {r["severity"] for r in of(folded, "category")}
    assert severities == {"Major", "Minor", "all"}
    shown = run("mistakes", "summary", one, "--save", "s.json")
    assert "one_mistakes.json: 2 mistakes" in shown.out and "Borderline" in shown.out
    assert json.loads(Path("s.json").read_text())[0]["name"] == "n_mistakes"


def test_a_file_of_mistakes_beside_stored_models(run: Run, place: Path, published: Path) -> None:
    rows = json.loads((published / f"datasets/{SET}.json").read_text())["image_filenames"]
    info = json.loads((published / "metadata/class_info.json").read_text())
    cid = {item["wnid"]: item["cid"] for item in info}
    (first, wnid), (second, other), (third, last) = rows[:3]
    listed = {
        first: row((cid[wnid] + 1) % 5, "Other", "Major"),
        second: row((cid[other] + 2) % 5, "Other", "Minor"),
        third: row(cid[last], "Other", "Minor"),  # no mistake by this truth
        "elsewhere": row(0, "Other", "Minor"),
    }
    file = write(place / "mine_mistakes.json", listed)
    ran = run("mistakes", "confusions", "-t", SET, "--mistake-file", file, "--json")
    (found,) = of(ran, "confusions")
    assert found["model"] == "mine" and found["errors"] == 2
    assert "1 of 4 images are not in" in ran.err
    assert "2 of its 4 mistakes are wrong by truth original" in ran.err
    ran = run(
        "mistakes",
        "shared",
        "-t",
        SET,
        "--mistake-file",
        file,
        "-m",
        "all",
        "--of",
        "mine",
        "--json",
    )
    found_pairs = of(ran, "overlap")
    assert [o["wrong"] for o in found_pairs] == [2] * 4
    kappas = [o["kappa"] for o in found_pairs]
    assert kappas == sorted(kappas, reverse=True)
    ran = run("mistakes", "diff", "mine", "a", "-t", SET, "--mistake-file", file, "--json")
    (made,) = of(ran, "changes")
    assert made["fixed"] + made["shared"] == 2
    ran = run("mistakes", "summary", file, "-t", SET, "--json")
    (score,) = of(ran, "score")
    assert score["metric"] == "top1" and score["value"] == pytest.approx(198 / 200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["confusions"], "--testset is missing"),
        (["confusions", "-t", SET, "--mistake-file", "no.json"], "no.json"),
        (["summary", "no.json"], "no.json"),
        (["summary", "m.json", "--truth", "x"], "--truth needs --testset"),
        (["summary", "empty.json"], "names no mistakes"),
        (["confusions", "-t", SET, "--truth", "real"], "no truth 'real'"),
        (["confusions", "-t", SET, "-m", "nobody"], "no predictions of 'nobody'"),
        (["confusions", "-t", SET, "--collapse", "x"], "no collapse table 'x'"),
        (["confusions", "-t", SET, "--against", "empty.json"], "write a list of"),
        (["shared", "-t", SET, "--wrong", "9"], "ask for 1 to 4"),
        (["shared", "-t", SET, "-m", "a", "--of", "a"], "name at least two"),
        (["shared", "-t", SET, "--of", "x"], "no model 'x'"),
        (["shared", "-t", SET, "--truth", "original", "--truth", "x", "-o", "q.csv"], "one truth"),
        (["propose", "-t", SET, "--images", "x"], "--images needs --encoder"),
        (["queue", "-t", SET, "--aim", "hard", "--seed", "1"], "--seed has no use with --aim hard"),
        (["panel", "-t", SET, "--share", "0.7"], "--share has no use with --rule majority"),
        (["accuracy", "-t", SET, "--rule", "threshold"], "--rule threshold needs --share"),
        (["panel", "-t", SET, "--name", "x"], "--name needs --add-truth"),
        (["panel", "-t", SET, "-m", "a"], "--model needs --out"),
        (["queue"], "--testset is missing"),
        (["diff", "a", "a", "-t", SET], "compared with itself"),
        (["diff", "a", "x", "-t", SET], "no predictions of 'x'"),
        (["cooccurrence", "-t", SET, "--without-truth", "original"], "outside truth original"),
        (["cooccurrence", "-t", "nothing"], "no test set"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(run: Run, place: Path, arguments: list[str], message: str) -> None:
    write(place / "m.json", {"a": row(1, "Other", "Major")})
    write(place / "empty.json", {})
    ran = run("mistakes", *arguments)
    assert ran.code == 2 and message in ran.err, ran.err
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1


@pytest.fixture(scope="module")
def imagenet(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The 22 published models on the validation set with its three truths, once for all tests."""
    place, order = (
        tmp_path_factory.mktemp("imagenet"),
        shared_data / f"imagenetv2/datasets/{SET}.json",
    )
    steps = [
        ["testset", order],
        ["truth", shared_data / "mistakes/multilabel.csv", "-t", SET],
        ["truth", shared_data / "mistakes/real/real.json", "-t", SET],
        ["predictions", shared_data / f"imagenetv2/predictions/{SET}", "-t", SET, "--order", order],
    ]
    for step in steps:
        assert invoke(["import", *map(str, step), "-w", str(place)]) == 0
    return ["-t", SET, "-w", str(place), "--json"]


@pytest.mark.shared
def test_published_mistake_files(run: Run, shared_data: Path) -> None:
    folder = shared_data / "mistakes"
    ran = run(
        "mistakes", "summary", folder / "vit3b_mistakes.json", folder / "greedy_soups_mistakes.json", "--json"
    )  # fmt: skip
    numbers = {(r["model"], r["name"]): r["value"] for r in of(ran, "count")}
    assert numbers == {
        ("vit3b", "n_mistakes"): 378, ("vit3b", "n_major"): 154,
        ("greedy_soups", "n_mistakes"): 249, ("greedy_soups", "n_major"): 89,
    }  # fmt: skip
    table = {(r["model"], r["category"], r["severity"]): r["n"] for r in of(ran, "category")}
    expected = {
        "Fine-grained error": (53, 87, 101, 241), "Fine-grained error with OOV": (10, 22, 22, 54),
        "Non-prototypical": (9, 7, 14, 30), "Spurious Correlation": (2, 37, 13, 52),
        "all": (74, 154, 150, 378),
    }  # fmt: skip
    for category, numbers_of in expected.items():
        for severity, n in zip(("Borderline", "Major", "Minor", "all"), numbers_of, strict=True):
            assert table["vit3b", category, severity] == n
    assert table["vit3b", "Fine-grained with Multilabel Options", "all"] == 1
    assert table["greedy_soups", "Fine-grained error with OOV", "all"] == 26
    (agreement,) = of(ran, "agreement")
    assert agreement["images"] == 164 and agreement["shared"] == agreement["same"] == 143


@pytest.mark.shared
def test_published_confusions(run: Run, imagenet: list[str], shared_data: Path) -> None:
    folder = shared_data / "mistakes"
    wanted = {"wnids": ("n09399592", "n09428293"), "synsets": ("promontory", "seashore")}
    for name, pair in wanted.items():
        ran = run(
            "mistakes", "confusions", *imagenet, "--mistake-file", folder / "vit3b_mistakes.json",
            "--truth", "multilabel", "--against", folder / f"class_confusion_{name}.json",
        )  # fmt: skip
        (row,) = of(ran, "confusions")
        assert (row["pairs"], row["sum"], row["errors"]) == (482, 546, 378)
        (against,) = of(ran, "against")
        assert (against["pairs"], against["sum"]) == (481, 545)
        (difference,) = of(ran, "difference")
        assert (difference["first"], difference["second"]) == pair
        assert (difference["ours"], difference["theirs"]) == (1, 0)
        assert difference["images"] == ["ILSVRC2012_val_00023173.JPEG"]


@pytest.mark.shared
def test_consensus_of_22_models(run: Run, imagenet: list[str]) -> None:
    ran = run("mistakes", "shared", *imagenet)
    found = {row["truth"]: row for row in of(ran, "consensus")}
    assert {t: r["missed_by_all"] for t, r in found.items()} == {
        "original": 3_249, "real": 1_593, "multilabel": 263,
    }  # fmt: skip
    assert {t: r["n"] for t, r in found.items()} == {
        "original": 50_000, "real": 46_837, "multilabel": 18_692,
    }  # fmt: skip
    # The collapse table changes nothing where people have already listed the further labels.
    again = run(
        "mistakes", "shared", *imagenet, "--truth", "multilabel", "--collapse", "imagenet-1k"
    )
    assert of(again, "consensus")[0]["missed_by"] == found["multilabel"]["missed_by"]


@pytest.mark.shared
def test_confusions_of_resnet152(run: Run, imagenet: list[str]) -> None:
    truths = ["--truth", "original", "--truth", "multilabel"]
    ran = run("mistakes", "confusions", *imagenet, "-m", "resnet152", *truths)
    totals = {
        row["truth"]: (row["pairs"], row["sum"], row["errors"]) for row in of(ran, "confusions")
    }
    assert totals == {"original": (6_271, 10_844, 10_844), "multilabel": (2_723, 3_159, 2_291)}
    pairs = of(ran, "confusion")
    names = [
        (p["first_name"], p["second_name"], p["n"]) for p in pairs if p["truth"] == "original"
    ][:20]
    assert names[:5] == [
        ("maillot", "maillot", 48), ("missile", "projectile", 44), ("corn", "ear", 40),
        ("laptop", "notebook", 37), ("bathtub", "tub", 35),
    ]  # fmt: skip
    assert [n for _, _, n in names] == [
        48, 44, 40, 37, 35, 32, 32, 30, 30, 29, 29, 28, 27, 26, 25, 25, 23, 23, 23, 22,
    ]  # fmt: skip
    many = [
        (p["first_name"], p["second_name"], p["n"]) for p in pairs if p["truth"] == "multilabel"
    ]
    assert many[:4] == [
        ("toy poodle", "miniature poodle", 8), ("American chameleon", "green lizard", 7),
        ("bookshop", "library", 7), ("Greater Swiss Mountain dog", "Appenzeller", 6),
    ]  # fmt: skip
    assert [n for _, _, n in many[4:12]] == [5] * 7 + [4]
    assert {("tabby", "Egyptian cat"), ("catamaran", "trimaran")} <= {
        (a, b) for a, b, _ in many[4:11]
    }


@pytest.mark.shared
def test_cooccurrence_of_real_labels(run: Run, imagenet: list[str]) -> None:
    ran = run(
        "mistakes", "cooccurrence", *imagenet, "--truth", "real", "--without-truth", "multilabel"
    )
    assert counts(ran) == {
        "images": 30_000, "images_without_label": 1_902, "images_with_one_label": 21_476,
        "images_with_several_labels": 6_622, "cooccurrences": 13_090, "cooccurring_pairs": 5_456,
        "cooccurring_pairs_of_2_images": 1_659,
    }  # fmt: skip
    assert len(of(ran, "cooccurrence")) == 1_659


@pytest.mark.shared
def test_overlap_with_a_file_of_mistakes(run: Run, imagenet: list[str], shared_data: Path) -> None:
    file = shared_data / "mistakes/vit3b_mistakes.json"
    arguments = ["--truth", "multilabel", "--mistake-file", file]
    models = ["-m", "resnet152", "-m", "pnasnet*"]
    ran = run("mistakes", "shared", *imagenet, *arguments, *models, "--of", "vit3b")
    found = {row["other"]: row for row in of(ran, "overlap")}
    assert (found["resnet152"]["shared"], found["resnet152"]["same"]) == (251, 145)
    assert found["pnasnet_large_tf"]["shared"] == 235
    ran = run("mistakes", "diff", "vit3b", "resnet152", *imagenet, *arguments)
    (row,) = of(ran, "changes")
    assert (row["fixed"], row["shared"], row["new"]) == (127, 251, 2_040)
    ran = run("mistakes", "summary", file, *imagenet, "--truth", "multilabel")
    values = {row["metric"]: f"{100 * row['value']:.3f}" for row in of(ran, "score")}
    assert values == {"mla": "97.915", "mla_micro": "97.978"}
