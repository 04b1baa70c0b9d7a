from __future__ import annotations

import gzip
import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.data.images import (
    FolderSource,
    ImageSource,
    MemorySource,
    TarSource,
    ZipSource,
    check_id,
    read_image,
)

IMAGES = {
    "10/a.JPEG": b"ten",
    "2/b.jpg": b"two" * 5000,
    "2/deep/er/c.png": b"",
    "z.webp": b"last\x00",
    "é/ünï.jpeg": b"text",
}
NOISE = {
    "notes.txt": b"no",
    ".hidden.jpg": b"no",
    "2/.DS_Store": b"no",
    "2/._b.jpg": b"no",
    ".git/d.jpg": b"no",
    "jpg": b"no",
}


def write_folder(root: Path) -> ImageSource:
    for name, data in (IMAGES | NOISE).items():
        path = root / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return FolderSource(root / "images")


def write_tar(path: Path, members: dict[str, bytes], **options: object) -> Path:
    with tarfile.open(path, "w", **options) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def one_tar(root: Path) -> ImageSource:
    return TarSource(
        write_tar(root / "all.tar", {f"./{k}": v for k, v in (IMAGES | NOISE).items()})
    )


def shards(root: Path) -> ImageSource:
    names = sorted(IMAGES | NOISE, reverse=True)
    data = IMAGES | NOISE
    return TarSource(
        [write_tar(root / f"{n}.tar", {name: data[name] for name in names[n::3]}) for n in range(3)]
    )


def one_zip(root: Path) -> ImageSource:
    with zipfile.ZipFile(root / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (IMAGES | NOISE).items():
            archive.writestr(name, data)
    return ZipSource(root / "all.zip")


SOURCES: dict[str, Callable[[Path], ImageSource]] = {
    "memory": lambda root: MemorySource(IMAGES),
    "folder": write_folder,
    "tar": one_tar,
    "shards": shards,
    "zip": one_zip,
}
every_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())


@every_source
def test_sources_agree(make: Callable[[Path], ImageSource], tmp_path: Path) -> None:
    source = make(tmp_path)
    assert list(source.ids()) == sorted(IMAGES)
    assert list(source.ids()) == sorted(IMAGES)
    for image_id, data in IMAGES.items():
        with source.open(image_id) as handle:
            assert handle.read(2) == data[:2]
            assert handle.read() == data[2:]
        assert read_image(source, image_id) == data
    close(source)


@every_source
def test_sources_serve_many_threads(make: Callable[[Path], ImageSource], tmp_path: Path) -> None:
    source = make(tmp_path)
    wanted = sorted(IMAGES) * 60
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda image_id: read_image(source, image_id), wanted))
    assert got == [IMAGES[image_id] for image_id in wanted]
    close(source)


@every_source
@pytest.mark.parametrize("used", [False, True])
def test_sources_can_be_sent(
    make: Callable[[Path], ImageSource], tmp_path: Path, used: bool
) -> None:
    source = make(tmp_path)
    if used:
        read_image(source, "z.webp")
    sent = pickle.loads(pickle.dumps(source))
    assert {image_id: read_image(sent, image_id) for image_id in sent.ids()} == IMAGES
    close(source)
    close(sent)


@every_source
@pytest.mark.parametrize("image_id", ["nothing.jpg", "2", "z.webp/x.jpg"])
def test_unknown_ids_are_named(
    make: Callable[[Path], ImageSource], tmp_path: Path, image_id: str
) -> None:
    source = make(tmp_path)
    with pytest.raises(NotFound, match=image_id):
        source.open(image_id)
    close(source)


BAD_IDS = [
    "",
    "/etc/passwd",
    "../x.jpg",
    "a/../../x.jpg",
    "a//b.jpg",
    "./a.jpg",
    "a\\b.jpg",
    "C:x.jpg",
    "a\x00.jpg",
    "a\n.jpg",
    "a/",
    "a\udcff.jpg",
]


@pytest.mark.parametrize("image_id", BAD_IDS)
def test_ids_that_could_lead_out_are_refused(image_id: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be an image id"):
        check_id(image_id)
    with pytest.raises(UserError, match="cannot be an image id"):
        MemorySource({image_id: b""})
    outside = tmp_path / "x.jpg"
    outside.write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError):
        FolderSource(tmp_path / "in").open(image_id)


@given(st.text(max_size=12))
def test_an_accepted_id_stays_below_its_folder(text: str) -> None:
    try:
        check_id(text)
    except UserError:
        return
    joined = os.path.normpath(os.path.join("/root/images", text))  # noqa: PTH118
    assert joined.startswith("/root/images/")
    assert joined == f"/root/images/{text}"


@pytest.mark.parametrize(
    "name", ["../x.jpg", "/etc/x.jpg", "a/../../x.jpg", "..\\x.jpg", "../notes.txt"]
)
def test_archives_with_paths_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="not a safe path"):
        TarSource(write_tar(tmp_path / "t.tar", {name: b"x"})).ids()
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(BadFile, match="not a safe path"):
        ZipSource(tmp_path / "z.zip").ids()


def test_links_in_a_tar_are_refused(tmp_path: Path) -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tmp_path / "t.tar", "w") as archive:
            info = tarfile.TarInfo("a.jpg")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        with pytest.raises(BadFile, match="not a plain file"):
            TarSource(tmp_path / "t.tar").ids()


def test_names_longer_than_a_tar_header_and_both_formats(tmp_path: Path) -> None:
    name = "/".join(["folder" * 10] * 4) + "/é.jpg"
    for layout in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        source = TarSource(write_tar(tmp_path / f"{layout}.tar", {name: b"x"}, format=layout))
        assert list(source.ids()) == [name]
        assert read_image(source, name) == b"x"


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "1.tar", {"a.jpg": b"1"})
    two = write_tar(tmp_path / "2.tar", {"./a.jpg": b"2"})
    with pytest.raises(BadFile, match=r"2\.tar: a\.jpg is there twice"):
        TarSource([one, two]).ids()


def test_a_compressed_tar_is_refused_whatever_its_name(tmp_path: Path) -> None:
    plain = write_tar(tmp_path / "plain.tar.gz", IMAGES)  # published sets do have such names
    assert list(TarSource(plain).ids()) == sorted(IMAGES)
    path = tmp_path / "packed.tar"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(BadFile, match=r"not a whole tar file.*compressed one must be unpacked"):
        TarSource(path).ids()


def test_cut_and_foreign_archives_are_named(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "t.tar", {"a.jpg": b"x" * 5000, "b.jpg": b"y" * 5000})
    data = whole.read_bytes()
    for cut in (100, 700, 5000, 6200, 8000):
        whole.write_bytes(data[:cut])
        with pytest.raises(BadFile, match=r"t\.tar"):
            TarSource(whole).ids()
    for foreign in (b"", b"text" * 1000, b"\x00" * 100):
        whole.write_bytes(foreign)
        with pytest.raises(BadFile, match=r"t\.tar"):
            TarSource(whole).ids()
        zipped = tmp_path / "z.zip"
        zipped.write_bytes(foreign)
        with pytest.raises(BadFile, match="not a zip file"):
            ZipSource(zipped).ids()


def test_a_tar_that_shrinks_after_it_was_indexed(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "t.tar", {"a.jpg": b"x" * 5000})
    source = TarSource(path)
    source.ids()
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadFile, match=r"ends inside a\.jpg"):
        source.open("a.jpg")


def test_damage_inside_a_zip_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "z.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.jpg", b"x" * 1000)
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    source = ZipSource(path)
    with pytest.raises(BadFile, match=r"cannot unpack a\.jpg"):
        source.open("a.jpg")
    source.close()


def test_folders_that_are_not_there_or_hold_odd_names(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no folder of images"):
        FolderSource(tmp_path / "nothing")
    with pytest.raises(NotFound, match="no tar file"):
        TarSource(tmp_path / "nothing.tar")
    with pytest.raises(NotFound, match="no zip file"):
        ZipSource(tmp_path / "nothing.zip")
    (tmp_path / os.fsdecode(b"bad\xff.jpg")).write_bytes(b"")
    with pytest.raises(BadFile, match=r"udcff.*rename it"):
        FolderSource(tmp_path).ids()


def test_links_to_folders_are_not_followed_round_in_circles(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b.jpg").symlink_to(tmp_path / "a.jpg")
    assert list(FolderSource(tmp_path).ids()) == ["a.jpg", "b.jpg"]


def test_empty_sources(tmp_path: Path) -> None:
    assert list(MemorySource({}).ids()) == []
    assert list(FolderSource(tmp_path).ids()) == []
    assert list(TarSource(write_tar(tmp_path / "t.tar", {})).ids()) == []
    assert list(TarSource([]).ids()) == []


def close(source: ImageSource) -> None:
    if isinstance(source, ZipSource):
        source.close()
