"""Images by URL: file://, a loopback web server that misbehaves, and an object store's protocol."""

from __future__ import annotations

import pickle
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from heldout.core.errors import MissingExtra, NotApplicable, NotFound, UserError
from heldout.core.web import Patience
from heldout.data.images import (
    BadImage,
    FolderSource,
    ObjectStoreSource,
    TarSource,
    WebSource,
    ZipSource,
    bytes_of,
    open_source,
    read_image,
)
from tests.core.lying_server import BOMB, Internet, LyingServer, bombs, internet, liar

__all__ = ["internet", "liar"]
IMAGES = {"a/é 1.jpg": b"first", "b.png": b"second" * 9000, "c#?.jpg": b"third"}


class Server(ThreadingHTTPServer):
    """Serves IMAGES below /set/; ``/busy/`` answers 503 twice a file, then serves."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: dict[str, int] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path = unquote(self.path)
        self.server.asked[path] = times = self.server.asked.get(path, 0) + 1
        _, folder, name = path.split("/", 2)
        body = IMAGES.get(name, b"")
        declared = len(body)
        status = 200 if body else 404
        if folder in ("500", "403", "418"):
            status = int(folder)
        elif folder == "busy" and times < 3:
            status = 503
        elif folder == "cut":
            declared += 100
        elif folder == "long":
            declared = 10**12
        self.send_response(status)
        self.send_header("Content-Length", str(declared))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def web(server: Server) -> Iterator[Any]:
    """Makes sources on the server; none of them sleeps."""
    sources: list[WebSource] = []

    def make(folder: str) -> WebSource:
        patience = Patience(attempts=4, sleep=pauses.append)
        sources.append(WebSource(f"{server.url}/{folder}/", ids=list(IMAGES), patience=patience))
        return sources[-1]

    pauses: list[float] = []
    make.pauses = pauses  # type: ignore[attr-defined]
    yield make
    for source in sources:
        source.close()


def test_a_web_source_reads_by_id(web: Any) -> None:
    source = web("set")
    assert list(source.ids()) == sorted(IMAGES)
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda key: read_image(source, key), list(IMAGES) * 5))
    assert got == list(IMAGES.values()) * 5
    sent = pickle.loads(pickle.dumps(WebSource(source.url, ids=["b.png"])))
    assert read_image(sent, "b.png") == IMAGES["b.png"]
    sent.close()
    source.close()
    assert read_image(source, "b.png") == IMAGES["b.png"]  # made again after closing


def test_what_is_not_there_is_named(web: Any) -> None:
    with pytest.raises(NotFound, match=r"gone\.jpg"):
        web("set").open("gone.jpg")
    bad = bytes_of(web("set"), "gone.jpg")
    assert isinstance(bad, BadImage) and bad.trouble == "unreadable"


def test_a_busy_server_is_asked_again(web: Any, server: Server) -> None:
    assert read_image(web("busy"), "b.png") == IMAGES["b.png"]
    assert server.asked["/busy/b.png"] == 3
    assert web.pauses == [1.0, 2.0]


@pytest.mark.parametrize(("folder", "attempts"), [("500", 4), ("cut", 4), ("418", 1)])
def test_a_server_that_fails_makes_no_image_bad(
    web: Any, server: Server, folder: str, attempts: int
) -> None:
    with pytest.raises(ConnectionError, match=f"{folder}/b.png"):
        bytes_of(web(folder), "b.png")
    assert server.asked[f"/{folder}/b.png"] == attempts


def test_a_server_that_is_not_there_raises() -> None:
    pauses: list[float] = []
    source = WebSource(
        "http://127.0.0.1:9", ids=["a.jpg"], patience=Patience(attempts=4, sleep=pauses.append)
    )
    with pytest.raises(ConnectionError):
        source.open("a.jpg")
    assert len(pauses) == 3
    source.close()


def test_a_locked_server_and_an_endless_file(web: Any) -> None:
    with pytest.raises(UserError, match="access denied"):
        web("403").open("b.png")
    bad = bytes_of(web("long"), "b.png")
    assert isinstance(bad, BadImage) and "1,000,000,000,000 bytes" in bad.reason


def test_an_image_is_not_taken_from_where_a_server_leads(
    liar: LyingServer, internet: Internet
) -> None:
    secret = LyingServer()
    liar.mood = lambda ask: ask.head("302 Found", Location=secret.url("localhost"))
    source = WebSource(liar.url(path="set?key=word"), ids=["a.jpg"])
    bad = bytes_of(source, "a.jpg")
    assert isinstance(bad, BadImage) and "private address" in bad.reason
    assert "word" not in bad.reason
    source.close()
    secret.close()
    assert not secret.requests and set(internet.reached) == {("127.0.0.1", liar.port)}


@pytest.mark.usefixtures("internet")
def test_an_image_that_comes_compressed_is_not_unpacked(liar: LyingServer) -> None:
    liar.mood = bombs
    source = WebSource(liar.url(path="set"), ids=["a.jpg"])
    assert read_image(source, "a.jpg") == BOMB
    source.close()


def test_a_web_server_cannot_be_listed(server: Server) -> None:
    with pytest.raises(NotApplicable, match="give the ids"):
        open_source(f"{server.url}/set").ids()


def test_where_an_image_is_may_not_lead_elsewhere(web: Any) -> None:
    for image_id in ("../secret.jpg", "/etc/passwd", ""):
        with pytest.raises(UserError, match="image id"):
            web("set").open(image_id)


def test_paths_and_file_urls(tmp_path: Path) -> None:
    import tarfile
    import zipfile

    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "b.png").write_bytes(b"here")
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(folder / "b.png", "b.png")
    with zipfile.ZipFile(tmp_path / "set.ZIP", "w") as archive:
        archive.write(folder / "b.png", "b.png")
    kinds = {folder: FolderSource, tmp_path / "set.tar": TarSource, tmp_path / "set.ZIP": ZipSource}
    for path, kind in kinds.items():
        for where in (path, str(path), path.as_uri()):
            source = open_source(where)
            assert type(source) is kind
            assert read_image(source, "b.png") == b"here"
            if isinstance(source, ZipSource):
                source.close()


@pytest.mark.parametrize("where", ["ftp://host/a", "s3://", "http:///a", "file://elsewhere/a"])
def test_other_addresses_are_refused(where: str) -> None:
    with pytest.raises(UserError, match="no images can be read"):
        open_source(where)


def test_passwords_do_not_belong_in_an_address() -> None:
    with pytest.raises(UserError) as caught:
        open_source("https://me:secret@host/a")
    assert "secret" not in caught.value.line


# obstore is an extra and not installed for these tests. This stands for it, with the few names that
# are used: a store's list() and get(), and its errors.
class Found:
    def __init__(self, body: bytes, size: int) -> None:
        self.body, self.meta = body, {"size": size}

    def bytes(self) -> bytes:
        return self.body


class Store:
    def __init__(self, url: str) -> None:
        self.url = url

    def check(self) -> None:
        if "missing" in self.url:
            text = "Generic S3 error: 404\n\nDebug source"
            raise sys.modules["obstore.exceptions"].BaseError(text)  # type: ignore[attr-defined]

    def list(self) -> Iterator[list[dict[str, str | int]]]:
        self.check()
        names = [*IMAGES, "notes.txt", ".hidden.jpg"]
        yield [{"path": name, "size": len(name)} for name in names[:2]]
        yield [{"path": name, "size": len(name)} for name in names[2:]]

    def get(self, name: str) -> Found:
        self.check()
        if "locked" in self.url:
            raise sys.modules["obstore.exceptions"].UnauthenticatedError("no")  # type: ignore[attr-defined]
        if name == "huge.jpg":
            return Found(b"", 10**10)
        if name not in IMAGES:
            raise FileNotFoundError(name)
        return Found(IMAGES[name], len(IMAGES[name]))


@pytest.fixture
def obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    package, store = types.ModuleType("obstore"), types.ModuleType("obstore.store")
    errors = types.ModuleType("obstore.exceptions")
    base = type("BaseError", (Exception,), {})
    for name in ("PermissionDeniedError", "UnauthenticatedError"):
        setattr(errors, name, type(name, (base,), {}))
    errors.BaseError = base  # type: ignore[attr-defined]
    store.from_url = Store  # type: ignore[attr-defined]
    for module in (package, store, errors):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("obstore")
def test_a_store_is_listed_and_read() -> None:
    source = open_source("s3://bucket/set/")
    assert isinstance(source, ObjectStoreSource)
    assert list(source.ids()) == sorted(IMAGES)
    assert {key: read_image(source, key) for key in source.ids()} == IMAGES
    assert list(open_source("gs://bucket", ids=["b.png"]).ids()) == ["b.png"]
    sent = pickle.loads(pickle.dumps(source))
    assert read_image(sent, "b.png") == IMAGES["b.png"]


@pytest.mark.usefixtures("obstore")
def test_the_errors_of_a_store_are_told_apart() -> None:
    source = open_source("s3://bucket/set")
    with pytest.raises(NotFound, match=r"gone\.jpg.*s3://bucket/set"):
        source.open("gone.jpg")
    bad = bytes_of(source, "huge.jpg")
    assert isinstance(bad, BadImage) and "10,000,000,000 bytes" in bad.reason
    with pytest.raises(UserError, match="access denied"):
        open_source("s3://locked").open("b.png")
    with pytest.raises(UserError, match="404: check the address"):
        open_source("s3://missing/set").ids()
    with pytest.raises(ConnectionError, match=r"s3://missing/set: .*404\Z"):
        bytes_of(open_source("s3://missing/set"), "b.png")


class Absent:
    """As if obstore were not installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "obstore":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_without_the_package_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent, *sys.meta_path])
    with pytest.raises(
        MissingExtra, match=r"s3://bucket needs the package obstore.*heldout\[stores\]"
    ):
        open_source("s3://bucket").ids()
