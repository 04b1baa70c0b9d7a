from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from heldout.core.errors import BadFile, NotFound
from heldout.data.labels import LabelSpace
from heldout.data.labels.wordnet import DATA, EXCEPTIONS, SYNSETS, WordNetNouns, senses_of_table

NOUNS = WordNetNouns.built_in()


def test_the_tables_are_the_ones_that_were_derived() -> None:
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


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothere"):
        WordNetNouns.read(tmp_path / "nothere")
    with pytest.raises(NotFound, match=r"index\.noun"):
        WordNetNouns.read(tmp_path)
    (tmp_path / "index.noun").write_text("  only a licence\n")
    (tmp_path / "noun.exc").write_text("")
    with pytest.raises(BadFile, match="no entries"):
        WordNetNouns.read(tmp_path)
    (tmp_path / "index.noun").write_bytes(b"\xff\xfe")
    with pytest.raises(BadFile, match="UTF-8"):
        WordNetNouns.read(tmp_path)


def test_a_packaged_table_is_read() -> None:
    senses = {"bat": ("n00000025", "n00000020"), "cat": ("n00000020",)}
    assert senses_of_table([["20", "bat#2|cat"], ["5", "bat#1"]]) == senses
