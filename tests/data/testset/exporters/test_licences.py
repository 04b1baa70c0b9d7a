from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.data.testset.exporters.licences import check_licences, licence_rule

ALLOWED = [
    "CC0",
    "cc0-1.0",
    "CC0 1.0 Universal",
    "Public Domain",
    "Public Domain Mark 1.0",
    "https://creativecommons.org/publicdomain/zero/1.0/",
    "https://creativecommons.org/publicdomain/mark/1.0/",
    "CC BY 2.0",
    "cc-by-4.0",
    "CC-BY-SA-3.0",
    "CC BY-NC-ND 2.0",
    "http://creativecommons.org/licenses/by-nc-sa/2.0/",
    "Attribution License",
    "Attribution-NonCommercial-ShareAlike License",
    "Attribution-NoDerivs License",
    "Creative Commons Attribution 4.0 International",
    "No known copyright restrictions",
    "United States Government Work",
    "MIT",
    "Apache-2.0",
    "BSD-3-Clause",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication",
    "CC-BY-SA-3.0-DE",
    "CC BY-NC-SA 3.0 IGO",
]
REFUSED = [
    None,
    "",
    "  ",
    "unknown",
    "All Rights Reserved",
    "ImageNet terms",
    "research only",
    "by arrangement",
    "CC",
    "cc-by-all-rights-reserved",
    "not public domain",
    "no CC BY 4.0",
    "https://creativecommons.org/licenses/devnations/2.0/",
    "https://evil.example/licenses/by/4.0",
    "0",
]


@pytest.mark.parametrize("licence", ALLOWED)
def test_may_be_copied(licence: str) -> None:
    assert licence_rule(licence).may_copy


@pytest.mark.parametrize("licence", REFUSED)
def test_may_not_be_copied(licence: str | None) -> None:
    assert not licence_rule(licence).may_copy


def test_conditions_are_noted() -> None:
    assert licence_rule("cc-by-nc-nd-4.0").note == (
        "name the author; no commercial use; no changed copies"
    )
    assert licence_rule("CC0").note == ""


@settings(deadline=None)
@given(st.text(max_size=30))
def test_no_text_breaks_the_rule(text: str) -> None:
    assert isinstance(licence_rule(text).may_copy, bool)


def test_one_line_with_count_and_fix() -> None:
    licences = ["CC0", None, "All rights reserved", None]
    with pytest.raises(UserError) as caught:
        check_licences(licences, allow=False, what="pets")
    assert caught.value.line == (
        "3 of 4 images of pets may not be copied by their licence: unknown (2), "
        "All rights reserved (1): export without images, or --allow-licence if you have the "
        "right to copy them"
    )
    assert check_licences(licences, allow=True, what="pets") == (
        "1 images under All rights reserved: not known to allow copies",
        "2 images under unknown: no licence is recorded",
    )
    assert check_licences(["CC0"], allow=False, what="pets") == ()


@pytest.mark.parametrize("first", [*ALLOWED, *REFUSED])
@pytest.mark.parametrize("second", ["CC BY 2.0", "CC0", "All Rights Reserved", "CC BY-NC-ND 2.0"])
def test_of_two_licences_the_stricter_decides(first: str | None, second: str) -> None:
    both = licence_rule(f"{first or ''} AND {second}")
    one, two = licence_rule(first or None), licence_rule(second)
    assert both.may_copy == (one.may_copy and two.may_copy)
    if both.may_copy:
        wanted = {note for rule in (one, two) for note in rule.note.split("; ") if note}
        assert set(filter(None, both.note.split("; "))) == wanted
        assert len(both.note.split("; ")) == len(set(both.note.split("; ")))
    turned = licence_rule(f"{second} AND {first or ''}")
    assert turned.may_copy == both.may_copy
    if both.may_copy:
        assert turned.note == both.note


def test_licences_that_are_joined() -> None:
    assert licence_rule("(CC-BY-2.0 AND CC-BY-SA-4.0) AND CC0-1.0").note == (
        "name the author; pass it on under the same licence"
    )
    refused = licence_rule("CC-BY-2.0 AND research only")
    assert not refused.may_copy and refused.note == "research only: not known to allow copies"
    assert not licence_rule("AND").may_copy and not licence_rule("CC0 AND").may_copy
    # Only capitals join: a name may hold the word.
    assert not licence_rule("CC0 and CC BY 4.0").may_copy


def test_a_joined_licence_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="CC0 AND All Rights Reserved"):
        check_licences(["CC0 AND All Rights Reserved"], allow=False, what="pets")


def test_a_country_is_told_from_a_condition() -> None:
    assert licence_rule("CC-BY-3.0-DE").note == "name the author"
    assert licence_rule("CC BY 3.0 NC").note == "name the author; no commercial use"
    assert licence_rule("ODC-By-1.0").note == "name the author"
