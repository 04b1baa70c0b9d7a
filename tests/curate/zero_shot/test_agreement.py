from __future__ import annotations

from heldout.curate.zero_shot.label_pool import LabelAgreement, agreement
from heldout.data.labels import Hierarchy

TREE = Hierarchy({"dog": ["animal"], "beagle": ["dog"], "cat": ["animal"], "animal": []})


def test_every_kind_is_told_apart() -> None:
    cases = [
        ("dog", "dog", None),
        ("dog", "cat", ["dog"]),
        ("dog", "animal", None),
        ("dog", "beagle", []),
        ("dog", "cat", ["beagle"]),
        ("teddy", "dog", None),
        ("dog", None, None),
        (None, "dog", None),
    ]
    truths, labels, ties = zip(*cases, strict=True)
    found = agreement(truths, labels, ties, hierarchy=TREE)
    assert found == LabelAgreement(same=1, tied=1, ancestor=1, descendant=1, elsewhere=1, unknown=3)
    assert found.images == len(cases)
    alike = agreement(truths, labels, ties, hierarchy=TREE, one_space=True)
    assert alike == LabelAgreement(same=1, tied=1, ancestor=1, descendant=1, elsewhere=2, unknown=2)
