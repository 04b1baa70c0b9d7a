from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heldout.cli.app import invoke
from heldout.data.labels import LabelSpace, read_label_map
from heldout.data.testset import Card, image_table, make_testset, membership_table, truth_table
from heldout.data.testset.testset import save
from tests.data.labels.test_match_words import TREE

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def runner(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(["labels", "match", *(str(argument) for argument in arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runner


@pytest.fixture
def files(tmp_path: Path) -> tuple[Any, ...]:
    tree, words, names = (tmp_path / name for name in ("tree.json", "words.json", "names.txt"))
    tree.write_text(json.dumps(TREE))
    words.write_text(
        json.dumps({"animal": ["tiger", "cat"], "tableware": ["cup"], "thing": ["kite"]})
    )
    names.write_text("kite(cup)\n\ntiger(cup)\nkite(cup)\nkite(sofa)\nno subset\n")
    return ("--subset-names", names, "--tree", tree, "--parents", words)


def counts(text: str) -> dict[str, int]:
    return {r["name"]: r["value"] for r in json.loads(text) if r["record"] == "count"}


def test_counts_notes_and_doubts(run: Run, files: tuple[Any, ...]) -> None:
    code, text, said = run(*files, "--json")
    assert code == 0, said
    assert counts(text) == {
        "subsets": 3,
        "words": 7,
        "words_matched": 3,
        "words_suspicious": 2,
        "subsets_selected": 2,
        "classes_selected": 2,
        "leaves_covered": 2,
        "leaves": 6,
    }
    assert "1 lines are not subject(context) and are left out (first in line 6)" in said
    assert "read the key 'child  ren'" in said
    code, text, _ = run(*files)
    assert code == 0 and "subsets" in text


def test_without_a_vocabulary_the_names_own_words_count(run: Run, files: tuple[Any, ...]) -> None:
    code, text, _ = run(*files[:4], "--json")
    found = counts(text)
    assert code == 0 and (found["words"], found["words_matched"]) == (4, 3)


def test_overrides_and_files(run: Run, files: tuple[Any, ...], tmp_path: Path) -> None:
    overrides = tmp_path / "o.csv"
    overrides.write_text("word,node\nkite,\ncow,n02129604\n")
    out = tmp_path / "OUT"
    code, text, said = run(*files, "--json", "--overrides", overrides, "-o", out)
    assert code == 0 and counts(text)["subsets_selected"] == 1
    assert "the override of 'cow' has no effect" in said
    assert sorted(path.name for path in out.iterdir()) == [
        "classes.csv", "label_map.json", "matching.json", "subsets.txt", "suspicious.csv",
        "unmatched.txt", "words.csv",
    ]  # fmt: skip
    assert (out / "subsets.txt").read_text() == "tiger(cup)\n"
    again = run(*files, "--json", "--overrides", overrides, "-o", out)
    assert again[0] == 0 and f"{out}: unchanged" in again[2]
    assert run(*files, "-o", out)[0] == 2


def test_a_tree_of_other_classes_gives_no_label_map(
    run: Run, files: tuple[Any, ...], tmp_path: Path
) -> None:
    out = tmp_path / "OUT"
    code, _, said = run(*files, "-o", out, "--classes", "cifar-10")
    assert code == 0 and "no label map" in said
    assert not (out / "label_map.json").exists()


@pytest.mark.parametrize(
    ("place", "text", "said"),
    [
        (1, "", "holds no names of subsets"),
        (3, "{", "not valid JSON"),
        (5, '{"a": "b"}', "not a hierarchy of words"),
    ],
)
def test_bad_files_are_one_line(
    run: Run, files: tuple[Any, ...], place: int, text: str, said: str
) -> None:
    files[place].write_text(text)
    code, _, error = run(*files)
    assert code == 2 and said in error and str(files[place]) in error


def test_a_label_map_for_a_test_set(run: Run, files: tuple[Any, ...], tmp_path: Path) -> None:
    ids = ["1", "2", "3"]
    made = make_testset(
        Card(name="pets", label_space="pets"),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, ["tiger", "kite", "tiger"])},
        label_space=LabelSpace.from_ids("pets", ["tiger", "kite", "sofa"]),
        memberships=membership_table(
            [
                ("1", "subset", "tiger(cup)"),
                ("2", "subset", "kite(cup)"),
                ("3", "subset", "tiger(x)"),
            ]
        ),
    )
    save(made, tmp_path / "set")
    common = ("--testset", tmp_path / "set", *files[2:4], "-o", tmp_path / "OUT", "--json")
    code, text, said = run(*common)
    assert code == 0 and counts(text)["subsets_selected"] == 2
    assert "no label map: 1 classes of the set match no node, such as 'sofa'" in said
    vocabulary = tmp_path / "v.json"
    vocabulary.write_text('{"thing": ["tiger", "kite", "cup", "sofa"]}')
    overrides = tmp_path / "o.csv"
    overrides.write_text("word,node\nsofa,n02121808\n")
    code, _, said = run(*common, "--parents", vocabulary, "--overrides", overrides, "--replace")
    assert code == 0, said
    label_map = read_label_map(tmp_path / "OUT/label_map.json")
    assert label_map.target.fingerprint == made.label_space.fingerprint
    assert label_map.accepted_ids("sofa") == ("n02123045", "n02123394")
    code, _, said = run(*files, "--testset", tmp_path / "set")
    assert code == 2 and "give --subset-names or --testset" in said


@pytest.mark.shared
def test_published_words_and_all_of_their_pairs(
    run: Run, shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "metashift"
    words = json.loads((folder / "class_hierarchy.json").read_text())
    every = list(
        dict.fromkeys(word for parent, below in words.items() for word in [parent, *below])
    )
    names = tmp_path / "names.txt"
    names.write_text("".join(f"{word}(dog)\n" for word in every))
    code, text, _ = run(
        "--subset-names", names, "--tree", folder / "imagenet1k_node_names.json",
        "--parents", folder / "class_hierarchy.json", "--json",
    )  # fmt: skip
    found = counts(text)
    assert code == 0
    # with every word as a subject, each matched word is a class
    assert found["words_matched"] == found["subsets_selected"] == found["classes_selected"] == 427
    assert found["leaves_covered"] <= found["leaves"] == 1000
