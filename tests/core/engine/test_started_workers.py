"""Workers that are started before there is a task."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_work import digest, expected, units

from heldout.core.engine import Job, Processes, run
from heldout.core.errors import HeldoutError


def note(folder: Path) -> None:
    """Leave this worker's number behind."""
    (folder / str(os.getpid())).touch()


def pid_of(payload: Any) -> bytes:
    time.sleep(0.02)
    return str(os.getpid()).encode()


class Large:
    """Work larger than what a pipe holds."""

    def __init__(self) -> None:
        self.ballast = bytes(3_000_000)

    def __call__(self, payload: Any) -> bytes:
        return str(len(self.ballast)).encode()


def only_in(parent: int) -> Fragile:
    if os.getpid() != parent:
        raise RuntimeError("this cannot be read here")
    return Fragile()


class Fragile:
    """Work that can be sent and not be read."""

    def __call__(self, payload: Any) -> bytes:
        return b""

    def __reduce__(self) -> tuple[Any, ...]:
        return only_in, (os.getpid(),)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_next_run_has_the_workers_that_were_prepared(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    listed = units(30)
    with Processes(2).started(partial(note, prepared)) as executor:
        summary = run(Job(name="pids", work=pid_of), listed, runs=tmp_path, executor=executor)
        known = {path.name for path in prepared.iterdir()}
        used = {summary.results.read(unit.key).decode() for unit in listed}
        assert used <= known and len(known) == 2
        # They are spent; another run starts its own.
        again = run(Job(name="again", work=digest), listed, runs=tmp_path, executor=executor)
    assert [again.results.read(u.key) for u in listed] == [expected(u.payload) for u in listed]
    assert not any(alive(int(pid)) for pid in known)


def test_workers_that_nobody_used_end_with_the_block(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Processes(2).started(partial(note, tmp_path)):
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.02)
        raise ZeroDivisionError
    assert not any(alive(int(path.name)) for path in tmp_path.iterdir())


def test_a_large_task_reaches_every_worker(tmp_path: Path) -> None:
    listed = units(8)
    with Processes(2).started() as executor:
        summary = run(Job(name="job", work=Large()), listed, runs=tmp_path, executor=executor)
    assert {summary.results.read(unit.key) for unit in listed} == {b"3000000"}


def test_a_task_that_workers_cannot_read_is_said_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HeldoutError, match="worker processes cannot start"):
        run(Job(name="job", work=Fragile()), units(3), runs=tmp_path, executor=Processes(1))
    assert "this cannot be read here" in capfd.readouterr().err
