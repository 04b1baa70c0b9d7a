"""The suite accepts recipes that keep the protocol, and catches every way of breaking it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heldout.core.errors import UserError
from heldout.testing.recipe_conformance import (
    CHECKS,
    NotConforming,
    check_kind,
    check_recipe,
    examine_recipe,
)

FAKE = "heldout.testing.sample_recipe:recipe"
SOURCES = "recipe_examples:make_sources"


@pytest.mark.parametrize(
    ("recipe", "sources", "parameters"),
    [
        (FAKE, SOURCES, {"render": True, "per_class": 3, "side": 4}),
        ("recipe_examples:chooser", SOURCES, {}),
    ],
)
def test_a_right_recipe_passes_everything(
    recipe: str, sources: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    check_recipe(recipe, sources, parameters=parameters, scratch=tmp_path / "builds", seed=7)


def test_a_recipe_of_two_sources_passes(tmp_path: Path) -> None:
    quick = [name for name in CHECKS if name not in ("resume", "same-seed")]
    check_recipe(
        "recipe_examples:mixes",
        "recipe_examples:two_sources",
        scratch=tmp_path / "builds",
        checks=quick,
    )


BROKEN = [
    ("first_rows", "order", "rows of its sources shuffled"),
    ("clock", "same-seed", "built twice in one process"),
    ("global_random", "same-seed", "built in another environment"),
    ("hash_seed", "same-seed", "built in another environment"),
    ("remembers", "same-seed", "built twice in one process"),
    ("order_of_work", "workers", "with shuffled workers"),
    ("secretly_seeded", "seeds", "gives another set"),
    ("not_nested", "nested", "is not in the larger set"),
    ("rows_change", "nested", "differs in the larger set"),
    ("one_licence", "licences", "its origin has 'CC-BY-4.0'"),
    ("hides_unknown", "licences", "an origin has none"),
    ("loses_authors", "licences", "has the attribution 'the team'"),
    ("renames", "licences", "which pool does not have"),
    ("rising_counts", "card", "rise from stage to stage"),
    ("taken_count", "card", "'images', which is taken"),
    ("partial_truth", "card", "leaves out 1 images"),
    ("no_truth", "card", "has no truth"),
    ("no_kind", "card", "does not say its kind"),
    ("bad_promises", "declaration", "'truth', which is not a numeric parameter"),
    ("bad_promises", "declaration", "'absent', which is not a numeric parameter"),
    ("bad_promises", "declaration", "has no version"),
    ("bad_promises", "declaration", "'not a slug'"),
    ("bad_promises", "declaration", "reads no pool"),
    ("failing_work", "order", "the first with ValueError: one is bad"),
    ("trusts_leftovers", "resume", "and resumed, "),
    ("writes_elsewhere", "resume", "log.txt in the current folder"),
    ("not_a_recipe", "declaration", "lacks version, parameters"),
]


@pytest.mark.parametrize(("recipe", "check", "evidence"), BROKEN)
def test_a_broken_recipe_is_caught(recipe: str, check: str, evidence: str, tmp_path: Path) -> None:
    found = examine_recipe(
        f"recipe_examples:{recipe}",
        SOURCES,
        parameters={"per_class": 4},
        scratch=tmp_path / "builds",
        checks=[check],
    )
    assert any(violation.check == check and evidence in violation.message for violation in found), [
        str(violation) for violation in found
    ]


def test_bad_parameters_are_caught(tmp_path: Path) -> None:
    found = examine_recipe(
        "recipe_examples:bad_parameters",
        SOURCES,
        parameters={},
        scratch=tmp_path / "builds",
        checks=["declaration"],
    )
    text = "\n".join(map(str, found))
    assert "field per_class has no default" in text
    assert check_kind(int) == ["is not a Request"]


def test_an_origin_that_is_nowhere_is_caught(tmp_path: Path) -> None:
    found = examine_recipe(
        "recipe_examples:wrong_origin",
        "recipe_examples:two_sources",
        scratch=tmp_path / "builds",
        checks=["licences"],
    )
    assert "has the origin 'who', which pool does not have" in found[0].message


def test_sources_that_cannot_be_shuffled_are_said(tmp_path: Path) -> None:
    found = examine_recipe(
        "recipe_examples:first_rows",
        "recipe_examples:unordered_sources",
        scratch=tmp_path / "builds",
        checks=["order"],
    )
    assert found  # the recipe cannot read them either; it must not pass silently


def test_all_violations_are_listed_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(NotConforming) as caught:
        check_recipe(
            "recipe_examples:loses_authors",
            SOURCES,
            scratch=tmp_path / "builds",
            checks=["licences", "card"],
        )
    assert caught.value.violations[0].check == "licences"
    assert "- licences: image" in str(caught.value)


def test_every_check_is_proven_by_a_broken_recipe() -> None:
    assert {check for _, check, _ in BROKEN} == set(CHECKS)


def test_unknown_checks_and_used_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no check 'speed'"):
        examine_recipe(FAKE, SOURCES, scratch=tmp_path / "builds", checks=["speed"])
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        examine_recipe(FAKE, SOURCES, scratch=tmp_path)
