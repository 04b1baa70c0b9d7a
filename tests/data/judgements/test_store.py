"""Tests of :mod:`heldout.data.judgements.store`."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, ExistsError, MismatchError, MissingExtra, UserError
from heldout.core.workspace import Workspace
from heldout.data.judgements.consensus import current_answers
from heldout.data.judgements.judgement import WITHDRAWN, Judgement, Question
from heldout.data.judgements.store import Added, JudgementStore

from .strategies import any_judgement, busy_votes, vote

# store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JudgementStore]:
    with JudgementStore(tmp_path / "judgements.db") as opened:
        yield opened


def order(judgement: Judgement) -> tuple[str, str, str, tuple[str, bool, str]]:
    return (judgement.question, judgement.subject_key, judgement.who, judgement.recency)


@settings(max_examples=25, deadline=None)
@given(st.lists(any_judgement(), max_size=12), st.randoms(use_true_random=False))
def test_what_is_added_comes_back_once_in_one_order(
    tmp_path_factory: pytest.TempPathFactory, judgements: list[Judgement], chance: random.Random
) -> None:
    distinct = {j.judgement_id: j for j in reversed(judgements)}
    with JudgementStore(tmp_path_factory.mktemp("store") / "j.db") as store:
        assert store.add(judgements) == Added(len(distinct), len(judgements) - len(distinct))
        chance.shuffle(judgements)
        assert store.add(iter(judgements)) == Added(0, len(judgements))
        got = list(store.stream())
        assert got == sorted(distinct.values(), key=order)
        assert store.count() == len(distinct)
        assert list(store.current()) == current_answers(distinct.values())
        for judgement in got[:3]:
            key = {"question": judgement.question, "subject": judgement.subject}
            expected = [j for j in got if j.key[:2] == judgement.key[:2]]
            assert list(store.stream(**key)) == expected  # type: ignore[arg-type]
            assert store.count(who=judgement.who) == sum(j.who == judgement.who for j in got)
            assert store.count(testset="t") == sum(j.testset == "t" for j in got)


@settings(max_examples=60, deadline=None)
@given(busy_votes())
def test_the_current_answers_of_the_database_are_those_of_the_plain_rule(
    tmp_path_factory: pytest.TempPathFactory, votes: list[Judgement]
) -> None:
    with JudgementStore(tmp_path_factory.mktemp("store") / "j.db") as store:
        store.add(votes)
        assert list(store.current()) == current_answers(votes) == _slow_current(votes)


def _slow_current(votes: list[Judgement]) -> list[Judgement]:
    standing = []
    for vote_ in votes:
        mine = [v for v in votes if v.key == vote_.key]
        replaced = [v.supersedes for v in mine]
        rivals = [v for v in mine if v.judgement_id not in replaced]
        if (
            vote_ in rivals
            and all(v.recency <= vote_.recency for v in rivals)
            and vote_.answer != WITHDRAWN
        ):
            standing.append(vote_)
    return sorted(standing, key=lambda v: v.key)


def test_a_changed_mind_replaces_the_answer_and_keeps_the_history(store: JudgementStore) -> None:
    first = vote("a", "w", when="2024-01-01T00:00:00Z")
    second = vote("a", "w", "not-selected", when="2024-01-02T00:00:00Z")
    other = vote("a", "v", when="2024-01-03T00:00:00Z")
    store.add([second, other])
    store.add([first])
    assert list(store.current()) == [other, second]
    assert store.history("vote", first.subject) == [first, second, other]
    assert store.history("vote", first.subject, who="w") == [first, second]
    store.add([vote("a", "w", WITHDRAWN, when="2024-01-04T00:00:00Z")])
    assert list(store.current()) == [other]
    assert store.count() == 4


def test_an_answer_can_supersede_one_that_is_later_by_the_clock(store: JudgementStore) -> None:
    wrong_clock = vote("a", "w", when="2099-01-01T00:00:00Z")
    mended = vote("a", "w", "not-selected", supersedes=wrong_clock.judgement_id)
    store.add([wrong_clock])
    store.add([mended])
    assert list(store.current()) == [mended]


def test_nobody_supersedes_somebody_elses_answer(store: JudgementStore) -> None:
    theirs = vote("a", "w")
    store.add([theirs])
    with pytest.raises(MismatchError, match="another person"):
        store.add([vote("b", "v"), vote("a", "v", supersedes=theirs.judgement_id)])
    assert list(store.stream()) == [theirs]


def test_an_image_is_found_on_either_side_of_a_pair(store: JudgementStore) -> None:
    pair = Judgement(
        question="duplicate",
        subject={"image_id": "a", "other_id": "b"},
        answer="duplicate",
        who="w",
    )
    store.add([pair, vote("b", "w"), vote("c", "w")])
    assert list(store.stream(image_id="b")) == [pair, vote("b", "w")]
    assert list(store.current(image_id="a")) == [pair]


def test_a_call_adds_all_or_nothing(store: JudgementStore) -> None:
    def broken() -> Iterator[Judgement]:
        for number in range(12_000):
            yield vote(f"i{number}", "w")
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        store.add(broken())
    with pytest.raises(UserError, match="does not answer vote"):
        store.add([vote("a", "w"), vote("b", "w", "perhaps")])
    assert store.count() == 0
    assert store.add([]) == Added(0, 0)


def test_unknown_kinds_are_refused_until_they_are_defined(tmp_path: Path) -> None:
    mine = Question(kind="blurry", subjects=(("image_id",),), answers=("yes", "no"))
    judgement = Judgement(question="blurry", subject={"image_id": "a"}, answer="yes", who="w")
    address = f"sqlite:///{tmp_path / 'j.db'}"
    with JudgementStore(address) as store:
        with pytest.raises(UserError, match="no question is called 'blurry'"):
            store.add([judgement])
        store.define(mine)
        store.define(mine)
        with pytest.raises(ExistsError, match="defined differently"):
            store.define(Question(kind="blurry", subjects=(("image_id",),), answers=("a", "b")))
        with pytest.raises(ExistsError, match="defined differently"):
            store.define(Question(kind="vote", subjects=(("image_id",),)))
    with JudgementStore(address) as store:  # the definition is kept in the database
        assert store.questions()["blurry"] == mine
        assert store.add([judgement]).added == 1


def test_an_id_is_that_of_its_content(store: JudgementStore) -> None:
    mine = vote("a", "w")
    again = vote("a", "w", judgement_id=mine.judgement_id, source="x")
    assert store.add([mine, again]) == Added(1, 1)
    with pytest.raises(UserError, match="not that of its content: leave it empty"):
        vote("b", "w", judgement_id=mine.judgement_id)


def test_the_workspace_says_where_the_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path / "not" / "yet")
    with JudgementStore(workspace.judgements) as store:
        store.add([vote("a", "w")])
    assert (workspace.root / "judgements.db").is_file()
    monkeypatch.setenv("HELDOUT_JUDGEMENTS", f"sqlite:///{tmp_path / 'other.db'}")
    with JudgementStore(workspace.judgements) as store:
        assert store.count() == 0


def test_answers_about_an_image_or_superseding_one_are_found_by_index(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    JudgementStore(path).close()
    with sqlite3.connect(path) as raw:
        for where, index in (
            ("image_id = 'a'", "judgements_image_id"),
            ("other_id = 'a'", "judgements_other_id"),
            ("supersedes = 'a'", "judgements_supersedes"),
            ("question = 'vote' and subject = 'a' and who = 'w'", "judgements_key"),
        ):
            plan = raw.execute(f"explain query plan select * from judgements where {where}")
            assert f"USING INDEX {index} " in plan.fetchone()[3]
    raw.close()


def test_opening_waits_for_another_program_that_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with sqlite3.connect(path, check_same_thread=False, isolation_level=None) as other:
        other.execute("create table theirs (x)")
        other.execute("begin immediate")
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(JudgementStore, path)
            with pytest.raises(TimeoutError):
                opening.result(timeout=0.3)
            other.execute("rollback")
            with opening.result(timeout=60) as store:
                assert store.add([vote("a", "w")]) == Added(1, 0)
    other.close()


def test_a_source_is_asked_when_nobody_else_can_write(tmp_path: Path) -> None:
    """What it reads of the table, to refuse what contradicts it, cannot change any more."""
    path = tmp_path / "j.db"

    def source() -> Iterator[Judgement]:
        with (
            closing(sqlite3.connect(path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("begin immediate")
        yield vote("a", "w")

    with JudgementStore(path) as store:
        assert store.add(source()) == Added(1, 0)


@pytest.mark.parametrize("name", ["what?", "50%41", "a#b", "file:x?mode=memory", "a@b:c"])
def test_any_folder_may_hold_a_table(tmp_path: Path, name: str) -> None:
    workspace = Workspace(tmp_path / name)
    with JudgementStore(workspace.judgements) as store:
        store.add([vote("a", "w")])
    assert (tmp_path / name / "judgements.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    JudgementStore(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("update judgement_schema set version = 99")
    raw.close()
    with pytest.raises(UserError, match=r"schema 99.*upgrade heldout"):
        JudgementStore(path)


def test_addresses_that_cannot_hold_a_table_are_refused(tmp_path: Path) -> None:
    for address, says in (
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysql://host/x", "mysql"),
        ("nonsense", "cannot be read"),
    ):
        with pytest.raises(UserError, match=says):
            JudgementStore(address)
    (tmp_path / "text.db").write_text("this is not a database" * 100)
    with pytest.raises(BadFile, match=r"text\.db"):
        JudgementStore(tmp_path / "text.db")
    with pytest.raises(BadFile, match="folder"):
        JudgementStore(tmp_path)


def test_a_password_never_reaches_a_message() -> None:
    with pytest.raises(UserError) as caught:
        JudgementStore("postgresql://me:s3cret@127.0.0.1:1/none")
    assert isinstance(caught.value, MissingExtra) or "127.0.0.1" in caught.value.line
    assert "s3cret" not in caught.value.line


def test_reading_goes_on_while_another_connection_writes(store: JudgementStore) -> None:
    store.add(vote(f"i{n}", "w") for n in range(6_000))
    reading = store.stream()
    next(reading)
    store.add([vote("later", "w")])
    assert sum(1 for _ in reading) == 5_999  # a stream is one moment's table
    assert store.count() == 6_001


# Several processes on one table: concurrent writers, and one that is killed half way.


WRITER = """
import sys
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
path, name, shared = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
def vote(n, who):
    return Judgement(question="vote", subject={"image_id": f"i{n}", "class_id": "c"},
                     answer="selected", who=who)
added = 0
with JudgementStore("sqlite:///" + path) as store:
    for call in range(20):
        rows = [vote(n, name) for n in range(call * 20, call * 20 + 20)]
        rows += [vote(n, "everybody") for n in range(shared)]
        added += store.add(rows).added
print(added)
"""

KILLED = """
import sys, time
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
def rows():
    for n in range(30_000):
        if n == 20_000:
            print("half way", flush=True)
            time.sleep(600)
        yield Judgement(question="vote", subject={"image_id": f"k{n}", "class_id": "c"},
                        answer="selected", who="killed")
with JudgementStore("sqlite:///" + sys.argv[1]) as store:
    store.add(rows())
"""


def test_processes_that_open_and_write_at_once_lose_and_repeat_nothing(tmp_path: Path) -> None:
    path = tmp_path / "judgements.db"  # does not exist yet: they race to make it, too
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"w{n}", "50"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    added = []
    for writer in writers:
        out, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0
        added.append(int(out))
    assert sum(added) == 3 * 400 + 50  # what they share was added once, by one of them
    with JudgementStore(path) as store:
        assert store.count() == 3 * 400 + 50
        assert store.count(who="everybody") == 50


def test_a_writer_that_is_killed_leaves_nothing_of_its_call(tmp_path: Path) -> None:
    path = tmp_path / "judgements.db"
    with JudgementStore(path) as store:
        store.add([vote("before", "w")])
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half way\n"
    with JudgementStore(path) as store:
        assert store.count() == 1  # readers neither wait nor see half a call
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(timeout=60)
    writer.stdout.close()
    with JudgementStore(path) as store:
        assert list(store.stream()) == [vote("before", "w")]
        assert store.add([vote("after", "w")]).added == 1
