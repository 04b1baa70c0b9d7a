"""The local crowd: whom it gives which grid, and which answers it takes, whatever happens in what order."""

from __future__ import annotations

import random
import stat
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, UserError
from heldout.curate.crowd.backend import GRID, SELECTED, GridTask, Secrets, chosen
from heldout.curate.crowd.local import KEPT, LocalCrowd
from heldout.data.labels.label_space import Class

SECRETS = Secrets(b"key")


class Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def task(grid: str, assignments: int = 2) -> GridTask:
    tokens = [SECRETS.token(grid, image) for image in ("a", "b", "c")]
    return GridTask(grid=grid, asked=Class("cat"), tokens=tokens, assignments=assignments)


def crowd(
    path: Path, *, grids: int = 3, assignments: int = 2, clock: Clock | None = None
) -> LocalCrowd:
    made = LocalCrowd(path / "crowd.db", SECRETS, clock=clock or Clock())
    for number in range(grids):
        made.create(task(f"g{number}", assignments))
    return made


def answered(made: LocalCrowd) -> dict[str, list[str]]:
    return {one.grid: [a.who for a in made.answers(one.task)] for one in made.tasks()}


def test_a_person_gets_each_grid_once_and_a_grid_has_enough_people(tmp_path: Path) -> None:
    made = crowd(tmp_path)
    for person in ("ann", "bob", "cem"):
        seen = []
        while (given := made.next(person)) is not None:
            assert made.next(person) == given  # who comes back gets the same one
            seen.append(given.grid)
            made.submit(person, given.grid, given.tokens[:1])
        assert seen == {"ann": ["g0", "g1", "g2"], "bob": ["g0", "g1", "g2"], "cem": []}[person]
    assert all(len(people) == 2 for people in answered(made).values())
    assert "ann" not in (tmp_path / "crowd.db").read_bytes().decode("latin-1")


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["next", "submit", "wait"])), max_size=60
    ),
    assignments=st.integers(1, 3),
)
def test_no_order_of_events_gives_too_many_answers_or_loses_one(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]], assignments: int
) -> None:
    clock = Clock()
    made = crowd(tmp_path_factory.mktemp("c"), grids=2, assignments=assignments, clock=clock)
    open_grids: dict[int, str] = {}
    taken: list[tuple[str, str]] = []  # the oracle: answers that were accepted
    for person, step in steps:
        who = SECRETS.who(str(person))
        if step == "wait":
            clock.now += timedelta(minutes=40)
        elif step == "next":
            given = made.next(str(person))
            if given is not None:
                assert (given.grid, who) not in taken
                open_grids[person] = given.grid
        elif person in open_grids:
            grid = open_grids.pop(person)
            full = sum(other == grid for other, _ in taken) >= assignments
            try:
                made.submit(str(person), grid, [SECRETS.token(grid, "a")])
            except UserError as error:
                assert full and "all its answers" in error.line
            else:
                assert not full
                taken.append((grid, who))
    found = [(grid, who) for grid, people in answered(made).items() for who in people]
    assert sorted(found) == sorted(taken) and len(set(found)) == len(found)
    assert max(Counter(grid for grid, _ in found).values(), default=0) <= assignments


def test_a_grid_that_is_not_answered_in_time_goes_to_somebody_else(tmp_path: Path) -> None:
    clock = Clock()
    made = crowd(tmp_path, grids=1, assignments=1, clock=clock)
    given = made.next("ann")
    assert given is not None and made.next("bob") is None
    clock.now += KEPT + timedelta(seconds=1)
    assert made.next("bob") is not None and made.next("ann") is None
    made.submit("ann", given.grid, [])  # late, but nobody else has answered
    with pytest.raises(UserError, match="all its answers"):
        made.submit("bob", given.grid, [])
    assert answered(made) == {"g0": [SECRETS.who("ann")]}


def test_what_is_not_an_answer_is_refused(tmp_path: Path) -> None:
    made = crowd(tmp_path)
    given = made.next("ann")
    assert given is not None
    for grid, tokens, message in (
        (given.grid, [SECRETS.token("g1", "a")], "does not show"),  # a token of another grid
        (given.grid, ["a|b"], "does not show"),
        ("g2", [], "was not given"),
    ):
        with pytest.raises(UserError, match=message):
            made.submit("ann", grid, tokens)
    made.submit("ann", given.grid, given.tokens[::2])
    made.submit("ann", given.grid, reversed(given.tokens[::2]))  # the same answer again
    with pytest.raises(UserError, match="answered before"):
        made.submit("ann", given.grid, [])
    (one,) = made.answers(given.grid)
    assert chosen(one.answer, given.grid, given.tokens) == {0, 2}


def test_many_at_once(tmp_path: Path) -> None:
    made = crowd(tmp_path, grids=4, assignments=3)
    problems: list[BaseException] = []

    def work(person: str) -> None:
        draw = random.Random(person)
        try:
            while (given := made.next(person)) is not None:
                made.submit(person, given.grid, draw.sample(list(given.tokens), 1))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(f"person {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [len(people) for people in answered(made).values()] == [3, 3, 3, 3]


def test_tokens_tell_nothing_and_are_bound_to_their_grid(tmp_path: Path) -> None:
    path = tmp_path / "crowd" / "key"
    path.parent.mkdir()
    secrets = Secrets.of(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Secrets.of(path).token("g", "a") == secrets.token("g", "a")
    assert Secrets(b"other").token("g", "a") != secrets.token("g", "a")
    tokens = {secrets.token(grid, image) for grid in ("g1", "g2") for image in ("1a", "a", "ga")}
    assert len(tokens | {secrets.token("g", "1a"), secrets.token("g1", "a")}) == 7
    assert {len(token) for token in tokens} == {32}
    assert secrets.who("a") != secrets.token("a", "") and repr(secrets).find("key") < 0
    path.write_text("not a key")
    with pytest.raises(BadFile, match="not a key"):
        Secrets.of(path)


def test_an_answer_selects_slots() -> None:
    tokens = list(task("g0").tokens)
    for selected in ([], [0], [2, 1], [0, 1, 2]):
        text = "|".join(tokens[slot] for slot in selected)
        assert chosen({GRID: "g0", SELECTED: text}, "g0", tokens) == set(selected)
    assert (
        chosen({GRID: "g0"}, "g0", tokens) == set()
    )  # a form has no field for what is not selected
    for answer in ({}, {GRID: "g1"}, {GRID: "g0", SELECTED: "x"}, {SELECTED: tokens[0]}):
        assert isinstance(chosen(answer, "g0", tokens), str)


@pytest.mark.parametrize("at", [0, 30, 4096])
def test_a_damaged_file_is_one_line(tmp_path: Path, at: int) -> None:
    made = crowd(tmp_path)
    path = tmp_path / "crowd.db"
    data = bytearray(path.read_bytes())
    data[at : at + 2000] = bytes(len(data[at : at + 2000]))
    path.write_bytes(data)
    with pytest.raises(BadFile, match=r"crowd\.db: cannot be used"):
        made.tasks()
        made.next("ann")
        crowd(tmp_path, grids=4)
