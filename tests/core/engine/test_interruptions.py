"""Real processes, really killed: what is left must be whole, and the end the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_work import digest, digest_folder, expected, tree, units

from heldout.core.engine import Job, Shard, run
from heldout.core.engine.results import JobResults

SCRIPT = Path(__file__).with_name("engine_work.py")
COUNT = 120


def start(
    runs: Path, *, output: str = "bytes", executor: str, slow: float = 0.02, shard: str = "1/1"
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(runs), output, executor, str(COUNT), str(slow), shard],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the suite was started with SIGINT ignored, children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finished(folder: Path) -> int:
    return sum(1 for path in folder.glob("job/results/*/*") if not path.name.startswith(".tmp-"))


def wait_for_more(folder: Path, than: int, process: subprocess.Popen[str]) -> None:
    """Wait until the process has stored more results than that, or has ended."""
    while finished(folder) <= than and process.poll() is None:
        time.sleep(0.002)


def members(session: int) -> list[int]:
    """Processes of a session that still live (zombies do not)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("executor", "output", "kills"),
    [("serial", "bytes", 6), ("threads", "folder", 6), ("processes", "bytes", 4)],
)
def test_killed_at_any_moment_and_resumed_gives_the_same_bytes(
    executor: str, output: str, kills: int, tmp_path: Path
) -> None:
    moments = random.Random(f"{executor}{output}")
    killed = 0
    for _ in range(kills):
        before = finished(tmp_path)
        process = start(tmp_path, output=output, executor=executor)
        wait_for_more(tmp_path, before, process)
        time.sleep(moments.uniform(0, 0.03))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
        for path in tmp_path.glob("job/results/*/*"):  # nothing visible is ever half written
            if output == "bytes" and not path.name.startswith(".tmp-"):
                assert len(path.read_bytes()) == 64 * 32
    assert killed >= kills - 2
    there = finished(tmp_path)
    assert 0 < there < COUNT
    last = start(tmp_path, output=output, executor=executor)
    out, err = last.communicate(timeout=60)
    made, found, failed = map(int, out.split())
    assert (made + found, failed, err) == (COUNT, 0, "")
    # A worker process may outlive its parent by one unit, so more may be there than was counted.
    assert there <= found < COUNT
    work = digest_folder if output == "folder" else digest
    reference = tmp_path / "reference"
    run(Job(name="job", work=work, output=output), units(COUNT), runs=reference)  # type: ignore[arg-type]
    assert tree(tmp_path / "job") == tree(reference / "job")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes from /proc")
def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    process = start(tmp_path, executor="processes")
    wait_for_more(tmp_path, 0, process)
    assert len(members(process.pid)) >= 3  # the parent and two workers at least
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for _ in range(1000):
        if not members(process.pid):
            break
        time.sleep(0.01)
    assert members(process.pid) == []


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"])
def test_ctrl_c_leaves_finished_results_and_no_leftovers(executor: str, tmp_path: Path) -> None:
    process = start(tmp_path, executor=executor)
    wait_for_more(tmp_path, 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, err = process.communicate(timeout=30)
    assert process.returncode != 0
    # One process tells of it; when it comes while a missing file is noticed, with that before it.
    chained = err.count("During handling of the above exception")
    assert err.count("Traceback") - chained == 1 and "KeyboardInterrupt" in err
    there = finished(tmp_path)
    assert 2 < there < COUNT
    again = run(Job(name="job", work=digest), units(COUNT, slow=0), runs=tmp_path)
    assert again.found >= there
    assert [again.results.read(u.key) for u in units(COUNT)] == [
        expected(u.payload) for u in units(COUNT)
    ]
    assert not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.parametrize("output", ["bytes", "folder"])
def test_two_processes_on_one_job_do_not_harm_it(output: str, tmp_path: Path) -> None:
    processes = [start(tmp_path, output=output, executor="threads", slow=0.001) for _ in range(2)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        made, found, failed = map(int, out.split())
        assert (made + found, failed, err) == (COUNT, 0, "")
    work = digest_folder if output == "folder" else digest
    run(Job(name="job", work=work, output=output), units(COUNT), runs=tmp_path / "reference")  # type: ignore[arg-type]
    assert tree(tmp_path / "job") == tree(tmp_path / "reference" / "job")
    assert not list(tmp_path.rglob(".tmp-*"))


def test_shards_in_separate_processes_make_up_the_whole(tmp_path: Path) -> None:
    made = []
    for index in (1, 2, 3):
        out, err = start(tmp_path, executor="serial", slow=0, shard=f"{index}/3").communicate()
        assert err == ""
        made.append(int(out.split()[0]))
    assert sum(made) == COUNT
    assert made == [sum(Shard(i, 3).takes(u.key) for u in units(COUNT)) for i in (1, 2, 3)]
    assert all(JobResults(tmp_path / "job").has(u.key) for u in units(COUNT))
