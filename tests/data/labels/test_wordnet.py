"""Tests of :mod:`heldout.data.labels.wordnet`."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from heldout.core.errors import BadFile, LabelError, NotFound
from heldout.data.labels import BUILT_IN, Hierarchy, LabelSpace
from heldout.data.labels.wordnet import DATA, EXCEPTIONS, SYNSETS, WordNetNouns, senses_of_table

# builtin


def test_sizes_and_orders() -> None:
    sizes = {name: len(LabelSpace.load(name)) for name in BUILT_IN}
    assert sizes == {
        "imagenet-1k": 1000,
        "imagenet-21k": 21843,
        "imagenet-a": 200,
        "imagenet-r": 200,
        "wordnet-nodes": 23548,
        "cifar-10": 10,
    }
    for name in BUILT_IN:
        ids = LabelSpace.load(name).ids
        assert list(ids) == sorted(ids)


def test_known_positions_of_imagenet() -> None:
    space = LabelSpace.load("imagenet-1k")
    first = space.classes[0]
    assert (first.id, first.names) == ("n01440764", ("tench", "Tinca tinca"))
    assert space.index("n15075141") == 999
    # The index of the golden retriever is in every tutorial.
    assert space.classes[207].name == "golden retriever"


def test_names_that_are_not_unique() -> None:
    space = LabelSpace.load("imagenet-1k")
    for name in ("crane", "maillot", "cardigan"):
        with pytest.raises(LabelError, match="fits 2 classes"):
            space.by_name(name)
    assert sum(len(items) > 1 for items in space._by_folded_name.values()) == 19
    first_names = [item.name for item in space]
    assert sorted({n for n in first_names if first_names.count(n) > 1}) == ["crane", "maillot"]


def test_spaces_contain_one_another_as_published() -> None:
    small, large = LabelSpace.load("imagenet-1k"), LabelSpace.load("imagenet-21k")
    assert set(small.ids) - set(large.ids) == {"n04399382"}  # teddy bear
    assert set(LabelSpace.load("imagenet-a").ids) < set(small.ids)
    assert set(LabelSpace.load("imagenet-r").ids) < set(small.ids)
    assert set(large.ids) | set(small.ids) < set(LabelSpace.load("wordnet-nodes").ids)


def test_every_built_in_class_is_a_node_with_the_parents_of_the_hierarchy() -> None:
    tree = Hierarchy.wordnet()
    for name in BUILT_IN:
        for item in LabelSpace.load(name):
            assert tree.parents(item.node) == item.parents


def test_cifar10_is_in_its_published_order() -> None:
    space = LabelSpace.load("cifar-10")
    assert space.ids == (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip
    nodes = LabelSpace.load("wordnet-nodes")
    for item in space:
        assert item.id in nodes.get(item.node).names


def test_the_tables_are_the_ones_that_were_derived() -> None:
    content = json.loads((DATA / "content.json").read_text())["tables"]
    assert len(content) == 3
    for name, facts in content.items():
        data = (DATA / name).read_bytes()
        text = gzip.decompress(data) if name.endswith(".gz") else data
        assert hashlib.sha256(text).hexdigest() == facts["sha256"]
        assert text.count(b"\n") == facts["rows"]


def test_the_data_carry_their_licence_and_stay_small() -> None:
    text = (DATA / "LICENSES.md").read_text()
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in text
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 2_000_000


def test_importing_the_room_reads_no_data_and_nothing_heavy() -> None:
    program = (
        "import builtins, gzip, sys\n"
        "def refuse(*a, **k): raise RuntimeError('data read at import')\n"
        "gzip.decompress = refuse\n"
        "import heldout.data.labels\n"
        "heavy = {'scipy', 'pyarrow', 'pandas', 'PIL', 'sqlalchemy', 'httpx'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == "[]"


@pytest.mark.shared
def test_imagenet_1k_equals_the_published_catalogue(shared_data: Path) -> None:
    published = json.loads((shared_data / "imagenetv2/metadata/class_info.json").read_text())
    ours = LabelSpace.load("imagenet-1k")
    assert len(published) == len(ours)
    for position, item in enumerate(published):
        mine = ours.classes[position]
        assert item["cid"] == position
        assert item["wnid"] == mine.id == mine.wnid
        assert tuple(item["synset"]) == mine.names
        assert item["gloss"] == mine.gloss


@pytest.mark.shared
def test_imagenet_21k_equals_the_published_list(shared_data: Path) -> None:
    ids = (shared_data / "geoyfcc/imagenet21k_wordnet_ids.txt").read_text().split()
    lemmas = (shared_data / "geoyfcc/imagenet21k_wordnet_lemmas.txt").read_text().splitlines()
    ours = LabelSpace.load("imagenet-21k")
    assert list(ours.ids) == ids
    joined = [", ".join(name.replace(" ", "_") for name in item.names) for item in ours]
    assert joined == lemmas


# match wordnet


NOUNS = WordNetNouns.built_in()


def test_the_tables_are_the_ones_that_were_derived_match_wordnet() -> None:
    # tools/derive_wordnet_index.py prints these; wn 0.0.23 and Debian's wordnet-base give the same
    expected = {
        SYNSETS: "4c33d45e6f0b6b44fe52df1a8c13340f5c5b04ab794bce161406e24ba3ca8177",
        EXCEPTIONS: "b91f526f24634b57120aa98817ed9fedf6d4bfdfacac6193e2b28c9ef47398a9",
    }
    for name, digest in expected.items():
        text = gzip.decompress((DATA / name).read_bytes())
        assert hashlib.sha256(text).hexdigest() == digest
    assert (DATA / SYNSETS).stat().st_size < 900_000


def test_sizes_are_those_of_wordnet() -> None:
    assert len(NOUNS.senses) == 117_798
    assert len({sense for senses in NOUNS.senses.values() for sense in senses}) == 82_115
    assert sum(map(len, NOUNS.senses.values())) == 146_312


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("dog", ["dog"]),
        ("Dogs", ["dog"]),
        ("geese", ["goose"]),
        ("tennis players", ["tennis_player"]),
        ("glasses", ["glasses", "glass"]),  # the word itself first
        ("buses", ["bus"]),
        ("boxes", ["box"]),
        ("leaves", ["leaf", "leave"]),  # an exception, in the order of the list
        ("women", ["woman"]),
        ("firemen", ["fireman"]),
        ("bunnies", ["bunny"]),
        ("churches", ["church"]),
        ("knives", ["knife"]),
        ("asdfgh", []),
        ("", []),
    ],
)
def test_base_forms(word: str, forms: list[str]) -> None:
    assert list(NOUNS.base_forms(word)) == forms


def test_senses_are_in_wordnets_order() -> None:
    # as `wn dog -synsn` lists them
    assert NOUNS.synsets("dog")[:3] == ("n02084071", "n10114209", "n10023039")
    assert NOUNS.synsets("dogs") == NOUNS.synsets("DOG")
    assert NOUNS.synsets("glasses")[0] == "n04272054"  # spectacles, then what a glass is
    assert NOUNS.synsets("glasses")[1:] == NOUNS.synsets("glass")
    assert NOUNS.synsets("no such word") == ()


def test_the_index_agrees_with_the_words_of_the_hierarchy() -> None:
    """Two tables derived apart: each word of a node has that node among its senses."""
    for item in LabelSpace.load("imagenet-1k"):
        for name in item.names:
            assert item.id in NOUNS.synsets(name), (item.id, name)


def test_a_full_wordnet_can_be_read_instead(tmp_path: Path) -> None:
    (tmp_path / "index.noun").write_text(
        "  1 This is the licence.\n"
        "cat n 2 3 @ ~ #m 2 1 02121620 10153414  \n"
        "ice_cream n 1 2 @ ~ 1 0 07614500  \n"
    )
    (tmp_path / "noun.exc").write_text("kine cow\nkine cat\n")
    nouns = WordNetNouns.read(tmp_path)
    assert nouns.synsets("cats") == ("n02121620", "n10153414")
    assert nouns.synsets("ice creams") == ("n07614500",)
    assert nouns.base_forms("kine") == ("cat",)  # only what the index has


@pytest.mark.parametrize(
    "line", ["cat n two 3 @ 2 1 02121620", "cat v 1 1 @ 1 1 02121620", "cat n 1 1 @ 1 1 2121620"]
)
def test_what_is_no_index_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "index.noun").write_text(f"{line}\n")
    (tmp_path / "noun.exc").write_text("")
    with pytest.raises(BadFile, match=r"index\.noun: line 1 is not an entry"):
        WordNetNouns.read(tmp_path)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothere"):
        WordNetNouns.read(tmp_path / "nothere")
    with pytest.raises(NotFound, match=r"index\.noun"):
        WordNetNouns.read(tmp_path)
    (tmp_path / "noun.exc").write_text("")
    (tmp_path / "index.noun").write_bytes(b"\xff\xfe")
    with pytest.raises(BadFile, match="UTF-8"):
        WordNetNouns.read(tmp_path)


def test_a_packaged_table_is_read() -> None:
    senses = {"bat": ("n00000025", "n00000020"), "cat": ("n00000020",)}
    assert senses_of_table([["20", "bat#2|cat"], ["5", "bat#1"]]) == senses


def test_imagenets_classes_have_the_pages_that_workers_were_shown(shared_data: Path) -> None:
    published = json.loads((shared_data / "imagenetv2/metadata/wikipedia_pages.json").read_text())
    assert {item.id: list(item.links) for item in LabelSpace.load("imagenet-1k")} == published


def test_how_many_pages_a_class_of_imagenet_has() -> None:
    space = LabelSpace.load("imagenet-1k")
    assert Counter(len(item.links) for item in space) == {1: 990, 2: 9, 4: 1}
    assert space.get("n01440764").links == ("https://en.wikipedia.org/wiki/Tench",)
    assert all(
        item.links for name in ("imagenet-a", "imagenet-r") for item in LabelSpace.load(name)
    )
