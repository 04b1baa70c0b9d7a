"""Tests of :mod:`heldout.measure.doctor.findings`."""

from __future__ import annotations

import re
from pathlib import Path

from heldout.measure.doctor.findings import CODES, Finding, merged_lines

# The page about the doctor lists every code with its severity.


PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"


def test_the_table_of_findings_is_complete() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert dict(rows) == CODES
    assert len(rows) == len(CODES)


# merging


def found(model: str, message: str, code: str = "subset-of-classes", **more: str) -> Finding:
    return Finding(
        code=code,
        testset=more.get("testset", "things"),
        model=model,
        message=message,
        evidence={},
        fix=more.get("fix", "say which"),
    )


def test_models_that_differ_in_numbers_share_a_line() -> None:
    lines = merged_lines(
        [found(f"lite{i}", f"it has 60 of 1,000 classes: top-1 is {90 + i}.25 %") for i in range(3)]
    )
    assert lines == [
        "lite0, lite1, lite2 on things: it has 60 of 1,000 classes: top-1 is 90.25 / 91.25 / 92.25 % "
        "[subset-of-classes]: say which"
    ]


def test_many_models_are_counted_and_give_a_range() -> None:
    values = [3.5, 20.0, 1_200.25, 0.5, 7.0, 8.0]
    (line,) = merged_lines([found(f"m{i}", f"off by {v:,}") for i, v in enumerate(values)])
    assert line.startswith("6 models on things: off by 0.5 to 1,200.25 [")


def test_one_model_keeps_its_own_line() -> None:
    finding = found("lite0", "it has 60 classes")
    assert merged_lines([finding]) == [finding.line]


def test_what_differs_in_words_code_fix_or_set_stays_apart() -> None:
    findings = [
        found("a", "a and b are the same"),
        found("c", "c and b are the same"),
        found("a", "every image is right", code="perfect-score"),
        found("b", "a and b are the same", fix="another"),
        found("b", "a and b are the same", testset="others"),
    ]
    assert merged_lines(findings) == [finding.line for finding in findings]
    assert merged_lines(findings + findings) == [
        line.replace("a on", "a, a on").replace("c on", "c, c on").replace("b on", "b, b on")
        for line in merged_lines(findings)
    ]


def test_advice_that_was_given_is_not_given_again() -> None:
    told: set[str] = set()
    findings = [found("a", "a is wrong"), found("b", "b is odd"), found("b", "b is big", fix="go")]
    assert merged_lines(findings, told) == [
        findings[0].line,
        "b on things: b is odd [subset-of-classes]",
        findings[2].line,
    ]
    assert told == {"say which", "go"}
    assert merged_lines(findings[:1], told) == ["a on things: a is wrong [subset-of-classes]"]


def test_digits_of_names_are_no_numbers() -> None:
    lines = merged_lines(
        [found("lite1", "lite1 and lite0 agree"), found("x", "lite2 and lite0 agree")]
    )
    assert len(lines) == 2


def test_errors_say_that_they_are_errors() -> None:
    (line,) = merged_lines([found("a", "no better than guessing", code="at-chance")])
    assert line.startswith("error: a on things: ")
