"""Several processes on one table: concurrent writers, and one that is killed half way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from heldout.data.judgements.store import JudgementStore

from .strategies import vote

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
