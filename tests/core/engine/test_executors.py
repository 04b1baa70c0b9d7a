"""Tests of :mod:`heldout.core.engine.executors`."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_work import (
    Examine,
    die_on_seven,
    digest,
    digest_folder,
    expected,
    fail_on_odd,
    no_room,
    tree,
    units,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.core.engine import (
    Executor,
    Job,
    Processes,
    Serial,
    Shard,
    Threads,
    Tick,
    Unit,
    UnitFailure,
    run,
    unit_key,
)
from heldout.core.errors import HeldoutError, UserError
from heldout.data.images import TarSource
from heldout.testing.executor import FakeExecutor

# executors


EXECUTORS: dict[str, Callable[[], Executor]] = {
    "serial": Serial,
    "threads-1": lambda: Threads(1),
    "threads-5": lambda: Threads(5),
    "processes-1": lambda: Processes(1),
    "processes-2": lambda: Processes(2),
    "fake": lambda: FakeExecutor(seed=3),
}
every_executor = pytest.mark.parametrize("executor", EXECUTORS)


@every_executor
def test_results_are_equal_and_in_the_order_of_units(executor: str, tmp_path: Path) -> None:
    listed = units(23)
    summary = run(
        Job(name="job", work=digest), listed, runs=tmp_path, executor=EXECUTORS[executor]()
    )
    assert (summary.made, summary.found, summary.failed) == (23, 0, 0)
    assert not summary.failed
    assert [o.key for o in summary.results.in_order(listed)] == [u.key for u in listed]
    assert [summary.results.read(u.key) for u in listed] == [expected(u.payload) for u in listed]
    reference = tmp_path / "reference"
    run(Job(name="job", work=digest), listed, runs=reference)
    assert tree(tmp_path / "job") == tree(reference / "job")


@every_executor
def test_folders_are_stored_whole(executor: str, tmp_path: Path) -> None:
    listed = units(9)
    job = Job(name="job", work=digest_folder, output="folder")
    results = run(job, listed, runs=tmp_path, executor=EXECUTORS[executor]()).results
    for unit in listed:
        assert tree(results.path(unit.key)) == {
            "a.bin": expected(unit.payload),
            "deep/b.txt": str(unit.payload["n"]).encode(),
        }
    again = run(job, listed, runs=tmp_path, executor=EXECUTORS[executor]())
    assert (again.made, again.found) == (0, 9)


@every_executor
def test_failures_are_recorded_and_the_rest_is_done(executor: str, tmp_path: Path) -> None:
    listed = units(11)
    job = Job(name="job", work=fail_on_odd)
    summary = run(job, listed, runs=tmp_path, executor=EXECUTORS[executor]())
    assert (summary.made, summary.failed) == (6, 5)
    assert summary.failed
    for unit, outcome in zip(listed, summary.results.in_order(listed), strict=True):
        if unit.payload["n"] % 2:
            assert isinstance(outcome, UnitFailure)
            assert outcome.reason == f"ValueError: odd number {unit.payload['n']}"
            assert "fail_on_odd" in outcome.traceback
            assert outcome.attempts == 1
        else:
            assert summary.results.read(unit.key) == expected(unit.payload)
    assert len(list(summary.results.failures())) == 5
    mended = run(Job(name="job", work=digest), listed, runs=tmp_path)
    assert (mended.made, mended.found, mended.failed) == (5, 6, 0)
    assert not list(mended.results.failures())
    assert not list((tmp_path / "job" / "failures").iterdir())


@every_executor
def test_at_most_the_bounded_number_of_units_is_pulled_ahead(executor: str, tmp_path: Path) -> None:
    pulled = finished = most = 0

    def source() -> Iterator[Unit]:
        nonlocal pulled, most
        for unit in units(60):
            pulled += 1
            most = max(most, pulled - finished)
            yield unit

    def count(tick: Tick) -> None:
        nonlocal finished
        finished = tick.done

    made = EXECUTORS[executor]()
    summary = run(
        Job(name="job", work=digest), source(), runs=tmp_path, executor=made, progress=count
    )
    assert summary.made == 60
    assert most <= getattr(made, "in_flight", 1) + 1


@every_executor
def test_a_full_disk_ends_the_run_and_blames_no_unit(executor: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        run(Job(name="job", work=no_room), units(4), runs=tmp_path, executor=EXECUTORS[executor]())
    assert not (tmp_path / "job" / "failures").exists()


@every_executor
def test_a_generator_that_raises_ends_the_run_and_keeps_what_is_done(
    executor: str, tmp_path: Path
) -> None:
    def source() -> Iterator[Unit]:
        yield from units(30)
        raise RuntimeError("the list broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        run(Job(name="job", work=digest), source(), runs=tmp_path, executor=EXECUTORS[executor]())
    summary = run(Job(name="job", work=digest), units(30), runs=tmp_path)
    assert summary.found >= 10
    assert summary.found + summary.made == 30


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(0, 30),
    workers=st.integers(1, 6),
    in_flight=st.integers(1, 12),
    seed=st.integers(0, 99),
    stop_after=st.integers(0, 30),
    shards=st.integers(1, 3),
)
def test_any_path_to_the_end_leaves_the_same_files(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    workers: int,
    in_flight: int,
    seed: int,
    stop_after: int,
    shards: int,
) -> None:
    folder = tmp_path_factory.mktemp("paths")
    listed, job = units(count), Job(name="job", work=fail_on_odd)
    run(job, listed, runs=folder / "plain")
    stopping = FakeExecutor(seed=seed, in_flight=in_flight, stop_after=stop_after)
    with contextlib.suppress(KeyboardInterrupt):
        run(job, iter(listed), runs=folder / "odd", executor=stopping)
    for index in range(1, shards + 1):
        run(
            job,
            listed[::-1],
            runs=folder / "odd",
            executor=Threads(workers),
            shard=Shard(index, shards),
        )
    # Tracebacks name the lines of the caller; all else must agree to the byte.
    plain, odd = tree(folder / "plain" / "job"), tree(folder / "odd" / "job")
    assert plain.keys() == odd.keys()
    assert {k: v for k, v in plain.items() if "failures" not in k} == {
        k: v for k, v in odd.items() if "failures" not in k
    }
    assert stopping.most_in_flight <= in_flight


def test_a_worker_that_dies_costs_one_unit_only(tmp_path: Path) -> None:
    listed = units(20, slow=0.002)
    job = Job(name="job", work=die_on_seven)
    summary = run(job, listed, runs=tmp_path, executor=Processes(2))
    assert (summary.made, summary.failed) == (19, 1)
    (failure,) = summary.results.failures()
    assert failure.key == listed[7].key
    assert "worker process died" in failure.reason


def test_work_that_cannot_be_sent_is_said_in_one_line(tmp_path: Path) -> None:
    job = Job(name="job", work=lambda payload: b"")
    with pytest.raises(HeldoutError, match="top level of a module, or use threads"):
        run(job, units(3), runs=tmp_path, executor=Processes(1))


def test_threads_really_run_side_by_side(tmp_path: Path) -> None:
    meeting = threading.Barrier(3, timeout=20)

    def meet(payload: object) -> bytes:
        meeting.wait()  # breaks, and so fails the unit, unless three are here at once
        return b"met"

    summary = run(Job(name="job", work=meet), units(6), runs=tmp_path, executor=Threads(3))
    assert summary.made == 6


def test_a_number_of_workers_that_cannot_work_is_refused() -> None:
    with pytest.raises(UserError, match="1 or more"):
        Threads(0)


def test_no_unit_at_all_starts_and_ends(tmp_path: Path) -> None:
    for name, make in EXECUTORS.items():
        summary = run(Job(name=name, work=digest), [], runs=tmp_path, executor=make())
        assert (summary.made, summary.found, summary.failed) == (0, 0, 0)


def test_two_units_with_one_key_are_refused(tmp_path: Path) -> None:
    key = unit_key("same")
    with pytest.raises(UserError, match=f"two units have the key {key}"):
        run(
            Job(name="job", work=digest),
            iter([Unit(key, {"n": 1, "slow": 0}), *units(4), Unit(key, {"n": 2, "slow": 0})]),
            runs=tmp_path,
        )


# The engine over an image source: how the rooms after it use the two together.


def jpeg(width: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, 8), (width, 0, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize("executor", [Serial(), Threads(3), Processes(2)])
def test_every_image_is_examined_and_bad_ones_are_answers_too(
    executor: Executor, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        for n in range(12):
            data = jpeg(10 + n) if n % 5 else b"no image"
            info = tarfile.TarInfo(f"{n:02}.jpg")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    source = TarSource(tmp_path / "images.tar")
    units = [Unit(unit_key("examine-1", image=image_id), image_id) for image_id in source.ids()]
    summary = run(
        Job(name="examine", work=Examine(source)), units, runs=tmp_path, executor=executor
    )
    assert (summary.made, summary.failed) == (12, 0)
    texts = [summary.results.read(unit.key).decode() for unit in units]
    assert [f'"width":{10 + n}' in text for n, text in enumerate(texts)] == [
        n % 5 != 0 for n in range(12)
    ]
    assert ['"trouble":"unsupported"' in text for text in texts] == [n % 5 == 0 for n in range(12)]


# Workers that are started before there is a task.


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
