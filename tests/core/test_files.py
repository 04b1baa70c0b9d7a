from __future__ import annotations

import csv
import errno
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from heldout.core import files
from heldout.core.errors import BadFile, NotFound
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    canonical_json,
    checksum,
    csv_text,
    held,
    is_set_aside,
    is_temporary,
    is_unfinished,
    left_over,
    read_json,
    remove_folder,
    sealed,
    write_bytes,
    write_json,
)
from heldout.core.schema import read_facts


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_bytes(path, b"old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:
        temporary.write_bytes(b"half")
        assert path.read_bytes() == b"old" and is_temporary(temporary)
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and names(path.parent) == ["file"]
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new" and names(path.parent) == ["file"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
def test_names_as_long_as_the_system_allows(tmp_path: Path, name: str) -> None:
    write_bytes(tmp_path / name, b"data")
    assert (tmp_path / name).read_bytes() == b"data"
    (tmp_path / name).unlink()
    for content in ("one", "two"):
        with atomic_folder(tmp_path / name, replace=True) as folder:
            (folder / "file").write_text(content)
    assert (tmp_path / name / "file").read_text() == "two"
    remove_folder(tmp_path / name)
    assert names(tmp_path) == []


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:
        monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    path = tmp_path / "folder"
    with atomic_folder(path) as folder:
        (folder / "old").touch()
    with pytest.raises(KeyboardInterrupt), atomic_folder(path, replace=True) as folder:
        (folder / "new").touch()
        raise KeyboardInterrupt
    assert names(path) == ["old"] and names(tmp_path) == ["folder"]
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)), atomic_folder(path) as folder:
        (folder / "new").touch()
    assert names(path) == ["old"] and names(tmp_path) == ["folder"]
    with atomic_folder(path, replace=True) as folder:
        (folder / "new").touch()
    assert names(path) == ["new"] and names(tmp_path) == ["folder"]


def test_a_removal_that_is_interrupted_leaves_no_part_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "a").touch()

    def stops(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", stops)
    with pytest.raises(KeyboardInterrupt):
        remove_folder(path)
    monkeypatch.undo()
    assert not path.exists() and all(is_temporary(left) for left in tmp_path.iterdir())
    remove_folder(path)  # what is not there is no trouble


WRITER = """
import sys
from pathlib import Path
from heldout.core.files import write_bytes
print("ready", flush=True)
for i in range(1_000_000):
    write_bytes(Path(sys.argv[1]), bytes([i % 256]) * 300_000)
"""


def test_killed_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for delay in (0.01, 0.03, 0.07):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        if child.stdout is None:
            raise RuntimeError("no pipe")
        child.stdout.readline()
        while not path.exists():
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        data = path.read_bytes()
        assert len(data) == 300_000 and len(set(data)) == 1


LEAVER = """
import os, signal, sys
from pathlib import Path
from heldout.core.files import atomic_folder, atomic_path, held
folder = Path(sys.argv[1])
with held(folder / "set"), atomic_path(folder / "file") as file, atomic_folder(folder / "set") as new:
    file.write_text("half")
    (new / "half").touch()
    if sys.argv[2] == "wait":
        print("ready", flush=True)
        sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_the_next_writer_removes_what_dead_ones_left_and_nothing_else(tmp_path: Path) -> None:
    def leave(mode: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", LEAVER, str(tmp_path), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    foreign = tmp_path / f".tmp-{'0' * 32}-file"  # of another machine, or of an earlier version
    mine = tmp_path / ".tmp-notes"
    for path in (foreign, mine):
        path.touch()
    with leave("die") as dead:
        dead.communicate()
    assert len(left := names(tmp_path)) == 5 and ".tmp-hold-set" in left
    with leave("wait") as alive:
        if alive.stdout is None:
            raise RuntimeError("no pipe")
        alive.stdout.readline()
        writing = set(names(tmp_path))
        assert len(writing) == 5 and writing & set(left) == {
            foreign.name,
            mine.name,
            ".tmp-hold-set",
        }
        files._swept.clear()  # as another process
        write_bytes(tmp_path / "other", b"")
        assert set(names(tmp_path)) == {*writing, "other"}
        alive.communicate("\n")
    files._swept.clear()
    with held(tmp_path / "other"):
        assert names(tmp_path) == [foreign.name, ".tmp-hold-other", mine.name, "other"]
    assert names(tmp_path) == [foreign.name, mine.name, "other"]


def test_where_there_are_no_locks_nothing_is_swept_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def unsupported(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with atomic_path(tmp_path / "a") as begun, held(tmp_path / "b"), held(tmp_path / "b"):
        files._swept.clear()
        write_bytes(tmp_path / "c", b"")
        assert begun.exists()
        with left_over(begun) as left:
            assert left is None
    assert names(tmp_path) == ["a", "c"]


def test_one_of_two_that_ask_for_the_same_waits(tmp_path: Path) -> None:
    """Also where the first removes and makes again what both look at."""
    path, order = tmp_path / "set", []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with held(path):
            order.append("second")

    with held(path):
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait()
        for _ in range(2):
            with atomic_folder(path, replace=True) as folder:
                (folder / "file").touch()
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and names(tmp_path) == ["set"]


def test_json_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(NotFound, match=r"a\.json"):
        read_json(path)
    for broken in (b"{", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(broken)
        with pytest.raises(BadFile, match=r"a\.json.*not valid JSON"):
            read_json(path)
    with pytest.raises(ValueError, match="schema_version"):
        write_json(path, {"a": 1})
    write_json(path, {"schema_version": 2, "é": [1.5, None]})
    assert read_facts(path, dict[str, Any], newest=2)["é"] == [1.5, None]
    with pytest.raises(BadFile, match="upgrade heldout"):
        read_facts(path, dict[str, Any], newest=1)
    path.write_text("[1]")
    with pytest.raises(BadFile, match="no schema_version"):
        read_facts(path, dict[str, Any], newest=1)
    assert canonical_json({"b": 1, "a": 2}) == canonical_json({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


def test_a_long_name_has_leftovers_of_its_own(tmp_path: Path) -> None:
    """Names that begin alike are never taken for each other, however long they are."""
    for length in (20, 199, 240):
        name = "n" * length
        folder, other = tmp_path / f"{name}a", tmp_path / f"{name}b"
        with atomic_folder(folder) as temporary:
            assert is_unfinished(temporary, folder)
            assert not is_unfinished(temporary, other)
            assert not is_set_aside(temporary, folder)
    small, large = tmp_path / "size", tmp_path / "my-size"
    with atomic_folder(large) as temporary:
        assert not is_unfinished(temporary, small)


def test_cells_of_a_table_come_back(tmp_path: Path) -> None:
    cells = [["a\rb", "c\nd"], ['"', ","], ["", " "]]
    text = csv_text(["x", "y"], cells)
    assert "\r\n" not in text and text.endswith("\n")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["x", "y"], *cells]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 20_000])
def test_a_checksum_differs_for_every_flipped_byte_and_for_exchanged_sectors(size: int) -> None:
    data = bytearray(random.Random(size).randbytes(size))
    known = checksum(data)
    assert known == checksum(bytes(data)) == checksum(memoryview(data))
    assert len({known, checksum(data + b"\0"), checksum(b"\0" * 4096 + data)}) == 3
    for place in range(0, size, 1 + size // 97):
        data[place] ^= 1 << place % 8
        assert checksum(data) != known
        data[place] ^= 1 << place % 8
    if size > 8192:
        assert checksum(data[4096:8192] + data[:4096] + data[8192:]) != known


def test_a_sealed_record_is_read_unless_a_value_or_a_name_in_it_changed(tmp_path: Path) -> None:
    record = {"schema_version": 1, "counts": {"é": 3, "b": [1.5, None, True]}}
    path = tmp_path / "r.json"
    write_json(path, sealed(record))
    assert read_facts(path, dict, newest=1) == record
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            read = read_facts(path, dict, newest=1)
        except BadFile:
            refused += 1
        else:  # white space, or the name of the check itself
            assert all(read[name] == value for name, value in record.items())
    assert refused > len(whole) / 2
    write_json(path, record)
    assert read_facts(path, dict, newest=1) == record, "as written before"
