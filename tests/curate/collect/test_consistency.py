"""The consistency report: every kind of damage counted once, against a slow look at the folder."""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import Image

from heldout.core.files import sha256_file
from heldout.curate.collect.consistency import image_consistency
from heldout.curate.collect.download import SIZES, Downloads
from tests.cli.conftest import Run, run

from .image_server import ImageServer, encoded, photo, server
from .test_download import get, make

__all__ = ["run", "server"]


def oracle(place: Path, downloads: Downloads) -> dict[str, set[tuple[str, str]]]:
    """What is wrong with each (size, image): one file at a time."""
    found: dict[str, set[tuple[str, str]]] = {
        "missing": set(),
        "undecodable": set(),
        "altered": set(),
    }
    for image, stored in downloads.images.items():
        for size in SIZES:
            path = place / "images" / size / stored.name
            if not path.exists():
                found["missing"].add((size, image))
                continue
            try:
                Image.open(io.BytesIO(path.read_bytes())).load()
            except OSError:
                found["undecodable"].add((size, image))
                continue
            if sha256_file(path) != stored.sizes[size].sha256:
                found["altered"].add((size, image))
    return found


def pairs(by_size: dict[str, tuple[str, ...]]) -> set[tuple[str, str]]:
    return {(size, image) for size, images in by_size.items() for image in images}


def test_every_damage_is_counted_and_explained(
    server: ImageServer, run: Run, tmp_path: Path
) -> None:
    uris: dict[str, str | None] = {
        f"i{n}": server.serve(f"/{n}", encoded(photo(n))) for n in range(8)
    }
    uris["gone"] = server.url("/gone")
    place = tmp_path / "pools" / "birds"
    _, downloads, _ = get(make(place, uris), tmp_path)
    report = image_consistency(place)
    assert report is not None and report.ok
    assert (report.candidates, report.complete, report.left_out) == (9, 8, {"not found": 1})
    ran = run("verify", "birds", "--json")
    assert ran.code == 0 and ran.json[-1]["record"] == "image consistency"

    images = place / "images"
    (images / "original" / "i0.jpg").unlink()
    (images / "scaled_256" / "i0.jpg").unlink()
    (images / "scaled_500" / "i1.jpg").unlink()
    (images / "original" / "i2.jpg").write_bytes(b"no image")
    whole = (images / "scaled_256" / "i3.jpg").read_bytes()
    (images / "scaled_256" / "i3.jpg").write_bytes(whole[: len(whole) // 2])
    (images / "original" / "i4.jpg").write_bytes(encoded(photo(9)))
    report = image_consistency(place)
    assert report is not None and not report.ok
    expected = oracle(place, downloads)
    assert pairs(report.missing) == expected["missing"] and report.n_missing == 3
    assert pairs(report.undecodable) == expected["undecodable"] and report.n_undecodable == 2
    assert pairs(report.altered) == expected["altered"] and report.n_altered == 1
    assert report.complete == 3
    ran = run("verify", "birds")
    assert ran.code == 1
    for line in (
        "birds: original of i0 is missing: heldout fetch birds",
        "images/scaled_500/i1.jpg: is missing",
        "birds: scaled_256 of i3 cannot be decoded: remove it, and run heldout fetch birds",
        "birds: original of i4 holds other bytes than were stored",
    ):
        assert ran.out.count(line) == 1, ran.out
    quick = image_consistency(place, files=False)
    assert quick is not None and quick.missing == report.missing
    assert run("verify", "birds", "--no-files").code == 1

    # What the fixes say makes it whole again.
    for name in ("original/i2.jpg", "scaled_256/i3.jpg", "original/i4.jpg"):
        (images / name).unlink()
    assert run("fetch", "birds", "--allow-host", "127.0.0.1").code == 3
    assert run("verify", "birds").code == 0


def test_candidates_without_a_reason_are_named(
    server: ImageServer, run: Run, tmp_path: Path
) -> None:
    place = tmp_path / "pools" / "birds"
    uris: dict[str, str | None] = {
        name: server.serve(f"/{name}", encoded(photo(1))) for name in "ab"
    }
    get(make(place, uris), tmp_path)
    book = place / "images" / "downloads.json"
    known = json.loads(book.read_text())
    del known["check"]
    known["images"]["other"] = known["images"].pop("b")
    book.write_text(json.dumps(known))
    report = image_consistency(place)
    assert report is not None and report.unexplained == ("b",)
    ran = run("verify", "birds")
    assert ran.code == 1 and "b is neither stored nor listed: heldout fetch birds" in ran.out
    book.write_text("{")
    ran = run("verify", "birds")
    assert ran.code == 1 and "downloads.json" in ran.out


def test_a_pool_that_was_not_fetched_has_no_report(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "pools" / "birds"
    make(place, {"a": "http://127.0.0.1/a"})
    assert image_consistency(place) is None
    assert [record["record"] for record in run("verify", "birds", "--json").json] == [
        "verification"
    ]
    (place / "pool.json").write_text("{")
    assert run("verify", "birds").out.count("error") == 1
