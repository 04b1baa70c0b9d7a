"""Images of a pool: what is stored of them, and servers that break off, lie, wait and lead astray."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
import types
import zlib
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from heldout.core.engine import JobResults
from heldout.core.engine.results import working
from heldout.core.errors import MissingExtra, UserError
from heldout.core.files import sha256_file
from heldout.core.web import Patience
from heldout.curate.collect.download import (
    SIZES,
    Downloads,
    ThreeSizes,
    fetch_pool,
    file_names,
    three_sizes,
)
from heldout.data.images import BadImage, decode
from heldout.data.labels import LabelSpace
from heldout.data.testset import TestSet, image_table, load, membership_table, save, truth_table
from heldout.data.testset.testset import make_pool
from heldout.data.testset.verify import verify
from tests.core.lying_server import Internet, internet

from .image_server import ImageServer, after, encoded, photo, sends, server

__all__ = ["internet", "server"]
SPACE = LabelSpace.from_ids("birds", ["gull", "wren"])


def make(folder: Path, uris: dict[str, str | None], **columns: Any) -> TestSet:
    """A saved pool of addresses: image -> address, classes in turn."""
    ids = list(uris)
    pool = make_pool(
        folder.name,
        images=image_table({"image_id": ids, "uri": list(uris.values()), **columns}),
        truths={"searched": truth_table(ids, [SPACE.ids[place % 2] for place in range(len(ids))])},
        memberships=membership_table([(image, "tag", "outside") for image in ids]),
        label_space=SPACE,
        facts={"source": "test"},
    )
    return save(pool, folder)


def get(pool: TestSet, place: Path, **options: Any) -> tuple[TestSet, Downloads, list[float]]:
    pauses: list[float] = []
    options.setdefault("named", ["127.0.0.1"])
    patience = Patience(attempts=3, pause=0.5, silence=5, sleep=pauses.append)
    made, downloads, _ = fetch_pool(pool, runs=place / "runs", patience=patience, **options)
    return made, downloads, pauses


def reasons(downloads: Downloads) -> dict[str, str]:
    return {one.image_id: one.reason for one in downloads.left_out}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --------------------------------------------------------------------------- three sizes


def stored(data: bytes) -> dict[str, np.ndarray]:
    made = three_sizes(data)
    assert isinstance(made, ThreeSizes), made
    return {size: np.asarray(Image.open(io.BytesIO(jpeg))) for size, jpeg in made.encoded.items()}


def close(a: np.ndarray, b: Image.Image) -> bool:
    """Whether pixels are those of an image but for JPEG: most blocks are far apart."""
    return float(np.abs(a.astype(float) - np.asarray(b).astype(float)).mean()) < 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_orientations_are_turned_upright(orientation: int) -> None:
    as_stored = photo(3, (200, 120))
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "secret place"
    data = encoded(as_stored, quality=95, exif=exif, comment=b"secret comment")
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    made = three_sizes(data)
    assert isinstance(made, ThreeSizes) and made.orientation == orientation
    width, height = upright.size
    assert (width, height) == ((200, 120) if orientation < 5 else (120, 200))
    shapes = {
        "original": (width, height),
        "scaled_500": (500, 300) if orientation < 5 else (300, 500),
        "scaled_256": (256, 256),
    }
    assert made.shapes == shapes
    for size, jpeg in made.encoded.items():
        image = Image.open(io.BytesIO(jpeg))
        assert image.mode == "RGB" and image.size == shapes[size]
        assert close(np.asarray(image), upright.resize(image.size, Image.Resampling.LANCZOS))
        assert not image.getexif() and b"secret" not in jpeg


def shapes() -> list[tuple[str, bytes]]:
    base = photo(1, (64, 48))
    alpha = base.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(base.size))
    grey16 = Image.fromarray(np.asarray(base.convert("L")).astype(np.uint16) * 257)
    clear = base.quantize(16)
    frames = [base.quantize(64), photo(2, (64, 48)).quantize(64)]
    return [
        ("grey", encoded(base.convert("L"))),
        ("grey with alpha", encoded(alpha.convert("LA"), "PNG")),
        ("alpha", encoded(alpha, "PNG")),
        ("palette", encoded(clear, "PNG", transparency=3)),
        ("one bit", encoded(base.convert("1"), "PNG")),
        ("16 bits", encoded(grey16, "PNG")),
        ("CMYK", encoded(base.convert("CMYK"))),
        ("animated", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])),
        ("webp", encoded(base, "WEBP", lossless=True)),
        ("one pixel", encoded(Image.new("RGB", (1, 1), (9, 200, 30)), "PNG")),
        ("a line", encoded(Image.new("RGB", (3000, 1), (9, 200, 30)), "PNG")),
    ]


@pytest.mark.parametrize(("what", "data"), shapes(), ids=[what for what, _ in shapes()])
def test_every_kind_of_image_becomes_rgb(what: str, data: bytes) -> None:
    plain = decode(data)
    assert not isinstance(plain, BadImage)
    made = stored(data)
    assert all(pixels.shape[2] == 3 for pixels in made.values())
    assert close(made["original"], plain), what
    assert max(made["scaled_500"].shape) == 500 and min(made["scaled_500"].shape[:2]) >= 1
    assert made["scaled_256"].shape == (256, 256, 3)


@settings(max_examples=30)
@given(st.integers(1, 900), st.integers(1, 900))
def test_sizes_are_those_of_the_definition(width: int, height: int) -> None:
    made = three_sizes(encoded(Image.new("RGB", (width, height)), "PNG"))
    assert isinstance(made, ThreeSizes)
    wide, high = made.shapes["scaled_500"]
    assert max(wide, high) == 500
    # Within half a pixel of the aspect ratio, and never without a pixel.
    assert wide == 500 or abs(wide - 500 * width / height) <= 0.5 or wide == 1
    assert high == 500 or abs(high - 500 * height / width) <= 0.5 or high == 1


def png_bomb(side: int) -> bytes:
    """A PNG that says it has so many pixels, in a few bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@given(st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=20))
def test_file_names_are_safe_and_all_different(ids: list[str]) -> None:
    names = file_names(ids)
    assert list(names) == ids
    assert len({name.lower() for name in names.values()}) == len(ids)
    for name in names.values():
        assert name.lower().endswith((".jpg", ".jpeg"))
        assert not any(part in ("", ".", "..") for part in name.split("/"))
        assert not name.startswith((".", "/")) and "\\" not in name and "/." not in name


# --------------------------------------------------------------------------- servers


def test_a_pool_gets_its_images_and_keeps_what_it_knew(server: ImageServer, tmp_path: Path) -> None:
    uris: dict[str, str | None] = {
        f"bird{n}": server.serve(f"/{n}.jpg", encoded(photo(n))) for n in range(6)
    }
    uris |= {"gone": server.url("/gone.jpg"), "nowhere": None}
    place = tmp_path / "pools" / "birds"
    pool = make(
        place, uris, licence=["CC-BY-4.0"] * 8, attribution=[f"owner {n}" for n in range(8)]
    )
    made, downloads, pauses = get(pool, tmp_path)
    assert not pauses and reasons(downloads) == {"gone": "not found", "nowhere": "no address"}
    ids = [f"bird{n}" for n in range(6)]
    assert made.image_ids.to_pylist() == ids
    assert made.truth("searched")["image_id"].to_pylist() == ids
    assert made.memberships["image_id"].to_pylist() == ids
    assert made.images["licence"].to_pylist() == ["CC-BY-4.0"] * 6
    assert made.images["attribution"].to_pylist() == [f"owner {n}" for n in range(6)]
    assert made.card.facts["source"] == "test"
    root = made.images_folder()
    for row in made.images.to_pylist():
        path = root / row["path"]
        with Image.open(path) as image:
            assert image.size == (row["width"], row["height"]) == (500, 333)
        assert sha256_file(path) == row["sha256"]
        for size in SIZES:
            assert (place / "images" / size / row["path"]).is_file()
    assert verify(place).ok and not verify(place).findings
    for number, image in enumerate(ids):
        with Image.open(place / "images" / "original" / f"{image}.jpg") as original:
            pixels = np.asarray(original).astype(float)
        far = [np.abs(pixels - np.asarray(photo(n))).mean() for n in range(6)]
        assert int(np.argmin(far)) == number

    # The same again asks for what was missing, and for nothing else; without news nothing changes.
    before, asked = snapshot(place), list(server.asked)
    inode = (place / "pool.json").stat().st_ino
    made, _, _ = get(load(place), tmp_path)
    assert server.asked[len(asked) :] == ["/gone.jpg"]
    assert snapshot(place) == before and (place / "pool.json").stat().st_ino == inode
    server.serve("/gone.jpg", encoded(photo(9)))
    made, downloads, _ = get(load(place), tmp_path)
    assert made.image_ids.to_pylist() == [*ids, "gone"]
    assert reasons(downloads) == {"nowhere": "no address"} and verify(place).ok
    assert not list((tmp_path / "runs").iterdir())


def test_moods_of_servers_are_told_apart(server: ImageServer, tmp_path: Path) -> None:
    good = encoded(photo(1, (300, 200)), quality=95)
    page = b"<!DOCTYPE html><html>sign in</html>"
    moods = {
        "fine": sends(good),
        "not found": sends(b"", status=404),
        "gone": sends(b"", status=410),
        "locked": sends(b"", status=403),
        "teapot": sends(b"", status=418),
        "page": sends(page),
        "empty": sends(b""),
        "cut": sends(good[: len(good) // 2]),
        "drops": sends(good[:500], length=len(good)),
        "drops once": after(1, sends(good[:500], length=len(good)), sends(good)),
        "busy": after(2, sends(b"", status=503), sends(good)),
        "waits": after(1, sends(b"", status=429, Retry_After="7"), sends(good)),
        "breaks": sends(b"", status=500),
        "endless": sends(good, length=10**12),
        "packed": sends(gzip.compress(bytes(50 << 20)), Content_Encoding="gzip"),
        "bomb": sends(png_bomb(60_000)),
        "leads to the inside": sends(b"", status=302, Location="http://169.254.169.254/latest"),
        "leads in circles": sends(b"", status=302, Location="/leads-in-circles"),
        "leads to a file": sends(b"", status=302, Location="file:///etc/passwd"),
    }
    uris: dict[str, str | None] = {}
    for name, answer in moods.items():
        path = f"/{name.replace(' ', '-')}"
        server.answers[path] = answer
        uris[name] = server.url(path)
    uris |= {
        "file": "file:///etc/passwd",
        "text": "not an address",
        "inside": "http://169.254.169.254/latest/meta-data",
        "wide": "http://[::1",
    }
    made, downloads, pauses = get(make(tmp_path / "pools" / "birds", uris), tmp_path)
    assert set(made.image_ids.to_pylist()) == {"fine", "drops once", "busy", "waits"}
    assert reasons(downloads) == {
        "not found": "not found",
        "gone": "not found",
        "locked": "refused",
        "teapot": "no answer",
        "page": "unsupported",
        "empty": "empty",
        "cut": "truncated",
        "drops": "no answer",
        "breaks": "no answer",
        "endless": "too large",
        "packed": "unsupported",
        "bomb": "too large",
        "leads to the inside": "private address",
        "leads in circles": "bad address",
        "leads to a file": "bad address",
        "file": "bad address",
        "text": "bad address",
        "inside": "private address",
        "wide": "bad address",
    }
    detail = {one.image_id: one.detail for one in downloads.left_out}
    assert "a web page" in detail["page"] and "60000 x 60000" in detail["bomb"]
    assert detail["breaks"] == "answers 500 Internal Server Error"
    assert server.asked.count("/breaks") == 3 and server.asked.count("/not-found") == 1
    assert max(pauses) > 6, "a host that asks for seconds gets them"


def test_a_private_address_is_not_asked_unless_it_was_named(
    server: ImageServer, internet: Internet, tmp_path: Path
) -> None:
    data = encoded(photo(1))
    server.serve("/a.jpg", data)
    server.answers["/in.jpg"] = sends(b"", status=302, Location=server.url("/a.jpg"))
    port = server.http.server_address[1]
    internet.names = {"photos.test": [["93.184.215.14"]], "nas.test": [["10.1.2.3"]]}
    internet.public = {"93.184.215.14", "10.1.2.3"}
    uris: dict[str, str | None] = {
        "public": f"http://photos.test:{port}/a.jpg",
        "redirected": f"http://photos.test:{port}/in.jpg",
        "loopback": server.url("/a.jpg"),
        "nas": f"http://nas.test:{port}/a.jpg",
    }
    pool = make(tmp_path / "pools" / "birds", uris)
    made, downloads, _ = get(pool, tmp_path, named=[])
    assert made.image_ids.to_pylist() == ["public"]
    assert set(reasons(downloads).values()) == {"private address"}
    assert {address for address, _ in internet.reached} == {"93.184.215.14"}
    assert server.asked.count("/a.jpg") == 1

    made, downloads, _ = get(load(pool.folder or Path()), tmp_path, named=[f"nas.test:{port}"])
    assert made.image_ids.to_pylist() == ["public", "nas"]
    assert set(reasons(downloads)) == {"redirected", "loopback"}, "they were not named"


def test_a_host_is_asked_by_four_at_once(server: ImageServer, tmp_path: Path) -> None:
    uris: dict[str, str | None] = {}
    for number in range(24):
        answer = sends(encoded(photo(number)))

        def slowly(to: Any, n: int, answer: Any = answer) -> None:
            time.sleep(0.02)
            answer(to, n)

        server.answers[f"/{number}"] = slowly
        uris[f"i{number:02}"] = server.url(f"/{number}")
    made, _, _ = get(make(tmp_path / "pools" / "birds", uris), tmp_path)
    assert len(made) == 24 and server.most <= 4


@pytest.mark.parametrize("ask", ["3600", "a date"])
def test_a_host_that_wants_to_be_left_alone_is(
    ask: str, server: ImageServer, tmp_path: Path
) -> None:
    wait = ask if ask == "3600" else formatdate(time.time() + 3600, usegmt=True)
    uris: dict[str, str | None] = {}
    for number in range(40):
        server.answers[f"/{number}"] = sends(b"", status=429, Retry_After=wait)
        uris[f"i{number:02}"] = server.url(f"/{number}")
    other = tmp_path / "here.jpg"
    other.write_bytes(encoded(photo(1)))
    pool = make(tmp_path / "pools" / "birds", uris)
    with pytest.raises(UserError, match=r"40 no answer.*left alone for 3,(600|59\d) seconds"):
        get(pool, tmp_path)
    assert len(server.asked) <= 16, "those that were on their way when it said so"
    assert load(pool.folder or Path()).card == pool.card, "a pool without images is not made"


def test_a_dead_host_does_not_hold_the_others_up(server: ImageServer, tmp_path: Path) -> None:
    dead = ImageServer()
    dead.close()
    uris: dict[str, str | None] = {f"dead{n:02}": dead.url(f"/{n}") for n in range(40)}
    uris["live"] = server.serve("/live", encoded(photo(1)))
    made, downloads, pauses = get(make(tmp_path / "pools" / "birds", uris), tmp_path)
    assert made.image_ids.to_pylist() == ["live"]
    assert set(reasons(downloads).values()) == {"no answer"} and len(downloads.left_out) == 40
    assert len(pauses) < 40 * 2, "after eight in a row the others are not tried"


def test_other_bytes_than_recorded_are_not_taken(server: ImageServer, tmp_path: Path) -> None:
    one, other = encoded(photo(1)), encoded(photo(2))
    uris: dict[str, str | None] = {
        "same": server.serve("/1", one),
        "changed": server.serve("/2", other),
    }
    digest = hashlib.sha256(one).hexdigest()
    pool = make(tmp_path / "pools" / "birds", uris, sha256=[digest, digest])
    made, downloads, _ = get(pool, tmp_path)
    assert made.image_ids.to_pylist() == ["same"] and reasons(downloads) == {"changed": "changed"}
    assert downloads.images["same"].sha256 == digest


def test_passwords_in_addresses_are_not_written_down(server: ImageServer, tmp_path: Path) -> None:
    place = tmp_path / "pools" / "birds"
    port = server.http.server_address[1]
    server.serve("/a", encoded(photo(1)))
    pool = make(
        place,
        {"a": server.url("/a"), "b": f"http://me:hunter2@127.0.0.1:{port}/b?key=hunter3"},
    )
    _, downloads, _ = get(pool, tmp_path)
    (left,) = downloads.left_out
    assert left.uri == f"http://***@127.0.0.1:{port}/b?***"
    assert b"hunter" not in (place / "images" / "downloads.json").read_bytes()


def test_blacklisted_images_are_not_asked_for_and_those_there_stay(
    server: ImageServer, tmp_path: Path
) -> None:
    uris: dict[str, str | None] = {
        name: server.serve(f"/{name}", encoded(photo(n))) for n, name in enumerate("abc")
    }
    pool = make(tmp_path / "pools" / "birds", uris)
    made, downloads, _ = get(pool, tmp_path, blacklist={"b": "a drawing"})
    assert made.image_ids.to_pylist() == ["a", "c"] and "/b" not in server.asked
    (left,) = downloads.left_out
    assert (left.image_id, left.reason, left.detail) == ("b", "blacklisted", "a drawing")
    made, downloads, _ = get(load(made.folder or Path()), tmp_path, blacklist={"a": "later"})
    assert made.image_ids.to_pylist() == ["a", "b", "c"] and not downloads.left_out


def test_a_folder_goes_the_same_way_without_any_request(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "gull").mkdir(parents=True)
    ids = ["gull/1.png", "gull/2.jpg", "gull/3.jpg", "gull/4.jpg"]
    for number, image in enumerate(ids[:3]):
        (photos / image).write_bytes(encoded(photo(number), "PNG" if number == 0 else "JPEG"))
    digests = [sha256_file(photos / image) for image in ids[:2]]
    pool = make_pool(
        "mine",
        images=image_table({"image_id": ids, "path": ids, "sha256": [*digests, None, None]}),
        images_root=photos,
    )
    pool = save(pool, tmp_path / "pools" / "mine")
    (photos / "gull/2.jpg").write_bytes(encoded(photo(8)))
    made, downloads, _ = get(pool, tmp_path)
    assert made.image_ids.to_pylist() == ["gull/1.png", "gull/3.jpg"]
    assert made.images["path"].to_pylist() == ["gull/1.png.jpg", "gull/3.jpg"]
    assert reasons(downloads) == {"gull/2.jpg": "changed", "gull/4.jpg": "unreadable"}
    assert verify(tmp_path / "pools" / "mine").ok

    # A file that changed is another one, without a hash that it must have.
    (photos / "gull/3.jpg").write_bytes(encoded(photo(5)))
    before = downloads.images["gull/3.jpg"].sha256
    _, downloads, _ = get(made, tmp_path)
    assert downloads.images["gull/3.jpg"].sha256 != before


def test_what_a_folder_lacks_is_downloaded(server: ImageServer, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(encoded(photo(0)))
    ids = ["a.jpg", "b.jpg"]
    uris = [server.serve(f"/{image}", encoded(photo(n))) for n, image in enumerate(ids)]
    pool = make_pool(
        "mine",
        images=image_table({"image_id": ids, "path": ids, "uri": uris}),
        images_root=tmp_path / "photos",
    )
    made, _, _ = get(save(pool, tmp_path / "pools" / "mine"), tmp_path)
    assert made.image_ids.to_pylist() == ids and server.asked == ["/b.jpg"]


def test_what_was_removed_is_fetched_again(server: ImageServer, tmp_path: Path) -> None:
    uris: dict[str, str | None] = {
        name: server.serve(f"/{name}", encoded(photo(n))) for n, name in enumerate("abc")
    }
    made, _, _ = get(make(tmp_path / "pools" / "birds", uris), tmp_path)
    place = tmp_path / "pools" / "birds"
    before = snapshot(place)
    (place / "images" / "scaled_256" / "b.jpg").unlink()
    server.asked.clear()
    get(made, tmp_path)
    assert server.asked == ["/b"] and snapshot(place) == before


def test_another_folder_and_back_again(server: ImageServer, tmp_path: Path) -> None:
    uris: dict[str, str | None] = {"a": server.serve("/a", encoded(photo(1)))}
    pool = make(tmp_path / "pools" / "birds", uris)
    elsewhere = tmp_path / "disk" / "birds"
    made, downloads, _ = get(pool, tmp_path, out=elsewhere)
    assert downloads.where == "../../disk/birds" and (elsewhere / "original" / "a.jpg").is_file()
    assert made.images_folder().resolve() == elsewhere / "scaled_500"
    assert verify(tmp_path / "pools" / "birds").ok
    _, downloads, _ = get(made, tmp_path)
    assert downloads.where == "../../disk/birds" and server.asked == ["/a"], "it stays there"
    with pytest.raises(UserError, match="is in the folder of the pool"):
        get(made, tmp_path, out=tmp_path / "pools" / "birds" / "mine")


def test_collected_anew_takes_what_is_there(server: ImageServer, tmp_path: Path) -> None:
    uris: dict[str, str | None] = {
        name: server.serve(f"/{name}", encoded(photo(n))) for n, name in enumerate("abc")
    }
    place = tmp_path / "pools" / "birds"
    get(make(place, {"a": uris["a"], "b": uris["b"]}), tmp_path)
    grown = make(tmp_path / "other" / "birds", uris)
    save(make_pool("birds", images=grown.images, facts={"source": "grown"}), place, replace=True)
    server.asked.clear()
    made, _, _ = get(load(place), tmp_path)
    assert made.image_ids.to_pylist() == ["a", "b", "c"] and server.asked == ["/c"]
    assert verify(place).ok


def test_pools_that_cannot_be_fetched(tmp_path: Path) -> None:
    empty = save(make_pool("none", images=image_table({"image_id": []})), tmp_path / "none")
    with pytest.raises(UserError, match="none has no images"):
        get(empty, tmp_path)
    unsaved = make_pool("new", images=image_table({"image_id": ["a"]}))
    with pytest.raises(UserError, match="new is not a saved pool"):
        get(unsaved, tmp_path)


def test_two_processes_do_not_fetch_one_pool(server: ImageServer, tmp_path: Path) -> None:
    pool = make(tmp_path / "pools" / "birds", {"a": server.serve("/a", encoded(photo(1)))})
    job = JobResults(tmp_path / "runs" / "fetch-birds")
    job.folder.mkdir(parents=True)
    with (
        working(job),
        pytest.raises(UserError, match="birds is being fetched by another process"),
    ):
        get(pool, tmp_path)
    assert len(get(pool, tmp_path)[0]) == 1


# --------------------------------------------------------------------------- object stores


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """obstore is an extra and not installed for these tests: this stands for what is used of it."""
    held: dict[str, bytes] = {}

    class Store:
        def put(self, name: str, data: bytes) -> None:
            if len(held) >= int(os.environ.get("BUCKET", "1000")):
                raise errors.BaseError("Generic S3 error: 503\nDebug")  # type: ignore[attr-defined]
            held[name] = data

        def list(self) -> list[list[dict[str, Any]]]:
            return [[{"path": name, "size": len(data)} for name, data in held.items()]]

    package, store = types.ModuleType("obstore"), types.ModuleType("obstore.store")
    errors = types.ModuleType("obstore.exceptions")
    base = type("BaseError", (Exception,), {})
    for name in ("PermissionDeniedError", "UnauthenticatedError"):
        setattr(errors, name, type(name, (base,), {}))
    errors.BaseError = base  # type: ignore[attr-defined]
    store.from_url = lambda url: Store()  # type: ignore[attr-defined]
    for module in (package, store, errors):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return held


def test_an_object_store_holds_the_images(
    server: ImageServer, bucket: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uris: dict[str, str | None] = {
        name: server.serve(f"/{name}", encoded(photo(n))) for n, name in enumerate("abcd")
    }
    pool = make(tmp_path / "pools" / "birds", uris)
    out = Path("s3://bucket/birds/")  # as the command line reads it
    monkeypatch.setenv("BUCKET", "6")
    with pytest.raises(UserError, match=r"s3://bucket/birds: .*503: check the address"):
        get(pool, tmp_path, out=out)
    monkeypatch.setenv("BUCKET", "1000")
    done = [path for path in ("/a", "/b", "/c", "/d") if f"original{path}.jpg" in bucket]
    made, downloads, _ = get(pool, tmp_path, out=out)
    assert downloads.where == "s3://bucket/birds" and done
    assert sorted(bucket) == sorted(f"{size}/{name}.jpg" for size in SIZES for name in "abcd")
    for row in made.images.to_pylist():
        data = bucket[f"scaled_500/{row['path']}"]
        assert downloads.images[row["image_id"]].sizes["scaled_500"].bytes == len(data)
    assert made.images_root is None and made.card.facts["fetched"]["to"] == "s3://bucket/birds"
    server.asked.clear()
    del bucket["scaled_256/c.jpg"]
    get(made, tmp_path)
    assert server.asked == ["/c"] and len(bucket) == 12


def test_without_the_package_there_is_one_line(server: ImageServer, tmp_path: Path) -> None:
    try:
        import obstore  # noqa: F401
    except ImportError:
        pool = make(tmp_path / "pools" / "birds", {"a": server.url("/a")})
        with pytest.raises(MissingExtra, match=r"s3://bucket needs the package obstore"):
            get(pool, tmp_path, out=Path("s3://bucket"))
    else:
        pytest.fail("obstore is installed here: these tests are for where it is not")


# --------------------------------------------------------------------------- kills


_CHILD = """
import sys
from pathlib import Path
from heldout.core.web import Patience
from heldout.curate.collect.download import fetch_pool
from heldout.data.testset import load
fetch_pool(load(Path(sys.argv[1])), runs=Path(sys.argv[2]), named=["127.0.0.1"],
           patience=Patience(attempts=3, pause=0.01))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_at_any_request_it_ends_in_the_same_bytes(
    server: ImageServer, tmp_path: Path
) -> None:
    uris: dict[str, str | None] = {
        f"i{n:02}": server.serve(f"/{n}", encoded(photo(n))) for n in range(40)
    }
    make(tmp_path / "whole" / "birds", uris)
    get(load(tmp_path / "whole" / "birds"), tmp_path / "whole")
    expected = snapshot(tmp_path / "whole" / "birds")
    plain = dict(server.answers)
    place = tmp_path / "killed" / "birds"
    make(place, uris)
    runs = tmp_path / "killed" / "runs"
    command = [sys.executable, "-c", _CHILD, str(place), str(runs)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for stored_before in (
        0,
        11,
        22,
    ):  # at most 16 are on their way: the last one is asked for after 24
        pids: list[int] = []

        def deadly(to: Any, n: int, path: str, least: int, pids: list[int]) -> None:
            if pids and len(list(runs.glob("fetch-birds/results/*/[!.]*"))) >= least:
                os.kill(pids.pop(), signal.SIGKILL)
            plain[path](to, n)

        for path in plain:
            server.answers[path] = partial(deadly, path=path, least=stored_before, pids=pids)
        child = subprocess.Popen(command, env=environment)
        pids.append(child.pid)
        assert child.wait() == -signal.SIGKILL
    server.answers = plain
    server.asked.clear()
    subprocess.run(command, env=environment, check=True)
    assert 0 < len(server.asked) <= 40 - 22, "what was stored before is not asked for again"
    assert snapshot(place) == expected
    assert not list(place.rglob(".tmp-*")) and not list(runs.iterdir())


def test_the_number_of_hash_seeds_changes_nothing(server: ImageServer, tmp_path: Path) -> None:
    uris: dict[str, str | None] = {
        f"i{n}": server.serve(f"/{n}", encoded(photo(n))) for n in range(5)
    }
    uris["gone"] = server.url("/gone")
    found = []
    for seed in ("0", "7"):
        place = tmp_path / seed / "birds"
        make(place, uris)
        environment = {
            **os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        command = [sys.executable, "-c", _CHILD, str(place), str(tmp_path / seed / "runs")]
        subprocess.run(command, env=environment, check=True)
        found.append(snapshot(place))
    assert found[0] == found[1]
    assert json.loads(found[0]["images/downloads.json"])["left_out"][0]["reason"] == "not found"
