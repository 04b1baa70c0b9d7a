"""Every verb of the command line on generated data gives the numbers and the words of before.

``python -m tests.golden.record`` writes the two files anew; look at what it changes before it is
committed. A list that is kept as a hash can be seen whole: record ``--whole --to FOLDER`` with the
old code and with the new, and compare the files.
"""

from __future__ import annotations

from typing import Any

import pytest

from heldout.front import VERBS
from tests.golden.data import WORLDS
from tests.golden.record import HERE, NUMBERS, WORDS, differences, play, read, steps


@pytest.fixture(scope="module", params=list(WORLDS))
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """The commands of one world, run once for both tests."""
    root = tmp_path_factory.mktemp(request.param).resolve()
    return (request.param, *play(request.param, root))


def test_numbers(played: Any) -> None:
    world, numbers, _ = played
    found = differences(read(NUMBERS)[world], numbers)
    assert not found, "\n".join(found[:60])


def test_words(played: Any) -> None:
    world, _, words = played
    found = differences(read(WORDS)[world], words)
    assert not found, "\n".join(found[:60])


def test_every_verb_is_run_and_refuses_something() -> None:
    lines = [step for world in WORLDS for step in steps(HERE / f"{world}.txt")]
    for verb in (verb.name for verb in VERBS):
        codes = {code for command, code, _ in lines if f"{command} ".startswith(f"{verb} ")}
        assert 2 in codes, f"no bad input for {verb}"
        assert codes - {2} or verb in NOT_HERE, f"{verb} is never run to its end"


NOT_HERE = {"demo": "three real models on real photographs take a minute: make golden"}


def test_a_difference_names_the_command_and_the_place() -> None:
    old = [{"run": "a", "code": 0, "json": [{"record": "score", "value": 0.5}]}, {"run": "b"}]
    new = [{"run": "a", "code": 0, "json": [{"record": "score", "value": 0.25}]}, {"run": "c"}]
    assert differences(old, new) == [
        "a | json [0 score] value: 0.5 -> 0.25",
        'c | run: "b" -> "c"',
    ]
    assert differences(old, [old[0], {"run": "x"}, old[1]]) == ["x | is new"]
    near = [{"run": "a", "code": 0, "json": [{"record": "score", "value": 0.5 + 1e-12}]}, old[1]]
    assert differences(old, near) == []
