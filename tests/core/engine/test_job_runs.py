from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import pytest
from engine_work import digest, digest_folder, fail_on_odd, units

from heldout.core.engine import Done, Job, Tick, UnitFailure, rich_progress, run
from heldout.core.engine.jobs import ShardsMissing, Task, map_units
from heldout.core.engine.results import JobResults, Output, is_worked_on, working
from heldout.core.engine.unit import Shard, Unit, unit_key
from heldout.core.errors import BadFile, ExistsError, HeldoutError, NotFound, UserError
from heldout.core.files import atomic_folder, atomic_path


def test_a_result_that_appeared_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    results = JobResults(tmp_path)
    results.write(units(1)[0].key, b"theirs")
    outcome = Task(Job(name="job", work=fail_on_odd), results)(units(1)[0])
    assert isinstance(outcome, Done) and outcome.path.read_bytes() == b"theirs"


def test_work_that_returns_no_bytes_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="gave str, not bytes"):
        run(Job(name="job", work=lambda payload: "text"), units(1), runs=tmp_path)  # type: ignore[return-value, arg-type]


def test_a_result_wins_over_an_older_failure(tmp_path: Path) -> None:
    results = JobResults(tmp_path)
    (unit,) = units(1)
    results.record(UnitFailure(key=unit.key, reason="late", traceback="", attempts=1))
    assert [f.reason for f in results.failures()] == ["late"]
    results.write(unit.key, b"x")
    assert list(results.failures()) == []
    assert list(results.in_order([unit])) == [Done(unit.key, results.path(unit.key))]


def test_missing_results_and_bad_records_are_named(tmp_path: Path) -> None:
    results = JobResults(tmp_path)
    (unit,) = units(1)
    with pytest.raises(NotFound, match=unit.key):
        results.read(unit.key)
    with pytest.raises(NotFound, match="run the job again"):
        list(results.in_order([unit]))
    path = tmp_path / "failures" / f"{unit.key}.json"
    path.parent.mkdir()
    path.write_text('{"schema_version": 1}')
    with pytest.raises(BadFile, match="missing required field"):
        results.failure(unit.key)
    path.write_text("{")
    with pytest.raises(BadFile, match="not valid JSON"):
        results.failure(unit.key)


def test_failure_files_carry_all_fields(tmp_path: Path) -> None:
    listed = units(2)
    run(Job(name="job", work=fail_on_odd), listed, runs=tmp_path)
    (path,) = (tmp_path / "job" / "failures").iterdir()
    value = json.loads(path.read_text())
    assert value.keys() == {"schema_version", "key", "reason", "traceback", "attempts"}
    assert value["key"] == listed[1].key == path.stem


def test_one_job_holds_one_kind_of_result(tmp_path: Path) -> None:
    run(Job(name="job", work=digest), units(1), runs=tmp_path)
    with pytest.raises(ExistsError, match="another name"):
        run(Job(name="job", work=digest_folder, output="folder"), units(1), runs=tmp_path)


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b"])
def test_job_names_are_slugs(name: str) -> None:
    with pytest.raises(UserError):
        Job(name=name, work=digest)


def begin_writes(folder: Path, stack: ExitStack) -> list[Path]:
    """Half of a job's file, of two results and of a failure, as long as the stack is open."""
    key = units(1)[0].key
    writes: list[tuple[Callable[[Path], AbstractContextManager[Path]], Path]] = [
        (atomic_path, folder / "job.json"),
        (atomic_path, folder / "results" / key[:2] / key),
        (atomic_path, folder / "failures" / f"{key}.json"),
        (atomic_folder, folder / "results" / key[:2] / f"{key}2"),
    ]
    left = [stack.enter_context(write(path)) for write, path in writes]
    for path in left:
        (path / "part.bin" if path.is_dir() else path).write_bytes(b"half a res")
    return left


def test_leftovers_are_ignored_and_swept_unless_somebody_is_writing_them(tmp_path: Path) -> None:
    job = Job(name="job", work=digest)
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        left = begin_writes(tmp_path / "job", stack)
        summary = run(job, units(1), runs=tmp_path)
        assert (summary.made, summary.found) == (1, 0)
        assert list(summary.results.failures()) == []
        assert all(path.exists() for path in left)
        for path in left:  # as a killed process leaves them: the same, and locked by nobody
            if path.is_dir():
                shutil.copytree(path, path.with_name(path.name + "b"))
            else:
                shutil.copy(path, path.with_name(path.name + "b"))
        copies = [path.with_name(path.name + "b") for path in left]
        run(job, units(1), runs=tmp_path)
        assert all(path.exists() for path in left) and not any(path.exists() for path in copies)
        raise KeyboardInterrupt  # or the half files would be stored


def test_progress_tells_counts_rate_and_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = units(8)
    run(Job(name="job", work=digest), listed[:2], runs=tmp_path)
    now = [100.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("time.monotonic", clock)
    ticks: list[Tick] = []
    run(
        Job(name="job", work=fail_on_odd),
        listed,
        runs=tmp_path,
        progress=ticks.append,
    )
    assert [(t.done, t.found, t.failed) for t in ticks][-1] == (5, 2, 3)
    assert [t.done + t.failed for t in ticks] == list(range(1, 9))
    assert {t.total for t in ticks} == {8}
    assert ticks[0].left is None  # nothing was worked on yet
    fourth = ticks[3]
    assert (fourth.rate, fourth.left) == (2 / fourth.seconds, 4 / (2 / fourth.seconds))
    assert ticks[-1].left == 0


def test_progress_of_a_stream_has_no_total(tmp_path: Path) -> None:
    ticks: list[Tick] = []
    run(Job(name="a", work=digest), iter(units(2)), runs=tmp_path, progress=ticks.append)
    assert [(t.total, t.left) for t in ticks] == [(None, None)] * 2


def test_the_bar_writes_to_standard_error_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rich_progress("digests") as progress:
        run(Job(name="job", work=fail_on_odd), units(4), runs=tmp_path, progress=progress)
    out, err = capsys.readouterr()
    assert out == ""
    assert "digests" in err and "4/4" in err and "2 failed" in err


def test_who_works_on_a_job_can_be_told(tmp_path: Path) -> None:
    job = JobResults(tmp_path / "job")
    assert not is_worked_on(job.folder)
    with working(job):
        assert is_worked_on(job.folder)
        with working(job):
            pass
        assert is_worked_on(job.folder)
    assert not is_worked_on(job.folder)


def test_results_may_be_kept_elsewhere(tmp_path: Path) -> None:
    kept = JobResults(tmp_path / "elsewhere")
    job = Job(name="job", work=digest)
    assert run(job, units(5), runs=tmp_path, results=kept).made == 5
    assert run(job, units(5), runs=tmp_path, results=kept).found == 5
    assert not (tmp_path / "job").exists()
    assert all(kept.has(unit.key) for unit in units(5))


def _doubled(payload: int) -> bytes:
    if payload < 0:
        raise UserError("a negative number", fix="give one from 0 on")
    return str(2 * payload).encode()


def _units(*payloads: int) -> list[Unit]:
    return [Unit(unit_key("double-1", number=payload), payload) for payload in payloads]


def test_map_units_gives_all_results_or_says_what_is_missing(tmp_path: Path) -> None:
    units = _units(*range(6))
    half = {"name": "double", "what": "doubles", "runs": tmp_path}
    shares = [sum(Shard(n, 2).takes(unit.key) for unit in units) for n in (1, 2)]
    with pytest.raises(ShardsMissing) as missing:
        map_units(_doubled, units, shard=Shard(1, 2), **half)
    assert (missing.value.done, missing.value.total) == (shares[0], 6)
    results = map_units(_doubled, units, shard=Shard(2, 2), **half)
    assert [results.read(unit.key) for unit in units] == [b"0", b"2", b"4", b"6", b"8", b"10"]


def test_map_units_raises_what_the_work_raised(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a negative number: give one from 0 on"):
        map_units(_doubled, _units(-1), name="double", what="doubles", runs=tmp_path)
    with pytest.raises(HeldoutError, match=r"doubles: 1 parts failed; the first: TypeError"):
        map_units(
            lambda payload: payload + "x", _units(1), name="odd", what="doubles", runs=tmp_path
        )


@pytest.mark.parametrize("output", ["bytes", "folder"])
def test_a_damaged_result_is_made_again(tmp_path: Path, output: Output) -> None:
    work = digest if output == "bytes" else digest_folder
    job, listed = Job(name="job", work=work, output=output), units(6)
    results = run(job, listed, runs=tmp_path).results
    files = [
        path if path.is_file() else next(p for p in sorted(path.rglob("*")) if p.is_file())
        for path in (results.path(unit.key) for unit in listed)
    ]
    whole = [file.read_bytes() for file in files]
    for place in (1, 4):
        data = bytearray(whole[place])
        data[place] ^= 1
        files[place].write_bytes(data)
    if output == "bytes":
        with pytest.raises(BadFile, match=r"is damaged.*made again"):
            results.read(listed[1].key)
    assert [results.has(unit.key) for unit in listed] == [True, False, True, True, False, True]
    again = run(job, listed, runs=tmp_path)
    assert (again.made, again.found, again.failed) == (2, 4, 0)
    assert [file.read_bytes() for file in files] == whole


def test_results_of_before_there_were_checksums_are_taken(tmp_path: Path) -> None:
    job, listed = Job(name="job", work=digest), units(3)
    results = run(job, listed, runs=tmp_path).results
    shutil.rmtree(results.folder / "sums")
    assert run(job, listed, runs=tmp_path).found == 3
    assert results.read(listed[0].key) == digest(listed[0].payload)
