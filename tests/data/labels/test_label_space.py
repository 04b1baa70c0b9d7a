from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, LabelError, NotFound, UserError
from heldout.core.schema import convert
from heldout.data.labels import Class, LabelSpace
from heldout.data.labels.label_space import LabelSpaceFile, folded

ZOO = LabelSpace(
    "zoo",
    (
        Class("n1", ("crane",), "n1", "a wading bird", ("bird",)),
        Class("n2", ("crane", "derrick"), "n2", "lifts and moves heavy objects"),
        Class("n3", ("great white shark", "white shark"), None, "a large aggressive fish"),
        Class("n4", ("cat",)),
        Class("n5", ("bobcat", "Lynx rufus"), gloss="a wild cat"),
        Class("n6", ("wild cat",)),
    ),
)


def test_order_index_and_lookup() -> None:
    assert ZOO.ids == ("n1", "n2", "n3", "n4", "n5", "n6")
    assert len(ZOO) == 6
    assert [ZOO.index(i) for i in ZOO.ids] == list(range(6))
    assert ZOO.indices(["n3", "n1", "n3"]).tolist() == [2, 0, 2]
    assert ZOO.get("n4").name == "cat"
    assert "n4" in ZOO
    assert "cat" not in ZOO
    assert [item.id for item in ZOO] == list(ZOO.ids)


def test_index_takes_ids_only_and_says_what_a_name_means() -> None:
    with pytest.raises(LabelError, match=r"'cat' is not a class of zoo.*the id is n4 \(cat\)"):
        ZOO.index("cat")
    with pytest.raises(LabelError, match="ids look like n1"):
        ZOO.index("zebra")


def test_by_name_ignores_case_and_underscores() -> None:
    assert ZOO.by_name("Great_White  Shark").id == "n3"
    assert ZOO.by_name("lynx rufus").id == "n5"


def test_by_name_refuses_an_ambiguous_name_and_lists_the_candidates() -> None:
    with pytest.raises(LabelError, match=r"fits 2 classes of zoo: n1 \(crane\), n2 \(crane\)"):
        ZOO.by_name("CRANE")


def test_a_name_given_twice_to_one_class_is_not_ambiguous() -> None:
    space = LabelSpace("s", (Class("a", ("Sofa", "sofa")),))
    assert space.by_name("sofa").id == "a"


def test_find_ranks_whole_names_then_words_then_parts_then_gloss() -> None:
    assert [c.id for c in ZOO.find("CAT")] == ["n4", "n6", "n5"]
    assert [c.id for c in ZOO.find("aggressive")] == ["n3"]
    assert [c.id for c in ZOO.find("n2")] == ["n2"]
    assert ZOO.find("zebra") == ()
    with pytest.raises(LabelError, match="nothing to search"):
        ZOO.find("  ")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "has no classes"),
        (["a", "b", "a"], "'a' is there twice"),
        (["a", ""], "'' is not a class id"),
        ([" a"], "is not a class id"),
        (["a\nb"], "is not a class id"),
    ],
)
def test_bad_ids_are_refused(ids: list[str], message: str) -> None:
    with pytest.raises(LabelError, match=message):
        LabelSpace.from_ids("s", ids)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "../up", "///"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="name"):
        LabelSpace.from_ids(name, ["a"])


def test_the_fingerprint_is_of_the_ordered_ids_and_nothing_else() -> None:
    bare = LabelSpace.from_ids("other", ZOO.ids)
    assert bare.fingerprint == ZOO.fingerprint
    assert bare != ZOO
    turned = LabelSpace.from_ids("other", reversed(ZOO.ids))
    assert turned.fingerprint != ZOO.fingerprint
    # Joining ids must not make different lists look equal.
    assert (
        LabelSpace.from_ids("s", ["a,b", "c"]).fingerprint
        != LabelSpace.from_ids("s", ["a", "b,c"]).fingerprint
    )


def test_subset_keeps_what_is_known_of_the_classes() -> None:
    part = ZOO.subset("part", ["n5", "n1"])
    assert part.ids == ("n5", "n1")
    assert part.get("n1") == ZOO.get("n1")
    with pytest.raises(LabelError, match="n9"):
        ZOO.subset("part", ["n9"])


def test_a_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "zoo.json"
    ZOO.write(path)
    assert LabelSpace.read(path) == ZOO
    assert LabelSpace.load(path) == ZOO
    assert LabelSpace.load(str(path)) == ZOO
    assert json.loads(path.read_text())["schema_version"] == 1


_TEXT = st.text("aAbẞß_-:,\"' 中", min_size=1, max_size=5).filter(
    lambda text: text == text.strip() and bool(text.strip("_ "))
)
_CLASS = st.builds(
    Class,
    id=_TEXT,
    names=st.lists(_TEXT, max_size=3).map(tuple),
    wnid=st.none() | _TEXT,
    gloss=st.text(max_size=3),
    parents=st.lists(_TEXT, max_size=2).map(tuple),
)
_SPACE = st.lists(_CLASS, min_size=1, max_size=8, unique_by=lambda c: c.id).map(
    lambda classes: LabelSpace("made", tuple(classes))
)


@settings(deadline=None)
@given(_SPACE)
def test_every_label_space_survives_json(space: LabelSpace) -> None:
    plain = json.loads(json.dumps(space.to_dict()))
    again = convert(plain, LabelSpaceFile, where=Path("file.json")).label_space()
    assert again == space
    assert again.fingerprint == space.fingerprint
    assert hash(again) == hash(space)


@settings(deadline=None)
@given(_SPACE)
def test_every_name_finds_its_class_or_is_refused_as_ambiguous(space: LabelSpace) -> None:
    for item in space:
        for name in item.names:
            assert item in space.find(name)
            named = [c for c in space if folded(name) in map(folded, c.names)]
            try:
                assert [space.by_name(name)] == named
            except LabelError:
                assert len(named) > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": [{"id": "a"}, {"id": "a"}]}, "there twice"),
        ({"classes": [{"names": ["a"]}]}, r"classes\[0\]: .*missing required field id"),
        ({"classes": [{"id": 3}]}, r"classes\[0\]\.id: Expected str, got int"),
        ({"classes": ["a"]}, r"classes\[0\]: Expected object"),
        ({"classes": [{"id": "a", "names": "a"}]}, r"names: Expected array, got str"),
        ({"classes": [{"id": "a", "wnid": 7}]}, r"wnid: Expected str . null, got int"),
        ({"classes": [{"id": "a", "synset": "x"}]}, "unknown field 'synset'"),
        ({"classes": None}, "classes: Expected array, got null"),
        ({"name": "a b"}, "'a b' is not a name"),
        ({"fingerprint": "0"}, "do not fit its fingerprint"),
        ({"schema_version": 99}, "reads up to 1"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**ZOO.to_dict(), **change}))
    with pytest.raises(BadFile, match=message) as caught:
        LabelSpace.load(path)
    assert str(path) in caught.value.line
    assert "\n" not in caught.value.line


def test_a_swapped_pair_of_classes_is_noticed(tmp_path: Path) -> None:
    value = ZOO.to_dict()
    value["classes"][0], value["classes"][1] = value["classes"][1], value["classes"][0]
    (tmp_path / "s.json").write_text(json.dumps(value))
    with pytest.raises(BadFile, match="fingerprint"):
        LabelSpace.load("s.json")


def test_an_empty_name_is_refused() -> None:
    for name in ("", " ", "_", "_ _"):
        with pytest.raises(LabelError, match="'a' has an empty name"):
            LabelSpace("s", (Class("a", (name,)),))
    with pytest.raises(LabelError, match="no class named '_'"):
        ZOO.by_name("_")


def test_load_of_nothing() -> None:
    with pytest.raises(LabelError, match=r"no label space named 'imagnet'.*imagenet-1k"):
        LabelSpace.load("imagnet")
    with pytest.raises(NotFound):
        LabelSpace.load("absent.json")


def test_accents_are_compared_however_they_were_typed() -> None:
    one, two = "caf\u00e9", "CAFE\u0301"
    space = LabelSpace("s", (Class("a", (one,)), Class("b", (two,))))
    assert LabelSpace("s", (Class("a", (one,)),)).by_name(two).id == "a"
    with pytest.raises(LabelError, match="fits 2 classes"):
        space.by_name(one)


def test_a_class_carries_what_searching_and_labelling_need(tmp_path: Path) -> None:
    kettle = {
        "id": "kettle",
        "names": ["kettle", "teakettle"],
        "gloss": "boils water",
        "search_terms": ["tea kettle", "whistling kettle"],
        "links": ["https://example.org/kettle#steel"],
        "examples": ["http://example.org/1.jpg"],
        "similar": ["teapot", "not-here"],
    }
    path = tmp_path / "kitchen.json"
    path.write_text(
        json.dumps({"schema_version": 1, "name": "kitchen", "classes": [kettle, {"id": "teapot"}]})
    )
    space = LabelSpace.load(path)
    assert json.loads(json.dumps(space.get("kettle").to_dict())) == kettle
    assert space.get("teapot") == Class("teapot")
    space.write(tmp_path / "again.json")
    assert LabelSpace.load(tmp_path / "again.json") == space


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"links": ["javascript:alert(1)"]}, "has the link 'javascript:alert"),
        ({"examples": ["photos/1.jpg"]}, "has the link 'photos/1.jpg'"),
        ({"links": ["https://a.org/ b"]}, "has the link"),
        ({"search_terms": ["  "]}, "has an empty search term"),
        ({"similar": ["kettle"]}, "is similar to itself"),
        ({"search_term": ["x"]}, "unknown field 'search_term' in classes"),
    ],
)
def test_what_a_class_may_not_carry(field: dict[str, object], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "kitchen.json"
    classes = [{"id": "kettle", **field}]
    path.write_text(json.dumps({"schema_version": 1, "name": "kitchen", "classes": classes}))
    with pytest.raises(UserError, match=reason):
        LabelSpace.read(path)
