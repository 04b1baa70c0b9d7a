"""``fetch`` of a pool at the command line, and the verbs that work on the images afterwards."""

from __future__ import annotations

from pathlib import Path

import heldout
from heldout.core.workspace import Workspace
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import load
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.curate.collect.image_server import ImageServer, encoded, photo, sends, server
from tests.curate.collect.test_download import make

__all__ = ["server"]
ALLOW = ("--allow-host", "127.0.0.1")
MODEL = """
import numpy as np
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels import LabelSpace
from heldout.models.adapters.model import ModelOutput

class Mean:
    name = "mean"
    label_space = LabelSpace.from_ids("birds", ["gull", "wren"])
    geometry = Geometry(resize_height=10, resize_width=10, crop_height=8, crop_width=8)
    preprocessing = Preprocessing(geometry=geometry)
    identity = {"version": 1}

    def __call__(self, pixels):
        means = pixels.astype(np.float32).mean(axis=(1, 2)) / 255
        return ModelOutput(means[:, :2], means)

mean = Mean()
"""


def candidates(server: ImageServer, place: Path) -> None:
    """Thirty candidates of two classes, of which two have no image and one is blacklisted."""
    uris: dict[str, str | None] = {
        f"i{n:02}": server.serve(f"/{n}", encoded(photo(n))) for n in range(28)
    }
    server.answers["/page"] = sends(b"<html>gone</html>")
    uris |= {"i28": server.url("/page"), "i29": server.url("/none")}
    make(place / "pools" / "birds", uris, licence=["CC0-1.0"] * 30)
    with JudgementStore(Workspace(place).judgements) as store:
        said = {"image_id": "i05"}
        store.add(
            [
                Judgement(
                    question="review",
                    subject=said,
                    answer="blacklisted",
                    who="ann",
                    testset="birds",
                    evidence={"reason": "a drawing"},
                )
            ]
        )
        store.add(
            Judgement(
                question="vote",
                subject={"image_id": f"i{n:02}", "class_id": ("gull", "wren")[n % 2]},
                answer="selected" if who < 2 or n % 3 else "not-selected",
                who=f"w{who}",
                testset="birds",
            )
            for n in range(20)
            for who in range(3)
        )


def test_a_fetched_pool_works_in_every_verb(server: ImageServer, run: Run, tmp_path: Path) -> None:
    candidates(server, tmp_path)
    ran = run("fetch", "birds", *ALLOW, "--json")
    assert ran.code == 3
    summary, *left = ran.json
    assert (summary["candidates"], summary["images"], summary["new"]) == (30, 27, 27)
    assert summary["left_out"] == {"blacklisted": 1, "not found": 1, "unsupported": 1}
    assert [(one["image_id"], one["reason"]) for one in left] == [
        ("i05", "blacklisted"), ("i28", "unsupported"), ("i29", "not found"),
    ]  # fmt: skip
    assert "/5" not in server.asked
    shown = run("fetch", "birds", *ALLOW)
    assert shown.code == 3 and "left out: 1 blacklisted, 1 not found, 1 unsupported" in shown.out
    assert "run the same command again" in shown.out

    assert run("verify", "birds").code == 0
    (tmp_path / "mean.py").write_text(MODEL)
    ran = run("eval", "-m", "mean.py:mean", "-t", "birds", "--replicates", 20, "--json")
    assert ran.code == 0, ran.err
    scores = [r for r in ran.json if r["record"] == "score" and r["metric"] == "top1"]
    assert [r["n"] for r in scores] == [27]
    ran = run("dedupe", "birds", "--compare-by", "l2", "--json")
    assert ran.code == 0, ran.err
    ran = run("crowd", "grids", "birds", "--controls", "none", "--grid", "candidates=5", "--json")
    assert ran.code == 0, ran.err
    asked = {image for r in ran.json if r["record"] == "grid" for image in r["candidates"]}
    assert asked == {f"i{n:02}" for n in range(28)} - {"i05"}
    ran = run("build", "replicate", "birds", "--per-class", 3, "--votes", 3, "--name", "new")
    assert ran.code == 0, ran.err
    built = load(tmp_path / "testsets" / "new")
    assert len(built) == 6 and built.images["licence"].to_pylist() == ["CC0-1.0"] * 6
    assert run("verify", "new").code == 0
    assert run("eval", "-m", "mean.py:mean", "-t", "new", "--replicates", 20).code == 0
    out = ("export", "testset", "new", "-o", "out", "--format", "folders")
    assert run(*out).code == 0 and len(list((tmp_path / "out").rglob("*.jpg"))) == 6


def test_what_is_refused_is_one_line(server: ImageServer, run: Run, tmp_path: Path) -> None:
    candidates(server, tmp_path)
    ran = refused(run("fetch", "birds"), "29 private address", "--allow-host")
    assert ran is None and not server.asked
    refused(run("fetch", "birds", "--local", "x.zip"), "--local has no use with a pool")
    refused(run("fetch", "nothing"), "no published test set 'nothing'")
    refused(run("fetch", "imagenet-a", *ALLOW), "--allow-host has no use")
    refused(run("fetch", *ALLOW), "--allow-host has no use")


def test_from_python_it_gives_the_pool(server: ImageServer, tmp_path: Path) -> None:
    same = encoded(photo(1))
    uris: dict[str, str | None] = {n: server.serve(f"/{n}", same) for n in "abc"}
    make(tmp_path / "pools" / "birds", uris)
    pool = heldout.verbs.fetch("birds", allow_hosts=["127.0.0.1"])
    assert pool.image_ids.to_pylist() == ["a", "b", "c"]
    assert pool.images_folder() == Path("pools/birds/images/scaled_500")


def test_bytes_that_many_addresses_give_are_noted(
    server: ImageServer, run: Run, tmp_path: Path
) -> None:
    same = encoded(photo(1))
    uris: dict[str, str | None] = {n: server.serve(f"/{n}", same) for n in "abc"}
    uris["d"] = server.serve("/d", encoded(photo(2)))
    make(tmp_path / "pools" / "birds", uris)
    ran = run("fetch", "birds", *ALLOW)
    assert ran.code == 0 and "3 addresses gave the same bytes, such as those of a" in ran.err
