"""``heldout collect`` of YFCC100M and what follows it, from end to end."""

from __future__ import annotations

import bz2
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from heldout.data.testset.testset import load
from tests.cli.conftest import Run, run
from tests.data.published.test_geoyfcc import OLD, Hostile, pickled
from tests.data.published.yfcc_examples import line_25, photo

__all__ = ["run"]
Written = Callable[..., Path]


def test_from_the_archive_to_a_set_by_continent(run: Run, written: Written, tmp_path: Path) -> None:
    rows = [photo(i, usertags=["cat", "dog", "x"][i % 3], uid=f"{i % 5}@N00") for i in range(60)]
    data = b"\n".join(line_25(row, i) for i, row in enumerate(rows))
    places = "".join(
        f"{row['photoid']}\t1:{['Kenya', 'Peru'][i % 2]}:Country\n" for i, row in enumerate(rows)
    )
    out = tmp_path / "rows.parquet"
    ran = run(
        "collect", "yfcc", written(bz2.compress(data), "yfcc100m_dataset.bz2"),
        written(places, "yfcc100m_places"), "--keywords", written({"c": ["cat"], "d": ["dog"]}, "k.json"),
        "-o", tmp_path / "pool", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    counts = {record["name"]: record["value"] for record in ran.json}
    assert counts["images"] == 40 and counts["without_keyword"] == 20 and counts["rows"] == 60
    ran = run(
        "build", "domains", tmp_path / "pool", "--domain", "continent", "--class-cap", "5",
        "--split-by", "group:uid", "--part", "train=0.5", "--part", "test=0.5",
        "-o", tmp_path / "set", "-w", tmp_path, "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    images = pq.read_table(tmp_path / "set" / "images.parquet")
    assert set(images["continent"].to_pylist()) == {"Africa", "South America"}
    assert set(images["licence"].to_pylist()) == {"Attribution-NonCommercial License"}
    split_of = dict(zip(images["uid"].to_pylist(), images["split"].to_pylist(), strict=True))
    for uid, part in zip(images["uid"].to_pylist(), images["split"].to_pylist(), strict=True):
        assert split_of[uid] == part
    again = ["collect", "yfcc", tmp_path / "yfcc100m_dataset.bz2", tmp_path / "yfcc100m_places"]
    again += ["-o", out, "--keywords", tmp_path / "k.json"]
    ran = run(*again)
    assert ran.code == 0 and "rows.parquet: 40 rows" in ran.out
    assert pq.read_table(out)["tags"].to_pylist()[:2] == [["cat"], ["dog"]]
    ran = run(*again)
    assert ran.code == 2 and "rows.parquet exists" in ran.err
    assert run(*again, "--replace").code == 0
    ran = run(
        "build", "domains", out, "--domain", "continent", "--class-cap", "5",
        "-o", tmp_path / "same", "-w", tmp_path,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    same = pq.read_table(tmp_path / "same" / "images.parquet")
    assert set(same["image_id"].to_pylist()) == set(images["image_id"].to_pylist())
    assert same["licence_url"].null_count == 0 and same["attribution"].null_count == 0


def test_malformed_rows_have_an_exit_code_and_a_file(
    run: Run, written: Written, tmp_path: Path
) -> None:
    data = b"\n".join([line_25(photo(0), 0), b"half\ta row", line_25(photo(1), 2)])
    for to in (tmp_path / "pool", tmp_path / "x.parquet"):
        aside = tmp_path / f"{to.stem}.jsonl"
        ran = run(
            "collect", "yfcc", written(data, "d"), "--coordinates", "off", "-o", to,
            "--quarantine", aside,
        )  # fmt: skip
        assert ran.code == 3 and "1 × row in quarantine: 2 fields instead of 25" in ran.err
        entry = json.loads(aside.read_text())
        assert entry == {
            "file": "d", "line": 2, "reason": "2 fields instead of 25", "text": "half\ta row",
        }  # fmt: skip


def test_faults_are_one_line(run: Run, written: Written, tmp_path: Path) -> None:
    data = written(b"\n".join([line_25(photo(0), 0), line_25(photo(1), 1)]), "d")
    places = written("1\t1:Kenya:Country\n2\t\n", "places")
    marker = tmp_path / "was-run"
    for words, said in (
        (("yfcc", data, places), "does not stand beside d"),
        (("yfcc", written("a\tb\tc\n", "t")), "has 3 fields where YFCC100M has 23 or 25"),
        (("yfcc", data, "--coordinates", "perhaps"), "give one of fallback, check, off"),
        (("yfcc", data, "--countries", tmp_path / "none.csv"), "no file"),
        (("geoyfcc", pickled(tmp_path / "h.pkl", Hostile(marker))), "it names posix.system"),
        (("gqa", data, "-o", tmp_path / "x.parquet"), "not into a Parquet file"),
    ):  # fmt: skip
        ran = run("collect", *words, "-w", tmp_path)
        assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1, ran.err
    assert not marker.exists()


def test_a_published_frame_as_parquet(run: Run, tmp_path: Path) -> None:
    to = tmp_path / "frame.parquet"
    ran = run("collect", "geoyfcc", OLD[0], "-o", to, "--json")
    assert ran.code == 0 and {r["name"]: r["value"] for r in ran.json} == {"images": 3, "rows": 3}
    ran = run("collect", "geoyfcc", to, "-o", tmp_path / "pool")
    assert ran.code == 0 and len(load(tmp_path / "pool")) == 3
