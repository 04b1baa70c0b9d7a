"""Evidence about mistakes, number by number, and in words."""

from __future__ import annotations

import numpy as np
import pytest

from heldout.data.labels import LabelSpace, Superclasses
from heldout.measure.mistakes.categories import Wording
from heldout.measure.mistakes.class_similarity import co_prediction
from heldout.measure.mistakes.evidence import Knowledge, hierarchy_for
from heldout.measure.mistakes.verdicts import Collapse
from tests.measure.mistakes.evidence_case import (
    IDS,
    PETS,
    alike,
    counted,
    evidence,
    knowledge,
    make_peers,
    mistake,
    random_peers,
)


def test_the_nearest_label_counts() -> None:
    table = evidence([mistake("i", "pug", "tabby", "boxer", "sofa")], knowledge())
    assert table.column("lca_size").tolist() == [3] and table.column("path_distance").tolist() == [
        2
    ]
    assert table.nearest["lca_size"].tolist() == [PETS.index("boxer")]
    assert table.column("labels").tolist() == [3]
    said = Wording(table).say("lca_size", 0)
    assert said is not None and said.text == "pug and boxer stand under dog, with 3 of 7 classes"


def test_of_equally_near_labels_the_first_is_named() -> None:
    for labels in (("boxer", "beagle"), ("beagle", "boxer")):
        table = evidence([mistake("i", "pug", *labels)], knowledge())
        assert table.nearest["lca_size"].tolist() == [PETS.index(labels[0])]


def test_superclasses_affinity_and_co_occurrence() -> None:
    known = knowledge(
        superclasses=Superclasses(PETS, {"soft": ("pug", "sofa"), "small": ("pug", "manx")}),
        affinity=alike({("pug", "tabby"): 0.4}),
        cooccurrence=counted({("pug", "leash"): 7, ("pug", "sofa"): 2}),
    )
    table = evidence([mistake("i", "pug", "sofa", "tabby"), mistake("j", "pug", "leash")], known)
    assert table.column("same_superclass").tolist() == [1, 0]
    assert table.column("affinity").tolist() == [0.4, 0]
    assert table.column("cooccurrence").tolist() == [2, 7]
    words = Wording(table)
    said = [words.say(kind, 0) for kind in ("same_superclass", "affinity", "cooccurrence")]
    assert [item.text for item in said if item] == [
        "pug and sofa are both soft",
        "models that guess the rarer of pug and tabby guess the other too: 40% beyond chance",
        "2 other images show pug together with sofa",
    ]
    none = words.say("same_superclass", 1)
    assert none is not None and none.text == "no superclass holds pug and a right label"


def test_peers_without_the_one_that_makes_the_mistake() -> None:
    lists = [["pug", "boxer"], ["pug", "sofa"], ["boxer", "pug"], ["tabby", "manx"], []]
    known = knowledge(peers=make_peers({"i": lists}))
    theirs = evidence([mistake("i", "pug", "boxer", models=("other",))], known)
    assert theirs.column("peers_right")[0] == pytest.approx(1 / 4)
    assert theirs.column("peers_same")[0] == pytest.approx(2 / 4)
    assert theirs.column("peers_listed")[0] == pytest.approx(3 / 4)
    assert theirs.column("peers_spread")[0] == pytest.approx(3 / 4)
    ours = evidence([mistake("i", "pug", "boxer", models=("m0", "m1"))], known)
    assert ours.column("peers_right")[0] == pytest.approx(1 / 3)
    assert ours.column("peers_same")[0] == pytest.approx(1 / 3)
    assert ours.column("peers_listed")[0] == pytest.approx(2 / 3)


def test_images_that_no_peer_has_seen() -> None:
    known = knowledge(peers=make_peers({"i": [["pug"], ["boxer"]]}))
    table = evidence([mistake("i", "pug", "boxer"), mistake("z", "pug", "boxer")], known)
    assert not np.isnan(table.column("peers_same")[0]) and np.isnan(table.column("peers_same")[1])
    assert Wording(table).say("peers_same", 1) is None
    assert "peers_same" not in evidence([mistake("z", "pug", "boxer")], known).columns


@pytest.mark.parametrize("seed", range(3))
def test_peers_against_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    peers = random_peers(rng, images=20, models=6, ranks=3)
    mistakes = []
    for image in peers.image_ids:
        names = [str(name) for name in rng.permutation(IDS)]
        mistakes.append(mistake(image, names[0], *names[1 : 1 + int(rng.integers(1, 4))]))
    table = evidence(mistakes, knowledge(peers=peers, affinity=co_prediction(peers)))
    for row, item in enumerate(mistakes):
        lists = peers.topk[row].tolist()
        firsts = [entry[0] for entry in lists if entry[0] >= 0]
        prediction = PETS.index(item.prediction)
        right = {PETS.index(label) for label in item.acceptable}
        n = len(firsts)
        assert table.column("peers_right")[row] == pytest.approx(
            sum(first in right for first in firsts) / n
        )
        assert table.column("peers_same")[row] == pytest.approx(firsts.count(prediction) / n)
        assert table.column("peers_listed")[row] == pytest.approx(
            min(1.0, sum(prediction in entry for entry in lists) / n)
        )
        assert table.column("peers_spread")[row] == pytest.approx(len(set(firsts)) / n)


def test_what_is_no_mistake() -> None:
    space = LabelSpace.load("imagenet-21k")
    dog, beagle = "n02084071", "n02088364"
    known = Knowledge(space=space, hierarchy=hierarchy_for(space))
    table = evidence([mistake("i", dog, beagle), mistake("i", beagle, dog)], known)
    assert table.collapsed.tolist() == [True, False]  # a beagle is a dog; a dog may be no beagle
    tabled = evidence(
        [mistake("i", "pug", "boxer"), mistake("i", "boxer", "pug"), mistake("j", "pug", "pug")],
        knowledge(collapse=Collapse("mine", {"boxer": ("pug",)})),
    )
    assert tabled.collapsed.tolist() == [True, False, True]


def test_typicality_is_a_rank() -> None:
    known = knowledge(prototypes={"a": 5.0, "b": 1.0, "c": 9.0, "d": 1.0, "e": 7.0})
    table = evidence([mistake(i, "pug", "boxer") for i in "abcdez"], known)
    assert table.column("typicality").tolist()[:5] == pytest.approx([0.5, 0.125, 1.0, 0.125, 0.75])
    assert np.isnan(table.column("typicality")[5])


def test_little_knowledge_is_enough() -> None:
    """A label space that stands nowhere, and nothing else known."""
    space = LabelSpace.from_ids("codes", ["x1", "x2", "x3"])
    assert hierarchy_for(space) is None
    table = evidence([mistake("i", "x1", "x2")], Knowledge(space=space))
    assert list(table.columns) == ["labels"]
    assert table.features().shape == (1, 1)
    assert len(evidence([], Knowledge(space=space))) == 0


def test_a_mistake_without_any_right_label() -> None:
    table = evidence([mistake("i", "pug")], knowledge())
    assert table.column("labels").tolist() == [0]
    assert np.isnan(table.column("lca_size")[0]) and table.nodes.tolist() == [-1]


def test_names_that_two_classes_share_are_told_apart() -> None:
    space = LabelSpace.load("imagenet-1k")
    table = evidence(
        [mistake("i", "n02012849", "n02009912")],
        Knowledge(space=space, hierarchy=hierarchy_for(space)),
    )
    said = Wording(table).say("path_distance", 0)
    assert said is not None and "crane (n02012849)" in said.text
