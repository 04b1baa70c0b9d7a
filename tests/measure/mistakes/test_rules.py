"""Rules: which holds when, and that the first one wins."""

from __future__ import annotations

import pytest

from heldout.data.judgements.judgement import CATEGORIES
from heldout.data.labels import Superclasses
from heldout.measure.mistakes.categories import (
    NO_MISTAKE,
    ORDER,
    PROPOSABLE,
    Rules,
    first_that_holds,
    propose,
    strengths,
    usual_lca_size,
)
from heldout.measure.mistakes.evidence import EvidenceTable
from heldout.measure.mistakes.verdicts import Collapse
from tests.measure.mistakes.evidence_case import (
    PETS,
    alike,
    counted,
    evidence,
    knowledge,
    make_peers,
    mistake,
)


def rule_categories(table: EvidenceTable, rules: Rules | None = None) -> tuple[str, ...]:
    return tuple(ORDER[place] for place in first_that_holds(strengths(table, rules)).tolist())


def test_vocabulary() -> None:
    assert (NO_MISTAKE, *CATEGORIES) == PROPOSABLE
    assert set(ORDER) <= set(PROPOSABLE)


def test_each_rule_in_its_turn() -> None:
    known = knowledge(
        collapse=Collapse("mine", {"boxer": ("pug",)}),
        cooccurrence=counted({("leash", "boxer"): 3, ("pug", "boxer"): 9}),
        prototypes={f"i{n}": float(n) for n in range(100)},
    )
    mistakes = [
        mistake("i50", "pug", "boxer"),  # another name, though they also look and stand alike
        mistake("i51", "beagle", "boxer"),  # close in the hierarchy
        mistake("i0", "leash", "boxer"),  # seen together, though the image is not typical either
        mistake("i1", "sofa", "boxer"),  # not typical
        mistake("i52", "sofa", "boxer"),
    ]
    table = evidence(mistakes, known)
    assert rule_categories(table, Rules(lca_size=5)) == (
        "Multi-label or synonym",
        "Fine-grained error",
        "Spurious Correlation",
        "Non-prototypical",
        "Other",
    )


def test_a_superclass_file_has_the_last_word_on_likeness() -> None:
    near = mistake("i", "pug", "boxer")
    far = mistake("i", "sofa", "boxer")
    known = knowledge(superclasses=Superclasses(PETS, {"soft": ("sofa", "boxer")}))
    table = evidence([near, far], known)
    assert rule_categories(table, Rules(lca_size=5)) == ("Other", "Fine-grained error")


@pytest.mark.parametrize(
    ("value", "category"),
    [(0.1, "Fine-grained error"), (0.099, "Other"), (1.0, "Fine-grained error")],
)
def test_a_threshold_holds_from_its_value_on(value: float, category: str) -> None:
    known = knowledge(affinity=alike({("sofa", "boxer"): value}))
    table = evidence([mistake("i", "sofa", "boxer")], known)
    assert rule_categories(table, Rules(lca_size=2)) == (category,)


def test_strengths_are_shares_and_a_half_is_the_threshold() -> None:
    known = knowledge(
        affinity=alike({("sofa", "pug"): 0.1}), cooccurrence=counted({("sofa", "pug"): 2})
    )
    table = evidence([mistake("i", "sofa", "pug")], known)
    found = strengths(table, Rules(lca_size=1))
    assert ((found >= 0) & (found <= 1)).all()
    assert found[0, ORDER.index("Fine-grained error")] == pytest.approx(0.5)
    assert found[0, ORDER.index("Spurious Correlation")] == pytest.approx(0.5)
    assert found[0, ORDER.index("Other")] == pytest.approx(0.5)
    assert first_that_holds(found).tolist() == [1]


def test_proposals_by_rules_say_why_and_nothing_of_severity() -> None:
    peers = make_peers({"i": [["pug", "boxer"], ["boxer", "pug"]], "j": [["pug", "boxer"]] * 2})
    (found,) = propose(evidence([mistake("i", "pug", "boxer")], knowledge(peers=peers)))
    assert found.category == "Fine-grained error" and found.basis == "rules"
    assert found.severity is None and found.severity_probability is None
    assert [item.kind for item in found.evidence] == ["lca_size", "path_distance"]
    assert set(found.scores) == set(PROPOSABLE)
    known = knowledge(collapse=Collapse("c", {"boxer": ("pug",)}))
    (same,) = propose(evidence([mistake("i", "pug", "boxer")], known))
    assert same.category == NO_MISTAKE
    assert same.evidence[0].text == "pug also counts as right where boxer does"
    assert propose(evidence([], knowledge())) == ()


def test_how_close_is_close_depends_on_the_label_space() -> None:
    assert [usual_lca_size(n) for n in (7, 10, 100, 1000, 21843)] == [3, 3, 8, 25, 118]
    table = evidence([mistake("i", "pug", "boxer"), mistake("i", "pug", "manx")], knowledge())
    assert rule_categories(table) == ("Fine-grained error", "Other")
