"""Tests of :mod:`heldout.data.labels.label_map`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heldout.core.errors import BadFile, LabelError, NotFound
from heldout.data.labels import (
    Class,
    Hierarchy,
    LabelMap,
    LabelSpace,
    hierarchy_map,
    identity_map,
    load_label_map,
    many_to_one_map,
    published_map,
    read_label_map,
    subset_map,
    write_label_map,
)

# map files


IMAGENET = LabelSpace.load("imagenet-1k")
N = LabelSpace.from_ids("n", list("abcdef"))


def saved(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "made",
    [
        identity_map(N),
        many_to_one_map(N, {"X": ["e", "b"], "Y": ["d"]}, name="two", reading="restricted"),
        many_to_one_map(N, {"X": ["a"], "Y": ["a"]}, name="m", reading="full", allow_overlap=True),
        hierarchy_map(IMAGENET, ["n02084071", "n02121620"], name="pets", reading="full"),
        published_map("imagenet-r"),
    ],
    ids=LabelMap.describe,
)
def test_a_written_map_is_read_back_equal(made: LabelMap) -> None:
    write_label_map(made, "map.json")
    again = read_label_map("map.json")
    assert again == made
    assert again.describe() == made.describe()
    assert load_label_map("map.json", source=made.source) == made
    with pytest.raises(BadFile, match="the predictions are in other"):
        read_label_map("map.json", source=LabelSpace.from_ids("other", ["a"]))


def test_csv_by_id_index_and_name() -> None:
    for first, second, third in (
        ("n01484850", "n01491361", "n01440764"),
        ("2", "3", "0"),
        ("great white shark", "Galeocerdo_cuvieri", "TENCH"),
    ):
        path = saved("fish.csv", f"target,source\nshark,{first}\nshark,{second}\nother,{third}\n")
        made = read_label_map(path, source=IMAGENET, reading="full")
        assert made.target.ids == ("shark", "other")
        assert made.accepted == ((2, 3), (0,))
        assert made.describe() == "many-to-one:fish:full"


def test_a_node_stands_for_all_classes_under_it() -> None:
    path = saved("m.json", '{"dog": "n02084071", "cat": ["n02121620"]}')
    made = read_label_map(path, source=IMAGENET, reading="full")
    assert [len(sources) for sources in made.accepted] == [118, 7]


def test_csv_with_byte_order_mark_quotes_and_crlf() -> None:
    Path("m.csv").write_bytes(b'\xef\xbb\xbftarget,source\r\n"a, b",c\r\n')
    made = read_label_map("m.csv", source=N, reading="full")
    assert made.target.ids == ("a, b",)
    assert made.accepted == ((2,),)


def test_plain_json_with_ids_and_indices() -> None:
    path = saved("m.json", json.dumps({"shark": ["n01484850", 3], "other": 0}))
    made = read_label_map(path, source=IMAGENET, reading="restricted")
    assert made.accepted == ((2, 3), (0,))
    assert made.describe() == "many-to-one:m:restricted"


def test_an_ambiguous_name_is_refused() -> None:
    path = saved("m.csv", "target,source\nfish,tench\nbird,crane\n")
    with pytest.raises(BadFile, match=r"m.csv: the name 'crane' fits 2"):
        read_label_map(path, source=IMAGENET, reading="full")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.csv", "", "is empty"),
        ("m.csv", "a,b\n1,2\n", "has no column 'target'"),
        ("m.csv", "target,source\n", "has no rows"),
        ("m.csv", "target,source\nX\n", "cannot be read as CSV"),
        ("m.csv", 'target,source\nX,"' + "a\n" * 70_000, "has no class named .{,90}"),
        ("m.csv", "target,source\nX,a\n,b\n", "row 2 has an empty cell"),
        ("m.csv", "target,source\nX,zz\n", "n has no class named 'zz'"),
        ("m.csv", "target,source\nX,6\n", "class index 6 is outside 0..5"),
        ("m.csv", "target,source\nX,-1\n", "no class named '-1'"),
        ("m.csv", "target,source\nX,a\nY,a\n", r"a \(a\) is accepted for X"),
        ("m.json", "[]", "names no target"),
        ("m.json", "{}", "names no target"),
        ("m.json", '{"X": []}', "'X' has no classes"),
        ("m.json", '{"X": true}', "is not a target file"),
        ("m.json", '{"X": [["a"]]}', "is not a target file"),
        ("m.json", '{"X": 9}', "index 9 is outside"),
        ("m.json", '{"X": "a", "Y": "b", "X": "c"}', "'X' is there twice"),
        ("m.json", '{"schema_version": 1, "kind": "label_space"}', "no class named"),
        ("m.json", '{"schema_version": 9, "kind": "label_map"}', "schema_version 9"),
        (
            "m.json",
            '{"schema_version": 1, "kind": "label_map", "name": "x"}',
            "missing required field",
        ),
        ("m.txt", "X a", "is not one of .json, .csv"),
    ],
)
def test_a_bad_file_is_named_with_the_fix(name: str, text: str, message: str) -> None:
    path = saved(name, text)
    with pytest.raises(BadFile, match=message) as caught:
        read_label_map(path, source=N, reading="full")
    assert caught.value.line.startswith(name)
    assert caught.value.fix
    assert "\n" not in caught.value.line and len(caught.value.line) < 300


def test_what_is_missing_is_said() -> None:
    path = saved("m.csv", "target,source\nX,a\n")
    with pytest.raises(BadFile, match=r"m.csv: does not say how the argmax is read"):
        read_label_map(path, source=N)
    with pytest.raises(BadFile, match=r"m.csv: the source label space is not known"):
        read_label_map(path, reading="full")
    with pytest.raises(NotFound, match=r"no label map at absent\.csv"):
        read_label_map("absent.csv", source=N, reading="full")
    saved("broken.json", '{"X": ')
    with pytest.raises(BadFile, match="not valid JSON"):
        read_label_map("broken.json", source=N, reading="full")
    Path("latin.csv").write_bytes(b"target,source\n\xe9,a\n")
    with pytest.raises(BadFile, match="UTF-8"):
        read_label_map("latin.csv", source=N, reading="full")


@pytest.mark.parametrize(
    "change",
    [
        {"map_kind": "magic"},
        {"reading": "best"},
        {"accepted": {"X": ["a"], "Q": ["b"]}},
        {"accepted": {"X": "a"}},
        {"accepted": {"X": ["zz"]}},
        {"accepted": {}},
        {"name": "a b"},
    ],
)
def test_a_tampered_map_file_is_refused(change: dict[str, object]) -> None:
    write_label_map(many_to_one_map(N, {"X": ["a"]}, name="m", reading="full"), "m.json")
    value = json.loads(Path("m.json").read_text())
    saved("m.json", json.dumps({**value, **change}))
    with pytest.raises(BadFile, match=r"^m\.json: "):
        read_label_map("m.json")


def test_load_by_description() -> None:
    for text in ("subset:imagenet-a:restricted", "subset:imagenet-a:full"):
        assert load_label_map(text).describe() == text
    assert load_label_map("imagenet-a").describe() == "subset:imagenet-a:restricted"
    assert load_label_map("imagenet-a:full").describe() == "subset:imagenet-a:full"
    assert load_label_map("identity", source=N) == identity_map(N)
    for text in ("subset:imagenet-a:best", "subset:nowhere:full", "imagenet-z", ""):
        with pytest.raises(LabelError, match="no label map"):
            load_label_map(text)
    with pytest.raises(LabelError, match="the predictions are in n"):
        load_label_map("imagenet-a", source=N)


@pytest.mark.shared
def test_si_scores_label_map(shared_data: Path) -> None:
    made = read_label_map(shared_data / "siscore/label_map.json", source=IMAGENET, reading="full")
    assert len(made.target) == 112
    assert made.describe() == "subset:label_map:full"
    assert made.accepted_ids("ambulance") == (IMAGENET.by_name("ambulance").id,)


def test_maps_fit_the_classes_of_a_test_set() -> None:
    source = LabelSpace.load("imagenet-1k")
    pets = LabelSpace("pets", (Class("dog", wnid="n02084071"), Class("cat", wnid="n02121620")))
    full = load_label_map("hierarchy:full", source=source, target=pets)
    assert full.describe() == "hierarchy:pets:full"
    assert len(full.accepted_ids("dog")) == 118
    some = source.subset("two", source.ids[3:5])
    cut = load_label_map("subset:restricted", source=source, target=some)
    assert cut.describe() == "subset:two:restricted"
    strange = LabelSpace("zoo", (Class("giraffe", wnid="n02439033"),))
    with pytest.raises(LabelError, match="no class of imagenet-1k is accepted for giraffe"):
        load_label_map("hierarchy:restricted", source=source, target=strange)
    with pytest.raises(LabelError, match="no label map 'hierarchy:full'"):
        load_label_map("hierarchy:full", source=source)


def test_a_file_is_named_with_its_reading_and_put_in_the_order_of_the_test_set() -> None:
    saved("m.csv", "target,source\nY,b\nX,a\n")
    target = LabelSpace.from_ids("set", ["X", "Y"])
    made = load_label_map("m.csv:restricted", source=N, target=target)
    assert (made.reading, made.target, made.accepted) == ("restricted", target, ((0,), (1,)))
    assert load_label_map("m.csv:full", source=N).target.ids == ("Y", "X")
    assert load_label_map("m.csv:full", source=N, target=N).target.ids == ("Y", "X")
    with pytest.raises(BadFile, match="does not say how the argmax is read") as caught:
        load_label_map("m.csv", source=N, target=target)
    assert "FILE:READING" in caught.value.fix


def test_a_number_too_long_to_be_one_is_no_json() -> None:
    path = saved("m.json", '{"X": ' + "1" * 5000 + "}")
    with pytest.raises(BadFile, match="not valid JSON"):
        read_label_map(path, source=N, reading="full")


# map kinds


def test_subset_by_ids_and_by_label_space() -> None:
    by_ids = subset_map(N, ["e", "b"], name="part", reading="full")
    assert by_ids.accepted == ((4,), (1,))
    assert by_ids.target.ids == ("e", "b")
    by_space = subset_map(N, LabelSpace.from_ids("part", ["e", "b"]), reading="full")
    assert by_space.accepted == by_ids.accepted
    assert by_space.name == "part"
    with pytest.raises(LabelError, match="'z' is not a class of n"):
        subset_map(N, ["z"], name="part", reading="full")


def test_many_to_one() -> None:
    target = LabelSpace.from_ids("k", ["Y", "X"])
    made = many_to_one_map(N, {"X": ["c", "a", "c"], "Y": ["b"]}, target=target, reading="full")
    assert made.accepted == ((1,), (0, 2))
    assert (made.name, made.kind) == ("k", "many-to-one")
    renamed = many_to_one_map(N, {"X": ["c"], "Y": ["b"]}, name="r", reading="full")
    assert renamed.kind == "subset"


def test_many_to_one_refusals() -> None:
    target = LabelSpace.from_ids("k", ["X", "Y"])
    with pytest.raises(LabelError, match="no class of n is accepted for Y"):
        many_to_one_map(N, {"X": ["a"]}, target=target, reading="full")
    with pytest.raises(LabelError, match="'Z' is not a class of k"):
        many_to_one_map(N, {"X": ["a"], "Y": ["b"], "Z": ["c"]}, target=target, reading="full")
    with pytest.raises(LabelError, match=r"a \(a\) is accepted for X \(X\), Y \(Y\)"):
        many_to_one_map(N, {"X": ["a"], "Y": ["a"]}, name="m", reading="full")
    with pytest.raises(LabelError, match="has no classes"):
        many_to_one_map(N, {}, name="m", reading="full")


def test_hierarchy_over_wordnet() -> None:
    space = LabelSpace.load("imagenet-1k")
    dog, cat = "n02084071", "n02121620"
    made = hierarchy_map(space, [dog, cat], name="pets", reading="full")
    assert [len(sources) for sources in made.accepted] == [118, 7]
    assert made.target.get(dog).name == "dog"
    tree = Hierarchy.wordnet()
    assert made.accepted_ids(cat) == tree.leaves(cat, space)
    with pytest.raises(LabelError, match="'q' is not a class of wordnet-nodes"):
        hierarchy_map(space, ["q"], name="x", reading="full")
    feline = "n02120997"
    with pytest.raises(LabelError, match="is accepted for"):
        hierarchy_map(space, [cat, feline], name="x", reading="full")
    nested = hierarchy_map(space, [cat, feline], name="x", reading="full", allow_overlap=True)
    assert set(nested.accepted[0]) < set(nested.accepted[1])


def test_hierarchy_onto_a_label_space_with_wordnet_ids() -> None:
    space, cifar = LabelSpace.load("imagenet-1k"), LabelSpace.load("cifar-10")
    with pytest.raises(LabelError, match=r"no class of imagenet-1k is accepted for deer"):
        hierarchy_map(space, cifar, reading="restricted")
    animals = cifar.subset("animals", ["bird", "cat", "dog", "frog", "horse"])
    made = hierarchy_map(space, animals, reading="restricted")
    assert [len(sources) for sources in made.accepted] == [59, 7, 118, 3, 1]
    # A minivan is both under car and under truck in WordNet, so somebody has to decide.
    with pytest.raises(LabelError, match="minivan"):
        hierarchy_map(space, cifar.subset("road", ["automobile", "truck"]), reading="restricted")


def test_hierarchy_without_any_node_in_common() -> None:
    with pytest.raises(LabelError, match="no class of n is accepted for n02084071"):
        hierarchy_map(N, ["n02084071"], name="x", reading="full")
    two = LabelSpace("two", (Class("x", wnid="n02084071"), Class("y", wnid="n02084071")))
    assert hierarchy_map(two, ["n02084071"], name="x", reading="full").accepted == ((0, 1),)
