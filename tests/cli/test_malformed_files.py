"""A file with something wrong in it is one line that says so, never a traceback; see ``malformed``.

``benchmarks/malformed_files.py`` is the same at full size over every golden world.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heldout.core.arrays import load_array, load_arrays
from heldout.core.errors import BadFile
from heldout.core.files import parse_json
from tests.cli.conftest import Run
from tests.cli.malformed import readings, trials
from tests.cli.test_bad_input import refused
from tests.golden.data import lists


def test_no_spoiled_file_ends_in_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "domains").mkdir()
    (tmp_path / "lists").mkdir()
    found = [one for name in ("lists", "domains") for one in readings(name, tmp_path / name)]
    assert len({one.kind for one in found}) > 40
    outcomes = list(trials(found, 200, seed=20, place=tmp_path))
    assert [
        f"{one.reading.command}\n{one.what}\n{one.fault}" for one in outcomes if one.fault
    ] == []
    assert sum(one.code == 2 for one in outcomes) > 80


@pytest.fixture
def val(run: Run, tmp_path: Path) -> Path:
    """A test set with stored predictions of four models."""
    lists(tmp_path)
    assert run("import", "testset", "val.json").code == 0
    assert run("import", "predictions", "top", "-t", "val").code == 0
    return tmp_path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": "many"}, ["run.json", "n: Expected int"]),
        ({"identity": None}, ["run.json", "identity"]),
        ({"model": ""}, ["run.json", "model"]),
        ({"keeps": "all"}, ["run.json", "keeps"]),
        ({"schema_version": 9}, ["run.json", "upgrade heldout"]),
    ],
)
def test_a_hand_edited_run(
    run: Run, val: Path, change: dict[str, object], words: list[str]
) -> None:
    path = next(val.glob("predictions/*/oak@*/run.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for command in (["score", "-t", "val"], ["ls"], ["report", "r.json"]):
        (val / "r.json").write_text("[]")
        ran = run(*command)
        assert ran.code == 2 or command[0] == "ls", command
    refused(run("score", "-t", "val"), *words)


def test_predictions_of_another_shape(run: Run, val: Path) -> None:
    path = next(val.glob("predictions/*/oak@*/part-00000.parquet"))
    whole = pq.read_table(path)
    n = len(whole)
    ids = whole["image_id"].combine_chunks()
    for name, column in {
        "image_id": pa.array(range(n)),
        "topk": pa.array([7] * n, pa.int32()),
        "failure": pa.array([1] * n),
    }.items():
        at = whole.column_names.index(name)
        path.unlink()
        pq.write_table(whole.set_column(at, name, column), path)
        refused(run("score", "-t", "val", "-m", "oak"), "no column", name)
    far = pa.FixedSizeListArray.from_arrays(pa.array([5000] * 5 * n, pa.int32()), 5)
    path.unlink()
    at = whole.column_names.index("topk")
    pq.write_table(whole.set_column(at, "topk", far), path)
    refused(run("score", "-t", "val", "-m", "oak"), "classes that imagenet-1k does not have")
    assert ids.type == pa.string()


def test_a_lone_tally(run: Run, val: Path) -> None:
    assert run("score", "-t", "val", "--mistakes", "--metric", "top1", "--save", "m.json").code == 0
    records = json.loads((val / "m.json").read_text())
    tallies = [record for record in records if record["record"] == "tally"]
    assert len(tallies) > 20
    codes = set()
    for tally in tallies:
        (val / "lone.json").write_text(json.dumps([tally]))
        ran = run("report", "lone.json", "-o", "lone.html")
        codes.add(ran.code)
        if ran.code:
            refused(ran, "lack the tally", "--save")
    assert codes == {0, 2}


def test_arrays_that_claim_more_than_they_hold(tmp_path: Path) -> None:
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 5), }"
    head += b" " * (117 - len(head)) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(40)
    (tmp_path / "a.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", data)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(BadFile, match="its header states the shape"):
            load_array(tmp_path / name)
    with pytest.raises(BadFile, match="its header states the shape"):
        load_array(tmp_path / "a.npy", mapped=True)


def test_archives_that_are_encrypted_or_no_arrays(tmp_path: Path) -> None:
    path, plain = tmp_path / "a.npz", io.BytesIO()
    np.savez(plain, x=np.arange(3))
    for offset, value, words in ((6, 1, "encrypted"), (8, 97, "compression")):
        data = bytearray(plain.getvalue())
        data[offset] |= value
        data[data.index(b"PK\x01\x02") + offset + 2] |= value
        path.write_bytes(data)
        with pytest.raises(BadFile, match=words):
            load_arrays(path, "x")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"no array")
    with pytest.raises(BadFile, match="not a NumPy file"):
        load_arrays(path, "x")


@pytest.mark.parametrize(
    "text",
    ["NaN", "[1e999]", '"\\ud800"', "[" * 2000 + "]" * 2000, "1" * 30, "-" + "9" * 19, "1" * 5000],
)
def test_json_that_nothing_can_write_again(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_json_keeps_64_bits() -> None:
    assert parse_json("[18446744073709551615, -9223372036854775808]") == [2**64 - 1, -(2**63)]
    assert parse_json(b'\xef\xbb\xbf{"12345678901234567890123": 1}') == {
        "12345678901234567890123": 1
    }


def test_judgements_with_values_that_are_not_text(run: Run, val: Path) -> None:
    rows = {"question": ["vote"], "class_id": ["a"], "who": ["w"], "answer": ["selected"]}
    bad = {
        "nan": pa.array([float("nan")]),
        "date": pa.array([0], pa.timestamp("s")),
        "late": pa.array([2**62], pa.timestamp("us")),
        "bytes": pa.StringArray.from_buffers(
            1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")
        ),
    }
    for name, column in bad.items():
        pq.write_table(pa.table(rows | {"image_id": column}), val / f"{name}.parquet")
        refused(run("import", "judgements", f"{name}.parquet"), f"{name}.parquet")
    assert not (val / "judgements.db").exists() or run("ls").code == 0


@pytest.mark.parametrize("option", ["--name", "--save", "-t", "-w"])
def test_names_of_300_letters(run: Run, val: Path, option: str) -> None:
    name = "x" * 300
    refused(run("import", "testset", "val-2.json", "--name", name), "name too long")
    refused(run("import", "predictions", "top/oak.npy", "-t", "val", "--name", name), "too long")
    refused(run("score", "-t", name), "too long")
    refused(run("score", "-t", "val", "--save", f"{name}.json"), "too long")


def test_a_file_where_a_folder_must_be(run: Run, val: Path) -> None:
    refused(run("score", "-t", "val", "--save", "val.json/x.json"), "val.json is a file")
    refused(
        run("export", "testset", "val", "-o", "val.json/x.csv", "--format", "table"), "val.json"
    )
    refused(run("import", "testset", "val-2.json", "-w", "val.json"), "val.json")
    assert run("score", "-t", "val", "--save", "new/folder/x.json").code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys\n\nimport nothing_there\n", ["line 3: ModuleNotFoundError"]),
        ("def f(:\n", ["SyntaxError", "line 1"]),
        ("raise SystemExit(0)\n", ["SystemExit"]),
    ],
)
def test_code_that_cannot_be_imported(run: Run, val: Path, text: str, words: list[str]) -> None:
    (val / "mine.py").write_text(text)
    refused(run("predict", "-m", "mine.py:model", "-t", "val"), "mine.py cannot be", *words)


@pytest.mark.parametrize("limit", [4096, 60_000])
def test_a_file_size_limit(val: Path, limit: int) -> None:
    """As on a full disk: what was there stays, and the error is one line."""
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "from heldout.cli.app import invoke; sys.exit(invoke(sys.argv[1:]))"
    )
    rows = [f"vote,{n},a,{'w' * 40}{n % 7},selected\n" for n in range(3000)]
    (val / "many.csv").write_text("question,image_id,class_id,who,answer\n" + "".join(rows))
    for command in (
        ["import", "judgements", "many.csv"],
        ["import", "testset", "val.json", "--name", "other"],
        ["export", "judgements", "-o", "out.parquet"],
    ):
        ran = subprocess.run(
            [sys.executable, "-c", script, *command],
            capture_output=True,
            text=True,
            cwd=val,
            env=os.environ,
            check=False,
        )
        assert ran.returncode in (0, 2), (command, ran.stderr)
        assert "Traceback" not in ran.stderr, (command, ran.stderr)
        assert ran.returncode == 0 or ran.stderr.splitlines()[-1].startswith("error: ")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
