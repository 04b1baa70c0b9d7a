from __future__ import annotations

import csv
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from heldout.data.images import MemorySource
from heldout.data.testset import TestSet
from heldout.data.testset.exporters import webdataset
from heldout.data.testset.exporters.formats import export


def read_like_clip_benchmark(folder: Path, split: str = "test") -> list[tuple[bytes, int]]:
    """Samples in order, found as CLIP_benchmark finds them: shards counted, members grouped."""
    shards = int((folder / split / "nshards.txt").read_text())
    samples = []
    for shard in range(shards):
        grouped: dict[str, dict[str, bytes]] = {}
        with tarfile.open(folder / split / f"{shard}.tar") as tar:
            for member in tar:
                key, _, ending = member.name.partition(".")
                data = tar.extractfile(member)
                assert data is not None
                grouped.setdefault(key, {})[ending.lower()] = data.read()
        for sample in grouped.values():
            image = next(sample[e] for e in ("webp", "png", "jpg", "jpeg") if e in sample)
            samples.append((image, int(sample["cls"])))
    return samples


def test_images_and_labels(tmp_path: Path, photos: TestSet) -> None:
    out = tmp_path / "out"
    result = export(photos, out, form="webdataset")
    assert (result.rows, result.copied, result.failures) == (8, 8, ())
    root = photos.images_folder()
    wanted = [
        ((root / path).read_bytes(), photos.label_space.index(label))
        for path, label in zip(
            photos.images["path"].to_pylist(), photos.truth()["class_id"].to_pylist(), strict=True
        )
    ]
    assert read_like_clip_benchmark(out) == wanted
    assert (out / "classnames.txt").read_text().splitlines() == [
        "cat",
        "dog",
        "crane (wading bird)",
        "crane (crane-lift)",
    ]
    assert (out / "zeroshot_classification_templates.txt").read_text() == "a photo of a {c}.\n"
    assert (out / "dataset_type.txt").read_text() == "classification\n"
    with (out / "manifest.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["image_id"] for row in rows] == photos.image_ids.to_pylist()
    with tarfile.open(out / "test" / "0.tar") as tar:
        assert "s0000003.png" in tar.getnames()


def test_shards_are_full_but_for_the_last(
    tmp_path: Path, photos: TestSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(photos, tmp_path / "one", form="webdataset")
    monkeypatch.setattr(webdataset, "PER_SHARD", 3)
    export(photos, tmp_path / "three", form="webdataset")
    assert (tmp_path / "three/test/nshards.txt").read_text() == "3\n"
    assert read_like_clip_benchmark(tmp_path / "three") == read_like_clip_benchmark(
        tmp_path / "one"
    )


def test_members_say_nothing_of_this_machine(tmp_path: Path, photos: TestSet) -> None:
    export(photos, tmp_path / "out", form="webdataset")
    with tarfile.open(tmp_path / "out" / "test" / "0.tar") as tar:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in tar} == {(0, 0, 0, "", 0o644)}


def test_the_ending_follows_the_bytes_and_other_formats_fail(
    tmp_path: Path, pets: TestSet, make_picture: Callable[..., bytes]
) -> None:
    data = {"i1": make_picture(1, form="WEBP"), "i2": make_picture(2, form="GIF")}
    data |= {"i4": make_picture(3, form="PNG"), "i5": b"<html>", "i6": make_picture(4)}
    data["ü/3 «x»"] = make_picture(5)
    result = export(pets, tmp_path / "out", images=MemorySource(data), form="webdataset")
    assert [failure.image_id for failure in result.failures] == ["i2", "i5"]
    with tarfile.open(tmp_path / "out" / "test" / "0.tar") as tar:
        images = [name for name in tar.getnames() if not name.endswith(".cls")]
    assert images == ["s0000000.webp", "s0000001.jpg", "s0000002.png", "s0000003.jpg"]
