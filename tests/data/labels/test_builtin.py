from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from heldout.core.errors import LabelError
from heldout.data.labels import BUILT_IN, Hierarchy, LabelSpace
from heldout.data.labels.wordnet import DATA


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
